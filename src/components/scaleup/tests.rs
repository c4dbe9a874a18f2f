//! What is written for scaling pods, against an API server in this process, on virtual time.

use std::sync::Arc;

use tokio::time::sleep;

use super::*;
use crate::components::Settings as OfComponents;
use crate::components::tests::lab::{Lab, read, refuse, seconds};
use crate::devcluster::apiserver::{Match, Times};

/// A pod that finds no place.
fn waiting(name: &str, portion: &str) -> Arc<Pod> {
    let reported = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    Arc::new(read(json!({
        "metadata": {"namespace": "team", "name": name, "annotations": {"gpu-fraction": portion}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "i"}]},
        "status": {"phase": "Pending", "conditions": [reported]},
    })))
}

/// The writes for three pods that need two GPUs, in the first seconds, if the creation of the first one's scaling pod, or of all, is refused.
async fn writes(of_all: bool, code: u16) -> Vec<String> {
    let lab = Lab::start(OfComponents::default(), &["kai-scale-adjust"]).await;
    let account = json!({"namespace": "kai-scale-adjust", "name": "kai-scale-adjust"});
    lab.create(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}))
        .await;
    let first = format!("scaling-{}", pods::short_digest("team/a"));
    let creates = Match {
        name: (!of_all).then_some(first),
        ..Match::verb_on("create", "pods")
    };
    lab.fault(creates, refuse(code), Times::Always);
    let (changes, inbox) = mpsc::channel(16);
    tokio::spawn(run(lab.context.clone(), inbox));
    let pods = [("a", "0.9"), ("b", "0.9"), ("c", "0.1")];
    let shown = pods.map(|(name, portion)| Change::Applied(Object::Pod(waiting(name, portion))));
    for change in shown.into_iter().chain([Change::Synced(Kind::Pod)]) {
        changes.send(ToScaleUp::Change(change)).await.expect("it runs");
    }
    sleep(seconds(4)).await;
    lab.writes()
}

#[tokio::test(start_paused = true)]
async fn other_scaling_pods_are_created_if_one_is_refused() {
    let (created, reported) = ("create pods 201", "patch pods/status 200");
    assert_eq!(
        writes(false, 403).await,
        ["create pods 403", created, reported, created, reported]
    );
    assert_eq!(writes(true, 422).await, ["create pods 422"; 3], "each is tried once");
    for busy_or_unknown in [429, 500] {
        let failed = format!("create pods {busy_or_unknown}");
        assert_eq!(writes(false, busy_or_unknown).await, [failed], "the round ends");
    }
}
