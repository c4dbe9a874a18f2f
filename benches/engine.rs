//! Decisions per second of the engine alone, on clusters of 8-GPU nodes. Each line says what was decided, so that a
//! speed-up that schedules less is seen.
//!
//! `cargo bench --bench engine`              all shapes
//! `cargo bench --bench engine -- fill:500`  one shape

use std::time::{Duration, Instant};

use unikai::engine::Engine;
use unikai::engine::decision::Decisions;
use unikai::engine::input::{
    Amounts, Event, GPU, GpuKind, GpuRequest, GroupInput, GroupKey, Labels, Name, NodeInput, PodInput, PodStatus,
    QueueInput, Share, Time, WHOLE,
};
use unikai::engine::policy::Policy;

const GPUS_PER_NODE: usize = 8;
const NOW: Time = Time(1_767_225_600_000);

fn main() {
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
    for nodes in [100, 500, 5_000] {
        for eviction in EVICTIONS {
            let shape = format!("{}:{nodes}", eviction.name);
            if only.is_empty() || only.contains(&shape) {
                measure_eviction(&shape, nodes, eviction);
            }
        }
    }
}

/// Jobs that wait beside a full cluster.
struct Waiting {
    jobs: usize,
    pods: usize,
    gpus: i64,
}

/// What waits in queue 1 while single-GPU jobs of queue 0 hold the whole cluster.
struct Eviction {
    name: &'static str,
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

const EVICTIONS: &[Eviction] = &[
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

/// One cycle on a full cluster in which somebody waits for others to leave.
fn measure_eviction(shape: &str, nodes: usize, eviction: &Eviction) {
    let mut events: Vec<Event> = (0..nodes).map(|i| Event::Node(Box::new(node(i)))).collect();
    events.push(Event::Queue(Box::new(queue("root", None))));
    for (at, quota) in (eviction.quotas)(nodes).into_iter().enumerate() {
        let mut queue = queue(&format!("queue-{at}"), Some("root"));
        queue.gpu.quota = Some(quota as i64 * GPU);
        queue.gpu.weight = 0;
        events.push(Event::Queue(Box::new(queue)));
    }
    for at in 0..GPUS_PER_NODE * nodes {
        let mut job = workload("runs", 1, 1, at);
        if let Some(Event::Pod(pod)) = job.last_mut() {
            pod.status = PodStatus::Running;
            pod.node = Some(name(&format!("node-{:05}", at % nodes)));
        }
        events.extend(job);
    }
    let waiting = (eviction.waiting)(nodes);
    for at in 0..waiting.jobs {
        let mut job = workload("waits", waiting.pods, 1, at * waiting.pods);
        for event in &mut job {
            match event {
                Event::Group(group) => group.queue = name("queue-1"),
                Event::Pod(pod) => pod.gpu.count = waiting.gpus,
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

/// Memory of this process in MiB, as the kernel counts it; 0 where it does not tell.
fn memory() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<f64> = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0.0) * 4096.0 / f64::from(1 << 20)
}

/// Fills an empty cluster with single-GPU pods in gangs of `gang`, then runs a cycle without changes, then adds pods
/// more than fit, one by one.
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
    let mut one_more = |name: &str, at: usize| {
        timed(|| {
            for event in workload(name, 1, queues, nodes * GPUS_PER_NODE + at) {
                engine.apply(event, NOW);
            }
            engine.cycle(NOW)
        })
    };
    // The first one is what looks for victims for the first time.
    let (first_more, late) = one_more("late", 0);
    let mut more: Vec<Duration> = (1..=9).map(|at| one_more(&format!("later-{at}"), at).0).collect();
    more.sort_unstable();
    let one_more = more[more.len() / 2];
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

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn cluster(nodes: usize, gang: usize, queues: usize) -> Vec<Event> {
    let mut events: Vec<Event> = (0..nodes).map(|i| Event::Node(Box::new(node(i)))).collect();
    events.push(Event::Queue(Box::new(queue("root", None))));
    events.extend((0..queues).map(|q| Event::Queue(Box::new(queue(&format!("queue-{q}"), Some("root"))))));
    for first in (0..nodes * GPUS_PER_NODE).step_by(gang) {
        events.extend(workload("fill", gang, queues, first));
    }
    events
}

fn name(text: &str) -> Name {
    Name::from(text)
}

fn node(index: usize) -> NodeInput {
    let node = format!("node-{index:05}");
    NodeInput {
        name: name(&node),
        labels: vec![(name("kubernetes.io/hostname"), name(&node))],
        taints: Vec::new(),
        unschedulable: false,
        ready: true,
        allocatable: Amounts {
            cpu: 64_000,
            memory: 512 << 30,
            gpu: GPUS_PER_NODE as i64 * GPU,
            other: Vec::new(),
        },
        pods: 110,
        gpu_memory: Some(81_900),
        gpu_count: Some(GPUS_PER_NODE as i64),
        dra_gpus: false,
        mig: false,
        numa: None,
    }
}

fn queue(queue: &str, parent: Option<&str>) -> QueueInput {
    let open = Share {
        quota: None,
        limit: None,
        weight: 1_000_000,
    };
    QueueInput {
        name: name(queue),
        display: name(queue),
        parent: parent.map(name),
        priority: 100,
        created: NOW,
        cpu: open,
        memory: open,
        gpu: open,
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
    }
}

/// One pod group of `size` single-GPU pods.
fn workload(prefix: &str, size: usize, queues: usize, first: usize) -> Vec<Event> {
    let key = GroupKey {
        namespace: name("bench"),
        name: name(&format!("{prefix}-{first:06}")),
    };
    let group = GroupInput {
        key: key.clone(),
        uid: key.name.clone(),
        queue: name(&format!("queue-{}", (first / size) % queues)),
        priority: 50,
        preemptible: true,
        min_member: Some(size as i64),
        min_sub_group: None,
        sub_groups: Vec::new(),
        topology: None,
        created: NOW,
        last_start: None,
        last_eviction: None,
        stale_since: None,
        preemption_delay: None,
        staleness_grace: None,
        mark_unschedulable: true,
        back_off: false,
        backed_off: false,
    };
    let pods = (first..first + size).map(|i| Event::Pod(Box::new(pod(&key, &format!("{prefix}-{i:06}")))));
    std::iter::once(Event::Group(Box::new(group))).chain(pods).collect()
}

fn pod(group: &GroupKey, pod: &str) -> PodInput {
    PodInput {
        uid: name(pod),
        namespace: name("bench"),
        name: name(pod),
        created: NOW,
        labels: Labels::default(),
        group: Some(group.clone()),
        sub_group: None,
        status: PodStatus::Pending,
        releasing_since: None,
        node: None,
        foreign: false,
        utility: false,
        reservation: false,
        request: Amounts {
            cpu: 1_000,
            memory: 1 << 30,
            gpu: 0,
            other: Vec::new(),
        },
        gpu: GpuRequest {
            kind: GpuKind::Regular,
            count: 1,
            portion: WHOLE,
            ..GpuRequest::default()
        },
        received: None,
        gpu_groups: Vec::new(),
        task_priority: None,
        kubeflow_master: false,
        ray_head: false,
        nominated_node: None,
        node_selector: Vec::new(),
        affinity_required: None,
        affinity_preferred: Vec::new(),
        tolerations: Vec::new(),
        host_ports: Vec::new(),
        relations: None,
        numa: None,
        blocked: None,
        constraints: None,
    }
}
