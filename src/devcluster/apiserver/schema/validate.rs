//! Validating values against compiled schemas, in the API server's words.

use serde_json::{Map, Value, json};

use super::super::json_type::JsonType;
use super::errors::{ErrorKind, FieldError};
use super::node::{Limits, ListType, Node};
use super::shape::child;

/// Validates a whole object, or an embedded one, without `apiVersion`, `kind` and `metadata`, which the schema does not define.
pub(super) fn object(node: &Node, object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    value(node, object, path, errors);
}

/// Validates any value.
pub(super) fn value(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if value.is_null() && node.nullable {
        return;
    }
    let type_error = check_type(node, value, path);
    let typed = type_error.is_none();
    errors.extend(type_error);
    junctors(&node.limits, value, path, errors);
    if !typed {
        return;
    }
    choices(&node.limits, value, path, errors);
    match value {
        Value::String(text) => string(&node.limits, text, value, path, errors),
        Value::Number(number) => self::number(&node.limits, number.as_f64().unwrap_or_default(), value, path, errors),
        Value::Array(elements) => list(node, elements, path, errors),
        Value::Object(fields) => self::fields(node, fields, path, errors),
        Value::Null | Value::Bool(_) => {}
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn check_type(node: &Node, value: &Value, path: &str) -> Option<FieldError> {
    let (right, wanted) = match node.json_type {
        None if node.int_or_string => (value.is_string() || is_whole(value), "integer,string"),
        None => (true, ""),
        Some(wanted) => {
            let right = match wanted {
                JsonType::Object => value.is_object(),
                JsonType::Array => value.is_array(),
                JsonType::String => value.is_string(),
                JsonType::Integer => is_whole(value),
                JsonType::Number => value.is_number(),
                JsonType::Boolean => value.is_boolean(),
            };
            (right, wanted.name())
        }
    };
    if right {
        return None;
    }
    let found = type_name(value);
    let detail = format!("{path} in body must be of type {wanted}: {found:?}");
    Some(FieldError::with_value(
        ErrorKind::TypeInvalid,
        path,
        &Value::from(found),
        &detail,
    ))
}

fn errors_of(node: &Node, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    self::value(node, value, path, &mut errors);
    errors
}

fn junctors(limits: &Limits, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    // The API server's junctors have no field of their own.
    let nowhere = |detail: String| FieldError::invalid("<nil>", &json!(""), &detail);
    for branch in &limits.all_of {
        self::value(branch, value, path, errors);
    }
    if let Some(fewest) = fewest_errors(&limits.any_of, value, path)
        && !fewest.is_empty()
    {
        errors.push(nowhere(format!("{path:?} must validate at least one schema (anyOf)")));
        errors.extend(fewest);
    }
    let valid = limits
        .one_of
        .iter()
        .filter(|branch| errors_of(branch, value, path).is_empty())
        .count();
    if !limits.one_of.is_empty() && valid != 1 {
        let found = if valid == 0 {
            "none valid".to_owned()
        } else {
            format!("{valid} valid alternatives")
        };
        errors.push(nowhere(format!(
            "{path:?} must validate one and only one schema (oneOf). Found {found}"
        )));
        errors.extend(fewest_errors(&limits.one_of, value, path).unwrap_or_default());
    }
    if let Some(branch) = &limits.not
        && errors_of(branch, value, path).is_empty()
    {
        errors.push(nowhere(format!("{path:?} must not validate the schema (not)")));
    }
}

fn fewest_errors(branches: &[Node], value: &Value, path: &str) -> Option<Vec<FieldError>> {
    branches
        .iter()
        .map(|branch| errors_of(branch, value, path))
        .min_by_key(Vec::len)
}

fn choices(limits: &Limits, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(choices) = &limits.choices
        && !choices.contains(value)
    {
        let shown: Vec<String> = choices.iter().map(Value::to_string).collect();
        errors.push(FieldError::with_value(
            ErrorKind::NotSupported,
            path,
            value,
            &format!("supported values: {}", shown.join(", ")),
        ));
    }
}

fn string(limits: &Limits, text: &str, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(most) = limits.max_length.filter(|most| length > *most) {
        errors.push(FieldError::plain(
            ErrorKind::TooLong,
            path,
            &format!("may not be more than {most} bytes"),
        ));
    }
    if let Some(least) = limits.min_length.filter(|least| length < *least) {
        let detail = format!("{path} in body should be at least {least} chars long");
        errors.push(FieldError::invalid(path, value, &detail));
    }
    if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        errors.push(FieldError::invalid(
            path,
            value,
            &format!("{path} in body should match '{pattern}'"),
        ));
    }
    if let Some(format) = limits.format.filter(|format| !format.accepts(text)) {
        let detail = format!("{path} in body must be of type {}: {text:?}", format.name());
        errors.push(FieldError::with_value(ErrorKind::TypeInvalid, path, value, &detail));
    }
}

fn number(limits: &Limits, number: f64, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut refuse = |rule: String| {
        errors.push(FieldError::invalid(
            path,
            value,
            &format!("{path} in body should be {rule}"),
        ));
    };
    if let Some(factor) = limits.multiple_of {
        let times = number / factor;
        if (times - times.round()).abs() > 1e-9 {
            refuse(format!("a multiple of {factor}"));
        }
    }
    if let Some(most) = limits.maximum {
        match limits.exclusive_maximum {
            true if number >= most => refuse(format!("less than {most}")),
            false if number > most => refuse(format!("less than or equal to {most}")),
            _ => {}
        }
    }
    if let Some(least) = limits.minimum {
        match limits.exclusive_minimum {
            true if number <= least => refuse(format!("greater than {least}")),
            false if number < least => refuse(format!("greater than or equal to {least}")),
            _ => {}
        }
    }
}

/// Too few or too many elements or properties.
fn sizes(size: usize, least: Option<u64>, most: Option<u64>, noun: &str, path: &str, errors: &mut Vec<FieldError>) {
    let size = size as u64;
    if let Some(least) = least.filter(|least| size < *least) {
        let detail = format!("{path} in body should have at least {least} {noun}");
        errors.push(FieldError::invalid(path, &Value::from(size), &detail));
    }
    if let Some(most) = most.filter(|most| size > *most) {
        let detail = format!("must have at most {most} items");
        errors.push(FieldError::with_value(
            ErrorKind::TooMany,
            path,
            &Value::from(size),
            &detail,
        ));
    }
}

fn list(node: &Node, elements: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    sizes(
        elements.len(),
        node.limits.min_items,
        node.limits.max_items,
        "items",
        path,
        errors,
    );
    if let Some(items) = &node.items {
        for (i, element) in elements.iter().enumerate() {
            value(items, element, &format!("{path}[{i}]"), errors);
        }
    }
}

fn fields(node: &Node, fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    sizes(
        fields.len(),
        node.limits.min_properties,
        node.limits.max_properties,
        "properties",
        path,
        errors,
    );
    for name in &node.limits.required {
        if !fields.contains_key(name) {
            errors.push(FieldError::required(child(path, name), ""));
        }
    }
    if node.embedded && !path.is_empty() {
        for name in ["apiVersion", "kind"] {
            let missing = fields
                .get(name)
                .is_none_or(|value| value.as_str().is_none_or(str::is_empty));
            if missing && !node.limits.required.iter().any(|required| required == name) {
                errors.push(FieldError::required(child(path, name), ""));
            }
        }
    }
    for (name, value) in fields {
        if let Some(property) = node.properties.get(name).or(node.additional.as_deref()) {
            self::value(property, value, &child(path, name), errors);
        }
    }
}

/// Checks that lists declared as sets or maps hold each entry once.
pub(super) fn list_types(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(property) = node.properties.get(name).or(node.additional.as_deref()) {
                    list_types(property, value, &child(path, name), errors);
                }
            }
        }
        Value::Array(elements) => {
            match &node.list_type {
                ListType::Atomic => {}
                ListType::Set => duplicates(elements.iter().cloned(), path, errors),
                ListType::Map(keys) => {
                    for (i, element) in elements.iter().enumerate().filter(|(_, element)| !element.is_object()) {
                        let detail = "must be an object for an array of list-type map";
                        errors.push(FieldError::invalid(format!("{path}[{i}]"), element, detail));
                    }
                    duplicates(
                        elements.iter().map(|element| identity(node, element, keys)),
                        path,
                        errors,
                    );
                }
            }
            if let Some(items) = &node.items {
                for (i, element) in elements.iter().enumerate() {
                    list_types(items, element, &format!("{path}[{i}]"), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The fields of a list-map element that tell it apart.
pub(super) fn identity(node: &Node, element: &Value, keys: &[String]) -> Value {
    let default = |key: &String| {
        node.items
            .as_ref()
            .and_then(|items| items.properties.get(key)?.default.clone())
    };
    let named = keys
        .iter()
        .filter_map(|key| Some((key.clone(), element.get(key).cloned().or_else(|| default(key))?)));
    Value::Object(named.collect())
}

fn duplicates(identities: impl Iterator<Item = Value>, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<Value> = Vec::new();
    for (i, identity) in identities.enumerate() {
        if identity.as_object().is_some_and(Map::is_empty) {
            continue;
        }
        if seen.contains(&identity) {
            errors.push(FieldError::with_value(
                ErrorKind::Duplicate,
                format!("{path}[{i}]"),
                &identity,
                "",
            ));
        } else {
            seen.push(identity);
        }
    }
}
