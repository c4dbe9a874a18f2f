//! The engine's policy → a scheduler configuration, which [`from_config`](super::from_config) reads as the same policy, except for one without
//! actions: an empty list means all of them. Snapshots say that elsewhere.

use std::collections::BTreeMap;

use super::{PluginEntry, RECONSTRUCT, SchedulerConfig, Tier};
use crate::engine::policy::{Plugins, Policy, Proportion, ResolveMethod, Strategy, VictimGenerator};

type Arguments = BTreeMap<String, String>;

/// The configuration of a policy, and of NUMA alignment, which the mirror handles.
#[must_use]
pub fn to_config(policy: &Policy, numa: Option<&[String]>, zones_as_reported: bool) -> SchedulerConfig {
    let actions: Vec<_> = policy.actions.iter().map(|action| action.as_str()).collect();
    let depth = |(action, depth): &(crate::engine::policy::ActionKind, usize)| {
        let depth = i64::try_from(*depth).unwrap_or(i64::MAX);
        (action.as_str().to_owned(), depth)
    };
    SchedulerConfig {
        actions: actions.join(", "),
        tiers: vec![Tier {
            plugins: plugins(&policy.plugins, numa, zones_as_reported),
        }],
        queue_depth_per_action: policy.queue_depth.iter().map(depth).collect(),
    }
}

/// In the order of KAI's defaults. Those without a switch here are always on.
fn plugins(on: &Plugins, numa: Option<&[String]>, zones_as_reported: bool) -> Vec<PluginEntry> {
    // Without `..`, so that a new plugin does not compile without a row here.
    let Plugins {
        proportion: shares,
        priority,
        elastic,
        node_availability,
        gpu_sharing_order,
        gpu_pack,
        gpu_spread,
        resource_type,
        nominated_node,
        pod_affinity,
        node_placement,
        min_runtime,
        device_locality,
        topology,
        topology_spread,
        victim_generators,
        complete_search_steps,
        spare,
    } = on;
    let mut entries = Vec::new();
    let mut add = |on: bool, name: &str, arguments: Arguments| {
        if on {
            let name = name.to_owned();
            entries.push(PluginEntry { name, arguments });
        }
    };
    let none = Arguments::new;
    add(true, "predicates", none());
    add(
        shares.is_some(),
        "proportion",
        shares.as_ref().map(proportion).unwrap_or_default(),
    );
    add(*priority, "priority", none());
    add(*node_availability, "nodeavailability", none());
    add(*resource_type, "resourcetype", none());
    add(*pod_affinity, "podaffinity", none());
    add(*elastic, "elastic", none());
    for name in ["kubeflow", "ray", "subgrouporder", "taskorder"] {
        add(true, name, none());
    }
    add(*nominated_node, "nominatednode", none());
    add(true, "dynamicresources", none());
    let runtimes = min_runtime.as_ref().map(|min| {
        let method = match min.resolve {
            ResolveMethod::Lca => "lca",
            ResolveMethod::Queue => "queue",
        };
        arguments([
            ("defaultPreemptMinRuntime", format!("{}ms", min.preempt)),
            ("defaultReclaimMinRuntime", format!("{}ms", min.reclaim)),
            ("reclaimResolveMethod", method.to_owned()),
        ])
    });
    add(runtimes.is_some(), "minruntime", runtimes.unwrap_or_default());
    add(*topology, "topology", none());
    let attributes = arguments([("attributes", device_locality.join(","))]);
    add(!device_locality.is_empty(), "devicelocality", attributes);
    add(*topology_spread, "podtopologyspread", none());
    let ignored = numa.unwrap_or_default().join(",");
    let mut zones = arguments([("ignoreList", ignored)]);
    if zones_as_reported {
        zones.extend(arguments([(RECONSTRUCT, "false".to_owned())]));
    }
    add(numa.is_some(), "numa", zones);
    for generator in victim_generators {
        let name = match generator {
            VictimGenerator::NodeLocalGreedy => "sg-nodelocalgreedy",
            VictimGenerator::MultiNodeGang => "sg-multinodegang",
        };
        add(true, name, none());
    }
    let steps = arguments([("maxSteps", complete_search_steps.to_string())]);
    add(*complete_search_steps > 0, "sg-complete", steps);
    add(*spare, "spare", none());
    add(*gpu_pack, "gpupack", none());
    add(*gpu_spread, "gpuspread", none());
    let placement = node_placement
        .as_ref()
        .map(|placement| arguments([("gpu", strategy(placement.gpu)), ("cpu", strategy(placement.cpu))]));
    add(placement.is_some(), "nodeplacement", placement.unwrap_or_default());
    add(*gpu_sharing_order, "gpusharingorder", none());
    entries
}

/// KAI's name of the saturation factor is misspelt.
fn proportion(proportion: &Proportion) -> Arguments {
    let factor = |millionths: i64| (millionths as f64 / 1e6).to_string();
    arguments([
        ("kValue", factor(proportion.k_value)),
        (
            "relcaimerSaturationMultiplier",
            factor(proportion.saturation_multiplier),
        ),
    ])
}

fn strategy(strategy: Strategy) -> String {
    let name = match strategy {
        Strategy::Binpack => "binpack",
        Strategy::Spread => "spread",
    };
    name.to_owned()
}

fn arguments<const N: usize>(pairs: [(&str, String); N]) -> Arguments {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}
