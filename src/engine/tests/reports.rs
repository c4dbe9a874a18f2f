//! The messages of pods that wait.

use super::scenario::{NOW, group, node, open_queue, pod, sub_group};
use crate::engine::Engine;
use crate::engine::decision::GroupReport;
use crate::engine::input::{Event, GroupInput, PodInput};
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
        report.pods[0].1,
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
