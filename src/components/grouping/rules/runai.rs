//! Run:ai jobs: one group per index of the job.

use super::base::of_owner;
use super::{Grouped, Input, RuleError};
use crate::api::names::priority_class;
use crate::components::grouping::fields;
use crate::components::grouping::workload::Workload;

/// Pods `x-0-0` and `x-0-1` are one group, `x-1-0` is another. Groups of older releases are kept.
pub fn job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    let pod = input.pod_name();
    let stem = pod.rsplit_once('-').map_or(pod, |(stem, _)| stem);
    let legacy = format!("pg-{}-{}", if is_parallel(top) { pod } else { &top.name }, top.uid);
    let settings = input.settings;
    let name = if settings.search_legacy_pod_groups && input.cluster.pod_group(input.namespace(), &legacy).is_some() {
        legacy
    } else {
        format!("pg-{stem}-{}", top.uid)
    };
    grouped.group.metadata.name = Some(name);
    Ok(grouped)
}

fn is_parallel(top: &Workload) -> bool {
    fields::integer(&top.body, &["spec", "parallelism"]).is_ok_and(|number| number > Some(1))
}
