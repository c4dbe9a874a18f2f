//! Job sets: one group with a tree of two levels, replicated jobs above their replicas.

use serde_json::Value;

use super::base::{self, of_owner};
use super::tree::{below, count, inner, leaf, near};
use super::{Grouped, Input, RuleError, wrong};
use crate::api::names::{annotation, priority_class, third_party};
use crate::api::pod_group::{SubGroup, TopologyConstraint};
use crate::components::grouping::fields;
use crate::components::grouping::workload::Workload;
use crate::mirror::identity::default_group_name;

/// Every replica of a replicated job is a gang; an annotation or the startup policy determines how many replicated jobs must start.
///
/// ```yaml
/// # leader 1×1, worker 2×4  →  leader {1 of 1}: leader-replica-0 (1 pod); worker {2 of 2}: worker-replica-0, -1 (4 pods each)
/// ```
pub fn job_set(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    if top.name.is_empty() || top.uid.is_empty() {
        return wrong("a JobSet without name or uid");
    }
    let jobs = jobs(input, top)?;
    if let Some(grouped) = legacy(input, top, &jobs)? {
        return Ok(grouped);
    }
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    let spec = &mut grouped.group.spec;
    let running: Vec<&ReplicatedJob> = jobs.iter().filter(|job| job.replicas > 0).collect();
    spec.min_member = None;
    spec.min_sub_group = Some(min_jobs(input, top, &running)?);
    let size = running.iter().map(|job| 1 + job.replicas).sum::<usize>();
    if size > super::tree::MAX {
        return wrong(format!("the job set {} has too many replicas: {size}", top.name));
    }
    for job in &running {
        spec.sub_groups.push(inner(&job.name, count(job.replicas)));
        spec.sub_groups
            .extend((0..job.replicas).map(|index| job.replica(index)));
    }
    let leaf = own_leaf(input)?;
    if !spec.sub_groups.iter().any(|group| group.name == leaf) {
        return wrong(format!("leaf subgroup {leaf:?} not found for pod {}", input.pod_name()));
    }
    grouped.sub_group = Some(leaf);
    Ok(grouped)
}

struct ReplicatedJob {
    name: String,
    replicas: usize,
    size: i32,
    topology: Option<TopologyConstraint>,
    waits_for_others: bool,
}

impl ReplicatedJob {
    fn replica(&self, index: usize) -> SubGroup {
        let name = format!("{}-replica-{index}", self.name);
        near(self.topology.clone(), below(&self.name, leaf(name, self.size)))
    }
}

fn jobs(input: &Input, top: &Workload) -> Result<Vec<ReplicatedJob>, RuleError> {
    let listed = fields::list(&top.body, &["spec", "replicatedJobs"])?;
    let Some(listed) = listed.filter(|listed| !listed.is_empty()) else {
        let namespace = input.namespace();
        return wrong(format!("jobset {namespace}/{} has no replicatedJobs", top.name));
    };
    listed.iter().map(job).collect()
}

fn job(spec: &Value) -> Result<ReplicatedJob, RuleError> {
    if !spec.is_object() {
        return wrong("an entry of replicatedJobs is no object");
    }
    let name = fields::text(spec, &["name"])?.unwrap_or_default();
    if name.is_empty() {
        return wrong("a replicated job has no name");
    }
    let replicas = fields::integer(spec, &["replicas"])?.unwrap_or(1);
    let annotation = |key: &'static str| fields::text(spec, &["template", "metadata", "annotations", key]);
    let parallelism = fields::integer(spec, &["template", "spec", "parallelism"])?.unwrap_or(1);
    // A Job creates no more pods than completions.
    let completions = fields::integer(spec, &["template", "spec", "completions"])?.unwrap_or(parallelism);
    let size = match annotation(annotation::BATCH_MIN_MEMBER)?.filter(|text| !text.is_empty()) {
        Some(text) => at_least_one(text)?,
        None => parallelism.min(completions),
    };
    let topology = base::topology(|key| annotation(key).ok().flatten())
        .filter(|constraint| constraint.topology.is_some())
        .filter(|constraint| {
            constraint.required_topology_level.is_some() || constraint.preferred_topology_level.is_some()
        });
    Ok(ReplicatedJob {
        name: name.to_owned(),
        replicas: usize::try_from(replicas).unwrap_or_default(),
        size,
        topology,
        waits_for_others: fields::list(spec, &["dependsOn"])?.is_some_and(|others| !others.is_empty()),
    })
}

/// How many replicated jobs must start. Those that are created only after others are not waited for.
fn min_jobs(input: &Input, top: &Workload, running: &[&ReplicatedJob]) -> Result<i32, RuleError> {
    let all = count(running.len());
    if let Some(text) = top.annotation(annotation::BATCH_MIN_MEMBER) {
        return Ok(at_least_one(text)?.min(all));
    }
    if is_in_order(top)? {
        return Ok(all.min(1));
    }
    let first = running.iter().filter(|job| !job.waits_for_others).count();
    if input.settings.exactly_as_kai || first == 0 {
        return Ok(all);
    }
    Ok(count(first))
}

fn is_in_order(top: &Workload) -> Result<bool, RuleError> {
    let order = fields::text(&top.body, &["spec", "startupPolicy", "startupPolicyOrder"])?;
    Ok(order == Some("InOrder"))
}

fn at_least_one(text: &str) -> Result<i32, RuleError> {
    match text.parse::<i32>() {
        Ok(size) if size >= 1 => Ok(size),
        Ok(_) | Err(_) => wrong(format!(
            "invalid min-member annotation value: {text:?} of {} is not a whole number from 1",
            annotation::BATCH_MIN_MEMBER
        )),
    }
}

/// The leaf that the pod's labels name.
fn own_leaf(input: &Input) -> Result<String, RuleError> {
    let label = |key: &str| match input.label(key).filter(|value| !value.is_empty()) {
        Some(value) => Ok(value),
        None => wrong(format!("pod {} has no label {key}", input.pod_name())),
    };
    let (job, index) = (
        label(third_party::JOBSET_REPLICATED_JOB)?,
        label(third_party::JOBSET_JOB_INDEX)?,
    );
    Ok(format!("{job}-replica-{index}"))
}

/// A job set that an older release grouped without sub-groups keeps its group.
fn legacy(input: &Input, top: &Workload, jobs: &[ReplicatedJob]) -> Result<Option<Grouped>, RuleError> {
    let whole = default_group_name(&top.name, &top.uid);
    let named = jobs.iter().map(|job| format!("{whole}-{}", job.name));
    let is_flat = |name: String| {
        let group = input.cluster.pod_group(input.namespace(), &name);
        group.is_some_and(|group| group.spec.sub_groups.is_empty())
    };
    if !std::iter::once(whole.clone()).chain(named).any(is_flat) {
        return Ok(None);
    }
    let Some(job) = input
        .label(third_party::JOBSET_REPLICATED_JOB)
        .filter(|job| !job.is_empty())
    else {
        let key = third_party::JOBSET_REPLICATED_JOB;
        return wrong(format!("pod {} has no label {key}", input.pod_name()));
    };
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    if is_in_order(top)? {
        grouped.group.metadata.name = Some(format!("{whole}-{job}"));
    }
    let stated = super::batch::min_member(top.annotation(annotation::BATCH_MIN_MEMBER))?;
    grouped.group.spec.min_member = Some(stated.unwrap_or(1));
    Ok(Some(grouped))
}
