//! What a pod group inherits from its owners and its pod: queue, priority class, preemptibility, durations.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use tracing::warn;

use super::{Input, RuleError};
use crate::api::duration;
use crate::api::names::{annotation, label, preemptibility};
use crate::components::grouping::workload::Workload;

/// Bytes of a wrong value that are logged.
const VALUE_LOGGED: usize = 64;

/// Input of the base rule.
pub struct Base<'a> {
    /// The object that owns the group.
    pub top: &'a Workload,
    /// Owners whose labels and annotations determine priority, preemptibility and the two durations, bottom-up.
    pub owners: &'a [&'a Workload],
    /// The default priority class.
    pub fallback_class: &'a str,
}

/// The queue: the owner's label, the pod's label, the project (with the node pool, if the pod names one), the namespace's
/// label, the default queue. An empty label is no label. KAI does not know that of the namespace.
pub fn queue(input: &Input, top: &Workload) -> String {
    let settings = input.settings;
    let key = &settings.queue_label_key;
    if let Some(queue) = top
        .label(key)
        .or_else(|| input.label(key).filter(|queue| !queue.is_empty()))
    {
        return queue.to_owned();
    }
    let project = top
        .labels
        .get(label::PROJECT)
        .map(String::as_str)
        .or_else(|| input.label(label::PROJECT));
    if let Some(project) = project.filter(|project| !project.is_empty()) {
        let pool = input
            .label(&settings.pools.key)
            .filter(|_| !settings.pools.key.is_empty());
        return pool.map_or_else(|| project.to_owned(), |pool| format!("{project}-{pool}"));
    }
    let of_namespace = if settings.exactly_as_kai {
        None
    } else {
        input.cluster.namespace_queue(input.namespace())
    };
    of_namespace.unwrap_or_else(|| settings.default_queue.clone())
}

/// The class that the pod itself names: its label, else its spec.
#[must_use]
pub fn class_of_pod(pod: &Pod) -> Option<&str> {
    let labels = pod.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(label::PRIORITY_CLASS_NAME));
    let spec = || pod.spec.as_ref()?.priority_class_name.as_ref();
    label.or_else(spec).map(String::as_str)
}

/// The priority class: for each owner upwards its label, else the one that the pod names; the first that exists.
/// A label with an unknown class hides the pod's for that owner. Then the administrator's default for the owner's kind. Also whether a pod that names
/// another class would have that.
pub fn priority_class(input: &Input, base: &Base) -> Result<(String, bool), RuleError> {
    let exists = |name: &&str| !name.is_empty() && input.cluster.has_priority_class(name);
    let mut of_pods = false;
    for owner in base.owners {
        let label = owner.labels.get(label::PRIORITY_CLASS_NAME).map(String::as_str);
        of_pods |= label.is_none();
        if let Some(class) = label.or_else(|| class_of_pod(input.pod)).filter(exists) {
            return Ok((class.to_owned(), of_pods));
        }
    }
    let defaults = input.cluster.defaults()?;
    let of_kind = base.owners.iter().filter_map(|owner| defaults.get(owner));
    let class = of_kind.map(|entry| entry.priority_class.as_str()).find(exists);
    Ok((class.unwrap_or(base.fallback_class).to_owned(), of_pods))
}

/// Preemptibility: the first owner's or the pod's label that is valid, then the administrator's default for the owner's kind.
/// An empty label ends the search without a result. Also whether a pod with another label would have that.
pub fn preemptibility(input: &Input, base: &Base) -> Result<(Option<String>, bool), RuleError> {
    let owners = base
        .owners
        .iter()
        .filter_map(|owner| owner.labels.get(label::PREEMPTIBILITY).map(String::as_str));
    let owners = owners.map(|value| (value, false));
    let pod = input.label(label::PREEMPTIBILITY).map(|value| (value, true));
    for (value, of_pod) in owners.chain(pod) {
        match value {
            "" => return Ok((None, of_pod)),
            value if is_preemptibility(value) => return Ok((Some(value.to_owned()), of_pod)),
            _ => warn!(
                owner = base.top.name,
                value, "preemptibility label is neither preemptible nor non-preemptible"
            ),
        }
    }
    let defaults = input.cluster.defaults()?;
    let of_kind = base.owners.iter().filter_map(|owner| defaults.get(owner));
    let mut stated = of_kind.map(|entry| entry.preemptibility.to_ascii_lowercase());
    Ok((stated.find(|value| is_preemptibility(value)), true))
}

/// Whether it is a valid value.
pub fn is_preemptibility(value: &str) -> bool {
    [preemptibility::PREEMPTIBLE, preemptibility::NON_PREEMPTIBLE].contains(&value)
}

/// `preemptionDelay`; negative values are ignored.
pub fn preemption_delay(input: &Input, base: &Base) -> Option<String> {
    duration_annotation(input, base, annotation::PREEMPTION_DELAY, |delay| !delay.is_negative())
}

/// `stalenessGracePeriod`; negative: unlimited.
pub fn staleness_grace_period(input: &Input, base: &Base) -> Option<String> {
    duration_annotation(input, base, annotation::STALENESS_GRACE_PERIOD, |_| true)
}

/// The first valid duration among the owners' annotations and the pod's, in canonical form.
fn duration_annotation(
    input: &Input,
    base: &Base,
    key: &str,
    allowed: impl Fn(&SignedDuration) -> bool,
) -> Option<String> {
    let owners = base.owners.iter().filter_map(|owner| owner.annotations.get(key));
    let pod = input
        .pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(key));
    let mut valid = owners.chain(pod).filter_map(|text| match duration::parse_go(text) {
        Ok(duration) if allowed(&duration) => Some(duration),
        Ok(_) | Err(_) => {
            warn!(
                owner = base.top.name,
                annotation = key,
                value = text.get(..text.floor_char_boundary(VALUE_LOGGED)),
                "annotation is not a usable duration"
            );
            None
        }
    });
    valid.next().map(duration::format_go)
}
