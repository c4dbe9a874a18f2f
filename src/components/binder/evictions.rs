//! Metrics of evictions: attempts, refusals by cause, evicted pods per pod group.

use std::collections::VecDeque;

use super::attempt::{Ending, Report};
use crate::components::Context;
use crate::components::bus::Evict;
use crate::components::figures::families;
use crate::components::leadership::pool_name;
use crate::components::watches::Stores;

/// Number of pod groups with a series of evicted pods, as a bound on series.
const GROUPS_MAX: usize = 1_000;

/// Counts evictions.
#[derive(Debug, Default)]
pub struct Evictions {
    /// Pod groups with a series, that with the latest eviction last.
    groups: VecDeque<String>,
}

impl Evictions {
    /// Counts an eviction that has ended.
    pub fn note(&mut self, context: &Context, evict: &Evict, report: &Report, stores: &Stores) {
        if !report.tried {
            return;
        }
        let action = evict.action.as_str();
        metrics::counter!("unikai_evictions_attempted_total", "action" => action).increment(1);
        match &report.ending {
            Ending::Done => self.evicted(context, evict, stores),
            Ending::Overtaken => {}
            Ending::Failed(_) => {
                metrics::counter!("unikai_evictions_refused_total", "action" => action, "cause" => report.cause)
                    .increment(1);
            }
        }
    }

    fn evicted(&mut self, context: &Context, evict: &Evict, stores: &Stores) {
        let (action, key) = (evict.action.as_str(), &evict.group);
        metrics::counter!("unikai_evicted_pods_total", "action" => action).increment(1);
        let group = stores.pod_groups.get(key.namespace(), key.name());
        let uid = group.and_then(|group| group.metadata.uid.clone()).unwrap_or_default();
        let owner = format!("{}/{}/{uid}", key.namespace(), key.name());
        let labels = [
            ("podgroup", key.name()),
            ("namespace", key.namespace()),
            ("uid", &uid),
            ("nodepool", pool_name(&evict.pool)),
            ("action", action),
        ];
        context
            .figures
            .count(&families::POD_GROUP_EVICTED_PODS, &owner, &labels, 1.0);
        self.groups.retain(|known| *known != owner);
        self.groups.push_back(owner);
        if self.groups.len() > GROUPS_MAX
            && let Some(oldest) = self.groups.pop_front()
        {
            context.figures.forget(&[&families::POD_GROUP_EVICTED_PODS], &oldest);
        }
    }
}
