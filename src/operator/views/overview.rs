//! What is known of the whole cluster at one time, and the answers that were made of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::body::Body;
use crate::api::views::Meta;
use crate::components::bus::{GroupSeen, NodeSeen, QueueSeen};
use crate::components::watches::Stores;

/// An overview counts for this long at least, and at most.
const AT_LEAST: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(10);
/// What it cost to make is this part of the time for which it counts.
const SHARE: u32 = 100;
/// Answers that are kept.
const KEPT: usize = 64;

/// A SchedulingShard, as its scheduler knows it.
pub struct Shard {
    /// Its name.
    pub name: Arc<str>,
    /// Whether this process schedules it.
    pub leads: bool,
    /// Its nodes, by name.
    pub nodes: Vec<NodeSeen>,
    /// Its queues.
    pub queues: Vec<QueueSeen>,
    /// Its pod groups.
    pub groups: Vec<GroupSeen>,
    /// Places in the lines of queues: by namespace and name of the pod group.
    pub positions: HashMap<crate::components::bus::GroupKey, usize>,
}

/// See the module.
pub struct Overview {
    /// When it was read, and by whom.
    pub meta: Meta,
    /// The shards.
    pub shards: Vec<Shard>,
    /// The objects as they are now.
    pub stores: Arc<Stores>,
    namespaces: BTreeSet<String>,
    made: Instant,
    cost: Mutex<Duration>,
    answers: Mutex<HashMap<String, Body>>,
}

impl Overview {
    /// Of shards that were read just now, which took so long.
    pub fn new(meta: Meta, shards: Vec<Shard>, stores: Arc<Stores>, cost: Duration) -> Self {
        let groups = shards.iter().flat_map(|shard| &shard.groups);
        let mut namespaces = BTreeSet::new();
        for group in groups {
            if !namespaces.contains(group.key.namespace()) {
                namespaces.insert(group.key.namespace().to_owned());
            }
        }
        Self {
            meta,
            shards,
            stores,
            namespaces,
            made: Instant::now(),
            cost: Mutex::new(cost),
            answers: Mutex::default(),
        }
    }

    /// The namespaces in which there are workloads.
    pub fn namespaces(&self) -> &BTreeSet<String> {
        &self.namespaces
    }

    /// Whether it still counts: until it cost little enough.
    pub fn is_fresh(&self) -> bool {
        let cost = *self.cost.lock().unwrap_or_else(PoisonError::into_inner);
        self.made.elapsed() < (cost * SHARE).clamp(AT_LEAST, AT_MOST)
    }

    /// An answer that was made of it.
    pub fn rendered(&self, key: &str) -> Option<Body> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(key).cloned()
    }

    /// Keeps an answer that took so long to make.
    pub fn keep(&self, key: String, body: Body, took: Duration) {
        *self.cost.lock().unwrap_or_else(PoisonError::into_inner) += took;
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() < KEPT {
            answers.insert(key, body);
        }
    }

    /// For each queue, those above it, from the nearest up, as its shard knows them.
    pub fn parents(&self) -> BTreeMap<&str, &str> {
        let queues = self.shards.iter().flat_map(|shard| &shard.queues);
        queues
            .filter_map(|queue| Some((&*queue.name, &**queue.parent.as_ref()?)))
            .collect()
    }
}
