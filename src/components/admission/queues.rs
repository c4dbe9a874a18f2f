//! Rules for queues: resources are set, durations are valid, and parents form no cycle. The deletion of a queue with child queues or
//! workloads draws warnings, since `kubectl delete -f` and GitOps delete parents first; if queues are protected, it is
//! refused.

mod quotas;
pub mod traps;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::review::{Operation, Request, Verdict};
use crate::api::Queue;
use crate::api::names::annotation;
use crate::api::quantity::Amount;
use crate::api::queue_access::Allowed;
use crate::api::quota_schedule::QuotaSchedule;

/// Finds a queue of the cluster by its name.
pub type Find<'a> = dyn Fn(&str) -> Option<Arc<Queue>> + 'a;

/// The rules that are switched on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    /// A queue with a quota above that of its parent, or below the sum of its children, draws warnings, and its
    /// parent must exist.
    pub quotas: bool,
    /// A queue that has children or workloads is not deleted.
    pub protect: bool,
}

/// The parent that a created or changed queue names, if the rules need it.
#[must_use]
pub fn parent(request: &Request) -> Option<String> {
    if !matches!(request.operation, Operation::Create | Operation::Update) || is_unaffected(request) {
        return None;
    }
    let queue: Queue = request.object.read().ok()?;
    queue.spec.parent_queue.filter(|parent| !parent.is_empty())
}

/// Reviews the creation, change or deletion of a queue.
#[must_use]
pub fn validate(request: &Request, find: &Find<'_>, rules: Rules) -> Verdict {
    match request.operation {
        Operation::Connect => Verdict::allow(),
        Operation::Delete => deletion(request, rules.protect),
        Operation::Create | Operation::Update => {
            let verdict = change(request, find, rules.quotas);
            let denial = verdict.denial.filter(|_| !is_unaffected(request));
            Verdict { denial, ..verdict }
        }
    }
}

/// Whether an update can add no fault to a queue.
fn is_unaffected(request: &Request) -> bool {
    request.is_unaffected(|object| {
        let Queue { metadata, spec, .. } = object.read().ok()?;
        let mut annotations = metadata.annotations.unwrap_or_default();
        let keys = [annotation::ALLOWED_NAMESPACES, annotation::QUOTA_SCHEDULE];
        Some((spec, keys.map(|key| annotations.remove(key))))
    })
}

/// The children are those that the queue's status lists, which the user can see.
fn deletion(request: &Request, protect: bool) -> Verdict {
    let Ok(queue) = request.old_object.read::<Queue>() else {
        // A queue that cannot be read may be deleted.
        return Verdict::allow();
    };
    let (name, status) = (
        queue.metadata.name.unwrap_or_default(),
        queue.status.unwrap_or_default(),
    );
    if !status.child_queues.is_empty() {
        let children = status.child_queues.join(" ");
        if protect {
            return Verdict::deny(format!("cannot delete queue {name}: it has child queues [{children}]"));
        }
        return Verdict::allow().warn([format!(
            "queue {name} has child queues [{children}]: nothing new starts in them until {name} is there again, or they have another parentQueue"
        )]);
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
        if protect {
            return Verdict::deny(format!(
                "cannot delete queue {name}: its workloads ask for {work}; delete them first, or move them to another queue"
            ));
        }
        return Verdict::allow().warn([format!(
            "queue {name} has workloads that ask for {work}: what runs keeps running, what waits waits until {name} is there again, or is to be moved to another queue"
        )]);
    }
    Verdict::allow()
}

fn change(request: &Request, find: &Find<'_>, quotas: bool) -> Verdict {
    let queue: Queue = match request.object.read() {
        Ok(queue) => queue,
        Err(error) => return Verdict::unreadable(format!("the queue cannot be read: {error}")),
    };
    if let Err(error) = queue.spec.preempt_min_runtime() {
        return Verdict::unreadable(format!("spec.preemptMinRuntime: {error}"));
    }
    if let Err(error) = queue.spec.reclaim_min_runtime() {
        return Verdict::unreadable(format!("spec.reclaimMinRuntime: {error}"));
    }
    if queue.spec.resources.is_none() {
        return Verdict::deny("resources must be specified").warn(["resources must be specified".to_owned()]);
    }
    if let Some(allowed) = Allowed::of(&queue)
        && let Some(name) = allowed.invalid_names().next()
    {
        return Verdict::deny(format!(
            "annotation {}: {name:?} can be no namespace. Name namespaces between commas, with * for any characters, such as team-a, research-*",
            annotation::ALLOWED_NAMESPACES
        ));
    }
    if let Some(Err(reason)) = QuotaSchedule::of(&queue) {
        return Verdict::deny(format!("annotation {}: {reason}", annotation::QUOTA_SCHEDULE));
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
        let old: Option<Queue> = request.old_object.read().ok();
        let children = listed(old.as_ref());
        if !children.is_empty() {
            warnings.extend(quotas::against_children(&own, &children));
        }
    }
    Verdict::allow().warn(warnings)
}

/// The path of parents from the queue back to itself, if there is one.
#[must_use]
pub fn circle(name: &str, parent: &str, find: &Find<'_>) -> Option<String> {
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
