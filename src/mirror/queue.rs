//! Queue objects → queues: amounts in the engine's units, with the meaning of absent and negative numbers.

use jiff::SignedDuration;
use kube::ResourceExt;

use super::{Problem, name};
use crate::api::Queue;
use crate::api::duration::DurationError;
use crate::api::queue::{QueueResource, QueueResources};
use crate::api::quota_schedule::QuotaSchedule;
use crate::engine::input::{GPU, Millis, QueueInput, Schedule, Share, Time};

/// Queues are created with this priority if they name none.
pub const DEFAULT_PRIORITY: i64 = 100;
/// Weights are in millionths.
const WEIGHT: f64 = 1e6;
/// Queues count memory in megabytes.
const MEGABYTE: f64 = 1e6;
/// The one queue above all others when the hierarchy is flattened.
const FLAT_ROOT: &str = "default";

/// Reads a queue. `None`: it is ignored, because the hierarchy is flattened and it has no parent.
pub fn read(queue: &Queue, full_hierarchy: bool, problems: &mut Vec<Problem>) -> Option<QueueInput> {
    let spec = &queue.spec;
    let parent = spec.parent_queue.as_deref().filter(|parent| !parent.is_empty());
    let parent = match (full_hierarchy, parent) {
        (true, parent) => parent.map(name),
        (false, Some(_)) if queue.name_any() != FLAT_ROOT => Some(name(FLAT_ROOT)),
        (false, _) => return None,
    };
    let resources = spec.resources.unwrap_or_default();
    let own = name(&queue.name_any());
    let [cpu, memory, gpu] = shares(resources);
    Some(QueueInput {
        display: spec
            .display_name
            .as_deref()
            .filter(|display| !display.is_empty())
            .map_or_else(|| own.clone(), name),
        name: own,
        parent,
        priority: spec.priority.unwrap_or(DEFAULT_PRIORITY),
        created: created(queue),
        cpu,
        memory,
        gpu,
        limits_unset: [resources.cpu, resources.memory, resources.gpu]
            .map(|resource| resource.is_none_or(|resource| resource.limit.is_none())),
        preempt_min_runtime: runtime(
            "spec.preemptMinRuntime",
            spec.preempt_min_runtime.as_deref(),
            spec.preempt_min_runtime(),
            problems,
        ),
        reclaim_min_runtime: runtime(
            "spec.reclaimMinRuntime",
            spec.reclaim_min_runtime.as_deref(),
            spec.reclaim_min_runtime(),
            problems,
        ),
        schedule: schedule(queue, resources, problems),
    })
}

/// The root of all queues when the hierarchy is flattened: unlimited.
#[must_use]
pub fn flat_root() -> QueueInput {
    let free = Share {
        quota: None,
        limit: None,
        weight: 1_000_000,
    };
    QueueInput {
        name: name(FLAT_ROOT),
        display: name(FLAT_ROOT),
        priority: DEFAULT_PRIORITY,
        cpu: free,
        memory: free,
        gpu: free,
        ..QueueInput::default()
    }
}

/// An object's creation time.
pub fn created(object: &impl ResourceExt) -> Time {
    object
        .creation_timestamp()
        .map_or_else(Time::default, |time| Time(time.0.as_millisecond()))
}

/// A duration field; an invalid one counts as absent and is reported.
pub fn runtime(
    field: &'static str,
    text: Option<&str>,
    parsed: Result<Option<SignedDuration>, DurationError>,
    problems: &mut Vec<Problem>,
) -> Option<Millis> {
    match parsed {
        Ok(duration) => duration.map(|duration| i64::try_from(duration.as_millis()).unwrap_or(Millis::MAX)),
        Err(_) => {
            problems.push(Problem::Duration {
                field,
                value: text.unwrap_or_default().to_owned(),
            });
            None
        }
    }
}

/// The quota schedule; an invalid one counts as absent and is reported.
fn schedule(queue: &Queue, own: QueueResources, problems: &mut Vec<Problem>) -> Option<Box<Schedule>> {
    match QuotaSchedule::of(queue)? {
        Ok(schedule) => Some(Box::new(Schedule {
            entries: schedule.entries.iter().map(|entry| shares(entry.over(own))).collect(),
            calendar: schedule.calendar,
        })),
        Err(reason) => {
            problems.push(Problem::Schedule { reason });
            None
        }
    }
}

fn shares(resources: QueueResources) -> [Share; 3] {
    [
        share(resources.cpu, 1.0),
        share(resources.memory, MEGABYTE),
        #[expect(clippy::cast_precision_loss, reason = "a constant far below 2^53")]
        share(resources.gpu, GPU as f64),
    ]
}

/// Absent numbers are 0: no quota, limit 0, no over-quota weight. Negative amounts are unlimited; a negative weight is 0.
fn share(resource: Option<QueueResource>, unit: f64) -> Share {
    let resource = resource.unwrap_or_default();
    Share {
        quota: amount(resource.quota, unit),
        limit: amount(resource.limit, unit),
        weight: whole(resource.over_quota_weight.unwrap_or_default() * WEIGHT).max(0),
    }
}

fn amount(value: Option<f64>, unit: f64) -> Option<i64> {
    let value = value.unwrap_or_default();
    (value >= 0.0).then(|| whole(value * unit))
}

/// Maximum amount, so that sums do not overflow.
const MOST: i64 = 1 << 58;

/// Rounds to the nearest integer, within bounds; not a number counts as 0.
fn whole(value: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "saturates, by definition of `as`")]
    let whole = value.round() as i64;
    whole.clamp(-MOST, MOST)
}

#[cfg(test)]
mod tests;
