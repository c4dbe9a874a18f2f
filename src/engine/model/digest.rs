//! The part of a model that depends only on the objects of the cluster. Two models of the same cluster must have the same digest.
//!
//! Not compared are pods with a decision that the API server does not show yet, sums in which such pods are counted, and pod groups whose charge depends on
//! earlier states of their objects (`apply/charge.rs`). The rules of [`check`](super::check) compare all sums with the pods of the same model.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::sync::Arc;

use crate::engine::input::{GroupKey, Name, Needs, NodeInput, PodRef, QueueInput, Share};

use super::Model;
use super::ids::{PodGroupId, PodId, QueueId};
use super::node::SharedGpu;
use super::node_set::NodeSet;
use super::pod::{Assumed, STATUSES, Status};
use super::resources::{Resources, Shared};

/// A kind of object in a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nodes.
    Node,
    /// Queues.
    Queue,
    /// Pod groups.
    PodGroup,
    /// Pods.
    Pod,
}

impl Kind {
    /// The values of [`Kind::as_str`].
    pub const NAMES: [&'static str; 4] = ["node", "queue", "pod_group", "pod"];

    /// Its name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Queue => "queue",
            Self::PodGroup => "pod_group",
            Self::Pod => "pod",
        }
    }
}

/// An object on which two models differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its kind.
    pub kind: Kind,
    /// Its name, with its namespace if it has one.
    pub name: String,
    /// Its values in the first model; `None`: it is not there.
    pub left: Option<String>,
    /// Its values in the second model.
    pub right: Option<String>,
}

/// The objects of a model, by kind.
#[derive(Debug)]
pub struct Digest {
    nodes: Vec<Facts<Name, Box<NodeInput>, NodeUse>>,
    queues: Vec<Facts<Name, QueueFields, QueueSums>>,
    pod_groups: Vec<Facts<GroupKey, PodGroupFields, [u32; STATUSES]>>,
    pods: Vec<Facts<PodRef, (), PodFields>>,
    /// Names of resources by position.
    resources: Vec<Option<Name>>,
}

/// The values of an object.
#[derive(Debug)]
struct Facts<K, F, S> {
    /// Its identity.
    key: K,
    /// What follows from the object alone.
    fields: F,
    /// What also depends on pods.
    sums: S,
    /// The sums depend on a decision that the API server does not show yet, and are not compared.
    assumed: bool,
    /// Nothing of it is compared.
    excluded: bool,
}

/// An object in two digests.
type Pair<K, F, S> = (Option<Facts<K, F, S>>, Option<Facts<K, F, S>>);

/// What is free and used on a node, with resources by position.
#[derive(Debug)]
struct NodeUse {
    idle: Resources,
    future: Resources,
    shared: Vec<SharedGpu>,
}

/// The same with resources by name, in order.
#[derive(Debug, PartialEq)]
struct NamedNodeUse {
    idle: Vec<(Name, i64)>,
    future: Vec<(Name, i64)>,
    shared: Vec<SharedGpu>,
}

#[derive(Debug, PartialEq)]
struct QueueFields {
    input: Box<QueueInput>,
    /// Its shares at the time of the digest.
    shares: [Share; 3],
    in_tree: bool,
}

#[derive(Debug, PartialEq)]
struct QueueSums {
    allocated: Shared,
    non_preemptible: Shared,
    wanted: Shared,
    wanted_memory: i64,
}

#[derive(Debug, PartialEq)]
struct PodGroupFields {
    queue: Name,
    priority: i64,
    preemptible: bool,
    excluded: bool,
    pod_sets: usize,
}

#[derive(Debug, PartialEq)]
struct PodFields {
    status: Status,
    node: Option<Name>,
    group: Option<GroupKey>,
    in_pod_set: bool,
    needs: Arc<Needs>,
}

impl Model {
    /// The digest. The model must be [prepared](Model::prepare).
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut assumed = Assumptions::default();
        let pods = self.pod_facts(&mut assumed);
        let pod_groups = self.pod_group_facts(&mut assumed);
        Digest {
            nodes: self.node_facts(&assumed),
            queues: self.queue_facts(&assumed),
            pod_groups,
            pods,
            resources: self.resources.by_position().to_vec(),
        }
    }

    fn pod_facts(&self, assumed: &mut Assumptions) -> Vec<Facts<PodRef, (), PodFields>> {
        let unknown = self.pod_groups.iter().filter(|(_, pod_group)| pod_group.placeholder);
        let unknown: BTreeSet<PodGroupId> = unknown.map(|(id, _)| id).collect();
        // As long as a pod of it is assumed to be bound, an unknown pod group may keep sub-groups that a new model does not know.
        let is_assumed = |pod: &PodId| self.pods[*pod].assumed != Assumed::Nothing;
        let kept = |id: &&PodGroupId| self.pod_groups[**id].pods.iter().any(is_assumed);
        let kept: BTreeSet<PodGroupId> = unknown.iter().filter(kept).copied().collect();
        let mut facts = Vec::with_capacity(self.pods.slots());
        for (_, pod) in self.pods.iter() {
            let is_assumed = pod.assumed != Assumed::Nothing;
            if is_assumed {
                let places = [&pod.state.hold, &pod.state.plan].into_iter().flatten();
                let shown = pod.input.node.as_ref().and_then(|node| self.nodes.id(node));
                for node in places.map(|place| place.node).chain(shown) {
                    assumed.nodes.add(node.at());
                }
                if let Some(pod_group) = pod.pod_group {
                    assumed.pod_groups.insert(pod_group);
                    self.assume_queues(pod_group, assumed);
                }
            }
            let node = pod.state.hold.as_ref().map(|place| self.nodes[place.node].name.clone());
            facts.push(Facts {
                key: pod.input.pod.clone(),
                fields: (),
                sums: PodFields {
                    status: pod.state.status,
                    node,
                    group: pod.input.group.clone(),
                    in_pod_set: pod.member.is_some() || pod.pod_group.is_some_and(|id| unknown.contains(&id)),
                    needs: Arc::clone(&pod.input.needs),
                },
                assumed: is_assumed || pod.pod_group.is_some_and(|id| kept.contains(&id)),
                excluded: false,
            });
        }
        facts
    }

    fn pod_group_facts(&self, assumed: &mut Assumptions) -> Vec<Facts<GroupKey, PodGroupFields, [u32; STATUSES]>> {
        let mut facts = Vec::with_capacity(self.pod_groups.slots());
        for (id, pod_group) in self.pod_groups.iter() {
            let Some(input) = &pod_group.input else { continue };
            let by_history = pod_group.charged_elsewhere || pod_group.claims_protection || pod_group.placeholder;
            if by_history {
                self.assume_queues(id, assumed);
            }
            let mut counts = [0; STATUSES];
            for (_, pods) in pod_group.pod_sets() {
                for (count, more) in counts.iter_mut().zip(&pods.counts) {
                    *count += more;
                }
            }
            facts.push(Facts {
                key: pod_group.key.clone(),
                fields: PodGroupFields {
                    queue: input.queue.clone(),
                    priority: input.priority,
                    preemptible: input.preemptible,
                    excluded: input.is_excluded(),
                    pod_sets: pod_group.pod_sets().count(),
                },
                sums: counts,
                assumed: assumed.pod_groups.contains(&id),
                excluded: by_history,
            });
        }
        facts
    }

    /// Adds the queue to which a pod group is charged, the one that it names, and those above them.
    fn assume_queues(&self, id: PodGroupId, assumed: &mut Assumptions) {
        let pod_group = &self.pod_groups[id];
        let named = pod_group.input.as_ref().and_then(|input| self.queues.id(&input.queue));
        for first in [pod_group.queue, named] {
            let mut at = first;
            while let Some(queue) = at.filter(|queue| assumed.queues.insert(*queue)) {
                at = self.queues[queue].parent;
            }
        }
    }

    fn node_facts(&self, assumed: &Assumptions) -> Vec<Facts<Name, Box<NodeInput>, NodeUse>> {
        let known = self.nodes.iter().filter_map(|(id, node)| {
            Some(Facts {
                key: node.name.clone(),
                fields: node.input.clone()?,
                sums: NodeUse {
                    idle: node.idle.clone(),
                    future: node.future.clone(),
                    shared: node.groups.iter().filter(|gpu| gpu.used()).cloned().collect(),
                },
                assumed: assumed.nodes.has(id.at()),
                excluded: false,
            })
        });
        known.collect()
    }

    fn queue_facts(&self, assumed: &Assumptions) -> Vec<Facts<Name, QueueFields, QueueSums>> {
        let known = self.queues.iter().filter_map(|(id, queue)| {
            Some(Facts {
                key: queue.name.clone(),
                fields: QueueFields {
                    input: queue.input.clone()?,
                    shares: [0, 1, 2].map(|resource| queue.share(resource)),
                    in_tree: queue.valid,
                },
                sums: QueueSums {
                    allocated: queue.allocated,
                    non_preemptible: queue.non_preemptible,
                    wanted: queue.wanted,
                    wanted_memory: queue.wanted_memory,
                },
                assumed: assumed.queues.contains(&id),
                excluded: false,
            })
        });
        known.collect()
    }
}

/// Objects whose sums depend on a decision that the API server does not show yet, or on earlier states.
#[derive(Default)]
struct Assumptions {
    nodes: NodeSet,
    pod_groups: BTreeSet<PodGroupId>,
    queues: BTreeSet<QueueId>,
}

impl Digest {
    /// The objects that differ, by kind and key, and no more than `most`.
    #[must_use]
    pub fn differences(mut self, mut other: Self, most: usize) -> Vec<Difference> {
        let nodes = differences(Kind::Node, self.named_nodes(), other.named_nodes());
        let queues = differences(Kind::Queue, self.queues, other.queues);
        let pod_groups = differences(Kind::PodGroup, self.pod_groups, other.pod_groups);
        let pods = differences(Kind::Pod, self.pods, other.pods);
        nodes.chain(queues).chain(pod_groups).chain(pods).take(most).collect()
    }

    /// The nodes with resources by name: two models may have them at different positions.
    fn named_nodes(&mut self) -> Vec<Facts<Name, Box<NodeInput>, NamedNodeUse>> {
        let named = |amounts: &Resources| {
            let there = amounts.iter().filter(|(_, amount)| *amount != 0);
            let name = |position: usize| self.resources[position].clone().unwrap_or_else(|| "".into());
            let named = there.map(|(position, amount)| (name(position), amount));
            let mut named: Vec<(Name, i64)> = named.collect();
            named.sort_unstable();
            named
        };
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        let nodes = nodes.map(|node| {
            let mut shared = node.sums.shared;
            shared.sort_unstable_by(|left, right| left.name.cmp(&right.name));
            Facts {
                key: node.key,
                fields: node.fields,
                sums: NamedNodeUse {
                    idle: named(&node.sums.idle),
                    future: named(&node.sums.future),
                    shared,
                },
                assumed: node.assumed,
                excluded: node.excluded,
            }
        });
        nodes.collect()
    }
}

/// The objects of one kind that differ, in the order of their keys.
fn differences<K, F, S>(
    kind: Kind,
    mut left: Vec<Facts<K, F, S>>,
    mut right: Vec<Facts<K, F, S>>,
) -> impl Iterator<Item = Difference>
where
    K: Ord + Display,
    F: PartialEq + Debug,
    S: PartialEq + Debug,
{
    left.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    right.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    pairs(left, right).filter_map(move |(left, right)| {
        let either = |what: fn(&Facts<K, F, S>) -> bool| [&left, &right].into_iter().flatten().any(what);
        let assumed = either(|facts| facts.assumed);
        let same = left
            .as_ref()
            .zip(right.as_ref())
            .is_some_and(|(left, right)| left.fields == right.fields && (assumed || left.sums == right.sums));
        if same || either(|facts| facts.excluded) {
            return None;
        }
        let text = |facts: &Facts<K, F, S>| {
            let sums = (!assumed).then_some(&facts.sums);
            format!("{sums:?}, {:?}", facts.fields)
        };
        Some(Difference {
            kind,
            name: left.as_ref().or(right.as_ref())?.key.to_string(),
            left: left.as_ref().map(text),
            right: right.as_ref().map(text),
        })
    })
}

/// The objects of two lists that are sorted by key, each with its counterpart if there is one.
fn pairs<K: Ord, F, S>(left: Vec<Facts<K, F, S>>, right: Vec<Facts<K, F, S>>) -> impl Iterator<Item = Pair<K, F, S>> {
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (Some(left), Some(right)) => left.key.cmp(&right.key),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        Some(match order {
            Ordering::Less => (left.next(), None),
            Ordering::Greater => (None, right.next()),
            Ordering::Equal => (left.next(), right.next()),
        })
    })
}
