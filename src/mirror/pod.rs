//! Pod objects → pods, joined with their bind request and their grouping.

mod json;

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::claims::Claims;
use super::identity::Role;
use super::needs::Templates;
use super::packed::{Phase, Pod};
use super::relations::{self, Namespaces};
use super::{Entry, FallbackQueue, Mirror, Output, Problem, Settings, bind_request, bounds, name, numa, trim};
use crate::api::gpu_request::is_group_label;
use crate::api::names::{annotation, label, received_resource_type, third_party};
use crate::api::{BindRequest, limits};
use crate::engine::input::{GpuKind, GpuRequest, GroupKey, Name, PodInput, PodStatus};

impl Entry for core::Pod {
    type Packed = Pod;
    fn read(text: &str) -> serde_json::Result<Self> {
        json::read(text)
    }
    fn trim(&mut self) {
        if let Some(annotations) = &mut self.metadata.annotations {
            // A whole manifest, which is never read.
            annotations.remove(annotation::KUBECTL_LAST_APPLIED);
        }
        bounds::cut_pod(self);
        trim::trim_pod(self);
    }
    fn changed(pod: &Arc<Pod>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        if there {
            mirror.pod_applied(pod, out);
        } else {
            mirror.pod_deleted(pod, out);
        }
    }
}

/// A pod's pod group as the grouper found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The pod group.
    pub group: GroupKey,
    /// The sub-group.
    pub sub_group: Option<Name>,
}

/// Objects on which a pod's input depends.
#[derive(Clone, Copy)]
pub struct PodContext<'a> {
    /// The namespaces.
    pub namespaces: &'a Namespaces,
    /// Claims for devices.
    pub claims: &'a Claims,
    /// Cache of needs.
    pub templates: &'a Templates,
}

/// Reads a pod. `request` is its effective bind request. A pod of another scheduler has no pod group.
pub fn read(
    pod: &Arc<Pod>,
    request: Option<&BindRequest>,
    membership: Option<&Membership>,
    settings: &Settings,
    PodContext {
        namespaces,
        claims,
        templates,
    }: PodContext,
    problems: &mut Vec<Problem>,
) -> PodInput {
    let marks = Marks::of(pod);
    let ours = pod.scheduler == settings.scheduler_name;
    problems.extend(pod.excess.as_deref().copied().map(Problem::ExceededLimit));
    let mut needs = templates.needs(pod, ours, &settings.gpu_resources, problems);
    let used = claims.of_pod(pod, request, &mut needs);
    let finished = pod.phase == Phase::Succeeded;
    let foreign = !finished && !ours;
    let (group, sub_group) = if foreign {
        (None, None)
    } else {
        place(pod, &marks, membership, request)
    };
    let gpu_groups = gpu_groups(pod, &marks, request);
    let account = pod.account.as_deref().unwrap_or("default");
    let role = settings.own_pods.role_of(&pod.pod.namespace, account);
    // The bind request is for a node of the shard; the pod gets the label of its pool with the bind.
    let placed = match pod.node {
        Some(_) => settings.shard.takes(&pod.labels),
        None => request.is_some(),
    };
    PodInput {
        pod: pod.pod.clone(),
        created: pod.created,
        labels: pod.labels.clone(),
        group,
        sub_group,
        status: status(pod, request.is_some()),
        releasing_since: pod.deleted.filter(|_| pod.phase == Phase::Running),
        node: pod
            .node
            .clone()
            .or_else(|| request.and_then(bind_request::node).map(name)),
        foreign,
        of_unikai: role != Role::Workload,
        reservation: role == Role::Reservation && holds_one_gpu(&needs.gpu) && gpu_groups.len() == 1,
        needs,
        received: received(&marks, request),
        gpu_groups,
        task_priority: marks.task_priority.map(|text| text.parse().unwrap_or(i64::MIN)),
        kubeflow_master: matches!(marks.kubeflow_role, Some("master" | "launcher")),
        ray_head: marks.ray_type == Some("head"),
        nominated_node: pod.nominated.clone(),
        numa: settings.numa.is_some().then(|| Arc::new(numa::of_pod(pod, request))),
        claims: used.map(Arc::new),
        relations: Some(pod)
            .filter(|pod| pod.excess.is_none())
            .and_then(|pod| relations::read(pod, namespaces))
            .map(Arc::new),
        volumes: None,
        fallback_queue: settings
            .fallback_queue
            .as_ref()
            .filter(|_| placed && !foreign && !finished)
            .map(|fallback_queue| queue_of(pod, fallback_queue, namespaces)),
        blocked: blocked(problems),
    }
}

/// The queue of a pod whose pod group is unknown.
fn queue_of(pod: &Pod, fallback_queue: &FallbackQueue, namespaces: &Namespaces) -> Name {
    let own = pod.labels.get(&fallback_queue.label).filter(|queue| !queue.is_empty());
    let queue = own.or_else(|| namespaces.label(&pod.pod.namespace, &fallback_queue.label));
    name(queue.unwrap_or(&fallback_queue.default))
}

/// Whether it requests exactly one whole GPU.
fn holds_one_gpu(gpu: &GpuRequest) -> bool {
    gpu.kind == GpuKind::Regular && gpu.count == 1 && gpu.mig.is_empty()
}

/// The labels and annotations of a pod that are read.
#[derive(Default)]
struct Marks<'a> {
    sub_group: Option<&'a str>,
    task_priority: Option<&'a str>,
    kubeflow_role: Option<&'a str>,
    ray_type: Option<&'a str>,
    received: Option<&'a str>,
    /// A label names a shared GPU.
    shares: bool,
}

impl<'a> Marks<'a> {
    fn of(pod: &'a Pod) -> Self {
        let mut marks = Self::default();
        for (key, value) in pod.labels.iter() {
            let mark = match key {
                label::SUBGROUP_NAME => &mut marks.sub_group,
                label::TASK_PRIORITY => &mut marks.task_priority,
                third_party::KUBEFLOW_JOB_ROLE => &mut marks.kubeflow_role,
                third_party::RAY_NODE_TYPE => &mut marks.ray_type,
                _ => {
                    marks.shares |= is_group_label(key);
                    continue;
                }
            };
            *mark = Some(value);
        }
        for (key, value) in pod.annotations.iter() {
            let mark = match key {
                annotation::RECEIVED_RESOURCE_TYPE => &mut marks.received,
                _ => continue,
            };
            *mark = Some(value);
        }
        marks
    }
}

/// The pod group and sub-group: from the pod's annotation and label, else from the grouper, else from the bind request. The grouper's come first
/// until the pod has a node: it overwrites the annotation of a pod with owners, and the label of a pod that it puts into a sub-group.
fn place(
    pod: &Pod,
    marks: &Marks,
    membership: Option<&Membership>,
    request: Option<&BindRequest>,
) -> (Option<GroupKey>, Option<Name>) {
    let waits = pod.node.is_none();
    let own = marks.sub_group.filter(|own| !own.is_empty()).map(name);
    let found = membership.filter(|found| match &pod.group {
        Some(named) => *named == found.group || (waits && pod.owned),
        None => true,
    });
    match found {
        Some(found) if waits => (Some(found.group.clone()), found.sub_group.clone().or(own)),
        // Its Binding has named the pod group, but cannot set the label.
        Some(found) => (Some(found.group.clone()), own.or_else(|| found.sub_group.clone())),
        None => {
            // Until the grouper knows the pod group, and the Binding names it.
            let requested = || request.filter(|_| waits).and_then(bind_request::group);
            (pod.group.clone().or_else(requested), own)
        }
    }
}

/// A pod with a node whose phase is unknown still holds its node.
fn status(pod: &Pod, requested: bool) -> PodStatus {
    let (assigned, leaving) = (pod.node.is_some(), pod.deleted.is_some());
    match pod.phase {
        Phase::Succeeded => PodStatus::Succeeded,
        Phase::Failed => PodStatus::Failed,
        Phase::Running | Phase::Pending if leaving => PodStatus::Releasing,
        Phase::Running => PodStatus::Running,
        Phase::Pending if assigned => PodStatus::Bound,
        Phase::Pending if requested => PodStatus::Binding,
        Phase::Pending if pod.gated => PodStatus::Gated,
        Phase::Pending => PodStatus::Pending,
        Phase::Unknown if assigned && leaving => PodStatus::Releasing,
        Phase::Unknown if assigned => PodStatus::Running,
        Phase::Unknown => PodStatus::Unknown,
    }
}

fn received(marks: &Marks, request: Option<&BindRequest>) -> Option<GpuKind> {
    let requested = request
        .and_then(|request| request.spec.received_resource_type.as_deref())
        .filter(|text| !text.is_empty());
    match requested.or(marks.received)? {
        received_resource_type::REGULAR => Some(GpuKind::Regular),
        received_resource_type::FRACTION => Some(GpuKind::Fraction),
        received_resource_type::MIG_INSTANCE => Some(GpuKind::Mig),
        _ => None,
    }
}

/// The GPU groups: from the bind request, else from the pod's labels, the plain one and the prefixed ones, each once.
fn gpu_groups(pod: &Pod, marks: &Marks, request: Option<&BindRequest>) -> Vec<Name> {
    let requested = request
        .map(|request| request.spec.selected_gpu_groups.as_slice())
        .unwrap_or_default();
    if !requested.is_empty() {
        let named = requested.iter().filter(|group| !group.is_empty());
        return named
            .take(limits::GPU_GROUPS_PER_POD)
            .map(|group| name(group))
            .collect();
    }
    let mut groups = Vec::<Name>::new();
    if !marks.shares {
        return groups;
    }
    let labels = pod
        .labels
        .iter()
        .filter(|(key, value)| is_group_label(key) && !value.is_empty());
    for (_, group) in labels {
        if groups.iter().all(|known| **known != *group) {
            groups.push(name(group));
        }
    }
    groups
}

/// The problem that keeps the pod from every node, if any.
fn blocked(problems: &[Problem]) -> Option<Name> {
    let fatal = problems.iter().find(|problem| match problem {
        Problem::Quantity { .. } | Problem::Contradiction(_) | Problem::Share(_) | Problem::ExceededLimit(_) => true,
        Problem::NoIdentity | Problem::Ignored { .. } | Problem::Duration { .. } | Problem::Schedule { .. } => false,
    });
    fatal.map(|problem| problem.to_string().into())
}

#[cfg(test)]
mod tests;
