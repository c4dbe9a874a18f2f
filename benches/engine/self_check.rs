//! What a self-check costs the scheduler's thread, and the comparison elsewhere, where ten pods run on each node.

use unikai::engine::Engine;
use unikai::engine::input::{Event, GpuRequest};
use unikai::engine::model::check::Part;
use unikai::engine::policy::Policy;

use crate::objects::{GPUS_PER_NODE, NOW, cluster, run, workload};
use crate::{ms, timed};

/// Pods on each node beside those with a GPU each.
const MORE: usize = 2;

/// Builds two engines that have seen the same, checks the parts of the rules, and compares.
pub fn measure(shape: &str, nodes: usize) {
    let engine = || {
        let mut engine = Engine::new(Policy::default());
        let mut events = cluster(nodes, 1, 100);
        for at in 0..nodes * MORE {
            let mut more = workload("more", 1, 100, at);
            for event in &mut more {
                if let Event::Pod(pod) = event {
                    pod.needs_mut().gpu = GpuRequest::default();
                }
            }
            events.extend(more);
        }
        run(&mut events, |pod| {
            if pod < nodes * GPUS_PER_NODE {
                pod / GPUS_PER_NODE
            } else {
                pod % nodes
            }
        });
        let (build, ()) = timed(|| events.into_iter().for_each(|event| engine.apply(event, NOW)));
        engine.cycle(NOW);
        (build, engine)
    };
    let (_, mut live) = engine();
    let (build, mut anew) = engine();
    let rules = Part::ALL.map(|part| {
        let (took, broken) = timed(|| live.model().broken_rules_of(part));
        assert!(broken.is_empty(), "{broken:?}");
        format!("{part:?} {:.1}", ms(took))
    });
    let (digest, mine) = timed(|| live.digest(NOW));
    let (_, other) = timed(|| anew.digest(NOW));
    let (compare, differences) = timed(|| mine.differences(other, 10));
    println!(
        "{shape:<20} {} pods: rules in ms: {}; digest {:.1} ms; elsewhere: build {:.0} ms, compare {:.0} ms, {} differences",
        live.model().pods().ids().count(),
        rules.join(", "),
        ms(digest),
        ms(build),
        ms(compare),
        differences.len(),
    );
}
