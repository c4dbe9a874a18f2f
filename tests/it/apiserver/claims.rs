//! Resource claims: what the API server refuses to write into their statuses.

use serde_json::{Value, json};

use super::harness::{Answer, Cluster, on_each};

/// A refusal because of one field.
#[track_caller]
fn assert_refused(answer: &Answer, field: &str) {
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let named = causes.iter().any(|cause| cause["field"] == field);
    assert!(answer.code == 422 && named, "{answer:?}");
}

fn allocation(request: &str, device: &str) -> Value {
    json!({"devices": {"results": [{"request": request, "driver": "d", "pool": "p", "device": device}]}})
}

fn consumers(numbers: std::ops::Range<usize>) -> Value {
    let consumer = |number: usize| json!({"resource": "pods", "name": format!("p{number}"), "uid": number.to_string()});
    numbers.map(consumer).collect()
}

#[tokio::test]
async fn an_allocation_stays_as_long_as_it_is_used() {
    on_each(async |cluster: &Cluster| {
        let all = cluster.group("resource.k8s.io/v1", "resourceclaims");
        let exactly = json!({"deviceClassName": "gpu"});
        let alternative = json!({"name": "small", "deviceClassName": "gpu"});
        let requests = json!([{"name": "gpu", "exactly": exactly}, {"name": "any", "firstAvailable": [alternative]}]);
        let claim =
            json!({"metadata": {"name": "data", "finalizers": ["example.com/hold"]}, "spec": {"devices": {"requests": requests}}});
        cluster.post(&all, &claim).await.ok();
        let one = format!("{all}/data");
        let status = format!("{one}/status");
        let write = async |fields: Value| cluster.merge(&status, &json!({"status": fields})).await;

        assert_refused(&write(json!({"reservedFor": consumers(0..1)})).await, "status.reservedFor");
        let unknown = write(json!({"allocation": allocation("other", "card-1")})).await;
        assert_refused(&unknown, "status.allocation.devices.results[0].request");
        write(json!({"allocation": allocation("any/small", "card-1")})).await.ok();
        write(json!({"allocation": null})).await.ok();

        let held = json!({"allocation": allocation("gpu", "card-1"), "reservedFor": consumers(0..1)});
        let labelled = json!({"status": held, "metadata": {"labels": {"a": "b"}, "finalizers": null}});
        let stored = cluster.merge(&status, &labelled).await.ok();
        assert_eq!(stored["metadata"]["labels"], Value::Null);
        assert_eq!(stored["metadata"]["finalizers"], json!(["example.com/hold"]));
        let moved = write(json!({"allocation": allocation("gpu", "card-2")})).await;
        assert_refused(&moved, "status.allocation");
        assert_refused(&write(json!({"allocation": null})).await, "status.reservedFor");
        assert_refused(&write(json!({"reservedFor": consumers(0..257)})).await, "status.reservedFor");
        write(json!({"reservedFor": consumers(0..256)})).await.ok();

        cluster.delete(&one).await.ok();
        let more = write(json!({"reservedFor": consumers(1..257)})).await;
        assert_refused(&more, "status.reservedFor");
        write(json!({"reservedFor": consumers(1..2)})).await.ok();
        write(json!({"allocation": null, "reservedFor": null})).await.ok();
        cluster.merge(&one, &json!({"metadata": {"finalizers": null}})).await.ok();
    })
    .await;
}
