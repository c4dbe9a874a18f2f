//! The page: the operator serves it, the responses have the fields that it reads, and, where there is a Chromium, it shows them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use unikai::operator::settings::Settings;

use super::people::{Person, get};
use super::{busy_cluster, pod};
use crate::support::{Cluster, create, eventually};

/// Fields by the type of the API that the page reads them of.
type Read = BTreeMap<String, Vec<String>>;

/// What stands in answers.js.
fn read_by_the_page() -> Read {
    let text = include_str!("../../../src/operator/page/answers.js");
    let mut read = Read::new();
    for part in text.split("/** @api ").skip(1) {
        let (name, rest) = part.split_once(" */").unwrap();
        let (fields, _) = rest.split_once("= ({").unwrap().1.split_once("}) =>").unwrap();
        let fields = fields
            .split(',')
            .map(|field| field.split([':', '=']).next().unwrap().trim().to_owned());
        read.insert(name.to_owned(), fields.filter(|field| !field.is_empty()).collect());
    }
    read
}

/// Compares a response with its schema, and returns the fields that the page reads and the response lacks. Records each type in it.
struct Check<'a> {
    schemas: &'a Value,
    read: &'a Read,
    met: Vec<String>,
}

impl Check<'_> {
    fn object(&mut self, name: &str, value: &Value) {
        let fields = self
            .read
            .get(name)
            .unwrap_or_else(|| panic!("the page reads no {name}"));
        let schema = &self.schemas[name];
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for field in fields {
            let found = value.get(field);
            assert!(
                found.is_some() || !required.contains(&json!(field)),
                "{name} has no {field}: {value}"
            );
            if let Some(found) = found {
                self.value(&schema["properties"][field], found);
            }
        }
        self.met.push(name.to_owned());
    }

    fn value(&mut self, schema: &Value, value: &Value) {
        let alternatives = ["allOf", "anyOf"]
            .into_iter()
            .filter_map(|of| schema[of].as_array())
            .flatten();
        let of = std::iter::once(schema)
            .chain(alternatives)
            .find_map(|schema| schema["$ref"].as_str());
        if let (Some(named), true) = (of, value.is_object()) {
            self.object(named.rsplit('/').next().unwrap(), value);
        }
        for item in value.as_array().into_iter().flatten() {
            self.value(&schema["items"], item);
        }
    }
}

/// A cluster with pods that run, wait, share a GPU and were evicted.
async fn eventful() -> (Cluster, unikai::operator::Running, Person) {
    let cluster = busy_cluster().await;
    let running = cluster.ready_operator(Settings::embedded()).await;
    let viewer = Person::who_sees_all(&cluster, &running).await;
    let gpus = |count: u32| json!({"nvidia.com/gpu": count});
    pod(&cluster, "team", "whole", "team", gpus(8), json!({})).await;
    cluster.bound("team", "whole").await;
    let urgent = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 90});
    create(&cluster.admin, urgent).await.unwrap();
    let more = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "urgent", "namespace": "team", "labels": {"kai.scheduler/queue": "team", "priorityClassName": "urgent"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "i", "resources": {"limits": gpus(8)}}]},
    });
    create(&cluster.admin, more).await.unwrap();
    pod(&cluster, "other", "waits", "other", gpus(9), json!({})).await;
    eventually("somebody is evicted", async || {
        let list = get(&viewer, "/api/v1/evictions").await;
        (!list["evictions"].as_array()?.is_empty()).then_some(())
    })
    .await;
    eventually("queues have a history, and somebody waits", async || {
        let history = get(&viewer, "/api/v1/queue-history?queue=team").await;
        let waiting = get(&viewer, "/api/v1/workloads?waiting=true&order=line").await;
        (!history["samples"].as_array()?.is_empty() && waiting["total"] != 0).then_some(())
    })
    .await;
    (cluster, running, viewer)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_that_the_page_reads_is_in_the_answers() {
    let (_cluster, running, viewer) = eventful().await;
    let document = get(&viewer, "/api/v1/openapi.json").await;
    let read = read_by_the_page();
    let mut check = Check {
        schemas: &document["components"]["schemas"],
        read: &read,
        met: Vec::new(),
    };
    let list = get(&viewer, "/api/v1/workloads").await;
    let first = &list["workloads"][0];
    let one = format!(
        "{}/{}",
        first["namespace"].as_str().unwrap(),
        first["name"].as_str().unwrap()
    );
    for (path, answer) in [
        ("queues".to_owned(), "QueueList"),
        ("queue-history?queue=team".to_owned(), "QueueHistory"),
        ("explain/queues/team".to_owned(), "Explanation"),
        ("gpu-map".to_owned(), "GpuMap"),
        ("nodes/n1".to_owned(), "Node"),
        ("workloads?waiting=true&order=line&limit=200".to_owned(), "WorkloadList"),
        (
            "workloads?waiting=false&order=age&contains=whole".to_owned(),
            "WorkloadList",
        ),
        (format!("workloads/{one}"), "WorkloadDetails"),
        ("evictions?limit=200".to_owned(), "EvictionList"),
    ] {
        let value = get(&viewer, &format!("/api/v1/{path}")).await;
        check.object(answer, &value);
    }
    let manifest = "kind: Job\napiVersion: batch/v1\nmetadata: {name: huge, labels: {kai.scheduler/queue: team}}\n\
                    spec: {template: {spec: {containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 9}}}]}}}\n";
    let said = eventually("a question is answered", async || {
        let (status, said) = viewer
            .send_as("POST", "/api/v1/what-if?namespace=team", "application/yaml", manifest)
            .await;
        (status != 429).then_some((status, said))
    })
    .await;
    assert_eq!((said.0, &said.1["runs"]), (200, &json!(false)), "{said:?}");
    assert!(said.1["waits"][0]["verdict"]["sentence"].is_string(), "{said:?}");
    check.object("WhatIf", &said.1);
    for met in [
        "Queue",
        "QueueSample",
        "NodeOnMap",
        "NodeGpus",
        "GpuUser",
        "Workload",
        "Verdict",
        "Pod",
        "Moment",
        "Eviction",
        "WouldWait",
    ] {
        assert!(
            check.met.iter().any(|name| name == met),
            "no {met} among what was answered"
        );
    }
    running.shut_down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_responses_are_not_sent_again() {
    let cluster = busy_cluster().await;
    let running = cluster.ready_operator(Settings::embedded()).await;
    let viewer = Person::who_sees_all(&cluster, &running).await;
    eventually("the map is as it was", async || {
        let tag = viewer.tag_of("/api/v1/gpu-map").await?;
        (viewer.status_with_tag("/api/v1/gpu-map", &tag).await == 304).then_some(())
    })
    .await;
    running.shut_down().await.unwrap();
}

/// A Chromium in the path.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

fn shown_by(chromium: &Path, profile: &Path, address: &str) -> String {
    let output = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--virtual-time-budget=4000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(address)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_the_state_of_the_cluster() {
    let Some(chromium) = chromium() else {
        println!("passed over: there is no Chromium in the PATH");
        return;
    };
    let (_cluster, running, viewer) = eventful().await;
    let profile = tempfile::tempdir().unwrap();
    let with_token = format!("#token={}", viewer.token);
    for (link, texts) in [
        (&*with_token, ["Skip to the content", ">team<", "over time"]),
        ("#/queues", ["Skip to the content", "Who are you?", "unikai page"]),
    ] {
        let address = format!("http://{}/{link}", viewer.http);
        let (chromium, profile) = (chromium.clone(), profile.path().to_owned());
        let shown = tokio::task::spawn_blocking(move || shown_by(&chromium, &profile, &address));
        let shown = shown.await.unwrap();
        for text in texts {
            assert!(shown.contains(text), "no {text:?} in {shown}");
        }
        assert!(!shown.contains(&viewer.token), "the token is shown");
    }
    running.shut_down().await.unwrap();
}
