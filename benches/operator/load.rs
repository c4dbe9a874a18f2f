//! Creates pods and watches when they are bound.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::Notify;

const NAMESPACE: &str = "load";
/// Parallel requests that create or delete.
const WORKERS: usize = 32;
const MAX_WAIT: Duration = Duration::from_secs(120);
/// Pause between pods that are created one by one, so that each meets an idle cluster.
const SETTLE: Duration = Duration::from_millis(150);

/// A namespace to put pods into, with a watch on it.
pub struct Load {
    pods: Api<Pod>,
    bound: Arc<Bound>,
    watch: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Bound {
    at: Mutex<HashMap<String, Instant>>,
    more: Notify,
}

/// How long it took from before the request that creates a pod.
#[derive(Clone, Copy)]
pub struct Times {
    /// Until it was answered, webhooks included.
    pub created: Duration,
    /// Until the pod was seen bound.
    pub bound: Duration,
}

/// The result of a burst.
pub struct Burst {
    pub bound: usize,
    pub until_created: Duration,
    pub until_bound: Duration,
    pub latencies: Latencies,
}

/// Median and tail of some durations.
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        Self(samples)
    }

    fn quantile(&self, q: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let at = self.0.get((q * last as f64).round() as usize);
        at.map_or(f64::NAN, |d| d.as_secs_f64() * 1e3)
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1} ms, p99 {:.1} ms", self.quantile(0.5), self.quantile(0.99))
    }
}

impl Load {
    pub fn start(client: Client) -> Self {
        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        let bound = Arc::new(Bound::default());
        let config = kube::runtime::watcher::Config::default();
        let mut events = kube::runtime::watcher(pods.clone(), config).boxed();
        let seen = bound.clone();
        let watch = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                use kube::runtime::watcher::Event::{Apply, InitApply};
                if let Ok(Apply(pod) | InitApply(pod)) = event
                    && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
                {
                    let now = Instant::now();
                    seen.at.lock().expect("times").entry(pod.name_any()).or_insert(now);
                    seen.more.notify_waiters();
                }
            }
        });
        Self { pods, bound, watch }
    }

    /// Creates pods as fast as the API server takes them and waits until all are bound.
    pub async fn burst(&self, scheduler: &str, name: &str, count: usize, gpus: usize) -> anyhow::Result<Burst> {
        let start = Instant::now();
        let created: Vec<(String, Instant)> = stream::iter(0..count)
            .map(|i| self.create(scheduler, format!("{name}-{i:05}"), gpus))
            .buffer_unordered(WORKERS)
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .collect::<anyhow::Result<_>>()?;
        let until_created = start.elapsed();
        let mut latencies = Vec::with_capacity(count);
        let mut last = start;
        for (pod, asked) in &created {
            let at = self.bound_at(pod).await?;
            last = last.max(at);
            latencies.push(at - *asked);
        }
        Ok(Burst {
            bound: latencies.len(),
            until_created,
            until_bound: last - start,
            latencies: Latencies::of(latencies),
        })
    }

    /// Creates pods one after another, each when the one before is bound and the cluster is quiet again.
    pub async fn serial(&self, scheduler: &str, name: &str, count: usize) -> anyhow::Result<Vec<Times>> {
        let mut latencies = Vec::with_capacity(count);
        for i in 0..count {
            let (pod, asked) = self.create(scheduler, format!("{name}-{i:05}"), 0).await?;
            let created = asked.elapsed();
            let bound = self.bound_at(&pod).await? - asked;
            latencies.push(Times { created, bound });
            tokio::time::sleep(SETTLE).await;
        }
        Ok(latencies)
    }

    /// Deletes all pods and waits until they are gone.
    pub async fn clean(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        let now = &DeleteParams::default().grace_period(0);
        loop {
            let pods = self.pods.list_metadata(&ListParams::default()).await?.items;
            if pods.is_empty() {
                break;
            }
            if start.elapsed() > MAX_WAIT {
                bail!("{} pods do not go", pods.len());
            }
            stream::iter(pods)
                .for_each_concurrent(WORKERS, |pod| async move {
                    // A pod that is gone already is fine.
                    let _ = self.pods.delete(&pod.name_any(), now).await;
                })
                .await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // The reaction of controllers and schedulers is not measured.
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(())
    }

    async fn create(&self, scheduler: &str, name: String, gpus: usize) -> anyhow::Result<(String, Instant)> {
        let mut requests = json!({"cpu": "100m", "memory": "128Mi"});
        if gpus > 0 {
            requests["nvidia.com/gpu"] = json!(gpus.to_string());
        }
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"kai.scheduler/queue": "test"}},
            "spec": {
                "schedulerName": scheduler,
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests, "limits": requests}}],
            },
        }))?;
        let asked = Instant::now();
        self.pods
            .create(&PostParams::default(), &pod)
            .await
            .with_context(|| format!("pod {name}"))?;
        Ok((name, asked))
    }

    async fn bound_at(&self, pod: &str) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let more = self.bound.more.notified();
            if let Some(at) = self.bound.at.lock().expect("times").get(pod) {
                return Ok(*at);
            }
            if tokio::time::timeout_at(deadline.into(), more).await.is_err() {
                bail!("{pod} is not bound");
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
