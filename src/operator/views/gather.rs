//! Reads the overview from the schedulers, one page at a time, and caches it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::Instant;

use super::super::access::refusal;
use super::super::inspection::{NOT_KNOWN, ask};
use super::super::lease;
use super::super::rounds::Shown;
use super::overview::{Overview, Shard};
use super::queue_history::QueueHistory;
use super::workloads;
use crate::api::names::object;
use crate::api::views::{Meta, WorkloadDetails};
use crate::clock;
use crate::components::bus::{GroupKey, Look, Page, QueueSeen, Reply, ToScheduler, WaitingGroup};
use crate::components::history::History;

/// Interval of attempts to read the queues, while this process does not schedule.
const RETRY: Duration = Duration::from_secs(2);

/// The states of the leader elections.
#[derive(Clone)]
pub struct Elections {
    /// Of the Lease of the cluster and its default node pool.
    pub cluster: watch::Receiver<lease::Status>,
    /// Shards with a Lease of their own, by name.
    pub of_shards: watch::Receiver<BTreeMap<String, watch::Receiver<lease::Status>>>,
}

impl Elections {
    /// The election by which a shard is led.
    fn of(&self, shard: &str) -> lease::Status {
        let own = self.of_shards.borrow().get(shard).map(|status| status.borrow().clone());
        own.unwrap_or_else(|| self.cluster.borrow().clone())
    }
}

/// See the module.
pub struct Gatherer {
    seen: watch::Receiver<Option<Shown>>,
    elections: Elections,
    /// Recent evictions.
    pub history: History,
    /// What queues held.
    pub queue_history: QueueHistory,
    /// The last overview. The first caller that finds it outdated reads the next one, and others wait for it.
    last: Mutex<Option<Arc<Overview>>>,
}

impl Gatherer {
    /// Reads from the running components (`seen`).
    #[must_use]
    pub fn new(seen: watch::Receiver<Option<Shown>>, elections: Elections, history: History) -> Self {
        Self {
            seen,
            elections,
            history,
            queue_history: QueueHistory::default(),
            last: Mutex::new(None),
        }
    }

    /// Samples the history of queues until the process ends.
    pub async fn keep_history(&self) {
        loop {
            let shown = self.seen.borrow().clone();
            let seen = match &shown {
                Some(shown) => self.led_queues(shown).await,
                None => Vec::new(),
            };
            if seen.is_empty() {
                // The lists are incomplete, or another replica schedules.
                tokio::time::sleep(RETRY).await;
            } else {
                let pause = self.queue_history.add(clock::now(), &seen);
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// The queues of the shards that this process schedules.
    async fn led_queues(&self, shown: &Shown) -> Vec<QueueSeen> {
        let mut seen = Vec::new();
        for (name, scheduler) in shown.shards.iter().zip(shown.bus.schedulers.inboxes()) {
            if self.elections.of(name).leading {
                seen.extend(look(scheduler, Look::Queues).await.unwrap_or_default());
            }
        }
        seen
    }

    /// The cached overview, or a new one.
    ///
    /// # Errors
    /// The refusal, while the first lists are incomplete.
    pub async fn overview(&self) -> Result<Arc<Overview>, Response> {
        let mut last = self.last.lock().await;
        if let Some(overview) = last.as_ref().filter(|overview| overview.is_fresh()) {
            return Ok(Arc::clone(overview));
        }
        // The old overview is dropped first, so that there are never two.
        *last = None;
        let shown = self.seen.borrow().clone();
        let read = match &shown {
            Some(shown) => self.read(shown).await,
            None => None,
        };
        let overview = Arc::new(read.ok_or_else(not_known)?);
        *last = Some(Arc::clone(&overview));
        Ok(overview)
    }

    async fn read(&self, shown: &Shown) -> Option<Overview> {
        let began = Instant::now();
        let as_of = clock::now();
        let mut shards = Vec::new();
        for (name, scheduler) in shown.shards.iter().zip(shown.bus.schedulers.inboxes()) {
            // Requested first: on a process that does not schedule it has the fair shares computed that are read next.
            let order: Vec<WaitingGroup> = look(scheduler, Look::JobOrder).await?;
            let queues = look(scheduler, Look::Queues).await?;
            let mut nodes = all(scheduler, Look::Nodes).await?;
            nodes.sort_by(|left, right| left.name.cmp(&right.name));
            let mut groups = all(scheduler, Look::Groups).await?;
            groups.sort_by(|left, right| {
                let of = |key: &GroupKey| (key.namespace().to_owned(), key.name().to_owned());
                of(&left.key).cmp(&of(&right.key))
            });
            shards.push(Shard {
                name: name.as_str().into(),
                leads: self.elections.of(name).leading,
                nodes,
                queues,
                groups,
                positions: positions(order),
                shown_queues: OnceLock::new(),
            });
        }
        let meta = self.meta(as_of, &shards);
        Some(Overview::new(meta, shards, Arc::clone(&shown.stores), began.elapsed()))
    }

    fn meta(&self, as_of: Timestamp, shards: &[Shard]) -> Meta {
        let first = shards.first().map_or(object::DEFAULT_SHARD, |shard| &shard.name);
        Meta {
            as_of,
            leads: shards.iter().all(|shard| shard.leads),
            leader: self.elections.of(first).holder,
            namespaces_left_out: 0,
        }
    }

    /// A workload with its details.
    ///
    /// # Errors
    /// The refusal, while the first lists are incomplete.
    pub async fn details(
        &self,
        overview: &Overview,
        namespace: &str,
        name: &str,
    ) -> Result<Option<WorkloadDetails>, Response> {
        let Some(shown) = self.seen.borrow().clone() else {
            return Err(not_known());
        };
        let key = GroupKey::new(namespace, name);
        for (shard, scheduler) in overview.shards.iter().zip(shown.bus.schedulers.inboxes()) {
            let found = look(scheduler, |reply| Look::Group(key.clone(), reply)).await;
            if let Some(details) = found.ok_or_else(not_known)? {
                return Ok(Some(workloads::details(
                    overview,
                    shard,
                    *details,
                    self.history.moments(&key),
                )));
            }
        }
        Ok(None)
    }
}

impl Gatherer {
    /// Pods that name this scheduler are ours.
    pub fn scheduler_name(&self) -> String {
        let shown = self.seen.borrow();
        shown
            .as_ref()
            .map(|shown| shown.scheduler_name.clone())
            .unwrap_or_default()
    }

    /// The pod group that a pod belongs to.
    ///
    /// # Errors
    /// The refusal, while the first lists are incomplete.
    pub async fn group_of(&self, pod: &str) -> Result<Option<GroupKey>, Response> {
        let shown = self.seen.borrow().clone().ok_or_else(not_known)?;
        for scheduler in shown.bus.schedulers.inboxes() {
            let found = look(scheduler, |reply| Look::GroupOf(pod.into(), reply)).await;
            if let Some(group) = found.ok_or_else(not_known)? {
                return Ok(Some(group));
            }
        }
        Ok(None)
    }
}

fn not_known() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, NOT_KNOWN.trim().to_owned())
}

/// Requests a part of a scheduler's state.
async fn look<T>(scheduler: &mpsc::Sender<ToScheduler>, question: impl FnOnce(Reply<T>) -> Look) -> Option<T> {
    ask(scheduler, |reply| ToScheduler::Look(question(reply))).await
}

/// All pages.
async fn all<T>(
    scheduler: &mpsc::Sender<ToScheduler>,
    question: impl Fn(usize, Reply<Page<T>>) -> Look,
) -> Option<Vec<T>> {
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        let page = look(scheduler, |reply| question(at, reply)).await?;
        all.extend(page.seen);
        from = page.next;
    }
    Some(all)
}

/// The position of each pod group in its queue.
fn positions(order: Vec<WaitingGroup>) -> HashMap<GroupKey, usize> {
    let mut in_line: HashMap<Arc<str>, usize> = HashMap::new();
    let mut positions = HashMap::with_capacity(order.len());
    for waits in order {
        let place = in_line.entry(waits.queue).or_default();
        *place += 1;
        positions.insert(waits.group, *place);
    }
    positions
}
