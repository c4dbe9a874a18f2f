//! From a pod and its owners to its pod group: pure functions, one file per family of workloads, one table that lists them.
//!
//! A rule that needs another object (the cluster of a Ray job, the revision of a Knative service) asks the
//! [`Cluster`]; if it is not cached, the rule returns [`RuleError::Unknown`], and runs again once it is.
//! Absent: reading owners (`owners`), and updates of existing pod groups (`merge`).

mod apps;
mod base;
mod batch;
mod grove;
mod inherit;
mod jobset;
mod karta;
mod knative;
mod kubeflow;
mod leader_worker_set;
mod mpi;
mod own;
mod pytorch;
mod ray;
mod runai;
mod segments;
mod skip;
mod small;
mod tree;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::defaults::Defaults;
use super::karta::Karta;
pub use super::wanted::{KindName, Reference, RuleError, Wanted};
use super::workload::Workload;
use crate::api::PodGroup;
use crate::components::Settings;
pub use inherit::class_of_pod;

/// Input of a rule.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its owners that could be read, from the direct one to the top; empty if the pod is its own top owner.
    pub chain: &'a [Arc<Workload>],
    /// The configuration.
    pub settings: &'a Settings,
    /// The cluster.
    pub cluster: &'a dyn Cluster,
}

impl Input<'_> {
    /// The pod's namespace.
    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The pod's name.
    fn pod_name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// A label of the pod.
    fn label(&self, key: &str) -> Option<&str> {
        self.pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// An annotation of the pod.
    fn annotation(&self, key: &str) -> Option<&str> {
        self.pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

/// What rules need of the cluster.
pub trait Cluster {
    /// Whether a priority class of that name exists.
    fn has_priority_class(&self, name: &str) -> bool;
    /// The pod group of that name.
    fn pod_group(&self, namespace: &str, name: &str) -> Option<Arc<PodGroup>>;
    /// The queue that the namespace names for its workloads.
    fn namespace_queue(&self, namespace: &str) -> Option<String>;
    /// Our scheduler's pods of the namespace that carry all of these labels; some of them where there are very many.
    fn pods(&self, namespace: &str, labels: &[(&str, &str)]) -> Vec<Arc<Pod>>;
    /// Another object.
    ///
    /// # Errors
    /// If it does not exist, may not be read, or is not cached yet.
    fn object(&self, wanted: &Reference) -> Result<Arc<Workload>, RuleError>;
    /// The valid definitions for a kind.
    ///
    /// # Errors
    /// If they are not cached yet.
    fn kartas(&self, kind: &KindName) -> Result<Arc<Vec<Karta>>, RuleError>;
    /// The administrator's defaults per kind.
    ///
    /// # Errors
    /// If they are not cached yet.
    fn defaults(&self) -> Result<Arc<Defaults>, RuleError>;
}

/// The result of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// The desired pod group.
    pub group: PodGroup,
    /// The sub-group that the pod belongs to.
    pub sub_group: Option<String>,
    /// The owners leave the priority class to the pods: if the group's pods name several, the highest counts.
    pub class_of_pods: bool,
    /// The same for preemptibility: the strictest counts.
    pub preemptibility_of_pods: bool,
    /// The pod names a part that its workload does not have, perhaps because it was read too early: it is read again before this counts.
    pub doubtful: bool,
    /// The rule's description, for output.
    pub rule: String,
}

impl Grouped {
    /// Whether the pod has no place among the parts of its workload, perhaps because that was read too early.
    #[must_use]
    pub fn may_find_place(&self) -> bool {
        self.doubtful || (self.sub_group.is_none() && !self.group.spec.sub_groups.is_empty())
    }
}

/// An error about the workload, with a message.
fn wrong<T>(sentence: impl Into<String>) -> Result<T, RuleError> {
    Err(RuleError::Workload(sentence.into()))
}

type Rule = fn(&Input, &Workload) -> Result<Grouped, RuleError>;

/// One line of the table.
struct Row {
    group: &'static str,
    /// Supported versions; empty: all.
    versions: &'static [&'static str],
    kind: &'static str,
    /// The rule's name in output.
    name: &'static str,
    rule: Rule,
}

const fn row(
    group: &'static str,
    versions: &'static [&'static str],
    kind: &'static str,
    name: &'static str,
    rule: Rule,
) -> Row {
    Row {
        group,
        versions,
        kind,
        name,
        rule,
    }
}

/// The name of the base rule in the table.
const BASE: &str = "one group per owner";

/// The rule for each kind of top owner. Other kinds are grouped by a Karta or by the base rule.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    row("", &["v1"], "Pod", "pod", base::pod),
    row("apps", &["v1"], "Deployment", "one group per pod", apps::deployment),
    row("apps", &["v1"], "ReplicaSet", BASE, own::base),
    row("apps", &["v1"], "StatefulSet", BASE, own::base),
    row("batch", &["v1"], "Job", "one group per job", batch::job),
    row("batch", &["v1"], "CronJob", "one group per run", batch::cron_job),
    row("jobset.x-k8s.io", &["v1alpha2"], "JobSet", "job set", jobset::job_set),
    row("leaderworkerset.x-k8s.io", &["v1"], "LeaderWorkerSet", "one group per leader", leader_worker_set::group),
    row("kubeflow.org", &["v1"], "TFJob", "all replicas", kubeflow::tf_job),
    row("kubeflow.org", &["v1"], "XGBoostJob", "all replicas", kubeflow::xgboost_job),
    row("kubeflow.org", &["v1"], "JAXJob", "all replicas", kubeflow::jax_job),
    row("kubeflow.org", &["v1", "v2beta1"], "MPIJob", "MPI", mpi::job),
    row("kubeflow.org", &["v1"], "PyTorchJob", "PyTorch", pytorch::job),
    row("kubeflow.org", &["v1beta1"], "Notebook", "notebook", small::notebook),
    row("kubeflow.org", &["v1alpha1"], "ScheduledWorkflow", BASE, own::base),
    row("trainer.kubeflow.org", &["v1alpha1"], "TrainJob", "passed over", skip::top_owner),
    row("ray.io", &["v1", "v1alpha1"], "RayCluster", "Ray", ray::cluster),
    row("ray.io", &["v1", "v1alpha1"], "RayJob", "Ray", ray::job),
    row("ray.io", &["v1", "v1alpha1"], "RayService", "Ray", ray::service),
    row("serving.knative.dev", &["v1"], "Service", "Knative", knative::service),
    row("argoproj.io", &["v1alpha1"], "Workflow", "passed over", skip::top_owner),
    row("tekton.dev", &["v1"], "PipelineRun", BASE, own::base),
    row("tekton.dev", &["v1"], "TaskRun", BASE, own::base),
    row("machinelearning.seldon.io", &["v1", "v1alpha2"], "SeldonDeployment", BASE, own::base),
    row("kubevirt.io", &["v1"], "VirtualMachineInstance", BASE, own::base),
    row("workspace.devfile.io", &["v1alpha2"], "DevWorkspace", BASE, own::base),
    row("amlarc.azureml.com", &["v1alpha1"], "AmlJob", "Azure ML", small::aml_job),
    row("egx.nvidia.io", &["v1"], "SPOTRequest", "SPOT request", small::spot_request),
    row("run.ai", &["v1"], "RunaiJob", "Run:ai job", runai::job),
    row("run.ai", &[], "TrainingWorkload", "passed over", skip::top_owner),
    row("run.ai", &[], "InteractiveWorkload", "passed over", skip::top_owner),
    row("run.ai", &[], "DistributedWorkload", "passed over", skip::top_owner),
    row("run.ai", &[], "InferenceWorkload", "passed over", skip::top_owner),
    row("run.ai", &[], "DistributedInferenceWorkload", "passed over", skip::top_owner),
    row("grove.io", &["v1alpha1"], "PodGangSet", "Grove", grove::pod_clique_set),
    row("grove.io", &["v1alpha1"], "PodCliqueSet", "Grove", grove::pod_clique_set),
    row("nvidia.com", &[], "DynamoGraphDeployment", "passed over", skip::top_owner),
];

/// Groups a pod.
///
/// # Errors
/// If the workload is invalid, or something must be read first.
pub fn group(input: &Input) -> Result<Grouped, RuleError> {
    let grouped = match input.chain.last() {
        Some(top) => for_top(input, top),
        None => for_top(input, &Workload::of_pod(input.pod)),
    }?;
    tree::check(&grouped.group)?;
    Ok(grouped)
}

/// The queue that the pod's top owner, the pod itself or its namespace names.
pub fn queue(input: &Input) -> String {
    match input.chain.last() {
        Some(top) => inherit::queue(input, top),
        None => inherit::queue(input, &Workload::of_pod(input.pod)),
    }
}

/// Groups by the rule for the top owner.
fn for_top(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    if let Some(row) = find(input.settings, top) {
        let grouped = (row.rule)(input, top)?;
        return Ok(Grouped {
            rule: format!("{} ({})", row.name, top.kind) + &joined(&grouped.rule),
            ..grouped
        });
    }
    if let Some(grouped) = karta::by_definition(input, top)? {
        return Ok(grouped);
    }
    let known_below = input
        .chain
        .iter()
        .rev()
        .skip(1)
        .any(|owner| makes_gangs(input.settings, owner));
    if known_below && !input.settings.exactly_as_kai {
        let grouped = skip::top_owner(input, top)?;
        return Ok(Grouped {
            rule: format!("unknown kind, passed over ({})", top.kind) + &joined(&grouped.rule),
            ..grouped
        });
    }
    let grouped = own::base(input, top)?;
    Ok(Grouped {
        rule: format!("{BASE} ({})", top.kind) + &joined(&grouped.rule),
        ..grouped
    })
}

fn joined(rule: &str) -> String {
    if rule.is_empty() {
        String::new()
    } else {
        format!(", {rule}")
    }
}

/// The row of the kind. Unknown versions are treated as known ones, since the fields
/// that rules read are stable.
fn find(settings: &Settings, workload: &Workload) -> Option<&'static Row> {
    TABLE.iter().find(|row| {
        let version_fits = row.versions.is_empty() || row.versions.contains(&&*workload.version);
        row.group == workload.group && row.kind == workload.kind && (version_fits || !settings.exactly_as_kai)
    })
}

/// Whether the kind has a rule other than one group per owner or per pod.
fn makes_gangs(settings: &Settings, owner: &Workload) -> bool {
    find(settings, owner).is_some_and(|row| row.name != BASE && !matches!(row.kind, "Pod" | "Deployment"))
}

/// The kinds of the table.
pub fn known_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().map(|row| (row.group, row.kind))
}

#[cfg(test)]
mod tests;
