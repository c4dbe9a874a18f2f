//! ConfigMaps and labels of pods that share GPUs.

use serde_json::{Value, json};

use super::*;
use crate::components::bus::{Bind, OrderedBind};
use crate::components::pods;
use crate::engine::input::{GpuKind, WHOLE};

fn pod(annotations: Value, env: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "a", "uid": "uid-a", "annotations": annotations},
        "spec": {
            "initContainers": [{"name": "gpu-init", "env": env}],
            "containers": [{"name": "main", "env": env}],
        },
    }))
    .unwrap()
}

fn bind(pod: &Pod, portion: i64) -> OrderedBind {
    OrderedBind {
        pool: "".into(),
        labels: BTreeMap::new(),
        placement: Bind {
            pod: pods::pod_ref(pod),
            group: pods::group_key(&pod.metadata),
            node: "n1".into(),
            received: GpuKind::Fraction,
            gpu_count: 1,
            gpu_portion: portion,
            gpu_groups: vec!["g".into()],
            zones: Vec::new(),
            volumes: Vec::new(),
            claims: Vec::new(),
            after_evictions: None,
        },
        annotations: BTreeMap::new(),
        regrouped: false,
        named: None,
        steps: Vec::new(),
        given: Default::default(),
        share: Default::default(),
    }
}

fn injected() -> Value {
    json!([{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "p-0", "key": "NVIDIA_VISIBLE_DEVICES"}}}])
}

/// The content of the config maps, by name.
fn told(pod: &Pod, portion: i64, memory: Option<&str>, words: Variables) -> Result<Value, String> {
    let labels = memory.map(|memory| json!({"nvidia.com/gpu.memory": memory}));
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "labels": labels}})).unwrap();
    let devices = ["GPU-a".to_owned(), "GPU-b".to_owned()];
    let maps = config_maps(&bind(pod, portion), pod, Some(&node), &devices, words)?;
    let named = maps
        .into_iter()
        .map(|map| (map.metadata.name.unwrap(), json!(map.data)));
    Ok(named.collect::<serde_json::Map<_, _>>().into())
}

#[test]
fn a_container_gets_its_devices_and_its_portion() {
    let pod = pod(json!({"runai/shared-gpu-configmap": "p"}), injected());
    let told = told(&pod, WHOLE / 4, None, Variables::default());
    let main = json!({"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b", "RUNAI_NUM_OF_GPUS": "0.25", "GPU_PORTION": "0.25"});
    assert_eq!(told, Ok(json!({"p-0": main, "p-0-evar": {}})));
}

#[test]
fn a_named_init_container_has_config_maps_of_its_own_name() {
    let annotations = json!({"runai/shared-gpu-configmap": "p", "gpu-fraction-container-name": "gpu-init"});
    let told = told(&pod(annotations, injected()), WHOLE / 4, None, Variables::default()).unwrap();
    assert_eq!(
        told.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["p-i0", "p-i0-evar"]
    );
}

#[test]
fn a_pod_that_no_webhook_has_seen_gets_its_devices_directly() {
    let pod = pod(json!({"runai/shared-gpu-configmap": "p"}), json!([]));
    let told = told(&pod, WHOLE / 4, None, Variables::default()).unwrap();
    assert_eq!(told["p-0-evar"], json!({"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}));
    assert_eq!(told["p-0"]["NVIDIA_VISIBLE_DEVICES"], json!(null));
}

#[test]
fn devices_go_into_the_first_config_map_only_if_the_container_reads_this_variable_from_there() {
    let reads = |name: &str, source: Value| {
        let env = json!([{"name": name, "value": "fixed"}, source]);
        let pod = pod(json!({"runai/shared-gpu-configmap": "p"}), env);
        let told = told(&pod, WHOLE / 4, None, Variables::default()).unwrap();
        told["p-0"].get("NVIDIA_VISIBLE_DEVICES").is_some()
    };
    let other = json!({"name": "OTHER", "valueFrom": {"configMapKeyRef": {"name": "p-0", "key": "OTHER"}}});
    assert!(!reads("NVIDIA_VISIBLE_DEVICES", other));
    assert!(reads("OTHER", injected()[0].clone()));
}

#[test]
fn cdi_has_names_of_its_own_for_devices() {
    let pod = pod(json!({"runai/shared-gpu-configmap": "p"}), injected());
    let words = Variables {
        cdi: true,
        hami_core: false,
    };
    let told = told(&pod, WHOLE / 4, None, words).unwrap();
    let devices = "k8s.device-plugin.nvidia.com/gpu=GPU-a,k8s.device-plugin.nvidia.com/gpu=GPU-b";
    assert_eq!(told["p-0"]["NVIDIA_VISIBLE_DEVICES"], devices);
}

#[test]
fn without_a_memory_limit_for_hami_core_the_bind_fails() {
    let pod = pod(json!({"runai/shared-gpu-configmap": "p"}), injected());
    let words = Variables {
        cdi: false,
        hami_core: true,
    };
    let limit = |portion, memory| {
        told(&pod, portion, memory, words).map(|told| told["p-0"]["CUDA_DEVICE_MEMORY_LIMIT"].clone())
    };
    assert_eq!(limit(WHOLE * 27 / 100, Some("15360")), Ok(json!("4147m")));
    assert_eq!(limit(WHOLE / 2, Some("81920")), Ok(json!("40960m")));
    assert_eq!(limit(WHOLE / 2, Some("85899345920")), Ok(json!("40960m")), "in bytes");
    for (portion, memory) in [
        (WHOLE / 2, None),
        (WHOLE / 2, Some("much")),
        (WHOLE / 2, Some("-81920")),
        (0, Some("81920")),
    ] {
        assert!(limit(portion, memory).is_err());
    }
}

#[test]
fn a_pod_without_the_name_of_its_config_maps_cannot_be_bound() {
    let why = told(&pod(json!({}), injected()), WHOLE / 4, None, Variables::default()).unwrap_err();
    assert!(why.contains("no desired configmap name found in pod team/a"), "{why}");
}

#[test]
fn labels_name_the_groups_and_no_others() {
    let mut pod = pod(json!({}), json!([]));
    let changes = |pod: &Pod, groups: &[&str]| json!(labels(pod, groups));
    assert_eq!(changes(&pod, &["g"]), json!({"runai-gpu-group": "g"}));
    assert_eq!(
        changes(&pod, &["g", "h"]),
        json!({"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"})
    );
    pod.metadata.labels = Some(
        [
            ("runai-gpu-group".to_owned(), "old".to_owned()),
            ("app".to_owned(), "a".to_owned()),
        ]
        .into(),
    );
    assert_eq!(changes(&pod, &["old"]), json!({}));
    assert_eq!(changes(&pod, &["g"]), json!({"runai-gpu-group": "g"}));
    assert_eq!(
        changes(&pod, &["g", "h"]),
        json!({"runai-gpu-group": null, "runai-gpu-group/g": "g", "runai-gpu-group/h": "h"})
    );
}

#[test]
fn an_invalid_name_of_config_maps_is_an_error() {
    for hostile in ["../secrets/x", "p?dryRun=All", "P", "-p", "p..q", "", &"p".repeat(250)] {
        let pod = pod(json!({"runai/shared-gpu-configmap": hostile}), injected());
        let why = told(&pod, WHOLE / 4, None, Variables::default()).unwrap_err();
        assert!(why.contains("gives no valid name of a config map"), "{hostile}: {why}");
    }
}

#[test]
fn the_longest_name_of_config_maps_is_valid() {
    let named = |length: usize| {
        let pod = pod(json!({"runai/shared-gpu-configmap": "p".repeat(length)}), injected());
        told(&pod, WHOLE / 4, None, Variables::default())
    };
    let suffix = "-0-evar".len();
    assert!(named(253 - suffix).is_ok());
    assert!(named(254 - suffix).is_err());
}
