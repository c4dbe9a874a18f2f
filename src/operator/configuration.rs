//! Watches Config and SchedulingShards, publishes the effective configuration, and, while this process leads, creates missing objects and writes conditions.
//!
//! A kind that is not served or not readable for a while counts as having no objects. The meaning of fields is in `config`; changes are applied
//! in `operator`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::prometheus::Answers;
use super::rounds::InForce;
use crate::api::condition::Condition;
use crate::api::lenient::{Guarded, unguard};
use crate::api::names::object;
use crate::api::{Config, SchedulingShard};
use crate::clock;
use crate::components::connection_failures::ConnectionFailed;
use crate::components::figures::Figures;
use crate::components::figures::families::CONFIG_FINDINGS;
use crate::components::leadership::{Leading, Scope};
use crate::components::numa_daemon_set::Missing;
use crate::components::readiness::Readiness;
use crate::components::scheduler::Followed;
use crate::components::watches::ABSENT;
use crate::config::conditions::{self, conditions};
use crate::config::{Report, Resolved, Resolver, Seen, Which};

/// Retry interval, also for noticing a new CRD.
const RETRY: Duration = Duration::from_secs(2);
/// Changes within this time are applied together.
const TOGETHER: Duration = Duration::from_millis(20);

/// Input of the task.
pub struct Configuration {
    /// The client for the watches.
    pub watches: Client,
    /// Parameters of the watches.
    pub config: watcher::Config,
    /// The client for the leader's writes.
    pub writes: Client,
    /// Whether this process leads.
    pub leading: Leading,
    /// Where the task reports that the configuration is known.
    pub readiness: Readiness,
    /// Resolves flags and objects into one configuration.
    pub resolver: Resolver,
    /// Where the effective configuration is published.
    pub in_force: watch::Sender<InForce>,
    /// The configuration numbers that the schedulers have applied.
    pub follows: watch::Receiver<Followed>,
    /// Objects or fields that are missing for the NUMA exporter.
    pub missing: watch::Receiver<Missing>,
    /// Whether the Prometheus server of Config answers.
    pub prometheus: watch::Receiver<Answers>,
    /// Metrics; the leader counts the fields that have no effect.
    pub figures: Figures,
}

/// The watch of one kind, and its objects' conditions.
struct Watched<K> {
    events: BoxStream<'static, watcher::Result<Event<Guarded<K>>>>,
    /// The names in the list that is being read.
    listing: Vec<String>,
    /// By name.
    conditions: BTreeMap<String, Vec<Condition>>,
    listed: bool,
    /// Since when nothing else was answered than that the kind is absent, before it was listed. One of several API servers may answer so while it starts.
    absent_since: Option<Instant>,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    fn new(client: Client, config: &watcher::Config) -> Self {
        let (api, config) = (Api::<Guarded<K>>::all(client), config.clone());
        // A failed list or watch is retried by the next poll, after a backoff.
        let events = watcher(api, config).then(|event| async {
            if event.is_err() {
                tokio::time::sleep(RETRY / 4).await;
            }
            event
        });
        Self {
            events: events.boxed(),
            listing: Vec::new(),
            conditions: BTreeMap::new(),
            listed: false,
            absent_since: None,
        }
    }

    /// Waits for an event of the watch, and returns the changed objects.
    async fn next(&mut self) -> Vec<Change<K>> {
        match self.events.try_next().await {
            Ok(Some(Event::Init)) => self.listing.clear(),
            Ok(Some(Event::InitApply(object))) => {
                let change = there(object);
                self.listing.push(change.name.clone());
                return vec![change];
            }
            Ok(Some(Event::InitDone)) => {
                self.listed = true;
                let names = std::mem::take(&mut self.listing);
                let gone = self.conditions.keys().filter(|name| !names.contains(name));
                return gone.map(|name| Change::gone(name.clone())).collect();
            }
            Ok(Some(Event::Apply(object))) => return vec![there(object)],
            Ok(Some(Event::Delete(object))) => {
                return vec![Change::gone(object.meta().name.clone().unwrap_or_default())];
            }
            Ok(None) => std::future::pending().await,
            Err(error) => {
                let kind = K::kind(&());
                if is_absent(&error) {
                    let since = *self.absent_since.get_or_insert_with(Instant::now);
                    if since.elapsed() < ABSENT {
                        debug!(%kind, %error, "the kind is absent; it is looked for again");
                        return Vec::new();
                    }
                    if !self.listed {
                        warn!(%kind, %error, "the API server does not serve this kind, or the right to read it is missing; no objects of it are used");
                    }
                    self.listed = true;
                    return Vec::new();
                }
                self.absent_since = None;
                if ConnectionFailed::is_cause_of(&error) {
                    // It is logged once for all watches.
                    debug!(%kind, %error, "the watch failed; it is retried");
                } else {
                    warn!(%kind, %error, "the watch failed; it is retried");
                }
            }
        }
        Vec::new()
    }
}

/// Whether the kind is not served or not readable.
fn is_absent(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if matches!(status.code, 403 | 404))
}

/// Spec and conditions of an object.
type SpecAndConditions<S> = (Seen<S>, Vec<Condition>);

/// An object's new state, or its deletion.
struct Change<K> {
    name: String,
    object: Option<Result<K, (ObjectMeta, String)>>,
}

impl<K> Change<K> {
    fn gone(name: String) -> Self {
        Self { name, object: None }
    }
}

fn there<K: Resource<DynamicType = ()>>(object: Guarded<K>) -> Change<K> {
    let meta = object.meta().clone();
    Change {
        name: meta.name.clone().unwrap_or_default(),
        object: Some(unguard(object).map_err(|rejection| (meta, rejection.reason))),
    }
}

impl<K: Resource<DynamicType = ()>> Change<K> {
    /// The specification and the conditions.
    fn read<S>(self, parts: impl FnOnce(K) -> (S, Vec<Condition>)) -> (String, Option<SpecAndConditions<S>>) {
        let object = self.object.map(|object| {
            let (meta, spec, conditions) = match object {
                Ok(object) => {
                    let meta = object.meta().clone();
                    let (spec, conditions) = parts(object);
                    (meta, Ok(spec), conditions)
                }
                Err((meta, reason)) => (meta, Err(reason), Vec::new()),
            };
            let seen = Seen {
                uid: meta.uid.unwrap_or_default(),
                created: meta.creation_timestamp.map_or(0, |time| time.0.as_second()),
                generation: meta.generation.unwrap_or_default(),
                spec,
            };
            (seen, conditions)
        });
        (self.name, object)
    }
}

impl Configuration {
    /// Watches until the operator is gone.
    ///
    /// # Errors
    /// None; the signature is that of a task of the operator.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let mut configs = Watched::<Config>::new(self.watches.clone(), &self.config);
        let mut shards = Watched::<SchedulingShard>::new(self.watches.clone(), &self.config);
        let mut number = 0;
        let mut reports: Vec<Report> = Vec::new();
        let mut changed = Some(Instant::now());
        let mut write_at = None;
        // The term in which missing objects were created last.
        let mut created_in = None;
        let mut told_of = Vec::new();
        loop {
            let listed = configs.listed && shards.listed;
            let wake = [changed, write_at].into_iter().flatten().min().filter(|_| listed);
            tokio::select! {
                changes = configs.next() => for change in changes {
                    let (name, state) = change.read(|config| (config.spec, config.status.unwrap_or_default().conditions));
                    if name != object::CONFIG {
                        warn!(name, "this Config has no effect; only kai-config has");
                        continue;
                    }
                    let (seen, conditions) = state.unzip();
                    keep(&mut configs.conditions, &name, conditions);
                    self.resolver.config(seen);
                    changed = Some(Instant::now() + TOGETHER);
                },
                changes = shards.next() => for change in changes {
                    let (name, state) = change.read(|shard| (shard.spec, shard.status.unwrap_or_default().conditions));
                    let (seen, conditions) = state.unzip();
                    keep(&mut shards.conditions, &name, conditions);
                    self.resolver.shard(&name, seen);
                    changed = Some(Instant::now() + TOGETHER);
                },
                Ok(()) = self.leading.changed() => write_at = Some(Instant::now()),
                Ok(()) = self.follows.changed() => write_at = Some(Instant::now()),
                Ok(()) = self.missing.changed() => write_at = Some(Instant::now()),
                Ok(()) = self.prometheus.changed() => write_at = Some(Instant::now()),
                () = until(wake), if wake.is_some() => {}
            }
            if !(configs.listed && shards.listed) {
                continue;
            }
            let now = Instant::now();
            if changed.is_some_and(|at| at <= now) {
                changed = None;
                let (resolved, told) = self.resolver.resolve();
                reports = told;
                number = self.publish(resolved, number);
                write_at = Some(now);
            }
            if write_at.is_none_or(|at| at > now) {
                continue;
            }
            write_at = None;
            let term = self.leading.borrow().of(&Scope::Cluster).map(|term| term.number);
            let Some(term) = term else {
                self.figures.clear(&[&CONFIG_FINDINGS]);
                told_of.clear();
                continue;
            };
            told_of = show(&self.figures, &reports, &told_of);
            let mut done = true;
            if created_in != Some(term) {
                done = self
                    .create_missing(configs.conditions.is_empty(), shards.conditions.is_empty())
                    .await;
                created_in = done.then_some(term);
            }
            let all = self
                .in_force
                .borrow()
                .as_ref()
                .map_or(0, |(_, resolved)| resolved.shards.len());
            let followed = self.follows.borrow().clone();
            let follows = followed.len() == all && followed.values().all(|followed| *followed == number);
            let ready = self.readiness.waiting().is_empty();
            let missing = *self.missing.borrow();
            for report in &mut reports {
                done &= match &report.which {
                    Which::Config => {
                        report.missing = missing;
                        self.write::<Config>(object::CONFIG, &configs.conditions, report, follows && ready)
                            .await
                    }
                    Which::Shard(name) => {
                        self.write::<SchedulingShard>(name, &shards.conditions, report, follows && ready)
                            .await
                    }
                };
            }
            if !done || (follows && !ready) {
                write_at = Some(Instant::now() + RETRY / 4);
            }
        }
    }

    /// Publishes the effective configuration if it changed; returns its number.
    fn publish(&self, resolved: Resolved, number: u64) -> u64 {
        let same = self
            .in_force
            .borrow()
            .as_ref()
            .is_some_and(|(_, before)| **before == resolved);
        if same {
            return number;
        }
        self.in_force.send_replace(Some((number + 1, Arc::new(resolved))));
        number + 1
    }

    /// Creates the Config or a shard if there is none; returns false if that is to be retried.
    async fn create_missing(&self, config: bool, shard: bool) -> bool {
        let mut done = true;
        if config {
            done &= create(&self.writes, &Config::new(object::CONFIG, Default::default())).await;
        }
        if shard {
            done &= create(
                &self.writes,
                &SchedulingShard::new(object::DEFAULT_SHARD, Default::default()),
            )
            .await;
        }
        done
    }

    /// Writes an object's conditions if they differ; returns whether they are up to date.
    async fn write<K>(
        &self,
        name: &str,
        known: &BTreeMap<String, Vec<Condition>>,
        report: &Report,
        follows: bool,
    ) -> bool
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let Some(before) = known.get(name) else { return true };
        let now = clock::now();
        let mut wanted = conditions(before, report, follows, now);
        if report.which == Which::Config {
            let answers = self.prometheus.borrow().clone();
            wanted = conditions::prometheus(wanted, answers.as_ref(), report.generation, now);
        }
        if wanted == *before {
            return true;
        }
        let patch = Patch::Merge(json!({"status": {"conditions": wanted}}));
        match Api::<K>::all(self.writes.clone())
            .patch_status(name, &PatchParams::default(), &patch)
            .await
        {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 404 => true,
            Err(error) => {
                warn!(%error, name, "conditions cannot be written; trying again");
                false
            }
        }
    }
}

/// Sets the metrics of each object: how many fields have no effect or are wrong. Returns the objects with metrics; `before`: those of the last call.
fn show(figures: &Figures, reports: &[Report], before: &[String]) -> Vec<String> {
    let mut shown = Vec::new();
    for report in reports {
        let (kind, name) = match &report.which {
            Which::Config => ("Config", object::CONFIG),
            Which::Shard(name) => ("SchedulingShard", name.as_str()),
        };
        let findings = [("ignored", report.ignored.len()), ("invalid", report.wrong.len())];
        let labels = findings.map(|(finding, count)| ([("kind", kind), ("name", name), ("finding", finding)], count));
        let series = labels.iter().map(|(labels, count)| (&labels[..], *count as f64));
        let owner = format!("{kind}/{name}");
        figures.set_all(&CONFIG_FINDINGS, &owner, series);
        shown.push(owner);
    }
    for gone in before.iter().filter(|owner| !shown.contains(owner)) {
        figures.forget(&[&CONFIG_FINDINGS], gone);
    }
    shown
}

fn keep(all: &mut BTreeMap<String, Vec<Condition>>, name: &str, conditions: Option<Vec<Condition>>) {
    match conditions {
        Some(conditions) => {
            all.insert(name.to_owned(), conditions);
        }
        None => {
            all.remove(name);
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Creates an object unless it exists; returns false if that is to be retried.
async fn create<K>(writes: &Client, new: &K) -> bool
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + DeserializeOwned
        + Serialize
        + std::fmt::Debug,
{
    let (kind, name) = (K::kind(&()), new.meta().name.clone().unwrap_or_default());
    match Api::<K>::all(writes.clone()).create(&PostParams::default(), new).await {
        Ok(_) => {
            info!(%kind, name, "created");
            true
        }
        Err(kube::Error::Api(status)) if status.code == 409 => true,
        // Not served or not permitted: the flags apply.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            warn!(%kind, name, %status, "cannot be created; the flags apply");
            true
        }
        Err(error) => {
            warn!(%kind, name, %error, "cannot be created; trying again");
            false
        }
    }
}
