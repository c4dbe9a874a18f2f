//! Jobs and CronJobs: one group per Job, its gang size from an annotation.

use super::base::of_owner;
use super::{Grouped, Input, RuleError, own, wrong};
use crate::api::names::{annotation, priority_class};
use crate::components::grouping::workload::Workload;

/// One group per Job, so that `kai.scheduler/batch-min-member: "4"` on the Job starts four of its pods together or none.
pub fn job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let legacy = format!("pg-{}-{}", input.pod_name(), top.uid);
    let settings = input.settings;
    if settings.search_legacy_pod_groups && input.cluster.pod_group(input.namespace(), &legacy).is_some() {
        let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
        grouped.group.metadata.name = Some(legacy);
        return Ok(grouped);
    }
    run(input, top)
}

/// Each run of a CronJob is a Job, and is grouped like one.
pub fn cron_job(input: &Input, _: &Workload) -> Result<Grouped, RuleError> {
    let job = input.chain.iter().find(|owner| owner.kind == "Job");
    match job {
        Some(job) => run(input, job),
        None => wrong("no owner reference of type 'Job'"),
    }
}

fn run(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    let minimum = min_member(top.annotation(annotation::BATCH_MIN_MEMBER))?;
    if !own::shape(input, top, minimum, &mut grouped)? {
        grouped.group.spec.min_member = Some(minimum.unwrap_or(1));
    }
    Ok(grouped)
}

/// A gang size as an annotation states it.
pub fn min_member(stated: Option<&str>) -> Result<Option<i32>, RuleError> {
    let Some(text) = stated else { return Ok(None) };
    match text.parse::<i32>() {
        Ok(size) if size >= 0 => Ok(Some(size)),
        Ok(_) | Err(_) => wrong(format!(
            "invalid min-member annotation value: {text:?} of {} is not a whole number from 0",
            annotation::BATCH_MIN_MEMBER
        )),
    }
}
