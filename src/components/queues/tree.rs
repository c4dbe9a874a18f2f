//! What the workloads of each queue, and of the queues below it, request and hold. Updated by differences: a change costs the depth of the tree.
//! Queues whose ancestors form a cycle count for themselves only; a change that begins or ends a cycle counts all below it anew. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::api::quantity::Amount;
use crate::components::bus::{GroupKey, Usage};
use crate::components::quantities::Sum;

/// The sums of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requested.
    pub requested: Sum,
    /// Held.
    pub allocated: Sum,
    /// Held by non-preemptible pods.
    pub allocated_non_preemptible: Sum,
    /// Pod groups that wait.
    pub waiting: Amount,
}

impl Totals {
    fn add(&mut self, other: &Self, operation: fn(Amount, Amount) -> Amount) {
        self.requested.combine(&other.requested, operation);
        self.allocated.combine(&other.allocated, operation);
        self.allocated_non_preemptible
            .combine(&other.allocated_non_preemptible, operation);
        self.waiting = operation(self.waiting, other.waiting);
    }
}

/// Queues, their parents, and their sums.
#[derive(Debug, Default)]
pub struct Tree {
    parents: BTreeMap<String, Option<String>>,
    /// The queues directly below each name, also below those of queues that do not exist.
    children: BTreeMap<String, BTreeSet<String>>,
    usage: HashMap<GroupKey, (String, Totals)>,
    own: BTreeMap<String, Totals>,
    totals: BTreeMap<String, Totals>,
}

impl Tree {
    /// A queue was created or changed. Returns the queues whose status may differ now.
    pub fn put(&mut self, name: &str, parent: Option<&str>) -> BTreeSet<String> {
        let parent = parent.filter(|parent| !parent.is_empty()).map(ToOwned::to_owned);
        if self.parents.get(name) == Some(&parent) {
            return BTreeSet::new();
        }
        let mut changed = self.leave(name);
        changed.extend(self.join(name, parent));
        changed
    }

    /// A queue was deleted. Returns the queues whose status may differ now.
    pub fn remove(&mut self, name: &str) -> BTreeSet<String> {
        let mut changed = self.leave(name);
        changed.remove(name);
        changed
    }

    /// What a pod group requests and holds. Returns the queues whose status differs now.
    pub fn count(&mut self, usage: Usage) -> BTreeSet<String> {
        let (key, queue) = (usage.group, usage.queue);
        let totals = Totals {
            requested: usage.requested.into(),
            allocated: usage.allocated.into(),
            allocated_non_preemptible: usage.allocated_non_preemptible.into(),
            waiting: Amount::from_units(i64::from(usage.waits.is_some())),
        };
        let new = queue.map(|queue| (queue, totals));
        if self.usage.get(&key) == new.as_ref() {
            return BTreeSet::new();
        }
        let mut changed = BTreeSet::new();
        if let Some((queue, totals)) = self.usage.remove(&key) {
            changed.extend(self.update_sums(&queue, &totals, Amount::wide_sub));
        }
        if let Some((queue, totals)) = new {
            changed.extend(self.update_sums(&queue, &totals, Amount::wide_add));
            self.usage.insert(key, (queue, totals));
        }
        changed
    }

    /// The sums of a queue and all below it.
    #[must_use]
    pub fn totals(&self, name: &str) -> Totals {
        self.totals.get(name).cloned().unwrap_or_default()
    }

    /// The queues directly below, in order of name.
    #[must_use]
    pub fn children(&self, name: &str) -> Vec<String> {
        self.children.get(name).into_iter().flatten().cloned().collect()
    }

    /// Every queue.
    #[must_use]
    pub fn queues(&self) -> Vec<String> {
        self.parents.keys().cloned().collect()
    }

    /// Adds to, or subtracts from, a queue and its ancestors.
    fn update_sums(
        &mut self,
        queue: &str,
        totals: &Totals,
        operation: fn(Amount, Amount) -> Amount,
    ) -> BTreeSet<String> {
        update(&mut self.own, queue, totals, operation);
        let chain = self.chain(queue);
        for name in &chain {
            update(&mut self.totals, name, totals, operation);
        }
        chain
    }

    /// Takes a queue out of the tree, if it is there: the queues below it have no parent then. Returns the queues whose status may differ now.
    fn leave(&mut self, name: &str) -> BTreeSet<String> {
        if !self.parents.contains_key(name) {
            return BTreeSet::new();
        }
        let (mut changed, ancestors) = (self.up_from(name), self.ancestors(name));
        if let Some(parent) = self.parents.remove(name).flatten()
            && let Some(siblings) = self.children.get_mut(&parent)
        {
            siblings.remove(name);
            if siblings.is_empty() {
                self.children.remove(&parent);
            }
        }
        let Some(ancestors) = ancestors else {
            changed.extend(self.count_below(name));
            return changed;
        };
        let all = self.totals(name);
        for ancestor in &ancestors {
            update(&mut self.totals, ancestor, &all, Amount::wide_sub);
        }
        match self.own.get(name) {
            Some(own) => self.totals.insert(name.to_owned(), own.clone()),
            None => self.totals.remove(name),
        };
        changed
    }

    /// Puts a queue into the tree that is not there. Returns the queues whose status may differ now.
    fn join(&mut self, name: &str, parent: Option<String>) -> BTreeSet<String> {
        if let Some(parent) = parent.clone() {
            self.children.entry(parent).or_default().insert(name.to_owned());
        }
        self.parents.insert(name.to_owned(), parent);
        let mut changed = self.up_from(name);
        let Some(ancestors) = self.ancestors(name) else {
            changed.extend(self.count_below(name));
            return changed;
        };
        for child in self.children(name) {
            let below = self.totals(&child);
            update(&mut self.totals, name, &below, Amount::wide_add);
        }
        let all = self.totals(name);
        for ancestor in &ancestors {
            update(&mut self.totals, ancestor, &all, Amount::wide_add);
        }
        changed
    }

    /// Counts all queues below one anew, when their ancestors begin or cease to form a cycle. Returns them.
    fn count_below(&mut self, name: &str) -> BTreeSet<String> {
        let (mut below, mut open) = (BTreeSet::new(), self.children(name));
        while let Some(queue) = open.pop() {
            if below.insert(queue.clone()) {
                open.extend(self.children(&queue));
            }
        }
        for queue in &below {
            self.totals.remove(queue);
        }
        for queue in &below {
            let Some(own) = self.own.get(queue).cloned() else {
                continue;
            };
            for counted in self.chain(queue) {
                update(&mut self.totals, &counted, &own, Amount::wide_add);
            }
        }
        below
    }

    /// The queue and its ancestors; only itself if they form a cycle.
    fn chain(&self, queue: &str) -> BTreeSet<String> {
        let ancestors = self.ancestors(queue).unwrap_or_default();
        ancestors.into_iter().chain([queue.to_owned()]).collect()
    }

    /// The queue, its parent and all above.
    fn up_from(&self, queue: &str) -> BTreeSet<String> {
        let parent = self.parent(queue).map(ToOwned::to_owned);
        self.chain(queue).into_iter().chain(parent).collect()
    }

    /// The ancestors of a queue that exist, the nearest first; `None` if they form a cycle.
    fn ancestors(&self, queue: &str) -> Option<Vec<String>> {
        let mut ancestors: Vec<String> = Vec::new();
        let mut above = self.parent(queue);
        while let Some(name) = above.filter(|name| self.parents.contains_key(*name)) {
            if name == queue || ancestors.iter().any(|known| known == name) {
                return None;
            }
            ancestors.push(name.to_owned());
            above = self.parent(name);
        }
        Some(ancestors)
    }

    fn parent(&self, queue: &str) -> Option<&str> {
        self.parents.get(queue)?.as_deref()
    }
}

/// Adds to, or subtracts from, the sums of a queue. Sums of 0 are removed: pod groups may name queues that do not exist, and queues come and go.
fn update(sums: &mut BTreeMap<String, Totals>, queue: &str, totals: &Totals, operation: fn(Amount, Amount) -> Amount) {
    let sum = sums.entry(queue.to_owned()).or_default();
    sum.add(totals, operation);
    if *sum == Totals::default() {
        sums.remove(queue);
    }
}

#[cfg(test)]
mod tests;
