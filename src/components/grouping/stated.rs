//! What pods themselves state about the class and the preemptibility of their group, where their owners leave it to them.

use k8s_openapi::api::core::v1::Pod;

use super::rules::{Grouped, class_of_pod};
use crate::api::names::{label, preemptibility};

/// What a pod itself states about the class and the preemptibility of its group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stated {
    /// The priority class that it names.
    pub class: Option<Box<str>>,
    /// Whether it asks to be non-preemptible; `None` if it says neither.
    pub non_preemptible: Option<bool>,
}

impl Stated {
    /// What the pod states.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self {
            class: class_of_pod(pod).filter(|name| !name.is_empty()).map(Into::into),
            non_preemptible: non_preemptible(pod),
        }
    }

    /// The class with its value, if there is such a class.
    pub fn ranked(&self, value: impl FnOnce(&str) -> Option<i32>) -> Option<(i32, String)> {
        let name = self.class.as_deref()?;
        Some((value(name)?, name.to_owned()))
    }
}

/// Whichever pod is grouped last, the group has the highest class and the strictest preemptibility that its pods state, unless owners state them.
pub fn combine(
    grouped: &mut Grouped,
    highest: impl FnOnce() -> Option<(i32, String)>,
    strictest: impl FnOnce() -> Option<bool>,
) {
    let spec = &mut grouped.group.spec;
    if grouped.class_of_pods
        && let Some((_, class)) = highest()
    {
        spec.priority_class_name = Some(class);
    }
    if grouped.preemptibility_of_pods
        && let Some(is_strict) = strictest()
    {
        let value = if is_strict {
            preemptibility::NON_PREEMPTIBLE
        } else {
            preemptibility::PREEMPTIBLE
        };
        spec.preemptibility = Some(value.to_owned());
    }
}

/// What the pod's label says about its preemptibility.
fn non_preemptible(pod: &Pod) -> Option<bool> {
    match pod.metadata.labels.as_ref()?.get(label::PREEMPTIBILITY)?.as_str() {
        preemptibility::NON_PREEMPTIBLE => Some(true),
        preemptibility::PREEMPTIBLE => Some(false),
        _ => None,
    }
}
