//! A pod's relations to other pods: inter-pod affinity and anti-affinity, topology spread constraints.
//!
//! Namespace selectors are resolved here, to the names of the namespaces that they select at present. Absent: spread constraints with `ScheduleAnyway`.

pub mod room;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Affinity, Namespace, PodAffinityTerm, PodSpec, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::affinity::{Wish, terms};
use super::packed::{Phase, Pod};
use super::{Entry, Mirror, Output, name};
use crate::engine::input::{Name, NodeRequirement, PodSelector, PodTerm, Relations, SelectorOp, Spread};
use crate::engine::model::selectors;

impl Entry for Namespace {
    type Packed = Self;
    fn changed(namespace: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        if there && mirror.namespaces.has(namespace) {
            return;
        }
        let name = namespace.name_any();
        let queue_changes = mirror.settings.fallback_queue.as_ref().is_some_and(|fallback_queue| {
            let label = namespace.labels().get(&fallback_queue.label).map(String::as_str);
            let label = label.filter(|label| there && !label.is_empty());
            mirror.namespaces.label(&name, &fallback_queue.label) != label
        });
        let concerned =
            |pod: &Pod| pod.spec().is_some_and(selects_namespaces) || (queue_changes && *pod.pod.namespace == *name);
        let keys = mirror.pods_where(concerned);
        mirror.with_these_pods(&keys, out, |mirror| {
            if there {
                mirror.namespaces.put(namespace);
            } else {
                mirror.namespaces.remove(namespace);
            }
        });
    }
}

/// The labels of all namespaces.
#[derive(Debug, Default)]
pub struct Namespaces {
    labels: BTreeMap<Name, BTreeMap<String, String>>,
    /// What terms with namespace selectors select: pods of one template have the same, and are read again and again.
    resolved: RefCell<BTreeMap<Resolved, Arc<[Name]>>>,
}

/// The namespaces that a term names, and the requirements of its namespace selector.
type Resolved = (Vec<Name>, Vec<NodeRequirement>);

/// Terms whose namespaces are remembered. One may have the names of all namespaces.
const REMEMBERED: usize = 64;

impl Namespaces {
    /// Whether a namespace is known with these labels.
    #[must_use]
    pub fn has(&self, namespace: &Namespace) -> bool {
        self.labels.get(namespace.name_any().as_str()) == Some(namespace.labels())
    }

    /// Records a namespace.
    pub fn put(&mut self, namespace: &Namespace) {
        let (name, labels) = (name(&namespace.name_any()), namespace.labels().clone());
        self.update_resolved(&name, Some(&labels));
        self.labels.insert(name, labels);
    }

    /// Removes a namespace.
    pub fn remove(&mut self, namespace: &Namespace) {
        let name = name(&namespace.name_any());
        self.update_resolved(&name, None);
        self.labels.remove(&name);
    }

    /// A label of a namespace, unless it is empty.
    #[must_use]
    pub fn label(&self, namespace: &str, key: &str) -> Option<&str> {
        let label = self.labels.get(namespace)?.get(key)?;
        Some(label.as_str()).filter(|label| !label.is_empty())
    }

    /// Updates what terms select before a namespace gets other labels, or is removed.
    fn update_resolved(&mut self, name: &Name, labels: Option<&BTreeMap<String, String>>) {
        for ((named, requirements), selected) in self.resolved.get_mut() {
            let after = named.contains(name) || labels.is_some_and(|labels| meet(labels, requirements));
            match (selected.binary_search(name), after) {
                (Ok(_), false) => *selected = selected.iter().filter(|other| *other != name).cloned().collect(),
                (Err(_), true) => *selected = sorted(selected.iter().chain([name]).cloned().collect()),
                (Ok(_), true) | (Err(_), false) => {}
            }
        }
    }

    /// The names that a term lists, and those that its namespace selector selects; sorted.
    fn resolve(&self, named: Vec<Name>, requirements: Vec<NodeRequirement>) -> Arc<[Name]> {
        let mut resolved = self.resolved.borrow_mut();
        let term = (named, requirements);
        let read = || sorted(term.0.iter().cloned().chain(self.selected(&term.1)).collect());
        if let Some(known) = resolved.get(&term) {
            debug_assert_eq!(*known, read());
            return Arc::clone(known);
        }
        let names = read();
        if resolved.len() >= REMEMBERED {
            resolved.clear();
        }
        resolved.insert(term, Arc::clone(&names));
        names
    }

    fn selected(&self, requirements: &[NodeRequirement]) -> impl Iterator<Item = Name> {
        let selected = self.labels.iter().filter(move |(_, labels)| meet(labels, requirements));
        selected.map(|(namespace, _)| namespace.clone())
    }
}

/// Whether the labels of a namespace meet all requirements.
fn meet(labels: &BTreeMap<String, String>, requirements: &[NodeRequirement]) -> bool {
    let value = |requirement: &NodeRequirement| labels.get(&*requirement.key).map(String::as_str);
    let mut requirements = requirements.iter();
    requirements.all(|requirement| selectors::meets(requirement, value(requirement)))
}

/// Whether a pod has namespace selectors.
#[must_use]
fn selects_namespaces(spec: &PodSpec) -> bool {
    let mut terms = spec.affinity.iter().flat_map(terms);
    terms.any(|(_, term)| term.namespace_selector.is_some())
}

/// The spec of a pod that may have relations to others. One that has ended has none any more.
fn relating(pod: &Pod) -> Option<&PodSpec> {
    let spec = pod.spec().filter(|_| pod.phase != Phase::Succeeded)?;
    let to_others = |affinity: &Affinity| affinity.pod_affinity.is_some() || affinity.pod_anti_affinity.is_some();
    let relates = spec.topology_spread_constraints.is_some() || spec.affinity.as_ref().is_some_and(to_others);
    relates.then_some(spec)
}

/// How much it takes to compare with requirements: their values, at least one each.
#[must_use]
pub fn weight(requirements: &[NodeRequirement]) -> usize {
    requirements
        .iter()
        .map(|requirement| requirement.values.len().max(1))
        .sum()
}

/// The relations of a pod; `None` if it has none.
#[must_use]
pub fn read(pod: &Pod, namespaces: &Namespaces) -> Option<Relations> {
    let spec = relating(pod)?;
    let mut relations = Relations::default();
    for (wish, term) in spec.affinity.iter().flat_map(terms) {
        let term = read_term(term, pod, namespaces);
        match wish {
            Wish::Near => relations.near.push(term),
            Wish::Apart => relations.apart.push(term),
            Wish::Preferred(weight) => relations.preferred.push((weight, term)),
        }
    }
    let spread = spec.topology_spread_constraints.iter().flatten();
    relations.spread = spread.filter_map(|constraint| read_spread(constraint, pod)).collect();
    (relations != Relations::default()).then_some(relations)
}

/// A term without namespaces and namespace selector selects in the pod's own namespace.
fn read_term(term: &PodAffinityTerm, pod: &Pod, namespaces: &Namespaces) -> PodTerm {
    let mut named: Vec<Name> = term
        .namespaces
        .iter()
        .flatten()
        .map(|namespace| name(namespace))
        .collect();
    let namespaces = match &term.namespace_selector {
        None => {
            if named.is_empty() {
                named.push(pod.pod.namespace.clone());
            }
            Some(sorted(named))
        }
        Some(selector) => match requirements(selector) {
            Some(requirements) if requirements.is_empty() => None,
            Some(requirements) => Some(namespaces.resolve(named, requirements)),
            None => Some(sorted(named)),
        },
    };
    PodTerm {
        pods: PodSelector {
            labels: term.label_selector.as_ref().and_then(requirements),
            namespaces,
        },
        key: name(&term.topology_key),
    }
}

fn sorted(mut names: Vec<Name>) -> Arc<[Name]> {
    names.sort_unstable();
    names.dedup();
    names.into()
}

fn read_spread(constraint: &TopologySpreadConstraint, pod: &Pod) -> Option<Spread> {
    if constraint.when_unsatisfiable != "DoNotSchedule" {
        return None;
    }
    let mut labels = constraint.label_selector.as_ref().and_then(requirements);
    for key in constraint.match_label_keys.iter().flatten() {
        if let (Some(labels), Some(value)) = (&mut labels, pod.labels.get(key)) {
            labels.push(listed(key, value));
        }
    }
    Some(Spread {
        pods: PodSelector {
            labels,
            namespaces: Some([pod.pod.namespace.clone()].into()),
        },
        key: name(&constraint.topology_key),
        max_skew: i64::from(constraint.max_skew),
        min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
        honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
    })
}

fn listed(key: &str, value: &str) -> NodeRequirement {
    NodeRequirement {
        key: name(key),
        op: SelectorOp::In,
        values: vec![name(value)],
    }
}

/// A label selector's requirements. `None`, which selects nothing: it holds an operator that does not exist.
#[must_use]
pub fn requirements(selector: &LabelSelector) -> Option<Vec<NodeRequirement>> {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| Some(listed(key, value)));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let op = match expression.operator.as_str() {
            "In" => SelectorOp::In,
            "NotIn" => SelectorOp::NotIn,
            "Exists" => SelectorOp::Exists,
            "DoesNotExist" => SelectorOp::DoesNotExist,
            _ => return None,
        };
        Some(NodeRequirement {
            key: name(&expression.key),
            op,
            values: expression.values.iter().flatten().map(|value| name(value)).collect(),
        })
    });
    equal.chain(expressions).collect()
}

#[cfg(test)]
mod tests;
