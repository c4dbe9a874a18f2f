use k8s_openapi::api::core::v1::{Node, Pod, PodSchedulingGate};
use serde_json::{Value, json};

use super::*;
use crate::api::quantity::Format;
use crate::components::podgroups::gpu_memory::of_one_gpu;
use crate::components::quantities::quantities;

fn pod(uid: &str, phase: &str, node: Option<&str>, annotations: Value, gpus: u32) -> Pod {
    let mut annotations = annotations;
    annotations["pod-group-name"] = json!("pg");
    let requests = json!({"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": gpus.to_string()});
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": uid, "uid": uid, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": phase},
    }))
    .unwrap()
}

fn key() -> GroupKey {
    GroupKey::new("ns", "pg")
}

fn show(amounts: &Amounts) -> String {
    quantities(amounts)
        .iter()
        .map(|(name, quantity)| format!("{name}={}", quantity.0))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn sums_follow_each_pod_and_return_to_zero() {
    let mut ledger = Ledger::default();
    assert_eq!(
        ledger.put(&pod("a", "Running", Some("n"), json!({}), 2), None, &Amounts::new()),
        [key()]
    );
    assert_eq!(
        ledger.put(&pod("b", "Pending", None, json!({}), 1), None, &Amounts::new()),
        [key()]
    );
    let sums = ledger.sums(&key());
    assert_eq!(show(&sums.requested.amounts()), "cpu=1 memory=2Gi nvidia.com/gpu=3");
    assert_eq!(show(&sums.allocated.amounts()), "cpu=500m memory=1Gi nvidia.com/gpu=2");
    assert_eq!(sums.waiting, 1);
    assert!(
        ledger
            .put(&pod("b", "Pending", None, json!({}), 1), None, &Amounts::new())
            .is_empty(),
        "nothing changed"
    );
    assert_eq!(
        ledger.put(&pod("a", "Succeeded", Some("n"), json!({}), 2), None, &Amounts::new()),
        [key()]
    );
    assert_eq!(show(&ledger.sums(&key()).allocated.amounts()), "");
    ledger.remove("a");
    ledger.remove("b");
    assert_eq!(ledger.sums(&key()), Sums::default());
    assert!(ledger.sums.is_empty() && ledger.parts.is_empty());
}

#[test]
fn pods_that_together_exceed_the_greatest_quantity_leave_nothing_behind_in_their_group() {
    let huge = |uid: &str| {
        let mut pod = pod(uid, "Running", Some("n"), json!({}), 1);
        let resources = pod.spec.as_mut().unwrap().containers[0].resources.as_mut().unwrap();
        let memory = serde_json::from_value(json!("8E")).unwrap();
        resources.requests.as_mut().unwrap().insert("memory".to_owned(), memory);
        pod
    };
    let mut ledger = Ledger::default();
    ledger.put(&pod("stays", "Running", Some("n"), json!({}), 1), None, &Amounts::new());
    let before = ledger.sums(&key());
    for uid in ["a", "b"] {
        ledger.put(&huge(uid), None, &Amounts::new());
    }
    let most = Amount::from_units(i64::MAX).format(Format::BinarySi);
    assert!(show(&ledger.sums(&key()).requested.amounts()).contains(&format!("memory={most} ")));
    for uid in ["a", "b"] {
        ledger.remove(uid);
    }
    assert_eq!(ledger.sums(&key()), before);
}

#[test]
fn a_bound_pod_holds_what_it_asks_for_before_it_runs() {
    let mut ledger = Ledger::default();
    ledger.put(&pod("a", "Pending", Some("n"), json!({}), 1), None, &Amounts::new());
    let sums = ledger.sums(&key());
    assert_eq!(sums.requested, sums.allocated);
    assert_eq!(sums.waiting, 0);
}

#[test]
fn shared_gpus_count_by_their_portion_on_each_device() {
    let check = |annotations: Value, labels: Value, requested: &str, allocated: &str| {
        let node: Node = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        let part = part(
            &pod("a", "Running", Some("n"), annotations.clone(), 0),
            of_one_gpu(&node),
            &Amounts::new(),
        );
        let gpu = |amounts: &Amounts| {
            let gpus = amounts.iter().filter(|(name, _)| name.contains("gpu")).collect();
            show(&gpus)
        };
        assert_eq!(
            (gpu(&part.requested).as_str(), gpu(&part.allocated).as_str()),
            (requested, allocated),
            "{annotations}"
        );
    };
    let nvidia = json!({"nvidia.com/gpu.memory": "4000"});
    let amd = json!({"beta.amd.com/gpu.vram.16G": "1"});
    let got = "Fraction";
    check(
        json!({"gpu-fraction": "0.4", "received-resource-type": got}),
        nvidia.clone(),
        "nvidia.com/gpu=400m",
        "nvidia.com/gpu=400m",
    );
    check(
        json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "received-resource-type": got}),
        nvidia.clone(),
        "nvidia.com/gpu=1",
        "nvidia.com/gpu=1",
    );
    check(
        json!({"gpu-memory": "2000", "received-resource-type": got}),
        nvidia.clone(),
        "run.ai/gpu.memory=2k",
        "nvidia.com/gpu=500m",
    );
    check(
        json!({"gpu-memory": "1000", "gpu-fraction-num-devices": "2", "received-resource-type": got}),
        json!({"nvidia.com/gpu.memory": "3000"}),
        "run.ai/gpu.memory=2k",
        "nvidia.com/gpu=666666668n",
    );
    check(
        json!({"gpu-memory": "4000", "received-resource-type": got}),
        amd,
        "run.ai/gpu.memory=4k",
        "nvidia.com/gpu=250m",
    );
    check(
        json!({"gpu-fraction": "nonsense", "received-resource-type": got}),
        nvidia.clone(),
        "",
        "",
    );
    check(json!({"gpu-fraction": "0.4"}), nvidia, "nvidia.com/gpu=400m", "");
}

#[test]
fn a_pod_that_changes_its_group_is_counted_there_only() {
    let mut ledger = Ledger::default();
    let mut pod = pod("a", "Running", Some("n"), json!({}), 1);
    ledger.put(&pod, None, &Amounts::new());
    pod.metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert("pod-group-name".to_owned(), "other".to_owned());
    let changed = ledger.put(&pod, None, &Amounts::new());
    assert_eq!(changed.len(), 2);
    assert_eq!(ledger.sums(&key()), Sums::default());
}

#[test]
fn claimed_devices_count_beside_the_rest() {
    let mut ledger = Ledger::default();
    let claimed = |count| Amounts::one("gpu.example.com", Amount::from_units(count));
    ledger.put(&pod("a", "Running", Some("n"), json!({}), 1), None, &claimed(1));
    ledger.put(&pod("b", "Pending", None, json!({}), 0), None, &claimed(2));
    let sums = ledger.sums(&key());
    assert_eq!(
        show(&sums.requested.amounts()),
        "cpu=1 gpu.example.com=3 memory=2Gi nvidia.com/gpu=1"
    );
    assert_eq!(
        show(&sums.allocated.amounts()),
        "cpu=500m gpu.example.com=1 memory=1Gi nvidia.com/gpu=1"
    );
}

#[test]
fn a_pod_with_too_many_names_of_resources_counts_with_none() {
    let mut pod = pod("a", "Running", Some("n"), json!({}), 1);
    let requests = pod.spec.as_mut().unwrap().containers[0]
        .resources
        .as_mut()
        .unwrap()
        .requests
        .as_mut()
        .unwrap();
    for number in 0..limits::RESOURCE_NAMES_PER_POD {
        requests.insert(
            format!("a.example/{number}"),
            serde_json::from_value(json!("1")).unwrap(),
        );
    }
    let mut ledger = Ledger::default();
    ledger.put(&pod, None, &Amounts::new());
    assert!(ledger.sums(&key()).requested.is_empty());
}

#[test]
fn a_pod_group_shows_a_limited_number_of_the_names_that_its_pods_invent_and_always_those_that_every_cluster_has() {
    let mut ledger = Ledger::default();
    let pods = 2 * limits::RESOURCE_NAMES_PER_STATUS;
    for number in 0..pods {
        let invented = Amounts::one(format!("a.example/{number}"), Amount::from_units(1));
        let pod = pod(&number.to_string(), "Running", Some("n"), json!({}), 1);
        ledger.put(&pod, None, &invented);
    }
    let requested = ledger.sums(&key()).requested.amounts();
    assert_eq!(requested.len(), limits::RESOURCE_NAMES_PER_STATUS);
    let gpus = requested.get(resource::NVIDIA_GPU).map(Amount::units);
    assert_eq!(gpus, i64::try_from(pods).ok());

    (1..pods).for_each(|number| drop(ledger.remove(&number.to_string())));
    let left = ledger.sums(&key());
    assert_eq!(
        show(&left.requested.amounts()),
        "a.example/0=1 cpu=500m memory=1Gi nvidia.com/gpu=1"
    );
    ledger.remove("0");
    assert_eq!(ledger.sums(&key()), Sums::default());
}

#[test]
fn pods_that_wait_for_their_gates_alone_are_told_apart() {
    let mut ledger = Ledger::default();
    let mut gated = pod("a", "Pending", None, json!({}), 1);
    let gates: Option<Vec<PodSchedulingGate>> = serde_json::from_value(json!([{"name": "example.com/wait"}])).unwrap();
    gated.spec.as_mut().unwrap().scheduling_gates.clone_from(&gates);
    ledger.put(&gated, None, &Amounts::new());
    assert!(ledger.sums(&key()).only_gated());
    ledger.put(&pod("b", "Pending", None, json!({}), 1), None, &Amounts::new());
    assert!(!ledger.sums(&key()).only_gated());
    ledger.remove("b");
    gated.spec.as_mut().unwrap().scheduling_gates = None;
    ledger.put(&gated, None, &Amounts::new());
    assert_eq!((ledger.sums(&key()).waiting, ledger.sums(&key()).gated), (1, 0));
    assert!(!ledger.sums(&key()).only_gated());

    // A pod that is being deleted does not wait, also not for its gates, so only the other one counts.
    gated.spec.as_mut().unwrap().scheduling_gates = gates;
    gated.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    ledger.put(&gated, None, &Amounts::new());
    ledger.put(&pod("b", "Pending", None, json!({}), 1), None, &Amounts::new());
    assert_eq!((ledger.sums(&key()).waiting, ledger.sums(&key()).gated), (1, 0));
    assert!(!ledger.sums(&key()).only_gated());
}
