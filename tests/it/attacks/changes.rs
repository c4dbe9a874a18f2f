//! Attacks by objects beside pods: pod groups, resource claims, and pod fields that are not read.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::api::{PodGroup, Queue};

use super::arena::{Arena, EVIL, pod, with_gpus};
use super::{ask_for_more, fill};

fn pod_groups(arena: &Arena) -> Api<PodGroup> {
    Api::namespaced(arena.tenant.clone(), EVIL)
}

/// Changes the pod groups of all running pods, then an unread field of each pod, so that it is read again.
async fn change_all(arena: &Arena, patch: &Value) {
    let known = pod_groups(arena).list(&ListParams::default()).await;
    for group in known.into_iter().flatten() {
        let patch = Patch::Merge(patch);
        let _ = pod_groups(arena)
            .patch(&group.name_any(), &PatchParams::default(), &patch)
            .await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    for name in ["whole-a", "whole-b", "half", "other-half"] {
        let _ = arena
            .patch(name, json!({"metadata": {"labels": {"touched": "yes"}}}))
            .await;
    }
}

pub async fn pod_groups_of_running_pods_name_queues_that_are_not_there(arena: &Arena) {
    fill(arena).await;
    // They are written a second after their pods are bound.
    tokio::time::sleep(Duration::from_secs(2)).await;
    change_all(arena, &json!({"spec": {"queue": "nosuch"}})).await;
    ask_for_more(arena, "moved").await;
    arena.restart().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    ask_for_more(arena, "moved-later").await;
}

pub async fn pod_groups_of_running_pods_name_another_node_pool(arena: &Arena) {
    fill(arena).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let labels = json!({"kai.scheduler/node-pool": "elsewhere"});
    change_all(arena, &json!({"metadata": {"labels": labels}})).await;
    ask_for_more(arena, "pool").await;
    arena.restart().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    ask_for_more(arena, "pool-later").await;
}

/// Opaque driver parameters are copied unchanged; they may be ten kilobytes.
pub async fn claims_are_as_deep_as_can_be_written(arena: &Arena) {
    for (at, depth) in [100_usize, 1_500].into_iter().enumerate() {
        let parameters = format!("{}{{}}{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        let claim = format!(
            r#"{{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {{"name": "deep-{at}"}}, "spec": {{"devices": {{
                "requests": [{{"name": "r", "exactly": {{"deviceClassName": "gpu.example.com"}}}}],
                "config": [{{"opaque": {{"driver": "gpu.example.com", "parameters": {parameters}}}}}]}}}}}}"#
        );
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{EVIL}/resourceclaims");
        let request = http::Request::post(path).header("content-type", "application/json");
        let _ = arena
            .tenant
            .request_text(request.body(claim.into_bytes()).expect("a request"))
            .await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    arena.restart().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    arena.create(with_gpus("beside", 1)).await.expect("a pod");
    arena.runs("beside").await;
}

/// Nothing is kept of claims that are gone, and claims that come later are served.
pub async fn claims_come_and_go_by_the_thousand(arena: &Arena) {
    let claims: Api<ResourceClaim> = Api::namespaced(arena.tenant.clone(), EVIL);
    let claim = |name: &str| -> ResourceClaim {
        let any = json!({"cel": {"expression": "device.attributes['x.example.com'].name != 'b'"}});
        let device = json!({"deviceClassName": "x.example.com", "selectors": [any]});
        let requests = json!([{"name": "one", "exactly": device}]);
        let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}});
        serde_json::from_value(claim).expect("a claim")
    };
    let come_and_go = futures::stream::iter(0..3_000).for_each_concurrent(16, async |at| {
        let claim = claim(&format!("passing-{at}"));
        let _ = claims.create(&PostParams::default(), &claim).await;
        let _ = claims.delete(&claim.name_any(), &DeleteParams::default()).await;
    });
    come_and_go.await;
    let growth = arena.growth();
    assert!(growth < 100, "{growth} MiB are kept of claims that are gone");
    let _ = claims.create(&PostParams::default(), &claim("lasting")).await;
    let mut user = pod("user", json!({"cpu": "10m"}));
    user["spec"]["resourceClaims"] = json!([{"name": "one", "resourceClaimName": "lasting"}]);
    user["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "one"}]);
    arena.create(user).await.expect("a pod");
    arena.runs("user").await;
}

/// What a status says of a pod group, and what it holds of the queue.
async fn gpus_held(arena: &Arena) -> (Vec<Value>, Value) {
    let of = |status: Option<Value>| status.map_or(Value::Null, |status| status["allocated"].clone());
    let groups = pod_groups(arena)
        .list(&ListParams::default())
        .await
        .expect("pod groups");
    let mut held: Vec<Value> = groups
        .iter()
        .filter(|group| !group.name_any().contains("more-") && !group.name_any().contains("part-"))
        .map(|group| {
            let status = group
                .status
                .as_ref()
                .and_then(|status| status.resources_status.as_ref());
            let allocated = of(status.map(|status| json!(status)));
            let summary = group.status.as_ref().and_then(|status| status.summary.as_ref());
            json!([group.name_any(), allocated, summary])
        })
        .collect();
    held.sort_by_key(|of| of[0].to_string());
    let queues: Api<Queue> = Api::all(arena.admin.clone());
    let queue = queues.get("greedy").await.expect("the queue");
    (held, of(queue.status.map(|status| json!(status))))
}

/// The operator corrects statuses that other clients have written, and no decision depends on them.
pub async fn statuses_say_what_nobody_counted(arena: &Arena) {
    fill(arena).await;
    let told = arena
        .eventually("all that runs is in the statuses", async || {
            let told = gpus_held(arena).await;
            let running = told.0.iter().filter(|of| of[2]["state"] == "Running").count();
            let gpus = &told.1["nvidia.com/gpu"];
            (running == 4 && gpus == "4")
                .then_some(told.clone())
                .ok_or_else(|| format!("{told:?}"))
        })
        .await;
    let nothing = json!({"nvidia.com/gpu": "0", "cpu": "0"});
    let much = json!({"nvidia.com/gpu": "999999", "cpu": "1e30"});
    let lies = json!({
        "resourcesStatus": {"allocated": nothing, "allocatedNonPreemptible": nothing, "requested": much},
        "summary": {"running": "0/9", "state": "Finished", "reason": "Nothing"},
        "schedulingConditions": [{"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True", "transitionID": "9999999"}],
    });
    for group in pod_groups(arena)
        .list(&ListParams::default())
        .await
        .expect("pod groups")
    {
        let status = Patch::Merge(json!({"status": lies}));
        let written = pod_groups(arena)
            .patch_status(&group.name_any(), &PatchParams::default(), &status)
            .await;
        written.expect("the tenant may write statuses of pod groups");
        let labels =
            json!({"kai.scheduler/queue": "innocent", "runai/queue": "innocent", "priorityClassName": "build"});
        let labels = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let _ = pod_groups(arena)
            .patch(&group.name_any(), &PatchParams::default(), &labels)
            .await;
    }
    ask_for_more(arena, "status").await;
    arena
        .eventually("the statuses say what is held", async || {
            let now = gpus_held(arena).await;
            (now == told)
                .then_some(())
                .ok_or_else(|| format!("{now:?}, not {told:?}"))
        })
        .await;
}

pub async fn pods_say_much_that_nobody_reads(arena: &Arena) {
    for at in 0..10 {
        let mut large = pod(&format!("large-{at}"), json!({}));
        large["spec"]["containers"][0]["env"] = vec![json!({"name": "A"}); 20_000].into();
        large["spec"]["containers"][0]["args"] = vec![json!(""); 20_000].into();
        large["metadata"]["annotations"] = json!({"example.com/notes": "x".repeat(200_000)});
        let _ = arena.create(large).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
}
