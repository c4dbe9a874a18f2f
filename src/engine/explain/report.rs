//! Why one pod group waits: what was found during the cycle, put into a report.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::decision::{GroupReport, PodRef, QueueFigures, Reason, ReasonCode};
use crate::engine::model::Model;
use crate::engine::model::gang::{Gang, PodSet};
use crate::engine::model::ids::{GangId, TaskId};
use crate::engine::model::task::Status;
use crate::engine::policy::Policy;

use super::refusal::PodProblem;

/// What a cycle found out about a gang.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Reasons for the whole gang.
    pub reasons: Vec<Reason>,
    /// Reasons for single pods.
    pub pods: BTreeMap<TaskId, Arc<PodProblem>>,
}

impl Findings {
    /// Adds a reason for the gang.
    pub fn add(&mut self, code: ReasonCode, message: String, queue: Option<QueueFigures>) {
        self.reasons.push(Reason {
            code,
            message,
            queue: queue.map(Box::new),
        });
    }

    /// Adds what was found when a pod fitted nowhere, `placed` pods of its pod set after the attempt began.
    pub fn pod_failed(&mut self, model: &Model, task: TaskId, placed: usize, problem: &Arc<PodProblem>) {
        self.pods.insert(task, problem.clone());
        let pod = &model.tasks[task];
        let Some(gang) = pod.gang.map(|gang| &model.gangs[gang]) else {
            return;
        };
        let Some((name, pods)) = pod
            .member
            .and_then(|member| Some((&gang.tree[member as usize].name, gang.pods(member)?)))
        else {
            return;
        };
        let due = problem.text();
        let single = gang.pod_sets().all(|(_, pods)| pods.min <= 1);
        let message = if single || pods.active_used() >= pods.min {
            format!(
                "Resources were not found for pod {}/{} due to: {due}",
                pod.input.namespace, pod.input.name
            )
        } else if gang.pod_sets().count() == 1 && &**name == "default" {
            format!(
                "Resources were found for {placed} pods while {} are required for gang scheduling. Additional pods cannot be scheduled due to: {due}",
                pods.min
            )
        } else {
            format!(
                "Resources were found for {placed} pods from all sub-groups while sub-group {name} requires {} pods for gang scheduling. Additional pods cannot be scheduled in this sub-group due to: {due}",
                pods.min
            )
        };
        self.add(ReasonCode::PodSchedulingErrors, message, None);
    }

    /// All reasons in one text.
    #[must_use]
    pub fn message(&self) -> String {
        let headline = match &*self.reasons {
            [only] => only.code.as_str(),
            _ => "Unable to schedule podgroup",
        };
        let mut distinct: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in &self.reasons {
            *distinct.entry(&reason.message).or_insert(0) += 1;
        }
        if distinct.is_empty() {
            return headline.to_owned();
        }
        let mut lines: Vec<_> = distinct
            .into_iter()
            .map(|(text, count)| {
                if count > 1 {
                    format!("{count} {text}")
                } else {
                    text.to_owned()
                }
            })
            .collect();
        lines.sort();
        format!("{headline}: {}.", lines.join(". \n"))
    }
}

/// A pod as decisions name it.
#[must_use]
pub fn pod_ref(model: &Model, task: TaskId) -> PodRef {
    let input = &model.tasks[task].input;
    PodRef {
        uid: input.uid.clone(),
        namespace: input.namespace.clone(),
        name: input.name.clone(),
    }
}

/// The report about a gang with pods that wait.
#[must_use]
pub fn report(model: &Model, policy: &Policy, id: GangId, findings: &Findings) -> Option<GroupReport> {
    let gang = &model.gangs[id];
    let input = gang.input.as_ref()?;
    let prefix = if input.back_off {
        format!("Node-Pool '{}': ", policy.node_pool)
    } else {
        String::new()
    };
    if !gang.ready() {
        return Some(GroupReport {
            group: gang.key.clone(),
            not_ready: true,
            partly_runs: false,
            reasons: Vec::new(),
            message: not_ready_text(gang),
            pods: Vec::new(),
        });
    }
    let message = findings.message();
    let own = |task: TaskId| match findings.pods.get(&task) {
        Some(problem) => problem.text(),
        None if findings.reasons.is_empty() => "Unable to schedule pod".to_owned(),
        None => message.clone(),
    };
    let waiting = gang
        .pod_sets()
        .flat_map(|(_, pods)| &pods.tasks)
        .copied()
        .filter(|task| model.tasks[*task].state.status == Status::Pending);
    let pods = if input.mark_unschedulable {
        waiting
            .map(|task| (pod_ref(model, task), format!("{prefix}{}", own(task))))
            .collect()
    } else {
        Vec::new()
    };
    Some(GroupReport {
        group: gang.key.clone(),
        not_ready: false,
        partly_runs: gang.active().iter().sum::<usize>() > 0,
        reasons: findings.reasons.clone(),
        message: format!("{prefix}{message}"),
        pods,
    })
}

/// Which pods are missing.
fn not_ready_text(gang: &Gang) -> String {
    let mut text = "Job is not ready for scheduling.".to_owned();
    let lacking = |pods: &&PodSet| pods.alive() - pods.with(Status::Gated) < pods.min;
    for (member, pods) in gang.pod_sets().filter(|(_, pods)| lacking(pods)) {
        let name = &gang.tree[member as usize].name;
        let (min, alive, gated) = (pods.min, pods.alive(), pods.with(Status::Gated));
        if &**name == "default" {
            text += &format!(" Waiting for {min} pods, currently {alive} exist, {gated} are gated");
        } else {
            text +=
                &format!(" Waiting for {min} pods for SubGroup {name}, currently {alive} exist, {gated} are gated.");
        }
    }
    text
}
