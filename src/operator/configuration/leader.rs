//! What the leader writes about the configuration: missing objects, conditions, and metrics of fields without effect.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::failures::Failures;
use super::until;
use crate::api::condition::Condition;
use crate::api::names::object;
use crate::api::{Config, SchedulingShard};
use crate::clock;
use crate::components::figures::Figures;
use crate::components::figures::families::CONFIG_FINDINGS;
use crate::components::leadership::{Leading, Scope};
use crate::components::numa_daemon_set::Missing;
use crate::components::readiness::Readiness;
use crate::components::scheduler::Followed;
use crate::config::conditions::{self, conditions};
use crate::config::{Report, Which};
use crate::operator::prometheus::Answers;
use crate::operator::rounds::InForce;

/// How often it is looked whether all components are ready.
const LOOK: Duration = Duration::from_millis(500);

/// What is known of the objects.
#[derive(Clone)]
pub struct Known {
    /// The conditions of Configs, by name.
    pub configs: BTreeMap<String, Vec<Condition>>,
    /// The same of SchedulingShards.
    pub shards: BTreeMap<String, Vec<Condition>>,
    /// What came of reading the objects.
    pub reports: Vec<Report>,
    /// Whether there has been a SchedulingShard since the process started.
    pub had_shards: bool,
    /// The number of the effective configuration.
    pub number: u64,
}

/// The task's input.
pub struct Leader {
    /// The client for the writes.
    pub writes: Client,
    /// Whether this process leads.
    pub leading: Leading,
    /// Whether all components are ready.
    pub readiness: Readiness,
    /// The configuration numbers that the schedulers have applied.
    pub follows: watch::Receiver<Followed>,
    /// Objects or fields that are missing for the NUMA exporter.
    pub missing: watch::Receiver<Missing>,
    /// Whether the Prometheus server of Config answers.
    pub prometheus: watch::Receiver<Answers>,
    /// Metrics; the leader counts the fields that have no effect.
    pub figures: Figures,
}

impl Leader {
    /// Writes what differs from what is known, for ever.
    pub async fn run(mut self, mut known: watch::Receiver<Option<Known>>, in_force: watch::Receiver<InForce>) {
        let mut again_at = None;
        // The term in which missing objects were created last.
        let mut created_in = None;
        let mut told_of = Vec::new();
        let mut failures = Failures::default();
        loop {
            tokio::select! {
                Ok(()) = known.changed() => {}
                Ok(()) = self.leading.changed() => {}
                Ok(()) = self.follows.changed() => {}
                Ok(()) = self.missing.changed() => {}
                Ok(()) = self.prometheus.changed() => {}
                () = until(again_at) => {}
            }
            again_at = None;
            let Some(Known {
                configs,
                shards,
                mut reports,
                had_shards,
                number,
            }) = known.borrow_and_update().clone()
            else {
                continue;
            };
            let term = self
                .leading
                .borrow_and_update()
                .of(&Scope::Cluster)
                .map(|term| term.number);
            let Some(term) = term else {
                self.figures.clear(&[&CONFIG_FINDINGS]);
                told_of.clear();
                failures = Failures::default();
                continue;
            };
            told_of = show(&self.figures, &reports, &told_of);
            let mut again = Vec::new();
            if created_in != Some(term) {
                again = self
                    .create_missing(configs.is_empty(), !had_shards, &mut failures)
                    .await;
                created_in = again.is_empty().then_some(term);
            }
            let all = in_force
                .borrow()
                .as_ref()
                .map_or(0, |(_, resolved)| resolved.shards.len());
            let followed = self.follows.borrow_and_update().clone();
            let follows = followed.len() == all && followed.values().all(|followed| *followed == number);
            let ready = self.readiness.waiting().is_empty();
            let missing = *self.missing.borrow_and_update();
            for report in &mut reports {
                let follows = follows && ready;
                again.extend(match &report.which {
                    Which::Config => {
                        report.missing = missing;
                        self.write::<Config>(object::CONFIG, &configs, report, follows, &mut failures)
                            .await
                    }
                    Which::Shard(name) => {
                        self.write::<SchedulingShard>(name, &shards, report, follows, &mut failures)
                            .await
                    }
                });
            }
            if follows && !ready {
                again.push(Instant::now() + LOOK);
            }
            again_at = again.into_iter().min();
        }
    }

    /// Creates the Config if there is none, and a shard if there has been none: all that were deleted stay deleted. Returns when to try again what failed.
    async fn create_missing(&self, config: bool, shard: bool, failures: &mut Failures) -> Vec<Instant> {
        let mut again = Vec::new();
        if config {
            let new = Config::new(object::CONFIG, Default::default());
            again.extend(create(&self.writes, &new, failures).await);
        }
        if shard {
            let new = SchedulingShard::new(object::DEFAULT_SHARD, Default::default());
            again.extend(create(&self.writes, &new, failures).await);
        }
        again
    }

    /// Writes an object's conditions if they differ; returns when to try again if that failed.
    async fn write<K: Resource<DynamicType = ()>>(
        &self,
        name: &str,
        known: &BTreeMap<String, Vec<Condition>>,
        report: &Report,
        follows: bool,
        failures: &mut Failures,
    ) -> Option<Instant> {
        let before = known.get(name)?;
        let (object, now) = (object_of::<K>(name), clock::now());
        let mut wanted = conditions(before, report, follows, now);
        if report.which == Which::Config {
            let answers = self.prometheus.borrow().clone();
            wanted = conditions::prometheus(wanted, answers.as_ref(), report.generation, now);
        }
        if wanted == *before {
            failures.forget(&object);
            return None;
        }
        let waits = failures.again_at(&object, &wanted);
        if waits.is_some() {
            return waits;
        }
        let patch = Patch::Merge(json!({"status": {"conditions": wanted}}));
        // Untyped: the write succeeds even if the specification in the response does not decode.
        let api = Api::<DynamicObject>::all_with(self.writes.clone(), &ApiResource::erase::<K>(&()));
        match api.patch_status(name, &PatchParams::default(), &patch).await {
            Err(error) if !matches!(&error, kube::Error::Api(status) if status.code == 404) => {
                Some(failures.failed(&object, &wanted, &error))
            }
            _ => {
                failures.forget(&object);
                None
            }
        }
    }
}

/// The name of an object with its kind.
fn object_of<K: Resource<DynamicType = ()>>(name: &str) -> String {
    format!("{}/{name}", K::kind(&()))
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

/// Creates an object unless it exists; returns when to try again if that failed.
async fn create<K>(writes: &Client, new: &K, failures: &mut Failures) -> Option<Instant>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + DeserializeOwned
        + Serialize
        + std::fmt::Debug,
{
    let (kind, name) = (K::kind(&()), new.meta().name.clone().unwrap_or_default());
    let object = object_of::<K>(&name);
    let waits = failures.again_at(&object, &[]);
    if waits.is_some() {
        return waits;
    }
    match Api::<K>::all(writes.clone()).create(&PostParams::default(), new).await {
        Ok(_) => info!(%kind, name, "created"),
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        // Not served or not permitted: the flags apply.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            warn!(%kind, name, %status, "cannot be created; the flags apply");
        }
        Err(error) => return Some(failures.failed(&object, &[], &error)),
    }
    failures.forget(&object);
    None
}
