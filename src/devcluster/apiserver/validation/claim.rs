//! Statuses of ResourceClaims: the devices that are allocated, and for whom they are reserved.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::devcluster::apiserver::schema::{ErrorKind, FieldError};

/// How many consumers one claim may have.
const CONSUMERS_MAX: usize = 256;

/// What an update of a status may not do.
pub(super) fn check_status(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (before, after) = (&old["status"]["allocation"], &new["status"]["allocation"]);
    if !before.is_null() && !after.is_null() && before != after {
        errors.push(FieldError::invalid("status.allocation", after, "field is immutable"));
    }
    let requests = requests(&new["spec"]);
    let results = after["devices"]["results"].as_array().into_iter().flatten();
    for (index, result) in results.enumerate() {
        let request = &result["request"];
        if !requests.contains(request.as_str().unwrap_or_default()) {
            let field = format!("status.allocation.devices.results[{index}].request");
            let detail = "must be the name of a request in the claim";
            errors.push(FieldError::invalid(field, request, detail));
        }
    }
    errors.extend(check_consumers(old, new));
    errors
}

fn check_consumers(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut refuse = |kind, detail: &str| errors.push(FieldError::plain(kind, "status.reservedFor", detail));
    let consumers = |claim: &Value| claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    let (before, after) = (consumers(old), consumers(new));
    if after.len() > CONSUMERS_MAX {
        let detail = format!("{}: must have at most {CONSUMERS_MAX} items", after.len());
        refuse(ErrorKind::TooMany, &detail);
    }
    if !after.is_empty() && new["status"]["allocation"].is_null() {
        refuse(ErrorKind::Forbidden, "only allocated claims can be reserved");
    }
    let deleting = !old["metadata"]["deletionTimestamp"].is_null();
    if deleting && after.iter().any(|consumer| !before.contains(consumer)) {
        refuse(
            ErrorKind::Forbidden,
            "new entries may not be added while the claim is being deleted",
        );
    }
    errors
}

/// The names of a claim's requests, and those of alternatives: `request/alternative`.
fn requests(spec: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for request in spec["devices"]["requests"].as_array().into_iter().flatten() {
        let name = request["name"].as_str().unwrap_or_default();
        names.insert(name.to_owned());
        for alternative in request["firstAvailable"].as_array().into_iter().flatten() {
            let alternative = alternative["name"].as_str().unwrap_or_default();
            names.insert(format!("{name}/{alternative}"));
        }
    }
    names
}
