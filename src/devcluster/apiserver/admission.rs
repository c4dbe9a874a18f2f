//! Built-in admission of new objects: what a real API server's plugins change or refuse. Quotas and limit ranges are absent.

use serde_json::{Value, json};

use super::{
    registry::Resource,
    status::{ApiError, ApiResult},
    store::Store,
};

/// Seconds that a pod stays on a node that is not ready or not reachable.
const DEFAULT_TOLERATION_SECONDS: i64 = 300;

/// Priorities of the classes that exist on every cluster without an object.
pub(crate) const SYSTEM_PRIORITY_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

/// Admits a new object.
pub(crate) fn on_create(store: &Store, resource: &Resource, object: &mut Value) -> ApiResult<()> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            service_account(store, resource, object)?;
            priority(store, resource, object)?;
            tolerations(object);
            runtime_class(store, resource, object)?;
        }
        ("", "nodes") => not_ready_taint(object),
        _ => {}
    }
    Ok(())
}

/// A new node takes no pods until it has reported that it is ready.
fn not_ready_taint(node: &mut Value) {
    if !node["spec"]["taints"].is_array() {
        node["spec"]["taints"] = json!([]);
    }
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    if let Some(taints) = node["spec"]["taints"].as_array_mut()
        && !taints
            .iter()
            .any(|known| known["key"] == taint["key"] && known["effect"] == taint["effect"])
    {
        taints.push(taint);
    }
}

/// Names the account. `default` is taken to be in every namespace, since no controller makes it here; others must exist.
fn service_account(store: &Store, resource: &Resource, pod: &mut Value) -> ApiResult<()> {
    let text = |pointer: &str| {
        pod.pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (namespace, wanted) = (text("/metadata/namespace"), text("/spec/serviceAccountName"));
    let exists = || {
        store
            .of("", "serviceaccounts")
            .get(&(namespace.clone(), wanted.clone()))
            .is_some()
    };
    if !matches!(wanted.as_str(), "" | "default") && !exists() {
        let why = format!("error looking up service account {namespace}/{wanted}: serviceaccount {wanted:?} not found");
        return Err(ApiError::forbidden(&resource.subject(&text("/metadata/name")), &why));
    }
    if pod["spec"]["serviceAccountName"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
    {
        pod["spec"]["serviceAccountName"] = json!("default");
    }
    pod["spec"]["serviceAccount"] = pod["spec"]["serviceAccountName"].clone();
    Ok(())
}

/// The class that the pod names must exist; the pod gets its overhead, its node selector and its tolerations. An overhead without a class is let through.
fn runtime_class(store: &Store, resource: &Resource, pod: &mut Value) -> ApiResult<()> {
    let wanted = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default().to_owned();
    if wanted.is_empty() {
        return Ok(());
    }
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let refused = |why: &str| Err(ApiError::forbidden(&resource.subject(&name), why));
    let classes = store.of("node.k8s.io", "runtimeclasses");
    let Some(class) = classes.get(&(String::new(), wanted.clone())) else {
        return refused(&format!("pod rejected: RuntimeClass {wanted:?} not found"));
    };
    let spec = &mut pod["spec"];
    let overhead = &class.value["overhead"]["podFixed"];
    if overhead.is_object() {
        if !spec["overhead"].is_null() && spec["overhead"] != *overhead {
            return refused("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead");
        }
        spec["overhead"] = overhead.clone();
    }
    let scheduling = &class.value["scheduling"];
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let own = &mut spec["nodeSelector"][key];
        if !own.is_null() && *own != *value {
            return refused(&format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
        *own = value.clone();
    }
    for toleration in scheduling["tolerations"].as_array().into_iter().flatten() {
        if let Some(own) = spec["tolerations"].as_array_mut()
            && !own.contains(toleration)
        {
            own.push(toleration.clone());
        }
    }
    Ok(())
}

/// Resolves the priority class, or the one that is the default of the cluster.
fn priority(store: &Store, resource: &Resource, pod: &mut Value) -> ApiResult<()> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let classes = store.of("scheduling.k8s.io", "priorityclasses");
    let wanted = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if wanted.is_empty() {
        let all = classes.list("").objects;
        all.into_iter()
            .filter(|class| class.value["globalDefault"] == true)
            .min_by_key(|class| class.value["value"].as_i64())
    } else {
        let found = classes.get(&(String::new(), wanted.clone()));
        if found.is_none() {
            let why = format!("no PriorityClass with name {wanted} was found");
            return Err(ApiError::forbidden(&resource.subject(&name), &why));
        }
        found
    };
    let (value, policy) = class.as_ref().map_or((0, "PreemptLowerPriority"), |class| {
        let policy = class.value["preemptionPolicy"]
            .as_str()
            .unwrap_or("PreemptLowerPriority");
        (class.value["value"].as_i64().unwrap_or(0), policy)
    });
    if let Some(class) = &class {
        pod["spec"]["priorityClassName"] = class.value["metadata"]["name"].clone();
    }
    let differs = |given: &Value, resolved: &Value| !given.is_null() && given != resolved;
    if differs(&pod["spec"]["priority"], &json!(value)) {
        let why = format!(
            "the integer value of priority ({}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name",
            pod["spec"]["priority"]
        );
        return Err(ApiError::forbidden(&resource.subject(&name), &why));
    }
    if differs(&pod["spec"]["preemptionPolicy"], &json!(policy)) {
        let why = format!(
            "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name",
            pod["spec"]["preemptionPolicy"].as_str().unwrap_or_default()
        );
        return Err(ApiError::forbidden(&resource.subject(&name), &why));
    }
    pod["spec"]["priority"] = json!(value);
    pod["spec"]["preemptionPolicy"] = json!(policy);
    Ok(())
}

/// Lets pods stay for a while on nodes that are not ready, unless they say otherwise.
fn tolerations(pod: &mut Value) {
    if !pod["spec"]["tolerations"].is_array() {
        pod["spec"]["tolerations"] = json!([]);
    }
    let Some(tolerations) = pod["spec"]["tolerations"].as_array_mut() else {
        return;
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            let effect = toleration["effect"].as_str().unwrap_or_default();
            let matched = toleration["key"].as_str().unwrap_or_default();
            (matched == key || matched.is_empty()) && matches!(effect, "" | "NoExecute")
        });
        if !tolerated {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT_TOLERATION_SECONDS});
            tolerations.push(toleration);
        }
    }
}
