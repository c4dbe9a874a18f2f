//! A Config as administrators may write it: one with errors changes nothing, and each error says where it is.

use serde_json::{Value, json};

use super::{flags, seen};
use crate::config::Resolver;
use crate::fuzz::Target;
use crate::mirror::policy::Finding;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "global", "binder", "admission", "podGrouper", "scheduler", "queueController", "podGroupController", "nodeScaleAdjuster", "numaPlacementExporter",
    "prometheus", "args", "service", "enabled", "image", "name", "tag", "schedulerName", "nodePoolLabelKey", "queueLabelKey", "replicaCount",
    "resourceReservation", "gpuSharing", "jsonLog", "a=b,c=d", "a=", "kai.scheduler/queue", "a/b/c", "http://p:9090", "metricsNamespace", "interval",
    "maxRetries", "true", "0.1", "runAsUser", "resources", "requests", "cpu", "1Gi",
];

#[test]
fn fuzz_configs() {
    let check = |findings: &[Finding]| {
        let says_something = |finding: &Finding| !finding.path.is_empty() && !finding.says.is_empty();
        assert!(findings.iter().all(says_something), "{findings:?}");
    };
    let good = json!({"global": {"schedulerName": "mine"}, "binder": {"volumeBindingTimeoutSeconds": 8}});
    let with_good = || {
        let mut resolver = Resolver::new(flags());
        resolver.config(Some(seen(1, good.clone())));
        resolver
    };
    let before = with_good().resolve().0;
    let target = Target {
        name: "configuration",
        rounds: 1_500,
        words: WORDS,
    };
    target.objects(|config: &Value| {
        let mut resolver = with_good();
        resolver.config(Some(seen(2, config.clone())));
        let (resolved, reports) = resolver.resolve();
        assert_eq!(resolver.resolve(), (resolved.clone(), reports.clone()));
        let [report] = &reports[..] else { panic!("{reports:?}") };
        check(&report.wrong);
        check(&report.ignored);
        if report.wrong.is_empty() {
            assert_eq!(report.in_force, Some(2));
            return true;
        }
        assert_eq!((report.in_force, &resolved), (Some(1), &before));
        false
    });
}
