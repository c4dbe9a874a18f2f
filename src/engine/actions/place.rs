//! Placing the next pods of one gang, all or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::decision::{Detail, ReasonCode};
use crate::engine::explain::refusal::{PodProblem, examine, too_large};
use crate::engine::fairshare::gates;
use crate::engine::fairshare::{largest_gpu, wanted};
use crate::engine::input::Name;
use crate::engine::model::claims::{Grants, Used};
use crate::engine::model::class::NodeSet;
use crate::engine::model::gang::{Kind, Member};
use crate::engine::model::ids::{GangId, NodeId, TaskId};
use crate::engine::model::numa::ZoneShare;
use crate::engine::model::task::{Extras, Place, Status};
use crate::engine::model::volumes::Promises;
use crate::engine::placement::choose::{Context, Scope, best_node};
use crate::engine::placement::claims::{self, Given};
use crate::engine::placement::domains::{Domains, Question, Refused, domains};
use crate::engine::placement::filter::task_fits;
use crate::engine::placement::gpu;
use crate::engine::placement::neighbours::{Spreading, concerned};
use crate::engine::placement::numa::{self, Fit};
use crate::engine::placement::preferred::Preferred;
use crate::engine::placement::volumes;

use super::session::Session;

/// For real, or to see what would be.
#[derive(Clone, Copy, Debug)]
pub enum Mode<'a> {
    /// Pods are placed now where they fit now; findings are noted.
    Real,
    /// Pods are only planned, on these nodes.
    Simulate(&'a NodeSet),
}

impl Session<'_> {
    /// Places pods of a gang, all or none. On failure the model is as before.
    pub fn place(&mut self, gang: GangId, tasks: &[TaskId], mode: Mode) -> bool {
        if tasks.is_empty() || self.gate_closed(gang, tasks, mode) {
            return false;
        }
        self.work.groups_tried += 1;
        for &task in tasks {
            let class = self.model.tasks[task].class;
            self.model.refresh_class(class);
        }
        let scope = Scope {
            among: match mode {
                Mode::Real => None,
                Mode::Simulate(nodes) => Some(nodes),
            },
            preferred: None,
        };
        let top = self.model.gangs[gang].top();
        self.place_member(gang, top, tasks, mode, scope)
    }

    /// The queue has no room for all of it.
    fn gate_closed(&mut self, gang: GangId, tasks: &[TaskId], mode: Mode) -> bool {
        let entry = &self.model.gangs[gang];
        let (Some(queue), Some(input)) = (entry.queue, &entry.input) else {
            return true;
        };
        if !self.rules.shares {
            return false;
        }
        let preemptible = input.preemptible;
        let asked = wanted(self.model, tasks, largest_gpu(self.model));
        let Some(closed) = gates::check(self.model, queue, preemptible, &asked) else {
            return false;
        };
        if matches!(mode, Mode::Real) {
            let message = gates::message(self.model, closed, &asked);
            let figures = gates::figures(self.model, closed, &asked, preemptible);
            self.note(gang)
                .add(closed.code, message, Detail::Queue(Box::new(figures)));
        }
        true
    }

    /// Places a member's pods in the first domain that takes them, if a topology says where they must be or had better be.
    fn place_member(&mut self, gang: GangId, member: Member, tasks: &[TaskId], mode: Mode, scope: Scope) -> bool {
        if tasks.is_empty() {
            return true;
        }
        let found = match self.domains_of(gang, member, tasks, scope) {
            Ok(None) => return self.place_in(gang, member, tasks, mode, scope),
            Ok(Some(found)) => found,
            Err(refused) => {
                if matches!(mode, Mode::Real) {
                    let mut findings = std::mem::take(self.note(gang));
                    findings.domains_refused(self.model, gang, member, tasks.len(), &refused);
                    *self.note(gang) = findings;
                }
                return false;
            }
        };
        let (topology, domains) = found;
        let preferred = (!domains.preferred.is_empty())
            .then(|| Preferred::of(&self.model.topologies[&topology], &domains.preferred));
        for &domain in &domains.order {
            let nodes = self.model.topologies[&topology].node_set(domain, scope.among);
            let inside = Scope {
                among: Some(&nodes),
                preferred: preferred.as_ref().or(scope.preferred),
            };
            if self.place_in(gang, member, tasks, mode, inside) {
                return true;
            }
        }
        false
    }

    /// The domains that a member's pods may go to. Pods of it that hold a place bind the others to their domain.
    fn domains_of(
        &self,
        gang: GangId,
        member: Member,
        tasks: &[TaskId],
        scope: Scope,
    ) -> Result<Option<(Name, Domains)>, Refused> {
        let entry = &self.model.gangs[gang];
        let Some(constraint) = &entry.tree[member as usize].topology else {
            return Ok(None);
        };
        if !self.policy.plugins.topology {
            return Ok(None);
        }
        let placed = entry.tasks.iter().filter(|task| {
            let task = &self.model.tasks[**task];
            task.state.status.active_allocated() && task.member.is_some_and(|own| entry.is_under(own, member))
        });
        let with: Vec<NodeId> = placed.filter_map(|task| self.model.node_of(*task)).collect();
        let question = Question {
            constraint,
            tasks,
            with: &with,
            among: scope.among,
        };
        domains(self.model, &question, &mut self.surveys.borrow_mut())
    }

    fn place_in(&mut self, gang: GangId, member: Member, tasks: &[TaskId], mode: Mode, scope: Scope) -> bool {
        let mark = self.model.mark();
        let placed = match &self.model.gangs[gang].tree[member as usize].kind {
            Kind::Pods(_) => self.place_pods(gang, tasks, mode, scope),
            Kind::Set { .. } => {
                let entry = &self.model.gangs[gang];
                let order = entry.in_order(member, &entry.active());
                let mut each = self.tasks_below(gang, member, tasks);
                order.into_iter().all(|below| {
                    let theirs = each.remove(&below).unwrap_or_default();
                    self.place_member(gang, below, &theirs, mode, scope)
                })
            }
        };
        if !placed {
            self.rollback(mark);
            if let Some(preferred) = scope.preferred {
                preferred.forget();
            }
        }
        placed
    }

    /// Those of the pods that are under each member of a set.
    fn tasks_below(&self, gang: GangId, set: Member, tasks: &[TaskId]) -> BTreeMap<Member, Vec<TaskId>> {
        let entry = &self.model.gangs[gang];
        let mut each: BTreeMap<Member, Vec<TaskId>> = BTreeMap::new();
        for &task in tasks {
            let below = self.model.tasks[task].member.and_then(|own| entry.member_of(set, own));
            if let Some(below) = below {
                each.entry(below).or_default().push(task);
            }
        }
        each
    }

    fn place_pods(&mut self, gang: GangId, tasks: &[TaskId], mode: Mode, scope: Scope) -> bool {
        for (placed, &task) in tasks.iter().enumerate() {
            if let Err(problem) = self.place_task(task, mode, scope) {
                if let (Some(problem), Mode::Real) = (problem, mode) {
                    let mut findings = std::mem::take(self.note(gang));
                    findings.pod_failed(self.model, task, placed, &problem);
                    *self.note(gang) = findings;
                }
                return false;
            }
        }
        true
    }

    /// Places one pod. On failure says why, where anybody wants to know.
    fn place_task(&mut self, task: TaskId, mode: Mode, scope: Scope) -> Result<(), Option<Arc<PodProblem>>> {
        if let Some(text) = too_large(self.model, self.policy, task) {
            return Err(Some(Arc::new(PodProblem {
                headline: Some(text),
                ..PodProblem::default()
            })));
        }
        if let Some(text) = claims::refused(self.model, task) {
            return Err(Some(Arc::new(PodProblem {
                headline: Some(text),
                ..PodProblem::default()
            })));
        }
        let real = matches!(mode, Mode::Real);
        let pod = &self.model.tasks[task];
        let kind = (pod.class, pod.shape);
        let lasting = self.model.shapes[pod.shape].gpu.memory == 0 && !concerned(self.model, task);
        if real
            && lasting
            && let Some(problem) = self.hopeless.get(kind)
        {
            return Err(Some(problem.clone()));
        }
        let heeded = |_: &Spreading| self.policy.plugins.topology_spread;
        let spreading = Spreading::of(self.model, task).filter(heeded);
        let context = Context {
            policy: self.policy,
            scorers: &self.scorers,
            scope,
            spreading: spreading.as_ref(),
            closed: Some(&self.closed),
        };
        if !real && self.lost_kinds.iter().any(|(_, lost)| *lost == kind) {
            return Err(None);
        }
        if let Some(node) = best_node(self.model, context, task, &mut self.work) {
            self.assign(task, node, real);
            return Ok(());
        }
        if !real {
            let everywhere = self
                .model
                .gangs_of(task)
                .is_none_or(|gang| gang.tree.iter().all(|member| member.topology.is_none()));
            if lasting && everywhere {
                self.lost_kinds.push((self.model.mark(), kind));
            }
            return Err(None);
        }
        let problem = Arc::new(examine(self.model, context, task));
        if lasting && scope.among.is_none() {
            self.hopeless.add(self.model.mark(), kind, problem.clone());
        }
        Err(Some(problem))
    }

    /// Puts a pod on a node that suits it: now if it may and can, else as soon as there is room.
    fn assign(&mut self, task: TaskId, node: NodeId, real: bool) {
        let shape = &self.model.shapes[self.model.tasks[task].shape];
        let choice = shape.shared.then(|| {
            gpu::choose(self.model, task, &self.model.nodes[node], self.scorers.gpus).expect("the node suits the pod")
        });
        let now = real
            && match &choice {
                Some(choice) => !choice.wait,
                None => task_fits(self.model, task, node, true),
            };
        let (zones, now) = self.zones(task, node, now);
        let (volumes, now) = self.volumes(task, node, now);
        let (devices, now) = self.devices(task, node, now);
        let stays = !real
            && self.evicted_from(task, node)
            && self.model.tasks[task].state.hold.as_ref().is_some_and(|hold| {
                let held = hold.extras();
                // Where no alignment is foreseen there is nothing that could have changed.
                (zones.is_empty() || held.zones == zones) && held.volumes == volumes && held.devices == devices
            })
            && choice.as_ref().is_none_or(|choice| self.stays(task, choice));
        if stays {
            self.model.unevict(task);
            return;
        }
        let groups = choice.map_or_else(smallvec::SmallVec::new, |choice| {
            gpu::open(self.model, task, node, &choice)
        });
        let extras = Extras {
            groups,
            ungrouped: 0,
            zones,
            volumes,
            devices,
        };
        let place = Place::new(node, extras);
        if now {
            self.model.allocate(task, place);
        } else {
            self.model.pipeline(task, place);
        }
    }

    /// The devices that the pod gets for its claims, and whether they are free now.
    fn devices(&mut self, task: TaskId, node: NodeId, now: bool) -> (Option<Arc<Grants>>, bool) {
        if self.model.tasks[task].input.claims.is_none() {
            return (None, now);
        }
        let at_once = now.then(|| claims::choose(self.model, task, node, true).ok()).flatten();
        let now = at_once.is_some();
        let given =
            at_once.unwrap_or_else(|| claims::choose(self.model, task, node, false).expect("the node suits the pod"));
        let grants: Grants = given.into_iter().map(|given| self.use_claim(given)).collect();
        ((!grants.is_empty()).then(|| Arc::new(grants)), now)
    }

    fn use_claim(&mut self, given: Given) -> Used {
        let claim = self.model.devices.claim_for(&given.claim);
        let fresh = || self.model.devices.allocation(claim, &given.fresh);
        Used {
            reference: given.reference,
            claim,
            allocation: given.known.unwrap_or_else(fresh),
        }
    }

    /// The NUMA zones that the kubelet will use, and whether they are free now.
    fn zones(&self, task: TaskId, node: NodeId, now: bool) -> (Vec<ZoneShare>, bool) {
        let node = &self.model.nodes[node];
        let Some(pod) = self.model.tasks[task]
            .input
            .numa
            .as_ref()
            .filter(|_| node.numa.is_some())
        else {
            return (Vec::new(), now);
        };
        let zones = |fit: Fit| match fit {
            Fit::Zones(zones) => zones,
            Fit::Unaligned | Fit::Refused => Vec::new(),
        };
        match numa::fit(node, pod, now) {
            Fit::Refused if now => (zones(numa::fit(node, pod, false)), false),
            fit => (zones(fit), now),
        }
    }

    /// What its claims without a volume get, and whether they can have it now.
    fn volumes(&self, task: TaskId, node: NodeId, now: bool) -> (Promises, bool) {
        let fit = |now| volumes::fit(self.model, task, node, now, self.policy.csi_storage);
        match fit(now) {
            Ok(promises) => (promises, now),
            Err(_) => (fit(false).unwrap_or_default(), false),
        }
    }

    /// The open statement evicted it from this node. A pod that lost a mere plan was evicted before; whether it may stay is found out when all is decided.
    fn evicted_from(&self, task: TaskId, node: NodeId) -> bool {
        let state = &self.model.tasks[task].state;
        state.evicted_from.is_some_and(|status| status != Status::Pipelined)
            && state.hold.as_ref().is_some_and(|hold| hold.node == node)
    }

    /// A pod evicted from this node would get back the very GPUs that it has.
    fn stays(&self, task: TaskId, choice: &gpu::Choice) -> bool {
        let Some(hold) = &self.model.tasks[task].state.hold else {
            return false;
        };
        let held = &hold.extras().groups;
        choice.fresh == 0 && choice.joined.len() == held.len() && choice.joined.iter().all(|group| held.contains(group))
    }

    /// A gang got something that it must wait for, and without that its minimum is not met: all of it waits.
    pub fn wait_as_one(&mut self, gang: GangId, mark: crate::engine::model::Mark) -> bool {
        use crate::engine::model::task::State;
        if self.model.gangs[gang].with(Status::Pipelined) == 0 || self.whole_without_plans(gang) {
            return false;
        }
        let tasks: Vec<TaskId> = self.model.changed_since(mark).collect();
        for task in tasks {
            let state = &self.model.tasks[task].state;
            if state.status == Status::Allocated && self.model.tasks[task].gang == Some(gang) {
                let state = State {
                    plan: state.hold.clone(),
                    ..State::nowhere(Status::Pipelined)
                };
                self.model.set_state(task, state);
            }
        }
        true
    }

    /// Records that nothing but a reason came of a gang.
    pub fn refuse(&mut self, gang: GangId, code: ReasonCode, message: String) {
        self.note(gang).add(code, message, Detail::Text);
    }
}
