//! Defaults of workloads: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs.

use serde_json::{Value, json};

use super::{pod, set};

/// Fills in a workload of this plural.
pub(super) fn apply(plural: &str, object: &mut Value) {
    if plural == "cronjobs" {
        set(&mut object["spec"], "concurrencyPolicy", json!("Allow"));
        set(&mut object["spec"], "suspend", json!(false));
        set(&mut object["spec"], "successfulJobsHistoryLimit", json!(3));
        set(&mut object["spec"], "failedJobsHistoryLimit", json!(1));
        if let Some(spec) = object.pointer_mut("/spec/jobTemplate/spec/template/spec") {
            pod::spec(spec);
        }
        return;
    }
    if let Some(spec) = object.pointer_mut("/spec/template/spec") {
        pod::spec(spec);
    }
    let spec = &mut object["spec"];
    match plural {
        "deployments" => deployment(spec),
        "replicasets" => set(spec, "replicas", json!(1)),
        "statefulsets" => stateful_set(spec),
        "daemonsets" => daemon_set(spec),
        "jobs" => job(object),
        _ => {}
    }
}

fn deployment(spec: &mut Value) {
    set(spec, "replicas", json!(1));
    set(spec, "revisionHistoryLimit", json!(10));
    set(spec, "progressDeadlineSeconds", json!(600));
    set(spec, "strategy", json!({}));
    set(&mut spec["strategy"], "type", json!("RollingUpdate"));
    if spec["strategy"]["type"] == "RollingUpdate" {
        set(&mut spec["strategy"], "rollingUpdate", json!({}));
        set(&mut spec["strategy"]["rollingUpdate"], "maxUnavailable", json!("25%"));
        set(&mut spec["strategy"]["rollingUpdate"], "maxSurge", json!("25%"));
    }
}

fn stateful_set(spec: &mut Value) {
    set(spec, "replicas", json!(1));
    set(spec, "podManagementPolicy", json!("OrderedReady"));
    set(spec, "revisionHistoryLimit", json!(10));
    set(spec, "updateStrategy", json!({}));
    set(&mut spec["updateStrategy"], "type", json!("RollingUpdate"));
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        set(&mut spec["updateStrategy"], "rollingUpdate", json!({}));
        set(&mut spec["updateStrategy"]["rollingUpdate"], "partition", json!(0));
    }
    set(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    set(
        &mut spec["persistentVolumeClaimRetentionPolicy"],
        "whenDeleted",
        json!("Retain"),
    );
    set(
        &mut spec["persistentVolumeClaimRetentionPolicy"],
        "whenScaled",
        json!("Retain"),
    );
}

fn daemon_set(spec: &mut Value) {
    set(spec, "revisionHistoryLimit", json!(10));
    set(spec, "updateStrategy", json!({}));
    set(&mut spec["updateStrategy"], "type", json!("RollingUpdate"));
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        set(&mut spec["updateStrategy"], "rollingUpdate", json!({}));
        set(&mut spec["updateStrategy"]["rollingUpdate"], "maxUnavailable", json!(1));
        set(&mut spec["updateStrategy"]["rollingUpdate"], "maxSurge", json!(0));
    }
}

fn job(object: &mut Value) {
    let spec = &mut object["spec"];
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        set(spec, "completions", json!(1));
    }
    set(spec, "parallelism", json!(1));
    set(spec, "backoffLimit", json!(6));
    set(spec, "completionMode", json!("NonIndexed"));
    set(spec, "suspend", json!(false));
    set(spec, "manualSelector", json!(false));
    let replaced = if spec["podFailurePolicy"].is_null() {
        "TerminatingOrFailed"
    } else {
        "Failed"
    };
    set(spec, "podReplacementPolicy", json!(replaced));
}
