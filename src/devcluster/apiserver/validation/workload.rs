//! Workloads: templates, selectors and what stays as it was created.

use serde_json::{Value, json};

use super::{immutable, pod};
use crate::devcluster::apiserver::{
    schema::{ErrorKind, FieldError},
    selector::LabelSelector,
};

/// What is wrong with a workload.
pub(super) fn check(plural: &str, object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let template = match plural {
        "cronjobs" => &spec["jobTemplate"]["spec"]["template"],
        "controllerrevisions" => return errors,
        _ => &spec["template"],
    };
    let at = if plural == "cronjobs" {
        "spec.jobTemplate.spec.template"
    } else {
        "spec.template"
    };
    if matches!(plural, "deployments" | "replicasets" | "statefulsets" | "daemonsets") {
        errors.extend(check_selector(&spec["selector"], template));
    }
    for field in ["replicas", "parallelism", "completions", "backoffLimit"] {
        if spec[field].as_i64().is_some_and(|count| count < 0) {
            errors.push(FieldError::invalid(
                format!("spec.{field}"),
                &spec[field],
                "must be greater than or equal to 0",
            ));
        }
    }
    let policy = template["spec"]["restartPolicy"].as_str().unwrap_or_default();
    if matches!(plural, "jobs" | "cronjobs") && policy == "Always" {
        let field = format!("{at}.spec.restartPolicy");
        errors.push(FieldError::required(field, "valid values: \"OnFailure\", \"Never\""));
    } else if !matches!(plural, "jobs" | "cronjobs") && policy != "Always" {
        let field = format!("{at}.spec.restartPolicy");
        errors.push(super::not_supported(
            &field,
            &template["spec"]["restartPolicy"],
            &["Always"],
        ));
    }
    errors.extend(pod::check(&template["spec"], &format!("{at}.spec")));
    errors
}

fn check_selector(selector: &Value, template: &Value) -> Vec<FieldError> {
    let parsed = LabelSelector::from_object(selector);
    let matches = parsed
        .as_ref()
        .is_some_and(|selector| !selector.is_empty() && selector.matches(&json!({"metadata": template["metadata"]})));
    let mut errors = Vec::new();
    if parsed.as_ref().is_none_or(LabelSelector::is_empty) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if !matches {
        let labels = &template["metadata"]["labels"];
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    errors
}

/// What an update may not change.
pub(super) fn check_update(plural: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let fixed = |field: &str| {
        let mut error = immutable(old, new, field, "field is immutable")?;
        let value = field.split('.').fold(new.clone(), |value, step| value[step].clone());
        error = FieldError::with_value(ErrorKind::Invalid, error.field, &value, "field is immutable");
        Some(error)
    };
    match plural {
        "deployments" | "replicasets" | "daemonsets" => fixed("spec.selector").into_iter().collect(),
        "statefulsets" => {
            let free = [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ];
            let rest = |object: &Value| {
                let mut spec = object["spec"].clone();
                if let Some(fields) = spec.as_object_mut() {
                    free.iter().for_each(|field| drop(fields.remove(*field)));
                }
                spec
            };
            if rest(old) == rest(new) {
                return Vec::new();
            }
            vec![FieldError::plain(
                ErrorKind::Forbidden,
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            )]
        }
        "jobs" => {
            let suspended = old["spec"]["suspend"] == true;
            let mut errors: Vec<FieldError> = fixed("spec.selector").into_iter().collect();
            if new["spec"]["completionMode"] != "Indexed" {
                errors.extend(fixed("spec.completions"));
            }
            errors.extend(if suspended { None } else { fixed("spec.template") });
            errors
        }
        _ => Vec::new(),
    }
}
