//! The summary of a queue in one line, as `kubectl get queues` shows it: its GPUs, and how many pod groups wait. Pure.

use crate::api::QuantityMap;
use crate::api::quantity::Amount;
use crate::api::queue::{QueueResources, QueueStatus, QueueSummary};

/// The summary from the status, the quota in force, the fair share in millionths of a GPU, and the number of waiting pod groups. An unknown fair
/// share stays as it is.
#[must_use]
pub fn summary(status: &QueueStatus, resources: &QueueResources, fair: Option<i64>, waiting: Amount) -> QueueSummary {
    let gpu = resources.gpu.unwrap_or_default();
    let before = status.summary.as_ref().and_then(|before| before.fair_share.clone());
    let fair = fair.map(|millionths| number(millionths as f64 / 1e6)).or(before);
    let quota = gpu.quota.unwrap_or_default();
    let of = if quota > 0.0 { Some(number(quota)) } else { fair.clone() };
    let held = number(gpus(&status.allocated));
    QueueSummary {
        gpus: Some(of.map_or_else(|| held.clone(), |of| format!("{held}/{of}"))),
        fair_share: fair,
        quota: Some(number(quota)),
        limit: Some(number(gpu.limit.unwrap_or_default())),
        waiting: Some(i32::try_from(waiting.units()).unwrap_or(i32::MAX)),
    }
}

/// GPUs of all vendors.
#[must_use]
pub fn gpus(amounts: &QuantityMap) -> f64 {
    let gpus = amounts.iter().filter(|(name, _)| name.ends_with("/gpu"));
    let amounts = gpus.filter_map(|(_, quantity)| Amount::of(quantity).ok());
    let nanos = amounts.fold(Amount::default(), Amount::saturating_add).nanos();
    nanos as f64 / 1e9
}

/// GPUs with two decimals, bounded in length; negative = unlimited.
fn number(gpus: f64) -> String {
    if gpus < 0.0 {
        return "unlimited".to_owned();
    }
    // `Display` omits zero decimals.
    ((gpus.min(1e9) * 100.0).round() / 100.0).to_string()
}

#[cfg(test)]
mod tests;
