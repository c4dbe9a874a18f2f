//! Names, labels, annotations and finalizers.

use serde_json::{Value, json};

use crate::devcluster::apiserver::{
    registry::Resource,
    schema::{ErrorKind, FieldError},
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
pub(super) const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Bytes that all annotations together may have.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// What is wrong with an object's metadata.
pub(super) fn check(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let mut errors = Vec::new();
    errors.extend(name(resource, &metadata["name"]));
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        errors.extend(label("metadata.labels", key, value));
    }
    let mut bytes = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        errors.extend(qualified_name("metadata.annotations", &key.to_lowercase()));
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::plain(
            ErrorKind::TooLong,
            "metadata.annotations",
            &format!("may not be more than {ANNOTATIONS_BYTES_MAX} bytes"),
        ));
    }
    for (index, owner) in metadata["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::invalid(
                    format!("metadata.ownerReferences[{index}].{field}"),
                    &json!(""),
                    &format!("{field} must not be empty"),
                ));
            }
        }
    }
    errors
}

/// What an update may not do to metadata.
pub(super) fn check_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let deleting = !old["metadata"]["deletionTimestamp"].is_null();
    let names = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let added: Vec<Value> = names(new)
        .into_iter()
        .filter(|finalizer| !names(old).contains(finalizer))
        .collect();
    if deleting && !added.is_empty() {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        );
        return vec![FieldError::plain(ErrorKind::Forbidden, "metadata.finalizers", &detail)];
    }
    Vec::new()
}

fn name(resource: &Resource, name: &Value) -> Option<FieldError> {
    let text = name.as_str().unwrap_or_default();
    let fail = |detail: &str| Some(FieldError::invalid("metadata.name", name, detail));
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("rbac.authorization.k8s.io", _) => {
            let odd = matches!(text, "." | "..") || text.contains(['/', '%']);
            if odd {
                fail("may not be '.' or '..' and may not contain '/' or '%'")
            } else {
                None
            }
        }
        ("", "namespaces") => {
            if is_label(text, 63) {
                None
            } else {
                fail(LABEL)
            }
        }
        ("", "services") => {
            let fits = is_label(text, 63) && text.starts_with(|letter: char| letter.is_ascii_lowercase());
            if fits { None } else { fail(DNS_1035) }
        }
        _ => {
            let fits = text.len() <= 253 && text.split('.').all(|part| is_label(part, 253));
            if fits { None } else { fail(SUBDOMAIN) }
        }
    }
}

/// Lower-case letters, digits and inner dashes.
pub(super) fn is_label(text: &str, length_max: usize) -> bool {
    let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    !text.is_empty()
        && text.len() <= length_max
        && text.chars().all(|letter| letters(letter) || letter == '-')
        && text.starts_with(letters)
        && text.ends_with(letters)
}

/// Letters, digits and inner dashes, underscores and dots.
fn is_name_part(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
        && text.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && text.ends_with(|letter: char| letter.is_ascii_alphanumeric())
}

/// What is wrong with one label.
pub(super) fn label(field: &str, key: &str, value: &Value) -> Vec<FieldError> {
    let mut errors = qualified_name(field, key);
    let text = value.as_str().unwrap_or_default();
    if text.len() > 63 {
        errors.push(FieldError::invalid(field, value, "must be no more than 63 bytes"));
    }
    if !text.is_empty() && text.len() <= 63 && !is_name_part(text) {
        errors.push(FieldError::invalid(field, value, LABEL_VALUE));
    }
    errors
}

fn qualified_name(field: &str, key: &str) -> Vec<FieldError> {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let mut errors = Vec::new();
    if let Some(prefix) = prefix
        && !(prefix.len() <= 253 && prefix.split('.').all(|part| is_label(part, 253)))
    {
        errors.push(FieldError::invalid(
            field,
            &json!(key),
            &format!("prefix part {SUBDOMAIN}"),
        ));
    }
    if name.is_empty() {
        errors.push(FieldError::invalid(field, &json!(key), "name part must be non-empty"));
    }
    if name.len() > 63 {
        errors.push(FieldError::invalid(
            field,
            &json!(key),
            "name part must be no more than 63 bytes",
        ));
    }
    if name.len() <= 63 && !is_name_part(name) {
        errors.push(FieldError::invalid(field, &json!(key), QUALIFIED_NAME));
    }
    errors
}
