//! Why a pod is evicted, as KAI reports it.

use crate::engine::decision::{Eviction, EvictionCause, Side};
use crate::engine::fairshare::quotas::readable;

impl Eviction {
    /// The message of the event and the pod's condition, in KAI's words.
    #[must_use]
    pub fn message(&self) -> String {
        let reason = self.reason();
        let namespace = &self.pod.namespace;
        let budgets: Vec<String> = self.exceeds.iter().map(|name| format!("{namespace}/{name}")).collect();
        match &*budgets {
            [] => reason,
            [only] => format!("{reason}\nThe PodDisruptionBudget {only} does not allow it and was overruled."),
            several => {
                let names = several.join(", ");
                format!("{reason}\nThe PodDisruptionBudgets {names} do not allow it and were overruled.")
            }
        }
    }

    fn reason(&self) -> String {
        let pod = &self.pod;
        let by = self.for_group.as_ref().map(ToString::to_string).unwrap_or_default();
        match &self.why {
            EvictionCause::Preempted => format!("Pod {pod} was preempted by higher priority workload {by}"),
            EvictionCause::Moved => {
                format!("Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure")
            }
            EvictionCause::Reclaimed(sides) => {
                let first = format!("Pod {pod} was preempted by workload {by}.");
                match sides.as_deref() {
                    Some(sides) => format!("{first}\n{}\n{}", describe(&sides.theirs), describe(&sides.ours)),
                    None => first,
                }
            }
            EvictionCause::Broken { min, sub_group, .. } => {
                let of = sub_group
                    .as_ref()
                    .map_or_else(String::new, |name| format!(" in sub-group {name}"));
                format!(
                    "Workload doesn't meet the minimum required number of pods ({min}){of}, evicting remaining pod: {pod}"
                )
            }
        }
    }
}

fn describe(side: &Side) -> String {
    let amounts = |amount: [Option<i64>; 3]| {
        let show = |resource: usize| {
            amount[resource].map_or_else(|| "Unlimited".to_owned(), |amount| readable(amount, resource))
        };
        format!("<GPU: {}, CPU: {} (cores), memory: {} (GB)>", show(2), show(0), show(1))
    };
    format!(
        "{} uses {} with a quota of {}, fair-share of {} and queue priority of <{}>.",
        side.queue,
        amounts(side.used.map(Some)),
        amounts(side.quota),
        amounts(side.fair.map(Some)),
        side.priority
    )
}
