//! The six custom resource definitions, generated from the types.
//!
//! Schemas are structural, carry no defaults (readers default in memory) but the one that Kubernetes' own toleration type has,
//! and are never nullable.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::CustomResourceExt;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use super::bind_request::{BindRequest, BindRequestSpec, BindRequestStatus};
use super::config::{Config, ConfigSpec, ConfigStatus};
use super::pod_group::{PodGroup, PodGroupSpec, PodGroupStatus};
use super::queue::{Queue, QueueSpec, QueueStatus};
use super::schema::INT64;
use super::shard::{SchedulingShard, SchedulingShardSpec, SchedulingShardStatus};
use super::topology::{Topology, TopologySpec};

/// All custom resource definitions, in the order of their groups and plurals.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        with_status::<BindRequest, BindRequestSpec, BindRequestStatus>(
            "A bind of one pod to one node that needs several steps.",
        ),
        with_status::<Config, ConfigSpec, ConfigStatus>(
            "The settings of the product. Only the object named kai-config has an effect.",
        ),
        with_status::<PodGroup, PodGroupSpec, PodGroupStatus>(
            "The pods of one workload, and how many of them must run together.",
        ),
        with_status::<Queue, QueueSpec, QueueStatus>(
            "A share of the cluster. Queues form a tree; workloads run in its leaves.",
        ),
        with_status::<SchedulingShard, SchedulingShardSpec, SchedulingShardStatus>(
            "One scheduler over one pool of nodes.",
        ),
        with_spec::<Topology, TopologySpec>("Domains of nodes at several levels, by node labels."),
    ];
    crds.sort_by_key(|crd| (crd.spec.group.clone(), crd.spec.names.plural.clone()));
    crds
}

/// A definition as a YAML document, as it stands in `crds/`.
pub fn to_yaml(crd: &CustomResourceDefinition) -> String {
    let value = serde_json::to_value(crd).expect("a definition is JSON");
    serde_yaml_ng::to_string(&written_by_people(value)).expect("a definition is YAML")
}

/// The same value with sorted keys and with whole numbers written as such.
fn written_by_people(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<_> = object.into_iter().collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(
                entries
                    .into_iter()
                    .map(|(key, value)| (key, written_by_people(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().map(written_by_people).collect()),
        Value::Number(number) => number
            .to_string()
            .strip_suffix(".0")
            .map_or(Value::Number(number), |whole| {
                Value::Number(whole.parse().expect("a number without its fraction is a number"))
            }),
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

fn with_status<K: CustomResourceExt, Spec: JsonSchema, Status: JsonSchema>(
    description: &str,
) -> CustomResourceDefinition {
    let schema = json!({
        "type": "object",
        "description": description,
        "properties": {"spec": schema_of::<Spec>(), "status": schema_of::<Status>()},
    });
    with_schema(K::crd(), schema)
}

fn with_spec<K: CustomResourceExt, Spec: JsonSchema>(description: &str) -> CustomResourceDefinition {
    let schema = json!({
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {"spec": schema_of::<Spec>()},
    });
    with_schema(K::crd(), schema)
}

fn with_schema(mut crd: CustomResourceDefinition, schema: Value) -> CustomResourceDefinition {
    let schema: JSONSchemaProps = serde_json::from_value(schema).expect("the schema is an OpenAPI schema");
    for version in &mut crd.spec.versions {
        version.schema = Some(CustomResourceValidation {
            open_api_v3_schema: Some(schema.clone()),
        });
    }
    crd
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<T>();
    Structural.transform(&mut schema);
    schema.to_value()
}

/// Converts schemas of Rust's types into those that Kubernetes and the API's contract use.
struct Structural;

impl Transform for Structural {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else { return };
        object.remove("title");
        object.remove("nullable");
        // Serde's defaults only tell the decoder what to use for missing fields; they are not part of the API. The one default of the API is a toleration's operator.
        if object.get("default").is_some_and(|default| default != "Equal") {
            object.remove("default");
        }
        match object.get("format").and_then(Value::as_str) {
            Some("double" | "int64") => drop(object.remove("format")),
            Some(INT64) => drop(object.insert("format".to_owned(), json!("int64"))),
            _ => {}
        }
    }
}
