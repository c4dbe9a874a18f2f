//! Nodes that move to this shard from another node pool: they are given to the mirror only after [`LATE`], when the watches show what the scheduler of the
//! other node pool has decided about them. Otherwise both could give away the same resources. Which nodes belong to a shard follows from their labels alone: if
//! the shard's node pool or the label's key changes, all components are started anew.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tokio::time::Instant;
use tracing::info;

use crate::components::retry::LATE;
use crate::mirror::{PackedChange, PackedObject, Shard};

/// The nodes of other node pools, and those that come from there.
#[derive(Clone)]
pub struct Arrivals {
    shard: Shard,
    /// Nodes of other node pools, by name.
    outside: HashSet<Box<str>>,
    /// Nodes that have come from other node pools: until when they are held back, and their last change.
    held: BTreeMap<Box<str>, (Instant, PackedChange)>,
}

impl Arrivals {
    /// Without nodes.
    #[must_use]
    pub fn new(shard: Shard) -> Self {
        Self {
            shard,
            outside: HashSet::new(),
            held: BTreeMap::new(),
        }
    }

    /// Whether a change is held back.
    pub fn holds_back(&mut self, change: &PackedChange) -> bool {
        match change {
            PackedChange::Applied(PackedObject::Node(node)) => self.holds(node),
            PackedChange::Deleted(PackedObject::Node(node)) => {
                let name = node.name_any();
                self.outside.remove(name.as_str());
                self.held.remove(name.as_str());
                false
            }
            _ => false,
        }
    }

    /// Records a node as it is now; returns whether the mirror is not to know it yet.
    pub fn holds(&mut self, node: &Arc<Node>) -> bool {
        let came = self.note(node);
        let name = node.name_any();
        let change = || PackedChange::Applied(PackedObject::Node(Arc::clone(node)));
        if let Some((_, last)) = self.held.get_mut(name.as_str()) {
            *last = change();
        } else if came {
            info!(
                node = name,
                "node has come from another node pool; it gets pods in a while"
            );
            self.held.insert(name.into(), (Instant::now() + LATE, change()));
        } else {
            return false;
        }
        true
    }

    /// Forgets all nodes but these.
    pub fn keep(&mut self, nodes: &BTreeSet<String>) {
        self.outside.retain(|name| nodes.contains(&**name));
        self.held.retain(|name, _| nodes.contains(&**name));
    }

    /// Whether a stored node is held back, or will be once its change is taken.
    #[must_use]
    pub fn will_hold(&self, node: &Node) -> bool {
        let name = node.name_any();
        self.held.contains_key(name.as_str()) || self.outside.contains(name.as_str()) && self.shard.selects(node)
    }

    /// When the next node is to be given to the mirror.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.held.values().map(|(until, _)| *until).min()
    }

    /// The next node that need not be held back any longer. The others stay held back, so that a rebuild that it causes reads them as they are by then.
    pub fn next_due(&mut self) -> Option<PackedChange> {
        let now = Instant::now();
        let due = self.held.iter().find(|(_, (until, _))| *until <= now);
        let name = due.map(|(name, _)| name.clone())?;
        self.held.remove(&name).map(|(_, change)| change)
    }

    /// Records to which side a node belongs; returns whether it came from the other.
    fn note(&mut self, node: &Node) -> bool {
        let name = node.name_any();
        if self.shard.selects(node) {
            return self.outside.remove(name.as_str());
        }
        self.held.remove(name.as_str());
        self.outside.insert(name.into());
        false
    }
}
