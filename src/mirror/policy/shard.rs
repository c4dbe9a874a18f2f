//! SchedulingShard → scheduler configuration → policy: which plugins and actions are on, in which order, and the flags among its `args`.

use std::collections::BTreeMap;

use super::arguments::millis;
use super::{
    ALWAYS_ON, PluginEntry, Reading, Report, SchedulerConfig, Tier, go_bool, max_consolidation_victims, plugins,
    queue_depth,
};
use crate::api::duration;
use crate::api::shard::SchedulingShardSpec;
use crate::engine::policy::{ActionKind, Policy};

const BINPACK: &str = "binpack";
const SPREAD: &str = "spread";
/// Any other strategy: KAI's checks are for one of the two or the other, so that it packs nodes, and spreads pods over the GPUs of a node.
const UNKNOWN: &str = "";

/// KAI's searches for victims.
const GENERATORS: [&str; 2] = ["sg-nodelocalgreedy", "sg-multinodegang"];
/// The search for victims that KAI does not have.
const COMPLETE: &str = "sg-complete";

/// Plugins that are on by default, with their priorities. Those that depend on the placement strategy are not here.
const PLUGINS: &[(&str, i64)] = &[
    ("predicates", 1900),
    ("proportion", 1800),
    ("priority", 1700),
    ("nodeavailability", 1600),
    ("resourcetype", 1500),
    ("podaffinity", 1400),
    ("elastic", 1300),
    ("kubeflow", 1200),
    ("ray", 1100),
    ("subgrouporder", 1000),
    ("taskorder", 900),
    ("nominatednode", 800),
    ("dynamicresources", 700),
    ("minruntime", 600),
    ("topology", 500),
    ("devicelocality", 470),
    ("podtopologyspread", 450),
    ("snapshot", 400),
    ("sg-nodelocalgreedy", 360),
    ("sg-multinodegang", 350),
    (COMPLETE, 340),
    ("spare", 330),
    ("gpupack", 300),
    ("gpuspread", 300),
    ("nodeplacement", 200),
    ("gpusharingorder", 100),
];

/// Actions that are on by default, with their priorities.
const ACTIONS: &[(ActionKind, i64)] = &[
    (ActionKind::Allocate, 500),
    (ActionKind::Consolidation, 400),
    (ActionKind::Reclaim, 300),
    (ActionKind::Preempt, 200),
    (ActionKind::StaleGangEviction, 100),
];

/// Plugins whose order cannot be changed: of pod groups in a queue, and of pods in a pod group. Of the others only those that search for victims have an
/// order.
const FIXED_ORDERS: [&[&str]; 2] = [&["priority", "elastic"], &["kubeflow", "ray", "taskorder"]];

/// A plugin or action before sorting.
struct Candidate {
    enabled: bool,
    priority: i64,
    arguments: BTreeMap<String, String>,
}

/// Reads a shard; `base` provides unset fields.
///
/// # Errors
/// All problems, by field.
pub fn from_shard(spec: &SchedulingShardSpec, base: Policy) -> Result<Reading, Vec<super::Finding>> {
    let mut report = Report::default();
    let mut policy = base;
    let config = resolve(spec, &mut report);
    policy.actions = super::actions("spec.actions", &config.actions, &mut report);
    let entries = config.tiers.iter().flat_map(|tier| &tier.plugins);
    policy.plugins = plugins(
        entries.map(|entry| (format!("spec.plugins.{}", entry.name), entry)),
        &mut report,
    );
    policy.queue_depth = queue_depth("spec.queueDepthPerAction", &spec.queue_depth_per_action, &mut report);
    for (action, _) in &policy.queue_depth {
        if !policy.actions.contains(action) {
            let name = action.as_str();
            report.error(
                format!("spec.queueDepthPerAction.{name}"),
                format!("{name:?} is not among the shard's actions: {}", config.actions),
            );
        }
    }
    policy.node_pool = spec
        .partition_label_value
        .clone()
        .filter(|pool| !pool.is_empty())
        .unwrap_or_else(|| "default".to_owned());
    flags(&spec.args, &mut policy, &mut report);
    report.finish(policy)
}

/// The scheduler configuration of a shard: enabled plugins and actions, in order, with arguments.
#[must_use]
pub fn effective(spec: &SchedulingShardSpec) -> SchedulerConfig {
    resolve(spec, &mut Report::default())
}

fn resolve(spec: &SchedulingShardSpec, report: &mut Report) -> SchedulerConfig {
    let placement = spec.placement_strategy.clone().unwrap_or_default();
    let gpu = strategy("spec.placementStrategy.gpu", placement.gpu, report);
    let cpu = strategy("spec.placementStrategy.cpu", placement.cpu, report);
    let mut plugins = default_plugins(spec, gpu, cpu, report);
    for (name, given) in &spec.plugins {
        let plugin = plugins.entry(name).or_insert_with(|| Candidate {
            enabled: true,
            priority: 0,
            arguments: BTreeMap::new(),
        });
        plugin.enabled = given.enabled.unwrap_or(plugin.enabled);
        plugin.priority = given.priority.unwrap_or(plugin.priority);
        if let Some(arguments) = &given.arguments {
            plugin.arguments.clone_from(arguments);
        }
        if !plugin.enabled && ALWAYS_ON.contains(&name.as_str()) {
            report.note(
                format!("spec.plugins.{name}.enabled"),
                "this plugin cannot be switched off",
            );
        }
    }
    // Without its generators KAI finds no victims.
    let is_off = |name: &str| plugins.get(name).is_none_or(|plugin| !plugin.enabled);
    if GENERATORS.into_iter().all(is_off)
        && !spec.plugins.contains_key(COMPLETE)
        && let Some(complete) = plugins.get_mut(COMPLETE)
    {
        complete.enabled = false;
    }
    let plugin = |(name, candidate): (&str, Candidate)| PluginEntry {
        name: name.to_owned(),
        arguments: candidate.arguments,
    };
    let plugins: Vec<_> = in_order(plugins).map(plugin).collect();
    for order in FIXED_ORDERS {
        let position = |plugin: &PluginEntry| order.iter().position(|name| *name == plugin.name);
        if plugins.iter().filter_map(position).is_sorted() {
            continue;
        }
        for (name, _) in spec.plugins.iter().filter(|(_, given)| given.priority.is_some()) {
            if order.contains(&name.as_str()) {
                let says = format!("the order of {} cannot be changed", order.join(", "));
                report.note(format!("spec.plugins.{name}.priority"), says);
            }
        }
    }
    SchedulerConfig {
        actions: actions(spec, gpu != SPREAD && cpu != SPREAD).join(", "),
        tiers: vec![Tier { plugins }],
        queue_depth_per_action: spec.queue_depth_per_action.clone(),
    }
}

fn default_plugins<'s>(
    spec: &SchedulingShardSpec,
    gpu: &str,
    cpu: &str,
    report: &mut Report,
) -> BTreeMap<&'s str, Candidate> {
    let candidate = |(name, priority): &(&'s str, i64)| {
        let enabled = match *name {
            "gpupack" | "gpusharingorder" => gpu == BINPACK,
            "gpuspread" => gpu != BINPACK,
            _ => true,
        };
        (
            *name,
            Candidate {
                enabled,
                priority: *priority,
                arguments: BTreeMap::new(),
            },
        )
    };
    let mut plugins: BTreeMap<_, _> = PLUGINS.iter().map(candidate).collect();
    let mut set = |plugin: &str, argument: &str, value: String| {
        debug_assert!(
            plugins.contains_key(plugin),
            "every plugin with arguments is in the list"
        );
        if let Some(plugin) = plugins.get_mut(plugin) {
            plugin.arguments.insert(argument.to_owned(), value);
        }
    };
    for (argument, strategy) in [("gpu", gpu), ("cpu", cpu)] {
        let nodes = if strategy == SPREAD { SPREAD } else { BINPACK };
        set("nodeplacement", argument, nodes.to_owned());
    }
    if let Some(k) = spec.k_value {
        set("proportion", "kValue", k.to_string());
    }
    let min = spec.min_runtime.clone().unwrap_or_default();
    for (field, argument, text) in [
        ("preemptMinRuntime", "defaultPreemptMinRuntime", min.preempt_min_runtime),
        ("reclaimMinRuntime", "defaultReclaimMinRuntime", min.reclaim_min_runtime),
    ] {
        match text.filter(|text| !text.is_empty()) {
            Some(text) if duration::parse_extended(&text).is_err() => {
                report.note(
                    format!("spec.minRuntime.{field}"),
                    format!("{text:?} is not a duration such as 90s, 1h30m or 2d, and counts as 0s"),
                );
            }
            Some(text) => set("minruntime", argument, text),
            None => {}
        }
    }
    plugins
}

/// KAI does not validate it.
fn strategy(path: &str, given: Option<String>, report: &mut Report) -> &'static str {
    match given.as_deref().unwrap_or_default() {
        "" | BINPACK => BINPACK,
        SPREAD => SPREAD,
        other => {
            report.note(path, format!("{other:?} is not binpack or spread: nodes are packed"));
            UNKNOWN
        }
    }
}

/// Action names in order, including unknown ones, which the reader of the list refuses.
fn actions(spec: &SchedulingShardSpec, consolidates: bool) -> Vec<&str> {
    let candidate = |(action, priority): &(ActionKind, i64)| {
        let enabled = *action != ActionKind::Consolidation || consolidates;
        (
            action.as_str(),
            Candidate {
                enabled,
                priority: *priority,
                arguments: BTreeMap::new(),
            },
        )
    };
    let mut actions: BTreeMap<&str, _> = ACTIONS.iter().map(candidate).collect();
    for (name, given) in &spec.actions {
        let action = actions.entry(name).or_insert_with(|| Candidate {
            enabled: true,
            priority: 0,
            arguments: BTreeMap::new(),
        });
        action.enabled = given.enabled.unwrap_or(action.enabled);
        action.priority = given.priority.unwrap_or(action.priority);
    }
    in_order(actions).map(|(name, _)| name).collect()
}

/// The enabled entries, higher priority first, then by name.
fn in_order(candidates: BTreeMap<&str, Candidate>) -> impl Iterator<Item = (&str, Candidate)> {
    let mut on: Vec<_> = candidates
        .into_iter()
        .filter(|(_, candidate)| candidate.enabled)
        .collect();
    on.sort_by_key(|(_, candidate)| std::cmp::Reverse(candidate.priority));
    on.into_iter()
}

/// The scheduler flags among a shard's arguments that affect decisions. The others are for features that this process does not have.
fn flags(args: &BTreeMap<String, String>, policy: &mut Policy, report: &mut Report) {
    for (name, text) in args {
        let path = format!("spec.args.{name}");
        match name.as_str() {
            "full-hierarchy-fairness" => boolean(text, &path, &mut policy.full_hierarchy, report),
            "allow-consolidating-reclaim" => boolean(text, &path, &mut policy.consolidating_reclaim, report),
            "restrict-node-scheduling" => boolean(text, &path, &mut policy.restrict_nodes, report),
            "schedule-csi-storage" => boolean(text, &path, &mut policy.csi_storage, report),
            "detailed-fit-errors" => boolean(text, &path, &mut policy.detailed_errors, report),
            "update-pod-eviction-condition" => {
                let mut asked = true;
                boolean(text, &path, &mut asked, report);
                if !asked {
                    report.note(path, "evicted pods always get the condition DisruptionTarget");
                }
            }
            "cpu-worker-node-label-key" => policy.cpu_worker_label.clone_from(text),
            "gpu-worker-node-label-key" => policy.gpu_worker_label.clone_from(text),
            "max-consolidation-preemptees" => match text.parse::<i64>() {
                Ok(most) => {
                    policy.max_consolidation_victims = max_consolidation_victims(most);
                    if most < -1 {
                        report.note(path, format!("{most} counts as 0: no consolidation; -1 is no limit"));
                    }
                }
                Err(_) => report.error(path, format!("{text:?} is not a whole number")),
            },
            "default-staleness-grace-period" => {
                if let Some(grace) = flag_duration(text, &path, report) {
                    policy.staleness_grace = (grace >= 0).then_some(grace);
                }
            }
            "stuck-in-releasing-threshold" => {
                if let Some(after) = flag_duration(text, &path, report) {
                    policy.stuck_after = if after > 0 {
                        after
                    } else {
                        Policy::default().stuck_after
                    };
                }
            }
            _ => report.note(path, "this flag has no effect on decisions here"),
        }
    }
}

fn boolean(text: &str, path: &str, setting: &mut bool, report: &mut Report) {
    match go_bool(text) {
        Some(value) => *setting = value,
        None => report.error(path, format!("{text:?} is not true or false")),
    }
}

fn flag_duration(text: &str, path: &str, report: &mut Report) -> Option<i64> {
    let parsed = duration::parse_go(text).ok().map(millis);
    if parsed.is_none() {
        report.error(path, format!("{text:?} is not a duration such as 90s or 1h30m"));
    }
    parsed
}
