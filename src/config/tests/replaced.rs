//! Values that KAI accepts although they make no sense: they do not make the object invalid, and its owner is told.

use super::*;

#[test]
fn numbers_out_of_range_are_replaced_by_the_default_and_reported() {
    let cases = [
        ("spec.binder.volumeBindingTimeoutSeconds", "0"),
        (
            "spec.binder.plugins.volumebinding.arguments.bindTimeoutSeconds",
            "\"0\"",
        ),
        ("spec.binder.resourceReservation.allocationTimeout", "-1"),
        ("spec.queueController.metricsNamespace", "\"\""),
        ("spec.nodeScaleAdjuster.args.gpuMemoryToFractionRatio", "0"),
        ("spec.nodeScaleAdjuster.args.gpuMemoryToFractionRatio", "2"),
        ("spec.prometheus.externalPrometheusHealthProbe.interval", "0"),
    ];
    let (usual, _) = resolved(json!({}), json!({}));
    for (path, value) in cases {
        let value = with(path, serde_json::from_str(value).unwrap());
        let (after, reports) = resolved(value, json!({}));
        assert_eq!(reports[0].wrong, [], "{path}");
        let ignored = &reports[0].ignored;
        assert!(ignored.len() == 1 && ignored[0].path == path, "{path}: {ignored:?}");
        assert_eq!(after, usual, "{path}");
    }
}

#[test]
fn a_timeout_that_is_too_long_counts_as_the_longest() {
    let reservation = json!({"allocationTimeout": i64::MAX});
    let config = json!({"binder": {"resourceReservation": reservation, "volumeBindingTimeoutSeconds": 31_536_001}});
    let (resolved, reports) = resolved(config, json!({}));
    assert_eq!(reports[0].wrong, []);
    assert_eq!(
        said(&reports[0].ignored),
        [
            "spec.binder.volumeBindingTimeoutSeconds: is more than 31536000 seconds, which apply",
            "spec.binder.resourceReservation.allocationTimeout: is more than 31536000 seconds, which apply",
        ]
    );
    let components = resolved.common.components;
    let year = 365 * 24 * 60 * 60;
    assert_eq!(components.volume_binding_timeout.as_secs(), year);
    assert_eq!(components.sharing.max_wait.as_secs(), year);
}

#[test]
fn a_poll_interval_that_is_too_short_counts_as_the_shortest() {
    let config = json!({"numaPlacementExporter": {"pollInterval": "1ms"}, "admission": {"gpuSharing": true}});
    let (resolved, reports) = resolved(config, json!({}));
    assert_eq!(reports[0].wrong, []);
    assert_eq!(
        said(&reports[0].ignored),
        ["spec.numaPlacementExporter.pollInterval: is less than 100 ms, which apply"]
    );
    assert_eq!(resolved.common.components.numa_exporter.poll.as_millis(), 100);
    assert!(resolved.common.admission.gpu_sharing, "the other fields are in force");
}

#[test]
fn a_shard_with_values_that_kai_replaces_is_in_force() {
    let shard = json!({
        "kValue": 3, "placementStrategy": {"gpu": "scatter"}, "minRuntime": {"reclaimMinRuntime": "long"},
        "plugins": {"minruntime": {"arguments": {"reclaimResolveMethod": "x"}}},
        "usageDBConfig": {"clientType": "builtin", "usageParams": {"waitTimeout": "0s"}},
    });
    let (resolved, reports) = resolved(json!({}), shard);
    assert_eq!((reports[1].in_force, &reports[1].wrong), (Some(1), &Vec::new()));
    let ignored: Vec<_> = reports[1].ignored.iter().map(|finding| finding.path.as_str()).collect();
    let expected = [
        "spec.placementStrategy.gpu",
        "spec.minRuntime.reclaimMinRuntime",
        "spec.plugins.minruntime.arguments.reclaimResolveMethod",
    ];
    assert_eq!(ignored, expected);
    let proportion = resolved.shards[0].rules.policy.plugins.proportion;
    assert_eq!(proportion.unwrap().k_value, 3_000_000, "the other fields are in force");
}
