//! The groups of each kind of workload. A family is a YAML file of cases, and its snapshot is the output of `unikai group`.
//!
//! In the cases, `owner: group/version/Kind/name` stands for an owner reference; namespaces and UIDs are added.

use serde::Deserialize;
use serde_json::{Value, json};

use super::render;
use crate::components::Settings;
use crate::workloads::files::Files;
use crate::workloads::read::{self, Scenario};

/// Groups the pods of every case of the family.
fn grouped(cases: &str) -> String {
    let documents = serde_yaml_ng::Deserializer::from_str(cases);
    let cases = documents.map(|document| Value::deserialize(document).expect("YAML"));
    cases.map(|case| one(&case)).collect::<Vec<_>>().join("\n")
}

fn one(case: &Value) -> String {
    let objects = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    let (mut all, first_pod) = (objects("objects"), objects("objects").len());
    all.extend(objects("pods"));
    all.iter_mut().for_each(expand);
    read::complete(&mut all, "default");
    let pods = all.split_off(first_pod);
    let config = &case["config"];
    let map = config["defaults"]
        .as_str()
        .map(|name| ("default".to_owned(), name.to_owned()));
    let is_on = |key: &str| config[key].as_bool().unwrap_or(true);
    let scenario = Scenario {
        settings: Settings {
            default_priorities: map,
            knative_gangs: is_on("knativeGangs"),
            search_legacy_pod_groups: is_on("legacy"),
            ..Settings::default()
        },
        objects: all,
        pods,
        passes: 1,
        forbidden: serde_json::from_value(config["forbidden"].clone()).unwrap_or_default(),
        unknown: Vec::new(),
        refused: Vec::new(),
        assume_classes: case["classes"].is_null(),
    };
    let mut files = Files::new(scenario);
    files.group_all();
    render::table(case["about"].as_str().expect("what it is about"), &Ok(files))
}

/// Expands the abbreviations of cases.
fn expand(object: &mut Value) {
    let fields = object.as_object_mut().expect("an object");
    let kind = fields.remove("kind").unwrap_or(json!("v1/Pod"));
    let (api_version, kind) = kind.as_str().expect("text").rsplit_once('/').expect("version/Kind");
    let mut metadata = json!({});
    for key in ["name", "uid", "labels", "annotations", "deletionTimestamp"] {
        if let Some(value) = fields.remove(key) {
            metadata[key] = value;
        }
    }
    let owners = fields.remove("owners").unwrap_or_default();
    let owners = owners.as_array().cloned().unwrap_or_default();
    let owners: Vec<Value> = owners
        .into_iter()
        .chain(fields.remove("owner"))
        .map(|owner| reference(&owner))
        .collect();
    metadata["ownerReferences"] = json!(owners);
    fields.insert("apiVersion".to_owned(), json!(api_version));
    fields.insert("kind".to_owned(), json!(kind));
    fields.insert("metadata".to_owned(), metadata);
    if kind == "Pod" {
        let spec = fields.entry("spec").or_insert_with(|| json!({}));
        spec["schedulerName"] = json!("kai-scheduler");
        spec["containers"] = json!([]);
    }
}

fn reference(owner: &Value) -> Value {
    let (kind, name) = owner.as_str().expect("text").rsplit_once('/').expect("a name");
    let (api_version, kind) = kind.rsplit_once('/').expect("a kind");
    json!({"apiVersion": api_version, "kind": kind, "name": name})
}

macro_rules! families {
    ($($family:ident),+ $(,)?) => {
        $(#[test]
        fn $family() {
            insta::assert_snapshot!(grouped(include_str!(concat!("tests/", stringify!($family), ".yaml"))));
        })+
    };
}

families!(
    owners,
    pods,
    jobs,
    job_sets,
    leader_worker_sets,
    kubeflow,
    pytorch,
    ray,
    knative,
    grove,
    passed_over,
    small,
    own_words,
    kartas
);

#[test]
fn a_manifest_without_pods_is_grouped_with_imagined_ones() {
    let job = "{apiVersion: batch/v1, kind: Job, metadata: {name: j, annotations: {kai.scheduler/min-member: '2'}}}";
    let set = "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: js}, spec: {replicatedJobs: [
        {name: w, replicas: 2, template: {spec: {parallelism: 3}}}]}}";
    let text = format!("{job}\n---\n{set}\n");
    let mut files = Files::new(read::read(&text, false).expect("manifests"));
    files.group_all();
    insta::assert_snapshot!(render::table("a file", &Ok(files)));
    let error = read::read("just a text", false).err().expect("no manifest").to_string();
    assert!(error.contains("not a manifest"), "{error}");
}

#[test]
fn a_workload_whose_pods_are_not_known_is_shown_by_its_kind() {
    let text = "{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: ray}, spec: {}}";
    let mut files = Files::new(read::read(text, false).expect("a manifest"));
    files.group_all();
    let grouped = Ok(files);
    let why = "its pods cannot be derived from it, as they depend on a RayCluster that its controller creates";
    assert_eq!(
        render::table("a file", &grouped),
        format!("a file\n  RayJob default/ray is not grouped: {why}\n")
    );
    assert_eq!(
        render::json("a file", &grouped)["errors"],
        json!([{"workload": "RayJob default/ray", "message": why}])
    );
}

#[test]
fn texts_of_manifests_neither_control_the_terminal_nor_look_like_other_rows() {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "labels": {"kai.scheduler/queue": "\u{1b}]0;x\u{7}\n  PodGroup default/forged"}},
    });
    let mut files = Files::new(read::read(&job.to_string(), false).expect("a manifest"));
    files.group_all();
    files.errors = vec![("default/p".to_owned(), "\u{9b}2J\n  PodGroup default/forged".to_owned())];
    let text = render::table("f", &Ok(files));
    for line in [
        "\n    queue      \\u{1b}]0;x\\u{7}\\n  PodGroup default/forged\n",
        "\n  pod default/p is not grouped: \\u{9b}2J\\n  PodGroup default/forged\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}
