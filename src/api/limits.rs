//! Limits on what tenants write: the one table of them. What is read of an object is bounded by these numbers, so that no object can stop or slow
//! what is done for others.
//!
//! Each is far beyond what honest workloads use and far below what would hurt. `docs/limits.md` says the same in words and what happens beyond
//! each; a test holds the two together, which is why every limit is a plain integer.
//!
//! Absent: limits that operators set, which are flags.

/// GPU groups (shared GPUs) that one pod names in labels, or that a bind request names for it. A pod is on one node, and no node has that many
/// devices.
pub const GPU_GROUPS_PER_POD: usize = 128;
/// GPU groups in use on one node at a time. Eight times the devices that a node can have: groups come and go while others still leave.
pub const GPU_GROUPS_PER_NODE: usize = 1_024;
/// Labels of one pod. Large ones have some dozens.
pub const LABELS_PER_POD: usize = 512;
/// Annotations of one pod. Large ones have some dozens.
pub const ANNOTATIONS_PER_POD: usize = 512;
/// Bytes of the annotations of one pod that are kept. Kubernetes lets objects have four times as many.
pub const ANNOTATION_BYTES_PER_POD: usize = 65_536;
/// Variables, sources of variables and mounts of one pod that are kept to see which ConfigMaps it needs.
pub const CONFIG_MAP_REFERENCES_PER_POD: usize = 1_024;
/// Devices of which one pod asks for a part, or instances of one MIG profile in its annotations. More are admitted, as in KAI, and fit nowhere.
pub const GPU_DEVICES_COUNTED: i64 = 1_048_576;
/// MiB of a device's memory that one pod asks for (256 TiB). More is admitted, as in KAI, and fits nowhere.
pub const GPU_MEMORY_COUNTED: i64 = 268_435_456;
/// Bytes of what one pod asks for of shared GPUs, all its annotations for that together. They are written down on the reservation pods of its GPUs.
pub const GPU_SHARE_BYTES: usize = 256;
/// Containers of one pod, init containers and ephemeral ones included.
pub const CONTAINERS_PER_POD: usize = 256;
/// Names of resources in the requests of all containers of one pod and in its overhead. Nodes with the most kinds of devices offer some twenty.
pub const RESOURCE_NAMES_PER_POD: usize = 64;
/// Names of resources in the status of one pod group or queue: those of all its pods. An object that does not fit into the store could not be
/// written at all.
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
/// Tolerations of one pod. Each taint of each node is held against them.
pub const TOLERATIONS_PER_POD: usize = 128;
/// Ports of one pod's containers. Each host port is held against those of every pod on a node.
pub const PORTS_PER_POD: usize = 1_024;
/// Volumes of one pod.
pub const VOLUMES_PER_POD: usize = 256;
/// Claims for devices that one pod names.
pub const CLAIMS_PER_POD: usize = 64;
/// Slices of a GPU that the name of a multi-instance profile states, as 3 in `nvidia.com/mig-3g.20gb`. The largest devices have 7.
pub const MIG_SLICES: usize = 64;
/// Sub-groups of one pod group, those that hold sub-groups included. Gangs of some hundreds are real.
pub const SUB_GROUPS_PER_POD_GROUP: usize = 4_096;
/// Sub-groups within sub-groups. What schedules them calls itself for each level.
pub const SUB_GROUP_DEPTH: usize = 16;
/// Bytes of a selector of devices, as in the API server.
pub const CLAIM_SELECTOR_BYTES: usize = 10_240;
/// Steps that the loops of a selector of devices may come to for one device. Two loops in one another over all that a device may say of itself
/// come to a quarter of it.
pub const CLAIM_SELECTOR_STEPS: usize = 4_096;
/// Steps for selectors of devices that are made at once, ten times a second; a device counts 100 for each selector, beside the steps of loops. Comes
/// to some hundredths of a second.
pub const CLAIM_SELECTOR_STEPS_AT_ONCE: usize = 200_000;
/// Bytes of the annotation with a queue's schedule.
pub const QUOTA_SCHEDULE_BYTES: usize = 8_192;
/// Entries of a queue's schedule.
pub const QUOTA_SCHEDULE_ENTRIES: usize = 32;
/// Bytes of a question to a webhook. The API server takes objects of up to 3 MiB, and the store behind it half of that.
pub const WEBHOOK_BODY_BYTES: usize = 3_145_728;
/// Lists and objects within one another in a question to a webhook or an owner of pods. Pods come to some fifteen, with managed fields to some twenty.
pub const JSON_DEPTH: usize = 64;
/// Bytes that reading one question to a webhook may take, found in its text beforehand. A pod group with every sub-group that it may have comes near.
pub const WEBHOOK_REVIEW_BYTES: usize = 50_331_648;
/// Bytes that the questions that are answered at a time may take; those of one namespace no more than one question may.
pub const WEBHOOK_REVIEWS_BYTES: usize = 83_886_080;
/// Bytes of questions that have come and whose end has not: some five of the longest. The API server sends a question at once.
pub const WEBHOOK_BODIES_BYTES: usize = 16_777_216;
/// Connections to the webhooks, and as many to the HTTP server. An API server holds few, and asks many questions on each.
pub const WEBHOOK_CONNECTIONS: usize = 256;
/// Bytes that reading one owner of pods may take, found in its text beforehand. Large ones, with several pod templates, take a quarter.
pub const OWNER_BYTES: usize = 4_194_304;
/// Bytes of owners that are remembered for one namespace.
pub const OWNERS_BYTES_PER_NAMESPACE: usize = 16_777_216;
/// Owners above one another. More are a loop or a mistake.
pub const OWNER_DEPTH: usize = 16;
/// Owners that are read at a time for one namespace: a quarter of all.
pub const OWNER_READS_PER_NAMESPACE: usize = 8;

#[cfg(test)]
mod tests;
