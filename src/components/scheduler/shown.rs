//! What the scheduler shows of objects as metrics: the fair shares of queues.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::api::Queue;
use crate::components::Context;
use crate::components::bus::FairShare;
use crate::components::figures::families::{self, Family};
use crate::components::watches::Stores;
use crate::engine::Engine;
use crate::engine::decision::QueueStanding;

/// Fair shares are shown this long after they may have changed, all at once: cycles come by the hundred, scrapes do not.
const SHARES_AFTER: Duration = Duration::from_secs(1);

/// What is shown, and what is to be.
#[derive(Debug)]
pub struct Shown {
    /// The shard's name.
    shard: String,
    shares_due: Option<Instant>,
    /// Queues with shares on show, and their fair shares in millionths of a GPU.
    queues: HashMap<String, i64>,
}

impl Shown {
    /// Nothing is shown of that shard yet.
    #[must_use]
    pub fn new(shard: &str) -> Self {
        Self {
            shard: shard.to_owned(),
            shares_due: None,
            queues: HashMap::new(),
        }
    }

    /// When shares are to be shown.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.shares_due
    }

    /// Shares may have changed.
    pub fn shares_changed(&mut self) {
        self.shares_due.get_or_insert_with(|| Instant::now() + SHARES_AFTER);
    }

    /// Shows the shares as of the last cycle. Returns those of GPUs that are other than before.
    pub fn show_shares(&mut self, context: &Context, engine: &Engine, stores: &Stores) -> Vec<FairShare> {
        self.shares_due = None;
        self.show_pending(engine.model().pending().len());
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
        for gone in before.into_keys() {
            context.figures.forget(&families::FAIR_SHARES, &gone);
            changed.push(FairShare { queue: gone, gpus: 0 });
        }
        changed
    }

    /// Another process leads now, and shows.
    pub fn clear(&mut self, context: &Context) {
        for (queue, _) in self.queues.drain() {
            context.figures.forget(&families::FAIR_SHARES, &queue);
        }
        self.show_pending(0);
        self.shares_due = None;
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

/// How long ago a pod was created.
#[must_use]
pub fn age(pod: &Pod) -> Option<Duration> {
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    let age = Timestamp::now().duration_since(created);
    Some(Duration::try_from(age).unwrap_or_default())
}
