//! Per-node scratch memory of the victim search's probes.

use super::capacity::Capacity;

/// What victims free on a node.
#[derive(Clone, Debug, Default)]
pub struct NodeVictims {
    /// Freed by the recorded victims: those of the last probe that succeeded.
    pub(super) recorded: Capacity,
    /// Freed by the other victims.
    pub(super) freed: Capacity,
    /// Positions of the potential batches with a pod here.
    pub(super) batches: Vec<usize>,
}

/// One entry per node. A probe resets what it used, so that its cost depends on the nodes that it touches alone.
pub type NodeScratch = Vec<NodeVictims>;
