//! PodGroup objects → pod groups, with priority, topology levels and timestamps resolved; Topology objects → topologies.
//!
//! Absent: validation of the sub-group tree, which is the engine's.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use kube::ResourceExt;

use super::packed::Group;
use super::priority::{Classes, preemptible};
use super::queue::runtime;
use super::{Problem, Shard, name};
use crate::api::names::annotation;
use crate::api::pod_group::{SchedulingCondition, SubGroup, TopologyConstraint};
use crate::api::{PodGroup, Topology};
use crate::engine::input::{self, GroupInput, GroupKey, Name, SubGroupInput, Time, TopologyInput};

/// Reads the pod group of that identity and queue.
pub fn read(
    key: GroupKey,
    group: &Group,
    queue: Name,
    shard: &Shard,
    classes: &Classes,
    topologies: &BTreeMap<Box<str>, Arc<Topology>>,
    problems: &mut Vec<Problem>,
) -> GroupInput {
    let whole = group.whole.as_deref();
    let spec = whole.map(|whole| &whole.spec);
    let priority = classes.resolve(group.priority_class.as_deref());
    let constraint =
        |constraint: &Option<TopologyConstraint>| constraint.as_ref().and_then(|given| resolve(given, topologies));
    let sub_group = |sub: &SubGroup| SubGroupInput {
        name: name(&sub.name),
        parent: sub.parent.as_deref().filter(|parent| !parent.is_empty()).map(name),
        min_member: sub.min_member.map(i64::from),
        min_sub_group: sub.min_sub_group.map(i64::from),
        topology: constraint(&sub.topology_constraint),
    };
    let [last_start, last_eviction, stale_since] = instants(group, problems);
    let back_off = spec.and_then(|spec| spec.scheduling_backoff).unwrap_or(-1);
    GroupInput {
        key,
        uid: group.uid.clone(),
        queue,
        priority,
        preemptible: preemptible(group.preemptibility.as_deref(), priority),
        min_member: group.min_member.map(i64::from),
        min_sub_group: group.min_sub_group.map(i64::from),
        sub_groups: spec
            .map(|spec| spec.sub_groups.iter().map(sub_group).collect())
            .unwrap_or_default(),
        topology: spec.and_then(|spec| constraint(&spec.topology_constraint)),
        created: group.created,
        last_start,
        last_eviction,
        stale_since,
        preemption_delay: spec.and_then(|spec| {
            let field = "spec.preemptionDelay";
            runtime(
                field,
                spec.preemption_delay.as_deref(),
                spec.preemption_delay(),
                problems,
            )
        }),
        staleness_grace: spec.and_then(|spec| {
            let field = "spec.stalenessGracePeriod";
            let text = spec.staleness_grace_period.as_deref();
            runtime(field, text, spec.staleness_grace_period(), problems)
        }),
        back_off: back_off == 1,
        refused: None,
        held: None,
        backed_off: back_off != -1
            && whole
                .and_then(last_condition)
                .is_some_and(|last| last.node_pool.as_deref() == Some(shard.pool_of(&group.labels))),
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

/// The instants in a group's annotations: its last start, its last eviction, since when it is stale.
fn instants(group: &Group, problems: &mut Vec<Problem>) -> [Option<Time>; 3] {
    let mut instants = [None; 3];
    for (key, text) in group.annotations.iter().filter(|(_, text)| !text.is_empty()) {
        let position = match key {
            annotation::LAST_START_TIMESTAMP => 0,
            annotation::LAST_EVICTION_TIMESTAMP => 1,
            annotation::STALE_TIMESTAMP => 2,
            _ => continue,
        };
        match plain(text).or_else(|| text.parse().ok()) {
            Some(instant) => {
                if let Some(slot) = instants.get_mut(position) {
                    *slot = Some(Time(instant.as_millisecond()));
                }
            }
            None => problems.push(Problem::Ignored {
                key: key.to_owned(),
                value: text.to_owned(),
                expected: "a time such as 2026-01-31T12:00:00Z",
            }),
        }
    }
    instants
}

/// Fast path for the usual form of a timestamp, `2026-01-31T12:00:00Z`.
fn plain(text: &str) -> Option<Timestamp> {
    let &[
        y1,
        y2,
        y3,
        y4,
        b'-',
        m1,
        m2,
        b'-',
        d1,
        d2,
        b'T',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
        b'Z',
    ] = text.as_bytes()
    else {
        return None;
    };
    let number = |tens: u8, ones: u8| {
        let digit = |byte: u8| byte.is_ascii_digit().then(|| (byte - b'0') as i8);
        Some(10 * digit(tens)? + digit(ones)?)
    };
    let year = 100 * i16::from(number(y1, y2)?) + i16::from(number(y3, y4)?);
    let (month, day) = (number(m1, m2)?, number(d1, d2)?);
    let (hour, minute, second) = (number(h1, h2)?, number(n1, n2)?, number(s1, s2)?);
    let date = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Offset::UTC.to_timestamp(date).ok()
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
pub fn names_topology(group: &Group, topology: &str) -> bool {
    let Some(group) = &group.whole else { return false };
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
