mod fuzz;

use super::*;
use crate::api::shard::SchedulingShardSpec;
use crate::engine::policy::{MinRuntime, NodePlacement, Proportion, ResolveMethod, Strategy};

fn config(yaml: &str) -> Result<Reading, Vec<String>> {
    let config: SchedulerConfig = serde_yaml_ng::from_str(yaml).expect("a configuration");
    from_config(&config, Policy::default()).map_err(texts)
}

fn shard(yaml: &str) -> Result<Reading, Vec<String>> {
    let spec: SchedulingShardSpec = serde_yaml_ng::from_str(yaml).expect("a shard");
    from_shard(&spec, Policy::default()).map_err(texts)
}

fn texts(findings: Vec<Finding>) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

/// (actions, plugin names) of a shard, in order.
fn effective_of(yaml: &str) -> (String, Vec<String>) {
    let config = effective(&serde_yaml_ng::from_str(yaml).expect("a shard"));
    let plugins = config
        .tiers
        .into_iter()
        .flat_map(|tier| tier.plugins)
        .map(|plugin| plugin.name)
        .collect();
    (config.actions, plugins)
}

#[test]
fn a_factor_that_is_too_large_counts_as_the_largest() {
    let read = |k: &str| {
        config(&format!(
            "tiers: [{{plugins: [{{name: proportion, arguments: {{kValue: '{k}'}}}}]}}]"
        ))
    };
    let k_value = |reading: Reading| reading.policy.plugins.proportion.map(|proportion| proportion.k_value);
    for large in ["1e9", "1e300"] {
        let reading = read(large).expect("a number");
        let written = to_config(&reading.policy, None, false);
        let again = from_config(&written, Policy::default()).expect("what is written is read");
        assert_eq!(k_value(again), Some(1_000_000_000_000_000), "{large}");
    }
}

#[test]
fn a_configuration_replaces_only_what_it_names() {
    assert_eq!(
        config("{}"),
        Ok(Reading {
            policy: Policy::default(),
            notes: vec![]
        })
    );
    let read = config("{actions: 'reclaim,allocate ', queueDepthPerAction: {allocate: 20}, tiers: null}")
        .expect("a policy")
        .policy;
    assert_eq!(read.actions, [ActionKind::Reclaim, ActionKind::Allocate]);
    assert_eq!(read.queue_depth, [(ActionKind::Allocate, 20)]);
    assert_eq!(read.plugins, Policy::default().plugins);
}

#[test]
fn plugins_of_all_tiers_are_read_with_typed_arguments() {
    let read = config(
        "tiers:
         - plugins: [{name: proportion, arguments: {kValue: '0.5', relcaimerSaturationMultiplier: '1.25'}}, {name: snapshot}, {name: predicates}]
         - plugins: [{name: nodeplacement, arguments: {gpu: spread}}, {name: minruntime, arguments: {defaultReclaimMinRuntime: 1d, defaultPreemptMinRuntime: -5s, reclaimResolveMethod: queue}}]",
    )
    .expect("a policy");
    let expected = Plugins {
        proportion: Some(Proportion {
            k_value: 500_000,
            saturation_multiplier: 1_250_000,
        }),
        node_placement: Some(NodePlacement {
            gpu: Strategy::Spread,
            cpu: Strategy::Binpack,
        }),
        min_runtime: Some(MinRuntime {
            preempt: 0,
            reclaim: 86_400_000,
            resolve: ResolveMethod::Queue,
        }),
        ..Plugins::default()
    };
    assert_eq!((read.policy.plugins, read.notes), (expected, vec![]));
}

#[test]
fn factors_stay_in_their_range_whatever_their_spelling() {
    for name in [
        "relcaimerSaturationMultiplier",
        "reclaimerSaturationMultiplier",
        "reclaimerUtilizationMultiplier",
    ] {
        let read = config(&format!(
            "tiers: [{{plugins: [{{name: proportion, arguments: {{{name}: '2', kValue: '-1'}}}}]}}]"
        ))
        .expect("a policy");
        assert_eq!(
            read.policy.plugins.proportion,
            Some(Proportion {
                k_value: 0,
                saturation_multiplier: 2_000_000
            })
        );
    }
    let read = config("tiers: [{plugins: [{name: proportion, arguments: {relcaimerSaturationMultiplier: '0.5'}}]}]")
        .expect("a policy");
    assert_eq!(
        read.policy.plugins.proportion,
        Some(Proportion {
            k_value: 1_000_000,
            saturation_multiplier: 1_000_000
        })
    );
}

#[test]
fn all_errors_come_at_once_with_their_paths() {
    let errors = config(
        "actions: allocate, backfill, allocate
queueDepthPerAction: {allocate: 0, backfill: 3}
tiers: [{plugins: [{name: predicates}, {name: proportion, arguments: {kValue: high}}]}]",
    );
    let all = "allocate, consolidation, reclaim, preempt, stalegangeviction";
    let expected = [
        format!("actions: \"backfill\" is not an action; use {all}"),
        "actions: \"allocate\" is named twice".to_owned(),
        format!("queueDepthPerAction.backfill: \"backfill\" is not an action; use {all}"),
    ];
    assert_eq!(errors, Err(expected.to_vec()));
}

#[test]
fn arguments_that_do_not_parse_have_their_defaults_and_are_reported() {
    let read = config(
        "tiers: [{plugins: [{name: proportion, arguments: {kValue: high, relcaimerSaturationMultiplier: '2'}}, {name: nodeplacement, arguments: {cpu: random, gpu: spread}},
           {name: minruntime, arguments: {defaultPreemptMinRuntime: x, defaultReclaimMinRuntime: 90s, reclaimResolveMethod: y}}, {name: sg-complete, arguments: {maxSteps: many}}]}]",
    )
    .expect("a policy");
    let plugins = &read.policy.plugins;
    let proportion = Proportion {
        k_value: 1_000_000,
        saturation_multiplier: 2_000_000,
    };
    let placement = NodePlacement {
        gpu: Strategy::Spread,
        cpu: Strategy::Binpack,
    };
    let min_runtime = MinRuntime {
        preempt: 0,
        reclaim: 90_000,
        resolve: ResolveMethod::Lca,
    };
    assert_eq!(plugins.proportion, Some(proportion));
    assert_eq!(plugins.node_placement, Some(placement));
    assert_eq!(plugins.min_runtime, Some(min_runtime));
    let usual = Policy::default().plugins.complete_search_steps;
    assert_eq!(plugins.complete_search_steps, usual);
    let expected = [
        "tiers[0].plugins[0].arguments.kValue: \"high\" is not a number: the default applies",
        "tiers[0].plugins[1].arguments.cpu: \"random\" is not binpack or spread: the default applies",
        "tiers[0].plugins[2].arguments.defaultPreemptMinRuntime: \"x\" is not a duration such as 90s, 1h30m or 2d: the default applies",
        "tiers[0].plugins[2].arguments.reclaimResolveMethod: \"y\" is not lca or queue: the default applies",
        "tiers[0].plugins[3].arguments.maxSteps: \"many\" is not a whole number: the default applies",
    ];
    assert_eq!(texts(read.notes), expected);
}

#[test]
fn numbers_of_0_or_less_are_no_bound() {
    let read = config("queueDepthPerAction: {allocate: -1, reclaim: 0, preempt: 3}").expect("a policy");
    assert_eq!(read.policy.queue_depth, [(ActionKind::Preempt, 3)]);
    let notes: Vec<_> = read.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        ["queueDepthPerAction.reclaim: 0 is no number above 0, so there is no bound"]
    );
}

#[test]
fn fields_without_effect_are_reported() {
    let read = config("tiers: [{plugins: [{name: mine}, {name: elastic, arguments: {speed: '9'}}, {name: dynamicresources, arguments: {maxCelCacheEntries: '5'}}]}]").expect("a policy");
    let expected = Plugins {
        elastic: true,
        ..Plugins::default()
    };
    assert_eq!(read.policy.plugins, expected);
    let expected = [
        "tiers[0].plugins[0]: plugin \"mine\" is not known here and has no effect",
        "tiers[0].plugins[1].arguments.speed: this plugin has no such argument",
    ];
    assert_eq!(texts(read.notes), expected);
}

#[test]
fn an_empty_shard_has_the_default_order() {
    let (actions, plugins) = effective_of("{}");
    assert_eq!(actions, "allocate, consolidation, reclaim, preempt, stalegangeviction");
    let expected = "predicates proportion priority nodeavailability resourcetype podaffinity elastic kubeflow ray subgrouporder taskorder nominatednode \
                    dynamicresources minruntime topology devicelocality podtopologyspread snapshot sg-nodelocalgreedy sg-multinodegang sg-complete spare gpupack nodeplacement gpusharingorder";
    assert_eq!(plugins.join(" "), expected);
}

#[test]
fn the_placement_strategy_chooses_plugins_and_actions() {
    let tail = |yaml: &str| {
        let (actions, plugins) = effective_of(yaml);
        let from = plugins
            .iter()
            .position(|plugin| plugin == "spare")
            .expect("the plugin is on");
        (actions, plugins[from + 1..].join(" "))
    };
    let without = "allocate, reclaim, preempt, stalegangeviction".to_owned();
    assert_eq!(
        tail("placementStrategy: {gpu: spread}"),
        (without.clone(), "gpuspread nodeplacement".to_owned())
    );
    assert_eq!(
        tail("placementStrategy: {cpu: spread}"),
        (without, "gpupack nodeplacement gpusharingorder".to_owned())
    );
    let both = tail(
        "{placementStrategy: {gpu: spread}, plugins: {gpuspread: {enabled: false}, gpupack: {enabled: true}}, actions: {consolidation: {enabled: true}}}",
    );
    assert_eq!(
        both,
        (
            "allocate, consolidation, reclaim, preempt, stalegangeviction".to_owned(),
            "gpupack nodeplacement".to_owned()
        )
    );
    let read = shard("placementStrategy: {gpu: spread, cpu: binpack}")
        .expect("a policy")
        .policy;
    let expected = NodePlacement {
        gpu: Strategy::Spread,
        cpu: Strategy::Binpack,
    };
    assert_eq!(read.plugins.node_placement, Some(expected));
}

#[test]
fn overrides_change_order_and_arguments_as_a_whole() {
    let (actions, plugins) = effective_of(
        "{actions: {preempt: {priority: 600}, consolidation: {enabled: false}}, plugins: {elastic: {enabled: false}, x: {}, mine: {priority: 1050}}}",
    );
    assert_eq!(actions, "preempt, allocate, reclaim, stalegangeviction");
    assert!(!plugins.contains(&"elastic".to_owned()));
    assert_eq!(plugins.last().map(String::as_str), Some("x"));
    let at = |name: &str| plugins.iter().position(|plugin| plugin == name);
    assert_eq!(
        (at("mine"), at("subgrouporder")),
        (at("ray").map(|ray| ray + 1), at("ray").map(|ray| ray + 2))
    );
    let k_value = |yaml: &str| {
        let plugins = shard(yaml).expect("a policy").policy.plugins;
        plugins.proportion.map(|proportion| proportion.k_value)
    };
    assert_eq!(k_value("kValue: 1.5"), Some(1_500_000));
    assert_eq!(
        k_value("{kValue: 1.5, plugins: {proportion: {arguments: {kValue: '3.0'}}}}"),
        Some(3_000_000)
    );
    assert_eq!(
        k_value("{kValue: 1.5, plugins: {proportion: {arguments: {}}}}"),
        Some(1_000_000)
    );
}

#[test]
fn plugins_that_stay_on_or_in_their_order_are_reported() {
    let notes = |yaml: &str| texts(shard(yaml).expect("a policy").notes);
    let none: [&str; 0] = [];
    assert_eq!(
        notes(
            "{plugins: {predicates: {enabled: false}, kubeflow: {enabled: false}, ray: {enabled: false}, subgrouporder: {enabled: false},
              taskorder: {enabled: false}, dynamicresources: {enabled: false}, snapshot: {enabled: false}, topology: {enabled: false}}}"
        ),
        [
            "spec.plugins.dynamicresources.enabled: this plugin cannot be switched off",
            "spec.plugins.kubeflow.enabled: this plugin cannot be switched off",
            "spec.plugins.predicates.enabled: this plugin cannot be switched off",
            "spec.plugins.ray.enabled: this plugin cannot be switched off",
            "spec.plugins.snapshot.enabled: this plugin cannot be switched off",
            "spec.plugins.subgrouporder.enabled: this plugin cannot be switched off",
            "spec.plugins.taskorder.enabled: this plugin cannot be switched off",
        ]
    );
    assert_eq!(
        notes("{plugins: {elastic: {priority: 1750}, taskorder: {priority: 1150}, topology: {priority: 5}}}"),
        [
            "spec.plugins.elastic.priority: the order of priority, elastic cannot be changed",
            "spec.plugins.taskorder.priority: the order of kubeflow, ray, taskorder cannot be changed",
        ]
    );
    // The same order with other numbers, without one of the plugins, and among searches for victims.
    for same in [
        "{plugins: {priority: {priority: 5}, elastic: {priority: 4}, ray: {priority: 1000, enabled: true}}}",
        "{plugins: {elastic: {priority: 1750}, priority: {enabled: false}}}",
        "{plugins: {sg-multinodegang: {priority: 370}}}",
    ] {
        assert_eq!(notes(same), none, "{same}");
    }
}

#[test]
fn minimum_runtimes_and_flags_reach_the_policy() {
    let read = shard(
        "{partitionLabelValue: pool-a, minRuntime: {preemptMinRuntime: 10m, reclaimMinRuntime: 1w},
          args: {full-hierarchy-fairness: 'false', default-staleness-grace-period: -1s, stuck-in-releasing-threshold: 0s, max-consolidation-preemptees: '7', update-pod-eviction-condition: 'false', v: '5'}}",
    )
    .expect("a policy");
    let expected = MinRuntime {
        preempt: 600_000,
        reclaim: 604_800_000,
        resolve: ResolveMethod::Lca,
    };
    assert_eq!(read.policy.plugins.min_runtime, Some(expected));
    assert_eq!(
        (
            read.policy.full_hierarchy,
            read.policy.staleness_grace,
            read.policy.stuck_after
        ),
        (false, None, 120_000)
    );
    assert_eq!(
        (read.policy.max_consolidation_victims, read.policy.node_pool.as_str()),
        (Some(7), "pool-a")
    );
    assert_eq!(
        Policy::default().max_consolidation_victims,
        Some(16),
        "where nothing is said"
    );
    assert_eq!(
        texts(read.notes),
        [
            "spec.args.update-pod-eviction-condition: evicted pods always get the condition DisruptionTarget",
            "spec.args.v: this flag has no effect on decisions here"
        ]
    );
}

#[test]
fn values_that_kai_replaces_do_not_make_a_shard_invalid() {
    let read = shard(
        "{placementStrategy: {gpu: scatter, cpu: scatter}, minRuntime: {reclaimMinRuntime: long, preemptMinRuntime: 10m}, plugins: {proportion: {arguments: {kValue: x}}}}",
    )
    .expect("a policy");
    let min_runtime = MinRuntime {
        preempt: 600_000,
        reclaim: 0,
        resolve: ResolveMethod::Lca,
    };
    assert_eq!(read.policy.plugins.min_runtime, Some(min_runtime));
    let expected = [
        "spec.placementStrategy.gpu: \"scatter\" is not binpack or spread: nodes are packed",
        "spec.placementStrategy.cpu: \"scatter\" is not binpack or spread: nodes are packed",
        "spec.minRuntime.reclaimMinRuntime: \"long\" is not a duration such as 90s, 1h30m or 2d, and counts as 0s",
        "spec.plugins.proportion.arguments.kValue: \"x\" is not a number: the default applies",
    ];
    assert_eq!(texts(read.notes), expected);
}

#[test]
fn an_unknown_placement_strategy_packs_nodes_and_spreads_over_their_gpus() {
    let read = shard("placementStrategy: {gpu: scatter, cpu: scatter}").expect("a policy");
    let plugins = read.policy.plugins;
    assert_eq!(plugins.node_placement, Some(NodePlacement::default()));
    assert_eq!(
        (plugins.gpu_pack, plugins.gpu_sharing_order, plugins.gpu_spread),
        (false, false, true)
    );
    assert!(read.policy.actions.contains(&ActionKind::Consolidation));
}

#[test]
fn a_wrong_shard_is_refused_with_all_its_errors() {
    let errors = shard(
        "{queueDepthPerAction: {consolidation: 5}, actions: {backfill: {}, consolidation: {enabled: false}}, args: {detailed-fit-errors: maybe, stuck-in-releasing-threshold: x}}",
    );
    let expected = [
        "spec.actions: \"backfill\" is not an action; use allocate, consolidation, reclaim, preempt, stalegangeviction",
        "spec.queueDepthPerAction.consolidation: \"consolidation\" is not among the shard's actions: allocate, reclaim, preempt, stalegangeviction, backfill",
        "spec.args.detailed-fit-errors: \"maybe\" is not true or false",
        "spec.args.stuck-in-releasing-threshold: \"x\" is not a duration such as 90s or 1h30m",
    ];
    assert_eq!(errors, Err(expected.map(ToOwned::to_owned).to_vec()));
}

#[test]
fn negative_numbers_of_preemptees_but_minus_1_admit_none() {
    let read = |number: &str| {
        let read = shard(&format!("args: {{max-consolidation-preemptees: '{number}'}}")).expect("a policy");
        (read.policy.max_consolidation_victims, texts(read.notes))
    };
    for (number, most) in [("-1", None), ("0", Some(0)), ("3", Some(3))] {
        assert_eq!(read(number), (most, vec![]));
    }
    let note = "spec.args.max-consolidation-preemptees: -2 counts as 0: no consolidation; -1 is no limit";
    assert_eq!(read("-2"), (Some(0), vec![note.to_owned()]));
}

#[test]
fn with_both_generators_off_no_victims_are_searched_unless_the_complete_search_is_named() {
    let searches = |others: &str| {
        let yaml = format!("plugins: {{sg-nodelocalgreedy: {{enabled: false}}, {others}}}");
        let plugins = shard(&yaml).expect("a policy").policy.plugins;
        (plugins.victim_generators.len(), plugins.complete_search_steps)
    };
    let default = Policy::default().plugins.complete_search_steps;
    assert_eq!(searches("elastic: {}"), (1, default));
    assert_eq!(searches("sg-multinodegang: {enabled: false}"), (0, 0));
    let named = |complete: &str| {
        searches(&format!(
            "sg-multinodegang: {{enabled: false}}, sg-complete: {complete}"
        ))
    };
    assert_eq!(named("{enabled: true}"), (0, default));
    assert_eq!(named("{arguments: {maxSteps: '5'}}"), (0, 5));
}
