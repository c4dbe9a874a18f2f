//! Verdicts about pod groups that lack pods.

use crate::engine::decision::{Cause, Verdict};
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
    let lacking = |pods: &PodSet| pods.alive() - pods.with(Status::Gated) < pods.min;
    let sentences = entry.pod_sets().filter(|(_, pods)| lacking(pods)).map(|(member, pods)| {
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
        let first = format!("{} of {} pods{of} exist", pods.alive(), pods.min);
        match (&*gated, ended) {
            ([], 0) => format!("{first}; the gang waits for the others"),
            ([], ended) => format!(
                "{first}, beside {} that ended; the gang waits for the others",
                count(ended, "pod", "pods")
            ),
            ([only], _) => format!("{first}, and {only} of them has scheduling gates; the gang waits until they are removed"),
            (several, _) => {
                let named = &several[..several.len().min(NAMED)];
                let names = list(named, several.len());
                format!(
                    "{first}, and {} of them have scheduling gates ({names}); the gang waits until they are removed",
                    several.len()
                )
            }
        }
    });
    let mut sentences = sentences.collect::<Vec<_>>().into_iter();
    let first = sentences.next().unwrap_or_else(|| {
        let need = entry.tree.len().saturating_sub(1);
        format!("Too few of the {need} sub-groups have the pods that they need")
    });
    Verdict {
        evidence: sentences.collect(),
        ..Verdict::new(Cause::GangIncomplete, first)
    }
}
