//! Taking in what changed, so that no object stops the rest: where mirror or engine fails at one, it is set aside, and both are built anew from
//! everything that is known but for that object.
//!
//! A cycle that fails is no object's fault at first: mirror and engine are built anew, and the next cycle decides. If that one fails, too, the pod group
//! with which it was busy gets no places until it changes. Where there is none to blame, the third failure in a row is for the process to end with.
//!
//! What was decided and has not been seen yet is not in the new model. It is waited for before anything else is decided. Whom a failed bind or eviction
//! holds back is held back in the new model, too.

use tracing::{error, warn};

use crate::components::bus::Object;
use crate::components::panics;
use crate::engine::decision::Decisions;
use crate::engine::input::{Event, GroupKey, Name, Time};
use crate::engine::model::pod::Assumed;
use crate::engine::policy::Policy;
use crate::engine::stage::Observer;
use crate::mirror::aside::Identity;
use crate::mirror::{self, PackedChange, Rejection};
use crate::scheduler_core::SchedulerCore;

/// How long binds and evictions that were under way are waited for at most, in milliseconds. Their requests have given up by then.
const PATIENCE: i64 = 60_000;
/// So many cycles may fail in a row with no pod group to blame.
const FAILURES: u32 = 3;

/// Mirror and engine, and what both need to begin anew.
pub struct Intake {
    /// Mirror and engine.
    pub core: SchedulerCore,
    settings: mirror::Settings,
    policy: Policy,
    /// What queues have used, as the engine was told last.
    usage: Vec<(Name, [i64; 3])>,
    /// What was decided before the last beginning and has not been seen since.
    under_way: Vec<(Name, Assumed)>,
    /// Until when it is waited for.
    patience: Time,
    /// Cycles that failed since the last one that did not.
    failed: u32,
    /// Those of them that were not explained by a pod group.
    unexplained: u32,
}

/// What came of a change.
#[derive(Debug, Default)]
pub struct Taken {
    /// The engine was told something.
    pub told: bool,
    /// What could not be used.
    pub rejections: Vec<Rejection>,
    /// Objects at which mirror or engine failed.
    pub left_out: Vec<Identity>,
    /// The pod group that gets no places from now on.
    pub held_back: Option<GroupKey>,
}

/// A cycle that failed. Nothing is decided.
pub struct Failed {
    /// The text of the panic.
    pub panic: String,
    /// What came of building the model anew.
    pub taken: Taken,
    /// Another attempt is worth nothing.
    pub for_good: bool,
}

/// Everything that is known at present, one change after the other.
pub type Everything<'a> = dyn Fn(&mut dyn FnMut(Object)) + 'a;

impl Intake {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(settings: mirror::Settings, policy: Policy) -> Self {
        Self {
            core: SchedulerCore::new(settings.clone(), policy.clone()),
            settings,
            policy,
            usage: Vec::new(),
            under_way: Vec::new(),
            patience: Time(0),
            failed: 0,
            unexplained: 0,
        }
    }

    /// Goes by these settings and this policy from now on. Other settings show other objects, so the model is built anew, and what was decided before
    /// is waited for.
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
            self.core.engine.set_policy(policy.clone());
            taken.told = true;
        }
        taken
    }

    /// Takes in an object that appeared or changed, or (`there` false) is gone.
    pub fn object(&mut self, object: Object, there: bool, now: Time, everything: &Everything) -> Taken {
        let kept = object.clone();
        let change = panics::catch(|| change(object, there));
        match change {
            Ok(change) => self.change(&change, now, everything),
            Err(panic) => {
                // Neither mirror nor engine has heard of it.
                let object = kept.identity();
                failed(&object, &panic);
                self.core.mirror.aside.leave_out(&object);
                Taken {
                    left_out: vec![object],
                    ..Taken::default()
                }
            }
        }
    }

    /// Takes in a change.
    pub fn change(&mut self, change: &PackedChange, now: Time, everything: &Everything) -> Taken {
        let mut taken = Taken::default();
        if let Err(panic) = self.attempt(change, now, &mut taken) {
            let object = Identity::of(change);
            failed(&object, &panic);
            self.core.mirror.aside.leave_out(&object);
            taken.left_out.push(object);
            self.begin_anew(now, everything, &mut taken);
        }
        taken
    }

    /// Gives selectors of devices their turn.
    pub fn ask_selectors(&mut self, now: Time, everything: &Everything) -> Taken {
        let mut taken = Taken::default();
        let asked = panics::catch(|| {
            let output = self.core.mirror.ask_selectors();
            taken.told = self.core.forward(output, now).changed;
        });
        if let Err(panic) = asked {
            error!(error = panic, "selectors of devices failed; the model is built anew");
            self.begin_anew(now, everything, &mut taken);
        }
        taken
    }

    /// Tells the engine something that no object says.
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
            error!(error = panic, "the model failed; it is built anew");
            self.begin_anew(now, everything, &mut taken);
        }
        taken
    }

    /// Has the engine decide what can be decided now.
    ///
    /// # Errors
    /// If it panicked.
    pub fn cycle(&mut self, now: Time, everything: &Everything, observer: Observer) -> Result<Decisions, Failed> {
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
                Ok(decisions)
            }
            Err(panic) => Err(self.cycle_failed(panic, now, everything)),
        }
    }

    fn cycle_failed(&mut self, panic: String, now: Time, everything: &Everything) -> Failed {
        metrics::counter!("unikai_object_panics_total", "component" => "scheduler").increment(1);
        let serving = panics::catch(|| self.core.engine.placing()).ok().flatten();
        let group = serving.as_ref().map(ToString::to_string);
        error!(
            error = panic,
            group, "a cycle of the scheduler failed; the model is built anew"
        );
        self.failed += 1;
        let mut taken = Taken::default();
        if self.failed > 1 {
            taken.held_back = serving.filter(|group| self.core.mirror.aside.hold_back(group));
        }
        match &taken.held_back {
            Some(group) => error!(%group, "the pod group is set aside until it changes"),
            None => self.unexplained += 1,
        }
        let for_good = self.unexplained >= FAILURES;
        if !for_good {
            self.begin_anew(now, everything, &mut taken);
        }
        Failed { panic, taken, for_good }
    }

    fn attempt(&mut self, change: &PackedChange, now: Time, taken: &mut Taken) -> Result<(), String> {
        let applied = panics::catch(|| self.core.apply(change, now))?;
        taken.told |= applied.changed;
        taken.rejections.extend(applied.rejections);
        Ok(())
    }

    /// Builds mirror and engine anew. Whatever fails on the way is left out too, so this ends.
    fn begin_anew(&mut self, now: Time, everything: &Everything, taken: &mut Taken) {
        let quietly = |what: &mut dyn FnMut()| panics::catch(what).is_ok();
        let mut under_way = Vec::new();
        quietly(&mut || under_way = self.core.engine.under_way());
        under_way.append(&mut self.under_way);
        let mut groupings = mirror::Groupings::default();
        quietly(&mut || groupings = self.core.mirror.groupings());
        let mut retries = Vec::new();
        quietly(&mut || retries = self.core.engine.retries());
        loop {
            let mut core = SchedulerCore::new(self.settings.clone(), self.policy.clone());
            core.mirror.aside.follow(&self.core.mirror.aside);
            self.core = core;
            let mut broken = None;
            everything(&mut |object| {
                if broken.is_some() {
                    return;
                }
                let kept = object.clone();
                let told = panics::catch(|| change(object, true))
                    .and_then(|change| self.attempt(&change, now, &mut Taken::default()));
                broken = told.err().map(|panic| (kept.identity(), panic));
            });
            let Some((object, panic)) = broken else { break };
            failed(&object, &panic);
            self.core.mirror.aside.leave_out(&object);
            taken.left_out.push(object);
        }
        let adopted = quietly(&mut || {
            let output = self.core.mirror.adopt(&groupings);
            self.core.forward(output, now);
        });
        if !adopted {
            warn!("pods are without their groups until these are written");
        }
        quietly(&mut || {
            for event in retries.drain(..) {
                self.core.engine.apply(event, now);
            }
            self.core.engine.apply(Event::Usage(self.usage.clone()), now);
        });
        taken.told = true;
        self.under_way = under_way;
        self.patience = Time(now.0.saturating_add(PATIENCE));
    }

    /// Until when nothing is to be decided, because it is not known what was decided before the last beginning; earlier if all of it is seen.
    pub fn waits_until(&mut self, now: Time) -> Option<Time> {
        if now >= self.patience {
            self.under_way.clear();
        }
        let engine = &self.core.engine;
        self.under_way.retain(|(pod, assumed)| !engine.shows(pod, assumed));
        (!self.under_way.is_empty()).then_some(self.patience)
    }
}

fn failed(object: &Identity, panic: &str) {
    let (ns, name) = object.names();
    error!(
        kind = object.kind,
        ns,
        name,
        error = panic,
        "the scheduler failed when it read this object; it is set aside until it changes"
    );
}

fn change(object: Object, there: bool) -> PackedChange {
    let object = object.into();
    if there {
        PackedChange::Applied(object)
    } else {
        PackedChange::Deleted(object)
    }
}

#[cfg(test)]
mod tests;
