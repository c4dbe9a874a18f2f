//! Watches: order, selectors, starts, bookmarks, ends; and kube's own watcher on top.

use std::{collections::BTreeSet, pin::pin};

use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::ListParams, runtime::watcher};
use serde_json::{Value, json};

use super::harness::{Cluster, on_each};
use crate::polling::MAX_WAIT;

/// An open watch.
struct Watch(std::pin::Pin<Box<dyn futures::Stream<Item = Value>>>);

impl Watch {
    async fn open(cluster: &Cluster, path: &str) -> Self {
        let separator = if path.contains('?') { '&' } else { '?' };
        let request = http::Request::get(format!("{path}{separator}watch=true"))
            .body(Vec::new())
            .unwrap();
        let lines = cluster.client.request_stream(request).await.unwrap().lines();
        let events = lines
            .take_while(|line| std::future::ready(line.is_ok()))
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        Watch(Box::pin(events))
    }

    /// The next event as its type, the object's name and its labels' `v`; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        let event = tokio::time::timeout(MAX_WAIT, self.0.next())
            .await
            .expect("no event in time")?;
        Some((event["type"].as_str().unwrap().to_owned(), event["object"].clone()))
    }

    /// The types and names of the next events.
    async fn take(&mut self, count: usize) -> Vec<String> {
        let mut seen = Vec::new();
        for _ in 0..count {
            let (kind, object) = self.next().await.expect("the watch ended");
            seen.push(format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or("-")));
        }
        seen
    }
}

async fn make(cluster: &Cluster, name: &str, version: &str) {
    let object = json!({"metadata": {"name": name, "labels": {"v": version}}});
    cluster.post(&cluster.core("configmaps"), &object).await.ok();
}

async fn set_version(cluster: &Cluster, name: &str, version: &str) {
    cluster
        .merge(
            &cluster.core(&format!("configmaps/{name}")),
            &json!({"metadata": {"labels": {"v": version}}}),
        )
        .await
        .ok();
}

#[tokio::test]
async fn changes_arrive_in_order() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("configmaps");
        let start = cluster.get(&all).await.revision();
        let mut watch = Watch::open(cluster, &format!("{all}?resourceVersion={start}")).await;
        make(cluster, "a", "1").await;
        make(cluster, "b", "1").await;
        set_version(cluster, "a", "2").await;
        let removed = cluster.delete(&format!("{all}/a")).await;
        assert_eq!(watch.take(3).await, ["ADDED a", "ADDED b", "MODIFIED a"]);
        let (kind, last) = watch.next().await.unwrap();
        assert_eq!(
            (kind.as_str(), &last["metadata"]["labels"]["v"]),
            ("DELETED", &json!("2"))
        );
        let revision: u64 = last["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(
            revision > start.parse().unwrap(),
            "a deletion has a revision of its own: {removed:?}"
        );
        // A second watch from the same start sees the same past.
        let mut again = Watch::open(cluster, &format!("{all}?resourceVersion={start}")).await;
        assert_eq!(again.take(4).await, ["ADDED a", "ADDED b", "MODIFIED a", "DELETED a"]);
    })
    .await;
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.core("configmaps");
        let start = cluster.get(&all).await.revision();
        let mut watch = Watch::open(cluster, &format!("{all}?resourceVersion={start}&labelSelector=v%3D2")).await;
        make(cluster, "a", "1").await;
        set_version(cluster, "a", "2").await;
        cluster
            .merge(&format!("{all}/a"), &json!({"data": {"x": "y"}}))
            .await
            .ok();
        set_version(cluster, "a", "3").await;
        make(cluster, "b", "2").await;
        assert_eq!(watch.take(2).await, ["ADDED a", "MODIFIED a"]);
        let (kind, last) = watch.next().await.unwrap();
        assert_eq!(
            (kind.as_str(), &last["metadata"]["labels"]["v"]),
            ("DELETED", &json!("2")),
            "it left as it was seen last"
        );
        assert_eq!(watch.take(1).await, ["ADDED b"]);
    })
    .await;
}

#[tokio::test]
async fn a_watch_without_a_start_begins_with_the_state() {
    on_each(async |cluster: &Cluster| {
        make(cluster, "a", "1").await;
        make(cluster, "b", "1").await;
        let mut watch = Watch::open(cluster, &cluster.core("configmaps?timeoutSeconds=2")).await;
        let seen: BTreeSet<String> = watch.take(2).await.into_iter().collect();
        assert_eq!(seen, BTreeSet::from(["ADDED a".to_owned(), "ADDED b".to_owned()]));
        make(cluster, "c", "1").await;
        assert_eq!(watch.take(1).await, ["ADDED c"]);
        assert!(watch.next().await.is_none(), "the timeout ends it");
        let mut one = Watch::open(cluster, &cluster.core("configmaps?fieldSelector=metadata.name%3Db")).await;
        assert_eq!(one.take(1).await, ["ADDED b"]);
    })
    .await;
}

#[tokio::test]
async fn a_streamed_list_ends_with_a_bookmark() {
    on_each(async |cluster: &Cluster| {
        make(cluster, "a", "1").await;
        let all = cluster.core("configmaps");
        let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut watch = Watch::open(cluster, &format!("{all}?{query}")).await;
        assert_eq!(watch.take(1).await, ["ADDED a"]);
        let (kind, bookmark) = watch.next().await.unwrap();
        assert_eq!(kind, "BOOKMARK");
        assert_eq!(bookmark["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
        assert_eq!((&bookmark["kind"], &bookmark["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        make(cluster, "b", "1").await;
        assert_eq!(watch.take(1).await, ["ADDED b"]);
        let refused = cluster.get(&format!("{all}?watch=true&sendInitialEvents=true")).await;
        assert_eq!(
            refused.message(),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        );
    })
    .await;
}

#[tokio::test]
async fn a_watch_across_namespaces_sees_all() {
    on_each(async |cluster: &Cluster| {
        let start = cluster.get("/api/v1/configmaps?limit=1").await.revision();
        let label = &cluster.namespace;
        let mut watch = Watch::open(
            cluster,
            &format!("/api/v1/configmaps?resourceVersion={start}&labelSelector=v%3D{label}"),
        )
        .await;
        let mut other = json!({"metadata": {"name": "there", "labels": {"v": label}}});
        cluster.post("/api/v1/namespaces/default/configmaps", &other).await.ok();
        other["metadata"]["name"] = json!("here");
        cluster.post(&cluster.core("configmaps"), &other).await.ok();
        assert_eq!(watch.take(2).await, ["ADDED there", "ADDED here"]);
        cluster.delete("/api/v1/namespaces/default/configmaps/there").await.ok();
        assert_eq!(watch.take(1).await, ["DELETED there"]);
    })
    .await;
}

#[tokio::test]
async fn watches_come_as_tables() {
    on_each(async |cluster: &Cluster| {
        make(cluster, "a", "1").await;
        let path = cluster.core("configmaps?watch=true");
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let request = http::Request::get(path)
            .header("accept", accept)
            .body(Vec::new())
            .unwrap();
        let mut lines = cluster.client.request_stream(request).await.unwrap().lines();
        let event: Value = serde_json::from_str(&lines.next().await.unwrap().unwrap()).unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["kind"]),
            (&json!("ADDED"), &json!("Table"))
        );
        assert_eq!(event["object"]["rows"][0]["cells"][0], "a");
    })
    .await;
}

#[tokio::test]
async fn kubes_own_watcher_keeps_up() {
    on_each(async |cluster: &Cluster| {
        for streaming in [false, true] {
            let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
            let config = if streaming {
                watcher::Config::default().streaming_lists()
            } else {
                watcher::Config::default()
            };
            let mut seen = pin!(watcher(api.clone(), config));
            let mut names = BTreeSet::new();
            let wanted: BTreeSet<String> = (0..20).map(|index| format!("{streaming}-{index:02}")).collect();
            for name in &wanted {
                make(cluster, name, "1").await;
            }
            while !wanted.is_subset(&names) {
                let event = tokio::time::timeout(MAX_WAIT, seen.try_next())
                    .await
                    .expect("no event in time")
                    .unwrap();
                match event.unwrap() {
                    watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                        names.insert(object.metadata.name.unwrap());
                    }
                    watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone => {}
                }
            }
            let listed = api.list(&ListParams::default()).await.unwrap();
            assert!(listed.items.len() >= wanted.len());
        }
    })
    .await;
}
