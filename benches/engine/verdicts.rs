//! What it costs to keep the verdicts of waiting pod groups up to date between cycles.

use std::time::Duration;

use unikai::engine::Engine;
use unikai::engine::input::Time;
use unikai::engine::policy::Policy;

use crate::objects::{GPUS_PER_NODE, NOW, cluster, run, workload};
use crate::{ms, timed};

/// Pod groups that wait.
const WAITING: usize = 1_000;
/// Sizes of the pod groups that wait, in turn.
const SIZES: [usize; 4] = [1, 2, 8, 16];
/// Queues.
const QUEUES: usize = 100;
/// The least time between two refreshes in the operator, in milliseconds.
const BETWEEN: i64 = 250;

/// Fills a cluster, lets pod groups wait, changes something, and refreshes verdicts as the operator does until all are current.
pub fn measure(shape: &str, nodes: usize) {
    let mut engine = Engine::new(Policy::default());
    let mut events = cluster(nodes, 1, QUEUES);
    run(&mut events, |pod| pod / GPUS_PER_NODE);
    let mut first = nodes * GPUS_PER_NODE;
    for at in 0..WAITING {
        let size = SIZES[at % SIZES.len()];
        first = first.next_multiple_of(size);
        events.extend(workload("waits", size, QUEUES, first));
        first += size;
    }
    for event in events {
        engine.apply(event, NOW);
    }
    let (cycle, decisions) = timed(|| engine.cycle(NOW));
    // Another pod group changes the figures of all verdicts.
    for event in workload("late", 1, QUEUES, first) {
        engine.apply(event, NOW);
    }
    engine.cycle(NOW);
    let (mut calls, mut changed, mut now) = (Vec::new(), 0, NOW);
    loop {
        now = Time(now.0 + BETWEEN);
        let (took, refreshed) = timed(|| engine.refresh_verdicts(now));
        calls.push(took);
        changed += refreshed.reports.len();
        match refreshed.next {
            Some(next) => now = Time(next.0.max(now.0)),
            None => break,
        }
    }
    calls.sort_unstable();
    let all: Duration = calls.iter().sum();
    println!(
        "{shape:<20} {} wait; cycle {:.2} ms; verdicts: {} changed in {} refreshes over {:.1} s, {:.2} ms each (median), {:.2} ms at most, {:.2} % of the time",
        decisions.unschedulable.len(),
        ms(cycle),
        changed,
        calls.len(),
        (now.0 - NOW.0) as f64 / 1e3,
        ms(calls[calls.len() / 2]),
        ms(calls[calls.len() - 1]),
        ms(all) / (now.0 - NOW.0) as f64 * 100.0,
    );
}
