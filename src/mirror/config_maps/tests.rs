//! Which pods wait for which ConfigMaps, and which events a change produces.

use std::sync::Arc;

use kube::core::ObjectMeta;
use kube::core::PartialObjectMetaExt;
use serde_json::{Value, json};

use super::*;
use crate::engine::input::Event;
use crate::mirror::{PackedChange, PackedObject, Settings};

fn mirror(config_maps: bool) -> Mirror {
    Mirror::new(Settings {
        config_maps,
        ..Settings::default()
    })
}

fn map(name: &str) -> PackedObject {
    let meta = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("ns".to_owned()),
        ..ObjectMeta::default()
    };
    PackedObject::ConfigMap(Arc::new(meta.into_response_partial()))
}

fn pod(spec: &Value, node: Option<&str>) -> PackedObject {
    let mut spec = spec.clone();
    (spec["schedulerName"], spec["nodeName"]) = ("kai-scheduler".into(), node.into());
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "p", "annotations": {"runai/shared-gpu-configmap": "ours"}},
        "spec": spec, "status": {"phase": "Pending"},
    });
    PackedObject::Pod(Arc::new(serde_json::from_value(pod).unwrap()))
}

/// The pod's `blocked` in the events, if there is an event for it.
fn told(mirror: &mut Mirror, change: PackedChange) -> Option<String> {
    let events = mirror.apply(&change).events;
    events.into_iter().find_map(|event| match event {
        Event::Pod(pod) => Some(pod.blocked.as_deref().unwrap_or_default().to_owned()),
        _ => None,
    })
}

fn mounting(volume: &Value) -> Value {
    json!({"containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}], "volumes": [volume]})
}

#[test]
fn required_config_maps_of_a_pod_are_found_in_all_fields() {
    let variable = |optional: bool| json!({"name": "E", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": optional}}});
    let container = |more: &Value| json!({"containers": [{"name": "c"}, more]});
    let lacks = "Missing required configmaps: [m]";
    let table = [
        (mounting(&json!({"name": "v", "configMap": {"name": "m"}})), lacks),
        (
            mounting(&json!({"name": "v", "configMap": {"name": "m", "optional": true}})),
            "",
        ),
        (mounting(&json!({"name": "unmounted", "configMap": {"name": "m"}})), ""),
        (mounting(&json!({"name": "v", "secret": {"secretName": "m"}})), ""),
        (
            mounting(
                &json!({"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "m"}}]}}),
            ),
            lacks,
        ),
        (
            mounting(&json!({"name": "v", "projected": {"sources": [{"configMap": {"name": "m", "optional": true}}]}})),
            "",
        ),
        (container(&json!({"name": "d", "env": [variable(false)]})), lacks),
        (container(&json!({"name": "d", "env": [variable(true)]})), ""),
        (
            container(&json!({"name": "d", "envFrom": [{"configMapRef": {"name": "m"}}]})),
            lacks,
        ),
        // Its claim does not exist either, which is reported beside it.
        (
            json!({
                "containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "m"}}]}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            }),
            lacks,
        ),
        (
            container(&json!({"name": "d", "envFrom": [{"configMapRef": {"name": "m", "optional": true}}]})),
            "",
        ),
        (
            container(&json!({"name": "d", "envFrom": [{"secretRef": {"name": "m"}}]})),
            "",
        ),
        (
            container(&json!({"name": "d", "envFrom": [{"configMapRef": {"name": "ours-0"}}]})),
            "",
        ),
        (
            json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i", "env": [variable(false)]}]}),
            lacks,
        ),
        (
            json!({"containers": [{"name": "c"}], "ephemeralContainers": [{"name": "e", "env": [variable(false)]}]}),
            lacks,
        ),
        (
            container(&json!({"name": "d", "env": [variable(false)], "envFrom": [{"configMapRef": {"name": "a"}}]})),
            "Missing required configmaps: [a m]",
        ),
    ];
    for (spec, expected) in &table {
        let mut mirror = mirror(true);
        assert_eq!(
            told(&mut mirror, PackedChange::Applied(pod(spec, None))).as_deref(),
            Some(*expected),
            "{spec}"
        );
        let mut off = self::mirror(false);
        assert_eq!(
            told(&mut off, PackedChange::Applied(pod(spec, None))).as_deref(),
            Some(""),
            "{spec}"
        );
    }
}

#[test]
fn a_pending_pod_is_updated_when_its_config_maps_appear_or_disappear() {
    let mut mirror = mirror(true);
    let needs = mounting(&json!({"name": "v", "configMap": {"name": "m"}}));
    assert_eq!(told(&mut mirror, PackedChange::Applied(map("other"))), None);
    assert!(
        told(&mut mirror, PackedChange::Applied(pod(&needs, None)))
            .unwrap()
            .ends_with("[m]")
    );
    assert_eq!(told(&mut mirror, PackedChange::Deleted(map("other"))), None);
    assert_eq!(told(&mut mirror, PackedChange::Applied(map("m"))).as_deref(), Some(""));
    assert_eq!(told(&mut mirror, PackedChange::Applied(map("m"))), None, "it was there");
    assert!(
        told(&mut mirror, PackedChange::Deleted(map("m")))
            .unwrap()
            .ends_with("[m]")
    );
    assert_eq!(
        told(&mut mirror, PackedChange::Applied(pod(&needs, Some("n")))).as_deref(),
        Some("")
    );
    assert_eq!(told(&mut mirror, PackedChange::Applied(map("m"))), None);
    assert!(mirror.config_maps.users.is_empty());
}

#[test]
fn nothing_is_left_of_a_pod_whose_annotation_changed_before_it_was_deleted() {
    let mut mirror = mirror(true);
    let needs = mounting(&json!({"name": "v", "configMap": {"name": "m"}}));
    let annotated = |value: &str| {
        let PackedObject::Pod(plain) = pod(&needs, None) else {
            panic!("it is a pod")
        };
        let annotations = [("runai/shared-gpu-configmap", value)];
        let changed = packed::Pod {
            annotations: annotations.into_iter().collect(),
            ..(*plain).clone()
        };
        PackedObject::Pod(Arc::new(changed))
    };
    mirror.apply(&PackedChange::Applied(annotated("ours")));
    assert_eq!(mirror.config_maps.users.to("ns/m").count(), 1);
    mirror.apply(&PackedChange::Applied(annotated("m")));
    mirror.apply(&PackedChange::Deleted(annotated("m")));
    assert_eq!(mirror.config_maps.users.to("ns/m").count(), 0);
}
