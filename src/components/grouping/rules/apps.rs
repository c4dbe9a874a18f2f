//! Deployments: each pod is a group of its own, because replicas serve independently of one another.

use super::base::{Base, build};
use super::{Grouped, Input, RuleError};
use crate::components::grouping::workload::Workload;

/// One group per pod, owned by the pod; what the group inherits comes from the Deployment.
///
/// ```yaml
/// # Deployment web, pod web-1 with uid 3  →  pod group pg-web-1-3, priority class inference
/// ```
#[expect(clippy::unnecessary_wraps, reason = "the signature of a rule")]
pub fn deployment(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let pod = Workload::of_pod(input.pod);
    let base = Base {
        top,
        owners: &[top],
        fallback_class: "inference",
    };
    let mut grouped = build(input, &base);
    grouped.group.metadata.name = Some(format!("pg-{}-{}", pod.name, pod.uid));
    grouped.group.metadata.owner_references = Some(vec![pod.owner_reference()]);
    Ok(grouped)
}
