//! Topologies: nodes in a tree of domains, by the labels that a topology names from the widest level to the narrowest.
//!
//! A domain is identified by the labels of its level and all wider ones, so racks of the same name in different zones are different. A node that
//! lacks one of the labels is outside. Nodes lie in the order of the tree, so that the nodes of any domain are one slice.

use std::ops::Range;

use crate::engine::input::Name;

use super::arena::Arena;
use super::ids::NodeId;
use super::node::Node;
use super::node_set::NodeSet;

/// The level name of the whole topology.
pub const ROOT: &str = "root";

/// A domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its name in messages: its labels, joined.
    pub name: Name,
    /// 0 is the whole topology, 1 the widest level.
    pub level: usize,
    /// Its parent domain; its own position for the whole topology.
    pub parent: usize,
    /// Domains right below it, by label.
    pub children: Vec<usize>,
    /// Its nodes, as positions in the topology's list.
    pub nodes: Range<usize>,
}

/// A topology.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Node label keys, the widest level first.
    pub levels: Vec<Name>,
    /// Domains; the whole topology is the first, and each comes before those below it.
    pub domains: Vec<Domain>,
    /// Nodes that belong to it, domain by domain.
    pub nodes: Vec<NodeId>,
    /// The narrowest domain of each node, by the node's position.
    narrowest: Vec<Option<usize>>,
}

impl Topology {
    /// A topology without nodes.
    #[must_use]
    pub fn new(levels: Vec<Name>) -> Self {
        Self {
            levels,
            ..Self::default()
        }
    }

    /// Sorts the nodes into domains. `by_name`: all nodes.
    pub fn sort_nodes(&mut self, nodes: &Arena<NodeId, Node>, by_name: &[NodeId]) {
        let label = |id: NodeId, key: &Name| nodes[id].label(key).cloned();
        let mut members: Vec<(Vec<Name>, NodeId)> = by_name
            .iter()
            .filter_map(|&id| Some((self.levels.iter().map(|key| label(id, key)).collect::<Option<_>>()?, id)))
            .collect();
        members.sort_by(|left, right| left.0.cmp(&right.0));
        self.nodes = members.iter().map(|(_, id)| *id).collect();
        self.narrowest = vec![None; nodes.slots()];
        self.domains = vec![Domain {
            name: Name::from(ROOT),
            level: 0,
            parent: 0,
            children: Vec::new(),
            nodes: 0..members.len(),
        }];
        let mut open: Vec<usize> = vec![0];
        let mut before: &[Name] = &[];
        for (position, (labels, id)) in members.iter().enumerate() {
            let shared = labels
                .iter()
                .zip(before)
                .take_while(|(own, other)| own == other)
                .count();
            open.truncate(shared + 1);
            for level in shared..labels.len() {
                let parent = open[level];
                let domain = self.domains.len();
                self.domains[parent].children.push(domain);
                self.domains.push(Domain {
                    name: labels[..=level].join(".").into(),
                    level: level + 1,
                    parent,
                    children: Vec::new(),
                    nodes: position..position,
                });
                open.push(domain);
            }
            for &domain in &open {
                self.domains[domain].nodes.end = position + 1;
            }
            self.narrowest[id.at()] = open.last().copied();
            before = labels;
        }
        // Nodes that only pods name come and go without a new tree.
        let last = self.narrowest.iter().rposition(Option::is_some);
        self.narrowest.truncate(last.map_or(0, |last| last + 1));
        self.domains[0].nodes = 0..members.len();
    }

    /// The index of a level, by its label key.
    #[must_use]
    pub fn level(&self, key: &str) -> Option<usize> {
        if key == ROOT {
            return Some(0);
        }
        self.levels.iter().position(|level| **level == *key).map(|at| at + 1)
    }

    /// The domain of a level that a node is in.
    #[must_use]
    pub fn domain_of(&self, node: NodeId, level: usize) -> Option<usize> {
        let narrowest = self.narrowest.get(node.at()).copied().flatten()?;
        std::iter::successors(Some(narrowest), |&at| (at != 0).then(|| self.domains[at].parent))
            .find(|&at| self.domains[at].level == level)
    }

    /// The nodes of a domain.
    #[must_use]
    pub fn nodes_of(&self, domain: usize) -> &[NodeId] {
        &self.nodes[self.domains[domain].nodes.clone()]
    }

    /// The nodes of a domain that are also in `among` (`None` = all).
    #[must_use]
    pub fn node_set(&self, domain: usize, among: Option<&NodeSet>) -> NodeSet {
        let mut set = NodeSet::default();
        for id in self.nodes_of(domain) {
            if among.is_none_or(|among| among.has(id.at())) {
                set.add(id.at());
            }
        }
        set
    }

    /// The narrowest domain, not below `deepest`, that holds all nodes of `among` (`None` = all) that belong here; the whole topology if none does.
    #[must_use]
    pub fn common_domain(&self, among: Option<&NodeSet>, deepest: usize) -> usize {
        let inside = |id: &&NodeId| among.is_none_or(|among| among.has(id.at()));
        let (Some(first), Some(last)) = (self.nodes.iter().find(inside), self.nodes.iter().rev().find(inside)) else {
            return 0;
        };
        let deepest = (1..=deepest.min(self.levels.len()))
            .take_while(|&level| self.domain_of(*first, level) == self.domain_of(*last, level))
            .last();
        deepest.and_then(|level| self.domain_of(*first, level)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
