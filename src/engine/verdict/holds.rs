//! Verdicts about pod groups on hold.

use crate::api::names::annotation;
use crate::engine::decision::{Cause, Verdict};
use crate::engine::explain::hold::held;
use crate::engine::input::{GroupInput, Hold};

/// About a pod group on hold; `running`: its pods with a node.
#[must_use]
pub fn verdict(input: &GroupInput, hold: &Hold, running: usize) -> Verdict {
    let key = annotation::HOLD;
    let by = match &hold.queue {
        None => format!("Its annotation {key} holds it"),
        Some(queue) => format!("The annotation {key} of queue {queue} holds all workloads in the queue and below it"),
    };
    let stay = match running {
        0 => None,
        1 => Some("1 pod of it has a place and stays".to_owned()),
        more => Some(format!("{more} pods of it have a place and stay")),
    };
    Verdict {
        evidence: [Some(by), stay].into_iter().flatten().collect(),
        ..Verdict::new(Cause::Held, held(&input.key, &input.queue, hold))
    }
}
