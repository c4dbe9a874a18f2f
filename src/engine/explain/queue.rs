//! Why a queue takes no workloads.

use crate::engine::input::Name;
use crate::engine::model::Model;
use crate::engine::model::ids::QueueId;

/// The sentence about the queue `name` that takes no workloads: it or a queue above it does not exist, or it has child queues.
#[must_use]
pub fn closed(model: &Model, queue: Option<QueueId>, name: &str) -> String {
    let lost = match queue {
        Some(queue) if model.queues()[queue].valid => {
            return format!("Queue '{name}' has queues below it and takes no workloads itself; name one of those");
        }
        Some(queue) => missing_above(model, queue).map(|(_, lost)| lost),
        None => None,
    };
    match lost {
        Some(lost) => format!("Queue '{name}' does not exist, since queue '{lost}' above it does not exist"),
        None => format!("Queue '{name}' does not exist"),
    }
}

/// The first missing parent on the path up, after the queue that names it.
#[must_use]
pub fn missing_above(model: &Model, queue: QueueId) -> Option<(Name, Name)> {
    let mut at = model.queues()[queue].input.as_ref()?;
    for _ in model.queues().ids() {
        let parent = at.parent.as_ref()?;
        let known = model
            .queues()
            .id(parent)
            .and_then(|id| model.queues()[id].input.as_ref());
        let Some(above) = known else {
            return Some((at.name.clone(), parent.clone()));
        };
        at = above;
    }
    None
}
