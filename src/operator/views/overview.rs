//! The state of the whole cluster at one time, and the cached responses made from it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::body::Body;
use crate::api::views::{Meta, OLDEST, Queue};
use crate::components::bus::{GroupSeen, NodeSeen, QueueSeen};
use crate::components::watches::Stores;

/// Minimum and maximum age of a cached overview.
const AT_LEAST: Duration = Duration::from_secs(1);
const AT_MOST: Duration = OLDEST;
/// It is cached for so many times the time that it took to read.
const SHARE: u32 = 100;
/// Maximum number of cached responses, and of their bytes.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 32 << 20;
/// So many responses are computed at once; others wait.
const AT_ONCE: usize = 2;

/// A SchedulingShard, as its scheduler reports it.
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
    /// Positions in the queues: by namespace and name of the pod group.
    pub positions: HashMap<crate::components::bus::GroupKey, usize>,
    /// Its queues as they are shown, computed when they are asked for first.
    pub shown_queues: OnceLock<Vec<Queue>>,
}

/// See the module.
pub struct Overview {
    /// When it was read, and by which replica.
    pub meta: Meta,
    /// The shards.
    pub shards: Vec<Shard>,
    /// The watched objects, current.
    pub stores: Arc<Stores>,
    namespaces: BTreeSet<String>,
    made: Instant,
    cost: Mutex<Duration>,
    answers: Mutex<Answers>,
    turns: Semaphore,
}

/// Cached responses, and the sum of their bytes.
#[derive(Default)]
struct Answers {
    by_key: HashMap<String, Body>,
    bytes: usize,
}

impl Overview {
    /// An overview of shards that were just read; `cost`: how long that took.
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
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// The namespaces with workloads.
    pub fn namespaces(&self) -> &BTreeSet<String> {
        &self.namespaces
    }

    /// Whether it is still valid.
    pub fn is_fresh(&self) -> bool {
        let cost = *self.cost.lock().unwrap_or_else(PoisonError::into_inner);
        self.made.elapsed() < (cost * SHARE).clamp(AT_LEAST, AT_MOST)
    }

    /// Waits until a response may be computed, with memory that others do not use at that time. `None` does not occur: the semaphore stays open.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// A cached response.
    pub fn rendered(&self, key: &str) -> Option<Body> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.by_key.get(key).cloned()
    }

    /// Caches a response; `took`: how long its computation took.
    pub fn keep(&self, key: String, body: Body, took: Duration) {
        *self.cost.lock().unwrap_or_else(PoisonError::into_inner) += took;
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = answers.bytes + key.len() + body.bytes.len();
        if answers.by_key.len() < KEPT && bytes <= KEPT_BYTES {
            answers.bytes = bytes;
            answers.by_key.insert(key, body);
        }
    }

    /// For each queue its ancestors, from the nearest up, as its shard reports them.
    pub fn parents(&self) -> BTreeMap<&str, &str> {
        let queues = self.shards.iter().flat_map(|shard| &shard.queues);
        queues
            .filter_map(|queue| Some((&*queue.name, &**queue.parent.as_ref()?)))
            .collect()
    }
}
