//! Configuration: flags, Config and SchedulingShards → the effective configuration.
//!
//! Config overrides flags, and a shard overrides Config. The last valid state of each object stays in force while a newer one is
//! invalid, and an invalid object does not affect the others. Pure: the caller watches the objects and passes them to a [`Resolver`], which
//! computes the effective configuration and a report for each object's conditions.

pub mod conditions;
pub mod fields;
mod global;
mod pools;
pub mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::config::ConfigSpec;
use crate::api::shard::SchedulingShardSpec;
use crate::api::syntax;
use crate::components::leadership::{Scope, pool_name};
use crate::components::scheduler::Rules;
use crate::components::{self, admission};
use crate::mirror::policy::Finding;
pub use global::{is_on, validates};

/// The settings that components are started with. When they change, components end gracefully and are started again, within the process.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// Of the components.
    pub components: components::Settings,
    /// Of the webhooks.
    pub admission: admission::Settings,
    /// The prefix of the metrics that KAI has, too.
    pub metrics_namespace: String,
    /// The only node pool that this process schedules, if not all: the value of its label.
    pub only_pool: Option<String>,
    /// The URL of the Prometheus server of shards that name none.
    pub prometheus: Option<String>,
}

/// The settings of a shard's scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardRules {
    /// The shard's name.
    pub name: String,
    /// The settings of its scheduler, which applies changes at once.
    pub rules: Rules,
}

impl ShardRules {
    /// The scope under whose Lease it decides.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let shard = &self.rules.mirror.shard;
        if shard.key.is_empty() || shard.value.is_empty() {
            return Scope::Cluster;
        }
        Scope::Pool(shard.value.as_str().into())
    }
}

/// The effective configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The settings that components are started with.
    pub common: Common,
    /// The shards that this process schedules, by name.
    pub shards: Vec<ShardRules>,
    /// Whether log lines are JSON; `None`: by the flag.
    pub json_log: Option<bool>,
    /// How the Prometheus server of Config is checked, if it names one.
    pub probe: Option<Probe>,
}

/// How a Prometheus server is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its URL.
    pub url: String,
    /// The time between two checks.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How often a failed check is repeated before the server counts as not answering; the n-th time after n seconds.
    pub retries: u32,
}

/// An object as the watch delivered it.
#[derive(Clone, Debug)]
pub struct Seen<S> {
    /// Its uid, which differs after it was deleted and created again.
    pub uid: String,
    /// When it was created, in seconds: of two shards of one node pool the older counts.
    pub created: i64,
    /// `metadata.generation`.
    pub generation: i64,
    /// The specification, or why it does not parse.
    pub spec: Result<S, String>,
}

/// The object of a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// The Config.
    Config,
    /// The shard of that name.
    Shard(String),
}

/// The result of reading an object, for its conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The object.
    pub which: Which,
    /// Its latest generation.
    pub generation: i64,
    /// The generation that is in force once the process has applied it; `None`: there was no valid one, and nothing is scheduled.
    pub in_force: Option<i64>,
    /// Its errors, each with the field's path.
    pub wrong: Vec<Finding>,
    /// Its fields without effect, each with its path.
    pub ignored: Vec<Finding>,
    /// Why the object has no effect at all, if so.
    pub unserved: Option<Unserved>,
    /// What is missing for some of it to take effect.
    pub missing: Option<&'static str>,
}

/// Why a shard has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// This process serves another node pool.
    OtherPool(String),
    /// An older shard of that name has the same node pool.
    SamePool(String),
}

/// An object's last state, and its last valid one.
#[derive(Debug)]
struct Kept<S> {
    seen: Seen<S>,
    wrong: Vec<Finding>,
    good: Option<(i64, S)>,
}

impl<S: Clone + Default> Kept<S> {
    /// Records a new state, which is valid if `check` finds no errors.
    fn take(before: Option<Self>, seen: Seen<S>, check: impl FnOnce(&S) -> Vec<Finding>) -> Self {
        let good = before
            .filter(|before| before.seen.uid == seen.uid)
            .and_then(|before| before.good);
        let wrong = match &seen.spec {
            Ok(spec) => check(spec),
            Err(reason) => vec![Finding {
                path: "spec".to_owned(),
                says: format!("cannot be read: {reason}"),
            }],
        };
        let good = match (&seen.spec, wrong.is_empty()) {
            (Ok(spec), true) => Some((seen.generation, spec.clone())),
            _ => good,
        };
        Self { seen, wrong, good }
    }

    /// Whether a valid state has been seen.
    fn is_known(&self) -> bool {
        self.good.is_some()
    }

    fn spec(&self) -> S {
        self.good.as_ref().map(|(_, spec)| spec.clone()).unwrap_or_default()
    }

    fn report(&self, which: Which, ignored: Vec<Finding>, unserved: Option<Unserved>) -> Report {
        Report {
            which,
            generation: self.seen.generation,
            in_force: self.good.as_ref().map(|(generation, _)| *generation),
            wrong: self.wrong.clone(),
            ignored,
            unserved,
            missing: None,
        }
    }
}

/// Computes the effective configuration from flags and objects.
#[derive(Debug)]
pub struct Resolver {
    flags: Common,
    config: Option<Kept<ConfigSpec>>,
    shards: BTreeMap<String, Kept<SchedulingShardSpec>>,
    /// There has been a shard: if all are deleted since, nothing is scheduled.
    had_shards: bool,
    /// There has been a shard with the label value of the only node pool: if it is deleted since, nothing is scheduled.
    had_own: bool,
}

impl Resolver {
    /// With flags only.
    #[must_use]
    pub fn new(flags: Common) -> Self {
        Self {
            flags,
            config: None,
            shards: BTreeMap::new(),
            had_shards: false,
            had_own: false,
        }
    }

    /// Sets the Config; `None`: there is none.
    pub fn config(&mut self, seen: Option<Seen<ConfigSpec>>) {
        let flags = &self.flags;
        let before = self.config.take();
        self.config = seen.map(|seen| Kept::take(before, seen, |spec| global::read(flags, spec).wrong));
    }

    /// Sets a shard; `None`: it was deleted.
    pub fn shard(&mut self, name: &str, seen: Option<Seen<SchedulingShardSpec>>) {
        let before = self.shards.remove(name);
        let Some(seen) = seen else { return };
        self.had_shards = true;
        let common = &self.flags;
        let check = |spec: &SchedulingShardSpec| pools::read(common, spec).err().unwrap_or_default();
        let kept = Kept::take(before, seen, check);
        let only = self.flags.only_pool.as_ref();
        self.had_own |= only.is_some() && label_value(&kept).as_ref() == only;
        self.shards.insert(name.to_owned(), kept);
    }

    /// The names of the known shards.
    pub fn shards(&self) -> impl Iterator<Item = &str> {
        self.shards.keys().map(String::as_str)
    }

    /// Whether there has been a shard since the process started.
    #[must_use]
    pub fn had_shards(&self) -> bool {
        self.had_shards
    }

    /// The effective configuration, and a report on each object.
    #[must_use]
    pub fn resolve(&self) -> (Resolved, Vec<Report>) {
        let config = self.config.as_ref().map(Kept::spec).unwrap_or_default();
        let read = global::read(&self.flags, &config);
        let mut common = read.common;
        let mut reports = Vec::new();
        if let Some(config) = &self.config {
            let mut ignored = read.ignored;
            ignored.extend(fields::ignored("Config", config.seen.spec.as_ref().ok()));
            reports.push(config.report(Which::Config, ignored, None));
        }
        let served = self.served(&common);
        let mut shards = Vec::new();
        for (name, shard) in &self.shards {
            let mut ignored = fields::ignored("SchedulingShard", shard.seen.spec.as_ref().ok());
            let pool = pool_of(&common, shard).unwrap_or_default();
            // Also while an earlier state is in force, which may have named another pool.
            let spec = SchedulingShardSpec {
                partition_label_value: Some(pool.clone()),
                ..shard.spec()
            };
            // A valid shard is read again, since Config, from which it inherits, may have changed.
            let (reading, wrong) = match pools::read(&common, &spec) {
                Ok(reading) => (reading, Vec::new()),
                Err(wrong) => (pools::defaults(&common, &pool), wrong),
            };
            ignored.extend(reading.ignored);
            let unserved = match (served.get(&pool), &common.only_pool) {
                (Some(older), _) if *older != name => Some(Unserved::SamePool((*older).to_owned())),
                (_, Some(only)) if *only != pool => Some(Unserved::OtherPool(pool_name(only).to_owned())),
                _ => {
                    let on = shard.is_known() && wrong.is_empty();
                    shards.push((name.clone(), Rules { on, ..reading.rules }));
                    None
                }
            };
            let mut report = shard.report(Which::Shard(name.clone()), ignored, unserved);
            if report.wrong.is_empty() {
                report.wrong = wrong;
            }
            reports.push(report);
        }
        // Without a label key, no shard is of a single node pool.
        let had_own = self.had_own && !common.components.pools.key.is_empty();
        let deleted = had_own || (self.had_shards && self.shards.is_empty());
        let missing = match &common.only_pool {
            Some(only) => Some(only.as_str()).filter(|only| !deleted && !served.contains_key(*only)),
            None => Some("").filter(|_| !self.had_shards),
        };
        if let Some(pool) = missing {
            // A shard whose node pool cannot be read may be that of this one.
            let on = self.shards.values().all(|shard| pool_of(&common, shard).is_some());
            let rules = pools::defaults(&common, pool).rules;
            shards.push((pool_name(pool).to_owned(), Rules { on, ..rules }));
        }
        common.components.numa_exporter.on = read.numa_exporter.unwrap_or_else(|| self.asks_for_numa());
        // Whether the zones of nodes are watched.
        common.components.numa = shards.iter().find_map(|(_, rules)| rules.mirror.numa.clone());
        let (default, others): (Vec<&str>, Vec<&str>) = served
            .keys()
            .map(String::as_str)
            .chain(missing)
            .partition(|pool| pool.is_empty());
        common.components.pools.default_has_shard = !default.is_empty();
        common.components.pools.with_shard = others.into_iter().map(Into::into).collect();
        // What the last valid state said, another process knows: by defaults, pods could be evicted that it protected.
        common.components.known = self.config.as_ref().is_none_or(Kept::is_known);
        let decides = read.decides && common.components.known;
        let rule = |(name, rules): (String, Rules)| ShardRules {
            name,
            rules: Rules {
                on: rules.on && decides,
                ..rules
            },
        };
        let shards = shards.into_iter().map(rule).collect();
        let json_log = config.global.as_ref().and_then(|global| global.json_log);
        let resolved = Resolved {
            common,
            shards,
            json_log,
            probe: read.probe,
        };
        (resolved, reports)
    }

    /// Whether a shard enables the plugin `numa` by name.
    fn asks_for_numa(&self) -> bool {
        let mut good = self.shards.values().filter_map(|shard| shard.good.as_ref());
        good.any(|(_, spec)| spec.plugins.get("numa").is_some_and(|numa| numa.enabled == Some(true)))
    }

    /// For each node pool the oldest of its shards, which is the one in force. One whose pool cannot be read counts only if the default pool has no other.
    fn served(&self, common: &Common) -> BTreeMap<String, &str> {
        let mut oldest: BTreeMap<String, (bool, i64, &str)> = BTreeMap::new();
        for (name, shard) in &self.shards {
            let pool = pool_of(common, shard);
            let this = (pool.is_none(), shard.seen.created, name.as_str());
            let known = oldest.entry(pool.unwrap_or_default()).or_insert(this);
            *known = this.min(*known);
        }
        oldest.into_iter().map(|(pool, (_, _, name))| (pool, name)).collect()
    }
}

/// The label value of a shard's node pool. Without a label key there is only one pool.
fn pool_of(common: &Common, shard: &Kept<SchedulingShardSpec>) -> Option<String> {
    if common.components.pools.key.is_empty() {
        return Some(String::new());
    }
    label_value(shard)
}

/// The label value that a shard names in its latest state, even if that is invalid in other fields: a shard that was moved to another pool must not
/// serve the old one. `None`: neither that nor an earlier state says it.
fn label_value(shard: &Kept<SchedulingShardSpec>) -> Option<String> {
    let latest = shard.seen.spec.as_ref().ok();
    let good = shard.good.as_ref().map(|(_, spec)| spec);
    let pools = [latest, good].into_iter().flatten();
    let mut pools = pools.map(|spec| spec.partition_label_value.as_deref().unwrap_or_default());
    let pool = pools.find(|pool| pool.is_empty() || syntax::is_label_word(pool))?;
    Some(pool.to_owned())
}

#[cfg(test)]
pub(crate) mod tests;
