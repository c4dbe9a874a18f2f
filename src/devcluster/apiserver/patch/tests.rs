use serde_json::{Value, json};

use super::{PatchError, json as json_patch, merge, strategic};

fn deployment() -> Value {
    json!({
        "metadata": {"name": "d", "finalizers": ["a/b", "c/d"]},
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {"spec": {
                "nodeSelector": {"n": "1", "m": "2"},
                "containers": [
                    {"name": "a", "args": ["1", "2"], "env": [{"name": "E1", "value": "1"}, {"name": "E2", "value": "2"}],
                     "ports": [{"containerPort": 80}, {"containerPort": 81}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                    {"name": "b"},
                ],
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
                "tolerations": [{"key": "k"}],
                "topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1}],
            }},
        },
    })
}

/// Applies a patch of the pod template's spec and returns the part of the result at `pointer`.
fn pod_spec(patch: Value, pointer: &str) -> Value {
    let patched = strategic(
        "Deployment",
        &deployment(),
        &json!({"spec": {"template": {"spec": patch}}}),
    )
    .expect("applies");
    patched
        .pointer(&format!("/spec/template/spec{pointer}"))
        .cloned()
        .unwrap_or(Value::Null)
}

fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array()
        .expect("a list")
        .iter()
        .map(|element| element[key].to_string().replace('"', ""))
        .collect()
}

/// The order of results was seen on a real API server.
#[test]
fn containers_merge_by_name() {
    let cases = [
        (json!({"containers": [{"name": "c"}]}), vec!["c", "a", "b"]),
        (
            json!({"containers": [{"name": "b", "image": "n"}, {"name": "c"}]}),
            vec!["a", "b", "c"],
        ),
        (json!({"containers": [{"name": "a", "$patch": "delete"}]}), vec!["b"]),
        (json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}), vec!["z"]),
        (
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            vec!["b", "a"],
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}, {"name": "c"}, {"name": "b"}], "containers": [{"name": "c"}]}),
            vec!["a", "c", "b"],
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(
            names(&pod_spec(patch.clone(), "/containers"), "name"),
            expected,
            "{patch}"
        );
    }
}

#[test]
fn lists_inside_a_container_merge_by_their_own_keys() {
    let container = |change: Value, list: &str, key: &str| {
        let mut patch = json!({"name": "a"});
        patch[list] = change;
        names(
            &pod_spec(json!({"containers": [patch]}), &format!("/containers/0/{list}")),
            key,
        )
    };
    assert_eq!(container(json!([{"name": "E3"}]), "env", "name"), ["E3", "E1", "E2"]);
    assert_eq!(
        container(json!([{"name": "E1", "$patch": "delete"}]), "env", "name"),
        ["E2"]
    );
    assert_eq!(
        container(
            json!([{"containerPort": 81, "name": "x"}, {"containerPort": 82}]),
            "ports",
            "containerPort"
        ),
        ["80", "81", "82"]
    );
    assert_eq!(
        container(json!([{"mountPath": "/w"}]), "volumeMounts", "mountPath"),
        ["/w", "/v"]
    );
    assert_eq!(
        pod_spec(
            json!({"containers": [{"name": "a", "args": ["9"]}]}),
            "/containers/0/args"
        ),
        json!(["9"])
    );
    assert_eq!(
        pod_spec(json!({"containers": [{"name": "a", "env": null}]}), "/containers/0/env"),
        Value::Null
    );
}

#[test]
fn maps_merge_replace_and_delete() {
    assert_eq!(
        pod_spec(json!({"nodeSelector": {"n": null, "o": "3"}}), "/nodeSelector"),
        json!({"m": "2", "o": "3"})
    );
    assert_eq!(
        pod_spec(
            json!({"nodeSelector": {"$patch": "replace", "o": "3"}}),
            "/nodeSelector"
        ),
        json!({"o": "3"})
    );
    assert_eq!(
        pod_spec(json!({"nodeSelector": {"$patch": "delete"}}), "/nodeSelector"),
        json!({})
    );
    assert_eq!(
        pod_spec(json!({"affinity": {"nodeAffinity": null}}), "/affinity"),
        json!({})
    );
}

#[test]
fn lists_without_a_key_are_replaced() {
    assert_eq!(
        pod_spec(json!({"tolerations": [{"key": "z"}]}), "/tolerations"),
        json!([{"key": "z"}])
    );
}

#[test]
fn retain_keys_drops_what_it_does_not_name() {
    let patch = json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]});
    assert_eq!(
        pod_spec(patch, "/volumes/0"),
        json!({"name": "v", "hostPath": {"path": "/x"}})
    );
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let patched = strategic("Deployment", &deployment(), &patch).expect("applies");
    assert_eq!(patched["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn finalizers_are_a_set() {
    let finalizers = |patch: Value| {
        strategic("Deployment", &deployment(), &json!({"metadata": patch})).expect("applies")["metadata"]["finalizers"]
            .clone()
    };
    assert_eq!(finalizers(json!({"finalizers": ["e/f"]})), json!(["e/f", "a/b", "c/d"]));
    assert_eq!(
        finalizers(json!({"$deleteFromPrimitiveList/finalizers": ["a/b"]})),
        json!(["c/d"])
    );
    let both = json!({
        "$deleteFromPrimitiveList/finalizers": ["a/b"], "$setElementOrder/finalizers": ["g/h", "c/d"], "finalizers": ["g/h"],
    });
    assert_eq!(finalizers(both), json!(["g/h", "c/d"]));
    assert_eq!(finalizers(json!({"finalizers": null})), Value::Null);
}

#[test]
fn service_ports_merge_by_port() {
    let service = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    let patch = json!({"spec": {"ports": [{"port": 80, "name": "zz"}]}});
    let patched = strategic("Service", &service, &patch).expect("applies");
    assert_eq!(
        patched["spec"]["ports"],
        json!([{"name": "zz", "port": 80}, {"name": "b", "port": 81}])
    );
}

#[test]
fn conditions_merge_by_type_but_not_in_a_crd() {
    let object = json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}});
    let patch = json!({"status": {"conditions": [{"type": "B", "status": "False"}]}});
    let pod = strategic("Pod", &object, &patch).expect("applies");
    assert_eq!(
        pod["status"]["conditions"],
        json!([{"type": "A", "status": "True"}, {"type": "B", "status": "False"}])
    );
    let crd = strategic("CustomResourceDefinition", &object, &patch).expect("applies");
    assert_eq!(crd["status"]["conditions"], json!([{"type": "B", "status": "False"}]));
}

#[test]
fn invalid_patches_are_refused_with_the_reason() {
    let spec = |patch: Value| {
        strategic(
            "Deployment",
            &deployment(),
            &json!({"spec": {"template": {"spec": patch}}}),
        )
        .unwrap_err()
    };
    assert_eq!(
        spec(json!({"containers": [{"image": "n"}]})).to_string(),
        r#"map: {"image":"n"} does not contain declared merge key: name"#
    );
    assert_eq!(
        spec(json!({"nodeSelector": {"$patch": "bogus"}})).to_string(),
        r#"unknown patch type: "bogus""#
    );
    assert!(matches!(
        spec(json!({"volumes": [{"name": "v", "$retainKeys": ["name"], "x": 1}]})),
        PatchError::Malformed(_)
    ));
    assert!(matches!(
        strategic("Pod", &json!({}), &json!([])),
        Err(PatchError::Malformed(_))
    ));
}

#[test]
fn json_patch_applies_whole_or_not_at_all() {
    let object = json!({"spec": {"name": "ab"}});
    let patch =
        json!([{"op": "test", "path": "/spec/name", "value": "ab"}, {"op": "add", "path": "/spec/count", "value": 1}]);
    assert_eq!(
        json_patch(&object, &patch),
        Ok(json!({"spec": {"name": "ab", "count": 1}}))
    );
    for bad in [
        json!([{"op": "test", "path": "/spec/name", "value": "zz"}]),
        json!([{"op": "remove", "path": "/spec/nope"}]),
        json!([{"op": "bogus", "path": "/spec"}]),
        json!([{"op": "replace", "path": "", "value": 1}]),
    ] {
        assert!(
            matches!(json_patch(&object, &bad), Err(PatchError::Unprocessable(_))),
            "{bad}"
        );
    }
    assert!(matches!(json_patch(&object, &json!({})), Err(PatchError::Malformed(_))));
}

#[test]
fn merge_patch_deletes_by_null() {
    let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "list": [1, 2]});
    let patch = json!({"metadata": {"labels": {"a": null, "c": "3"}}, "list": [3]});
    assert_eq!(
        merge(&object, &patch),
        Ok(json!({"metadata": {"labels": {"b": "2", "c": "3"}}, "list": [3]}))
    );
    assert!(matches!(merge(&object, &json!("x")), Err(PatchError::Malformed(_))));
}
