//! The pod groups that wait in each queue: how many for which cause, and since when the oldest does. Updated by differences. Pure.
//!
//! Tenants may name queues that do not exist. All pod groups in such queues are counted in one line, so that tenants cannot create series of metrics.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::components::bus::{GroupKey, Waits};
use crate::engine::decision::Cause;

/// What waits in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    causes: BTreeMap<Cause, usize>,
    /// Pod groups by when they began to wait.
    since: BTreeMap<i64, usize>,
}

static EMPTY: Line = Line {
    causes: BTreeMap::new(),
    since: BTreeMap::new(),
};

impl Line {
    /// How many pod groups wait for each cause.
    pub fn causes(&self) -> impl Iterator<Item = (Cause, usize)> + '_ {
        self.causes.iter().map(|(cause, groups)| (*cause, *groups))
    }

    /// Since when the oldest waits, in seconds since 1970.
    #[must_use]
    pub fn since(&self) -> Option<i64> {
        self.since.keys().next().copied()
    }

    fn put(&mut self, waits: Waits) {
        *self.causes.entry(waits.cause).or_default() += 1;
        *self.since.entry(waits.since).or_default() += 1;
    }

    fn take(&mut self, waits: Waits) {
        remove(&mut self.causes, waits.cause, 1);
        remove(&mut self.since, waits.since, 1);
    }

    fn join(&mut self, other: &Self) {
        for (cause, groups) in &other.causes {
            *self.causes.entry(*cause).or_default() += groups;
        }
        for (since, groups) in &other.since {
            *self.since.entry(*since).or_default() += groups;
        }
    }

    fn part(&mut self, other: &Self) {
        for (cause, groups) in &other.causes {
            remove(&mut self.causes, *cause, *groups);
        }
        for (since, groups) in &other.since {
            remove(&mut self.since, *since, *groups);
        }
    }
}

fn remove<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K, less: usize) {
    if let Some(count) = counts.get_mut(&key) {
        *count = count.saturating_sub(less);
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// The lines of all queues.
#[derive(Debug, Default)]
pub struct Waiting {
    groups: HashMap<GroupKey, (String, Waits)>,
    lines: HashMap<String, Line>,
    queues: BTreeSet<String>,
    /// The line of all queues that do not exist.
    nowhere: Line,
}

impl Waiting {
    /// A queue was created.
    pub fn exists(&mut self, queue: &str) {
        if self.queues.insert(queue.to_owned())
            && let Some(line) = self.lines.get(queue)
        {
            self.nowhere.part(line);
        }
    }

    /// A queue was deleted.
    pub fn gone(&mut self, queue: &str) {
        if self.queues.remove(queue)
            && let Some(line) = self.lines.get(queue)
        {
            self.nowhere.join(line);
        }
    }

    /// Records whether and why a pod group waits in a queue. Returns the queues whose lines changed: this one, and the one where it waited before.
    pub fn count(&mut self, group: &GroupKey, queue: Option<&str>, waits: Option<Waits>) -> BTreeSet<String> {
        let now = queue.zip(waits).map(|(queue, waits)| (queue.to_owned(), waits));
        if self.groups.get(group) == now.as_ref() {
            return BTreeSet::new();
        }
        let mut changed = BTreeSet::new();
        if let Some((queue, waits)) = self.groups.remove(group) {
            if !self.queues.contains(&queue) {
                self.nowhere.take(waits);
            }
            if let Some(line) = self.lines.get_mut(&queue) {
                line.take(waits);
                if line == &EMPTY {
                    self.lines.remove(&queue);
                }
            }
            changed.insert(queue);
        }
        if let Some((queue, waits)) = now {
            if !self.queues.contains(&queue) {
                self.nowhere.put(waits);
            }
            self.lines.entry(queue.clone()).or_default().put(waits);
            self.groups.insert(group.clone(), (queue.clone(), waits));
            changed.insert(queue);
        }
        changed
    }

    /// What waits in a queue.
    #[must_use]
    pub fn line(&self, queue: &str) -> &Line {
        self.lines.get(queue).unwrap_or(&EMPTY)
    }

    /// What waits in queues that do not exist.
    #[must_use]
    pub fn nowhere(&self) -> &Line {
        &self.nowhere
    }
}

#[cfg(test)]
mod tests;
