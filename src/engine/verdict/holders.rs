//! The workloads that hold what a pod group waits for, and why each of them is not evicted.

use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::engine::actions::context::CycleContext;
use crate::engine::decision::{Cause, Verdict};
use crate::engine::fairshare::min_runtime::{elastic, protected_until};
use crate::engine::fairshare::reclaim::{may_donate, may_reclaim};
use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::input::{GPU, Name, Time};
use crate::engine::model::Model;
use crate::engine::model::ids::{ClassId, NodeId, PodGroupId, PodId, QueueId, ShapeId};
use crate::engine::model::pod_group::delay::{Delay, DelayCause};
use crate::engine::model::resources::{CPU, GPUS, MEMORY, Shared, plus};
use crate::engine::policy::{ActionKind, DisruptionBudgets};

use super::held::{HeldByAll, Scans};
use super::words::{gpus, instant, list, number, quantity, shared_number, workload};

/// Names in a message.
const NAMED: usize = 3;

/// The resource that a pod group waits for.
#[derive(Clone, Copy, Debug)]
pub struct Shortage<'a> {
    /// The pod group.
    pub pod_group: PodGroupId,
    /// The position of the resource.
    pub position: usize,
    /// The amount requested.
    pub asked: i64,
    /// The amount free.
    pub free: i64,
    /// The nodes that could provide it.
    pub nodes: &'a [NodeId],
}

/// Why a workload is not evicted. In the order of the message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StayReason {
    /// It is terminating already.
    Leaves,
    /// Nothing prevents its eviction alone.
    Free,
    /// The API server refused its eviction recently.
    EvictionRefused,
    /// Its minimum run time.
    MinRuntime {
        /// Before others reclaim, else before its own queue preempts.
        reclaim: bool,
    },
    /// A disruption budget, by namespace and name.
    Budget(Name, Name),
    /// The action that could evict it is switched off, or a plugin that the action needs.
    SwitchedOff(ActionKind),
    /// The waiting queue would exceed its fair share of this resource.
    FairShare(usize),
    /// It is not preemptible.
    NonPreemptible,
    /// Its priority is not lower.
    Priority,
    /// Its queue is within its shares.
    WithinShares,
    /// Another scheduler's.
    Foreign,
}

/// Workloads of one queue that stay for one reason.
#[derive(Debug, Default)]
struct Holding {
    amount: i64,
    workloads: usize,
    /// The first of them by name.
    named: Vec<PodGroupId>,
    /// The first end of their protection.
    until: Option<Time>,
    /// The lowest priority.
    priority: Option<i64>,
}

/// All workloads that hold the resource.
struct Holders {
    each: BTreeMap<(StayReason, Option<QueueId>), Holding>,
    all: Rc<HeldByAll>,
    /// What the pod group requests at once.
    asks: Shared,
}

/// Key of an answer that pod groups share: their pods' class and shape, their place in the order, and the figures in the message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AnswerKey {
    kind: (ClassId, ShapeId),
    queue: Option<QueueId>,
    rank: (i64, bool, Option<Delay>),
    amounts: (usize, i64, i64),
    asks: Shared,
    intro: String,
    namespace: String,
}

/// The answers of one cycle, shared by pod groups with equal keys.
#[derive(Debug, Default)]
pub struct Answers {
    known: RefCell<BTreeMap<AnswerKey, (Verdict, Option<Time>)>>,
    scans: Scans,
    /// Workloads looked at so far.
    looked_at: Cell<usize>,
}

impl Answers {
    /// How many workloads were looked at.
    #[must_use]
    pub fn looked_at(&self) -> usize {
        self.looked_at.get()
    }

    /// The verdict on a pod that lacks a resource, and when it expires. `intro`: the first part of the message.
    #[must_use]
    pub fn holders(
        &self,
        model: &Model,
        context: CycleContext,
        pod: PodId,
        lack: Shortage,
        intro: &str,
    ) -> (Verdict, Option<Time>) {
        let entry = &model.pod_groups()[lack.pod_group];
        let input = entry.input.as_ref();
        let chunk = model.next_chunk(lack.pod_group, context.now);
        let asks = wanted(model, &chunk, smallest_gpu(model));
        let alike = AnswerKey {
            kind: (model.pods()[pod].class, model.pods()[pod].shape),
            queue: entry.queue,
            rank: (
                input.map_or(0, |input| input.priority),
                input.is_some_and(|input| input.preemptible),
                entry.delay(context.now),
            ),
            amounts: (lack.position, lack.asked, lack.free),
            asks,
            intro: intro.to_owned(),
            namespace: entry.key.namespace().to_owned(),
        };
        // A pod group that holds some itself is among the holders.
        if entry.holds() {
            return self.compute(model, context, lack, asks, intro);
        }
        let known = self.known.borrow().get(&alike).cloned();
        known.unwrap_or_else(|| {
            let found = self.compute(model, context, lack, asks, intro);
            self.known.borrow_mut().insert(alike, found.clone());
            found
        })
    }

    fn compute(
        &self,
        model: &Model,
        context: CycleContext,
        lack: Shortage,
        asks: Shared,
        intro: &str,
    ) -> (Verdict, Option<Time>) {
        let all = self.scans.held(model, lack.position, lack.nodes);
        let workloads: usize = all.queues.iter().map(|queue| queue.workloads.len()).sum();
        self.looked_at.set(self.looked_at.get() + workloads);
        let each = reasons(&Case::of(model, context, lack, asks), &all);
        holders(model, context, lack, intro, &Holders { each, all, asks })
    }
}

fn holders(
    model: &Model,
    context: CycleContext,
    lack: Shortage,
    intro: &str,
    found: &Holders,
) -> (Verdict, Option<Time>) {
    let lacking = lack.asked - lack.free;
    let sum = |wanted: &StayReason| -> i64 {
        let of = found.each.iter().filter(|((stay, _), _)| stay == wanted);
        of.map(|(_, holding)| holding.amount).sum()
    };
    let (leaving, free) = (sum(&StayReason::Leaves), sum(&StayReason::Free));
    if found.each.is_empty() {
        return (Verdict::new(Cause::Resources, intro), None);
    }
    let binding = if leaving >= lacking {
        StayReason::Leaves
    } else if free + leaving >= lacking {
        StayReason::Free
    } else {
        // The one whose end would suffice, else the largest.
        let stays: Vec<&StayReason> = found.each.keys().map(|(stay, _)| stay).collect();
        let enough = stays
            .iter()
            .copied()
            .filter(|stay| !matches!(stay, StayReason::Leaves | StayReason::Free))
            .find(|stay| sum(stay) + free + leaving >= lacking);
        let most = stays.iter().copied().max_by_key(|stay| sum(stay));
        enough.or(most).cloned().unwrap_or(StayReason::Free)
    };
    let of_binding = found.each.iter().filter(|((stay, _), _)| *stay == binding);
    let Some(((_, queue), holding)) =
        of_binding.max_by_key(|((_, queue), holding)| (holding.amount, Reverse(name_of(model, *queue))))
    else {
        return (Verdict::new(Cause::Resources, intro), None);
    };
    let teller = Sentences {
        model,
        context,
        lack: &lack,
        found,
    };
    if binding == StayReason::Free
        && let Some(delay) = model.pod_groups()[lack.pod_group].delay(context.now)
    {
        let sentence = format!(
            "{intro}: nothing is evicted for it before {} ({}); {}",
            instant(delay.until, context.now),
            delay.cause,
            teller.queue_holds(*queue)
        );
        let cause = match delay.cause {
            DelayCause::PreemptionDelay(_) => Cause::PreemptionDelay,
            DelayCause::InVain(_) => Cause::EvictionsInVain,
        };
        return (Verdict::new(cause, sentence), Some(delay.until));
    }
    let (cause, sentence) = teller.sentence(&binding, *queue, holding);
    let until = holding.until.filter(|until| *until > context.now);
    let others = found
        .each
        .iter()
        .filter(|((stay, other), _)| (stay, other) != (&binding, queue));
    let mut others: Vec<_> = others.collect();
    others.sort_by_key(|((stay, queue), holding)| (Reverse(holding.amount), stay.clone(), name_of(model, *queue)));
    let evidence = others
        .into_iter()
        .take(NAMED)
        .map(|((stay, queue), holding)| teller.clause(stay, *queue, holding));
    let verdict = Verdict {
        evidence: evidence.collect(),
        ..Verdict::new(cause, format!("{intro}: {sentence}"))
    };
    (verdict, until)
}

fn name_of(model: &Model, queue: Option<QueueId>) -> Option<&Name> {
    queue.map(|queue| &model.queues()[queue].name)
}

/// Why each workload that holds some of the resource is not evicted for a pod group.
fn reasons(case: &Case, all: &HeldByAll) -> BTreeMap<(StayReason, Option<QueueId>), Holding> {
    let mut each = BTreeMap::new();
    for of_queue in &all.queues {
        let donor = Donor::of(case, of_queue.queue);
        let mut holdings: Vec<(StayReason, Holding)> = Vec::new();
        for held in &of_queue.workloads {
            let (stay, until) = match held.pod_group {
                _ if held.leaves => (StayReason::Leaves, None),
                None => (StayReason::Foreign, None),
                Some(pod_group) => donor.stay(pod_group),
            };
            let known = holdings.iter().position(|(other, _)| *other == stay);
            let at = known.unwrap_or_else(|| {
                holdings.push((stay, Holding::default()));
                holdings.len() - 1
            });
            let holding = &mut holdings[at].1;
            holding.amount += held.amount;
            holding.workloads += 1;
            let Some(pod_group) = held.pod_group else { continue };
            if holding.named.len() < NAMED {
                holding.named.push(pod_group);
            }
            holding.until = holding.until.into_iter().chain(until).min();
            let input = case.model.pod_groups()[pod_group].input.as_ref();
            let priority = input.map(|input| input.priority);
            holding.priority = holding.priority.into_iter().chain(priority).min();
        }
        let of_queue = holdings
            .into_iter()
            .map(|(stay, holding)| ((stay, of_queue.queue), holding));
        each.extend(of_queue);
    }
    each
}

/// The waiting pod group, and what it may do to others.
struct Case<'a> {
    model: &'a Model,
    context: CycleContext<'a>,
    pod_group: PodGroupId,
    queue: Option<QueueId>,
    priority: i64,
    asks: Shared,
    /// The resource for which it may not reclaim.
    refused_for: Option<usize>,
}

impl<'a> Case<'a> {
    fn of(model: &'a Model, context: CycleContext<'a>, lack: Shortage, asks: Shared) -> Self {
        let entry = &model.pod_groups()[lack.pod_group];
        let (priority, preemptible) = entry
            .input
            .as_ref()
            .map_or((0, true), |input| (input.priority, input.preemptible));
        let refused_for = entry
            .queue
            .and_then(|queue| refused_for(model, queue, &asks, preemptible, lack.position));
        Self {
            model,
            context,
            pod_group: lack.pod_group,
            queue: entry.queue,
            priority,
            asks,
            refused_for,
        }
    }

    /// Whether an action evicts at all.
    fn is_on(&self, action: ActionKind) -> bool {
        self.context.policy.actions.contains(&action) && (action != ActionKind::Reclaim || self.context.rules.shares)
    }
}

/// The resource for which a queue may not reclaim, if there is one: the one that is lacking before others.
fn refused_for(model: &Model, queue: QueueId, asks: &Shared, preemptible: bool, lacking: usize) -> Option<usize> {
    if may_reclaim(model, queue, asks, preemptible) {
        return None;
    }
    let queue = &model.queues()[queue];
    let (all, fixed) = (plus(&queue.allocated, asks), plus(&queue.non_preemptible, asks));
    let over_share = |resource: &usize| all[*resource] > queue.fair[*resource];
    let over_quota = |resource: &usize| {
        let quota = queue.share(*resource).quota;
        quota.is_some_and(|quota| fixed[*resource] > quota)
    };
    let resources = [lacking.min(GPUS), GPUS, CPU, MEMORY];
    let found = resources.into_iter().find(over_share);
    found.or_else(|| resources.into_iter().find(over_quota))
}

/// A queue whose workloads might make room for a pod group that waits.
struct Donor<'a> {
    case: &'a Case<'a>,
    own: bool,
    /// Whether the pod group may reclaim from it, once that was asked.
    donates: OnceCell<bool>,
    queue: Option<QueueId>,
}

impl<'a> Donor<'a> {
    fn of(case: &'a Case<'a>, queue: Option<QueueId>) -> Self {
        Self {
            case,
            own: queue == case.queue,
            donates: OnceCell::new(),
            queue,
        }
    }

    fn donates(&self) -> bool {
        let case = self.case;
        *self.donates.get_or_init(|| match (case.queue, self.queue) {
            (Some(ours), Some(theirs)) => may_donate(case.model, ours, theirs, &case.asks),
            _ => false,
        })
    }

    /// Why a workload of the queue is not evicted, and until when that holds.
    fn stay(&self, holder: PodGroupId) -> (StayReason, Option<Time>) {
        let (case, own) = (self.case, self.own);
        let entry = &case.model.pod_groups()[holder];
        let (priority, preemptible) = entry
            .input
            .as_ref()
            .map_or((0, true), |input| (input.priority, input.preemptible));
        if !own && let Some(resource) = case.refused_for {
            return (StayReason::FairShare(resource), None);
        }
        if !preemptible {
            return (StayReason::NonPreemptible, None);
        }
        if own && (priority >= case.priority || holder == case.pod_group) {
            return (StayReason::Priority, None);
        }
        if !own && !self.donates() {
            return (StayReason::WithinShares, None);
        }
        let reclaimer = case.queue.filter(|_| !own);
        let until = protected_until(case.model, case.context.policy, entry, reclaimer);
        let until = until.filter(|until| *until > case.context.now);
        if until.is_some() && !elastic(entry) {
            let reclaim = !own;
            return (StayReason::MinRuntime { reclaim }, until);
        }
        let running = |pod: &&PodId| case.model.pods()[**pod].state.status.active_allocated();
        let pods = || entry.pods.iter().filter(running);
        if case.model.refused(pods().copied()) {
            return (StayReason::EvictionRefused, None);
        }
        if case.context.policy.disruption_budgets == DisruptionBudgets::Respect {
            let inputs = pods().map(|pod| &*case.model.pods()[*pod].input);
            if let Some((namespace, name)) = case.model.budgets().against(inputs) {
                return (StayReason::Budget(namespace.clone(), name.clone()), None);
            }
        }
        let action = if own { ActionKind::Preempt } else { ActionKind::Reclaim };
        if !case.is_on(action) {
            return (StayReason::SwitchedOff(action), None);
        }
        (StayReason::Free, None)
    }
}

/// The message.
struct Sentences<'a> {
    model: &'a Model,
    context: CycleContext<'a>,
    lack: &'a Shortage<'a>,
    found: &'a Holders,
}

impl Sentences<'_> {
    fn number(&self, amount: i64) -> String {
        number(self.model, self.lack.position, amount)
    }

    fn unit(&self, amount: i64) -> String {
        quantity(self.model, self.lack.position, amount)
    }

    fn fair(&self, queue: QueueId) -> Option<String> {
        let position = self.lack.position;
        (position <= GPUS).then(|| shared_number(position, self.model.queues()[queue].fair[position]))
    }

    /// `queue greedy holds 16 of 16 GPUs (fair share 8)`.
    fn queue_holds(&self, queue: Option<QueueId>) -> String {
        let held = self.found.all.of_queue(queue);
        let at_least = if self.found.all.exact { "" } else { "at least " };
        let (held, total) = (self.number(held), self.unit(self.found.all.total));
        match queue {
            Some(id) => {
                let name = &self.model.queues()[id].name;
                let fair = self
                    .fair(id)
                    .map_or_else(String::new, |fair| format!(" (fair share {fair})"));
                format!("queue {name} holds {at_least}{held} of {total}{fair}")
            }
            None => format!("pods without a queue hold {at_least}{held} of {total}"),
        }
    }

    fn names(&self, holding: &Holding) -> String {
        if holding.named.is_empty() {
            return String::new();
        }
        let groups = self.model.pod_groups();
        let namespace = groups[self.lack.pod_group].key.namespace();
        let names = holding.named.iter().map(|id| workload(&groups[*id].key, namespace));
        let names: Vec<String> = names.collect();
        format!(" ({})", list(&names, holding.workloads))
    }

    fn until(&self, holding: &Holding) -> String {
        holding.until.map_or_else(String::new, |until| {
            format!(" until {}", instant(until, self.context.now))
        })
    }

    /// The sentence about the workloads that are the cause.
    fn sentence(&self, stay: &StayReason, queue: Option<QueueId>, holding: &Holding) -> (Cause, String) {
        let (holds, amount, names) = (
            self.queue_holds(queue),
            self.number(holding.amount),
            self.names(holding),
        );
        let own = self.model.pod_groups()[self.lack.pod_group].queue;
        match stay {
            StayReason::Leaves => (
                Cause::Leaving,
                format!(
                    "{} {} held by workloads that are leaving{names}",
                    self.unit(holding.amount),
                    if self.lack.position == GPUS && holding.amount == GPU {
                        "is"
                    } else {
                        "are"
                    }
                ),
            ),
            StayReason::Free => (
                Cause::Resources,
                format!("{holds}, and no set of workloads that may be evicted makes enough room"),
            ),
            StayReason::EvictionRefused => (
                Cause::Resources,
                format!("{holds}; the API server refused evictions{names}, which will be tried again"),
            ),
            StayReason::MinRuntime { reclaim } => {
                let field = if *reclaim {
                    "reclaimMinRuntime"
                } else {
                    "preemptMinRuntime"
                };
                let until = self.until(holding);
                (
                    Cause::MinRuntime,
                    format!("{holds}, {amount} of them protected by {field}{until}{names}"),
                )
            }
            StayReason::Budget(namespace, name) => (
                Cause::DisruptionBudget,
                format!("{holds}, {amount} of them protected by PodDisruptionBudget {namespace}/{name}{names}"),
            ),
            StayReason::SwitchedOff(action) => {
                let (could, off) = (action.as_str(), self.switched_off(*action));
                let whose = format!("{amount} of them by workloads that {could} could evict{names}");
                (
                    Cause::SwitchedOff,
                    format!("{holds}, {whose}, but the administrator has switched {off} off"),
                )
            }
            StayReason::FairShare(resource) => (Cause::FairShare, self.at_fair_share(own, *resource)),
            StayReason::NonPreemptible => (
                Cause::NonPreemptible,
                format!("{holds}, {amount} of them by non-preemptible workloads{names}"),
            ),
            StayReason::Priority => {
                let entry = self.model.pod_groups()[self.lack.pod_group].input.as_ref();
                let own = entry.map_or(0, |input| input.priority);
                let theirs = holding.priority.unwrap_or(own);
                let than = if theirs == own {
                    format!("of the same priority {own} or a higher one")
                } else {
                    format!("of higher priority (at least {theirs}, this one has {own})")
                };
                (
                    Cause::Priority,
                    format!("{holds}, {amount} of them by workloads {than}{names}"),
                )
            }
            StayReason::WithinShares => (
                Cause::WithinShares,
                format!("{holds}, within its quota or fair share{names}"),
            ),
            StayReason::Foreign => (
                Cause::Resources,
                format!(
                    "pods of other schedulers hold {} of {}",
                    amount,
                    self.unit(self.found.all.total)
                ),
            ),
        }
    }

    /// What is switched off, so that an action evicts nothing.
    fn switched_off(&self, action: ActionKind) -> &'static str {
        if self.context.policy.actions.contains(&action) {
            "the plugin proportion"
        } else {
            action.as_str()
        }
    }

    fn at_fair_share(&self, own: Option<QueueId>, resource: usize) -> String {
        let Some(own) = own else { return self.queue_holds(None) };
        let queue = &self.model.queues()[own];
        let quota = queue.share(resource).quota;
        let quota = quota.map_or_else(|| "unlimited".to_owned(), |quota| shared_number(resource, quota));
        // The beginning of the message says what is requested of the resource that is lacking.
        let lacking = resource == self.lack.position;
        let asks = if lacking {
            String::new()
        } else {
            format!(", asks {}", shared_number(resource, self.found.asks[resource]))
        };
        let held = self.found.all.queues.iter().filter(|held| held.queue != Some(own));
        let mut others: Vec<_> = held
            .filter_map(|held| Some((name_of(self.model, held.queue)?, held.amount)))
            .collect();
        others.sort_unstable();
        let amount = |held: i64| if lacking { self.number(held) } else { self.unit(held) };
        let others: Vec<String> = others
            .into_iter()
            .map(|(name, held)| format!("queue {name} holds {}", amount(held)))
            .collect();
        let all = others.len();
        let named = &others[..all.min(NAMED)];
        format!(
            "queue {} holds {} of its fair share of {} (quota {quota}{asks}), so nothing is taken back for it; {}",
            queue.name,
            shared_number(resource, queue.allocated[resource]),
            quantity(self.model, resource, queue.fair[resource]),
            list(named, all)
        )
    }

    /// The sentence about the others.
    fn clause(&self, stay: &StayReason, queue: Option<QueueId>, holding: &Holding) -> String {
        let queue = queue.map_or_else(
            || "no queue".to_owned(),
            |id| format!("queue {}", self.model.queues()[id].name),
        );
        let (amount, names, until) = (self.unit(holding.amount), self.names(holding), self.until(holding));
        let why = match stay {
            StayReason::Leaves => "is leaving".to_owned(),
            StayReason::Free => "could be evicted".to_owned(),
            StayReason::EvictionRefused => "stays because its eviction was refused".to_owned(),
            StayReason::MinRuntime { .. } => format!("is protected by its minimum run time{until}"),
            StayReason::Budget(namespace, name) => format!("is protected by PodDisruptionBudget {namespace}/{name}"),
            StayReason::SwitchedOff(action) => {
                let (could, off) = (action.as_str(), self.switched_off(*action));
                format!("stays because the administrator has switched {off} off, so that {could} cannot evict it")
            }
            StayReason::FairShare(_) => "stays because the queue that waits is at its fair share".to_owned(),
            StayReason::NonPreemptible => "is not preemptible".to_owned(),
            StayReason::Priority => "has no lower priority".to_owned(),
            StayReason::WithinShares => "is within the quota or fair share of its queue".to_owned(),
            StayReason::Foreign => "belongs to other schedulers".to_owned(),
        };
        format!("Of {queue}, what holds {amount}{names} {why}")
    }
}

/// The GPU portion that is requested.
#[must_use]
pub fn parts(portion: i64, devices: i64) -> String {
    let portion = gpus(portion);
    match devices {
        1 => format!("{portion} of a GPU"),
        several => format!("{portion} of each of {several} GPUs"),
    }
}

#[cfg(test)]
mod tests;
