//! Reads files: scenarios as they are, manifests with the fields that an API server would add.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::budget::Budget;
use super::imagine::{self, PODS_MAX, PodCount};
use super::text_at;
use crate::components::Settings;
use crate::components::leadership::Pools;

/// Cluster-scoped kinds.
const CLUSTER_SCOPED: &[&str] = &["Namespace", "PriorityClass", "Node", "Karta", "Topology", "Queue"];

/// Limit on the size of all pods of a text, measured as the text of their workloads.
const PODS_MIB: usize = 16;

/// The input of grouping.
pub struct Scenario {
    /// The settings.
    pub settings: Settings,
    /// Everything but pods.
    pub objects: Vec<Value>,
    /// The pods, in order.
    pub pods: Vec<Value>,
    /// How often all pods are grouped.
    pub passes: usize,
    /// Kinds that may not be read.
    pub forbidden: Vec<KindPattern>,
    /// Kinds that are not served.
    pub unknown: Vec<KindPattern>,
    /// Whether priority classes that no file defines are assumed to exist.
    pub assume_classes: bool,
    /// Workloads whose pods cannot be derived from them, with their kind, and why.
    pub refused: Vec<(String, String)>,
}

/// A kind, in one version or in all.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct KindPattern {
    #[serde(default)]
    group: String,
    kind: String,
    #[serde(default)]
    version: Option<String>,
}

impl KindPattern {
    /// Whether it contains the kind.
    pub fn fits(&self, group: &str, version: &str, kind: &str) -> bool {
        let version_fits = self.version.as_deref().is_none_or(|wanted| wanted == version);
        self.group == group && self.kind == kind && version_fits
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    scheduler_name: Option<String>,
    node_pool_label_key: Option<String>,
    queue_label_key: Option<String>,
    search_for_legacy_pod_groups: Option<bool>,
    knative_gang_schedule: Option<bool>,
    generic_karta_fallback: Option<bool>,
    default_priorities_config_map_name: Option<String>,
    default_priorities_config_map_namespace: Option<String>,
    pod_label_selector: BTreeMap<String, String>,
    namespace_label_selector: BTreeMap<String, String>,
    forbidden: Vec<KindPattern>,
    unknown_kinds: Vec<KindPattern>,
    karta_installed: Option<bool>,
    passes: Option<usize>,
}

#[derive(Deserialize)]
struct Form {
    #[serde(default)]
    config: Config,
    #[serde(default)]
    objects: Vec<Value>,
    pods: Vec<Value>,
}

/// Reads a text.
///
/// # Errors
/// If it holds neither a scenario nor manifests.
pub fn read(text: &str, as_kai: bool) -> anyhow::Result<Scenario> {
    if let Ok(value) = serde_json::from_str::<Value>(text)
        && value.get("kind").is_none()
        && value.get("pods").is_some()
    {
        return Ok(scenario(
            serde_json::from_value(value).context("not of the form of a scenario")?,
        ));
    }
    let settings = Settings {
        exactly_as_kai: as_kai,
        ..Settings::default()
    };
    manifests(text, PodCount::Few, "default", settings)
}

/// A scenario, which is grouped exactly as KAI does, so that the result can be compared with KAI's.
fn scenario(form: Form) -> Scenario {
    let Form { config, objects, pods } = form;
    let defaults = Settings::default();
    let installed = config.karta_installed.unwrap_or(true);
    let map = config
        .default_priorities_config_map_namespace
        .filter(|text| !text.is_empty());
    let map = map.zip(
        config
            .default_priorities_config_map_name
            .filter(|text| !text.is_empty()),
    );
    let or = |given: Option<String>, default: String| given.unwrap_or(default);
    Scenario {
        settings: Settings {
            scheduler_name: or(config.scheduler_name, defaults.scheduler_name.clone()),
            queue_label_key: or(config.queue_label_key, defaults.queue_label_key.clone()),
            pools: Pools {
                key: or(config.node_pool_label_key, defaults.pools.key.clone()),
                ..Pools::default()
            },
            search_legacy_pod_groups: config.search_for_legacy_pod_groups.unwrap_or(true),
            knative_gangs: config.knative_gang_schedule.unwrap_or(true),
            kartas: config.generic_karta_fallback.unwrap_or(true) && installed,
            exactly_as_kai: true,
            default_priorities: map,
            pod_labels: config.pod_label_selector,
            namespace_labels: config.namespace_label_selector,
            ..defaults
        },
        objects,
        pods,
        passes: config.passes.unwrap_or(1),
        forbidden: config.forbidden,
        unknown: config.unknown_kinds,
        assume_classes: false,
        refused: Vec::new(),
    }
}

/// The pods in the manifests, and those that their workloads would make.
///
/// # Errors
/// If there are none, or too many. If all are asked for: also if those of a workload cannot be derived from it.
pub fn manifests(text: &str, how_many: PodCount, namespace: &str, settings: Settings) -> anyhow::Result<Scenario> {
    let mut objects = Vec::new();
    let budget = Budget::of(text);
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let value = budget.take(document).context("not YAML")?;
        match value.get("items").and_then(Value::as_array) {
            Some(items) => objects.extend(items.iter().cloned()),
            None if value.is_null() => {}
            None => objects.push(value),
        }
    }
    for object in &objects {
        let named = ["/apiVersion", "/kind", "/metadata/name"];
        let named = named
            .iter()
            .all(|pointer| object.pointer(pointer).is_some_and(Value::is_string));
        ensure!(
            named,
            "not a manifest: an object lacks apiVersion, kind or metadata.name"
        );
    }
    complete(&mut objects, namespace);
    let with_pods = owner_uids(&objects);
    let runs = objects
        .iter()
        .filter(|object| !with_pods.contains(&text_at(object, "/metadata/uid")));
    let runs: Vec<Value> = runs.filter_map(imagine::run).collect();
    objects.extend(runs);
    let (imagined, refused) = imagined(&objects, how_many)?;
    let (mut pods, objects): (Vec<Value>, Vec<Value>) = objects
        .into_iter()
        .partition(|object| text_at(object, "/kind") == "Pod");
    pods.extend(imagined);
    for pod in &mut pods {
        ensure!(pod["spec"].is_object(), "not a manifest: a pod lacks spec");
        pod["spec"]["schedulerName"] = json!(settings.scheduler_name);
    }
    if pods.is_empty() && refused.is_empty() {
        bail!("holds no pods, and no workload of a kind that makes some");
    }
    Ok(Scenario {
        settings,
        objects,
        pods,
        passes: 1,
        forbidden: Vec::new(),
        unknown: Vec::new(),
        assume_classes: true,
        refused,
    })
}

/// A workload whose pods cannot be derived from it, and the reason.
type Refused = (String, String);

/// The pods that workloads without pods would make, and the workloads whose pods cannot be derived from them.
fn imagined(objects: &[Value], how_many: PodCount) -> anyhow::Result<(Vec<Value>, Vec<Refused>)> {
    let with_pods = owner_uids(objects);
    let (mut imagined, mut refused, mut bytes) = (Vec::new(), Vec::new(), 0);
    for object in objects {
        if with_pods.contains(&text_at(object, "/metadata/uid")) {
            continue;
        }
        let pods = match imagine::pods(object, how_many) {
            Ok(pods) => pods,
            Err(why) => {
                let [kind, name, namespace] =
                    ["/kind", "/metadata/name", "/metadata/namespace"].map(|pointer| text_at(object, pointer));
                ensure!(how_many == PodCount::Few, "{kind} {name}: {why}");
                refused.push((format!("{kind} {namespace}/{name}"), why));
                continue;
            }
        };
        let each = object.to_string().len();
        for pod in pods {
            bytes += each;
            ensure!(imagined.len() < PODS_MAX, "makes more than {PODS_MAX} pods");
            ensure!(bytes <= PODS_MIB << 20, "makes pods of more than {PODS_MIB} MiB in all");
            imagined.push(pod);
        }
    }
    Ok((imagined, refused))
}

/// The UIDs of the objects that own others.
fn owner_uids(objects: &[Value]) -> BTreeSet<String> {
    let owners = objects.iter().flat_map(owners);
    owners.map(|owner| text_at(owner, "/uid")).collect()
}

/// Adds namespaces and UIDs where manifests have none.
pub fn complete(objects: &mut [Value], namespace: &str) {
    for object in &mut *objects {
        let (name, kind) = (text_at(object, "/metadata/name"), text_at(object, "/kind"));
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-of-{}-{name}", kind.to_ascii_lowercase()));
        }
        if metadata["namespace"].is_null() && !CLUSTER_SCOPED.contains(&&*kind) {
            metadata["namespace"] = json!(namespace);
        }
    }
    let uids: BTreeMap<(String, String), String> = objects
        .iter()
        .map(|object| {
            let key = (text_at(object, "/kind"), text_at(object, "/metadata/name"));
            (key, text_at(object, "/metadata/uid"))
        })
        .collect();
    for object in objects {
        let listed = object
            .pointer_mut("/metadata/ownerReferences")
            .and_then(Value::as_array_mut);
        for owner in listed
            .into_iter()
            .flatten()
            .filter(|owner| owner.is_object() && owner["uid"].is_null())
        {
            let uid = uids.get(&(text_at(owner, "/kind"), text_at(owner, "/name")));
            owner["uid"] = json!(uid.cloned().unwrap_or_default());
        }
    }
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    let listed = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    listed.into_iter().flatten()
}
