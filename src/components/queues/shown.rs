//! Metrics of queues: quotas and limits, and what they hold.

use crate::api::names::resource;
use crate::api::quantity::Amount;
use crate::api::queue::{QueueResource, QueueResources, QueueStatus};
use crate::api::{QuantityMap, Queue};
use crate::components::Context;
use crate::components::figures::families::{self, Family};
use crate::components::queues::summary;
use crate::components::queues::waiting::Line;

/// The labels that the metrics of each queue have.
pub const OWN_LABELS: [&str; 3] = ["queue_name", "queue_metadata_name", "queue_display_name"];

/// A label of queues that becomes a label of their metrics.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricLabel {
    /// The label of the queue.
    pub label: String,
    /// Its name as a metric's label.
    pub shown_as: String,
    /// The value for queues without it.
    pub default: String,
}

/// Exports the metrics of a queue with the quota in force.
pub fn show(context: &Context, name: &str, queue: &Queue, status: &QueueStatus, resources: &QueueResources) {
    let shown_name = queue.spec.display_name.as_deref().unwrap_or_default();
    let mut labels: Vec<_> = OWN_LABELS.into_iter().zip([name, name, shown_name]).collect();
    let own = queue.metadata.labels.as_ref();
    labels.extend(context.settings.queue_metric_labels.iter().map(|extra| {
        let value = own.and_then(|own| own.get(&extra.label)).unwrap_or(&extra.default);
        (extra.shown_as.as_str(), value.as_str())
    }));
    let set = |family: &Family, value: f64| context.figures.set(family, name, &labels, value);

    let quota = |of: Option<QueueResource>| of.and_then(|of| of.quota).unwrap_or_default();
    set(&families::QUEUE_INFO, 1.0);
    set(&families::QUEUE_DESERVED_GPUS, quota(resources.gpu));
    set(&families::QUEUE_QUOTA_CPU, scaled(quota(resources.cpu), 1e-3));
    set(&families::QUEUE_QUOTA_MEMORY, scaled(quota(resources.memory), 1e6));

    let held = &status.allocated;
    set(&families::QUEUE_ALLOCATED_GPUS, shown_gpus(held));
    set(&families::QUEUE_ALLOCATED_CPU, amount(held, resource::CPU));
    set(&families::QUEUE_ALLOCATED_MEMORY, amount(held, resource::MEMORY));
}

/// Exports what waits in a queue; an empty name: in queues that do not exist.
pub fn show_waiting(context: &Context, queue: &str, line: &Line) {
    let label = ("queue_metadata_name", queue);
    let causes: Vec<_> = line
        .causes()
        .map(|(cause, groups)| ([label, ("cause", cause.as_str())], groups as f64))
        .collect();
    let series = causes.iter().map(|(labels, groups)| (&labels[..], *groups));
    context.figures.set_all(&families::QUEUE_PENDING, queue, series);
    let label = [label];
    let since = line.since().map(|since| (&label[..], since as f64));
    context.figures.set_all(&families::QUEUE_WAITING_SINCE, queue, since);
}

/// CPU in thousandths, memory in megabytes; unlimited stays -1.
fn scaled(value: f64, factor: f64) -> f64 {
    if value < 0.0 { -1.0 } else { value * factor }
}

/// In whole units, to four decimals.
fn amount(amounts: &QuantityMap, key: &str) -> f64 {
    let amount = amounts.get(key).and_then(|quantity| Amount::of(quantity).ok());
    four_decimals(amount.unwrap_or_default().nanos() as f64 / 1e9)
}

/// GPUs of all vendors, to four decimals.
fn shown_gpus(amounts: &QuantityMap) -> f64 {
    four_decimals(summary::gpus(amounts))
}

fn four_decimals(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn held(amounts: serde_json::Value) -> QuantityMap {
        serde_json::from_value(amounts).unwrap()
    }

    #[test]
    fn amounts_are_in_whole_units() {
        let of_two_vendors = held(json!({"amd.com/gpu": "2", "nvidia.com/gpu": "1500m"}));
        let held = held(json!({"cpu": "250m", "memory": "2Gi", "somethingelse/gpu": "333333334n"}));
        assert_eq!(amount(&held, "cpu"), 0.25);
        assert_eq!(amount(&held, "memory"), 2_147_483_648.0);
        assert_eq!(amount(&held, "somethingelse/gpu"), 0.3333);
        assert_eq!(amount(&held, "nvidia.com/gpu"), 0.0);
        assert_eq!(shown_gpus(&held), 0.3333);
        assert_eq!(shown_gpus(&of_two_vendors), 3.5);
        assert_eq!(
            [(500.0, 1e-3), (4.0, 1e6), (-1.0, 1e6)].map(|(quota, factor)| scaled(quota, factor)),
            [0.5, 4e6, -1.0]
        );
    }
}
