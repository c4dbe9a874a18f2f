use proptest::prelude::*;

use super::*;
use crate::engine::Engine;
use crate::engine::input::{Event, Time};
use crate::engine::policy::Policy;
use crate::engine::tests::scenario::{group, node, open_queue, placed, pod};

const NOW: Time = Time(1_000_000_000);

/// A cluster in which the tests bring nodes and pods.
struct Cluster(Engine);

impl Cluster {
    fn new() -> Self {
        let mut engine = Engine::new(Policy::default());
        engine.apply(open_queue("q"), NOW);
        engine.apply(Event::Group(Box::new(group("g", "q", 0))), NOW);
        Self(engine)
    }

    fn node(&mut self, name: &str, text: &str) {
        self.0.apply(Event::Node(Box::new(node(name, text))), NOW);
    }

    /// Pod number so and so runs there.
    fn runs(&mut self, number: usize, gpus: &str, on: &str) {
        let mut pod = placed(pod(&group("g", "q", 0), number, gpus), on);
        if gpus.contains('.') {
            pod.gpu_groups = vec![format!("shared-{on}").into()];
        }
        self.0.apply(Event::Pod(Box::new(pod)), NOW);
    }

    fn ends(&mut self, number: usize) {
        self.0.apply(Event::PodGone(format!("g-{number:03}").into()), NOW);
    }

    fn states(&self, tally: &mut GpuTally) -> [f64; 5] {
        let states = tally.update(self.0.model());
        [
            states.used,
            states.free,
            states.fragmented,
            states.unavailable,
            states.whole,
        ]
        .map(|gpus| gpus as f64 / GPU as f64)
    }
}

#[test]
fn gpus_are_in_use_free_fragmented_or_on_nodes_that_take_no_pods() {
    let mut cluster = Cluster::new();
    let tally = &mut GpuTally::default();
    assert_eq!(cluster.states(tally), [0.0; 5]);
    for (name, text) in [
        ("n1", "8"),
        ("n2", "8"),
        ("n3", "4 cordoned"),
        ("n4", "2 notready"),
        ("n5", "0"),
    ] {
        cluster.node(name, text);
    }
    assert_eq!(cluster.states(tally), [0.0, 16.0, 0.0, 6.0, 8.0]);
    cluster.runs(1, "2", "n1");
    assert_eq!(cluster.states(tally), [2.0, 8.0, 6.0, 6.0, 8.0]);
    cluster.runs(2, "0.25", "n2");
    assert_eq!(cluster.states(tally), [2.25, 0.0, 13.75, 6.0, 7.0]);
    cluster.runs(3, "1", "n3");
    assert_eq!(cluster.states(tally), [3.25, 0.0, 13.75, 5.0, 7.0]);
    cluster.ends(1);
    cluster.node("n3", "4");
    assert_eq!(cluster.states(tally), [1.25, 8.0, 10.75, 2.0, 8.0]);
    cluster.0.apply(Event::NodeGone("n2".into()), NOW);
    cluster.ends(2);
    assert_eq!(cluster.states(tally), [1.0, 8.0, 3.0, 2.0, 8.0]);
}

#[test]
fn slices_of_mig_are_gpus() {
    let mut cluster = Cluster::new();
    let tally = &mut GpuTally::default();
    cluster.node("n1", "0 mig-1g.5gb*2 mig-3g.20gb*1");
    assert_eq!(cluster.states(tally), [0.0, 5.0, 0.0, 0.0, 0.0]);
    cluster.runs(1, "mig-3g.20gb*1", "n1");
    assert_eq!(cluster.states(tally), [3.0, 0.0, 2.0, 0.0, 0.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is kept by difference is what is counted anew.
    #[test]
    fn a_tally_that_follows_changes_equals_a_fresh_one(
        changes in prop::collection::vec((0_usize..7, 0_usize..6, 0_usize..4), 1..40)
    ) {
        let mut cluster = Cluster::new();
        let mut tally = GpuTally::default();
        for (what, number, at) in changes {
            let name = format!("n{at}");
            match what {
                0 => cluster.node(&name, &number.to_string()),
                1 => cluster.node(&name, &format!("{number} cordoned")),
                2 => cluster.0.apply(Event::NodeGone(name.as_str().into()), NOW),
                3 | 4 => cluster.runs(number, ["1", "2", "0.5"][number % 3], &name),
                5 => cluster.ends(number),
                _ => {
                    let _ = cluster.0.cycle(NOW);
                }
            }
            let kept = cluster.states(&mut tally);
            prop_assert_eq!(kept, cluster.states(&mut GpuTally::default()));
            prop_assert!(kept.iter().all(|gpus| *gpus >= 0.0), "{:?}", kept);
        }
    }
}
