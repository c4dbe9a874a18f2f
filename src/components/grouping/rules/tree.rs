//! Sub-groups: construction and validation of the tree.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{RuleError, wrong};
use crate::api::PodGroup;
use crate::api::limits;
use crate::api::names::label;
use crate::api::pod_group::{SubGroup, TopologyConstraint};

/// Limit on sub-groups.
pub const MAX: usize = limits::SUB_GROUPS_PER_POD_GROUP;

/// A leaf, which has pods.
pub fn leaf(name: impl Into<String>, min_member: i32) -> SubGroup {
    SubGroup {
        name: name.into(),
        min_member: Some(min_member),
        ..SubGroup::default()
    }
}

/// An inner node, which has sub-groups.
pub fn inner(name: impl Into<String>, min_sub_group: i32) -> SubGroup {
    SubGroup {
        name: name.into(),
        min_sub_group: Some(min_sub_group),
        ..SubGroup::default()
    }
}

/// The same below a parent.
pub fn below(parent: &str, group: SubGroup) -> SubGroup {
    SubGroup {
        parent: Some(parent.to_owned()),
        ..group
    }
}

/// The same with a topology constraint.
pub fn near(constraint: Option<TopologyConstraint>, group: SubGroup) -> SubGroup {
    SubGroup {
        topology_constraint: constraint,
        ..group
    }
}

/// The sum of the leaves' minimums.
pub fn total(groups: &[SubGroup]) -> i32 {
    let needs = groups.iter().filter_map(|group| group.min_member);
    needs.fold(0, i32::saturating_add)
}

/// A number as the API counts.
pub fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Whether the API server accepts the group: minimums are not negative, names are unique and valid. And pods can name the sub-groups that have pods.
/// Each pod has all sub-groups of its workload checked, so each of them takes only a few steps.
pub fn check(group: &PodGroup) -> Result<(), RuleError> {
    let spec = &group.spec;
    if spec.min_member.is_some_and(|size| size < 0) {
        return wrong("the workload asks for a gang of less than no pods");
    }
    if spec.sub_groups.len() > MAX {
        return wrong(format!(
            "the workload asks for {} sub-groups, which is more than {MAX}",
            spec.sub_groups.len()
        ));
    }
    let parents = parents(&spec.sub_groups);
    let mut names = HashSet::with_capacity(spec.sub_groups.len());
    for group in &spec.sub_groups {
        if !is_name(&group.name) {
            return wrong(format!(
                "{:?} cannot be a sub-group: it is not a name of lower-case letters, digits and '-'",
                group.name
            ));
        }
        if group.name.len() > label::VALUE_LENGTH_MAX && !parents.contains(&*group.name) {
            return wrong(format!(
                "{:?} cannot be a sub-group: it has {} characters, and the label of its pods holds {}",
                group.name,
                group.name.len(),
                label::VALUE_LENGTH_MAX
            ));
        }
        if !names.insert(&*group.name) {
            return wrong(format!(
                "two parts of the workload make the same sub-group {}",
                group.name
            ));
        }
        if group.min_member.is_some_and(|size| size < 0) {
            return wrong(format!("sub-group {} asks for less than no pods", group.name));
        }
    }
    if parents.iter().all(|parent| names.contains(parent)) {
        return Ok(());
    }
    let orphan = spec.sub_groups.iter().find_map(|group| {
        let parent = group.parent.as_deref()?;
        (!names.contains(parent)).then_some((&group.name, parent))
    });
    match orphan {
        Some((name, parent)) => wrong(format!("sub-group {name} is below {parent}, which there is not")),
        None => Ok(()),
    }
}

/// Whether it is a valid name of a sub-group.
pub fn is_name(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inside) && !text.starts_with('-') && !text.ends_with('-')
}

/// Converts a string to a valid name: `GPU_A100.x` is `gpu-a100-x`.
pub fn as_name(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let name: String = lower
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    name.trim_matches('-').to_owned()
}

/// The inner nodes that have children: few, though most sub-groups name one.
fn parents(groups: &[SubGroup]) -> BTreeSet<&str> {
    groups.iter().filter_map(|group| group.parent.as_deref()).collect()
}

/// The number of children of each inner node.
pub fn children(groups: &[SubGroup]) -> BTreeMap<&str, i32> {
    let mut children = BTreeMap::new();
    for parent in groups.iter().filter_map(|group| group.parent.as_deref()) {
        *children.entry(parent).or_insert(0) += 1;
    }
    children
}
