//! The steps of a seed, as data: they are drawn first and carried out then, so that steps can be left out of a run that fails.

use std::time::Duration;

use crate::claims::Wants;
use crate::network::{CrashPoint, LinkFault};
use crate::sub_groups::Together;

/// The leaf queues.
pub const QUEUES: &[&str] = &["a", "b", "c", "d"];
/// The queues above them: of the default node pool, and of the other.
pub const PARENTS: &[&str] = &["org", "blue-org"];
/// Components that the Config switches.
pub const SERVICES: &[&str] = &[
    "podGrouper",
    "binder",
    "scheduler",
    "queueController",
    "podGroupController",
];
/// The node pool that has a shard of its own.
pub const POOL: &str = "blue";
/// The label of its nodes, queues and pods.
pub const POOL_LABEL: &str = "kai.scheduler/node-pool";
/// The tenants' namespaces.
pub const TEAMS: &[&str] = &["team-a", "team-b"];
/// The nodes: names and GPUs.
pub const NODES: &[(&str, u32)] = &[
    ("gpu-1", 4),
    ("gpu-2", 4),
    ("gpu-3", 2),
    ("cpu-1", 0),
    ("mig-1", 0),
    ("blue-1", 4),
];
/// The nodes whose GPUs are divided into MIG instances, and how many.
pub const INSTANCES: &[(&str, u32)] = &[("mig-1", 3)];
/// The resource of these instances.
pub const INSTANCE: &str = "nvidia.com/mig-2g.10gb";
/// What a queue is charged for one of them, in thousandths of a GPU: its compute slices.
pub const CHARGED_FOR_INSTANCE: i64 = 2_000;
/// The nodes whose driver offers devices that pods claim, and how many.
pub const DEVICES: &[(&str, u32)] = &[("gpu-1", 4), ("cpu-1", 2), ("blue-1", 1)];
/// The nodes of the volumes that exist before their claims.
pub const KEPT: &[&str] = &["gpu-1", "gpu-1", "gpu-3", "cpu-1", "blue-1"];
/// The nodes with two NUMA zones, of which a pod with CPUs for itself uses one, and how many CPUs each zone has.
pub const ZONED: &[(&str, u32)] = &[("cpu-1", 8), ("gpu-3", 8)];

/// The rack of a node.
pub fn rack_of(node: &str) -> &'static str {
    match node {
        "gpu-1" | "gpu-2" => "rack-1",
        "gpu-3" | "cpu-1" | "mig-1" => "rack-2",
        _ => "rack-3",
    }
}

/// The replicas.
pub const REPLICAS: &[&str] = &["one", "two"];

/// The queue above a leaf queue.
pub fn parent_of(queue: &str) -> &'static str {
    PARENTS[usize::from(queue == "d")]
}

/// The node pool of a queue or node, if it is not the default one.
pub fn pool_of(name: &str) -> Option<&'static str> {
    (name == "d" || name.starts_with(POOL)).then_some(POOL)
}

/// How the containers of a workload end by themselves: after so many seconds, with that exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub after: u32,
    pub code: u8,
}

/// One step. A number that picks something picks it among what there is at the time.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A pod with whole GPUs.
    Pod {
        team: usize,
        queue: usize,
        gpus: u32,
        cpu: u32,
        priority: Option<&'static str>,
        ends: Option<Ends>,
        /// Not on a node with another such pod of its namespace.
        apart: bool,
    },
    /// A pod with a part of a GPU.
    Share {
        team: usize,
        queue: usize,
        portion: &'static str,
        devices: u32,
        ends: Option<Ends>,
    },
    /// A pod with MIG instances.
    Instances {
        team: usize,
        queue: usize,
        instances: u32,
        priority: Option<&'static str>,
        ends: Option<Ends>,
    },
    /// A pod that has CPUs for itself.
    Cores {
        team: usize,
        queue: usize,
        cores: u32,
        gpus: u32,
        priority: Option<&'static str>,
        ends: Option<Ends>,
    },
    /// A Job whose pods start together.
    Job {
        team: usize,
        queue: usize,
        size: u32,
        gpus: u32,
        ends: Option<Ends>,
    },
    /// A pod group of its own with so many pods, of which so many must run together.
    Gang {
        team: usize,
        queue: usize,
        pods: u32,
        min: u32,
        gpus: u32,
        ends: Option<Ends>,
        /// Each member on a node of its own.
        apart: bool,
    },
    /// A pod group with sub-groups, each with so many pods, of which so many must run together. `some`: all sub-groups but one are enough.
    SubGroups {
        team: usize,
        queue: usize,
        sub_groups: u32,
        pods: u32,
        min: u32,
        gpus: u32,
        together: Together,
        some: bool,
        ends: Option<Ends>,
    },
    /// A pod that claims devices: by a claim of its own, or by one that others of its namespace may use, too.
    Claim {
        team: usize,
        queue: usize,
        gpus: u32,
        wants: Wants,
        shared: Option<u32>,
        ends: Option<Ends>,
    },
    /// A pod with a volume, which is made on the node of the first pod that has it, or exists before.
    Volume {
        team: usize,
        queue: usize,
        gpus: u32,
        number: u32,
        kept: bool,
        ends: Option<Ends>,
    },
    /// Another pod for a pod group.
    Grow(usize),
    /// A tenant deletes a pod.
    DeletePod(usize),
    /// A tenant deletes a Job or a pod group.
    DeleteGroup(usize),
    /// A tenant deletes a claim.
    ClaimGone(usize),
    /// A tenant deletes a volume that no pod has.
    VolumeClaimGone(usize),
    /// An administrator makes a volume anew that exists before its claims, if the last one is deleted.
    VolumeBack(usize),
    /// A tenant changes a field of a pod that accounting depends on.
    Forge {
        pod: usize,
        field: ForgedField,
    },
    /// A tenant creates a PodGroup with the name of a pod's own one, if it is not written yet.
    GroupOfPod {
        pod: usize,
        queue: usize,
        min: u32,
    },
    /// An administrator changes the limit and the quota of a queue, in GPUs; none is -1.
    Limit {
        queue: usize,
        limit: i64,
        quota: i64,
    },
    /// An administrator deletes a queue, and makes it again later.
    QueueGone(usize),
    QueueBack(usize),
    Cordon(usize),
    Uncordon(usize),
    /// An administrator cordons a node and evicts its pods, reservation pods too.
    Drain(usize),
    /// Somebody deletes a reservation pod.
    ReservationGone(usize),
    /// A node moves to the other node pool, or back.
    MoveNode(usize),
    /// An administrator deletes the shard of the other node pool, and makes it again later.
    ShardGone,
    ShardBack,
    /// An administrator changes how the shard of the default node pool places pods.
    Strategy(&'static str),
    /// An administrator switches a component off in the Config, or on again.
    Service {
        name: &'static str,
        enabled: bool,
    },
    /// An administrator lets so many pods of a namespace be evicted at once.
    Budget {
        team: usize,
        most: u32,
    },
    BudgetGone(usize),
    LabelNode(usize),
    NodeGone(usize),
    NodeBack(usize),
    /// A node comes back with fewer GPUs.
    LoseGpus(usize),
    KubeletStops(usize),
    /// The driver of a node withdraws its devices, and offers them again later.
    DevicesGone(usize),
    DevicesBack(usize),
    /// A replica's network fails for a while.
    LinkFault {
        replica: usize,
        fault: LinkFault,
        lasts: Duration,
    },
    DropWatches(usize),
    /// The API server compacts its history of changes.
    Compact,
    /// All watches get 410.
    Expire,
    Kill(usize),
    CrashAt {
        replica: usize,
        write: u32,
        crash_point: CrashPoint,
    },
    ShutDown(usize),
    Start(usize),
    /// The time of day jumps on all machines, by so many seconds.
    ClockJumps(i64),
    /// Nothing happens.
    Wait,
}

/// The field that a tenant forges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgedField {
    Queue,
    PodGroup,
    Fraction,
    GpuGroup,
    Owner,
    SubGroup,
}

/// A step, and how long it is until the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    pub step: Step,
    pub then: Duration,
}

/// Draws the steps of a seed.
pub fn draw(seed: u64, steps: usize) -> Vec<Timed> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Some seeds have no faults, some no hostile tenants, so that a failure is easier to read.
    let faults = random.u8(0..10) > 1;
    let hostile = random.u8(0..10) > 3;
    (0..steps)
        .map(|_| {
            let step = one(&mut random, faults, hostile);
            let then = match random.u8(0..10) {
                0..=3 => random.u64(1..40),
                4..=7 => random.u64(40..700),
                _ => random.u64(700..5_000),
            };
            Timed {
                step,
                then: Duration::from_millis(then),
            }
        })
        .collect()
}

fn ends(random: &mut fastrand::Rng) -> Option<Ends> {
    (random.u8(0..3) == 0).then(|| Ends {
        after: random.u32(1..40),
        code: u8::from(random.u8(0..5) == 0),
    })
}

/// The priority class of a pod, if it names one.
fn priority(random: &mut fastrand::Rng) -> Option<&'static str> {
    let classes = [None, None, None, Some("build"), Some("inference")];
    *random.choice(&classes).unwrap_or(&None)
}

fn one(random: &mut fastrand::Rng, faults: bool, hostile: bool) -> Step {
    let team = random.usize(0..TEAMS.len());
    let queue = random.usize(0..QUEUES.len());
    let which = random.usize(0..64);
    let replica = random.usize(0..REPLICAS.len());
    let node = random.usize(0..NODES.len());
    match random.u8(0..138) {
        0..=13 => Step::Pod {
            team,
            queue,
            gpus: *random.choice(&[0, 1, 1, 2, 4]).unwrap_or(&1),
            cpu: *random.choice(&[100, 1000, 8000]).unwrap_or(&100),
            priority: priority(random),
            ends: ends(random),
            apart: random.u8(0..6) == 0,
        },
        14..=25 => Step::Share {
            team,
            queue,
            portion: random.choice(&["0.5", "0.3", "0.25", "0.7"]).unwrap_or(&"0.5"),
            devices: if random.u8(0..8) == 0 { 2 } else { 1 },
            ends: ends(random),
        },
        26..=31 => Step::Job {
            team,
            queue,
            size: random.u32(1..5),
            gpus: random.u32(0..3),
            ends: ends(random),
        },
        32..=37 => {
            let pods = random.u32(1..5);
            Step::Gang {
                team,
                queue,
                pods,
                min: random.u32(1..=pods),
                gpus: random.u32(0..3),
                ends: ends(random),
                apart: random.u8(0..6) == 0,
            }
        }
        38..=40 => Step::Grow(which),
        41..=54 => Step::DeletePod(which),
        55..=61 => Step::DeleteGroup(which),
        62 if hostile => Step::GroupOfPod {
            pod: which,
            queue,
            min: random.u32(1..4),
        },
        63..=67 if hostile => Step::Forge {
            pod: which,
            field: *random
                .choice(&[
                    ForgedField::Queue,
                    ForgedField::PodGroup,
                    ForgedField::Fraction,
                    ForgedField::GpuGroup,
                    ForgedField::Owner,
                    ForgedField::SubGroup,
                ])
                .unwrap_or(&ForgedField::Queue),
        },
        68..=70 => Step::Limit {
            queue: random.usize(0..QUEUES.len() + PARENTS.len()),
            limit: *random.choice(&[-1, -1, 1, 3, 6]).unwrap_or(&-1),
            quota: *random.choice(&[-1, 0, 2, 4]).unwrap_or(&0),
        },
        71 => Step::QueueGone(queue),
        72 => Step::QueueBack(queue),
        73 => Step::Cordon(node),
        74 | 75 => Step::Uncordon(node),
        76 => Step::Drain(node),
        77 => Step::LabelNode(node),
        78 => Step::NodeGone(node),
        79 | 80 => Step::NodeBack(node),
        81 => Step::LoseGpus(node),
        82 => Step::KubeletStops(node),
        83..=85 if faults => Step::LinkFault {
            replica,
            fault: LinkFault::Chance(*random.choice(&[5, 20, 60]).unwrap_or(&20)),
            lasts: Duration::from_secs(random.u64(1..20)),
        },
        86 if faults => Step::LinkFault {
            replica,
            fault: LinkFault::Down(some_kind(random)),
            lasts: Duration::from_millis(random.u64(200..20_000)),
        },
        87 if faults => Step::LinkFault {
            replica,
            fault: LinkFault::Cut(some_kind(random)),
            lasts: Duration::from_secs(random.u64(1..25)),
        },
        88 | 89 if faults => Step::LinkFault {
            replica,
            fault: LinkFault::Stale(some_kind(random)),
            lasts: Duration::from_secs(random.u64(1..25)),
        },
        90 if faults => Step::DropWatches(replica),
        91 if faults => Step::Compact,
        92 if faults => Step::Expire,
        93 if faults => Step::Kill(replica),
        94 if faults => Step::CrashAt {
            replica,
            write: random.u32(0..8),
            crash_point: if random.bool() {
                CrashPoint::Before
            } else {
                CrashPoint::After
            },
        },
        95 if faults => Step::ShutDown(replica),
        96..=98 => Step::Start(replica),
        // Longer than clocks are corrected backwards; forward as far as certificates last.
        99 if faults && which < 16 => {
            Step::ClockJumps(*random.choice(&[-30, -5, 5, 60, 3_600, 400 * 86_400]).unwrap_or(&5))
        }
        100 | 101 => Step::ReservationGone(which),
        102 => Step::MoveNode(node),
        103 => Step::ShardGone,
        104 | 105 => Step::ShardBack,
        106 => Step::Strategy(random.choice(&["binpack", "spread"]).unwrap_or(&"spread")),
        107 | 108 => Step::Service {
            name: random.choice(SERVICES).unwrap_or(&"binder"),
            enabled: random.bool(),
        },
        109 => Step::Budget {
            team,
            most: random.u32(0..3),
        },
        110 => Step::BudgetGone(team),
        112..=117 => Step::Claim {
            team,
            queue,
            gpus: random.u32(0..2),
            wants: *random.choice(&Wants::ALL).unwrap_or(&Wants::One),
            shared: (random.u8(0..4) == 0).then(|| random.u32(0..2)),
            ends: ends(random),
        },
        118 => Step::ClaimGone(which),
        119 => Step::DevicesGone(random.usize(0..DEVICES.len())),
        120 => Step::DevicesBack(random.usize(0..DEVICES.len())),
        121..=124 => Step::Volume {
            team,
            queue,
            gpus: random.u32(0..2),
            number: random.u32(0..4),
            kept: random.bool(),
            ends: ends(random),
        },
        125 if random.bool() => Step::VolumeClaimGone(which),
        125 => Step::VolumeBack(random.usize(0..KEPT.len())),
        126..=128 => {
            let pods = random.u32(1..4);
            Step::SubGroups {
                team,
                queue,
                sub_groups: random.u32(1..4),
                pods,
                min: random.u32(1..=pods),
                gpus: random.u32(0..3),
                together: *random
                    .choice(&[
                        Together::No,
                        Together::InRack,
                        Together::PreferRack,
                        Together::AboveInRack,
                    ])
                    .unwrap_or(&Together::No),
                some: random.u32(0..3) == 0,
                ends: ends(random),
            }
        }
        129..=132 => Step::Instances {
            team,
            queue,
            instances: random.u32(1..3),
            priority: priority(random),
            ends: ends(random),
        },
        133..=136 => Step::Cores {
            team,
            queue,
            cores: random.u32(1..7),
            gpus: random.u32(0..2),
            priority: priority(random),
            ends: ends(random),
        },
        _ => Step::Wait,
    }
}

/// The resource that a fault is about, or all.
pub fn some_kind(random: &mut fastrand::Rng) -> Option<&'static str> {
    *random
        .choice(&[
            None,
            None,
            Some("pods"),
            Some("pods"),
            Some("nodes"),
            Some("podgroups"),
            Some("queues"),
            Some("bindrequests"),
            Some("leases"),
            Some("configmaps"),
            Some("schedulingshards"),
            Some("configs"),
            Some("poddisruptionbudgets"),
            Some("namespaces"),
            Some("resourceclaims"),
            Some("resourceslices"),
            Some("persistentvolumeclaims"),
            Some("persistentvolumes"),
            Some("topologies"),
            Some("noderesourcetopologies"),
        ])
        .unwrap_or(&None)
}

/// Steps that violate a rule with each canary: more pods than one node has GPUs for, and a leader that crashes.
pub fn for_canaries() -> Vec<Timed> {
    let pod = |queue: usize| Step::Pod {
        team: 0,
        queue,
        gpus: 2,
        cpu: 100,
        priority: None,
        ends: None,
        apart: false,
    };
    let timed = |step: Step, then: u64| Timed {
        step,
        then: Duration::from_millis(then),
    };
    let mut steps = vec![timed(Step::Wait, 20_000)];
    steps.extend((0..4).map(|number| timed(pod(number % 3), 300)));
    steps.extend([
        timed(Step::Kill(0), 1),
        timed(Step::Kill(1), 1),
        timed(Step::Start(0), 60_000),
    ]);
    steps
}
