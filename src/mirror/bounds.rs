//! Limits on objects: which limit of [`limits`] an object exceeds, and truncation to little more than that, so that it
//! takes no more memory than others wherever it is kept.
//!
//! A truncated object still exceeds its limit. What a bound pod is charged for is truncated last.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, Container, NodeSelectorTerm, Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::affinity::{self, terms_mut};
use super::trim;
use crate::api::gpu_request::is_group_label;
use crate::api::limits::{self, ExceededLimit};
use crate::api::names::{annotation, label, resource, third_party};
use crate::api::pod_group::{PodGroupSpec, SubGroup};
use crate::api::{PodGroup, QuantityMap};

fn exceeds(count: usize, limit: usize, what: &'static str) -> Option<ExceededLimit> {
    (count > limit).then_some(ExceededLimit { what, limit })
}

/// The first limit that a pod exceeds.
#[must_use]
pub fn of_pod(pod: &Pod) -> Option<ExceededLimit> {
    let labels = pod.metadata.labels.as_ref();
    let marks = || {
        let count = |map: Option<&BTreeMap<String, String>>| map.map_or(0, BTreeMap::len);
        let labelled = count(labels);
        let groups = if labelled > limits::GPU_GROUPS_PER_POD {
            labels
                .into_iter()
                .flatten()
                .filter(|(key, _)| is_group_label(key))
                .count()
        } else {
            0
        };
        exceeds(groups, limits::GPU_GROUPS_PER_POD, "labels that name a GPU group")
            .or_else(|| exceeds(labelled, limits::LABELS_PER_POD, "labels"))
            .or_else(|| {
                let annotations = count(pod.metadata.annotations.as_ref()) - user_records(pod);
                exceeds(annotations, limits::ANNOTATIONS_PER_POD, "annotations")
            })
    };
    marks().or_else(|| pod.spec.as_ref().and_then(of_spec))
}

/// Number of annotations that record users of the GPU that a pod reserves. They do not count.
fn user_records(pod: &Pod) -> usize {
    if !trim::keeps_user_records(pod) {
        return 0;
    }
    let annotations = pod.metadata.annotations.iter().flatten();
    annotations.filter(|(key, _)| trim::is_user_record(key)).count()
}

fn of_spec(spec: &PodSpec) -> Option<ExceededLimit> {
    let count = spec.containers.len() + len(&spec.init_containers) + len(&spec.ephemeral_containers);
    let ports: usize = containers(spec).map(|container| len(&container.ports)).sum();
    let selectors = spec.node_selector.as_ref().map_or(0, BTreeMap::len);
    exceeds(count, limits::CONTAINERS_PER_POD, "containers")
        .or_else(|| exceeds(names(spec), limits::RESOURCE_NAMES_PER_POD, "names of resources"))
        .or_else(|| exceeds(ports, limits::PORTS_PER_POD, "ports"))
        .or_else(|| {
            exceeds(
                selectors,
                limits::NODE_SELECTORS_PER_POD,
                "entries of the node selector",
            )
        })
        .or_else(|| exceeds(len(&spec.tolerations), limits::TOLERATIONS_PER_POD, "tolerations"))
        .or_else(|| exceeds(len(&spec.volumes), limits::VOLUMES_PER_POD, "volumes"))
        .or_else(|| exceeds(len(&spec.resource_claims), limits::CLAIMS_PER_POD, "claims for devices"))
        .or_else(|| spec.affinity.as_ref().and_then(of_affinity))
        .or_else(|| {
            let all = spec.topology_spread_constraints.as_deref().unwrap_or_default();
            let what = "topology spread constraints";
            exceeds(all.len(), limits::SPREAD_CONSTRAINTS_PER_POD, what).or_else(|| all.iter().find_map(of_spread))
        })
        .or_else(|| {
            let what = "requirements and values in affinity terms and spread constraints together";
            exceeds(selector_entries(spec), limits::SELECTOR_ENTRIES_PER_POD, what)
        })
        .or_else(|| {
            let all = spec.affinity.iter().flat_map(terms);
            let all = all.filter_map(|term| term.namespace_selector.as_ref());
            // An empty one selects all namespaces, and is not resolved.
            let count = all.filter(|selector| entries(selector) > 0).count();
            let what = "namespace selectors in affinity terms";
            exceeds(count, limits::NAMESPACE_SELECTORS_PER_POD, what)
        })
}

/// Requirements, values and namespaces in all affinity terms and spread constraints.
fn selector_entries(spec: &PodSpec) -> usize {
    let of_terms = spec.affinity.iter().flat_map(terms).map(|term| {
        let selectors = term.label_selector.iter().chain(&term.namespace_selector);
        selectors.map(entries).sum::<usize>() + len(&term.namespaces)
    });
    let spreads = spec.topology_spread_constraints.iter().flatten();
    let of_spreads =
        spreads.map(|spread| spread.label_selector.iter().map(entries).sum::<usize>() + len(&spread.match_label_keys));
    of_terms.chain(of_spreads).sum()
}

fn entries(selector: &LabelSelector) -> usize {
    let equal = selector.match_labels.as_ref().map_or(0, BTreeMap::len);
    let listed = selector.match_expressions.iter().flatten();
    equal + listed.map(|one| 1 + len(&one.values)).sum::<usize>()
}

/// Number of distinct resource names in a pod's requests. Few pods have more entries than the limit, so names are seldom compared.
fn names(spec: &PodSpec) -> usize {
    let all: usize = requests(spec).map(BTreeMap::len).sum();
    if all <= limits::RESOURCE_NAMES_PER_POD {
        return all;
    }
    let distinct: BTreeSet<&String> = requests(spec).flat_map(BTreeMap::keys).collect();
    distinct.len()
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

fn requests(spec: &PodSpec) -> impl Iterator<Item = &QuantityMap> {
    let of_containers = containers(spec).filter_map(|container| container.resources.as_ref());
    let all = of_containers.chain(&spec.resources);
    all.filter_map(|resources| resources.requests.as_ref())
        .chain(&spec.overhead)
}

fn of_affinity(affinity: &Affinity) -> Option<ExceededLimit> {
    let (mut requirements, mut values) = (0, 0);
    for term in node_terms(affinity) {
        for requirement in term.match_expressions.iter().chain(&term.match_fields).flatten() {
            requirements += 1;
            values += len(&requirement.values);
        }
    }
    let count = terms(affinity).count();
    let what = "affinity terms to other pods";
    exceeds(
        requirements,
        limits::NODE_REQUIREMENTS_PER_POD,
        "requirements of the node affinity",
    )
    .or_else(|| exceeds(values, limits::NODE_VALUES_PER_POD, "values in the node affinity"))
    .or_else(|| exceeds(count, limits::AFFINITY_TERMS_PER_POD, what))
    .or_else(|| terms(affinity).find_map(of_term))
}

fn node_terms(affinity: &Affinity) -> impl Iterator<Item = &NodeSelectorTerm> {
    let nodes = affinity.node_affinity.iter();
    nodes.flat_map(|nodes| {
        let required = nodes.required_during_scheduling_ignored_during_execution.iter();
        let preferred = nodes.preferred_during_scheduling_ignored_during_execution.iter();
        let required = required.flat_map(|required| &required.node_selector_terms);
        required.chain(preferred.flatten().map(|preferred| &preferred.preference))
    })
}

fn terms(affinity: &Affinity) -> impl Iterator<Item = &PodAffinityTerm> {
    affinity::terms(affinity).map(|(_, term)| term)
}

fn of_term(term: &PodAffinityTerm) -> Option<ExceededLimit> {
    let selectors = term.label_selector.iter().chain(&term.namespace_selector);
    let what = ["requirements in an affinity term", "values in an affinity term"];
    of_selectors(selectors, len(&term.namespaces), what)
}

fn of_spread(spread: &TopologySpreadConstraint) -> Option<ExceededLimit> {
    let keys = len(&spread.match_label_keys);
    let what = [
        "requirements in a topology spread constraint",
        "values in a topology spread constraint",
    ];
    of_selectors(spread.label_selector.iter(), keys, what)
}

/// The limit that the selector of a disruption budget exceeds.
#[must_use]
pub fn of_budget(budget: &PodDisruptionBudget) -> Option<ExceededLimit> {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let what = ["requirements in a disruption budget", "values in a disruption budget"];
    of_selectors(selector.into_iter(), 0, what)
}

fn of_selectors<'s>(
    selectors: impl Iterator<Item = &'s LabelSelector>,
    more: usize,
    what: [&'static str; 2],
) -> Option<ExceededLimit> {
    let (mut requirements, mut values) = (0, more);
    for selector in selectors {
        let equal = selector.match_labels.as_ref().map_or(0, BTreeMap::len);
        requirements += equal + len(&selector.match_expressions);
        let listed = selector.match_expressions.iter().flatten();
        values += equal + listed.map(|one| len(&one.values)).sum::<usize>();
    }
    exceeds(requirements, limits::SELECTOR_REQUIREMENTS, what[0])
        .or_else(|| exceeds(values, limits::SELECTOR_VALUES, what[1]))
}

fn len<T>(list: &Option<Vec<T>>) -> usize {
    list.as_ref().map_or(0, Vec::len)
}

/// The limit that a pod group exceeds. Missing parents and cycles are checked where the tree is built.
#[must_use]
pub fn of_group(spec: &PodGroupSpec) -> Option<ExceededLimit> {
    let subs = &spec.sub_groups;
    exceeds(subs.len(), limits::SUB_GROUPS_PER_POD_GROUP, "sub-groups")
        .or_else(|| {
            let limit = limits::SUB_GROUP_DEPTH;
            deeper_than(subs, limit).then_some(ExceededLimit {
                what: "levels of sub-groups",
                limit,
            })
        })
        .or_else(|| of_texts(spec))
}

/// The limit on its texts that a pod group exceeds.
#[must_use]
pub fn of_texts(spec: &PodGroupSpec) -> Option<ExceededLimit> {
    let own = [
        &spec.queue,
        &spec.priority_class_name,
        &spec.preemptibility,
        &spec.preemption_delay,
        &spec.staleness_grace_period,
    ];
    let names = spec.sub_groups.iter().map(|sub| &sub.name);
    let parents = spec.sub_groups.iter().filter_map(|sub| sub.parent.as_ref());
    let constraints = spec.sub_groups.iter().map(|sub| &sub.topology_constraint);
    let constraints = constraints.chain([&spec.topology_constraint]).flatten();
    let topologies = constraints.flat_map(|constraint| {
        let levels = [
            &constraint.required_topology_level,
            &constraint.preferred_topology_level,
        ];
        levels.into_iter().chain([&constraint.topology]).flatten()
    });
    let texts = own.into_iter().flatten().chain(names).chain(parents).chain(topologies);
    let longest = texts.map(String::len).max().unwrap_or_default();
    exceeds(
        longest,
        limits::POD_GROUP_TEXT_BYTES,
        "bytes in a name or another text of the pod group",
    )
}

/// Whether some sub-group has so many ancestors, also by a cycle.
fn deeper_than(subs: &[SubGroup], limit: usize) -> bool {
    let parents: BTreeMap<&str, &str> = subs
        .iter()
        .filter_map(|sub| Some((sub.name.as_str(), sub.parent.as_deref()?)))
        .collect();
    let mut lowest = parents.keys().copied();
    lowest.any(|name| {
        std::iter::successors(Some(name), |name| parents.get(name).copied())
            .nth(limit)
            .is_some()
    })
}

/// Truncates a pod that exceeds a limit.
pub fn cut_pod(pod: &mut Pod) {
    if of_pod(pod).is_none() {
        return;
    }
    if let Some(labels) = &mut pod.metadata.labels {
        let mut groups = 0;
        labels.retain(|key, _| {
            groups += usize::from(is_group_label(key));
            !is_group_label(key) || groups <= limits::GPU_GROUPS_PER_POD + 1
        });
        keep(labels, limits::LABELS_PER_POD, |key| match key {
            label::APP | label::QUEUE | label::NODE_POOL | label::SUBGROUP_NAME | label::PRIORITY_CLASS_NAME => 0,
            label::TASK_PRIORITY | label::PREEMPTIBILITY => 0,
            third_party::KUBEFLOW_JOB_ROLE | third_party::RAY_NODE_TYPE => 0,
            _ if is_group_label(key) => 1,
            _ => 2,
        });
    }
    let records = user_records(pod);
    if let Some(annotations) = &mut pod.metadata.annotations {
        keep(annotations, limits::ANNOTATIONS_PER_POD + records, |key| match key {
            annotation::POD_GROUP_NAME | annotation::RECEIVED_RESOURCE_TYPE => 0,
            annotation::GPU_FRACTION | annotation::GPU_MEMORY | annotation::GPU_FRACTION_NUM_DEVICES => 0,
            annotation::RESERVED_GPU | annotation::SHARED_GPU_CONFIG_MAP => 0,
            _ if records > 0 && trim::is_user_record(key) => 0,
            _ if key.starts_with(annotation::MIG_PREFIX) => 1,
            _ => 2,
        });
    }
    if let Some(spec) = &mut pod.spec {
        cut_spec(spec);
    }
}

fn cut_spec(spec: &mut PodSpec) {
    cut_requests(spec);
    let mut ports = limits::PORTS_PER_POD + 1;
    for container in spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten())
    {
        if let Some(own) = &mut container.ports {
            own.truncate(ports);
            ports -= own.len();
        }
    }
    if let Some(selector) = &mut spec.node_selector {
        keep(selector, limits::NODE_SELECTORS_PER_POD, |_| 0);
    }
    cut(&mut spec.tolerations, limits::TOLERATIONS_PER_POD);
    cut(&mut spec.volumes, limits::VOLUMES_PER_POD);
    cut(&mut spec.resource_claims, limits::CLAIMS_PER_POD);
    cut(
        &mut spec.topology_spread_constraints,
        limits::SPREAD_CONSTRAINTS_PER_POD,
    );
    for spread in spec.topology_spread_constraints.iter_mut().flatten() {
        cut_selector(&mut spread.label_selector);
        cut(&mut spread.match_label_keys, limits::SELECTOR_VALUES);
    }
    if let Some(affinity) = &mut spec.affinity {
        cut_affinity(affinity);
    }
    if selector_entries(spec) > limits::SELECTOR_ENTRIES_PER_POD {
        cut_entries(spec);
    }
}

/// Keeps one more than the limit of what all selectors have together.
fn cut_entries(spec: &mut PodSpec) {
    let mut left = limits::SELECTOR_ENTRIES_PER_POD + 1;
    let mut cut_terms = |term: &mut PodAffinityTerm| {
        let selectors = term.label_selector.iter_mut().chain(&mut term.namespace_selector);
        selectors.for_each(|selector| cut_selector_to(selector, &mut left));
        cut_to(&mut term.namespaces, &mut left);
    };
    if let Some(affinity) = &mut spec.affinity {
        terms_mut(affinity).for_each(&mut cut_terms);
    }
    for spread in spec.topology_spread_constraints.iter_mut().flatten() {
        spread
            .label_selector
            .iter_mut()
            .for_each(|selector| cut_selector_to(selector, &mut left));
        cut_to(&mut spread.match_label_keys, &mut left);
    }
}

fn cut_selector_to(selector: &mut LabelSelector, left: &mut usize) {
    if let Some(labels) = &mut selector.match_labels {
        labels.retain(|_, _| {
            let kept = *left > 0;
            *left = left.saturating_sub(1);
            kept
        });
    }
    cut_to(&mut selector.match_expressions, left);
    for expression in selector.match_expressions.iter_mut().flatten() {
        cut_to(&mut expression.values, left);
    }
}

/// Keeps so many of the list as are left.
fn cut_to<T>(list: &mut Option<Vec<T>>, left: &mut usize) {
    if let Some(list) = list {
        list.truncate(*left);
        list.shrink_to_fit();
        *left -= list.len();
    }
}

/// Keeps the names of resources that every node has, then those of GPUs.
fn cut_requests(spec: &mut PodSpec) {
    if names(spec) <= limits::RESOURCE_NAMES_PER_POD {
        return;
    }
    let distinct: BTreeSet<&String> = requests(spec).flat_map(BTreeMap::keys).collect();
    let mut ranked: Vec<(u8, &String)> = distinct
        .into_iter()
        .map(|name| {
            let rank = match name.as_str() {
                resource::CPU | resource::MEMORY | resource::EPHEMERAL_STORAGE => 0,
                resource::NVIDIA_GPU | resource::AMD_GPU => 0,
                name if name.ends_with("/gpu") || name.starts_with(resource::NVIDIA_MIG_PREFIX) => 1,
                _ => 2,
            };
            (rank, name)
        })
        .collect();
    ranked.sort_unstable();
    let kept: BTreeSet<String> = ranked
        .into_iter()
        .take(limits::RESOURCE_NAMES_PER_POD + 1)
        .map(|(_, name)| name.clone())
        .collect();
    let cut = |quantities: &mut QuantityMap| quantities.retain(|name, _| kept.contains(name));
    let containers = spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten());
    let of_containers = containers.filter_map(|container| container.resources.as_mut());
    for resources in of_containers.chain(&mut spec.resources) {
        resources.requests.iter_mut().for_each(cut);
        resources.limits.iter_mut().for_each(cut);
    }
    spec.overhead.iter_mut().for_each(cut);
}

fn cut_affinity(affinity: &mut Affinity) {
    let (requirements, values) = (limits::NODE_REQUIREMENTS_PER_POD, limits::NODE_VALUES_PER_POD);
    if let Some(nodes) = &mut affinity.node_affinity {
        let required = nodes.required_during_scheduling_ignored_during_execution.iter_mut();
        let required = required.flat_map(|required| &mut required.node_selector_terms);
        let preferred = nodes.preferred_during_scheduling_ignored_during_execution.iter_mut();
        let preferred = preferred.flatten().map(|preferred| &mut preferred.preference);
        let (mut requirements, mut values) = (requirements + 1, values + 1);
        for term in required.chain(preferred) {
            for list in term.match_expressions.iter_mut().chain(&mut term.match_fields) {
                list.truncate(requirements);
                requirements -= list.len();
                for own in list.iter_mut().filter_map(|requirement| requirement.values.as_mut()) {
                    own.truncate(values);
                    values -= own.len();
                }
            }
        }
    }
    let most = limits::AFFINITY_TERMS_PER_POD;
    if let Some(near) = &mut affinity.pod_affinity {
        cut(&mut near.required_during_scheduling_ignored_during_execution, most);
        cut(&mut near.preferred_during_scheduling_ignored_during_execution, most);
    }
    if let Some(apart) = &mut affinity.pod_anti_affinity {
        cut(&mut apart.required_during_scheduling_ignored_during_execution, most);
        cut(&mut apart.preferred_during_scheduling_ignored_during_execution, most);
    }
    terms_mut(affinity).for_each(cut_term);
}

fn cut_term(term: &mut PodAffinityTerm) {
    cut_selector(&mut term.label_selector);
    cut_selector(&mut term.namespace_selector);
    cut(&mut term.namespaces, limits::SELECTOR_VALUES);
}

fn cut_selector(selector: &mut Option<LabelSelector>) {
    let Some(selector) = selector else { return };
    if let Some(labels) = &mut selector.match_labels {
        keep(labels, limits::SELECTOR_REQUIREMENTS, |_| 0);
    }
    cut(&mut selector.match_expressions, limits::SELECTOR_REQUIREMENTS);
    for expression in selector.match_expressions.iter_mut().flatten() {
        cut(&mut expression.values, limits::SELECTOR_VALUES);
    }
}

/// Truncates a disruption budget that exceeds a limit.
pub fn cut_budget(budget: &mut PodDisruptionBudget) {
    if of_budget(budget).is_some()
        && let Some(spec) = &mut budget.spec
    {
        cut_selector(&mut spec.selector);
    }
}

/// Truncates a pod group with too many sub-groups, or texts that are too long.
pub fn cut_group(group: &mut PodGroup) {
    let spec = &mut group.spec;
    spec.sub_groups.truncate(limits::SUB_GROUPS_PER_POD_GROUP + 1);
    spec.sub_groups.shrink_to_fit();
    if of_texts(spec).is_some() {
        cut_texts(spec);
    }
}

fn cut_texts(spec: &mut PodGroupSpec) {
    let own = [
        &mut spec.queue,
        &mut spec.priority_class_name,
        &mut spec.preemptibility,
        &mut spec.preemption_delay,
        &mut spec.staleness_grace_period,
    ];
    own.into_iter().flatten().for_each(cut_text);
    let mut topologies: Vec<_> = spec.topology_constraint.iter_mut().collect();
    for sub in &mut spec.sub_groups {
        cut_text(&mut sub.name);
        sub.parent.iter_mut().for_each(cut_text);
        topologies.extend(sub.topology_constraint.as_mut());
    }
    for constraint in topologies {
        let levels = [
            &mut constraint.required_topology_level,
            &mut constraint.preferred_topology_level,
        ];
        levels
            .into_iter()
            .chain([&mut constraint.topology])
            .flatten()
            .for_each(cut_text);
    }
}

/// Keeps more than the limit, up to the next character.
fn cut_text(text: &mut String) {
    text.truncate(text.ceil_char_boundary(limits::POD_GROUP_TEXT_BYTES + 1));
    text.shrink_to_fit();
}

/// Keeps one more than the limit.
fn cut<T>(list: &mut Option<Vec<T>>, limit: usize) {
    if let Some(list) = list {
        list.truncate(limit + 1);
    }
}

/// Keeps one more than the limit: those of low rank first, then in order.
fn keep(map: &mut BTreeMap<String, String>, limit: usize, rank: impl Fn(&str) -> u8) {
    if map.len() <= limit {
        return;
    }
    let mut ranked: Vec<(u8, String)> = map.keys().map(|key| (rank(key), key.clone())).collect();
    ranked.sort_unstable();
    for (_, key) in ranked.drain(limit + 1..) {
        map.remove(&key);
    }
}

#[cfg(test)]
mod tests;
