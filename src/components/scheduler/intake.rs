//! Applies changes to mirror and engine, so that no single object stops scheduling: if mirror or engine panics at an object, that is set aside, and both are
//! rebuilt from all other objects.
//!
//! After a cycle that panics, mirror and engine are rebuilt, and the next cycle decides. If that one panics, too, the pod group
//! that was being placed is set aside until it changes. The third panic in a row without such a pod group ends the process.
//!
//! Messages that were sent before a rebuild and arrive after it may have older states than the stores had: those are passed over. So the rebuild does what they
//! would have done: it forgets objects that are gone, reports what it cannot use, and holds back nodes that come from other node pools.
//!
//! Decisions that the API server does not show yet are not in the rebuilt model, so the next cycle waits for them. Retry delays after failed binds and evictions are
//! copied to the new model, and it is told which pod groups were reported as waiting, so that it clears those reports.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::mpsc;
use tracing::{error, warn};

use crate::components::bus::{Object, Position};
use crate::components::panics;
use crate::components::retry;
use crate::components::scheduler::arrivals::Arrivals;
use crate::components::scheduler::second_model::{Origin, ToSecondModel};
use crate::components::watches::Included;
use crate::engine::decision::Decisions;
use crate::engine::input::{Event, GroupKey, Name, Time};
use crate::engine::model::pod::Assumed;
use crate::engine::policy::Policy;
use crate::engine::stage::Observer;
use crate::mirror::aside::{Identity, ObjectKey};
use crate::mirror::{self, Packed, PackedChange, PackedObject, Rejection, packed};
use crate::scheduler_core::SchedulerCore;

/// How long to wait for open binds and evictions after a rebuild, in milliseconds. Their requests have timed out by then.
const MAX_WAIT: i64 = 60_000;
/// A clock that goes back by less, in milliseconds, has no effect.
const CLOCK_TOLERANCE: i64 = 1_000;
/// Limit on the messages that wait for a second model. A self-check whose model is further behind is given up.
const MESSAGES_MAX: usize = 16_384;
/// After so many panics of cycles in a row without a pod group as the cause, the process ends.
const FAILURES: u32 = 3;

/// Mirror and engine, and what is needed to rebuild them.
pub struct Intake {
    pub core: SchedulerCore,
    /// Messages to the second model of a self-check, while one runs.
    pub second_model: Option<mpsc::Sender<ToSecondModel>>,
    /// Nodes that mirror and engine do not know yet.
    pub arrivals: Arrivals,
    settings: mirror::Settings,
    policy: Policy,
    /// Pods of which the creation is requested.
    requested: Vec<Arc<packed::Pod>>,
    /// The last usage of queues that the engine got.
    usage: Vec<(Name, [i64; 3])>,
    /// Pod groups that were reported as waiting and not cleared since. Recorded here, because a cycle that panics has cleared reports in vain.
    reported: BTreeSet<GroupKey>,
    /// Decisions from before the last rebuild that the API server does not show yet.
    under_way: Vec<(Name, Assumed)>,
    /// Until when cycles wait for them.
    deadline: Time,
    /// The latest time of day that was seen.
    latest: Time,
    /// The changes that mirror and engine were built with: messages about these may still arrive, with older states of their objects.
    included: Included,
    /// How many cycles in a row have panicked.
    failed: u32,
    /// How many of them without a pod group as the cause.
    unexplained: u32,
}

/// The result of a change.
#[derive(Debug, Default)]
pub struct Taken {
    /// The engine's input has changed.
    pub told: bool,
    /// Parts of objects that could not be used.
    pub rejections: Vec<Rejection>,
    /// Objects that are not set aside any more.
    pub released: Vec<ObjectKey>,
    /// Objects that are set aside because mirror or engine panicked.
    pub failed_objects: Vec<Identity>,
    /// The pod group that is set aside from now on.
    pub failed_group: Option<GroupKey>,
}

impl Taken {
    fn join(&mut self, other: Self) {
        self.told |= other.told;
        self.rejections.extend(other.rejections);
        self.released.extend(other.released);
        self.failed_objects.extend(other.failed_objects);
        self.failed_group = other.failed_group.or(self.failed_group.take());
    }
}

/// A cycle that panicked, without decisions.
pub struct Failed {
    /// The text of the panic.
    pub panic: String,
    /// The result of the rebuild.
    pub taken: Taken,
    /// The process is to end.
    pub for_good: bool,
}

/// Calls a function with each object in the stores; returns how many changes of each kind they include.
pub type Everything<'a> = dyn Fn(&mut dyn FnMut(Object)) -> Included + 'a;

impl Intake {
    /// Without objects.
    #[must_use]
    pub fn new(settings: mirror::Settings, policy: Policy) -> Self {
        Self {
            core: SchedulerCore::new(settings.clone(), policy.clone()),
            second_model: None,
            arrivals: Arrivals::new(settings.shard.clone()),
            settings,
            policy,
            requested: Vec::new(),
            usage: Vec::new(),
            reported: BTreeSet::new(),
            under_way: Vec::new(),
            deadline: Time(0),
            latest: Time(i64::MIN),
            included: Included::new(),
            failed: 0,
            unexplained: 0,
        }
    }

    /// Applies these settings and this policy. Other settings select other objects, so mirror and engine are rebuilt, and the next cycle waits for
    /// earlier decisions.
    pub fn follow(
        &mut self,
        settings: &mirror::Settings,
        policy: &Policy,
        now: Time,
        everything: &Everything,
    ) -> Taken {
        let mut taken = Taken::default();
        let changed = self.policy != *policy;
        self.policy.clone_from(policy);
        if self.settings != *settings {
            self.settings.clone_from(settings);
            self.begin_anew(now, everything, &mut taken);
        } else if changed {
            self.second_model = None;
            self.core.engine.set_policy(policy.clone());
            taken.told = true;
        }
        taken
    }

    /// Rebuilds mirror and engine if the clock has been set back. The model moves forward in time only: a terminating pod that counts as stuck, for
    /// example, would stay so although it is not yet.
    pub fn follow_clock(&mut self, now: Time, everything: &Everything) -> Taken {
        let back_ms = self.latest.0.saturating_sub(now.0);
        if back_ms < CLOCK_TOLERANCE {
            self.latest = self.latest.max(now);
            return Taken::default();
        }
        warn!(back_ms, "the clock has been set back; the model is rebuilt");
        self.latest = now;
        self.rebuild(now, everything)
    }

    /// Sets an object aside that could not be packed, if the model was not built with its change. Neither mirror nor engine has been changed.
    pub fn unreadable(&mut self, object: Identity, panic: &str, position: Position) -> Taken {
        let mut taken = Taken::default();
        if !self.includes(position) {
            self.set_aside(object, panic, &mut taken);
        }
        taken
    }

    /// Sets an object aside at which mirror or engine panicked.
    fn set_aside(&mut self, object: Identity, panic: &str, taken: &mut Taken) {
        let (ns, name) = object.names();
        error!(
            kind = object.kind,
            ns,
            name,
            error = panic,
            "the scheduler failed when it read this object; it is set aside until it changes"
        );
        self.core.mirror.aside.set_object_aside(&object);
        taken.failed_objects.push(object);
    }

    /// Whether the model was built with a change. Its object may have changed since, which the model shows already.
    fn includes(&self, position: Position) -> bool {
        self.included
            .get(&position.kind)
            .is_some_and(|number| position.number <= *number)
    }

    /// Applies a change, which has a position if it comes from a watch. Not if the model was built with it, or if it is one of a node that is held back.
    pub fn change(
        &mut self,
        change: &PackedChange,
        position: Option<Position>,
        now: Time,
        everything: &Everything,
    ) -> Taken {
        let included = position.is_some_and(|position| self.includes(position));
        if included || self.arrivals.holds_back(change) {
            return Taken::default();
        }
        self.apply(change, now, everything)
    }

    /// Applies the nodes that need not be held back any longer.
    pub fn admit_nodes(&mut self, now: Time, everything: &Everything) -> Taken {
        let mut taken = Taken::default();
        while let Some(change) = self.arrivals.next_due() {
            taken.join(self.apply(&change, now, everything));
        }
        taken
    }

    fn apply(&mut self, change: &PackedChange, now: Time, everything: &Everything) -> Taken {
        let mut taken = Taken::default();
        if let Some(second_model) = &self.second_model
            && second_model
                .try_send(ToSecondModel::Change(change.clone(), now))
                .is_err()
        {
            self.second_model = None;
        }
        if let Err(panic) = self.attempt(change, now, &mut taken) {
            self.set_aside(Identity::of(change), &panic, &mut taken);
            self.begin_anew(now, everything, &mut taken);
        }
        if let PackedChange::Applied(PackedObject::Pod(pod)) | PackedChange::Deleted(PackedObject::Pod(pod)) = change
            && let Some(requested) = self.requested.iter().find(|requested| requested.key == pod.key)
        {
            // It has no effect if the pod of the name still holds its GPU.
            let requested = PackedChange::Requested(Arc::clone(requested));
            taken.join(self.apply(&requested, now, everything));
        }
        taken
    }

    /// Applies a pod that is about to be created, until its creation is settled.
    pub fn requested(&mut self, pod: Arc<Pod>, now: Time, everything: &Everything) -> Taken {
        let pod = Packed::pack(pod);
        self.requested.push(Arc::clone(&pod));
        self.apply(&PackedChange::Requested(pod), now, everything)
    }

    /// Removes a pod that was about to be created, unless a watch has shown it.
    pub fn settled(&mut self, pod: Arc<Pod>, now: Time, everything: &Everything) -> Taken {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.requested.retain(|requested| *requested.pod.uid != *uid);
        let change = PackedChange::Deleted(PackedObject::Pod(Packed::pack(pod)));
        self.apply(&change, now, everything)
    }

    /// Evaluates some of the CEL selectors of devices that are not evaluated yet.
    pub fn ask_selectors(&mut self, now: Time, everything: &Everything) -> Taken {
        let mut taken = Taken::default();
        let asked = panics::catch(|| {
            let output = self.core.mirror.ask_selectors();
            taken.told = self.core.forward(output, now).changed;
        });
        if let Err(panic) = asked {
            error!(error = panic, "selectors of devices failed; the model is rebuilt");
            self.begin_anew(now, everything, &mut taken);
        }
        taken
    }

    /// Applies an event that does not come from an object.
    pub fn tell(&mut self, event: Event, now: Time, everything: &Everything) -> Taken {
        let mut taken = Taken {
            told: true,
            ..Taken::default()
        };
        if let Event::Unbound { pod, .. } | Event::Unevicted { pod, .. } = &event {
            self.under_way.retain(|(other, _)| other != pod);
        }
        if let Event::Usage(usage) = &event {
            self.usage.clone_from(usage);
        }
        let told = panics::catch(|| self.core.engine.apply(event, now));
        if let Err(panic) = told {
            error!(error = panic, "the model failed; it is rebuilt");
            self.begin_anew(now, everything, &mut taken);
        }
        taken
    }

    /// Runs a cycle.
    ///
    /// # Errors
    /// If it panicked.
    pub fn cycle(&mut self, now: Time, everything: &Everything, observer: Observer) -> Result<Decisions, Box<Failed>> {
        let mut worked = false;
        let decided = panics::catch(|| {
            self.core.cycle(now, &mut |stage| {
                worked = true;
                observer(stage);
            })
        });
        match decided {
            Ok(decisions) => {
                if worked {
                    (self.failed, self.unexplained) = (0, 0);
                }
                let waiting = decisions.unschedulable.iter().map(|report| report.group.clone());
                self.reported.extend(waiting);
                for group in &decisions.cleared {
                    self.reported.remove(group);
                }
                Ok(decisions)
            }
            Err(panic) => Err(Box::new(self.cycle_failed(panic, now, everything))),
        }
    }

    fn cycle_failed(&mut self, panic: String, now: Time, everything: &Everything) -> Failed {
        metrics::counter!("unikai_object_panics_total", "component" => "scheduler").increment(1);
        let serving = panics::catch(|| self.core.engine.placing()).ok().flatten();
        let group = serving.as_ref().map(ToString::to_string);
        error!(
            error = panic,
            group, "a cycle of the scheduler failed; the model is rebuilt"
        );
        self.failed += 1;
        let mut taken = Taken::default();
        if self.failed > 1 {
            taken.failed_group = serving.filter(|group| self.core.mirror.set_group_aside(group));
        }
        match &taken.failed_group {
            Some(group) => error!(%group, "the pod group is set aside until it changes"),
            None => self.unexplained += 1,
        }
        let for_good = self.unexplained >= FAILURES;
        if !for_good {
            self.begin_anew(now, everything, &mut taken);
            // It may be gone by now.
            let aside = &self.core.mirror.aside;
            taken.failed_group.take_if(|group| !aside.is_group_set_aside(group));
        }
        Failed { panic, taken, for_good }
    }

    fn attempt(&mut self, change: &PackedChange, now: Time, taken: &mut Taken) -> Result<(), String> {
        let applied = panics::catch(|| self.core.apply(change, now))?;
        taken.told |= applied.changed;
        taken.rejections.extend(applied.rejections);
        taken.released.extend(applied.released);
        Ok(())
    }

    /// Sends every change also to a second model from now on; returns what that is built from. `None`: objects are set aside after a panic, which the second
    /// model would not set aside.
    pub fn start_second_model(&mut self, now: Time) -> Option<(Origin, mpsc::Receiver<ToSecondModel>)> {
        if !self.core.mirror.aside.nothing_failed() {
            return None;
        }
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        self.second_model = Some(sender);
        let origin = Origin {
            settings: self.settings.clone(),
            policy: self.policy.clone(),
            groupings: self.core.mirror.groupings(),
            requested: self.requested.clone(),
            arrivals: self.arrivals.clone(),
            now,
        };
        Some((origin, messages))
    }

    /// Sends the digest of the model to the second one. False: the second one does not get the same changes any more.
    pub fn send_digest(&mut self, now: Time) -> bool {
        let Some(second_model) = &self.second_model else {
            return false;
        };
        if !self.core.mirror.aside.nothing_failed() {
            return false;
        }
        let Ok(digest) = panics::catch(|| self.core.engine.digest(now)) else {
            return false;
        };
        second_model
            .try_send(ToSecondModel::Digest(Box::new(digest), now))
            .is_ok()
    }

    /// Rebuilds mirror and engine, because the model differs from the stores.
    pub fn rebuild(&mut self, now: Time, everything: &Everything) -> Taken {
        let mut taken = Taken::default();
        self.begin_anew(now, everything, &mut taken);
        taken
    }

    /// Rebuilds mirror and engine. An object at which these panic is set aside and the rebuild starts again, so it ends.
    fn begin_anew(&mut self, now: Time, everything: &Everything, taken: &mut Taken) {
        self.second_model = None;
        let quietly = |what: &mut dyn FnMut()| panics::catch(what).is_ok();
        let mut under_way = Vec::new();
        quietly(&mut || under_way = self.core.engine.under_way());
        under_way.append(&mut self.under_way);
        let mut groupings = mirror::Groupings::default();
        quietly(&mut || groupings = self.core.mirror.groupings());
        let mut retries = Vec::new();
        quietly(&mut || retries = self.core.engine.retries());
        // A clock that was ahead when they were decided must not make them wait for longer.
        let longest = i64::try_from(retry::LONGEST.as_millis()).unwrap_or(i64::MAX);
        let latest = Time(now.0.saturating_add(longest));
        retries.iter_mut().for_each(|event| event.retry_by(latest));
        let limited = self.core.mirror.aside.limited().clone();
        let rejections = loop {
            match self.build(now, everything, taken) {
                Ok(rejections) => break rejections,
                Err((object, panic)) => self.set_aside(object, &panic, taken),
            }
        };
        let aside = &self.core.mirror.aside;
        let news = rejections.into_iter();
        let news = news.filter(|rejection| aside.is_news(rejection, &limited));
        taken.rejections.extend(news);
        taken.released.extend(aside.within_limits_again(&limited));
        for requested in &self.requested {
            let requested = PackedChange::Requested(Arc::clone(requested));
            self.core.mirror.aside.exists(&Identity::of(&requested));
            quietly(&mut || drop(self.core.apply(&requested, now)));
        }
        let adopted = quietly(&mut || {
            let output = self.core.mirror.adopt(std::mem::take(&mut groupings));
            self.core.forward(output, now);
        });
        if !adopted {
            warn!("groupings were lost; pods are scheduled once their pod groups are written");
        }
        quietly(&mut || {
            let output = self.core.mirror.forget_gone();
            taken.released.extend(self.core.forward(output, now).released);
        });
        quietly(&mut || {
            for event in retries.drain(..) {
                self.core.engine.apply(event, now);
            }
            self.core.engine.apply(Event::Usage(self.usage.clone()), now);
        });
        self.core.engine.continue_reports(self.reported.clone());
        taken.told = true;
        self.under_way = under_way;
        self.deadline = Time(now.0.saturating_add(MAX_WAIT));
    }

    /// Builds mirror and engine from the stores; returns what could not be used.
    ///
    /// # Errors
    /// An object that caused a panic, and the text of that.
    fn build(
        &mut self,
        now: Time,
        everything: &Everything,
        taken: &mut Taken,
    ) -> Result<Vec<Rejection>, (Identity, String)> {
        let mut core = SchedulerCore::new(self.settings.clone(), self.policy.clone());
        core.mirror.aside.follow(&self.core.mirror.aside);
        self.core = core;
        let (mut told, mut nodes, mut broken) = (Taken::default(), BTreeSet::new(), None);
        self.included = everything(&mut |object| {
            if broken.is_some() {
                return;
            }
            if let Object::Node(node) = &object {
                nodes.insert(node.name_any());
            }
            broken = self.read(object, now, &mut told).err();
        });
        taken.released.append(&mut told.released);
        taken.failed_objects.append(&mut told.failed_objects);
        if let Some(broken) = broken {
            return Err(broken);
        }
        self.arrivals.keep(&nodes);
        Ok(told.rejections)
    }

    /// Applies an object to new mirror and engine.
    fn read(&mut self, object: Object, now: Time, taken: &mut Taken) -> Result<(), (Identity, String)> {
        let kept = object.clone();
        if !self.core.mirror.aside.nothing_failed() {
            self.core.mirror.aside.exists(&kept.identity());
        }
        if let Object::Node(node) = &object
            && self.arrivals.holds(node)
        {
            return Ok(());
        }
        match panics::catch(|| mirror::packed_change(object, true)) {
            Ok(change) => self
                .attempt(&change, now, taken)
                .map_err(|panic| (kept.identity(), panic)),
            // Neither mirror nor engine has been changed. It fails in each rebuild, and is told once.
            Err(panic) => {
                let object = kept.identity();
                if !self.core.mirror.aside.has(&object) {
                    self.set_aside(object, &panic, taken);
                }
                Ok(())
            }
        }
    }

    /// Until when no cycle may run, because the API server does not show all decisions from before the last rebuild. `None` once it shows them.
    pub fn waits_until(&mut self, now: Time) -> Option<Time> {
        if now >= self.deadline {
            self.under_way.clear();
        }
        let engine = &self.core.engine;
        self.under_way.retain(|(pod, assumed)| !engine.shows(pod, assumed));
        (!self.under_way.is_empty()).then_some(self.deadline)
    }
}

#[cfg(test)]
pub(super) mod tests;
