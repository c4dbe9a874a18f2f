//! Queues: they say what they may use, their durations can be read, none hangs below itself, and none goes while others hang
//! below it or workloads are in it.

mod quotas;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use super::review::{Operation, Request, Verdict};
use crate::api::Queue;
use crate::api::quantity::Amount;

/// Finds a queue of the cluster by its name.
pub type Find<'a> = dyn Fn(&str) -> Option<Arc<Queue>> + 'a;

/// Judges the creation, change or deletion of a queue among the others. With `quotas`, a queue that promises more than its
/// parent has, or less than its children have been promised, draws warnings, and its parent must exist.
#[must_use]
pub fn validate(request: &Request, find: &Find<'_>, quotas: bool) -> Verdict {
    match request.operation {
        Operation::Connect => Verdict::allow(),
        Operation::Delete => deletion(request),
        Operation::Create | Operation::Update => change(request, find, quotas),
    }
}

/// The children are those that the queue's status lists: what whoever deletes it could see.
fn deletion(request: &Request) -> Verdict {
    let Ok(queue) = serde_json::from_value::<Queue>(request.old_object.clone()) else {
        // Whatever cannot be read may go.
        return Verdict::allow();
    };
    let (name, status) = (
        queue.metadata.name.unwrap_or_default(),
        queue.status.unwrap_or_default(),
    );
    if !status.child_queues.is_empty() {
        let children = status.child_queues.join(" ");
        return Verdict::deny(format!("cannot delete queue {name}: it has child queues [{children}]"));
    }
    let asked = |(_, quantity): &(&String, &Quantity)| !Amount::of(quantity).is_ok_and(Amount::is_zero);
    let work: Vec<_> = status
        .requested
        .iter()
        .filter(asked)
        .map(|(what, amount)| format!("{what} {}", amount.0))
        .collect();
    if !work.is_empty() {
        let work = work.join(", ");
        return Verdict::deny(format!(
            "cannot delete queue {name}: its workloads ask for {work}; delete them first, or move them to another queue"
        ));
    }
    Verdict::allow()
}

fn change(request: &Request, find: &Find<'_>, quotas: bool) -> Verdict {
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
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    if let Some(circle) = circle(name, queue.spec.parent_queue.as_deref().unwrap_or_default(), find) {
        return Verdict::deny(format!(
            "a queue cannot be below itself: {circle}. Choose another parentQueue"
        ));
    }
    if quotas {
        return promises(&queue, request, find);
    }
    Verdict::allow()
}

fn promises(queue: &Queue, request: &Request, find: &Find<'_>) -> Verdict {
    let own = queue.spec.resources.unwrap_or_default();
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let listed = |parent: Option<&Queue>| -> Vec<Arc<Queue>> {
        let children = parent
            .and_then(|parent| parent.status.as_ref())
            .map(|status| &status.child_queues);
        let children = children.into_iter().flatten().filter(|child| *child != name);
        children.filter_map(|child| find(child)).collect()
    };
    let mut warnings = Vec::new();
    if let Some(above) = queue.spec.parent_queue.as_deref().filter(|parent| !parent.is_empty()) {
        let Some(parent) = find(above) else {
            return Verdict::deny(format!(
                "queue {name}: its parent queue {above} does not exist. Create {above} first, or choose another parentQueue"
            ));
        };
        if parent.spec.resources.is_none() {
            return Verdict::deny(format!("parent queue {above} has no resources defined"));
        }
        warnings.extend(quotas::against_parent(&own, &parent, &listed(Some(&parent))));
    }
    if request.operation == Operation::Update {
        let old: Option<Queue> = serde_json::from_value(request.old_object.clone()).ok();
        let children = listed(old.as_ref());
        if !children.is_empty() {
            warnings.extend(quotas::against_children(&own, &children));
        }
    }
    Verdict::allow().warn(warnings)
}

/// The way from the queue up to itself, if there is one.
fn circle(name: &str, parent: &str, find: &Find<'_>) -> Option<String> {
    let mut way = vec![name.to_owned()];
    let mut above = Some(parent.to_owned()).filter(|parent| !parent.is_empty());
    while let Some(queue) = above {
        if queue == name {
            way.push(queue);
            return Some(way.join(" → "));
        }
        if way.contains(&queue) {
            return None;
        }
        above = find(&queue)
            .and_then(|found| found.spec.parent_queue.clone())
            .filter(|parent| !parent.is_empty());
        way.push(queue);
    }
    None
}

#[cfg(test)]
mod tests;
