//! Checks of webhook configurations before they are stored, in the API server's words.

use serde_json::{Value, json};

use super::super::cel::Expression;
use super::super::matching::VARIABLES;
use super::super::schema::{ErrorKind, FieldError};
use super::Operation;

/// Checks a (defaulted) configuration of either kind.
pub(super) fn configuration(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (i, webhook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let at = format!("webhooks[{i}]");
        let name = webhook["name"].as_str().unwrap_or_default();
        if name.split('.').filter(|segment| !segment.is_empty()).count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            errors.push(FieldError::invalid(format!("{at}.name"), &json!(name), detail));
        }
        if names.contains(&name) {
            errors.push(FieldError::with_value(
                ErrorKind::Duplicate,
                format!("{at}.name"),
                &json!(name),
                "",
            ));
        }
        names.push(name);
        self::webhook(webhook, &at, &mut errors);
    }
    errors
}

fn webhook(webhook: &Value, at: &str, errors: &mut Vec<FieldError>) {
    one_of(
        &webhook["failurePolicy"],
        &format!("{at}.failurePolicy"),
        &["Fail", "Ignore"],
        errors,
    );
    one_of(
        &webhook["matchPolicy"],
        &format!("{at}.matchPolicy"),
        &["Equivalent", "Exact"],
        errors,
    );
    one_of(
        &webhook["reinvocationPolicy"],
        &format!("{at}.reinvocationPolicy"),
        &["IfNeeded", "Never"],
        errors,
    );
    if webhook["sideEffects"].is_null() {
        errors.push(FieldError::required(
            format!("{at}.sideEffects"),
            "must specify one of None, NoneOnDryRun",
        ));
    }
    one_of(
        &webhook["sideEffects"],
        &format!("{at}.sideEffects"),
        &["None", "NoneOnDryRun"],
        errors,
    );
    let timeout = &webhook["timeoutSeconds"];
    if !timeout.is_null() && !timeout.as_u64().is_some_and(|seconds| (1..=30).contains(&seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(format!("{at}.timeoutSeconds"), timeout, detail));
    }
    review_versions(
        &webhook["admissionReviewVersions"],
        &format!("{at}.admissionReviewVersions"),
        errors,
    );
    client(&webhook["clientConfig"], &format!("{at}.clientConfig"), errors);
    for (i, rule) in webhook["rules"].as_array().into_iter().flatten().enumerate() {
        self::rule(rule, &format!("{at}.rules[{i}]"), errors);
    }
    conditions(&webhook["matchConditions"], &format!("{at}.matchConditions"), errors);
}

pub(in crate::devcluster::apiserver) fn one_of(
    value: &Value,
    at: &str,
    supported: &[&str],
    errors: &mut Vec<FieldError>,
) {
    if !value.is_null() && !value.as_str().is_some_and(|text| supported.contains(&text)) {
        errors.push(FieldError::not_supported(at, value, supported));
    }
}

fn review_versions(versions: &Value, at: &str, errors: &mut Vec<FieldError>) {
    match versions.as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => errors.push(FieldError::required(at, "must specify one of v1, v1beta1")),
        // Only v1 is supported here.
        listed if !listed.contains(&json!("v1")) => {
            errors.push(FieldError::invalid(at, versions, "must include v1"));
        }
        _ => {}
    }
}

fn client(config: &Value, at: &str, errors: &mut Vec<FieldError>) {
    match (&config["url"], &config["service"]) {
        (Value::String(url), Value::Null) => {
            let usable = url
                .parse::<http::Uri>()
                .is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
            if !usable {
                let detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
                errors.push(FieldError::invalid(format!("{at}.url"), &config["url"], detail));
            }
        }
        (Value::Null, service) if service.is_object() => {
            for field in ["name", "namespace"] {
                if service[field].as_str().is_none_or(str::is_empty) {
                    errors.push(FieldError::required(format!("{at}.service.{field}"), ""));
                }
            }
            if service["path"]
                .as_str()
                .is_some_and(|path| !path.is_empty() && !path.starts_with('/'))
            {
                errors.push(FieldError::invalid(
                    format!("{at}.service.path"),
                    &service["path"],
                    "must start with a '/'",
                ));
            }
        }
        _ => errors.push(FieldError::required(at, "exactly one of url or service is required")),
    }
}

pub(in crate::devcluster::apiserver) fn rule(rule: &Value, at: &str, errors: &mut Vec<FieldError>) {
    for field in ["operations", "apiGroups", "apiVersions", "resources"] {
        if rule[field].as_array().is_none_or(Vec::is_empty) {
            errors.push(FieldError::required(format!("{at}.{field}"), ""));
        }
    }
    for (i, operation) in rule["operations"].as_array().into_iter().flatten().enumerate() {
        one_of(operation, &format!("{at}.operations[{i}]"), &Operation::NAMES, errors);
    }
    one_of(
        &rule["scope"],
        &format!("{at}.scope"),
        &["*", "Cluster", "Namespaced"],
        errors,
    );
}

pub(in crate::devcluster::apiserver) fn conditions(conditions: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let mut names: Vec<&str> = Vec::new();
    for (i, condition) in conditions.as_array().into_iter().flatten().enumerate() {
        let name = condition["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(format!("{at}[{i}].name"), ""));
        } else if names.contains(&name) {
            errors.push(FieldError::with_value(
                ErrorKind::Duplicate,
                format!("{at}[{i}].name"),
                &json!(name),
                "",
            ));
        }
        names.push(name);
        let source = condition["expression"].as_str().map(str::trim).unwrap_or_default();
        let at = format!("{at}[{i}].expression");
        if source.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if let Err(error) = Expression::compile(source, &VARIABLES) {
            errors.push(FieldError::invalid(at, &json!(source), &error));
        }
    }
}
