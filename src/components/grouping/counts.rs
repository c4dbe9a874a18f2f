//! How many pods the parts of workloads have, and the names of those of Ray clusters: for rules, and for pods that are generated from manifests.

use serde_json::Value;

use super::fields;
use super::wanted::RuleError;

/// The pods of a Job at a time, by its spec at the path: it creates no more than completions.
///
/// # Errors
/// If a number has a wrong type.
pub fn of_job(object: &Value, spec: &[&str]) -> Result<i32, RuleError> {
    let number = |field: &str| fields::integer(object, &[spec, &[field]].concat());
    let parallelism = number("parallelism")?.unwrap_or(1);
    Ok(number("completions")?.unwrap_or(parallelism).min(parallelism))
}

/// A group of workers of a Ray cluster.
pub struct RayWorkers {
    /// Its replicas: KubeRay raises them to `minReplicas`.
    pub replicas: i32,
    /// The replicas that an autoscaler leaves.
    pub min: i32,
    /// The pods of a replica.
    pub hosts: i32,
}

/// The group of workers with this spec; `None` while it is suspended.
///
/// # Errors
/// If a field has a wrong type.
pub fn ray_workers(spec: &Value) -> Result<Option<RayWorkers>, RuleError> {
    let suspended = |field: &str| fields::boolean(spec, &[field]);
    if suspended("suspended")?.unwrap_or(false) || suspended("suspend")?.unwrap_or(false) {
        return Ok(None);
    }
    let number = |field: &str| fields::integer(spec, &[field]);
    let replicas = number("replicas")?.unwrap_or(0);
    let min = number("minReplicas")?.unwrap_or(0);
    Ok(Some(RayWorkers {
        replicas: replicas.max(min),
        min,
        hosts: number("numOfHosts")?.unwrap_or(1),
    }))
}

/// The name of the head's group.
pub const RAY_HEAD: &str = "headgroup";

/// The name of the group of workers with this spec, at this place in the list.
///
/// # Errors
/// If it has a wrong type.
pub fn ray_group_name(spec: &Value, index: usize) -> Result<String, RuleError> {
    let stated = fields::text(spec, &["groupName"])?.filter(|name| !name.is_empty());
    Ok(stated.map_or_else(|| format!("worker-group-{index}"), ToOwned::to_owned))
}
