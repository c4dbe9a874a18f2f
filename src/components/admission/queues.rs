//! Queues: they say what they may use, their durations can be read, and none hangs below itself.

use serde_json::Value;

use super::pods::queue_label::Tree;
use super::review::{Operation, Request, Verdict};
use crate::api::Queue;

/// Judges the creation or change of a queue; `tree` holds the other queues.
#[must_use]
pub fn validate(request: &Request, tree: &Tree) -> Verdict {
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Verdict::allow();
    }
    let queue: Queue = match serde_json::from_value(request.object.clone()) {
        Ok(queue) => queue,
        Err(error) => return Verdict::unreadable(format!("the queue cannot be read: {error}")),
    };
    if let Err(error) = queue.spec.preempt_min_runtime() {
        return Verdict::unreadable(format!("spec.preemptMinRuntime: {error}"));
    }
    if let Err(error) = queue.spec.reclaim_min_runtime() {
        return Verdict::unreadable(format!("spec.reclaimMinRuntime: {error}"));
    }
    if request.object.pointer("/spec/resources").is_none_or(Value::is_null) {
        return Verdict::deny("resources must be specified").warn(["resources must be specified".to_owned()]);
    }
    let name = queue.metadata.name.unwrap_or_default();
    match circle(&name, queue.spec.parent_queue.as_deref().unwrap_or_default(), tree) {
        Some(circle) => Verdict::deny(format!(
            "a queue cannot be below itself: {circle}. Choose another parentQueue"
        )),
        None => Verdict::allow(),
    }
}

/// The way from the queue up to itself, if there is one.
fn circle(name: &str, parent: &str, tree: &Tree) -> Option<String> {
    let mut way = vec![name];
    let mut above = Some(parent).filter(|parent| !parent.is_empty());
    while let Some(queue) = above {
        way.push(queue);
        if queue == name {
            return Some(way.join(" → "));
        }
        if way[..way.len() - 1].contains(&queue) {
            return None;
        }
        above = tree.parent(queue);
    }
    None
}

#[cfg(test)]
mod tests;
