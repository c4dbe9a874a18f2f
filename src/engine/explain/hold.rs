//! The message about a hold, and how to remove it.

use crate::engine::input::{GroupKey, Hold, Name};

/// The sentence about a pod group in a queue that is held, without its full stop.
#[must_use]
pub fn held(key: &GroupKey, queue: &Name, hold: &Hold) -> String {
    let reason = hold.reason.as_deref().map_or_else(String::new, |reason| {
        format!(" ({})", reason.trim_end_matches('.').replace(". ", "; "))
    });
    match &hold.queue {
        None => {
            let (namespace, name) = (key.namespace(), key.name());
            format!("PodGroup {name} is held{reason}; release it: unikai release podgroup {name} -n {namespace}")
        }
        Some(held) => {
            let above = if held == queue {
                String::new()
            } else {
                format!(" (above queue {queue})")
            };
            format!(
                "Queue {held}{above} is held{reason} and starts nothing; resume it: unikai drain queue {held} --undo"
            )
        }
    }
}
