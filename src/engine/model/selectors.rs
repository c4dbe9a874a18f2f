//! Whether a node meets selectors and node affinity, and whether its taints are tolerated, as the Kubernetes API defines it.

use crate::engine::input::{Name, NodeRequirement, NodeTerm, SelectorOp, Taint, TaintEffect, Toleration};

use super::node::Node;

/// Whether a node meets a selector and one of the required terms, if there are any.
#[must_use]
pub fn selects_node(selector: &[(Name, Name)], required: Option<&[NodeTerm]>, node: &Node) -> bool {
    let label = |key: &Name| node.label(key).map(|value| &**value);
    node.input.is_some()
        && selector.iter().all(|(key, value)| label(key) == Some(&**value))
        && required.is_none_or(|terms| meets_any(terms, node))
}

/// Whether all `NoSchedule` and `NoExecute` taints of a node are tolerated.
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

/// Whether a toleration tolerates a taint.
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
