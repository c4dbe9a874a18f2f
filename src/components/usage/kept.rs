//! Usage stored in a ConfigMap of our namespace: read at the beginning of a term, written at each interval and at the end of the term.
//!
//! It is bounded, belongs to one shard, and is written by the leader alone. If somebody deletes it, usage is counted anew. Between the last write and the next
//! term queues count as holding what they held, for as long as figures may be old ([`Settings::staleness`]); the time after that counts for no queue.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::json;
use tracing::{info, warn};

use crate::api::names::{label, object};
use crate::components::Context;
use crate::engine::input::{Millis, Time};
use crate::usage::{Ledger, Settings};

/// Prefix of the ConfigMaps' names; the shard's name follows.
const PREFIX: &str = "unikai-usage-";
/// The key of its data.
const KEY: &str = "ledger";
/// Maximum size: one such write per minute is a small load for an API server, and holds a thousand queues.
const MOST: usize = 512 << 10;

/// The ConfigMap of a shard.
pub struct Kept {
    reads: Api<ConfigMap>,
    writes: Api<ConfigMap>,
    name: String,
    /// It existed at the last read.
    there: bool,
}

impl Kept {
    /// Nothing is read yet.
    pub fn new(context: &Context, shard: &str) -> Self {
        let namespace = &context.settings.namespace;
        Self {
            reads: Api::namespaced(context.reads.clone(), namespace),
            writes: Api::namespaced(context.writes.clone(), namespace),
            name: format!("{PREFIX}{shard}"),
            there: false,
        }
    }

    /// The ledger that continues from the stored sums; an empty one where there are none, or they cannot be parsed.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn load(&mut self, how: &Settings, now: Time) -> kube::Result<Ledger> {
        let mut ledger = Ledger::new(how.window.clone(), how.half_life);
        let object = match self.reads.get_opt(&self.name).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                warn!(object = self.name, %status, "no right to read the stored usage of queues; usage is counted from now on");
                return Ok(ledger);
            }
            object => object?,
        };
        self.there = object.is_some();
        let data = object.and_then(|object| object.data);
        let Some(text) = data.and_then(|mut data| data.remove(KEY)) else {
            return Ok(ledger);
        };
        match serde_json::from_str(&text) {
            Ok(state) => {
                ledger.take_over(
                    &state,
                    Millis::try_from(how.staleness.as_millis()).unwrap_or(Millis::MAX),
                    now,
                );
                info!(object = self.name, "stored usage of queues was read");
            }
            Err(error) => warn!(object = self.name, %error, "stored usage of queues cannot be read and is ignored"),
        }
        Ok(ledger)
    }

    /// Writes the sums. Returns whether the ConfigMap is there: if somebody has deleted it, nothing is written.
    ///
    /// # Errors
    /// If the write failed or may have failed.
    pub async fn save(&mut self, ledger: Ledger, now: Time) -> kube::Result<bool> {
        // On a blocking thread: with many queues it takes a while.
        let text = tokio::task::spawn_blocking(move || ledger.state(now, MOST)).await;
        let Ok(text) = text else { return Ok(true) };
        if self.there {
            let patch = Patch::Merge(json!({"data": {KEY: text}}));
            return match self.writes.patch(&self.name, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if is_gone(&status, &self.name) => {
                    self.there = false;
                    Ok(false)
                }
                written => written.map(|_| true),
            };
        }
        let new = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(BTreeMap::from([(
                    label::MANAGED_BY.to_owned(),
                    object::OPERATOR.to_owned(),
                )])),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KEY.to_owned(), text)])),
            ..ConfigMap::default()
        };
        let created = self.writes.create(&PostParams::default(), &new).await;
        // If it exists after all, the next interval patches it.
        self.there = match &created {
            Err(kube::Error::Api(status)) => status.code == 409,
            created => created.is_ok(),
        };
        created.map(|_| true)
    }
}

/// Whether an object of that name does not exist. An API server that starts may answer 404 about kinds, without a name.
fn is_gone(status: &Status, name: &str) -> bool {
    let details = status.details.as_ref();
    status.code == 404 && details.is_some_and(|details| details.name == name)
}
