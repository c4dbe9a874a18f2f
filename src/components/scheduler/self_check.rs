//! The self-check: at a low rate, the model that follows changes one by one is compared with one that is built anew from the watches' stores, and its sums with
//! its pods.
//!
//! The second model is built in a thread of its own. From the moment before it begins, that thread is sent every change that the scheduler takes in, then what
//! the scheduler's model amounts to ([`Digest`](crate::engine::model::digest::Digest)), so that both are compared after the same changes. The stores may be ahead
//! of the scheduler when the second model reads them; so it is compared some time after that, and what differs is compared once more: only what differs
//! twice in the same way is reported. The scheduler's thread does no more at a time than one part of the rules or one digest.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, error};

use super::intake::Intake;
use super::second_model::Worker;
use crate::clock;
use crate::components::figures::families::SELF_CHECK_FINDS;
use crate::components::panics;
use crate::components::watches::Stores;
use crate::engine::input::Time;
use crate::engine::model::check::Part;
use crate::engine::model::digest::Difference;

/// Between two steps, and between two looks at what the thread has come to.
const STEP: Duration = Duration::from_millis(50);
/// After the second model was built, before the first comparison: what the stores showed by then has reached the scheduler.
const SETTLES: Duration = Duration::from_secs(2);
/// Between both comparisons.
const BETWEEN: Duration = Duration::from_secs(5);
/// A self-check is given up after this time.
const LONGEST: Duration = Duration::from_secs(120);
/// A self-check is followed by so many times the time that it worked, or more: no more than a thousandth of a CPU is spent on it.
const REST: u32 = 1_000;
/// Differences that are logged of one self-check.
const LOGGED: usize = 5;

/// What a self-check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Both models are the same.
    Same,
    /// They differ, or rules are broken.
    Differs,
    /// It could not be finished: the scheduler was too busy, its configuration changed, or objects are set aside.
    GivenUp,
}

impl Ending {
    fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::GivenUp => "given_up",
        }
    }
}

/// The self-checks of one scheduler.
pub struct SelfCheck {
    shard: String,
    /// How often; zero: never.
    every: Duration,
    /// When there is something to do next.
    due: Option<Instant>,
    running: Option<Run>,
    /// The last self-check that ended had the model built anew.
    rebuilt: bool,
}

/// A self-check that runs.
struct Run {
    began: Instant,
    /// Time that the scheduler's thread and the other one have worked on it.
    worked: Duration,
    /// Broken rules, each with an example.
    broken: Vec<(String, String)>,
    stage: Stage,
}

enum Stage {
    /// Rules are checked, from this part on.
    Rules(usize),
    /// The second model is being built.
    Builds(Worker),
    /// It is built, and compared at that instant; these objects differed before.
    Follows(Worker, Instant, Option<Vec<Difference>>),
    /// Digests are being compared; these objects differed before.
    Compares(Worker, Option<Vec<Difference>>),
}

/// What goes on after a step.
enum Next {
    Stage(Stage),
    Ended(Ending, Vec<Difference>),
}

/// A self-check that has ended.
struct Ended {
    ending: Ending,
    differences: Vec<Difference>,
    broken: Vec<(String, String)>,
    worked: Duration,
}

impl SelfCheck {
    /// The first self-check begins after that time.
    #[must_use]
    pub fn new(shard: &str, every: Duration) -> Self {
        // Created at the start, so that the first difference is an increase.
        for of in SELF_CHECK_FINDS {
            metrics::counter!("unikai_self_check_differences_total", "shard" => shard.to_owned(), "of" => of)
                .increment(0);
        }
        Self {
            shard: shard.to_owned(),
            every,
            due: (!every.is_zero()).then(|| Instant::now() + every),
            running: None,
            rebuilt: false,
        }
    }

    /// When there is something to do.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Does what is due. True: the model is to be built anew.
    pub fn step(&mut self, intake: &mut Intake, stores: &Arc<Stores>, now: Time) -> bool {
        self.advance(intake, stores, now)
            .is_some_and(|ended| self.report(&ended))
    }

    fn advance(&mut self, intake: &mut Intake, stores: &Arc<Stores>, now: Time) -> Option<Ended> {
        let began = Instant::now();
        let mut run = self.running.take().unwrap_or_else(|| Run {
            began,
            worked: Duration::ZERO,
            broken: Vec::new(),
            stage: Stage::Rules(0),
        });
        let next = run.advance(intake, stores, now);
        run.worked += began.elapsed();
        let (ending, differences) = match next {
            Next::Stage(stage) if run.began.elapsed() < LONGEST => {
                self.due = Some(match &stage {
                    Stage::Follows(_, at, _) => *at,
                    Stage::Rules(_) | Stage::Builds(_) | Stage::Compares(..) => Instant::now() + STEP,
                });
                run.stage = stage;
                self.running = Some(run);
                return None;
            }
            Next::Stage(_) => (Ending::GivenUp, Vec::new()),
            Next::Ended(ending, differences) => (ending, differences),
        };
        intake.follower = None;
        self.due = Some(Instant::now() + self.every.max(run.worked * REST));
        Some(Ended {
            ending: if run.broken.is_empty() { ending } else { Ending::Differs },
            differences,
            broken: run.broken,
            worked: run.worked,
        })
    }

    /// Tells metrics and log. True: the model is to be built anew.
    fn report(&mut self, ended: &Ended) -> bool {
        let Ended { ending, worked, .. } = *ended;
        let shard = || self.shard.clone();
        metrics::counter!("unikai_self_checks_total", "shard" => shard(), "result" => ending.as_str()).increment(1);
        metrics::gauge!("unikai_self_check_timestamp_seconds", "shard" => shard())
            .set(clock::now().as_millisecond() as f64 / 1e3);
        metrics::gauge!("unikai_self_check_duration_seconds", "shard" => shard()).set(worked.as_secs_f64());
        debug!(result = ending.as_str(), ?worked, "self-check");
        for (rule, example) in &ended.broken {
            self.count("rule");
            error!(rule, example, "self-check: the model breaks a rule");
        }
        let objects = ended.differences.len();
        for (at, difference) in ended.differences.iter().enumerate() {
            let of = difference.kind.as_str();
            self.count(of);
            if at < LOGGED {
                let text = |said: &Option<String>| said.clone().unwrap_or_else(|| "unknown".to_owned());
                let (name, model, rebuilt) = (&difference.name, text(&difference.left), text(&difference.right));
                error!(
                    of,
                    name, model, rebuilt, objects, "self-check: the model differs from what the stores show"
                );
            }
        }
        // What comes back right after the model was built anew does not go away by that.
        let again = ending == Ending::Differs && !self.rebuilt;
        if ending != Ending::GivenUp {
            self.rebuilt = again;
        }
        again
    }

    fn count(&self, of: &'static str) {
        metrics::counter!("unikai_self_check_differences_total", "shard" => self.shard.clone(), "of" => of)
            .increment(1);
    }
}

impl Run {
    fn advance(&mut self, intake: &mut Intake, stores: &Arc<Stores>, now: Time) -> Next {
        let given_up = || Next::Ended(Ending::GivenUp, Vec::new());
        match std::mem::replace(&mut self.stage, Stage::Rules(0)) {
            Stage::Rules(at) => {
                if let Some(part) = Part::ALL.get(at) {
                    self.check(intake, *part);
                    return Next::Stage(Stage::Rules(at + 1));
                }
                match intake.follow_by_another(now) {
                    Some((origin, told)) => Worker::start(origin, Arc::clone(stores), told)
                        .map_or_else(given_up, |worker| Next::Stage(Stage::Builds(worker))),
                    None => given_up(),
                }
            }
            Stage::Builds(mut worker) => match worker.built() {
                Ok(Some(worked)) => {
                    self.worked += worked;
                    Next::Stage(Stage::Follows(worker, Instant::now() + SETTLES, None))
                }
                Ok(None) => Next::Stage(Stage::Builds(worker)),
                Err(why) => ended_early(&why),
            },
            Stage::Follows(mut worker, _, before) => {
                worker.go_on();
                if intake.core.mirror.selectors_wait() {
                    return Next::Stage(Stage::Follows(worker, Instant::now() + SETTLES, before));
                }
                if !intake.send_digest(now) {
                    return given_up();
                }
                Next::Stage(Stage::Compares(worker, before))
            }
            Stage::Compares(mut worker, before) => {
                let (mut differences, worked) = match worker.compared() {
                    Ok(Some(compared)) => compared,
                    Ok(None) => return Next::Stage(Stage::Compares(worker, before)),
                    Err(why) => return ended_early(&why),
                };
                self.worked += worked;
                match before {
                    _ if differences.is_empty() => Next::Ended(Ending::Same, differences),
                    None => {
                        let at = Instant::now() + BETWEEN;
                        Next::Stage(Stage::Follows(worker, at, Some(differences)))
                    }
                    Some(before) => {
                        differences.retain(|difference| before.contains(difference));
                        let same = differences.is_empty();
                        Next::Ended(if same { Ending::Same } else { Ending::Differs }, differences)
                    }
                }
            }
        }
    }

    fn check(&mut self, intake: &Intake, part: Part) {
        let model = intake.core.engine.model();
        match panics::catch(|| model.broken_rules_of(part)) {
            Ok(broken) => {
                let ours = broken
                    .into_iter()
                    .filter(|(rule, _)| !rule.can_be_broken_from_outside());
                self.broken
                    .extend(ours.map(|(rule, example)| (format!("{rule:?}"), example)));
            }
            Err(panic) => self.broken.push((format!("{part:?}"), panic)),
        }
    }
}

fn ended_early(why: &str) -> Next {
    debug!(why, "self-check given up");
    Next::Ended(Ending::GivenUp, Vec::new())
}

#[cfg(test)]
mod tests;
