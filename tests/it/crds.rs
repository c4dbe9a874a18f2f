//! The custom resource types and their definitions: what users' manifests hold survives, and `crds/` is up to date.

use std::collections::BTreeMap;
use std::path::Path;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use unikai::api::{self, lenient};

#[test]
fn the_folder_holds_what_the_binary_generates() {
    assert_folder_holds("crds", &unikai::cli::crds::files(), "crds");
}

/// Compares a folder of the repository with what a subcommand generates.
pub fn assert_folder_holds(folder: &str, generated: &[(String, String)], subcommand: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let held: BTreeMap<String, String> = std::fs::read_dir(&path)
        .unwrap_or_else(|error| panic!("{folder}/: {error}"))
        .map(|entry| entry.unwrap())
        // `kubectl apply -f` takes the files of a folder, and leaves folders in it alone.
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read_to_string(entry.path()).unwrap(),
            )
        })
        .collect();
    let names = |files: Vec<&String>| files.into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(held.keys().collect()),
        names(generated.iter().map(|(name, _)| name).collect()),
        "files of {folder}/: run `cargo run -- {subcommand} --dir {folder}` and delete what is left over"
    );
    for (name, text) in generated {
        assert!(
            held[name] == *text,
            "{folder}/{name} is out of date: run `cargo run -- {subcommand} --dir {folder}`"
        );
    }
}

#[test]
fn every_definition_has_the_fields_of_the_api() {
    let summary: Vec<Value> = api::crds::all()
        .into_iter()
        .map(|crd| {
            let version = &crd.spec.versions[0];
            json!({
                "name": crd.metadata.name,
                "versions": crd.spec.versions.len(),
                "version": version.name,
                "served and stored": version.served && version.storage,
                "kind": crd.spec.names.kind,
                "singular": crd.spec.names.singular,
                "short names": crd.spec.names.short_names.clone().unwrap_or_default(),
                "scope": crd.spec.scope,
                "status": version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some()),
                "columns": version
                    .additional_printer_columns
                    .iter()
                    .flatten()
                    .map(|column| format!("{} {}", column.name, column.json_path))
                    .collect::<Vec<_>>(),
            })
        })
        .collect();
    insta::assert_snapshot!(serde_yaml_ng::to_string(&summary).unwrap());
}

#[test]
fn schemas_are_never_nullable_and_have_no_default_but_one() {
    fn walk(path: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    let path = format!("{path}.{key}");
                    if key == "nullable" || (key == "default" && !path.ends_with("properties.default")) {
                        found.push(format!("{path}: {value}"));
                    }
                    walk(&path, value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(path, item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = Vec::new();
    for crd in api::crds::all() {
        walk(
            &crd.spec.names.kind,
            &serde_json::to_value(&crd.spec.versions).unwrap(),
            &mut found,
        );
    }
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(
        found
            .iter()
            .all(|line| line.starts_with("BindRequest.") && line.ends_with(".operator.default: \"Equal\"")),
        "{found:#?}"
    );
}

#[test]
fn queues_survive() {
    round_trip::<api::Queue>(include_str!("fixtures/api/queue.yaml"));
}

#[test]
fn pod_groups_survive() {
    round_trip::<api::PodGroup>(include_str!("fixtures/api/pod_group.yaml"));
}

#[test]
fn bind_requests_survive() {
    round_trip::<api::BindRequest>(include_str!("fixtures/api/bind_request.yaml"));
}

#[test]
fn topologies_survive() {
    round_trip::<api::Topology>(include_str!("fixtures/api/topology.yaml"));
}

#[test]
fn configs_survive() {
    round_trip::<api::Config>(include_str!("fixtures/api/config.yaml"));
}

#[test]
fn shards_survive() {
    round_trip::<api::SchedulingShard>(include_str!("fixtures/api/scheduling_shard.yaml"));
}

/// Reads each document into its type and back: no field is lost or added, and unknown fields are ignored.
fn round_trip<K>(yaml: &str)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Serialize,
{
    let documents: Vec<Value> = serde_yaml_ng::Deserializer::from_str(yaml)
        .map(|document| Value::deserialize(document).unwrap())
        .collect();
    assert!(!documents.is_empty());
    for document in documents {
        let typed: K = lenient::decode(document.clone()).unwrap();
        let written = serde_json::to_value(&typed).unwrap();
        assert_eq!(plain(written.clone()), plain(document.clone()));

        let typed: K = lenient::decode(with_unknown_fields(document)).unwrap();
        assert_eq!(serde_json::to_value(&typed).unwrap(), written);
    }
}

/// A document as the API server would store it: 16.0 is 16, and an empty map or list in a status is none.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object
                .into_iter()
                .filter(|(key, value)| !(key.starts_with("allocated") && *value == json!({})))
                .map(|(key, value)| (key, plain(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        Value::Number(number) => json!(number.as_f64()),
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

/// The document with a field more in its root, its spec, its status, and each object in a list of these.
fn with_unknown_fields(mut document: Value) -> Value {
    fn add(value: &mut Value) {
        let Some(object) = value.as_object_mut() else { return };
        object
            .values_mut()
            .filter_map(Value::as_array_mut)
            .flatten()
            .for_each(add);
        object.insert("fieldOfTheFuture".to_owned(), json!({"x": [1, "a", null]}));
    }
    for part in ["spec", "status"] {
        if let Some(part) = document.get_mut(part) {
            add(part);
        }
    }
    add(&mut document);
    document
}
