//! Generates the pods of a workload for manifests that have no pods: at least one for each part of the workload, with the labels that its controller would set.

use serde_json::{Map, Value, json};

use super::text_at;
use crate::api::names::third_party as key;
use crate::components::grouping::rules::{RuleError, known_kinds};
use crate::components::grouping::workload::split_api_version;
use crate::components::grouping::{counts, fields};

/// How many pods are generated for parts with several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodCount {
    /// A few of each part, for display.
    Few,
    /// All pods of the workload, up to the limit of one workload.
    All,
}

impl PodCount {
    /// How many pods are generated for a part that has `count`.
    fn limit(self, count: i32) -> i32 {
        match self {
            Self::Few => count.min(3),
            Self::All => count.min(PODS_MAX as i32 + 1),
        }
    }

    /// The same where one is enough for display.
    fn limit_or_one(self, count: i32) -> i32 {
        match self {
            Self::Few => 1,
            Self::All => self.limit(count),
        }
    }
}

/// Limit on the pods that are generated for all workloads of a text.
pub const PODS_MAX: usize = 4_096;

/// Kinds whose controllers create other objects first, which determine the pods and their groups.
const MADE_FIRST: &[(&str, &str, &str)] = &[
    ("grove.io", "PodCliqueSet", "a PodGang"),
    ("grove.io", "PodGangSet", "a PodGang"),
    ("nvidia.com", "DynamoGraphDeployment", "a PodCliqueSet"),
    ("ray.io", "RayJob", "a RayCluster"),
    ("ray.io", "RayService", "a RayCluster"),
    ("run.ai", "DistributedInferenceWorkload", "another workload"),
    ("run.ai", "DistributedWorkload", "another workload"),
    ("run.ai", "InferenceWorkload", "another workload"),
    ("run.ai", "InteractiveWorkload", "another workload"),
    ("run.ai", "TrainingWorkload", "another workload"),
    ("serving.knative.dev", "Service", "a Revision"),
    ("trainer.kubeflow.org", "TrainJob", "a JobSet"),
];

/// A generated pod: the end of its name, its labels, and its template.
struct Part<'a> {
    suffix: String,
    labels: Vec<(&'static str, String)>,
    template: Option<&'a Value>,
}

impl Part<'_> {
    /// Whether its pod is known. The templates of some kinds are not those of pods.
    fn has_containers(&self) -> bool {
        let containers = self.template.and_then(|template| template.pointer("/spec/containers"));
        containers.is_some_and(Value::is_array)
    }
}

/// The pods of the workload, generated one by one as they are read; none if its kind does not make pods.
///
/// # Errors
/// If they cannot be derived from the workload: the reason.
pub fn pods(owner: &Value, how_many: PodCount) -> Result<impl Iterator<Item = Value>, String> {
    let (api_version, kind) = (text_at(owner, "/apiVersion"), text_at(owner, "/kind"));
    let (group, _) = split_api_version(&api_version);
    let is_known = known_kinds().any(|known| known == (group, &*kind));
    let parts = if kind == "Pod" || !is_known {
        Vec::new()
    } else {
        let first = MADE_FIRST
            .iter()
            .find(|(of, named, _)| (*of, *named) == (group, &*kind));
        if let Some((.., other)) = first {
            return Err(format!(
                "its pods cannot be derived from it, as they depend on {other} that its controller creates"
            ));
        }
        parts(owner, &kind, how_many).map_err(|error| error.to_string())?
    };
    if how_many == PodCount::All && !parts.iter().all(Part::has_containers) {
        return Err("its pods cannot be derived from it, as it has no template of them".to_owned());
    }
    Ok(parts.into_iter().map(move |part| pod(owner, part, how_many)))
}

/// The Job that a CronJob would create.
pub fn run(of: &Value) -> Option<Value> {
    if (&*text_at(of, "/apiVersion"), &*text_at(of, "/kind")) != ("batch/v1", "CronJob") {
        return None;
    }
    let template = of.pointer("/spec/jobTemplate")?;
    let name = format!("{}-0", text_at(of, "/metadata/name"));
    Some(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": text_at(of, "/metadata/namespace"),
            "uid": format!("uid-of-job-{name}"),
            "labels": template.pointer("/metadata/labels"),
            "annotations": template.pointer("/metadata/annotations"),
            "ownerReferences": [reference(of)],
        },
        "spec": template.get("spec"),
    }))
}

/// The parts of the workload. The list may end after more than [`PODS_MAX`]: the caller refuses so many.
fn parts<'a>(owner: &'a Value, kind: &str, how_many: PodCount) -> Result<Vec<Part<'a>>, RuleError> {
    match kind {
        "JobSet" => job_set(owner, how_many),
        "LeaderWorkerSet" => leaders_and_workers(owner, how_many),
        "PyTorchJob" => replicas(owner, "/spec/pytorchReplicaSpecs", how_many),
        "TFJob" => replicas(owner, "/spec/tfReplicaSpecs", how_many),
        "XGBoostJob" => replicas(owner, "/spec/xgbReplicaSpecs", how_many),
        "JAXJob" => replicas(owner, "/spec/jaxReplicaSpecs", how_many),
        "MPIJob" => replicas(owner, "/spec/mpiReplicaSpecs", how_many),
        "RayCluster" => ray(owner, how_many),
        _ => equal(owner, kind, how_many),
    }
}

/// Pods of one template, perhaps with an index.
fn equal<'a>(owner: &'a Value, kind: &str, how_many: PodCount) -> Result<Vec<Part<'a>>, RuleError> {
    let count = match kind {
        "Job" | "RunaiJob" => counts::of_job(owner, &["spec"])?,
        _ => fields::integer(owner, &["spec", "replicas"])?.unwrap_or(1),
    };
    let (label, start) = match kind {
        "StatefulSet" => {
            let start = fields::integer(owner, &["spec", "ordinals", "start"])?;
            (Some(key::POD_INDEX), start.unwrap_or(0))
        }
        "Job" if fields::text(owner, &["spec", "completionMode"])? == Some("Indexed") => {
            (Some(key::COMPLETION_INDEX), 0)
        }
        _ => (None, 0),
    };
    let part = |number: i32| {
        let index = start.saturating_add(number).to_string();
        Part {
            labels: label.map(|label| (label, index.clone())).into_iter().collect(),
            suffix: index,
            template: owner.pointer("/spec/template"),
        }
    };
    Ok((0..how_many.limit_or_one(count)).map(part).collect())
}

fn job_set(owner: &Value, how_many: PodCount) -> Result<Vec<Part<'_>>, RuleError> {
    let jobs = owner.pointer("/spec/replicatedJobs").and_then(Value::as_array);
    let mut parts = Vec::new();
    for job in jobs.into_iter().flatten() {
        let name = text_at(job, "/name");
        let replicas = fields::integer(job, &["replicas"])?.unwrap_or(1);
        let pods = how_many.limit_or_one(counts::of_job(job, &["template", "spec"])?);
        for index in 0..how_many.limit(replicas) {
            parts.extend((0..pods).map(|pod| Part {
                suffix: format!("{name}-{index}-{pod}"),
                labels: vec![
                    (key::JOBSET_REPLICATED_JOB, name.clone()),
                    (key::JOBSET_JOB_INDEX, index.to_string()),
                ],
                template: job.pointer("/template/spec/template"),
            }));
            if parts.len() > PODS_MAX {
                return Ok(parts);
            }
        }
    }
    Ok(parts)
}

fn leaders_and_workers(owner: &Value, how_many: PodCount) -> Result<Vec<Part<'_>>, RuleError> {
    let size = fields::integer(owner, &["spec", "leaderWorkerTemplate", "size"])?.unwrap_or(1);
    let groups = fields::integer(owner, &["spec", "replicas"])?.unwrap_or(1);
    let template = |index: i32| {
        let leader = owner
            .pointer("/spec/leaderWorkerTemplate/leaderTemplate")
            .filter(|_| index == 0);
        leader.or_else(|| owner.pointer("/spec/leaderWorkerTemplate/workerTemplate"))
    };
    let mut parts = Vec::new();
    for group in 0..how_many.limit_or_one(groups) {
        parts.extend((0..how_many.limit(size)).map(|index| Part {
            suffix: format!("{group}-{index}"),
            labels: vec![
                (key::LWS_GROUP_INDEX, group.to_string()),
                (key::LWS_WORKER_INDEX, index.to_string()),
            ],
            template: template(index),
        }));
        if parts.len() > PODS_MAX {
            return Ok(parts);
        }
    }
    Ok(parts)
}

fn replicas<'a>(owner: &'a Value, pointer: &str, how_many: PodCount) -> Result<Vec<Part<'a>>, RuleError> {
    let mut parts = Vec::new();
    for (kind, spec) in owner.pointer(pointer).and_then(Value::as_object).into_iter().flatten() {
        let kind = kind.to_ascii_lowercase();
        let count = fields::integer(spec, &["replicas"])?.unwrap_or(1);
        parts.extend((0..how_many.limit(count)).map(|index| Part {
            suffix: format!("{kind}-{index}"),
            labels: vec![
                (key::KUBEFLOW_JOB_NAME, text_at(owner, "/metadata/name")),
                (key::KUBEFLOW_JOB_ROLE, kind.clone()),
                (key::KUBEFLOW_REPLICA_TYPE, kind.clone()),
                (key::KUBEFLOW_REPLICA_INDEX, index.to_string()),
            ],
            template: spec.get("template"),
        }));
        if parts.len() > PODS_MAX {
            return Ok(parts);
        }
    }
    Ok(parts)
}

fn ray(owner: &Value, how_many: PodCount) -> Result<Vec<Part<'_>>, RuleError> {
    let head = owner.pointer("/spec/headGroupSpec/template");
    let mut groups = vec![(counts::RAY_HEAD.to_owned(), 1, head)];
    let workers = owner.pointer("/spec/workerGroupSpecs").and_then(Value::as_array);
    for (index, group) in workers.into_iter().flatten().enumerate() {
        let name = counts::ray_group_name(group, index)?;
        let pods = counts::ray_workers(group)?.map_or(0, |workers| workers.replicas.saturating_mul(workers.hosts));
        groups.push((name, how_many.limit_or_one(pods).min(pods), group.get("template")));
    }
    let mut parts = Vec::new();
    for (name, count, template) in groups {
        parts.extend((0..count).map(|index| Part {
            suffix: if count == 1 {
                name.clone()
            } else {
                format!("{name}-{index}")
            },
            labels: vec![(key::RAY_GROUP, name.clone())],
            template,
        }));
        if parts.len() > PODS_MAX {
            return Ok(parts);
        }
    }
    Ok(parts)
}

fn pod(owner: &Value, part: Part, how_many: PodCount) -> Value {
    let of_template = |field: &str| {
        let found = part
            .template
            .and_then(|template| template.pointer(&format!("/metadata/{field}")));
        found.and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let mut labels: Map<String, Value> = of_template("labels");
    labels.extend(part.labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    let spec = part.template.and_then(|template| template.get("spec"));
    let spec = match (how_many, spec) {
        (PodCount::All, Some(spec)) => spec.clone(),
        _ => json!({"containers": [], "priorityClassName": spec.and_then(|spec| spec.get("priorityClassName"))}),
    };
    let name = format!("{}-{}", text_at(owner, "/metadata/name"), part.suffix);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": text_at(owner, "/metadata/namespace"),
            "uid": format!("uid-of-pod-{name}"),
            "labels": labels,
            "annotations": of_template("annotations"),
            "ownerReferences": [reference(owner)],
        },
        "spec": spec,
    })
}

fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
    })
}
