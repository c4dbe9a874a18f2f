//! Bind requests: written before the steps of a multi-step bind begin, and what to do about an existing
//! one. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::api::BindRequest;
use crate::api::bind_request::{BindRequestSpec, ReceivedGpu};
use crate::api::names::{annotation, bind_phase, label, object, received_resource_type};
use crate::components::bus::{Bind, OrderedBind, Step};
use crate::components::fractions::users::Share;
use crate::components::{Settings, pods};
use crate::engine::decision::Promise;
use crate::engine::input::{GpuKind, WHOLE};
use crate::mirror::claims::allocation::GivenAllocations;
use crate::mirror::{bind_request, numa};

/// The bind request of a bind.
#[must_use]
pub fn request(bind: &OrderedBind, settings: &Settings) -> BindRequest {
    let placement = &bind.placement;
    let mut labels = BTreeMap::from([(label::MANAGED_BY.to_owned(), object::OPERATOR.to_owned())]);
    if placement.node.len() <= label::VALUE_LENGTH_MAX {
        labels.insert(label::SELECTED_NODE.to_owned(), placement.node.to_string());
    }
    if let Some((key, pool)) = pool_label(bind, settings) {
        labels.insert(key.to_owned(), pool.to_owned());
    }
    BindRequest {
        metadata: ObjectMeta {
            name: Some(placement.pod.name.to_string()),
            namespace: Some(placement.pod.namespace.to_string()),
            labels: Some(labels),
            annotations: decided(bind),
            owner_references: Some(vec![owned_by(bind)]),
            ..ObjectMeta::default()
        },
        spec: BindRequestSpec {
            pod_name: Some(placement.pod.name.to_string()),
            selected_node: Some(placement.node.to_string()),
            received_resource_type: Some(received(placement.received).to_owned()),
            received_gpu: Some(ReceivedGpu {
                count: Some(placement.gpu_count),
                portion: Some(portion(placement.gpu_portion)),
            }),
            selected_gpu_groups: placement.gpu_groups.iter().map(ToString::to_string).collect(),
            predicted_numa_zones: numa::zones(&placement.zones),
            resource_claim_allocations: bind.given.named.clone(),
            extended_resource_claim_allocation: bind.given.extended.clone(),
            ..BindRequestSpec::default()
        },
        status: None,
    }
}

/// The label of the node pool that a bind was decided for; `None` for the default pool.
fn pool_label<'b>(bind: &'b OrderedBind, settings: &'b Settings) -> Option<(&'b str, &'b str)> {
    let named = !settings.pools.key.is_empty() && !bind.pool.is_empty();
    named.then_some((settings.pools.key.as_str(), &*bind.pool))
}

/// What the pod's annotations say at the decision, for the process that resumes the bind: they may have changed by then. The pod group and the GPU
/// sharing request.
fn decided(bind: &OrderedBind) -> Option<BTreeMap<String, String>> {
    let group = bind.annotations.get(annotation::POD_GROUP_NAME);
    let group = group.map(|name| (annotation::POD_GROUP_NAME.to_owned(), name.clone()));
    let share = serde_json::to_string(&bind.share).ok();
    let share = share.filter(|_| !bind.share.is_empty());
    let share = share.map(|text| (annotation::GPU_SHARE.to_owned(), text));
    let all: BTreeMap<_, _> = group.into_iter().chain(share).collect();
    (!all.is_empty()).then_some(all)
}

/// An owner reference to the pod.
#[must_use]
pub fn owned_by(bind: &OrderedBind) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: bind.placement.pod.name.to_string(),
        uid: bind.placement.pod.uid.to_string(),
        ..OwnerReference::default()
    }
}

/// The received resource type, as in the API.
#[must_use]
pub fn received(kind: GpuKind) -> &'static str {
    match kind {
        GpuKind::Regular => received_resource_type::REGULAR,
        GpuKind::Fraction | GpuKind::Memory => received_resource_type::FRACTION,
        GpuKind::Mig => received_resource_type::MIG_INSTANCE,
    }
}

/// A portion in billionths as a decimal with two places, or with more if it would be 0.
#[must_use]
pub fn portion(billionths: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two places are shown")]
    let portion = billionths as f64 / WHOLE as f64;
    if (1..WHOLE / 200).contains(&billionths) {
        return format!("{portion:.9}").trim_end_matches('0').to_owned();
    }
    format!("{portion:.2}")
}

/// The bind of a request. `None` for one with claim allocations, since the devices may be allocated to others by now, and
/// for one whose promised volumes are unknown (`promised`: those known): these pods are scheduled again. `pool_key`: the label of node pools.
#[must_use]
pub fn bind(request: &BindRequest, pod: &Pod, pool_key: &str, promised: Option<Vec<Promise>>) -> Option<OrderedBind> {
    let spec = &request.spec;
    let kind = match spec.received_resource_type.as_deref() {
        Some(received_resource_type::FRACTION) => GpuKind::Fraction,
        Some(received_resource_type::MIG_INSTANCE) => GpuKind::Mig,
        Some(_) | None => GpuKind::Regular,
    };
    let gpu = spec.received_gpu.clone().unwrap_or_default();
    let portion: f64 = gpu.portion.and_then(|text| text.parse().ok()).unwrap_or_default();
    let recorded = bind_request::group(request);
    // A pod with such a record named that pod group at the decision, or none. If it names another one now, it is charged to that one.
    let named_then = pods::annotated_group(pod).filter(|_| recorded.is_none());
    let named = recorded.or_else(|| named_then.clone());
    let mut annotations = BTreeMap::from([(annotation::RECEIVED_RESOURCE_TYPE.to_owned(), received(kind).to_owned())]);
    if let Some(group) = &named {
        annotations.insert(annotation::POD_GROUP_NAME.to_owned(), group.name().to_owned());
    }
    let group = named.unwrap_or_else(|| pods::group_key(&pod.metadata));
    numa::annotate(&mut annotations, &spec.predicted_numa_zones);
    if !spec.resource_claim_allocations.is_empty() || spec.extended_resource_claim_allocation.is_some() {
        return None;
    }
    let volumes = promised?;
    let asked = request.annotations().get(annotation::GPU_SHARE);
    let asked = asked.and_then(|text| serde_json::from_str(text).ok());
    let share = (kind == GpuKind::Fraction).then_some(Step::GpuShare);
    let bound_late = (!volumes.is_empty()).then_some(Step::Volumes);
    let pool = request.labels().get(pool_key).cloned().unwrap_or_default();
    let labelled = pool.is_empty() || pod.labels().get(pool_key) == Some(&pool);
    let labels = (!labelled).then(|| (pool_key.to_owned(), pool.clone()));
    Some(OrderedBind {
        pool: pool.into(),
        labels: labels.into_iter().collect(),
        placement: Bind {
            pod: pods::pod_ref(pod),
            group,
            node: Arc::from(bind_request::node(request)?),
            received: kind,
            gpu_count: gpu.count.unwrap_or_default(),
            #[expect(clippy::cast_possible_truncation, reason = "a portion is small")]
            gpu_portion: (portion * WHOLE as f64).round() as i64,
            gpu_groups: spec
                .selected_gpu_groups
                .iter()
                .map(|group| Arc::from(group.as_str()))
                .collect(),
            zones: Vec::new(),
            volumes,
            claims: Vec::new(),
            after_evictions: None,
        },
        annotations,
        regrouped: false,
        named: named_then,
        steps: share.into_iter().chain(bound_late).collect(),
        given: GivenAllocations::default(),
        share: asked.unwrap_or_else(|| Share::of_pod(pod)),
    })
}

/// Whether unikai created the request.
#[must_use]
pub fn is_ours(request: &BindRequest) -> bool {
    request.labels().get(label::MANAGED_BY).map(String::as_str) == Some(object::OPERATOR)
}

/// Whether two requests mean the same bind of the same pod.
#[must_use]
pub fn same(one: &BindRequest, other: &BindRequest) -> bool {
    let meaning = |request: &BindRequest| {
        let spec = &request.spec;
        (
            spec.pod_name.clone(),
            spec.selected_node.clone(),
            spec.received_resource_type.clone(),
            spec.selected_gpu_groups.clone(),
            request.annotations().get(annotation::GPU_SHARE).cloned(),
            request.owner_references().first().map(|owner| owner.uid.clone()),
        )
    };
    meaning(one) == meaning(other)
}

/// What to do about a request without an open bind.
#[derive(Debug, PartialEq)]
pub enum BindRequestAction {
    /// Nothing, or nothing yet.
    Leave,
    /// Delete it: it is done, obsolete or incomplete. A pending pod is scheduled again.
    Drop,
    /// It is done and kept: mark it as succeeded.
    Succeed,
    /// Resume it.
    CarryOut(Box<OrderedBind>),
}

/// What is to be done about a request. `pod` is what the watch shows under its name, `node_known` whether its node exists, `stays`
/// whether our requests stay when they are done, as those of others do, `promised` what volumes the claims of a pod were promised, if that is known.
#[must_use]
pub fn action(
    request: &BindRequest,
    pod: Option<&Pod>,
    node_known: bool,
    stays: bool,
    pool_key: &str,
    promised: impl FnOnce(&Pod) -> Option<Vec<Promise>>,
) -> BindRequestAction {
    if request.metadata.deletion_timestamp.is_some() {
        return BindRequestAction::Leave;
    }
    let phase = request.status.as_ref().and_then(|status| status.phase.as_deref());
    let Some(pod) = pod.filter(|pod| bind_request::made_for(request, pod.metadata.uid.as_deref())) else {
        return BindRequestAction::Drop;
    };
    if pods::is_bound(pod) || pods::is_finished(pod) {
        return match phase {
            _ if is_ours(request) && !stays => BindRequestAction::Drop,
            Some(bind_phase::SUCCEEDED) => BindRequestAction::Leave,
            Some(_) | None => BindRequestAction::Succeed,
        };
    }
    if bind_request::failed(request) || !node_known {
        return BindRequestAction::Drop;
    }
    bind(request, pod, pool_key, promised(pod)).map_or(BindRequestAction::Drop, |bind| {
        BindRequestAction::CarryOut(Box::new(bind))
    })
}

#[cfg(test)]
pub(super) mod tests;
