//! What holds for every cluster: properties over random ones.

use proptest::prelude::*;

use super::carry::{carry_out, engine};
use super::plain::exhaustive::find_and_check;
use super::plain::find_plainly;
use super::scenario::{NOW, budget, group, node, pod};
use crate::engine::Engine;
use crate::engine::actions::cycle::Kept;
use crate::engine::decision::{Decisions, Work};
use crate::engine::fairshare::order::Rules;
use crate::engine::input::{
    Event, GPU, GpuKind, GroupInput, Name, PodInput, PodStatus, QueueInput, Share, Time, WHOLE,
};
use crate::engine::model::ids::PodId;
use crate::engine::model::pod::{Extras, Place, Status};
use crate::engine::placement::choose::{Context, Scope, scan, walk};
use crate::engine::placement::rules::refresh_class;
use crate::engine::placement::score::Scorers;
use crate::engine::policy::{ActionKind, DisruptionBudgets};

pub const ALL_ACTIONS: [ActionKind; 5] = [
    ActionKind::Allocate,
    ActionKind::Consolidation,
    ActionKind::Reclaim,
    ActionKind::Preempt,
    ActionKind::StaleGangEviction,
];

/// A random cluster, small enough to be read when it fails.
#[derive(Clone, Debug)]
pub struct Cluster {
    nodes: Vec<u8>,
    queues: Vec<RandomQueue>,
    pod_groups: Vec<RandomJob>,
    /// See [`budget`]: pod groups by number, or all pods, and how many of their pods may be evicted.
    budgets: Vec<(Option<u8>, u8)>,
}

#[derive(Clone, Debug)]
struct RandomQueue {
    quota: i8,
    limit: i8,
    weight: u8,
    under: u8,
}

#[derive(Clone, Debug)]
struct RandomJob {
    queue: u8,
    gpus: &'static str,
    pods: u8,
    min: u8,
    priority: u8,
    running_on: Option<u8>,
}

impl RandomQueue {
    /// A queue without weight.
    fn of(quota: i8, limit: i8, under: u8) -> Self {
        Self {
            quota,
            limit,
            weight: 0,
            under,
        }
    }
}

impl RandomJob {
    /// Pods without a minimum.
    fn of(queue: u8, gpus: &'static str, pods: u8, priority: u8, running_on: Option<u8>) -> Self {
        Self {
            queue,
            gpus,
            pods,
            min: 0,
            priority,
            running_on,
        }
    }
}

fn clusters() -> impl Strategy<Value = Cluster> {
    clusters_of(1..12)
}

pub fn clusters_of(pod_groups: std::ops::Range<usize>) -> impl Strategy<Value = Cluster> {
    let queue = (-1..6_i8, -1..8_i8, 0..3_u8, 0..3_u8).prop_map(|(quota, limit, weight, under)| RandomQueue {
        quota,
        limit,
        weight,
        under,
    });
    let sizes = prop::sample::select(vec!["0", "1", "1", "1", "2", "3", "0.5", "0.3", "0.5*2", "40M"]);
    let entry = (0..4_u8, sizes, 1..4_u8, 0..4_u8, 0..3_u8, prop::option::of(0..6_u8)).prop_map(
        |(queue, gpus, pods, min, priority, running_on)| RandomJob {
            queue,
            gpus,
            pods,
            min: min.min(pods),
            priority,
            running_on,
        },
    );
    let budgets = prop::collection::vec((prop::option::weighted(0.7, 0..8_u8), 0..4_u8), 1..3);
    (
        prop::collection::vec(1..5_u8, 1..4),
        prop::collection::vec(queue, 4),
        prop::collection::vec(entry, pod_groups),
        prop_oneof![3 => Just(Vec::new()), 2 => budgets],
    )
        .prop_map(|(nodes, queues, pod_groups, budgets)| Cluster {
            nodes,
            queues,
            pod_groups,
            budgets,
        })
}

impl Cluster {
    pub fn events(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        let mut free: Vec<Free> = Vec::new();
        for (at, gpus) in self.nodes.iter().enumerate() {
            events.push(Event::Node(Box::new(node(&format!("n{at}"), &gpus.to_string()))));
            free.push(Free {
                gpus: i64::from(*gpus),
                shared: Vec::new(),
            });
        }
        for name in ["top-0", "top-1"] {
            events.push(Event::Queue(Box::new(queue(
                name,
                None,
                &RandomQueue {
                    quota: 4,
                    limit: -1,
                    weight: 1,
                    under: 0,
                },
            ))));
        }
        for (at, random) in self.queues.iter().enumerate() {
            let parent = if random.under == 2 {
                None
            } else {
                Some(format!("top-{}", random.under))
            };
            events.push(Event::Queue(Box::new(queue(
                &format!("q{at}"),
                parent.as_deref(),
                random,
            ))));
        }
        for (at, entry) in self.pod_groups.iter().enumerate() {
            events.extend(self.job_events(at, entry, &mut free));
        }
        events.extend(self.budgets.iter().map(|(entry, allowed)| {
            let entry = entry.map_or_else(|| "*".to_owned(), |entry| format!("j{entry:02}"));
            budget(&format!("{entry} {allowed}"))
        }));
        events
    }

    fn job_events(&self, at: usize, entry: &RandomJob, free: &mut [Free]) -> Vec<Event> {
        let mut group: GroupInput = group(&format!("j{at:02}"), &format!("q{}", entry.queue), at);
        group.priority = [50, 75, 100][usize::from(entry.priority)];
        group.preemptible = entry.priority < 2;
        group.min_member = Some(i64::from(entry.min));
        let mut events = vec![Event::Group(Box::new(group.clone()))];
        for number in 0..usize::from(entry.pods) {
            let mut one = pod(&group, number, entry.gpus);
            if let Some(place) = entry.running_on {
                let place = (usize::from(place) + if place % 2 == 0 { number } else { 0 }) % free.len();
                if let Some(groups) = free[place].take(&one) {
                    one.status = PodStatus::Running;
                    one.node = Some(format!("n{place}").into());
                    one.gpu_groups = groups;
                }
            }
            events.push(Event::Pod(Box::new(one)));
        }
        events
    }
}

/// What a pod takes of a GPU that it shares, in millionths of it; 0 if it shares none. All GPUs have 100 MiB.
pub fn part(pod: &PodInput) -> i64 {
    match pod.needs.gpu.kind {
        GpuKind::Fraction => pod.needs.gpu.portion * GPU / WHOLE,
        GpuKind::Memory => pod.needs.gpu.memory * GPU / 100,
        GpuKind::Regular | GpuKind::Mig => 0,
    }
}

/// What is free on a node: whole GPUs, and millionths of shared ones.
struct Free {
    gpus: i64,
    shared: Vec<(Name, i64)>,
}

impl Free {
    /// Takes what a pod asks for; returns the shared GPUs that it gets. `None`: it does not fit.
    fn take(&mut self, pod: &PodInput) -> Option<Vec<Name>> {
        let (part, count) = (part(pod), pod.needs.gpu.count);
        let mut gpus: Vec<_> = self.shared.iter_mut().filter(|(_, free)| *free >= part).collect();
        gpus.truncate(if part > 0 { count as usize } else { 0 });
        let new = count - gpus.len() as i64;
        if new > self.gpus {
            return None;
        }
        let mut taken = Vec::new();
        for (name, free) in gpus {
            *free -= part;
            taken.push(name.clone());
        }
        self.gpus -= new;
        if part > 0 {
            for device in 0..new {
                let name: Name = format!("g-{}-{device}", pod.pod.uid).into();
                taken.push(name.clone());
                self.shared.push((name, GPU - part));
            }
        }
        Some(taken)
    }
}

fn queue(name: &str, parent: Option<&str>, random: &RandomQueue) -> QueueInput {
    let amount = |gpus: i8| (gpus >= 0).then(|| i64::from(gpus) * GPU);
    let all = Share {
        quota: None,
        limit: None,
        weight: 1_000_000,
    };
    QueueInput {
        name: name.into(),
        display: name.into(),
        parent: parent.map(Into::into),
        priority: 100,
        created: Time(0),
        cpu: all,
        memory: all,
        gpu: Share {
            quota: amount(random.quota),
            limit: amount(random.limit),
            weight: i64::from(random.weight) * 1_000_000,
        },
        ..QueueInput::default()
    }
}

/// The cluster's events after its decisions were carried out: bound pods run, evicted ones are gone.
fn carried_out(events: &[Event], decisions: &Decisions) -> Vec<Event> {
    let mut after = Vec::new();
    for event in events {
        let Event::Pod(pod) = event else {
            after.push(event.clone());
            continue;
        };
        if decisions.evict.iter().any(|eviction| eviction.pod.uid == pod.pod.uid) {
            after.push(Event::PodGone(pod.pod.uid.clone()));
        } else if let Some(bind) = decisions.bind.iter().find(|bind| bind.pod.uid == pod.pod.uid) {
            let pod = PodInput {
                status: PodStatus::Running,
                node: Some(bind.node.clone()),
                gpu_groups: bind.gpu_groups.clone(),
                received: Some(bind.received),
                ..(**pod).clone()
            };
            after.push(Event::Pod(Box::new(pod)));
        } else {
            after.push(event.clone());
        }
    }
    after
}

/// Has the engine look at everything in its next cycle, whether it changed or not.
pub fn look_again(engine: &mut Engine) {
    engine.set_policy(engine.policy.clone());
}

fn times(decisions: &Decisions, events: &mut [Event]) {
    for event in events {
        let Event::Group(group) = event else { continue };
        if let Some(times) = decisions.times.iter().find(|times| times.group == group.key) {
            (group.stale_since, group.last_start, group.last_eviction) =
                (times.stale_since, times.last_start, times.last_eviction);
        }
    }
}

/// Pods that ask for the same GPU memory in different queues, which have different limits and quotas.
#[test]
fn the_order_of_arrival_does_not_matter_to_verdicts_on_gpu_memory() {
    let queue = |quota, limit| RandomQueue::of(quota, limit, 0);
    let job = RandomJob::of;
    let cluster = Cluster {
        nodes: vec![3],
        queues: vec![queue(1, -1), queue(0, 0), queue(0, -1), queue(0, 0)],
        pod_groups: vec![
            job(1, "0.5", 1, 0, Some(0)),
            job(0, "1", 1, 0, Some(0)),
            job(0, "1", 2, 0, Some(0)),
            job(2, "40M", 1, 0, None),
            job(0, "40M", 2, 2, None),
            job(0, "0.5", 1, 2, None),
        ],
        budgets: vec![],
    };
    let events = cluster.events();
    let reports = |events: &[Event]| engine(events, &ALL_ACTIONS).cycle(NOW).unschedulable;
    for turn in 1..events.len() {
        let turned = [&events[turn..], &events[..turn]].concat();
        assert_eq!(reports(&events), reports(&turned), "from event {turn} on");
    }
}

/// A pod that is placed and displaced in the same cycle was never bound, so the place is free at once for the pod that displaced it.
#[test]
fn no_pod_waits_for_the_place_of_one_that_was_never_bound() {
    let queue = RandomQueue::of;
    let job = |queue, gpus, priority, running_on| RandomJob::of(queue, gpus, 1, priority, running_on);
    let cluster = Cluster {
        nodes: vec![4, 1, 1],
        queues: vec![queue(0, 0, 0), queue(2, -1, 0), queue(4, -1, 1), queue(0, 0, 0)],
        pod_groups: vec![
            job(2, "0.7", 0, None),
            job(0, "1", 0, Some(3)),
            job(0, "0.5", 0, Some(2)),
            job(1, "0.3", 0, None),
            job(2, "0.7", 0, None),
            job(2, "0.7*2", 1, None),
            job(2, "1", 0, Some(1)),
            job(0, "0.7*2", 0, None),
            job(0, "0.25", 0, Some(3)),
            job(0, "0.5", 0, Some(0)),
            job(2, "0.5", 0, Some(2)),
            job(1, "0.3", 0, None),
        ],
        budgets: vec![],
    };
    let events = cluster.events();
    let mut engine = engine(&events, &ALL_ACTIONS);
    let decisions = engine.cycle(NOW);
    assert!(
        decisions.pipeline.is_empty() || !decisions.evict.is_empty(),
        "{decisions:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn decisions_violate_no_invariant(cluster in clusters()) {
        let events = cluster.events();
        let mut engine = engine(&events, &ALL_ACTIONS);
        engine.cycle(Time(0));
        prop_assert!(engine.model().broken_rules().is_empty(), "{:?}", engine.model().broken_rules());
    }

    #[test]
    fn gangs_run_whole_within_limits_and_quotas(cluster in clusters()) {
        let events = cluster.events();
        let mut before = engine(&events, &[]);
        before.cycle(NOW);
        let mut after = engine(&events, &ALL_ACTIONS);
        let mut decisions = after.cycle(NOW);
        for (id, pod_group) in after.model().pod_groups().iter() {
            let binds = decisions.bind.iter().filter(|bind| bind.group == pod_group.key).count();
            prop_assert!(binds == 0 || pod_group.satisfied(0, &pod_group.active()), "{:?} is bound in part", pod_group.key);
            prop_assert!(after.model().pod_groups().contains(id));
        }
        let find = |name: &str| before.model().queues().iter().find(|(_, queue)| &*queue.name == name).map(|(_, queue)| (queue.allocated, queue.non_preemptible));
        for (_, queue) in after.model().queues().iter() {
            let (allocated, non_preemptible) = find(&queue.name).expect("the same queues");
            for resource in 0..3 {
                let share = queue.share(resource);
                let grown = queue.allocated[resource] > allocated[resource];
                prop_assert!(!grown || share.limit.is_none_or(|limit| queue.allocated[resource] <= limit), "{} passes its limit", queue.name);
                let grown = queue.non_preemptible[resource] > non_preemptible[resource];
                prop_assert!(!grown || share.quota.is_none_or(|quota| queue.non_preemptible[resource] <= quota), "{} passes its quota", queue.name);
            }
        }
        // So it is when all evictions are refused, and the binds that await them fail.
        let evicted = decisions.evict.drain(..).map(|eviction| Event::Unevicted { pod: eviction.pod.uid.clone(), retry_at: None });
        let awaiting = decisions.bind.iter().filter(|bind| bind.after_evictions.is_some());
        let failed = awaiting.map(|bind| Event::Unbound { pod: bind.pod.uid.clone(), retry_at: None });
        for event in evicted.chain(failed) {
            after.apply(event, NOW);
        }
        for (_, queue) in after.model().queues().iter() {
            let (allocated, _) = find(&queue.name).expect("the same queues");
            for (resource, before) in allocated.into_iter().enumerate() {
                let grown = queue.allocated[resource] > before;
                let within = queue.share(resource).limit.is_none_or(|limit| queue.allocated[resource] <= limit);
                prop_assert!(!grown || within, "{} passes its limit when evictions are refused", queue.name);
            }
        }
    }

    #[test]
    fn arrival_order_does_not_matter(cluster in clusters(), seed in prop::collection::vec(any::<u32>(), 64)) {
        let events = cluster.events();
        let mut shuffled: Vec<_> = events.iter().cloned().enumerate().collect();
        shuffled.sort_by_key(|(at, _)| seed[at % seed.len()].wrapping_mul(1 + *at as u32));
        let shuffled: Vec<_> = shuffled.into_iter().map(|(_, event)| event).collect();
        let (one, other) = (engine(&events, &ALL_ACTIONS).cycle(NOW), engine(&shuffled, &ALL_ACTIONS).cycle(NOW));
        prop_assert_eq!((&one.bind, &one.evict, &one.pipeline), (&other.bind, &other.evict, &other.pipeline));
        prop_assert_eq!(&one.times, &other.times);
        prop_assert_eq!(&one.unschedulable, &other.unschedulable);
    }

    #[test]
    fn a_second_cycle_without_changes_decides_nothing(cluster in clusters()) {
        let mut engine = engine(&cluster.events(), &[ActionKind::Allocate]);
        engine.cycle(NOW);
        prop_assert!(engine.cycle(NOW).is_empty());
        look_again(&mut engine);
        let again = engine.cycle(NOW);
        prop_assert!(again.bind.is_empty() && again.evict.is_empty(), "{again:?}");
    }

    #[test]
    fn a_model_changed_in_place_equals_one_built_anew(cluster in clusters(), gone in prop::collection::vec(any::<bool>(), 48)) {
        let mut now = cluster.events();
        let mut kept = engine(&now, &ALL_ACTIONS);
        for round in 0..3 {
            let (one, other) = (kept.cycle(NOW), engine(&now, &ALL_ACTIONS).cycle(NOW));
            prop_assert_eq!((&one.bind, &one.evict, &one.pipeline), (&other.bind, &other.evict, &other.pipeline), "in round {}", round);
            now = carried_out(&now, &one);
            times(&one, &mut now);
            for (event, gone) in now.iter_mut().zip(gone.iter().cycle().skip(7 * round)) {
                if let Event::Pod(pod) = event && *gone {
                    *event = Event::PodGone(pod.pod.uid.clone());
                }
            }
            // Nodes stay as they are, and so does what is known about them.
            for event in now.iter().filter(|event| !matches!(event, Event::Node(_))) {
                kept.apply(event.clone(), NOW);
            }
            prop_assert!(kept.model().broken_rules().is_empty(), "{:?}", kept.model().broken_rules());
            let Engine { kept: Kept { capacity, sorted, .. }, model, policy, .. } = &mut kept;
            model.prepare(policy);
            prop_assert!(capacity.are_true(model), "{capacity:?}");
            prop_assert!(sorted.is_true(model, Rules::of(policy), NOW), "{sorted:?}");
            look_again(&mut kept);
        }
    }

    #[test]
    fn a_rollback_restores_the_model(cluster in clusters(), steps in prop::collection::vec((any::<u16>(), any::<u8>(), 0..4_u8), 1..30)) {
        let mut engine = engine(&cluster.events(), &[]);
        engine.cycle(NOW);
        let model = &mut engine.model;
        let before = model.fingerprint();
        let mark = model.mark();
        let pods: Vec<PodId> = model.pods().ids().collect();
        for (pod, place, step) in steps.into_iter().filter(|_| !pods.is_empty()) {
            let pod = pods[usize::from(pod) % pods.len()];
            let node = model.by_name()[usize::from(place) % model.by_name().len()];
            let mut groups = smallvec::SmallVec::new();
            if model.shapes()[model.pods()[pod].shape].shared {
                groups.push(model.node_mut(node).group(&format!("g{}", place % 3).into()));
            }
            let status = model.pods()[pod].state.status;
            match (step, status) {
                (0, Status::Pending) => model.allocate(pod, Place::new(node, Extras { groups, ..Extras::default() })),
                (1, Status::Pending | Status::Releasing) => model.pipeline(pod, Place::new(node, Extras { groups, ..Extras::default() })),
                (2, Status::Running | Status::Allocated | Status::Pipelined) => model.evict(pod),
                (3, Status::Releasing) if model.pods()[pod].state.evicted_from.is_some() && model.pods()[pod].state.hold.is_some() => model.unevict(pod),
                (_, _) => {}
            }
        }
        model.rollback(mark);
        prop_assert_eq!(before, model.fingerprint());
        prop_assert!(model.broken_rules().is_empty(), "{:?}", model.broken_rules());
    }

    #[test]
    fn the_index_finds_the_node_with_the_best_score(cluster in clusters(), extra in prop::sample::select(vec!["0", "1", "2", "0.5", "0.3", "40M"])) {
        let mut events = cluster.events();
        let group = group("asking", "q0", 99);
        let asking = pod(&group, 0, extra);
        events.push(Event::Group(Box::new(group)));
        events.push(Event::Pod(Box::new(asking.clone())));
        let mut engine = engine(&events, &[]);
        engine.cycle(NOW);
        let (policy, model) = (&engine.policy, &mut engine.model);
        let pod = model.pods().iter().find(|(_, pod)| pod.input.pod.uid == asking.pod.uid).map(|(id, _)| id).expect("it was added");
        let class = model.pods()[pod].class;
        refresh_class(model, class);
        let scorers = Scorers::of(policy);
        let context = Context { policy, scorers: &scorers, scope: Scope::default(), spreading: None, rejected: None };
        let mut work = Work::default();
        let name = |id: Option<_>| id.map(|id| model.nodes()[id].name.clone());
        prop_assert_eq!(name(scan(model, context, pod, &mut work)), name(walk(model, context, pod, &mut work)));
    }

    #[test]
    fn no_budget_that_is_respected_is_overdrawn(cluster in clusters()) {
        let decisions = minding(engine(&cluster.events(), &ALL_ACTIONS), DisruptionBudgets::Respect).cycle(NOW);
        for (entry, allowed) in &cluster.budgets {
            let prefix = entry.map_or_else(String::new, |entry| format!("j{entry:02}-"));
            let lost = decisions.evict.iter().filter(|eviction| eviction.pod.name.starts_with(&prefix)).count();
            prop_assert!(lost <= usize::from(*allowed), "{entry:?}: {lost} of {allowed}");
        }
    }

    #[test]
    fn budgets_are_exceeded_only_by_reported_evictions_and_never_for_a_move(cluster in clusters()) {
        let decisions = engine(&cluster.events(), &ALL_ACTIONS).cycle(NOW);
        for (entry, allowed) in &cluster.budgets {
            let prefix = entry.map_or_else(String::new, |entry| format!("j{entry:02}-"));
            let of_job = decisions.evict.iter().filter(|eviction| eviction.pod.name.starts_with(&prefix));
            let unsaid = of_job.filter(|eviction| eviction.exceeds.is_empty()).count();
            prop_assert!(unsaid <= usize::from(*allowed), "{entry:?}: {unsaid} of {allowed}");
        }
        for eviction in decisions.evict.iter().filter(|eviction| !eviction.exceeds.is_empty()) {
            prop_assert!(eviction.action != ActionKind::Consolidation, "{eviction:?}");
        }
    }

    #[test]
    fn repeated_cycles_reach_a_stable_state(cluster in clusters()) {
        let mut events = cluster.events();
        let mut engine = engine(&events, &ALL_ACTIONS);
        let (mut busy, mut quiet) = (0, 0);
        while quiet < 10 {
            let decisions = engine.cycle(NOW);
            if decisions.bind.is_empty() && decisions.evict.is_empty() {
                quiet += 1;
                // No pod is leaving.
                prop_assert!(decisions.pipeline.is_empty(), "{decisions:?}");
            } else {
                busy += 1;
                prop_assert!(busy <= 30 && quiet == 0, "after {busy} cycles, {quiet} quiet: {decisions:?}");
            }
            carry_out(&mut engine, &mut events, &decisions);
            look_again(&mut engine);
        }
        prop_assert!(engine.model().broken_rules().is_empty(), "{:?}", engine.model().broken_rules());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn searches_find_what_the_plain_search_finds(cluster in clusters_of(4..24)) {
        let events = cluster.events();
        let generators_only = || with_steps(engine(&events, &ALL_ACTIONS), 0);
        let (mut fast, mut plain) = (generators_only(), generators_only());
        let (fast, plain) = (fast.cycle(NOW), plain.cycle_with(NOW, &mut |_| (), find_plainly));
        prop_assert_eq!(sorted(&fast.evict), sorted(&plain.evict));
        prop_assert_eq!(sorted(&fast.pipeline), sorted(&plain.pipeline));
        prop_assert_eq!(&fast.bind, &plain.bind);
        prop_assert!(fast.work.candidates_simulated <= plain.work.candidates_simulated);
    }
}

/// The default settings, with budgets that mean this.
fn minding(mut engine: Engine, budgets: DisruptionBudgets) -> Engine {
    let mut policy = engine.policy.clone();
    policy.disruption_budgets = budgets;
    engine.set_policy(policy);
    engine
}

/// The default settings, with so many steps for the complete search.
fn with_steps(mut engine: Engine, steps: usize) -> Engine {
    let mut policy = engine.policy.clone();
    policy.plugins.complete_search_steps = steps;
    engine.set_policy(policy);
    engine
}

/// The default settings, with so many steps for searches in vain.
fn with_search_steps(mut engine: Engine, steps: u64) -> Engine {
    let mut policy = engine.policy.clone();
    policy.max_steps_without_result = steps;
    engine.set_policy(policy);
    engine
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn each_pod_group_has_its_search_when_these_are_limited(cluster in clusters_of(4..24)) {
        let mut engine = with_search_steps(engine(&cluster.events(), &ALL_ACTIONS), 0);
        let mut cycles = 0;
        while engine.next_wakeup(NOW).is_some_and(|(at, _)| at <= NOW) {
            let decisions = engine.cycle(NOW);
            // While evicted pods terminate, pods are pipelined anew in each cycle, and what one finds depends on which. The end of each of them begins a round.
            for eviction in decisions.evict {
                engine.apply(Event::PodGone(eviction.pod.uid.clone()), NOW);
            }
            cycles += 1;
            prop_assert!(cycles < 200, "it does not end");
        }
        let mut whole = with_search_steps(engine, u64::MAX);
        let decisions = whole.cycle(NOW);
        prop_assert!(decisions.evict.is_empty() && decisions.bind.is_empty(), "{decisions:?}");
    }

    #[test]
    fn victims_are_found_if_any_set_of_them_suffices(cluster in clusters_of(3..12)) {
        let mut engine = with_steps(engine(&cluster.events(), &ALL_ACTIONS), usize::MAX);
        engine.cycle_with(NOW, &mut |_| (), find_and_check);
        prop_assert!(engine.model().broken_rules().is_empty(), "{:?}", engine.model().broken_rules());
    }
}

fn sorted<T: std::fmt::Debug>(decided: &[T]) -> Vec<String> {
    let mut lines: Vec<String> = decided.iter().map(|one| format!("{one:?}")).collect();
    lines.sort();
    lines
}

/// Packed, its first pod gets the two GPUs that are half free, and leaves one GPU for the second pod, which needs two.
#[test]
fn a_gang_with_parts_of_several_gpus_is_bound_where_a_search_found_room_without_victims() {
    let cluster = Cluster {
        nodes: vec![2, 4],
        queues: vec![
            RandomQueue::of(3, 3, 0),
            RandomQueue::of(0, 0, 0),
            RandomQueue::of(0, 0, 0),
            RandomQueue::of(0, 0, 0),
        ],
        pod_groups: vec![
            RandomJob::of(1, "2", 1, 0, Some(0)),
            RandomJob {
                min: 2,
                ..RandomJob::of(0, "40M", 3, 0, Some(5))
            },
            RandomJob {
                min: 2,
                ..RandomJob::of(0, "0.5*2", 2, 2, None)
            },
            RandomJob::of(0, "0.5", 1, 0, None),
            RandomJob::of(1, "0.5*2", 1, 0, Some(1)),
            RandomJob::of(0, "0.5", 1, 1, None),
        ],
        budgets: vec![],
    };
    let mut events = cluster.events();
    let mut engine = engine(&events, &ALL_ACTIONS);
    let mut bound = Vec::new();
    for _ in 0..3 {
        let decisions = engine.cycle(NOW);
        bound.extend(decisions.bind.iter().map(|bind| bind.pod.name.to_string()));
        carry_out(&mut engine, &mut events, &decisions);
        look_again(&mut engine);
    }
    bound.sort_unstable();
    assert_eq!(bound, ["j02-000", "j02-001", "j03-000", "j05-000"]);
}
