//! The views of nodes.

use super::overview::{Overview, Shard};
use crate::api::views::{GpuMap, GpuUser, Node, NodeGpus, NodeList, NodeOnMap, NodeResource, NodeState, SharedGpu};
use crate::components::bus::NodeSeen;
use crate::engine::overview::UserSeen;

use super::super::access::Namespaces;

/// The requested nodes.
pub struct Asked<'a> {
    /// Only nodes of this shard.
    pub shard: Option<&'a str>,
    /// Only nodes whose names come after this one: the next page.
    pub after: Option<&'a str>,
    /// The maximum number of nodes.
    pub limit: Option<usize>,
}

/// The requested nodes.
pub fn list(overview: &Overview, asked: &Asked, visible: &Namespaces) -> NodeList {
    let shards = overview.shards.iter();
    let shards = shards.filter(|shard| asked.shard.is_none_or(|name| *name == *shard.name));
    let mut all: Vec<(&Shard, &NodeSeen)> = shards
        .flat_map(|shard| shard.nodes.iter().map(move |node| (shard, node)))
        .collect();
    all.sort_by(|left, right| left.1.name.cmp(&right.1.name));
    let total = all.len();
    let from = all.partition_point(|(_, node)| asked.after.is_some_and(|after| *node.name <= *after));
    let rest = all.get(from..).unwrap_or_default();
    let most = asked.limit.unwrap_or(usize::MAX).max(1);
    let nodes: Vec<Node> = rest
        .iter()
        .take(most)
        .map(|(shard, node)| show(shard, node, visible))
        .collect();
    let more = rest.len() > nodes.len();
    NodeList {
        meta: overview.meta.clone(),
        total,
        next: nodes.last().filter(|_| more).map(|node| node.name.clone()),
        nodes,
    }
}

/// The node of that name.
pub fn one(overview: &Overview, name: &str, visible: &Namespaces) -> Option<Node> {
    overview.shards.iter().find_map(|shard| {
        let at = shard.nodes.binary_search_by(|node| (*node.name).cmp(name)).ok()?;
        Some(show(shard, &shard.nodes[at], visible))
    })
}

/// The nodes with GPUs, for the map on the page.
pub fn map(overview: &Overview) -> GpuMap {
    let all = || overview.shards.iter().flat_map(|shard| &shard.nodes);
    let mut nodes: Vec<NodeOnMap> = all().filter(|node| has_gpus(node)).map(on_map).collect();
    // Only the nodes within one shard are sorted.
    nodes.sort_by(|left, right| left.name.cmp(&right.name));
    GpuMap {
        meta: overview.meta.clone(),
        without_gpus: all().count() - nodes.len(),
        nodes,
    }
}

fn on_map(node: &NodeSeen) -> NodeOnMap {
    NodeOnMap {
        name: node.name.to_string(),
        state: match (node.ready, node.cordoned) {
            (false, _) => NodeState::NotReady,
            (true, true) => NodeState::Cordoned,
            (true, false) => NodeState::Ready,
        },
        total: gpus(node.total[2]),
        free: gpus(node.free[2]),
        shared: node.shared.iter().map(|(_, used)| gpus(*used)).collect(),
    }
}

fn has_gpus(node: &NodeSeen) -> bool {
    node.total[2] > 0 || !node.users.is_empty()
}

fn show(shard: &Shard, node: &NodeSeen, visible: &Namespaces) -> Node {
    let ([cpu, memory, _], free) = (node.total, node.free);
    Node {
        name: node.name.to_string(),
        shard: shard.name.to_string(),
        ready: node.ready,
        cordoned: node.cordoned,
        gpus: has_gpus(node).then(|| show_gpus(node, visible)),
        cpu: NodeResource {
            total: cpu as f64 / 1e3,
            free: free[0] as f64 / 1e3,
        },
        memory: NodeResource {
            total: memory as f64,
            free: free[1] as f64,
        },
        pods: node.pods,
    }
}

fn show_gpus(node: &NodeSeen, visible: &Namespaces) -> NodeGpus {
    let mut shared: Vec<SharedGpu> = node
        .shared
        .iter()
        .map(|(group, used)| SharedGpu {
            group: group.to_string(),
            used: gpus(*used),
            ..SharedGpu::default()
        })
        .collect();
    let (mut users, mut used_by_others) = (Vec::new(), 0.0);
    for user in &node.users {
        let seen = visible.show(&user.pod.namespace);
        if user.shared.is_empty() {
            if seen {
                users.push(show_user(user));
            } else {
                used_by_others += gpus(user.gpus);
            }
        }
        for at in &user.shared {
            let Some(gpu) = shared.get_mut(*at) else { continue };
            if seen {
                gpu.users.push(show_user(user));
            } else {
                gpu.used_by_others += gpus(user.gpus);
            }
        }
    }
    NodeGpus {
        total: gpus(node.total[2]),
        free: gpus(node.free[2]),
        free_later: gpus(node.free_later[2]),
        memory_mib: node.gpu_memory,
        shared,
        users,
        used_by_others,
    }
}

fn show_user(user: &UserSeen) -> GpuUser {
    GpuUser {
        namespace: user.pod.namespace.to_string(),
        pod: user.pod.name.to_string(),
        workload: user.group.as_ref().map(|group| group.name().to_owned()),
        queue: user.queue.as_deref().map(str::to_owned),
        gpus: gpus(user.gpus),
        leaving: user.leaving,
    }
}

fn gpus(millionths: i64) -> f64 {
    millionths as f64 / 1e6
}

#[cfg(test)]
mod tests;
