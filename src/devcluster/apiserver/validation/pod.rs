//! Pod specs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{metadata, not_supported};
use crate::{
    api::quantity::Amount,
    devcluster::apiserver::schema::{ErrorKind, FieldError},
};

/// What is wrong with a pod spec at a path.
pub(super) fn check(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let containers = spec["containers"].as_array().cloned().unwrap_or_default();
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{at}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    let init_containers = spec["initContainers"].as_array().cloned().unwrap_or_default();
    let all = containers
        .iter()
        .enumerate()
        .map(|(index, one)| (format!("{at}.containers[{index}]"), one));
    let all = all.chain(
        init_containers
            .iter()
            .enumerate()
            .map(|(index, one)| (format!("{at}.initContainers[{index}]"), one)),
    );
    for (at, container) in all {
        errors.extend(check_container(container, &at, &mut names));
    }
    if !matches!(spec["restartPolicy"].as_str(), Some("Always" | "OnFailure" | "Never")) {
        errors.push(not_supported(
            &format!("{at}.restartPolicy"),
            &spec["restartPolicy"],
            &["Always", "OnFailure", "Never"],
        ));
    }
    for (key, value) in spec["nodeSelector"].as_object().into_iter().flatten() {
        errors.extend(metadata::label(&format!("{at}.nodeSelector"), key, value));
    }
    errors
}

fn check_container<'a>(container: &'a Value, at: &str, names: &mut BTreeSet<&'a str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = container["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required(format!("{at}.name"), ""));
    } else if !metadata::is_label(name, 63) {
        errors.push(FieldError::invalid(format!("{at}.name"), &json!(name), metadata::LABEL));
    } else if !names.insert(name) {
        errors.push(FieldError::with_value(
            ErrorKind::Duplicate,
            format!("{at}.name"),
            &json!(name),
            "",
        ));
    }
    if container["image"].as_str().unwrap_or_default().trim().is_empty() {
        errors.push(FieldError::required(format!("{at}.image"), ""));
    }
    errors.extend(check_resources(&container["resources"], &format!("{at}.resources")));
    errors
}

/// Amounts are quantities, not negative; what is requested is not more than the limit, and exactly that for extended resources.
fn check_resources(resources: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let amount = |list: &str, name: &str| {
        resources[list][name]
            .as_str()
            .and_then(|text| text.parse::<Amount>().ok())
    };
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            let field = format!("{at}.{list}[{name}]");
            match amount(list, name) {
                Some(amount) if amount.is_negative() => {
                    errors.push(FieldError::invalid(field, value, "must be greater than or equal to 0"));
                }
                Some(quantity) if is_extended(name) && quantity.milli() % 1000 != 0 => {
                    errors.push(FieldError::invalid(field, value, "must be an integer"));
                }
                Some(_) | None => {}
            }
        }
    }
    for (name, value) in resources["requests"].as_object().into_iter().flatten() {
        let extended = is_extended(name);
        let (Some(request), limit) = (amount("requests", name), amount("limits", name)) else {
            continue;
        };
        let field = format!("{at}.requests");
        match limit {
            Some(limit) if extended && limit != request => {
                errors.push(FieldError::invalid(
                    field,
                    value,
                    &format!(
                        "must be equal to {name} limit of {}",
                        resources["limits"][name].as_str().unwrap_or_default()
                    ),
                ));
            }
            Some(limit) if limit < request => {
                errors.push(FieldError::invalid(
                    field,
                    value,
                    &format!(
                        "must be less than or equal to {name} limit of {}",
                        resources["limits"][name].as_str().unwrap_or_default()
                    ),
                ));
            }
            Some(_) => {}
            None if extended => {
                errors.push(FieldError::required(
                    format!("{at}.limits"),
                    "Limit must be set for non overcommitable resources",
                ));
            }
            None => {}
        }
    }
    errors
}

/// Resources outside Kubernetes' own names are whole and not overcommitted.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.starts_with("kubernetes.io/")
}

/// What an update of a pod may not change: everything but images, deadlines, grace periods, added tolerations and lifted gates.
pub(super) fn check_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (before, after) = (&old["spec"], &new["spec"]);
    let mut errors = Vec::new();
    let comparable = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            for field in [
                "activeDeadlineSeconds",
                "terminationGracePeriodSeconds",
                "tolerations",
                "schedulingGates",
            ] {
                fields.remove(field);
            }
        }
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(fields) = container.as_object_mut() {
                    fields.remove("image");
                }
            }
        }
        spec
    };
    let gated = before["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    let without_placement = |spec: &Value| {
        let mut spec = comparable(spec);
        if gated && let Some(fields) = spec.as_object_mut() {
            fields.remove("nodeSelector");
            fields.remove("affinity");
        }
        spec
    };
    if without_placement(before) != without_placement(after) {
        errors.push(FieldError::plain(
            ErrorKind::Forbidden,
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
    let list = |spec: &Value, field: &str| spec[field].as_array().cloned().unwrap_or_default();
    if list(before, "tolerations")
        .iter()
        .any(|toleration| !list(after, "tolerations").contains(toleration))
    {
        errors.push(FieldError::plain(
            ErrorKind::Forbidden,
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
    if list(after, "schedulingGates")
        .iter()
        .any(|gate| !list(before, "schedulingGates").contains(gate))
    {
        errors.push(FieldError::plain(
            ErrorKind::Forbidden,
            "spec.schedulingGates",
            "only deletion is allowed, but found new scheduling gates",
        ));
    }
    errors
}
