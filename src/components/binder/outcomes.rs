//! Reports to the scheduler of binds and evictions that failed. No watch shows them.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tracing::{debug, info};

use super::attempt::{Ending, Report};
use super::failures::Waits;
use crate::clock;
use crate::components::bus::{Bus, Evict, OrderedBind, Outcome, PodRef, ToScheduler};

/// Reports a failed bind to the scheduler.
pub async fn not_bound(bus: &Bus, bind: &OrderedBind, report: &Report, waits: Waits) {
    let Ending::Failed(why) = &report.ending else { return };
    let (pod, node) = (bind.placement.pod.clone(), Arc::clone(&bind.placement.node));
    info!(ns = %pod.namespace, name = %pod.name, %node, error = why, "pod not bound");
    if report.no_device {
        let retry_at = after(waits.node);
        tell(bus, Outcome::NoDevice { node, retry_at }).await;
    }
    let retry_at = after(waits.pod);
    tell(bus, Outcome::NotBound { pod, retry_at }).await;
}

fn after(wait: Duration) -> Timestamp {
    clock::now() + SignedDuration::try_from(wait).unwrap_or(SignedDuration::ZERO)
}

/// Reports a failed eviction to the scheduler.
pub async fn not_evicted(bus: &Bus, evict: &Evict, report: &Report, waits: Waits) {
    let Ending::Failed(why) = &report.ending else { return };
    let pod: PodRef = evict.pod.clone();
    info!(ns = %pod.namespace, name = %pod.name, error = why, "pod not evicted");
    let retry_at = report.tried.then(|| after(waits.pod));
    tell(bus, Outcome::NotEvicted { pod, retry_at }).await;
}

async fn tell(bus: &Bus, outcome: Outcome) {
    if bus.schedulers.send(ToScheduler::Outcome(outcome)).await.is_err() {
        debug!("outcome not delivered: the scheduler has ended");
    }
}
