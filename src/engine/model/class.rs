//! Classes: pods whose static placement constraints are equal share one, with a bit per node that says whether the node meets them.

use std::sync::Arc;

use crate::engine::input::{
    ClaimState, HostPort, Keyed, Name, NodeRequirement, NodeTerm, PodInput, Relations, SelectorOp, Taint, TaintEffect,
    Toleration,
};

use super::epochs::Cached;
use super::node::Node;
use super::relations::Asked;
use super::volumes::unreachable;

/// Static constraints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constraints {
    /// Node selector.
    pub selector: Vec<(Name, Name)>,
    /// Required node affinity.
    pub required: Option<Vec<NodeTerm>>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Host ports; not static, but they tell classes apart.
    pub ports: Vec<HostPort>,
    /// Relations to other pods; not static either.
    pub relations: Option<Arc<Relations>>,
    /// Claims on storage; those that only one pod at a time may use, by key.
    pub claims: Vec<(Option<Name>, Arc<ClaimState>)>,
    /// What else tells classes apart.
    pub other: Option<Name>,
    /// Found outside to fit nowhere.
    pub blocked: Option<Name>,
}

impl Constraints {
    /// Those of a pod.
    #[must_use]
    pub fn of(input: &PodInput) -> Self {
        let volumes = input.volumes.as_ref();
        let mut claims: Vec<_> = volumes
            .iter()
            .flat_map(|volumes| &volumes.claims)
            .map(|claim| (claim.exclusive.then(|| claim.key.clone()), claim.state.clone()))
            .collect();
        claims.sort();
        Self {
            selector: input.needs.node_selector.clone(),
            required: input.needs.affinity_required.clone(),
            tolerations: input.needs.tolerations.clone(),
            ports: input.needs.host_ports.clone(),
            relations: input.relations.clone(),
            other: input.needs.constraints.clone(),
            blocked: input
                .blocked
                .clone()
                .or_else(|| volumes.and_then(|volumes| volumes.missing.clone())),
            claims,
        }
    }

    /// Node selector and required node affinity.
    #[must_use]
    pub fn selects(&self, node: &Node) -> bool {
        selects_node(&self.selector, self.required.as_deref(), node)
    }

    /// No claim on storage rules the node out.
    #[must_use]
    pub fn reaches(&self, node: &Node) -> bool {
        self.claims.iter().all(|(_, state)| unreachable(state, node).is_none())
    }

    /// All taints that keep pods away are tolerated.
    #[must_use]
    pub fn tolerates(&self, node: &Node) -> bool {
        tolerates_taints(&self.tolerations, node)
    }
}

/// Whether a node meets a selector and one of the required terms, if there are any.
#[must_use]
pub fn selects_node(selector: &[(Name, Name)], required: Option<&[NodeTerm]>, node: &Node) -> bool {
    let label = |key: &Name| node.label(key).map(|value| &**value);
    node.input.is_some()
        && selector.iter().all(|(key, value)| label(key) == Some(&**value))
        && required.is_none_or(|terms| meets_any(terms, node))
}

/// Whether all taints of a node that keep pods away are tolerated.
#[must_use]
pub fn tolerates_taints(tolerations: &[Toleration], node: &Node) -> bool {
    node.input.as_ref().is_some_and(|input| {
        let hard = input
            .taints
            .iter()
            .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
        hard.into_iter()
            .all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    })
}

/// Whether a toleration makes a taint not matter.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    toleration.effect.is_none_or(|effect| effect == taint.effect)
        && toleration
            .key
            .as_ref()
            .map_or(toleration.exists, |key| *key == taint.key)
        && (toleration.exists || toleration.value == taint.value)
}

/// Whether a node meets any of the terms; one without requirements is met by none.
#[must_use]
pub fn meets_any(terms: &[NodeTerm], node: &Node) -> bool {
    meets_one_of(terms, &node.name, |key| node.label(key).map(|value| &**value))
}

/// The same of a node that is given by its name and labels.
pub fn meets_one_of<'a>(terms: &[NodeTerm], node: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    terms.iter().any(|term| {
        !(term.labels.is_empty() && term.fields.is_empty())
            && term
                .labels
                .iter()
                .all(|requirement| meets(requirement, label(&requirement.key)))
            && term.fields.iter().all(|requirement| meets(requirement, Some(node)))
    })
}

/// Whether a label's value meets a requirement.
#[must_use]
pub fn meets(requirement: &NodeRequirement, value: Option<&str>) -> bool {
    let listed = || value.is_some_and(|value| requirement.values.iter().any(|one| **one == *value));
    let numbers = || {
        let asked: i64 = requirement.values.first()?.parse().ok()?;
        Some((value?.parse::<i64>().ok()?, asked))
    };
    match requirement.op {
        SelectorOp::In => listed(),
        SelectorOp::NotIn => !listed(),
        SelectorOp::Exists => value.is_some(),
        SelectorOp::DoesNotExist => value.is_none(),
        SelectorOp::Gt => numbers().is_some_and(|(have, asked)| have > asked),
        SelectorOp::Lt => numbers().is_some_and(|(have, asked)| have < asked),
    }
}

/// A set of nodes, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(Vec<u64>);

impl NodeSet {
    /// Whether it holds the node at a position.
    #[must_use]
    pub fn has(&self, position: usize) -> bool {
        self.0
            .get(position / 64)
            .is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    /// Adds the node at a position; false if it was there.
    pub fn add(&mut self, position: usize) -> bool {
        if self.0.len() <= position / 64 {
            self.0.resize(position / 64 + 1, 0);
        }
        let bit = 1 << (position % 64);
        let fresh = self.0[position / 64] & bit == 0;
        self.0[position / 64] |= bit;
        fresh
    }

    /// Positions in it, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)))
                .take_while(|rest| *rest != 0)
                .map(move |rest| at * 64 + rest.trailing_zeros() as usize)
        })
    }

    /// How many it holds.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Takes the node at a position out.
    pub fn take(&mut self, position: usize) {
        if let Some(word) = self.0.get_mut(position / 64) {
            *word &= !(1 << (position % 64));
        }
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<T: IntoIterator<Item = usize>>(positions: T) -> Self {
        let mut set = Self::default();
        for position in positions {
            set.add(position);
        }
        set
    }
}

/// A class.
#[derive(Debug)]
pub struct Class {
    /// What its pods have in common.
    pub constraints: Constraints,
    /// Nodes that meet them: ready, selected, tolerated.
    pub(super) nodes: Cached<NodeSet>,
    /// Where the relations are counted.
    pub asked: Option<Asked>,
    /// Its pods.
    pub pods: usize,
}

impl Keyed for Class {
    type Key = Constraints;
    fn key(&self) -> &Constraints {
        &self.constraints
    }
}

#[cfg(test)]
mod tests;
