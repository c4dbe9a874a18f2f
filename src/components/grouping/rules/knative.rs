//! Knative services: one group per revision, as large as its minimum scale.

use std::collections::BTreeSet;

use super::base::{of_owner, per_pod};
use super::{Grouped, Input, Reference, RuleError, wrong};
use crate::api::names::{annotation, priority_class, third_party};
use crate::components::grouping::workload::Workload;

/// One group per revision, since revisions of a service scale independently.
///
/// ```yaml
/// # Revision llm-00001, annotation autoscaling.knative.dev/min-scale: "2"  →  pg-llm-00001-…, minMember 2, inference
/// ```
pub fn service(input: &Input, _: &Workload) -> Result<Grouped, RuleError> {
    let (namespace, pod) = (input.namespace(), input.pod_name());
    let Some(name) = input
        .label(third_party::KNATIVE_REVISION)
        .filter(|name| !name.is_empty())
    else {
        return wrong(format!(
            "revisionName not found for knative service pod {namespace}/{pod}"
        ));
    };
    let revision = input.cluster.object(&Reference {
        api_version: "serving.knative.dev/v1".to_owned(),
        kind: "Revision".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })?;
    let mut grouped = of_owner(input, &revision, priority_class::INFERENCE)?;
    let spec = &mut grouped.group.spec;
    let min_scale = revision.annotation(third_party::KNATIVE_MIN_SCALE);
    let min_scale = min_scale
        .and_then(|text| text.parse::<i32>().ok())
        .filter(|scale| *scale >= 0);
    spec.min_member = Some(min_scale.unwrap_or(1));
    if input.settings.exactly_as_kai {
        (spec.topology_constraint, spec.preemptibility) = (None, None);
        (spec.preemption_delay, spec.staleness_grace_period) = (None, None);
        grouped.preemptibility_of_pods = false;
    }
    let gang = input.settings.knative_gangs && !is_grouped_per_pod(input, name, &grouped)?;
    if !gang {
        grouped.group.spec.min_member = Some(1);
        if input.settings.exactly_as_kai {
            grouped.group.spec.priority_class_name = Some(priority_class::INFERENCE.to_owned());
            grouped.class_of_pods = false;
        }
        per_pod(input, &mut grouped);
    }
    Ok(grouped)
}

/// Whether an older release created one group per pod of the revision, which is then kept.
fn is_grouped_per_pod(input: &Input, revision: &str, grouped: &Grouped) -> Result<bool, RuleError> {
    let namespace = input.namespace();
    let gang = grouped.group.metadata.name.as_deref().unwrap_or_default();
    if input.cluster.pod_group(namespace, gang).is_some() {
        return Ok(false);
    }
    let pods = input
        .cluster
        .pods(namespace, &[(third_party::KNATIVE_REVISION, revision)]);
    let mut named = BTreeSet::new();
    for pod in &pods {
        let annotations = pod.metadata.annotations.as_ref();
        let group = annotations.and_then(|annotations| annotations.get(annotation::POD_GROUP_NAME));
        if let Some(group) = group
            && !named.insert(group)
        {
            return Ok(false);
        }
    }
    let mut named = named.into_iter();
    let only = match (named.next(), named.next()) {
        (None, _) => return Ok(false),
        (Some(_), Some(_)) => return Ok(true),
        (Some(only), None) => only,
    };
    let Some(group) = input.cluster.pod_group(namespace, only) else {
        return Ok(false);
    };
    let owner = group
        .metadata
        .owner_references
        .as_ref()
        .and_then(|owners| owners.first());
    match owner.map(|owner| &*owner.kind) {
        Some("Revision") => Ok(false),
        Some("Pod") => Ok(true),
        Some(kind) => wrong(format!("pod group {only} of revision {revision} is owned by a {kind}")),
        None => wrong(format!("pod group {only} of revision {revision} has no owner")),
    }
}
