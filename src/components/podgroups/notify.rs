//! Reports why a pod waits: its condition, and events about it and its group.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::waiting::{Said, WaitingPod};
use super::write_history::WriteHistory;
use super::{
    Obstacle, ObstacleKind, PodGroups, REASONS_AFTER, Target, UNREPORTED_AFTER, WAITING_AFTER, Write, status,
    unreported,
};
use crate::api::PodGroup;
use crate::api::names::reason;
use crate::clock;
use crate::components::bus::{GroupKey, Note, PodRef, Severity, Subject};
use crate::components::retry::Backoff;
use crate::components::{Context, pods};

/// A gang is not reported to lack pods until this time after its last pod was created, if that is longer than [`WAITING_AFTER`].
const GROWING_MAX: Duration = Duration::from_secs(10);
/// Wait before the reason of a waiting pod is looked up again: first and longest.
const LOOKS: Backoff = Backoff {
    first: UNREPORTED_AFTER,
    longest: Duration::from_secs(60),
};
/// Look-ups without a result before the pod is reported as unexplained: it will probably be bound soon.
const LOOKS_MAX: u32 = 2;

impl PodGroups {
    /// A pod of ours was created or changed: records whether it waits.
    pub(super) fn see_waiting(&mut self, pod: &Pod) {
        let pod_ref = pods::pod_ref(pod);
        if !waits(pod, &self.context.settings.own_pods) {
            return self.waits_no_more(&pod_ref);
        }
        if let Some(said) = self.no_shard_for(pod) {
            self.tell_no_shard(Subject::Pod(pod_ref.clone()), &said);
        }
        let new = self.waiting.see(&pod_ref);
        let said = self
            .waiting
            .get(&pod_ref.uid)
            .is_some_and(|waiting| waiting.said().is_some());
        if said {
            self.plan_reason(Target::Pod(pod_ref), REASONS_AFTER);
        } else if new {
            self.plan(Target::Pod(pod_ref), UNREPORTED_AFTER);
        }
    }

    pub(super) fn waits_no_more(&mut self, pod: &PodRef) {
        self.waiting.forget(&pod.uid);
        let target = Target::Pod(pod.clone());
        self.repeats.end(&target);
        self.failures.remove(&target);
    }

    /// An obstacle of a pod that no report names, or the end of one.
    pub(super) fn obstacle(&mut self, obstacle: Obstacle) {
        let Obstacle {
            pod,
            kind,
            reason,
            message,
        } = obstacle;
        let said = message.map(|message| Said { reason, message });
        // A place is announced in each cycle. What is known is compared first, as a stored pod must be decompressed.
        if let Some(said) = &said
            && (self.waiting.is_known(&pod, kind, said) || self.shown(&pod).is_none())
        {
            return;
        }
        // Evicted pods are usually gone soon.
        let after = match (&said, kind) {
            (Some(_), ObstacleKind::Place) | (None, _) => UNREPORTED_AFTER,
            (Some(_), ObstacleKind::SubGroup | ObstacleKind::Grouping | ObstacleKind::SetAside) => REASONS_AFTER,
        };
        if self.waiting.say(&pod, kind, said) {
            self.plan_reason(Target::Pod(pod), after);
        }
    }

    /// The stored pod, if it waits.
    fn shown(&self, pod: &PodRef) -> Option<Arc<Pod>> {
        let shown = self.stores.pods.get_same(&pod.namespace, &pod.name, Some(&pod.uid));
        shown.filter(|shown| waits(shown, &self.context.settings.own_pods))
    }

    /// The message for objects with these labels if no shard schedules their node pool.
    pub(super) fn no_shard(&self, labels: Option<&BTreeMap<String, String>>) -> Option<Said> {
        let pools = &self.context.settings.pools;
        let pool = pools.without_shard(labels)?;
        self.context.is_leading().then(|| unreported::no_shard(pool, pools))
    }

    /// The same for a waiting pod: its group's node pool counts, or its own while it names no existing group.
    fn no_shard_for(&self, pod: &Pod) -> Option<Said> {
        let group = self.named_group(pod);
        let labelled = group.as_ref().map_or(&pod.metadata, |group| &group.metadata);
        self.no_shard(labelled.labels.as_ref())
    }

    fn named_group(&self, pod: &Pod) -> Option<Arc<PodGroup>> {
        let group = pods::annotated_group(pod)?;
        self.group(&group)
    }

    pub(super) fn tell_no_shard(&self, subject: Subject, said: &Said) {
        self.bus
            .events
            .send_as_cluster(self.note(subject, Severity::Warning, said));
    }

    fn note(&self, subject: Subject, severity: Severity, said: &Said) -> Note {
        Note {
            subject,
            severity,
            reason: said.reason,
            message: said.message.clone(),
            source: self.context.settings.scheduler_name.clone(),
            annotations: BTreeMap::new(),
        }
    }

    /// A pod of another scheduler was created or changed.
    pub(super) fn of_another_scheduler(&mut self, pod: &Pod) {
        if !self.missing.is_empty() || !self.context.is_leading() {
            return;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let namespace = self.stores.namespaces.get("", namespace);
        let (settings, now) = (&self.context.settings, clock::now());
        if let Some(message) = self.others.message(pod, namespace.as_deref(), settings, now) {
            let subject = Subject::Pod(pods::pod_ref(pod));
            let reason = reason::OTHER_SCHEDULER;
            let note = self.note(subject, Severity::Warning, &Said { reason, message });
            self.bus.events.send_as_cluster(note);
        }
    }

    /// Reports what was not reported before the first lists were complete, or while another process led.
    pub(super) fn look_at_other_schedulers(&mut self) {
        for pod in self.stores.pods.objects() {
            if !pods::is_ours(&pod, &self.context.settings) {
                self.of_another_scheduler(&pod);
            }
        }
    }

    /// Reports the latest report on a group in an event, if it is new. Returns whether its condition stays as it is for a while.
    pub(super) fn report_group(&mut self, key: &GroupKey) -> bool {
        let (now, waiting) = (Instant::now(), self.reports.len());
        let Some(reported) = self.reports.get_mut(key) else {
            return false;
        };
        let message = reported.report.text(self.context.settings.messages);
        let history = self.histories.entry(key.clone()).or_default();
        let due = history.due(&message, now, waiting);
        if due > now {
            self.agenda.plan(&Target::Group(key.clone()), due);
            return true;
        }
        let new = history.is_news(&message);
        history.wrote(&message, now);
        if std::mem::take(&mut reported.news) {
            self.note_group(key);
            if new {
                self.repeats.begin(&Target::Group(key.clone()), now);
            }
        }
        false
    }

    fn note_group(&self, key: &GroupKey) {
        let Some(reported) = self.reports.get(key) else { return };
        let said = Said {
            reason: status::reason_of(&reported.report),
            message: reported.report.text(self.context.settings.messages),
        };
        let subject = Subject::PodGroup(key.clone());
        self.bus.events.send(self.note(subject, Severity::Normal, &said));
    }

    fn note_pod(&self, pod: &PodRef, said: &Said) {
        // The scheduler reports a place in each cycle, and the bind soon ends with an event of its own.
        if ![reason::PIPELINED, reason::BINDING].contains(&said.reason) {
            let subject = Subject::Pod(pod.clone());
            self.bus.events.send(self.note(subject, Severity::Warning, said));
        }
    }

    /// Repeats events about what still waits.
    pub(super) fn repeat_events(&mut self) {
        while let Some(target) = self.repeats.take(Instant::now()) {
            let again = match &target {
                Target::Group(key) if self.is_reported(key, &self.context_of(key)) => {
                    self.note_group(key);
                    true
                }
                Target::Group(_) => false,
                Target::Pod(pod) => match self.sentence(pod) {
                    Some((_, said, context)) if context.is_leading() => {
                        self.note_pod(pod, &said);
                        true
                    }
                    Some(_) | None => false,
                },
            };
            if !again {
                self.repeats.end(&target);
                self.forget_history(&target);
            }
        }
    }

    /// The next reason counts as new, also if it is the same: its event is repeated again.
    fn forget_history(&mut self, target: &Target) {
        match target {
            Target::Group(key) => {
                self.histories.remove(key);
            }
            Target::Pod(pod) => {
                if let Some(waiting) = self.waiting.get_mut(&pod.uid) {
                    waiting.history = WriteHistory::default();
                }
            }
        }
    }

    /// Whether a group that waits was reported in the term of its context, and this process leads.
    pub(super) fn is_reported(&self, key: &GroupKey, context: &Context) -> bool {
        let reported = self.reports.get(key);
        context.is_leading() && reported.is_some_and(|reported| context.is_of_term(reported.term))
    }

    /// Whether a group was reported in a term in which this process still leads. The group need not exist yet.
    fn is_of_present_term(&self, key: &GroupKey) -> bool {
        let terms = self.context.leading.borrow();
        let reported = self.reports.get(key);
        reported.is_none_or(|reported| terms.numbered(reported.term).is_some())
    }

    /// A waiting pod: as stored, why it waits, and the context of the write.
    fn sentence(&self, pod: &PodRef) -> Option<(Arc<Pod>, Said, Context)> {
        let shown = self.shown(pod)?;
        let waiting = self.waiting.get(&pod.uid)?;
        let group = self.named_group(&shown);
        let labelled = group.as_ref().map_or(&shown.metadata, |group| &group.metadata);
        let settings = &self.context.settings;
        let reported = waiting.reported_in().and_then(|group| self.group(group));
        // A group that is not written yet is in the node pool of its pod.
        let in_pool = reported.as_ref().map_or(labelled, |group| &group.metadata);
        let context = self.context.of_scope(&self.context.scope_of(in_pool.labels.as_ref()));
        let pool = settings.pools.without_shard(labelled.labels.as_ref());
        let why = || unreported::why(&shown, group.as_deref(), &self.known, &self.stores, settings);
        let said = if let Some(pool) = pool {
            Some(unreported::no_shard(pool, &settings.pools))
        } else if self.known.off.contains(&context.scope) {
            Some(unreported::switched_off(settings))
        } else {
            // Another process may have decided since an earlier term.
            let is_current = |group| self.is_of_present_term(group);
            let said = if waiting.reported_in().is_none_or(is_current) {
                waiting.said()
            } else {
                waiting.obstacle()
            };
            said.cloned().or_else(why)
        };
        let unexplained = || Said {
            reason: reason::NOT_DECIDED,
            message: "The scheduler has not decided about the pod yet".to_owned(),
        };
        let said = said.or_else(|| (waiting.looks > LOOKS_MAX).then(unexplained));
        Some((shown, said?, context))
    }

    /// Handles a waiting pod later again.
    fn look_again(&mut self, pod: &PodRef) {
        if let Some(waiting) = self.waiting.get_mut(&pod.uid) {
            waiting.looks += 1;
            let at = Instant::now() + LOOKS.wait(waiting.looks);
            self.agenda.plan(&Target::Pod(pod.clone()), at);
        }
    }

    /// Whether the scheduler reported the pod in a pod group that does not exist yet.
    fn reported_in_unknown_group(&self, pod: &PodRef) -> bool {
        let group = self.waiting.get(&pod.uid).and_then(WaitingPod::reported_in);
        group.is_some_and(|group| self.group(group).is_none())
    }

    /// Whether the PodGroup of a pod disables the condition on its pods: the one that the pod names, else that of the report. The condition about a
    /// sub-group that does not exist is written in any case, as by KAI.
    fn is_unmarked(&self, pod: &PodRef, shown: &Pod) -> bool {
        let waiting = self.waiting.get(&pod.uid);
        if waiting.is_some_and(WaitingPod::lacks_sub_group) {
            return false;
        }
        let reported = || self.group(waiting?.reported_in()?);
        let group = self.named_group(shown).or_else(reported);
        group.is_some_and(|group| group.spec.mark_unschedulable == Some(false))
    }

    /// Until when a pod is not reported because its gang is still being created.
    fn growing_until(&self, pod: &PodRef) -> Option<Instant> {
        let group = self.waiting.get(&pod.uid)?.reported_in()?;
        let reported = self.reports.get(group).filter(|reported| reported.report.not_ready)?;
        let settled = (reported.latest + WAITING_AFTER).min(reported.first + GROWING_MAX);
        Some(settled.max(reported.first + UNREPORTED_AFTER))
    }

    /// The write of a pod's condition, unless the same is stored, or it is not to be written.
    pub(super) fn write_pod(&mut self, pod: &PodRef) -> Option<Write> {
        let now = Instant::now();
        let target = Target::Pod(pod.clone());
        if self.shown(pod).is_none() {
            self.waits_no_more(pod);
            return None;
        }
        if let Some(until) = self.growing_until(pod).filter(|until| *until > now) {
            self.agenda.plan(&target, until);
            return None;
        }
        let Some((shown, said, context)) = self.sentence(pod) else {
            self.look_again(pod);
            return None;
        };
        if !context.is_leading() {
            // The pod group shows the node pool, and may not be written yet.
            if self.reported_in_unknown_group(pod) {
                self.look_again(pod);
            }
            return None;
        }
        let waiting = self.waiting.get_mut(&pod.uid)?;
        let (history, message) = (&mut waiting.history, &said.message);
        let due = history.due(message, now, self.reports.len());
        if due > now {
            self.agenda.plan(&target, due);
            return None;
        }
        let (new, other) = (history.is_news(message), history.is_other(message));
        history.wrote(message, now);
        if other {
            self.note_pod(pod, &said);
        }
        if new {
            self.repeats.begin(&target, now);
        }
        if self.is_unmarked(pod, &shown) {
            return None;
        }
        let patch = status::pod_patch(&shown, &said)?;
        let pod = pod.clone();
        Some(async move { status::write_pod(&context, &pod, patch).await }.boxed())
    }
}

/// Whether a pod waits for a node, and for nothing else before that.
fn waits(pod: &Pod, own: &pods::OwnPods) -> bool {
    !pods::has_gates(pod)
        && !pods::is_bound(pod)
        && !pods::is_finished(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && own.role(pod) == pods::Role::Workload
}

#[cfg(test)]
mod tests;
