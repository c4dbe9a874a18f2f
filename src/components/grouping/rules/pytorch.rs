//! PyTorch jobs: a master and workers, the workers perhaps in segments.

use serde_json::Value;

use super::base::of_owner;
use super::tree::{below, inner, leaf, near};
use super::{Grouped, Input, RuleError, kubeflow, segments, wrong};
use crate::api::names::{annotation, priority_class, third_party};
use crate::api::pod_group::SubGroup;
use crate::components::grouping::fields;
use crate::components::grouping::workload::Workload;

const REPLICAS: &str = "pytorchReplicaSpecs";

/// Master and workers are sub-groups. Elastic jobs start with their minimum.
///
/// ```yaml
/// # Master 1, Worker 5, segment size 2  →  master 1; worker {3}: worker-0 2, worker-1 2, worker-2 1
/// ```
pub fn job(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    let size = size(top)?;
    let Some(types) = fields::map(&top.body, &["spec", REPLICAS])? else {
        return wrong(format!("the job {} doesn't have a {REPLICAS} field", top.name));
    };
    let replica_type = input.label(third_party::KUBEFLOW_REPLICA_TYPE);
    let master = types.get("Master").map(replicas).transpose()?.unwrap_or(0);
    let spec = &mut grouped.group.spec;
    spec.min_member = Some(size);
    if master != 0 {
        spec.sub_groups.push(leaf("master", master));
        if replica_type == Some("master") {
            grouped.sub_group = Some("master".to_owned());
        }
    }
    if let Some(worker) = types.get("Worker") {
        let workers = Workers {
            input,
            top,
            spec: worker,
            replicas: replicas(worker)?,
            needed: size.saturating_sub(master).max(0),
            is_own: replica_type == Some("worker"),
        };
        let (groups, own) = workers.groups()?;
        spec.sub_groups.extend(groups);
        grouped.sub_group = own.or(grouped.sub_group);
    }
    Ok(grouped)
}

/// The minimum: from the scheduling policy, else the elastic policy, else all pods.
fn size(top: &Workload) -> Result<i32, RuleError> {
    if let Some(size) = kubeflow::min_available(top)? {
        return Ok(size);
    }
    let all = kubeflow::sum(top, REPLICAS, &[])?;
    let elastic = fields::integer(&top.body, &["spec", "elasticPolicy", "minReplicas"]);
    Ok(elastic.ok().flatten().unwrap_or(all))
}

/// Replicas of a type; Kubeflow's default is one.
fn replicas(spec: &Value) -> Result<i32, RuleError> {
    Ok(fields::integer(spec, &["replicas"])?.unwrap_or(1))
}

struct Workers<'a> {
    input: &'a Input<'a>,
    top: &'a Workload,
    spec: &'a Value,
    replicas: i32,
    needed: i32,
    /// The pod is a worker.
    is_own: bool,
}

impl<'a> Workers<'a> {
    /// The worker template's annotation, else that of the pod if it is a worker: the master's may differ.
    fn annotation(&self, key: &'static str) -> Option<&'a str> {
        let of_template = fields::text(self.spec, &["template", "metadata", "annotations", key]);
        let of_template = of_template.ok().flatten().filter(|text| !text.is_empty());
        of_template.or_else(|| self.input.annotation(key).filter(|_| self.is_own))
    }

    fn groups(&self) -> Result<(Vec<SubGroup>, Option<String>), RuleError> {
        let whole = || {
            let own = self.is_own.then(|| "worker".to_owned());
            (vec![leaf("worker", self.needed)], own)
        };
        let Some(size) = segments::size(self.annotation(annotation::SEGMENT_SIZE), 1)? else {
            return Ok(whole());
        };
        let number = div_ceil(self.replicas, size);
        if number <= 0 {
            return Ok(whole());
        }
        segments::check_number(number)?;
        let topology = self.annotation(annotation::TOPOLOGY);
        let nearness = segments::nearness(topology.or_else(|| self.top.annotation(annotation::TOPOLOGY)), |key| {
            self.annotation(key)
        });
        let mandatory = div_ceil(self.needed, size);
        let rest = self.replicas % size;
        let mut groups = vec![inner("worker", number)];
        groups.extend((0..number).map(|index| {
            let min = match index {
                elastic if elastic >= mandatory => 0,
                last if last == number - 1 && rest != 0 => rest,
                _ => size,
            };
            near(nearness.clone(), below("worker", leaf(format!("worker-{index}"), min)))
        }));
        let own = if self.is_own {
            self.own_segment(size, number)?
        } else {
            None
        };
        Ok((groups, own))
    }

    /// The segment of this pod, by its index among the workers. Workers beyond the recorded number join the last one.
    fn own_segment(&self, size: i32, number: i32) -> Result<Option<String>, RuleError> {
        let pod = self.input.pod_name();
        let Some(text) = self.input.label(third_party::KUBEFLOW_REPLICA_INDEX) else {
            return wrong(format!("replica index label not found on pod {pod}"));
        };
        let index = match text.parse::<i32>() {
            Ok(index) if index >= 0 => index,
            Ok(index) => return wrong(format!("replica index {index} is not valid. It must not be negative")),
            Err(_) => return wrong(format!("invalid replica index {text:?} on pod {pod}")),
        };
        let segment = index / size;
        if segment >= number && self.input.settings.exactly_as_kai {
            return Ok(None);
        }
        Ok(Some(format!("worker-{}", segment.min(number - 1))))
    }
}

fn div_ceil(number: i32, by: i32) -> i32 {
    number / by + i32::from(number % by > 0)
}
