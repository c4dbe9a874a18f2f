//! State of the schedulers for administrators: the whole cluster as a snapshot, and the order of the pod groups that wait.
//!
//! A snapshot is sent as a stream, so that its memory does not grow with the cluster: beside the objects that are in memory anyway it takes a pointer to each
//! of them, the pod that is being written and a few chunks of text. One snapshot is written at a time, for at most [`LONGEST`].

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::rounds::{InForce, Shown};
use super::unread::{self, ANSWERS, FULL, LONGEST};
use crate::api::names::object;
use crate::clock;
use crate::components::bus::{Grouping, Look, Reply, ToGrouper, ToScheduler, WaitingGroup};
use crate::components::grouping::defaults::Defaults;
use crate::components::grouping::owners::Owners;
use crate::components::grouping::rules::{RuleError, Wanted};
use crate::components::readiness::Readiness;
use crate::components::scheduler::Rules;
use crate::components::watches::Stores;
use crate::snapshot::{self, Cluster, Place};
use crate::workloads::Surroundings;

/// How long a component may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Bytes in a chunk of a snapshot, and how many chunks are buffered.
const CHUNK: usize = 256 << 10;
const CHUNKS: usize = 2;

/// The answer while the first lists are incomplete.
pub const NOT_KNOWN: &str = "not everything is known yet\n";

/// See the module.
pub struct Inspection {
    seen: watch::Receiver<Option<Shown>>,
    in_force: watch::Receiver<InForce>,
    reads: Client,
    defaults: Mutex<Option<DefaultsOf>>,
    turn: Arc<Semaphore>,
}

/// What reads and caches the administrator's defaults per kind of workload.
#[derive(Clone)]
struct DefaultsOf {
    /// The setting that names their ConfigMap.
    setting: Option<(String, String)>,
    owners: Arc<Owners>,
}

impl Inspection {
    /// Reads the running components (`seen`), the effective configuration, and objects by `reads`.
    #[must_use]
    pub fn new(seen: watch::Receiver<Option<Shown>>, in_force: watch::Receiver<InForce>, reads: Client) -> Self {
        Self {
            seen,
            in_force,
            reads,
            defaults: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// The shard of that name. Without a name: the default shard, or the first if there is no default one.
    fn shard(&self, asked: Option<&str>) -> Result<Shard, Refusal> {
        let known = self.seen.borrow().clone().zip(self.in_force.borrow().clone());
        let Some((shown, (_, resolved))) = known else {
            return Err((StatusCode::SERVICE_UNAVAILABLE, NOT_KNOWN.to_owned()));
        };
        let name = asked.unwrap_or(object::DEFAULT_SHARD);
        let found = shown.shards.iter().position(|shard| shard == name);
        let at = found.or_else(|| asked.is_none().then_some(0));
        let scheduler = at.and_then(|at| Some((shown.shards.get(at)?, shown.bus.schedulers.inboxes().nth(at)?)));
        let Some((name, scheduler)) = scheduler else {
            let all = shown.shards.join(", ");
            let why = format!("there is no shard {name}; there are: {all}\n");
            return Err((StatusCode::NOT_FOUND, why));
        };
        let Some(rules) = resolved.shards.iter().find(|shard| shard.name == *name) else {
            // The shard was deleted, and the components are about to be restarted without it.
            return Err((StatusCode::SERVICE_UNAVAILABLE, NOT_KNOWN.to_owned()));
        };
        Ok(Shard {
            scheduler: scheduler.clone(),
            rules: rules.rules.clone(),
            shown,
        })
    }

    /// The input with which another scheduler for this shard can be built.
    ///
    /// # Errors
    /// Why it is not available.
    pub async fn known(&self, shard: Option<&str>) -> Result<Known, (StatusCode, String)> {
        let Shard { rules, shown, .. } = self.shard(shard)?;
        let groupings = ask(&shown.bus.grouper, ToGrouper::Unwritten).await;
        let groupings = groupings.ok_or_else(|| (StatusCode::SERVICE_UNAVAILABLE, NOT_KNOWN.to_owned()))?;
        Ok(Known {
            rules,
            groupings,
            stores: shown.stores,
        })
    }

    /// What determines the groups of workloads beside their manifests.
    ///
    /// # Errors
    /// Why it is not available.
    pub async fn surroundings(&self) -> Result<Surroundings, (StatusCode, String)> {
        let known = self.seen.borrow().clone().zip(self.in_force.borrow().clone());
        let Some((shown, (_, resolved))) = known else {
            return Err((StatusCode::SERVICE_UNAVAILABLE, NOT_KNOWN.to_owned()));
        };
        let settings = resolved.common.components.clone();
        let defaults = self.defaults(settings.default_priorities.as_ref()).await;
        let defaults = defaults.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
        Ok(Surroundings {
            settings,
            stores: shown.stores,
            defaults,
        })
    }

    /// The administrator's defaults per kind of workload.
    async fn defaults(&self, setting: Option<&(String, String)>) -> Result<Arc<Defaults>, RuleError> {
        let DefaultsOf { owners, .. } = self.defaults_of(setting);
        if let Ok(known) = owners.defaults() {
            return Ok(known);
        }
        owners.fetch(&Wanted::Defaults).await?;
        owners.defaults()
    }

    /// What reads them: the same as long as the setting does not change, so that the ConfigMap is read seldom, and a warning about it is logged once.
    fn defaults_of(&self, setting: Option<&(String, String)>) -> DefaultsOf {
        let mut kept = self.defaults.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.take().filter(|known| known.setting.as_ref() == setting);
        let known = known.unwrap_or_else(|| DefaultsOf {
            setting: setting.cloned(),
            owners: Arc::new(Owners::new(self.reads.clone(), setting.cloned())),
        });
        kept.insert(known).clone()
    }

    /// The snapshot of a shard.
    pub async fn snapshot(&self, shard: Option<&str>, readiness: &Readiness) -> Response {
        let Ok(turn) = Arc::clone(&self.turn).try_acquire_owned() else {
            return refused(StatusCode::TOO_MANY_REQUESTS, "another snapshot is being written\n");
        };
        let waiting = readiness.waiting();
        if let Some((name, reason)) = waiting.iter().find(|(name, _)| name.starts_with("watch-")) {
            return refused(
                StatusCode::SERVICE_UNAVAILABLE,
                &format!("not everything is known yet: {name}: {reason}\n"),
            );
        }
        let shard = match self.shard(shard) {
            Ok(shard) => shard,
            Err(refusal) => return refusal.into_response(),
        };
        let Some(cluster) = shard.cluster().await else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, NOT_KNOWN);
        };
        let body = body(Instant::now() + LONGEST, move |chunks| {
            let written = snapshot::write(chunks, cluster);
            match &written {
                Ok(objects) => info!(objects, "a snapshot was sent"),
                Err(error) => warn!(%error, "a snapshot was not sent completely"),
            }
            drop(turn);
            written.map(drop)
        });
        let headers = [
            (header::CONTENT_TYPE, "application/zip"),
            (header::CONTENT_DISPOSITION, "attachment; filename=snapshot.zip"),
        ];
        (headers, body).into_response()
    }

    /// The pod groups of a shard that wait, in the order in which the next cycle would try them.
    pub async fn job_order(&self, shard: Option<&str>) -> Response {
        let shard = match self.shard(shard) {
            Ok(shard) => shard,
            Err(refusal) => return refusal.into_response(),
        };
        match ask(&shard.scheduler, |reply| ToScheduler::Look(Look::JobOrder(reply))).await {
            Some(waiting) => pretty(&in_order(&waiting)),
            None => refused(StatusCode::SERVICE_UNAVAILABLE, "Job order data not ready\n"),
        }
    }
}

/// The input of a scheduler.
pub struct Known {
    /// Its settings.
    pub rules: Rules,
    /// The pod groups of pods whose PodGroup or label is not written yet.
    pub groupings: Vec<Grouping>,
    /// The objects.
    pub stores: Arc<Stores>,
}

/// Status and text of a response that refuses a request.
pub type Refusal = (StatusCode, String);

/// A shard's scheduler and settings, and the components of the process.
struct Shard {
    scheduler: mpsc::Sender<ToScheduler>,
    rules: Rules,
    shown: Shown,
}

impl Shard {
    /// The objects and settings of a snapshot; `None` if the grouper does not answer.
    async fn cluster(self) -> Option<Cluster> {
        let Shown { bus, stores, .. } = self.shown;
        let groupings = ask(&bus.grouper, ToGrouper::Unwritten).await?;
        let mut places = HashMap::with_capacity(groupings.len());
        let mut drafts = BTreeMap::new();
        for Grouping { pod, group, sub_group } in groupings {
            let name = group.metadata.name.clone().unwrap_or_default();
            if !stores.pod_groups.contains(&pod.namespace, &name) {
                drafts.insert((pod.namespace.clone(), name.clone()), group);
            }
            let place = Place { group: name, sub_group };
            places.insert(pod.uid.to_string(), place);
        }
        Some(Cluster {
            settings: self.rules.mirror,
            policy: self.rules.policy,
            now: clock::now(),
            objects: Box::new(stores.objects()),
            places,
            drafts: drafts.into_values().collect(),
        })
    }
}

/// Requests something from a component; `None` if it does not answer in time.
pub async fn ask<M, T>(component: &mpsc::Sender<M>, question: impl FnOnce(Reply<T>) -> M) -> Option<T> {
    let (reply, mut answer) = mpsc::channel(1);
    let asked = async {
        component.send(question(reply)).await.ok()?;
        answer.recv().await
    };
    timeout(ANSWER, asked).await.ok().flatten()
}

/// The order in KAI's format, with the namespace added, since names are unique only within one.
fn in_order(waiting: &[WaitingGroup]) -> Value {
    let entry = |waits: &WaitingGroup| json!({"id": waits.group.name(), "namespace": waits.group.namespace(), "priority": waits.priority});
    let mut by_queue: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for waits in waiting {
        by_queue.entry(&waits.queue).or_default().push(entry(waits));
    }
    let all: Vec<Value> = waiting.iter().map(entry).collect();
    json!({"global_order": all, "queue_order": by_queue})
}

fn pretty(value: &Value) -> Response {
    let Ok(text) = serde_json::to_string_pretty(value) else {
        return Json(value).into_response();
    };
    // All its readers are administrators, and count as one user.
    match ANSWERS.take("/get-job-order", text.len()) {
        Some(place) => {
            let response = unread::response(text.into(), place);
            ([(header::CONTENT_TYPE, "application/json")], response).into_response()
        }
        None => refused(StatusCode::SERVICE_UNAVAILABLE, &format!("{FULL}\n")),
    }
}

fn refused(status: StatusCode, why: &str) -> Response {
    (status, why.to_owned()).into_response()
}

/// The body of a response that `write` produces on a thread of its own, until this time. If it fails, the response is broken off, so that the client does
/// not take it for complete.
fn body(until: Instant, write: impl FnOnce(Chunks) -> io::Result<()> + Send + 'static) -> Body {
    let (sender, chunks) = mpsc::channel(CHUNKS);
    let (complete, completed) = oneshot::channel();
    let stream = Chunks {
        collected: Vec::with_capacity(CHUNK),
        sender,
        until,
        runtime: Handle::current(),
    };
    tokio::task::spawn_blocking(move || {
        if write(stream).is_ok() {
            let _ = complete.send(());
        }
    });
    // The failure is no chunk of its own, as that would not fit while the client does not read.
    let next = |reading: Option<(mpsc::Receiver<Bytes>, oneshot::Receiver<()>)>| async move {
        let (mut chunks, completed) = reading?;
        if let Some(chunk) = chunks.recv().await {
            return Some((Ok(chunk), Some((chunks, completed))));
        }
        let failed = completed.await.is_err();
        failed.then(|| (Err(io::Error::other("the response is not complete")), None))
    };
    Body::from_stream(futures::stream::unfold(Some((chunks, completed)), next))
}

/// Writes into the response, chunk by chunk, and blocks while the client reads slowly.
struct Chunks {
    collected: Vec<u8>,
    sender: mpsc::Sender<Bytes>,
    until: Instant,
    runtime: Handle,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.collected.len() >= CHUNK {
            self.flush()?;
        }
        let room = bytes.len().min(CHUNK - self.collected.len());
        let (taken, _) = bytes.split_at(room);
        self.collected.extend_from_slice(taken);
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.collected.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.collected, Vec::with_capacity(CHUNK));
        let sent = self.sender.send(chunk.into());
        match self.runtime.block_on(timeout_at(self.until, sent)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the reader is gone")),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the reader is too slow")),
        }
    }
}

#[cfg(test)]
mod tests;
