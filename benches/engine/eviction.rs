//! One cycle on a full cluster with a pending pod group that needs victims.

use unikai::engine::Engine;
use unikai::engine::input::{Event, GPU};
use unikai::engine::policy::Policy;

use super::objects::{GPUS_PER_NODE, NOW, name, node, queue, run, workload};
use super::{counts, ms, timed};

/// Pod groups that wait beside a full cluster.
struct Waiting {
    jobs: usize,
    pods: usize,
    gpus: i64,
}

/// The pending pod groups of queue 1 while single-GPU pod groups of queue 0 hold the whole cluster.
pub struct Eviction {
    /// Its name.
    pub name: &'static str,
    /// Quotas in GPUs.
    quotas: fn(nodes: usize) -> [usize; 2],
    waiting: fn(nodes: usize) -> Waiting,
}

fn all_mine(nodes: usize) -> [usize; 2] {
    [0, GPUS_PER_NODE * nodes]
}

fn gang_of_ten(_: usize) -> Waiting {
    Waiting {
        jobs: 1,
        pods: 10,
        gpus: 8,
    }
}

/// The shapes.
pub const EVICTIONS: &[Eviction] = &[
    Eviction {
        name: "reclaim-one",
        quotas: all_mine,
        waiting: |_| Waiting {
            jobs: 1,
            pods: 1,
            gpus: 1,
        },
    },
    Eviction {
        name: "reclaim-many",
        quotas: all_mine,
        waiting: |nodes| Waiting {
            jobs: GPUS_PER_NODE * nodes,
            pods: 1,
            gpus: 1,
        },
    },
    Eviction {
        name: "reclaim-large",
        quotas: all_mine,
        waiting: |nodes| Waiting {
            jobs: 1,
            pods: nodes / 2,
            gpus: 8,
        },
    },
    Eviction {
        name: "hopeless",
        quotas: |nodes| [GPUS_PER_NODE * nodes - 79, 80],
        waiting: gang_of_ten,
    },
    Eviction {
        name: "hopeful",
        quotas: |nodes| [GPUS_PER_NODE * nodes - 80, 80],
        waiting: gang_of_ten,
    },
];

/// Runs one shape.
pub fn measure(shape: &str, nodes: usize, eviction: &Eviction) {
    let mut events: Vec<Event> = (0..nodes).map(|i| Event::Node(Box::new(node(i)))).collect();
    events.push(Event::Queue(Box::new(queue("root", None))));
    for (at, quota) in (eviction.quotas)(nodes).into_iter().enumerate() {
        let mut queue = queue(&format!("queue-{at}"), Some("root"));
        queue.gpu.quota = Some(quota as i64 * GPU);
        queue.gpu.weight = 0;
        events.push(Event::Queue(Box::new(queue)));
    }
    for at in 0..GPUS_PER_NODE * nodes {
        events.extend(workload("runs", 1, 1, at));
    }
    run(&mut events, |pod| pod % nodes);
    let waiting = (eviction.waiting)(nodes);
    for at in 0..waiting.jobs {
        let mut job = workload("waits", waiting.pods, 1, at * waiting.pods);
        for event in &mut job {
            match event {
                Event::Group(group) => group.queue = name("queue-1"),
                Event::Pod(pod) => pod.needs_mut().gpu.count = waiting.gpus,
                _ => {}
            }
        }
        events.extend(job);
    }
    let mut engine = Engine::new(Policy::default());
    let (build, ()) = timed(|| {
        for event in events {
            engine.apply(event, NOW);
        }
    });
    let (cycle, decisions) = timed(|| engine.cycle(NOW));
    println!(
        "{shape:<20} {:>10.2} {:>10.2} {:>10} {:>8}  {}; {} candidates simulated",
        ms(build),
        ms(cycle),
        "",
        "",
        counts(&decisions),
        decisions.work.candidates_simulated,
    );
}
