//! Classes: pods whose static placement constraints are equal share one, with a bit per node that says whether the node meets them.

use crate::engine::input::Keyed;

use super::constraints::Constraints;
use super::epochs::Cached;
use super::node_set::NodeSet;
use super::relations::Asked;

/// A class.
#[derive(Debug)]
pub struct Class {
    /// The constraints that its pods share.
    pub constraints: Constraints,
    /// Nodes that meet them: ready, selected, tolerated.
    pub(super) nodes: Cached<NodeSet>,
    /// The counters of its relations to other pods.
    pub asked: Option<Asked>,
    /// Number of its pods.
    pub pods: usize,
}

impl Keyed for Class {
    type Key = Constraints;
    fn key(&self) -> &Constraints {
        &self.constraints
    }
}
