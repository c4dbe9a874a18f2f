//! PodGroup objects → pod groups, with priority, topology levels and timestamps resolved; Topology objects → topologies.
//!
//! Absent: what the sub-group tree means; the engine explains a tree that makes no sense.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use super::priority::{Classes, preemptible};
use super::{Problem, Shard, name, queue};
use crate::api::names::annotation;
use crate::api::pod_group::{SchedulingCondition, SubGroup, TopologyConstraint};
use crate::api::{PodGroup, Topology};
use crate::engine::input::{self, GroupInput, GroupKey, Name, SubGroupInput, Time, TopologyInput};

/// The identity of a pod group; `None` without a name or namespace.
#[must_use]
pub fn key(group: &PodGroup) -> Option<GroupKey> {
    let (namespace, own) = (group.metadata.namespace.as_deref()?, group.metadata.name.as_deref()?);
    Some(GroupKey {
        namespace: name(namespace),
        name: name(own),
    })
}

/// Reads the pod group of that identity.
pub fn read(
    key: &GroupKey,
    group: &PodGroup,
    shard: &Shard,
    classes: &Classes,
    topologies: &BTreeMap<Box<str>, Arc<Topology>>,
    problems: &mut Vec<Problem>,
) -> GroupInput {
    let spec = &group.spec;
    let priority = classes.resolve(spec.priority_class_name.as_deref());
    let constraint =
        |constraint: &Option<TopologyConstraint>| constraint.as_ref().and_then(|given| resolve(given, topologies));
    let sub_group = |sub: &SubGroup| SubGroupInput {
        name: name(&sub.name),
        parent: sub.parent.as_deref().filter(|parent| !parent.is_empty()).map(name),
        min_member: sub.min_member.map(i64::from),
        min_sub_group: sub.min_sub_group.map(i64::from),
        topology: constraint(&sub.topology_constraint),
    };
    let back_off = spec.scheduling_backoff.unwrap_or(-1);
    GroupInput {
        key: key.clone(),
        uid: name(group.metadata.uid.as_deref().unwrap_or_default()),
        queue: name(spec.queue.as_deref().unwrap_or_default()),
        priority,
        preemptible: preemptible(spec.preemptibility.as_deref(), priority),
        min_member: spec.min_member.map(i64::from),
        min_sub_group: spec.min_sub_group.map(i64::from),
        sub_groups: spec.sub_groups.iter().map(sub_group).collect(),
        topology: constraint(&spec.topology_constraint),
        created: queue::created(group),
        last_start: instant(group, annotation::LAST_START_TIMESTAMP, problems),
        last_eviction: instant(group, annotation::LAST_EVICTION_TIMESTAMP, problems),
        stale_since: instant(group, annotation::STALE_TIMESTAMP, problems),
        preemption_delay: queue::runtime(
            "spec.preemptionDelay",
            spec.preemption_delay.as_deref(),
            spec.preemption_delay(),
            problems,
        ),
        staleness_grace: queue::runtime(
            "spec.stalenessGracePeriod",
            spec.staleness_grace_period.as_deref(),
            spec.staleness_grace_period(),
            problems,
        ),
        mark_unschedulable: spec.mark_unschedulable.unwrap_or(true),
        back_off: back_off == 1,
        backed_off: back_off != -1
            && last_condition(group).is_some_and(|last| last.node_pool.as_deref() == Some(shard.pool_of(group))),
    }
}

/// The newest scheduling condition: the one with the greatest transition id, the earlier of two equal ones.
fn last_condition(group: &PodGroup) -> Option<&SchedulingCondition> {
    let conditions = &group.status.as_ref()?.scheduling_conditions;
    let id = |condition: &SchedulingCondition| {
        condition
            .transition_id
            .as_deref()
            .and_then(|id| id.parse().ok())
            .unwrap_or(-1_i64)
    };
    conditions.iter().rev().max_by_key(|condition| id(condition))
}

fn instant(group: &PodGroup, key: &str, problems: &mut Vec<Problem>) -> Option<Time> {
    let text = group.annotations().get(key).filter(|text| !text.is_empty())?;
    let parsed = text.parse::<jiff::Timestamp>().ok();
    if parsed.is_none() {
        problems.push(Problem::Ignored {
            key: key.to_owned(),
            value: text.clone(),
            expected: "a time such as 2026-01-31T12:00:00Z",
        });
    }
    parsed.map(|instant| Time(instant.as_millisecond()))
}

/// A constraint with the aliases of levels replaced by their node labels; names that are no alias stay. Without a topology there is none.
fn resolve(
    given: &TopologyConstraint,
    topologies: &BTreeMap<Box<str>, Arc<Topology>>,
) -> Option<input::TopologyConstraint> {
    let topology = given.topology.as_deref().filter(|topology| !topology.is_empty())?;
    let levels = topologies
        .get(topology)
        .map(|topology| topology.spec.levels.as_slice())
        .unwrap_or_default();
    let level = |text: &Option<String>| -> Option<Name> {
        let text = text.as_deref().filter(|text| !text.is_empty())?;
        let meant = levels
            .iter()
            .find(|level| level.alias.as_deref() == Some(text))
            .map_or(text, |level| level.node_label.as_str());
        Some(name(meant))
    };
    Some(input::TopologyConstraint {
        topology: name(topology),
        required: level(&given.required_topology_level),
        preferred: level(&given.preferred_topology_level),
    })
}

/// Whether a pod group or one of its sub-groups names a topology.
#[must_use]
pub fn names_topology(group: &PodGroup, topology: &str) -> bool {
    let subs = group.spec.sub_groups.iter().map(|sub| &sub.topology_constraint);
    let mut all = subs.chain([&group.spec.topology_constraint]).flatten();
    all.any(|constraint| constraint.topology.as_deref() == Some(topology))
}

/// Reads a topology.
#[must_use]
pub fn read_topology(topology: &Topology) -> TopologyInput {
    let levels = topology
        .spec
        .levels
        .iter()
        .map(|level| name(&level.node_label))
        .collect();
    TopologyInput {
        name: name(&topology.name_any()),
        levels,
    }
}

#[cfg(test)]
mod tests;
