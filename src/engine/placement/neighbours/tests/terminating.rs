//! Pods that terminate count for affinity and anti-affinity until they are gone, and not for spread constraints, however long it takes.

use super::*;
use crate::engine::model::pod::Status;

#[test]
fn a_pod_that_is_stuck_in_termination_counts_like_one_that_has_just_begun_to_terminate() {
    const CASES: &[(&str, &str, &str)] = &[
        ("spread 1 app=a by zone", "...L", "xx.L"),
        ("near app=a by zone", "..NN", "..NN"),
        ("apart app=a by zone", "AA..", "AA.."),
    ];
    for (text, terminating, running) in CASES {
        for (on, wanted) in [("n0!!", terminating), ("n0!", terminating), ("n0", running)] {
            let found = verdicts(&NODES, &[(on, "app=a", "")], "app=a", text);
            assert_eq!(found, *wanted, "{text}, with a pod on {on}");
        }
    }
}

#[test]
fn the_zone_of_a_stuck_pod_has_the_fewest_pods() {
    let running = [("n0!!", "app=a", ""), ("n2", "app=a", "")];
    assert_eq!(verdicts(&NODES, &running, "app=a", "spread 1 app=a by zone"), "..xL");
}

#[test]
fn spread_constraints_do_not_count_a_pod_again_when_it_becomes_stuck() {
    let mut engine = Engine::new(Policy {
        actions: Vec::new(),
        ..Policy::default()
    });
    for (name, labels) in NODES {
        engine.apply(Event::Node(Box::new(node(name, &format!("1 {labels}")))), NOW);
    }
    let mut terminating = placed(made(0, "app=a", ""), "n0!");
    terminating.releasing_since = Some(NOW);
    let waiting = made(1, "app=a", "spread 1 app=a by zone");
    for pod in [&terminating, &waiting] {
        engine.apply(Event::Pod(Box::new(pod.clone())), NOW);
    }
    for (seconds, status) in [(1, Status::Releasing), (300, Status::Stuck)] {
        engine.cycle(Time(NOW.0 + seconds * 1_000));
        let model = &engine.model;
        assert_eq!(model.broken_rules(), BTreeMap::new());
        let id = |pod: &PodInput| model.pods().id(&pod.pod.uid).unwrap();
        assert_eq!(model.pods()[id(&terminating)].state.status, status);
        let spreading = Spreading::of(model, id(&waiting)).unwrap();
        let zone_a = model.node_named(&"n0".into()).unwrap();
        assert_eq!(spreading.clash(model, zone_a), None, "{status:?}");
    }
}
