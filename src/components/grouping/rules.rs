//! From a pod and its owners to its pod group: pure functions, one file per family of workloads, one table that lists them.
//!
//! What is absent: reading owners (`owners`), and what becomes of an existing pod group (`merge`).

mod apps;
mod base;
mod batch;
mod inherit;

use k8s_openapi::api::core::v1::Pod;

use super::workload::Workload;
use crate::api::PodGroup;
use crate::components::Settings;

/// What a rule may look at.
pub struct Input<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its owners that could be read, from the direct one to the top; empty if the pod is its own top owner.
    pub chain: &'a [Workload],
    /// The configuration.
    pub settings: &'a Settings,
    /// What is known of the cluster.
    pub cluster: &'a dyn Cluster,
}

/// The few facts about the cluster that rules ask for.
pub trait Cluster {
    /// Whether a priority class of that name exists.
    fn has_priority_class(&self, name: &str) -> bool;
    /// Whether a pod group of that name exists in that namespace.
    fn has_pod_group(&self, namespace: &str, name: &str) -> bool;
    /// The queue that the namespace names for its workloads.
    fn namespace_queue(&self, namespace: &str) -> Option<String>;
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// The pod group as the rule wants it.
    pub group: PodGroup,
    /// The sub-group that the pod belongs to.
    pub subgroup: Option<String>,
}

/// Why a rule has no answer. The sentence is the user's event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The gang size of a Job is no number.
    #[error("invalid min-member annotation value: {value:?} of {kind} {name} is not a whole number")]
    MinMember {
        /// Kind of the workload.
        kind: String,
        /// Its name.
        name: String,
        /// What the annotation says.
        value: String,
    },
}

type Rule = fn(&Input, &Workload) -> Result<Grouped, RuleError>;

/// Which rule groups the pods of which top owner, by API group and kind. What is not listed goes by the default rule.
const TABLE: &[(&str, &str, Rule)] = &[
    ("", "Pod", base::pod),
    ("apps", "Deployment", apps::deployment),
    ("apps", "ReplicaSet", base::default_rule),
    ("apps", "StatefulSet", base::default_rule),
    ("batch", "Job", batch::job),
    ("batch", "CronJob", batch::cron_job),
];

/// Groups a pod.
///
/// # Errors
/// If the workload asks for something that makes no sense.
pub fn group(input: &Input) -> Result<Grouped, RuleError> {
    let own;
    let top = match input.chain.last() {
        Some(top) => top,
        None => {
            own = Workload::of_pod(input.pod);
            &own
        }
    };
    let rule = TABLE
        .iter()
        .find(|(group, kind, _)| *group == top.group && *kind == top.kind);
    rule.map_or(base::default_rule as Rule, |(_, _, rule)| *rule)(input, top)
}

#[cfg(test)]
mod tests;
