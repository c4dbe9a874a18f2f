//! The schedule of a queue in its status: which entry is in force, and until when.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::Queue;
use crate::api::names::{annotation, condition};
use crate::api::queue::{QueueCondition, QueueResources};
use crate::api::quota_schedule::QuotaSchedule;

/// The quota in force, and the condition about the schedule.
pub struct Scheduled {
    /// The quota and limits in force.
    pub resources: QueueResources,
    /// When they change.
    pub until: Option<Timestamp>,
    /// Status, reason and message of the condition; `None`: there is no schedule.
    says: Option<(&'static str, &'static str, String)>,
}

impl Scheduled {
    /// The schedule of a queue at an instant.
    #[must_use]
    pub fn of(queue: &Queue, now: Timestamp) -> Self {
        let own = queue.spec.resources.unwrap_or_default();
        let (resources, until, says) = match QuotaSchedule::of(queue) {
            None => (own, None, None),
            Some(Err(reason)) => {
                let key = annotation::QUOTA_SCHEDULE;
                let message = format!("annotation {key}: {reason}; what the queue says itself holds at all times");
                (own, None, Some(("False", "Invalid", message)))
            }
            Some(Ok(schedule)) => {
                let (entry, until) = schedule.at(now);
                let end = until.map_or_else(String::new, |until| format!(" until {until}"));
                match entry {
                    Some(entry) => {
                        let message = format!("entry {} is in force{end}", entry.name);
                        (entry.over(own), until, Some(("True", "EntryInForce", message)))
                    }
                    None => {
                        let message = format!("no entry is in force{end}; what the queue says itself holds");
                        (own, until, Some(("False", "NoEntryInForce", message)))
                    }
                }
            }
        };
        Self { resources, until, says }
    }

    /// Updates the conditions of a queue.
    pub fn update(&self, conditions: &mut Vec<QueueCondition>, now: Timestamp) {
        let is_ours = |condition: &QueueCondition| condition.r#type == condition::QUOTA_SCHEDULE;
        let before = conditions.iter().position(is_ours);
        let Some((status, reason, message)) = &self.says else {
            conditions.retain(|condition| !is_ours(condition));
            return;
        };
        let mut new = QueueCondition {
            r#type: condition::QUOTA_SCHEDULE.to_owned(),
            status: (*status).to_owned(),
            last_probe_time: None,
            last_transition_time: Timestamp::from_second(now.as_second()).ok().map(Time),
            reason: Some((*reason).to_owned()),
            message: Some(message.clone()),
        };
        match before.and_then(|place| conditions.get_mut(place)) {
            None => conditions.push(new),
            Some(old) => {
                if old.status == new.status {
                    new.last_transition_time.clone_from(&old.last_transition_time);
                }
                *old = new;
            }
        }
    }
}

#[cfg(test)]
mod tests;
