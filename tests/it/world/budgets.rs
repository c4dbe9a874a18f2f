//! Disruption budgets: their statuses follow the pods that they select, and evictions follow the statuses.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::stage::{Stage, eventually};
use super::{deployment, pod, start};

/// A budget of this name for the pods of an app.
fn budget(name: &str, app: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": app}});
    json!({"metadata": {"name": name}, "spec": spec})
}

fn pod_of(app: &str, name: &str) -> Value {
    let mut pod = pod(name, json!({}));
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

/// Lets time pass until the status of a budget has these numbers: of pods that count, that are healthy, that are to be, and that may be evicted.
async fn until_it_tells(stage: &Stage, name: &str, numbers: [i32; 4]) -> PodDisruptionBudgetStatus {
    let told = async || {
        stage.pass(1);
        let budget: PodDisruptionBudget = stage.get(name).await;
        let status = budget.status.unwrap_or_default();
        let now = [
            status.expected_pods,
            status.current_healthy,
            status.desired_healthy,
            status.disruptions_allowed,
        ];
        let current = status.observed_generation == budget.metadata.generation;
        if current && now == numbers {
            Ok(status)
        } else {
            Err(format!("it tells {now:?}"))
        }
    };
    eventually(&format!("the budget {name} tells {numbers:?}"), told).await
}

pub async fn budgets_follow_their_pods(stage: &Stage) {
    stage.create::<Deployment>(deployment("web", 3)).await;
    for name in ["a", "b"] {
        stage.create::<Pod>(pod_of("lone", name)).await;
    }
    start(stage, 5).await;
    for (name, app, spec) in [
        ("web", "web", json!({"maxUnavailable": 1})),
        ("lone", "lone", json!({"minAvailable": "50%"})),
        ("none", "none", json!({"minAvailable": 0})),
    ] {
        stage.create::<PodDisruptionBudget>(budget(name, app, spec)).await;
    }
    until_it_tells(stage, "web", [3, 3, 2, 1]).await;
    until_it_tells(stage, "lone", [2, 2, 1, 1]).await;
    until_it_tells(stage, "none", [0, 0, 0, 0]).await;

    let pods: Vec<Pod> = stage.list().await;
    let web: Vec<String> = pods
        .iter()
        .filter(|pod| pod.labels().get("app").is_some_and(|app| app == "web"))
        .map(ResourceExt::name_any)
        .collect();
    stage.evict(&web[0]).await.expect("one may go");
    let refusal = stage.evict(&web[1]).await.expect_err("no other may");
    assert!(
        matches!(&refusal, kube::Error::Api(status) if status.code == 429),
        "{refusal}"
    );
    start(stage, 5).await;
    let status = until_it_tells(stage, "web", [3, 3, 2, 1]).await;
    assert_eq!(status.disrupted_pods, None);
    stage.evict(&web[1]).await.expect("the first one has been replaced");

    let all = json!({"spec": {"minAvailable": "100%"}});
    stage.patch::<PodDisruptionBudget>("lone", all).await;
    until_it_tells(stage, "lone", [2, 2, 2, 0]).await;
    stage.evict("a").await.expect_err("all are to stay");
}

/// The API server counts a pod as evicted before it deletes it, and may fail to.
pub async fn an_eviction_that_does_not_take_place_is_forgotten(stage: &Stage) {
    for name in ["a", "b"] {
        stage.create::<Pod>(pod_of("web", name)).await;
    }
    start(stage, 2).await;
    let spec = json!({"minAvailable": 1});
    stage.create::<PodDisruptionBudget>(budget("web", "web", spec)).await;
    until_it_tells(stage, "web", [2, 2, 1, 1]).await;
    // In the future, as the time of the scenario passes faster.
    let evicted = Time(Timestamp::now() + SignedDuration::from_hours(1));
    let status = Patch::Merge(json!({"status": {"disruptedPods": {"a": evicted, "gone": evicted}}}));
    stage
        .api::<PodDisruptionBudget>()
        .patch_status("web", &PatchParams::default(), &status)
        .await
        .expect("the status is written");
    let status = until_it_tells(stage, "web", [2, 1, 1, 0]).await;
    let counted = status.disrupted_pods.unwrap_or_default();
    assert_eq!(counted.keys().collect::<Vec<_>>(), ["a"]);
    stage.pass(2 * 3600);
    let status = until_it_tells(stage, "web", [2, 2, 1, 1]).await;
    assert_eq!(status.disrupted_pods, None);
}
