//! SchedulingShard (`kai.scheduler/v1`): one scheduler over one pool of nodes, and how it schedules.
//!
//! Absent: the resolution of plugins, actions and defaults, which belongs to the operator.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::duration::{self, DurationError};
use super::lenient::{absent_as_default, null_as_default};
use super::schema;

/// The shard's node pool and its settings for scheduling.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kai.scheduler",
    version = "v1",
    kind = "SchedulingShard",
    doc = "One scheduler over one pool of nodes.",
    status = "SchedulingShardStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct SchedulingShardSpec {
    /// The value of the node-pool label that selects the shard's nodes, queues and PodGroups; empty: those without the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_label_value: Option<String>,
    /// Whether pods are packed onto few nodes or spread over many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_strategy: Option<PlacementStrategy>,
    /// How strongly past usage lowers a queue's fair share; 1 if absent, 0 = not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k_value: Option<f64>,
    /// Minimum runtimes of workloads whose queues set none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_runtime: Option<MinRuntime>,
    /// How many workloads per queue an action considers; unlimited for actions that are absent.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub queue_depth_per_action: BTreeMap<String, i64>,
    /// Where past usage comes from; not used if absent.
    #[serde(default, rename = "usageDBConfig", skip_serializing_if = "Option::is_none")]
    pub usage_db_config: Option<UsageDbConfig>,
    /// Overrides for plugins, by name.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub plugins: BTreeMap<String, PluginConfig>,
    /// Overrides for actions, by name.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub actions: BTreeMap<String, ActionConfig>,
    /// Further settings, as the scheduler's command-line flags without their dashes.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub args: BTreeMap<String, String>,
    /// Time limits for the search of victims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario_search_budgets: Option<ScenarioSearchBudgets>,
    /// Memory setting of the Go runtime. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ratio")]
    pub go_mem_limit_ratio: Option<f64>,
    /// Memory setting of the Go runtime. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub go_mem_limit: Option<Quantity>,
}

absent_as_default!(SchedulingShardSpec);

/// Whether pods are packed or spread: binpack (also if absent) or spread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStrategy {
    /// For pods with GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// For pods without GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
}

/// Minimum runtimes, as Go durations that may also use days (d) and weeks (w).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MinRuntime {
    /// How long a workload runs before workloads of the same queue may preempt it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_min_runtime: Option<String>,
    /// How long a workload runs before other queues may reclaim its resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_min_runtime: Option<String>,
}

impl MinRuntime {
    /// The minimum runtime before preemption.
    ///
    /// # Errors
    /// If the text is not a duration.
    pub fn preempt_min_runtime(&self) -> Result<Option<SignedDuration>, DurationError> {
        self.preempt_min_runtime
            .as_deref()
            .map(duration::parse_extended)
            .transpose()
    }

    /// The minimum runtime before reclaim.
    ///
    /// # Errors
    /// If the text is not a duration.
    pub fn reclaim_min_runtime(&self) -> Result<Option<SignedDuration>, DurationError> {
        self.reclaim_min_runtime
            .as_deref()
            .map(duration::parse_extended)
            .transpose()
    }
}

/// Where past usage comes from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageDbConfig {
    /// Where usage is counted: builtin or prometheus.
    pub client_type: String,
    /// The server's URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_string: Option<String>,
    /// The environment variable that holds the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_string_env_var: Option<String>,
    /// The window over which usage is summed up, and how it is queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_params: Option<UsageParams>,
    /// The same as `usageParams.extraParams`, which comes first: KAI's documentation has them here.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub extra_params: BTreeMap<String, String>,
}

/// The window over which usage is summed up, and how it is queried.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageParams {
    /// The time in which past usage loses half its weight, e.g. 48h; no decay if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::extended_duration")]
    pub half_life_period: Option<String>,
    /// How far back usage counts, e.g. 1w.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(
        pattern = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
    ))]
    pub window_size: Option<String>,
    /// How the window moves: sliding, tumbling or cron.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_type: Option<String>,
    /// For tumbling windows: the start of the first window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub tumbling_window_start_time: Option<Time>,
    /// For cron windows: the cron expression for the start of a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron_string: Option<String>,
    /// The interval at which usage is fetched, e.g. 1m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::extended_duration")]
    pub fetch_interval: Option<String>,
    /// The age from which usage data cause a warning, e.g. 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::extended_duration")]
    pub staleness_period: Option<String>,
    /// How long a new leader waits for the first usage data, e.g. 1m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::extended_duration")]
    pub wait_timeout: Option<String>,
    /// Further parameters of the server's client.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub extra_params: BTreeMap<String, String>,
}

/// Overrides for a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginConfig {
    /// Whether the plugin is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Plugins of higher priority come first; has an effect on `sg-nodelocalgreedy` and `sg-multinodegang` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// The arguments of the plugin; replace its default arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
}

/// Overrides for an action.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionConfig {
    /// Whether the action runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Actions of higher priority run first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

/// Time limits for the search of victims, as Go durations; 0 = unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioSearchBudgets {
    /// For one run of an action, by action: default, reclaim, preempt or consolidation.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(schema_with = "schema::extended_duration_map")]
    pub max_action_search_duration: BTreeMap<String, String>,
    /// For one pending workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::extended_duration")]
    pub max_job_search_duration: Option<String>,
    /// The search time that each pending workload gets before other limits may stop its search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::extended_duration")]
    pub min_job_search_duration: Option<String>,
    /// For one attempt of a generator, by generator or default.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(schema_with = "schema::extended_duration_map")]
    pub max_generator_search_duration: BTreeMap<String, String>,
}

/// The observed state of the shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingShardStatus {
    /// Conditions of the shard, e.g. Ready.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
