//! The self-check: at a low rate, the model that is updated change by change is compared with one that is built from the stores of the watches, and its sums
//! are compared with its pods.
//!
//! The second model is built in a thread of its own. Before that begins, every change of the first model starts to be sent to the thread, and later the
//! [`Digest`](crate::engine::model::digest::Digest) of the first model, so that both are compared after the same changes. The stores may be ahead of the
//! scheduler while the second model reads them. So the comparison begins some time after that, and is repeated for objects that differ: only what differs
//! twice in the same way is reported. On the scheduler's thread, a step takes no longer than one part of the rules or one digest.

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

/// Time between two steps, and between two queries for an answer of the thread.
const STEP: Duration = Duration::from_millis(50);
/// Time between the end of building and the first comparison. By then the scheduler has got all that the stores showed.
const SETTLES: Duration = Duration::from_secs(2);
/// Time between the two comparisons.
const BETWEEN: Duration = Duration::from_secs(5);
/// A self-check is given up after this time.
const LONGEST: Duration = Duration::from_secs(120);
/// The pause after a self-check is at least so many times the time that it took, so that self-checks use at most a thousandth of a CPU.
const REST: u32 = 1_000;
/// Limit on the objects that are logged for one self-check.
const LOGGED: usize = 5;

/// The result of a self-check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Both models are the same.
    Same,
    /// They differ, or rules are broken.
    Differs,
    /// It could not be finished: too many changes at once, a new configuration, or objects that are set aside.
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
    /// The interval; zero: never.
    every: Duration,
    /// When the next step is due.
    due: Option<Instant>,
    running: Option<Run>,
    /// The model was rebuilt after the last self-check.
    rebuilt: bool,
}

/// A self-check that runs.
struct Run {
    began: Instant,
    /// The time that it took on both threads.
    worked: Duration,
    /// Broken rules, each with an example.
    broken: Vec<(String, String)>,
    stage: Stage,
}

enum Stage {
    /// The rules are checked, from this part on.
    Rules(usize),
    /// The second model is being built.
    Building(Worker),
    /// The second model gets changes until it is compared at the instant; these objects differed in the first comparison.
    Waiting(Worker, Instant, Option<Vec<Difference>>),
    /// The models are being compared; these objects differed in the first comparison.
    Comparing(Worker, Option<Vec<Difference>>),
}

/// The result of a step.
enum Step {
    Next(Stage),
    Ended(Ending, Vec<Difference>),
}

/// The findings of a self-check.
struct Ended {
    ending: Ending,
    differences: Vec<Difference>,
    broken: Vec<(String, String)>,
    worked: Duration,
}

impl SelfCheck {
    /// Self-checks of a shard's scheduler; the first begins after one interval.
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

    /// When the next step is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Does the next step. True: the model is to be rebuilt.
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
        let step = run.advance(intake, stores, now);
        run.worked += began.elapsed();
        let (ending, differences) = match step {
            Step::Next(stage) if run.began.elapsed() < LONGEST => {
                self.due = Some(match &stage {
                    Stage::Waiting(_, at, _) => *at,
                    Stage::Rules(_) | Stage::Building(_) | Stage::Comparing(..) => Instant::now() + STEP,
                });
                run.stage = stage;
                self.running = Some(run);
                return None;
            }
            Step::Next(_) => (Ending::GivenUp, Vec::new()),
            Step::Ended(ending, differences) => (ending, differences),
        };
        intake.second_model = None;
        self.due = Some(Instant::now() + self.every.max(run.worked * REST));
        Some(Ended {
            ending: if run.broken.is_empty() { ending } else { Ending::Differs },
            differences,
            broken: run.broken,
            worked: run.worked,
        })
    }

    /// Reports the findings in metrics and log. True: the model is to be rebuilt.
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
            error!(rule, example, "self-check: the model violates a rule");
        }
        let objects = ended.differences.len();
        for (at, difference) in ended.differences.iter().enumerate() {
            let of = difference.kind.as_str();
            self.count(of);
            if at < LOGGED {
                let text = |values: &Option<String>| values.clone().unwrap_or_else(|| "unknown".to_owned());
                let (name, model, rebuilt) = (&difference.name, text(&difference.left), text(&difference.right));
                error!(
                    of,
                    name, model, rebuilt, objects, "self-check: the model differs from the stores"
                );
            }
        }
        // If the check right after a rebuild finds something again, another rebuild does not help.
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
    fn advance(&mut self, intake: &mut Intake, stores: &Arc<Stores>, now: Time) -> Step {
        let given_up = || Step::Ended(Ending::GivenUp, Vec::new());
        match std::mem::replace(&mut self.stage, Stage::Rules(0)) {
            Stage::Rules(at) => {
                if let Some(part) = Part::ALL.get(at) {
                    self.check(intake, *part);
                    return Step::Next(Stage::Rules(at + 1));
                }
                match intake.start_second_model(now) {
                    Some((origin, messages)) => Worker::start(origin, Arc::clone(stores), messages)
                        .map_or_else(given_up, |worker| Step::Next(Stage::Building(worker))),
                    None => given_up(),
                }
            }
            Stage::Building(mut worker) => match worker.answer() {
                Ok(Some(built)) => {
                    self.worked += built.worked;
                    Step::Next(Stage::Waiting(worker, Instant::now() + SETTLES, None))
                }
                Ok(None) => Step::Next(Stage::Building(worker)),
                Err(why) => ended_early(&why),
            },
            Stage::Waiting(worker, _, before) => {
                if intake.core.mirror.selectors_wait() {
                    return Step::Next(Stage::Waiting(worker, Instant::now() + SETTLES, before));
                }
                if !intake.send_digest(now) {
                    return given_up();
                }
                Step::Next(Stage::Comparing(worker, before))
            }
            Stage::Comparing(mut worker, before) => {
                let compared = match worker.answer() {
                    Ok(Some(compared)) => compared,
                    Ok(None) => return Step::Next(Stage::Comparing(worker, before)),
                    Err(why) => return ended_early(&why),
                };
                self.worked += compared.worked;
                let mut differences = compared.differences;
                if let Some(before) = &before {
                    differences.retain(|difference| before.contains(difference));
                }
                match before {
                    _ if differences.is_empty() => Step::Ended(Ending::Same, differences),
                    Some(_) => Step::Ended(Ending::Differs, differences),
                    None => {
                        let at = Instant::now() + BETWEEN;
                        Step::Next(Stage::Waiting(worker, at, Some(differences)))
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
                    .extend(ours.map(|(rule, example)| (rule.to_string(), example)));
            }
            Err(panic) => self.broken.push((format!("{part:?}"), panic)),
        }
    }
}

fn ended_early(why: &str) -> Step {
    debug!(why, "self-check ended without a result");
    Step::Ended(Ending::GivenUp, Vec::new())
}

#[cfg(test)]
mod tests;
