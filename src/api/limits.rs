//! All limits on what tenants write. What is read of an object is bounded by these numbers, so that no object can block or slow down
//! others.
//!
//! Each is far above what workloads use and far below what is harmful. `docs/limits.md` describes them and what happens beyond
//! each; a test compares the two, which is why every limit is a plain integer.
//!
//! Absent: limits that operators set, which are flags.

use std::fmt;

/// GPU groups (shared GPUs) that one pod names in labels, or that a bind request names for it. A pod is on one node, and no node has that many
/// devices.
pub const GPU_GROUPS_PER_POD: usize = 128;
/// GPU groups in use on one node at a time. Eight times the devices that a node can have: groups come and go while others still leave.
pub const GPU_GROUPS_PER_NODE: usize = 1_024;
/// Labels of one pod. Large ones have some dozens.
pub const LABELS_PER_POD: usize = 512;
/// Annotations of one pod. Large ones have some dozens. The records of users on a reservation pod do not count.
pub const ANNOTATIONS_PER_POD: usize = 512;
/// Bytes of the annotations of one pod that are kept. Kubernetes lets objects have four times as many. The records of users on a reservation pod do not
/// count.
pub const ANNOTATION_BYTES_PER_POD: usize = 65_536;
/// Owners of one pod that are kept, its controller first. Pods have one.
pub const OWNERS_PER_POD: usize = 16;
/// Bytes of an owner's name, kind or UID that are kept: one more than an object can have.
pub const OWNER_NAME_BYTES: usize = 254;
/// Bytes of a reason or message in a container's state that are kept. The kubelet cuts termination messages at this length.
pub const CONTAINER_MESSAGE_BYTES: usize = 4_096;
/// Variables, sources of variables and mounts of one pod that are kept to find the ConfigMaps it needs.
pub const CONFIG_MAP_REFERENCES_PER_POD: usize = 1_024;
/// Devices of which one pod asks for a part, or instances of one MIG profile in its annotations. More are admitted, as in KAI, and fit nowhere.
pub const GPU_DEVICES_COUNTED: i64 = 1_048_576;
/// MiB of a device's memory that one pod asks for (256 TiB). More is admitted, as in KAI, and fits nowhere.
pub const GPU_MEMORY_COUNTED: i64 = 268_435_456;
/// Bytes of one pod's GPU sharing annotations together. They are recorded on the reservation pods of its GPUs.
pub const GPU_SHARE_BYTES: usize = 256;
/// Containers of one pod, init containers and ephemeral ones included.
pub const CONTAINERS_PER_POD: usize = 256;
/// Names of resources in the requests of all containers of one pod, in its own and in its overhead. Nodes with the most kinds of devices offer some twenty.
pub const RESOURCE_NAMES_PER_POD: usize = 64;
/// Names of resources in the status of one pod group or queue: those of all its pods. A pod group counts in its queues with as many, and a pod with as
/// many device classes of its claims. An object that does not fit into the store could not be written at all.
pub const RESOURCE_NAMES_PER_STATUS: usize = 256;
/// Node selector entries of one pod.
pub const NODE_SELECTORS_PER_POD: usize = 128;
/// Requirements in all terms of the node affinity of one pod.
pub const NODE_REQUIREMENTS_PER_POD: usize = 256;
/// Values in the requirements of the node affinity of one pod. Some list nodes by name.
pub const NODE_VALUES_PER_POD: usize = 5_000;
/// Affinity and anti-affinity terms of one pod to other pods, required and preferred. Each is weighed against all pods.
pub const AFFINITY_TERMS_PER_POD: usize = 64;
/// Topology spread constraints of one pod. Each counts all pods.
pub const SPREAD_CONSTRAINTS_PER_POD: usize = 32;
/// Requirements in the selector of one affinity term, spread constraint or disruption budget.
pub const SELECTOR_REQUIREMENTS: usize = 64;
/// Values and namespaces in one affinity term, spread constraint or disruption budget.
pub const SELECTOR_VALUES: usize = 512;
/// Requirements, values and namespaces in all affinity terms and spread constraints of one pod together. Large ones have some dozens.
pub const SELECTOR_ENTRIES_PER_POD: usize = 2_048;
/// Namespace selectors in the affinity terms of one pod. Each is resolved to the names of all namespaces that it selects, anew when one changes.
pub const NAMESPACE_SELECTORS_PER_POD: usize = 8;
/// Requirements, values and namespaces in the different affinity terms and spread constraints of one namespace's pods, with one more for each. Each is
/// weighed against all pods of the namespace. Thousands of workloads with terms of their own have less.
pub const RELATION_ENTRIES_PER_NAMESPACE: usize = 16_384;
/// The same of those that select in other namespaces, or by no value of a label: they are weighed against the pods of everyone, or all of one's own.
/// 400 jobs with a domain each to themselves, as JobSets may ask for, have as many.
pub const WIDE_RELATION_ENTRIES_PER_NAMESPACE: usize = 2_048;
/// Labels, requirements, values and tolerations in the different choices of nodes on which spread constraints of one namespace's pods count, with one
/// more for each. Each is compared with all nodes. A pod may have five thousand alone.
pub const SPREAD_NODE_ENTRIES_PER_NAMESPACE: usize = 8_192;
/// Requirements and values in the selectors of one namespace's disruption budgets, with one more for each budget. Each is compared with every pod of the
/// namespace that may be evicted. A thousand budgets with three labels each have as many.
pub const BUDGET_ENTRIES_PER_NAMESPACE: usize = 4_096;
/// Tolerations of one pod. Each taint of each node is compared with them.
pub const TOLERATIONS_PER_POD: usize = 128;
/// Ports of one pod's containers. Each host port is compared with those of every pod on a node.
pub const PORTS_PER_POD: usize = 1_024;
/// Volumes of one pod.
pub const VOLUMES_PER_POD: usize = 256;
/// Claims for devices that one pod names.
pub const CLAIMS_PER_POD: usize = 64;
/// Slices of a GPU that the name of a multi-instance profile states, as 3 in `nvidia.com/mig-3g.20gb`. The largest devices have 7.
pub const MIG_SLICES: usize = 64;
/// Sub-groups of one pod group, those that have sub-groups included. Some workloads have hundreds.
pub const SUB_GROUPS_PER_POD_GROUP: usize = 4_096;
/// Depth of nested sub-groups, since scheduling recurses.
pub const SUB_GROUP_DEPTH: usize = 16;
/// Bytes of the names in one pod group, of queue, priority class, topology, levels and sub-groups, and of its durations. A key of a label is the longest
/// of them.
pub const POD_GROUP_TEXT_BYTES: usize = 317;
/// Device selectors of one claim, those of alternatives included.
pub const CLAIM_SELECTORS: usize = 128;
/// Different device selectors of the claims of one namespace.
pub const CLAIM_SELECTORS_PER_NAMESPACE: usize = 256;
/// Bytes of a device selector, as in the API server.
pub const CLAIM_SELECTOR_BYTES: usize = 10_240;
/// Estimated steps of a device selector for one device: of its loops, its regular expressions, and of texts that it makes. Two nested loops over all
/// attributes that a device may have take a quarter of it.
pub const CLAIM_SELECTOR_STEPS: usize = 4_096;
/// Steps of device selectors that are evaluated at once, ten times a second; a device counts 100 per selector, beside those steps. Takes some
/// hundredths of a second.
pub const CLAIM_SELECTOR_STEPS_AT_ONCE: usize = 200_000;
/// Bytes of the annotation with a queue's schedule.
pub const QUOTA_SCHEDULE_BYTES: usize = 8_192;
/// Entries of a queue's schedule.
pub const QUOTA_SCHEDULE_ENTRIES: usize = 32;
/// Bytes of the reason that the annotation with a hold gives.
pub const HOLD_REASON_BYTES: usize = 256;
/// Bytes of an admission request. The API server accepts objects of up to 3 MiB, and etcd half of that.
pub const WEBHOOK_BODY_BYTES: usize = 3_145_728;
/// Nesting depth of lists and objects in an admission request or an owner of pods. Pods have some fifteen, with managed fields some twenty.
pub const JSON_DEPTH: usize = 64;
/// Memory for parsing one admission request, estimated from its text. A pod group with the maximum of sub-groups comes near.
pub const WEBHOOK_REVIEW_BYTES: usize = 50_331_648;
/// Memory for all admission requests that are handled at a time; those of one namespace get no more than one request may take.
pub const WEBHOOK_REVIEWS_BYTES: usize = 83_886_080;
/// Bytes of admission requests that are still being received, or wait for memory to be handled: some five of the longest. The API server sends a request at once.
pub const WEBHOOK_BODIES_BYTES: usize = 16_777_216;
/// Connections to the webhooks, and as many to the HTTP server. An API server opens few, and sends many requests on each.
pub const WEBHOOK_CONNECTIONS: usize = 256;
/// Memory for parsing one owner of pods, estimated from its text. Large ones, with several pod templates, take a quarter.
pub const OWNER_BYTES: usize = 4_194_304;
/// Bytes of owners that are cached for one namespace.
pub const OWNERS_BYTES_PER_NAMESPACE: usize = 16_777_216;
/// Length of a chain of owners. More are a cycle or a mistake.
pub const OWNER_DEPTH: usize = 16;
/// Concurrent reads of owners for one namespace: a quarter of all.
pub const OWNER_READS_PER_NAMESPACE: usize = 8;

/// A limit that an object exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExceededLimit {
    /// What exceeds it.
    pub what: &'static str,
    /// The limit.
    pub limit: usize,
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} {}", self.limit, self.what)
    }
}

#[cfg(test)]
mod tests;
