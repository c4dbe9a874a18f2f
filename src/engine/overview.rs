//! Read-only copies of queues, nodes and pod groups for the HTTP API, page by page, so that reading a large cluster does not block cycles for long.
//!
//! Fair shares and reports are those of the last cycle; the verdict on a single pod group is current.

use super::Engine;
use super::decision::{Cause, Figures, GroupReport};
use super::fairshare::{smallest_gpu, wanted, wanted_of_queue};
use super::input::{GPU, GroupKey, Hold, Name, PodRef, Time};
use super::model::Model;
use super::model::ids::{NodeId, PodGroupId, PodId};
use super::model::node::Node;
use super::model::pod::{Pod, Status};
use super::model::pod_group::{PodGroup, PodSet};
use super::model::resources::{CPU, GPUS, MEMORY, Shared};

/// Items per page: nodes or pod groups, and their pods.
const PAGE: usize = 2_048;

/// A page of items, and the start of the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items.
    pub seen: Vec<T>,
    /// The start of the next page; `None` at the end.
    pub next: Option<usize>,
}

/// A queue. Figures are cpu, memory and GPUs; `None` = unlimited.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSeen {
    /// Its name.
    pub name: Name,
    /// Its name in messages.
    pub display: Name,
    /// The queue that it names as its parent.
    pub parent: Option<Name>,
    /// It is in the tree: it and all queues above it exist, without a cycle.
    pub valid: bool,
    /// Its priority among its siblings.
    pub priority: i64,
    /// Its quotas.
    pub quota: Figures,
    /// Its limits.
    pub limit: Figures,
    /// Weights, in millionths.
    pub weight: Shared,
    /// Its fair share.
    pub fair: Shared,
    /// Allocated to its pods.
    pub allocated: Shared,
    /// The part of non-preemptible pod groups.
    pub non_preemptible: Shared,
    /// Requested by its pods, allocated or pending.
    pub wanted: Shared,
    /// Its usage over the window of time, in billionths of the cluster.
    pub usage: Shared,
    /// When another entry of its quota schedule comes into force.
    pub schedule_until: Option<Time>,
}

/// A node. Cpu in milli-cores, memory in bytes, GPUs in millionths.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSeen {
    /// Its name.
    pub name: Name,
    /// It is ready by its conditions.
    pub ready: bool,
    /// It is cordoned.
    pub cordoned: bool,
    /// Allocatable cpu, memory, GPUs.
    pub total: Shared,
    /// The free amounts now.
    pub free: Shared,
    /// The free amounts once releasing pods have gone and pipelined ones run.
    pub free_later: Shared,
    /// Pods on it.
    pub pods: usize,
    /// MiB of each GPU.
    pub gpu_memory: Option<i64>,
    /// Shared GPUs: the group, and the used portion in millionths.
    pub shared: Vec<(Name, i64)>,
    /// Pods that use GPUs.
    pub users: Vec<UserSeen>,
}

/// A pod that uses GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct UserSeen {
    /// The pod.
    pub pod: PodRef,
    /// Its pod group.
    pub group: Option<GroupKey>,
    /// The queue of its pod group.
    pub queue: Option<Name>,
    /// Millionths of GPUs; of each device if they are shared.
    pub gpus: i64,
    /// Positions in the node's shared GPUs; empty if it uses whole ones.
    pub shared: Vec<usize>,
    /// It is releasing.
    pub leaving: bool,
}

/// A pod group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSeen {
    /// Its identity.
    pub key: GroupKey,
    /// The queue that it names.
    pub queue: Name,
    /// Its priority.
    pub priority: i64,
    /// It is preemptible.
    pub preemptible: bool,
    /// Creation time.
    pub created: Time,
    /// When it last began to run.
    pub started: Option<Time>,
    /// Its pods.
    pub pods: PodsSeen,
    /// The sum of the requests of its pods that can still run.
    pub requested: Shared,
    /// Its hold.
    pub held: Option<Hold>,
    /// Why it waits: the kind of cause, and a sentence.
    pub verdict: Option<(Cause, String)>,
}

/// The pods of a pod group by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodsSeen {
    /// The minimum of pods.
    pub min: usize,
    /// Pods that run or can still run.
    pub alive: usize,
    /// Pods with a node.
    pub placed: usize,
    /// Pending pods without scheduling gates.
    pub waiting: usize,
    /// Pods with scheduling gates.
    pub gated: usize,
    /// Releasing pods.
    pub leaving: usize,
    /// Pods that have ended.
    pub ended: usize,
}

/// A pod group in full.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupDetails {
    /// The pod group.
    pub group: GroupSeen,
    /// The last report about it, if it is pending.
    pub report: Option<GroupReport>,
    /// Its pods.
    pub pods: Vec<PodSeen>,
}

/// A pod of a pod group.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSeen {
    /// The pod.
    pub pod: PodRef,
    /// Its status.
    pub status: Status,
    /// Its sub-group; empty if the pod group has none.
    pub sub_group: Name,
    /// The node that it is on or pipelined to.
    pub node: Option<Name>,
    /// Its request.
    pub requested: Shared,
    /// The groups of the shared GPUs that it uses.
    pub gpu_groups: Vec<Name>,
}

impl Engine {
    /// All known queues, also those outside the tree.
    #[must_use]
    pub fn see_queues(&mut self) -> Vec<QueueSeen> {
        self.model.prepare(&self.policy);
        let model = &self.model;
        let queues = model.queues().iter().filter_map(|(_, queue)| {
            let input = queue.input.as_ref()?;
            let share = |resource| queue.share(resource);
            Some(QueueSeen {
                name: queue.name.clone(),
                display: input.display.clone(),
                parent: input.parent.clone(),
                valid: queue.valid,
                priority: input.priority,
                quota: [0, 1, 2].map(|resource| share(resource).quota),
                limit: [0, 1, 2].map(|resource| share(resource).limit),
                weight: [0, 1, 2].map(|resource| share(resource).weight),
                fair: queue.fair,
                allocated: queue.allocated,
                non_preemptible: queue.non_preemptible,
                wanted: wanted_of_queue(model, queue),
                usage: queue.usage,
                schedule_until: queue.schedule_until(),
            })
        });
        queues.collect()
    }

    /// A page of the nodes.
    #[must_use]
    pub fn see_nodes(&self, from: usize) -> Page<NodeSeen> {
        let (model, mut budget) = (&self.model, PAGE);
        let mut page = Page {
            seen: Vec::new(),
            next: None,
        };
        for (id, node) in model.nodes().iter() {
            if id.at() < from {
                continue;
            }
            if budget == 0 {
                page.next = Some(id.at());
                break;
            }
            budget = budget.saturating_sub(1 + node.pods.len());
            page.seen.extend(see_node(model, id, node));
        }
        page
    }

    /// A page of the pod groups.
    #[must_use]
    pub fn see_groups(&mut self, from: usize) -> Page<GroupSeen> {
        self.model.prepare(&self.policy);
        let (model, mut budget) = (&self.model, PAGE);
        let mut page = Page {
            seen: Vec::new(),
            next: None,
        };
        for (id, group) in model.pod_groups().iter() {
            if id.at() < from {
                continue;
            }
            if budget == 0 {
                page.next = Some(id.at());
                break;
            }
            budget = budget.saturating_sub(1 + group.pods.len());
            page.seen.extend(self.see_group(id, group));
        }
        page
    }

    /// The pod group that a pod (by uid) belongs to.
    #[must_use]
    pub fn see_group_of(&self, pod: &str) -> Option<GroupKey> {
        let id = self.model.pods().id(pod)?;
        self.model.pod_group_of(id).map(|group| group.key.clone())
    }

    /// A pod group with its pods and the last report about it.
    #[must_use]
    pub fn see_details(&mut self, key: &GroupKey, now: Time) -> Option<GroupDetails> {
        self.model.prepare(&self.policy);
        let id = self.model.pod_groups().id(key)?;
        let group = &self.model.pod_groups()[id];
        let mut pods: Vec<_> = group.pods.iter().map(|pod| see_pod(&self.model, group, *pod)).collect();
        pods.sort_by(|left, right| left.pod.name.cmp(&right.pod.name));
        let report = self.current_report(id, now);
        let mut group = self.see_group(id, group)?;
        group.verdict = report.as_ref().map(shown);
        Some(GroupDetails { group, report, pods })
    }

    /// `None` without an event about it, and for placeholders.
    fn see_group(&self, id: PodGroupId, group: &PodGroup) -> Option<GroupSeen> {
        let input = group.input.as_ref().filter(|_| !group.placeholder)?;
        let model = &self.model;
        let alive = |pod: &&PodId| model.pods()[**pod].state.status.alive();
        let alive: Vec<PodId> = group.pods.iter().filter(alive).copied().collect();
        Some(GroupSeen {
            key: group.key.clone(),
            queue: input.queue.clone(),
            priority: input.priority,
            preemptible: input.preemptible,
            created: input.created,
            started: input.last_start,
            held: input.held.as_deref().cloned(),
            pods: see_counts(group),
            requested: wanted(model, &alive, smallest_gpu(model)),
            verdict: self.reported.get(&id).map(|known| shown(&known.report)),
        })
    }
}

/// The cause of a report, and its first sentence.
fn shown(report: &GroupReport) -> (Cause, String) {
    let verdict = &report.verdict;
    (verdict.cause, first_sentence(&verdict.sentence).to_owned())
}

/// The text up to the end of its first sentence or line, without a full stop.
#[must_use]
pub fn first_sentence(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    let sentence = line.split(". ").next().unwrap_or_default();
    sentence.trim_end_matches('.').trim()
}

fn see_counts(group: &PodGroup) -> PodsSeen {
    let sum = |figure: &dyn Fn(&PodSet) -> usize| group.pod_sets().map(|(_, pods)| figure(pods)).sum();
    PodsSeen {
        min: sum(&|pods| pods.min),
        alive: sum(&PodSet::alive),
        placed: sum(&PodSet::staying),
        waiting: group.with(Status::Pending) + group.with(Status::Pipelined),
        gated: group.with(Status::Gated),
        leaving: group.with(Status::Releasing) + group.with(Status::Stuck),
        ended: group.with(Status::Succeeded) + group.with(Status::Failed),
    }
}

fn see_pod(model: &Model, group: &PodGroup, id: PodId) -> PodSeen {
    let pod = &model.pods()[id];
    let place = pod.state.plan.as_ref().or(pod.state.hold.as_ref());
    let node = place.map(|place| &model.nodes()[place.node]);
    let groups = place.zip(node).map(|(place, node)| {
        let groups = place.extras().groups.iter();
        groups.map(|group| node.groups[*group as usize].name.clone()).collect()
    });
    let sub_group = match pod.member {
        Some(member) if group.pod_sets().count() > 1 => group.tree[member as usize].name.as_str().into(),
        _ => Name::default(),
    };
    PodSeen {
        pod: pod.input.pod.clone(),
        status: pod.state.status,
        sub_group,
        node: node.map(|node| node.name.clone()),
        requested: wanted(model, &[id], smallest_gpu(model)),
        gpu_groups: groups.unwrap_or_default(),
    }
}

/// `None` without an event about it.
fn see_node(model: &Model, id: NodeId, node: &Node) -> Option<NodeSeen> {
    let input = node.input.as_ref()?;
    let of = |amounts: &super::model::resources::Resources| [CPU, MEMORY, GPUS].map(|at| amounts.get(at));
    let memory = node.gpu_memory();
    // Unused groups are skipped, so positions differ from those in the model.
    let used: Vec<usize> = (0..node.groups.len()).filter(|at| node.groups[*at].used()).collect();
    let part = |mib: i64| i64::try_from(i128::from(mib) * i128::from(GPU) / i128::from(memory.max(1))).unwrap_or(GPU);
    let shared = used.iter().map(|at| {
        let gpu = &node.groups[*at];
        (gpu.name.clone(), part(gpu.staying.memory + gpu.leaving.memory))
    });
    let users = node.pods.iter().filter_map(|pod| {
        let pod = &model.pods()[*pod];
        see_user(model, pod, id, &used, &part)
    });
    Some(NodeSeen {
        name: node.name.clone(),
        ready: input.faults.is_empty(),
        cordoned: input.unschedulable,
        total: of(&node.allocatable),
        free: of(&node.idle),
        free_later: of(&node.future),
        pods: node.pods.len(),
        gpu_memory: input.gpu_memory,
        shared: shared.collect(),
        users: users.collect(),
    })
}

/// `None` for a pod that uses no GPUs there, and for a reservation pod.
fn see_user(model: &Model, pod: &Pod, node: NodeId, used: &[usize], part: &dyn Fn(i64) -> i64) -> Option<UserSeen> {
    let shape = &model.shapes()[pod.shape];
    if shape.cpu_only || pod.input.reservation {
        return None;
    }
    let place = pod.state.hold.as_ref().filter(|place| place.node == node)?;
    let groups = place.extras().groups.iter();
    let shared: Vec<usize> = groups
        .filter_map(|group| used.iter().position(|at| *at == *group as usize))
        .collect();
    let gpus = if shape.shared {
        part(shape.device_memory(model.nodes()[node].gpu_memory()))
    } else {
        shape.quota[GPUS]
    };
    let group = pod.pod_group.map(|group| &model.pod_groups()[group]);
    let group = group.filter(|group| !group.placeholder);
    Some(UserSeen {
        pod: pod.input.pod.clone(),
        group: group.map(|group| group.key.clone()),
        queue: group.and_then(|group| Some(group.input.as_ref()?.queue.clone())),
        gpus,
        shared,
        leaving: pod.state.leaving,
    })
}

#[cfg(test)]
mod tests {
    use super::first_sentence;

    #[test]
    fn the_first_sentence_ends_at_a_full_stop_or_line_end() {
        for (text, first) in [
            ("Queue a is full. Others wait.", "Queue a is full"),
            ("0.5 GPUs are free on n1.example", "0.5 GPUs are free on n1.example"),
            ("One line.\nAnother.", "One line"),
            ("", ""),
        ] {
            assert_eq!(first_sentence(text), first);
        }
    }
}
