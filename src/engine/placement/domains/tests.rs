use super::*;
use crate::engine::Engine;
use crate::engine::input::{Amounts, Event, Name, PodInput, TopologyInput};
use crate::engine::policy::Policy;
use crate::engine::tests::scenario::{NOW, group, node, pod};

/// A cluster of one rack per line of nodes (GPUs each), and pending pods.
fn cluster(racks: &[&[&str]], running: &[(&str, &str, &str)], pending: &[PodInput]) -> (Model, Vec<PodId>) {
    let mut engine = Engine::new(Policy {
        actions: Vec::new(),
        ..Policy::default()
    });
    let mut events = vec![Event::Topology(TopologyInput {
        name: "net".into(),
        levels: vec!["rack".into()],
    })];
    for (rack, nodes) in racks.iter().enumerate() {
        for (number, gpus) in nodes.iter().enumerate() {
            let name = format!("n{rack}{number}");
            events.push(Event::Node(Box::new(node(&name, &format!("{gpus} rack=r{rack}")))));
        }
    }
    let sharers = group("sharers", "q", 0);
    events.extend(running.iter().enumerate().map(|(number, (on, gpus, gpu))| {
        let mut pod = pod(&sharers, number, gpus);
        pod.status = crate::engine::input::PodStatus::Running;
        pod.node = Some((*on).into());
        pod.gpu_groups = if gpu.is_empty() {
            Vec::new()
        } else {
            vec![(*gpu).into()]
        };
        Event::Pod(Box::new(pod))
    }));
    events.extend(pending.iter().map(|pod| Event::Pod(Box::new(pod.clone()))));
    for event in events {
        engine.apply(event, NOW);
    }
    engine.cycle(NOW);
    let model = engine.model;
    let mut pods: Vec<PodId> = model
        .pods()
        .iter()
        .filter(|(_, pod)| pod.input.node.is_none())
        .map(|(id, _)| id)
        .collect();
    pods.sort_by_key(|pod| model.pods()[*pod].input.pod.uid.clone());
    (model, pods)
}

fn pods(gpus: &[&str]) -> Vec<PodInput> {
    let pod_group = group("gang", "q", 1);
    gpus.iter()
        .enumerate()
        .map(|(number, gpus)| pod(&pod_group, number, gpus))
        .collect()
}

/// Number of pods that fit in the first rack.
fn slots(nodes: &[&str], running: &[(&str, &str, &str)], asked: &[&str]) -> i64 {
    let (model, pods) = cluster(&[nodes], running, &pods(asked));
    let need = Need::of(&model, &pods);
    assert!(need.alike);
    need.capacity(&model, model.topologies()["net"].nodes_of(0)).slots
}

#[test]
fn room_is_counted_in_pods_of_the_largest_kind() {
    for (nodes, running, asked, wanted) in [
        (&["2"][..], &[("n00", "1", "")][..], &["1"][..], 1),
        (&["2"], &[("n00", "0.5", "a"), ("n00", "0.5", "b")], &["0.4"], 2),
        (&["1"], &[("n00", "0.5", "a")], &["0.4"], 1),
        (&["2"], &[("n00", "0.5", "a")], &["0.5"], 3),
        (&["1"], &[], &["0.2"], 5),
        (&["1"], &[("n00", "0.4", "a")], &["0.2"], 3),
        (&["1"], &[], &["0.6"], 1),
        (&["2", "2"], &[], &["40M"], 8),
        (&["2"], &[], &["0.5*2"], 2),
        (&["2", "1"], &[], &["2"], 1),
        (&["8", "4"], &[], &["8", "1", "1"], 1),
    ] {
        assert_eq!(slots(nodes, running, asked), wanted, "{nodes:?} {running:?} {asked:?}");
    }
}

#[test]
fn pods_without_requests_fit_in_any_number() {
    let mut pods = pods(&["0", "0", "0"]);
    for pod in &mut pods {
        pod.needs_mut().request = Amounts::default();
    }
    let (model, pods) = cluster(&[&["0"]], &[], &pods);
    let need = Need::of(&model, &pods);
    assert!(need.fits(&need.capacity(&model, model.topologies()["net"].nodes_of(0))));
}

#[test]
fn pods_of_several_kinds_are_summed_up() {
    let (model, pods) = cluster(&[&["2", "1"]], &[], &pods(&["1", "0", "0"]));
    let need = Need::of(&model, &pods);
    assert!(!need.alike);
    let capacity = need.capacity(&model, model.topologies()["net"].nodes_of(0));
    let share = need.share(&capacity);
    assert!(
        share
            == Share {
                asked: GPU,
                free: 3 * GPU
            },
        "{} of {}",
        share.asked,
        share.free
    );
}

#[test]
fn partly_used_gpus_count_as_capacity_for_portions() {
    let running = [("n00", "0.5", "a")];
    let (model, pods) = cluster(&[&["1"]], &running, &pods(&["0.5", "0"]));
    let need = Need::of(&model, &pods);
    assert!(need.fits(&need.capacity(&model, model.topologies()["net"].nodes_of(0))));
}

/// Names of the domains to try.
fn order(racks: &[&[&str]], asked: &[&str], required: Option<&str>, preferred: Option<&str>) -> Vec<String> {
    let (model, pods) = cluster(racks, &[], &pods(asked));
    let constraint = TopologyConstraint {
        topology: "net".into(),
        required: required.map(Name::from),
        preferred: preferred.map(Name::from),
    };
    let question = Question {
        constraint: &constraint,
        pods: &pods,
        with: &[],
        among: None,
        all: &[],
    };
    let (_, found) = domains(&model, &question, &mut DomainCapacityCache::default())
        .expect("room")
        .expect("a constraint");
    let name = |domain: &usize| model.topologies()["net"].domains[*domain].name.to_string();
    found.order.iter().map(name).collect()
}

#[test]
fn the_fullest_domain_with_room_is_tried_first_and_wider_domains_later() {
    let racks: [&[&str]; 3] = [&["4"], &["2"], &["1"]];
    assert_eq!(order(&racks, &["1", "1"], Some("rack"), None), ["r1", "r0"]);
    assert_eq!(order(&racks, &["1", "1"], None, Some("rack")), ["r1", "r0", "root"]);
    assert_eq!(order(&racks, &["4"], Some("rack"), None), ["r0"]);
}
