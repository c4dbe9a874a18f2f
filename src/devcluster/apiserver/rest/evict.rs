//! Eviction of pods: a deletion that respects disruption budgets, by the status that the disruption controller keeps, and that the pod's conditions show.

use serde_json::{Value, json};

use super::{
    Call, Reply,
    admit::Admission,
    delete::{self, Options},
    success,
    update::{ATTEMPTS, commit},
    value_reply,
};
use crate::api::names::condition;
use crate::devcluster::apiserver::{
    selector::LabelSelector,
    status::{ApiError, ApiResult},
    store::WriteError,
    strategy,
    webhook::Operation,
};

pub(super) async fn evict(call: &Call) -> ApiResult<Reply> {
    let mut eviction = call.json_body()?;
    let given = eviction["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != call.info.name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let mut options = Options::read(&eviction["deleteOptions"])?;
    options.dry_run |= call.dry_run()?;
    let pod = call.find()?;
    let mut warnings = Vec::new();
    let admission = Admission::new(call, Operation::Create, &call.info.name, None)?;
    admission.mutate(Some(&mut eviction), &mut warnings).await?;
    admission.validate(Some(&eviction), &mut warnings).await?;
    let finished = matches!(
        pod.value["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    );
    let leaving = !pod.value["metadata"]["deletionTimestamp"].is_null();
    if !finished && !leaving {
        spend_budget(call, &pod.value, options.dry_run)?;
    }
    if !options.dry_run {
        mark_disrupted(call, &mut options)?;
    }
    delete::delete_one(call, &call.key(), &options, &mut warnings).await?;
    Ok(value_reply(201, &success(201, None), warnings))
}

/// Writes into the pod's conditions why it ends: controllers read it there.
fn mark_disrupted(call: &Call, options: &mut Options) -> ApiResult<()> {
    for _ in 0..ATTEMPTS {
        let old = call.find()?;
        delete::check_preconditions(call, &old, options)?;
        let mut pod = old.value.clone();
        let disrupted = json!({
            "type": condition::DISRUPTION_TARGET, "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        });
        strategy::set_condition(&mut pod, disrupted, &call.cluster.clock.stamp());
        if let Some(marked) = commit(call, &old, pod)? {
            options.follow(&marked);
            return Ok(());
        }
    }
    Err(ApiError::modified(&call.subject()))
}

/// Takes one disruption from the pod's budget, if it has one.
fn spend_budget(call: &Call, pod: &Value, dry_run: bool) -> ApiResult<()> {
    let budgets = call.cluster.store.of("policy", "poddisruptionbudgets");
    for _ in 0..ATTEMPTS {
        let all = budgets.list(&call.info.namespace).objects;
        let covering: Vec<_> = all.into_iter().filter(|budget| covers(&budget.value, pod)).collect();
        let budget = match covering.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        if needs_no_disruption(pod, &budget.value) {
            return Ok(());
        }
        let name = budget.key().1;
        let number = |pointer: &str| budget.value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        if number("/status/observedGeneration") < number("/metadata/generation") {
            return Err(too_many(
                &format!("The disruption budget {name} is still being processed by the server."),
                Some(10),
            ));
        }
        let allowed = number("/status/disruptionsAllowed");
        if allowed <= 0 {
            let (desired, healthy) = (number("/status/desiredHealthy"), number("/status/currentHealthy"));
            let message = if healthy <= desired {
                format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
            } else {
                format!("The disruption budget {name} does not allow evicting pods currently")
            };
            return Err(too_many(&message, None));
        }
        if dry_run {
            return Ok(());
        }
        let mut spent = budget.value.clone();
        spent["status"]["disruptionsAllowed"] = json!(allowed - 1);
        spent["status"]["disruptedPods"][call.info.name.as_str()] = json!(call.cluster.clock.stamp());
        match budgets.replace(&budget.key(), budget.revision, spent) {
            Ok(_) | Err(WriteError::Missing) => return Ok(()),
            Err(WriteError::Modified | WriteError::Exists) => {}
        }
    }
    Err(too_many(
        "Cannot evict pod as its disruption budget keeps changing.",
        Some(1),
    ))
}

/// Whether a budget selects a pod; one without a selector selects none.
fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    selector.is_object() && LabelSelector::from_object(selector).is_some_and(|selector| selector.matches(pod))
}

/// Whether the eviction takes nothing from the budget: the pod is not ready, so it does not count as healthy, and the budget lets such pods go.
fn needs_no_disruption(pod: &Value, budget: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    if conditions.any(|known| known["type"] == condition::POD_READY && known["status"] == "True") {
        return false;
    }
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (desired > 0 && healthy >= desired)
}

fn too_many(message: &str, retry_after: Option<u32>) -> ApiError {
    let mut error = ApiError::new(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    error.details = Some(json!({"causes": [{"reason": "DisruptionBudget", "message": message}]}));
    error.retry_after = retry_after;
    error
}
