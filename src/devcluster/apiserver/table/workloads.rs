//! Rows of workload controllers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods::{containers_and_images, selector};
use super::{age, count, joined, list, text_or};

fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

/// Containers, images and selector of a workload with a pod template.
fn wide(object: &Value) -> [Value; 3] {
    let [containers, images] = containers_and_images(&object["spec"]["template"]["spec"]);
    [containers, images, selector(&object["spec"]["selector"])]
}

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = format!(
        "{}/{}",
        count(object, "/status/readyReplicas"),
        count(object, "/spec/replicas")
    );
    let (updated, available) = (
        count(object, "/status/updatedReplicas"),
        count(object, "/status/availableReplicas"),
    );
    let mut cells = vec![
        name(object),
        json!(ready),
        json!(updated.to_string()),
        json!(available.to_string()),
        age::of(object, now),
    ];
    cells.extend(wide(object));
    cells
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let counts =
        ["/spec/replicas", "/status/replicas", "/status/readyReplicas"].map(|pointer| json!(count(object, pointer)));
    let mut cells = vec![name(object)];
    cells.extend(counts);
    cells.push(age::of(object, now));
    cells.extend(wide(object));
    cells
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = format!(
        "{}/{}",
        count(object, "/status/readyReplicas"),
        count(object, "/spec/replicas")
    );
    let [containers, images, _] = wide(object);
    vec![name(object), json!(ready), age::of(object, now), containers, images]
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let fields = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ];
    let mut cells = vec![name(object)];
    cells.extend(fields.map(|field| json!(count(object, &format!("/status/{field}")))));
    let nodes = object
        .pointer("/spec/template/spec/nodeSelector")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    cells.push(joined(
        nodes.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())),
        ",",
    ));
    cells.push(age::of(object, now));
    cells.extend(wide(object));
    cells
}

pub(super) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = count(object, "/status/succeeded");
    let parallelism = count(object, "/spec/parallelism");
    let completions = match object.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let instant = |field: &str| {
        object["status"][field]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
    };
    let duration = instant("startTime").map_or_else(String::new, |start| {
        let end = instant("completionTime").unwrap_or(now);
        age::duration(end.duration_since(start).as_secs())
    });
    let mut cells = vec![
        name(object),
        json!(job_status(object)),
        json!(completions),
        json!(duration),
        age::of(object, now),
    ];
    cells.extend(wide(object));
    cells
}

fn job_status(job: &Value) -> &'static str {
    let is = |kind: &str| {
        list(job, "/status/conditions").any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if !job["metadata"]["deletionTimestamp"].is_null() {
        "Terminating"
    } else {
        let rest = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
        rest.into_iter().find(|kind| is(kind)).unwrap_or("Running")
    }
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let last = object
        .pointer("/status/lastScheduleTime")
        .filter(|time| !time.is_null());
    let last = last.map_or_else(|| "<none>".to_owned(), |time| age::since(Some(time), now));
    let [containers, images] = containers_and_images(&object["spec"]["jobTemplate"]["spec"]["template"]["spec"]);
    vec![
        name(object),
        text_or(object, "/spec/schedule", ""),
        text_or(object, "/spec/timeZone", "<none>"),
        json!(object["spec"]["suspend"] == true),
        json!(list(object, "/status/active").count()),
        json!(last),
        age::of(object, now),
        containers,
        images,
        selector(&object["spec"]["jobTemplate"]["spec"]["selector"]),
    ]
}

pub(super) fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list(object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true);
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let group = owner["apiVersion"]
                .as_str()
                .and_then(|version| version.split_once('/'))
                .map_or("", |(group, _)| group);
            let kind = owner["kind"].as_str().unwrap_or_default().to_lowercase();
            let kind = if group.is_empty() {
                kind
            } else {
                format!("{kind}.{group}")
            };
            format!("{kind}/{}", owner["name"].as_str().unwrap_or_default())
        },
    );
    vec![
        name(object),
        json!(controller),
        json!(count(object, "/revision")),
        age::of(object, now),
    ]
}

pub(super) fn disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |field: &str| match &object["spec"][field] {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    };
    let allowed = count(object, "/status/disruptionsAllowed");
    vec![
        name(object),
        bound("minAvailable"),
        bound("maxUnavailable"),
        json!(allowed),
        age::of(object, now),
    ]
}
