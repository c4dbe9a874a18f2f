//! Evictions: deletions that respect disruption budgets, and that the pods' conditions show.

use serde_json::{Value, json};

use super::harness::{Answer, Cluster, on_each};
use super::pods::{bind, pod};

/// Creates a bound pod of the app `web` that runs, and is ready or not.
async fn running(cluster: &Cluster, name: &str, ready: &str) {
    let all = cluster.core("pods");
    let mut object = pod(name, &json!({}));
    object["metadata"]["labels"] = json!({"app": "web"});
    cluster.post(&all, &object).await.ok();
    assert_eq!(bind(cluster, name, "n1").await.0, 201);
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    cluster.strategic(&format!("{all}/{name}/status"), &status).await.ok();
}

/// Creates the budget of the app `web`.
async fn protect(cluster: &Cluster) {
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
    let budget = json!({"metadata": {"name": "web"}, "spec": spec});
    cluster
        .post(&cluster.group("policy/v1", "poddisruptionbudgets"), &budget)
        .await
        .ok();
}

/// Writes the status that a disruption controller would write.
async fn tell(cluster: &Cluster, status: Value) {
    let path = cluster.group("policy/v1", "poddisruptionbudgets/web/status");
    cluster.merge(&path, &json!({"status": status})).await.ok();
}

async fn evict(cluster: &Cluster, name: &str) -> Answer {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": cluster.namespace}});
    cluster
        .post(&cluster.core(&format!("pods/{name}/eviction")), &eviction)
        .await
}

#[tokio::test]
async fn an_eviction_respects_budgets() {
    on_each(async |cluster: &Cluster| {
        for name in ["a", "b"] {
            running(cluster, name, "True").await;
        }
        protect(cluster).await;
        let early = evict(cluster, "a").await;
        assert_eq!(
            (early.refusal(), &early.body["details"]["causes"][0]["message"]),
            (
                (429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."),
                &json!("The disruption budget web is still being processed by the server.")
            )
        );
        let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2});
        tell(cluster, status).await;
        let evicted = evict(cluster, "a").await;
        assert_eq!((evicted.code, evicted.body["status"].as_str()), (201, Some("Success")));
        let leaving = cluster.get(&cluster.core("pods/a")).await.ok();
        assert!(leaving["metadata"]["deletionTimestamp"].is_string());
        let conditions = leaving["status"]["conditions"].as_array().unwrap();
        let disrupted = conditions.iter().find(|one| one["type"] == "DisruptionTarget").expect("a condition");
        assert_eq!([&disrupted["status"], &disrupted["reason"]], ["True", "EvictionByEvictionAPI"]);
        let budget = cluster.get(&cluster.group("policy/v1", "poddisruptionbudgets/web")).await.ok();
        assert_eq!(budget["status"]["disruptionsAllowed"], 0);
        assert!(budget["status"]["disruptedPods"]["a"].is_string());
        let spent = evict(cluster, "b").await;
        assert_eq!(spent.code, 429);
        assert_eq!(spent.body["details"]["causes"][0]["message"], "The disruption budget web does not allow evicting pods currently");
        assert_eq!(evict(cluster, "none").await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn a_pod_that_is_not_ready_may_go_while_enough_others_are() {
    on_each(async |cluster: &Cluster| {
        for (name, ready) in [("ready", "True"), ("a", "False"), ("b", "False")] {
            running(cluster, name, ready).await;
        }
        protect(cluster).await;
        let counted = |healthy: u32| {
            json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": 1, "expectedPods": 3})
        };
        tell(cluster, counted(1)).await;
        assert_eq!(evict(cluster, "ready").await.code, 429);
        assert_eq!(evict(cluster, "a").await.code, 201);
        let path = cluster.group("policy/v1", "poddisruptionbudgets/web");
        let budget = cluster.get(&path).await.ok();
        assert_eq!(budget["status"]["disruptedPods"], Value::Null, "it does not count");

        tell(cluster, counted(0)).await;
        assert_eq!(evict(cluster, "b").await.code, 429, "it might be needed");
        let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
        cluster.merge(&path, &always).await.ok();
        assert_eq!(evict(cluster, "b").await.code, 201);
    })
    .await;
}

#[tokio::test]
async fn an_eviction_may_be_tried_without_effect_and_is_for_one_pod_only() {
    on_each(async |cluster: &Cluster| {
        running(cluster, "a", "True").await;
        let path = cluster.core("pods/a");
        let before = cluster.get(&path).await;
        let with = async |query: &str, options: Value| {
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": cluster.namespace},
                "deleteOptions": options,
            });
            cluster.post(&format!("{path}/eviction{query}"), &eviction).await.code
        };
        assert_eq!(with("", json!({"dryRun": ["All"]})).await, 201);
        let other = "00000000-0000-0000-0000-000000000000";
        assert_eq!(with("", json!({"preconditions": {"uid": other}})).await, 409);
        assert_eq!(with("?dryRun=All", json!({})).await, 201);
        assert_eq!(cluster.get(&path).await.revision(), before.revision());
        let seen = json!({"preconditions": {"uid": before.body["metadata"]["uid"], "resourceVersion": before.revision()}});
        assert_eq!(with("", seen).await, 201);
        let leaving = cluster.get(&path).await.ok();
        assert!(leaving["metadata"]["deletionTimestamp"].is_string());
    })
    .await;
}
