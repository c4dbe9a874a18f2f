use serde_json::Value;

use super::*;
use crate::devcluster::world::NodeSpec;

fn view(specs: &[NodeSpec]) -> View {
    let mut view = View::default();
    for (index, spec) in specs.iter().enumerate() {
        view.node_changed(
            &spec.name,
            Some(&Arc::new(spec.object(index, jiff::Timestamp::UNIX_EPOCH))),
        );
    }
    view
}

fn pod(requests: Value) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}),
    )
    .expect("a pod")
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

#[test]
fn pods_without_gpus_use_gpu_nodes_last() {
    let mut view = view(&[NodeSpec::gpu("gpu", 8), NodeSpec::cpu("cpu")]);
    assert_eq!(view.place(&key("a"), &pod(json!({"cpu": "20"}))).as_deref(), Ok("cpu"));
    assert_eq!(view.place(&key("b"), &pod(json!({"cpu": "20"}))).as_deref(), Ok("gpu"));
    assert_eq!(
        view.place(&key("c"), &pod(json!({"nvidia.com/gpu": "8"}))).as_deref(),
        Ok("gpu")
    );
}

#[test]
fn unschedulable_pods_get_a_reason_and_are_retried_when_resources_are_freed() {
    let mut view = view(&[
        NodeSpec::gpu("gpu", 8),
        NodeSpec::cpu("cpu"),
        NodeSpec::cpu("kept").taint("k", "", "NoSchedule"),
    ]);
    let eight = pod(json!({"nvidia.com/gpu": "8"}));
    assert_eq!(view.place(&key("a"), &eight).as_deref(), Ok("gpu"));
    assert_eq!(
        view.place(&key("b"), &eight).expect_err("no room"),
        "0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s)."
    );
    assert_eq!(view.pod_changed(&key("a"), None), [key("b")]);
    assert_eq!(view.place(&key("b"), &eight).as_deref(), Ok("gpu"));
}

#[test]
fn the_amounts_of_bound_pods_are_held_once() {
    let mut view = view(&[NodeSpec::gpu("gpu", 8)]);
    let mut four = pod(json!({"nvidia.com/gpu": "4"}));
    assert_eq!(view.place(&key("a"), &four).as_deref(), Ok("gpu"));
    four.spec.as_mut().expect("a spec").node_name = Some("gpu".to_owned());
    view.pod_changed(&key("a"), Some(&four));
    view.pod_changed(&key("a"), Some(&four));
    assert_eq!(view.nodes["gpu"].free(GPU_RESOURCE), 4_000);
}

#[test]
fn pods_with_the_same_host_port_go_to_different_nodes() {
    let mut view = view(&[NodeSpec::cpu("one"), NodeSpec::cpu("two")]);
    let mut web = pod(json!({}));
    let ports = json!([{"containerPort": 80, "hostPort": 80}]);
    web.spec.as_mut().expect("a spec").containers[0].ports = serde_json::from_value(ports).expect("ports");
    assert_eq!(view.place(&key("a"), &web).as_deref(), Ok("one"));
    assert_eq!(view.place(&key("b"), &web).as_deref(), Ok("two"));
    assert_eq!(
        view.place(&key("c"), &web).expect_err("no port"),
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    );
    assert_eq!(view.pod_changed(&key("a"), None), [key("c")]);
    assert_eq!(view.place(&key("c"), &web).as_deref(), Ok("one"));
}
