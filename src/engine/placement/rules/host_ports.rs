//! Host ports (kube-scheduler's NodePorts): no pod on the node, and none planned for it, uses one that the pod asks for.

use std::fmt;

use crate::engine::input::{HostPort, PodRef};
use crate::engine::model::Model;
use crate::engine::model::ids::PodId;
use crate::engine::model::node::Node;

use super::{PodOnNode, Verdict};

/// A host port is taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("node(s) didn't have free ports for the requested pod ports")
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    V::fits_if(
        pair.constraints.ports.is_empty() || free(pair.model, pair.pod_id, pair.node),
        || Refusal,
    )
}

/// No other pod of the node uses the pod's host ports.
#[must_use]
pub fn free(model: &Model, id: PodId, node: &Node) -> bool {
    taken(model, id, node).is_none()
}

/// A host port of the pod that another one on the node uses, and that one.
#[must_use]
pub fn taken<'a>(model: &'a Model, id: PodId, node: &Node) -> Option<(&'a HostPort, &'a PodRef)> {
    let wanted = &model.pods()[id].input.needs.host_ports;
    let everywhere = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    let others = node.pods.iter().chain(&node.coming).filter(|other| **other != id);
    others.into_iter().find_map(|other| {
        let other = &model.pods()[*other].input;
        let clashes = |port: &&HostPort| {
            other.needs.host_ports.iter().any(|taken| {
                port.port == taken.port
                    && port.protocol == taken.protocol
                    && (port.ip == taken.ip || everywhere(&port.ip) || everywhere(&taken.ip))
            })
        };
        Some((wanted.iter().find(clashes)?, &other.pod))
    })
}
