//! The fields of the objects that users write, as Markdown. Config and SchedulingShards have a page of their own, which says what each field does.

use std::fmt::Write as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use super::cell;
use crate::api::crds;

/// The kinds, in the order in which users meet them.
const KINDS: [&str; 4] = ["Queue", "PodGroup", "Topology", "BindRequest"];
/// Fields of Kubernetes' own types, whose parts its documentation describes.
const KUBERNETES: [&str; 2] = ["allocation", "deviceRequests"];

const HEAD: &str = "\
# Objects and their fields

<!-- Generated from src/api by `cargo gen-docs`. -->

The definitions are in `crds/`, one file each. `[]` behind a name stands for each item of a list, `{}` for each value of a map. The fields of Config and
SchedulingShard, and what each does here, are in [configuration](../configuration.md); which limits hold for what tenants write, in [limits](../limits.md).
";

/// The page.
pub fn document() -> String {
    let mut text = HEAD.to_owned();
    let all = crds::all();
    for kind in KINDS {
        all.iter()
            .filter(|crd| crd.spec.names.kind == kind)
            .for_each(|crd| definition(crd, &mut text));
    }
    text
}

fn definition(crd: &CustomResourceDefinition, text: &mut String) {
    let (names, group, scope) = (&crd.spec.names, &crd.spec.group, &crd.spec.scope);
    let versions: Vec<_> = crd.spec.versions.iter().map(|version| version.name.as_str()).collect();
    let _ = writeln!(text, "\n## {}\n", names.kind);
    let schema = crd.spec.versions.iter().find(|version| version.storage);
    let schema = schema.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let about = schema
        .and_then(|schema| schema.description.as_deref())
        .unwrap_or_default();
    let short = match names.short_names.as_deref().unwrap_or_default() {
        [] => String::new(),
        short => format!(", for short `{}`", short.join("`, `")),
    };
    let _ = writeln!(
        text,
        "`{group}/{}`, `kubectl get {}`{short}; of {}. {}",
        versions.join("`, `"),
        names.plural,
        if scope == "Cluster" {
            "the cluster"
        } else {
            "a namespace"
        },
        cell(about)
    );
    text.push_str("\n| field | type | meaning |\n|---|---|---|\n");
    let parts = schema.and_then(|schema| schema.properties.as_ref());
    for (name, part) in parts.into_iter().flatten() {
        if ["spec", "status"].contains(&name.as_str()) {
            properties(name, part, text);
        }
    }
}

/// The rows of the fields below a path.
fn properties(path: &str, schema: &JSONSchemaProps, text: &mut String) {
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        let required = schema.required.iter().flatten().any(|required| required == name);
        let about = cell(field.description.as_deref().unwrap_or_default());
        let bounds = bounds(field, required);
        let _ = writeln!(text, "| `{path}` | {} | {about}{bounds} |", kind(field));
        if !KUBERNETES.contains(&name.as_str()) {
            below(&path, field, text);
        }
    }
}

fn below(path: &str, field: &JSONSchemaProps, text: &mut String) {
    properties(path, field, text);
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &field.items {
        below(&format!("{path}[]"), item, text);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &field.additional_properties {
        below(&format!("{path}{{}}"), value, text);
    }
}

fn kind(field: &JSONSchemaProps) -> String {
    if field.x_kubernetes_int_or_string == Some(true) {
        return "quantity".to_owned();
    }
    let plain = field.type_.as_deref().unwrap_or("any");
    match (plain, &field.items, &field.additional_properties) {
        ("array", Some(JSONSchemaPropsOrArray::Schema(item)), _) => format!("list of {}", kind(item)),
        ("object", _, Some(JSONSchemaPropsOrBool::Schema(value))) => format!("map to {}", kind(value)),
        ("string", ..) if field.format.as_deref() == Some("date-time") => "time".to_owned(),
        (plain, ..) => plain.to_owned(),
    }
}

/// The constraints on a value, for the end of its description.
fn bounds(field: &JSONSchemaProps, required: bool) -> String {
    let mut all = Vec::new();
    if required {
        all.push("required".to_owned());
    }
    if let Some(values) = &field.enum_ {
        let values: Vec<_> = values
            .iter()
            .map(|value| format!("`{}`", value.0.as_str().unwrap_or_default()))
            .collect();
        all.push(format!("one of {}", values.join(", ")));
    }
    all.extend(field.minimum.map(|minimum| format!("at least {minimum}")));
    all.extend(field.maximum.map(|maximum| format!("at most {maximum}")));
    all.extend(field.max_length.map(|length| format!("at most {length} characters")));
    all.extend(field.max_items.map(|items| format!("at most {items} items")));
    if all.is_empty() {
        String::new()
    } else {
        format!(" ({})", all.join("; "))
    }
}
