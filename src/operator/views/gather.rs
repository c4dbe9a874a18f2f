//! Reads the overview from the schedulers, one page at a time, and caches it. Details of single workloads are read in turn.

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
use super::turns::{Pause, Turns};
use super::workloads;
use crate::api::names::object;
use crate::api::views::{Meta, WorkloadDetails};
use crate::clock;
use crate::components::bus::{GroupDetails, GroupKey, Look, Page, QueueSeen, Reply, ToScheduler, WaitingGroup};
use crate::components::history::History;

/// Interval of attempts to read the queues, while this process does not schedule.
const RETRY: Duration = Duration::from_secs(2);
/// The pause after a request for the details of a workload: a tenth of the scheduler's time is spent on them, and more only if each takes longer than 28 ms. The
/// pause is limited since the time of a request includes the rest of the cycle that the scheduler runs when it arrives.
const PAUSE: Pause = Pause {
    times: 9,
    at_most: Duration::from_millis(250),
};

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
    last: Arc<Mutex<Option<Arc<Overview>>>>,
    /// Requests for the details of workloads.
    details: Turns,
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
            last: Arc::default(),
            details: Turns::new(PAUSE),
        }
    }

    /// Samples the history of queues until the process ends.
    pub async fn keep_history(&self) {
        loop {
            let shown = self.seen.borrow().clone();
            let (led, others) = match &shown {
                Some(shown) => self.queues(shown).await.unwrap_or_default(),
                None => Default::default(),
            };
            if led.is_empty() {
                // The lists are incomplete, another replica schedules, or a scheduler does not answer.
                tokio::time::sleep(RETRY).await;
            } else {
                let pause = self.queue_history.add(clock::now(), &led, &others);
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// The queues of the shards that this process schedules, and those of the other shards. `None` if it schedules none, or if a scheduler does not answer:
    /// in a sample without its queues they would count as deleted.
    async fn queues(&self, shown: &Shown) -> Option<(Vec<QueueSeen>, Vec<QueueSeen>)> {
        let leads = shown.shards.iter().map(|name| self.elections.of(name).leading);
        let leads: Vec<bool> = leads.collect();
        if !leads.contains(&true) {
            return None;
        }
        let (mut led, mut others) = (Vec::new(), Vec::new());
        for (leads, scheduler) in leads.into_iter().zip(shown.bus.schedulers.inboxes()) {
            let seen = look(scheduler, Look::Queues).await?;
            if leads {
                led.extend(seen);
            } else {
                others.extend(seen);
            }
        }
        Some((led, others))
    }

    /// The cached overview, or a new one.
    ///
    /// # Errors
    /// The refusal, while the first lists are incomplete.
    pub async fn overview(&self) -> Result<Arc<Overview>, Response> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some(overview) = last.as_ref().filter(|overview| overview.is_fresh()) {
            return Ok(Arc::clone(overview));
        }
        let (shown, elections) = (self.seen.borrow().clone(), self.elections.clone());
        // In a task of its own: if the client gives up, those that wait do not have it read again from the beginning.
        let reading = tokio::spawn(async move {
            // The old overview is dropped first, so that there are never two.
            *last = None;
            let overview = Arc::new(read(&shown?, &elections).await?);
            *last = Some(Arc::clone(&overview));
            Some(overview)
        });
        reading.await.ok().flatten().ok_or_else(not_known)
    }

    /// A workload with its details, for a user.
    ///
    /// # Errors
    /// The refusal: the first lists are incomplete, or too many requests for details wait.
    pub async fn details(
        &self,
        user: &str,
        overview: &Overview,
        namespace: &str,
        name: &str,
    ) -> Result<Option<WorkloadDetails>, Response> {
        let wanted = Wanted::Group(GroupKey::new(namespace, name));
        self.read_details(user, overview, wanted).await
    }

    /// The workload that a pod belongs to, by the pod's uid.
    ///
    /// # Errors
    /// As for [`Self::details`].
    pub async fn details_of_pod(
        &self,
        user: &str,
        overview: &Overview,
        uid: &str,
    ) -> Result<Option<WorkloadDetails>, Response> {
        self.read_details(user, overview, Wanted::OfPod(uid.into())).await
    }

    async fn read_details(
        &self,
        user: &str,
        overview: &Overview,
        wanted: Wanted,
    ) -> Result<Option<WorkloadDetails>, Response> {
        let shown = self.seen.borrow().clone().ok_or_else(not_known)?;
        let schedulers: Vec<_> = shown.bus.schedulers.inboxes().cloned().collect();
        let reading = self.details.wait(user, async move {
            for (at, scheduler) in schedulers.iter().enumerate() {
                if let Some(details) = wanted.read(scheduler).await? {
                    return Some(Some((at, details)));
                }
            }
            Some(None)
        });
        let Some((at, details)) = reading.await?.ok_or_else(not_known)? else {
            return Ok(None);
        };
        // By name: the overview may be older than a change of the shards.
        let is_its = |shard: &&Shard| shown.shards.get(at).is_some_and(|name| *name == *shard.name);
        let shard = overview.shards.iter().find(is_its).ok_or_else(not_known)?;
        let past = self.history.moments(&details.group.key);
        Ok(Some(workloads::details(overview, shard, *details, past)))
    }

    /// Pods that name this scheduler are ours.
    pub fn scheduler_name(&self) -> String {
        let shown = self.seen.borrow();
        shown
            .as_ref()
            .map(|shown| shown.scheduler_name.clone())
            .unwrap_or_default()
    }
}

/// The workload whose details are requested.
enum Wanted {
    Group(GroupKey),
    /// That of a pod with this uid.
    OfPod(Arc<str>),
}

impl Wanted {
    /// The details, if it is a workload of this scheduler; `None` if the scheduler is gone.
    async fn read(&self, scheduler: &mpsc::Sender<ToScheduler>) -> Option<Option<Box<GroupDetails>>> {
        let group = match self {
            Self::Group(group) => Some(group.clone()),
            Self::OfPod(uid) => look_to_the_end(scheduler, |reply| Look::GroupOf(Arc::clone(uid), reply)).await?,
        };
        match group {
            Some(group) => look_to_the_end(scheduler, |reply| Look::Group(group, reply)).await,
            None => Some(None),
        }
    }
}

/// An overview of all shards; `None` while the first lists are incomplete.
async fn read(shown: &Shown, elections: &Elections) -> Option<Overview> {
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
            leads: elections.of(name).leading,
            nodes,
            queues,
            groups,
            positions: positions(order),
            shown_queues: OnceLock::new(),
        });
    }
    let meta = meta(elections, as_of, &shards);
    Some(Overview::new(meta, shards, Arc::clone(&shown.stores), began.elapsed()))
}

fn meta(elections: &Elections, as_of: Timestamp, shards: &[Shard]) -> Meta {
    let first = shards.first().map_or(object::DEFAULT_SHARD, |shard| &shard.name);
    Meta {
        as_of,
        leads: shards.iter().all(|shard| shard.leads),
        leader: elections.of(first).holder,
        namespaces_left_out: 0,
    }
}

fn not_known() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, NOT_KNOWN.trim().to_owned())
}

/// Requests a part of a scheduler's state.
async fn look<T>(scheduler: &mpsc::Sender<ToScheduler>, question: impl FnOnce(Reply<T>) -> Look) -> Option<T> {
    ask(scheduler, |reply| ToScheduler::Look(question(reply))).await
}

/// The same without a time limit: it ends once the scheduler has answered, or is gone, so that the next request does not join this one in the inbox.
async fn look_to_the_end<T>(
    scheduler: &mpsc::Sender<ToScheduler>,
    question: impl FnOnce(Reply<T>) -> Look,
) -> Option<T> {
    let (reply, mut answer) = mpsc::channel(1);
    scheduler.send(ToScheduler::Look(question(reply))).await.ok()?;
    answer.recv().await
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

#[cfg(test)]
mod tests;
