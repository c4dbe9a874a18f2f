//! Bindings: the one write by which a scheduler gives a pod its node.

use serde_json::{Value, json};

use super::{
    Call, Reply,
    admit::Admission,
    success,
    update::{ATTEMPTS, commit, precondition_failed},
    value_reply,
};
use crate::devcluster::apiserver::{
    schema::FieldError,
    status::{ApiError, ApiResult},
    strategy, validation,
    webhook::Operation,
};

/// Binds a pod to a node: one write of the node's name, the binding's annotations and the PodScheduled condition.
pub(super) async fn bind(call: &Call) -> ApiResult<Reply> {
    let mut binding = call.json_body()?;
    check_binding(call, &binding)?;
    let mut warnings = Vec::new();
    let admission = Admission::new(call, Operation::Create, &call.info.name, None)?;
    admission.mutate(Some(&mut binding), &mut warnings).await?;
    admission.validate(Some(&binding), &mut warnings).await?;
    for _ in 0..ATTEMPTS {
        let old = call.find()?;
        let pod = bound(call, &old.value, &binding)?;
        if commit(call, &old, pod)?.is_some() {
            return Ok(value_reply(201, &success(201, None), warnings));
        }
    }
    Err(ApiError::modified(&call.subject()))
}

fn check_binding(call: &Call, binding: &Value) -> ApiResult<()> {
    if binding["metadata"]["name"] != call.info.name.as_str() {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let target = &binding["target"];
    let error = if !matches!(target["kind"].as_str(), None | Some("" | "Node")) {
        Some(validation::not_supported(
            "target.kind",
            &target["kind"],
            &["Node", "<empty>"],
        ))
    } else if target["name"].as_str().unwrap_or_default().is_empty() {
        Some(FieldError::required("target.name", ""))
    } else {
        None
    };
    // Real servers answer this with a bare 500 as well.
    error.map_or(Ok(()), |error| Err(ApiError::new(500, "", error.to_string())))
}

fn check_binding_preconditions(call: &Call, pod: &Value, binding: &Value) -> ApiResult<()> {
    for (label, field) in [("UID", "uid"), ("ResourceVersion", "resourceVersion")] {
        let wanted = binding["metadata"][field].as_str().unwrap_or_default();
        let found = pod["metadata"][field].as_str().unwrap_or_default();
        if !wanted.is_empty() && wanted != found {
            return Err(ApiError::conflict(
                &call.subject(),
                &precondition_failed(call, label, wanted, found),
            ));
        }
    }
    Ok(())
}

/// The pod with its binding, or why it cannot be bound.
fn bound(call: &Call, pod: &Value, binding: &Value) -> ApiResult<Value> {
    let refused = |why: &str| {
        let mut subject = call.subject();
        subject.resource = "pods/binding".to_owned();
        Err(ApiError::conflict(&subject, why))
    };
    let name = &call.info.name;
    check_binding_preconditions(call, pod, binding)?;
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return refused(&format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return refused(&format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        return refused(&format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for map in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][map].as_object().into_iter().flatten() {
            pod["metadata"][map][key] = value.clone();
        }
    }
    let scheduled = json!({"type": "PodScheduled", "status": "True"});
    strategy::set_condition(&mut pod, scheduled, &call.cluster.clock.stamp());
    Ok(pod)
}
