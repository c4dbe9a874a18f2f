//! Epochs: each kind of change has a counter. A value derived from the model has the epochs of its computation, and is recomputed once they differ.
//!
//! Every change of the model bumps its epochs. Debug builds compare derived values with recomputed ones.

use super::ids::NodeId;

/// A counter of changes. Each starts at 1, so a value at epoch 0 is never up to date.
pub type Epoch = u64;

/// The kinds of change on which derived values depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nodes are added, removed, or change in anything but usage.
    NodeSpecs,
    /// Usage of nodes by pods.
    NodeUsage,
    /// Usage of nodes shrank, or will shrink sooner than assumed.
    CapacityFreed,
    /// Usage of nodes by pods of other schedulers.
    ForeignUsage,
    /// Topologies are added, removed, or change their levels.
    Topologies,
    /// Queues are added, removed, or change their parent.
    QueueTree,
    /// The size of the smallest GPU, as of the summary of nodes.
    SmallestGpu,
    /// Pods or settings of pod groups.
    PodGroups,
    /// Classes or shapes were removed, so their ids may be reused.
    ReusedIds,
    /// The policy.
    Settings,
    /// Anything that decisions depend on.
    Any,
}

/// Number of kinds of change.
const CHANGES: usize = Change::Any as usize + 1;

/// The current epoch of each kind of change.
#[derive(Clone, Debug)]
pub struct Epochs {
    of: [Epoch; CHANGES],
    /// Per node position: the epoch of its last [`Change::NodeUsage`].
    of_nodes: Vec<Epoch>,
}

impl Default for Epochs {
    fn default() -> Self {
        Self {
            of: [1; CHANGES],
            of_nodes: Vec::new(),
        }
    }
}

impl Epochs {
    /// The epoch of a kind of change.
    #[must_use]
    pub fn of(&self, change: Change) -> Epoch {
        self.of[change as usize]
    }

    /// Whether the usage of a node changed since an epoch of [`Change::NodeUsage`].
    #[must_use]
    pub fn node_used_since(&self, node: NodeId, epoch: Epoch) -> bool {
        self.of_nodes.get(node.at()).is_some_and(|at| *at > epoch)
    }

    /// A combined epoch: it grows when that of any of these kinds does.
    #[must_use]
    pub fn of_any<const N: usize>(&self, changes: [Change; N]) -> Epoch {
        changes.iter().map(|change| self.of(*change)).sum()
    }

    /// Counts a change. Returns the new epoch.
    pub(super) fn bump(&mut self, change: Change) -> Epoch {
        self.of[change as usize] += 1;
        self.of[change as usize]
    }

    /// Counts a change of a node's usage.
    pub(super) fn node_used(&mut self, node: NodeId) {
        let epoch = self.bump(Change::NodeUsage);
        if self.of_nodes.len() <= node.at() {
            self.of_nodes.resize(node.at() + 1, 0);
        }
        self.of_nodes[node.at()] = epoch;
    }
}

/// The epoch at which something was last brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen(Epoch);

impl Seen {
    /// Remembers this epoch.
    #[must_use]
    pub fn at(epoch: Epoch) -> Self {
        Self(epoch)
    }

    /// Whether it is still the current epoch.
    #[must_use]
    pub fn is_current(self, epoch: Epoch) -> bool {
        self.0 == epoch
    }

    /// Remembers an epoch. Returns whether it differs from the one before.
    pub fn catch_up(&mut self, epoch: Epoch) -> bool {
        std::mem::replace(&mut self.0, epoch) != epoch
    }
}

/// A value, and the epoch of what it was derived from.
#[derive(Clone, Debug, Default)]
pub struct Cached<T> {
    value: T,
    seen: Seen,
}

impl<T> Cached<T> {
    /// Whether the value is up to date.
    #[must_use]
    pub fn is_current(&self, epoch: Epoch) -> bool {
        self.seen.is_current(epoch)
    }

    /// The value, which must be up to date.
    #[must_use]
    pub fn get(&self, epoch: Epoch) -> &T {
        debug_assert!(self.is_current(epoch), "read before it was brought up to date");
        &self.value
    }

    /// The value, which may be out of date.
    #[must_use]
    pub fn last(&self) -> &T {
        &self.value
    }

    /// Stores a value made at an epoch.
    pub fn set(&mut self, epoch: Epoch, value: T) {
        self.value = value;
        self.seen.catch_up(epoch);
    }

    /// Marks the value as out of date.
    pub fn forget(&mut self) {
        self.seen = Seen::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_current_until_what_it_depends_on_changes() {
        let mut epochs = Epochs::default();
        let key = |epochs: &Epochs| epochs.of_any([Change::NodeSpecs, Change::Settings]);
        let mut cached = Cached::<u32>::default();
        assert!(!cached.is_current(key(&epochs)), "it was never made");
        cached.set(key(&epochs), 7);
        epochs.bump(Change::Topologies);
        assert!(cached.is_current(key(&epochs)), "it does not depend on topologies");
        assert_eq!(*cached.get(key(&epochs)), 7);
        for change in [Change::Settings, Change::NodeSpecs] {
            epochs.bump(change);
            assert!(!cached.is_current(key(&epochs)), "{change:?}");
            cached.set(key(&epochs), 8);
        }
        cached.forget();
        assert!(!cached.is_current(key(&epochs)));
    }
}
