//! What two models of the same cluster must agree on: taken from each in one go, and compared elsewhere.
//!
//! Left out is what only one of them can know: pods with a decision that the API server does not show yet, the sums on which they count, and pod groups that
//! are charged by their past (`apply/charge.rs`). Sums that are left out are still compared with the pods of their own model, by the rules of
//! [`check`](super::check).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::input::{GroupKey, Name, Needs, NodeInput, PodRef, QueueInput, Share};

use super::Model;
use super::ids::{PodGroupId, QueueId};
use super::node::SharedGpu;
use super::node_set::NodeSet;
use super::pod::{Assumed, STATUSES, Status};
use super::resources::{Resources, Shared};

/// A kind of object that models are compared by.
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
    /// All of them, as metrics call them.
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
    /// What the first model says of it; `None`: it does not know it.
    pub left: Option<String>,
    /// What the second model says of it.
    pub right: Option<String>,
}

/// What models must agree on.
#[derive(Debug)]
pub struct Digest {
    nodes: Vec<NodeFacts>,
    queues: Vec<QueueFacts>,
    pod_groups: Vec<PodGroupFacts>,
    pods: Vec<PodFacts>,
    /// Names of resources by position.
    resources: Vec<Option<Name>>,
}

/// Free resources by name, and shared GPUs in use by name.
#[derive(Debug, PartialEq)]
struct Free<'d> {
    idle: Vec<(&'d str, i64)>,
    future: Vec<(&'d str, i64)>,
    shared: Vec<&'d SharedGpu>,
}

#[derive(Debug)]
struct NodeFacts {
    name: Name,
    input: Box<NodeInput>,
    idle: Resources,
    future: Resources,
    shared: Vec<SharedGpu>,
    /// Its sums are left out.
    open: bool,
}

#[derive(Debug)]
struct QueueFacts {
    name: Name,
    said: SaidOfQueue,
    sums: Sums,
    /// Its sums are left out.
    open: bool,
}

#[derive(Debug, PartialEq)]
struct SaidOfQueue {
    input: Box<QueueInput>,
    in_force: [Share; 3],
    in_tree: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Sums {
    allocated: Shared,
    non_preemptible: Shared,
    wanted: Shared,
    wanted_memory: i64,
}

#[derive(Debug)]
struct PodGroupFacts {
    key: GroupKey,
    said: SaidOfGroup,
    counts: [u32; STATUSES],
    /// Its counts are left out.
    open: bool,
    /// What is said of it is left out.
    by_its_past: bool,
}

#[derive(Debug, PartialEq)]
struct SaidOfGroup {
    queue: Name,
    priority: i64,
    preemptible: bool,
    excluded: bool,
    sets: usize,
}

#[derive(Debug)]
struct PodFacts {
    pod: PodRef,
    said: SaidOfPod,
    /// What is said of it is left out.
    open: bool,
}

#[derive(Debug, PartialEq)]
struct SaidOfPod {
    status: Status,
    node: Option<Name>,
    group: Option<GroupKey>,
    in_pod_set: bool,
    needs: Arc<Needs>,
}

impl Model {
    /// What another model of the same cluster must agree on. Both are to be [prepared](Model::prepare).
    #[must_use]
    pub fn digest(&self) -> Digest {
        let unknown = self.pod_groups.iter().filter(|(_, pod_group)| pod_group.placeholder);
        let unknown: BTreeSet<PodGroupId> = unknown.map(|(id, _)| id).collect();
        let mut open_nodes = NodeSet::default();
        let mut open_groups = BTreeSet::new();
        let mut open_queues = BTreeSet::new();
        let mut pods = Vec::with_capacity(self.pods.slots());
        for (_, pod) in self.pods.iter() {
            let open = pod.assumed != Assumed::Nothing;
            if open {
                let places = [&pod.state.hold, &pod.state.plan];
                for place in places.into_iter().flatten() {
                    open_nodes.add(place.node.at());
                }
                // Where its object says that it is.
                let shown = pod.input.node.as_ref().and_then(|node| self.nodes.id(node));
                shown.map(|node| open_nodes.add(node.at()));
                if let Some(group) = pod.pod_group {
                    open_groups.insert(group);
                    self.queues_above(group, &mut open_queues);
                }
            }
            let node = pod.state.hold.as_ref().map(|place| self.nodes[place.node].name.clone());
            pods.push(PodFacts {
                pod: pod.input.pod.clone(),
                said: SaidOfPod {
                    status: pod.state.status,
                    node,
                    group: pod.input.group.clone(),
                    in_pod_set: pod.member.is_some() || pod.pod_group.is_some_and(|group| unknown.contains(&group)),
                    needs: Arc::clone(&pod.input.needs),
                },
                open,
            });
        }
        let pod_groups = self.pod_group_facts(&open_groups, &mut open_queues);
        Digest {
            nodes: self.node_facts(&open_nodes),
            queues: self.queue_facts(&open_queues),
            pod_groups,
            pods,
            resources: self.resources.by_position().to_vec(),
        }
    }

    fn pod_group_facts(&self, open: &BTreeSet<PodGroupId>, queues: &mut BTreeSet<QueueId>) -> Vec<PodGroupFacts> {
        let mut facts = Vec::with_capacity(self.pod_groups.slots());
        for (id, pod_group) in self.pod_groups.iter() {
            let Some(input) = &pod_group.input else { continue };
            let by_its_past = pod_group.charged_elsewhere || pod_group.claims_protection || pod_group.placeholder;
            if by_its_past {
                self.queues_above(id, queues);
            }
            let mut counts = [0; STATUSES];
            for (_, pods) in pod_group.pod_sets() {
                for (count, more) in counts.iter_mut().zip(&pods.counts) {
                    *count += more;
                }
            }
            facts.push(PodGroupFacts {
                key: pod_group.key.clone(),
                said: SaidOfGroup {
                    queue: input.queue.clone(),
                    priority: input.priority,
                    preemptible: input.preemptible,
                    excluded: input.is_excluded(),
                    sets: pod_group.pod_sets().count(),
                },
                counts,
                open: open.contains(&id),
                by_its_past,
            });
        }
        facts
    }

    /// Adds the queues to which a pod group is charged, and those that would be charged if it were not for its past.
    fn queues_above(&self, id: PodGroupId, queues: &mut BTreeSet<QueueId>) {
        let pod_group = &self.pod_groups[id];
        let named = pod_group.input.as_ref().and_then(|input| self.queues.id(&input.queue));
        for first in [pod_group.queue, named] {
            let mut at = first;
            while let Some(queue) = at.filter(|queue| queues.insert(*queue)) {
                at = self.queues[queue].parent;
            }
        }
    }

    fn node_facts(&self, open: &NodeSet) -> Vec<NodeFacts> {
        let known = self.nodes.iter().filter_map(|(id, node)| {
            Some(NodeFacts {
                name: node.name.clone(),
                input: node.input.clone()?,
                idle: node.idle.clone(),
                future: node.future.clone(),
                shared: node.groups.iter().filter(|gpu| gpu.used()).cloned().collect(),
                open: open.has(id.at()),
            })
        });
        known.collect()
    }

    fn queue_facts(&self, open: &BTreeSet<QueueId>) -> Vec<QueueFacts> {
        let known = self.queues.iter().filter_map(|(id, queue)| {
            Some(QueueFacts {
                name: queue.name.clone(),
                said: SaidOfQueue {
                    input: queue.input.clone()?,
                    in_force: [queue.share(0), queue.share(1), queue.share(2)],
                    in_tree: queue.valid,
                },
                sums: Sums {
                    allocated: queue.allocated,
                    non_preemptible: queue.non_preemptible,
                    wanted: queue.wanted,
                    wanted_memory: queue.wanted_memory,
                },
                open: open.contains(&id),
            })
        });
        known.collect()
    }
}

/// What a digest says of an object.
trait Facts {
    const KIND: Kind;
    type Key: Ord + ?Sized;
    /// Its identity.
    fn key(&self) -> &Self::Key;
    /// Its name, for people.
    fn name(&self) -> String;
    /// Its sums, or a pod's place, are left out.
    fn open(&self) -> bool;
    /// Nothing of it is compared.
    fn left_out(&self) -> bool {
        false
    }
    /// Whether another digest says the same, but for what is open.
    fn agrees(&self, digest: &Digest, other: (&Self, &Digest), open: bool) -> bool;
    /// What is said, in words, but for what is open.
    fn text(&self, digest: &Digest, open: bool) -> String;
}

impl Facts for NodeFacts {
    const KIND: Kind = Kind::Node;
    type Key = str;
    fn key(&self) -> &str {
        &self.name
    }
    fn name(&self) -> String {
        self.name.to_string()
    }
    fn open(&self) -> bool {
        self.open
    }
    fn agrees(&self, digest: &Digest, (theirs, other): (&Self, &Digest), open: bool) -> bool {
        self.input == theirs.input && (open || digest.free(self) == other.free(theirs))
    }
    fn text(&self, digest: &Digest, open: bool) -> String {
        let free = (!open).then(|| digest.free(self));
        format!("{free:?}, {:?}", self.input)
    }
}

impl Facts for QueueFacts {
    const KIND: Kind = Kind::Queue;
    type Key = str;
    fn key(&self) -> &str {
        &self.name
    }
    fn name(&self) -> String {
        self.name.to_string()
    }
    fn open(&self) -> bool {
        self.open
    }
    fn agrees(&self, _: &Digest, (theirs, _): (&Self, &Digest), open: bool) -> bool {
        self.said == theirs.said && (open || self.sums == theirs.sums)
    }
    fn text(&self, _: &Digest, open: bool) -> String {
        let sums = (!open).then_some(&self.sums);
        format!("{sums:?}, {:?}", self.said)
    }
}

impl Facts for PodGroupFacts {
    const KIND: Kind = Kind::PodGroup;
    type Key = GroupKey;
    fn key(&self) -> &GroupKey {
        &self.key
    }
    fn name(&self) -> String {
        self.key.to_string()
    }
    fn open(&self) -> bool {
        self.open
    }
    fn left_out(&self) -> bool {
        self.by_its_past
    }
    fn agrees(&self, _: &Digest, (theirs, _): (&Self, &Digest), open: bool) -> bool {
        self.said == theirs.said && (open || self.counts == theirs.counts)
    }
    fn text(&self, _: &Digest, open: bool) -> String {
        let counts = (!open).then_some(&self.counts);
        format!("{:?}, pods by status {counts:?}", self.said)
    }
}

impl Facts for PodFacts {
    const KIND: Kind = Kind::Pod;
    type Key = str;
    fn key(&self) -> &str {
        &self.pod.uid
    }
    fn name(&self) -> String {
        self.pod.to_string()
    }
    fn open(&self) -> bool {
        self.open
    }
    fn agrees(&self, _: &Digest, (theirs, _): (&Self, &Digest), open: bool) -> bool {
        open || self.said == theirs.said
    }
    fn text(&self, _: &Digest, _: bool) -> String {
        format!("{:?}", self.said)
    }
}

impl Digest {
    /// The objects on which two models differ, in order, and no more than so many.
    #[must_use]
    pub fn differences(mut self, mut other: Self, most: usize) -> Vec<Difference> {
        self.sort();
        other.sort();
        let both = (&self, &other);
        let nodes = differences(both, |digest| &digest.nodes);
        let queues = differences(both, |digest| &digest.queues);
        let pod_groups = differences(both, |digest| &digest.pod_groups);
        let pods = differences(both, |digest| &digest.pods);
        nodes.chain(queues).chain(pod_groups).chain(pods).take(most).collect()
    }

    fn sort(&mut self) {
        self.nodes.sort_unstable_by(|left, right| left.key().cmp(right.key()));
        self.queues.sort_unstable_by(|left, right| left.key().cmp(right.key()));
        self.pod_groups
            .sort_unstable_by(|left, right| left.key().cmp(right.key()));
        self.pods.sort_unstable_by(|left, right| left.key().cmp(right.key()));
    }

    fn free<'d>(&'d self, node: &'d NodeFacts) -> Free<'d> {
        let named = |amounts: &'d Resources| {
            let there = amounts.iter().filter(|(_, amount)| *amount != 0);
            let mut named: Vec<(&str, i64)> = there
                .map(|(position, amount)| (self.resources[position].as_deref().unwrap_or_default(), amount))
                .collect();
            named.sort_unstable();
            named
        };
        let mut shared: Vec<_> = node.shared.iter().collect();
        shared.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Free {
            idle: named(&node.idle),
            future: named(&node.future),
            shared,
        }
    }
}

/// The objects of one kind on which two models differ, in order.
fn differences<'d, F: Facts + 'd>(
    (left, right): (&'d Digest, &'d Digest),
    of: fn(&Digest) -> &Vec<F>,
) -> impl Iterator<Item = Difference> + 'd {
    pairs(of(left), of(right), F::key).filter_map(move |(mine, theirs)| {
        let either = |what: fn(&F) -> bool| [mine, theirs].into_iter().flatten().any(what);
        let open = either(F::open);
        let agree = |(mine, theirs): (&F, &F)| mine.agrees(left, (theirs, right), open);
        if either(F::left_out) || mine.zip(theirs).is_some_and(agree) {
            return None;
        }
        Some(Difference {
            kind: F::KIND,
            name: mine.or(theirs)?.name(),
            left: mine.map(|mine| mine.text(left, open)),
            right: theirs.map(|theirs| theirs.text(right, open)),
        })
    })
}

/// The values of two sorted lists by key, each with its counterpart if there is one.
fn pairs<'d, T, K: Ord + ?Sized + 'd>(
    left: &'d [T],
    right: &'d [T],
    key: impl Fn(&'d T) -> &'d K,
) -> impl Iterator<Item = (Option<&'d T>, Option<&'d T>)> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (Some(mine), Some(theirs)) => key(mine).cmp(key(theirs)),
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
