//! The scheduler's metrics of objects: the fair shares of queues, how long their pods waited, and the GPUs of nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use crate::api::Queue;
use crate::clock;
use crate::components::Context;
use crate::components::bus::FairShare;
use crate::components::figures::families::{self, Family};
use crate::components::watches::Stores;
use crate::engine::Engine;
use crate::engine::decision::{Bind, Decisions, QueueStanding};
use crate::engine::gpus::{GpuStates, GpuTally};
use crate::engine::input::{GPU, Name};
use crate::engine::model::Model;
use crate::engine::policy::ActionKind;

/// Fair shares and GPUs are exported this long after they may have changed, all at once: cycles can be much more frequent than scrapes.
const SHARES_AFTER: Duration = Duration::from_secs(1);

/// The exported series, and those that are due.
#[derive(Debug)]
pub struct Shown {
    /// The shard's name.
    shard: String,
    shares_due: Option<Instant>,
    /// Queues with exported shares, and their fair shares in millionths of a GPU.
    queues: HashMap<String, i64>,
    /// Queues in which pods were placed since shares were exported last. They may be deleted before theirs are.
    placed: BTreeSet<String>,
    gpus: GpuTally,
}

impl Shown {
    /// Without exported series.
    #[must_use]
    pub fn new(shard: &str) -> Self {
        Self {
            shard: shard.to_owned(),
            shares_due: None,
            queues: HashMap::new(),
            placed: BTreeSet::new(),
            gpus: GpuTally::default(),
        }
    }

    /// When shares are to be exported.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.shares_due
    }

    /// Shares may have changed.
    pub fn shares_changed(&mut self) {
        self.shares_due.get_or_insert_with(|| Instant::now() + SHARES_AFTER);
    }

    /// Exports the shares as of the last cycle. Returns the fair shares of GPUs that changed.
    pub fn show_shares(&mut self, context: &Context, engine: &Engine, stores: &Stores) -> Vec<FairShare> {
        self.shares_due = None;
        self.show_pending(engine.model().pending().len());
        show_gpus(context, &self.shard, &self.gpus.update(engine.model()));
        let mut before = std::mem::take(&mut self.queues);
        let mut changed = Vec::new();
        for standing in engine.queues() {
            let name = standing.queue.to_string();
            let queue = stores.queues.get("", &name);
            show(context, &name, queue.as_deref(), &standing);
            let [.., gpus] = standing.fair;
            if before.remove(&name) != Some(gpus) {
                let queue = name.clone();
                changed.push(FairShare { queue, gpus });
            }
            self.queues.insert(name, gpus);
        }
        // Another shard of this process may have the queue now.
        let is_elsewhere = |queue: &String| {
            let queue = stores.queues.get("", queue);
            let scope = queue.map(|queue| context.scope_of(queue.metadata.labels.as_ref()));
            scope.is_some_and(|scope| scope != context.scope && context.of_scope(&scope).is_leading())
        };
        for gone in before.into_keys().filter(|queue| !is_elsewhere(queue)) {
            context.figures.forget(&families::OF_THE_SCHEDULER, &gone);
            changed.push(FairShare { queue: gone, gpus: 0 });
        }
        for queue in std::mem::take(&mut self.placed) {
            if !self.queues.contains_key(&queue) && !is_elsewhere(&queue) {
                context.figures.forget(&families::OF_THE_SCHEDULER, &queue);
            }
        }
        changed
    }

    /// Removes all series, since another process leads now and exports them.
    pub fn clear(&mut self, context: &Context) {
        let queues = self.queues.drain().map(|(queue, _)| queue);
        for queue in queues.chain(std::mem::take(&mut self.placed)) {
            context.figures.forget(&families::OF_THE_SCHEDULER, &queue);
        }
        context
            .figures
            .forget(&[&families::GPUS, &families::GPUS_ON_ONE_NODE], &self.shard);
        self.show_pending(0);
        self.shares_due = None;
    }

    /// Exports the decisions of a cycle by action, and how long pods had waited for their nodes.
    pub fn show_decisions(&mut self, context: &Context, decisions: &Decisions, model: &Model, stores: &Stores) {
        let allocated = decisions.bind.len() as u64;
        metrics::counter!("unikai_decisions_total", "action" => ActionKind::Allocate.as_str()).increment(allocated);
        for eviction in &decisions.evict {
            metrics::counter!("unikai_decisions_total", "action" => eviction.action.as_str()).increment(1);
        }
        // A burst places thousands of pods in few queues.
        let mut waited: BTreeMap<Name, (f64, f64)> = BTreeMap::new();
        for bind in &decisions.bind {
            let pod = stores.pods.get(&bind.pod.namespace, &bind.pod.name);
            let Some(age) = pod.and_then(|pod| age(&pod)) else {
                continue;
            };
            metrics::histogram!("kai_task_scheduling_latency_milliseconds").record(age.as_secs_f64() * 1e3);
            if let Some(queue) = queue_of(bind, model) {
                let (pods, seconds) = waited.entry(queue).or_default();
                (*pods, *seconds) = (*pods + 1.0, *seconds + age.as_secs_f64());
            }
        }
        for (queue, (pods, seconds)) in waited {
            let labels = [("queue_metadata_name", &*queue)];
            context.figures.count(&families::QUEUE_PLACED, &queue, &labels, pods);
            context.figures.count(&families::QUEUE_WAITED, &queue, &labels, seconds);
            self.placed.insert(queue.to_string());
        }
    }

    fn show_pending(&self, groups: usize) {
        metrics::gauge!("unikai_pending_pod_groups", "shard" => self.shard.clone()).set(groups as f64);
    }
}

/// Milli-cores, bytes and millionths of a GPU as cores, billions of bytes and GPUs.
fn show(context: &Context, name: &str, queue: Option<&Queue>, standing: &QueueStanding) {
    let display = queue
        .and_then(|queue| queue.spec.display_name.as_deref())
        .unwrap_or_default();
    let called = if display.is_empty() { name } else { display };
    let labels = [
        ("queue_name", called),
        ("queue_metadata_name", name),
        ("queue_display_name", display),
    ];
    let set = |family: &Family, value: f64| context.figures.set(family, name, &labels, value);
    let [cpu, memory, gpu] = standing.fair.map(|amount| amount as f64);
    set(&families::QUEUE_FAIR_SHARE_CPU, cpu / 1e3);
    set(&families::QUEUE_FAIR_SHARE_MEMORY, memory / 1e9);
    set(&families::QUEUE_FAIR_SHARE_GPU, gpu / 1e6);
    let [cpu, memory, gpu] = standing.usage.map(|part| part as f64 / 1e9);
    set(&families::QUEUE_CPU_USAGE, cpu);
    set(&families::QUEUE_MEMORY_USAGE, memory);
    set(&families::QUEUE_GPU_USAGE, gpu);
}

fn queue_of(bind: &Bind, model: &Model) -> Option<Name> {
    let group = &model.pod_groups()[model.pod_groups().id(&bind.group)?];
    Some(model.queues()[group.queue?].name.clone())
}

fn show_gpus(context: &Context, shard: &str, states: &GpuStates) {
    let gpus = |millionths: i64| millionths as f64 / GPU as f64;
    let all = [
        ("used", states.used),
        ("free", states.free),
        ("fragmented", states.fragmented),
        ("unavailable", states.unavailable),
    ];
    let all = all.map(|(state, amount)| ([("shard", shard), ("state", state)], gpus(amount)));
    let series = all.iter().map(|(labels, value)| (&labels[..], *value));
    context.figures.set_all(&families::GPUS, shard, series);
    let (labels, whole) = ([("shard", shard)], gpus(states.whole));
    context.figures.set(&families::GPUS_ON_ONE_NODE, shard, &labels, whole);
}

/// How long ago a pod was created.
fn age(pod: &Pod) -> Option<Duration> {
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    let age = clock::now().duration_since(created);
    Some(Duration::try_from(age).unwrap_or_default())
}

#[cfg(test)]
mod tests;
