//! Ray clusters, and the jobs and services that create them: the head and the worker groups are sub-groups.

use std::sync::Arc;

use serde_json::Value;

use super::base::{self, of_owner, per_pod};
use super::tree::{as_name, leaf, near};
use super::{Grouped, Input, Reference, RuleError, wrong};
use crate::api::names::{annotation, priority_class, third_party};
use crate::api::pod_group::{SubGroup, TopologyConstraint};
use crate::components::grouping::workload::Workload;
use crate::components::grouping::{counts, fields};

/// A cluster by itself.
///
/// ```yaml
/// # gpu: replicas 4, minReplicas 2, numOfHosts 2; cpu: replicas 3   →   minMember 8: headgroup 1, gpu 4, cpu 3
/// ```
pub fn cluster(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    counted(input, top, &top.body)
}

/// A job: grouped by its cluster.
pub fn job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    counted(input, top, &made_by(input, top, &[&["status", "rayClusterName"]])?.body)
}

/// A service: grouped by the active cluster, or the pending one while none is active.
pub fn service(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let paths: [&[&str]; 2] = [
        &["status", "activeServiceStatus", "rayClusterName"],
        &["status", "pendingServiceStatus", "rayClusterName"],
    ];
    counted(input, top, &made_by(input, top, &paths)?.body)
}

/// The object's cluster, by the first path that is set.
fn made_by(input: &Input, top: &Workload, paths: &[&[&str]]) -> Result<Arc<Workload>, RuleError> {
    for path in paths {
        let Some(name) = fields::text(&top.body, path)? else {
            continue;
        };
        if name.is_empty() {
            break;
        }
        return input.cluster.object(&Reference {
            api_version: top.api_version(),
            kind: "RayCluster".to_owned(),
            namespace: input.namespace().to_owned(),
            name: name.to_owned(),
        });
    }
    let (namespace, name, kind) = (input.namespace(), &top.name, &top.kind);
    wrong(format!(
        "failed to extract rayClusterName for {namespace}/{name} of kind {kind}. Please make sure that the ray-operator is up"
    ))
}

fn counted(input: &Input, top: &Workload, cluster: &Value) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    if let Some(class) = top.labels.get(third_party::RAY_PRIORITY_CLASS_NAME) {
        grouped.group.spec.priority_class_name = Some(class.clone());
        grouped.class_of_pods = false;
    }
    let groups = groups(input, cluster)?;
    let total = super::tree::total(&groups);
    grouped.group.spec.min_member = Some(total);
    let existing = grouped.group.metadata.name.as_deref();
    let existing = existing.and_then(|name| input.cluster.pod_group(input.namespace(), name));
    if existing.is_some_and(|group| group.spec.sub_groups.is_empty()) {
        // Grouped by an older release: kept.
        return Ok(grouped);
    }
    let own = input.label(third_party::RAY_GROUP).map(as_name);
    let is_worker = own.is_some();
    grouped.sub_group = own.filter(|own| groups.iter().any(|group| group.name == *own));
    if grouped.sub_group.is_none() && !input.settings.exactly_as_kai {
        // A submitter, or a pod of a worker group that is not in the spec or had no pods: not part of the minimum.
        grouped.doubtful = is_worker;
        per_pod(input, &mut grouped);
        grouped.group.spec.min_member = Some(1);
        grouped.rule = "a pod of none of its groups".to_owned();
        return Ok(grouped);
    }
    grouped.group.spec.sub_groups = groups;
    Ok(grouped)
}

fn groups(input: &Input, cluster: &Value) -> Result<Vec<SubGroup>, RuleError> {
    let head = fields::value(cluster, &["spec", "headGroupSpec"])?;
    let head_topology = head.map(|head| topology(head, "headGroupSpec")).transpose()?;
    let mut groups = vec![near(head_topology.flatten(), leaf(counts::RAY_HEAD, 1))];
    let workers = fields::list(cluster, &["spec", "workerGroupSpecs"])?;
    for (index, spec) in workers.into_iter().flatten().enumerate() {
        if !spec.is_object() {
            return wrong(format!("workerGroupSpecs[{index}] is no object"));
        }
        let Some(size) = size(input, spec)? else { continue };
        let name = counts::ray_group_name(spec, index)?;
        let nearness = topology(spec, &format!("workerGroupSpecs.{name}"))?;
        groups.push(near(nearness, leaf(as_name(&name), size)));
    }
    Ok(groups)
}

/// The minimum of a worker group; `None` if it is suspended or has no pods.
fn size(input: &Input, spec: &Value) -> Result<Option<i32>, RuleError> {
    let Some(workers) = counts::ray_workers(spec)? else {
        return Ok(None);
    };
    let (min, stated) = (workers.min, fields::integer(spec, &["replicas"])?);
    if let Some(replicas) = stated.filter(|replicas| min > *replicas && input.settings.exactly_as_kai) {
        return wrong(format!(
            "ray-cluster replicas for a workerGroupsSpec can't be less than minReplicas. replicas: {replicas}, minReplicas: {min}"
        ));
    }
    if min == 0 && workers.replicas == 0 {
        return Ok(None);
    }
    let needed = if min > 0 { min } else { workers.replicas };
    Ok(Some(needed.saturating_mul(workers.hosts)))
}

fn topology(spec: &Value, place: &str) -> Result<Option<TopologyConstraint>, RuleError> {
    let annotation = |key: &'static str| fields::text(spec, &["template", "metadata", "annotations", key]);
    let constraint = base::topology(|key| annotation(key).ok().flatten());
    let constraint = constraint.filter(|constraint| {
        constraint.required_topology_level.is_some() || constraint.preferred_topology_level.is_some()
    });
    match constraint {
        Some(constraint) if constraint.topology.is_none() => wrong(format!(
            "topology annotation ({}) is required for {place} since it asks for a placement",
            annotation::TOPOLOGY
        )),
        constraint => Ok(constraint),
    }
}
