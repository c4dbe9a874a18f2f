//! The node offers the kind of GPUs that the pod requests: whole GPUs, shared GPUs, MIG instances.

use std::fmt;

use crate::api::names::node_label;
use crate::engine::input::{GpuKind, Name};
use crate::engine::model::node::Node;
use crate::engine::model::shape::Shape;

use super::{PodOnNode, Verdict};

/// Why a node does not offer the requested kind of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// MIG requested by KAI's legacy annotation; the node.
    LegacyMig(Name),
    /// The node offers its GPUs by resource claim only, where none can be shared.
    DraOnly,
    /// GPUs of another vendor; the resource.
    OtherVendor(Name),
    /// MIG instances on a node without them.
    NoMig,
    /// A request for other than whole GPUs on a node with MIG strategy `single`.
    SingleStrategy,
    /// A request for whole or shared GPUs on a node with MIG strategy `mixed`.
    MixedStrategy,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LegacyMig(node) => write!(f, "Legacy MIG jobs cannot be scheduled on node {node}"),
            Self::DraOnly => f.write_str("fractional/shared GPU pods are not yet supported on DRA-only nodes"),
            Self::OtherVendor(resource) => write!(f, "node(s) didn't offer {resource}"),
            Self::NoMig => f.write_str("MIG job cannot be scheduled on non-MIG node"),
            Self::SingleStrategy => f.write_str("only whole gpu jobs can run on a node with MigStrategy='single'"),
            Self::MixedStrategy => f.write_str("non MIG jobs cant run on a node with MigStrategy='mixed'"),
        }
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    judge(pair.shape, pair.node)
}

/// The rule for a request, independent of the pod.
pub fn judge<V: Verdict<Refusal>>(shape: &Shape, node: &Node) -> V {
    let Some(input) = &node.input else {
        return V::refused_for(|| None);
    };
    let kind = shape.gpu.kind;
    if shape.gpu.legacy_mig {
        return V::refused(|| Refusal::LegacyMig(node.name.clone()));
    }
    if shape.cpu_only {
        return V::FITS;
    }
    if shape.shared && input.dra_gpus {
        return V::refused(|| Refusal::DraOnly);
    }
    let missing = |resource: &&Name| !input.gpu_resources.is_empty() && !input.gpu_resources.contains(*resource);
    if let Some(resource) = shape.gpu.resources.iter().find(missing) {
        return V::refused(|| Refusal::OtherVendor(resource.clone()));
    }
    if !input.mig {
        return V::fits_if(kind != GpuKind::Mig, || Refusal::NoMig);
    }
    match node.label(node_label::MIG_STRATEGY).map_or("", |value| &**value) {
        "single" => V::fits_if(kind == GpuKind::Regular, || Refusal::SingleStrategy),
        // Shared GPUs are refused with the message of the other strategy, as KAI does.
        "mixed" => V::fits_if(kind == GpuKind::Mig, || match kind {
            GpuKind::Regular => Refusal::MixedStrategy,
            GpuKind::Mig | GpuKind::Fraction | GpuKind::Memory => Refusal::SingleStrategy,
        }),
        _ => V::FITS,
    }
}
