//! The scale subresource, of workloads and of custom resources that declare one.

use serde_json::{Value, json};

use super::{
    Call, Reply,
    admit::Admission,
    patch::Patch,
    update::{self, ATTEMPTS},
    value_reply,
};
use crate::devcluster::apiserver::{
    convert,
    schema::FieldError,
    status::{ApiError, ApiResult, Subject},
    webhook::Operation,
};

pub(super) fn get(call: &Call) -> ApiResult<Reply> {
    let object = call.find()?;
    Ok(value_reply(
        200,
        &scale_of(call, &convert::served(&call.resource, &object.value))?,
        Vec::new(),
    ))
}

pub(super) async fn update(call: &Call) -> ApiResult<Reply> {
    let scale = call.json_body()?;
    write(call, |_| Ok(scale.clone())).await
}

pub(super) async fn patch(call: &Call) -> ApiResult<Reply> {
    let patch = Patch::of(call)?;
    write(call, |scale| patch.apply_to("Scale", scale)).await
}

async fn write(call: &Call, change: impl Fn(&Value) -> ApiResult<Value>) -> ApiResult<Reply> {
    for _ in 0..ATTEMPTS {
        let old = call.find()?;
        let served = convert::served(&call.resource, &old.value);
        let old_scale = scale_of(call, &served)?;
        let mut scale = change(&old_scale)?;
        let wanted = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !wanted.is_empty() && old_scale["metadata"]["resourceVersion"] != wanted {
            return Err(ApiError::modified(&call.subject()));
        }
        let mut warnings = Vec::new();
        let admission = Admission::new(call, Operation::Update, &call.info.name, Some(&old_scale))?;
        admission.mutate(Some(&mut scale), &mut warnings).await?;
        admission.validate(Some(&scale), &mut warnings).await?;
        let new = with_scale(call, &served, &scale)?;
        if let Some(written) = update::replace(call, &old, &served, new)? {
            let written = convert::served(&call.resource, &written.value);
            return Ok(value_reply(200, &scale_of(call, &written)?, warnings));
        }
    }
    Err(ApiError::modified(&call.subject()))
}

/// The object with the count that a Scale asks for.
fn with_scale(call: &Call, object: &Value, scale: &Value) -> ApiResult<Value> {
    let mut changed = object.clone();
    match call.resource.custom() {
        Some(version) => version
            .write_scale(&mut changed, scale)
            .map_err(|error| ApiError::invalid(&call.subject(), &[error]))?,
        None => changed["spec"]["replicas"] = json!(wanted_replicas(call, scale)?),
    }
    Ok(changed)
}

fn wanted_replicas(call: &Call, scale: &Value) -> ApiResult<i64> {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas >= 0 {
        return Ok(replicas);
    }
    let error = FieldError::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
    Err(ApiError::invalid(&scale_subject(call), &[error]))
}

fn scale_subject(call: &Call) -> Subject {
    Subject {
        group: "autoscaling".to_owned(),
        kind: "Scale".to_owned(),
        ..call.subject()
    }
}

fn scale_of(call: &Call, object: &Value) -> ApiResult<Value> {
    if let Some(version) = call.resource.custom() {
        let scale = version.read_scale(object).ok_or_else(ApiError::no_such_resource)?;
        return scale.map_err(ApiError::internal);
    }
    let metadata = &object["metadata"];
    let kept = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: serde_json::Map<String, Value> = kept
        .iter()
        .map(|field| ((*field).to_owned(), metadata[*field].clone()))
        .collect();
    // As in Go's encoding, a count of none is left out.
    let spec = match object["spec"]["replicas"].as_i64() {
        None | Some(0) => json!({}),
        Some(replicas) => json!({"replicas": replicas}),
    };
    Ok(json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": {
            "replicas": object["status"]["replicas"].as_i64().unwrap_or(0),
            "selector": selector_text(&object["spec"]["selector"]),
        },
    }))
}

/// A label selector as a query string writes it.
fn selector_text(selector: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", text(value)));
    let expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|expression| {
            let key = text(&expression["key"]);
            let values: Vec<String> = expression["values"]
                .as_array()
                .into_iter()
                .flatten()
                .map(text)
                .collect();
            match expression["operator"].as_str().unwrap_or_default() {
                "In" => format!("{key} in ({})", values.join(",")),
                "NotIn" => format!("{key} notin ({})", values.join(",")),
                "DoesNotExist" => format!("!{key}"),
                _ => key,
            }
        });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}
