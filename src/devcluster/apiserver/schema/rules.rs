//! `x-kubernetes-validations`: compiling CEL rules against the schema that they stand in, and checking objects.

use serde_json::Value;

use super::super::cel::{Expression, Shape, Variable};
use super::super::json_type::JsonType;
use super::errors::{ErrorKind, FieldError};
use super::node::{ListType, Node, Rule};
use super::shape::child;
use super::validate::identity;

const REASONS: [(&str, ErrorKind); 4] = [
    ("FieldValueDuplicate", ErrorKind::Duplicate),
    ("FieldValueForbidden", ErrorKind::Forbidden),
    ("FieldValueInvalid", ErrorKind::Invalid),
    ("FieldValueRequired", ErrorKind::Required),
];

/// Compiles the rules of `node`, whose schema stands at `at`.
pub(super) fn compile_all(node: &Node, rules: Option<&Value>, at: &str, errors: &mut Vec<FieldError>) -> Vec<Rule> {
    let rules = rules.and_then(Value::as_array).into_iter().flatten().enumerate();
    rules
        .filter_map(|(i, rule)| Rule::compile(node, rule, &format!("{at}.x-kubernetes-validations[{i}]"), errors))
        .collect()
}

impl Rule {
    fn compile(node: &Node, rule: &Value, at: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        let text = |name: &str| rule[name].as_str().map(str::trim).unwrap_or_default();
        let source = text("rule");
        if source.is_empty() {
            errors.push(FieldError::required(format!("{at}.rule"), "rule is not specified"));
            return None;
        }
        if source.contains('\n') && text("message").is_empty() {
            errors.push(FieldError::required(
                format!("{at}.message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        let reason = Self::reason(rule, at, errors);
        Self::check_field_path(node, text("fieldPath"), at, errors);
        let optional_old = rule["optionalOldSelf"] == true;
        let mut compile = |source: &str, field: &str| {
            let old = Variable {
                name: "oldSelf",
                shape: (!optional_old).then_some(node as &dyn Shape),
            };
            Expression::compile(
                source,
                &[
                    Variable {
                        name: "self",
                        shape: Some(node as &dyn Shape),
                    },
                    old,
                ],
            )
            .map_err(|error| {
                errors.push(FieldError::invalid(
                    format!("{at}.{field}"),
                    &Value::from(source),
                    &error,
                ));
            })
            .ok()
        };
        let expression = compile(source, "rule");
        let message_expression = match text("messageExpression") {
            "" => None,
            source => compile(source, "messageExpression"),
        };
        let expression = expression?;
        if expression.static_type().is_some_and(|found| found != JsonType::Boolean) {
            let detail = "cel expression must evaluate to a bool";
            errors.push(FieldError::invalid(format!("{at}.rule"), &Value::from(source), detail));
        }
        let message = match text("message") {
            "" => format!("failed rule: {source}"),
            message => message.to_owned(),
        };
        Some(Self {
            transition: expression.uses("oldSelf"),
            expression,
            message,
            message_expression,
            reason,
            field_path: text("fieldPath").to_owned(),
            optional_old,
        })
    }

    fn reason(rule: &Value, at: &str, errors: &mut Vec<FieldError>) -> ErrorKind {
        let Some(text) = rule["reason"].as_str() else {
            return ErrorKind::Invalid;
        };
        let known = REASONS.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
        if known.is_none() {
            let supported = REASONS.map(|(name, _)| name);
            errors.push(FieldError::not_supported(
                format!("{at}.reason"),
                &rule["reason"],
                &supported,
            ));
        }
        known.unwrap_or(ErrorKind::Invalid)
    }

    /// A field path names properties below the rule's schema.
    fn check_field_path(node: &Node, path: &str, at: &str, errors: &mut Vec<FieldError>) {
        let mut place = Some(node);
        for name in path.split('.').skip(1) {
            place = place.and_then(|place| place.properties.get(name).or(place.additional.as_deref()));
        }
        let rooted = path.is_empty() || path.starts_with('.');
        // Paths with brackets are not checked.
        if !path.contains('[') && (place.is_none() || !rooted) {
            errors.push(FieldError::invalid(
                format!("{at}.fieldPath"),
                &Value::from(path),
                "must be a valid path",
            ));
        }
    }

    fn check(&self, node: &Node, value: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
        if self.transition && old.is_none() && !self.optional_old {
            return;
        }
        match self.expression.check(node, value, old, self.optional_old) {
            Ok(true) => {}
            Ok(false) => errors.push(self.violation(node, value, old, path)),
            Err(error) => {
                let detail = format!(
                    "{error} evaluating rule: {}",
                    self.message.trim_start_matches("failed rule: ")
                );
                let shown = match value {
                    Value::Object(_) => Value::from("object"),
                    Value::Array(_) => Value::from("array"),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
                };
                errors.push(FieldError::invalid(self.path(path), &shown, &detail));
            }
        }
    }

    fn violation(&self, node: &Node, value: &Value, old: Option<&Value>, path: &str) -> FieldError {
        let computed = self
            .message_expression
            .as_ref()
            .and_then(|text| text.text(node, value, old).ok());
        let message = computed
            .filter(|text| !text.trim().is_empty())
            .unwrap_or_else(|| self.message.clone());
        let path = self.path(path);
        match self.reason {
            ErrorKind::Duplicate => FieldError::with_value(ErrorKind::Duplicate, path, value, ""),
            ErrorKind::Invalid if value.is_object() || value.is_array() => {
                FieldError::plain(ErrorKind::Invalid, path, &message)
            }
            ErrorKind::Invalid => FieldError::invalid(path, value, &message),
            ErrorKind::Required
            | ErrorKind::Forbidden
            | ErrorKind::NotSupported
            | ErrorKind::TooLong
            | ErrorKind::TooMany
            | ErrorKind::TypeInvalid => FieldError::plain(self.reason, path, &message),
        }
    }

    fn path(&self, path: &str) -> String {
        format!("{path}{}", self.field_path).trim_start_matches('.').to_owned()
    }
}

/// Checks the rules of `node` and of everything below it. `old` is the value's own earlier self, where it has one.
pub(super) fn check(node: &Node, value: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    if !node.has_rules || value.is_null() {
        return;
    }
    for rule in &node.rules {
        rule.check(node, value, old, path, errors);
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let old = old.and_then(|old| old.get(name));
                if let Some(property) = node.properties.get(name) {
                    check(property, value, old, &child(path, name), errors);
                } else if let Some(additional) = &node.additional {
                    check(additional, value, old, &format!("{path}[{name}]"), errors);
                }
            }
        }
        Value::Array(elements) => {
            let Some(items) = &node.items else { return };
            for (i, element) in elements.iter().enumerate() {
                check(
                    items,
                    element,
                    old_element(node, element, old),
                    &format!("{path}[{i}]"),
                    errors,
                );
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The earlier self of a list element: only elements of list maps have one.
fn old_element<'a>(node: &Node, element: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let ListType::Map(keys) = &node.list_type else {
        return None;
    };
    let wanted = identity(node, element, keys);
    old?.as_array()?
        .iter()
        .find(|candidate| identity(node, candidate, keys) == wanted)
}
