//! The conditions of Config and of shards: whether their specification is in force. Types, reasons and messages are KAI's, with two more: for errors, and
//! for fields without effect.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Report, Unserved};
use crate::api::condition::Condition;
use crate::mirror::policy::Finding;

/// Limit on the bytes of a message; the API accepts 32 KiB.
const MESSAGE: usize = 16 << 10;

/// The desired conditions of an object: the existing ones, updated by the report. `follows`: the process has applied the generation that the report has
/// as in force.
#[must_use]
pub fn conditions(before: &[Condition], report: &Report, follows: bool, now: Timestamp) -> Vec<Condition> {
    let mut all = Conditions {
        all: before.to_vec(),
        now,
    };
    let generation = report.generation;
    if !follows {
        all.set(
            "Reconciling",
            true,
            "reconciling",
            "Reconciliation in progress",
            generation,
        );
        return all.all;
    }
    if let Some(unserved) = &report.unserved {
        let (reason, message) = match unserved {
            Unserved::OtherPool(pool) => (
                "not_served",
                format!("this process schedules the node pool {pool:?} only (--node-pool)"),
            ),
            Unserved::SamePool(shard) => (
                "duplicate_partition",
                format!("the older shard {shard:?} has the same node pool, and counts"),
            ),
        };
        for aspect in ["Deployed", "Available", "Ready"] {
            all.set(aspect, false, reason, &message, generation);
        }
    } else {
        match report.in_force {
            Some(good) => {
                all.set("Deployed", true, "deployed", "Resources deployed", good);
                all.set("Available", true, "available", "System available", good);
            }
            None => {
                let message =
                    "nothing is scheduled: this process has seen no valid state of this object since it started";
                all.set("Deployed", false, "deployed", message, generation);
                all.set("Available", false, "available", message, generation);
            }
        }
        if report.wrong.is_empty() {
            all.set("Ready", true, "ready", "System is ready", generation);
        } else {
            all.set("Ready", false, "invalid_config", &list(&report.wrong), generation);
        }
    }
    let good = report.in_force.unwrap_or(generation);
    let aspect = "DependenciesFulfilled";
    match report.missing {
        None => all.set(
            aspect,
            true,
            "dependencies_fulfilled",
            "Dependencies are fulfilled",
            good,
        ),
        // One per line, as in KAI.
        Some(missing) => all.set(aspect, false, "dependencies_missing", &format!("\n{missing}"), good),
    }
    let ended = "Reconciliation completed successfully";
    if report.wrong.is_empty() {
        all.set("Reconciling", false, "reconciled", ended, generation);
    } else {
        let stays = match report.in_force {
            Some(_) => "the last valid state stays in force",
            None => "no valid state is known",
        };
        all.set("Reconciling", false, "invalid_config", stays, generation);
    }
    if report.ignored.is_empty() {
        all.set(
            "FieldsIgnored",
            false,
            "all_used",
            "Every field has an effect",
            generation,
        );
    } else {
        all.set(
            "FieldsIgnored",
            true,
            "not_applicable",
            &list(&report.ignored),
            generation,
        );
    }
    all.all
}

/// Sets the condition of the Prometheus server that Config names; `None`: it names none, or it has not been checked yet.
#[must_use]
pub fn prometheus(
    before: Vec<Condition>,
    answers: Option<&Result<(), String>>,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    const ASPECT: &str = "PrometheusConnected";
    let mut all = Conditions { all: before, now };
    match answers {
        None => all.all.retain(|condition| condition.r#type != ASPECT),
        Some(Ok(())) => {
            let message = "External Prometheus connectivity verified";
            all.set(ASPECT, true, "prometheus_connected", message, generation);
        }
        Some(Err(why)) => {
            let message = format!("Failed to ping external Prometheus: {why}");
            all.set(ASPECT, false, "prometheus_connection_failed", &message, generation);
        }
    }
    all.all
}

struct Conditions {
    all: Vec<Condition>,
    now: Timestamp,
}

impl Conditions {
    fn set(&mut self, aspect: &str, holds: bool, reason: &str, message: &str, generation: i64) {
        let status = if holds { "True" } else { "False" };
        let at = self.all.iter().position(|condition| condition.r#type == aspect);
        let before = at
            .and_then(|at| self.all.get(at))
            .filter(|before| before.status == status);
        let new = Condition {
            r#type: aspect.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: before.map_or(Time(self.now), |before| before.last_transition_time.clone()),
            observed_generation: Some(generation),
        };
        match at.and_then(|at| self.all.get_mut(at)) {
            Some(place) => *place = new,
            None => self.all.push(new),
        }
    }
}

/// Findings as one message, one per line, up to the limit.
fn list(findings: &[Finding]) -> String {
    let mut text = String::new();
    for (index, finding) in findings.iter().enumerate() {
        let line = finding.to_string();
        if text.len() + line.len() > MESSAGE {
            let more = format!("… and {} more", findings.len() - index);
            text.push_str(&more);
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text.trim_end().to_owned()
}
