//! Failed writes about the configuration, and when they are tried again.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::api::condition::Condition;
use crate::components::retry::{Failure, asked_pause, failure};
use crate::components::watches::RETRY;

/// What the API server refuses it refuses again, unless somebody changes a schema or a right.
const REFUSED: Duration = Duration::from_mins(1);

/// The objects whose last write failed.
#[derive(Default)]
pub struct Failures {
    by_object: BTreeMap<String, Failed>,
}

struct Failed {
    /// The conditions that were to be written, without times; none for an object that was to be created.
    conditions: Vec<Condition>,
    in_a_row: u32,
    again_at: Instant,
}

impl Failures {
    /// When these conditions may be written again, if not now. Others than those that failed may be written at once.
    #[must_use]
    pub fn again_at(&self, object: &str, conditions: &[Condition]) -> Option<Instant> {
        let failed = self.by_object.get(object)?;
        let waits = failed.again_at > Instant::now() && failed.conditions == timeless(conditions);
        waits.then_some(failed.again_at)
    }

    /// Writing these conditions failed; returns when they may be written again.
    pub fn failed(&mut self, object: &str, conditions: &[Condition], error: &kube::Error) -> Instant {
        let (before, conditions) = (self.by_object.remove(object), timeless(conditions));
        if before.is_none() {
            warn!(object, %error, "the object or its conditions cannot be written; this is tried again at intervals");
        } else {
            debug!(object, %error, "the object or its conditions cannot be written");
        }
        let same = before.filter(|before| before.conditions == conditions);
        let in_a_row = same.map_or(0, |before| before.in_a_row).saturating_add(1);
        let wait = match failure(error) {
            Failure::Refused => REFUSED,
            _ => RETRY.wait(in_a_row).max(asked_pause(error).unwrap_or_default()),
        };
        let again_at = Instant::now() + wait;
        let failed = Failed {
            conditions,
            in_a_row,
            again_at,
        };
        self.by_object.insert(object.to_owned(), failed);
        again_at
    }

    /// The object is as it should be, or gone.
    pub fn forget(&mut self, object: &str) {
        self.by_object.remove(object);
    }
}

/// The times of new conditions differ from one attempt to the next.
fn timeless(conditions: &[Condition]) -> Vec<Condition> {
    let mut conditions = conditions.to_vec();
    for condition in &mut conditions {
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
    }
    conditions
}
