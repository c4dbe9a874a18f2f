//! Attacks by objects beside pods: pod groups, resource claims, and pod fields that are not read.

use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::api::PodGroup;

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
