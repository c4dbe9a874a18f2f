//! The events about binds and evictions. Pure.

use std::collections::BTreeMap;

use super::attempt::{Ending, Report};
use crate::api::names::{object, reason};
use crate::components::Settings;
use crate::components::bus::{Evict, Note, OrderedBind, PodRef, Severity, Subject};
use crate::components::leadership::pool_name;

fn note(settings: &Settings, subject: Subject, severity: Severity, reason: &'static str, message: String) -> Note {
    Note {
        subject,
        severity,
        reason,
        message,
        source: settings.scheduler_name.clone(),
        annotations: BTreeMap::new(),
    }
}

/// The event about the end of a bind.
pub fn of_bind(settings: &Settings, bind: &OrderedBind, report: &Report) -> Option<Note> {
    let (pod, node) = (&bind.placement.pod, &bind.placement.node);
    let subject = Subject::Pod(pod.clone());
    match &report.ending {
        Ending::Done => {
            let pool = pool_name(&bind.pool);
            let text = format!(
                "Successfully assigned pod {}/{} to node {node} at node-pool {pool}",
                pod.namespace, pod.name
            );
            Some(note(settings, subject, Severity::Normal, reason::SCHEDULED, text))
        }
        Ending::Failed(why) if report.tried => {
            let text = not_bound_to(node, pod, why);
            Some(Note {
                source: object::BINDER_EVENT_SOURCE.to_owned(),
                ..note(settings, subject, Severity::Warning, reason::BINDING_ERROR, text)
            })
        }
        Ending::Failed(_) | Ending::Overtaken => None,
    }
}

/// The additional event of KAI's binder, if `always_bind_requests` is set.
pub fn of_trail(settings: &Settings, bind: &OrderedBind, report: &Report) -> Option<Note> {
    (settings.sharing.always_bind_requests && report.ending == Ending::Done).then(|| Note {
        source: object::BINDER_EVENT_SOURCE.to_owned(),
        ..note(
            settings,
            Subject::Pod(bind.placement.pod.clone()),
            Severity::Normal,
            reason::BOUND,
            bound_to(&bind.placement.node),
        )
    })
}

/// The message about a bound pod, in event and condition.
pub fn bound_to(node: &str) -> String {
    format!("Pod bound successfully to node {node}")
}

/// The message about a pod that could not be bound, in event and condition.
pub fn not_bound_to(node: &str, pod: &PodRef, why: &str) -> String {
    format!(
        "Failed to bind pod {}/{} to node {node}: {why}",
        pod.namespace, pod.name
    )
}

/// The event about the end of an eviction.
pub fn of_eviction(settings: &Settings, evict: &Evict, report: &Report) -> Option<Note> {
    (report.ending == Ending::Done).then(|| Note {
        annotations: evict.details.clone(),
        ..note(
            settings,
            Subject::PodGroup(evict.group.clone()),
            Severity::Normal,
            reason::EVICT,
            evict.message.clone(),
        )
    })
}

/// The event about a pod that is evicted because its reservation pod is gone.
pub fn of_lost_device(settings: &Settings, pod: &PodRef, group: &str) -> Note {
    let text = format!(
        "Pod {}/{} was evicted: the reservation pod of its GPU group {group} is gone, so that another pod may get the GPU",
        pod.namespace, pod.name
    );
    note(
        settings,
        Subject::Pod(pod.clone()),
        Severity::Warning,
        reason::EVICT,
        text,
    )
}

#[cfg(test)]
mod tests;
