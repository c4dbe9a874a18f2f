//! Node selector, required node affinity, taints and host ports.
//!
//! Preferences, pod affinity and topology spread are absent: neither a kubelet nor the simple default scheduler here looks at them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerPort, Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration,
};

use super::resources::is_sidecar;

/// A port of a node that a pod uses.
#[derive(Debug)]
pub(super) struct HostPort {
    /// Empty: all addresses.
    ip: String,
    protocol: String,
    number: i32,
}

/// Whether the node's labels satisfy the pod's node selector and required node affinity.
pub(super) fn selects(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let by_selector = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let name = node.metadata.name.as_deref().unwrap_or_default();
    by_selector
        && required.is_none_or(|selector| {
            selector
                .node_selector_terms
                .iter()
                .any(|term| term_matches(term, labels, name))
        })
}

/// Whether the pod tolerates every `NoSchedule` and `NoExecute` taint of the node.
pub(super) fn tolerates(pod: &Pod, node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let tolerations = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default();
    taints
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .all(|taint| tolerations.iter().any(|toleration| covers(toleration, taint)))
}

/// The host ports of a pod's containers and sidecars; with host networking, every container port is one.
pub(super) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars = spec.init_containers.iter().flatten().filter(|one| is_sidecar(one));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let read = |port: &ContainerPort| {
        let own = (spec.host_network == Some(true)).then_some(port.container_port);
        Some(HostPort {
            ip: port.host_ip.clone().filter(|ip| ip != "0.0.0.0").unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            number: port.host_port.filter(|number| *number > 0).or(own)?,
        })
    };
    ports.filter_map(read).collect()
}

/// Whether two pods on one node would use the same port.
pub(super) fn clash(some: &[HostPort], others: &[HostPort]) -> bool {
    some.iter().any(|port| {
        others.iter().any(|other| {
            port.number == other.number
                && port.protocol == other.protocol
                && (port.ip == other.ip || port.ip.is_empty() || other.ip.is_empty())
        })
    })
}

/// A term without requirements matches nothing.
fn term_matches(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions
            .iter()
            .all(|requirement| holds(requirement, labels.get(&requirement.key).map(String::as_str)))
        && fields
            .iter()
            .all(|requirement| requirement.key == "metadata.name" && holds(requirement, Some(name)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = |value: &str| values.iter().any(|other| other == value);
    let compare = |wanted: fn(i64, i64) -> bool| {
        let bound = values.first().and_then(|bound| bound.parse().ok());
        matches!((value.and_then(|v| v.parse().ok()), bound), (Some(value), Some(bound)) if wanted(value, bound))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|value, bound| value > bound),
        "Lt" => compare(|value, bound| value < bound),
        _ => false,
    }
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || (key.is_empty() && exists))
        && (exists || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests;
