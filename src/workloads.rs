//! Manifests of workloads → the pods that they would make, grouped as the operator would group them. For display no cluster is needed.
//!
//! The text is untrusted: the memory that it may take is bounded.

mod budget;
pub mod files;
pub mod imagine;
pub mod read;

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

use crate::api::PodGroup;
use crate::components::Settings;
use crate::components::grouping::defaults::Defaults;
use crate::components::watches::Stores;
use files::Files;
use imagine::PodCount;
use read::Scenario;

/// Pods that workloads would make, and their pod groups.
pub struct Made {
    /// The pods, each of which names its group.
    pub pods: Vec<Arc<Pod>>,
    /// The pod groups.
    pub groups: Vec<Arc<PodGroup>>,
}

/// What determines the groups of workloads in a cluster, beside themselves.
pub struct Surroundings {
    /// The operator's settings.
    pub settings: Settings,
    /// The watched objects, of which namespaces and priority classes count.
    pub stores: Arc<Stores>,
    /// The administrator's defaults per kind of workload.
    pub defaults: Arc<Defaults>,
}

/// The namespaces in which the workloads of these manifests would have pods and pod groups. They do not depend on the cluster.
///
/// # Errors
/// If the text holds no workloads, too many, or some whose pods cannot be derived from them.
pub fn namespaces(text: &str, namespace: &str) -> anyhow::Result<HashSet<String>> {
    let Scenario { pods, objects, .. } = scenario(text, namespace, Settings::default())?;
    let groups = objects.iter().filter(|object| text_at(object, "/kind") == "PodGroup");
    let all = pods.iter().chain(groups);
    Ok(all.map(|object| text_at(object, "/metadata/namespace")).collect())
}

/// The pods and pod groups that the workloads of these manifests would make in a cluster.
///
/// # Errors
/// If the text holds no workloads, too many, or some that cannot be grouped, or whose pods cannot be derived from them, or if the settings exclude a pod.
pub fn made_in(surroundings: Surroundings, text: &str, namespace: &str) -> anyhow::Result<Made> {
    let Surroundings {
        settings,
        stores,
        defaults,
    } = surroundings;
    let scenario = scenario(text, namespace, settings)?;
    let mut files = Files::new(scenario).within(stores, defaults);
    for pod in files.pods() {
        ensure!(
            files.includes(pod),
            "{}: the operator's configuration excludes it, by its labels or those of its namespace",
            pod.metadata.name.as_deref().unwrap_or_default()
        );
    }
    files.group_all();
    if let Some((what, error)) = files.errors.first() {
        bail!("{what}: {error}");
    }
    Ok(Made {
        pods: files.pods().to_vec(),
        groups: files.groups.into_values().collect(),
    })
}

fn scenario(text: &str, namespace: &str, settings: Settings) -> anyhow::Result<Scenario> {
    let mut scenario = read::manifests(text, PodCount::All, namespace, settings)?;
    // Kartas contain programs, so those of an untrusted text are not used.
    scenario.objects.retain(|object| text_at(object, "/kind") != "Karta");
    Ok(scenario)
}

/// The string at the JSON pointer; empty if there is none.
pub fn text_at(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests;
