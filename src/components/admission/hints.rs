//! Warnings about values that are allowed but probably a mistake: queue amounts that keep workloads from running, misspelled labels and
//! annotations, GPU memory with a unit. Nothing is refused here. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use strsim::damerau_levenshtein;

use super::pods::ours;
use super::queues::Find;
use super::review::{Operation, Request};
use super::{Settings, queues};
use crate::api::gpu_request::{self, InvalidRequest, Named};
use crate::api::names::{annotation, label};
use crate::api::{PodGroup, Queue};

/// Our labels of pods.
const LABELS: [&str; 5] = [
    label::NODE_POOL,
    label::SUBGROUP_NAME,
    label::TASK_PRIORITY,
    label::PREEMPTIBILITY,
    label::PRIORITY_CLASS_NAME,
];
/// Our annotations of pods.
const ANNOTATIONS: [&str; 12] = [
    annotation::GPU_FRACTION,
    annotation::GPU_MEMORY,
    annotation::GPU_FRACTION_NUM_DEVICES,
    annotation::GPU_FRACTION_CONTAINER_NAME,
    annotation::SKIP_POD_GROUPER,
    annotation::PREEMPTION_DELAY,
    annotation::STALENESS_GRACE_PERIOD,
    annotation::TOPOLOGY,
    annotation::TOPOLOGY_REQUIRED,
    annotation::TOPOLOGY_PREFERRED,
    annotation::BATCH_MIN_MEMBER,
    annotation::MIN_MEMBER,
];
/// Queue labels and annotations of other schedulers and older releases of KAI.
const OTHER_QUEUE_LABELS: [&str; 6] = [
    "runai/queue",
    "run.ai/queue",
    "kai/queue",
    "kai-scheduler/queue",
    "kueue.x-k8s.io/queue-name",
    "queue",
];
/// Limit on the letters in which a misspelled key differs.
const LETTERS: usize = 2;
/// Limits on the length and number of keys that are checked.
const KEY_LENGTH: usize = 64;
const KEYS_LOOKED_AT: usize = 64;

/// About a queue that is created or changed, among the others. With `quotas`, the rules for quotas warn about children and parents.
#[must_use]
pub fn of_queue(request: &Request, find: &Find<'_>, quotas: bool) -> Vec<String> {
    let (Operation::Create | Operation::Update, Ok(queue)) = (request.operation, request.object.read::<Queue>()) else {
        return Vec::new();
    };
    let mut warnings = queues::traps::of_amounts(&queue);
    if !quotas {
        warnings.extend(queues::traps::of_place(&queue, find));
    }
    warnings
}

/// About a pod that is created, as its owner wrote it. `classes` are the PriorityClasses of the cluster; none: they are not known.
#[must_use]
pub fn of_pod(request: &Request, classes: &[String], settings: &Settings) -> Vec<String> {
    let (Operation::Create, Ok(Some(pod))) = (request.operation, ours(request, settings)) else {
        return Vec::new();
    };
    let mut warnings = keys(&pod, &settings.queue_label_key);
    let class = pod.metadata.labels.as_ref();
    let class = class.and_then(|labels| labels.get(label::PRIORITY_CLASS_NAME));
    warnings.extend(
        class.and_then(|class| unknown_class(&format!("label {}", label::PRIORITY_CLASS_NAME), class, classes)),
    );
    // The refusal that follows is in KAI's words, without the value.
    let annotations = pod.metadata.annotations.iter().flatten();
    let asked = annotations.map(|(key, value)| (key.as_str(), value.as_str()));
    let invalid = gpu_request::read(asked, Named::default()).err();
    warnings.extend(
        invalid
            .filter(InvalidRequest::is_about_a_value)
            .map(|invalid| invalid.to_string()),
    );
    warnings
}

/// About a pod group that is created or changed.
#[must_use]
pub fn of_pod_group(request: &Request, classes: &[String]) -> Vec<String> {
    let (Operation::Create | Operation::Update, Ok(group)) = (request.operation, request.object.read::<PodGroup>())
    else {
        return Vec::new();
    };
    let class = group.spec.priority_class_name;
    let unknown = class.and_then(|class| unknown_class("spec.priorityClassName", &class, classes));
    unknown.into_iter().collect()
}

fn keys(pod: &Pod, queue: &str) -> Vec<String> {
    let empty = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&empty);
    let short = |keys: &'_ BTreeMap<String, String>| -> Vec<String> {
        let keys = keys.keys().filter(|key| key.len() <= KEY_LENGTH);
        keys.take(KEYS_LOOKED_AT).cloned().collect()
    };
    let meant = |key: &str, known: &[&'static str]| -> Option<String> {
        let own = std::iter::once(queue).filter(|_| known == LABELS);
        let known = own.chain(known.iter().copied());
        closest(key, known).map(str::to_owned)
    };
    let ours = |key: &str| key == queue || LABELS.contains(&key) || ANNOTATIONS.contains(&key);
    let mut warnings = Vec::new();
    for key in short(labels) {
        if key == queue || LABELS.contains(&key.as_str()) {
            continue;
        }
        if ANNOTATIONS.contains(&key.as_str()) {
            warnings.push(format!("label {key} has no effect: it is an annotation"));
        } else if OTHER_QUEUE_LABELS.contains(&key.as_str()) {
            if !labels.contains_key(queue) {
                warnings.push(format!("label {key} does not name a queue here: the label is {queue}"));
            }
        } else if let Some(meant) = meant(&key, &LABELS).filter(|meant| !labels.contains_key(meant)) {
            warnings.push(format!("label {key} has no effect; is {meant} meant?"));
        }
    }
    for key in short(annotations)
        .into_iter()
        .filter(|key| !ANNOTATIONS.contains(&key.as_str()))
    {
        if ours(&key) && !labels.contains_key(&key) {
            warnings.push(format!("annotation {key} has no effect: it is a label"));
        } else if let Some(meant) = meant(&key, &ANNOTATIONS).filter(|meant| !annotations.contains_key(meant)) {
            warnings.push(format!("annotation {key} has no effect; is {meant} meant?"));
        }
    }
    warnings
}

fn unknown_class(field: &str, class: &str, classes: &[String]) -> Option<String> {
    if class.is_empty() || classes.is_empty() || classes.iter().any(|known| known == class) {
        return None;
    }
    let shown: String = class.chars().take(KEY_LENGTH).collect();
    let meant = closest(&shown, classes.iter().map(String::as_str));
    let meant = meant.map_or_else(String::new, |meant| format!("; is {meant} meant?"));
    Some(format!(
        "{field}: there is no PriorityClass {shown}, so the default one counts{meant}"
    ))
}

/// The known key that differs by the fewest letters, if it is similar.
fn closest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.map(|known| (damerau_levenshtein(word, known), known));
    distances
        .filter(|(letters, known)| (1..=LETTERS).contains(letters) && known.len() > 3 * letters)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests;
