//! Kubernetes objects of a scenario.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Affinity, Container, Node, NodeAffinity, NodeCondition, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    NodeStatus, Pod, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time as Instant};

use super::scenario::{Job, Machine, Queue, Shape, Share};
use crate::api::names::{annotation, label, node_label, object, received_resource_type, resource};
use crate::api::pod_group::PodGroupSpec;
use crate::api::quantity::{Amount, Format};
use crate::api::queue::{QueueResource, QueueResources, QueueSpec};
use crate::api::{self, PodGroup};
use crate::engine::decision::{Bind, GroupTimes};
use crate::engine::input::{GpuKind, Millis, Time};

/// The namespace of all jobs.
const NAMESPACE: &str = "simulation";
/// The label for the model of a node's GPUs.
const MODEL: &str = "nvidia.com/gpu.product";
/// MiB of each GPU. Jobs request GPUs and portions of them, not memory, so the number does not matter.
const GPU_MEMORY: &str = "81920";
/// Pod slots of a node.
const PODS: i64 = 1_000;

fn instant(at: Millis) -> Option<Instant> {
    Timestamp::from_millisecond(at).ok().map(Instant)
}

fn meta(name: &str, created: Millis) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        creation_timestamp: instant(created),
        ..ObjectMeta::default()
    }
}

/// A node that is ready.
pub fn node(machine: &Machine) -> Arc<Node> {
    let mut labels = machine.labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), machine.name.clone());
    if machine.gpus > 0 {
        labels.insert(node_label::GPU_COUNT.to_owned(), machine.gpus.to_string());
        labels.insert(node_label::GPU_MEMORY.to_owned(), GPU_MEMORY.to_owned());
    }
    labels.extend(machine.model.iter().map(|model| (MODEL.to_owned(), model.clone())));
    let mut metadata = meta(&machine.name, 0);
    metadata.labels = Some(labels);
    let allocatable = [
        (resource::CPU, Amount::from_milli(machine.cpu)),
        (resource::MEMORY, Amount::from_units(machine.memory)),
        (resource::NVIDIA_GPU, Amount::from_units(machine.gpus)),
        (resource::PODS, Amount::from_units(PODS)),
    ];
    let quantity = |(name, amount): (&str, Amount)| (name.to_owned(), amount.to_quantity(Format::DecimalSi));
    let ready = NodeCondition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        ..NodeCondition::default()
    };
    Arc::new(Node {
        metadata,
        status: Some(NodeStatus {
            allocatable: Some(allocatable.into_iter().map(quantity).collect()),
            conditions: Some(vec![ready]),
            ..NodeStatus::default()
        }),
        ..Node::default()
    })
}

/// A queue.
pub fn queue(queue: &Queue) -> Arc<api::Queue> {
    let share = |share: Share| {
        Some(QueueResource {
            quota: Some(share.quota),
            limit: Some(share.limit),
            over_quota_weight: Some(share.weight),
        })
    };
    Arc::new(api::Queue {
        metadata: meta(&queue.name, 0),
        spec: QueueSpec {
            parent_queue: queue.parent.clone(),
            priority: queue.priority,
            preempt_min_runtime: queue.preempt_min_runtime.clone(),
            reclaim_min_runtime: queue.reclaim_min_runtime.clone(),
            resources: Some(QueueResources {
                gpu: share(queue.gpu),
                cpu: share(queue.cpu.unwrap_or_else(Share::unlimited)),
                memory: share(queue.memory.unwrap_or_else(Share::unlimited)),
            }),
            ..QueueSpec::default()
        },
        ..api::Queue::default()
    })
}

fn class_name(priority: i32) -> String {
    format!("priority-{priority}")
}

/// The class of jobs of that priority.
pub fn priority_class(priority: i32) -> Arc<PriorityClass> {
    Arc::new(PriorityClass {
        metadata: meta(&class_name(priority), 0),
        value: priority,
        ..PriorityClass::default()
    })
}

/// A job's pod group, with the scheduler's annotations.
pub fn group(job: &Job, times: Option<&GroupTimes>) -> Arc<PodGroup> {
    let mut metadata = meta(&job.name, job.arrives);
    metadata.namespace = Some(NAMESPACE.to_owned());
    let written = times.map_or([None; 3], |times| {
        [times.stale_since, times.last_start, times.last_eviction]
    });
    let keys = [
        annotation::STALE_TIMESTAMP,
        annotation::LAST_START_TIMESTAMP,
        annotation::LAST_EVICTION_TIMESTAMP,
    ];
    let texts = keys
        .into_iter()
        .zip(written)
        .filter_map(|(key, at): (_, Option<Time>)| {
            Some((key.to_owned(), Timestamp::from_millisecond(at?.0).ok()?.to_string()))
        });
    metadata.annotations = Some(texts.collect());
    Arc::new(PodGroup {
        metadata,
        spec: PodGroupSpec {
            min_member: Some(i32::try_from(job.min).unwrap_or(i32::MAX)),
            queue: Some(job.queue.clone()),
            priority_class_name: Some(class_name(job.priority)),
            ..PodGroupSpec::default()
        },
        ..PodGroup::default()
    })
}

/// A pod of a job, pending or on a node.
pub fn pod(job: &Job, name: &str, created: Millis, place: Option<&Bind>, leaving: Option<Millis>) -> Arc<Pod> {
    let mut metadata = meta(name, created);
    metadata.namespace = Some(NAMESPACE.to_owned());
    metadata.deletion_timestamp = leaving.and_then(instant);
    let mut annotations = BTreeMap::from([(annotation::POD_GROUP_NAME.to_owned(), job.name.clone())]);
    let shape = &job.shape;
    if shape.gpu % 1_000 != 0 {
        annotations.insert(
            annotation::GPU_FRACTION.to_owned(),
            (shape.gpu as f64 / 1e3).to_string(),
        );
    }
    let mut labels = BTreeMap::new();
    if let Some(bind) = place {
        let received = if bind.received == GpuKind::Fraction {
            received_resource_type::FRACTION
        } else {
            received_resource_type::REGULAR
        };
        annotations.insert(annotation::RECEIVED_RESOURCE_TYPE.to_owned(), received.to_owned());
        labels.extend(
            bind.gpu_groups
                .first()
                .map(|group| (label::GPU_GROUP.to_owned(), group.to_string())),
        );
    }
    metadata.annotations = Some(annotations);
    metadata.labels = Some(labels);
    let phase = if place.is_some() { "Running" } else { "Pending" };
    Arc::new(Pod {
        metadata,
        spec: Some(spec(shape, place)),
        status: Some(PodStatus {
            phase: Some(phase.to_owned()),
            ..PodStatus::default()
        }),
    })
}

fn spec(shape: &Shape, place: Option<&Bind>) -> PodSpec {
    let whole = if shape.gpu % 1_000 == 0 { shape.gpu / 1_000 } else { 0 };
    let requests = [
        (resource::CPU, Amount::from_milli(shape.cpu)),
        (resource::MEMORY, Amount::from_units(shape.memory)),
        (resource::NVIDIA_GPU, Amount::from_units(whole)),
    ];
    let asked = requests.into_iter().filter(|(_, amount)| !amount.is_zero());
    let asked = asked.map(|(name, amount)| (name.to_owned(), amount.to_quantity(Format::DecimalSi)));
    let models = NodeSelectorRequirement {
        key: MODEL.to_owned(),
        operator: "In".to_owned(),
        values: Some(shape.models.clone()),
    };
    let affinity = Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_expressions: Some(vec![models]),
                    ..NodeSelectorTerm::default()
                }],
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    };
    PodSpec {
        scheduler_name: Some(object::SCHEDULER_NAME.to_owned()),
        node_name: place.map(|bind| bind.node.to_string()),
        affinity: (!shape.models.is_empty()).then_some(affinity),
        containers: vec![Container {
            name: "job".to_owned(),
            resources: Some(ResourceRequirements {
                requests: Some(asked.collect()),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        }],
        ..PodSpec::default()
    }
}
