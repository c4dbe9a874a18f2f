//! Merges the desired state of a pod group into an existing PodGroup.
//!
//! The queue, the node pool, holds and fields set by administrators stay; the rest follows the workload, but a pod group with running pods
//! never becomes non-preemptible. Labels and annotations are added or replaced, never removed.

use std::collections::BTreeMap;

use crate::api::PodGroup;
use crate::api::names::annotation;
use crate::api::pod_group::{PodGroupSpec, SubGroup};
use crate::components::Settings;
use crate::components::bus::Times;
use crate::mirror::priority::{Classes, preemptible};

/// The merged pod group: `desired` over `existing`.
#[must_use]
pub fn merge(existing: Option<&PodGroup>, desired: &PodGroup, settings: &Settings) -> PodGroup {
    let Some(existing) = existing else {
        return desired.clone();
    };
    let mut merged = existing.clone();
    take_minimums(&mut merged.spec, &desired.spec);
    merged
        .spec
        .priority_class_name
        .clone_from(&desired.spec.priority_class_name);
    merged.spec.preemptibility.clone_from(&desired.spec.preemptibility);
    merged.spec.preemption_delay.clone_from(&desired.spec.preemption_delay);
    merged
        .spec
        .staleness_grace_period
        .clone_from(&desired.spec.staleness_grace_period);
    if desired
        .spec
        .topology_constraint
        .as_ref()
        .is_some_and(|constraint| constraint.topology.is_some())
    {
        merged
            .spec
            .topology_constraint
            .clone_from(&desired.spec.topology_constraint);
    }
    // The workload's owner.
    if desired.metadata.owner_references.is_some() {
        merged
            .metadata
            .owner_references
            .clone_from(&desired.metadata.owner_references);
    }
    let frozen = [&settings.queue_label_key, &settings.pools.key];
    let labels = merged.metadata.labels.get_or_insert_default();
    for (key, value) in desired.metadata.labels.iter().flatten() {
        let keep = (frozen[0] == key && labels.contains_key(key)) || frozen[1] == key;
        if !keep {
            labels.insert(key.clone(), value.clone());
        }
    }
    let annotations = merged.metadata.annotations.get_or_insert_default();
    let wanted = desired.metadata.annotations.iter().flatten();
    let wanted = wanted.filter(|(key, _)| *key != annotation::HOLD);
    annotations.extend(wanted.map(|(key, value)| (key.clone(), value.clone())));
    drop_empty(&mut merged.metadata.labels);
    drop_empty(&mut merged.metadata.annotations);
    merged
}

/// Minimums and sub-groups of a pod group, which follow its workload alone.
pub fn minimums(spec: &PodGroupSpec) -> (Option<i32>, Option<i32>, &[SubGroup]) {
    (spec.min_member, spec.min_sub_group, spec.sub_groups.as_slice())
}

/// Takes them over from another.
pub fn take_minimums(spec: &mut PodGroupSpec, from: &PodGroupSpec) {
    (spec.min_member, spec.min_sub_group) = (from.min_member, from.min_sub_group);
    spec.sub_groups.clone_from(&from.sub_groups);
}

/// Keeps a pod group with running pods preemptible, since it may hold more than its queue's quota: its class and preemptibility stay. Returns
/// whether it would have become non-preemptible.
pub fn stay_preemptible(merged: &mut PodGroup, existing: &PodGroup, classes: &Classes) -> bool {
    let (after, before) = (&mut merged.spec, &existing.spec);
    let may_be_victim = |spec: &PodGroupSpec| {
        let priority = classes.resolve(spec.priority_class_name.as_deref());
        preemptible(spec.preemptibility.as_deref(), priority)
    };
    let gains = may_be_victim(before) && !may_be_victim(after);
    if gains {
        after.priority_class_name.clone_from(&before.priority_class_name);
        after.preemptibility.clone_from(&before.preemptibility);
    }
    gains
}

/// Writes the scheduler's timestamps into the group's annotations.
pub fn set_times(group: &mut PodGroup, times: &Times) {
    let annotations = group.metadata.annotations.get_or_insert_default();
    let stamps = [
        (annotation::STALE_TIMESTAMP, times.stale_since),
        (annotation::LAST_START_TIMESTAMP, times.last_start),
        (annotation::LAST_EVICTION_TIMESTAMP, times.last_eviction),
    ];
    for (key, time) in stamps {
        let stamp = time.and_then(|time| jiff::Timestamp::from_millisecond(time.0).ok());
        match stamp {
            Some(stamp) => annotations.insert(key.to_owned(), stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            None => annotations.remove(key),
        };
    }
    drop_empty(&mut group.metadata.annotations);
}

fn drop_empty(map: &mut Option<BTreeMap<String, String>>) {
    if map.as_ref().is_some_and(BTreeMap::is_empty) {
        *map = None;
    }
}

#[cfg(test)]
mod tests;
