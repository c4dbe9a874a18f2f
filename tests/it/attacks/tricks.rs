//! Attacks by names, owners, and by ways to ask for GPUs of which quotas might not think.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use unikai::api::PodGroup;

use super::arena::{Arena, EVIL, TEAM, phase, pod, with_fraction, with_gpus};
use super::ask_for_more;
use crate::support::create;

/// A gang of two pods of the innocent tenant, which begins when it is no longer suspended.
fn suspended_gang() -> Value {
    let queue = json!({"kai.scheduler/queue": "innocent"});
    let mut template = pod("gang", json!({"cpu": "10m"}));
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "gang", "namespace": TEAM, "labels": queue, "annotations": {"kai.scheduler/batch-min-member": "2"}},
        "spec": {"parallelism": 2, "completions": 2, "suspend": true, "template": {"metadata": {"labels": queue}, "spec": template["spec"]}},
    })
}

/// The attacker's pods name the owner of another tenant's gang: by its UID, with another kind or name, in their own namespace. The result for them (not found,
/// forbidden) must not affect the gang.
pub async fn owners_of_others_are_named(arena: &Arena) {
    let gang = create(&arena.admin, suspended_gang()).await.expect("a job");
    let uid = gang.uid().expect("a UID");
    let named = async |mark: &str| {
        let references = [
            ("v1", "Secret", "gang"),
            ("batch/v1", "Job", "gang"),
            ("batch/v1", "Job", "another"),
            ("apps/v1", "Deployment", "gang"),
            ("nosuch.example.com/v1", "Job", "gang"),
        ];
        for (at, (version, kind, name)) in references.into_iter().enumerate() {
            let mut names = pod(&format!("names-{mark}-{at}"), json!({"cpu": "10m"}));
            names["metadata"]["ownerReferences"] =
                json!([{"apiVersion": version, "kind": kind, "name": name, "uid": uid}]);
            let _ = arena.create(names).await;
        }
        // A secret may not be read, so the pod is its own owner.
        arena.runs(&format!("names-{mark}-0")).await;
    };
    named("before").await;
    let jobs: Api<Job> = Api::namespaced(arena.admin.clone(), TEAM);
    let begin = Patch::Merge(json!({"spec": {"suspend": false}}));
    jobs.patch("gang", &PatchParams::default(), &begin)
        .await
        .expect("the gang begins");
    named("meanwhile").await;

    let (pods, groups): (Api<Pod>, Api<PodGroup>) = (
        Api::namespaced(arena.admin.clone(), TEAM),
        Api::namespaced(arena.admin.clone(), TEAM),
    );
    let expected = format!("pg-gang-{uid}");
    arena
        .eventually("the gang runs as one pod group", async || {
            let all = pods
                .list(&ListParams::default().labels("job-name=gang"))
                .await
                .map_err(|error| error.to_string())?;
            let seen: Vec<_> = all
                .iter()
                .map(|pod| (phase(pod), pod.annotations().get("pod-group-name").cloned()))
                .collect();
            let right = (String::from("Running"), Some(expected.clone()));
            (seen == [right.clone(), right])
                .then_some(())
                .ok_or_else(|| format!("{seen:?}"))
        })
        .await;
    arena
        .eventually("the pod group is of two", async || {
            let group = groups.get(&expected).await.map_err(|error| error.to_string())?;
            (group.spec.min_member == Some(2))
                .then_some(())
                .ok_or_else(|| format!("{:?}", group.spec))
        })
        .await;
    let _ = jobs.delete("gang", &DeleteParams::background()).await;
    let _ = pods
        .delete_collection(
            &DeleteParams::default().grace_period(0),
            &ListParams::default().labels("job-name=gang"),
        )
        .await;
}

/// A sidecar holds its GPUs as long as the pod, an init container before the others.
pub async fn sidecars_and_init_containers_hold_gpus(arena: &Arena) {
    let container = |name: &str, gpus: u32, stays: bool| {
        let mut container =
            json!({"name": name, "image": "ubuntu", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}});
        if stays {
            container["restartPolicy"] = json!("Always");
        }
        container
    };
    for round in 0..4 {
        let mut sidecar = with_gpus(&format!("sidecar-{round}"), 1);
        sidecar["spec"]["initContainers"] = json!([container("stays", 2, true)]);
        let mut two = pod(&format!("two-{round}"), json!({"cpu": "10m"}));
        two["spec"]["initContainers"] = json!([container("first", 1, true), container("second", 2, true)]);
        let mut other = with_gpus(&format!("others-{round}"), 1);
        other["spec"]["containers"] = json!([container("a", 1, false), container("b", 2, false)]);
        for pod in [sidecar, two, other] {
            let _ = arena.create(pod).await;
        }
        ask_for_more(arena, &format!("side-{round}")).await;
    }
}

/// A new pod has the name of a deleted one: the resources of the old pod are released once, and not too early.
pub async fn pods_come_again_under_their_names(arena: &Arena) {
    let now = DeleteParams::default().grace_period(0);
    for round in 0..25 {
        for at in 0..3 {
            let _ = arena
                .create(with_fraction(
                    &format!("again-{at}"),
                    ["0.9", "0.6", "0.3"][(at + round) % 3],
                ))
                .await;
        }
        tokio::time::sleep(Duration::from_millis(40 * (round as u64 % 7))).await;
        for at in 0..3 {
            let _ = arena.pods().delete(&format!("again-{at}"), &now).await;
        }
    }
    for at in 0..3 {
        let _ = arena.create(with_fraction(&format!("again-{at}"), "0.5")).await;
    }
    ask_for_more(arena, "again").await;
}

/// Annotations that we read as names have any text.
pub async fn annotations_name_what_has_no_such_name(arena: &Arena) {
    let long = "n".repeat(60_000);
    let names = [
        "../../team/podgroups/x",
        "?watch=true",
        "x/status",
        "%2e%2e",
        "\u{0}",
        "a\nb",
        "\u{202e}x",
        "ß",
        "",
        " ",
        ".",
        "..",
        &long,
    ];
    for (at, name) in names.iter().enumerate() {
        for (key, kind) in [
            ("pod-group-name", "group"),
            ("runai/shared-gpu-configmap", "map"),
            ("gpu-fraction-container-name", "part"),
            ("user", "user"),
        ] {
            let mut named = with_fraction(&format!("named-{kind}-{at}"), "0.01");
            named["metadata"]["annotations"][key] = json!(name);
            let _ = arena.create(named).await;
        }
        let mut group = pod(&format!("of-group-{at}"), json!({"cpu": "10m"}));
        group["metadata"]["annotations"] =
            json!({"pod-group-name": name, "received-resource-type": name, "kai.scheduler/topology": name});
        let _ = arena.create(group).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let answers = arena.http_get("/healthz").await.expect("an answer");
    assert!(answers.starts_with("HTTP/1.1 200"), "{answers}");
}

/// Tenants who may create disruption budgets cannot keep GPUs beyond their quota by them, nor delay others.
pub async fn budgets_forbid_everything(arena: &Arena) {
    for at in 0..300 {
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": format!("all-{at}"), "namespace": EVIL},
            "spec": {"maxUnavailable": 0, "selector": {}}});
        let _ = arena.create(budget).await;
    }
    for at in 0..150 {
        let _ = arena.create(pod(&format!("budgeted-{at}"), json!({"cpu": "1m"}))).await;
    }
    for round in 0..10 {
        for at in 0..20 {
            let touched = json!({"metadata": {"labels": {"touched": round.to_string()}}});
            let _ = arena.patch(&format!("budgeted-{at}"), touched).await;
        }
    }
    let api: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> = Api::namespaced(arena.tenant.clone(), EVIL);
    let _ = api
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await;
}

/// Gangs that can never start are tried without end, by the scheduler and by those who look for victims.
pub async fn gangs_are_larger_than_the_cluster(arena: &Arena) {
    for job in 0..3 {
        let mut template = with_gpus("gang", 1);
        template["spec"]["restartPolicy"] = json!("Never");
        let queue = json!({"kai.scheduler/queue": "greedy"});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": format!("large-{job}"), "namespace": EVIL, "labels": queue, "annotations": {"kai.scheduler/batch-min-member": "100"}},
            "spec": {"parallelism": 100, "completions": 100, "template": {"metadata": {"labels": queue}, "spec": template["spec"]}}});
        let _ = arena.create(job).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
}

/// Unauthenticated clients send requests to the HTTP server, with invalid tokens.
pub async fn strangers_ask_for_everything(arena: &Arena) {
    let paths = [
        "/api/v1/workloads",
        "/state",
        "/api/v1/queues",
        "/get-snapshot",
        "/metrics",
        "/page/nosuch",
        "/%2e%2e/%2e%2e/etc/passwd",
    ];
    futures::stream::iter(0..600)
        .for_each_concurrent(32, async |at: usize| {
            let token = uuid::Uuid::new_v4();
            let _ = arena
                .http_send(&format!(
                    "GET {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n",
                    paths[at % paths.len()]
                ))
                .await;
        })
        .await;
    let body = format!("[{}]", "[".repeat(100_000));
    for path in ["/api/v1/what-if", "/log-level"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}",
            body.len()
        );
        let _ = arena.http_send(&format!("{head}\r\n\r\n{body}")).await;
    }
    let growth = arena.growth();
    assert!(growth < 100, "{growth} MiB for strangers");
}
