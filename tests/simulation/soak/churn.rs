//! Workloads come at a rate and go after a while: pods without GPUs, with whole ones and with parts, Jobs, and gangs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::actors;
use crate::plan::{QUEUES, TEAMS};

/// How long a workload lives, in ms.
const LIVES: std::ops::Range<u64> = 10_000..30_000;
/// Requests at the same time.
const REQUESTS: usize = 64;
/// How often workloads are created.
const TICK: Duration = Duration::from_millis(100);
/// When a deletion that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Pods so far.
#[derive(Default)]
pub struct Counts {
    pub created: AtomicU64,
    /// The API server was away, or no webhook answered.
    pub refused: AtomicU64,
}

/// The churn; ends when all that it created is deleted again.
pub struct Churn {
    pub counts: Arc<Counts>,
    last: CancellationToken,
    task: JoinHandle<()>,
}

impl Churn {
    /// Creates so many pods per second until the token is cancelled.
    pub fn start(client: Client, rate: u64, seed: u64, end: CancellationToken) -> Self {
        let (counts, last) = (Arc::new(Counts::default()), CancellationToken::new());
        let work = Work {
            client,
            counts: Arc::clone(&counts),
            random: fastrand::Rng::with_seed(seed),
            made: 0,
            requests: Arc::new(Semaphore::new(REQUESTS)),
        };
        let task = tokio::spawn(work.run(rate, end, last.clone()));
        Self { counts, last, task }
    }

    /// Deletes what is left; returns when the API server has accepted the deletion of each object.
    pub async fn delete_all(self) {
        self.last.cancel();
        let _ = self.task.await;
    }
}

struct Work {
    client: Client,
    counts: Arc<Counts>,
    random: fastrand::Rng,
    made: u64,
    requests: Arc<Semaphore>,
}

/// Objects that are created in this order, and deleted when they are due.
type Workload = Vec<Value>;

impl Work {
    async fn run(mut self, rate: u64, end: CancellationToken, last: CancellationToken) {
        let (accepted, mut to_delete) = mpsc::unbounded_channel::<(Instant, Workload)>();
        let mut due: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
        let mut living = std::collections::BTreeMap::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (began, mut created, mut number) = (Instant::now(), 0, 0);
        loop {
            ticks.tick().await;
            let target = (began.elapsed().as_millis() as u64).saturating_mul(rate) / 1000;
            // After a pause it does not catch up.
            created = created.max(target.saturating_sub(rate));
            while created < target && !end.is_cancelled() {
                let workload = self.draw();
                created += pods_of(&workload);
                let lives = Duration::from_millis(self.random.u64(LIVES));
                self.create(workload, lives, accepted.clone());
            }
            while let Ok((at, workload)) = to_delete.try_recv() {
                number += 1;
                due.push(Reverse((at, number)));
                living.insert(number, workload);
            }
            // While the churn pauses, what lives stays.
            let now = Instant::now();
            let all = last.is_cancelled();
            while let Some(Reverse((at, number))) = due.peek().copied() {
                if !all && (at > now || end.is_cancelled()) {
                    break;
                }
                due.pop();
                if let Some(workload) = living.remove(&number) {
                    self.delete(workload, accepted.clone());
                }
            }
            let idle = self.requests.available_permits() == REQUESTS && to_delete.is_empty();
            if all && idle && due.is_empty() {
                return;
            }
        }
    }

    fn create(&self, workload: Workload, lives: Duration, accepted: mpsc::UnboundedSender<(Instant, Workload)>) {
        let (client, counts, requests) = (
            self.client.clone(),
            Arc::clone(&self.counts),
            Arc::clone(&self.requests),
        );
        tokio::spawn(async move {
            let _permit = requests.acquire_owned().await;
            let mut done = Workload::new();
            for object in workload {
                let pods = pods_of(std::slice::from_ref(&object));
                let answer = actors::create(&client, object.clone()).await;
                let count = if answer.is_ok() {
                    &counts.created
                } else {
                    &counts.refused
                };
                count.fetch_add(pods, Ordering::Relaxed);
                // An object may have been created although no answer came.
                let refused = matches!(answer, Err(kube::Error::Api(_)));
                if !refused {
                    done.push(object);
                }
            }
            let _ = accepted.send((Instant::now() + lives, done));
        });
    }

    /// Deletes the objects of a workload; those of which the deletion fails are due again.
    fn delete(&self, workload: Workload, accepted: mpsc::UnboundedSender<(Instant, Workload)>) {
        let (client, requests) = (self.client.clone(), Arc::clone(&self.requests));
        tokio::spawn(async move {
            let _permit = requests.acquire_owned().await;
            let how = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            let mut left = Workload::new();
            for object in workload {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                match actors::api(&client, &object).delete(name, &how).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(_) => left.push(object),
                }
            }
            if !left.is_empty() {
                sleep(AGAIN).await;
                let _ = accepted.send((Instant::now(), left));
            }
        });
    }

    fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}", self.made)
    }

    fn draw(&mut self) -> Workload {
        let team = TEAMS[self.random.usize(0..TEAMS.len())];
        let queue = QUEUES[self.random.usize(0..QUEUES.len())];
        match self.random.u8(0..100) {
            0..55 => vec![actors::pod(&self.name("pod"), team, queue, 0, 100)],
            55..75 => {
                let mut pod = actors::pod(&self.name("gpu"), team, queue, 1, 100);
                if self.random.u8(0..5) == 0 {
                    // Non-preemptible.
                    pod["metadata"]["labels"]["priorityClassName"] = "build".into();
                }
                vec![pod]
            }
            75..87 => {
                let portion = if self.random.bool() { "0.5" } else { "0.25" };
                let mut pod = actors::pod(&self.name("share"), team, queue, 0, 100);
                pod["metadata"]["annotations"] = json!({"gpu-fraction": portion});
                vec![pod]
            }
            87..93 => {
                let size = self.random.u32(2..4);
                vec![actors::job(&self.name("job"), team, queue, size, 1)]
            }
            _ => {
                let (pods, gpus) = (self.random.u32(2..6), self.random.u32(0..2));
                let min = self.random.u32(2..=pods);
                let name = self.name("gang");
                let group = actors::group(&name, team, queue, min);
                let members = (0..pods).map(|number| {
                    let member = format!("{name}-member-{number}");
                    actors::member(&member, team, queue, &name, gpus)
                });
                std::iter::once(group).chain(members).collect()
            }
        }
    }
}

/// How many pods these objects stand for.
fn pods_of(objects: &[Value]) -> u64 {
    let pods = objects.iter().map(|object| match object["kind"].as_str() {
        Some("Pod") => 1,
        Some("Job") => object["spec"]["parallelism"].as_u64().unwrap_or(1),
        _ => 0,
    });
    pods.sum()
}
