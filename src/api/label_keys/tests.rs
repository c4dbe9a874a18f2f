use super::*;

#[test]
fn the_values_of_the_pods_own_labels_are_added_to_the_selectors_beside_their_keys() {
    let mut pod = json!({
        "metadata": {"labels": {"app": "web", "version": "2"}},
        "spec": {
            "affinity": {
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"labelSelector": {}, "topologyKey": "zone", "mismatchLabelKeys": ["app"]}},
                ]},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "topologyKey": "zone",
                        "matchLabelKeys": ["version", "absent"], "mismatchLabelKeys": ["app"],
                    },
                    {"topologyKey": "zone", "matchLabelKeys": ["version"]},
                ]},
            },
            "topologySpreadConstraints": [{"labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["version"]}],
        },
    });
    add_to_selectors(&mut pod);
    let version = json!({"key": "version", "operator": "In", "values": ["2"]});
    let other_app = json!({"key": "app", "operator": "NotIn", "values": ["web"]});
    let affinity = &pod["spec"]["affinity"];
    let preferred = &affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
    assert_eq!(preferred["labelSelector"], json!({"matchExpressions": [other_app]}));
    let required = &affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        required[0]["labelSelector"]["matchExpressions"],
        json!([{"key": "app", "operator": "Exists"}, version, other_app])
    );
    assert_eq!(
        required[1].get("labelSelector"),
        None,
        "without a selector it selects no pod"
    );
    assert_eq!(
        pod["spec"]["topologySpreadConstraints"][0]["labelSelector"],
        json!({"matchLabels": {"app": "web"}, "matchExpressions": [version]})
    );
}

#[test]
fn a_pod_without_keys_stays_as_it_is() {
    for pod in [
        json!({}),
        json!({"spec": null}),
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"affinity": {"podAffinity": null}, "topologySpreadConstraints": [{}]}}),
    ] {
        let mut same = pod.clone();
        add_to_selectors(&mut same);
        assert_eq!(same, pod);
    }
}
