//! Verdicts about pod groups that lack pods.

use crate::engine::decision::{Cause, Verdict};
use crate::engine::explain::hold::held;
use crate::engine::explain::report::SUB_GROUPS_LISTED;
use crate::engine::model::Model;
use crate::engine::model::ids::PodGroupId;
use crate::engine::model::pod::Status;
use crate::engine::model::pod_group::PodSet;

use super::words::{count, list};

/// Names of gated pods in a message.
const NAMED: usize = 3;

/// About a pod group that cannot start because too few of its pods exist without scheduling gates.
#[must_use]
pub fn not_ready(model: &Model, pod_group: PodGroupId) -> Verdict {
    let entry = &model.pod_groups()[pod_group];
    let lacking = |pods: &PodSet| pods.ungated() < pods.min;
    let all = || entry.pod_sets().filter(|(_, pods)| lacking(pods));
    let more = all().count().saturating_sub(SUB_GROUPS_LISTED);
    let more = (more > 0).then(|| {
        let more = count(more, "more sub-group lacks", "more sub-groups lack");
        format!("{more} pods")
    });
    let sentences = all().take(SUB_GROUPS_LISTED).map(|(member, pods)| {
        let name = &entry.tree[member as usize].name;
        let of = if name == "default" {
            String::new()
        } else {
            format!(" of sub-group {name}")
        };
        let gated: Vec<String> = (pods.pods.iter())
            .filter(|pod| model.pods()[**pod].state.status == Status::Gated)
            .map(|pod| model.pods()[*pod].input.pod.name.to_string())
            .collect();
        let ended = pods.with(Status::Failed) + pods.with(Status::Succeeded);
        let (alive, min) = (pods.alive(), pods.min);
        let first = format!("{alive} of {min} pods{of} exist");
        if gated.is_empty() {
            return match ended {
                0 => format!("{first}; the gang waits for the others"),
                ended => format!(
                    "{first}, beside {} that ended; the gang waits for the others",
                    count(ended, "pod", "pods")
                ),
            };
        }
        let free = alive - gated.len();
        let names = list(&gated[..gated.len().min(NAMED)], gated.len());
        let (pods, have) = if gated.len() == 1 { ("pod", "has") } else { ("pods", "have") };
        let missing = match min.saturating_sub(alive) {
            0 => String::new(),
            1 => ", and 1 does not exist yet".to_owned(),
            more => format!(", and {more} do not exist yet"),
        };
        format!(
            "{free} of {min} pods{of} may start: {pods} {names} {have} scheduling gates{missing}; remove the gates to let the gang start"
        )
    });
    // Where nothing but gates keeps it back.
    let complete = |pods: &PodSet| pods.alive() >= pods.min;
    let gates = entry.pod_sets().any(|(_, pods)| lacking(pods))
        && entry.pod_sets().all(|(_, pods)| !lacking(pods) || complete(pods));
    let cause = if gates { Cause::Gated } else { Cause::GangIncomplete };
    let mut sentences = sentences.collect::<Vec<_>>().into_iter();
    let hold = entry
        .input
        .as_ref()
        .and_then(|input| Some(held(&input.key, &input.queue, input.held.as_deref()?)));
    let first = sentences.next().unwrap_or_else(|| {
        let need = entry.tree.len().saturating_sub(1);
        format!("Too few of the {need} sub-groups have the pods that they need")
    });
    Verdict {
        evidence: sentences.chain(more).chain(hold).collect(),
        ..Verdict::new(cause, first)
    }
}
