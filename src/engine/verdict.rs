//! Why a pod group waits, in one sentence that names what would have to change, and in evidence after it.
//!
//! A verdict is computed only for a report: the scan of nodes and of holders adds nothing to cycles whose reports stay the same. Pods with equal
//! requests share a scan.

mod evictions;
mod gangs;
mod held;
mod holders;
mod holds;
mod obstacles;
mod places;
mod queues;
mod scan;
mod topologies;
mod words;

use std::collections::BTreeMap;

use super::actions::context::CycleContext;
use super::decision::{Cause, Verdict};
use super::explain::refusal::PodProblem;
use super::explain::report::Findings;
use super::fairshare::tree::schedulable_queue;
use super::input::Time;
use super::model::Model;
use super::model::ids::{ClassId, PodGroupId, QueueId, ShapeId};
use super::model::pod::{Pod, Status};
use super::model::pod_group::Member;
use super::placement::choose::{Context, Scope};
use super::placement::neighbours::{Spreading, concerned};
use holders::Answers;
use places::Unplaced;
use scan::{NodeScan, scan};
use topologies::OutOfDomains;
use words::{instant, one_sentence};

/// Key of a scan that pods share: their class and shape, and for requests by GPU memory, whose limit and quota count node by node, their queue and
/// whether they are preemptible.
type ScanKey = (ClassId, ShapeId, Option<(Option<QueueId>, bool)>);

/// Computes the verdicts of one cycle.
pub struct Verdicts<'a> {
    model: &'a Model,
    context: CycleContext<'a>,
    scans: BTreeMap<ScanKey, NodeScan>,
    answers: Answers,
    queue_holders: queues::Holders,
    /// Nodes scanned so far.
    scanned: usize,
}

impl<'a> Verdicts<'a> {
    /// After a cycle has decided.
    #[must_use]
    pub fn new(model: &'a Model, context: CycleContext<'a>) -> Self {
        Self {
            model,
            context,
            scans: BTreeMap::new(),
            answers: Answers::default(),
            queue_holders: queues::Holders::new(),
            scanned: 0,
        }
    }

    /// How many nodes and workloads were looked at, a measure of the work done.
    #[must_use]
    pub fn looked_at(&self) -> usize {
        self.scanned + self.answers.looked_at()
    }

    /// The verdict on a pod group that waits, and when it ends by itself.
    pub fn verdict(&mut self, pod_group: PodGroupId, findings: &Findings) -> (Verdict, Option<Time>) {
        let entry = &self.model.pod_groups()[pod_group];
        if !entry.ready() {
            return (gangs::not_ready(self.model, pod_group), None);
        }
        if let Some(verdict) = self.standing(pod_group) {
            return (verdict, None);
        }
        if let Some((code, figures)) = findings.gate() {
            return (
                queues::gate(self.model, pod_group, code, figures, &mut self.queue_holders),
                None,
            );
        }
        let (mut verdict, until) = self.found(pod_group, findings);
        let entry = &self.model.pod_groups()[pod_group];
        let running: usize = entry.active().iter().sum();
        if running > 0 {
            let has = if running == 1 {
                "pod of it has"
            } else {
                "pods of it have"
            };
            verdict
                .evidence
                .push(format!("{running} {has} a place already, this is about further ones"));
        }
        (verdict, until)
    }

    /// Why a pod group is not tried at all.
    fn standing(&self, pod_group: PodGroupId) -> Option<Verdict> {
        let entry = &self.model.pod_groups()[pod_group];
        let input = entry.input.as_ref()?;
        if let Some(hold) = &input.held {
            return Some(holds::verdict(input, hold, entry.active().iter().sum()));
        }
        if let Some(what) = &entry.broken {
            let sentence = format!(
                "The sub-groups of the pod group contradict each other: {}",
                one_sentence(what)
            );
            return Some(Verdict::new(Cause::SubGroups, sentence));
        }
        if schedulable_queue(self.model, pod_group).is_none() || (entry.charged_elsewhere && input.refused.is_none()) {
            return Some(queues::closed(
                self.model,
                &self.context.policy.node_pool,
                self.model.queues().id(&input.queue),
                &input.queue,
            ));
        }
        let why = input.refused.as_ref()?;
        Some(Verdict::new(Cause::Refused, one_sentence(why)))
    }

    /// The result of the attempt to place it.
    fn found(&mut self, pod_group: PodGroupId, findings: &Findings) -> (Verdict, Option<Time>) {
        let entry = &self.model.pod_groups()[pod_group];
        let failed = findings.first_failure();
        if let Some((pod, ..)) = failed
            && let Some(verdict) = places::never(self.model, pod)
        {
            return (verdict, None);
        }
        let out = |member: Member, wanted: usize, refused| OutOfDomains {
            model: self.model,
            pod_group,
            member,
            wanted,
            refused,
        };
        if let Some((member, wanted, refused)) = findings.domains().first() {
            if let Some(verdict) = out(*member, *wanted, Some(refused)).verdict() {
                return (verdict, None);
            }
        } else if let Some((pod, ..)) = failed {
            let member = (0..entry.tree.len() as Member).find(|member| {
                let bound = entry.tree[*member as usize].topology.as_ref();
                let own = self.model.pods()[pod].member;
                bound.is_some_and(|bound| bound.required.is_some())
                    && own.is_some_and(|own| entry.is_under(own, *member))
            });
            let wanted = self.model.next_chunk(pod_group, self.context.now).len();
            if self.context.policy.plugins.topology
                && let Some(member) = member
                && let Some(verdict) = out(member, wanted, None).verdict()
            {
                return (verdict, None);
            }
        }
        let chunk = self.model.next_chunk(pod_group, self.context.now);
        let nothing = PodProblem::default();
        let failed = failed.or_else(|| chunk.first().map(|pod| (*pod, 0, &nothing)));
        let Some((pod, placed, problem)) = failed else {
            return self.unknown(pod_group);
        };
        if let Some(verdict) = places::never(self.model, pod) {
            return (verdict, None);
        }
        let entry = &self.model.pods()[pod];
        let by_memory = self.model.shapes()[entry.shape].gpu.memory > 0;
        let payer = by_memory.then(|| {
            let pod_group = &self.model.pod_groups()[pod_group];
            let preemptible = pod_group.input.as_ref().is_some_and(|input| input.preemptible);
            (pod_group.queue, preemptible)
        });
        let kind = (entry.class, entry.shape, payer);
        // For some of these the placement of other pods matters, so their scan holds for no other pod.
        if concerned(self.model, pod) || !self.scans.contains_key(&kind) {
            let spreading = Spreading::of(self.model, pod).filter(|_| self.context.policy.plugins.topology_spread);
            let context = Context {
                policy: self.context.policy,
                scorers: self.context.scorers,
                scope: Scope::default(),
                spreading: spreading.as_ref(),
                rejected: None,
            };
            self.scanned += self.model.nodes().iter().count();
            self.scans.insert(kind, scan(self.model, context, pod));
        }
        let unplaced = Unplaced {
            model: self.model,
            context: self.context,
            pod_group,
            pod,
            placed,
            problem,
            scan: &self.scans[&kind],
            answers: &self.answers,
        };
        unplaced.verdict()
    }

    /// It was not tried: its pods may not be tried yet, or the action stopped before it.
    fn unknown(&self, pod_group: PodGroupId) -> (Verdict, Option<Time>) {
        let pods = self.model.pod_groups()[pod_group].pods.iter();
        let pods = pods.map(|pod| &self.model.pods()[*pod]);
        // The retry of a pod that has a place is that of its eviction.
        let pending = |pod: &&Pod| pod.state.status == Status::Pending;
        let retry = pods.filter(pending).filter_map(|pod| pod.retry_at).max();
        match retry.filter(|retry| *retry > self.context.now) {
            Some(retry) => {
                let at = instant(retry, self.context.now);
                let sentence = format!("The last bind failed; it is tried again at {at}");
                (Verdict::new(Cause::BindRetry, sentence), Some(retry))
            }
            None => (Verdict::new(Cause::Unknown, "It has not been tried yet"), None),
        }
    }
}

#[cfg(test)]
mod tests;
