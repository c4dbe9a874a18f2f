//! Timers: retries of failed binds and evictions, nodes where no GPU could be reserved for sharing, stuck pods, quota schedules.

use crate::engine::input::{Name, Time};
use crate::engine::model::Model;
use crate::engine::model::epochs::Change;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::pod::{Assumed, State, Status, shown};

impl Model {
    pub(super) fn unbound(&mut self, uid: &Name, retry_at: Option<Time>) {
        let Some(id) = self.pods.id(uid) else { return };
        let nodes = self.nodes_of(id);
        // Otherwise the pod is on the node of its bind request, and is pending when that is deleted.
        if self.pods[id].assumed == Assumed::Bound {
            self.settle(id, State::nowhere(Status::Pending));
            self.pods[id].assumed = Assumed::Nothing;
            if let Some(pod_group) = self.pods[id].pod_group {
                self.left(pod_group);
                if self.pods[id].member.is_some() && !self.names_pod_set(&self.pods[id]) {
                    // It was in a pod set only while it was charged (`join_pod_set`): leaves it.
                    self.change_pod_group(pod_group, |_| {});
                }
            }
        }
        // Its eviction may still fail: then it is pending.
        if self.pods[id].assumed == Assumed::Evicted && self.pods[id].input.node.is_none() {
            self.settle(id, State::nowhere(self.pods[id].state.status));
        }
        self.drop_empty_nodes(&nodes);
        self.set_retry(id, retry_at);
    }

    /// Whether and from when a pod may be bound or evicted again.
    pub(super) fn set_retry(&mut self, id: PodId, from: Option<Time>) {
        if let Some(before) = std::mem::replace(&mut self.pods[id].retry_at, from) {
            self.retry_at.remove(&(before, id));
        }
        self.retry_at.extend(from.map(|at| (at, id)));
        self.mark_changed(true);
    }

    pub(super) fn sharing_failed(&mut self, node: &Name, retry_at: Time) {
        let Some(id) = self.nodes.id(node) else { return };
        self.set_sharing(id, Some(retry_at));
    }

    /// Whether and from when GPUs of a node are opened for sharing again.
    pub(super) fn set_sharing(&mut self, id: NodeId, from: Option<Time>) {
        if let Some(before) = std::mem::replace(&mut self.nodes[id].sharing_from, from) {
            self.sharing_at.remove(&(before, id));
        }
        self.sharing_at.extend(from.map(|at| (at, id)));
        self.mark_changed(true);
    }

    pub(super) fn unevicted(&mut self, uid: &Name, retry_at: Option<Time>, now: Time) {
        let Some(id) = self.pods.id(uid) else { return };
        if self.pods[id].assumed != Assumed::Evicted {
            return;
        }
        let hold = self.pods[id].state.hold.clone();
        let (status, assumed) = match shown(&self.pods[id].input, now, self.stuck_after) {
            // Its bind, which the API server does not show yet, has not failed.
            Status::Pending if hold.is_some() => (Status::Binding, Assumed::Bound),
            status => (status, Assumed::Nothing),
        };
        let state = State {
            status,
            evicted_from: None,
            leaving: false,
            plan: None,
            hold,
        };
        self.settle(id, state);
        self.pods[id].assumed = assumed;
        let preemptor = self.evicting.remove(uid).flatten();
        if let Some(preemptor) = preemptor.filter(|preemptor| self.pod_groups.contains(*preemptor)) {
            self.pod_groups[preemptor].evictions_for.failed();
        }
        self.budgets.refund(uid);
        self.set_retry(id, retry_at);
    }

    /// Fires the timers that are due: quota schedules, stuck pods, retries of pods and nodes.
    pub fn pass_time(&mut self, now: Time) {
        while let Some(&(at, id)) = self.schedules.first()
            && at <= now
        {
            self.follow_schedule(id, now);
            self.mark_changed(true);
        }
        while let Some(&(at, id)) = self.stuck_at.first()
            && at <= now
        {
            self.stuck_at.pop_first();
            if self.pods[id].state.status == Status::Releasing {
                // Its resources count as used again; spread constraints still leave it out (`State::terminates`).
                let state = State {
                    status: Status::Stuck,
                    leaving: false,
                    ..self.pods[id].state.clone()
                };
                self.settle(id, state);
                self.mark_changed(true);
            }
        }
        while let Some(&(at, id)) = self.retry_at.first()
            && at <= now
        {
            self.retry_at.pop_first();
            self.pods[id].retry_at = None;
            if let Some(pod_group) = self.pods[id].pod_group {
                self.pod_group_changed(pod_group);
            }
            self.mark_changed(true);
        }
        while let Some(&(at, id)) = self.sharing_at.first()
            && at <= now
        {
            self.set_sharing(id, None);
        }
    }

    /// The next instants that [`Model::pass_time`] waits for: (stuck, retry).
    #[must_use]
    pub fn timers(&self) -> (Option<Time>, Option<Time>) {
        let pods = self.retry_at.first().map(|(at, _)| *at);
        let nodes = self.sharing_at.first().map(|(at, _)| *at);
        (
            self.stuck_at.first().map(|(at, _)| *at),
            [pods, nodes].into_iter().flatten().min(),
        )
    }

    /// Marks everything derived from settings as out of date.
    pub fn settings_changed(&mut self, stuck_after: i64) {
        if self.stuck_after != stuck_after {
            self.stuck_after = stuck_after;
            self.restart_stuck_timers();
        }
        self.epochs.bump(Change::Settings);
        self.index.stop();
        self.mark_changed(true);
    }

    /// Sets the timers of terminating pods by the current setting. Stuck pods are releasing until [`Model::pass_time`] finds them stuck again.
    /// Nothing is assumed about pods that the API server shows as terminating.
    fn restart_stuck_timers(&mut self) {
        let stuck = self.pods.iter().filter(|(_, pod)| pod.state.status == Status::Stuck);
        let stuck: Vec<PodId> = stuck.map(|(id, _)| id).collect();
        for &id in &stuck {
            let state = self.pods[id].state.clone();
            let state = State {
                status: Status::Releasing,
                leaving: state.hold.is_some(),
                ..state
            };
            self.settle(id, state);
        }
        let waiting = std::mem::take(&mut self.stuck_at);
        for id in waiting.into_iter().map(|(_, id)| id).chain(stuck) {
            if let Some(since) = self.pods[id].input.releasing_since {
                self.stuck_at.insert((self.stuck_from(since), id));
            }
        }
    }
}
