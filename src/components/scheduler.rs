//! Owns the mirror and the engine, on a thread of its own: takes in what changed, and when something did, asks the engine what
//! is to be done and passes the decisions on.
//!
//! Everything that waits in the inbox is taken in before a cycle, and cycles keep a small distance, so that a burst costs few of
//! them and a single pod none of it. A process that does not lead keeps its model warm and decides nothing. What is absent:
//! any rule of scheduling, and any request to the API server.

mod cycle;
mod orders;
mod shown;
mod sightings;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;
use tracing::{debug, info, info_span, warn};

use crate::components::bus::{
    Bus, Change, Kind, Object, Outcome, ToBinder, ToGrouper, ToPodGroups, ToScheduler, deliver,
};
use crate::components::readiness::Handle;
use crate::components::watches::Stores;
use crate::components::{Context, Error};
use crate::engine::Engine;
use crate::engine::decision::Decisions;
use crate::engine::input::{Event, Time};
use crate::engine::policy::Policy;
use crate::mirror::{self, Mirror};
use cycle::Timeline;
use shown::Shown;

/// Pause after a cycle that took longer than [`CHEAP`], so that what comes meanwhile is decided together.
const DISTANCE: Duration = Duration::from_millis(1);
/// A cycle this short is worth no pause.
const CHEAP: Duration = Duration::from_micros(300);
/// Messages taken in before it is looked whether a cycle is due.
const MESSAGES_AT_ONCE: usize = 4_096;
/// A wake-up further away than this is looked at again then.
const LONGEST_SLEEP: Duration = Duration::from_secs(3_600);

/// Schedules until shutdown.
///
/// # Errors
/// If another component is gone, the thread cannot be started, or it panicked.
pub async fn run(
    context: Context,
    inbox: mpsc::Receiver<ToScheduler>,
    stores: Arc<Stores>,
    bus: Bus,
    mirror: mirror::Settings,
    policy: Policy,
) -> Result<(), Error> {
    let readiness = context
        .readiness
        .handle("scheduler", "waits for the first list of every kind");
    let mut scheduler = Scheduler {
        mirror: Mirror::new(mirror),
        engine: Engine::new(policy),
        missing: Kind::ALL.to_vec(),
        changed: false,
        not_before: Instant::now(),
        shown: Shown::default(),
        context,
        stores,
        bus,
        readiness,
    };
    let (ended, end) = oneshot::channel();
    let thread = std::thread::Builder::new().name("scheduler".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(Error::Thread);
        let result = runtime.and_then(|runtime| runtime.block_on(scheduler.work(inbox)));
        // The receiver only goes when the process does.
        let _ = ended.send(result);
    });
    let thread = thread.map_err(Error::Thread)?;
    match end.await {
        Ok(result) => result,
        Err(_) => {
            let panic = thread.join().err().and_then(|panic| panic.downcast::<String>().ok());
            Err(Error::Panicked {
                task: "scheduler",
                panic: panic.map_or_else(|| "see the log".to_owned(), |text| *text),
            })
        }
    }
}

struct Scheduler {
    mirror: Mirror,
    engine: Engine,
    /// Kinds whose first list has not come.
    missing: Vec<Kind>,
    /// The engine was told something since its last cycle.
    changed: bool,
    /// No cycle before.
    not_before: Instant,
    shown: Shown,
    context: Context,
    stores: Arc<Stores>,
    bus: Bus,
    readiness: Handle,
}

/// Waits until then. tokio's timer counts in milliseconds, and would have what is due already wait for its next tick.
async fn until(at: Instant) {
    if at > Instant::now() {
        sleep_until(at.into()).await;
    }
}

fn now() -> Time {
    Time(Timestamp::now().as_millisecond())
}

impl Scheduler {
    async fn work(&mut self, mut inbox: mpsc::Receiver<ToScheduler>) -> Result<(), Error> {
        let _span = info_span!("scheduler").entered();
        let mut leading = self.context.leading.clone();
        let shutdown = self.context.shutdown.clone();
        let mut messages = Vec::new();
        loop {
            let wake = self.next_cycle();
            let at = wake.unwrap_or_else(|| Instant::now() + LONGEST_SLEEP);
            let shares = self.shown.due();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                changed = leading.changed() => {
                    changed.map_err(|_| Error::Closed)?;
                    self.changed = true;
                    self.shown.clear(&self.context);
                    info!(leading = *leading.borrow_and_update(), "leadership changed");
                }
                () = until(shares.unwrap_or(at)), if shares.is_some() => {
                    self.shown.show_shares(&self.context, &self.engine, &self.stores);
                }
                () = until(at), if wake.is_some() => self.cycle().await?,
                received = inbox.recv_many(&mut messages, MESSAGES_AT_ONCE) => {
                    if received == 0 {
                        return Err(Error::Closed);
                    }
                    messages.drain(..).for_each(|message| self.take(message));
                }
            }
        }
    }

    /// When the next cycle is to begin: soon if something changed, else when the engine asks for it, or not at all.
    fn next_cycle(&self) -> Option<Instant> {
        if !self.missing.is_empty() || !self.context.is_leading() {
            return None;
        }
        if self.changed {
            return Some(self.not_before);
        }
        let (Time(at), reason) = self.engine.next_wakeup(now())?;
        let wait = u64::try_from(at.saturating_sub(now().0)).unwrap_or_default();
        debug!(?reason, wait_ms = wait, "asleep");
        Some(Instant::now() + Duration::from_millis(wait).clamp(DISTANCE, LONGEST_SLEEP))
    }

    fn take(&mut self, message: ToScheduler) {
        match message {
            ToScheduler::Change(Change::Applied(object)) => {
                sightings::applied(&self.bus.traces, &object, &self.context.settings);
                self.mirror(mirror::Change::Applied(mirrored(object)));
            }
            ToScheduler::Change(Change::Deleted(object)) => {
                sightings::deleted(&self.bus.traces, &object);
                self.mirror(mirror::Change::Deleted(mirrored(object)));
            }
            ToScheduler::Change(Change::Synced(kind)) => self.synced(kind),
            ToScheduler::Grouped(grouping) => {
                sightings::grouped(&self.bus.traces, &grouping);
                self.mirror(mirror::Change::Grouped(mirror::Grouping {
                    namespace: grouping.pod.namespace.to_string(),
                    pod: grouping.pod.name.to_string(),
                    uid: grouping.pod.uid.to_string(),
                    group: grouping.group,
                    sub_group: grouping.subgroup,
                }));
            }
            ToScheduler::Outcome(Outcome::NotBound { pod, retry_at }) => {
                let retry_at = Some(Time(retry_at.as_millisecond()));
                self.tell(Event::Unbound {
                    pod: pod.uid.clone(),
                    retry_at,
                });
            }
            ToScheduler::Outcome(Outcome::NoDevice { node, retry_at }) => {
                let retry_at = Time(retry_at.as_millisecond());
                self.tell(Event::SharingFailed { node, retry_at });
            }
            ToScheduler::Outcome(Outcome::NotEvicted { pod }) => self.tell(Event::Unevicted { pod: pod.uid.clone() }),
        }
    }

    fn synced(&mut self, kind: Kind) {
        if self.missing.is_empty() {
            return;
        }
        self.missing.retain(|missing| *missing != kind);
        if self.missing.is_empty() {
            self.changed = true;
            self.readiness.ready();
            info!("everything is listed; scheduling can begin");
        }
    }

    fn mirror(&mut self, change: mirror::Change) {
        let output = self.mirror.apply(&change);
        for rejection in output.rejections {
            let (kind, ns, name) = (rejection.kind, rejection.namespace, rejection.name);
            metrics::counter!("unikai_objects_rejected_total", "kind" => kind).increment(1);
            warn!(kind, ns, name, error = %rejection.problem, "part of an object cannot be used");
        }
        for event in output.events {
            self.tell(event);
        }
    }

    fn tell(&mut self, event: Event) {
        self.engine.apply(event, now());
        self.changed = true;
    }

    async fn cycle(&mut self) -> Result<(), Error> {
        let mut timeline = Timeline::begin();
        self.changed = false;
        let decisions = self.engine.cycle_seen_by(now(), &mut |stage| timeline.reach(stage));
        timeline.end();
        let took = timeline.took;
        self.not_before = if took > CHEAP {
            Instant::now() + DISTANCE
        } else {
            Instant::now()
        };
        if timeline.worked() {
            self.shown.shares_changed();
        }
        if decisions.is_empty() {
            timeline.record();
            return Ok(());
        }
        debug!(
            bind = decisions.bind.len(),
            evict = decisions.evict.len(),
            pipeline = decisions.pipeline.len(),
            unschedulable = decisions.unschedulable.len(),
            took_us = took.as_micros(),
            "decided"
        );
        self.show(&decisions);
        // Before the binder knows of it: a bind is told of after the cycle that decided it.
        sightings::cycle(&self.bus.traces, &timeline, &decisions);
        self.pass_on(decisions).await?;
        timeline.end();
        timeline.record();
        Ok(())
    }

    /// What users are shown of the decisions as metrics.
    fn show(&mut self, decisions: &Decisions) {
        for bind in &decisions.bind {
            let pod = self.stores.pods.get(&bind.pod.namespace, &bind.pod.name);
            if let Some(age) = pod.and_then(|pod| shown::age(&pod)) {
                metrics::histogram!("kai_task_scheduling_latency_milliseconds").record(age.as_secs_f64() * 1e3);
            }
        }
        for eviction in &decisions.evict {
            self.shown.evicted(&self.context, eviction, &self.stores);
        }
    }

    /// Bindings first: they are what users wait for.
    async fn pass_on(&mut self, mut decisions: Decisions) -> Result<(), Error> {
        let order = orders::order(&mut decisions, &self.mirror);
        if !order.binds.is_empty() || !order.evictions.is_empty() {
            deliver(&self.bus.binder, ToBinder::Order(order)).await?;
        }
        for note in orders::pipelined(&decisions.pipeline, &self.context.settings) {
            self.bus.events.send(note);
        }
        if !decisions.unschedulable.is_empty() {
            // A gang that lacks pods has not been tried.
            let tried = decisions.unschedulable.iter().filter(|report| !report.not_ready);
            let groups = tried.map(|report| report.group.clone()).collect();
            deliver(&self.bus.grouper, ToGrouper::Waiting(groups)).await?;
            deliver(&self.bus.podgroups, ToPodGroups::Waiting(decisions.unschedulable)).await?;
        }
        if !decisions.cleared.is_empty() {
            deliver(&self.bus.podgroups, ToPodGroups::Cleared(decisions.cleared)).await?;
        }
        if !decisions.strays.is_empty() {
            deliver(&self.bus.podgroups, ToPodGroups::Strays(decisions.strays)).await?;
        }
        if !decisions.times.is_empty() {
            deliver(&self.bus.grouper, ToGrouper::Times(decisions.times)).await?;
        }
        Ok(())
    }
}

/// The object as the mirror takes it.
fn mirrored(object: Object) -> mirror::Object {
    match object {
        Object::Pod(pod) => pod.into(),
        Object::Node(node) => mirror::Object::Node(node),
        Object::Queue(queue) => mirror::Object::Queue(queue),
        Object::PodGroup(group) => group.into(),
        Object::BindRequest(request) => mirror::Object::BindRequest(request),
        Object::PriorityClass(class) => mirror::Object::PriorityClass(class),
        Object::Topology(topology) => mirror::Object::Topology(topology),
        Object::Storage(object) => mirror::Object::Storage(object),
        Object::Namespace(namespace) => mirror::Object::Namespace(namespace),
        Object::DeviceClass(class) => mirror::Object::DeviceClass(class),
        Object::ResourceSlice(slice) => mirror::Object::ResourceSlice(slice),
        Object::ResourceClaim(claim) => mirror::Object::ResourceClaim(claim),
        Object::PodDisruptionBudget(budget) => mirror::Object::PodDisruptionBudget(budget),
        Object::NodeResourceTopology(zones) => mirror::Object::NodeResourceTopology(zones),
        Object::ConfigMap(map) => mirror::Object::ConfigMap(map),
    }
}
