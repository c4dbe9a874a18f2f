//! Checks of policies and bindings before they are stored, in the API server's words.

use serde_json::{Value, json};

use super::super::cel::Expression;
use super::super::schema::FieldError;
use super::super::webhook::check::{conditions, one_of, rule};
use super::VARIABLES;

/// Checks a (defaulted) object of either kind.
pub(super) fn object(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object["kind"] == "ValidatingAdmissionPolicyBinding" {
        binding(&object["spec"], &mut errors);
    } else {
        policy(&object["spec"], &mut errors);
    }
    errors
}

fn binding(spec: &Value, errors: &mut Vec<FieldError>) {
    if spec["policyName"].as_str().is_none_or(str::is_empty) {
        errors.push(FieldError::required("spec.policyName", ""));
    }
    let actions = spec["validationActions"].as_array();
    if actions.is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(
            "spec.validationActions",
            "at least one validation action is required",
        ));
    }
    for (i, action) in actions.into_iter().flatten().enumerate() {
        one_of(
            action,
            &format!("spec.validationActions[{i}]"),
            &["Audit", "Deny", "Warn"],
            errors,
        );
    }
    unsupported(spec, "paramRef", errors);
}

fn policy(spec: &Value, errors: &mut Vec<FieldError>) {
    one_of(
        &spec["failurePolicy"],
        "spec.failurePolicy",
        &["Fail", "Ignore"],
        errors,
    );
    let rules = spec["matchConstraints"]["resourceRules"].as_array();
    if rules.is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
    }
    for (i, one) in rules.into_iter().flatten().enumerate() {
        rule(one, &format!("spec.matchConstraints.resourceRules[{i}]"), errors);
    }
    conditions(&spec["matchConditions"], "spec.matchConditions", errors);
    for (i, variable) in spec["variables"].as_array().into_iter().flatten().enumerate() {
        let at = format!("spec.variables[{i}]");
        if variable["name"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{at}.name"), "name is required"));
        }
        expression(&variable["expression"], format!("{at}.expression"), errors);
    }
    let validations = spec["validations"].as_array();
    if validations.is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(
            "spec.validations",
            "validations or auditAnnotations must contain at least one item",
        ));
    }
    for (i, validation) in validations.into_iter().flatten().enumerate() {
        let at = format!("spec.validations[{i}]");
        expression(&validation["expression"], format!("{at}.expression"), errors);
        if !validation["messageExpression"].is_null() {
            expression(
                &validation["messageExpression"],
                format!("{at}.messageExpression"),
                errors,
            );
        }
        let reasons = ["Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"];
        one_of(&validation["reason"], &format!("{at}.reason"), &reasons, errors);
    }
    unsupported(spec, "paramKind", errors);
}

fn expression(given: &Value, at: String, errors: &mut Vec<FieldError>) {
    let source = given.as_str().map(str::trim).unwrap_or_default();
    if source.is_empty() {
        errors.push(FieldError::required(at, "expression is not specified"));
    } else if let Err(error) = Expression::compile(source, &VARIABLES) {
        errors.push(FieldError::invalid(at, given, &error));
    }
}

fn unsupported(spec: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if !spec[field].is_null() {
        let detail = "parameters are not supported by this API server";
        errors.push(FieldError::invalid(
            format!("spec.{field}"),
            &json!(spec[field]),
            detail,
        ));
    }
}
