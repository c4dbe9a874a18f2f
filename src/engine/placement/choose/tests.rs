use proptest::prelude::*;

use super::*;
use crate::engine::model::task::{Place, Status};
use crate::engine::placement::neighbours::tests::{made, model_of, random_pod};

const NODES: [(&str, &str); 6] = [
    ("n0", "zone=a rack=1"),
    ("n1", "zone=a rack=2"),
    ("n2", "zone=b rack=1"),
    ("n3", "rack=2"),
    ("n4", "zone=b"),
    ("n5", "zone=a rack=1"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Pods that are or want to be near others, or apart, or spread: whatever was learnt from those placed before, the node is the one that the
    /// scores name.
    #[test]
    fn what_is_known_of_closed_nodes_and_wishes_changes_no_choice(
        running in prop::collection::vec(random_pod(), 0..6),
        waiting in prop::collection::vec(random_pod(), 1..4),
        nominated in prop::sample::select(vec![None, None, Some("n2"), Some("n9")]),
        copies in 1..7_usize,
        order in Just((0..24_usize).collect::<Vec<_>>()).prop_shuffle(),
        taken_back in prop::collection::vec(prop::bool::weighted(0.3), 20),
    ) {
        let running: Vec<(&str, &str, &str)> = running
            .iter()
            .map(|(on, labels, text)| (NODES[*on].0, *labels, text.as_str()))
            .collect();
        let pods = waiting.iter().enumerate();
        let pods = pods.flat_map(|(kind, (_, labels, text))| {
            (0..copies).map(move |copy| made(100 + 10 * kind + copy, labels, text))
        });
        let pods = pods.map(|mut pod| {
            pod.nominated_node = nominated.map(Into::into);
            pod
        });
        let mut model = model_of(&NODES, &running, pods.collect());
        let policy = Policy::default();
        let scorers = Scorers::of(&policy);
        let closed = RefCell::default();
        let pending = model.tasks.iter().filter(|(_, task)| task.state.status == Status::Pending);
        let mut pending: Vec<TaskId> = pending.map(|(id, _)| id).collect();
        pending.sort_by_key(|task| order[task.at() % order.len()]);
        let start = model.mark();
        for (task, take_back) in pending.into_iter().zip(taken_back) {
            let class = model.tasks[task].class;
            model.refresh_class(class);
            let spreading = Spreading::of(&model, task);
            let context = Context {
                policy: &policy,
                scorers: &scorers,
                scope: Scope::default(),
                spreading: spreading.as_ref(),
                closed: Some(&closed),
            };
            let mut work = Work::default();
            let found = best_node(&model, context, task, &mut work);
            let wanted = scan(&model, Context { closed: None, ..context }, task, &mut work);
            prop_assert_eq!(found, wanted);
            if let Some(node) = found {
                model.allocate(task, Place { node, groups: smallvec::SmallVec::new(), zones: Vec::new(), volumes: None, devices: None });
            }
            if take_back {
                model.rollback(start);
            }
        }
    }
}
