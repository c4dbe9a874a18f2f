//! Rows of pods: STATUS as kubectl shows it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Printer, age, count, joined, list, text, text_or};

/// What the containers of a pod add up to.
struct Summary {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<String>,
}

impl Summary {
    fn restarted(&mut self, status: &Value) {
        self.restarts += count(status, "/restartCount");
        let finished = status
            .pointer("/lastState/terminated/finishedAt")
            .and_then(Value::as_str)
            .map(str::to_owned);
        self.last_restart = self.last_restart.take().max(finished);
    }
}

/// The cells of a pod.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summarize(pod);
    let sidecars = list(pod, "/spec/initContainers")
        .filter(|container| is_sidecar(container))
        .count();
    let total = list(pod, "/spec/containers").count() + sidecars;
    let restarts = match &summary.last_restart {
        Some(last) if summary.restarts > 0 => {
            format!("{} ({} ago)", summary.restarts, age::since(Some(&json!(last)), now))
        }
        _ => summary.restarts.to_string(),
    };
    vec![
        pod["metadata"]["name"].clone(),
        json!(format!("{}/{total}", summary.ready)),
        json!(summary.reason),
        json!(restarts),
        age::of(pod, now),
        text_or(pod, "/status/podIP", "<none>"),
        text_or(pod, "/spec/nodeName", "<none>"),
        text_or(pod, "/status/nominatedNodeName", "<none>"),
        readiness_gates(pod),
    ]
}

/// The row condition of a pod that has ended.
pub(super) fn row_condition(printer: Printer<'_>, pod: &Value) -> Option<Value> {
    let Printer::BuiltIn { group: "", kind: "Pod" } = printer else {
        return None;
    };
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

fn readiness_gates(pod: &Value) -> Value {
    let gates: Vec<&Value> = list(pod, "/spec/readinessGates").collect();
    if gates.is_empty() {
        return json!("<none>");
    }
    let open = gates
        .iter()
        .filter(|gate| has_condition(pod, text(gate, "/conditionType")))
        .count();
    json!(format!("{open}/{}", gates.len()))
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    list(pod, "/status/conditions").any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn summarize(pod: &Value) -> Summary {
    let phase = text(pod, "/status/phase");
    let reason = match text(pod, "/status/reason") {
        "" => phase,
        reason => reason,
    };
    let gated = list(pod, "/status/conditions")
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    let reason = if gated { "SchedulingGated" } else { reason };
    let mut summary = Summary {
        reason: reason.to_owned(),
        ready: 0,
        restarts: 0,
        last_restart: None,
    };
    let initializing = init_containers(pod, &mut summary);
    if !initializing || has_condition(pod, "Initialized") {
        containers(pod, &mut summary);
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        if text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    summary
}

/// Looks at the init containers up to the first that is not done; whether there is one.
fn init_containers(pod: &Value, summary: &mut Summary) -> bool {
    let specs: Vec<&Value> = list(pod, "/spec/initContainers").collect();
    for (i, status) in list(pod, "/status/initContainerStatuses").enumerate() {
        summary.restarted(status);
        let sidecar = specs
            .iter()
            .any(|spec| spec["name"] == status["name"] && is_sidecar(spec));
        let (terminated, waiting) = (&status["state"]["terminated"], text(status, "/state/waiting/reason"));
        if terminated.is_object() && count(terminated, "/exitCode") == 0 {
            continue;
        }
        if sidecar && status["started"] == true {
            summary.ready += usize::from(status["ready"] == true);
            continue;
        }
        summary.reason = if terminated.is_object() {
            format!("Init:{}", ending(terminated))
        } else if !matches!(waiting, "" | "PodInitializing") {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", specs.len())
        };
        return true;
    }
    false
}

fn containers(pod: &Value, summary: &mut Summary) {
    // Restarts of init containers that are done no longer count.
    (summary.restarts, summary.last_restart) = (0, None);
    let sidecars: Vec<&Value> = list(pod, "/spec/initContainers")
        .filter(|container| is_sidecar(container))
        .collect();
    for status in list(pod, "/status/initContainerStatuses") {
        if sidecars.iter().any(|spec| spec["name"] == status["name"]) {
            summary.restarted(status);
        }
    }
    let mut running = false;
    for status in list(pod, "/status/containerStatuses").rev() {
        summary.restarted(status);
        let (terminated, waiting) = (&status["state"]["terminated"], text(status, "/state/waiting/reason"));
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if terminated.is_object() {
            summary.reason = ending(terminated);
        } else if status["ready"] == true && status["state"]["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" && running {
        let reason = if has_condition(pod, "Ready") {
            "Running"
        } else {
            "NotReady"
        };
        reason.clone_into(&mut summary.reason);
    }
}

fn ending(terminated: &Value) -> String {
    match (text(terminated, "/reason"), count(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", count(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Names and images of the containers of a pod spec, as the wide columns of workloads show them.
pub(super) fn containers_and_images(spec: &Value) -> [Value; 2] {
    let field = |name: &str| {
        let fields: Vec<String> = list(spec, "/containers")
            .map(|container| container[name].as_str().unwrap_or_default().to_owned())
            .collect();
        json!(fields.join(","))
    };
    [field("name"), field("image")]
}

/// A label selector, `<none>` when empty.
pub(super) fn selector(selector: &Value) -> Value {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = list(selector, "/matchExpressions").map(|expression| {
        let key = text(expression, "/key");
        let values: Vec<&str> = list(expression, "/values").filter_map(Value::as_str).collect();
        match text(expression, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        }
    });
    joined(labels.chain(expressions), ",")
}
