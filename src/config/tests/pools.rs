use std::collections::BTreeSet;

use super::*;

#[test]
fn an_invalid_shard_keeps_its_node_pool() {
    let shard = |created: i64, generation: i64, spec: Value| {
        Some(Seen {
            created,
            ..seen(generation, spec)
        })
    };
    // Names and scopes of the shards, which are those of the pools that have one.
    let of_pools = |resolver: &Resolver| -> Vec<(String, Scope)> {
        let (resolved, _) = resolver.resolve();
        let scopes = resolved.shards.iter().map(ShardRules::scope);
        let pools = scopes.clone().filter_map(|scope| match scope {
            Scope::Cluster => None,
            Scope::Pool(pool) => Some(pool),
        });
        assert_eq!(
            pools.collect::<BTreeSet<_>>(),
            resolved.common.components.pools.with_shard
        );
        resolved
            .shards
            .iter()
            .map(|shard| shard.name.clone())
            .zip(scopes)
            .collect()
    };
    let cluster = |name: &str| (name.to_owned(), Scope::Cluster);
    let pool = |name: &str, pool: &str| (name.to_owned(), Scope::Pool(pool.into()));
    // It was never valid.
    let mut resolver = Resolver::new(flags());
    resolver.shard("default", shard(1, 1, json!({})));
    let invalid = json!({"partitionLabelValue": "blue", "args": {"restrict-node-scheduling": "maybe"}});
    resolver.shard("blue", shard(2, 1, invalid.clone()));
    assert_eq!(of_pools(&resolver), [pool("blue", "blue"), cluster("default")]);
    // It was moved to another pool, and another shard serves the old one now.
    resolver.shard("blue", shard(2, 2, json!({"partitionLabelValue": "red", "kValue": 3})));
    resolver.shard("blue", shard(2, 3, invalid));
    resolver.shard("red", shard(3, 1, json!({"partitionLabelValue": "red"})));
    assert_eq!(
        of_pools(&resolver),
        [pool("blue", "blue"), cluster("default"), pool("red", "red")]
    );
    let (resolved, _) = resolver.resolve();
    let proportion = resolved.shards[0].rules.policy.plugins.proportion;
    assert_eq!(proportion.unwrap().k_value, 3_000_000, "the last valid state counts");
    // A pool that no label can name: the earlier one, or none.
    let garbage = json!({"partitionLabelValue": "no label"});
    resolver.shard("red", shard(3, 2, garbage.clone()));
    resolver.shard("older", shard(0, 1, garbage));
    assert_eq!(
        of_pools(&resolver),
        [pool("blue", "blue"), cluster("default"), pool("red", "red")]
    );
}

#[test]
fn nothing_is_scheduled_while_no_valid_state_of_an_object_is_known() {
    let mut resolver = Resolver::new(flags());
    let on =
        |resolver: &Resolver| -> Vec<bool> { resolver.resolve().0.shards.iter().map(|shard| shard.rules.on).collect() };
    assert_eq!(on(&resolver), [true], "there are no objects: flags apply");
    resolver.shard("blue", Some(seen(1, json!({"partitionLabelValue": "blue"}))));
    resolver.shard("default", Some(seen(1, json!({"kValue": "much"}))));
    assert_eq!(on(&resolver), [true, false]);
    resolver.config(Some(seen(1, json!({"global": {"schedulerName": 1}}))));
    assert_eq!(on(&resolver), [false, false]);
    assert!(!resolver.resolve().0.common.components.known);
    resolver.config(Some(seen(2, json!({}))));
    resolver.shard("default", Some(seen(2, json!({}))));
    assert_eq!(on(&resolver), [true, true]);
    resolver.config(Some(seen(3, json!({"global": {"schedulerName": 1}}))));
    resolver.shard("default", Some(seen(3, json!({"kValue": "much"}))));
    assert_eq!(on(&resolver), [true, true], "the last valid states stay in force");
}

#[test]
fn nothing_is_scheduled_by_a_shard_that_is_wrong_with_what_it_inherits() {
    let mut resolver = Resolver::new(flags());
    resolver.shard(
        "default",
        Some(seen(1, json!({"usageDBConfig": {"clientType": "prometheus"}}))),
    );
    resolver.config(Some(seen(
        1,
        json!({"prometheus": {"externalPrometheusUrl": "http://user:secret@"}}),
    )));
    let (resolved, reports) = resolver.resolve();
    assert!(!resolved.shards[0].rules.on);
    assert_eq!(reports[1].wrong.len(), 1, "{reports:?}");
    resolver.config(Some(seen(
        2,
        json!({"prometheus": {"externalPrometheusUrl": "http://prometheus:9090"}}),
    )));
    let (resolved, reports) = resolver.resolve();
    assert!(
        resolved.shards[0].rules.on && reports[1].wrong.is_empty(),
        "{reports:?}"
    );
}

#[test]
fn a_process_for_one_pool_schedules_nothing_after_the_deletion_of_its_shard_or_of_all_shards() {
    let mut only_blue = flags();
    only_blue.only_pool = Some("blue".to_owned());
    let mut resolver = Resolver::new(only_blue);
    let scheduled = |resolver: &Resolver| -> Vec<String> {
        let (resolved, _) = resolver.resolve();
        resolved.shards.into_iter().map(|shard| shard.name).collect()
    };
    let of_pool = |pool: &str| Some(seen(1, json!({ "partitionLabelValue": pool })));
    assert_eq!(scheduled(&resolver), ["blue"], "there has been no shard");
    resolver.shard("default", of_pool(""));
    assert_eq!(scheduled(&resolver), ["blue"], "there has been none of this pool");
    resolver.shard("default", None);
    assert!(scheduled(&resolver).is_empty(), "all shards are deleted");
    resolver.shard("default", of_pool(""));
    resolver.shard("own", of_pool("blue"));
    assert_eq!(scheduled(&resolver), ["own"]);
    resolver.shard("own", None);
    assert!(scheduled(&resolver).is_empty(), "the shard of the pool is deleted");
    resolver.shard("other", of_pool("blue"));
    assert_eq!(scheduled(&resolver), ["other"]);
}

#[test]
fn a_process_for_one_pool_finds_its_shard_by_the_label_key_of_config() {
    let mut only_blue = flags();
    only_blue.only_pool = Some("blue".to_owned());
    only_blue.components.pools.key = String::new();
    let mut resolver = Resolver::new(only_blue);
    resolver.config(Some(seen(
        1,
        json!({"global": {"nodePoolLabelKey": "acme.example/pool"}}),
    )));
    resolver.shard("default", Some(seen(1, json!({}))));
    resolver.shard("own", Some(seen(1, json!({"partitionLabelValue": "blue"}))));
    resolver.shard("own", None);
    let (resolved, _) = resolver.resolve();
    assert!(resolved.shards.is_empty(), "the shard of the pool is deleted");
}
