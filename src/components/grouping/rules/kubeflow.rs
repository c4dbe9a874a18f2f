//! Kubeflow's training jobs: all replicas are one gang, unless the job states a minimum.

use super::base::of_owner;
use super::{Grouped, Input, RuleError, wrong};
use crate::api::names::priority_class;
use crate::components::grouping::fields;
use crate::components::grouping::workload::Workload;

/// A TFJob: parameter servers, chief, workers.
pub fn tf_job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    whole(input, top, "tfReplicaSpecs", &[])
}

/// An XGBoostJob: one master, its workers.
pub fn xgboost_job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    whole(input, top, "xgbReplicaSpecs", &["Master", "Worker"])
}

/// A JAXJob: workers.
pub fn jax_job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    whole(input, top, "jaxReplicaSpecs", &["Worker"])
}

fn whole(input: &Input, top: &Workload, replicas: &str, mandatory: &[&str]) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    let size = match min_available(top)? {
        Some(size) => size,
        None => sum(top, replicas, mandatory)?,
    };
    grouped.group.spec.min_member = Some(size);
    Ok(grouped)
}

/// `minAvailable` of the job, if set.
pub fn min_available(top: &Workload) -> Result<Option<i32>, RuleError> {
    fields::integer(&top.body, &["spec", "runPolicy", "schedulingPolicy", "minAvailable"])
}

/// The sum of replicas of all types. None may be 0.
pub fn sum(top: &Workload, replicas: &str, mandatory: &[&str]) -> Result<i32, RuleError> {
    let name = &top.name;
    let Some(types) = fields::map(&top.body, &["spec", replicas])? else {
        return wrong(format!(
            "the type of the job {name} doesn't have a {replicas} field. Please fix the replica field"
        ));
    };
    if let Some(missing) = mandatory.iter().find(|kind| !types.contains_key(**kind)) {
        return wrong(format!(
            "the job {name} doesn't have a {missing} replica spec which is required. Please fix the replica field"
        ));
    }
    let mut total: i64 = 0;
    for (kind, spec) in types {
        match fields::integer(spec, &["replicas"])? {
            None | Some(0) => {
                return wrong(format!(
                    "the job {name} doesn't allow for 0 {kind} pods. Please fix the replica field"
                ));
            }
            Some(replicas) => total += i64::from(replicas),
        }
    }
    match i32::try_from(total) {
        Ok(total) if total > 0 => Ok(total),
        Ok(_) | Err(_) => wrong(format!("the job {name} asks for {total} pods in all")),
    }
}
