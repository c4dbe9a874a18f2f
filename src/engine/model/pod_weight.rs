//! What a pod takes from a node.

use crate::engine::input::GPU;
use crate::engine::input::devices::is_gpu;

use super::node::Node;
use super::pod::{Place, Pod};
use super::resources::{GPUS, ResourceNames, Resources};
use super::shape::Shape;

/// What a pod with claims takes from a node, if that differs from its request: GPUs of its claims are counted device by device, and a resource
/// that a claim provides is not taken from the node.
#[must_use]
pub fn weight_of(node: &Node, names: &ResourceNames, pod: &Pod, shape: &Shape, place: &Place) -> Option<Resources> {
    let claims = pod.input.claims.as_ref()?;
    let mut vector = shape.vector.clone();
    let (mut claimed, mut extended) = (0, 0);
    for used in place.extras().devices.iter().flat_map(|grants| &**grants) {
        let results = used.allocation.given.results.iter();
        let gpus = results.filter(|result| !result.admin && is_gpu(&result.driver)).count() as i64;
        match used.reference {
            Some(_) => claimed += gpus,
            None => extended += gpus,
        }
    }
    let asked = shape.gpu.dra * GPU;
    let whole = vector.get(GPUS) - asked;
    vector.set(GPUS, (whole - extended * GPU).max(0) + (asked - claimed * GPU).max(0));
    for (name, gpu, _) in claims.extended.iter().flat_map(|extended| &extended.wanted) {
        let position = names.find(name).filter(|at| !gpu && node.allocatable.get(*at) == 0);
        if let Some(position) = position {
            vector.set(position, 0);
        }
    }
    Some(vector)
}
