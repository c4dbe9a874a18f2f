//! Jobs and CronJobs: one group per Job, its gang size from an annotation.

use super::base::{Base, build, default_rule};
use super::{Grouped, Input, RuleError};
use crate::api::names::annotation;
use crate::components::grouping::workload::Workload;

/// One group per Job, so that `kai.scheduler/batch-min-member: "4"` on the Job starts four of its pods together or none.
pub fn job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = build(
        input,
        &Base {
            top,
            owners: &[top],
            fallback_class: "train",
        },
    );
    let meta = &input.pod.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let legacy = format!("pg-{}-{}", meta.name.as_deref().unwrap_or_default(), top.uid);
    if input.settings.search_legacy_pod_groups && input.cluster.has_pod_group(namespace, &legacy) {
        grouped.group.metadata.name = Some(legacy);
        return Ok(grouped);
    }
    if let Some(value) = top.annotations.get(annotation::BATCH_MIN_MEMBER) {
        let size = value.parse::<i32>().map_err(|_| RuleError::MinMember {
            kind: top.kind.clone(),
            name: top.name.clone(),
            value: value.clone(),
        })?;
        grouped.group.spec.min_member = Some(size);
    }
    Ok(grouped)
}

/// Each run of a CronJob is a Job, and is grouped like one.
pub fn cron_job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    match input
        .chain
        .iter()
        .find(|owner| owner.group == "batch" && owner.kind == "Job")
    {
        Some(run) => job(input, run),
        None => default_rule(input, top),
    }
}
