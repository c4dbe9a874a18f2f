//! Every family of metrics: its name, kind, labels and meaning. Those under `kai_` are KAI's, with its names, labels and units;
//! `unikai_` are ours.

use crate::components::connection_causes;
use crate::engine::decision::Cause;
use crate::engine::model::digest;
use crate::engine::policy::ActionKind;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations in buckets.
    Histogram,
}

impl Kind {
    /// Its name in the text format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A family of series.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// The labels, each with all its values; without a list where values are names of objects or unbounded.
    pub labels: &'static [(&'static str, &'static [&'static str])],
    /// The description.
    pub help: &'static str,
}

const fn family(
    kind: Kind,
    name: &'static str,
    labels: &'static [(&'static str, &'static [&'static str])],
    help: &'static str,
) -> Family {
    Family {
        name,
        kind,
        labels,
        help,
    }
}

use Kind::{Counter, Gauge, Histogram};

type LabelValues = (&'static str, &'static [&'static str]);

const ACTION: LabelValues = ("action", &ActionKind::NAMES);
const EVICTING: LabelValues = ("action", &["consolidation", "reclaim", "preempt"]);
const PLACING: LabelValues = ("action", &["allocate", "consolidation", "reclaim", "preempt"]);
const GENERATOR: LabelValues = ("generator", &["NodeLocalGreedy", "MultiNodeGang", "Complete"]);
const WEBHOOK: LabelValues = (
    "webhook",
    &[
        "mutate-pod",
        "validate-pod",
        "validate-queue",
        "validate-pod-group",
        "validate-topology",
    ],
);
/// What a self-check finds: an object on which models differ, or a rule that is broken.
pub const SELF_CHECK_FINDS: [&str; 5] = {
    let [node, queue, pod_group, pod] = digest::Kind::NAMES;
    [node, queue, pod_group, pod, "rule"]
};
/// Why a bind failed.
const BIND_CAUSES: &[&str] = &[
    "refused",
    "conflict",
    "busy",
    "unknown",
    "device",
    "volumes",
    "claims",
    "objects",
    "pod_group",
    "fault",
];
/// The label with the name of a queue, in families of ours.
const OF_QUEUE: LabelValues = ("queue_metadata_name", &[]);
const QUEUE: &[LabelValues] = &[
    ("queue_name", &[]),
    ("queue_metadata_name", &[]),
    ("queue_display_name", &[]),
];

/// Metrics of the process.
pub const OF_THE_PROCESS: &[Family] = &[
    // The scheduler's metrics that KAI has, too.
    family(
        Gauge,
        "kai_e2e_scheduling_latency_milliseconds",
        &[],
        "Duration of the last scheduling cycle.",
    ),
    family(
        Gauge,
        "kai_open_session_latency_milliseconds",
        &[],
        "Time that the last cycle took to bring its model up to date.",
    ),
    family(
        Gauge,
        "kai_close_session_latency_milliseconds",
        &[],
        "Time that the last cycle took to report and to send its decisions.",
    ),
    family(
        Gauge,
        "kai_plugin_scheduling_latency_milliseconds",
        &[("plugin", &["proportion"]), ("OnSession", &["OnSessionOpen"])],
        "Time that a plugin took in the last cycle before its actions.",
    ),
    family(
        Gauge,
        "kai_action_scheduling_latency_milliseconds",
        &[ACTION],
        "Duration of an action in the last cycle that ran it.",
    ),
    family(
        Histogram,
        "kai_task_scheduling_latency_milliseconds",
        &[],
        "Time from a pod's creation to the choice of its node.",
    ),
    family(
        Histogram,
        "kai_task_bind_latency_milliseconds",
        &[],
        "Duration of the request that binds a pod.",
    ),
    family(
        Counter,
        "kai_podgroups_scheduled_by_action",
        &[PLACING],
        "Pod groups that were placed.",
    ),
    family(
        Counter,
        "kai_podgroups_acted_on_by_action",
        &[EVICTING],
        "Pod groups that an evicting action considered.",
    ),
    family(
        Counter,
        "kai_scenarios_simulation_by_action",
        &[EVICTING],
        "Sets of victims that were simulated.",
    ),
    family(
        Counter,
        "kai_scenarios_filtered_by_action",
        &[EVICTING],
        "Sets of victims that were skipped because they had failed before.",
    ),
    family(
        Counter,
        "kai_total_preemption_attempts",
        &[],
        "Pod groups that were placed by preemption.",
    ),
    family(
        Histogram,
        "kai_usage_query_latency_milliseconds",
        &[],
        "Duration of queries of the usage database.",
    ),
    family(
        Counter,
        "kai_scenario_search_jobs_total",
        &[
            EVICTING,
            (
                "result",
                &[
                    "solved",
                    "deadline_exhausted",
                    "generators_exhausted",
                    "no_generator",
                    "not_attempted",
                ],
            ),
            ("reduced_budget", &["false"]),
        ],
        "Searches for victims for a pod group, by result.",
    ),
    family(
        Histogram,
        "kai_scenario_search_duration_seconds",
        &[EVICTING, GENERATOR, ("result", &["solved", "generators_exhausted"])],
        "Time that a generator took to search victims for a pod group.",
    ),
    family(
        Counter,
        "kai_scenario_search_scenarios_total",
        &[
            EVICTING,
            GENERATOR,
            ("state", &["emitted", "simulated", "duplicate", "validator_rejected"]),
        ],
        "Sets of victims, by state.",
    ),
    family(
        Gauge,
        "kai_scenario_search_action_budget_configured_seconds",
        &[EVICTING],
        "Time that an action may take; 0: it is not limited by time.",
    ),
    family(
        Gauge,
        "kai_scenario_search_job_budget_configured_seconds",
        &[],
        "Time that the search for one pod group may take; 0: it is not limited by time.",
    ),
    family(
        Gauge,
        "kai_scenario_search_generator_budget_configured_seconds",
        &[GENERATOR],
        "Time that a generator may take; 0: it is not limited by time.",
    ),
    family(
        Counter,
        "kai_scenario_search_action_budget_exhausted_total",
        &[EVICTING],
        "Actions that used up the steps of their cycle.",
    ),
    // Ours.
    family(Counter, "unikai_cycles_total", &[], "Scheduling cycles."),
    family(
        Histogram,
        "unikai_cycle_duration_seconds",
        &[],
        "Duration of scheduling cycles.",
    ),
    family(
        Gauge,
        "unikai_pending_pod_groups",
        &[("shard", &[])],
        "Pod groups with pods that wait for a node.",
    ),
    family(Counter, "unikai_evicted_pods_total", &[ACTION], "Pods evicted."),
    family(
        Counter,
        "unikai_evictions_attempted_total",
        &[ACTION],
        "Evictions that were requested from the API server.",
    ),
    family(
        Counter,
        "unikai_evictions_refused_total",
        &[
            ACTION,
            ("cause", &["budget", "refused", "conflict", "busy", "unknown", "fault"]),
        ],
        "Evictions that failed: a disruption budget did not allow them, the API server refused them, the pod had changed, the API server was busy, \
         the reason is unknown, or a bug of unikai.",
    ),
    family(
        Counter,
        "unikai_binder_jobs_total",
        &[
            ("kind", &["bind", "bind in steps", "evict"]),
            ("ending", &["done", "overtaken", "failed"]),
        ],
        "Bindings and evictions, by how they ended.",
    ),
    family(
        Counter,
        "unikai_decisions_total",
        &[ACTION],
        "Decisions about pods: allocate places them, the other actions evict them.",
    ),
    family(
        Counter,
        "unikai_bind_failures_total",
        &[("cause", BIND_CAUSES)],
        "Bindings that failed and are retried: the API server refused them, the pod had changed, the API server was busy, the reason is unknown, no GPU could be \
         reserved for sharing, volumes or claims could not be bound, another object could not be written, the pod group is missing, or a bug of unikai.",
    ),
    family(
        Gauge,
        "unikai_shared_gpus_broken",
        &[],
        "Shared GPUs that are allocated wrongly: portions above a whole GPU, two devices for one group, or one device for two groups.",
    ),
    family(
        Counter,
        "unikai_shared_gpu_breaches_total",
        &[],
        "How often a shared GPU was found to be allocated wrongly.",
    ),
    family(
        Gauge,
        "unikai_binder_concurrency_limit",
        &[],
        "Limit on concurrent bindings and evictions: it grows while the API server responds quickly, and shrinks when it does not.",
    ),
    family(
        Counter,
        "unikai_api_writes_total",
        &[("resource", &[]), ("code", &[])],
        "Writes to the API server, by resource and HTTP status; 0: no answer.",
    ),
    family(
        Counter,
        "unikai_fenced_writes_total",
        &[],
        "Writes that were refused because the Lease may have expired.",
    ),
    family(
        Counter,
        "unikai_api_requests_timed_out_total",
        &[],
        "Requests and connections to the API server that exceeded their deadline.",
    ),
    family(
        Counter,
        "unikai_pod_changes_ignored_total",
        &[],
        "Changes of what a bound pod is charged for, which were ignored.",
    ),
    family(
        Counter,
        "unikai_object_panics_total",
        &[("component", &["binder", "grouper", "podgroups", "scheduler"])],
        "Panics while an object was handled, or in a cycle, by a bug of unikai; the component ignores the object until it changes.",
    ),
    family(
        Counter,
        "unikai_self_checks_total",
        &[("shard", &[]), ("result", &["same", "differs", "given_up"])],
        "Comparisons of the scheduler's model with one that was built from the watches.",
    ),
    family(
        Counter,
        "unikai_self_check_differences_total",
        &[("shard", &[]), ("of", &SELF_CHECK_FINDS)],
        "Objects on which the scheduler's model differed from one that was built from the watches, and rules that it violated: bugs of unikai.",
    ),
    family(
        Gauge,
        "unikai_self_check_timestamp_seconds",
        &[("shard", &[])],
        "When the last self-check ended, in seconds since 1970.",
    ),
    family(
        Gauge,
        "unikai_self_check_duration_seconds",
        &[("shard", &[])],
        "CPU time that the last self-check took.",
    ),
    family(
        Gauge,
        "unikai_usage_stale",
        &[("shard", &[])],
        "Whether usage over time counts as 0, because the Prometheus server does not answer.",
    ),
    family(
        Counter,
        "unikai_usage_fetch_failures_total",
        &[("shard", &[])],
        "Failed queries of usage over time from the Prometheus server.",
    ),
    family(
        Counter,
        "unikai_objects_rejected_total",
        &[("kind", &[])],
        "Invalid fields of objects.",
    ),
    family(
        Counter,
        "unikai_watch_failures_total",
        &[("kind", &[])],
        "Lists and watches that failed.",
    ),
    family(
        Counter,
        "unikai_watch_undecodable_total",
        &[("kind", &[])],
        "Objects that could not be decoded.",
    ),
    family(
        Counter,
        "unikai_events_dropped_total",
        &[],
        "Events that were not written because too many waited.",
    ),
    family(
        Counter,
        "unikai_events_failed_total",
        &[],
        "Events that could not be written.",
    ),
    family(
        Counter,
        "unikai_events_suppressed_total",
        &[],
        "Events that were not written because they repeat recent ones.",
    ),
    family(
        Counter,
        "unikai_admission_reviews_total",
        &[WEBHOOK, ("outcome", &["allowed", "denied"])],
        "Requests reviewed by the webhooks.",
    ),
    family(
        Histogram,
        "unikai_admission_review_duration_seconds",
        &[WEBHOOK],
        "Duration of reviews.",
    ),
    family(
        Counter,
        "unikai_connection_failures_total",
        &[
            ("side", &["webhooks", "api_server"]),
            ("cause", &connection_causes::Cause::NAMES),
        ],
        "Connections that failed: of clients to the webhooks, and ours to the API server.",
    ),
    family(
        Gauge,
        "unikai_certificate_expiry_timestamp_seconds",
        &[],
        "When the certificate of the webhooks expires, in seconds since 1970.",
    ),
    family(Gauge, "unikai_info", &[("version", &[])], "1, with the version."),
    family(
        Gauge,
        "unikai_leader",
        &[],
        "1 while this process leads the cluster and its default node pool.",
    ),
    family(
        Gauge,
        "unikai_pool_leader",
        &[("node_pool", &[])],
        "1 while this process leads the node pool, 0 while it does not, NaN once the pool has no shard any more.",
    ),
    family(
        Counter,
        "unikai_spans_dropped_total",
        &[],
        "Trace events that were dropped because too many waited.",
    ),
];

macro_rules! of_objects {
    ($($constant:ident = $family:expr;)*) => {
        $(#[doc = "See its help."] pub const $constant: Family = $family;)*
        /// Metrics of objects; their series are removed with the object.
        pub const OF_OBJECTS: &[Family] = &[$($constant),*];
    };
}

of_objects! {
    QUEUE_INFO = family(Gauge, "kai_queue_info", QUEUE, "1 for every queue.");
    QUEUE_DESERVED_GPUS = family(Gauge, "kai_queue_deserved_gpus", QUEUE, "A queue's quota of GPUs; -1: unlimited.");
    QUEUE_QUOTA_CPU = family(Gauge, "kai_queue_quota_cpu_cores", QUEUE, "A queue's quota of CPU cores; -1: unlimited.");
    QUEUE_QUOTA_MEMORY = family(Gauge, "kai_queue_quota_memory_bytes", QUEUE, "A queue's quota of memory; -1: unlimited.");
    QUEUE_ALLOCATED_GPUS = family(Gauge, "kai_queue_allocated_gpus", QUEUE, "GPUs that a queue's workloads hold.");
    QUEUE_ALLOCATED_CPU = family(Gauge, "kai_queue_allocated_cpu_cores", QUEUE, "CPU cores that a queue's workloads hold.");
    QUEUE_ALLOCATED_MEMORY = family(Gauge, "kai_queue_allocated_memory_bytes", QUEUE, "Memory that a queue's workloads hold.");
    QUEUE_FAIR_SHARE_CPU = family(Gauge, "kai_queue_fair_share_cpu_cores", QUEUE, "A queue's fair share of CPU cores.");
    QUEUE_FAIR_SHARE_MEMORY = family(Gauge, "kai_queue_fair_share_memory_gb", QUEUE, "A queue's fair share of memory, in billions of bytes.");
    QUEUE_FAIR_SHARE_GPU = family(Gauge, "kai_queue_fair_share_gpu", QUEUE, "A queue's fair share of GPUs.");
    QUEUE_CPU_USAGE = family(Gauge, "kai_queue_cpu_usage", QUEUE, "A queue's part of the cluster's CPU over time.");
    QUEUE_MEMORY_USAGE = family(Gauge, "kai_queue_memory_usage", QUEUE, "A queue's part of the cluster's memory over time.");
    QUEUE_GPU_USAGE = family(Gauge, "kai_queue_gpu_usage", QUEUE, "A queue's part of the cluster's GPUs over time.");
    POD_GROUP_EVICTED_PODS = family(
        Counter,
        "kai_pod_group_evicted_pods_total",
        &[("podgroup", &[]), ("namespace", &[]), ("uid", &[]), ("nodepool", &[]), ACTION],
        "Evicted pods of a pod group; only for the pod groups with the most recent evictions."
    );
    QUEUE_PENDING = family(
        Gauge,
        "unikai_queue_pending_pod_groups",
        &[OF_QUEUE, ("cause", Cause::WORDS)],
        "Pod groups of a queue with pods that have no node, by the cause of the verdict; unknown: not tried yet. The queue is empty for \
         those whose queue does not exist."
    );
    QUEUE_WAITING_SINCE = family(
        Gauge,
        "unikai_queue_waiting_since_timestamp_seconds",
        &[OF_QUEUE],
        "Creation time of the oldest pod that waits in the queue, in seconds since 1970; absent if none waits."
    );
    QUEUE_PLACED = family(
        Counter,
        "unikai_queue_placed_pods_total",
        &[OF_QUEUE],
        "Pods of a queue that were placed."
    );
    QUEUE_WAITED = family(
        Counter,
        "unikai_queue_waited_seconds_total",
        &[OF_QUEUE],
        "Sum of the times that these pods had waited since their creation."
    );
    GPUS = family(
        Gauge,
        "unikai_gpus",
        &[("shard", &[]), ("state", &["used", "free", "fragmented", "unavailable"])],
        "GPUs of a shard's nodes: in use, free on nodes without others in use, free beside others in use or in part, free on nodes that take no pods. The states \
         add up to all GPUs."
    );
    GPUS_ON_ONE_NODE = family(
        Gauge,
        "unikai_gpus_free_on_one_node",
        &[("shard", &[])],
        "The largest number of free whole GPUs on one node."
    );
    SET_ASIDE = family(
        Gauge,
        "unikai_objects_set_aside",
        &[("shard", &[]), ("kind", &[])],
        "Objects that exceed a limit or could not be read, and that a shard's scheduler ignores until they change."
    );
    CONFIG_FINDINGS = family(
        Gauge,
        "unikai_config_findings",
        &[("kind", &["Config", "SchedulingShard"]), ("name", &[]), ("finding", &["ignored", "invalid"])],
        "Fields of Config and SchedulingShards that have no effect, or are invalid."
    );
}

/// The families of queues that the scheduler sets.
pub const OF_THE_SCHEDULER: [&Family; 8] = [
    &QUEUE_PLACED,
    &QUEUE_WAITED,
    &QUEUE_FAIR_SHARE_CPU,
    &QUEUE_FAIR_SHARE_MEMORY,
    &QUEUE_FAIR_SHARE_GPU,
    &QUEUE_CPU_USAGE,
    &QUEUE_MEMORY_USAGE,
    &QUEUE_GPU_USAGE,
];

/// The families of queues that the component `queues` sets.
pub const QUEUE_STATUSES: [&Family; 9] = [
    &QUEUE_PENDING,
    &QUEUE_WAITING_SINCE,
    &QUEUE_INFO,
    &QUEUE_DESERVED_GPUS,
    &QUEUE_QUOTA_CPU,
    &QUEUE_QUOTA_MEMORY,
    &QUEUE_ALLOCATED_GPUS,
    &QUEUE_ALLOCATED_CPU,
    &QUEUE_ALLOCATED_MEMORY,
];

impl Family {
    /// Every combination of label values, if all of them are listed.
    #[must_use]
    pub fn combinations(&self) -> Vec<Vec<(&'static str, &'static str)>> {
        let mut all = vec![Vec::new()];
        for (name, values) in self.labels {
            let longer = |labels: Vec<(&'static str, &'static str)>| {
                values.iter().map(move |value| {
                    let mut labels = labels.clone();
                    labels.push((*name, *value));
                    labels
                })
            };
            all = all.into_iter().flat_map(longer).collect();
        }
        all
    }
}
