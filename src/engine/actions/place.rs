//! Placing the next pods of one pod group, all or none.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::engine::decision::{Detail, Work};
use crate::engine::explain::refusal::{PodProblem, examine, too_large};
use crate::engine::explain::report::Findings;
use crate::engine::fairshare::quotas;
use crate::engine::fairshare::{largest_gpu, wanted};
use crate::engine::input::Name;
use crate::engine::model::devices::claims::Grants;
use crate::engine::model::ids::{ClassId, NodeId, PodGroupId, PodId, ShapeId};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::numa::ZoneShare;
use crate::engine::model::pod::{Extras, Place, State, Status};
use crate::engine::model::pod_group::{Kind, Member};
use crate::engine::model::volumes::Promises;
use crate::engine::model::{Mark, Model};
use crate::engine::placement::choose::{Context, RejectedNodes, Scope, best_node};
use crate::engine::placement::claims;
use crate::engine::placement::domains::{DomainCapacityCache, Domains, Question, Refused, domains};
use crate::engine::placement::gpu;
use crate::engine::placement::neighbours::{Spreading, concerned, excludes_its_kind};
use crate::engine::placement::numa::{self, Fit};
use crate::engine::placement::preferred::Preferred;
use crate::engine::placement::resources::pod_fits;
use crate::engine::placement::rules::{Refusal, queue_quota, refresh_class};
use crate::engine::placement::volumes;

use super::context::CycleContext;
use super::cycle_log::CycleLog;
use super::unschedulable::UnschedulableCache;

/// Whether placement is real or part of a simulation.
#[derive(Clone, Copy, Debug)]
pub enum Mode<'a> {
    /// Pods are allocated where they fit now, else pipelined; findings are recorded.
    Real,
    /// Pods are pipelined only, on these nodes.
    Simulate(&'a NodeSet),
}

/// Results of placement attempts in a cycle that later attempts use.
#[derive(Debug, Default)]
pub struct PlacementCaches {
    /// Kinds of pods that fit nowhere at present.
    pub unschedulable: UnschedulableCache,
    /// Nodes that refused pods like the last one.
    rejected: RefCell<RejectedNodes>,
    /// Capacity counted in the domains of topologies.
    domain_capacity: DomainCapacityCache,
    /// Kinds of pods that fitted nowhere in the current simulation, which frees no more capacity.
    lost_kinds: Vec<(Mark, (ClassId, ShapeId))>,
}

impl PlacementCaches {
    /// Clears what holds for one simulation only: call it when a simulation begins or ends.
    pub fn forget_lost_kinds(&mut self) {
        self.lost_kinds.clear();
    }

    /// Removes results found after a mark, because the changes since are rolled back.
    pub fn rolled_back(&mut self, mark: Mark) {
        self.unschedulable.rolled_back(mark);
        while self.lost_kinds.last().is_some_and(|(found, _)| *found > mark) {
            self.lost_kinds.pop();
        }
    }

    /// Keeps all results, because the open statement is committed.
    pub fn committed(&mut self) {
        self.unschedulable.committed();
    }
}

/// An attempt to place pods of a pod group.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    pod_group: PodGroupId,
    mode: Mode<'a>,
    /// Some of the pods request GPU memory, and may count more on their nodes than the check of all pods assumed. So limits and quotas are checked
    /// again for each pod.
    by_memory: bool,
    /// As many reasons as a report lists were found, so further ones are only counted.
    quiet: bool,
}

impl Attempt<'_> {
    /// Whether the reasons why pods have no place are recorded.
    fn tells(&self) -> bool {
        matches!(self.mode, Mode::Real) && !self.quiet
    }
}

/// Pod sets of a pod group whose pods have no place.
pub type FailedPodSets = SmallVec<[Member; 4]>;

/// Places the pods of pod groups.
pub struct Placer<'a> {
    /// The cluster.
    pub model: &'a mut Model,
    /// The settings and the time.
    pub context: CycleContext<'a>,
    /// What placing has found out so far.
    pub caches: &'a mut PlacementCaches,
    /// Receives the reasons why pods fit nowhere, and the steps.
    pub log: &'a mut CycleLog,
}

impl Placer<'_> {
    /// Places pods of a pod group, all or none. On failure the model is unchanged.
    pub fn place(&mut self, pod_group: PodGroupId, pods: &[PodId], mode: Mode) -> bool {
        self.try_place(pod_group, pods, mode).is_ok()
    }

    /// The same.
    ///
    /// # Errors
    /// With the pod sets whose pods have no place; none if that is not the reason.
    pub fn try_place(&mut self, pod_group: PodGroupId, pods: &[PodId], mode: Mode) -> Result<(), FailedPodSets> {
        if pods.is_empty() || self.gate_closed(pod_group, pods, mode) {
            return Err(FailedPodSets::new());
        }
        self.log.work.groups_tried += 1;
        for &pod in pods {
            let class = self.model.pods()[pod].class;
            refresh_class(self.model, class);
        }
        let scope = Scope {
            among: match mode {
                Mode::Real => None,
                Mode::Simulate(nodes) => Some(nodes),
            },
            preferred: None,
        };
        let top = self.model.pod_groups()[pod_group].top();
        let attempt = Attempt {
            pod_group,
            mode,
            by_memory: self.context.rules.shares && self.model.some_by_memory(pods),
            quiet: false,
        };
        self.place_member(attempt, top, pods, scope)
    }

    /// Whether a limit or quota of the queue refuses the pods.
    fn gate_closed(&mut self, pod_group: PodGroupId, pods: &[PodId], mode: Mode) -> bool {
        let entry = &self.model.pod_groups()[pod_group];
        let (Some(queue), Some(input)) = (entry.queue, &entry.input) else {
            return true;
        };
        if !self.context.rules.shares {
            return false;
        }
        let preemptible = input.preemptible;
        let asked = wanted(self.model, pods, largest_gpu(self.model));
        let Some(closed) = quotas::check(self.model, queue, preemptible, &asked) else {
            return false;
        };
        if matches!(mode, Mode::Real) {
            let message = quotas::message(self.model, closed, &asked);
            let figures = quotas::figures(self.model, closed, &asked, preemptible);
            self.log
                .note(pod_group)
                .add(closed.code, message, Detail::Queue(Box::new(figures)));
        }
        true
    }

    /// Places a member's pods, in the first topology domain that takes all of them if the member has a topology constraint.
    fn place_member(
        &mut self,
        attempt: Attempt,
        member: Member,
        pods: &[PodId],
        scope: Scope,
    ) -> Result<(), FailedPodSets> {
        if pods.is_empty() {
            return Ok(());
        }
        let pod_group = attempt.pod_group;
        let found = match self.domains_of(pod_group, member, pods, scope) {
            Ok(None) => return self.place_in(attempt, member, pods, scope),
            Ok(Some(found)) => found,
            Err(refused) => {
                self.add_reason(attempt, |findings, model| {
                    findings.domains_refused(model, pod_group, member, pods.len(), &refused);
                });
                // Each may fit without the others: the one with the largest pod is left out first.
                let pods = pods.iter().map(|pod| &self.model.pods()[*pod]);
                let largest = pods.max_by_key(|pod| {
                    let [cpu, memory, gpus] = self.model.shapes()[pod.shape].quota;
                    [gpus, memory, cpu]
                });
                return Err(largest.and_then(|pod| pod.member).into_iter().collect());
            }
        };
        let (topology, domains) = found;
        let preferred = (!domains.preferred.is_empty())
            .then(|| Preferred::of(&self.model.topologies()[&topology], &domains.preferred));
        let classes = self.classes_of(pods);
        let mut failed = FailedPodSets::new();
        for (at, &domain) in domains.order.iter().enumerate() {
            // The last one says which pod sets failed, and its reasons are those of the pods.
            let is_last = at + 1 == domains.order.len();
            let attempt = Attempt {
                quiet: attempt.quiet || (!is_last && self.has_reasons(pod_group)),
                ..attempt
            };
            if !is_last && !attempt.tells() && self.is_closed(&topology, domain, scope, &classes) {
                self.count_reason(attempt);
                continue;
            }
            let nodes = self.model.topologies()[&topology].node_set(domain, scope.among);
            let inside = Scope {
                among: Some(&nodes),
                preferred: preferred.as_ref().or(scope.preferred),
            };
            let placed = self.place_in(attempt, member, pods, inside);
            if let (None, Some(inherited)) = (&preferred, scope.preferred) {
                // What is full in this domain need not be full in that of the next sub-group.
                inherited.forget();
            }
            match placed {
                Ok(()) => return Ok(()),
                Err(pod_sets) => failed = pod_sets,
            }
        }
        Err(failed)
    }

    /// Whether as many reasons were found as the report on a pod group lists.
    fn has_reasons(&self, pod_group: PodGroupId) -> bool {
        self.log.findings.get(&pod_group).is_some_and(Findings::is_full)
    }

    /// Counts a reason that is not recorded.
    fn count_reason(&mut self, attempt: Attempt) {
        if attempt.quiet && matches!(attempt.mode, Mode::Real) {
            self.log.note(attempt.pod_group).add_unlisted();
        }
    }

    /// Adds a reason why pods have no place, or only counts it.
    fn add_reason(&mut self, attempt: Attempt, add: impl FnOnce(&mut Findings, &Model)) {
        if attempt.tells() {
            add(self.log.note(attempt.pod_group), self.model);
        } else {
            self.count_reason(attempt);
        }
    }

    fn classes_of(&self, pods: &[PodId]) -> SmallVec<[ClassId; 2]> {
        let mut classes: SmallVec<[ClassId; 2]> = pods.iter().map(|pod| self.model.pods()[*pod].class).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    /// Whether the pods of some class fit no node of a domain, whatever runs there: so not all pods can be placed in it.
    fn is_closed(&self, topology: &Name, domain: usize, scope: Scope, classes: &[ClassId]) -> bool {
        let nodes = self.model.topologies()[topology].nodes_of(domain);
        let is_open = |class: &ClassId| {
            let allowed = self.model.class_nodes(*class);
            nodes.iter().any(|id| allowed.has(id.at()) && scope.has(*id))
        };
        !classes.iter().all(is_open)
    }

    /// The domains for a member's pods. Placed pods of the member restrict the others to their domain.
    fn domains_of(
        &mut self,
        pod_group: PodGroupId,
        member: Member,
        pods: &[PodId],
        scope: Scope,
    ) -> Result<Option<(Name, Domains)>, Refused> {
        let entry = &self.model.pod_groups()[pod_group];
        let Some(constraint) = &entry.tree[member as usize].topology else {
            return Ok(None);
        };
        if !self.context.policy.plugins.topology {
            return Ok(None);
        }
        let placed = entry.pods.iter().filter(|pod| {
            let pod = &self.model.pods()[**pod];
            pod.state.status.active_allocated() && pod.member.is_some_and(|own| entry.is_under(own, member))
        });
        let with: Vec<NodeId> = placed.filter_map(|pod| self.model.node_of(*pod)).collect();
        // A member that needs no pods gets them one by one, all in the domain of the first. That of a gang is chosen for its minimum, as in KAI.
        let grows = constraint.required.is_some() && with.is_empty() && entry.satisfied(member, &entry.active());
        let wants = |pod: &PodId| {
            let own = self.model.pods()[*pod].member;
            self.model.wants_place(*pod, self.context.now) && own.is_some_and(|own| entry.is_under(own, member))
        };
        let all: Vec<PodId> = if grows {
            entry.pods.iter().copied().filter(wants).collect()
        } else {
            Vec::new()
        };
        let question = Question {
            constraint,
            pods,
            with: &with,
            among: scope.among,
            all: &all,
        };
        domains(self.model, &question, &mut self.caches.domain_capacity)
    }

    /// Rolls back all changes since a mark.
    pub fn rollback(&mut self, mark: Mark) {
        self.model.rollback(mark);
        self.caches.rolled_back(mark);
    }

    /// Allocates pods on the nodes that they were pipelined to, all or none. Returns whether all have room there now. On failure the model is unchanged.
    pub fn place_as_planned(&mut self, planned: &[(PodId, NodeId)]) -> bool {
        let mark = self.model.mark();
        let placed = planned.iter().all(|(pod, node)| self.place_on(*pod, *node));
        if !placed {
            self.rollback(mark);
        }
        placed
    }

    /// Places a pod on a node. Returns whether it has room there now.
    fn place_on(&mut self, pod: PodId, node: NodeId) -> bool {
        let class = self.model.pods()[pod].class;
        refresh_class(self.model, class);
        let only: NodeSet = std::iter::once(node.at()).collect();
        let scope = Scope {
            among: Some(&only),
            preferred: None,
        };
        self.place_pod(pod, Mode::Real, scope, false).is_ok()
            && self.model.pods()[pod].state.status == Status::Allocated
    }

    fn place_in(
        &mut self,
        attempt: Attempt,
        member: Member,
        pods: &[PodId],
        scope: Scope,
    ) -> Result<(), FailedPodSets> {
        let pod_group = attempt.pod_group;
        let mark = self.model.mark();
        let placed: Result<(), FailedPodSets> = match &self.model.pod_groups()[pod_group].tree[member as usize].kind {
            Kind::Pods(_) => {
                let placed = self.place_pods(attempt, pods, scope);
                placed.then_some(()).ok_or_else(|| smallvec![member])
            }
            Kind::Set { .. } => {
                let entry = &self.model.pod_groups()[pod_group];
                let order = entry.in_order(member, &entry.active());
                let mut each = self.pods_below(pod_group, member, pods);
                order.into_iter().try_for_each(|below| {
                    let theirs = each.remove(&below).unwrap_or_default();
                    self.place_member(attempt, below, &theirs, scope)
                })
            }
        };
        if placed.is_err() {
            self.rollback(mark);
            if let Some(preferred) = scope.preferred {
                preferred.forget();
            }
        }
        placed
    }

    /// The pods by the member of the set that they belong to.
    fn pods_below(&self, pod_group: PodGroupId, set: Member, pods: &[PodId]) -> BTreeMap<Member, Vec<PodId>> {
        let entry = &self.model.pod_groups()[pod_group];
        let mut each: BTreeMap<Member, Vec<PodId>> = BTreeMap::new();
        for &pod in pods {
            let below = self.model.pods()[pod].member.and_then(|own| entry.member_of(set, own));
            if let Some(below) = below {
                each.entry(below).or_default().push(pod);
            }
        }
        each
    }

    fn place_pods(&mut self, attempt: Attempt, pods: &[PodId], scope: Scope) -> bool {
        let mode = attempt.mode;
        let tells = attempt.tells();
        for (placed, &pod) in pods.iter().enumerate() {
            let refusal = if attempt.by_memory {
                queue_quota::refuses_all(self.model, pod)
            } else {
                None
            };
            let result = match refusal {
                Some(_) if !tells => Err(None),
                Some(refusal) => Err(Some(Arc::new(self.refused_everywhere(pod, refusal, scope)))),
                None => self.place_pod(pod, mode, scope, tells),
            };
            if let Err(problem) = result {
                self.add_reason(attempt, |findings, model| {
                    if let Some(problem) = problem {
                        findings.pod_failed(model, pod, placed, &problem);
                    }
                });
                return false;
            }
        }
        true
    }

    /// The report that all nodes refuse a pod for a limit or quota of its queue.
    fn refused_everywhere(&self, pod: PodId, refusal: queue_quota::Refusal, scope: Scope) -> PodProblem {
        let model = &*self.model;
        let cpu_only = model.shapes()[model.pods()[pod].shape].cpu_only;
        let candidates = scope.by_name(model).into_iter();
        let nodes = candidates
            .filter(|id| cpu_only || !model.nodes()[*id].cpu_only())
            .count();
        PodProblem {
            counts: BTreeMap::from([(Refusal::QueueQuota(refusal), nodes)]),
            ..PodProblem::default()
        }
    }

    /// Places one pod. The error has the reason if the attempt `tells` it.
    fn place_pod(&mut self, id: PodId, mode: Mode, scope: Scope, tells: bool) -> Result<(), Option<Arc<PodProblem>>> {
        if let Some(text) = too_large(self.model, self.context.policy, id) {
            return Err(Some(Arc::new(PodProblem {
                headline: Some(text),
                ..PodProblem::default()
            })));
        }
        if let Some(text) = claims::refused(self.model, id) {
            return Err(Some(Arc::new(PodProblem {
                headline: Some(text),
                ..PodProblem::default()
            })));
        }
        let real = matches!(mode, Mode::Real);
        let pod = &self.model.pods()[id];
        let kind = (pod.class, pod.shape);
        let lasting = self.model.shapes()[pod.shape].gpu.memory == 0 && !concerned(self.model, id);
        let alike = !excludes_its_kind(self.model, id);
        let enabled = |_: &Spreading| self.context.policy.plugins.topology_spread;
        let spreading = Spreading::of(self.model, id).filter(enabled);
        let context = Context {
            policy: self.context.policy,
            scorers: self.context.scorers,
            scope,
            spreading: spreading.as_ref(),
            rejected: Some(&self.caches.rejected),
        };
        let known = if real {
            let problem = self.caches.unschedulable.get(kind).filter(|_| lasting);
            problem.map(|problem| Some(problem.clone()))
        } else {
            let lost = self.caches.lost_kinds.iter().any(|(_, lost)| *lost == kind);
            lost.then_some(None)
        };
        if let Some(problem) = known {
            debug_assert_eq!(
                best_node(
                    self.model,
                    Context {
                        rejected: None,
                        ..context
                    },
                    id,
                    &mut Work::default()
                ),
                None,
                "pods like this one fitted nowhere"
            );
            return Err(problem);
        }
        if let Some(node) = best_node(self.model, context, id, &mut self.log.work) {
            self.assign(id, node, real);
            return Ok(());
        }
        if !real {
            let everywhere = self
                .model
                .pod_group_of(id)
                .is_none_or(|pod_group| pod_group.tree.iter().all(|member| member.topology.is_none()));
            if lasting && alike && everywhere {
                self.caches.lost_kinds.push((self.model.mark(), kind));
            }
            return Err(None);
        }
        if !tells {
            return Err(None);
        }
        let problem = Arc::new(examine(self.model, context, id));
        if lasting && scope.among.is_none() {
            self.caches.unschedulable.add(self.model.mark(), kind, problem.clone());
        }
        Err(Some(problem))
    }

    /// Allocates a pod to a node that fits it if `real` and the resources are free now, else pipelines it.
    fn assign(&mut self, pod: PodId, node: NodeId, real: bool) {
        let shape = &self.model.shapes()[self.model.pods()[pod].shape];
        let choice = shape
            .shared
            .then(|| gpu::choose(self.model, pod, node, self.context.scorers.gpus).expect("the node suits the pod"));
        let now = real
            && match &choice {
                Some(choice) => !choice.wait,
                None => pod_fits(self.model, pod, node, true),
            };
        let (zones, now) = self.zones(pod, node, now);
        let (volumes, now) = self.volumes(pod, node, now);
        let (devices, now) = self.devices(pod, node, now);
        let stays = !real
            && self.evicted_from(pod, node)
            && self.model.pods()[pod].state.hold.as_ref().is_some_and(|hold| {
                let held = hold.extras();
                // Without predicted alignment the zones cannot differ.
                (zones.is_empty() || held.zones == zones) && held.volumes == volumes && held.devices == devices
            })
            && choice.as_ref().is_none_or(|choice| self.stays(pod, choice));
        if stays {
            self.model.unevict(pod);
            return;
        }
        let groups = choice.map_or_else(SmallVec::new, |choice| gpu::open(self.model, pod, node, &choice));
        let extras = Extras {
            groups,
            ungrouped: 0,
            after_report: self.after_report(pod, node, &zones),
            zones,
            volumes,
            devices,
        };
        let place = Place::new(node, extras);
        if now {
            self.model.allocate(pod, place);
        } else {
            self.model.pipeline(pod, place);
        }
    }

    /// The last report on the node's zones when the pod was placed there. If it gets the zones that it holds, that of then, so that the place is the same.
    fn after_report(&self, pod: PodId, node: NodeId, zones: &[ZoneShare]) -> u64 {
        let hold = self.model.pods()[pod].state.hold.as_ref();
        let same = hold.filter(|hold| hold.node == node && hold.extras().zones == zones);
        same.map_or_else(
            || self.model.zone_report(node, zones),
            |hold| hold.extras().after_report,
        )
    }

    /// The devices that the pod gets for its claims, and whether they are free now.
    fn devices(&mut self, pod: PodId, node: NodeId, now: bool) -> (Option<Arc<Grants>>, bool) {
        if self.model.pods()[pod].input.claims.is_none() {
            return (None, now);
        }
        let at_once = now.then(|| claims::choose(self.model, pod, node, true).ok()).flatten();
        let now = at_once.is_some();
        let given =
            at_once.unwrap_or_else(|| claims::choose(self.model, pod, node, false).expect("the node suits the pod"));
        let grants: Grants = given.into_iter().map(|given| given.used(self.model)).collect();
        ((!grants.is_empty()).then(|| Arc::new(grants)), now)
    }

    /// The NUMA zones that the kubelet is expected to use, and whether they are free now.
    fn zones(&self, pod: PodId, node: NodeId, now: bool) -> (Vec<ZoneShare>, bool) {
        let node = &self.model.nodes()[node];
        let Some(pod) = self.model.pods()[pod]
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

    /// The volumes promised to its unbound claims, and whether they are available now.
    fn volumes(&self, pod: PodId, node: NodeId, now: bool) -> (Promises, bool) {
        let fit = |now| volumes::fit(self.model, pod, node, now, self.context.policy.csi_storage);
        match fit(now) {
            Ok(promises) => (promises, now),
            Err(_) => (fit(false).unwrap_or_default(), false),
        }
    }

    /// Whether the open statement evicted the pod from this node. A pod that was only pipelined does not count: `spare` decides about it at the end.
    fn evicted_from(&self, pod: PodId, node: NodeId) -> bool {
        let state = &self.model.pods()[pod].state;
        state.evicted_from.is_some_and(|status| status != Status::Pipelined)
            && state.hold.as_ref().is_some_and(|hold| hold.node == node)
    }

    /// Whether a pod evicted from this node gets back the GPUs that it has.
    fn stays(&self, pod: PodId, choice: &gpu::Choice) -> bool {
        let Some(hold) = &self.model.pods()[pod].state.hold else {
            return false;
        };
        let held = &hold.extras().groups;
        choice.fresh == 0 && choice.joined.len() == held.len() && choice.joined.iter().all(|group| held.contains(group))
    }

    /// Pipelines the pods placed since a mark, if the minimum of the pod group, of their pod set or of a set above it is met only with pipelined pods. Returns
    /// whether it did.
    pub fn wait_as_one(&mut self, pod_group: PodGroupId, mark: Mark) -> bool {
        let entry = &self.model.pod_groups()[pod_group];
        if entry.with(Status::Pipelined) == 0 {
            return false;
        }
        let members = entry.waiting_for_plans();
        let placed = self.model.changed_since(mark);
        let waits = |pod: &PodId| {
            let pod = &self.model.pods()[*pod];
            pod.state.status == Status::Allocated
                && pod.pod_group == Some(pod_group)
                && members[pod.member.unwrap_or(0) as usize]
        };
        let waiting: Vec<PodId> = placed.filter(waits).collect();
        for &pod in &waiting {
            let state = State::pipelined(self.model.pods()[pod].state.hold.clone());
            self.model.set_state(pod, state);
        }
        members[0] || !waiting.is_empty()
    }
}
