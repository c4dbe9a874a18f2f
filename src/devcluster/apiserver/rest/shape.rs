//! Decoding: from the bytes of a client to an object in normal form, with types checked, unknown fields gone and defaults filled in.

use std::fmt::Display;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::Call;
use crate::devcluster::apiserver::{
    defaults,
    registry::{Origin, normalise},
    status::{ApiError, ApiResult},
};

/// What happens to unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// As the request asks; Warn is the default.
    pub fn of(call: &Call) -> ApiResult<Self> {
        match call.info.query.get("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some(other) => Err(ApiError::bad_request(format!(
                "fieldValidation: Unsupported value: {other:?}"
            ))),
        }
    }

    fn judge(self, call: &Call, unknown: &[String]) -> ApiResult<Vec<String>> {
        let sentences: Vec<String> = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
        match self {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(sentences),
            FieldValidation::Strict if sentences.is_empty() => Ok(Vec::new()),
            FieldValidation::Strict => {
                let why = format!("strict decoding error: {}", sentences.join(", "));
                Err(cannot_be_handled(call, &why))
            }
        }
    }
}

/// Brings an object of the call's resource into normal form and fills in defaults. Returns the warnings.
pub(super) fn admit(call: &Call, object: &mut Value, validation: FieldValidation) -> ApiResult<Vec<String>> {
    check_type(call, object)?;
    let unknown = match &call.resource.origin {
        Origin::BuiltIn { normalise } => {
            // The schema of a CRD has properties of such names and no amounts.
            if call.resource.group != "apiextensions.k8s.io" {
                defaults::quantities(object).map_err(|error| cannot_be_handled(call, &error))?;
            }
            let normal = normalise(object).map_err(|error| cannot_be_handled(call, &error))?;
            let unknown = lost(object, &normal);
            let given = std::mem::replace(object, normal);
            keep_integers(&given, object);
            defaults::apply(&call.resource, object);
            unknown
        }
        Origin::Custom { .. } => {
            let given = object["metadata"].clone();
            let metadata = normalise::<ObjectMeta>(&given).map_err(|error| cannot_be_handled(call, &error))?;
            let mut unknown = below("metadata", lost(&given, &metadata));
            object["metadata"] = metadata;
            let version = call.resource.custom().ok_or_else(ApiError::no_such_resource)?;
            unknown.extend(version.admit_shape(object));
            unknown
        }
    };
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        metadata.remove("selfLink");
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            let empty = metadata
                .get(field)
                .is_some_and(|value| *value == json!({}) || *value == json!([]));
            if empty {
                metadata.remove(field);
            }
        }
    }
    validation.judge(call, &unknown)
}

/// Fills in `apiVersion` and `kind`, or refuses those of something else.
fn check_type(call: &Call, object: &mut Value) -> ApiResult<()> {
    let Some(fields) = object.as_object_mut() else {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized: expected a JSON object of kind {}",
            call.resource.kind
        )));
    };
    if call.resource.custom().is_some() {
        check_is_typed(call, fields)?;
    }
    let expected = [
        ("apiVersion", call.resource.api_version()),
        ("kind", call.resource.kind.clone()),
    ];
    for (field, expected) in expected {
        let given = fields.entry(field).or_insert_with(|| json!(expected));
        if given.as_str() == Some("") {
            *given = json!(expected);
        }
        if *given != json!(expected) {
            let what = if field == "kind" { "kind" } else { "API version" };
            let given = given.as_str().unwrap_or_default();
            return Err(ApiError::bad_request(format!(
                "the {what} in the data ({given}) does not match the expected {what} ({expected})"
            )));
        }
    }
    if fields.get("metadata").is_none_or(Value::is_null) {
        fields.insert("metadata".to_owned(), json!({}));
    }
    Ok(())
}

fn cannot_be_handled(call: &Call, error: &str) -> ApiError {
    let kind = &call.resource.kind;
    ApiError::bad_request(format!(
        "{kind} in version {:?} cannot be handled as a {kind}: {error}",
        call.resource.version
    ))
}

/// Custom resources must have apiVersion and kind.
fn check_is_typed(call: &Call, fields: &Map<String, Value>) -> ApiResult<()> {
    for (field, name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        let given = fields.get(field).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() {
            let kind = &call.resource.kind;
            let why =
                format!("the object provided is unrecognized (must be of type {kind}): Object '{name}' is missing");
            return Err(ApiError::bad_request(why));
        }
    }
    Ok(())
}

/// Undoes what the published types do to numbers: an integer that was given in place of a float stays one.
fn keep_integers(given: &Value, normal: &mut Value) {
    match (given, normal) {
        (Value::Object(given), Value::Object(normal)) => {
            for (key, value) in normal {
                if let Some(given) = given.get(key) {
                    keep_integers(given, value);
                }
            }
        }
        (Value::Array(given), Value::Array(normal)) => {
            given
                .iter()
                .zip(normal)
                .for_each(|(given, normal)| keep_integers(given, normal));
        }
        (Value::Number(given), Value::Number(normal)) if normal.is_f64() && !given.is_f64() => *normal = given.clone(),
        _ => {}
    }
}

/// Paths of fields with content that the normal form lacks. Usually there are none, so no text is written before one is found.
fn lost(given: &Value, normal: &Value) -> Vec<String> {
    match (given, normal) {
        (Value::Object(given), Value::Object(normal)) => {
            let with_content = given.iter().filter(|(_, value)| !value.is_null());
            with_content
                .flat_map(|(key, value)| match normal.get(key) {
                    Some(normal) => below(key, lost(value, normal)),
                    None => vec![key.clone()],
                })
                .collect()
        }
        (Value::Array(given), Value::Array(normal)) => {
            let pairs = given.iter().zip(normal).enumerate();
            pairs
                .flat_map(|(index, (given, normal))| below(format_args!("[{index}]"), lost(given, normal)))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// These paths as paths from one level above.
fn below(at: impl Display, paths: Vec<String>) -> Vec<String> {
    let longer = |path: String| {
        let dot = if path.starts_with('[') { "" } else { "." };
        format!("{at}{dot}{path}")
    };
    paths.into_iter().map(longer).collect()
}
