//! The report: how long jobs waited, how far the GPUs were used, and what queues held.

use std::collections::BTreeMap;

use serde::Serialize;

use super::occupancy::Occupancy;
use super::scenario::Job;
use super::timeline::Timeline;
use crate::engine::Engine;
use crate::engine::decision::GroupReport;
use crate::engine::input::{GPU, GroupKey, Millis};
use crate::engine::model::resources::GPUS;
use crate::engine::policy::ActionKind;
use crate::mirror::Rejection;

const GPU_HOUR: f64 = 3_600_000.0 * 1_000.0;

/// The report of a simulation. Amounts in GPUs, times in seconds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The duration in virtual time.
    pub seconds: f64,
    /// Jobs.
    pub jobs: JobCounts,
    /// GPUs of the cluster.
    pub gpus: f64,
    /// Mean share of the GPUs that are allocated.
    pub allocated_share: f64,
    /// Mean share of the free GPUs that are on nodes where a random job does not fit.
    pub fragmentation: f64,
    /// Why jobs still wait at the end: the first few, each with its reason.
    pub reasons: Vec<(String, String)>,
    /// Problems of the scenario's objects: the first few.
    pub problems: Vec<String>,
    /// From arrival to the first start, by the GPUs that jobs request.
    pub wait: Vec<Times>,
    /// From arrival to the end, by the GPUs that jobs request.
    pub completion: Vec<Times>,
    /// Pods that were evicted, by action.
    pub evictions: BTreeMap<String, u64>,
    /// GPU-hours of work that evictions lost.
    pub lost_gpu_hours: f64,
    /// Queues, in order of their names.
    pub queues: Vec<QueueReport>,
    /// Length of a step of the figures that follow.
    pub step_seconds: f64,
    /// Share of the GPUs that are allocated, step by step.
    pub allocated: Vec<f64>,
    /// Fragmentation, step by step.
    pub fragmented: Vec<f64>,
}

/// Numbers of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobCounts {
    /// Jobs that began to run.
    pub started: usize,
    /// Jobs that finished.
    pub done: usize,
    /// Jobs that never began to run.
    pub waiting: usize,
}

/// Times of jobs that request a number of GPUs in the same range.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Times {
    /// The range.
    pub size: String,
    /// How many jobs.
    pub jobs: usize,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// A queue over time.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// Mean of allocated GPUs.
    pub mean_allocated: f64,
    /// Mean of the fair share in GPUs.
    pub mean_fair_share: f64,
    /// Mean distance between allocated GPUs and fair share.
    pub mean_distance: f64,
    /// GPUs allocated, step by step.
    pub allocated: Vec<f64>,
    /// Fair share in GPUs, step by step.
    pub fair_share: Vec<f64>,
}

/// A finished job.
#[derive(Clone, Debug)]
pub struct Ended {
    gpus: i64,
    took: Millis,
}

impl Ended {
    /// The finish time.
    pub fn of(job: &Job, now: Millis) -> Self {
        Self {
            gpus: size(job),
            took: now - job.arrives,
        }
    }
}

/// Thousandths of GPUs that a job requests in all.
fn size(job: &Job) -> i64 {
    job.shape.gpu.saturating_mul(job.pods as i64)
}

/// Collects the figures.
pub struct Recorder {
    queues: Vec<String>,
    /// The cluster's allocation and fragmentation; then of each queue what it holds, its fair share, and their distance.
    timeline: Timeline,
    fragmentation: f64,
    /// When fragmentation is next computed.
    fragmentation_due: Millis,
    waits: BTreeMap<i64, Vec<Millis>>,
    ended: Vec<Ended>,
    evictions: BTreeMap<&'static str, u64>,
    /// Thousandths of a GPU times milliseconds.
    lost: f64,
    started: usize,
    /// Reasons of waiting pod groups.
    reasons: BTreeMap<GroupKey, String>,
    problems: Vec<String>,
}

/// Reasons and problems that are listed.
const LISTED: usize = 5;

impl Recorder {
    /// Without figures.
    pub fn new(mut queues: Vec<String>, step: Millis) -> Self {
        queues.sort();
        Self {
            timeline: Timeline::new(2 + 3 * queues.len(), step),
            queues,
            fragmentation: 0.0,
            fragmentation_due: 0,
            waits: BTreeMap::new(),
            ended: Vec::new(),
            evictions: BTreeMap::new(),
            lost: 0.0,
            started: 0,
            reasons: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Records the reports of a cycle.
    pub fn waits_for(&mut self, waiting: &[GroupReport], cleared: &[GroupKey]) {
        for report in waiting {
            self.reasons.insert(report.group.clone(), report.message.clone());
        }
        for group in cleared {
            self.reasons.remove(group);
        }
    }

    /// Records an object that cannot be used.
    pub fn unusable(&mut self, rejections: &[Rejection]) {
        let room = LISTED.saturating_sub(self.problems.len());
        self.problems
            .extend(rejections.iter().take(room).map(ToString::to_string));
    }

    /// Records the state since the last call.
    pub fn until(&mut self, now: Millis, engine: &Engine, occupancy: &Occupancy) {
        if now >= self.fragmentation_due {
            self.fragmentation = occupancy.fragmentation();
            self.fragmentation_due = now + self.timeline.step;
        }
        let mut figures = vec![0.0; 2 + 3 * self.queues.len()];
        figures[0] = occupancy.allocated();
        figures[1] = self.fragmentation;
        for standing in engine.queues() {
            let Ok(at) = self.queues.binary_search_by(|queue| (**queue).cmp(&standing.queue)) else {
                continue;
            };
            let [allocated, fair] =
                [standing.allocated[GPUS], standing.fair[GPUS]].map(|gpus| gpus as f64 / GPU as f64);
            figures[2 + 3 * at..5 + 3 * at].copy_from_slice(&[allocated, fair, (allocated - fair).abs()]);
        }
        self.timeline.until(now, &figures);
    }

    /// A job began to run for the first time.
    pub fn started(&mut self, job: &Job, now: Millis) {
        self.started += 1;
        self.waits.entry(size(job)).or_default().push(now - job.arrives);
    }

    /// A job has finished.
    pub fn ended(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    /// A pod is evicted.
    pub fn evicted(&mut self, action: ActionKind) {
        *self.evictions.entry(action.as_str()).or_default() += 1;
    }

    /// Work is lost: thousandths of a GPU times milliseconds.
    pub fn lost(&mut self, work: i64) {
        self.lost += work as f64;
    }

    /// The report; `arrived`: the number of jobs that arrived.
    pub fn report(self, now: Millis, arrived: usize, occupancy: &Occupancy) -> Report {
        let mut took: BTreeMap<i64, Vec<Millis>> = BTreeMap::new();
        for ended in &self.ended {
            took.entry(ended.gpus).or_default().push(ended.took);
        }
        let line = &self.timeline;
        let queues = self.queues.iter().enumerate().map(|(at, name)| QueueReport {
            name: name.clone(),
            mean_allocated: line.mean(2 + 3 * at),
            mean_fair_share: line.mean(3 + 3 * at),
            mean_distance: line.mean(4 + 3 * at),
            allocated: line.means(2 + 3 * at),
            fair_share: line.means(3 + 3 * at),
        });
        Report {
            seconds: now as f64 / 1e3,
            jobs: JobCounts {
                started: self.started,
                done: self.ended.len(),
                waiting: arrived - self.started,
            },
            gpus: occupancy.gpus as f64 / 1e3,
            allocated_share: line.mean(0),
            fragmentation: line.mean(1),
            reasons: {
                let reasons = self.reasons.into_iter().take(LISTED);
                reasons.map(|(group, why)| (group.name().to_owned(), why)).collect()
            },
            problems: self.problems,
            wait: times(self.waits),
            completion: times(took),
            evictions: self
                .evictions
                .into_iter()
                .map(|(action, count)| (action.to_owned(), count))
                .collect(),
            lost_gpu_hours: self.lost / GPU_HOUR,
            queues: queues.collect(),
            step_seconds: line.step as f64 / 1e3,
            allocated: line.means(0),
            fragmented: line.means(1),
        }
    }
}

/// Upper bounds of the ranges of sizes, in thousandths of a GPU.
const CLASSES: [(i64, &str); 8] = [
    (0, "none"),
    (999, "part of one"),
    (1_000, "1"),
    (2_000, "2"),
    (4_000, "3-4"),
    (8_000, "5-8"),
    (64_000, "9-64"),
    (i64::MAX, "more than 64"),
];

fn times(by_size: BTreeMap<i64, Vec<Millis>>) -> Vec<Times> {
    let mut classes: Vec<Vec<Millis>> = vec![Vec::new(); CLASSES.len()];
    for (size, times) in by_size {
        let class = CLASSES.iter().position(|(most, _)| size <= *most);
        classes[class.unwrap_or(CLASSES.len() - 1)].extend(times);
    }
    let named = CLASSES.iter().zip(classes).filter(|(_, times)| !times.is_empty());
    named.map(|((_, name), mut times)| summary(name, &mut times)).collect()
}

fn summary(size: &str, times: &mut [Millis]) -> Times {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1] as f64 / 1e3;
    Times {
        size: size.to_owned(),
        jobs: times.len(),
        mean: times.iter().sum::<Millis>() as f64 / times.len() as f64 / 1e3,
        p50: at(50),
        p90: at(90),
        p99: at(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_up_by_size() {
        let by_size = BTreeMap::from([
            (500, vec![1_000]),
            (8_000, (1..=100).map(|time| time * 1_000).collect()),
        ]);
        let times = times(by_size);
        assert_eq!(
            times.iter().map(|times| &*times.size).collect::<Vec<_>>(),
            ["part of one", "5-8"]
        );
        assert_eq!(
            (times[1].p50, times[1].p90, times[1].p99, times[1].mean),
            (50.0, 90.0, 99.0, 50.5)
        );
        assert_eq!((times[0].p50, times[0].p99), (1.0, 1.0));
    }
}
