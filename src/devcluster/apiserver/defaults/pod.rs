//! Defaults of pod specs, of pods and of the templates that workloads carry.

use serde_json::{Value, json};

use super::{entries, set};

/// Fills in a pod spec, and drops empty lists, which Go leaves out.
pub(super) fn spec(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else { return };
    fields.retain(|field, value| field == "containers" || *value != json!([]));
    set(spec, "restartPolicy", json!("Always"));
    set(spec, "dnsPolicy", json!("ClusterFirst"));
    set(spec, "schedulerName", json!("default-scheduler"));
    set(spec, "terminationGracePeriodSeconds", json!(30));
    set(spec, "securityContext", json!({}));
    let account = spec["serviceAccountName"].clone();
    if account.is_string() {
        set(spec, "serviceAccount", account);
    }
    for list in ["initContainers", "containers"] {
        entries(spec, list).for_each(container);
    }
    entries(spec, "volumes").for_each(volume);
}

fn container(container: &mut Value) {
    set(container, "terminationMessagePath", json!("/dev/termination-log"));
    set(container, "terminationMessagePolicy", json!("File"));
    set(container, "resources", json!({}));
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    set(container, "imagePullPolicy", json!(policy));
    for port in entries(container, "ports") {
        set(port, "protocol", json!("TCP"));
    }
    for variable in entries(container, "env") {
        if variable["valueFrom"]["fieldRef"].is_object() {
            set(&mut variable["valueFrom"]["fieldRef"], "apiVersion", json!("v1"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[name].is_object() {
            probe(&mut container[name]);
        }
    }
    requests_from_limits(&mut container["resources"]);
}

/// An image without a tag, or with `latest`, is pulled always.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    if latest { "Always" } else { "IfNotPresent" }
}

fn probe(probe: &mut Value) {
    set(probe, "timeoutSeconds", json!(1));
    set(probe, "periodSeconds", json!(10));
    set(probe, "successThreshold", json!(1));
    set(probe, "failureThreshold", json!(3));
    if probe["httpGet"].is_object() {
        set(&mut probe["httpGet"], "path", json!("/"));
        set(&mut probe["httpGet"], "scheme", json!("HTTP"));
    }
}

/// What is limited and not requested is requested in full.
fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = resources["limits"].as_object().cloned() else {
        return;
    };
    for (name, limit) in limits {
        if !resources["requests"].is_object() {
            resources["requests"] = json!({});
        }
        set(&mut resources["requests"], &name, limit);
    }
}

/// What the pod as a whole is limited to is requested in full, unless it or a container requests some. (For what containers request, a real server
/// writes their sum, which counts anyway.)
pub(super) fn requests_of_pod(spec: &mut Value) {
    let Some(limits) = spec["resources"]["limits"].as_object().cloned() else {
        return;
    };
    for (name, limit) in limits {
        let requests_some = |container: &Value| !container["resources"]["requests"][&name].is_null();
        let mut lists = ["initContainers", "containers"].into_iter();
        if lists.any(|list| spec[list].as_array().into_iter().flatten().any(requests_some)) {
            continue;
        }
        if !spec["resources"]["requests"].is_object() {
            spec["resources"]["requests"] = json!({});
        }
        set(&mut spec["resources"]["requests"], &name, limit);
    }
}

fn volume(volume: &mut Value) {
    for kind in ["configMap", "secret", "projected", "downwardAPI"] {
        if volume[kind].is_object() {
            set(&mut volume[kind], "defaultMode", json!(0o644));
        }
    }
    if volume["hostPath"].is_object() {
        set(&mut volume["hostPath"], "type", json!(""));
    }
}
