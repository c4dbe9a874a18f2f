use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde_json::{Value, json};

use super::*;
use crate::cli::client::tests::served;

/// A queue with a pod that was started between the operator's first list and the hold.
#[derive(Default)]
struct Seen {
    lists: AtomicUsize,
    evicted: AtomicBool,
}

fn meta(second: usize) -> Value {
    json!({"asOf": format!("2026-01-01T00:00:{second:02}Z"), "leads": true})
}

fn workload() -> Value {
    json!({
        "namespace": "team", "name": "train", "queue": "lab", "shard": "default", "priority": 50, "preemptible": true, "state": "Running",
        "pods": {"min": 1, "wanted": 1, "running": 1, "waiting": 0, "gated": 0, "leaving": 0, "ended": 0},
        "requested": {"gpu": 1.0, "cpu": 1.0, "memory": 0.0}, "held": {"queue": "lab"},
    })
}

/// The first list is answered from the cache once more.
async fn list(State(seen): State<Arc<Seen>>) -> Json<Value> {
    let number = seen.lists.fetch_add(1, Ordering::SeqCst);
    let (second, workloads) = match (number, seen.evicted.load(Ordering::SeqCst)) {
        (0 | 1, _) => (0, Vec::new()),
        (_, false) => (1, vec![workload()]),
        (_, true) => (2, Vec::new()),
    };
    Json(json!({"meta": meta(second), "total": workloads.len(), "workloads": workloads}))
}

async fn details() -> Json<Value> {
    let pod = json!({"name": "train-0", "state": "Running", "requested": {"gpu": 1.0, "cpu": 1.0, "memory": 0.0}});
    Json(json!({"meta": meta(1), "workload": workload(), "evidence": [], "queues": [], "pods": [pod], "timeline": []}))
}

async fn queues() -> Json<Value> {
    Json(json!({"meta": meta(2), "queues": []}))
}

async fn may_not_list() -> (StatusCode, Json<Value>) {
    let error = "you need the right to list queues.scheduling.run.ai in the cluster";
    (StatusCode::FORBIDDEN, Json(json!({"error": error})))
}

async fn pod(State(seen): State<Arc<Seen>>) -> (StatusCode, Json<Value>) {
    if seen.evicted.load(Ordering::SeqCst) {
        let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "not found", "reason": "NotFound", "code": 404});
        return (StatusCode::NOT_FOUND, Json(status));
    }
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": true});
    let metadata = json!({"name": "train-0", "namespace": "team", "uid": "2", "ownerReferences": [owner]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    (StatusCode::OK, Json(pod))
}

async fn evict_pod(State(seen): State<Arc<Seen>>) -> (StatusCode, Json<Value>) {
    seen.evicted.store(true, Ordering::SeqCst);
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Success"});
    (StatusCode::CREATED, Json(status))
}

/// The operator and the API server, but for the list of queues.
fn router() -> Router<Arc<Seen>> {
    Router::new()
        .route("/api/v1/workloads", get(list))
        .route("/api/v1/workloads/team/train", get(details))
        .route("/api/v1/namespaces/team/pods/train-0", get(pod))
        .route("/api/v1/namespaces/team/pods/train-0/eviction", post(evict_pod))
}

/// The first two lists are older than the hold.
const OLDEST_HERE: Duration = Duration::from_millis(700);

const HOW: evict::Evictions = evict::Evictions {
    force: false,
    timeout: Duration::from_secs(60),
};

#[tokio::test]
async fn a_list_older_than_the_hold_does_not_show_that_a_queue_is_empty() {
    let seen = Arc::new(Seen::default());
    let router = router().route("/api/v1/queues", get(queues));
    let client = served(router.with_state(Arc::clone(&seen))).await;
    evict_all(&client, "lab", HOW, OLDEST_HERE).await.unwrap();
    assert!(seen.evicted.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_queue_is_drained_by_a_caller_who_may_not_list_queues() {
    let seen = Arc::new(Seen::default());
    let router = router().route("/api/v1/queues", get(may_not_list));
    let client = served(router.with_state(Arc::clone(&seen))).await;
    evict_all(&client, "lab", HOW, OLDEST_HERE).await.unwrap();
    assert!(seen.evicted.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_queue_is_found_empty_with_a_timeout_below_the_age_of_lists() {
    let empty = async || Json(json!({"meta": meta(1), "total": 0, "workloads": []}));
    let router: Router = Router::new()
        .route("/api/v1/workloads", get(empty))
        .route("/api/v1/queues", get(queues));
    let client = served(router).await;
    let how = evict::Evictions {
        timeout: Duration::ZERO,
        ..HOW
    };
    evict_all(&client, "lab", how, OLDEST_HERE).await.unwrap();
}
