//! The times of a cycle and of its stages, for metrics, traces and the heartbeat. The engine has no clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::components::heartbeat::Heartbeat;
use crate::engine::policy::ActionKind;
use crate::engine::stage::{SearchEnd, Searcher, Stage};
use crate::{clock, random};

/// A cycle that takes longer than this counts as stuck: it may have no end.
const LONGEST: Duration = Duration::from_mins(2);

/// The longest time without searches.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A cycle, and when each of its stages was reached.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// When it began, by the wall clock.
    pub began_at: SystemTime,
    began: Instant,
    reached: Vec<(Duration, Stage)>,
    /// The time of its searches in a simulation, which the clock does not show.
    simulated: Duration,
    heartbeat: Heartbeat,
    /// Its duration, once it is over.
    pub took: Duration,
}

impl Timeline {
    /// A cycle that begins now, on the thread of this heartbeat.
    #[must_use]
    pub fn begin(heartbeat: Heartbeat) -> Self {
        Self {
            began_at: clock::system_time(),
            began: Instant::now(),
            reached: Vec::new(),
            simulated: Duration::ZERO,
            heartbeat,
            took: Duration::ZERO,
        }
    }

    /// A stage has been reached. For the heartbeat the next one is another piece of work: on a busy machine a cycle with many searches may take longer than the
    /// Lease lasts, and another process would not be faster.
    pub fn reach(&mut self, stage: Stage) {
        if matches!(stage, Stage::Searched { .. }) {
            self.simulated += random::time_of_search();
        }
        let at = self.elapsed();
        if at <= LONGEST {
            self.heartbeat.work();
        }
        if stage != Stage::Tried {
            self.reached.push((at, stage));
        }
    }

    /// The cycle is over.
    pub fn end(&mut self) {
        self.took = self.elapsed();
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed() + self.simulated
    }

    /// The engine had something to do.
    #[must_use]
    pub fn worked(&self) -> bool {
        !self.reached.is_empty()
    }

    /// The steps of the engine, one after the other: name, begin and end since the begin of the cycle.
    #[must_use]
    pub fn steps(&self) -> Vec<(&'static str, Duration, Duration)> {
        let mut steps = Vec::new();
        let mut last = Duration::ZERO;
        for &(at, stage) in &self.reached {
            let name = match stage {
                Stage::Prepared => "prepare",
                Stage::Divided => "divide",
                Stage::Ended(action) => action.as_str(),
                Stage::Finished => "finish",
                Stage::Tried | Stage::Placed(_) | Stage::Searched { .. } | Stage::TakenUp { .. } => continue,
            };
            steps.push((name, last, at));
            last = at;
        }
        steps
    }

    /// The searches for victims: action, whether it succeeded, begin and end since the begin of the cycle.
    pub fn searches(&self) -> impl Iterator<Item = (Searcher, bool, Duration, Duration)> {
        let before = std::iter::once(Duration::ZERO).chain(self.reached.iter().map(|(at, _)| *at));
        before
            .zip(&self.reached)
            .filter_map(|(begin, &(end, stage))| match stage {
                Stage::Searched { searcher, solved, .. } => Some((searcher, solved, begin, end)),
                _ => None,
            })
    }

    /// For how long there should be no searches after this cycle: in the long run, searches that find nothing take a fifth of a CPU.
    #[must_use]
    pub fn pause_of_searches(&self) -> Duration {
        let in_vain = self.searches().filter(|(_, solved, ..)| !solved);
        let took: Duration = in_vain.map(|(_, _, begin, end)| end - begin).sum();
        (4 * took).min(LONGEST_PAUSE)
    }

    /// Records the metrics.
    pub fn record(&self) {
        metrics::counter!("unikai_cycles_total").increment(1);
        metrics::histogram!("unikai_cycle_duration_seconds").record(self.took);
        metrics::gauge!("kai_e2e_scheduling_latency_milliseconds").set(milliseconds(self.took));
        if self.worked() {
            self.record_steps();
            self.record_searches();
        }
    }

    fn record_steps(&self) {
        let (mut open, mut close) = (Duration::ZERO, Duration::ZERO);
        for (name, begin, end) in self.steps() {
            let took = end - begin;
            match name {
                "prepare" => open += took,
                "divide" => {
                    open += took;
                    let labels = [("plugin", "proportion"), ("OnSession", "OnSessionOpen")];
                    metrics::gauge!("kai_plugin_scheduling_latency_milliseconds", &labels).set(milliseconds(took));
                }
                // The rest of the time is that of sending the decisions.
                "finish" => close += self.took - begin,
                action => {
                    metrics::gauge!("kai_action_scheduling_latency_milliseconds", "action" => action)
                        .set(milliseconds(took));
                }
            }
        }
        metrics::gauge!("kai_open_session_latency_milliseconds").set(milliseconds(open));
        metrics::gauge!("kai_close_session_latency_milliseconds").set(milliseconds(close));
    }

    fn record_searches(&self) {
        let mut last = Duration::ZERO;
        let mut out_of_steps: Option<ActionKind> = None;
        for &(at, stage) in &self.reached {
            match stage {
                Stage::Placed(action) => {
                    metrics::counter!("kai_podgroups_scheduled_by_action", "action" => action.as_str()).increment(1);
                    if action == ActionKind::Preempt {
                        metrics::counter!("kai_total_preemption_attempts").increment(1);
                    }
                }
                Stage::Searched {
                    action,
                    searcher,
                    solved,
                    work,
                } => {
                    let (action, generator) = (action.as_str(), searcher.as_str());
                    let result = if solved { "solved" } else { "generators_exhausted" };
                    let labels = [("action", action), ("generator", generator), ("result", result)];
                    metrics::histogram!("kai_scenario_search_duration_seconds", &labels).record(at - last);
                    let (simulated, repeated) = (work.candidates_simulated, work.candidates_repeated);
                    metrics::counter!("kai_scenarios_simulation_by_action", "action" => action).increment(simulated);
                    metrics::counter!("kai_scenarios_filtered_by_action", "action" => action).increment(repeated);
                    let states = [
                        ("emitted", simulated + repeated),
                        ("simulated", simulated),
                        ("duplicate", repeated),
                        ("validator_rejected", work.candidates_refused),
                    ];
                    for (state, count) in states {
                        let labels = [("action", action), ("generator", generator), ("state", state)];
                        metrics::counter!("kai_scenario_search_scenarios_total", &labels).increment(count);
                    }
                }
                Stage::TakenUp { action, end } => {
                    if end != SearchEnd::Skipped {
                        metrics::counter!("kai_podgroups_acted_on_by_action", "action" => action.as_str()).increment(1);
                    }
                    if let Some(result) = word(end) {
                        let labels = [
                            ("action", action.as_str()),
                            ("result", result),
                            ("reduced_budget", "false"),
                        ];
                        metrics::counter!("kai_scenario_search_jobs_total", &labels).increment(1);
                    }
                    if end == SearchEnd::OutOfSteps {
                        out_of_steps = Some(action);
                    }
                }
                Stage::Ended(_) => {
                    if let Some(action) = out_of_steps.take() {
                        let action = action.as_str();
                        metrics::counter!("kai_scenario_search_action_budget_exhausted_total", "action" => action)
                            .increment(1);
                    }
                }
                Stage::Prepared | Stage::Divided | Stage::Tried | Stage::Finished => {}
            }
            last = at;
        }
    }
}

/// The result of a search in metrics; `None` if none was due.
fn word(end: SearchEnd) -> Option<&'static str> {
    match end {
        SearchEnd::Solved => Some("solved"),
        SearchEnd::Exhausted => Some("generators_exhausted"),
        SearchEnd::OutOfSteps => Some("deadline_exhausted"),
        SearchEnd::NoGenerator => Some("no_generator"),
        SearchEnd::NotAttempted => Some("not_attempted"),
        SearchEnd::RuledOut | SearchEnd::Skipped => None,
    }
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::engine::decision::Work;

    #[tokio::test(start_paused = true)]
    async fn skipped_pod_groups_are_not_counted_and_those_ruled_out_not_as_searches() {
        let mut timeline = Timeline::begin(Heartbeat::default());
        for end in [
            SearchEnd::Solved,
            SearchEnd::Exhausted,
            SearchEnd::OutOfSteps,
            SearchEnd::NoGenerator,
            SearchEnd::NotAttempted,
            SearchEnd::RuledOut,
            SearchEnd::Skipped,
        ] {
            let action = ActionKind::Preempt;
            timeline.reach(Stage::TakenUp { action, end });
        }
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || timeline.record());
        let page = recorder.handle().render();
        let series = |name: &str| {
            let lines = page.lines().filter_map(|line| line.strip_prefix(name));
            lines.filter(|line| line.starts_with('{')).collect::<Vec<_>>()
        };
        let acted_on = series("kai_podgroups_acted_on_by_action");
        assert_eq!(acted_on, ["{action=\"preempt\"} 6"], "{page}");
        let mut searches = series("kai_scenario_search_jobs_total");
        searches.sort_unstable();
        let results = [
            "deadline_exhausted",
            "generators_exhausted",
            "no_generator",
            "not_attempted",
            "solved",
        ];
        let wanted =
            results.map(|result| format!("{{action=\"preempt\",result=\"{result}\",reduced_budget=\"false\"}} 1"));
        assert_eq!(searches, wanted, "{page}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cycle_counts_as_stuck_if_it_makes_no_progress_or_does_not_end() {
        let heartbeat = Heartbeat::default();
        heartbeat.work();
        let mut timeline = Timeline::begin(heartbeat.clone());
        for _ in 0..5 {
            tokio::time::advance(Duration::from_secs(10)).await;
            assert_eq!(heartbeat.busy_for(), Duration::from_secs(10));
            timeline.reach(Stage::Placed(ActionKind::Reclaim));
            assert_eq!(heartbeat.busy_for(), Duration::ZERO);
            tokio::time::advance(Duration::from_secs(5)).await;
            timeline.reach(Stage::Tried);
            assert_eq!(heartbeat.busy_for(), Duration::ZERO);
        }
        assert_eq!(timeline.reached.len(), 5, "those that only fail are not kept");
        assert_eq!(timeline.searches().count(), 0);
        tokio::time::advance(LONGEST).await;
        timeline.reach(Stage::Placed(ActionKind::Reclaim));
        assert_eq!(heartbeat.busy_for(), LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn searches_pause_for_four_times_as_long_as_those_in_vain_took() {
        let mut timeline = Timeline::begin(Heartbeat::default());
        let mut pause_after = async |took_ms, solved| {
            tokio::time::advance(Duration::from_millis(took_ms)).await;
            timeline.reach(Stage::Searched {
                action: ActionKind::Reclaim,
                searcher: Searcher::MultiNodeGang,
                solved,
                work: Work::default(),
            });
            timeline.pause_of_searches().as_millis()
        };
        assert_eq!(pause_after(70, true).await, 0);
        assert_eq!(pause_after(30, false).await, 120);
        assert_eq!(pause_after(20, false).await, 200);
        assert_eq!(pause_after(10_000, false).await, 1_000);
    }

    /// Otherwise no simulation would see what pauses of searches do: computing takes no time there.
    #[tokio::test(start_paused = true)]
    async fn searches_take_time_in_a_simulation() {
        random::seed(Some(1));
        let mut timeline = Timeline::begin(Heartbeat::default());
        for _ in 0..10 {
            timeline.reach(Stage::Searched {
                action: ActionKind::Reclaim,
                searcher: Searcher::MultiNodeGang,
                solved: false,
                work: Work::default(),
            });
        }
        timeline.end();
        random::seed(None);
        assert!(!timeline.took.is_zero());
        assert_eq!(timeline.pause_of_searches(), 4 * timeline.took);
    }
}
