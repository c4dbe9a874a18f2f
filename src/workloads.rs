//! Manifests of workloads → the pods that they would make, grouped as the operator would group them. No cluster is needed.
//!
//! The text is untrusted: the memory that it may take is bounded.

mod budget;
pub mod files;
pub mod imagine;
pub mod read;

use anyhow::bail;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::sync::Arc;

use crate::api::PodGroup;
use files::Files;
use imagine::PodCount;

/// Pods that workloads would make, and their pod groups.
pub struct Made {
    /// The pods, each of which names its group.
    pub pods: Vec<Arc<Pod>>,
    /// The pod groups.
    pub groups: Vec<Arc<PodGroup>>,
}

/// The pods and pod groups that the workloads of these manifests would make.
///
/// # Errors
/// If the text holds no workloads, too many, or some that cannot be grouped.
pub fn made(text: &str, namespace: &str) -> anyhow::Result<Made> {
    let mut scenario = read::manifests(text, false, PodCount::All, namespace)?;
    // Kartas contain programs, so those of an untrusted text are not used.
    scenario.objects.retain(|object| text_at(object, "/kind") != "Karta");
    let mut files = Files::new(scenario);
    files.group_all();
    if let Some((what, error)) = files.errors.first() {
        bail!("{what}: {error}");
    }
    Ok(Made {
        pods: files.pods().to_vec(),
        groups: files.groups.into_values().collect(),
    })
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
