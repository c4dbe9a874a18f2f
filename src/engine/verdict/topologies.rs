//! Verdicts about topologies: missing, without the level, with too little free in each domain.

use crate::engine::decision::{Cause, Verdict};
use crate::engine::input::Name;
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodGroupId};
use crate::engine::model::node::Node;
use crate::engine::model::pod_group::Member;
use crate::engine::placement::domains::{DomainShortage, Refused};

use super::words::{list, number, quantity};

/// Domains in a message.
const NAMED: usize = 3;

/// Why a member's pods cannot be placed in a topology.
#[derive(Clone, Copy)]
pub struct OutOfDomains<'a> {
    /// The cluster.
    pub model: &'a Model,
    /// The pod group.
    pub pod_group: PodGroupId,
    /// The member that has the constraint.
    pub member: Member,
    /// Pods to place.
    pub wanted: usize,
    /// Why no domain can be tried; `None`: each was tried without success.
    pub refused: Option<&'a Refused>,
}

impl OutOfDomains<'_> {
    /// The verdict; `None` if the topology is not the cause.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let entry = &self.model.pod_groups()[self.pod_group];
        let constraint = entry.tree[self.member as usize].topology.as_ref()?;
        let name = &constraint.topology;
        let Some(topology) = self.model.topologies().get(name) else {
            return Some(Verdict::new(
                Cause::TopologyMissing,
                format!("Topology {name} does not exist; create it or name another one"),
            ));
        };
        let levels: Vec<String> = topology.levels.iter().map(ToString::to_string).collect();
        if let Some(Refused::NoLevel { level, .. }) = self.refused {
            let sentence = match (&constraint.required, topology.level(level)) {
                (Some(required), Some(_)) => {
                    format!(
                        "The preferred level {level} of topology {name} is wider than the required level {required}"
                    )
                }
                _ => format!(
                    "Topology {name} has no level {level} (its levels are {})",
                    list(&levels, levels.len())
                ),
            };
            return Some(Verdict::new(Cause::TopologyLevelMissing, sentence));
        }
        let nodes = || self.model.by_name().iter().map(|id| (*id, &self.model.nodes()[*id]));
        let gpus = nodes().any(|(_, node)| !node.cpu_only());
        let outside = nodes().filter(|(id, node)| topology.domain_of(*id, 0).is_none() && !(gpus && node.cpu_only()));
        let lacking = |(_, node): (NodeId, &Node)| {
            let level = topology.levels.iter().find(|level| node.label(level).is_none());
            level.cloned()
        };
        let unlabelled: Vec<Name> = outside.filter_map(lacking).collect();
        let nodes = topology.nodes.len() + unlabelled.len();
        let label = unlabelled.first();
        if let Some(label) = label
            && topology.nodes.is_empty()
        {
            let sentence = format!(
                "0 of {nodes} nodes have label {label}, by which topology {name} finds its domains; label the nodes"
            );
            return Some(Verdict::new(Cause::TopologyLabelMissing, sentence));
        }
        let mut verdict = self.domains(name, constraint.required.as_deref()?)?;
        if let Some(label) = label {
            verdict.evidence.push(format!(
                "{} of {nodes} nodes are outside of topology {name}, since they lack label {label}",
                unlabelled.len()
            ));
        }
        Some(verdict)
    }

    /// No domain of the required level has enough free.
    fn domains(&self, name: &str, level: &str) -> Option<Verdict> {
        let wanted = self.wanted;
        let pods = if wanted == 1 {
            "the pod".to_owned()
        } else {
            format!("all {wanted} pods")
        };
        let first = format!("No domain of level {level} of topology {name} has room for {pods}");
        let sentence = match self.refused {
            Some(Refused::Each { listed, more }) if listed.len() + more == 0 => {
                format!("{first}: the nodes of its other pods are in no domain of this node pool")
            }
            Some(Refused::Each { listed, more }) => {
                let said: Vec<String> = listed.iter().take(NAMED).map(|lack| self.lack(lack)).collect();
                format!("{first}: {}", list(&said, listed.len() + more))
            }
            Some(Refused::Everything(Some(domain))) => {
                format!("{first}: that is domain {domain} alone, which has too little free")
            }
            Some(_) => return None,
            None => format!("{first}: each was tried"),
        };
        Some(Verdict::new(Cause::TopologyDomain, sentence))
    }

    fn lack(&self, lack: &DomainShortage) -> String {
        let domain = &lack.domain;
        match (lack.slots, lack.short.first()) {
            (Some(slots), _) => format!("{domain} has room for {slots} of {}", self.wanted),
            (None, Some(&(position, asked, free))) => {
                let (free, asked) = (
                    number(self.model, position, free.max(0)),
                    quantity(self.model, position, asked),
                );
                format!("{domain} has {free} free of {asked}")
            }
            (None, None) => format!("{domain} has too little free"),
        }
    }
}
