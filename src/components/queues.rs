//! The status of queues: their children, and what the workloads in and below them request and hold; and the same as metrics.
//!
//! The figures come from the podgroups component, not from PodGroup statuses, so a queue is up to date as soon as its pods are. The leader writes one
//! patch per changed queue after a burst. Queues are validated by admission.

mod scheduled;
pub mod shown;
mod summary;
mod tree;
mod waiting;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::api::queue::QueueStatus;
use crate::api::{QuantityMap, Queue};
use crate::clock;
use crate::components::agenda::Agenda;
use crate::components::bus::{Change, FairShare, Kind, Object, ToQueues, Usage};
use crate::components::figures::families::QUEUE_STATUSES;
use crate::components::patch::merge_diff;
use crate::components::quantities::{Sum, quantities, same_amounts};
use crate::components::retry::{Backoff, Failure, failure};
use crate::components::watches::Stores;
use crate::components::write_slots::{WriteSlot, WriteSlots};
use crate::components::{Context, Error};
use scheduled::Scheduled;
use tree::Tree;
use waiting::Waiting;

/// A status is written this long after it changed: the workloads of a burst change together.
const AFTER: Duration = Duration::from_millis(250);
/// Minimum time between writes of one status.
const DISTANCE: Duration = Duration::from_secs(1);
/// Delay of a write if only the fair share changed, as one pod group changes those of many queues; it also bounds such writes to one per queue in
/// that time, on average.
const FAIR_SHARE_AFTER: Duration = Duration::from_secs(5);
const FAIR_SHARE_EACH: Duration = Duration::from_millis(100);
/// Wait before a failed write is retried: first and longest.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(60),
};

/// Keeps the status of queues until shutdown.
///
/// # Errors
/// If another component is gone, or a task of this one panicked.
pub async fn run(context: Context, mut inbox: mpsc::Receiver<ToQueues>, stores: Arc<Stores>) -> Result<(), Error> {
    let mut leading = context.leading.clone();
    let mut slots = WriteSlots::new(&context.background);
    let mut queues = Queues::new(context.clone(), stores);
    loop {
        tokio::select! {
            () = context.shutdown.cancelled() => return Ok(()),
            message = inbox.recv() => queues.take(message.ok_or(Error::Closed)?),
            Some(written) = queues.writes.join_next() => {
                let (name, result) =
                    written.map_err(|panic| Error::Panicked { task: "queue status write", panic: panic.to_string() })?;
                queues.written(name, result);
            }
            changed = leading.changed() => {
                changed.map_err(|_| Error::Closed)?;
                queues.leading_changed();
            }
            slot = slots.due(queues.agenda.next()) => queues.write_next(slot),
        }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Whole,
    /// The summary was dropped: the definition of queues is KAI's or an older one.
    WithoutSummary,
}

struct Queues {
    context: Context,
    stores: Arc<Stores>,
    tree: Tree,
    waiting: Waiting,
    agenda: Agenda<String>,
    failures: HashMap<String, u32>,
    /// When each status was last written.
    written_at: HashMap<String, Instant>,
    /// Fair shares in millionths of a GPU.
    fair: HashMap<String, i64>,
    /// The API server stores summaries.
    summaries: bool,
    writes: JoinSet<(String, Result<Stored, kube::Error>)>,
    /// All queues and the usage of all pod groups are known; before, figures would be too small.
    listed: bool,
    counted: bool,
}

impl Queues {
    fn new(context: Context, stores: Arc<Stores>) -> Self {
        Self {
            context,
            stores,
            tree: Tree::default(),
            waiting: Waiting::default(),
            agenda: Agenda::default(),
            failures: HashMap::new(),
            written_at: HashMap::new(),
            fair: HashMap::new(),
            summaries: true,
            writes: JoinSet::new(),
            listed: false,
            counted: false,
        }
    }

    fn take(&mut self, message: ToQueues) {
        let changed = match message {
            ToQueues::Change(Change::Applied(Object::Queue(queue))) => {
                let name = queue.metadata.name.clone().unwrap_or_default();
                self.waiting.exists(&name);
                self.show_nowhere();
                let mut changed = self.tree.put(&name, queue.spec.parent_queue.as_deref());
                changed.insert(name);
                changed
            }
            ToQueues::Change(Change::Deleted(Object::Queue(queue))) => {
                let name = queue.metadata.name.as_deref().unwrap_or_default();
                self.context.figures.forget(&QUEUE_STATUSES, name);
                self.written_at.remove(name);
                self.failures.remove(name);
                self.fair.remove(name);
                self.waiting.gone(name);
                self.show_nowhere();
                self.tree.remove(name)
            }
            ToQueues::Change(Change::Synced(Kind::Queue)) => {
                self.listed = true;
                return self.everything_changed();
            }
            ToQueues::UsageComplete => {
                self.counted = true;
                return self.everything_changed();
            }
            ToQueues::Usage(usage) => usage.into_iter().flat_map(|usage| self.count(usage)).collect(),
            ToQueues::FairShares(shares) => return self.fair_shares(shares),
            ToQueues::Change(Change::Applied(_) | Change::Deleted(_) | Change::Synced(_)) => return,
        };
        for name in changed {
            self.plan(&name, AFTER);
        }
    }

    /// Records what a pod group requests and holds, and why it waits. Returns the queues whose status may differ now.
    fn count(&mut self, usage: Usage) -> BTreeSet<String> {
        let waits = self.waiting.count(&usage.group, usage.queue.as_deref(), usage.waits);
        if waits.iter().any(|queue| self.stores.queues.get("", queue).is_none()) {
            self.show_nowhere();
        }
        let mut changed = self.tree.count(usage);
        changed.extend(waits);
        changed
    }

    /// Exports the metrics of pod groups whose queue does not exist.
    fn show_nowhere(&self) {
        if self.listed && self.counted && self.context.is_leading() {
            shown::show_waiting(&self.context, "", self.waiting.nowhere());
        }
    }

    fn fair_shares(&mut self, shares: Vec<FairShare>) {
        let queues = u32::try_from(self.fair.len()).unwrap_or(u32::MAX);
        let later = FAIR_SHARE_AFTER.max(FAIR_SHARE_EACH.saturating_mul(queues));
        for FairShare { queue, gpus } in shares {
            if self.stores.queues.get("", &queue).is_none() {
                self.fair.remove(&queue);
                continue;
            }
            let before = self.fair.insert(queue.clone(), gpus);
            self.plan(&queue, if before.is_some() { later } else { AFTER });
        }
    }

    /// The leader of a queue's node pool writes its status and exports its metrics.
    fn leading_changed(&mut self) {
        self.context.figures.clear(&QUEUE_STATUSES);
        self.everything_changed();
    }

    fn everything_changed(&mut self) {
        self.show_nowhere();
        for name in self.tree.queues() {
            self.plan(&name, AFTER);
        }
    }

    fn plan(&mut self, name: &str, after: Duration) {
        if self.listed && self.counted {
            let soon = Instant::now() + after;
            let at = self
                .written_at
                .get(name)
                .map_or(soon, |last| soon.max(*last + DISTANCE));
            self.agenda.plan(&name.to_owned(), at);
        }
    }

    /// Starts the next write that is still needed.
    fn write_next(&mut self, slot: WriteSlot) {
        while let Some(name) = self.agenda.start(Instant::now()) {
            let now = clock::now();
            let (patch, until) = self.patch(&name, now);
            // The status is computed again when another entry of the queue's schedule comes into force.
            if let Some(wait) = until.and_then(|until| Duration::try_from(until.duration_since(now)).ok()) {
                self.plan(&name, wait);
            }
            let Some((patch, writes)) = patch else {
                self.agenda.finish(&name);
                self.failures.remove(&name);
                continue;
            };
            self.written_at.insert(name.clone(), Instant::now());
            let api: Api<Queue> = Api::all(writes);
            let summarised = patch.get("summary").is_some();
            self.writes.spawn(async move {
                let patch = Patch::Merge(json!({"status": patch}));
                let result = api.patch_status(&name, &PatchParams::default(), &patch).await;
                slot.end(result.as_ref().err());
                let stored = result.map(|queue| match queue.status.and_then(|status| status.summary) {
                    None if summarised => Stored::WithoutSummary,
                    Some(_) | None => Stored::Whole,
                });
                (name, stored)
            });
            return;
        }
    }

    /// The difference to the stored status, if this process leads the queue's node pool; and the client for the write. Also exports the metrics. And
    /// when the queue's schedule changes next.
    fn patch(&self, name: &str, now: Timestamp) -> (Option<(Value, Client)>, Option<Timestamp>) {
        let Some(queue) = self.stores.queues.get("", name) else {
            return (None, None);
        };
        let context = self
            .context
            .of_scope(&self.context.scope_of(queue.metadata.labels.as_ref()));
        if !context.is_leading() {
            // It may have been in a node pool that this process leads.
            self.context.figures.forget(&QUEUE_STATUSES, name);
            return (None, None);
        }
        let scheduled = Scheduled::of(&queue, now);
        let mut target = self.target(&queue);
        if self.summaries {
            let fair = self.fair.get(name).copied();
            let waiting = self.tree.totals(name).waiting;
            target.summary = Some(summary::summary(&target, &scheduled.resources, fair, waiting));
        }
        scheduled.update(&mut target.conditions, now);
        shown::show(&self.context, name, &queue, &target, &scheduled.resources);
        shown::show_waiting(&self.context, name, self.waiting.line(name));
        let patch = merge_diff(&queue.status.clone().unwrap_or_default(), &target);
        (patch.map(|patch| (patch, context.writes)), scheduled.until)
    }

    /// The desired status; figures of equal value stay as they are written.
    fn target(&self, queue: &Queue) -> QueueStatus {
        let name = queue.metadata.name.as_deref().unwrap_or_default();
        let totals = self.tree.totals(name);
        let mut status = queue.status.clone().unwrap_or_default();
        status.child_queues = self.tree.children(name);
        let set = |is: &mut QuantityMap, should: &Sum| {
            let should = quantities(&should.amounts());
            if !same_amounts(is, &should) {
                *is = should;
            }
        };
        set(&mut status.requested, &totals.requested);
        set(&mut status.allocated, &totals.allocated);
        set(&mut status.allocated_non_preemptible, &totals.allocated_non_preemptible);
        status
    }

    fn written(&mut self, name: String, result: Result<Stored, kube::Error>) {
        self.agenda.finish(&name);
        let error = match result {
            Ok(stored) => {
                if stored == Stored::WithoutSummary && std::mem::take(&mut self.summaries) {
                    warn!(
                        "the definition of Queues has no status.summary, which kubectl shows; apply crds/ and restart"
                    );
                }
                self.failures.remove(&name);
                return;
            }
            Err(error) => error,
        };
        let failures = self.failures.entry(name.clone()).or_default();
        *failures += 1;
        let wait = RETRY.wait(*failures);
        match failure(&error) {
            Failure::Gone => {
                self.failures.remove(&name);
                return;
            }
            Failure::Conflict | Failure::Busy | Failure::Unknown => {
                debug!(queue = name, %error, "queue status not written");
            }
            Failure::Refused => warn!(queue = name, %error, "queue status refused by the api server"),
        }
        self.plan(&name, wait);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::api::names::label;
    use crate::components::Settings;
    use crate::components::bus::{GroupKey, Waits};
    use crate::components::leadership::{Scope, Term, Terms};
    use crate::components::tests::idle_context;
    use crate::engine::decision::Cause;

    /// The component in a process that leads the default node pool; there is another pool, `blue`.
    fn component() -> Queues {
        let idle = idle_context();
        let mut terms = Terms::default();
        let writes = idle.refused.clone();
        terms.begin(&Scope::Cluster, Term { number: 1, writes });
        let mut settings = Settings::default();
        settings.pools.with_shard = ["blue".into()].into();
        let context = Context {
            leading: watch::channel(terms).1,
            settings: Arc::new(settings),
            ..idle
        };
        Queues::new(context, Arc::default())
    }

    #[tokio::test]
    async fn a_queue_that_moves_to_a_node_pool_of_another_leader_has_no_series_here() {
        let mut queues = component();
        let waits = Waits {
            cause: Cause::Unknown,
            since: 0,
        };
        queues
            .waiting
            .count(&GroupKey::new("ns", "g"), Some("moves"), Some(waits));
        let series = |queues: &Queues, labels: Value| {
            let queue = json!({"metadata": {"name": "moves", "labels": labels}, "spec": {}});
            let queue: Queue = serde_json::from_value(queue).unwrap();
            queues.stores.queues.insert(queue);
            queues.patch("moves", clock::now());
            let page = queues.context.figures.render();
            page.matches("queue_metadata_name=\"moves\"").count()
        };
        assert_eq!(series(&queues, json!({})), QUEUE_STATUSES.len());
        assert_eq!(series(&queues, json!({label::NODE_POOL: "blue"})), 0);
        assert_eq!(series(&queues, json!({})), QUEUE_STATUSES.len(), "it is back");
    }
}
