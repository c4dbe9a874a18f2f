//! The messages of pods that wait.

use std::sync::Arc;

use super::scenario::{NOW, Scenario, group, node, open_queue, pod, sub_group};
use crate::engine::Engine;
use crate::engine::decision::{Decisions, GroupReport};
use crate::engine::explain::report::{REASON_BYTES, REASONS_LISTED};
use crate::engine::input::{Event, GroupInput, PodInput, PodVolumes};
use crate::engine::placement::domains::DOMAINS_LISTED;
use crate::engine::policy::Policy;

/// The report on a pod group whose first pod has the GPU of node n0, which leaves none for its second. Further nodes are cordoned.
fn report(policy: Policy, group: &GroupInput, cordoned: &[String]) -> GroupReport {
    let mut engine = Engine::new(policy);
    engine.apply(open_queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    for name in cordoned {
        engine.apply(Event::Node(Box::new(node(name, "1 cordoned"))), NOW);
    }
    engine.apply(Event::Group(Box::new(group.clone())), NOW);
    engine.apply(Event::Pod(Box::new(pod(group, 0, "1"))), NOW);
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    engine.apply(Event::Pod(Box::new(pod(group, 1, "1"))), NOW);
    engine.cycle(NOW).unschedulable.remove(0)
}

fn detailed(cordoned: &[String]) -> GroupReport {
    let policy = Policy {
        detailed_errors: true,
        ..Policy::default()
    };
    report(policy, &group("a", "q", 0), cordoned)
}

#[test]
fn detailed_errors_list_the_reasons_of_each_node_in_the_message_of_the_pod() {
    let report = detailed(&["n1".to_owned()]);
    assert_eq!(
        &*report.pods[0].1,
        "no nodes with enough resources were found: 1 node is unschedulable. \n\
         1 node(s) didn't have enough resources: GPUs.\n\
         <n0>: node(s) didn't have enough resources: GPUs.\n\
         <n1>: node is unschedulable."
    );
    assert!(!report.message.contains("<n0>"), "{}", report.message);
}

#[test]
fn detailed_errors_list_a_limited_number_of_nodes_and_bytes() {
    for (prefix, most) in [("x".to_owned(), 50), ("x".repeat(200), 18)] {
        let names: Vec<String> = (0..60).map(|number| format!("{prefix}{number}")).collect();
        let report = detailed(&names);
        let text = &report.pods[0].1;
        let listed = text.lines().filter(|line| line.starts_with('<')).count();
        assert_eq!(listed, most);
        let rest = format!("and {} more nodes.", 61 - listed);
        assert_eq!(text.lines().last(), Some(&*rest));
    }
}

#[test]
fn a_message_lists_a_limited_number_of_reasons() {
    let policy = Policy {
        restrict_nodes: true,
        ..Policy::default()
    };
    let mut engine = Engine::new(policy);
    engine.apply(open_queue("q"), NOW);
    for number in 0..60 {
        engine.apply(Event::Node(Box::new(node(&format!("n{number}"), "1"))), NOW);
    }
    let group = group("a", "q", 0);
    engine.apply(Event::Group(Box::new(group.clone())), NOW);
    engine.apply(Event::Pod(Box::new(pod(&group, 0, "1"))), NOW);
    let report = engine.cycle(NOW).unschedulable.remove(0);
    let lines: Vec<&str> = report.pods[0].1.lines().collect();
    assert_eq!(lines.len(), 51);
    assert!(lines[0].ends_with("1 gpu task: <ns/a-000> can't run on non gpu nodes, node: <n0>. "));
    assert_eq!(lines[50], "reasons that are not listed: 10.");
}

/// The report on the pod group g, whose pods must be together in one of these racks of a node each.
fn report_on_racks(racks: impl IntoIterator<Item = String>, gang: &str) -> GroupReport {
    cycle_on_racks(racks, gang, "net:rack").unschedulable.remove(0)
}

/// A cycle with the pod group g, which has a topology constraint, on these racks of a node each.
fn cycle_on_racks(racks: impl IntoIterator<Item = String>, gang: &str, constraint: &str) -> Decisions {
    let nodes: Vec<String> = racks
        .into_iter()
        .enumerate()
        .map(|(number, rack)| format!("n{number}: {rack}"))
        .collect();
    let text = format!(
        "name: it\nnodes: {{{}}}\ntopologies: {{net: [rack]}}\nqueues: [q -1]\npod_groups: [g q {gang} topo={constraint}]",
        nodes.join(", ")
    );
    let scenario: Scenario = serde_yaml_ng::from_str(&text).expect("a scenario");
    let mut engine = Engine::new(scenario.policy());
    scenario.events().into_iter().for_each(|event| engine.apply(event, NOW));
    engine.cycle(NOW)
}

#[test]
fn a_report_lists_a_limited_number_of_domains_those_with_the_most_room_first() {
    let gpus = |rack: usize| if rack == 59 { 2 } else { 1 };
    let racks = (0..60).map(|rack| format!("{} rack=r{rack}", gpus(rack)));
    let report = report_on_racks(racks, "T1x3");
    let said: Vec<&str> = report.reasons.iter().map(|reason| &*reason.message).collect();
    assert_eq!(said.len(), DOMAINS_LISTED + 2);
    assert_eq!(said[0], "node-group r59 can allocate only 2 of 3 required pods");
    assert_eq!(
        said[DOMAINS_LISTED..],
        [
            "node-group(s) without enough room that are not listed: 10",
            "topology net, requirement rack couldn't be satisfied for job <ns/g>"
        ]
    );
    let sentence = &report.verdict.sentence;
    assert!(
        sentence.contains(": r59 has room for 2 of 3, ") && sentence.ends_with(" and 57 more"),
        "{sentence}"
    );
    assert_eq!(report.pods.len(), 3);
    let shared = &report.pods[0].1;
    assert_eq!(&**shared, &*report.message);
    assert!(report.pods.iter().all(|(_, text)| Arc::ptr_eq(text, shared)));
}

#[test]
fn a_report_lists_a_limited_number_of_domains_that_were_tried() {
    let report = report_on_racks(tainted(150), "T1x2");
    assert_eq!(report.reasons.len(), REASONS_LISTED + 1);
    let last = &report.reasons[REASONS_LISTED].message;
    assert_eq!(last, "reasons that are not listed: 50");
}

/// Racks of a node each that no pod tolerates.
fn tainted(racks: usize) -> impl Iterator<Item = String> {
    (0..racks).map(|rack| format!("2 taint~maintenance rack=r{rack}"))
}

#[test]
fn domains_without_a_node_for_a_pod_are_tried_only_for_the_reasons_in_the_report() {
    for racks in [150, 300] {
        let decisions = cycle_on_racks(tainted(racks), "T1", "net:rack");
        assert_eq!(decisions.work.nodes_tested, REASONS_LISTED as u64 + 1, "{racks} racks");
    }
}

#[test]
fn the_message_of_a_pod_is_about_the_widest_domain_however_many_were_tried() {
    for racks in [50, 150] {
        let report = cycle_on_racks(tainted(racks), "T1", "net::rack")
            .unschedulable
            .remove(0);
        let text = &report.pods[0].1;
        let says = format!("no nodes with enough resources were found: {racks} node(s) ");
        assert!(text.starts_with(&says), "{text}");
    }
}

#[test]
fn the_reasons_of_a_report_have_a_limited_length() {
    let racks = (0..60).map(|rack| format!("1 rack=r{rack}{}", "x".repeat(1_000)));
    let report = report_on_racks(racks, "T1x3");
    let last = &report.reasons.last().expect("reasons").message;
    assert!(last.starts_with("reasons that are not listed: "), "{last}");
    let bytes: usize = report.reasons.iter().map(|reason| reason.message.len()).sum();
    assert_eq!(bytes, REASON_BYTES + last.len());
}

#[test]
fn all_failed_checks_of_a_pod_are_reported() {
    let entry = group("a", "q", 0);
    let mut lacking = pod(&entry, 0, "2");
    lacking.blocked = Some("Missing required configmaps: [settings]".into());
    lacking.volumes = Some(Arc::new(PodVolumes {
        missing: Some("persistentvolumeclaim \"data\" not found".into()),
        ..PodVolumes::default()
    }));
    lacking.needs_mut().request.other = vec![("ephemeral-storage".into(), 1_500_000_000)];
    let mut engine = Engine::new(Policy::default());
    engine.apply(open_queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    engine.apply(Event::Group(Box::new(entry)), NOW);
    engine.apply(Event::Pod(Box::new(lacking)), NOW);
    let report = engine.cycle(NOW).unschedulable.remove(0);
    assert_eq!(
        &*report.pods[0].1,
        "Scheduling conditions were not met for pod ns/a-000:\n\
         VolumeBinding: persistentvolumeclaim \"data\" not found.\n\
         ConfigMap: Missing required configmaps: [settings].\n\
         MaxNodePoolResources: The pod ns/a-000 requires GPU: 2, CPU: 0.001 (cores), memory: 0 (GB), pods: 1, \
         ephemeral-storage: 1.5 (GB). \
         Max GPU resources available in a single node in the default node-pool is topped at 1.\n"
    );
}

#[test]
fn a_preemption_delay_is_written_as_in_go() {
    let text = "name: it\nactions: [preempt]\nnodes: {n0: '1'}\nqueues: [q 1]\npod_groups: [a q T1@n0, p q B1 age=0]";
    let scenario: Scenario = serde_yaml_ng::from_str(text).expect("a scenario");
    let mut engine = Engine::new(scenario.policy());
    for mut event in scenario.events() {
        if let Event::Group(group) = &mut event {
            group.preemption_delay = Some(500);
        }
        engine.apply(event, NOW);
    }
    let report = engine.cycle(NOW).unschedulable.remove(0);
    let says = "Workload is within its preemption delay window (500ms) and may not trigger evictions before";
    assert!(report.message.contains(says), "{}", report.message);
}

#[test]
fn a_report_lists_a_limited_number_of_sub_groups() {
    let mut group = group("a", "q", 0);
    group.sub_groups = (0..1_000).map(|number| sub_group(&format!("s{number}:1"))).collect();
    let only = PodInput {
        sub_group: Some("s0".into()),
        ..pod(&group, 0, "1")
    };
    let mut engine = Engine::new(Policy::default());
    engine.apply(open_queue("q"), NOW);
    engine.apply(Event::Group(Box::new(group)), NOW);
    engine.apply(Event::Pod(Box::new(only)), NOW);
    let report = engine.cycle(NOW).unschedulable.remove(0);
    assert!(
        report.message.ends_with(" 983 more SubGroups lack pods."),
        "{}",
        report.message
    );
    let evidence = &report.verdict.evidence;
    assert_eq!(
        evidence.last().map(String::as_str),
        Some("983 more sub-groups lack pods")
    );
    assert_eq!(evidence.len(), 16);
}

#[test]
fn a_pod_without_a_sub_group_in_a_pod_group_with_sub_groups_has_a_message() {
    let mut group = group("a", "q", 0);
    group.sub_groups = vec![sub_group("workers:0")];
    let lost = pod(&group, 0, "1");
    let mut engine = Engine::new(Policy::default());
    engine.apply(open_queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    engine.apply(Event::Group(Box::new(group)), NOW);
    engine.apply(Event::Pod(Box::new(lost.clone())), NOW);
    let decisions = engine.cycle(NOW);
    assert!(decisions.bind.is_empty());
    let said: Vec<_> = decisions
        .unknown_sub_groups
        .iter()
        .map(|stray| (&*stray.pod.name, stray.message.as_deref()))
        .collect();
    let sentence = "Pod references subgroup \"default\", which does not exist in PodGroup ns/a";
    assert_eq!(said, [(&*lost.pod.name, Some(sentence))]);
}

/// A new pod group may get the id of one that was deleted since the last cycle, and one that is created again another id than before.
#[test]
fn the_report_of_a_deleted_pod_group_is_cleared_whatever_takes_its_id() {
    let mut engine = Engine::new(Policy::default());
    engine.apply(open_queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    let create = |engine: &mut Engine, name: &str| {
        let group = group(name, "q", 0);
        engine.apply(Event::Group(Box::new(group.clone())), NOW);
        engine.apply(Event::Pod(Box::new(pod(&group, 0, "2"))), NOW);
    };
    let delete = |engine: &mut Engine, name: &str| {
        let group = group(name, "q", 0);
        engine.apply(Event::PodGone(pod(&group, 0, "2").pod.uid.clone()), NOW);
        engine.apply(Event::GroupGone(group.key), NOW);
    };
    let cycle = |engine: &mut Engine| {
        let decisions = engine.cycle(NOW);
        let waiting = decisions
            .unschedulable
            .iter()
            .map(|report| report.group.name().to_owned());
        let cleared = decisions.cleared.iter().map(|group| group.name().to_owned());
        (waiting.collect::<Vec<_>>(), cleared.collect::<Vec<_>>())
    };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    create(&mut engine, "a");
    assert_eq!(cycle(&mut engine), (names(&["a"]), names(&[])));
    delete(&mut engine, "a");
    create(&mut engine, "b");
    assert_eq!(cycle(&mut engine), (names(&["b"]), names(&["a"])));
    delete(&mut engine, "b");
    create(&mut engine, "c");
    create(&mut engine, "b");
    assert_eq!(cycle(&mut engine), (names(&["b", "c"]), names(&[])));
    assert_eq!(cycle(&mut engine), (names(&[]), names(&[])));
    // Another process may have cleared them.
    delete(&mut engine, "b");
    engine.report_anew();
    assert_eq!(cycle(&mut engine), (names(&["c"]), names(&["b"])));
}
