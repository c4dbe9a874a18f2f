//! The node has a source of whole GPUs requested by number: its device plugin, or a resource claim.

use std::fmt;

use crate::engine::input::GPU;
use crate::engine::model::resources::GPUS;

use super::{PodOnNode, Verdict};

/// The node offers GPUs by resource claim only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("device-plugin GPU requests cannot be scheduled on DRA-only nodes")
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    let input = pair.node.input.as_ref();
    if input.is_none_or(|input| !input.dra_gpus || !input.gpu_resources.is_empty()) {
        return V::FITS;
    }
    let shape = pair.shape;
    let claims = pair.pod.input.claims.iter();
    let extended = claims.flat_map(|claims| &claims.extended);
    let served = shape.shared
        || shape.vector.get(GPUS) == shape.gpu.dra * GPU
        || extended
            .into_iter()
            .any(|extended| extended.wanted.iter().any(|(_, gpu, _)| *gpu));
    V::fits_if(served, || Refusal)
}
