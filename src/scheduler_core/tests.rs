//! Objects in whatever order their watches show them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::api::{BindRequest, PodGroup, Queue};
use crate::kinds::Object;
use crate::mirror::Shard;

const POOL: &str = "kai.scheduler/node-pool";

fn read<K: DeserializeOwned>(object: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(object).expect("an object"))
}

fn pod(object: Value) -> PackedChange {
    PackedChange::Applied(Object::Pod(read::<Pod>(object)).into())
}

/// A pod that wants half a GPU.
fn half(name: &str, version: u32, group: Option<&str>, node: Option<&str>, phase: &str) -> PackedChange {
    let mut labels = json!({"kai.scheduler/queue": "blue", POOL: "blue"});
    if let Some(group) = group {
        labels["runai-gpu-group"] = json!(group);
    }
    pod(
        json!({"metadata": {"name": name, "namespace": "team", "uid": name, "resourceVersion": version.to_string(), "labels": labels,
            "annotations": {"gpu-fraction": "0.5", "pod-group-name": format!("pg-{name}")}},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": node, "containers": [{"name": "c"}]},
        "status": {"phase": phase}}),
    )
}

fn reservation(version: u32, phase: &str, device: Option<&str>) -> PackedChange {
    let mut annotations = json!({"gpu-user.unikai.dev/a": "{\"namespace\":\"team\",\"name\":\"a\",\"share\":{\"gpu-fraction\":\"0.5\"}}"});
    if let Some(device) = device {
        annotations["run.ai/reserve_for_gpu_index"] = json!(device);
    }
    let gpu = json!({"nvidia.com/gpu": "1", "cpu": "50m"});
    pod(
        json!({"metadata": {"name": "gpu-reservation-1", "namespace": "kai-resource-reservation", "uid": "r", "annotations": annotations,
            "resourceVersion": version.to_string(), "labels": {"app": "kai-resource-reservation", "runai-gpu-group": "a-0"}},
        "spec": {"serviceAccountName": "kai-resource-reservation", "nodeName": "blue-1",
            "containers": [{"name": "c", "resources": {"requests": gpu, "limits": gpu}}]},
        "status": {"phase": phase}}),
    )
}

fn group(name: &str) -> PackedChange {
    let object = json!({"metadata": {"name": format!("pg-{name}"), "namespace": "team", "uid": format!("pg-{name}"), "labels": {POOL: "blue"}},
        "spec": {"queue": "blue", "minMember": 1}});
    PackedChange::Applied(Object::PodGroup(read::<PodGroup>(object)).into())
}

fn queue(name: &str, parent: Option<&str>) -> PackedChange {
    let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let object = json!({"metadata": {"name": name, "labels": {POOL: "blue"}},
        "spec": {"parentQueue": parent, "resources": {"cpu": open, "gpu": open, "memory": open}}});
    PackedChange::Applied(Object::Queue(read::<Queue>(object)).into())
}

fn node() -> PackedChange {
    let object = json!({"metadata": {"name": "blue-1", "labels": {POOL: "blue", "nvidia.com/gpu.memory": "81920"}},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}}});
    PackedChange::Applied(Object::Node(read::<Node>(object)).into())
}

fn request() -> Object {
    Object::BindRequest(read::<BindRequest>(
        json!({"metadata": {"name": "a", "namespace": "team", "labels": {POOL: "blue"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a"}]},
        "spec": {"podName": "a", "selectedNode": "blue-1", "receivedResourceType": "Fraction", "selectedGPUGroups": ["a-0"],
            "receivedGPU": {"count": 1, "portion": "0.50"}}}),
    ))
}

/// What each watch shows of a pod with half a GPU that is bound, and of another that waits, in its own order.
fn streams(from_the_start: bool) -> Vec<Vec<PackedChange>> {
    let on = Some("blue-1");
    let mut first = vec![half("a", 4, Some("a-0"), on, "Running")];
    let mut reserved = vec![reservation(12, "Running", Some("GPU-1"))];
    if from_the_start {
        first.splice(
            0..0,
            [
                half("a", 1, None, None, "Pending"),
                PackedChange::Applied(request().into()),
                half("a", 2, Some("a-0"), None, "Pending"),
                half("a", 3, Some("a-0"), on, "Pending"),
            ],
        );
        first.push(PackedChange::Deleted(request().into()));
        reserved.splice(
            0..0,
            [reservation(10, "Pending", None), reservation(11, "Running", None)],
        );
    }
    vec![
        first,
        reserved,
        vec![node()],
        vec![queue("blue-all", None), queue("blue", Some("blue-all"))],
        vec![group("a"), group("b")],
        vec![half("b", 20, None, None, "Pending")],
    ]
}

proptest! {
    #[test]
    fn the_free_half_of_a_gpu_is_found_in_any_order_of_events(
        from_the_start in any::<bool>(),
        turns in prop::collection::vec(0_usize..6, 0..40),
    ) {
        let mut core = core();
        let mut streams = streams(from_the_start);
        streams.iter_mut().for_each(|stream| stream.reverse());
        let order = turns.into_iter().chain((0..6).cycle().take(60));
        for turn in order {
            if let Some(change) = streams[turn].pop() {
                core.apply(&change, Time(1_000));
            }
        }
        prop_assert!(streams.iter().all(Vec::is_empty));
        let decided = core.cycle(Time(2_000), &mut |_| {});
        prop_assert_eq!(bound(&decided), ["b a-0"]);
    }

    #[test]
    fn the_free_half_of_a_gpu_is_found_by_the_running_scheduler(turns in prop::collection::vec(0_usize..3, 0..20)) {
        let mut core = core();
        let known = [node(), queue("blue-all", None), queue("blue", Some("blue-all")), group("a"), group("b")];
        for change in known.iter().chain([&half("a", 1, None, None, "Pending")]) {
            core.apply(change, Time(1_000));
        }
        prop_assert_eq!(bound(&core.cycle(Time(2_000), &mut |_| {})), ["a a-0"]);
        let all = streams(true);
        let mut streams: Vec<Vec<PackedChange>> = [0, 1, 5].map(|stream| all[stream].clone()).into();
        streams.iter_mut().for_each(|stream| stream.reverse());
        let mut decided = Vec::new();
        for (at, turn) in turns.into_iter().chain((0..3).cycle().take(30)).enumerate() {
            let now = Time(3_000 + i64::try_from(at).unwrap());
            if let Some(change) = streams[turn].pop() {
                core.apply(&change, now);
            }
            decided.extend(bound(&core.cycle(now, &mut |_| {})));
        }
        prop_assert_eq!(decided, ["b a-0"]);
    }
}

/// For a node pool.
fn core() -> SchedulerCore {
    let settings = Settings {
        shard: Shard {
            key: POOL.to_owned(),
            value: "blue".to_owned(),
        },
        ..Settings::default()
    };
    SchedulerCore::new(settings, Policy::default())
}

/// The pods that are bound, and the GPUs that they share.
fn bound(decisions: &Decisions) -> Vec<String> {
    let binds = decisions.bind.iter();
    binds
        .map(|bind| format!("{} {}", bind.pod.name, bind.gpu_groups.join(" ")))
        .collect()
}
