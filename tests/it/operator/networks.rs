//! Silent network failures: responses that never come or never end, watches that stall. Other work continues,
//! and hanging requests are repeated.

use serde_json::json;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, Replica, eventually, gang, phase, pod};

/// Deadlines that a test can wait for.
const HURRIED: &[&str] = &["--request-timeout", "2", "--watch-timeout", "2"];

async fn lab() -> Lab {
    Lab::start((0..8).map(|i| NodeSpec::gpu(format!("gpu-{i}"), 8)).collect()).await
}

/// A pod of another namespace.
fn elsewhere(name: &str) -> serde_json::Value {
    let mut pod = pod(name, 0);
    pod["metadata"]["namespace"] = json!("elsewhere");
    pod
}

async fn make_elsewhere(lab: &Lab) {
    lab.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: elsewhere}")
        .await;
}

/// Waits until so many pods of the other namespace run.
async fn run_elsewhere(lab: &Lab, count: usize) {
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(lab.client.clone(), "elsewhere");
    eventually(&format!("{count} pods run elsewhere"), async || {
        let pods = pods
            .list(&kube::api::ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        let running = pods.iter().filter(|pod| phase(pod) == "Running").count();
        (running == count).then_some(()).ok_or_else(|| format!("{running} run"))
    })
    .await;
}

/// What this replica asks for, with that verb and resource.
fn of(replica: &Replica, verb: &str, resource: &str) -> Match {
    Match {
        user: Some(replica.identity.user.clone()),
        ..Match::verb_on(verb, resource)
    }
}

/// More bindings hang than may be under way at once.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_bindings_delay_no_others_and_are_retried() {
    let lab = lab().await;
    make_elsewhere(&lab).await;
    let operator = lab.replica_with("one", HURRIED).await;
    let hangs = lab.server.faults().add(
        Match {
            namespace: Some("elsewhere".to_owned()),
            ..Match::bindings()
        },
        Effect::Hang,
        Times::Always,
    );
    for i in 0..40 {
        lab.create(elsewhere(&format!("hangs-{i}"))).await.unwrap();
    }
    eventually("bindings hang", async || {
        (lab.server.faults().struck(hangs) >= 30)
            .then_some(())
            .ok_or_else(String::new)
    })
    .await;
    for i in 0..10 {
        lab.create(pod(&format!("good-{i}"), 1)).await.unwrap();
    }
    lab.running(10).await;
    lab.server.faults().clear();
    run_elsewhere(&lab, 40).await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_took_effect_without_an_answer_is_not_repeated_elsewhere() {
    let lab = lab().await;
    let operator = lab.replica_with("one", HURRIED).await;
    let faults = lab.server.faults();
    faults.add(Match::bindings(), Effect::HangAfter, Times::Next(3));
    faults.add(Match::bindings(), Effect::Stall { after: 5 }, Times::Next(3));
    for i in 0..16 {
        lab.create(pod(&format!("load-{i}"), 4)).await.unwrap();
    }
    lab.running(16).await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

/// Background writes, one kind after the other.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_writes_of_pod_groups_statuses_and_events_do_not_stop_bindings() {
    let lab = lab().await;
    let operator = lab.replica_with("one", HURRIED).await;
    let written = [
        ("create", "podgroups"),
        ("patch", "podgroups"),
        ("create", "events"),
        ("patch", "queues"),
        ("patch", "pods"),
    ];
    for (round, (verb, resource)) in written.into_iter().enumerate() {
        lab.server
            .faults()
            .add(of(&operator, verb, resource), Effect::Hang, Times::Always);
        for i in 0..4 {
            lab.create(pod(&format!("round-{round}-{i}"), 1)).await.unwrap();
        }
        lab.running(4 * (round + 1)).await;
        lab.server.faults().clear();
    }
    let groups = kube::core::GroupVersionKind::gvk("scheduling.run.ai", "v2alpha2", "PodGroup");
    let groups = kube::api::ApiResource::from_gvk(&groups);
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(lab.client.clone(), &groups);
    eventually("every pod group is written in the end, with its status", async || {
        let groups = api
            .list(&kube::api::ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        let told = groups
            .iter()
            .filter(|group| group.data["status"]["resourcesStatus"]["allocated"]["nvidia.com/gpu"] == "1")
            .count();
        (told == 20)
            .then_some(())
            .ok_or_else(|| format!("{told} of {}", groups.items.len()))
    })
    .await;
    operator.assert_no_errors();
}

/// Each write of a bind to a part of a GPU hangs once, and so does each that gives the GPU back.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_steps_of_binds_are_repeated() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2)]).await;
    let sharing: &[&str] = &["--gpu-sharing", "true"];
    let operator = lab.replica_with("one", &[HURRIED, sharing].concat()).await;
    let steps = [
        ("create", "bindrequests"),
        ("create", "pods"),
        ("create", "configmaps"),
        ("patch", "pods"),
        ("delete", "bindrequests"),
        ("delete", "pods"),
    ];
    for (round, (verb, resource)) in steps.into_iter().enumerate() {
        let hangs = of(&operator, verb, resource);
        let hangs = lab.server.faults().add(hangs, Effect::Hang, Times::Next(1));
        let (shares, plain) = (format!("shares-{round}"), format!("plain-{round}"));
        let mut half = pod(&shares, 0);
        half["metadata"]["annotations"] = json!({"gpu-fraction": "0.5"});
        lab.create(half).await.unwrap();
        lab.create(pod(&plain, 0)).await.unwrap();
        lab.runs(&plain).await;
        lab.runs(&shares).await;
        lab.delete_pod(&shares).await;
        eventually(&format!("{verb} {resource} hangs"), async || {
            (lab.server.faults().struck(hangs) == 1).then_some(())
        })
        .await;
        lab.nothing_left().await;
    }
    lab.assert_safe().await;
    assert_eq!(lab.world.refused_gpu_pods(), 0);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_registered_after_a_registration_that_hangs() {
    let lab = lab().await;
    let faults = lab.server.faults();
    let written = [
        "secrets",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ];
    let hang = written.map(|resource| faults.add(Match::verb_on("create", resource), Effect::Hang, Times::Next(1)));
    let operator = lab.replica_with("one", HURRIED).await;
    for (resource, hangs) in written.iter().zip(hang) {
        eventually(&format!("the creation of {resource} hangs"), async || {
            (faults.struck(hangs) == 1).then_some(())
        })
        .await;
    }
    lab.create(pod("meanwhile", 1)).await.unwrap();
    lab.runs("meanwhile").await;
    let mut attempt = 0;
    eventually("a pod of a queue that does not exist is refused", async || {
        attempt += 1;
        let mut lost = pod(&format!("lost-{attempt}"), 0);
        lost["metadata"]["labels"]["kai.scheduler/queue"] = json!("nosuch");
        match lab.create(lost).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            created => Err(format!("{:?}", created.map(drop))),
        }
    })
    .await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_reads_of_owners_delay_only_their_own_pods() {
    let lab = lab().await;
    let operator = lab.replica_with("one", HURRIED).await;
    lab.server
        .faults()
        .add(of(&operator, "get", "jobs"), Effect::Hang, Times::Next(2));
    lab.create(gang("owned", 2, 1)).await.unwrap();
    lab.create(pod("bare", 1)).await.unwrap();
    lab.runs("bare").await;
    lab.running(3).await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_taken_after_hanging_requests() {
    let lab = lab().await;
    let lease = &[
        "--lease-duration",
        "6",
        "--lease-renew-deadline",
        "3",
        "--lease-retry-period",
        "1",
    ];
    let faults = lab.server.faults();
    faults.add(Match::verb_on("create", "leases"), Effect::Hang, Times::Next(1));
    faults.add(Match::verb_on("create", "leases"), Effect::HangAfter, Times::Next(1));
    let operator = lab.replica_with("one", &[HURRIED, lease].concat()).await;
    operator.leads().await;
    let taken = faults.add(Match::verb_on("update", "leases"), Effect::Hang, Times::Next(1));
    eventually("a renewal hangs", async || {
        (faults.struck(taken) == 1).then_some(()).ok_or_else(String::new)
    })
    .await;
    lab.create(pod("meanwhile", 1)).await.unwrap();
    lab.runs("meanwhile").await;
    operator.leads().await;
    let state = operator.get("/state").await.unwrap();
    assert!(state.contains("\"transitions\":0"), "one renewal may hang: {state}");
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_watches_are_replaced() {
    let lab = lab().await;
    let operator = lab.replica_with("one", HURRIED).await;
    operator.leads().await;
    for (round, resource) in ["pods", "nodes", "queues", "podgroups", "leases"]
        .into_iter()
        .enumerate()
    {
        lab.server.faults().silence_watches(of(&operator, "watch", resource));
        lab.create(gang(&format!("round-{round}"), 2, 1)).await.unwrap();
        lab.running(2 * (round + 1)).await;
    }
    // All at once, and while something is to be learned of each.
    lab.server.faults().silence_watches(Match {
        user: Some(operator.identity.user.clone()),
        verb: Some("watch".to_owned()),
        ..Match::default()
    });
    lab.patch_node("gpu-0", json!({"spec": {"unschedulable": true}})).await;
    lab.create(pod("after", 8)).await.unwrap();
    lab.runs("after").await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

/// The first list of a kind comes up to a point, and no further.
#[tokio::test(flavor = "multi_thread")]
async fn lists_that_never_end_are_restarted() {
    let lab = lab().await;
    let faults = lab.server.faults();
    for (resource, after) in [("pods", 0), ("nodes", 500), ("queues", usize::MAX)] {
        faults.add(
            Match::verb_on("list", resource),
            Effect::Stall { after },
            Times::Next(1),
        );
    }
    let operator = lab.replica_with("one", HURRIED).await;
    lab.create(pod("good", 1)).await.unwrap();
    lab.runs("good").await;
    operator.assert_no_errors();
}
