//! Config's `numaPlacementExporter` → the DaemonSet of the NUMA exporter.

use std::time::Duration;

use super::Reading;
use crate::api::config::{Global, NumaPlacementExporterConfig, Service};
use crate::api::{Opaque, QuantityMap, duration, quantity, syntax};
use crate::numa_exporter::POLL_LEAST;

/// Reads the settings of the exporter; unset fields keep their defaults.
pub fn read(given: &NumaPlacementExporterConfig, global: &Global, reading: &mut Reading) {
    let path = |field: &str| format!("spec.numaPlacementExporter.{field}");
    let mut exporter = reading.common.components.numa_exporter.clone();
    let Service {
        enabled,
        resources,
        affinity,
        ..
    } = given.service.clone().unwrap_or_default();
    reading.numa_exporter = enabled;
    exporter.affinity = affinity.and_then(|affinity| parsed(&path("service.affinity"), affinity, reading));
    let resources = resources.unwrap_or_default();
    if !(resources.requests.is_empty() && resources.limits.is_empty()) {
        exporter.requests = quantities(&path("service.resources.requests"), &resources.requests, reading);
        exporter.limits = quantities(&path("service.resources.limits"), &resources.limits, reading);
    }
    if let Some(selector) = given.node_selector.as_ref().filter(|selector| !selector.is_empty()) {
        for (key, value) in selector {
            let right = syntax::is_label_key(key) && (value.is_empty() || syntax::is_label_word(value));
            if !right {
                reading.wrong(path("nodeSelector"), format!("{key}={value} is not a label"));
            }
        }
        exporter.node_selector.clone_from(selector);
    }
    exporter.tolerations = [global.daemonsets_tolerations.as_slice(), given.tolerations.as_slice()].concat();
    exporter.priority_class = global.priority_class_name.clone().filter(|name| !name.is_empty());
    exporter.restricted = global.openshift != Some(true);
    let polls = span(&path("pollInterval"), given.poll_interval.as_ref(), reading);
    if let Some(polls) = polls {
        if polls < POLL_LEAST {
            let says = format!("is less than {} ms, which apply", POLL_LEAST.as_millis());
            reading.ignored(path("pollInterval"), says);
        }
        exporter.poll = polls.max(POLL_LEAST);
    }
    let resync = span(
        &path("driftResyncInterval"),
        given.drift_resync_interval.as_ref(),
        reading,
    );
    exporter.resync = resync.unwrap_or(exporter.resync);
    if let Some(folder) = folder(
        &path("podResourcesHostPath"),
        given.pod_resources_host_path.as_ref(),
        reading,
    ) {
        exporter.socket = format!("{folder}/kubelet.sock");
        exporter.socket_folder = folder;
    }
    if let Some(socket) = folder(
        &path("podResourcesSocket"),
        given.pod_resources_socket.as_ref(),
        reading,
    ) {
        let inside = socket.strip_prefix(&exporter.socket_folder);
        if !inside.is_some_and(|rest| rest.starts_with('/')) {
            let says = format!("is not in {}, which is podResourcesHostPath", exporter.socket_folder);
            reading.wrong(path("podResourcesSocket"), says);
        }
        exporter.socket = socket;
    }
    if let Some(sysfs) = folder(&path("sysfsHostPath"), given.sysfs_host_path.as_ref(), reading) {
        exporter.sysfs = sysfs;
    }
    reading.common.components.numa_exporter = exporter;
}

fn parsed<T: serde::de::DeserializeOwned>(path: &str, given: Opaque, reading: &mut Reading) -> Option<T> {
    match serde_json::from_value(given.into()) {
        Ok(read) => Some(read),
        Err(error) => {
            reading.wrong(path, format!("cannot be read: {error}"));
            None
        }
    }
}

/// Amounts in the API server's canonical form, so that they can be compared with those of the live object.
fn quantities(path: &str, given: &QuantityMap, reading: &mut Reading) -> QuantityMap {
    let read = given
        .iter()
        .filter_map(|(name, amount)| match quantity::parse(&amount.0) {
            Ok((amount, format)) => Some((name.clone(), amount.to_quantity(format))),
            Err(error) => {
                reading.wrong(format!("{path}.{name}"), error.to_string());
                None
            }
        });
    read.collect()
}

fn span(path: &str, given: Option<&String>, reading: &mut Reading) -> Option<Duration> {
    let span = duration::parse_go(given?).ok();
    let span = span.and_then(|span| Duration::try_from(span).ok());
    if span.is_none() {
        reading.wrong(path, format!("{:?} is not a duration such as 1s or 1m30s", given?));
    }
    span
}

/// An absolute path on the node.
fn folder(path: &str, given: Option<&String>, reading: &mut Reading) -> Option<String> {
    let folder = given?.trim_end_matches('/');
    let right = folder.starts_with('/') && !folder.split('/').any(|part| part == "..");
    if !right {
        reading.wrong(path, format!("{folder:?} is not the full path of a place on the node"));
    }
    right.then(|| folder.to_owned())
}
