//! Rules for topologies: an alias names one level, and is not the label of another level.

use std::collections::BTreeSet;

use super::review::{Operation, Request, Verdict};
use crate::api::Topology;

/// Reviews the creation or change of a topology.
#[must_use]
pub fn validate(request: &Request) -> Verdict {
    if matches!(request.operation, Operation::Delete | Operation::Connect)
        || request.is_unaffected(|object| Some(object.read::<Topology>().ok()?.spec))
    {
        return Verdict::allow();
    }
    let topology: Topology = match request.object.read() {
        Ok(topology) => topology,
        Err(error) => return Verdict::unreadable(format!("the topology cannot be read: {error}")),
    };
    let levels = &topology.spec.levels;
    let aliases: Vec<&str> = levels
        .iter()
        .filter_map(|level| level.alias.as_deref())
        .filter(|alias| !alias.is_empty())
        .collect();
    let mut seen = BTreeSet::new();
    let duplicated: BTreeSet<&str> = aliases.iter().copied().filter(|alias| !seen.insert(*alias)).collect();
    let labels: BTreeSet<&str> = levels.iter().map(|level| level.node_label.as_str()).collect();
    let conflicting: BTreeSet<&str> = aliases.into_iter().filter(|alias| labels.contains(alias)).collect();

    let mut wrong = Vec::new();
    if !duplicated.is_empty() {
        wrong.push(format!(
            "aliases must be unique within the topology; duplicated: {}",
            list(&duplicated)
        ));
    }
    if !conflicting.is_empty() {
        wrong.push(format!(
            "an alias must not equal a nodeLabel; conflicting: {}",
            list(&conflicting)
        ));
    }
    if wrong.is_empty() {
        Verdict::allow()
    } else {
        Verdict::deny(format!("invalid topology aliases: {}", wrong.join("; ")))
    }
}

fn list(names: &BTreeSet<&str>) -> String {
    format!("[{}]", names.iter().copied().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests;
