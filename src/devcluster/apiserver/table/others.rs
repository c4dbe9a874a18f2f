//! Rows of everything that is neither a pod nor a workload.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, count, joined, list, text, text_or};

fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

fn size(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Object(fields)) => fields.len(),
        Some(Value::Array(elements)) => elements.len(),
        _ => 0,
    }
}

/// What kinds without columns of their own show.
pub(super) fn created_at(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![name(object), object["metadata"]["creationTimestamp"].clone()]
}

pub(super) fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age::of(object, now)]
}

pub(super) fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text_or(object, "/status/phase", ""), age::of(object, now)]
}

pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(object, "/status/conditions").find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let mut roles: Vec<String> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort();
    let address = |kind: &str| {
        let found = list(object, "/status/addresses").find(|address| address["type"] == kind);
        found.map_or_else(|| json!("<none>"), |address| address["address"].clone())
    };
    vec![
        name(object),
        json!(status),
        joined(roles, ","),
        age::of(object, now),
        text_or(object, "/status/nodeInfo/kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        text_or(object, "/status/nodeInfo/osImage", "<unknown>"),
        text_or(object, "/status/nodeInfo/kernelVersion", "<unknown>"),
        text_or(object, "/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
    ]
}

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = match text(object, "/spec/type") {
        "" => "ClusterIP",
        kind => kind,
    };
    let mut external: Vec<String> = list(object, "/spec/externalIPs")
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let external = match kind {
        "ExternalName" => text_or(object, "/spec/externalName", "<none>"),
        "LoadBalancer" => {
            let ingress = list(object, "/status/loadBalancer/ingress");
            let ingress = ingress.filter_map(|point| point["ip"].as_str().or(point["hostname"].as_str()));
            external.splice(0..0, ingress.map(str::to_owned));
            if external.is_empty() {
                json!("<pending>")
            } else {
                json!(external.join(","))
            }
        }
        _ => joined(external, ","),
    };
    let ports = list(object, "/spec/ports").map(|port| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match count(port, "/nodePort") {
            0 => format!("{}/{protocol}", count(port, "/port")),
            node_port => format!("{}:{node_port}/{protocol}", count(port, "/port")),
        }
    });
    let selector = object
        .pointer("/spec/selector")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    vec![
        name(object),
        json!(kind),
        text_or(object, "/spec/clusterIP", "<none>"),
        external,
        joined(ports, ","),
        age::of(object, now),
        joined(
            selector.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())),
            ",",
        ),
    ]
}

pub(super) fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        json!(size(object, "/data") + size(object, "/binaryData")),
        age::of(object, now),
    ]
}

pub(super) fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text_or(object, "/type", "Opaque"),
        json!(size(object, "/data")),
        age::of(object, now),
    ]
}

/// Events of both groups: the older has `involvedObject` and `message`, the newer `regarding` and `note`.
pub(super) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |old: &str, new: &str| match object.pointer(old) {
        None | Some(Value::Null) => object.pointer(new).unwrap_or(&Value::Null).clone(),
        Some(value) => value.clone(),
    };
    let time = |old: &str, new: &str| Some(either(old, new)).filter(|time| !time.is_null());
    let first = time("/firstTimestamp", "/deprecatedFirstTimestamp").or_else(|| time("/eventTime", "/eventTime"));
    let series = object.pointer("/series").filter(|series| series.is_object());
    let last = match series {
        Some(series) => Some(series["lastObservedTime"].clone()),
        None => time("/lastTimestamp", "/deprecatedLastTimestamp").or_else(|| first.clone()),
    };
    let times = series.map_or_else(
        || either("/count", "/deprecatedCount").as_i64(),
        |series| series["count"].as_i64(),
    );
    let about = either("/involvedObject", "/regarding");
    let kind = text(&about, "/kind").to_lowercase();
    let target = match text(&about, "/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        json!(age::since(last.as_ref(), now)),
        text_or(object, "/type", ""),
        text_or(object, "/reason", ""),
        json!(target),
        text_or(&about, "/fieldPath", ""),
        json!(event_source(&either("/source", "/deprecatedSource"), object)),
        json!(either("/message", "/note").as_str().unwrap_or_default().trim()),
        json!(age::since(first.as_ref(), now)),
        json!(times.unwrap_or(1).max(1).to_string()),
        name(object),
    ]
}

fn event_source(source: &Value, event: &Value) -> String {
    let reporting = ["/reportingComponent", "/reportingController"].map(|pointer| text(event, pointer));
    let component = [text(source, "/component"), reporting[0], reporting[1]]
        .into_iter()
        .find(|name| !name.is_empty());
    let component = component.unwrap_or_default();
    let host = [text(source, "/host"), text(event, "/reportingInstance")]
        .into_iter()
        .find(|host| !host.is_empty());
    match host {
        Some(host) if host != component => format!("{component}, {host}"),
        _ => component.to_owned(),
    }
}

pub(super) fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text_or(object, "/spec/holderIdentity", ""),
        age::of(object, now),
    ]
}

pub(super) fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let policy = text_or(object, "/preemptionPolicy", "PreemptLowerPriority");
    vec![
        name(object),
        json!(count(object, "/value")),
        json!(object["globalDefault"] == true),
        age::of(object, now),
        policy,
    ]
}

pub(super) fn webhook_configuration(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(size(object, "/webhooks")), age::of(object, now)]
}

pub(super) fn storage_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let default =
        object.pointer("/metadata/annotations/storageclass.kubernetes.io~1is-default-class") == Some(&json!("true"));
    let marker = if default { " (default)" } else { "" };
    vec![
        json!(format!("{}{marker}", text(object, "/metadata/name"))),
        text_or(object, "/provisioner", ""),
        text_or(object, "/reclaimPolicy", "Delete"),
        text_or(object, "/volumeBindingMode", "Immediate"),
        json!(object["allowVolumeExpansion"] == true),
        age::of(object, now),
    ]
}

fn access_modes(modes: &Value) -> Value {
    let short = modes
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|mode| match mode {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        });
    json!(short.collect::<Vec<_>>().join(","))
}

fn phase(object: &Value) -> Value {
    if object["metadata"]["deletionTimestamp"].is_null() {
        text_or(object, "/status/phase", "")
    } else {
        json!("Terminating")
    }
}

pub(super) fn volume_claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = !text(object, "/spec/volumeName").is_empty();
    let modes = if bound {
        access_modes(&object["status"]["accessModes"])
    } else {
        json!("")
    };
    vec![
        name(object),
        phase(object),
        text_or(object, "/spec/volumeName", ""),
        if bound {
            text_or(object, "/status/capacity/storage", "")
        } else {
            json!("")
        },
        modes,
        text_or(object, "/spec/storageClassName", ""),
        text_or(object, "/spec/volumeAttributesClassName", "<unset>"),
        age::of(object, now),
        text_or(object, "/spec/volumeMode", "<unset>"),
    ]
}

pub(super) fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = match (
        text(object, "/spec/claimRef/namespace"),
        text(object, "/spec/claimRef/name"),
    ) {
        ("", _) => String::new(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![
        name(object),
        text_or(object, "/spec/capacity/storage", ""),
        access_modes(&object["spec"]["accessModes"]),
        text_or(object, "/spec/persistentVolumeReclaimPolicy", ""),
        phase(object),
        json!(claim),
        text_or(object, "/spec/storageClassName", ""),
        text_or(object, "/spec/volumeAttributesClassName", "<unset>"),
        text_or(object, "/status/reason", ""),
        age::of(object, now),
        text_or(object, "/spec/volumeMode", "<unset>"),
    ]
}

pub(super) fn role_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let chosen = list(object, "/subjects")
            .filter(|subject| subject["kind"] == kind)
            .map(|subject| match (kind, text(subject, "/namespace")) {
                ("ServiceAccount", namespace) => format!("{namespace}/{}", text(subject, "/name")),
                _ => text(subject, "/name").to_owned(),
            });
        json!(chosen.collect::<Vec<_>>().join(", "))
    };
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    vec![
        name(object),
        json!(role),
        age::of(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

pub(super) fn resource_claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut states = Vec::new();
    if !object["metadata"]["deletionTimestamp"].is_null() {
        states.push("deleted");
    }
    if object["status"]["allocation"].is_object() {
        states.push("allocated");
    } else if states.is_empty() {
        states.push("pending");
    }
    if size(object, "/status/reservedFor") > 0 {
        states.push("reserved");
    }
    vec![name(object), json!(states.join(",")), age::of(object, now)]
}

pub(super) fn resource_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let [node, driver, pool] =
        ["/spec/nodeName", "/spec/driver", "/spec/pool/name"].map(|pointer| text_or(object, pointer, ""));
    vec![name(object), node, driver, pool, age::of(object, now)]
}

pub(super) fn csi_driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let flag = |field: &str, absent: bool| json!(object["spec"][field].as_bool().unwrap_or(absent));
    let audiences = list(object, "/spec/tokenRequests")
        .map(|request| text(request, "/audience").to_owned())
        .collect::<Vec<_>>();
    let modes = list(object, "/spec/volumeLifecycleModes")
        .filter_map(Value::as_str)
        .collect::<Vec<_>>();
    vec![
        name(object),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        json!(if audiences.is_empty() {
            "<unset>".to_owned()
        } else {
            audiences.join(",")
        }),
        flag("requiresRepublish", false),
        json!(if modes.is_empty() {
            "<none>".to_owned()
        } else {
            modes.join(",")
        }),
        age::of(object, now),
    ]
}

pub(super) fn csi_node(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(size(object, "/spec/drivers")), age::of(object, now)]
}

pub(super) fn volume_attachment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [attacher, volume, node] = ["/spec/attacher", "/spec/source/persistentVolumeName", "/spec/nodeName"]
        .map(|pointer| text_or(object, pointer, ""));
    vec![
        name(object),
        attacher,
        volume,
        node,
        json!(object["status"]["attached"] == true),
        age::of(object, now),
    ]
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let pairs = list(object, "/subsets").flat_map(|subset| {
        let ports: Vec<i64> = list(subset, "/ports").map(|port| count(port, "/port")).collect();
        list(subset, "/addresses").flat_map(move |address| {
            let host = text(address, "/ip").to_owned();
            ports.clone().into_iter().map(move |port| format!("{host}:{port}"))
        })
    });
    vec![name(object), joined(pairs, ","), age::of(object, now)]
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports = list(object, "/ports")
        .map(|port| count(port, "/port").to_string())
        .collect::<Vec<_>>();
    let hosts = list(object, "/endpoints")
        .flat_map(|endpoint| list(endpoint, "/addresses"))
        .filter_map(Value::as_str);
    let hosts = hosts.map(str::to_owned).collect::<Vec<_>>();
    let or_unset = |parts: Vec<String>| {
        json!(if parts.is_empty() {
            "<unset>".to_owned()
        } else {
            parts.join(",")
        })
    };
    vec![
        name(object),
        text_or(object, "/addressType", ""),
        or_unset(ports),
        or_unset(hosts),
        age::of(object, now),
    ]
}
