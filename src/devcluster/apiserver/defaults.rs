//! Default values of built-in kinds: those that schedulers, controllers and people see.

use serde_json::{Map, Value, json};

use super::registry::Resource;
use crate::api::quantity;

mod pod;
mod workload;

/// Fills in what an object of a built-in kind leaves open.
pub(crate) fn apply(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            set(object, "spec", json!({}));
            pod::spec(&mut object["spec"]);
            pod::requests_of_pod(&mut object["spec"]);
            set(&mut object["spec"], "enableServiceLinks", json!(true));
        }
        ("apps" | "batch", _) => workload::apply(&resource.plural, object),
        ("", "namespaces") => namespace(object),
        ("", "services") => service(&mut object["spec"]),
        ("", "secrets") => secret(object),
        ("", "nodes") => node(object),
        ("", "persistentvolumeclaims") => set(&mut object["spec"], "volumeMode", json!("Filesystem")),
        ("", "persistentvolumes") => {
            set(&mut object["spec"], "volumeMode", json!("Filesystem"));
            set(&mut object["spec"], "persistentVolumeReclaimPolicy", json!("Retain"));
        }
        ("scheduling.k8s.io", "priorityclasses") => set(object, "preemptionPolicy", json!("PreemptLowerPriority")),
        ("storage.k8s.io", "storageclasses") => {
            set(object, "reclaimPolicy", json!("Delete"));
            set(object, "volumeBindingMode", json!("Immediate"));
        }
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => role_binding(object),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            set(&mut object["spec"], "failurePolicy", json!("Fail"));
            match_resources(&mut object["spec"]["matchConstraints"]);
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            let resources = &mut object["spec"]["matchResources"];
            if resources.is_object() {
                match_resources(resources);
            }
        }
        ("admissionregistration.k8s.io", plural) => webhooks(object, plural.starts_with("mutating")),
        ("apiextensions.k8s.io", "customresourcedefinitions") => super::crd::default(object),
        _ => {}
    }
}

/// Sets a field that is absent or empty text, in an object that is there.
fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        let given = fields.entry(field).or_insert(Value::Null);
        if given.is_null() || given == "" {
            *given = value;
        }
    }
}

/// The entries of a list field, empty when absent.
fn entries<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object
        .get_mut(field)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.is_string() {
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
    if object["metadata"]["deletionTimestamp"].is_null() {
        if !object["spec"].is_object() {
            object["spec"] = json!({});
        }
        set(&mut object["spec"], "finalizers", json!(["kubernetes"]));
    }
}

fn service(spec: &mut Value) {
    set(spec, "sessionAffinity", json!("None"));
    set(spec, "type", json!("ClusterIP"));
    set(spec, "internalTrafficPolicy", json!("Cluster"));
    set(spec, "ipFamilies", json!(["IPv4"]));
    set(spec, "ipFamilyPolicy", json!("SingleStack"));
    for port in entries(spec, "ports") {
        set(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        set(port, "targetPort", number);
    }
}

fn secret(object: &mut Value) {
    use base64::{Engine, engine::general_purpose::STANDARD};
    set(object, "type", json!("Opaque"));
    let Some(fields) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = fields.remove("stringData") else {
        return;
    };
    let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, text) in texts {
        data[key] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

fn node(object: &mut Value) {
    let capacity = object["status"]["capacity"].clone();
    if capacity.is_object() {
        set(&mut object["status"], "allocatable", capacity);
    }
}

fn role_binding(object: &mut Value) {
    set(&mut object["roleRef"], "apiGroup", json!("rbac.authorization.k8s.io"));
    for subject in entries(object, "subjects") {
        let group = if subject["kind"] == "ServiceAccount" {
            None
        } else {
            Some(json!("rbac.authorization.k8s.io"))
        };
        if let Some(group) = group {
            set(subject, "apiGroup", group);
        }
    }
}

fn match_resources(matching: &mut Value) {
    set(matching, "matchPolicy", json!("Equivalent"));
    set(matching, "namespaceSelector", json!({}));
    set(matching, "objectSelector", json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in entries(matching, list) {
            set(rule, "scope", json!("*"));
        }
    }
}

fn webhooks(object: &mut Value, mutating: bool) {
    // An empty list is not stored.
    if object["webhooks"] == json!([])
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("webhooks");
    }
    for webhook in entries(object, "webhooks") {
        set(webhook, "failurePolicy", json!("Fail"));
        set(webhook, "matchPolicy", json!("Equivalent"));
        set(webhook, "namespaceSelector", json!({}));
        set(webhook, "objectSelector", json!({}));
        set(webhook, "timeoutSeconds", json!(10));
        if mutating {
            set(webhook, "reinvocationPolicy", json!("Never"));
        }
        for rule in entries(webhook, "rules") {
            set(rule, "scope", json!("*"));
        }
        if webhook["clientConfig"]["service"].is_object() {
            set(&mut webhook["clientConfig"]["service"], "port", json!(443));
        }
    }
}

/// Brings quantities into canonical form (`0.5` → `500m`), wherever a field of resource amounts is.
///
/// # Errors
/// When one is no quantity.
pub(crate) fn quantities(object: &mut Value) -> Result<(), String> {
    match object {
        Value::Object(fields) => fields.iter_mut().try_for_each(|(key, value)| match value {
            Value::Object(amounts) if AMOUNT_FIELDS.contains(&key.as_str()) => {
                amounts.values_mut().try_for_each(quantity)
            }
            Value::String(_) | Value::Number(_) if key == "sizeLimit" => quantity(value),
            other => quantities(other),
        }),
        Value::Array(items) => items.iter_mut().try_for_each(quantities),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Fields that hold amounts by resource name.
const AMOUNT_FIELDS: [&str; 7] = [
    "requests",
    "limits",
    "capacity",
    "allocatable",
    "overhead",
    "podFixed",
    "allocatedResources",
];

fn quantity(value: &mut Value) -> Result<(), String> {
    let text = match &*value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return Ok(()),
    };
    let (amount, format) = quantity::parse(&text).map_err(|_| {
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned()
    })?;
    *value = json!(amount.format(format));
    Ok(())
}
