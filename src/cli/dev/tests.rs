use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::*;
use crate::devcluster::apiserver::{ApiServer, Identity, Options};

#[derive(clap::Parser)]
struct Wrapped {
    #[command(flatten)]
    args: Args,
}

fn parsed(flags: &[&str]) -> Args {
    <Wrapped as clap::Parser>::parse_from(["dev"].into_iter().chain(flags.iter().copied())).args
}

/// An API server with a node of this name and these labels, and what it has after `unikai dev --kubeconfig` with two nodes, which ends at once.
async fn lent_to(labels: serde_json::Value) -> (anyhow::Result<()>, Node, Vec<Node>) {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let nodes: Api<Node> = Api::all(server.client(&Identity::admin()).await.unwrap());
    let node = serde_json::from_value(json!({"metadata": {"name": "gpu-node-2", "labels": labels}})).unwrap();
    let before = nodes.create(&PostParams::default(), &node).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    fs::write(&path, server.kubeconfig(&Identity::admin())).unwrap();
    let file = path.to_str().unwrap();
    let args = parsed(&["--kubeconfig", file, "--gpu-nodes", "2", "--cpu-nodes", "0"]);
    let end = CancellationToken::new();
    end.cancel();
    let outcome = lend_nodes(&args, &path, &end).await;
    let left = nodes.list(&ListParams::default()).await.unwrap().items;
    (outcome, before, left)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_the_cluster_with_the_name_of_a_simulated_one_stays_as_it_is() {
    let (outcome, before, left) = Box::pin(lent_to(json!({"rack": "a"}))).await;
    assert_eq!(
        format!("{:#}", outcome.unwrap_err()),
        "the simulated nodes cannot be registered: the cluster has a node gpu-node-2 that is not simulated (without the label \
         unikai.dev/simulated); it is left as it is"
    );
    // The simulated node that was registered before it is gone.
    assert_eq!(left, [before]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simulated_nodes_of_a_run_that_was_killed_are_taken_over() {
    let (outcome, _, left) = Box::pin(lent_to(json!({"unikai.dev/simulated": "true"}))).await;
    outcome.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_manifests_have_the_names_that_the_operators_flags_give() {
    let args = parsed(&["--scheduler-name", "other", "--reservation-namespace", "gpus"]);
    let settings = Settings::try_from(args.operator.flags).unwrap();
    let objects = install::objects(&settings.common.components).unwrap();
    let is_namespace = |object: &&kube::core::DynamicObject| {
        let types = object.types.as_ref();
        types.is_some_and(|types| types.kind == "Namespace")
    };
    let namespaces: Vec<String> = objects.iter().filter(is_namespace).map(ResourceExt::name_any).collect();
    assert_eq!(namespaces, ["kai-scheduler", "gpus", "kai-scale-adjust"]);
    let text = serde_json::to_string(&objects).unwrap();
    assert!(text.contains("object.spec.schedulerName == 'other'"), "{text}");
}
