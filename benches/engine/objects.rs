//! Nodes, queues and workloads to measure with.

use std::sync::Arc;

use unikai::engine::input::{
    Amounts, Event, GPU, GpuKind, GpuRequest, GroupInput, GroupKey, Name, Needs, NodeInput, Pairs, PodInput, PodRef,
    PodStatus, QueueInput, Share, Time, WHOLE,
};

/// GPUs of each node.
pub const GPUS_PER_NODE: usize = 8;
/// The time of all events and cycles.
pub const NOW: Time = Time(1_767_225_600_000);

/// Nodes, queues below one root, and single-GPU pods in pod groups of `gang` for all GPUs.
pub fn cluster(nodes: usize, gang: usize, queues: usize) -> Vec<Event> {
    let mut events: Vec<Event> = (0..nodes).map(|i| Event::Node(Box::new(node(i)))).collect();
    events.push(Event::Queue(Box::new(queue("root", None))));
    events.extend((0..queues).map(|q| Event::Queue(Box::new(queue(&format!("queue-{q}"), Some("root"))))));
    for first in (0..nodes * GPUS_PER_NODE).step_by(gang) {
        events.extend(workload("fill", gang, queues, first));
    }
    events
}

/// Lets the pods run, each on the node with the index that `node` gives for the pod's.
pub fn run(events: &mut [Event], node: impl Fn(usize) -> usize) {
    let pods = events.iter_mut().filter_map(|event| match event {
        Event::Pod(pod) => Some(pod),
        _ => None,
    });
    for (at, pod) in pods.enumerate() {
        pod.node = Some(name(&format!("node-{:05}", node(at))));
        pod.status = PodStatus::Running;
    }
}

pub fn name(text: &str) -> Name {
    Name::from(text)
}

pub fn node(index: usize) -> NodeInput {
    let node = format!("node-{index:05}");
    NodeInput {
        name: name(&node),
        labels: vec![(name("kubernetes.io/hostname"), name(&node))],
        taints: Vec::new(),
        unschedulable: false,
        faults: Vec::new(),
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
        gpu_resources: vec!["nvidia.com/gpu".into()],
        mig: false,
        numa: None,
        attach_limits: Vec::new(),
    }
}

pub fn queue(queue: &str, parent: Option<&str>) -> QueueInput {
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
        ..QueueInput::default()
    }
}

/// One pod group of `size` single-GPU pods.
pub fn workload(prefix: &str, size: usize, queues: usize, first: usize) -> Vec<Event> {
    let key = GroupKey::new("bench", &format!("{prefix}-{first:06}"));
    let group = GroupInput {
        key: key.clone(),
        uid: name(key.name()),
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
        back_off: false,
        backed_off: false,
        refused: None,
        held: None,
    };
    let pods = (first..first + size).map(|i| Event::Pod(Box::new(pod(&key, &format!("{prefix}-{i:06}")))));
    std::iter::once(Event::Group(Box::new(group))).chain(pods).collect()
}

pub fn pod(group: &GroupKey, pod: &str) -> PodInput {
    PodInput {
        pod: PodRef::new("bench", pod, pod),
        created: NOW,
        labels: Pairs::default(),
        group: Some(group.clone()),
        sub_group: None,
        status: PodStatus::Pending,
        releasing_since: None,
        node: None,
        foreign: false,
        of_unikai: false,
        reservation: false,
        fallback_queue: None,
        needs: Arc::new(Needs {
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
            ..Needs::default()
        }),
        received: None,
        gpu_groups: Vec::new(),
        task_priority: None,
        kubeflow_master: false,
        ray_head: false,
        nominated_node: None,
        relations: None,
        volumes: None,
        claims: None,
        numa: None,
        blocked: None,
    }
}
