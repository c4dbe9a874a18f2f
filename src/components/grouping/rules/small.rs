//! Kinds that differ from the base in one value.

use super::base::of_owner;
use super::{Grouped, Input, RuleError, wrong};
use crate::api::names::priority_class;
use crate::components::grouping::fields;
use crate::components::grouping::workload::Workload;

/// A Kubeflow notebook: priority class `build`.
pub fn notebook(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    of_owner(input, top, priority_class::BUILD)
}

/// An SPOTRequest: priority class `inference`.
pub fn spot_request(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    of_owner(input, top, priority_class::INFERENCE)
}

/// An Azure ML job: minMember is its node count.
pub fn aml_job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    let path = ["spec", "job", "options", "envs", "AZUREML_NODE_COUNT"];
    match fields::integer(&top.body, &path) {
        Ok(Some(nodes)) => grouped.group.spec.min_member = Some(nodes),
        Ok(None) | Err(_) => return wrong("azureml envs count not found in spec"),
    }
    Ok(grouped)
}
