use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::routing::{get, patch};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::*;
use crate::api::names::annotation;
use crate::cli::client::tests::{served, workload};

/// The holds that were written, and the end of the command, which comes with the first.
#[derive(Default)]
struct Seen {
    holds: Mutex<Vec<Value>>,
    end: CancellationToken,
}

async fn change(State(seen): State<Arc<Seen>>, body: Bytes) -> Json<Value> {
    let patch: Value = serde_json::from_slice(&body).unwrap();
    let hold = patch["metadata"]["annotations"][annotation::HOLD].clone();
    seen.holds.lock().unwrap().push(hold);
    seen.end.cancel();
    Json(json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "team"}, "spec": {},
    }))
}

/// The operator has not read the hold yet.
async fn details() -> Json<Value> {
    let meta = json!({"asOf": "2026-01-01T00:00:00Z", "leads": true});
    Json(json!({"meta": meta, "workload": workload(), "evidence": [], "queues": [], "pods": [], "timeline": []}))
}

#[tokio::test]
async fn a_command_that_ends_early_releases_the_pod_group() {
    let seen = Arc::new(Seen::default());
    let router = Router::new()
        .route("/api/v1/workloads/team/train", get(details))
        .route(
            "/apis/scheduling.run.ai/v2alpha2/namespaces/team/podgroups/train",
            patch(change),
        )
        .with_state(Arc::clone(&seen));
    let client = served(router).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    let ended = evict_held(&client, "team", "train", deadline, &seen.end).await;
    assert_eq!(ended.unwrap_err().to_string(), "interrupted");
    assert_eq!(*seen.holds.lock().unwrap(), [json!("requeued"), Value::Null]);
}
