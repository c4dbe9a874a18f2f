use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;

use axum::http::Request;
use kube::Client;
use kube::client::Body as Sent;
use tokio::sync::{mpsc, watch};

use super::super::super::rounds::Shown;
use super::*;
use crate::components::Settings;
use crate::components::bus::{self, ToGrouper};
use crate::components::leadership::Pools;
use crate::config::Resolver;
use crate::config::tests::flags;

const JOB: &str = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: []}}}}";

fn received(text: &'static str) -> Received {
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    Received {
        text: Bytes::from_static(text.as_bytes()),
        _place: place,
    }
}

/// Otherwise an error would tell which labels a namespace has that the caller may not see.
#[test]
fn the_namespaces_of_manifests_are_known_before_they_are_grouped() {
    let question = Question::Manifests(Manifests::read(received(JOB), "secret".to_owned()).unwrap());
    assert_eq!(question.namespaces(), HashSet::from(["secret".to_owned()]));

    let excluding = Surroundings {
        settings: Settings {
            namespace_labels: BTreeMap::from([("team".to_owned(), "yes".to_owned())]),
            ..Settings::default()
        },
        stores: Arc::default(),
        defaults: Arc::default(),
    };
    let Question::Manifests(manifests) = question else {
        panic!("a question about pods");
    };
    let why = manifests.group(excluding).err().unwrap();
    assert!(why.contains("configuration excludes it"), "{why}");
}

/// Otherwise its time would count towards the pause, and others would be refused meanwhile.
#[tokio::test]
async fn the_defaults_per_kind_are_read_before_the_turn_begins() {
    let (mut resolved, _) = Resolver::new(flags()).resolve();
    resolved.common.components.default_priorities = Some(("kai-scheduler".to_owned(), "defaults".to_owned()));
    let (bus, mut inboxes) = bus::channels(1);
    let shown = Shown {
        bus,
        stores: Arc::default(),
        shards: resolved.shards.iter().map(|shard| shard.name.clone()).collect(),
        pools: Pools::default(),
        scheduler_name: String::new(),
    };
    let (asked, mut reads) = mpsc::unbounded_channel();
    let silent = tower::service_fn(move |_: Request<Sent>| {
        asked.send(()).unwrap();
        pending::<Result<Response<Sent>, Infallible>>()
    });
    let (seen, in_force) = (
        watch::channel(Some(shown)).1,
        watch::channel(Some((1, Arc::new(resolved)))).1,
    );
    let what_ifs = WhatIfs::new(Arc::new(Inspection::new(seen, in_force, Client::new(silent, "ns"))));
    let manifests = Manifests::read(received(JOB), "team".to_owned()).unwrap();
    let mut slow = pin!(what_ifs.decide(None, Question::Manifests(manifests)));
    let answer = async {
        let Some(ToGrouper::Unwritten(reply)) = inboxes.grouper.recv().await else {
            panic!("no question about the groups");
        };
        reply.try_send(Vec::new()).unwrap();
        reads.recv().await
    };
    tokio::select! {
        _ = &mut slow => panic!("decided without the defaults"),
        read = answer => assert_eq!(read, Some(())),
    }
    assert!(what_ifs.deciding.take(|| ()).await.is_ok(), "others have their turn");
}

#[test]
fn manifests_that_cannot_be_read_are_refused_without_a_cluster() {
    let why = Manifests::read(received("a: b"), "team".to_owned()).err().unwrap();
    assert!(why.starts_with("not a manifest"), "{why}");
}

#[test]
fn pods_get_what_an_api_server_adds_at_their_creation() {
    let term = json!({"labelSelector": {}, "topologyKey": "zone", "matchLabelKeys": ["version"]});
    let pod = json!({
        "metadata": {"name": "web", "labels": {"version": "2"}},
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        },
    });
    let asked = Asked::new(vec![serde_json::from_value(pod).unwrap()], Vec::new());
    let spec = serde_json::to_value(&asked.pods[0].spec).unwrap();
    assert_eq!(spec["containers"][0]["resources"]["requests"], json!({"cpu": "2"}));
    let terms = &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let version = json!([{"key": "version", "operator": "In", "values": ["2"]}]);
    assert_eq!(terms[0]["labelSelector"]["matchExpressions"], version);
}
