//! Owns the mirror and the engine, on a thread of its own: applies changes, runs a cycle after changes, and sends the decisions
//! to the other components.
//!
//! All messages in the inbox are applied before a cycle, and there is a short pause after a long cycle, so that a burst costs few
//! cycles and a single pod is not delayed. A process that does not lead keeps its model up to date and decides nothing. Rules of
//! scheduling are in the engine, and requests to the API server are sent by other components.

mod arrivals;
mod cycle;
mod intake;
mod look;
mod orders;
mod record;
mod rejected;
mod reports;
mod second_model;
mod self_check;
mod shown;
mod stale;
mod trace_events;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::api::names::{object, reason};
use crate::clock;
use crate::components::accounts::Meter;
use crate::components::bus::{
    Bus, GroupKey, Kind, Note, Obstacle, ObstacleKind, Outcome, Severity, Subject, ToBinder, ToGrouper, ToPodGroups,
    ToQueues, ToScheduler, deliver,
};
use crate::components::figures::families;
use crate::components::leadership::{Scope, Terms};
use crate::components::panics;
use crate::components::readiness::Handle;
use crate::components::views::Views;
use crate::components::watches::Stores;
use crate::components::{Context, Error};
use crate::engine::decision::Decisions;
use crate::engine::input::{Event, Time};
use crate::engine::policy::Policy;
use crate::mirror::aside::{GROUP_FAILED, OBJECT_FAILED};
use crate::mirror::identity::pod_ref;
use crate::mirror::{self, Problem};
use crate::usage;
use cycle::Timeline;
use intake::{Everything, Intake, Taken};
use rejected::Rejected;
use self_check::SelfCheck;
use shown::Shown;
use stale::StaleEvents;

/// Shortest time between two refreshes of verdicts.
const REFRESH_EVERY: Duration = Duration::from_millis(250);
/// Pause after a cycle that took longer than [`SHORT_CYCLE`], so that the changes that arrive meanwhile are handled by one cycle.
const PAUSE_AFTER_CYCLE: Duration = Duration::from_millis(1);
/// There is no pause after a cycle as short as this.
const SHORT_CYCLE: Duration = Duration::from_micros(300);
/// Messages that are applied before it is checked whether a cycle is due.
const MESSAGES_AT_ONCE: usize = 4_096;
/// Interval at which the mirror continues to evaluate CEL selectors of devices, which take long.
const SELECTORS_EVERY: Duration = Duration::from_millis(100);
/// The longest wait; the time of the next cycle is computed again afterwards.
const LONGEST_SLEEP: Duration = Duration::from_secs(3_600);

/// The settings of a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Whether scheduling is switched on. The model is kept up to date in any case.
    pub on: bool,
    /// Which objects are relevant, and how they are read.
    pub mirror: mirror::Settings,
    /// The engine's policy.
    pub policy: Policy,
    /// How the usage of queues is computed; `None`: not at all.
    pub usage: Option<usage::Settings>,
}

/// Rules with the number of the configuration that they are from.
pub type Numbered = (u64, Arc<Rules>);

/// The configuration numbers that the schedulers have applied, by shard.
pub type Followed = BTreeMap<String, u64>;

/// The shard of one scheduler, and the channels of its settings.
#[derive(Clone, Debug)]
pub struct Shard {
    /// The shard's name.
    pub name: String,
    /// The scope under whose Lease it decides.
    pub scope: Scope,
    /// The settings to apply.
    pub rules: watch::Receiver<Numbered>,
    /// Where it reports which settings it has applied.
    pub follows: watch::Sender<Followed>,
}

impl Shard {
    /// The name of a shard's scheduler on `/readyz`.
    #[must_use]
    pub fn readiness(name: &str) -> String {
        if name == object::DEFAULT_SHARD {
            "scheduler".to_owned()
        } else {
            format!("scheduler-{name}")
        }
    }

    fn follows(&self, number: u64) {
        self.follows.send_modify(|followed| {
            followed.insert(self.name.clone(), number);
        });
    }
}

/// Schedules until shutdown.
///
/// # Errors
/// If another component is gone, the thread cannot be started, or it panicked.
pub async fn run(
    context: Context,
    inbox: mpsc::Receiver<ToScheduler>,
    stores: Arc<Stores>,
    bus: Bus,
    mut shard: Shard,
    meter: Meter,
) -> Result<(), Error> {
    let readiness = context
        .readiness
        .handle(Shard::readiness(&shard.name), "waits for the first list of every kind");
    let (number, rules) = shard.rules.borrow_and_update().clone();
    let mut scheduler = Scheduler {
        intake: Intake::new(rules.mirror.clone(), rules.policy.clone()),
        on: rules.on,
        missing: Kind::ALL.to_vec(),
        views: Views::of(Kind::ALL),
        led: None,
        changed: false,
        not_before: Instant::now(),
        asked: Instant::now(),
        shown: Shown::new(&shard.name),
        stale: StaleEvents::default(),
        self_check: SelfCheck::new(&shard.name, context.settings.self_check_interval),
        refresh_at: None,
        nodes: rules.mirror.shard.clone(),
        to_podgroups: vec![ToPodGroups::Decides(shard.scope.clone(), rules.on)],
        rejected: Rejected::default(),
        context,
        stores,
        bus,
        readiness,
        shard,
        meter,
    };
    scheduler.meter.follow(rules.usage.as_ref());
    scheduler.shard.follows(number);
    if clock::is_simulated() {
        return scheduler.work(inbox).await;
    }
    on_a_thread(scheduler, inbox).await
}

/// Schedules on a thread of its own, since a cycle can take longer than other tasks may be delayed.
async fn on_a_thread(mut scheduler: Scheduler, inbox: mpsc::Receiver<ToScheduler>) -> Result<(), Error> {
    let (ended, end) = oneshot::channel();
    let thread = std::thread::Builder::new().name("scheduler".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(Error::Thread);
        let result = runtime.and_then(|runtime| runtime.block_on(scheduler.work(inbox)));
        // The receiver is dropped at the end of the process only.
        let _ = ended.send(result);
    });
    let thread = thread.map_err(Error::Thread)?;
    match end.await {
        Ok(result) => result,
        Err(_) => Err(Error::Panicked {
            task: "scheduler",
            panic: thread
                .join()
                .err()
                .map_or_else(String::new, |panic| panics::text(&*panic).to_owned()),
        }),
    }
}

struct Scheduler {
    intake: Intake,
    /// Whether scheduling is switched on.
    on: bool,
    /// Kinds whose first list is incomplete.
    missing: Vec<Kind>,
    /// Which kinds have caught up in each term.
    views: Views,
    /// The current term, if this process leads.
    led: Option<u64>,
    /// The engine's input has changed since its last cycle.
    changed: bool,
    /// No cycle is run before this time.
    not_before: Instant,
    /// When the mirror last evaluated selectors of devices.
    asked: Instant,
    shown: Shown,
    stale: StaleEvents,
    self_check: SelfCheck,
    /// When verdicts are to be refreshed.
    refresh_at: Option<Instant>,
    /// Which nodes belong to the shard.
    nodes: mirror::Shard,
    /// Messages to `podgroups` that are sent before the next wait.
    to_podgroups: Vec<ToPodGroups>,
    rejected: Rejected,
    context: Context,
    stores: Arc<Stores>,
    bus: Bus,
    readiness: Handle,
    shard: Shard,
    meter: Meter,
}

/// What ended the wait of the loop.
enum Trigger {
    Leadership,
    /// The settings have changed.
    Rules,
    /// New usage of queues.
    Usage,
    Shares,
    /// Events about stale pod groups are to be repeated.
    Stale,
    /// Nodes from other node pools get pods from now on.
    Nodes,
    /// Selectors of devices are to be evaluated, which the begin of the loop does.
    Selectors,
    Cycle,
    /// Verdicts are to be refreshed.
    Refresh,
    /// A step of a self-check.
    SelfCheck,
    Messages(usize),
}

/// Waits until then. Not by tokio's timer if that time has passed, since it would wait for the next millisecond.
async fn until(at: Instant) {
    if at > Instant::now() {
        sleep_until(at).await;
    }
}

fn now() -> Time {
    Time(clock::now().as_millisecond())
}

impl Scheduler {
    async fn work(&mut self, inbox: mpsc::Receiver<ToScheduler>) -> Result<(), Error> {
        let span = info_span!("scheduler", shard = self.shard.name);
        self.go_on(inbox).instrument(span).await
    }

    async fn go_on(&mut self, mut inbox: mpsc::Receiver<ToScheduler>) -> Result<(), Error> {
        let mut leading = self.context.leading.clone();
        let shutdown = self.context.shutdown.clone();
        let mut messages = Vec::new();
        loop {
            if self.asked.elapsed() >= SELECTORS_EVERY {
                self.asked = Instant::now();
                self.with_intake(|intake, all| intake.ask_selectors(now(), all));
            }
            for message in std::mem::take(&mut self.to_podgroups) {
                deliver(&self.bus.podgroups, message).await?;
            }
            let wake = self.next_cycle();
            let at = wake.unwrap_or_else(|| Instant::now() + LONGEST_SLEEP);
            let (shares, stale, refresh) = (self.shown.due(), self.stale.next(), self.refresh_at);
            let nodes = self.intake.arrivals.next();
            let check = self.self_check.due().filter(|_| self.missing.is_empty());
            self.context.heartbeat.wait();
            let trigger = tokio::select! {
                biased;
                () = shutdown.cancelled() => {
                    self.shown.clear(&self.context);
                    self.context.figures.forget(&[&families::SET_ASIDE], &self.shard.name);
                    return Ok(());
                }
                changed = leading.changed() => {
                    changed.map_err(|_| Error::Closed)?;
                    if self.is_as_before(&leading.borrow_and_update()) {
                        continue;
                    }
                    Trigger::Leadership
                }
                changed = self.shard.rules.changed() => {
                    changed.map_err(|_| Error::Closed)?;
                    Trigger::Rules
                }
                changed = self.meter.changed() => {
                    changed.map_err(|_| Error::Closed)?;
                    Trigger::Usage
                }
                () = until(shares.unwrap_or(at)), if shares.is_some() => Trigger::Shares,
                () = until(nodes.unwrap_or(at)), if nodes.is_some() => Trigger::Nodes,
                () = until(stale.unwrap_or(at)), if stale.is_some() => Trigger::Stale,
                () = until(at), if wake.is_some() => Trigger::Cycle,
                () = until(refresh.unwrap_or(at)), if refresh.is_some() => Trigger::Refresh,
                () = until(check.unwrap_or(at)), if check.is_some() => Trigger::SelfCheck,
                () = until(self.asked + SELECTORS_EVERY), if self.intake.core.mirror.selectors_wait() => Trigger::Selectors,
                received = inbox.recv_many(&mut messages, MESSAGES_AT_ONCE) => Trigger::Messages(received),
            };
            self.context.heartbeat.work();
            self.with_intake(|intake, all| intake.follow_clock(now(), all));
            match trigger {
                Trigger::Leadership => {
                    self.changed = true;
                    self.shown.clear(&self.context);
                    self.stale = StaleEvents::default();
                    let aside = self.intake.core.mirror.aside.all();
                    let aside: Vec<_> = aside
                        .map(|(kind, namespace, name, why)| (kind, namespace.to_owned(), name.to_owned(), why))
                        .collect();
                    for (kind, namespace, name, why) in aside {
                        self.tell_owner(kind, &namespace, &name, why);
                    }
                    info!(leading = self.led.is_some(), "leadership changed");
                }
                Trigger::Rules => self.follow(),
                Trigger::Usage => {
                    let usage = self.meter.usage();
                    self.tell(Event::Usage(usage));
                }
                Trigger::Shares => {
                    let engine = &self.intake.core.engine;
                    let changed = self.shown.show_shares(&self.context, engine, &self.stores);
                    if !changed.is_empty() {
                        deliver(&self.bus.queues, ToQueues::FairShares(changed)).await?;
                    }
                    self.report_stale();
                }
                Trigger::Nodes => self.with_intake(|intake, all| intake.admit_nodes(now(), all)),
                Trigger::Stale => self.report_stale(),
                Trigger::Selectors => {}
                Trigger::SelfCheck => self.self_check(),
                Trigger::Cycle => self.cycle().await?,
                Trigger::Refresh => self.refresh_verdicts().await?,
                Trigger::Messages(0) => return Err(Error::Closed),
                Trigger::Messages(_) => messages.drain(..).for_each(|message| {
                    // Each is progress: together they may take longer than a thread may be busy.
                    self.context.heartbeat.work();
                    self.take(message);
                }),
            }
        }
    }

    /// Records the new terms; returns whether the term of this shard is the same as before.
    fn is_as_before(&mut self, terms: &Terms) -> bool {
        self.views.keep(|number| terms.numbered(number).is_some());
        let term = terms.of(&self.shard.scope).map(|term| term.number);
        let as_before = std::mem::replace(&mut self.led, term) == term;
        if !as_before && term.is_some() {
            self.intake.core.engine.report_anew();
        }
        as_before
    }

    /// The term in which cycles may run: scheduling is switched on, this process leads, and all kinds have caught up with the begin of the term.
    fn term(&self) -> Option<u64> {
        let term = self.context.term()?;
        let known = self.missing.is_empty() && self.views.are_current(term) && self.meter.is_known(term);
        (self.on && known).then_some(term)
    }

    /// Applies new settings.
    fn follow(&mut self) {
        let (number, rules) = self.shard.rules.borrow_and_update().clone();
        self.on = rules.on;
        let decides = ToPodGroups::Decides(self.shard.scope.clone(), rules.on);
        self.to_podgroups.push(decides);
        self.nodes.clone_from(&rules.mirror.shard);
        self.meter.follow(rules.usage.as_ref());
        self.with_intake(|intake, all| intake.follow(&rules.mirror, &rules.policy, now(), all));
        self.changed = true;
        info!(on = rules.on, "the scheduler has applied a change of its configuration");
        self.shard.follows(number);
    }

    /// When the next cycle is to begin: soon if something changed, else at the engine's next wakeup, if it has one.
    fn next_cycle(&mut self) -> Option<Instant> {
        self.term()?;
        let soon = |Time(at): Time| {
            let wait = u64::try_from(at.saturating_sub(now().0)).unwrap_or_default();
            Instant::now() + Duration::from_millis(wait).clamp(PAUSE_AFTER_CYCLE, LONGEST_SLEEP)
        };
        if let Some(until) = self.intake.waits_until(now()) {
            return Some(soon(until));
        }
        if self.changed {
            return Some(self.not_before);
        }
        let (Time(at), reason) = self.intake.core.engine.next_wakeup(now())?;
        debug!(?reason, wait_ms = at.saturating_sub(now().0), "asleep");
        Some(soon(Time(at)))
    }

    fn take(&mut self, message: ToScheduler) {
        match message {
            ToScheduler::Change(change, position) => {
                let (settings, leading) = (&self.context.settings, self.led.is_some());
                trace_events::changed(&self.bus.traces, &change, settings, &self.nodes, leading);
                self.with_intake(|intake, all| intake.change(&change, Some(position), now(), all));
            }
            ToScheduler::Unreadable(object, panic, position) => {
                self.with_intake(|intake, _| intake.unreadable(object, &panic, position));
            }
            ToScheduler::Synced(kind) => self.synced(kind),
            ToScheduler::Grouped(grouping) => {
                if self.led.is_some() {
                    trace_events::grouped(&self.bus.traces, &grouping, &self.nodes);
                }
                let grouped = mirror::PackedChange::Grouped(mirror::GroupDraft {
                    namespace: grouping.pod.namespace.to_string(),
                    pod: grouping.pod.name.to_string(),
                    uid: grouping.pod.uid.to_string(),
                    group: grouping.group,
                    sub_group: grouping.sub_group,
                });
                self.with_intake(|intake, all| intake.change(&grouped, None, now(), all));
            }
            ToScheduler::Ungrouped(pod) => {
                let ungrouped = mirror::PackedChange::Ungrouped(pod);
                self.with_intake(|intake, all| intake.change(&ungrouped, None, now(), all));
            }
            ToScheduler::ReservationRequested(pod) => self.with_intake(|intake, all| intake.requested(pod, now(), all)),
            ToScheduler::ReservationSettled(pod) => self.with_intake(|intake, all| intake.settled(pod, now(), all)),
            ToScheduler::Outcome(Outcome::NotBound { pod, retry_at }) => {
                record::not_bound(&self.context.history, &pod.uid, self.intake.core.engine.model());
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
            ToScheduler::Outcome(Outcome::NotEvicted { pod, retry_at }) => {
                let retry_at = retry_at.map(|at| Time(at.as_millisecond()));
                self.tell(Event::Unevicted {
                    pod: pod.uid.clone(),
                    retry_at,
                });
            }
            // Before the first lists are complete there is no answer; the sender is dropped.
            ToScheduler::Look(look) if self.missing.is_empty() => {
                look::answer(look, &mut self.intake.core.engine, &self.stores, &self.nodes, now());
            }
            ToScheduler::Look(_) => {}
            ToScheduler::Current(kind, term) => {
                if self.views.current(kind, term) && self.context.term() == Some(term) {
                    self.changed = true;
                    info!(term, "all watches have caught up with the beginning of the term");
                }
            }
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

    /// Applies a change to mirror and engine, and reports what could not be used.
    fn with_intake(&mut self, change: impl FnOnce(&mut Intake, &Everything) -> Taken) {
        let stores = Arc::clone(&self.stores);
        let taken = change(&mut self.intake, &|tell| stores.tell_all(tell));
        self.handle_taken(taken);
    }

    /// Logs and counts what could not be used, and reports objects that are set aside to their owners.
    fn handle_taken(&mut self, taken: Taken) {
        self.changed |= taken.told;
        for (kind, key) in &taken.released {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            self.tell_set_aside(kind, namespace, name, None);
        }
        for rejection in taken.rejections {
            self.rejected.tell(&rejection);
            let (kind, ns, name) = (rejection.kind, rejection.namespace, rejection.name);
            if matches!(rejection.problem, Problem::ExceededLimit(_)) {
                self.tell_owner(kind, &ns, &name, rejection.problem.to_string());
            }
        }
        for object in taken.failed_objects {
            let (namespace, name) = object.names();
            self.tell_owner(object.kind, namespace, name, OBJECT_FAILED.to_owned());
        }
        if let Some(group) = taken.failed_group {
            self.tell_owner("PodGroup", group.namespace(), group.name(), GROUP_FAILED.to_owned());
        }
        if let Some(counts) = self.intake.core.mirror.aside.news() {
            let shard = &*self.shard.name;
            let all: Vec<_> = counts
                .iter()
                .map(|(kind, count)| ([("shard", shard), ("kind", *kind)], *count as f64))
                .collect();
            let series = all.iter().map(|(labels, count)| (&labels[..], *count));
            self.context.figures.set_all(&families::SET_ASIDE, shard, series);
        }
    }

    /// Tells podgroups why a pod or pod group is set aside, or with `None` that it is not any more. Returns the object, if it is one of these and exists.
    fn tell_set_aside(&mut self, kind: &str, namespace: &str, name: &str, why: Option<String>) -> Option<Subject> {
        let (subject, message) = match kind {
            "Pod" => {
                let pod = pod_ref(self.stores.pods.get(namespace, name)?.as_ref());
                let obstacle = Obstacle {
                    pod: pod.clone(),
                    kind: ObstacleKind::SetAside,
                    reason: reason::SET_ASIDE,
                    message: why,
                };
                (Subject::Pod(pod), ToPodGroups::Obstacles(vec![obstacle]))
            }
            "PodGroup" => {
                let group = GroupKey::new(namespace, name);
                (Subject::PodGroup(group.clone()), ToPodGroups::SetAside(group, why))
            }
            _ => return None,
        };
        self.to_podgroups.push(message);
        Some(subject)
    }

    /// Reports to the owner of a pod or pod group that it is set aside, by condition and event. Objects of other kinds are only logged.
    fn tell_owner(&mut self, kind: &str, namespace: &str, name: &str, why: String) {
        let subject = self.tell_set_aside(kind, namespace, name, Some(why.clone()));
        let Some(subject) = subject.filter(|_| self.context.is_leading()) else {
            return;
        };
        self.bus.events.send(Note {
            subject,
            severity: Severity::Warning,
            reason: reason::SET_ASIDE,
            message: why,
            source: self.context.settings.scheduler_name.clone(),
            annotations: BTreeMap::new(),
        });
    }

    fn tell(&mut self, event: Event) {
        self.with_intake(|intake, all| intake.tell(event, now(), all));
    }

    async fn cycle(&mut self) -> Result<(), Error> {
        // The term may have ended since the cycle was planned.
        let Some(term) = self.term() else { return Ok(()) };
        let mut timeline = Timeline::begin(self.context.heartbeat.clone());
        self.changed = false;
        let stores = Arc::clone(&self.stores);
        let decided = self.intake.cycle(now(), &|tell| stores.tell_all(tell), &mut |stage| {
            timeline.reach(stage);
        });
        timeline.end();
        let decisions = match decided {
            Ok(decisions) => decisions,
            Err(failed) => {
                self.handle_taken(failed.taken);
                let panic = failed.panic;
                let task = "scheduler";
                return if failed.for_good {
                    Err(Error::Panicked { task, panic })
                } else {
                    Ok(())
                };
            }
        };
        self.meter.read(&self.intake.core.engine, now());
        let pause = i64::try_from(timeline.pause_of_searches().as_millis()).unwrap_or_default();
        if pause > 0 {
            let until = now().0.saturating_add(pause);
            self.intake.core.engine.pause_searches(Time(until));
        }
        let took = timeline.took;
        self.not_before = if took > SHORT_CYCLE {
            Instant::now() + PAUSE_AFTER_CYCLE
        } else {
            Instant::now()
        };
        if timeline.worked() {
            self.shown.shares_changed();
            self.refresh_at.get_or_insert_with(|| Instant::now() + REFRESH_EVERY);
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
            nodes_tested = decisions.work.nodes_tested,
            pods_simulated = decisions.work.pods_simulated,
            took_us = took.as_micros(),
            "decided"
        );
        let model = self.intake.core.engine.model();
        self.shown
            .show_decisions(&self.context, &decisions, model, &self.stores);
        record::decided(
            &self.context.history,
            &decisions,
            self.intake.core.engine.model(),
            &self.stores,
        );
        // Sent before the binder gets its order, so that traces get the cycle before its binds.
        trace_events::cycle(&self.bus.traces, &timeline, &decisions);
        self.pass_on(decisions, term).await?;
        timeline.end();
        timeline.record();
        Ok(())
    }

    /// Does the next step of a self-check. A model with an error is rebuilt.
    fn self_check(&mut self) {
        if self.self_check.step(&mut self.intake, &self.stores, now()) {
            warn!("the model is rebuilt");
            self.with_intake(|intake, all| intake.rebuild(now(), all));
        }
    }

    /// Refreshes verdicts, and sends those that changed to podgroups.
    async fn refresh_verdicts(&mut self) -> Result<(), Error> {
        self.refresh_at = None;
        let Some(term) = self.term() else { return Ok(()) };
        let engine = &mut self.intake.core.engine;
        let mut refreshed = match panics::catch(|| engine.refresh_verdicts(now())) {
            Ok(refreshed) => refreshed,
            Err(panic) => {
                // The reported verdicts stay.
                metrics::counter!("unikai_object_panics_total", "component" => "scheduler").increment(1);
                error!(panic, "verdicts cannot be refreshed");
                return Ok(());
            }
        };
        self.refresh_at = refreshed.next.map(|Time(at)| {
            let wait = u64::try_from(at.saturating_sub(now().0)).unwrap_or_default();
            Instant::now() + Duration::from_millis(wait).max(REFRESH_EVERY)
        });
        if refreshed.reports.is_empty() {
            return Ok(());
        }
        record::waits(&self.context.history, &refreshed.other_cause);
        let model = self.intake.core.engine.model();
        reports::complete(&mut refreshed.reports, model, &self.stores, &self.nodes);
        deliver(&self.bus.podgroups, ToPodGroups::Waiting(term, refreshed.reports)).await
    }

    /// Sends the events about stale pod groups that are due; of new ones with the shares, as cycles may follow one another quickly.
    fn report_stale(&mut self) {
        let engine = &self.intake.core.engine;
        let stale = self.term().map(|_| engine.stale_groups()).unwrap_or_default();
        let due = self.stale.due(stale, Instant::now());
        for note in orders::stale(&due, engine.model(), &self.context.settings) {
            self.bus.events.send(note);
        }
    }

    /// Sends the decisions to the other components, binds first: users wait for them.
    async fn pass_on(&mut self, mut decisions: Decisions, term: u64) -> Result<(), Error> {
        let words = self.context.settings.messages;
        let order = orders::order(&mut decisions, &self.intake.core.mirror, &self.nodes, term, words);
        if !order.binds.is_empty() || !order.evictions.is_empty() {
            deliver(&self.bus.binder, ToBinder::Order(order)).await?;
        }
        // Before a shutdown can come between: what is ordered may be carried out.
        if !decisions.times.is_empty() {
            let times = std::mem::take(&mut decisions.times);
            deliver(&self.bus.grouper, ToGrouper::Times(term, times)).await?;
        }
        for note in orders::pipelined(&decisions.pipeline, &self.context.settings) {
            self.bus.events.send(note);
        }
        let model = self.intake.core.engine.model();
        reports::complete(&mut decisions.unschedulable, model, &self.stores, &self.nodes);
        let obstacles = orders::obstacles(&mut decisions);
        if !obstacles.is_empty() {
            deliver(&self.bus.podgroups, ToPodGroups::Obstacles(obstacles)).await?;
        }
        if !decisions.unschedulable.is_empty() {
            // A gang that lacks pods has not been tried.
            let tried = decisions.unschedulable.iter().filter(|report| !report.not_ready);
            let groups = tried.map(|report| report.group.clone()).collect();
            deliver(&self.bus.grouper, ToGrouper::Waiting(groups)).await?;
            deliver(&self.bus.podgroups, ToPodGroups::Waiting(term, decisions.unschedulable)).await?;
        }
        if !decisions.cleared.is_empty() {
            deliver(&self.bus.podgroups, ToPodGroups::Cleared(term, decisions.cleared)).await?;
        }
        Ok(())
    }
}
