use super::*;

#[test]
fn the_resources_of_the_pod_as_a_whole_decide_its_quality_of_service() {
    let (both, some) = (json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "1"}));
    for (whole, container, class) in [
        (json!({}), json!({}), "BestEffort"),
        (json!({}), json!({"requests": both, "limits": both}), "Guaranteed"),
        (json!({"requests": both, "limits": both}), json!({}), "Guaranteed"),
        (
            json!({"requests": both, "limits": both}),
            json!({"requests": some}),
            "Guaranteed",
        ),
        (json!({"requests": some, "limits": both}), json!({}), "Burstable"),
        (
            json!({"requests": some}),
            json!({"requests": both, "limits": both}),
            "Burstable",
        ),
        (
            json!({"requests": {"hugepages-2Mi": "4Mi"}}),
            json!({"requests": some}),
            "Burstable",
        ),
    ] {
        let containers = json!([{"name": "main", "resources": container}]);
        let pod = json!({"spec": {"containers": containers, "resources": whole}});
        assert_eq!(qos_class(&pod), class, "{pod}");
    }
}
