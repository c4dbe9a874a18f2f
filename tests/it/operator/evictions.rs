//! Evictions that the API server refuses, budgets that forbid them, and workloads that may not cause any yet.

use std::time::Instant;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use unikai::api::PodGroup;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, Replica, TEAM, eventually, phase, pod};

/// A pod that others may be evicted for.
fn urgent(name: &str, gpus: u32) -> serde_json::Value {
    let mut urgent = pod(name, gpus);
    urgent["metadata"]["labels"]["priorityClassName"] = json!("build");
    urgent
}

/// How often the API server was asked to evict a pod, and to delete it.
fn asked(lab: &Lab, operator: &Replica, pod: &str) -> (usize, usize) {
    let writes = lab.server.audit().writes_of(&operator.identity);
    let of_pod = writes
        .iter()
        .filter(|write| write.resource == "pods" && write.name == pod);
    let evictions = of_pod.clone().filter(|write| write.subresource == "eviction").count();
    (evictions, of_pod.filter(|write| write.verb == "delete").count())
}

async fn is_running(lab: &Lab, name: &str) -> bool {
    lab.pods().get(name).await.is_ok_and(|pod| phase(&pod) == "Running")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_eviction_backs_off_and_another_pod_is_evicted() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2), NodeSpec::cpu("cpu-1")]).await;
    let operator = lab.replica("one").await;
    for name in ["yields", "stays"] {
        lab.create(pod(name, 1)).await.unwrap();
        lab.runs(name).await;
    }
    let evictions_of_one = Match {
        name: Some("stays".to_owned()),
        ..Match::evictions()
    };
    let refuse = Effect::Refuse {
        code: 403,
        retry_after: None,
    };
    lab.server.faults().add(evictions_of_one, refuse, Times::Always);
    let began = Instant::now();
    lab.create(urgent("urgent", 1)).await.unwrap();
    lab.runs("urgent").await;
    assert!(
        is_running(&lab, "stays").await,
        "the last to come is the first to go, but cannot"
    );
    assert_eq!(asked(&lab, &operator, "yields"), (1, 0));

    // Only the pod is left that cannot be evicted, and many changes cause cycles.
    lab.create(urgent("unlucky", 1)).await.unwrap();
    lab.unschedulable("unlucky").await;
    for number in 0..30 {
        let name = format!("busy-{number}");
        lab.create(pod(&name, 0)).await.unwrap();
        lab.runs(&name).await;
    }
    let (evictions, deletions) = asked(&lab, &operator, "stays");
    let most = most_attempts(began.elapsed().as_secs());
    assert!(
        (1..=most).contains(&evictions),
        "{evictions} of {most} in {:?}",
        began.elapsed()
    );
    assert_eq!(deletions, 0);
    let metrics = operator.get("/metrics").await.unwrap();
    let counted = |family: &str, label: &str| -> Option<usize> {
        let is_it = |line: &&str| line.starts_with(family) && line.contains("preempt") && line.contains(label);
        metrics.lines().find(is_it)?.rsplit(' ').next()?.parse().ok()
    };
    let refused = counted("unikai_evictions_refused_total", "cause=\"refused\"").unwrap_or_default();
    assert!(refused + 1 >= evictions, "{refused} of {evictions}\n{metrics}");
    let attempted = counted("unikai_evictions_attempted_total", "").unwrap_or_default();
    assert!(attempted > refused, "{attempted} and {refused}");
    assert_eq!(counted("unikai_evicted_pods_total", ""), Some(1));
    operator.assert_no_errors();
}

/// The most attempts to evict a pod within that time: one at once, the next after 5 seconds, then after twice as long each.
fn most_attempts(seconds: u64) -> usize {
    let mut most = 1;
    while 5 * ((1_u64 << most) - 1) <= seconds {
        most += 1;
    }
    most
}

/// The API server is overloaded, or fails: its answers do not say that a further attempt is useless.
#[tokio::test(flavor = "multi_thread")]
async fn a_temporarily_refused_eviction_is_retried_at_growing_intervals() {
    for code in [429, 500] {
        let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1), NodeSpec::cpu("cpu-1")]).await;
        let operator = lab.replica("one").await;
        lab.create(pod("stays", 1)).await.unwrap();
        lab.runs("stays").await;
        let refuse = Effect::Refuse {
            code,
            retry_after: None,
        };
        lab.server.faults().add(Match::evictions(), refuse, Times::Always);
        let began = Instant::now();
        lab.create(urgent("urgent", 1)).await.unwrap();
        lab.unschedulable("urgent").await;
        for number in 0..20 {
            let name = format!("busy-{number}");
            lab.create(pod(&name, 0)).await.unwrap();
            lab.runs(&name).await;
        }
        let (asked_for, deletions) = asked(&lab, &operator, "stays");
        // Each attempt is two requests.
        let most = 2 * most_attempts(began.elapsed().as_secs());
        assert!((1..=most).contains(&asked_for), "{code}: {asked_for} of {most}");
        assert_eq!(deletions, 0, "{code}");
        assert!(is_running(&lab, "stays").await, "{code}");
        lab.server.faults().clear();
        lab.runs("urgent").await;
        operator.assert_no_errors();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_other_victims_a_budget_is_overruled_and_named() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let operator = lab.replica("one").await;
    let mut kept = pod("kept", 1);
    kept["metadata"]["labels"]["app"] = json!("kept");
    lab.create(kept).await.unwrap();
    lab.runs("kept").await;
    lab.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keeps", "namespace": TEAM},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}},
    }))
    .await
    .unwrap();
    let budgets = Api::<k8s_openapi::api::policy::v1::PodDisruptionBudget>::namespaced(lab.client.clone(), TEAM);
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
    }});
    let patched = budgets
        .patch_status("keeps", &PatchParams::default(), &Patch::Merge(status))
        .await;
    patched.unwrap();

    lab.create(urgent("urgent", 1)).await.unwrap();
    lab.runs("urgent").await;
    assert_eq!(
        asked(&lab, &operator, "kept").1,
        1,
        "the eviction API would have refused"
    );
    eventually("the event names the budget", async || {
        let events = Api::<Event>::namespaced(lab.client.clone(), TEAM)
            .list(&ListParams::default())
            .await;
        let events = events.map_err(|error| error.to_string())?;
        let told: Vec<_> = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some("Evict"))
            .collect();
        let named = told.iter().filter_map(|event| event.message.as_deref());
        let mut named =
            named.filter(|text| text.contains("PodDisruptionBudget keeps does not allow it and was overruled"));
        named.next().map(drop).ok_or_else(|| format!("{told:?}"))
    })
    .await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preemption_delay_counts_from_the_first_pod_before_the_group_is_written() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let operator = lab.replica("one").await;
    lab.create(pod("running", 1)).await.unwrap();
    lab.runs("running").await;
    let mut patient = urgent("patient", 1);
    patient["metadata"]["annotations"] = json!({"kai.scheduler/preemption-delay": "1h"});
    lab.create(patient).await.unwrap();
    lab.unschedulable("patient").await;
    eventually("the pod group says what it waits for", async || {
        let groups = Api::<PodGroup>::namespaced(lab.client.clone(), TEAM)
            .list(&ListParams::default())
            .await;
        let groups = groups.map_err(|error| error.to_string())?;
        let told: Vec<_> = groups.iter().filter_map(|group| group.status.as_ref()).collect();
        let told = serde_json::to_string(&told).map_err(|error| error.to_string())?;
        let says = told.contains("within its preemption delay window (1h0m0s)");
        says.then_some(()).ok_or(told)
    })
    .await;
    assert!(is_running(&lab, "running").await);
    assert_eq!(asked(&lab, &operator, "running"), (0, 0));
    operator.assert_no_errors();
}
