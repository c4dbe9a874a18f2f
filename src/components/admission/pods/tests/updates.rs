//! What an update of a pod may change of its GPU portion, and ephemeral containers.

use super::*;

/// The pod after the change of its annotations; null removes one.
fn annotated(pod: &Value, annotations: &Value) -> Value {
    let mut pod = pod.clone();
    json_patch::merge(&mut pod, &json!({"metadata": {"annotations": annotations}}));
    pod
}

/// A pod with two containers, of which the first shares a GPU.
fn sharing(settings: &Settings) -> Value {
    let mut pod = pod(&["gpu-fraction=0.5"]);
    pod["spec"]["containers"] = json!([{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]);
    mutated(&pod, None, settings)
}

fn blocked() -> Settings {
    Settings {
        block_nvidia_visible_devices: true,
        ..settings()
    }
}

#[test]
fn which_container_shares_a_gpu_is_settled_when_the_pod_is_created() {
    let told = |change: &str| {
        Some(format!(
            "{change}: the references of its containers to the GPU are written when it is created. Delete the pod and create it again"
        ))
    };
    let removed = told("the request for a part of a GPU (gpu-fraction, gpu-memory) cannot be removed from a pod");
    let moved = told("gpu-fraction-container-name and runai/shared-gpu-configmap of a pod cannot be changed");
    let unknown =
        "failed to get fraction container ref: container with name nobody not found for fraction request".to_owned();
    let (plain, sharing) = (pod(&[]), sharing(&settings()));
    for (old, change, expected) in [
        (&plain, json!({"gpu-fraction": "0.5"}), None),
        (&plain, json!({"runai/shared-gpu-configmap": "other"}), None),
        (&sharing, json!({"gpu-fraction": null}), removed),
        (&sharing, json!({"gpu-fraction-container-name": "side"}), moved.clone()),
        (&sharing, json!({"gpu-fraction-container-name": "main"}), None),
        (
            &sharing,
            json!({"gpu-fraction-container-name": "nobody"}),
            Some(unknown),
        ),
        (&sharing, json!({"runai/shared-gpu-configmap": "other"}), moved.clone()),
        (&sharing, json!({"runai/shared-gpu-configmap": null}), moved),
        (&sharing, json!({"gpu-fraction": "0.3"}), None),
        (&sharing, json!({"gpu-fraction": null, "gpu-memory": "1000"}), None),
        (&sharing, json!({"note": "a"}), None),
    ] {
        let says = |old: &Value| denial(validate(&update(old, &annotated(old, &change)), None, &settings()));
        assert_eq!(says(old), expected, "{change}");
        let mut bound = old.clone();
        bound["spec"]["nodeName"] = json!("n1");
        assert_eq!(says(&bound), None, "what it was bound with counts: {change}");
    }
}

#[test]
fn a_pod_that_was_created_without_review_has_no_references_to_keep() {
    let mut old = pod(&["gpu-fraction=0.5"]);
    old["spec"]["containers"] = json!([{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]);
    for change in [
        json!({"gpu-fraction": null}),
        json!({"gpu-fraction-container-name": "side"}),
        json!({"runai/shared-gpu-configmap": "mine"}),
    ] {
        let verdict = validate(&update(&old, &annotated(&old, &change)), None, &settings());
        assert_eq!(verdict, Verdict::allow(), "{change}");
    }
}

#[test]
fn a_container_that_shares_no_gpu_any_more_may_not_refer_to_one() {
    let says = |old: &Value, object: &Value| denial(validate(&update(old, object), None, &blocked()));
    let mut old = sharing(&blocked());
    old["spec"]["nodeName"] = json!("n1");
    for change in [
        json!({"gpu-fraction": null}),
        json!({"gpu-fraction-container-name": "side"}),
    ] {
        let object = annotated(&old, &change);
        assert_eq!(
            says(&old, &object).as_deref(),
            Some(
                "container main has an environment variable NVIDIA_VISIBLE_DEVICES defined with a valueFrom reference. This is forbidden due to possible conflicts with Nvidia's device plugin"
            ),
            "{change}"
        );
        let labelled = annotated(&object, &json!({"note": "a"}));
        assert_eq!(says(&object, &labelled), None, "it was so before: {change}");
    }
}

#[test]
fn new_ephemeral_containers_see_no_gpus() {
    let all = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
    let void = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]);
    let mut old = pod(&[]);
    old["spec"]["containers"][0]["env"] = all.clone();
    old["spec"]["ephemeralContainers"] = json!([{"name": "before", "env": all}]);
    let mut object = old.clone();
    object["spec"]["ephemeralContainers"] =
        json!([{"name": "before", "env": all}, {"name": "shell"}, {"name": "greedy", "env": all}]);
    let after = |settings: &Settings| {
        let verdict = mutate(&update(&old, &object), context(None, "x"), settings);
        let mut after = object.clone();
        json_patch::patch(&mut after, &verdict.patch.unwrap_or_default()).unwrap();
        after
    };
    assert_eq!(after(&settings()), object, "the rule is opt-in");
    let hidden = after(&blocked());
    let ephemeral = hidden["spec"]["ephemeralContainers"].as_array().unwrap();
    let env: Vec<&Value> = ephemeral.iter().map(|container| &container["env"]).collect();
    assert_eq!(env, [&all, &void, &void]);
    assert_eq!(hidden["spec"]["containers"], old["spec"]["containers"]);

    let says = |object: &Value, settings: &Settings| denial(validate(&update(&old, object), None, settings));
    assert_eq!(says(&hidden, &blocked()), None);
    assert_eq!(says(&object, &settings()), None);
    assert_eq!(
        says(&object, &blocked()).as_deref(),
        Some(
            "container greedy has an environment variable NVIDIA_VISIBLE_DEVICES defined with a value of all. This is forbidden due to conflicts with Nvidia's device plugin. The only values that are allowed are 'void' or 'none'"
        )
    );
}
