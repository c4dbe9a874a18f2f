//! Pods of nodes that no longer exist fail and are deleted, as the pod garbage collector does: no kubelet is left to end them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;

use super::Shared;
use super::informer::Key;
use super::pods::{self, is_finished, node_of};
use super::queue::{Again, WorkQueue};
use crate::api::names::condition;

/// The controller, for pods of this world's nodes, or, with `all_nodes`, of any.
pub(super) fn spawn(tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>, all_nodes: bool) {
    let queue = Arc::new(WorkQueue::new());
    let (orphans, context) = (Arc::clone(&queue), Arc::downgrade(shared));
    shared.nodes.on_change(move |change| {
        let (None, Some(shared)) = (change.new, context.upgrade()) else {
            return;
        };
        if all_nodes || shared.is_registered(&change.key.name) {
            shared
                .pods
                .list()
                .iter()
                .filter(|pod| node_of(pod) == Some(&change.key.name))
                .for_each(|pod| {
                    orphans.add(Key::of(&pod.metadata));
                });
        }
    });
    let (orphans, context) = (Arc::clone(&queue), Arc::downgrade(shared));
    shared.pods.on_change(move |change| {
        let (Some(pod), Some(shared)) = (change.new, context.upgrade()) else {
            return;
        };
        let node = node_of(pod).filter(|node| all_nodes || shared.is_registered(node));
        if node.is_some_and(|node| shared.nodes.get(&Key::new("", node)).is_none()) {
            orphans.add(change.key.clone());
        }
    });
    let shared = Arc::clone(shared);
    tasks.spawn(async move {
        shared.nodes.synced().await;
        shared.pods.synced().await;
        queue.run(&shared.clock, 8, |key| collect(&shared, key)).await;
        "pod garbage collection"
    });
}

async fn collect(shared: &Shared, key: Key) -> kube::Result<Again> {
    let Some(pod) = shared.pods.get(&key) else {
        return Ok(Again::OnChange);
    };
    let Some(node) = node_of(&pod) else {
        return Ok(Again::OnChange);
    };
    let nodes: Api<Node> = Api::all(shared.client.clone());
    // The view of the nodes may be behind that of the pods: ask.
    if shared.nodes.get(&Key::new("", node)).is_some() || nodes.get_metadata_opt(node).await?.is_some() {
        return Ok(Again::OnChange);
    }
    match fail_and_delete(shared, &key, &pod).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Again::OnChange),
        outcome => outcome.map(|()| Again::OnChange),
    }
}

async fn fail_and_delete(shared: &Shared, key: &Key, pod: &Pod) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), &key.ns);
    if !is_finished(pod) {
        let failed = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed", "conditions": [{
            "type": condition::DISRUPTION_TARGET, "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
            "lastTransitionTime": Time(shared.clock.now()),
        }]}});
        api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(failed))
            .await?;
    }
    pods::delete_now(&shared.client, key, pod.metadata.uid.as_deref().unwrap_or_default()).await
}
