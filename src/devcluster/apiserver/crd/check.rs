//! The checks of a CRD beside its schemas: names, scope, versions, subresource paths, printer columns.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::super::schema::{ErrorKind, FieldError};
use super::{list, text};

static LABEL: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$").expect("constant"));
static SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$").expect("constant")
});

const LABEL_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Where the parts of a version are reported.
pub(super) struct VersionPaths {
    pub schema: String,
    /// The path at which an absent schema is reported.
    pub missing_schema: String,
    pub scale: String,
    pub columns: String,
}

/// Everything of a CRD outside of its versions' bodies.
pub(super) fn definition(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    names_and_group(crd, &mut errors);
    scope(crd, &mut errors);
    versions(crd, &mut errors);
    conversion(crd, &mut errors);
    if crd.pointer("/spec/preserveUnknownFields") == Some(&json!(true)) {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
    errors
}

fn names_and_group(crd: &Value, errors: &mut Vec<FieldError>) {
    let (name, group, plural) = (
        text(crd, "/metadata/name"),
        text(crd, "/spec/group"),
        text(crd, "/spec/names/plural"),
    );
    if name != format!("{plural}.{group}") || plural.is_empty() || group.is_empty() {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &json!(name), detail));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !SUBDOMAIN.is_match(&group) {
        errors.push(FieldError::invalid("spec.group", &json!(group), SUBDOMAIN_RULE));
    }
    let approved = crd
        .pointer("/metadata/annotations/api-approved.kubernetes.io")
        .is_some();
    if (group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io")) && !approved {
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\"";
        errors.push(FieldError::required(
            "metadata.annotations[api-approved.kubernetes.io]",
            detail,
        ));
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        let at = format!("spec.names.{field}");
        let name = text(crd, &format!("/spec/names/{field}"));
        let mixed_case = matches!(field, "kind" | "listKind");
        if name.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if mixed_case && !LABEL.is_match(&name.to_lowercase()) {
            let detail = format!("may have mixed case, but should otherwise match: {LABEL_RULE}");
            errors.push(FieldError::invalid(at, &json!(name), &detail));
        } else if !mixed_case && !LABEL.is_match(&name) {
            errors.push(FieldError::invalid(at, &json!(name), LABEL_RULE));
        }
    }
    for field in ["shortNames", "categories"] {
        for (i, name) in list(crd, &format!("/spec/names/{field}")).iter().enumerate() {
            if !LABEL.is_match(name) {
                errors.push(FieldError::invalid(
                    format!("spec.names.{field}[{i}]"),
                    &json!(name),
                    LABEL_RULE,
                ));
            }
        }
    }
}

fn scope(crd: &Value, errors: &mut Vec<FieldError>) {
    match text(crd, "/spec/scope").as_str() {
        "Namespaced" | "Cluster" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        other => errors.push(FieldError::not_supported(
            "spec.scope",
            &json!(other),
            &["Cluster", "Namespaced"],
        )),
    }
}

fn versions(crd: &Value, errors: &mut Vec<FieldError>) {
    let versions = crd.pointer("/spec/versions").cloned().unwrap_or_else(|| json!([]));
    let listed = versions.as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = listed
        .iter()
        .map(|version| version["name"].as_str().unwrap_or_default())
        .collect();
    let shown = json!(names);
    for (i, name) in names.iter().enumerate() {
        if !LABEL.is_match(name) {
            errors.push(FieldError::invalid(
                format!("spec.versions[{i}].name"),
                &json!(name),
                LABEL_RULE,
            ));
        }
    }
    if names.iter().enumerate().any(|(i, name)| names[..i].contains(name)) {
        errors.push(FieldError::invalid(
            "spec.versions",
            &shown,
            "must contain unique version names",
        ));
    }
    if listed.iter().filter(|version| version["storage"] == true).count() != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            &shown,
            "must have exactly one version marked as storage version",
        ));
    }
}

fn conversion(crd: &Value, errors: &mut Vec<FieldError>) {
    match text(crd, "/spec/conversion/strategy").as_str() {
        "" | "None" => {}
        "Webhook" => {
            let detail = "conversion webhooks are not supported by this API server; use None";
            errors.push(FieldError::plain(
                ErrorKind::Forbidden,
                "spec.conversion.strategy",
                detail,
            ));
        }
        other => errors.push(FieldError::not_supported(
            "spec.conversion.strategy",
            &json!(other),
            &["None", "Webhook"],
        )),
    }
}

/// Subresources and printer columns of one version.
pub(super) fn version(version: &Value, paths: &VersionPaths) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(scale) = version.pointer("/subresources/scale") {
        for (field, under) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
            let at = format!("{}.{field}", paths.scale);
            match scale[field].as_str() {
                None | Some("") => errors.push(FieldError::required(at, "")),
                Some(path) if !path.starts_with(under) => {
                    let detail = format!("should be a json path under {}", under.trim_end_matches('.'));
                    errors.push(FieldError::invalid(at, &scale[field], &detail));
                }
                Some(_) => {}
            }
        }
    }
    for (i, column) in version["additionalPrinterColumns"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        self::column(column, &format!("{}[{i}]", paths.columns), &mut errors);
    }
    errors
}

fn column(column: &Value, at: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    if text(column, "/name").is_empty() {
        errors.push(FieldError::required(format!("{at}.name"), ""));
    }
    match text(column, "/type").as_str() {
        "" => errors.push(FieldError::required(
            format!("{at}.type"),
            &format!("must be one of {}", TYPES.join(",")),
        )),
        found if !TYPES.contains(&found) => {
            let detail = format!("must be one of {}", TYPES.join(","));
            errors.push(FieldError::invalid(format!("{at}.type"), &json!(found), &detail));
        }
        _ => {}
    }
    let path = text(column, "/jsonPath");
    if path.is_empty() {
        errors.push(FieldError::required(format!("{at}.JSONPath"), ""));
    } else if !path.starts_with('.') {
        let detail = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(format!("{at}.JSONPath"), &json!(path), detail));
    }
}
