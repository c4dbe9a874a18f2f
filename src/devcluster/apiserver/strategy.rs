//! Per-kind strategies: which parts of an object a write may change, generations, grace periods and finalizers.

use serde_json::{Value, json};

use super::{
    clock::Clock,
    cluster::Cluster,
    crd,
    matching::strings,
    registry::{Origin, Resource},
};
use crate::api::label_keys;

/// Seconds between deletion and the end of a pod that names no other time.
const DEFAULT_GRACE_SECONDS: i64 = 30;
const DEFINITION_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Kinds whose `metadata.generation` counts changes of the spec.
fn has_generation(resource: &Resource) -> bool {
    matches!(
        resource.plural.as_str(),
        "pods"
            | "deployments"
            | "replicasets"
            | "statefulsets"
            | "daemonsets"
            | "jobs"
            | "cronjobs"
            | "poddisruptionbudgets"
            | "customresourcedefinitions"
            | "mutatingwebhookconfigurations"
            | "validatingadmissionpolicies"
            | "validatingadmissionpolicybindings"
            | "validatingwebhookconfigurations"
            | "priorityclasses"
            | "endpointslices"
            | "flowschemas"
            | "prioritylevelconfigurations"
            | "csidrivers"
            | "resourceslices"
            | "deviceclasses"
    )
}

fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Sets the initial state of a new object.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value, clock: &Clock) {
    if let Some(version) = resource.custom() {
        version.prepare_create(object);
        return;
    }
    if has_generation(resource) {
        object["metadata"]["generation"] = json!(1);
    }
    let keeps_status = matches!(resource.plural.as_str(), "nodes");
    if resource.has_status && !keeps_status {
        object["status"] = json!({});
    }
    match resource.plural.as_str() {
        "pods" => {
            new_pod_status(object);
            label_keys::add_to_selectors(object);
        }
        "namespaces" => object["status"] = json!({"phase": "Active"}),
        "persistentvolumes" | "persistentvolumeclaims" => object["status"] = json!({"phase": "Pending"}),
        "services" => {
            object["status"] = json!({"loadBalancer": {}});
            give_cluster_ip(object);
        }
        "replicasets" => object["status"] = json!({"replicas": 0}),
        "statefulsets" => object["status"] = json!({"availableReplicas": 0, "replicas": 0}),
        "daemonsets" => {
            object["status"] = json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0});
        }
        "poddisruptionbudgets" => {
            object["status"] =
                json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        }
        "jobs" => own_pods_of_job(object),
        "volumeattachments" => object["status"] = json!({"attached": false}),
        "customresourcedefinitions" if is_definition(resource) => {
            object["status"] = crd::accepted_status(object, &clock.stamp());
        }
        _ => {}
    }
}

fn new_pod_status(pod: &mut Value) {
    pod["status"] = json!({"phase": "Pending", "qosClass": qos_class(pod)});
    if pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
}

/// Sets an address made from the uid. It is only shown: nothing routes to it here.
fn give_cluster_ip(service: &mut Value) {
    let uid = service["metadata"]["uid"]
        .as_str()
        .and_then(|uid| uid.parse::<uuid::Uuid>().ok())
        .unwrap_or_default();
    let [high, low, ..] = *uid.as_bytes();
    let spec = &mut service["spec"];
    let given = !spec["clusterIP"].as_str().unwrap_or_default().is_empty();
    if spec["type"] == "ExternalName" {
        return;
    }
    if !given {
        spec["clusterIP"] = json!(format!("10.96.{high}.{low}"));
    }
    spec["clusterIPs"] = json!([spec["clusterIP"]]);
}

/// Sets the labels with the Job's name and uid on its pods, and the selector by them, unless the Job has a selector of its own.
fn own_pods_of_job(job: &mut Value) {
    let uid = job["metadata"]["uid"].clone();
    let name = job["metadata"]["name"].clone();
    let manual = job["spec"]["manualSelector"] == true;
    let labels = [
        ("job-name", name.clone()),
        ("batch.kubernetes.io/job-name", name),
        ("controller-uid", uid.clone()),
        ("batch.kubernetes.io/controller-uid", uid.clone()),
    ];
    for (label, value) in labels
        .iter()
        .filter(|(label, _)| !manual || label.ends_with("job-name"))
    {
        job["spec"]["template"]["metadata"]["labels"][label] = value.clone();
        if !manual {
            job["metadata"]["labels"][label] = value.clone();
        }
    }
    if !manual {
        job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
}

/// Adds the finalizer by which a CRD waits for its objects at its deletion.
pub(crate) fn hold_definition(resource: &Resource, definition: &mut Value) {
    if !is_definition(resource) {
        return;
    }
    let mut finalizers = finalizers(definition);
    if !finalizers.iter().any(|finalizer| finalizer == DEFINITION_FINALIZER) {
        finalizers.push(DEFINITION_FINALIZER.to_owned());
        definition["metadata"]["finalizers"] = json!(finalizers);
    }
}

/// Restores fields that this request may not change, and increments the generation.
pub(crate) fn prepare_update(resource: &Resource, subresource: &str, old: &Value, new: &mut Value) {
    if let Some(version) = resource.custom() {
        if subresource == "status" {
            version.prepare_status_update(new, old);
        } else {
            version.prepare_update(new, old);
        }
        return;
    }
    if subresource == "status" {
        keep(old, new, "spec");
        if matches!(
            resource.plural.as_str(),
            "deployments" | "replicasets" | "statefulsets" | "daemonsets"
        ) {
            keep_metadata(old, new, "labels");
        }
        if resource.plural == "pods" {
            keep_metadata(old, new, "ownerReferences");
        }
        if resource.is("resource.k8s.io", "resourceclaims") {
            for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
                keep_metadata(old, new, field);
            }
        }
        return;
    }
    if subresource == "finalize" {
        let finalizers = new["spec"]["finalizers"].clone();
        keep(old, new, "spec");
        new["spec"]["finalizers"] = finalizers;
        return;
    }
    if resource.has_status {
        keep(old, new, "status");
    }
    if resource.is("", "namespaces") {
        keep(old, new, "spec");
    }
    if is_definition(resource) && old["spec"] != new["spec"] {
        let mut status = crd::accepted_status(new, "");
        status["conditions"] = old["status"]["conditions"].clone();
        status["storedVersions"] = stored_versions(old, &status);
        new["status"] = status;
    }
    if has_generation(resource) && spec_differs(old, new) {
        new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
    }
}

/// The versions in which objects may be stored: those before, and the storage version of now.
fn stored_versions(old: &Value, status: &Value) -> Value {
    let mut versions = old["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    for version in status["storedVersions"].as_array().into_iter().flatten() {
        if !versions.contains(version) {
            versions.push(version.clone());
        }
    }
    Value::Array(versions)
}

/// Whether anything but metadata and status differs.
fn spec_differs(old: &Value, new: &Value) -> bool {
    let wanted = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("metadata");
            fields.remove("status");
        }
        object
    };
    wanted(old) != wanted(new)
}

fn keep(old: &Value, new: &mut Value, field: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

fn keep_metadata(old: &Value, new: &mut Value, field: &str) {
    if let Some(metadata) = new.get_mut("metadata") {
        keep(&old["metadata"], metadata, field);
    }
}

/// Sets a pod's condition, keeping its transition time when its status stays.
pub(crate) fn set_condition(pod: &mut Value, mut condition: Value, now: &str) {
    condition["lastTransitionTime"] = json!(now);
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = pod["status"]["conditions"].as_array_mut() else {
        return;
    };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

/// A pod's quality of service, by requests and limits of CPU and memory. Whether it is guaranteed is up to those of the pod as a whole if it has some, or
/// else to those of all containers.
fn qos_class(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let lists = ["containers", "initContainers"].iter();
    let containers: Vec<&Value> = lists
        .flat_map(|list| spec[list].as_array().into_iter().flatten())
        .collect();
    // The spec holds the resources of the pod as a container does its own.
    let given = |holder: &Value, list: &str, name: &str| {
        let value = holder["resources"][list][name].as_str().unwrap_or_default().to_owned();
        (!value.is_empty() && value != "0").then_some(value)
    };
    let none = containers.iter().chain([&spec]).all(|holder| {
        ["requests", "limits"]
            .iter()
            .all(|list| ["cpu", "memory"].iter().all(|name| given(holder, list, name).is_none()))
    });
    if none {
        return "BestEffort";
    }
    let is_set = |list: &&str| {
        let amounts = spec["resources"][list].as_object();
        amounts.is_some_and(|amounts| !amounts.is_empty())
    };
    let whole = ["requests", "limits"].iter().any(is_set);
    let counted = if whole { vec![spec] } else { containers };
    let guaranteed = counted.iter().all(|holder| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = given(holder, "limits", name);
            limit.is_some() && limit == given(holder, "requests", name)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

/// The finalizers of an object.
pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    strings(&object["metadata"]["finalizers"])
}

/// Whether finalizers keep an object.
pub(crate) fn is_held(resource: &Resource, object: &Value) -> bool {
    let content = resource.is("", "namespaces")
        && object["spec"]["finalizers"]
            .as_array()
            .is_some_and(|names| !names.is_empty());
    content || !finalizers(object).is_empty()
}

/// Whether this write removes the last finalizer of a terminating object.
pub(crate) fn is_finished_deletion(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    !metadata["deletionTimestamp"].is_null()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !is_held(resource, object)
}

/// Seconds from a deletion to the end: pods that are bound and not finished get their grace period, all else goes at once.
pub(crate) fn grace_seconds(resource: &Resource, object: &Value, asked: Option<i64>) -> i64 {
    if !resource.is("", "pods") {
        return 0;
    }
    let unbound = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    if unbound || matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(DEFAULT_GRACE_SECONDS);
    // Negative periods of old clients mean "as soon as possible".
    let seconds = asked.unwrap_or(own);
    if seconds < 0 { 1 } else { seconds }
}

/// Only pods have a deletion timestamp in their last state when they are deleted at once.
pub(crate) fn drop_unless_graceful(resource: &Resource, object: &mut Value) {
    if resource.is("", "pods") {
        return;
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
    }
}

/// What a deletion that has to wait shows in the status.
pub(crate) fn mark_terminating(resource: &Resource, object: &mut Value, clock: &Clock) {
    if resource.is("", "namespaces") {
        object["status"]["phase"] = json!("Terminating");
    }
    if is_definition(resource)
        && let Some(conditions) = object["status"]["conditions"].as_array_mut()
    {
        conditions.retain(|condition| condition["type"] != "Terminating");
        conditions.push(json!({
            "type": "Terminating",
            "status": "True",
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            "lastTransitionTime": clock.stamp(),
        }));
    }
}

/// The default propagation policy.
pub(crate) fn default_propagation(resource: &Resource) -> &'static str {
    if resource.is("batch", "jobs") {
        "Orphan"
    } else {
        "Background"
    }
}

/// Whether a deletion answers with the object's last state instead of a Status.
pub(crate) fn returns_deleted_object(resource: &Resource) -> bool {
    resource.group.is_empty()
        && matches!(
            resource.plural.as_str(),
            "pods" | "services" | "serviceaccounts" | "persistentvolumes" | "persistentvolumeclaims"
        )
}

/// After a deletion: the objects of a CRD are deleted with it, and a terminating CRD is removed with its last object.
pub(crate) fn after_delete(cluster: &Cluster, resource: &Resource, object: &Value) {
    if is_definition(resource) && !object["metadata"]["deletionTimestamp"].is_null() {
        delete_objects_of(cluster, object);
    }
    finish_definitions(cluster, resource);
}

fn delete_objects_of(cluster: &Cluster, definition: &Value) {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let table = cluster.store.of(text("/spec/group"), text("/spec/names/plural"));
    for object in table.list("").objects {
        let mut last = object.value.clone();
        let held = !finalizers(&last).is_empty();
        // If another write came first, the object is handled again when its finalizers are removed.
        let _overtaken = if held {
            last["metadata"]["deletionTimestamp"] = json!(cluster.clock.stamp());
            last["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            table.replace(&object.key(), object.revision, last)
        } else {
            table.remove(&object.key(), object.revision, last)
        };
    }
    finish_definition(cluster, definition);
}

/// Removes a terminating CRD if its last object may be gone.
pub(crate) fn finish_definitions(cluster: &Cluster, resource: &Resource) {
    let Origin::Custom { crd, .. } = &resource.origin else {
        return;
    };
    let definitions = cluster.store.of("apiextensions.k8s.io", "customresourcedefinitions");
    if let Some(definition) = definitions.get(&(String::new(), crd.name.clone())) {
        finish_definition(cluster, &definition.value);
    }
}

fn finish_definition(cluster: &Cluster, definition: &Value) {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let terminating = !definition["metadata"]["deletionTimestamp"].is_null();
    if !terminating
        || !cluster
            .store
            .of(text("/spec/group"), text("/spec/names/plural"))
            .is_empty()
    {
        return;
    }
    let definitions = cluster.store.of("apiextensions.k8s.io", "customresourcedefinitions");
    let key = (String::new(), text("/metadata/name").to_owned());
    let Some(current) = definitions.get(&key) else { return };
    let mut last = current.value.clone();
    let left: Vec<String> = finalizers(&last)
        .into_iter()
        .filter(|finalizer| finalizer != DEFINITION_FINALIZER)
        .collect();
    last["metadata"]["finalizers"] = json!(left);
    let written = if left.is_empty() {
        definitions.remove(&key, current.revision, last)
    } else if left.len() < finalizers(&current.value).len() {
        definitions.replace(&key, current.revision, last)
    } else {
        return;
    };
    if written.is_ok() {
        cluster.reload_definitions();
    }
}

#[cfg(test)]
mod tests;
