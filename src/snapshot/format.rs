//! The members of a snapshot besides objects and the scheduler's configuration.

use serde::{Deserialize, Serialize};

use crate::engine::policy::{DisruptionBudgets, Policy};
use crate::mirror::identity::OwnPods;
use crate::mirror::{FallbackQueue, Settings};

/// The member of the zip archive.
pub const MEMBER: &str = "snapshot.json";

/// The scheduler's parameters. KAI leaves out what is false, 0 or empty.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Parameters {
    pub scheduler_name: String,
    #[serde(skip_serializing_if = "is_usual")]
    pub restrict_scheduling_nodes: bool,
    pub partition_params: Option<Partition>,
    #[serde(skip_serializing_if = "is_usual")]
    pub max_number_consolidation_preemptees: i64,
    #[serde(skip_serializing_if = "is_usual")]
    pub full_hierarchy_fairness: bool,
    #[serde(skip_serializing_if = "is_usual")]
    pub allow_consolidating_reclaim: bool,
    /// Nanoseconds.
    #[serde(skip_serializing_if = "is_usual")]
    pub global_default_staleness_grace_period: i64,
    /// Nanoseconds.
    #[serde(skip_serializing_if = "is_usual")]
    pub stuck_in_releasing_threshold: i64,
    #[serde(skip_serializing_if = "is_usual")]
    pub detailed_fit_errors: bool,
    #[serde(rename = "scheduleCSIStorage", skip_serializing_if = "is_usual")]
    pub schedule_csi_storage: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            scheduler_name: Settings::default().scheduler_name,
            restrict_scheduling_nodes: false,
            partition_params: None,
            max_number_consolidation_preemptees: 0,
            full_hierarchy_fairness: false,
            allow_consolidating_reclaim: false,
            global_default_staleness_grace_period: 0,
            stuck_in_releasing_threshold: 0,
            detailed_fit_errors: false,
            schedule_csi_storage: false,
        }
    }
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The shard.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Partition {
    #[serde(default)]
    pub node_pool_label_key: String,
    #[serde(default)]
    pub node_pool_label_value: String,
}

/// The member `unikai`: settings without a place in KAI's format. KAI ignores it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Additions {
    disruption_budgets: String,
    cpu_worker_label_key: String,
    gpu_worker_label_key: String,
    mig_label_key: String,
    gpu_resources: Vec<String>,
    #[serde(alias = "home")]
    fallback_queue: Option<FallbackQueues>,
    #[serde(default, skip_serializing_if = "is_usual")]
    own_pods: OwnPods,
    /// All actions are switched off. In KAI's format an empty list means all of them.
    #[serde(default, skip_serializing_if = "is_usual")]
    no_actions: bool,
}

/// See [`FallbackQueue`].
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct FallbackQueues {
    queue_label_key: String,
    default_queue: String,
}

impl Additions {
    /// The parameters of a scheduler.
    pub fn of(settings: &Settings, policy: &Policy) -> Self {
        let fallback_queue = settings.fallback_queue.as_ref().map(|fallback_queue| FallbackQueues {
            queue_label_key: fallback_queue.label.clone(),
            default_queue: fallback_queue.default.clone(),
        });
        Self {
            disruption_budgets: policy.disruption_budgets.as_str().to_owned(),
            cpu_worker_label_key: settings.cpu_worker_label.clone(),
            gpu_worker_label_key: settings.gpu_worker_label.clone(),
            mig_label_key: settings.mig_label.clone(),
            gpu_resources: settings.gpu_resources.clone(),
            fallback_queue,
            own_pods: settings.own_pods.clone(),
            no_actions: policy.actions.is_empty(),
        }
    }

    /// Applies them to a scheduler's settings.
    pub fn put_into(self, settings: &mut Settings, policy: &mut Policy) {
        if let Some(mode) = DisruptionBudgets::parse(&self.disruption_budgets) {
            policy.disruption_budgets = mode;
        }
        if self.no_actions {
            policy.actions.clear();
        }
        settings.own_pods = self.own_pods;
        settings.fallback_queue = self.fallback_queue.map(|fallback_queue| FallbackQueue {
            label: fallback_queue.queue_label_key,
            default: fallback_queue.default_queue,
        });
        settings.gpu_resources = self.gpu_resources;
        settings.mig_label = self.mig_label_key;
        policy.cpu_worker_label.clone_from(&self.cpu_worker_label_key);
        policy.gpu_worker_label.clone_from(&self.gpu_worker_label_key);
        settings.cpu_worker_label = self.cpu_worker_label_key;
        settings.gpu_worker_label = self.gpu_worker_label_key;
    }
}
