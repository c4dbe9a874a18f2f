//! Decisions per second of the engine alone, on clusters of 8-GPU nodes. Each line shows the decisions, so that a
//! speed-up that schedules less is seen.
//!
//! `cargo bench --bench engine`              all shapes
//! `cargo bench --bench engine -- fill:500`  one shape

mod backlog;
mod changes;
mod eviction;
mod objects;
mod placement;
mod relations;
mod self_check;
mod verdicts;

use std::time::{Duration, Instant};

use unikai::engine::Engine;
use unikai::engine::decision::Decisions;
use unikai::engine::input::Event;
use unikai::engine::policy::Policy;

use eviction::EVICTIONS;
use objects::{GPUS_PER_NODE, NOW, cluster, workload};
use placement::PLACEMENTS;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    unikai::cli::use_small_pages();
    let only: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    println!(
        "{:<20} {:>10} {:>10} {:>10} {:>8}  decided",
        "shape:nodes", "build ms", "cycle ms", "idle µs", "MiB"
    );
    for nodes in [100, 500, 5_000, 10_000] {
        for (name, gang, queues) in [("fill", 1, 1), ("fill-100q", 1, 100), ("gangs", 16, 10)] {
            let shape = format!("{name}:{nodes}");
            if only.is_empty() || only.contains(&shape) {
                measure(&shape, nodes, gang, queues);
            }
        }
    }
    let others: [(&str, Measure); 5] = [
        ("backlog", backlog::measure),
        ("changes", changes::measure),
        ("self-check", self_check::measure),
        ("verdicts", verdicts::measure),
        ("relations", relations::measure),
    ];
    for (name, measure) in others {
        for nodes in [500, 10_000] {
            let shape = format!("{name}:{nodes}");
            if only.is_empty() || only.contains(&shape) {
                measure(&shape, nodes);
            }
        }
    }
    for nodes in [500, 5_000] {
        for placement in PLACEMENTS {
            let shape = format!("{}:{nodes}", placement.name);
            if only.is_empty() || only.contains(&shape) {
                placement::measure(&shape, nodes, placement);
            }
        }
    }
    for nodes in [100, 500, 5_000] {
        for eviction in EVICTIONS {
            let shape = format!("{}:{nodes}", eviction.name);
            if only.is_empty() || only.contains(&shape) {
                eviction::measure(&shape, nodes, eviction);
            }
        }
    }
}

/// Measures one shape, called by the given name, with this many nodes, and prints a line.
type Measure = fn(&str, usize);

/// Memory of this process in MiB, as the kernel counts it; 0 if that cannot be read.
fn memory() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<f64> = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0.0) * 4096.0 / f64::from(1 << 20)
}

/// Fills an empty cluster with single-GPU pods in pod groups of `gang`, then runs a cycle without changes, then adds a pod
/// more than fits and takes it away again, ten times.
fn measure(shape: &str, nodes: usize, gang: usize, queues: usize) {
    let before = memory();
    let mut engine = Engine::new(Policy::default());
    let events = cluster(nodes, gang, queues);
    let with_events = memory();
    let (build, ()) = timed(|| {
        for event in events {
            engine.apply(event, NOW);
        }
    });
    let (cycle, decisions) = timed(|| engine.cycle(NOW));
    let (idle, again) = timed(|| engine.cycle(NOW));
    let mut one_more = |name: &str| {
        let arrival = workload(name, 1, queues, nodes * GPUS_PER_NODE);
        let departure = arrival.iter().filter_map(gone).collect::<Vec<_>>();
        let result = timed(|| {
            for event in arrival {
                engine.apply(event, NOW);
            }
            engine.cycle(NOW)
        });
        for event in departure {
            engine.apply(event, NOW);
        }
        engine.cycle(NOW);
        result
    };
    // The first one includes the first victim search.
    let (first_more, late) = one_more("late");
    let (one_more, _) = median_and_longest((1..=9).map(|at| one_more(&format!("later-{at}")).0));
    println!(
        "{shape:<20} {:>10.2} {:>10.2} {:>10.1} {:>8.0}  {}; again: {}; one pod more in {:.3} ms: {}; then in {:.3} ms",
        ms(build),
        ms(cycle),
        ms(idle) * 1e3,
        memory().max(with_events) - before,
        counts(&decisions),
        counts(&again),
        ms(first_more),
        counts(&late),
        ms(one_more),
    );
}

/// The event that reverts an event of a workload.
fn gone(event: &Event) -> Option<Event> {
    match event {
        Event::Group(group) => Some(Event::GroupGone(group.key.clone())),
        Event::Pod(pod) => Some(Event::PodGone(pod.pod.uid.clone())),
        _ => None,
    }
}

fn counts(decisions: &Decisions) -> String {
    format!(
        "{} bind, {} evict, {} pipeline, {} unschedulable",
        decisions.bind.len(),
        decisions.evict.len(),
        decisions.pipeline.len(),
        decisions.unschedulable.len()
    )
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

fn median_and_longest(times: impl Iterator<Item = Duration>) -> (Duration, Duration) {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
