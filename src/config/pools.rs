//! SchedulingShard → the settings of its scheduler, with those of Config and flags for unset fields.

use crate::api::shard::{SchedulingShardSpec, UsageDbConfig};
use crate::api::syntax;
use crate::components::scheduler::Rules;
use crate::engine::policy::Policy;
use crate::mirror::policy::{self, Finding};
use crate::mirror::{self, FallbackQueue, Shard};
use crate::usage;

use super::Common;

/// The argument of KAI's scheduler that names the label of nodes with multi-instance GPUs. Only the mirror reads it.
const MIG_LABEL: &str = "mig-worker-node-label-key";

/// The result of reading a shard.
pub struct Reading {
    /// The settings of its scheduler.
    pub rules: Rules,
    /// Its fields without effect.
    pub ignored: Vec<Finding>,
}

/// The settings for a node pool without a shard; `value` is that of its label.
pub fn defaults(common: &Common, value: &str) -> Reading {
    let mirror = mirror_settings(common, value);
    let policy = Policy {
        disruption_budgets: common.components.disruption_budgets,
        detailed_errors: common.components.detailed_fit_errors,
        node_pool: mirror.shard.pool().to_owned(),
        ..Policy::default()
    };
    Reading {
        rules: Rules {
            on: true,
            mirror,
            policy,
            usage: None,
        },
        ignored: Vec::new(),
    }
}

/// The mirror's settings: which objects are ours.
fn mirror_settings(common: &Common, value: &str) -> mirror::Settings {
    let settings = &common.components;
    let usual = mirror::Settings::default();
    mirror::Settings {
        numa: settings.numa.clone(),
        config_maps: settings.config_maps,
        fallback_queue: Some(FallbackQueue {
            label: settings.queue_label_key.clone(),
            default: settings.default_queue.clone(),
        }),
        gpu_resources: [usual.gpu_resources.as_slice(), settings.gpu_resources.as_slice()].concat(),
        scheduler_name: settings.scheduler_name.clone(),
        own_pods: settings.own_pods.clone(),
        shard: Shard {
            key: settings.pools.key.clone(),
            value: value.to_owned(),
        },
        ..usual
    }
}

/// Reads a shard.
///
/// # Errors
/// All errors in it.
pub fn read(common: &Common, spec: &SchedulingShardSpec) -> Result<Reading, Vec<Finding>> {
    let value = spec.partition_label_value.clone().unwrap_or_default();
    let mut rules = defaults(common, &value).rules;
    let read = policy::from_shard(spec, rules.policy.clone());
    let mut wrong = read.as_ref().err().cloned().unwrap_or_default();
    let mut check = |path: &str, right: bool, says: String| {
        if !right {
            let path = path.to_owned();
            wrong.push(Finding { path, says });
        }
    };
    check(
        "spec.partitionLabelValue",
        value.is_empty() || syntax::is_label_word(&value),
        format!("{value:?} is not the value of a label"),
    );
    for flag in ["cpu-worker-node-label-key", "gpu-worker-node-label-key", MIG_LABEL] {
        if let Some(key) = spec.args.get(flag) {
            let right = syntax::is_label_key(key);
            check(
                &format!("spec.args.{flag}"),
                right,
                format!("{key:?} is not a label key"),
            );
        }
    }
    let mut ignored = Vec::new();
    match spec.usage_db_config.as_ref().map(|config| usage(common, config)) {
        None => {}
        Some(Ok((usage, notes))) => {
            rules.usage = usage;
            ignored.extend(notes);
        }
        Some(Err(problems)) => wrong.extend(problems),
    }
    let Ok(reading) = read else { return Err(wrong) };
    if !wrong.is_empty() {
        return Err(wrong);
    }
    if spec.plugins.contains_key("numa") {
        let plugins = policy::effective(spec);
        rules.mirror.numa = policy::numa(&plugins);
        rules.mirror.zones_as_reported = policy::zones_as_reported(&plugins);
    }
    rules.policy = reading.policy;
    rules.mirror.restrict_nodes = rules.policy.restrict_nodes;
    rules.mirror.full_hierarchy = rules.policy.full_hierarchy;
    rules.mirror.cpu_worker_label.clone_from(&rules.policy.cpu_worker_label);
    rules.mirror.gpu_worker_label.clone_from(&rules.policy.gpu_worker_label);
    if let Some(key) = spec.args.get(MIG_LABEL) {
        rules.mirror.mig_label.clone_from(key);
    }
    let notes = reading.notes.into_iter();
    ignored.extend(notes.filter(|note| note.path != format!("spec.args.{MIG_LABEL}")));
    Ok(Reading { rules, ignored })
}

/// How usage is computed, and the values without effect. `None`: it is to be read from a Prometheus server, and none is configured.
fn usage(common: &Common, config: &UsageDbConfig) -> Result<(Option<usage::Settings>, Vec<Finding>), Vec<Finding>> {
    // The environment does not change while the process runs.
    let variable = |name: &str| std::env::var(name).ok();
    let findings = |problems: Vec<usage::Problem>| -> Vec<Finding> {
        let findings = problems.into_iter().map(|problem| Finding {
            path: format!("spec.usageDBConfig.{}", problem.path),
            says: problem.says,
        });
        findings.collect()
    };
    let server = common.prometheus.as_deref().unwrap_or_default();
    let (settings, ignored) = usage::Settings::read(config, Some(server), &variable).map_err(findings)?;
    let mut ignored = findings(ignored);
    let unnamed = matches!(&settings.source, usage::Source::Prometheus(server) if server.url.is_empty());
    if unnamed {
        ignored.push(Finding {
            path: "spec.usageDBConfig".to_owned(),
            says: "names no Prometheus server, and Config names none either".to_owned(),
        });
    }
    Ok(((!unnamed).then_some(settings), ignored))
}
