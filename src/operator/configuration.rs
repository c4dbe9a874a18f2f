//! Watches Config and SchedulingShards, publishes the effective configuration, and, while this process leads, creates missing objects and writes conditions ([`leader`]).
//!
//! A kind that is not served or not readable for a while counts as having no objects. The meaning of fields is in `config`; changes are applied
//! in `operator`.

mod failures;
mod leader;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::rounds::InForce;
use crate::api::condition::Condition;
use crate::api::lenient::decode;
use crate::api::names::object;
use crate::api::{Config, SchedulingShard};
use crate::components::connection_failures::ConnectionFailed;
use crate::components::watches::{ABSENT, waits};
use crate::config::{Resolved, Resolver, Seen};
use leader::Known;

pub use leader::Leader;

/// Changes within this time are applied together.
const TOGETHER: Duration = Duration::from_millis(20);

/// Input of the task.
pub struct Configuration {
    /// The client for the watches.
    pub watches: Client,
    /// Parameters of the watches.
    pub config: watcher::Config,
    /// Writes while this process leads.
    pub leader: Leader,
    /// Resolves flags and objects into one configuration.
    pub resolver: Resolver,
    /// Where the effective configuration is published.
    pub in_force: watch::Sender<InForce>,
}

/// The watch of one kind, and its objects' conditions.
struct Watched {
    kind: String,
    /// Untyped: the conditions of an object must be known even if its specification does not decode.
    events: BoxStream<'static, watcher::Result<Event<DynamicObject>>>,
    /// The names in the list that is being read.
    listing: Vec<String>,
    /// By name.
    conditions: BTreeMap<String, Vec<Condition>>,
    listed: bool,
    /// Since when nothing else was answered than that the kind is absent, before it was listed. One of several API servers may answer so while it starts.
    absent_since: Option<Instant>,
}

impl Watched {
    fn new<K: Resource<DynamicType = ()>>(client: Client, config: &watcher::Config) -> Self {
        let resource = ApiResource::erase::<K>(&());
        let (api, config) = (Api::<DynamicObject>::all_with(client, &resource), config.clone());
        Self {
            kind: resource.kind,
            events: watcher(api, config).backoff(waits()).boxed(),
            listing: Vec::new(),
            conditions: BTreeMap::new(),
            listed: false,
            absent_since: None,
        }
    }

    /// Waits for an event of the watch, and returns the changed objects.
    async fn next(&mut self) -> Vec<Change> {
        match self.events.try_next().await {
            Ok(Some(Event::Init)) => self.listing.clear(),
            Ok(Some(Event::InitApply(object))) => {
                let change = Change::there(object);
                self.listing.push(change.name.clone());
                return vec![change];
            }
            Ok(Some(Event::InitDone)) => {
                self.listed = true;
                let names = std::mem::take(&mut self.listing);
                let gone = self.conditions.keys().filter(|name| !names.contains(name));
                return gone.map(|name| Change::gone(name.clone())).collect();
            }
            Ok(Some(Event::Apply(object))) => return vec![Change::there(object)],
            Ok(Some(Event::Delete(object))) => {
                return vec![Change::gone(object.metadata.name.unwrap_or_default())];
            }
            Ok(None) => std::future::pending().await,
            Err(error) => {
                let kind = &self.kind;
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
struct Change {
    name: String,
    object: Option<DynamicObject>,
}

impl Change {
    fn gone(name: String) -> Self {
        Self { name, object: None }
    }

    fn there(object: DynamicObject) -> Self {
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            object: Some(object),
        }
    }

    /// The specification and the conditions.
    fn read<K, S>(self, spec: impl FnOnce(K) -> S) -> (String, Option<SpecAndConditions<S>>)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let object = self.object.map(|object| {
            let (meta, conditions) = (object.metadata.clone(), conditions_of(&object));
            let value = serde_json::to_value(object).map_err(|error| error.to_string());
            let read = value.and_then(|value| decode::<K>(value).map_err(|rejection| rejection.reason));
            let seen = Seen {
                uid: meta.uid.unwrap_or_default(),
                created: meta.creation_timestamp.map_or(0, |time| time.0.as_second()),
                generation: meta.generation.unwrap_or_default(),
                spec: read.map(spec),
            };
            (seen, conditions)
        });
        (self.name, object)
    }
}

/// The conditions of an object that can be read, whatever the rest of it is.
fn conditions_of(object: &DynamicObject) -> Vec<Condition> {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let read = conditions.into_iter().flatten().map(Condition::deserialize);
    read.filter_map(Result::ok).collect()
}

impl Configuration {
    /// Watches until the operator is gone.
    ///
    /// # Errors
    /// None; the signature is that of a task of the operator.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self {
            watches,
            config,
            leader,
            resolver,
            in_force,
        } = self;
        let (known, seen) = watch::channel(None);
        let writes = leader.run(seen, in_force.subscribe());
        // Apart from the watches: a write that is not answered must not delay what others have changed.
        tokio::join!(follow(watches, &config, resolver, &in_force, &known), writes);
        Ok(())
    }
}

/// Publishes what the objects say now, for ever.
async fn follow(
    watches: Client,
    config: &watcher::Config,
    mut resolver: Resolver,
    in_force: &watch::Sender<InForce>,
    known: &watch::Sender<Option<Known>>,
) {
    let mut configs = Watched::new::<Config>(watches.clone(), config);
    let mut shards = Watched::new::<SchedulingShard>(watches, config);
    let mut number = 0;
    let mut changed = Some(Instant::now());
    loop {
        let wake = changed.filter(|_| configs.listed && shards.listed);
        tokio::select! {
            changes = configs.next() => for change in changes {
                let (name, state) = change.read(|config: Config| config.spec);
                if name != object::CONFIG {
                    warn!(name, "this Config has no effect; only kai-config has");
                    continue;
                }
                let (seen, conditions) = state.unzip();
                keep(&mut configs.conditions, &name, conditions);
                resolver.config(seen);
                changed = Some(Instant::now() + TOGETHER);
            },
            changes = shards.next() => for change in changes {
                let (name, state) = change.read(|shard: SchedulingShard| shard.spec);
                let (seen, conditions) = state.unzip();
                keep(&mut shards.conditions, &name, conditions);
                resolver.shard(&name, seen);
                changed = Some(Instant::now() + TOGETHER);
            },
            () = until(wake), if wake.is_some() => {}
        }
        if configs.listed && shards.listed && changed.is_some_and(|at| at <= Instant::now()) {
            changed = None;
            let (resolved, reports) = resolver.resolve();
            number = publish(in_force, resolved, number);
            known.send_replace(Some(Known {
                configs: configs.conditions.clone(),
                shards: shards.conditions.clone(),
                reports,
                had_shards: resolver.had_shards(),
                number,
            }));
        }
    }
}

/// Publishes the effective configuration if it changed; returns its number.
fn publish(in_force: &watch::Sender<InForce>, resolved: Resolved, number: u64) -> u64 {
    let before = in_force.borrow().clone();
    if before.is_some_and(|(_, before)| *before == resolved) {
        return number;
    }
    in_force.send_replace(Some((number + 1, Arc::new(resolved))));
    number + 1
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

#[cfg(test)]
mod tests;
