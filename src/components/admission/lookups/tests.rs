//! What is looked up for new pods, against an API server in this process, on virtual time.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::components::tests::lab::{Lab, read, refuse, seconds};
use crate::devcluster::apiserver::{Effect, Match, Times};

/// A pod of `owner` with these labels.
fn pod(owner: &Value, labels: Value) -> Pod {
    let reference = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true,
    }]);
    read(json!({
        "metadata": {"namespace": "team", "name": "train-0", "labels": labels, "ownerReferences": reference},
        "spec": {"schedulerName": "kai-scheduler", "containers": []},
    }))
}

#[tokio::test(start_paused = true)]
async fn the_queue_of_a_pod_is_not_guessed_while_its_owner_cannot_be_read() {
    for fault in [refuse(503), Effect::Hang] {
        let lab = Lab::start(Settings::default(), &["team"]).await;
        for queue in ["default-queue", "research", "own"] {
            lab.stores
                .queues
                .insert(read(json!({"metadata": {"name": queue}, "spec": {}})));
        }
        let containers = json!([{"name": "main", "image": "i"}]);
        let job = lab
            .create(json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"namespace": "team", "name": "train", "labels": {"project": "research"}},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}},
            }))
            .await;
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": job["metadata"]});
        let lookups = Lookups::new(&lab.context, Arc::clone(&lab.stores));
        let queue_of = async |labels: Value| {
            let found = lookups.workload(&pod(&job, labels)).await;
            found.map(|found| found.queue)
        };
        lab.fault(Match::verb_on("get", "jobs"), fault, Times::Always);
        assert_eq!(queue_of(json!({})).await, None);
        assert_eq!(queue_of(json!({"kai.scheduler/queue": ""})).await, None);
        assert_eq!(
            queue_of(json!({"kai.scheduler/queue": "own"})).await.as_deref(),
            Some("own")
        );
        let mut bare = pod(&job, json!({}));
        bare.metadata.owner_references = None;
        let found = lookups.workload(&bare).await;
        assert_eq!(found.map(|found| found.queue).as_deref(), Some("default-queue"));

        lab.server.faults().clear();
        // A failed read counts for a second.
        sleep(seconds(2)).await;
        assert_eq!(queue_of(json!({})).await.as_deref(), Some("research"));
    }
}
