//! Memory for what a probe of the victim search works out for each node.

use super::capacity::Capacity;

/// What victims free on a node.
#[derive(Clone, Debug, Default)]
pub struct NodeVictims {
    /// By victims of the probe before.
    pub(super) recorded: Capacity,
    /// By the others.
    pub(super) freed: Capacity,
    /// Positions of the potential batches with a pod here.
    pub(super) batches: Vec<usize>,
}

/// One per node; lent to a probe and handed back blank, so that a probe costs what it touches.
pub type NodeScratch = Vec<NodeVictims>;
