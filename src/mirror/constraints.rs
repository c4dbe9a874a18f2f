//! Placement constraints of a pod's spec: node selector, node affinity, tolerations, host ports; and a node's taints.
//!
//! Absent: inter-pod affinity and topology spread constraints (`relations`), and preferred node affinity, which is ignored, as in KAI.

use k8s_openapi::api::core::v1::{self, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

use super::name;
use crate::engine::input::{HostPort, Name, NodeRequirement, NodeTerm, SelectorOp, Taint, TaintEffect, Toleration};

/// The node selector, sorted by key.
#[must_use]
pub fn node_selector(spec: &PodSpec) -> Vec<(Name, Name)> {
    spec.node_selector
        .iter()
        .flatten()
        .map(|(key, value)| (name(key), name(value)))
        .collect()
}

/// Required node affinity: any of the terms; `None` = no requirement.
#[must_use]
pub fn required(spec: &PodSpec) -> Option<Vec<NodeTerm>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(required.node_selector_terms.iter().filter_map(term).collect())
}

/// A term. `None`, which matches no node: it holds an operator that does not exist.
pub(super) fn term(term: &NodeSelectorTerm) -> Option<NodeTerm> {
    let read = |requirements: &Option<Vec<NodeSelectorRequirement>>| {
        requirements
            .iter()
            .flatten()
            .map(requirement)
            .collect::<Option<Vec<_>>>()
    };
    Some(NodeTerm {
        labels: read(&term.match_expressions)?,
        fields: read(&term.match_fields)?,
    })
}

fn requirement(requirement: &NodeSelectorRequirement) -> Option<NodeRequirement> {
    let op = match requirement.operator.as_str() {
        "In" => SelectorOp::In,
        "NotIn" => SelectorOp::NotIn,
        "Exists" => SelectorOp::Exists,
        "DoesNotExist" => SelectorOp::DoesNotExist,
        "Gt" => SelectorOp::Gt,
        "Lt" => SelectorOp::Lt,
        _ => return None,
    };
    let values = requirement.values.iter().flatten().map(|value| name(value)).collect();
    Some(NodeRequirement {
        key: name(&requirement.key),
        op,
        values,
    })
}

/// Tolerations. One with an effect or operator that does not exist tolerates nothing.
#[must_use]
pub fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    spec.tolerations.iter().flatten().filter_map(toleration).collect()
}

fn toleration(toleration: &v1::Toleration) -> Option<Toleration> {
    let given = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    let exists = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => false,
        Some("Exists") => true,
        Some(_) => return None,
    };
    let effect = match given(&toleration.effect) {
        Some(text) => Some(effect(&text)?),
        None => None,
    };
    let value = if exists {
        ""
    } else {
        toleration.value.as_deref().unwrap_or_default()
    };
    Some(Toleration {
        key: given(&toleration.key).map(|key| name(&key)),
        exists,
        value: name(value),
        effect,
    })
}

/// A node's taints.
#[must_use]
pub fn taints(node: &v1::Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let read = |taint: &v1::Taint| {
        Some(Taint {
            key: name(&taint.key),
            value: name(taint.value.as_deref().unwrap_or_default()),
            effect: effect(&taint.effect)?,
        })
    };
    taints.filter_map(read).collect()
}

fn effect(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// Host ports of all containers; with host networking, every container port is one.
#[must_use]
pub fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let host_network = spec.host_network == Some(true);
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let read = |port: &v1::ContainerPort| {
        let number = port
            .host_port
            .filter(|number| *number > 0)
            .or(host_network.then_some(port.container_port))?;
        let ip = port.host_ip.as_deref().unwrap_or_default();
        Some(HostPort {
            ip: name(ip),
            protocol: name(port.protocol.as_deref().unwrap_or("TCP")),
            port: number,
        })
    };
    ports.filter_map(read).collect()
}

/// Other parts of the spec that affect placement, as one string: priority and volumes (without their names), except claims, which `volumes`
/// reads. `None` if there is nothing.
#[must_use]
pub fn others(class: Option<&str>, priority: Option<i32>, volumes: &[v1::Volume]) -> Option<Name> {
    let volumes = volumes
        .iter()
        .filter(|volume| volume.config_map.is_none() && volume.secret.is_none())
        .filter(|volume| volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none());
    let volumes: Vec<_> = volumes
        .map(|volume| v1::Volume {
            name: String::new(),
            ..volume.clone()
        })
        .collect();
    let class = class.unwrap_or_default();
    if volumes.is_empty() {
        return (!class.is_empty() || priority.is_some())
            .then(|| [class, " ", &priority.unwrap_or_default().to_string()].concat().into());
    }
    let all = serde_json::json!([class, priority, volumes]);
    Some(all.to_string().into())
}

#[cfg(test)]
mod tests;
