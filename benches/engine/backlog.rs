//! A full cluster, and many pod groups that wait: what a cycle costs after one pod has ended.

use unikai::engine::Engine;
use unikai::engine::input::Event;
use unikai::engine::policy::Policy;

use crate::objects::{GPUS_PER_NODE, NOW, cluster, name, run, workload};
use crate::{median_and_longest, ms, timed};

/// Pod groups that wait.
const WAITING: usize = 20_000;
/// GPUs of their pods, in turn.
const GPUS: [i64; 4] = [1, 2, 4, 8];
/// Queues.
const QUEUES: usize = 100;
/// Pods that end, one after another.
const ENDS: usize = 21;

/// Runs the shape.
pub fn measure(shape: &str, nodes: usize) {
    let mut engine = Engine::new(Policy::default());
    let mut events = cluster(nodes, 1, QUEUES);
    run(&mut events, |pod| pod / GPUS_PER_NODE);
    let first = nodes * GPUS_PER_NODE;
    for at in 0..WAITING {
        let mut group = workload("waits", 1, QUEUES, first + at);
        for event in &mut group {
            if let Event::Pod(pod) = event {
                pod.needs_mut().gpu.count = GPUS[at % GPUS.len()];
            }
        }
        events.extend(group);
    }
    for event in events {
        engine.apply(event, NOW);
    }
    let (cycle, decisions) = timed(|| engine.cycle(NOW));
    let (next, _) = timed(|| engine.cycle(NOW));
    let mut bound = 0;
    let (median, longest) = median_and_longest((0..ENDS).map(|at| {
        let gone = Event::PodGone(name(&format!("fill-{:06}", at * GPUS_PER_NODE)));
        let (took, decisions) = timed(|| {
            engine.apply(gone, NOW);
            engine.cycle(NOW)
        });
        bound += decisions.bind.len();
        took
    }));
    println!(
        "{shape:<20} {WAITING} wait, {} unschedulable; first cycle {:.2} ms, next {:.2} ms; a pod ends {:.2} ms (longest {:.2}); {bound} bind after {ENDS} ends",
        decisions.unschedulable.len(),
        ms(cycle),
        ms(next),
        ms(median),
        ms(longest),
    );
}
