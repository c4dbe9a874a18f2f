//! Rules for pod groups: sub-groups form a tree, and minimums are set only where they have an effect.
//!
//! On update, faults that the old object has already are accepted, so that an object from before a rule existed can still be changed.

use std::collections::{BTreeMap, BTreeSet};

use super::review::{Operation, Request, Verdict};
use crate::api::PodGroup;
use crate::api::pod_group::{PodGroupSpec, SubGroup};
use crate::mirror::bounds;

/// Reviews the creation or change of a pod group.
#[must_use]
pub fn validate(request: &Request) -> Verdict {
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Verdict::allow();
    }
    let group: PodGroup = match request.object.read() {
        Ok(group) => group,
        Err(error) => return Verdict::unreadable(format!("the pod group cannot be read: {error}")),
    };
    let old: Option<PodGroup> = request.old_object.read().ok();
    let update = request.operation == Operation::Update;
    let before: BTreeSet<Finding> = old
        .as_ref()
        .filter(|_| update)
        .map(|old| findings(&old.spec, update))
        .unwrap_or_default()
        .into_iter()
        .collect();
    let (denials, warnings): (Vec<_>, Vec<_>) = findings(&group.spec, update)
        .into_iter()
        .partition(|found| found.denied);
    let denials: Vec<String> = denials
        .into_iter()
        .filter(|found| !before.contains(found))
        .map(|found| found.text)
        .collect();
    let verdict = if denials.is_empty() {
        Verdict::allow()
    } else {
        Verdict::deny(denials.join("\n"))
    };
    verdict.warn(warnings.into_iter().map(|found| found.text))
}

/// A fault of a pod group.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    denied: bool,
    text: String,
}

/// The first structural fault, or else all faults of the minimums.
fn findings(spec: &PodGroupSpec, update: bool) -> Vec<Finding> {
    match structure(spec) {
        Err(text) => vec![Finding { denied: true, text }],
        Ok(()) => minima(spec, update),
    }
}

fn structure(spec: &PodGroupSpec) -> Result<(), String> {
    if let (Some(members), Some(_)) = (spec.min_member, spec.min_sub_group) {
        return Err(format!(
            "minMember and minSubGroup are mutually exclusive: set minMember ({members}) to schedule a fixed number of pods, or set minSubGroup to require a minimum number of child SubGroups, but not both"
        ));
    }
    if let Some(excess) = bounds::of_texts(spec) {
        return Err(format!("there are {excess}"));
    }
    let mut parents: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for sub_group in &spec.sub_groups {
        if parents.insert(&sub_group.name, sub_group.parent.as_deref()).is_some() {
            return Err(format!("duplicate subgroup name {}", sub_group.name));
        }
    }
    for SubGroup { name, parent, .. } in &spec.sub_groups {
        if let Some(parent) = parent.as_deref().filter(|parent| !parents.contains_key(parent)) {
            return Err(format!("parent {parent} of {name} was not found"));
        }
    }
    if has_cycle(&parents) {
        return Err("cycle detected in subgroups".to_owned());
    }
    if let Some(excess) = bounds::of_group(spec) {
        return Err(format!("there are {excess}"));
    }
    let both = by_name(spec).find(|sub_group| sub_group.min_member.is_some() && sub_group.min_sub_group.is_some());
    match both {
        Some(SubGroup { name, .. }) => Err(format!(
            "subgroup \"{name}\": minMember and minSubGroup are mutually exclusive"
        )),
        None => Ok(()),
    }
}

/// Whether the parents form a cycle. Each sub-group is visited once.
fn has_cycle(parents: &BTreeMap<&str, Option<&str>>) -> bool {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for &from in parents.keys() {
        let mut at = Some(from);
        while let Some(name) = at {
            match seen.insert(name, from) {
                None => at = parents.get(name).copied().flatten(),
                Some(earlier) if earlier == from => return true,
                Some(earlier) => {
                    seen.insert(name, earlier);
                    at = None;
                }
            }
        }
    }
    false
}

fn minima(spec: &PodGroupSpec, update: bool) -> Vec<Finding> {
    let mut counted: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for sub_group in &spec.sub_groups {
        *counted.entry(sub_group.parent.as_deref()).or_default() += 1;
    }
    let children = |of: Option<&str>| counted.get(&of).copied().unwrap_or_default();
    let mut found = Vec::new();
    let mut find = |denied: bool, text: String| found.push(Finding { denied, text });
    for SubGroup {
        name,
        min_member,
        min_sub_group,
        ..
    } in by_name(spec)
    {
        if children(Some(name)) == 0 {
            if min_sub_group.is_some() {
                find(
                    true,
                    format!("subgroup \"{name}\": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)"),
                );
            }
            if min_member.is_none() {
                find(true, format!("subgroup {name}: minMember is required"));
            }
            continue;
        }
        if min_member.is_some() {
            let text = "minMember cannot be set on a mid-level SubGroup (has child SubGroups); use minSubGroup instead";
            find(!update, format!("subgroup \"{name}\": {text}"));
        }
        if let Some(excess) = excess(*min_sub_group, children(Some(name))) {
            find(false, format!("subgroup \"{name}\": {excess}"));
        }
    }
    if let Some(excess) = excess(spec.min_sub_group, children(None)) {
        find(false, excess);
    }
    found
}

fn excess(minimum: Option<i32>, children: usize) -> Option<String> {
    let minimum = minimum.filter(|minimum| usize::try_from(*minimum).is_ok_and(|minimum| minimum > children))?;
    Some(format!(
        "minSubGroup ({minimum}) exceeds the number of direct child SubGroups ({children})"
    ))
}

fn by_name(spec: &PodGroupSpec) -> impl Iterator<Item = &SubGroup> {
    let mut sorted: Vec<&SubGroup> = spec.sub_groups.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    sorted.into_iter()
}

#[cfg(test)]
mod tests;
