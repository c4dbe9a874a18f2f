//! MPI jobs: launcher and workers are one gang, or the workers alone if the launcher is created last.

use super::base::of_owner;
use super::{Grouped, Input, RuleError, kubeflow, wrong};
use crate::api::names::{priority_class, third_party};
use crate::components::grouping::fields;
use crate::components::grouping::workload::Workload;

/// All replicas; without the launcher while it does not exist and waits for ready workers.
///
/// ```yaml
/// # Launcher 1, Worker 8, WaitForWorkersReady   →   minMember 8, and 9 once the launcher is there
/// ```
pub fn job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    let stated = kubeflow::min_available(top)?;
    let policy = fields::text(&top.body, &["spec", "launcherCreationPolicy"])?;
    let size = match stated {
        Some(size) => size,
        None => kubeflow::sum(top, "mpiReplicaSpecs", &["Launcher", "Worker"])?,
    };
    let awaited = policy == Some("WaitForWorkersReady") && stated.is_none() && !has_launcher(input, top);
    let launchers = if awaited { launchers(top)? } else { 0 };
    grouped.group.spec.min_member = Some(size.saturating_sub(launchers));
    Ok(grouped)
}

fn launchers(top: &Workload) -> Result<i32, RuleError> {
    match fields::integer(&top.body, &["spec", "mpiReplicaSpecs", "Launcher", "replicas"])? {
        None | Some(0) => wrong(format!("the job {} has no launcher", top.name)),
        Some(replicas) => Ok(replicas),
    }
}

fn has_launcher(input: &Input, top: &Workload) -> bool {
    let labels = [
        (third_party::KUBEFLOW_JOB_NAME, &*top.name),
        (third_party::KUBEFLOW_JOB_ROLE, "launcher"),
    ];
    let mine = labels.iter().all(|(key, value)| input.label(key) == Some(value));
    let alive = |pod: &k8s_openapi::api::core::v1::Pod| pod.metadata.deletion_timestamp.is_none();
    let pods = || input.cluster.pods(input.namespace(), &labels);
    (mine && alive(input.pod)) || pods().iter().any(|pod| alive(pod))
}
