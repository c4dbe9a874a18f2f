//! What the workloads of each queue, and of the queues below it, request and hold. Updated by differences: a change costs the depth of the tree.
//! Queues in a cycle of parents count for themselves only. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::api::quantity::Amount;
use crate::components::bus::{Amounts, GroupKey, Usage};
use crate::components::quantities::combine;

/// The sums of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requested.
    pub requested: Amounts,
    /// Held.
    pub allocated: Amounts,
    /// Held by non-preemptible pods.
    pub allocated_non_preemptible: Amounts,
    /// Pod groups that wait.
    pub waiting: Amount,
}

impl Totals {
    fn add(&mut self, other: &Self, operation: fn(Amount, Amount) -> Amount) {
        combine(&mut self.requested, &other.requested, operation);
        combine(&mut self.allocated, &other.allocated, operation);
        combine(
            &mut self.allocated_non_preemptible,
            &other.allocated_non_preemptible,
            operation,
        );
        self.waiting = operation(self.waiting, other.waiting);
    }
}

/// Queues, their parents, and their sums.
#[derive(Debug, Default)]
pub struct Tree {
    parents: BTreeMap<String, Option<String>>,
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
        let mut changed = self.up_from(name);
        self.parents.insert(name.to_owned(), parent);
        changed.extend(self.up_from(name));
        self.count_anew();
        changed
    }

    /// A queue was deleted. Returns the queues whose status may differ now.
    pub fn remove(&mut self, name: &str) -> BTreeSet<String> {
        let mut changed = self.up_from(name);
        changed.remove(name);
        self.parents.remove(name);
        self.count_anew();
        changed
    }

    /// What a pod group requests and holds. Returns the queues whose status differs now.
    pub fn count(&mut self, usage: Usage) -> BTreeSet<String> {
        let (key, queue) = (usage.group, usage.queue);
        let totals = Totals {
            requested: usage.requested,
            allocated: usage.allocated,
            allocated_non_preemptible: usage.allocated_non_preemptible,
            waiting: Amount::from_units(i64::from(usage.waits.is_some())),
        };
        let new = queue.map(|queue| (queue, totals));
        if self.usage.get(&key) == new.as_ref() {
            return BTreeSet::new();
        }
        let mut changed = BTreeSet::new();
        if let Some((queue, totals)) = self.usage.remove(&key) {
            changed.extend(self.update_sums(&queue, &totals, Amount::saturating_sub));
        }
        if let Some((queue, totals)) = new {
            changed.extend(self.update_sums(&queue, &totals, Amount::saturating_add));
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
        let below = |parent: &Option<String>| parent.as_deref() == Some(name);
        self.parents
            .iter()
            .filter(|(_, parent)| below(parent))
            .map(|(child, _)| child.clone())
            .collect()
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
        chain.into_iter().collect()
    }

    /// The queue and its ancestors; only itself if they form a cycle.
    fn chain(&self, queue: &str) -> Vec<String> {
        let mut chain = vec![queue.to_owned()];
        let mut above = self.parents.get(queue).cloned().flatten();
        while let Some(name) = above.filter(|name| self.parents.contains_key(name)) {
            if chain.contains(&name) {
                chain.truncate(1);
                return chain;
            }
            above = self.parents.get(&name).cloned().flatten();
            chain.push(name);
        }
        chain
    }

    /// The queue, its parent and all above.
    fn up_from(&self, queue: &str) -> BTreeSet<String> {
        let parent = self.parents.get(queue).cloned().flatten();
        self.chain(queue).into_iter().chain(parent).collect()
    }

    fn count_anew(&mut self) {
        self.totals.clear();
        for (queue, own) in std::mem::take(&mut self.own) {
            for name in self.chain(&queue) {
                update(&mut self.totals, &name, &own, Amount::saturating_add);
            }
            self.own.insert(queue, own);
        }
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
