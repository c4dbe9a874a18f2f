//! Owners that only orchestrate other workloads (Argo workflows, Kubeflow's TrainJob, Dynamo graphs): the workload below them
//! is grouped by its own rule, with their labels and annotations where it has none.

use std::sync::Arc;

use super::inherit::is_preemptibility;
use super::{Grouped, Input, RuleError, for_top};
use crate::api::names::label;
use crate::components::grouping::workload::Workload;

/// Groups by the owner below the top owner.
///
/// ```yaml
/// # Argo Workflow w (label queue: test) → pod p with uid u   ↦   pod group pg-p-u in queue test
/// # TrainJob t → JobSet t → Job → pod                        ↦   the rule for job sets
/// ```
pub fn top_owner(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let below = input.chain.split_last().map(|(_, below)| below);
    let mut chain = below.unwrap_or_default().to_vec();
    let mut next = match chain.last() {
        Some(next) => Workload::clone(next),
        None => Workload::of_pod(input.pod),
    };
    next.inherit(top);
    take_defaults(input, top, &mut next)?;
    let next = Arc::new(next);
    if let Some(last) = chain.last_mut() {
        *last = Arc::clone(&next);
    }
    for_top(
        &Input {
            chain: &chain,
            ..*input
        },
        &next,
    )
}

/// The administrator's defaults for the skipped kind apply like its labels: to the owner below.
fn take_defaults(input: &Input, top: &Workload, next: &mut Workload) -> Result<(), RuleError> {
    let defaults = input.cluster.defaults()?;
    let Some(entry) = defaults.get(top) else { return Ok(()) };
    let (class, preemptibility) = (&entry.priority_class, entry.preemptibility.to_ascii_lowercase());
    if !class.is_empty() && input.cluster.has_priority_class(class) {
        let labelled = next.labels.entry(label::PRIORITY_CLASS_NAME.to_owned());
        labelled.or_insert_with(|| class.clone());
    }
    if is_preemptibility(&preemptibility) {
        next.labels
            .entry(label::PREEMPTIBILITY.to_owned())
            .or_insert(preemptibility);
    }
    Ok(())
}
