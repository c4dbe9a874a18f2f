//! Deployments: each pod is a group of its own, because replicas serve independently of one another.

use super::base::{of_owner, per_pod};
use super::{Grouped, Input, RuleError, own};
use crate::api::names::priority_class;
use crate::components::grouping::workload::Workload;

/// One group per pod, owned by the pod; settings are inherited from the Deployment. A Deployment that states how many of its
/// pods must run together is one group.
///
/// ```yaml
/// # Deployment web, pod web-1 with uid 3  →  pod group pg-web-1-3, priority class inference
/// ```
pub fn deployment(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::INFERENCE)?;
    if !own::shape(input, top, None, &mut grouped)? {
        per_pod(input, &mut grouped);
    }
    Ok(grouped)
}
