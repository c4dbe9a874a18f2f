//! Allocations: API objects → the engine's input, and back.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
    DeviceToleration, ResourceClaim,
};
use sha2::{Digest, Sha256};

use super::{Claims, extended, requests};
use crate::api::BindRequest;
use crate::api::bind_request::{ContainerMapping, ExtendedResourceClaimAllocation, ResourceClaimAllocation};
use crate::api::quantity::{Amount, Format};
use crate::engine::decision::ClaimGrant;
use crate::engine::input::devices::{AllocationInput, ResultInput};
use crate::engine::input::{Name, NodeRequirement, NodeTerm, SelectorOp};
use crate::mirror::packed::Pod;

/// The allocation in a bind request for a pod's claim reference.
#[must_use]
pub fn promised(request: &BindRequest, reference: &str) -> Option<Arc<AllocationInput>> {
    let mut all = request.spec.resource_claim_allocations.iter();
    let promised = all.find(|promised| promised.name.as_deref() == Some(reference))?;
    Some(Arc::new(requests::allocated(promised.allocation.as_ref()?)))
}

/// The allocations in a pod's bind request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenAllocations {
    /// For its claims.
    pub named: Vec<ResourceClaimAllocation>,
    /// For the claim to be created for its extended resources.
    pub extended: Option<ExtendedResourceClaimAllocation>,
}

impl Claims {
    /// The claim allocations of a bind, in the API's form.
    #[must_use]
    pub fn given(&self, pod: Option<&Pod>, grants: &[ClaimGrant]) -> GivenAllocations {
        let mut given = GivenAllocations::default();
        for grant in grants {
            match &grant.reference {
                Some(reference) => {
                    let claim = self.get(&grant.claim);
                    given.named.push(ResourceClaimAllocation {
                        name: Some(reference.to_string()),
                        allocation: Some(self.allocation(claim.map(Arc::as_ref), grant)),
                    });
                }
                None => {
                    let (requests, mappings) = pod
                        .map(|pod| extended::requests(self, pod, &grant.allocation))
                        .unwrap_or_default();
                    let mut allocation = self.allocation(None, grant);
                    if let Some(devices) = &mut allocation.devices {
                        devices.config = self.class_config(requests.iter().filter_map(|request| {
                            Some((
                                request.name.as_str(),
                                request.exactly.as_ref()?.device_class_name.as_str(),
                            ))
                        }));
                    }
                    given.extended = Some(ExtendedResourceClaimAllocation {
                        allocation: Some(allocation),
                        device_requests: requests,
                        container_mappings: mappings
                            .into_iter()
                            .map(|(container_name, resource_name, request_name)| ContainerMapping {
                                container_name,
                                resource_name,
                                request_name,
                            })
                            .collect(),
                    });
                }
            }
        }
        given
    }

    /// One allocation: that of the API server if equal, else a new one.
    fn allocation(&self, claim: Option<&ResourceClaim>, grant: &ClaimGrant) -> AllocationResult {
        let shown = claim.and_then(|claim| claim.status.as_ref()?.allocation.as_ref());
        if let Some(shown) = shown.filter(|shown| requests::allocated(shown) == grant.allocation) {
            return shown.clone();
        }
        let results = grant.allocation.results.iter().enumerate();
        let results = results.map(|(at, result)| write_result(claim, &grant.claim, at, result));
        AllocationResult {
            allocation_timestamp: None,
            devices: Some(DeviceAllocationResult {
                config: claim.and_then(|claim| self.config(claim, &grant.allocation)),
                results: Some(results.collect()),
            }),
            node_selector: grant.allocation.nodes.as_deref().map(selector),
        }
    }

    /// Device configuration for the allocated requests: from the classes, then from the claim.
    fn config(
        &self,
        claim: &ResourceClaim,
        allocation: &AllocationInput,
    ) -> Option<Vec<DeviceAllocationConfiguration>> {
        let devices = claim.spec.devices.as_ref()?;
        let met = |request: &str| {
            let mut results = allocation.results.iter();
            results.any(|result| *result.request == *request || result.request.split('/').next() == Some(request))
        };
        let mut classes = Vec::new();
        for request in devices.requests.iter().flatten() {
            if let Some(exactly) = request.exactly.as_ref().filter(|_| met(&request.name)) {
                classes.push((request.name.clone(), exactly.device_class_name.as_str()));
            }
            for sub in request.first_available.iter().flatten() {
                let full = format!("{}/{}", request.name, sub.name);
                if met(&full) {
                    classes.push((full, sub.device_class_name.as_str()));
                }
            }
        }
        let from_classes = self.class_config(classes.iter().map(|(request, class)| (request.as_str(), *class)));
        let mut all = from_classes.unwrap_or_default();
        for config in devices.config.iter().flatten() {
            let about = config.requests.iter().flatten();
            if config.requests.iter().flatten().next().is_none() || about.into_iter().any(|request| met(request)) {
                all.push(DeviceAllocationConfiguration {
                    opaque: config.opaque.clone(),
                    requests: config.requests.clone(),
                    source: "FromClaim".to_owned(),
                });
            }
        }
        (!all.is_empty()).then_some(all)
    }

    fn class_config<'r>(
        &self,
        classes: impl Iterator<Item = (&'r str, &'r str)>,
    ) -> Option<Vec<DeviceAllocationConfiguration>> {
        let mut all = Vec::new();
        for (request, class) in classes {
            let class = self.classes.get(class);
            for config in class.into_iter().flat_map(|class| class.spec.config.iter().flatten()) {
                all.push(DeviceAllocationConfiguration {
                    opaque: config.opaque.clone(),
                    requests: Some(vec![request.to_owned()]),
                    source: "FromClass".to_owned(),
                });
            }
        }
        (!all.is_empty()).then_some(all)
    }
}

fn write_result(
    claim: Option<&ResourceClaim>,
    key: &Name,
    at: usize,
    result: &ResultInput,
) -> DeviceRequestAllocationResult {
    let amounts = result.taken.as_ref().map(|amounts| {
        let written = amounts.iter().map(|(name, nanos)| {
            (
                name.to_string(),
                Amount::from_nanos(*nanos).to_quantity(Format::DecimalSi),
            )
        });
        written.collect()
    });
    DeviceRequestAllocationResult {
        admin_access: result.admin.then_some(true),
        binding_conditions: None,
        binding_failure_conditions: None,
        share_id: result.taken.as_ref().map(|_| share_id(claim, key, at)),
        consumed_capacity: amounts,
        device: result.device.to_string(),
        driver: result.driver.to_string(),
        pool: result.pool.to_string(),
        request: result.request.to_string(),
        tolerations: claim.and_then(|claim| tolerations(claim, &result.request)),
    }
}

/// The share id of a partial allocation: deterministic, so that a repeated write is equal.
fn share_id(claim: Option<&ResourceClaim>, key: &Name, at: usize) -> String {
    let uid = claim.and_then(|claim| claim.metadata.uid.as_deref()).unwrap_or(key);
    let digest = Sha256::digest(format!("{uid}/{at}"));
    let mut bytes = [0; 16];
    for (byte, hashed) in bytes.iter_mut().zip(&digest) {
        *byte = *hashed;
    }
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

fn tolerations(claim: &ResourceClaim, request: &str) -> Option<Vec<DeviceToleration>> {
    let (main, sub) = request
        .split_once('/')
        .map_or((request, None), |(main, sub)| (main, Some(sub)));
    let mut requests = claim.spec.devices.as_ref()?.requests.iter().flatten();
    let request = requests.find(|request| request.name == main)?;
    match sub {
        None => request.exactly.as_ref()?.tolerations.clone(),
        Some(sub) => {
            let mut subs = request.first_available.iter().flatten();
            subs.find(|request| request.name == sub)?.tolerations.clone()
        }
    }
}

fn selector(terms: &[NodeTerm]) -> NodeSelector {
    let requirement = |requirement: &NodeRequirement| NodeSelectorRequirement {
        key: requirement.key.to_string(),
        operator: match requirement.op {
            SelectorOp::In => "In",
            SelectorOp::NotIn => "NotIn",
            SelectorOp::Exists => "Exists",
            SelectorOp::DoesNotExist => "DoesNotExist",
            SelectorOp::Gt => "Gt",
            SelectorOp::Lt => "Lt",
        }
        .to_owned(),
        values: (!requirement.values.is_empty()).then(|| requirement.values.iter().map(ToString::to_string).collect()),
    };
    let all = |requirements: &[NodeRequirement]| -> Option<Vec<_>> {
        (!requirements.is_empty()).then(|| requirements.iter().map(requirement).collect())
    };
    NodeSelector {
        node_selector_terms: terms
            .iter()
            .map(|term| NodeSelectorTerm {
                match_expressions: all(&term.labels),
                match_fields: all(&term.fields),
            })
            .collect(),
    }
}
