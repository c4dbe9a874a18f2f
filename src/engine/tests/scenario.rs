//! Scenarios as small tables, and the one function that runs them.
//!
//! A pod group is one line: `name queue pods… options`. Pods are `[sub-group:]KIND GPUS [xCOUNT] [@node,node…]` without spaces, e.g. `T1x4` (four pending pods of one
//! GPU), `T2@n0` (running on n0), `a:0.5@n0/g` (half of GPU group g), `40Mx3` (40 MiB of GPU memory each), `60M*2` (on two devices), `Tmig-1g.5gb*2` (two instances). KIND is T (50), I (75), both
//! preemptible, B (100) or F (125), not preemptible; the first one counts for the pod group. Pod groups are listed oldest first.
//! Behind it, `>key:value` names a node label that the pods insist on; `!` a pod that is stuck in termination.
//! Options: `min=2`, `need=1` (sub-groups that the root needs), `subs=a:2,b:1` (minima), `subs=g/1,g.a:1` (a set that needs one, and a member of it),
//! `near=zone`, `apart=zone`, `likes=zone`, `spread=zone` (among the pod group's own pods, by a node label), `topo=net:rack:` (topology, required level, preferred level), `topo.a=net::rack` (of a sub-group), `prio=49`, `order=1,2` (pod priorities), `terminating`, `stuck`, `failed=1`, `succeeded=1`, `stale=61`, `grace=10`, `delay=600`, `age=60`, `started=10`,
//! `cpu=2` and `mem=1` (of each pod), `backoff` (one failure, and it is left alone), `backedoff` (it has failed).
//!
//! What is wanted, per pod group (or `entry.sub_group`; those that are not listed stay as they were): `B n0` bound, `P n0` planned, `R` evicted, `R P n0` moved, `-` pending still, `=` as it was; with counts where there
//! are several: `2 R, =`. After several cycles: where its pods are, `n0`, or `-`.

mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;

use super::carry::carry_out;
use crate::engine::Engine;
use crate::engine::decision::Decisions;
use crate::engine::input::devices::{DeviceInput, Reach};
use crate::engine::input::{
    Amounts, BudgetInput, Event, GPU, GpuKind, GpuRequest, GroupInput, GroupKey, Name, Needs, NodeRequirement, Pairs,
    PodInput, PodRef, PodSelector, PodStatus, PodTerm, QueueInput, Relations, SelectorOp, Share, Spread, SubGroupInput,
    Time, TopologyConstraint, TopologyInput, WHOLE,
};
use crate::engine::model::resources::GPUS;
use crate::engine::policy::{ActionKind, DisruptionBudgets, Policy};
use crate::engine::stage::{SearchEnd, Stage};
pub use nodes::node;

/// The instant at which everything happens.
pub const NOW: Time = Time(1_000_000_000);

/// A table entry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    name: String,
    /// GPUs per node, or `GPUs of MiB`; `mig-1g.5gb*7` for instances; `Cn` and `Mn` for so much cpu and memory; labels behind it as `key=value`.
    nodes: BTreeMap<String, String>,
    /// Levels by topology, as label keys from the widest on.
    #[serde(default)]
    topologies: BTreeMap<String, Vec<String>>,
    /// See [`queue`]; oldest first.
    queues: Vec<String>,
    pod_groups: Vec<String>,
    /// Disruption budgets: a pod group, or `*` for all pods, and how many of its pods may be evicted.
    #[serde(default)]
    budgets: Vec<String>,
    /// What budgets mean: `prefer` if nothing else is said.
    mode: Option<String>,
    /// Allocate, if nothing else is said.
    #[serde(default)]
    actions: Vec<String>,
    /// Cycles that are carried out, one after the other: bound pods run, evicted ones wait again. Absent = one, of which the decisions count.
    cycles: Option<usize>,
    #[serde(default)]
    want: BTreeMap<String, String>,
    /// Text that must occur in the report about a pod group, or `nothing`.
    #[serde(default)]
    says: BTreeMap<String, String>,
    /// Text that must occur in the event about a pod of a pod group that is evicted, or `nothing`.
    #[serde(default)]
    tells: BTreeMap<String, String>,
    /// Fair shares of queues, in GPUs.
    #[serde(default)]
    shares: BTreeMap<String, f64>,
    /// When the engine wants to be asked again, and why: `MinRuntime in 50`, in seconds.
    wakes: Option<String>,
    /// What is wanted then.
    #[serde(default)]
    then: BTreeMap<String, String>,
}

/// Runs every entry of a table and compares.
pub fn check(table: &str) {
    let scenarios: Vec<Scenario> = serde_yaml_ng::from_str(table).expect("a table of scenarios");
    let mut wrong = Vec::new();
    for scenario in scenarios {
        let outcome = scenario.outcome();
        let wants = [
            scenario.want.len(),
            scenario.shares.len(),
            scenario.says.len(),
            scenario.tells.len(),
        ];
        if wants == [0; 4] {
            wrong.push(format!("{}: nothing is wanted", scenario.name));
        }
        let mut differ = |what: &str, wanted: &str, got: Option<&str>| {
            let got = got.unwrap_or("nothing");
            if wanted != got {
                wrong.push(format!("{}: {what}: wanted `{wanted}`, got `{got}`", scenario.name));
            }
        };
        for (entry, wanted) in complete(&scenario.want, &outcome.before) {
            differ(&entry, &wanted, outcome.pod_groups.get(&entry).map(String::as_str));
        }
        for (entry, wanted) in complete(&scenario.then, &outcome.waiting) {
            differ(&entry, &wanted, outcome.later.get(&entry).map(String::as_str));
        }
        for (queue, wanted) in &scenario.shares {
            let got = outcome.shares.get(queue).map(ToString::to_string);
            differ(queue, &wanted.to_string(), got.as_deref());
        }
        if let Some(wanted) = &scenario.wakes {
            differ("wakes", wanted, outcome.wakes.as_deref());
        }
        for (entry, text) in &scenario.says {
            let got = outcome.reports.get(entry).map_or("nothing", String::as_str);
            if !got.contains(text) {
                differ(entry, text, Some(got));
            }
        }
        for (entry, text) in &scenario.tells {
            let got = outcome.events.get(entry).map_or("nothing", String::as_str);
            if !got.contains(text) {
                differ(entry, text, Some(got));
            }
        }
        wrong.extend(outcome.broken.iter().map(|rule| format!("{}: {rule}", scenario.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wanted of all pod groups: those that are not listed stay as they were. Nothing is wanted of any if none is listed.
fn complete(listed: &BTreeMap<String, String>, before: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    if listed.is_empty() {
        return BTreeMap::new();
    }
    // A pod group stands for its sub-groups, and they for it.
    let whole_of = |name: &str| name.split_once('.').map_or(name, |(whole, _)| whole).to_owned();
    let with_parts: BTreeSet<String> = listed
        .keys()
        .filter(|name| name.contains('.'))
        .map(|name| whole_of(name))
        .collect();
    let left_out = |name: &str| match name.split_once('.') {
        Some((whole, _)) => !listed.contains_key(whole),
        None => !with_parts.contains(name),
    };
    let others = before.iter().filter(|(name, _)| left_out(name));
    let others = others.map(|(name, words)| (name.clone(), words.clone()));
    // What is listed counts.
    others.chain(listed.clone()).collect()
}

struct Outcome {
    /// The pod groups if nothing had been decided.
    before: BTreeMap<String, String>,
    /// The same, in the words for one cycle.
    waiting: BTreeMap<String, String>,
    pod_groups: BTreeMap<String, String>,
    later: BTreeMap<String, String>,
    shares: BTreeMap<String, f64>,
    reports: BTreeMap<String, String>,
    events: BTreeMap<String, String>,
    wakes: Option<String>,
    broken: Vec<String>,
}

impl Scenario {
    /// Its actions, and the default settings beside.
    pub fn policy(&self) -> Policy {
        let named = self
            .actions
            .iter()
            .map(|name| ActionKind::parse(name).expect("an action"));
        let actions = if self.actions.is_empty() {
            vec![ActionKind::Allocate]
        } else {
            named.collect()
        };
        let mode = self.mode.as_deref().unwrap_or("prefer");
        Policy {
            actions,
            disruption_budgets: DisruptionBudgets::parse(mode).expect("a mode"),
            ..Policy::default()
        }
    }

    /// All events of the scenario.
    pub fn events(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self
            .nodes
            .iter()
            .map(|(name, gpus)| Event::Node(Box::new(node(name, gpus))))
            .collect();
        events.extend(self.topologies.iter().map(|(name, levels)| {
            Event::Topology(TopologyInput {
                name: name.as_str().into(),
                levels: levels.iter().map(|level| level.as_str().into()).collect(),
            })
        }));
        events.push(Event::Queue(Box::new(queue("root", "-1 L-1", Time(0)))));
        for (age, line) in self.queues.iter().enumerate() {
            let (name, rest) = line.split_once(' ').expect("a queue is a name and a quota");
            events.push(Event::Queue(Box::new(queue(name, rest, Time(age as i64)))));
        }
        for (age, line) in self.pod_groups.iter().enumerate() {
            events.extend(pod_group(line, age));
        }
        events.extend(self.budgets.iter().map(|line| budget(line)));
        events
    }

    fn outcome(&self) -> Outcome {
        let mut engine = Engine::new(self.policy());
        let mut events = self.events();
        for event in &events {
            engine.apply(event.clone(), NOW);
        }
        let waiting = outcomes(&events, &Decisions::default());
        let before = if self.cycles.is_some() {
            places(&events)
        } else {
            waiting.clone()
        };
        let mut decisions = engine.cycle(NOW);
        for _ in 1..self.cycles.unwrap_or(1) {
            carry_out(&mut engine, &mut events, &decisions);
            decisions = engine.cycle(NOW);
        }
        let pod_groups = if self.cycles.is_some() {
            carry_out(&mut engine, &mut events, &decisions);
            places(&events)
        } else {
            outcomes(&events, &decisions)
        };
        let queues = engine.model().queues().iter();
        let shares = queues.map(|(_, queue)| (queue.name.to_string(), queue.fair[GPUS] as f64 / GPU as f64));
        let shares = shares.collect();
        let wake = engine.next_wakeup(NOW);
        let wakes = wake.map(|(at, reason)| format!("{reason:?} in {}", (at.0 - NOW.0) / 1000));
        let later = match wake {
            Some((at, _)) if !self.then.is_empty() => outcomes(&events, &engine.cycle(at)),
            Some(_) | None => BTreeMap::new(),
        };
        let broken = engine
            .model()
            .broken_rules()
            .into_iter()
            .map(|(rule, what)| format!("{rule:?}: {what}"))
            .collect();
        let reports = decisions
            .unschedulable
            .iter()
            .map(|report| (report.group.name().to_string(), report.message.clone()))
            .collect();
        let events = decisions.evict.iter();
        let events = events.map(|eviction| (eviction.group.name().to_string(), eviction.message()));
        let events = events.collect();
        Outcome {
            before,
            waiting,
            pod_groups,
            later,
            shares,
            reports,
            events,
            wakes,
            broken,
        }
    }
}

/// What became of each pod group, in words.
fn outcomes(events: &[Event], decisions: &Decisions) -> BTreeMap<String, String> {
    in_words(events, |pod| {
        let bind = decisions
            .bind
            .iter()
            .find(|bind| bind.pod.uid == pod.pod.uid)
            .map(|bind| format!("B {}", bind.node));
        let plan = decisions
            .pipeline
            .iter()
            .find(|plan| plan.pod.uid == pod.pod.uid)
            .map(|plan| format!("P {}", plan.node));
        let evicted = decisions.evict.iter().any(|eviction| eviction.pod.uid == pod.pod.uid);
        match (bind, plan, evicted) {
            (Some(bind), None, false) => bind,
            (None, Some(plan), false) => plan,
            (None, Some(plan), true) => format!("R {plan}"),
            (None, None, true) => "R".to_owned(),
            (None, None, false) if pod.status == PodStatus::Pending => "-".to_owned(),
            (None, None, false) => "=".to_owned(),
            (bind, plan, evicted) => format!("contradiction: {bind:?} {plan:?} {evicted}"),
        }
    })
}

/// Where each pod group's pods are, in words.
fn places(events: &[Event]) -> BTreeMap<String, String> {
    in_words(events, |pod| {
        pod.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
    })
}

/// A word for each pod, counted by pod group and by sub-group.
fn in_words(events: &[Event], word: impl Fn(&PodInput) -> String) -> BTreeMap<String, String> {
    let mut words: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for event in events {
        let Event::Pod(pod) = event else { continue };
        let entry = pod.group.as_ref().expect("pods here have a group").name().to_string();
        let names = pod.sub_group.iter().map(|sub| format!("{entry}.{sub}"));
        for name in names.chain([entry.clone()]) {
            *words.entry(name).or_default().entry(word(pod)).or_insert(0) += 1;
        }
    }
    let text = |(word, count): (&String, &usize)| {
        if *count == 1 {
            word.clone()
        } else {
            format!("{count} {word}")
        }
    };
    words
        .into_iter()
        .map(|(entry, words)| (entry, words.iter().map(text).collect::<Vec<_>>().join(", ")))
        .collect()
}

/// A budget of `JOB NUMBER` or `* NUMBER`.
pub fn budget(line: &str) -> Event {
    let (entry, allowed) = line.split_once(' ').expect("a budget is a job and a number");
    let own = NodeRequirement {
        key: "app".into(),
        op: SelectorOp::In,
        values: vec![entry.into()],
    };
    let labels = if entry == "*" { Vec::new() } else { vec![own] };
    Event::Budget(Box::new(BudgetInput {
        namespace: "ns".into(),
        name: line.into(),
        pods: PodSelector {
            labels: Some(labels),
            namespaces: Some(["ns".into()].into()),
        },
        allowed: allowed.parse().expect("a number"),
        disrupted: BTreeSet::new(),
    }))
}

/// A GPU that can be claimed, and meets the selector 0.
pub fn device(name: impl Into<Name>, reach: Reach) -> DeviceInput {
    DeviceInput {
        name: name.into(),
        reach,
        binds: false,
        usable: true,
        gpu: true,
        multi: false,
        attributes: Vec::new(),
        capacities: Vec::new(),
        draws: Vec::new(),
        taints: Vec::new(),
        meets: vec![0],
        fails: Vec::new(),
    }
}

/// A top queue without limits.
pub fn open_queue(name: &str) -> Event {
    let mut open = queue(name, "-1 L-1", Time(0));
    open.parent = None;
    Event::Queue(Box::new(open))
}

/// A queue: `quota [wWEIGHT] [LLIMIT] [pPRIORITY] [cCPU] [mMEMORY] [preempt=S] [reclaim=S] [unset] [in PARENT]`: GPUs, quotas of cpu and memory where they are
/// not unlimited (`cCPU/LIMIT` with a limit), minimum run times in seconds, `unset`: no limit of GPUs is
/// stated.
pub fn queue(name: &str, text: &str, created: Time) -> QueueInput {
    let gpus = |text: &str| -> Option<i64> {
        (text != "-1").then(|| (text.parse::<f64>().expect("GPUs") * GPU as f64) as i64)
    };
    let mut gpu = Share {
        quota: None,
        limit: None,
        weight: 0,
    };
    let mut parent = (name != "root").then(|| Name::from("root"));
    let mut priority = 100;
    let mut limits_unset = [false; 3];
    let (mut preempt_min_runtime, mut reclaim_min_runtime) = (None, None);
    let (mut cpu, mut memory) = (
        Share {
            weight: 1_000_000,
            ..gpu
        },
        Share {
            weight: 1_000_000,
            ..gpu
        },
    );
    let amount = |text: &str| text.parse::<i64>().ok().filter(|amount| *amount >= 0);
    let mut words = text.split_whitespace();
    gpu.quota = gpus(words.next().expect("a quota"));
    while let Some(word) = words.next() {
        if let Some((what, seconds)) = word.split_once('=') {
            let least = amount(seconds).map(|seconds| seconds * 1000);
            match what {
                "preempt" => preempt_min_runtime = least,
                _ => reclaim_min_runtime = least,
            }
            continue;
        }
        if word == "unset" {
            (gpu.limit, limits_unset) = (Some(0), [false, false, true]);
            continue;
        }
        let (letter, rest) = word.split_at(1);
        let (quota, limit) = rest.split_once('/').unwrap_or((rest, "-1"));
        match letter {
            "w" => gpu.weight = rest.parse::<i64>().expect("a weight") * 1_000_000,
            "L" => gpu.limit = gpus(rest),
            "p" => priority = rest.parse().expect("a priority"),
            "c" => (cpu.quota, cpu.limit) = (amount(quota), amount(limit)),
            "m" => (memory.quota, memory.limit) = (amount(quota), amount(limit)),
            _ => parent = words.next().map(Name::from),
        }
    }
    let name: Name = name.into();
    QueueInput {
        display: name.clone(),
        name,
        parent,
        priority,
        created,
        cpu,
        memory,
        gpu,
        limits_unset,
        preempt_min_runtime,
        reclaim_min_runtime,
        ..QueueInput::default()
    }
}

/// A pod group with a pod that wants nothing but a slot.
pub fn group(name: &str, queue: &str, age: usize) -> GroupInput {
    GroupInput {
        key: GroupKey::new("ns", name),
        uid: name.into(),
        queue: queue.into(),
        priority: 50,
        preemptible: true,
        min_member: None,
        min_sub_group: None,
        sub_groups: Vec::new(),
        topology: None,
        created: Time(NOW.0 - 100_000_000 + age as i64 * 1000),
        last_start: None,
        last_eviction: None,
        stale_since: None,
        preemption_delay: None,
        staleness_grace: None,
        back_off: false,
        backed_off: false,
        refused: None,
        held: None,
    }
}

/// The pod as it is on a node: `n1` runs there, `n1!` leaves it.
pub fn placed(pod: PodInput, on: &str) -> PodInput {
    let status = if on.ends_with('!') {
        PodStatus::Releasing
    } else {
        PodStatus::Running
    };
    PodInput {
        status,
        node: Some(on.trim_end_matches('!').into()),
        ..pod
    }
}

/// A pending pod of a group, asking for `gpus`.
pub fn pod(group: &GroupInput, number: usize, gpus: &str) -> PodInput {
    let name: Name = format!("{}-{number:03}", group.key.name()).into();
    PodInput {
        pod: PodRef::new(group.key.namespace(), &name, &name),
        created: Time(group.created.0 + number as i64),
        labels: std::iter::once(("app", &group.key.name())).collect(),
        group: Some(group.key.clone()),
        sub_group: None,
        status: PodStatus::Pending,
        releasing_since: None,
        node: None,
        foreign: false,
        of_unikai: false,
        reservation: false,
        fallback_queue: None,
        needs: Arc::new(Needs {
            request: Amounts {
                cpu: 1,
                memory: 1,
                gpu: 0,
                other: Vec::new(),
            },
            gpu: gpu_request(gpus),
            ..Needs::default()
        }),
        received: None,
        gpu_groups: Vec::new(),
        task_priority: None,
        kubeflow_master: false,
        ray_head: false,
        nominated_node: None,
        blocked: None,
        relations: None,
        volumes: None,
        claims: None,
        numa: None,
    }
}

fn gpu_request(text: &str) -> GpuRequest {
    let (text, count) = text
        .split_once('*')
        .map_or((text, 1), |(text, count)| (text, count.parse().expect("devices")));
    if text.starts_with("mig-") {
        return GpuRequest {
            kind: GpuKind::Mig,
            mig: vec![(format!("nvidia.com/{text}").into(), count)],
            ..GpuRequest::default()
        };
    }
    if let Some(memory) = text.strip_suffix('M') {
        return GpuRequest {
            kind: GpuKind::Memory,
            count,
            memory: memory.parse().expect("MiB"),
            ..GpuRequest::default()
        };
    }
    if text.contains('.') {
        let portion = (text.parse::<f64>().expect("a portion") * 1000.0).round() as i64 * (WHOLE / 1000);
        return GpuRequest {
            kind: GpuKind::Fraction,
            count,
            portion,
            ..GpuRequest::default()
        };
    }
    let count = text.parse().expect("GPUs");
    GpuRequest {
        count,
        portion: if count > 0 { WHOLE } else { 0 },
        ..GpuRequest::default()
    }
}

/// Options that are there or not.
const FLAGS: [&str; 4] = ["terminating", "stuck", "backoff", "backedoff"];

fn pod_group(line: &str, age: usize) -> Vec<Event> {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a name");
    let mut group = group(name, words.next().expect("a queue"), age);
    let mut options = BTreeMap::new();
    let mut items = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some((key, value)) => drop(options.insert(key, value)),
            None if FLAGS.contains(&word) => drop(options.insert(word, "")),
            None => items.push(word),
        }
    }
    let mut pods: Vec<PodInput> = Vec::new();
    let mut kind = None;
    for item in items {
        kind = kind.or(add_pods(&mut pods, &group, item));
    }
    let (priority, preemptible) = match kind {
        Some('B') => (100, false),
        Some('F') => (125, false),
        Some('I') => (75, true),
        Some(_) | None => (50, true),
    };
    let number = |key: &str| options.get(key).map(|value| value.parse::<i64>().expect("a number"));
    (group.priority, group.preemptible) = (number("prio").unwrap_or(priority), preemptible);
    group.min_member = Some(number("min").unwrap_or(pods.len() as i64));
    group.min_sub_group = number("need");
    group.sub_groups = options
        .get("subs")
        .map_or_else(Vec::new, |subs| subs.split(',').map(sub_group).collect());
    group.topology = options.get("topo").map(|text| constraint(text));
    for sub in &mut group.sub_groups {
        sub.topology = options.get(&*format!("topo.{}", sub.name)).map(|text| constraint(text));
    }
    group.stale_since = number("stale").map(|seconds| Time(NOW.0 - seconds * 1000));
    group.last_start = number("started").map(|seconds| Time(NOW.0 - seconds * 1000));
    group.staleness_grace = number("grace").map(|seconds| seconds * 1000);
    group.back_off = options.contains_key("backoff") || options.contains_key("backedoff");
    group.backed_off = options.contains_key("backedoff");
    group.preemption_delay = number("delay").map(|seconds| seconds * 1000);
    if let Some(seconds) = number("age") {
        group.created = Time(NOW.0 - seconds * 1000);
    }
    for (pod, priority) in pods
        .iter_mut()
        .zip(options.get("order").map_or("", |order| order).split(','))
    {
        pod.task_priority = priority.parse().ok();
    }
    for pod in &mut pods {
        pod.relations = relations(&pod.labels, &options);
        pod.needs_mut().request.cpu = number("cpu").unwrap_or(pod.needs.request.cpu);
        pod.needs_mut().request.memory = number("mem").unwrap_or(pod.needs.request.memory);
    }
    for (key, status) in [("failed", PodStatus::Failed), ("succeeded", PodStatus::Succeeded)] {
        for _ in 0..number(key).unwrap_or(0) {
            let mut ended = pod(&group, pods.len(), "0");
            ended.status = status;
            ended.sub_group = group.sub_groups.last().map(|sub| sub.name.clone());
            pods.push(ended);
        }
    }
    for pod in pods
        .iter_mut()
        .filter(|pod| pod.node.is_some() && (options.contains_key("terminating") || options.contains_key("stuck")))
    {
        leave(pod, options.contains_key("stuck"));
    }
    let mut events = vec![Event::Group(Box::new(group))];
    events.extend(pods.into_iter().map(|pod| Event::Pod(Box::new(pod))));
    events
}

/// A pod in termination, for a moment or for long.
fn leave(pod: &mut PodInput, stuck: bool) {
    pod.status = PodStatus::Releasing;
    pod.releasing_since = Some(Time(NOW.0 - if stuck { 500_000 } else { 1000 }));
}

/// What a pod group's pods ask about one another.
fn relations(labels: &Pairs, options: &BTreeMap<&str, &str>) -> Option<Arc<Relations>> {
    let listed = |(key, value): (&str, &str)| NodeRequirement {
        key: key.into(),
        op: SelectorOp::In,
        values: vec![value.into()],
    };
    let pods = PodSelector {
        labels: Some(labels.iter().map(listed).collect()),
        namespaces: Some(["ns".into()].into()),
    };
    let term = |key: &&str| PodTerm {
        pods: pods.clone(),
        key: (*key).into(),
    };
    let spread = |key: &&str| Spread {
        pods: pods.clone(),
        key: (*key).into(),
        max_skew: 1,
        min_domains: 1,
        honor_affinity: true,
        honor_taints: false,
    };
    let all = Relations {
        near: options.get("near").map(term).into_iter().collect(),
        apart: options.get("apart").map(term).into_iter().collect(),
        preferred: options.get("likes").map(|key| (10, term(key))).into_iter().collect(),
        spread: options.get("spread").map(spread).into_iter().collect(),
    };
    (all != Relations::default()).then(|| Arc::new(all))
}

fn constraint(text: &str) -> TopologyConstraint {
    let mut parts = text.split(':').map(Name::from);
    let topology = parts.next().expect("a topology");
    let mut level = || parts.next().filter(|level| !level.is_empty());
    TopologyConstraint {
        topology,
        required: level(),
        preferred: level(),
    }
}

fn add_pods(pods: &mut Vec<PodInput>, group: &GroupInput, item: &str) -> Option<char> {
    let (item, wanted) = item
        .split_once('>')
        .map_or((item, None), |(item, wanted)| (item, wanted.split_once(':')));
    let stuck = item.ends_with('!');
    let item = item.trim_end_matches('!');
    let (sub, item) = item
        .split_once(':')
        .map_or((None, item), |(sub, item)| (Some(Name::from(sub)), item));
    let kind = item.chars().next().filter(char::is_ascii_uppercase);
    let item = item.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
    let (what, places) = item
        .split_once('@')
        .map_or((item, None), |(what, places)| (what, Some(places)));
    let (gpus, count) = what
        .split_once('x')
        .map_or((what, 1), |(gpus, count)| (gpus, count.parse().expect("a count")));
    let places: Vec<_> = places.map_or_else(Vec::new, |places| places.split(',').collect());
    for at in 0..count.max(places.len()) {
        let mut pod = pod(group, pods.len(), gpus);
        pod.sub_group.clone_from(&sub);
        pod.needs_mut().node_selector = wanted
            .iter()
            .map(|(key, value)| (Name::from(*key), Name::from(*value)))
            .collect();
        if !places.is_empty() {
            let (node, gpu) = places[at % places.len()]
                .split_once('/')
                .map_or((places[at % places.len()], None), |(node, gpu)| (node, Some(gpu)));
            pod.status = PodStatus::Running;
            pod.node = Some(node.into());
            pod.gpu_groups = gpu.into_iter().map(Name::from).collect();
        }
        if stuck {
            leave(&mut pod, true);
        }
        pods.push(pod);
    }
    kind
}

/// A sub-group: `[parent.]name:min` or `[parent.]name/need`.
pub fn sub_group(text: &str) -> SubGroupInput {
    let (path, min) = text
        .split_once(':')
        .map_or((text, None), |(path, min)| (path, min.parse().ok()));
    let (path, need) = path
        .split_once('/')
        .map_or((path, None), |(path, need)| (path, need.parse().ok()));
    let (parent, name) = path
        .split_once('.')
        .map_or((None, path), |(parent, name)| (Some(Name::from(parent)), name));
    SubGroupInput {
        name: name.into(),
        parent,
        min_member: min,
        min_sub_group: need,
        topology: None,
    }
}

/// Runs a cycle; returns how the searches for victims ended, and the decisions.
pub fn search_ends(engine: &mut Engine) -> (Vec<SearchEnd>, Decisions) {
    let mut ends = Vec::new();
    let decisions = engine.cycle_seen_by(NOW, &mut |stage| {
        if let Stage::TakenUp { end, .. } = stage {
            ends.push(end);
        }
    });
    (ends, decisions)
}
