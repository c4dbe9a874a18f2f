//! After a failed GPU reservation a node opens no GPU for sharing for a while; pods may join GPUs that are shared already.

use std::fmt;

use crate::engine::model::node::Node;
use crate::engine::model::shape::Shape;
use crate::engine::placement::resources::fitting_groups;

use super::{PodOnNode, Verdict};

/// A reservation failed recently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("node(s) failed to reserve a GPU for sharing and will be tried again")
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    let (node, shape) = (pair.node, pair.shape);
    V::fits_if(
        node.sharing_from.is_none() || !shape.shared || opened(node, shape) == 0,
        || Refusal,
    )
}

/// How many GPUs have to be opened for the request, beside existing shared ones that have room.
#[must_use]
pub fn opened(node: &Node, shape: &Shape) -> i64 {
    (shape.gpu.count - fitting_groups(node, shape).count() as i64).max(0)
}
