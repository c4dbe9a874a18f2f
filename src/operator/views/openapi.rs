//! The OpenAPI document, generated from the types of the answers.

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::{HeaderName, header};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::PREFIX;
use crate::api::views;

/// A parameter: name, location, description.
type Parameter = (&'static str, &'static str, &'static str);

const AFTER: Parameter = ("after", "query", "The `next` of the answer before");
const LIMIT: Parameter = (
    "limit",
    "query",
    "So many at most. Lists of nodes and workloads have at most 5,000 entries",
);
const NAMESPACE: Parameter = ("namespace", "path", "The namespace");

/// The document as it is sent: all responses share it, as no caller is checked.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| openapi().to_string().into());

/// `GET /api/v1/openapi.json`.
pub async fn document() -> ([(HeaderName, &'static str); 1], Bytes) {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}

/// The document.
pub fn openapi() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    let mut path = |path: &str, operation: Value| {
        paths.insert(format!("{PREFIX}{path}"), json!({"get": operation}));
    };
    path(
        "/queues",
        get::<views::QueueList>(
            &mut schemas,
            "listQueues",
            "All queues. Requires the right to list queues",
            &[],
        ),
    );
    path(
        "/queue-history",
        get::<views::QueueHistory>(
            &mut schemas,
            "getQueueHistory",
            "The history of a queue. Requires the right to list queues",
            &[("queue", "query", "The queue's name")],
        ),
    );
    path(
        "/gpu-map",
        get::<views::GpuMap>(
            &mut schemas,
            "getGpuMap",
            "The nodes with GPUs, for the GPU map. Requires the right to list nodes",
            &[],
        ),
    );
    path(
        "/nodes",
        get::<views::NodeList>(
            &mut schemas,
            "listNodes",
            "Nodes with their GPUs. Requires the right to list nodes",
            &[("shard", "query", "Of this SchedulingShard alone"), AFTER, LIMIT],
        ),
    );
    path(
        "/nodes/{name}",
        get::<views::Node>(
            &mut schemas,
            "getNode",
            "A node",
            &[("name", "path", "The node's name")],
        ),
    );
    path(
        "/workloads",
        get::<views::WorkloadList>(
            &mut schemas,
            "listWorkloads",
            "Pod groups of the namespaces in which the caller may list pod groups or pods",
            &[
                ("namespace", "query", "Of this namespace alone"),
                ("queue", "query", "In this queue or one below it"),
                ("state", "query", "In this state"),
                ("waiting", "query", "true: of which some pod waits"),
                ("contains", "query", "With this in their name, namespace or queue"),
                (
                    "order",
                    "query",
                    "name, line (place in the line of their queue) or age; name if absent",
                ),
                AFTER,
                LIMIT,
            ],
        ),
    );
    path(
        "/workloads/{namespace}/{name}",
        get::<views::WorkloadDetails>(
            &mut schemas,
            "getWorkload",
            "A pod group with its pods, what its verdict rests on, and what happened to it",
            &[NAMESPACE, ("name", "path", "The PodGroup's name")],
        ),
    );
    path(
        "/evictions",
        get::<views::EvictionList>(
            &mut schemas,
            "listEvictions",
            "The last evictions in the namespaces in which the caller may list pod groups or pods",
            &[
                ("namespace", "query", "Of this namespace alone"),
                ("name", "query", "Of this pod or pod group alone"),
                LIMIT,
            ],
        ),
    );
    for (kind, what) in [("pods", "pod"), ("podgroups", "pod group")] {
        path(
            &format!("/explain/{kind}/{{namespace}}/{{name}}"),
            get::<views::Explanation>(
                &mut schemas,
                &format!("explain-{kind}"),
                &format!("Why a {what} waits, or what it does"),
                &[NAMESPACE, ("name", "path", "Its name")],
            ),
        );
    }
    for kind in ["queues", "nodes"] {
        path(
            &format!("/explain/{kind}/{{name}}"),
            get::<views::Explanation>(
                &mut schemas,
                &format!("explain-{kind}"),
                "How it stands, and what holds it up",
                &[("name", "path", "Its name")],
            ),
        );
    }
    let mut what_if = get::<views::WhatIf>(
        &mut schemas,
        "whatIf",
        "What the scheduler would do now if these pods were created. One question at a time; nothing is written",
        &[
            ("shard", "query", "Of this SchedulingShard; the default one if absent"),
            ("namespace", "query", "The namespace of manifests that name none"),
        ],
    );
    let asked = schemas.subschema_for::<views::WhatIfAsked>();
    what_if["requestBody"] = json!({"required": true, "content": {
        "application/json": {"schema": asked},
        "application/yaml": {"schema": {"type": "string", "description": "Manifests of pods, and of workloads that make some"}},
    }});
    paths.insert(format!("{PREFIX}/what-if"), json!({"post": what_if}));
    let problem = schemas.subschema_for::<views::Problem>();
    let responses =
        json!({"Problem": {"description": "There is no answer", "content": {"application/json": {"schema": problem}}}});
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "unikai",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the scheduler knows, for people's tools. The caller sees what its own rights in the cluster let it see.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "responses": responses,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "A token of the cluster"}},
        },
    })
}

/// An operation that answers with a type.
fn get<T: schemars::JsonSchema>(
    schemas: &mut SchemaGenerator,
    id: &str,
    summary: &str,
    parameters: &[Parameter],
) -> Value {
    let schema = schemas.subschema_for::<T>();
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|(name, place, description)| {
            let kind = match *name {
                "limit" => "integer",
                "waiting" => "boolean",
                _ => "string",
            };
            json!({
                "name": name, "in": place, "required": *place == "path" || id == "getQueueHistory", "description": description,
                "schema": {"type": kind},
            })
        })
        .collect();
    json!({
        "operationId": id,
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer", "content": {"application/json": {"schema": schema}}},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_responses_share_one_document() {
        let (first, second) = (document().await.1, document().await.1);
        assert_eq!(first.as_ptr(), second.as_ptr());
        assert_eq!(serde_json::from_slice::<Value>(&first).unwrap(), openapi());
    }

    #[test]
    fn every_referenced_schema_exists() {
        let document = openapi();
        let text = document.to_string();
        let named = text
            .split("\"#/components/")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap());
        let mut count = 0;
        for name in named {
            let pointer = format!("/components/{name}");
            assert!(document.pointer(&pointer).is_some(), "{pointer}");
            count += 1;
        }
        assert!(count > 10, "{count}");
    }
}
