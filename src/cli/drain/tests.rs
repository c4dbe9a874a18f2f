use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde_json::{Value, json};

use super::*;
use crate::cli::client::tests::{served, workload};

/// A queue with a pod that was started between the operator's first list and the hold.
#[derive(Default)]
struct Seen {
    lists: AtomicUsize,
    evicted: AtomicBool,
}

fn meta() -> Value {
    json!({"asOf": "2026-01-01T00:00:00Z", "leads": true})
}

fn held_workload() -> Value {
    let mut workload = workload();
    workload["held"] = json!({"queue": "lab"});
    workload
}

/// The first list is answered from the cache once more.
async fn list(State(seen): State<Arc<Seen>>) -> Json<Value> {
    let number = seen.lists.fetch_add(1, Ordering::SeqCst);
    let runs = number > 1 && !seen.evicted.load(Ordering::SeqCst);
    let workloads: Vec<Value> = runs.then(held_workload).into_iter().collect();
    Json(json!({"meta": meta(), "total": workloads.len(), "workloads": workloads}))
}

async fn details() -> Json<Value> {
    let pod = json!({"name": "train-0", "state": "Running", "requested": {"gpu": 1.0, "cpu": 1.0, "memory": 0.0}});
    Json(
        json!({"meta": meta(), "workload": held_workload(), "evidence": [], "queues": [], "pods": [pod], "timeline": []}),
    )
}

async fn queues() -> Json<Value> {
    Json(json!({"meta": meta(), "queues": []}))
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

/// The first two lists are older than the hold.
const OLDEST_HERE: Duration = Duration::from_millis(700);

const HOW: evict::Evictions = evict::Evictions {
    force: false,
    timeout: Duration::from_secs(60),
};

/// The queue is drained. All queues are listed like this.
async fn drain(all_queues: MethodRouter<Arc<Seen>>) {
    let seen = Arc::new(Seen::default());
    let router = Router::new()
        .route("/api/v1/workloads", get(list))
        .route("/api/v1/workloads/team/train", get(details))
        .route("/api/v1/namespaces/team/pods/train-0", get(pod))
        .route("/api/v1/namespaces/team/pods/train-0/eviction", post(evict_pod))
        .route("/api/v1/queues", all_queues)
        .with_state(Arc::clone(&seen));
    let client = served(router).await;
    evict_all(&client, "lab", HOW, OLDEST_HERE).await.unwrap();
    assert!(seen.evicted.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_list_older_than_the_hold_does_not_show_that_a_queue_is_empty() {
    drain(get(queues)).await;
}

#[tokio::test]
async fn a_queue_is_drained_by_a_caller_who_may_not_list_queues() {
    drain(get(may_not_list)).await;
}

#[tokio::test]
async fn a_queue_is_found_empty_with_a_timeout_below_the_age_of_lists() {
    let empty = async || Json(json!({"meta": meta(), "total": 0, "workloads": []}));
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
