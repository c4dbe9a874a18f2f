//! What is said first of workloads that wait: a table of situations.

use std::sync::Arc;

use super::scenario::{NOW, Scenario};
use crate::engine::Engine;
use crate::engine::decision::{Cause, GroupReport, Wording};
use crate::engine::input::devices::{ClaimInput, ClaimRef, OptionInput, PodClaims, RequestInput};
use crate::engine::input::{
    Claim, ClaimState, Event, GpuRequest, Hold, HostPort, Name, Needs, NodeFault, NodeRequirement, NodeTerm, PodInput,
    PodSelector, PodTerm, PodVolumes, Reach, Relations, SelectorOp, Taint, TaintEffect, Time, Waiting,
};

/// What becomes of an event before the engine is told.
type Change = fn(&mut Event);

/// A situation.
struct Situation {
    /// Nodes, queues and pod groups, as in the tables of scenarios. The pod group `w` is the one that waits.
    world: &'static str,
    /// Changes what the table cannot say.
    change: Option<Change>,
    cause: Cause,
    /// The first sentence.
    says: &'static str,
}

fn when(world: &'static str, cause: Cause, says: &'static str) -> Situation {
    let change = None;
    Situation {
        world,
        change,
        cause,
        says,
    }
}

fn changed(world: &'static str, change: Change, cause: Cause, says: &'static str) -> Situation {
    Situation {
        change: Some(change),
        ..when(world, cause, says)
    }
}

/// The report about the pod group `w` after a cycle.
fn report(situation: &Situation) -> Option<GroupReport> {
    let text = format!(
        "name: it\nactions: [allocate, consolidation, reclaim, preempt]\n{}",
        situation.world
    );
    let scenario: Scenario = serde_yaml_ng::from_str(&text).expect("a scenario");
    let mut engine = Engine::new(scenario.policy());
    for mut event in scenario.events() {
        if let Some(change) = situation.change {
            change(&mut event);
        }
        engine.apply(event, NOW);
    }
    let decisions = engine.cycle(NOW);
    decisions
        .unschedulable
        .into_iter()
        .find(|report| report.group.name() == "w")
}

fn check(situations: &[Situation]) {
    let mut wrong = Vec::new();
    for situation in situations {
        let Some(report) = report(situation) else {
            wrong.push(format!("{}\nit does not wait", situation.world));
            continue;
        };
        let text = report.verdict.to_string();
        let first = text.split_once(". ").map_or(&*text, |(first, _)| first);
        if (first, report.verdict.cause) != (situation.says, situation.cause) {
            wrong.push(format!(
                "{}\nwanted {}: {}\ngot    {}: {text}",
                situation.world,
                situation.cause.as_str(),
                situation.says,
                report.verdict.cause.as_str(),
            ));
        }
        for never in [
            "\n",
            "..",
            "Scheduling conditions",
            "PodSchedulingErrors",
            "OverLimit",
            "1 pods",
            "1 nodes",
        ] {
            if text.contains(never) {
                wrong.push(format!("{}\nsays {never:?}: {text}", situation.world));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Changes the pods of the pod group that waits.
fn of_w(event: &mut Event) -> Option<&mut PodInput> {
    match event {
        Event::Pod(pod) if pod.group.as_ref().is_some_and(|group| group.name() == "w") => Some(pod),
        _ => None,
    }
}

#[test]
fn queues() {
    check(&[
        when(
            "nodes: {n0: 8}\nqueues: [team 2 L2]\npod_groups: [train team T2@n0, w team T1]",
            Cause::QueueLimit,
            "Queue team is at its limit of 2 GPUs (2 used, asks 1); raise spec.resources.gpu.limit or wait for train",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [dept 2 L2, team 2 in dept]\npod_groups: [train team T2@n0, w team T1]",
            Cause::QueueLimit,
            "Queue dept (above queue team) is at its limit of 2 GPUs (2 used, asks 1); raise spec.resources.gpu.limit or wait for train",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [team 0 unset]\npod_groups: [w team T1]",
            Cause::QueueLimit,
            "Queue team has no spec.resources.gpu.limit, and a limit that is unset counts as 0 (0 used, asks 1); set it, or -1 for no limit",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [team -1 c2000/2000]\npod_groups: [w team T1 cpu=4000]",
            Cause::QueueLimit,
            "Queue team is at its limit of 2 CPU (0 used, asks 4); raise spec.resources.cpu.limit",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [team 2]\npod_groups: [serve team B2@n0, w team B1]",
            Cause::QueueQuota,
            "Queue team has a quota of 2 GPUs, which non-preemptible workloads may not pass (2 used by them, asks 1); raise spec.resources.gpu.quota, make it preemptible or wait for serve",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [team 2]\npod_groups: [w nosuch T1]",
            Cause::QueueMissing,
            "Queue nosuch does not exist; create it or name another one",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [orphan 2 in nosuch]\npod_groups: [w orphan T1]",
            Cause::ParentQueueMissing,
            "Queue orphan's parent nosuch does not exist; create it or correct spec.parentQueue",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [dept 2 in nosuch, team 2 in dept]\npod_groups: [w team T1]",
            Cause::ParentQueueMissing,
            "Queue dept above queue team has a parent nosuch that does not exist; create it or correct spec.parentQueue",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [dept 2, team 2 in dept]\npod_groups: [w dept T1]",
            Cause::QueueNotLeaf,
            "Queue dept has queues below it and takes no workloads itself; name one of those: team",
        ),
        changed(
            "nodes: {n0: 8}\nqueues: [team 2]\npod_groups: [w team T1]",
            |event| {
                if let Event::Group(group) = event {
                    group.refused = Some("Queue team is not open to namespace ns".into());
                }
            },
            Cause::Refused,
            "Queue team is not open to namespace ns",
        ),
    ]);
}

#[test]
fn holds() {
    let own: Change = |event| hold_w(event, None, Some("waits for data. Ask Ann."));
    let silent: Change = |event| hold_w(event, None, None);
    let queue: Change = |event| hold_w(event, Some("team"), None);
    let above: Change = |event| hold_w(event, Some("dept"), Some("maintenance"));
    check(&[
        changed(
            "nodes: {n0: 8}\nqueues: [team 8]\npod_groups: [w team T1]",
            own,
            Cause::Held,
            "PodGroup w is held (waits for data; Ask Ann); release it: unikai release podgroup w -n ns",
        ),
        changed(
            "nodes: {n0: 8}\nqueues: [team 8]\npod_groups: [w nosuch T1]",
            silent,
            Cause::Held,
            "PodGroup w is held; release it: unikai release podgroup w -n ns",
        ),
        changed(
            "nodes: {n0: 8}\nqueues: [team 8]\npod_groups: [w team T1]",
            queue,
            Cause::Held,
            "Queue team is held and starts nothing; resume it: unikai drain queue team --undo",
        ),
        changed(
            "nodes: {n0: 8}\nqueues: [dept 8, team 8 in dept]\npod_groups: [w team T1]",
            above,
            Cause::Held,
            "Queue dept (above queue team) is held (maintenance) and starts nothing; resume it: unikai drain queue dept --undo",
        ),
    ]);
    let situation = changed(
        "nodes: {n0: 8}\nqueues: [team 8]\npod_groups: [w team T1]",
        own,
        Cause::Held,
        "",
    );
    let report = report(&situation).expect("it waits");
    let says = "PodSchedulingErrors: PodGroup w is held (waits for data; Ask Ann); release it: unikai release podgroup w -n ns.";
    assert_eq!(report.text(Wording::Kai), says);
}

fn hold_w(event: &mut Event, queue: Option<&str>, reason: Option<&str>) {
    if let Event::Group(group) = event
        && group.key.name() == "w"
    {
        let (queue, reason) = (queue.map(Into::into), reason.map(Into::into));
        group.held = Some(Box::new(Hold { queue, reason }));
    }
}

#[test]
fn shares_and_victims() {
    check(&[
        when(
            "nodes: {n0: 8, n1: 8}\nqueues: [greedy 8 w1 reclaim=5735, team 8 w1]\npod_groups: [big greedy T8@n0 started=0, huge greedy T8@n1 started=0, w team T1]",
            Cause::MinRuntime,
            "Waits for 1 GPU: queue greedy holds 16 of 16 GPUs (fair share 15), 16 of them protected by reclaimMinRuntime until 15:22:15 UTC (big and huge)",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [team 8 w1 preempt=3600]\npod_groups: [low team T8@n0 started=600, w team I1]",
            Cause::MinRuntime,
            "Waits for 1 GPU: queue team holds 8 of 8 GPUs (fair share 8), 8 of them protected by preemptMinRuntime until 14:36:40 UTC (low)",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [a 4 w1, b 4 w1]\npod_groups: [x a T4@n0, y b T4@n0, w a T1]",
            Cause::FairShare,
            "Waits for 1 GPU: queue a holds 4 of its fair share of 4 GPUs (quota 4), so nothing is taken back for it; queue b holds 4",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [prod 8 w1, team 4 w1]\npod_groups: [serve prod B8@n0, w team T1]",
            Cause::NonPreemptible,
            "Waits for 1 GPU: queue prod holds 8 of 8 GPUs (fair share 8), 8 of them by non-preemptible workloads (serve)",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [team 4 w1]\npod_groups: [serve team B4@n0, w team I1]",
            Cause::NonPreemptible,
            "Waits for 1 GPU: queue team holds 4 of 4 GPUs (fair share 4), 4 of them by non-preemptible workloads (serve)",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [team 4 w1]\npod_groups: [gang-a team T1x4 min=4, w team T1x4 min=4]",
            Cause::Priority,
            "Waits for 4 GPUs (4 pods of 1 GPU, 0 fit): queue team holds 4 of 4 GPUs (fair share 4), 4 of them by workloads of the same priority 50 or a higher one (gang-a)",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [team 4 w1]\npod_groups: [high team I4@n0, w team T1]",
            Cause::Priority,
            "Waits for 1 GPU: queue team holds 4 of 4 GPUs (fair share 4), 4 of them by workloads of higher priority (at least 75, this one has 50) (high)",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [team 4 w1]\npod_groups: [low team T4@n0, w team I1]\nbudgets: [low 0]\nmode: respect",
            Cause::DisruptionBudget,
            "Waits for 1 GPU: queue team holds 4 of 4 GPUs (fair share 4), 4 of them protected by PodDisruptionBudget ns/low 0 (low)",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [team 4 w1]\npod_groups: [low team T4@n0, w team I1 delay=600 age=60]",
            Cause::PreemptionDelay,
            "Waits for 1 GPU: nothing is evicted for it before 13:55:40 UTC (preemptionDelay); queue team holds 4 of 4 GPUs (fair share 4)",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [a 4 w1, b 4 w1]\npod_groups: [x a T4@n0 stuck, w b T1]",
            Cause::Leaving,
            "Waits for 1 GPU: 4 GPUs are held by workloads that are leaving (x)",
        ),
        changed(
            "nodes: {n0: 4}\nqueues: [team 4 w1]\npod_groups: [other team T4@n0, w team T1]",
            |event| {
                if let Event::Pod(pod) = event {
                    pod.foreign = pod.node.is_some();
                }
            },
            Cause::Resources,
            "Waits for 1 GPU: pods of other schedulers hold 4 of 4 GPUs",
        ),
    ]);
}

#[test]
fn nodes() {
    check(&[
        when(
            "nodes: {n0: 4, n1: 4}\nqueues: [q 8 w1]\npod_groups: ['w q T1>disk:ssd']",
            Cause::NodeSelector,
            "0 of 2 GPU nodes have label disk=ssd (nodeSelector)",
        ),
        when(
            "nodes: {n0: 4, n1: 4, c0: 0}\nqueues: [q 8 w1]\npod_groups: ['w q T1>disk:ssd']",
            Cause::NodeSelector,
            "0 of 2 GPU nodes have label disk=ssd (nodeSelector)",
        ),
        when(
            "nodes: {c0: 0, c1: 0}\nqueues: [q 8 w1]\npod_groups: ['w q T0>disk:ssd']",
            Cause::NodeSelector,
            "0 of 2 nodes have label disk=ssd (nodeSelector)",
        ),
        when(
            "nodes: {n0: 4 taint~maintenance, n1: 4 taint~maintenance}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
            Cause::Taints,
            "0 of 2 GPU nodes fit: 2 have taint maintenance",
        ),
        when(
            "nodes: {n0: 4 cordoned, n1: 4 cordoned taint~node.kubernetes.io/unschedulable}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
            Cause::Cordoned,
            "0 of 2 GPU nodes fit: 2 are cordoned",
        ),
        when(
            "nodes: {n0: 4 notready}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
            Cause::NotReady,
            "0 of 1 GPU node fits: 1 is not ready (Ready=Unknown since 13:45:40 UTC)",
        ),
        when(
            "nodes: {a0: 4, a1: 4, a2: 4, b0: 4 taint~maintenance disk=ssd, b1: 4 taint~maintenance disk=ssd, c0: 4 disk=ssd, c1: 4 disk=ssd, d0: 4 cordoned disk=ssd}\nqueues: [q 32 w1]\npod_groups: ['x q B4x2@c0,c1', 'w q T1>disk:ssd']",
            Cause::Nodes,
            "0 of 8 GPU nodes fit: 3 lack label disk=ssd (nodeSelector), 2 have taint maintenance, 2 are full, 1 is cordoned",
        ),
        changed(
            "nodes: {n0: 4 gpu=A100, n1: 4 gpu=A100}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
            |event| {
                if let Some(pod) = of_w(event) {
                    let product = NodeRequirement {
                        key: "gpu".into(),
                        op: SelectorOp::In,
                        values: vec!["H100".into()],
                    };
                    let term = NodeTerm {
                        labels: vec![product],
                        fields: Vec::new(),
                    };
                    pod.needs_mut().affinity_required = Some(vec![term]);
                }
            },
            Cause::NodeAffinity,
            "0 of 2 GPU nodes fit: 2 do not match gpu=H100 (nodeAffinity)",
        ),
        changed(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [x q T1@n0, w q T1]",
            |event| {
                if let Event::Pod(pod) = event {
                    pod.needs_mut().host_ports = vec![HostPort {
                        ip: Name::default(),
                        protocol: "TCP".into(),
                        port: 8080,
                    }];
                }
            },
            Cause::HostPort,
            "0 of 1 GPU node fits: 1 has host port 8080 in use by x-000",
        ),
        when(
            "nodes: {n0: 4, n1: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1x3 apart=kubernetes.io/hostname min=3]",
            Cause::Gang,
            "2 of 3 pods of the gang fit, and w-002 does not beside them: of the GPU nodes 2 are too near a pod app=w (podAntiAffinity over kubernetes.io/hostname)",
        ),
        changed(
            "nodes: {n0: 4 zone=a, n1: 4 zone=a}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
            |event| {
                if let Some(pod) = of_w(event) {
                    let near = PodTerm {
                        pods: PodSelector {
                            labels: Some(vec![NodeRequirement {
                                key: "app".into(),
                                op: SelectorOp::In,
                                values: vec!["db".into()],
                            }]),
                            namespaces: Some(["ns".into()].into()),
                        },
                        key: "zone".into(),
                    };
                    pod.relations = Some(Arc::new(Relations {
                        near: vec![near],
                        ..Relations::default()
                    }));
                }
            },
            Cause::PodAffinity,
            "0 of 2 GPU nodes fit: 2 have no pod app=db near it (podAffinity over zone)",
        ),
        when(
            "nodes: {n0: 4, n1: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1 spread=zone]",
            Cause::TopologySpread,
            "0 of 2 GPU nodes fit: 2 lack label zone (topologySpreadConstraints)",
        ),
        when(
            "nodes: {c0: 0, c1: 0}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
            Cause::TooLarge,
            "No node has GPUs (asks 1 GPU)",
        ),
        when(
            "nodes: {n0: 4 C16000, n1: 4 C16000}\nqueues: [q 8 w1]\npod_groups: [x q B0@n0 cpu=10000, y q B0@n1 cpu=4000, w q T1 cpu=14000]",
            Cause::Resources,
            "0 of 2 GPU nodes fit: 2 have too little free CPU (asks 14 CPU, at most 12 free on n1)",
        ),
        when(
            "nodes: {n0: 4 M68719476736}\nqueues: [q 8 w1]\npod_groups: [x q T0@n0 mem=34359738368, w q T1 mem=51539607552]",
            Cause::Resources,
            "0 of 1 GPU node fits: 1 has too little free memory (asks 48Gi of memory, at most 32Gi free on n0)",
        ),
        when(
            "nodes: {n0: 4 pods~1}\nqueues: [q 8 w1]\npod_groups: [x q T0@n0, w q T1]",
            Cause::PodSlots,
            "0 of 1 GPU node fits: 1 runs as many pods as the kubelet takes",
        ),
        when(
            "nodes: {n0: 4 C16000}\nqueues: [q 8 w1]\npod_groups: [w q T1 cpu=32000]",
            Cause::TooLarge,
            "The pod asks for 32 CPU, no node has more than 16 (n0); ask for less or add a larger node",
        ),
        when(
            "nodes: {n0: 4, n1: 8}\nqueues: [q 12 w1]\npod_groups: [w q T9]",
            Cause::TooLarge,
            "The pod asks for 9 GPUs, no node has more than 8 (n1); ask for less or add a larger node",
        ),
        when(
            "nodes: {n0: 4, n1: 8}\nqueues: [q 12 w1]\npod_groups: [x q T8@n1, w q T6]",
            Cause::Nodes,
            "0 of 2 GPU nodes fit: 1 is too small (asks 6 GPUs), 1 is full",
        ),
        changed(
            "nodes: {n0: 4 rdma/hca*1}\nqueues: [q 8 w1]\npod_groups: [x q T1@n0, w q T1]",
            |event| {
                if let Event::Pod(pod) = event {
                    pod.needs_mut().request.other = vec![("rdma/hca".into(), 1000)];
                }
            },
            Cause::Resources,
            "0 of 1 GPU node fits: 1 has too little free rdma/hca (asks 1 rdma/hca, at most 0 free on n0)",
        ),
        changed(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
            |event| {
                if let Some(pod) = of_w(event) {
                    pod.needs_mut().request.other = vec![("rdma/hca".into(), 1000)];
                }
            },
            Cause::TooLarge,
            "No node has rdma/hca (asks 1 rdma/hca)",
        ),
        changed(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
            |event| match event {
                Event::Node(node) => node.allocatable.other = vec![("ephemeral-storage".into(), 10 << 30)],
                event => {
                    if let Some(pod) = of_w(event) {
                        pod.needs_mut().request.other = vec![("ephemeral-storage".into(), 20 << 30)];
                    }
                }
            },
            Cause::TooLarge,
            "The pod asks for 20Gi of ephemeral storage, no node has more than 10Gi (n0); ask for less or add a larger node",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [w q Tmig-1g.5gb]",
            Cause::MigProfile,
            "No node has MIG profile nvidia.com/mig-1g.5gb (asks 1 nvidia.com/mig-1g.5gb)",
        ),
        when(
            "nodes: {n0: '0 mig-1g.5gb*7 nvidia.com/mig.strategy=mixed', n1: '0 mig-1g.5gb*7 nvidia.com/mig.strategy=mixed', n2: 1 taint~odd}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
            Cause::Nodes,
            "0 of 3 GPU nodes fit: 2 offer MIG instances only (nvidia.com/mig.strategy=mixed), 1 has taint odd",
        ),
    ]);
}

#[test]
fn fragments() {
    check(&[
        when(
            "nodes: {n3: 6, n4: 6}\nqueues: [q 12 w1]\npod_groups: [x q B3@n3, y q B3@n4, w q T6]",
            Cause::Fragmented,
            "GPUs are fragmented: 6 are free, at most 3 on one node (n3), the pod needs 6; consolidation found no move",
        ),
        when(
            "nodes: {n3: 6, n4: 6}\nqueues: [q 12 w1]\npod_groups: [x q B3@n3, y q B3@n4, w q B6]",
            Cause::Fragmented,
            "GPUs are fragmented: 6 are free, at most 3 on one node (n3), the pod needs 6; consolidation moves nothing for non-preemptible workloads",
        ),
        when(
            "nodes: {n0: 3, n1: 3, n2: 3}\nqueues: [q 12 w1]\npod_groups: [x q B1@n0, y q B1@n1, z q B1@n2, w q T3x2 min=2]",
            Cause::Fragmented,
            "GPUs are fragmented: 6 are free, at most 2 on one node (n0), each of 2 pods needs 3; consolidation found no move",
        ),
        when(
            "nodes: {n0: 1, n1: 1}\nqueues: [q 2 w1]\npod_groups: ['x q B0.6@n0/g', 'y q B0.6@n1/h', w q T0.5]",
            Cause::Fragmented,
            "GPUs are fragmented: at most 0.4 of one GPU is free (n0), 0.8 in all, the pod needs 0.5 of a GPU; consolidation found no move",
        ),
        when(
            "nodes: {n0: 8}\nqueues: [q 8 w1]\npod_groups: ['w q T0.5*9']",
            Cause::TooLarge,
            "The pod asks for 0.5 of each of 9 GPUs, no node has more than 8 GPUs (n0); ask for fewer",
        ),
        when(
            "nodes: {n0: 8 of 81900}\nqueues: [q 8 w1]\npod_groups: [w q T100000M]",
            Cause::TooLarge,
            "The pod asks for 100000 MiB of GPU memory, no GPU has more than 81900 MiB (n0); ask for less",
        ),
        when(
            "nodes: {n0: 8 unlabelled, n1: 8 unlabelled}\nqueues: [q 8 w1]\npod_groups: [w q T1000M]",
            Cause::GpuMemoryUnknown,
            "0 of 2 GPU nodes have label nvidia.com/gpu.memory, without which GPU memory cannot be asked for",
        ),
        when(
            "nodes: {n0: 1}\nqueues: [q 8 w1]\npod_groups: ['x q T0.6@n0/g', w q T0.5]",
            Cause::Priority,
            "Waits for 0.5 of a GPU: queue q holds 0.6 of 1 GPU (fair share 1.1), 0.6 of them by workloads of the same priority 50 or a higher one (x)",
        ),
    ]);
}

#[test]
fn gangs_and_topologies() {
    check(&[
        when(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1x3 min=4]",
            Cause::GangIncomplete,
            "3 of 4 pods exist; the gang waits for the others",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1x3 min=4 failed=1]",
            Cause::GangIncomplete,
            "3 of 4 pods exist, beside 1 pod that ended; the gang waits for the others",
        ),
        changed(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1x4 min=4]",
            |event| {
                if let Some(pod) = of_w(event)
                    && &*pod.pod.name == "w-003"
                {
                    pod.status = crate::engine::input::PodStatus::Gated;
                }
            },
            Cause::Gated,
            "3 of 4 pods may start: pod w-003 has scheduling gates; remove the gates to let the gang start",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: ['w q a:T1x2 b:T1 subs=a:2,b:2']",
            Cause::GangIncomplete,
            "1 of 2 pods of sub-group b exist; the gang waits for the others",
        ),
        when(
            "nodes: {n0: 4, n1: 4}\nqueues: [q 32 w1]\npod_groups: [w q T2x5 min=5]",
            Cause::GangTooLarge,
            "The gang needs 5 pods of 2 GPUs at once, and all nodes that suit it have room for 4 even when empty",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [w q T2x1@n0 T2x2 min=1, x q I2@n0]",
            Cause::Priority,
            "Waits for 2 GPUs: queue q holds 4 of 4 GPUs (fair share 8), 4 of them by workloads of the same priority 50 or a higher one (w and x)",
        ),
        when(
            "nodes: {n0: 4 rack=r1, n1: 4 rack=r2}\ntopologies: {net: [rack]}\nqueues: [q 8 w1]\npod_groups: ['w q T2x4 min=4 topo=net:rack:']",
            Cause::TopologyDomain,
            "No domain of level rack of topology net has room for all 4 pods: r1 has room for 2 of 4 and r2 has room for 2 of 4",
        ),
        when(
            "nodes: {n0: 4, n1: 4 rack=r1}\ntopologies: {net: [rack]}\nqueues: [q 8 w1]\npod_groups: ['w q T2x1@n0 T1 min=1 topo=net:rack:']",
            Cause::TopologyDomain,
            "No domain of level rack of topology net has room for the pod: the nodes of its other pods are in no domain of this node pool",
        ),
        when(
            "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: ['w q T1x2 min=2 topo=net:rack:']",
            Cause::TopologyMissing,
            "Topology net does not exist; create it or name another one",
        ),
        when(
            "nodes: {n0: 4 zone=a}\ntopologies: {net: [zone]}\nqueues: [q 8 w1]\npod_groups: ['w q T1x2 min=2 topo=net:rack:']",
            Cause::TopologyLevelMissing,
            "Topology net has no level rack (its levels are zone)",
        ),
        when(
            "nodes: {n0: 4, n1: 4}\ntopologies: {net: [rack]}\nqueues: [q 8 w1]\npod_groups: ['w q T1x2 min=2 topo=net:rack:']",
            Cause::TopologyLabelMissing,
            "0 of 2 nodes have label rack, by which topology net finds its domains; label the nodes",
        ),
    ]);
}

#[test]
fn objects() {
    const WORLD: &str = "nodes: {n0: 4, n1: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1]";
    check(&[
        changed(
            WORLD,
            |event| {
                if let Some(pod) = of_w(event) {
                    pod.blocked = Some("Missing required configmaps: [settings]".into());
                }
            },
            Cause::ObjectMissing,
            "Missing required configmaps: [settings]",
        ),
        changed(
            WORLD,
            |event| {
                if let Some(pod) = of_w(event) {
                    pod.volumes = Some(Arc::new(PodVolumes {
                        missing: Some("persistentvolumeclaim \"data\" not found".into()),
                        ..PodVolumes::default()
                    }));
                }
            },
            Cause::Volumes,
            "PersistentVolumeClaim \"data\" not found",
        ),
        changed(
            WORLD,
            |event| {
                if let Some(pod) = of_w(event) {
                    pod.volumes = Some(Arc::new(PodVolumes {
                        claims: vec![Claim {
                            key: "ns/data".into(),
                            exclusive: false,
                            owned: false,
                            attach: None,
                            class: "fast".into(),
                            size: 1,
                            state: Arc::new(ClaimState::Waiting(Waiting {
                                class: "fast".into(),
                                size: 1,
                                modes: 1,
                                block: false,
                                attributes_class: Name::default(),
                                labels: Vec::new(),
                                node: None,
                                provisioning: None,
                            })),
                        }],
                        ..PodVolumes::default()
                    }));
                }
            },
            Cause::Volumes,
            "0 of 2 GPU nodes fit: 2 have no PersistentVolume for claim data",
        ),
        changed(
            "nodes: {n0: 4, n1: 4}\nqueues: [q 8 w1]\npod_groups: [x q T1@n0, w q T1]",
            |event| {
                if let Event::Pod(pod) = event {
                    pod.volumes = Some(Arc::new(PodVolumes {
                        claims: vec![Claim {
                            key: "ns/data".into(),
                            exclusive: true,
                            owned: false,
                            attach: None,
                            class: "fast".into(),
                            size: 1,
                            state: Arc::new(ClaimState::Bound(Reach::default())),
                        }],
                        ..PodVolumes::default()
                    }));
                }
            },
            Cause::Volumes,
            "0 of 2 GPU nodes fit: 2 cannot serve claim data, which is ReadWriteOncePod and in use by another pod",
        ),
        changed(
            WORLD,
            |event| {
                if let Some(pod) = of_w(event) {
                    pod.claims = Some(Arc::new(PodClaims {
                        named: vec![claim_ref()],
                        extended: None,
                    }));
                }
            },
            Cause::Devices,
            "ResourceClaim ns/gpu does not exist; create it",
        ),
    ]);
}

fn claim_ref() -> ClaimRef {
    ClaimRef {
        reference: "gpu".into(),
        claim: Some("ns/gpu".into()),
        shared: false,
        promised: None,
    }
}

/// The pod group `w` with a claim of which nothing can be given.
fn claims(problem: Option<&str>) -> String {
    let text = "name: it\nnodes: {n0: 4, n1: 4}\nqueues: [q 8 w1]\npod_groups: [w q T0]";
    let scenario: Scenario = serde_yaml_ng::from_str(text).expect("a scenario");
    let mut engine = Engine::new(scenario.policy());
    for mut event in scenario.events() {
        if let Some(pod) = of_w(&mut event) {
            pod.needs = Arc::new(Needs {
                gpu: GpuRequest {
                    dra: 1,
                    ..GpuRequest::default()
                },
                ..(*pod.needs).clone()
            });
            pod.claims = Some(Arc::new(PodClaims {
                named: vec![claim_ref()],
                extended: None,
            }));
        }
        engine.apply(event, NOW);
    }
    let request = RequestInput {
        name: "one".into(),
        options: vec![OptionInput {
            selectors: vec![0],
            count: Some(1),
            ..OptionInput::default()
        }],
    };
    let claim = ClaimInput {
        key: "ns/gpu".into(),
        gpus: 1,
        queue: None,
        requests: vec![request].into(),
        constraints: Vec::new(),
        problem: problem.map(Name::from),
        allocation: None,
        reserved: Vec::new(),
        foreign: false,
    };
    engine.apply(Event::Claim(Box::new(claim)), NOW);
    let decisions = engine.cycle(NOW);
    decisions.unschedulable[0].verdict.to_string()
}

#[test]
fn claims_for_devices() {
    assert_eq!(
        claims(None),
        "0 of 2 GPU nodes fit: 2 have no free devices for resource claim gpu"
    );
    assert_eq!(
        claims(Some("device class gpu.example.com does not exist")),
        "Device class gpu.example.com does not exist"
    );
}

#[test]
fn all_bad_conditions_of_a_node_are_named() {
    fn faulty(event: &mut Event, conditions: &[&str]) {
        if let Event::Node(node) = event {
            let fault = |condition: &&str| NodeFault {
                condition: (*condition).into(),
                since: Some(Time(NOW.0 - 60_000)),
            };
            node.faults = conditions.iter().map(fault).collect();
        }
    }
    const WORLD: &str = "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1]";
    check(&[
        changed(
            WORLD,
            |event| faulty(event, &["MemoryPressure=True", "DiskPressure=True"]),
            Cause::NotReady,
            "0 of 1 GPU node fits: 1 is not ready (MemoryPressure=True, DiskPressure=True since 13:45:40 UTC)",
        ),
        changed(
            WORLD,
            |event| faulty(event, &["Ready=Unknown", "MemoryPressure=Unknown"]),
            Cause::NotReady,
            "0 of 1 GPU node fits: 1 is not ready (Ready=Unknown since 13:45:40 UTC)",
        ),
    ]);
}

/// A taint of Kubernetes that says the same as the node's field counts as the field.
#[test]
fn condition_taints_are_reported_as_node_conditions() {
    let situation = changed(
        "nodes: {n0: 4}\nqueues: [q 8 w1]\npod_groups: [w q T1]",
        |event| {
            if let Event::Node(node) = event {
                node.taints = vec![Taint {
                    key: "node.kubernetes.io/not-ready".into(),
                    value: Name::default(),
                    effect: TaintEffect::NoExecute,
                }];
            }
        },
        Cause::NotReady,
        "0 of 1 GPU node fits: 1 is not ready",
    );
    check(&[situation]);
}
