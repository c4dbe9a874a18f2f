//! What has changed, counted: whatever is derived from the model remembers the epoch that it was made at, and is made anew once that is another.
//!
//! Every change of the model bumps the epochs of what is changed. Debug builds compare what is derived with what would be derived anew.

use super::ids::NodeId;

/// A number that grows when something changes. Each starts at 1, so nothing is up to date before it was made once.
pub type Epoch = u64;

/// What can change of the model, as far as anything is derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nodes come, go, or differ in more than what pods take of them.
    NodeSpecs,
    /// What pods take of nodes.
    NodeUsage,
    /// What pods take of nodes became less, or may become less sooner than it seemed.
    CapacityFreed,
    /// What pods of other schedulers take of nodes.
    ForeignUsage,
    /// Topologies come, go, or have other levels.
    Topologies,
    /// Queues come, go, or have another parent.
    QueueTree,
    /// The pods or the settings of pod groups.
    PodGroups,
    /// Classes or shapes went, so their ids may name others.
    ReusedIds,
    /// The policy.
    Settings,
    /// Anything that decisions depend on.
    Any,
}

/// How many kinds of change there are.
const CHANGES: usize = Change::Any as usize + 1;

/// The epoch of each kind of change.
#[derive(Clone, Debug)]
pub struct Epochs {
    of: [Epoch; CHANGES],
    /// Of [`Change::NodeUsage`], at the last such change of each node, by position.
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

    /// Whether what pods take of a node changed since an epoch of [`Change::NodeUsage`].
    #[must_use]
    pub fn node_used_since(&self, node: NodeId, epoch: Epoch) -> bool {
        self.of_nodes.get(node.at()).is_some_and(|at| *at > epoch)
    }

    /// An epoch of several kinds of change together: it grows when any of theirs does.
    #[must_use]
    pub fn of_any<const N: usize>(&self, changes: [Change; N]) -> Epoch {
        changes.iter().map(|change| self.of(*change)).sum()
    }

    /// Something changed. The new epoch.
    pub(super) fn bump(&mut self, change: Change) -> Epoch {
        self.of[change as usize] += 1;
        self.of[change as usize]
    }

    /// What pods take of a node changed.
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
    /// Nothing changed since.
    #[must_use]
    pub fn is_current(self, epoch: Epoch) -> bool {
        self.0 == epoch
    }

    /// Remembers an epoch. Whether anything changed since the one before.
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
    /// Nothing changed since the value was made.
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

    /// The value as it was when it was made last.
    #[must_use]
    pub fn last(&self) -> &T {
        &self.value
    }

    /// Takes a value made at an epoch.
    pub fn set(&mut self, epoch: Epoch, value: T) {
        self.value = value;
        self.seen.catch_up(epoch);
    }

    /// Whatever the epoch, the value is to be made anew.
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
