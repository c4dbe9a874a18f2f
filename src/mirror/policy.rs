//! Scheduler configuration and SchedulingShard → the engine's policy. All errors are listed at once, with their paths. A value that KAI replaces by its
//! default is replaced here as well, with a note; only what KAI refuses is an error.
//!
//! Absent: search budgets and garbage-collector settings, which KAI's engine needs and ours does not; they are accepted and not read.

mod arguments;
mod shard;
mod written;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::api::lenient::null_as_default;
use crate::engine::policy::{ActionKind, Plugins, Policy, VictimGenerator};
use arguments::Arguments;
pub use shard::{effective, from_shard};
pub use written::to_config;

/// The scheduler's configuration, as KAI's configuration file and snapshots hold it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerConfig {
    /// Action names in order, separated by commas. Empty: all.
    #[serde(default, deserialize_with = "null_as_default")]
    pub actions: String,
    /// Plugins in order; the tiers are read as one list. Empty: the default plugins.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tiers: Vec<Tier>,
    /// Per action: how many pending groups of each queue are tried.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub queue_depth_per_action: BTreeMap<String, i64>,
}

/// Some of the plugins.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Tier {
    /// In order.
    #[serde(default, deserialize_with = "null_as_default")]
    pub plugins: Vec<PluginEntry>,
}

/// A plugin that is on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct PluginEntry {
    /// Its name.
    pub name: String,
    /// Its arguments.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub arguments: BTreeMap<String, String>,
}

/// A policy, and notes on fields without effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The policy.
    pub policy: Policy,
    /// Fields for other components, fields without effect, and values that defaults replace.
    pub notes: Vec<Finding>,
}

/// A problem or note about one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The field's path.
    pub path: String,
    /// A sentence without its subject, such as `is not an action`.
    pub says: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.says)
    }
}

/// Problems and notes found while reading.
#[derive(Default)]
struct Report {
    errors: Vec<Finding>,
    notes: Vec<Finding>,
}

impl Report {
    fn error(&mut self, path: impl Into<String>, says: impl Into<String>) {
        self.errors.push(Finding {
            path: path.into(),
            says: says.into(),
        });
    }

    fn note(&mut self, path: impl Into<String>, says: impl Into<String>) {
        self.notes.push(Finding {
            path: path.into(),
            says: says.into(),
        });
    }

    fn finish(self, policy: Policy) -> Result<Reading, Vec<Finding>> {
        if self.errors.is_empty() {
            Ok(Reading {
                policy,
                notes: self.notes,
            })
        } else {
            Err(self.errors)
        }
    }
}

/// Reads a scheduler configuration; `base` provides unset fields.
///
/// # Errors
/// All problems, by field.
pub fn from_config(config: &SchedulerConfig, base: Policy) -> Result<Reading, Vec<Finding>> {
    let mut report = Report::default();
    let mut policy = base;
    if !config.actions.trim().is_empty() {
        policy.actions = actions("actions", &config.actions, &mut report);
    }
    if !config.tiers.is_empty() {
        let entries = config.tiers.iter().enumerate().flat_map(|(tier, entries)| {
            entries
                .plugins
                .iter()
                .enumerate()
                .map(move |(index, entry)| (format!("tiers[{tier}].plugins[{index}]"), entry))
        });
        policy.plugins = plugins(entries, &mut report);
    }
    if !config.queue_depth_per_action.is_empty() {
        policy.queue_depth = queue_depth("queueDepthPerAction", &config.queue_depth_per_action, &mut report);
    }
    report.finish(policy)
}

/// How many other pod groups consolidation considers for one, by KAI's number: -1 is no limit, and other negative numbers admit none, as 0 does.
#[must_use]
pub fn max_consolidation_victims(number: i64) -> Option<usize> {
    (number != -1).then(|| usize::try_from(number).unwrap_or_default())
}

/// The argument of the plugin `numa` that says whether free amounts of zones are computed from the records of pods.
const RECONSTRUCT: &str = "reconstructAvailable";

/// Resources that the plugin `numa` ignores, if it is on.
#[must_use]
pub fn numa(config: &SchedulerConfig) -> Option<Vec<String>> {
    let mut plugins = config.tiers.iter().flat_map(|tier| &tier.plugins);
    let numa = plugins.find(|plugin| plugin.name == "numa")?;
    let ignored = numa.arguments.get("ignoreList").map(String::as_str).unwrap_or_default();
    let names = ignored.split(',').map(str::trim).filter(|name| !name.is_empty());
    Some(names.map(ToOwned::to_owned).collect())
}

/// Whether the plugin `numa` uses the available amounts that agents report, instead of computing them. False if the argument is invalid.
#[must_use]
pub fn zones_as_reported(config: &SchedulerConfig) -> bool {
    let mut plugins = config.tiers.iter().flat_map(|tier| &tier.plugins);
    let numa = plugins.find(|plugin| plugin.name == "numa");
    let given = numa.and_then(|numa| numa.arguments.get(RECONSTRUCT));
    given.and_then(|text| go_bool(text)) == Some(false)
}

/// Parses a boolean as Go does.
#[must_use]
pub fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn actions(path: &str, list: &str, report: &mut Report) -> Vec<ActionKind> {
    let mut actions = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match ActionKind::parse(name) {
            Some(action) if actions.contains(&action) => report.error(path, format!("{name:?} is named twice")),
            Some(action) => actions.push(action),
            None => report.error(path, format!("{name:?} is not an action; use {}", all_actions())),
        }
    }
    actions
}

fn all_actions() -> String {
    ActionKind::NAMES.join(", ")
}

fn queue_depth(path: &str, depths: &BTreeMap<String, i64>, report: &mut Report) -> Vec<(ActionKind, usize)> {
    let mut read = Vec::new();
    for (name, depth) in depths {
        match (ActionKind::parse(name), usize::try_from(*depth)) {
            (Some(action), Ok(depth)) if depth > 0 => read.push((action, depth)),
            (Some(_), _) if *depth == -1 => {}
            (Some(_), _) => report.note(
                format!("{path}.{name}"),
                format!("{depth} is no number above 0, so there is no bound"),
            ),
            (None, _) => report.error(
                format!("{path}.{name}"),
                format!("{name:?} is not an action; use {}", all_actions()),
            ),
        }
    }
    read
}

fn plugins<'c>(entries: impl Iterator<Item = (String, &'c PluginEntry)>, report: &mut Report) -> Plugins {
    let mut plugins = Plugins::default();
    for (path, entry) in entries {
        let mut arguments = Arguments::new(&path, &entry.arguments, report);
        if switch_on(&mut plugins, &entry.name, &mut arguments) {
            arguments.finish();
        } else {
            report.note(
                path,
                format!("plugin {:?} is not known here and has no effect", entry.name),
            );
        }
    }
    plugins
}

/// Plugins that cannot be switched off. `snapshot` is for inspection; the others' rules are part of the engine.
const ALWAYS_ON: [&str; 7] = [
    "predicates",
    "kubeflow",
    "ray",
    "subgrouporder",
    "taskorder",
    "dynamicresources",
    "snapshot",
];

/// Enables a plugin; the first of two with one name counts. Plugins without a field are always on, or are for inspection; what `numa`
/// needs is done by the mirror. False: unknown name.
fn switch_on(plugins: &mut Plugins, name: &str, arguments: &mut Arguments) -> bool {
    match name {
        "proportion" => {
            let proportion = arguments.proportion();
            plugins.proportion.get_or_insert(proportion);
        }
        "priority" => plugins.priority = true,
        "elastic" => plugins.elastic = true,
        "nodeavailability" => plugins.node_availability = true,
        "gpusharingorder" => plugins.gpu_sharing_order = true,
        "gpupack" => plugins.gpu_pack = true,
        "gpuspread" => plugins.gpu_spread = true,
        "resourcetype" => plugins.resource_type = true,
        "nominatednode" => plugins.nominated_node = true,
        "podaffinity" => plugins.pod_affinity = true,
        "nodeplacement" => {
            let placement = arguments.node_placement();
            plugins.node_placement.get_or_insert(placement);
        }
        "minruntime" => {
            let min_runtime = arguments.min_runtime();
            plugins.min_runtime.get_or_insert(min_runtime);
        }
        "devicelocality" => {
            let attributes = arguments.device_locality();
            if plugins.device_locality.is_empty() {
                plugins.device_locality = attributes;
            }
        }
        "topology" => plugins.topology = true,
        "podtopologyspread" => plugins.topology_spread = true,
        "sg-nodelocalgreedy" => add_generator(plugins, VictimGenerator::NodeLocalGreedy),
        "sg-multinodegang" => add_generator(plugins, VictimGenerator::MultiNodeGang),
        "sg-complete" => {
            let steps = arguments.complete_search_steps();
            if plugins.complete_search_steps == 0 {
                plugins.complete_search_steps = steps;
            }
        }
        "spare" => plugins.spare = true,
        "dynamicresources" => arguments.dynamic_resources(),
        "numa" => arguments.numa(),
        "snapshot" | "reflectjoborder" => arguments.any(),
        name => return ALWAYS_ON.contains(&name),
    }
    true
}

fn add_generator(plugins: &mut Plugins, generator: VictimGenerator) {
    if !plugins.victim_generators.contains(&generator) {
        plugins.victim_generators.push(generator);
    }
}

#[cfg(test)]
mod tests;
