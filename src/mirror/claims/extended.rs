//! Extended resources of device classes: a pod that requests them gets a claim created for it, on nodes whose device plugins do not offer them.

// Containers are named by their positions in one list, which are counted from its length.
#![allow(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{DeviceClass, DeviceRequest, ExactDeviceRequest};
use kube::ResourceExt;

use super::{Claims, requests};
use crate::api::BindRequest;
use crate::api::names::resource;
use crate::api::quantity::Amount;
use crate::engine::input::devices::{AllocationInput, Extended, OptionInput, RequestInput, is_gpu};
use crate::engine::input::{Amounts, Name};
use crate::mirror::name;
use crate::mirror::packed::{Container, Pod};

/// The device class of each extended resource; the newest of several.
pub fn names<'c>(classes: impl Iterator<Item = &'c Arc<DeviceClass>>) -> BTreeMap<String, Box<str>> {
    let mut all = BTreeMap::new();
    let mut dated: Vec<&Arc<DeviceClass>> = classes.collect();
    dated.sort_by_key(|class| {
        let created = class.metadata.creation_timestamp.as_ref();
        // Ties are broken by name.
        (
            created.map(|time| time.0.as_millisecond()),
            std::cmp::Reverse(class.name_any()),
        )
    });
    for class in dated {
        let name = class.name_any();
        all.insert(format!("{}{name}", resource::DEVICE_CLASS_PREFIX), name.as_str().into());
        if let Some(resource) = class
            .spec
            .extended_resource_name
            .as_ref()
            .filter(|name| !name.is_empty())
        {
            all.insert(resource.clone(), name.into());
        }
    }
    all
}

/// The extended resources of a class.
pub fn names_of(class: &DeviceClass) -> Vec<String> {
    let implicit = format!("{}{}", resource::DEVICE_CLASS_PREFIX, class.name_any());
    class
        .spec
        .extended_resource_name
        .iter()
        .cloned()
        .chain([implicit])
        .collect()
}

/// Whether some container of a pod requests a resource.
#[must_use]
pub fn asks(pod: &Pod, resource: &str) -> bool {
    let mut containers = pod.init_containers.iter().chain(&pod.containers);
    containers.any(|container| amount(container, resource) > 0)
}

const PREFIX: &str = "extended:";

/// The engine's key of the claim for a pod's extended resources.
#[must_use]
pub fn key(namespace: &str, uid: &str) -> Name {
    format!("{PREFIX}{namespace}/{uid}").into()
}

/// Namespace and uid of the pod of such a key.
#[must_use]
pub fn pod(key: &str) -> &str {
    key.strip_prefix(PREFIX).unwrap_or(key)
}

/// A request of a claim for extended resources.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    name: String,
    resource: String,
    count: i64,
    /// Containers that use it.
    containers: Vec<String>,
}

fn amount(container: &Container, resource: &str) -> i64 {
    let quantity = container.requests.get(resource);
    quantity
        .and_then(|quantity| quantity.parse().ok())
        .map_or(0, Amount::units)
}

/// Resources of a container, by name.
fn resources(container: &Container) -> impl Iterator<Item = &str> {
    container.requests.iter().map(|(resource, _)| resource)
}

/// The requests for one resource of a pod.
fn pieces(pod: &Pod, resource: &str) -> Vec<Piece> {
    let init = pod
        .init_containers
        .iter()
        .map(|container| (container, !container.stays));
    let all: Vec<(&Container, bool)> = init
        .chain(pod.containers.iter().map(|container| (container, false)))
        .collect();
    let piece = |at: usize, count: i64| Piece {
        name: format!(
            "container-{at}-request-{}",
            resources(all[at].0).position(|name| name == resource).unwrap_or(0)
        ),
        resource: resource.to_owned(),
        count,
        containers: vec![all[at].0.name.to_string()],
    };
    let wants = |at: &usize| amount(all[*at].0, resource) > 0;
    let lasting: Vec<usize> = (0..all.len()).filter(|at| !all[*at].1).filter(wants).collect();
    let mut pieces: BTreeMap<usize, Piece> = lasting
        .iter()
        .map(|&at| (at, piece(at, amount(all[at].0, resource))))
        .collect();
    // Init containers run one by one, and reuse the devices of later containers.
    let mut rest: Option<Piece> = None;
    for at in (0..all.len()).filter(|at| all[*at].1).filter(wants) {
        let mut missing = amount(all[at].0, resource);
        for (_, lasting) in pieces.range_mut(at..) {
            if missing > 0 {
                missing -= lasting.count;
                lasting.containers.push(all[at].0.name.to_string());
            }
        }
        if missing > 0 {
            match &mut rest {
                Some(rest) if rest.count >= missing => rest.containers.push(all[at].0.name.to_string()),
                Some(smaller) => {
                    let mut larger = piece(at, missing);
                    larger.containers.append(&mut smaller.containers);
                    rest = Some(larger);
                }
                None => rest = Some(piece(at, missing)),
            }
        }
    }
    pieces.into_values().chain(rest).collect()
}

/// The extended resources of device classes that a pod requests, by name.
fn wanted<'c>(claims: &'c Claims, pod: &Pod) -> Vec<(&'c String, &'c str)> {
    if claims.extended.is_empty() {
        return Vec::new();
    }
    let containers = pod.init_containers.iter().chain(&pod.containers);
    let asked: BTreeSet<&str> = containers
        .flat_map(|container| resources(container).filter(|resource| amount(container, resource) > 0))
        .collect();
    let known = asked
        .into_iter()
        .filter_map(|resource| claims.extended.get_key_value(resource));
    known.map(|(resource, class)| (resource, &**class)).collect()
}

/// GPUs that a pod requests as extended resources of GPU device classes, under names that are not GPU resources themselves.
#[must_use]
pub fn gpus(claims: &Claims, pod: &Pod, request: &Amounts) -> i64 {
    let counted = |resource: &str| request.other.iter().find(|(name, _)| **name == *resource);
    let gpus = wanted(claims, pod).into_iter().filter(|(_, class)| is_gpu(class));
    let gpus = gpus.filter_map(|(resource, _)| counted(resource));
    // Extended resources are in thousandths.
    let sum = gpus.fold(0_i64, |sum, (_, amount)| {
        sum.saturating_add(amount.saturating_add(999) / 1_000)
    });
    sum.min(requests::MOST_GPUS)
}

/// A pod's extended resources as the engine's input.
#[must_use]
pub fn of_pod(claims: &Claims, pod: &Pod, request: Option<&BindRequest>) -> Option<Extended> {
    let wanted = wanted(claims, pod);
    if wanted.is_empty() {
        return None;
    }
    let wanted = wanted.into_iter().map(|(resource, class)| {
        let class = claims.classes.get(class);
        let selectors = class.into_iter().flat_map(|class| requests::class_selectors(class));
        // A selector that cannot be compiled, or is not evaluated yet, selects nothing.
        let selectors: Vec<u32> = selectors
            .map(|text| claims.selectors.evaluated(&text).unwrap_or(u32::MAX))
            .collect();
        let request = |piece: Piece| RequestInput {
            name: piece.name.into(),
            options: vec![OptionInput {
                selectors: selectors.clone(),
                count: Some(usize::try_from(piece.count).unwrap_or(usize::MAX)),
                ..OptionInput::default()
            }],
        };
        let gpu = matches!(resource.as_str(), resource::NVIDIA_GPU | resource::AMD_GPU);
        let requests = pieces(pod, resource).into_iter().map(request).collect();
        (name(resource), gpu, requests)
    });
    let promised = request.and_then(|request| request.spec.extended_resource_claim_allocation.as_ref());
    let promised = promised.and_then(|promised| promised.allocation.as_ref());
    Some(Extended {
        key: key(&pod.pod.namespace, &pod.pod.uid),
        wanted: wanted.collect(),
        promised: promised.map(|promised| Arc::new(requests::allocated(promised))),
    })
}

/// The requests of the claim to be created for an allocation, and the container and resource of each.
#[must_use]
pub fn requests(
    claims: &Claims,
    pod: &Pod,
    given: &AllocationInput,
) -> (Vec<DeviceRequest>, Vec<(String, String, String)>) {
    let (mut requests, mut mappings) = (Vec::new(), Vec::new());
    for (resource, class) in wanted(claims, pod) {
        for piece in pieces(pod, resource) {
            if !given.results.iter().any(|result| *result.request == *piece.name) {
                continue;
            }
            for container in &piece.containers {
                mappings.push((container.clone(), resource.clone(), piece.name.clone()));
            }
            requests.push(DeviceRequest {
                name: piece.name,
                exactly: Some(ExactDeviceRequest {
                    device_class_name: class.to_owned(),
                    allocation_mode: Some("ExactCount".to_owned()),
                    count: Some(piece.count),
                    ..ExactDeviceRequest::default()
                }),
                first_available: None,
            });
        }
    }
    requests.sort_by(|left, right| left.name.cmp(&right.name));
    mappings.sort();
    (requests, mappings)
}
