//! Preferred topology domains of a pod group: those with the most free capacity first, so that a pod group that needs several uses few.

use std::cell::Cell;
use std::ops::Range;

use crate::engine::model::ids::{ClassId, NodeId, ShapeId};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::topology::Topology;

/// Number of score steps.
const STEPS: usize = 10;

/// Groups of nodes, the best first.
#[derive(Debug, Default)]
pub struct Preferred {
    nodes: Vec<NodeId>,
    groups: Vec<Range<usize>>,
    /// Group of each node, by the node's position.
    group_of: Vec<Option<u32>>,
    /// Cache: pods of this class and shape fit in no group before this one.
    full: Cell<Option<(ClassId, ShapeId, usize)>>,
}

impl Preferred {
    /// Groups from domains of one level, the best last.
    #[must_use]
    pub fn of(topology: &Topology, domains: &[usize]) -> Self {
        let mut preferred = Self::default();
        for &domain in domains.iter().rev() {
            let start = preferred.nodes.len();
            for &node in topology.nodes_of(domain) {
                preferred.nodes.push(node);
                if preferred.group_of.len() <= node.at() {
                    preferred.group_of.resize(node.at() + 1, None);
                }
                preferred.group_of[node.at()] = Some(preferred.groups.len() as u32);
            }
            preferred.groups.push(start..preferred.nodes.len());
        }
        preferred
    }

    /// A group by its position.
    #[must_use]
    pub fn group(&self, at: usize) -> &[NodeId] {
        &self.nodes[self.groups[at].clone()]
    }

    /// The positions of the groups with some of these nodes (`None` = all groups), in order.
    #[must_use]
    pub fn groups_with(&self, nodes: Option<&NodeSet>) -> Vec<usize> {
        let Some(nodes) = nodes else {
            return (0..self.groups.len()).collect();
        };
        let groups = nodes.iter().filter_map(|at| self.rank(NodeId::of(at)));
        let mut groups: Vec<usize> = groups.map(|(_, group)| group as usize).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// A node's score in steps of the topology's weight, and the index of its group; `None` if it is in none.
    #[must_use]
    pub fn rank(&self, node: NodeId) -> Option<(i64, u32)> {
        let group = self.group_of.get(node.at()).copied().flatten()?;
        let behind = self.groups.len() - group as usize;
        Some(((STEPS * behind / self.groups.len()) as i64, group))
    }

    /// The first group that is not known to be full for a class and shape.
    #[must_use]
    pub fn first_open(&self, kind: (ClassId, ShapeId)) -> usize {
        match self.full.get() {
            Some((class, shape, first)) if (class, shape) == kind => first,
            Some(_) | None => 0,
        }
    }

    /// Caches the first group that fits a class and shape. Valid until something is freed.
    pub fn note_open(&self, kind: (ClassId, ShapeId), first: usize) {
        self.full.set(Some((kind.0, kind.1, first)));
    }

    /// Clears the cache, because something was freed.
    pub fn forget(&self) {
        self.full.set(None);
    }
}
