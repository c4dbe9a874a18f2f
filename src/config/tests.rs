//! Tables: what a Config and shards amount to; and that no field of either CRD is left out of the table of fields.

mod descriptions;
mod fuzz;
mod pools;
mod replaced;
mod samples;
mod webhooks;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::conditions::{self, conditions};
use super::fields::{Effect, Field};
use super::*;
use crate::api::condition::Condition;
use crate::api::crds;
use crate::engine::policy::{NodePlacement, Strategy};
use samples::SAMPLES;

/// Flags as they are by default.
pub fn flags() -> Common {
    let admission = admission::Settings {
        namespace: "kai-scheduler".to_owned(),
        scope: admission::Scope::default(),
        scheduler_name: "kai-scheduler".to_owned(),
        queue_label_key: "kai.scheduler/queue".to_owned(),
        queue_labels: admission::QueueLabels::Enforce,
        gpu_sharing: false,
        gpu_resources: Vec::new(),
        gpu_fraction_runtime_class: "nvidia".to_owned(),
        block_nvidia_visible_devices: false,
        hami_core: false,
        queue_rules: admission::queues::Rules::default(),
        failure_policy: admission::FailurePolicy::Fail,
        client_authorities: None,
        address: ([127, 0, 0, 1], 9443).into(),
        target: None,
    };
    Common {
        components: components::Settings::default(),
        admission,
        metrics_namespace: "kai".to_owned(),
        only_pool: None,
        prometheus: None,
    }
}

fn seen<S: serde::de::DeserializeOwned>(generation: i64, spec: Value) -> Seen<S> {
    Seen {
        uid: "a".to_owned(),
        created: 0,
        generation,
        spec: serde_json::from_value(spec).map_err(|error| error.to_string()),
    }
}

fn resolver(config: Value, shard: Value) -> Resolver {
    let mut resolver = Resolver::new(flags());
    resolver.config(Some(seen(1, config)));
    resolver.shard("default", Some(seen(1, shard)));
    resolver
}

fn resolved(config: Value, shard: Value) -> (Resolved, Vec<Report>) {
    resolver(config, shard).resolve()
}

/// An object with one field, whose path may name places in maps.
fn with(path: &str, value: Value) -> Value {
    let parts: Vec<_> = path.split('.').skip(1).collect();
    parts.iter().rev().fold(value, |inner, part| json!({ *part: inner }))
}

fn said(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn without_objects_the_flags_apply() {
    let (alone, reports) = Resolver::new(flags()).resolve();
    assert_eq!(reports, []);
    assert_eq!(alone.common, flags());
    assert_eq!(alone, resolved(json!({}), json!({})).0);
    assert!(alone.shards[0].rules.on);
    assert_eq!(alone.shards[0].rules.policy, crate::engine::policy::Policy::default());
}

#[test]
fn config_takes_precedence_over_flags_and_a_shard_over_config() {
    let mut given = flags();
    given.components.detailed_fit_errors = true;
    given.components.numa = Some(vec!["memory".to_owned()]);
    given.components.volume_binding_timeout = Duration::from_secs(7);
    let mut resolver = Resolver::new(given);
    let (flags_alone, _) = resolver.resolve();
    assert!(flags_alone.shards[0].rules.policy.detailed_errors);
    assert_eq!(
        flags_alone.shards[0].rules.mirror.numa.as_deref(),
        Some(["memory".to_owned()].as_slice())
    );
    let config = json!({"binder": {"volumeBindingTimeoutSeconds": 8}});
    resolver.config(Some(seen(1, config)));
    let shard = json!({"args": {"detailed-fit-errors": "false"}, "plugins": {"numa": {"enabled": false}}});
    resolver.shard("default", Some(seen(1, shard)));
    let (all, reports) = resolver.resolve();
    assert!(!all.shards[0].rules.policy.detailed_errors);
    assert_eq!(
        (&all.shards[0].rules.mirror.numa, &all.common.components.numa),
        (&None, &None)
    );
    assert_eq!(all.common.components.volume_binding_timeout.as_secs(), 8);
    assert!(
        reports
            .iter()
            .all(|report| report.wrong.is_empty() && report.ignored.is_empty()),
        "{reports:?}"
    );
    resolver.config(None);
    resolver.shard("default", Some(seen(2, json!({}))));
    assert_eq!(resolver.resolve().0, flags_alone);
    resolver.shard("default", None);
    let (without, _) = resolver.resolve();
    assert_eq!(without.shards, [], "all shards are deleted");
    assert!(!without.common.components.pools.default_has_shard);
}

#[test]
fn the_last_valid_state_stays_and_an_invalid_object_does_not_affect_others() {
    let mut resolver = resolver(
        json!({"admission": {"gpuSharing": true}}),
        json!({"placementStrategy": {"gpu": "spread", "cpu": "spread"}}),
    );
    let (good, _) = resolver.resolve();
    let spread = NodePlacement {
        gpu: Strategy::Spread,
        cpu: Strategy::Spread,
    };
    assert_eq!(good.shards[0].rules.policy.plugins.node_placement, Some(spread));
    assert!(good.common.admission.gpu_sharing);

    resolver.shard(
        "default",
        Some(seen(
            2,
            json!({"args": {"restrict-node-scheduling": "maybe", "cpu-worker-node-label-key": "a b"}}),
        )),
    );
    resolver.config(Some(seen(
        2,
        json!({"global": {"schedulerName": "It's"}, "admission": {"gpuSharing": false}}),
    )));
    let (after, reports) = resolver.resolve();
    assert_eq!(after, good);
    let [config, shard] = &reports[..] else {
        panic!("{reports:?}")
    };
    assert_eq!((config.generation, config.in_force), (2, Some(1)));
    assert_eq!(
        said(&config.wrong),
        ["spec.global.schedulerName: \"It's\" is not a name of Kubernetes"]
    );
    assert_eq!((shard.generation, shard.in_force), (2, Some(1)));
    assert_eq!(
        said(&shard.wrong),
        [
            "spec.args.restrict-node-scheduling: \"maybe\" is not true or false",
            "spec.args.cpu-worker-node-label-key: \"a b\" is not a label key"
        ]
    );
    // Another object of the name has no past.
    let mut other = seen::<SchedulingShardSpec>(1, json!({"args": {"restrict-node-scheduling": "maybe"}}));
    other.uid = "b".to_owned();
    resolver.shard("default", Some(other));
    let (after, reports) = resolver.resolve();
    assert_eq!(reports[1].in_force, None);
    assert!(!after.shards[0].rules.on, "its rules are not known");
    // One that cannot be read at all counts as bad.
    resolver.config(Some(seen(3, json!({"global": {"schedulerName": 1}}))));
    let (after, reports) = resolver.resolve();
    assert!(after.common.admission.gpu_sharing);
    assert!(
        said(&reports[0].wrong)[0].starts_with("spec: cannot be read"),
        "{reports:?}"
    );
}

#[test]
fn the_oldest_shard_of_a_pool_applies_and_others_get_a_condition() {
    let mut resolver = Resolver::new(flags());
    let shard = |created: i64, spec: Value| {
        Some(Seen {
            created,
            ..seen(1, spec)
        })
    };
    resolver.shard("a", shard(9, json!({"placementStrategy": {"gpu": "spread"}})));
    resolver.shard("b", shard(5, json!({"kValue": 3})));
    resolver.shard("c", shard(1, json!({"partitionLabelValue": "blue"})));
    let (resolved, reports) = resolver.resolve();
    let of_pools = |resolved: &Resolved| -> Vec<(String, String)> {
        let shards = resolved.shards.iter();
        shards
            .map(|shard| (shard.name.clone(), shard.rules.policy.node_pool.clone()))
            .collect()
    };
    let pair = |name: &str, pool: &str| (name.to_owned(), pool.to_owned());
    assert_eq!(of_pools(&resolved), [pair("b", "default"), pair("c", "blue")]);
    assert_eq!(
        resolved.shards[0].rules.policy.plugins.proportion.unwrap().k_value,
        3_000_000
    );
    assert_eq!(
        resolved.shards.iter().map(ShardRules::scope).collect::<Vec<_>>(),
        [Scope::Cluster, Scope::Pool("blue".into())]
    );
    assert_eq!(resolved.common.components.pools.with_shard, ["blue".into()].into());
    let unserved: Vec<_> = reports.iter().map(|report| report.unserved.clone()).collect();
    assert_eq!(unserved, [Some(Unserved::SamePool("b".to_owned())), None, None]);

    // A process for one pool only.
    let mut blue = flags();
    blue.only_pool = Some("blue".to_owned());
    let mut resolver = Resolver::new(blue);
    resolver.shard("b", shard(5, json!({"kValue": 3})));
    let (resolved, reports) = resolver.resolve();
    assert_eq!(of_pools(&resolved), [pair("blue", "blue")], "without a shard");
    assert_eq!(reports[0].unserved, Some(Unserved::OtherPool("blue".to_owned())));
    let placement = json!({"partitionLabelValue": "blue", "placementStrategy": {"cpu": "spread"}});
    resolver.shard("c", shard(1, placement));
    let (resolved, _) = resolver.resolve();
    assert_eq!(of_pools(&resolved), [pair("c", "blue")]);
    let rules = &resolved.shards[0].rules;
    assert_eq!(rules.mirror.shard.value, "blue");
    assert_eq!(rules.policy.plugins.node_placement.unwrap().cpu, Strategy::Spread);

    // Without a label there is one pool, and the oldest shard counts.
    let mut one = Resolver::new(flags());
    one.config(Some(seen(1, json!({"global": {"nodePoolLabelKey": ""}}))));
    one.shard("b", shard(5, json!({})));
    one.shard("c", shard(1, json!({"partitionLabelValue": "blue"})));
    let (resolved, _) = one.resolve();
    assert_eq!(
        resolved
            .shards
            .iter()
            .map(|shard| shard.name.as_str())
            .collect::<Vec<_>>(),
        ["c"]
    );
}

#[test]
fn settings_shared_by_engine_and_mirror_reach_both() {
    let args = json!({"args": {
        "restrict-node-scheduling": "true", "cpu-worker-node-label-key": "cpu", "gpu-worker-node-label-key": "gpu",
        "mig-worker-node-label-key": "mig", "full-hierarchy-fairness": "false", "v": "5"
    }});
    let (resolved, reports) = resolved(json!({}), args);
    let rules = resolved.shards[0].rules.clone();
    assert!(rules.policy.restrict_nodes && rules.mirror.restrict_nodes);
    assert!(!rules.policy.full_hierarchy && !rules.mirror.full_hierarchy);
    assert_eq!(
        (
            rules.policy.cpu_worker_label.as_str(),
            rules.mirror.cpu_worker_label.as_str()
        ),
        ("cpu", "cpu")
    );
    assert_eq!(
        (
            rules.policy.gpu_worker_label.as_str(),
            rules.mirror.gpu_worker_label.as_str()
        ),
        ("gpu", "gpu")
    );
    assert_eq!(rules.mirror.mig_label, "mig");
    assert_eq!(
        said(&reports[1].ignored),
        ["spec.args.v: this flag has no effect on decisions here"]
    );
}

#[test]
fn a_typical_config_is_resolved() {
    let config = json!({
        "namespace": "kai-scheduler",
        "global": {"imagesPullSecret": "one", "additionalImagePullSecrets": ["two"], "replicaCount": 2},
        "binder": {
            "replicas": 1,
            "plugins": {
                "hamicore": {"enabled": true},
                "volumebinding": {"priority": 5, "arguments": {"bindTimeoutSeconds": "33"}},
                "gpusharing": {"enabled": false, "arguments": {"cdiEnabled": "1"}}
            }
        },
        "scheduler": {"service": {"enabled": false, "resources": {"limits": {"cpu": "1"}}}},
        "queueController": {"queueLabelToMetricLabel": "team=of, team=team, tier=tier", "queueLabelToDefaultMetricValue": "team=any,team=none"},
        "admission": {"gpuPodRuntimeClassName": "old"}
    });
    let (resolved, reports) = resolved(config, json!({}));
    assert!(!resolved.shards[0].rules.on);
    let components = &resolved.common.components;
    assert_eq!(components.sharing.pull_secrets, ["two", "one"]);
    assert!(components.sharing.hami_core && resolved.common.admission.hami_core);
    assert_eq!(components.sharing.cdi, components::gpu_operator::Cdi::True);
    assert_eq!(components.volume_binding_timeout.as_secs(), 33);
    let labels: Vec<_> = components
        .queue_metric_labels
        .iter()
        .map(|label| (label.shown_as.as_str(), label.default.as_str()))
        .collect();
    assert_eq!(
        labels,
        [("team", "none"), ("tier", "")],
        "the last value of a key counts"
    );
    assert_eq!(resolved.common.admission.gpu_fraction_runtime_class, "old");
    let ignored: Vec<_> = reports[0].ignored.iter().map(|finding| finding.path.as_str()).collect();
    let expected = [
        "spec.binder.plugins.gpusharing.enabled",
        "spec.binder.plugins.volumebinding.priority",
        "spec.binder.replicas",
        "spec.global.replicaCount",
        "spec.namespace",
        "spec.scheduler.service.resources",
    ];
    assert_eq!(ignored, expected);
}

#[test]
fn absent_fields_of_the_global_security_context_have_their_defaults() {
    let of = |context: Value| {
        let (resolved, _) = resolved(json!({"global": {"securityContext": context}}), json!({}));
        json!(resolved.common.components.sharing.container_security)
    };
    let all_by_default = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 10000, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(of(json!({})), all_by_default);
    let mut some_set = all_by_default.clone();
    some_set["runAsUser"] = json!(5);
    some_set["capabilities"] = json!({"add": ["NET_RAW"], "drop": ["ALL"]});
    let given = json!({"runAsUser": 5, "capabilities": {"add": ["NET_RAW"], "drop": []}});
    assert_eq!(of(given), some_set);
    let all_set = json!({
        "allowPrivilegeEscalation": true, "runAsNonRoot": false, "runAsUser": 0, "readOnlyRootFilesystem": false,
        "capabilities": {"drop": ["NET_RAW"]}, "privileged": true,
    });
    assert_eq!(of(all_set.clone()), all_set);

    // That of the reservation pods alone is used as it is.
    let own = json!({"runAsUser": 5});
    let config = json!({"binder": {"resourceReservation": {"reservationContainerSecurityContext": own}}});
    let (resolved, _) = resolved(config, json!({}));
    assert_eq!(json!(resolved.common.components.sharing.container_security), own);
}

#[test]
fn pull_secrets_of_config_are_added_to_those_of_the_flag() {
    let mut with_flag = flags();
    with_flag.components.sharing.pull_secrets = vec!["by-flag".to_owned()];
    let mut resolver = Resolver::new(with_flag);
    let global = json!({"imagesPullSecret": "one", "additionalImagePullSecrets": ["two", "by-flag"]});
    resolver.config(Some(seen(1, json!({"global": global}))));
    let components = resolver.resolve().0.common.components;
    assert_eq!(components.sharing.pull_secrets, ["by-flag", "two", "one"]);
    assert_eq!(components.scaling.pull_secrets, components.sharing.pull_secrets);
}

#[test]
fn on_openshift_no_pod_has_a_fixed_user() {
    let (resolved, _) = resolved(json!({"global": {"openshift": true}}), json!({}));
    let components = resolved.common.components;
    assert_eq!(json!(components.sharing.container_security), json!({}));
    assert!(components.scaling.openshift && !components.numa_exporter.restricted);
}

#[test]
fn hamicore_is_on_only_if_it_is_enabled() {
    let mut on_by_flag = flags();
    on_by_flag.components.sharing.hami_core = true;
    // In binder and admission.
    let is_on = |flags: Common, plugin: Value| {
        let mut resolver = Resolver::new(flags);
        resolver.config(Some(seen(1, json!({"binder": {"plugins": {"hamicore": plugin}}}))));
        let common = resolver.resolve().0.common;
        (common.components.sharing.hami_core, common.admission.hami_core)
    };
    for (plugin, without_flag, with_flag) in [
        (json!({}), false, true),
        (json!({"priority": 60}), false, true),
        (json!({"enabled": true}), true, true),
        (json!({"enabled": false}), false, false),
    ] {
        let found = [flags(), on_by_flag.clone()].map(|flags| is_on(flags, plugin.clone()));
        let expected = [without_flag, with_flag].map(|on| (on, on));
        assert_eq!(found, expected, "{plugin}");
    }
}

#[test]
fn conditions_name_the_generation_that_is_in_force() {
    let now = Timestamp::UNIX_EPOCH;
    let mut report = Report {
        which: Which::Config,
        generation: 2,
        in_force: Some(2),
        wrong: Vec::new(),
        ignored: Vec::new(),
        unserved: None,
        missing: None,
    };
    let shown = |before: &[Condition], report: &Report, follows: bool| {
        let all = conditions(before, report, follows, now);
        let text = |c: &Condition| {
            format!(
                "{}={} {} {}",
                c.r#type,
                c.status,
                c.reason,
                c.observed_generation.unwrap()
            )
        };
        (all.iter().map(text).collect::<Vec<_>>(), all)
    };
    assert_eq!(shown(&[], &report, false).0, ["Reconciling=True reconciling 2"]);
    let (texts, good) = shown(&[], &report, true);
    assert_eq!(
        texts,
        [
            "Deployed=True deployed 2",
            "Available=True available 2",
            "Ready=True ready 2",
            "DependenciesFulfilled=True dependencies_fulfilled 2",
            "Reconciling=False reconciled 2",
            "FieldsIgnored=False all_used 2",
        ]
    );
    report.missing = Some("A is missing b");
    let (texts, without) = shown(&good, &report, true);
    assert_eq!(texts[3], "DependenciesFulfilled=False dependencies_missing 2");
    assert_eq!(without[3].message, "\nA is missing b");
    report.missing = None;
    report.generation = 3;
    report.wrong.push(Finding {
        path: "spec.a".to_owned(),
        says: "is wrong".to_owned(),
    });
    let (texts, bad) = shown(&good, &report, true);
    assert_eq!(
        texts,
        [
            "Deployed=True deployed 2",
            "Available=True available 2",
            "Ready=False invalid_config 3",
            "DependenciesFulfilled=True dependencies_fulfilled 2",
            "Reconciling=False invalid_config 3",
            "FieldsIgnored=False all_used 3",
        ]
    );
    assert_eq!(bad[2].message, "spec.a: is wrong");
    report.unserved = Some(Unserved::OtherPool("default".to_owned()));
    let (texts, _) = shown(&[], &report, true);
    assert_eq!(
        texts[..2],
        ["Deployed=False not_served 3", "Available=False not_served 3"]
    );
}

/// Every field of a kind's specification that has no fields below it.
fn leaves(kind: &str) -> Vec<Vec<String>> {
    fn walk(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        let below = schema["properties"].as_object().filter(|fields| !fields.is_empty());
        let named = &schema["additionalProperties"];
        if let Some(fields) = below {
            for (name, field) in fields {
                path.push(name.clone());
                walk(field, path, found);
                path.pop();
            }
        } else if named["properties"].is_object() {
            path.push("any".to_owned());
            walk(named, path, found);
            path.pop();
        } else {
            found.push(path.clone());
        }
    }
    let mut found = Vec::new();
    walk(&schema(kind), &mut vec!["spec".to_owned()], &mut found);
    found
}

/// The schema of a kind's specification.
fn schema(kind: &str) -> Value {
    let all = crds::all();
    let crd = all.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap()).unwrap();
    schema["openAPIV3Schema"]["properties"]["spec"].clone()
}

#[test]
fn every_field_of_both_kinds_is_in_the_table_and_every_row_is_a_field() {
    for kind in ["Config", "SchedulingShard"] {
        let leaves = leaves(kind);
        assert!(leaves.len() > 20, "{kind}: {}", leaves.len());
        let mut used = std::collections::BTreeSet::new();
        for leaf in &leaves {
            let path: Vec<_> = leaf.iter().map(String::as_str).collect();
            let row = fields::row(kind, &path)
                .unwrap_or_else(|| panic!("{kind}: {} is in no row of src/config/fields.rs", leaf.join(".")));
            used.insert(row.path);
        }
        for Field { path, .. } in fields::rows(kind) {
            assert!(
                used.contains(path),
                "{kind}: {path} is no field, or other rows say all of it"
            );
        }
    }
}

/// Rows whose fields make no difference alone, and the test that shows what they do.
const TOGETHER: &[&str] = &[
    // a_config_map_needs_both_its_names
    "spec.podGrouper.args.defaultPrioritiesConfigMapName",
    "spec.podGrouper.args.defaultPrioritiesConfigMapNamespace",
    // a_typical_config_is_resolved
    "spec.queueController.queueLabelToDefaultMetricValue",
    // the_health_check_of_the_prometheus_server_follows_config
    "spec.prometheus.externalPrometheusHealthProbe.interval",
    "spec.prometheus.externalPrometheusHealthProbe.timeout",
    "spec.prometheus.externalPrometheusHealthProbe.maxRetries",
    // the_oldest_shard_of_a_pool_applies_and_others_get_a_condition
    "spec.partitionLabelValue",
    // usage_settings_come_from_the_shard
    "spec.usageDBConfig.connectionString",
    "spec.usageDBConfig.connectionStringEnvVar",
    "spec.usageDBConfig.usageParams.windowSize",
    "spec.usageDBConfig.usageParams.windowType",
    "spec.usageDBConfig.usageParams.tumblingWindowStartTime",
    "spec.usageDBConfig.usageParams.cronString",
    "spec.usageDBConfig.usageParams.halfLifePeriod",
    "spec.usageDBConfig.usageParams.fetchInterval",
    "spec.usageDBConfig.usageParams.stalenessPeriod",
    "spec.usageDBConfig.usageParams.waitTimeout",
    "spec.usageDBConfig.usageParams.extraParams",
    "spec.usageDBConfig.extraParams",
];

#[test]
fn every_field_with_an_effect_changes_the_configuration() {
    let (before, _) = resolved(json!({}), json!({}));
    let mut shown = std::collections::BTreeSet::new();
    for (path, value) in SAMPLES {
        let value = with(path, serde_json::from_str(value).unwrap());
        let parts: Vec<_> = path.split('.').collect();
        let is_shard = fields::row("SchedulingShard", &parts).is_some();
        let kind = if is_shard { "SchedulingShard" } else { "Config" };
        let (after, reports) = if is_shard {
            resolved(json!({}), value)
        } else {
            resolved(value, json!({}))
        };
        assert_ne!(after, before, "{path} makes no difference");
        let report = &reports[usize::from(is_shard)];
        assert!(
            report.wrong.is_empty() && report.ignored.is_empty(),
            "{path}: {report:?}"
        );
        let row = fields::row(kind, &parts).unwrap();
        let at_once = after.common == before.common;
        assert_eq!(row.effect == Effect::Scheduler, at_once, "{path}: how is it followed?");
        shown.insert(row.path);
    }
    for row in fields::rows("Config").iter().chain(fields::rows("SchedulingShard")) {
        let silent = matches!(row.effect, Effect::Nothing(_)) || TOGETHER.contains(&row.path);
        assert!(
            silent || shown.contains(row.path),
            "{}: give a value that makes a difference",
            row.path
        );
    }
}

#[test]
fn usage_settings_come_from_the_shard() {
    let prometheus = |url: &str| json!({"clientType": "prometheus", "connectionString": url});
    let params =
        |params: Value| json!({"clientType": "prometheus", "connectionString": "http://p", "usageParams": params});
    // Each differs from the one before.
    let each = [
        json!({"clientType": "builtin"}),
        prometheus("http://p"),
        prometheus("https://p/prefix"),
        json!({"clientType": "prometheus", "connectionStringEnvVar": "CARGO_PKG_HOMEPAGE_OF_NOBODY"}),
        params(json!({"windowSize": "3d"})),
        params(
            json!({"windowSize": "3d", "windowType": "tumbling", "tumblingWindowStartTime": "2025-01-01T00:00:00Z"}),
        ),
        params(
            json!({"windowSize": "3d", "windowType": "tumbling", "tumblingWindowStartTime": "2025-01-02T00:00:00Z"}),
        ),
        params(json!({"windowType": "cron", "cronString": "0 0 * * *"})),
        params(json!({"windowType": "cron", "cronString": "0 0 * * 1"})),
        params(json!({"halfLifePeriod": "1h"})),
        params(json!({"fetchInterval": "2m"})),
        params(json!({"stalenessPeriod": "6m"})),
        params(json!({"waitTimeout": "2m"})),
        params(json!({"extraParams": {"gpuAllocationMetric": "held"}})),
        json!({"clientType": "prometheus", "connectionString": "http://p", "extraParams": {"gpuAllocationMetric": "beside"}}),
    ];
    let mut before = None;
    for config in each {
        let (resolved, reports) = resolved(json!({}), json!({"usageDBConfig": config}));
        if config.get("connectionStringEnvVar").is_some() {
            let expected = "spec.usageDBConfig.connectionStringEnvVar: \"CARGO_PKG_HOMEPAGE_OF_NOBODY\" is not set in the operator";
            assert_eq!(said(&reports[1].wrong), [expected]);
            continue;
        }
        assert_eq!(said(&reports[1].ignored), <[&str; 0]>::default());
        assert!(
            resolved.shards[0].rules.usage.is_some(),
            "{config}: {:?}",
            reports[1].wrong
        );
        assert_ne!(resolved.shards[0].rules.usage, before, "{config}");
        before = resolved.shards[0].rules.usage.clone();
    }

    let unnamed = json!({"usageDBConfig": {"clientType": "prometheus"}});
    let url = |config: Value| {
        let (resolved, reports) = resolved(config, unnamed.clone());
        let url = resolved.shards[0].rules.usage.clone().map(|usage| match usage.source {
            crate::usage::Source::Prometheus(server) => server.url,
            crate::usage::Source::BuiltIn => panic!("built in"),
        });
        url.ok_or_else(|| said(&reports[1].ignored))
    };
    let none = "spec.usageDBConfig: names no Prometheus server, and Config names none either";
    assert_eq!(url(json!({})), Err(vec![none.to_owned()]));
    let kais = "http://usage-prometheus.kai-scheduler.svc.cluster.local:9090";
    assert_eq!(url(json!({"prometheus": {"enabled": true}})).as_deref(), Ok(kais));
    let both = json!({"prometheus": {"enabled": true, "externalPrometheusUrl": "prometheus.monitoring:9090"}});
    assert_eq!(url(both).as_deref(), Ok("http://prometheus.monitoring:9090"));

    let bad = json!({"usageDBConfig": {"clientType": "prometheus", "connectionString": "http://user:secret@"}});
    let (_, reports) = resolved(json!({}), bad);
    let expected = "spec.usageDBConfig.connectionString: is not a URL, such as http://prometheus.monitoring:9090";
    assert_eq!(said(&reports[1].wrong), [expected]);
}

#[test]
fn free_amounts_of_zones_are_computed_unless_the_shard_disables_it() {
    let reported = |argument: &str| {
        let numa = json!({"enabled": true, "arguments": {"reconstructAvailable": argument}});
        let (resolved, reports) = resolved(json!({}), json!({"plugins": {"numa": numa}}));
        let notes = reports[1].ignored.len() + reports[1].wrong.len();
        (resolved.shards[0].rules.mirror.zones_as_reported, notes)
    };
    assert_eq!(["true", "false", "0"].map(reported), [(false, 0), (true, 0), (true, 0)]);
    assert_eq!(reported("perhaps"), (false, 1), "and its owner is told");
}

#[test]
fn the_numa_exporter_runs_if_config_or_a_shard_enables_it() {
    let on = |config: Value, shard: Value| resolved(config, shard).0.common.components.numa_exporter.on;
    let config = |enabled: Value| json!({"numaPlacementExporter": {"service": {"enabled": enabled}}});
    let shard = |numa: Value| json!({"plugins": {"numa": numa}});
    assert!(!on(json!({}), json!({})));
    assert!(on(json!({}), shard(json!({"enabled": true}))));
    // The plugin is on by its arguments, without `enabled`.
    assert!(!on(json!({}), shard(json!({}))));
    assert!(!on(json!({}), shard(json!({"enabled": false}))));
    assert!(on(config(json!(true)), json!({})));
    assert!(!on(config(json!(false)), shard(json!({"enabled": true}))));
    assert!(on(config(Value::Null), shard(json!({"enabled": true}))));
}

#[test]
fn fields_of_the_numa_exporter_are_applied() {
    let tolerates = |key: &str| json!([{"key": key, "operator": "Exists"}]);
    let config = json!({
        "global": {"daemonsetsTolerations": tolerates("all"), "openshift": true},
        "numaPlacementExporter": {
            "tolerations": tolerates("own"), "podResourcesHostPath": "/data/kubelet/", "nodeSelector": {},
            "service": {"resources": {"requests": {"cpu": "0.2"}}},
        },
    });
    let (resolved, _) = resolved(config, json!({}));
    let exporter = resolved.common.components.numa_exporter;
    let keys: Vec<_> = exporter
        .tolerations
        .iter()
        .filter_map(|one| one.key.as_deref())
        .collect();
    assert_eq!(keys, ["all", "own"]);
    assert_eq!(exporter.socket, "/data/kubelet/kubelet.sock");
    assert_eq!(exporter.node_selector["feature.node.kubernetes.io/memory-numa"], "true");
    assert_eq!(exporter.requests["cpu"].0, "200m", "as the API server writes it");
    assert!(exporter.limits.is_empty() && !exporter.restricted);
}

#[test]
fn the_health_check_of_the_prometheus_server_follows_config() {
    let probe = |prometheus: Value| {
        let (resolved, reports) = resolved(json!({"prometheus": prometheus}), json!({}));
        (resolved.probe, said(&reports[0].ignored))
    };
    let how = json!({"interval": 3, "timeout": 2, "maxRetries": 0});
    assert_eq!(
        probe(json!({"enabled": true, "externalPrometheusHealthProbe": how})).0,
        None
    );
    let (usual, _) = probe(json!({"externalPrometheusUrl": "prometheus:9090"}));
    let usual = usual.unwrap();
    assert_eq!(usual.url, "http://prometheus:9090");
    assert_eq!(
        (usual.interval.as_secs(), usual.timeout.as_secs(), usual.retries),
        (30, 10, 5)
    );
    let (own, _) = probe(json!({"externalPrometheusUrl": "https://p/x", "externalPrometheusHealthProbe": how}));
    let own = own.unwrap();
    assert_eq!(own.url, "https://p/x");
    assert_eq!((own.interval.as_secs(), own.timeout.as_secs(), own.retries), (3, 2, 0));
    let bad = json!({"interval": 0, "timeout": -1, "maxRetries": -1});
    let (replaced, ignored) =
        probe(json!({"externalPrometheusUrl": "prometheus:9090", "externalPrometheusHealthProbe": bad}));
    assert_eq!((replaced, ignored.len()), (Some(usual), 3));

    let now = Timestamp::UNIX_EPOCH;
    let before = conditions::prometheus(Vec::new(), None, 4, now);
    let failed = conditions::prometheus(before.clone(), Some(&Err("no".to_owned())), 4, now);
    assert_eq!(failed[0].reason, "prometheus_connection_failed");
    assert_eq!(failed[0].message, "Failed to ping external Prometheus: no");
    let good = conditions::prometheus(failed, Some(&Ok(())), 4, now);
    assert_eq!((good.len(), good[0].status.as_str()), (1, "True"));
    assert_eq!(conditions::prometheus(good, None, 4, now), before);
}

#[test]
fn a_config_map_needs_both_its_names() {
    let both = json!({"podGrouper": {"args": {"defaultPrioritiesConfigMapName": "a", "defaultPrioritiesConfigMapNamespace": "b"}}});
    let (resolved_both, _) = resolved(both, json!({}));
    let expected = Some(("b".to_owned(), "a".to_owned()));
    assert_eq!(resolved_both.common.components.default_priorities, expected);
    let one = json!({"podGrouper": {"args": {"defaultPrioritiesConfigMapName": "a"}}});
    let (_, reports) = resolved(one, json!({}));
    let expected = ["spec.podGrouper.args.defaultPrioritiesConfigMapName: has no effect without the namespace"];
    assert_eq!(said(&reports[0].ignored), expected);
}

#[test]
fn invalid_values_are_refused_with_their_path() {
    let cases = [
        ("spec.global.schedulerName", "\"a..b\""),
        ("spec.global.queueLabelKey", "\"a b\""),
        ("spec.global.podLabelSelector", "{\"a b\": \"c\"}"),
        ("spec.binder.plugins.typo", "{}"),
        (
            "spec.binder.plugins.volumebinding.arguments.bindTimeoutSeconds",
            "\"soon\"",
        ),
        ("spec.binder.resourceReservation.namespace", "\"A\""),
        ("spec.binder.resourceReservation.serviceAccountName", "\"a b\""),
        ("spec.binder.resourceReservation.appLabel", "\"a b\""),
        ("spec.binder.resourceReservation.runtimeClassName", "\"A\""),
        ("spec.queueController.metricsNamespace", "\"a-b\""),
        ("spec.queueController.queueLabelToMetricLabel", "\"a\""),
        ("spec.queueController.queueLabelToMetricLabel", "\"a=team,b=team\""),
        ("spec.queueController.queueLabelToMetricLabel", "\"a=queue_name\""),
        ("spec.queueController.queueLabelToMetricLabel", "\"a=__name__\""),
        ("spec.nodeScaleAdjuster.args.nodeScaleNamespace", "\"A\""),
        ("spec.numaPlacementExporter.service.affinity", "{\"nodeAffinity\": 1}"),
        ("spec.numaPlacementExporter.nodeSelector", "{\"a b\": \"c\"}"),
        ("spec.numaPlacementExporter.pollInterval", "\"soon\""),
        ("spec.numaPlacementExporter.driftResyncInterval", "\"-1s\""),
        ("spec.numaPlacementExporter.podResourcesHostPath", "\"kubelet\""),
        ("spec.numaPlacementExporter.podResourcesSocket", "\"/run/kubelet.sock\""),
        ("spec.numaPlacementExporter.sysfsHostPath", "\"/sys/../etc\""),
    ];
    for (path, value) in cases {
        let value = with(path, serde_json::from_str(value).unwrap());
        let (mut after, reports) = resolved(value, json!({}));
        let wrong = &reports[0].wrong;
        assert!(wrong.len() == 1 && wrong[0].path == path, "{path}: {wrong:?}");
        assert!(!std::mem::replace(&mut after.common.components.known, true), "{path}");
        let good = resolved(json!({}), json!({})).0;
        assert_eq!(after.common, good.common, "{path}");
        assert!(!after.shards[0].rules.on && good.shards[0].rules.on, "{path}");
    }
}
