//! The static placement constraints of pods.

use std::sync::Arc;

use crate::engine::input::{ClaimState, HostPort, Name, NodeTerm, PodInput, Relations, Toleration};

use super::node::Node;
use super::selectors::{selects_node, tolerates_taints};
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
    /// Opaque text; pods that differ in it are in different classes.
    pub other: Option<Name>,
    /// The mirror found that no node will do.
    pub blocked: Option<Name>,
}

impl Constraints {
    /// The constraints of a pod.
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

    /// No volume of the pod's claims excludes the node.
    #[must_use]
    pub fn reaches(&self, node: &Node) -> bool {
        self.claims.iter().all(|(_, state)| unreachable(state, node).is_none())
    }

    /// All `NoSchedule` and `NoExecute` taints are tolerated.
    #[must_use]
    pub fn tolerates(&self, node: &Node) -> bool {
        tolerates_taints(&self.tolerations, node)
    }
}

#[cfg(test)]
mod tests;
