//! The rules about pods and gangs that wait although there is room for them.

use super::{View, claims, sub_groups, volumes, zones};
use crate::plan::{parent_of, pool_of};
use crate::state::{NodeSeen, PodSeen};

/// What a node has left: GPUs, MIG instances, thousandths of CPUs, and pods.
struct Free {
    gpus: i64,
    instances: i64,
    cpu: i64,
    pods: i64,
}

/// What nodes and queues have left.
struct Room<'a> {
    view: &'a View<'a>,
}

impl Room<'_> {
    /// What a node has left.
    fn free(&self, name: &str, node: &NodeSeen) -> Free {
        let holding = self.view.before.holding(self.view.now);
        let on: Vec<_> = holding.filter(|(pod, _)| pod.node == name).collect();
        let sum = |of: fn(&PodSeen) -> i64| on.iter().map(|(pod, _)| of(pod)).sum::<i64>();
        Free {
            gpus: node.gpus - sum(|pod| pod.gpus),
            instances: node.instances - sum(|pod| pod.instances),
            cpu: node.cpu - sum(|pod| pod.cpu),
            pods: node.pods - on.len() as i64,
        }
    }

    /// The open nodes of a node pool.
    fn nodes(&self, pool: Option<&str>) -> impl Iterator<Item = (&String, &NodeSeen)> {
        let nodes = self.view.now.nodes.iter();
        nodes.filter(move |(_, node)| node.open && node.pool.as_deref() == pool)
    }

    /// Whether a queue and the one above it may be charged so much more. For pods that are not preemptible only if their quotas have no bound: what they hold of
    /// a quota is not summed here.
    fn may_be_charged(&self, queue: &str, charge: i64, non_preemptible: bool) -> bool {
        let used = |queue: &str| -> i64 {
            let holding = self.view.before.holding(self.view.now);
            let pods = holding.filter(|(pod, _)| !pod.reservation && pod.ours);
            let pods = pods.filter(|(pod, _)| pod.queue == queue || parent_of(&pod.queue) == queue);
            pods.map(|(pod, _)| pod.charged()).sum()
        };
        [queue, parent_of(queue)].into_iter().all(|name| {
            let Some(queue) = self.view.now.queues.get(name) else {
                return false;
            };
            let within = queue.limit.is_none_or(|limit| used(name) + charge <= limit);
            within && (!non_preemptible || queue.quota.is_none())
        })
    }
}

fn waits(pod: &PodSeen) -> bool {
    pod.ours && pod.node.is_empty() && !pod.deleting && !pod.finished
}

/// A waiting pod outside gangs for which some node has room.
pub fn fits_but_waits(view: &View<'_>) -> Option<String> {
    let (now, room) = (view.now, Room { view });
    now.pods.values().filter(|pod| waits(pod)).find_map(|pod| {
        let group = now.groups.get(&(pod.namespace.clone(), pod.group.clone()))?;
        if group.min > 1 || pod.devices > 1 || !group.takes(pod) {
            return None;
        }
        // Another one may be on the node.
        if pod.apart.is_some() || pod.without_config_map || !claims::are_its_own(view, pod) {
            return None;
        }
        // The pods of a group are tried in order, and none after one that does not fit, as in KAI.
        let others = now.pods.values().filter(|other| {
            (&other.namespace, &other.group) == (&pod.namespace, &pod.group) && other.node.is_empty() && !other.finished
        });
        if others.count() > 1 || pool_of(&group.queue) != pod.pool.as_deref() {
            return None;
        }
        let non_preemptible = pod.non_preemptible || group.non_preemptible;
        if !room.may_be_charged(&group.queue, pod.charged(), non_preemptible) {
            return None;
        }
        let gpus = if pod.portion > 0 { 1 } else { pod.gpus };
        let (node, free_gpus) = room.nodes(pod.pool.as_deref()).find_map(|(name, node)| {
            let free = room.free(name, node);
            let fits = free.gpus >= gpus && free.instances >= pod.instances;
            let fits = fits && free.cpu >= pod.cpu + 100 && free.pods > 1;
            let fits = fits && claims::fit(view, pod, name) && volumes::allows(view, pod, name);
            let fits = fits && sub_groups::allow(view, group, pod, name) && zones::allow(view, pod, name);
            fits.then_some((name, free.gpus))
        })?;
        let on = view.before.holding(now).filter(|(other, _)| other.node == *node);
        let on: Vec<_> = on
            .map(|(other, _)| format!("{} with {} GPUs", other.full_name(), other.gpus))
            .collect();
        Some(format!(
            "{} waits ({:?}), and {node} has room: {free_gpus} GPUs beside {}",
            pod.full_name(),
            pod.waiting_message,
            on.join(", ")
        ))
    })
}

/// A gang of equal pods that is below its minimum, and for whose missing pods the nodes have room.
pub fn gang_fits_but_waits(view: &View<'_>) -> Option<String> {
    let (now, room) = (view.now, Room { view });
    now.groups.iter().find_map(|((namespace, name), group)| {
        let members = || {
            let of_group = |pod: &&PodSeen| (&pod.namespace, &pod.group) == (namespace, name);
            now.pods.values().filter(of_group)
        };
        // Those that have ended count differently, and one that terminates may hold its place.
        let simple = |pod: &PodSeen| {
            pod.ours
                && !pod.finished
                && !pod.deleting
                && pod.portion == 0
                && pod.apart.is_none()
                && group.takes(pod)
                && pod.claimed == 0
                && pod.volume_claim.is_none()
        };
        let mut names = group.sub_groups.keys();
        let in_rack = names.any(|name| !group.in_rack_with(name).is_empty());
        if group.min < 2 || in_rack || !members().all(simple) {
            return None;
        }
        let waiting: Vec<&PodSeen> = members().filter(|pod| waits(pod)).collect();
        let first = waiting.first()?;
        let bound: Vec<&PodSeen> = members().filter(|pod| !waits(pod)).collect();
        let missing = group.missing(&bound);
        let can_be_whole = missing.iter().all(|(name, missing)| {
            let of_it = waiting.iter().filter(|pod| pod.sub_group == *name);
            of_it.count() >= *missing
        });
        let missing: usize = missing.values().sum();
        if missing == 0 || !can_be_whole {
            return None;
        }
        let alike = |pod: &&PodSeen| (pod.gpus, pod.cpu, &pod.pool) == (first.gpus, first.cpu, &first.pool);
        if !waiting.iter().all(alike) || pool_of(&group.queue) != first.pool.as_deref() || group.pool != first.pool {
            return None;
        }
        let charge = first.charged() * missing as i64;
        if !room.may_be_charged(&group.queue, charge, group.non_preemptible) {
            return None;
        }
        let places = room.nodes(first.pool.as_deref()).map(|(name, node)| {
            let free = room.free(name, node);
            let by_gpus = free.gpus.checked_div(first.gpus).unwrap_or(i64::MAX);
            by_gpus.min(free.cpu / first.cpu.max(1)).min(free.pods).max(0)
        });
        let places: i64 = places.sum();
        (places >= missing as i64).then(|| {
            format!(
                "{missing} pods of gang {name} wait ({:?}), and there is room for {places}",
                first.waiting_message
            )
        })
    })
}
