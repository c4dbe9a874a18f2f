//! Nodes that register while others write them too.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use unikai::devcluster::apiserver::{ApiServer, Effect, Identity, Match, Options, Times};
use unikai::devcluster::world::{NodeSpec, World, WorldOptions};

/// The node life-cycle controller of a real cluster takes taints off the same nodes at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_registers_despite_concurrent_writes() {
    let server = ApiServer::start(Options::default())
        .await
        .expect("the API server starts");
    let client = server.client(&Identity::admin()).await.expect("a client");
    let taint = |key: &str, effect: &str| Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    };
    let mut node = NodeSpec::gpu("contested", 8);
    node.taints = vec![
        taint("node.kubernetes.io/not-ready", "NoSchedule"),
        taint("team", "NoSchedule"),
    ];
    let conflict = Effect::Refuse {
        code: 409,
        retry_after: None,
    };
    let rule = server
        .faults()
        .add(Match::verb_on("patch", "nodes"), conflict, Times::Next(2));
    let options = WorldOptions {
        nodes: vec![node],
        ..WorldOptions::default()
    };
    let world = World::start(client.clone(), options).await.expect("the node registers");
    assert_eq!(server.faults().struck(rule), 2);
    let registered = Api::<Node>::all(client).get("contested").await.expect("the node");
    let taints = registered.spec.and_then(|spec| spec.taints).expect("taints");
    assert_eq!(taints, [taint("team", "NoSchedule")]);
    world.shutdown().await;
}
