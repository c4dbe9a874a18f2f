//! The report about one pending pod group, made from the findings of a cycle.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::decision::{Detail, GroupReport, NodeFigures, QueueFigures, Reason, ReasonCode, Verdict};
use crate::engine::input::Name;
use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, PodId};
use crate::engine::model::pod::Status;
use crate::engine::model::pod_group::{Member, PodGroup, PodSet};
use crate::engine::placement::domains::Refused;
use crate::engine::policy::Policy;

use super::refusal::PodProblem;

/// Reasons that a report lists. Each domain of a topology that was tried may have one.
pub(crate) const REASONS_LISTED: usize = 100;
/// Bytes of their messages. They are written to the pod group's status, and the API server refuses an object of more than 1.5 MiB.
pub(crate) const REASON_BYTES: usize = 32_768;
/// Between the texts about one domain of a topology. No name of a resource or a domain contains it.
pub(super) const BETWEEN: &str = ", ";

/// The findings of a cycle about a pod group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Reasons for the whole pod group.
    found: Vec<Found>,
    /// Further reasons, which are only counted.
    unlisted: usize,
    /// Reasons for single pods.
    pub pods: BTreeMap<PodId, Arc<PodProblem>>,
    /// Members whose pods no domain of their topology takes, how many are to be placed, and why.
    domains: Vec<(Member, usize, Refused)>,
}

/// A reason for a pod group.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    /// Said.
    Said(Reason),
    /// A pod fitted nowhere; put into words when a report is written.
    NoPlace {
        /// The pod.
        pod: PodId,
        /// Pods of its pod set that were placed before it.
        placed: usize,
        /// Its pod group had met its minimum already.
        growing: bool,
        /// Why.
        problem: Arc<PodProblem>,
    },
}

impl Findings {
    /// Adds a reason for the pod group.
    pub fn add(&mut self, code: ReasonCode, message: String, detail: Detail) {
        self.found.push(Found::Said(Reason { code, message, detail }));
    }

    /// Whether there are as many reasons as a report lists.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.found.len() >= REASONS_LISTED
    }

    /// Counts a reason that no report lists.
    pub fn add_unlisted(&mut self) {
        self.unlisted += 1;
    }

    /// Whether a reason with this message was added.
    #[must_use]
    pub fn says(&self, message: &str) -> bool {
        let said = |found: &Found| matches!(found, Found::Said(reason) if reason.message == message);
        self.found.iter().any(said)
    }

    /// The first limit or quota that blocked it, and the queue's figures.
    #[must_use]
    pub fn gate(&self) -> Option<(ReasonCode, &QueueFigures)> {
        self.found.iter().find_map(|found| match found {
            Found::Said(reason) => Some((reason.code, reason.detail.queue()?)),
            Found::NoPlace { .. } => None,
        })
    }

    /// The first pod that fitted nowhere, how many pods of its pod set had been placed, and why.
    #[must_use]
    pub fn first_failure(&self) -> Option<(PodId, usize, &PodProblem)> {
        self.found.iter().find_map(|found| match found {
            Found::Said(_) => None,
            Found::NoPlace {
                pod, placed, problem, ..
            } => Some((*pod, *placed, &**problem)),
        })
    }

    /// Members whose pods fit no topology domain, the number of pods to place, and why.
    #[must_use]
    pub fn domains(&self) -> &[(Member, usize, Refused)] {
        &self.domains
    }

    /// Adds that no domain takes the pods of a member.
    pub(super) fn note_domains(&mut self, member: Member, wanted: usize, refused: &Refused) {
        self.domains.push((member, wanted, refused.clone()));
    }

    /// Whether a reason of that kind was added.
    #[must_use]
    pub fn names(&self, code: ReasonCode) -> bool {
        let named = |found: &Found| matches!(found, Found::Said(reason) if reason.code == code);
        self.found.iter().any(named)
    }

    /// The reasons with their messages, up to the limits.
    #[must_use]
    pub fn reasons(&self, model: &Model) -> Vec<Reason> {
        let say = |found: &Found| match found {
            Found::Said(reason) => Some(reason.clone()),
            Found::NoPlace {
                pod,
                placed,
                growing,
                problem,
            } => Some(Reason {
                code: ReasonCode::PodSchedulingErrors,
                message: no_place(model, *pod, *placed, *growing, problem)?,
                detail: Detail::Nodes(Box::new(node_figures(model, *pod, *placed, problem)?)),
            }),
        };
        let (mut reasons, mut left, mut listed) = (Vec::new(), REASON_BYTES, 0);
        for found in self.found.iter().take(REASONS_LISTED) {
            if left == 0 {
                break;
            }
            listed += 1;
            if let Some(mut reason) = say(found) {
                reason.message.truncate(reason.message.floor_char_boundary(left));
                left -= reason.message.len();
                reasons.push(reason);
            }
        }
        let more = self.found.len() - listed + self.unlisted;
        if more > 0 {
            reasons.push(Reason {
                code: ReasonCode::PodSchedulingErrors,
                message: format!("reasons that are not listed: {more}"),
                detail: Detail::Text,
            });
        }
        reasons
    }

    /// Adds what was found when a pod fitted nowhere, `placed` pods of its pod set after the attempt began.
    pub fn pod_failed(&mut self, model: &Model, pod: PodId, placed: usize, problem: &Arc<PodProblem>) {
        self.pods.insert(pod, problem.clone());
        let pod_set = model.pods()[pod].member;
        let pod_set = pod_set.and_then(|member| model.pod_group_of(pod)?.pods(member));
        self.found.push(Found::NoPlace {
            pod,
            placed,
            growing: pod_set.is_some_and(|pod_set| pod_set.active_used() >= pod_set.min),
            problem: problem.clone(),
        });
    }
}

fn node_figures(model: &Model, pod: PodId, placed: usize, problem: &PodProblem) -> Option<NodeFigures> {
    let (pod_group, member) = (model.pod_group_of(pod)?, model.pods()[pod].member?);
    let counts = problem.counts.iter();
    Some(NodeFigures {
        pod: model.pods()[pod].input.pod.clone(),
        sub_group: pod_group.tree[member as usize].name.as_str().into(),
        placed,
        required: pod_group.pods(member)?.min,
        headline: problem.headline.clone(),
        refusals: counts.map(|(refusal, nodes)| (refusal.to_string(), *nodes)).collect(),
    })
}

fn no_place(model: &Model, pod: PodId, placed: usize, growing: bool, problem: &PodProblem) -> Option<String> {
    let pod_group = model.pod_group_of(pod)?;
    let member = model.pods()[pod].member?;
    let pod = &model.pods()[pod];
    let (name, pods) = (&pod_group.tree[member as usize].name, pod_group.pods(member)?);
    let due = problem.text();
    let single = pod_group.pod_sets().all(|(_, pods)| pods.min <= 1);
    Some(if single || growing {
        format!(
            "Resources were not found for pod {}/{} due to: {due}",
            pod.input.pod.namespace, pod.input.pod.name
        )
    } else if pod_group.is_implicit(member) {
        format!(
            "Resources were found for {placed} pods while {} are required for gang scheduling. Additional pods cannot be scheduled due to: {due}",
            pods.min
        )
    } else {
        format!(
            "Resources were found for {placed} pods from all sub-groups while sub-group {name} requires {} pods for gang scheduling. Additional pods cannot be scheduled in this sub-group due to: {due}",
            pods.min
        )
    })
}

/// All reasons in one text.
fn message(reasons: &[Reason]) -> String {
    let headline = match reasons {
        [only] => only.code.as_str(),
        _ => "Unable to schedule podgroup",
    };
    let mut distinct: BTreeMap<&str, usize> = BTreeMap::new();
    for Reason { message, detail, .. } in reasons {
        let texts: Vec<&str> = match detail {
            // What a domain lacks is counted resource by resource.
            Detail::Domain(_) => message.split(BETWEEN).collect(),
            Detail::Text | Detail::Queue(_) | Detail::Nodes(_) => vec![&**message],
        };
        for text in texts {
            *distinct.entry(text).or_insert(0) += 1;
        }
    }
    if distinct.is_empty() {
        return headline.to_owned();
    }
    let mut sorted: Vec<_> = distinct
        .into_iter()
        .map(|(text, count)| {
            if count > 1 {
                format!("{count} {text}")
            } else {
                text.to_owned()
            }
        })
        .collect();
    sorted.sort();
    format!("{headline}: {}.", sorted.join(". \n"))
}

/// The report about a pod group with pending pods. `None` for one that is marked unschedulable until its node pool changes: its last report stays valid.
#[must_use]
pub fn report(
    model: &Model,
    policy: &Policy,
    id: PodGroupId,
    findings: &Findings,
    verdict: impl FnOnce() -> Verdict,
) -> Option<GroupReport> {
    let pod_group = &model.pod_groups()[id];
    let input = pod_group.input.as_ref().filter(|input| !input.backed_off)?;
    let prefix = if input.back_off {
        format!("Node-Pool '{}': ", policy.node_pool)
    } else {
        String::new()
    };
    if !pod_group.ready() {
        return Some(GroupReport {
            group: pod_group.key.clone(),
            not_ready: true,
            partly_runs: false,
            reasons: Vec::new(),
            verdict: verdict(),
            message: not_ready_text(pod_group),
            pods: Vec::new(),
        });
    }
    let reasons = findings.reasons(model);
    let message = format!("{prefix}{}", message(&reasons));
    let of_the_group: Name = if reasons.is_empty() {
        format!("{prefix}Unable to schedule pod").into()
    } else {
        message.as_str().into()
    };
    let own = |pod: PodId| match findings.pods.get(&pod) {
        Some(problem) => Name::from(format!("{prefix}{}{}", problem.text(), problem.nodes)),
        None => of_the_group.clone(),
    };
    let waiting = pod_group
        .pod_sets()
        .flat_map(|(_, pods)| &pods.pods)
        .copied()
        .filter(|pod| model.pods()[*pod].state.status == Status::Pending);
    let pods = waiting
        .map(|pod| (model.pods()[pod].input.pod.clone(), own(pod)))
        .collect();
    Some(GroupReport {
        group: pod_group.key.clone(),
        not_ready: false,
        partly_runs: pod_group.active().iter().sum::<usize>() > 0,
        verdict: verdict(),
        reasons,
        message,
        pods,
    })
}

/// Sub-groups without enough pods that a message lists. A report is made in each cycle in which one changes.
pub const SUB_GROUPS_LISTED: usize = 16;

/// The message about missing pods.
fn not_ready_text(pod_group: &PodGroup) -> String {
    let mut text = "Job is not ready for scheduling.".to_owned();
    let lacking = |pods: &&PodSet| pods.ungated() < pods.min;
    let mut all = pod_group.pod_sets().filter(|(_, pods)| lacking(pods));
    for (member, pods) in all.by_ref().take(SUB_GROUPS_LISTED) {
        let name = &pod_group.tree[member as usize].name;
        let (min, alive, gated) = (pods.min, pods.alive(), pods.with(Status::Gated));
        if name == "default" {
            text += &format!(" Waiting for {min} pods, currently {alive} exist, {gated} are gated");
        } else {
            text +=
                &format!(" Waiting for {min} pods for SubGroup {name}, currently {alive} exist, {gated} are gated.");
        }
    }
    match all.count() {
        0 => {}
        1 => text += " One more SubGroup lacks pods.",
        more => text += &format!(" {more} more SubGroups lack pods."),
    }
    text
}
