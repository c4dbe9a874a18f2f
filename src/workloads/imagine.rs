//! Generates the pods of a workload for manifests that have no pods: at least one for each part of the workload, with the labels that its controller would set.

use serde_json::{Map, Value, json};

use super::text_at;
use crate::api::names::third_party as key;
use crate::components::grouping::rules::known_kinds;

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
    fn limit(self, count: i64) -> i64 {
        match self {
            Self::Few => count.min(3),
            Self::All => count.min(PODS_MAX as i64 + 1),
        }
    }
}

/// Limit on the pods that are generated for all workloads of a text.
pub const PODS_MAX: usize = 4_096;

/// A generated pod: the end of its name, its labels, and its template.
struct Part<'a> {
    suffix: String,
    labels: Vec<(&'static str, String)>,
    template: Option<&'a Value>,
}

/// The pods of the workload, generated one by one as they are read; none if its kind does not make pods.
pub fn pods(owner: &Value, how_many: PodCount) -> impl Iterator<Item = Value> {
    let (api_version, kind) = (text_at(owner, "/apiVersion"), text_at(owner, "/kind"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_known = known_kinds().any(|known| known == (group, &*kind));
    let parts = if kind == "Pod" || !is_known {
        Vec::new()
    } else {
        parts(owner, &kind, how_many)
    };
    parts.into_iter().map(move |part| pod(owner, part, how_many))
}

/// The parts of the workload. The list may end after more than [`PODS_MAX`]: the caller refuses so many.
fn parts<'a>(owner: &'a Value, kind: &str, how_many: PodCount) -> Vec<Part<'a>> {
    match kind {
        "JobSet" => job_set(owner, how_many),
        "LeaderWorkerSet" => leader_and_worker(owner, how_many),
        "PyTorchJob" => replicas(owner, "/spec/pytorchReplicaSpecs", how_many),
        "TFJob" => replicas(owner, "/spec/tfReplicaSpecs", how_many),
        "XGBoostJob" => replicas(owner, "/spec/xgbReplicaSpecs", how_many),
        "JAXJob" => replicas(owner, "/spec/jaxReplicaSpecs", how_many),
        "MPIJob" => replicas(owner, "/spec/mpiReplicaSpecs", how_many),
        "RayCluster" => ray(owner, how_many),
        _ => {
            let count = match how_many {
                PodCount::Few => 1,
                PodCount::All => how_many.limit(number(owner, "/spec/parallelism", number(owner, "/spec/replicas", 1))),
            };
            let part = |index| Part {
                suffix: format!("{index}"),
                labels: Vec::new(),
                template: owner.pointer("/spec/template"),
            };
            (0..count).map(part).collect()
        }
    }
}

fn job_set(owner: &Value, how_many: PodCount) -> Vec<Part<'_>> {
    let jobs = owner.pointer("/spec/replicatedJobs").and_then(Value::as_array);
    let mut parts = Vec::new();
    for job in jobs.into_iter().flatten() {
        let (name, replicas) = (text_at(job, "/name"), number(job, "/replicas", 1));
        let pods = match how_many {
            PodCount::Few => 1,
            PodCount::All => how_many.limit(number(job, "/template/spec/parallelism", 1)),
        };
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
                return parts;
            }
        }
    }
    parts
}

fn leader_and_worker(owner: &Value, how_many: PodCount) -> Vec<Part<'_>> {
    let size = number(owner, "/spec/leaderWorkerTemplate/size", 1);
    let template = |index: i64| {
        let leader = owner
            .pointer("/spec/leaderWorkerTemplate/leaderTemplate")
            .filter(|_| index == 0);
        leader.or_else(|| owner.pointer("/spec/leaderWorkerTemplate/workerTemplate"))
    };
    let part = |index: i64| Part {
        suffix: format!("0-{index}"),
        labels: vec![
            (key::LWS_GROUP_INDEX, "0".to_owned()),
            (key::LWS_WORKER_INDEX, index.to_string()),
        ],
        template: template(index),
    };
    (0..how_many.limit(size)).map(part).collect()
}

fn replicas<'a>(owner: &'a Value, pointer: &str, how_many: PodCount) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    for (kind, spec) in owner.pointer(pointer).and_then(Value::as_object).into_iter().flatten() {
        let kind = kind.to_ascii_lowercase();
        parts.extend((0..how_many.limit(number(spec, "/replicas", 1))).map(|index| Part {
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
            return parts;
        }
    }
    parts
}

fn ray(owner: &Value, how_many: PodCount) -> Vec<Part<'_>> {
    let head = owner.pointer("/spec/headGroupSpec/template");
    let groups = owner.pointer("/spec/workerGroupSpecs").and_then(Value::as_array);
    let workers = groups.into_iter().flatten().enumerate().map(|(index, group)| {
        let name = text_at(group, "/groupName");
        let name = if name.is_empty() {
            format!("worker-group-{index}")
        } else {
            name
        };
        let count = match how_many {
            PodCount::Few => 1,
            PodCount::All => how_many.limit(number(group, "/replicas", 1)),
        };
        (name, count, group.get("template"))
    });
    let all = std::iter::once(("headgroup".to_owned(), 1, head)).chain(workers);
    let mut parts = Vec::new();
    for (name, count, template) in all {
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
            return parts;
        }
    }
    parts
}

fn number(value: &Value, pointer: &str, default: i64) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(default)
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
            "ownerReferences": [{
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": true,
            }],
        },
        "spec": spec,
    })
}
