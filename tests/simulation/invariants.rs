//! The rules that must hold after every step, and those that must hold once the faults are over, as far as they are about stored objects: pure predicates
//! over what the API server stores ([`State`]) and what was there before ([`History`]). The catalogue of all rules is [`rules`].

mod claims;
mod proof;
mod room;
mod sub_groups;
mod volumes;
mod zones;

use std::collections::{BTreeMap, BTreeSet};

use unikai::rules;

use crate::plan::parent_of;
use crate::state::{NodeSeen, PodSeen, QueueSeen, State};

pub use proof::each_rule_can_be_broken;

/// The predicate of a rule.
pub struct Rule {
    /// The rule's id in the catalogue.
    pub id: &'static str,
    /// What is wrong, if it is broken.
    pub broken: fn(&View<'_>) -> Option<String>,
}

/// The input of a rule.
pub struct View<'a> {
    pub now: &'a State,
    pub before: &'a History,
}

impl View<'_> {
    /// The pod group of a bound pod is gone. What the pod is charged to then follows from its labels and its node.
    fn has_lost_its_group(&self, pod: &PodSeen) -> bool {
        let group = (pod.namespace.clone(), pod.group.clone());
        self.before.groups.contains(&group) && !self.now.groups.contains_key(&group)
    }

    /// A tenant made the pod name the group of other pods, which ended before the group was written.
    fn joined_no_group(&self, pod: &PodSeen) -> bool {
        let owner = pod.name.rsplit_once('-').map_or(&*pod.name, |(owner, _)| owner);
        let own = [&*pod.name, owner].map(|name| format!("pg-{name}-"));
        self.before.without_group.contains_key(&pod.uid) && !own.iter().any(|own| pod.group.starts_with(own))
    }
}

/// Rules that hold at any time.
pub const ALWAYS: &[Rule] = &[
    Rule {
        id: "B-1",
        broken: bound_once,
    },
    Rule {
        id: "N-1",
        broken: node_overfull,
    },
    Rule {
        id: "N-2",
        broken: zones::overfull,
    },
    Rule {
        id: "N-3",
        broken: zones::in_several,
    },
    Rule {
        id: "G-1",
        broken: group_with_devices,
    },
    Rule {
        id: "G-2",
        broken: device_of_groups,
    },
    Rule {
        id: "G-3",
        broken: portions,
    },
    Rule {
        id: "G-4",
        broken: recorded,
    },
    Rule {
        id: "T-1",
        broken: sub_groups::in_several_racks,
    },
    Rule {
        id: "D-1",
        broken: claims::device_of_claims,
    },
    Rule {
        id: "D-2",
        broken: claims::without_device,
    },
    Rule {
        id: "D-3",
        broken: claims::unlike,
    },
    Rule {
        id: "P-1",
        broken: volumes::elsewhere,
    },
    Rule {
        id: "P-2",
        broken: volumes::of_claims,
    },
    Rule {
        id: "Q-1",
        broken: over_limit,
    },
    Rule {
        id: "Q-2",
        broken: over_quota,
    },
    Rule {
        id: "R-1",
        broken: together,
    },
    Rule {
        id: "W-1",
        broken: refused,
    },
    Rule {
        id: "K-1",
        broken: partial_gang,
    },
];

/// Rules that hold some time after the last fault.
pub const AT_REST: &[Rule] = &[
    Rule {
        id: "A-1",
        broken: room::fits_but_waits,
    },
    Rule {
        id: "A-5",
        broken: room::gang_fits_but_waits,
    },
    Rule {
        id: "A-2",
        broken: silent,
    },
    Rule {
        id: "A-6",
        broken: claims::idle_device,
    },
    Rule {
        id: "A-7",
        broken: idle_reservation,
    },
    Rule {
        id: "A-4",
        broken: wrong_status,
    },
];

/// Rules that hold when all workloads are gone.
pub const EMPTY: &[Rule] = &[Rule {
    id: "A-3",
    broken: left_over,
}];

/// A rule as messages name it, with its sentence.
pub fn named(id: &str) -> String {
    rules::by_id(id).map_or_else(|| id.to_owned(), ToString::to_string)
}

/// How long the scheduler may not know a new limit of a queue or size of a node, in ms.
const LATE: u64 = 30_000;
/// How long a gang may be below its minimum while all shards have leaders, in ms: its grace period, and the time to evict it.
const PARTIAL: u64 = 180_000;
/// How long after a change of a node its kubelet may refuse pods that were decided before, in ms.
const REFUSES: u64 = 60_000;
/// How long a bind may not know that its reservation pod was deleted, in ms: one that takes longer than a second asks the API server again.
const ROBBED: u64 = 3_000;
/// A shard whose Lease was not renewed for so long has no leader, in ms.
const NOT_RENEWED: u64 = 10_000;

/// Which of these rules are broken, and how.
pub fn broken<'r>(rules: &'r [Rule], now: &State, before: &History) -> Vec<(&'r Rule, String)> {
    let view = View { now, before };
    let found = rules.iter().filter_map(|rule| Some((rule, (rule.broken)(&view)?)));
    found.collect()
}

/// Facts about earlier states.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Each bound pod, as it was when first seen bound.
    pub bound: BTreeMap<String, PodSeen>,
    /// Pods first seen bound in the latest state.
    pub new: BTreeSet<String>,
    /// Bound pods whose pod group was first seen in the latest state.
    new_in_group: BTreeSet<String>,
    /// Bound pods whose pod group has not been seen, and since when.
    without_group: BTreeMap<String, u64>,
    /// Pod groups that have been seen.
    groups: BTreeSet<(String, String)>,
    /// When each bind request was first and last seen.
    requested: BTreeMap<String, (u64, u64)>,
    /// The resources of nodes, with the time until which they were valid.
    nodes: BTreeMap<String, Vec<(u64, NodeSeen)>>,
    limits: BTreeMap<String, Vec<(u64, QueueSeen)>>,
    /// When a queue was last absent. Its parent is not charged then.
    absent: BTreeMap<String, u64>,
    /// Since when pods, by uid, are bound in gangs below their minimum. A gang of which a pod cannot be bound may be tried again after its others were evicted.
    partial: BTreeMap<String, u64>,
    /// The last renewal of each shard's Lease, and when it was first seen.
    renewed: BTreeMap<String, (String, u64)>,
    /// When a shard was last without a leader, or without a scheduler or binder that is switched on.
    leaderless: u64,
    /// When each node was last changed.
    changed_nodes: BTreeMap<String, u64>,
    /// When reservation pods of each node were last deleted by somebody else.
    robbed: BTreeMap<String, u64>,
    /// Pods that a kubelet refused, and those of them that were first seen in the latest state.
    refused: BTreeSet<String>,
    new_refused: BTreeSet<String>,
}

impl History {
    /// Whether no gang is below its minimum.
    pub fn gangs_are_whole(&self) -> bool {
        self.partial.is_empty()
    }

    /// The pods first seen bound in the latest state, as they were then.
    fn newly_bound(&self) -> impl Iterator<Item = &PodSeen> {
        self.new.iter().filter_map(|uid| self.bound.get(uid))
    }

    /// A node is changed at that time.
    pub fn node_changes(&mut self, name: &str, at: u64) {
        self.changed_nodes.insert(name.to_owned(), at);
    }

    /// Somebody deletes reservation pods of a node at that time.
    pub fn reservations_go(&mut self, node: &str, at: u64) {
        self.robbed.insert(node.to_owned(), at);
    }

    /// Records a state, before the rules are evaluated on it.
    pub fn take(&mut self, now: &State) {
        let refused = now.pods.values().filter(|pod| pod.refused);
        let refused: BTreeSet<String> = refused.map(|pod| pod.uid.clone()).collect();
        self.new_refused = refused.difference(&self.refused).cloned().collect();
        self.refused = refused;
        self.new.clear();
        self.new_in_group.clear();
        let unseen = now.groups.keys().filter(|group| !self.groups.contains(*group));
        let unseen: Vec<_> = unseen.cloned().collect();
        self.groups.extend(unseen);
        let reservations = now.reservations();
        for (uid, pod) in &now.pods {
            if pod.on_node() && !self.bound.contains_key(uid) {
                let mut pod = pod.clone();
                self.without_group.insert(uid.clone(), now.at);
                // Its annotations may have changed between the decision and the Binding.
                let recorded = pod.groups.iter().find_map(|group| {
                    let holders = reservations.get(&(&*pod.node, &**group))?;
                    holders.iter().find_map(|holder| holder.users.get(uid).copied())
                });
                pod.portion = recorded.unwrap_or(pod.portion);
                self.bound.insert(uid.clone(), pod);
                self.new.insert(uid.clone());
            }
        }
        self.bound.retain(|uid, _| now.pods.contains_key(uid));
        // The label of a pod may name another queue than its pod group, which may be written after its Binding.
        self.without_group.retain(|uid, since| {
            let Some(pod) = self.bound.get_mut(uid) else {
                return false;
            };
            let Some(group) = now.groups.get(&(pod.namespace.clone(), pod.group.clone())) else {
                return true;
            };
            pod.queue.clone_from(&group.queue);
            pod.non_preemptible = group.non_preemptible;
            // The limits at its bind are not remembered for longer. A tenant may move the charge of a pod whose group is not written yet.
            if now.at < *since + LATE && !group.of_tenant {
                self.new_in_group.insert(uid.clone());
            }
            false
        });
        for name in now.bind_requests.keys() {
            self.requested.entry(name.clone()).or_insert((now.at, now.at)).1 = now.at;
        }
        self.requested.retain(|_, (_, last)| *last + LATE > now.at);
        // A bind request that a replica has left is carried out later, as it was decided.
        let decided = self.requested.values().map(|(first, _)| *first);
        let late = now.at.saturating_sub(LATE);
        let since = decided.min().map_or(late, |first| first.min(late));
        for (name, node) in &now.nodes {
            remember(self.nodes.entry(name.clone()).or_default(), node, since, now.at);
        }
        for (name, queue) in &now.queues {
            remember(self.limits.entry(name.clone()).or_default(), queue, late, now.at);
        }
        let absent = self.limits.keys().filter(|name| !now.queues.contains_key(*name));
        self.absent.extend(absent.map(|name| (name.clone(), now.at)));
        for (shard, renewal) in &now.renewals {
            if self.renewed.get(shard).is_none_or(|(last, _)| last != renewal) {
                self.renewed.insert(shard.clone(), (renewal.clone(), now.at));
            }
        }
        if now.evicts_none || self.renewed.values().any(|(_, at)| at + NOT_RENEWED < now.at) {
            self.leaderless = now.at;
        }
        // By the group in which they were bound. One that terminates is a member, as its node may be silent.
        let mut members: BTreeMap<(&str, &str), Vec<&PodSeen>> = BTreeMap::new();
        for (pod, current) in self.holding(now) {
            members.entry((&pod.namespace, &pod.group)).or_default().push(current);
        }
        let finished = now.pods.values().filter(|pod| pod.succeeded);
        let finished: BTreeSet<(&str, &str)> = finished.map(|pod| (&*pod.namespace, &*pod.group)).collect();
        let mut partial = BTreeMap::new();
        for ((namespace, name), group) in &now.groups {
            let bound = members
                .get(&(&**namespace, &**name))
                .map(Vec::as_slice)
                .unwrap_or_default();
            if group.min < 2 || group.missing(bound).values().all(|missing| *missing == 0) {
                continue;
            }
            // Members end one by one, and not all of them need to succeed.
            if finished.contains(&(&**namespace, &**name)) {
                continue;
            }
            // Pods that terminate on a silent node need only time. One after which a tenant has named a pod group belongs to that for later processes.
            let left = |pod: &&PodSeen| !pod.deleting && !now.has_own_group_of_tenant(pod);
            for pod in bound.iter().copied().filter(left) {
                let since = self.partial.get(&pod.uid).copied().unwrap_or(now.at);
                partial.insert(pod.uid.clone(), since);
            }
        }
        self.partial = partial;
    }

    /// The pods on nodes, as they were when they were bound.
    fn holding<'a>(&'a self, now: &'a State) -> impl Iterator<Item = (&'a PodSeen, &'a PodSeen)> {
        self.bound.iter().filter_map(|(uid, pod)| {
            let current = now.pods.get(uid).filter(|pod| pod.on_node())?;
            Some((pod, current))
        })
    }
}

/// Adds a value that is valid now, and drops those that were not valid any more at `since`.
fn remember<T: Clone + PartialEq>(values: &mut Vec<(u64, T)>, value: &T, since: u64, now: u64) {
    values.retain(|(until, _)| *until >= since);
    match values.last_mut() {
        Some((until, last)) if last == value => *until = now,
        _ => values.push((now, value.clone())),
    }
}

fn bound_once(view: &View<'_>) -> Option<String> {
    view.before.bound.iter().find_map(|(uid, pod)| {
        let now = view.now.pods.get(uid)?;
        (now.node != pod.node).then(|| format!("{} was bound to {} and is on {}", pod.full_name(), pod.node, now.node))
    })
}

fn node_overfull(view: &View<'_>) -> Option<String> {
    if view.before.new.is_empty() {
        return None;
    }
    let touched: BTreeSet<&str> = view.before.newly_bound().map(|pod| &*pod.node).collect();
    let mut on_nodes: BTreeMap<&str, Vec<&PodSeen>> = touched.into_iter().map(|node| (node, Vec::new())).collect();
    for (pod, _) in view.before.holding(view.now) {
        if let Some(on) = on_nodes.get_mut(&*pod.node) {
            on.push(pod);
        }
    }
    on_nodes.into_iter().find_map(|(node, on)| {
        let sizes = view.before.nodes.get(node)?;
        let most = |of: fn(&NodeSeen) -> i64| sizes.iter().map(|(_, size)| of(size)).max().unwrap_or(0);
        let sum = |of: fn(&PodSeen) -> i64| on.iter().map(|pod| of(pod)).sum::<i64>();
        // Pods that were there before stay on a node that has lost resources, and a reservation pod that was deleted is replaced for them.
        let new = |uid: &String| view.before.new.contains(uid);
        let old_user = |uid: &String| view.before.bound.contains_key(uid) && !new(uid);
        let new = || on.iter().filter(|pod| new(&pod.uid) && !pod.users.keys().any(old_user));
        let more = [
            new().map(|pod| pod.gpus).sum::<i64>(),
            new().map(|pod| pod.instances).sum(),
            new().map(|pod| pod.cpu).sum(),
            new().count() as i64,
        ];
        let checks = [
            ("GPUs", sum(|pod| pod.gpus), most(|node| node.gpus)),
            ("MIG instances", sum(|pod| pod.instances), most(|node| node.instances)),
            ("mCPU", sum(|pod| pod.cpu), most(|node| node.cpu)),
            ("pods", on.len() as i64, most(|node| node.pods)),
        ];
        let mut worse = checks
            .into_iter()
            .zip(more)
            .filter(|((_, used, has), more)| used > has && *more > 0);
        worse.next().map(|((what, used, has), _)| {
            let pods: Vec<_> = on.iter().map(|pod| pod.full_name()).collect();
            format!("{node} has {has} {what} and gave {used}: {pods:?}")
        })
    })
}

/// The reservation pods that hold a device: node, group, device.
fn held<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    view.now
        .pods
        .values()
        .filter(|pod| pod.reservation && pod.on_node() && !pod.deleting)
        .filter_map(|pod| Some((&*pod.node, pod.groups.first()?.as_str(), pod.device.as_deref()?)))
}

/// The first key with several values.
fn with_several<K: Ord, V: Ord>(pairs: impl Iterator<Item = (K, V)>) -> Option<(K, BTreeSet<V>)> {
    let mut values: BTreeMap<K, BTreeSet<V>> = BTreeMap::new();
    for (key, value) in pairs {
        values.entry(key).or_default().insert(value);
    }
    values.into_iter().find(|(_, values)| values.len() > 1)
}

fn group_with_devices(view: &View<'_>) -> Option<String> {
    with_several(held(view).map(|(node, group, device)| ((node, group), device)))
        .map(|((node, group), devices)| format!("group {group} on {node} has {devices:?}"))
}

fn device_of_groups(view: &View<'_>) -> Option<String> {
    with_several(held(view).map(|(node, group, device)| ((node, device), group)))
        .map(|((node, device), groups)| format!("device {device} on {node} is of {groups:?}"))
}

fn portions(view: &View<'_>) -> Option<String> {
    let mut given: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for (pod, _) in view.before.holding(view.now).filter(|(pod, _)| pod.portion > 0) {
        for group in &pod.groups {
            *given.entry((&pod.node, group)).or_default() += pod.portion;
        }
    }
    given
        .into_iter()
        .find(|(_, given)| *given > 1000)
        .map(|((node, group), given)| format!("{given} thousandths of group {group} on {node} are given"))
}

fn recorded(view: &View<'_>) -> Option<String> {
    let reservations = view.now.reservations();
    let mut new = view.before.newly_bound().filter(|pod| pod.portion > 0 && pod.ours);
    new.find_map(|pod| {
        if pod.groups.is_empty() {
            return Some(format!(
                "{} is bound to {} without a GPU group",
                pod.full_name(),
                pod.node
            ));
        }
        pod.groups.iter().find_map(|group| {
            let holders = reservations.get(&(&*pod.node, &**group));
            let mut of_group = holders.into_iter().flatten();
            let known = of_group.any(|reservation| reservation.users.contains_key(&pod.uid));
            // Somebody deleted the reservation pod after it was read.
            let robbed = holders.is_none()
                && view
                    .before
                    .robbed
                    .get(&pod.node)
                    .is_some_and(|at| view.now.at < at + ROBBED);
            (!known && !robbed).then(|| {
                format!(
                    "{} is bound to group {group} on {} and not recorded",
                    pod.full_name(),
                    pod.node
                )
            })
        })
    })
}

fn over_limit(view: &View<'_>) -> Option<String> {
    exceeded(view, "limit", PodSeen::charged, |queue| queue.limit)
}

fn over_quota(view: &View<'_>) -> Option<String> {
    let charged = |pod: &PodSeen| if pod.non_preemptible { pod.charged() } else { 0 };
    exceeded(view, "quota", charged, |queue| queue.quota)
}

/// A queue that was given more than it may have, in thousandths of a GPU; `None` is no bound.
fn exceeded(
    view: &View<'_>,
    bound: &str,
    charged: fn(&PodSeen) -> i64,
    most: fn(&QueueSeen) -> Option<i64>,
) -> Option<String> {
    if view.before.new_in_group.is_empty() {
        return None;
    }
    let mut used: BTreeMap<String, (i64, Vec<String>)> = BTreeMap::new();
    let mut touched = BTreeSet::new();
    for (pod, now) in view.before.holding(view.now) {
        if pod.reservation || !pod.ours || now.deleting || view.has_lost_its_group(pod) {
            continue;
        }
        if view.before.without_group.contains_key(&pod.uid) {
            continue;
        }
        let absent = view.before.absent.get(&pod.queue);
        let parent = absent
            .is_none_or(|at| at + LATE < view.now.at)
            .then(|| parent_of(&pod.queue).to_owned());
        for queue in std::iter::once(pod.queue.clone()).chain(parent) {
            let (sum, pods) = used.entry(queue.clone()).or_default();
            *sum += charged(pod);
            pods.push(pod.full_name());
            // A bind that was decided under another bound, and is resumed, is no new decision.
            let decided = view.before.requested.get(&pod.full_name());
            let resumed = decided.is_some_and(|(first, _)| first + LATE < view.now.at);
            if charged(pod) > 0 && view.before.new_in_group.contains(&pod.uid) && !resumed {
                touched.insert(queue);
            }
        }
    }
    used.into_iter()
        .filter(|(queue, _)| touched.contains(queue))
        .find_map(|(queue, (used, pods))| {
            let known = view.before.limits.get(&queue)?;
            let most = known
                .iter()
                .map(|(_, queue)| most(queue))
                .try_fold(0, |greatest, most| Some(most?.max(greatest)))?;
            let pods = pods.join(", ");
            (used > most).then(|| format!("queue {queue} has a {bound} of {most} thousandths and holds {used}: {pods}"))
        })
}

fn together(view: &View<'_>) -> Option<String> {
    if view.before.new.is_empty() {
        return None;
    }
    let apart = |pod: &PodSeen| {
        pod.apart
            .clone()
            .map(|called| (pod.node.clone(), pod.namespace.clone(), called))
    };
    let mut on_nodes: BTreeMap<_, Vec<&PodSeen>> = BTreeMap::new();
    for (pod, _) in view.before.holding(view.now) {
        if let Some(key) = apart(pod) {
            on_nodes.entry(key).or_default().push(pod);
        }
    }
    let mut together = on_nodes.into_iter().filter(|(_, pods)| pods.len() > 1);
    together
        .find(|(_, pods)| pods.iter().any(|pod| view.before.new.contains(&pod.uid)))
        .map(|((node, ..), pods)| {
            let pods: Vec<_> = pods.iter().map(|pod| pod.full_name()).collect();
            format!("{pods:?} are on {node}")
        })
}

fn refused(view: &View<'_>) -> Option<String> {
    let new = view.before.new_refused.iter();
    let mut new = new.filter_map(|uid| view.now.pods.get(uid));
    let changed = |pod: &PodSeen| view.before.changed_nodes.get(&pod.node).copied();
    new.find(|pod| changed(pod).is_none_or(|at| at + REFUSES < view.now.at))
        .map(|pod| format!("the kubelet of {} refused {}", pod.node, pod.full_name()))
}

fn partial_gang(view: &View<'_>) -> Option<String> {
    let old = view
        .before
        .partial
        .iter()
        .find(|(_, since)| view.now.at > view.before.leaderless.max(**since) + PARTIAL);
    let (uid, since) = old?;
    let pod = view.now.pods.get(uid)?;
    Some(format!(
        "{}/{} is bound since {since} ms while its gang {} is below its minimum",
        pod.namespace, pod.name, pod.group
    ))
}

fn silent(view: &View<'_>) -> Option<String> {
    let waiting = view
        .now
        .pods
        .values()
        .filter(|pod| pod.ours && pod.node.is_empty() && !pod.finished && !pod.deleting);
    let mut silent = waiting.filter(|pod| pod.waiting_message.is_none());
    silent
        .next()
        .map(|pod| format!("{} waits and does not say why", pod.full_name()))
}

fn idle_reservation(view: &View<'_>) -> Option<String> {
    let holding: Vec<_> = view.before.holding(view.now).map(|(pod, _)| pod).collect();
    let mut held = held(view);
    let idle = held.find(|(node, group, _)| {
        let uses =
            |pod: &&PodSeen| !pod.reservation && pod.node == *node && pod.groups.iter().any(|used| used == group);
        !holding.iter().any(uses)
    });
    idle.map(|(node, group, device)| {
        format!("device {device} of {node} is reserved for group {group}, which no pod uses")
    })
}

fn wrong_status(view: &View<'_>) -> Option<String> {
    let mut held: BTreeMap<&str, (i64, Vec<&str>)> = BTreeMap::new();
    for (pod, _) in view
        .before
        .holding(view.now)
        .filter(|(pod, _)| !pod.reservation && pod.ours)
    {
        for queue in [&*pod.queue, parent_of(&pod.queue)] {
            let (sum, pods) = held.entry(queue).or_default();
            *sum += pod.charged();
            pods.push(&pod.name);
        }
    }
    // What these are charged to differs between processes.
    let is_unclear = |pod: &PodSeen| {
        view.has_lost_its_group(pod) || view.joined_no_group(pod) || view.now.has_own_group_of_tenant(pod)
    };
    let mut pods = view.before.holding(view.now);
    if pods.any(|(pod, _)| pod.ours && !pod.reservation && is_unclear(pod)) {
        return None;
    }
    view.now.queues.iter().find_map(|(name, queue)| {
        let (held, pods) = held.get(&**name).cloned().unwrap_or_default();
        (held != queue.allocated).then(|| {
            let pods = pods.join(", ");
            format!(
                "queue {name} shows {} thousandths and holds {held}: {pods}",
                queue.allocated
            )
        })
    })
}

fn left_over(view: &View<'_>) -> Option<String> {
    let now = view.now;
    let reservations: Vec<_> = now
        .pods
        .values()
        .filter(|pod| pod.reservation)
        .map(PodSeen::full_name)
        .collect();
    let groups: Vec<_> = now
        .groups
        .keys()
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect();
    let left = [
        ("reservation pods", reservations),
        ("bind requests", now.bind_requests.keys().cloned().collect()),
        ("config maps", now.config_maps.iter().cloned().collect()),
        (
            "resource claims",
            now.claims.keys().map(|(_, name)| name.clone()).collect(),
        ),
        ("pod groups", groups),
    ];
    let mut left = left.into_iter().filter(|(_, left)| !left.is_empty());
    left.next().map(|(what, left)| format!("{what} {left:?}"))
}
