//! Registration, silence and removal of Node objects.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::Shared;
use super::node::{GPU_RESOURCE, NodeSpec, silent_conditions};

/// The taints that the node life-cycle controller and the API server put on nodes that are not known to be ready.
pub(super) const NOT_READY_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The label of the Node objects that a world has registered. No other Node object is changed or deleted.
const SIMULATED: &str = "unikai.dev/simulated";

/// Creates the Node object, or makes an existing simulated one this node's, and reports it Ready.
pub(super) async fn register(shared: &Shared, spec: &NodeSpec, index: usize) -> kube::Result<Node> {
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let mut wanted = spec.object(index, shared.clock.now());
    wanted.labels_mut().insert(SIMULATED.to_owned(), "true".to_owned());
    let node = match nodes.create(&PostParams::default(), &wanted).await {
        Ok(node) => node,
        Err(kube::Error::Api(status)) if status.is_already_exists() => adopt(&nodes, spec, &wanted, *status).await?,
        Err(error) => return Err(error),
    };
    let node = if node.status.as_ref().and_then(|status| status.allocatable.as_ref()) == Some(&spec.allocatable())
        && is_ready(&node)
    {
        node
    } else {
        let mut status = json!(spec.status(index, shared.clock.now()));
        if spec.gpus == 0 {
            status["capacity"][GPU_RESOURCE] = Value::Null;
            status["allocatable"][GPU_RESOURCE] = Value::Null;
        }
        nodes
            .patch_status(
                &spec.name,
                &PatchParams::default(),
                &Patch::Merge(json!({"status": status})),
            )
            .await?
    };
    let node = without_not_ready_taints(&nodes, node).await?;
    shared.nodes.observe(node.clone());
    Ok(node)
}

/// Gives an existing simulated Node object this node's labels, and its taints where it asks for some. `conflict` is the response to its creation.
async fn adopt(nodes: &Api<Node>, spec: &NodeSpec, wanted: &Node, conflict: Status) -> kube::Result<Node> {
    let present = nodes.get(&spec.name).await?;
    if !is_simulated(&present) {
        let refusal = Status {
            message: format!(
                "the cluster has a node {} that is not simulated (without the label {SIMULATED}); it is left as it is",
                spec.name
            ),
            ..conflict
        };
        return Err(kube::Error::Api(refusal.boxed()));
    }
    let mut patch = json!({"metadata": {"uid": present.metadata.uid, "labels": wanted.metadata.labels}});
    if !spec.taints.is_empty() {
        patch["spec"] = json!({"taints": spec.taints});
    }
    nodes
        .patch(&spec.name, &PatchParams::default(), &Patch::Merge(patch))
        .await
}

fn is_simulated(node: &Node) -> bool {
    node.labels().contains_key(SIMULATED)
}

/// Whether a node was not registered because a node of the cluster has its name.
pub(super) fn is_taken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// Removes the taints of nodes that are not ready. The node life-cycle controller does so too, if there is one.
pub(super) async fn without_not_ready_taints(nodes: &Api<Node>, node: Node) -> kube::Result<Node> {
    change_taints(nodes, node, |taints| {
        let kept = taints.iter().filter(|taint| !is_not_ready(taint));
        kept.cloned().collect()
    })
    .await
}

fn is_not_ready(taint: &Taint) -> bool {
    NOT_READY_TAINTS.contains(&taint.key.as_str())
}

/// Replaces all taints. Others write them too, so the change is made anew to what they wrote in the meantime.
async fn change_taints(
    nodes: &Api<Node>,
    mut node: Node,
    change: impl Fn(&[Taint]) -> Vec<Taint>,
) -> kube::Result<Node> {
    let name = node.metadata.name.clone().unwrap_or_default();
    loop {
        let present = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        let wanted = change(present.unwrap_or_default());
        if wanted == present.unwrap_or_default() {
            return Ok(node);
        }
        let taints = (!wanted.is_empty()).then_some(wanted);
        let patch =
            json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
        match nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => node = nodes.get(&name).await?,
            patched => return patched,
        }
    }
}

/// Marks a node as unreachable, as the node life-cycle controller does.
pub(super) async fn silence(shared: &Shared, name: &str) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let status = json!({"status": {"conditions": silent_conditions(shared.clock.now())}});
    let node = nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    let unreachable = ["NoSchedule", "NoExecute"].map(|effect| Taint {
        key: NOT_READY_TAINTS[1].to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    });
    let node = change_taints(&nodes, node, |taints| {
        let kept = taints.iter().filter(|taint| !is_not_ready(taint));
        kept.chain(&unreachable).cloned().collect()
    })
    .await?;
    shared.nodes.observe(node);
    Ok(())
}

/// Deletes the Node object, if it is a simulated one; its pods follow by garbage collection.
pub(super) async fn delete(shared: &Shared, name: &str) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let Some(node) = nodes.get_opt(name).await?.filter(is_simulated) else {
        return Ok(());
    };
    let this = DeleteParams {
        preconditions: Some(Preconditions {
            uid: node.metadata.uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match nodes.delete(name, &this).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the node's kubelet reports it Ready.
pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests;
