//! Configurations and shards as administrators may write them.

use serde_json::Value;

use crate::api::shard::SchedulingShardSpec;
use crate::engine::policy::Policy;
use crate::fuzz::Target;
use crate::mirror::policy::{
    Finding, Reading, SchedulerConfig, effective, from_config, from_shard, numa, to_config, zones_as_reported,
};

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "allocate", "reclaim", "preempt", "consolidation", "stalegangeviction", "allocate, reclaim", "proportion", "minruntime", "nodeplacement",
    "devicelocality", "numa", "sg-complete", "sg-multinodegang", "gpupack", "gpuspread", "spare", "topology", "kValue", "maxSteps", "attributes",
    "ignoreList", "reconstructAvailable", "binpack", "spread", "lca", "queue", "true", "f", "1h30m", "2d", "90s", "-1s", "0.5", "1e9", "1e300", "-2",
    "500", "enabled", "priority", "arguments", "plugins", "actions", "args", "tiers", "queueDepthPerAction", "full-hierarchy-fairness",
    "default-staleness-grace-period", "max-consolidation-preemptees", "v", "a,b",
];

fn check(findings: &[Finding]) {
    let says_something = |finding: &Finding| !finding.path.is_empty() && !finding.says.is_empty();
    assert!(findings.iter().all(says_something), "{findings:?}");
}

/// A policy is written as a configuration that is read as the same policy; the settings that the mirror reads from it, too.
fn check_written(policy: &Policy, from: &SchedulerConfig) {
    let (numa_given, zones) = (numa(from), zones_as_reported(from));
    let written = to_config(policy, numa_given.as_deref(), zones);
    let again = from_config(&written, policy.clone());
    let again = again.unwrap_or_else(|wrong| panic!("{written:?}: {wrong:?}"));
    assert_eq!(again.policy.plugins, policy.plugins);
    assert_eq!(again.policy.actions, policy.actions);
    assert_eq!((numa(&written), zones_as_reported(&written)), (numa_given, zones));
}

/// Returns whether what was read is valid.
fn check_reading(reading: Result<Reading, Vec<Finding>>, from: &SchedulerConfig) -> bool {
    match reading {
        Ok(read) => {
            check(&read.notes);
            check_written(&read.policy, from);
            true
        }
        Err(wrong) => {
            assert!(!wrong.is_empty());
            check(&wrong);
            false
        }
    }
}

#[test]
fn fuzz_configurations_of_schedulers() {
    let target = Target {
        name: "scheduler-config",
        rounds: 1_500,
        words: WORDS,
    };
    target.objects(|object: &Value| {
        let Ok(config) = serde_json::from_value::<SchedulerConfig>(object.clone()) else {
            return false;
        };
        check_reading(from_config(&config, Policy::default()), &config)
    });
}

#[test]
fn fuzz_shards() {
    let target = Target {
        name: "shard",
        rounds: 1_500,
        words: WORDS,
    };
    target.objects(|object: &Value| {
        let Ok(spec) = serde_json::from_value::<SchedulingShardSpec>(object.clone()) else {
            return false;
        };
        check_reading(from_shard(&spec, Policy::default()), &effective(&spec))
    });
}
