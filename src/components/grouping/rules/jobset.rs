//! Job sets: one group with a tree of two levels, replicated jobs above their replicas.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::base::{self, of_owner};
use super::tree::{below, count, inner, leaf, near};
use super::{Grouped, Input, RuleError, wrong};
use crate::api::names::{annotation, priority_class, third_party};
use crate::api::pod_group::{SubGroup, TopologyConstraint};
use crate::components::grouping::workload::Workload;
use crate::components::grouping::{counts, fields};
use crate::mirror::identity::default_group_name;

/// Every replica of a replicated job is a gang; an annotation, the startup policy or dependencies determine how many replicated jobs must start.
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
    let size = running.iter().map(|job| 1 + job.replicas).sum::<usize>();
    if size > super::tree::MAX {
        return wrong(format!("the job set {} has too many replicas: {size}", top.name));
    }
    spec.min_member = None;
    spec.min_sub_group = Some(min_jobs(input, top, &jobs)?);
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
    /// The jobs that it is created after, and whether they must have ended.
    after: Vec<(String, bool)>,
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

/// A replicated job.
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
    let pods = counts::of_job(spec, &["template", "spec"])?;
    let size = match annotation(annotation::BATCH_MIN_MEMBER)?.filter(|text| !text.is_empty()) {
        Some(text) => at_least_one(text)?,
        None => pods,
    };
    let topology = base::topology(|key| annotation(key).ok().flatten())
        .filter(|constraint| constraint.topology.is_some())
        .filter(|constraint| {
            constraint.required_topology_level.is_some() || constraint.preferred_topology_level.is_some()
        });
    let others = fields::list(spec, &["dependsOn"])?.into_iter().flatten();
    let after = others.map(|other| {
        let text = |key: &str| other.get(key).and_then(Value::as_str).unwrap_or_default();
        (text("name").to_owned(), text("status") != "Ready")
    });
    Ok(ReplicatedJob {
        name: name.to_owned(),
        replicas: usize::try_from(replicas).unwrap_or_default(),
        size,
        topology,
        after: after.collect(),
    })
}

/// How many replicated jobs must start. Those that are created only after others are not waited for. Jobs that have ended do not count, so one that is
/// created after their end may be the only one: its pods, which come when no other pods are grouped any more, set the minimum to 1. If it does not wait for
/// the end of all first jobs, its pods and theirs are grouped at the same time, so the minimum is 1 from the start.
fn min_jobs(input: &Input, top: &Workload, jobs: &[ReplicatedJob]) -> Result<i32, RuleError> {
    let running = || jobs.iter().filter(|job| job.replicas > 0);
    let all = count(running().count());
    if let Some(text) = top.annotation(annotation::BATCH_MIN_MEMBER) {
        return Ok(at_least_one(text)?.min(all));
    }
    if is_in_order(top)? {
        return Ok(all.min(1));
    }
    if input.settings.exactly_as_kai {
        return Ok(all);
    }
    let first = running().filter(|job| job.after.is_empty());
    let first: BTreeSet<&str> = first.map(|job| job.name.as_str()).collect();
    let own = input.label(third_party::JOBSET_REPLICATED_JOB);
    // Jobs that are created after the end of others, and whether all first ones have ended by then. A job can wait only for those before it in the list.
    let mut late: BTreeMap<&str, bool> = BTreeMap::new();
    for job in jobs {
        let ended = job.after.iter().filter(|(_, ends)| *ends);
        let ended: BTreeSet<&str> = ended.map(|(name, _)| name.as_str()).collect();
        let earlier = job.after.iter().filter_map(|(name, _)| late.get(name.as_str()));
        let earlier: Vec<bool> = earlier.copied().collect();
        if ended.is_empty() && earlier.is_empty() {
            continue;
        }
        let follows_all = first.is_subset(&ended) || earlier.contains(&true);
        if job.replicas > 0 && (!follows_all || own == Some(&*job.name)) {
            return Ok(all.min(1));
        }
        late.insert(&job.name, follows_all);
    }
    Ok(count(first.len().max(1)).min(all))
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
