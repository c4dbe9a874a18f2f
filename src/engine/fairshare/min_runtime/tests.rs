use super::protected_until;
use crate::engine::Engine;
use crate::engine::input::{Event, Time};
use crate::engine::model::ids::QueueId;
use crate::engine::model::pod_group::PodGroup;
use crate::engine::policy::{MinRuntime, Policy, ResolveMethod};
use crate::engine::tests::group;
use crate::engine::tests::scenario::queue;

const DEPARTMENTS: &[&str] = &[
    "dev 0 preempt=5 reclaim=10 in -",
    "dev1 0 reclaim=8 in dev",
    "dev2 0 preempt=3 in dev",
    "prod 0 preempt=20 reclaim=30 in -",
    "prod1 0 reclaim=25 in prod",
    "prod2 0 preempt=15 reclaim=35 in prod",
    "research 0 preempt=4 reclaim=6 in -",
    "project 0 preempt=7 reclaim=9 in research",
    "bare 0 in -",
    "leaf 0 in bare",
];

/// For how many seconds a pod group in one queue is safe from another queue, or from preemption.
fn safe_for(queues: &[&str], victim: &str, from: Option<&str>, resolve: ResolveMethod) -> i64 {
    let mut policy = Policy::default();
    policy.plugins.min_runtime = Some(MinRuntime {
        preempt: 5000,
        reclaim: 3000,
        resolve,
    });
    let mut engine = Engine::new(policy);
    for line in queues {
        let (name, rest) = line.split_once(' ').expect("a name");
        let mut input = queue(name, rest, Time(0));
        input.parent = input.parent.filter(|parent| &**parent != "-");
        engine.apply(Event::Queue(Box::new(input)), Time(0));
    }
    engine.cycle(Time(0));
    let id = |name: &str| -> QueueId {
        let mut all = engine.model.queues().iter();
        all.find(|(_, queue)| &*queue.name == name).expect("a queue").0
    };
    let mut input = group("victim", victim, 0);
    input.last_start = Some(Time(0));
    let mut pod_group = PodGroup::unknown(input.key.clone());
    (pod_group.input, pod_group.queue) = (Some(Box::new(input)), Some(id(victim)));
    let until = protected_until(&engine.model, &engine.policy, &pod_group, from.map(&id));
    until.expect("it has started").0 / 1000
}

#[test]
fn safe_from_preemption_by_the_nearest_setting_upwards() {
    let safe = |victim| safe_for(DEPARTMENTS, victim, None, ResolveMethod::Lca);
    assert_eq!(
        ["prod2", "prod1", "dev1", "research", "leaf"].map(safe),
        [15, 20, 5, 4, 5]
    );
}

#[test]
fn safe_from_reclaim_by_the_setting_below_the_common_ancestor() {
    let safe = |from, victim| safe_for(DEPARTMENTS, victim, Some(from), ResolveMethod::Lca);
    assert_eq!(safe("dev1", "prod2"), 30);
    assert_eq!(safe("dev2", "dev1"), 8);
    assert_eq!(safe("prod1", "prod2"), 35);
    assert_eq!(safe("dev1", "project"), 6);
    assert_eq!(safe("dev1", "leaf"), 3, "the default");

    let deep = [
        "a 0 in -",
        "b 0 reclaim=600 in a",
        "c 0 in b",
        "leaf1 0 reclaim=0 in c",
        "leaf2 0 reclaim=180 in c",
        "d 0 reclaim=60 in a",
        "leaf3 0 in d",
    ];
    let safe = |from, victim| safe_for(&deep, victim, Some(from), ResolveMethod::Lca);
    assert_eq!(safe("leaf1", "leaf3"), 60);
    assert_eq!(safe("leaf1", "leaf2"), 180);
    assert_eq!(safe("leaf3", "leaf1"), 600);
}

#[test]
fn safe_from_reclaim_by_the_own_setting_if_so_configured() {
    let safe = |from, victim| safe_for(DEPARTMENTS, victim, Some(from), ResolveMethod::Queue);
    assert_eq!(safe("dev1", "prod2"), 35);
    assert_eq!(safe("dev1", "dev2"), 10);
    assert_eq!(safe("dev1", "project"), 9);
}
