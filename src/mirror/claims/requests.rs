//! Claims → requests: selectors by number, quantities exact.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    AllocationResult, CapacityRequirements, DeviceClass, DeviceRequest, DeviceRequestAllocationResult, DeviceSelector,
    DeviceToleration, ResourceClaim,
};
use kube::ResourceExt;

use super::Claims;
use super::pools;
use crate::api::limits;
use crate::api::names::label;
use crate::api::quantity::Amount;
use crate::engine::input::devices::{
    AllocationInput, ClaimInput, ConstraintInput, OptionInput, RequestInput, ResultInput, is_gpu,
};
use crate::engine::input::{Name, TaintEffect, Toleration};
use crate::mirror::name;

/// Limit on GPUs of a claim, so that sums do not overflow.
pub const MOST_GPUS: i64 = 1_000_000;

/// An allocation as the engine's input.
#[must_use]
pub fn allocated(allocation: &AllocationResult) -> AllocationInput {
    let devices = allocation.devices.as_ref();
    let results = devices.into_iter().flat_map(|devices| devices.results.iter().flatten());
    let result = |result: &DeviceRequestAllocationResult| {
        let amounts = result.consumed_capacity.iter().flatten();
        // A negative amount would make room for others.
        let amounts = amounts
            .filter_map(|(name, quantity)| Some((name.as_str().into(), Amount::of(quantity).ok()?.nanos().max(0))));
        ResultInput {
            request: name(&result.request),
            driver: name(&result.driver),
            pool: name(&result.pool),
            device: name(&result.device),
            admin: result.admin_access == Some(true),
            taken: result.share_id.as_ref().map(|_| amounts.collect()),
        }
    };
    AllocationInput {
        results: results.map(result).collect(),
        nodes: allocation.node_selector.as_ref().map(pools::terms),
    }
}

fn requests_of(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequest> {
    let devices = claim.spec.devices.iter();
    devices.flat_map(|devices| devices.requests.iter().flatten())
}

/// Devices that a claim requests, as queues count them: the class and number of each request. If that is not fixed, because a request has
/// alternatives or requests all devices of a node, it is the minimum until the claim is allocated; then its devices count. Requests with
/// admin access count nothing.
pub fn devices(claim: &ResourceClaim) -> impl Iterator<Item = (&str, i64)> {
    requests_of(claim).flat_map(|request| {
        let exactly = request.exactly.iter();
        let exactly = exactly.filter(|exactly| exactly.admin_access != Some(true));
        let exactly = exactly.map(|exactly| {
            let count = match exactly.allocation_mode.as_deref() {
                Some("ExactCount") | None => exactly.count.unwrap_or(1).max(1),
                Some("All") => given(claim, &request.name, None).unwrap_or(0).max(1),
                Some(_) => 0,
            };
            (exactly.device_class_name.as_str(), count)
        });
        exactly.chain(choices(claim, request))
    })
}

/// The count of a request with alternatives: the minimum, or the allocated one.
fn choices<'c>(claim: &'c ResourceClaim, request: &'c DeviceRequest) -> Option<(&'c str, i64)> {
    let counts = request.first_available.iter().flatten().map(|choice| {
        let given = given(claim, &request.name, Some(&choice.name));
        let asked = || match choice.allocation_mode.as_deref() {
            Some("ExactCount") | None => choice.count.unwrap_or(1).max(1),
            Some(_) => 1,
        };
        (choice.device_class_name.as_str(), given.unwrap_or_else(asked))
    });
    counts.filter(|(_, count)| *count > 0).min_by_key(|(_, count)| *count)
}

/// Number of devices allocated for a request, or for one of its alternatives; `None`: not allocated.
fn given(claim: &ResourceClaim, request: &str, choice: Option<&str>) -> Option<i64> {
    let allocation = claim.status.as_ref()?.allocation.as_ref()?;
    let results = allocation
        .devices
        .iter()
        .flat_map(|devices| devices.results.iter().flatten());
    let is_for = |met: &str| match (choice, met.split_once('/')) {
        (Some(choice), Some((of, chosen))) => of == request && chosen == choice,
        (None, None) => met == request,
        (Some(_), None) | (None, Some(_)) => false,
    };
    let met = results.filter(|result| is_for(&result.request)).count();
    Some(i64::try_from(met).unwrap_or(i64::MAX))
}

/// GPUs that a claim requests, as queues count them: the sum over requests for GPU classes.
#[must_use]
pub fn gpus(claim: &ResourceClaim) -> i64 {
    let gpus = devices(claim).filter(|(class, _)| is_gpu(class));
    gpus.fold(0, |sum: i64, (_, gpus)| sum.saturating_add(gpus))
        .min(MOST_GPUS)
}

/// Class and selectors of each alternative of a request.
pub fn options(claim: &ResourceClaim) -> impl Iterator<Item = (&str, &[DeviceSelector])> {
    requests_of(claim).flat_map(|request| {
        let exactly = request.exactly.iter();
        let exactly = exactly.map(|exactly| (exactly.device_class_name.as_str(), exactly.selectors.as_deref()));
        let first = request.first_available.iter().flatten();
        let first = first.map(|first| (first.device_class_name.as_str(), first.selectors.as_deref()));
        exactly
            .chain(first)
            .map(|(class, selectors)| (class, selectors.unwrap_or_default()))
    })
}

/// Whether a claim has more selectors of its own than are evaluated for one.
pub fn has_too_many_selectors(claim: &ResourceClaim) -> bool {
    let selectors = options(claim).map(|(_, selectors)| selectors.len());
    selectors.sum::<usize>() > limits::CLAIM_SELECTORS
}

/// Whether a claim requests all devices that it selects.
pub fn want_all(claim: &ResourceClaim) -> bool {
    let mut modes = requests_of(claim).flat_map(|request| {
        let exactly = request.exactly.iter().map(|exactly| &exactly.allocation_mode);
        let first = request.first_available.iter().flatten();
        exactly.chain(first.map(|first| &first.allocation_mode))
    });
    modes.any(|mode| is_all(mode.as_deref()))
}

fn is_all(mode: Option<&str>) -> bool {
    mode == Some("All")
}

/// Expressions of selectors. One of an unknown kind matches nothing.
pub fn expressions(selectors: &[DeviceSelector]) -> impl Iterator<Item = String> + '_ {
    let text = |selector: &DeviceSelector| selector.cel.as_ref().map(|cel| cel.expression.clone());
    selectors
        .iter()
        .map(move |selector| text(selector).unwrap_or_else(|| "false".to_owned()))
}

/// Expressions of a class's selectors.
pub fn class_selectors(class: &DeviceClass) -> impl Iterator<Item = String> + '_ {
    expressions(class.spec.selectors.as_deref().unwrap_or_default())
}

/// A claim as the engine's input.
#[must_use]
pub fn read(claims: &Claims, claim: &Arc<ResourceClaim>, key: Name) -> ClaimInput {
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let consumers = status
        .into_iter()
        .flat_map(|status| status.reserved_for.iter().flatten());
    let is_pod = |resource: &str| resource == "pods";
    let (requests, problem) = match read_requests(claims, claim) {
        Ok(requests) => (requests, None),
        Err(problem) => (Vec::new(), Some(Name::from(problem))),
    };
    let devices = claim.spec.devices.as_ref();
    let constraints = devices
        .into_iter()
        .flat_map(|devices| devices.constraints.iter().flatten());
    let mut unknown = false;
    let constraints = constraints.filter_map(|constraint| {
        let (attribute, distinct) = match (&constraint.match_attribute, &constraint.distinct_attribute) {
            (Some(attribute), _) => (attribute, false),
            (None, Some(attribute)) => (attribute, true),
            (None, None) => {
                unknown = true;
                return None;
            }
        };
        Some(ConstraintInput {
            requests: constraint
                .requests
                .iter()
                .flatten()
                .map(|request| name(request))
                .collect(),
            attribute: name(attribute),
            distinct,
        })
    });
    let constraints = constraints.collect();
    let unknown = unknown.then(|| Name::from(format!("claim {key}: empty constraint (unsupported constraint type?)")));
    ClaimInput {
        queue: claim
            .labels()
            .get(claims.queue_label_key.as_deref().unwrap_or(label::QUEUE))
            .filter(|queue| !queue.is_empty())
            .map(|queue| name(queue)),
        gpus: gpus(claim),
        requests: requests.into(),
        constraints,
        problem: problem.or(unknown),
        allocation: allocation.map(|allocation| Arc::new(allocated(allocation))),
        reserved: consumers
            .clone()
            .filter(|consumer| is_pod(&consumer.resource))
            .map(|consumer| name(&consumer.uid))
            .collect(),
        foreign: consumers.into_iter().any(|consumer| !is_pod(&consumer.resource)),
        key,
    }
}

fn read_requests(claims: &Claims, claim: &ResourceClaim) -> Result<Vec<RequestInput>, String> {
    let full = super::claim_key(claim);
    if has_too_many_selectors(claim) {
        return Err(format!(
            "claim {full} has more than {} selectors",
            limits::CLAIM_SELECTORS
        ));
    }
    requests_of(claim)
        .map(|request| {
            let mut options = Vec::new();
            let of = |sub: Option<&str>| match sub {
                Some(sub) => format!("claim {full} request {}/{sub}", request.name),
                None => format!("claim {full} request {}", request.name),
            };
            if let Some(exactly) = &request.exactly {
                options.push(OptionInput {
                    name: None,
                    selectors: selectors(
                        claims,
                        &exactly.device_class_name,
                        exactly.selectors.as_deref(),
                        is_all(exactly.allocation_mode.as_deref()),
                        &of(None),
                    )?,
                    count: count(exactly.allocation_mode.as_deref(), exactly.count, &of(None))?,
                    admin: exactly.admin_access == Some(true),
                    tolerations: tolerations(exactly.tolerations.as_deref()),
                    capacity: capacity(exactly.capacity.as_ref(), &of(None))?,
                });
            }
            for sub in request.first_available.iter().flatten() {
                let of = of(Some(&sub.name));
                options.push(OptionInput {
                    name: Some(name(&sub.name)),
                    selectors: selectors(
                        claims,
                        &sub.device_class_name,
                        sub.selectors.as_deref(),
                        is_all(sub.allocation_mode.as_deref()),
                        &of,
                    )?,
                    count: count(sub.allocation_mode.as_deref(), sub.count, &of)?,
                    admin: false,
                    tolerations: tolerations(sub.tolerations.as_deref()),
                    capacity: capacity(sub.capacity.as_ref(), &of)?,
                });
            }
            if options.is_empty() {
                return Err(format!("{} asks for nothing that is known here", of(None)));
            }
            Ok(RequestInput {
                name: name(&request.name),
                options,
            })
        })
        .collect()
}

/// Numbers of a class's selectors and a request's own. `all`: the request is for all devices.
fn selectors(
    claims: &Claims,
    class: &str,
    own: Option<&[DeviceSelector]>,
    all: bool,
    of: &str,
) -> Result<Vec<u32>, String> {
    let known = claims.classes.get(class);
    let known = known.ok_or_else(|| format!("device class {class} does not exist for {of}"))?;
    let own = expressions(own.unwrap_or_default());
    class_selectors(known)
        .chain(own)
        .enumerate()
        .map(|(at, text)| match claims.selectors.error(&text, all) {
            Some(error) => Err(format!("{of}: selector #{at}: {error}")),
            None => claims
                .selectors
                .number(&text)
                .ok_or_else(|| format!("{of}: selector #{at} is not known")),
        })
        .collect()
}

fn count(mode: Option<&str>, count: Option<i64>, of: &str) -> Result<Option<usize>, String> {
    match mode {
        // Larger numbers are capped.
        None | Some("" | "ExactCount") => Ok(Some(count.unwrap_or(1).clamp(1, i64::from(u16::MAX)) as usize)),
        Some("All") => Ok(None),
        Some(other) => Err(format!("{of}: unsupported allocation mode {other:?}")),
    }
}

fn tolerations(given: Option<&[DeviceToleration]>) -> Vec<Toleration> {
    let read = |toleration: &DeviceToleration| {
        let effect = match toleration.effect.as_deref() {
            None | Some("") => None,
            Some("NoSchedule") => Some(TaintEffect::NoSchedule),
            Some("NoExecute") => Some(TaintEffect::NoExecute),
            Some(_) => return None,
        };
        Some(Toleration {
            key: toleration.key.as_deref().filter(|key| !key.is_empty()).map(name),
            exists: toleration.operator.as_deref() == Some("Exists"),
            value: name(toleration.value.as_deref().unwrap_or_default()),
            effect,
        })
    };
    given.unwrap_or_default().iter().filter_map(read).collect()
}

fn capacity(given: Option<&CapacityRequirements>, of: &str) -> Result<Vec<(Name, i128)>, String> {
    let requests = given.into_iter().flat_map(|given| given.requests.iter().flatten());
    requests
        .map(|(resource, quantity)| match Amount::of(quantity) {
            Ok(amount) if amount.is_negative() => {
                Err(format!("{of}: capacity {resource}: {:?} is negative", quantity.0))
            }
            Ok(amount) => Ok((name(resource), amount.nanos())),
            Err(error) => Err(format!("{of}: capacity {resource}: {error}")),
        })
        .collect()
}
