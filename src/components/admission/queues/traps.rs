//! Warnings about queue settings that are probably a mistake: an unset limit (it counts as 0), a quota above the limit, and quotas of children that
//! exceed the parent's.

use std::sync::Arc;

use super::{Find, circle};
use crate::api::Queue;
use crate::api::queue::{QueueResource, QueueResources};

/// Reads one of the resources.
type Read = fn(&QueueResources) -> Option<QueueResource>;

/// The three resources, by their names in the specification.
const RESOURCES: [(&str, Read); 3] = [
    ("cpu", |resources| resources.cpu),
    ("gpu", |resources| resources.gpu),
    ("memory", |resources| resources.memory),
];

fn of(queue: &Queue) -> impl Iterator<Item = (&'static str, QueueResource)> {
    let resources = queue.spec.resources.unwrap_or_default();
    RESOURCES
        .map(|(name, read)| (name, read(&resources).unwrap_or_default()))
        .into_iter()
}

fn name(queue: &Queue) -> &str {
    queue.metadata.name.as_deref().unwrap_or_default()
}

/// Below nothing is no bound.
fn bound(amount: Option<f64>) -> f64 {
    let amount = amount.unwrap_or_default();
    if amount < 0.0 { f64::INFINITY } else { amount }
}

fn text(amount: f64) -> String {
    if amount.is_infinite() {
        "unlimited".to_owned()
    } else {
        amount.to_string()
    }
}

/// Warnings about the queue's own amounts.
#[must_use]
pub fn of_amounts(queue: &Queue) -> Vec<String> {
    let mut warnings = Vec::new();
    let unset = of(queue).filter(|(_, share)| share.limit.is_none());
    let unset: Vec<_> = unset
        .map(|(resource, _)| format!("spec.resources.{resource}.limit"))
        .collect();
    if !unset.is_empty() {
        let (fields, is) = (unset.join(", "), if unset.len() == 1 { "is" } else { "are" });
        warnings.push(format!(
            "queue {}: {fields} {is} not set, which means 0: nothing that asks for it runs. -1 is no limit",
            name(queue)
        ));
    }
    for (resource, share) in of(queue) {
        let (quota, Some(limit)) = (bound(share.quota), share.limit) else {
            continue;
        };
        if quota > bound(Some(limit)) {
            warnings.push(format!(
                "queue {}: the {resource} quota ({}) is above the limit ({limit}), which counts",
                name(queue),
                text(quota)
            ));
        }
    }
    warnings
}

/// Warnings about the queue in the tree: its parent, and the sums of quotas below the parent and below itself.
#[must_use]
pub fn of_place(queue: &Queue, find: &Find<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let own = name(queue);
    if let Some(above) = queue.spec.parent_queue.as_deref().filter(|above| !above.is_empty()) {
        match find(above) {
            None => warnings.push(format!(
                "queue {own}: its parent queue {above} does not exist, and nothing runs in {own} until it does"
            )),
            Some(parent) if circle(own, above, find).is_none() => {
                let mut children = listed(&parent, own, find);
                children.push(Arc::new(queue.clone()));
                warnings.extend(of_children(&parent, &children));
            }
            Some(_) => {}
        }
    }
    let below = listed(queue, own, find);
    warnings.extend(of_children(queue, &below));
    warnings
}

/// The child queues in a queue's status, without one of them.
fn listed(queue: &Queue, without: &str, find: &Find<'_>) -> Vec<Arc<Queue>> {
    let listed = queue.status.iter().flat_map(|status| &status.child_queues);
    let others = listed.filter(|child| *child != without && *child != name(queue));
    others.filter_map(|child| find(child)).collect()
}

/// Warnings where the children's quotas exceed the queue's.
#[must_use]
pub fn of_children(parent: &Queue, children: &[Arc<Queue>]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, (resource, share)) in of(parent).enumerate() {
        let quotas = children.iter().filter_map(|child| of(child).nth(index));
        let sum: f64 = quotas.map(|(_, share)| bound(share.quota)).sum();
        let quota = bound(share.quota);
        if sum > quota {
            warnings.push(format!(
                "queue {}: the queues below it have {resource} quotas of {} together, itself it has {}",
                name(parent),
                text(sum),
                text(quota)
            ));
        }
    }
    warnings
}
