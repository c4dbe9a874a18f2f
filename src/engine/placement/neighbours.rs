//! Pod affinity, anti-affinity and topology spread, required and preferred, with kube-scheduler's semantics.
//!
//! A pod that is being moved does not count itself.

use smallvec::SmallVec;

use crate::engine::input::Spread;
use crate::engine::model::Model;
use crate::engine::model::ids::{CounterId, NodeId, PodId};
use crate::engine::model::relations::Asked;

/// Which term of required pod affinity or anti-affinity does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AffinityConflict {
    /// The pod's affinity is not satisfied.
    Affinity,
    /// The pod's anti-affinity matches an existing pod.
    AntiAffinity,
    /// The anti-affinity of an existing pod matches the pod.
    ExistingAntiAffinity,
}

/// Why a topology spread constraint does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpreadConflict {
    /// The node lacks the topology label.
    MissingLabel,
    /// One more pod at this value of the label would exceed the maximum skew.
    Skew,
}

/// Whether relations to other pods, NUMA zones or volumes matter for this pod, so that results for it cannot be cached for its class.
#[must_use]
pub fn concerned(model: &Model, pod: PodId) -> bool {
    let id = pod;
    let pod = &model.pods()[id];
    !pod.counted.is_empty()
        || (model.most_zones() > 0 && pod.input.numa.is_some())
        || model.classes()[pod.class].asked.is_some()
        || super::volumes::concerned(model, id)
}

/// Whether other pods of its kind may refuse it by their host ports: a pod's own do not count against it, but against others while it leaves.
#[must_use]
pub fn excludes_its_kind(model: &Model, pod: PodId) -> bool {
    !model.pods()[pod].input.needs.host_ports.is_empty()
}

/// What a pod's own places add to a counter at a value.
fn own(model: &Model, pod: PodId, counter: CounterId, value: u32) -> i64 {
    let state = &model.pods()[pod].state;
    let places = state.hold.iter().chain(&state.plan);
    places
        .filter(|place| model.neighbours().value(counter, place.node) == Some(value))
        .count() as i64
}

/// Pods counted at a value, without the pod itself.
fn others(model: &Model, pod: PodId, counter: CounterId, value: u32) -> i64 {
    let all = model.neighbours().pods(counter, value);
    if all > 0 && model.pods()[pod].counted.contains(&counter) {
        all - own(model, pod, counter, value)
    } else {
        all
    }
}

/// The affinity or anti-affinity, of the pod or of existing pods, that is violated on a node.
#[must_use]
pub fn clash(model: &Model, id: PodId, node: NodeId) -> Option<AffinityConflict> {
    let pod = &model.pods()[id];
    let asked = model.classes()[pod.class].asked.as_ref();
    let value = |counter: CounterId| model.neighbours().value(counter, node);
    if let Some(asked) = asked {
        if !asked.near.is_empty() && !near(model, id, node, asked) {
            return Some(AffinityConflict::Affinity);
        }
        let hit = |counter: &&CounterId| value(**counter).is_some_and(|at| others(model, id, **counter, at) > 0);
        if asked.apart.iter().any(|counter| hit(&counter)) {
            return Some(AffinityConflict::AntiAffinity);
        }
    }
    let has_anti_affinity = pod
        .counted
        .iter()
        .filter(|counter| model.neighbours().has_anti_affinity(**counter));
    let has_anti_affinity = has_anti_affinity.into_iter().any(|&counter| {
        value(counter).is_some_and(|at| {
            let all = model.neighbours().apart(counter, at);
            let mine = asked.is_some_and(|asked| asked.apart.contains(&counter));
            all > 0 && all > if mine { own(model, id, counter, at) } else { 0 }
        })
    });
    has_anti_affinity.then_some(AffinityConflict::ExistingAntiAffinity)
}

/// Whether the affinity is satisfied. The first pod of a set that matches its own affinity may be placed in any domain.
fn near(model: &Model, pod: PodId, node: NodeId, asked: &Asked) -> bool {
    let mut all_there = true;
    for &counter in &asked.near {
        let Some(value) = model.neighbours().value(counter, node) else {
            return false;
        };
        all_there &= others(model, pod, counter, value) > 0;
    }
    all_there || (asked.near.iter().all(|counter| nobody_else(model, pod, *counter)) && itself(model, pod, asked))
}

fn nobody_else(model: &Model, pod: PodId, counter: CounterId) -> bool {
    let state = &model.pods()[pod].state;
    let places = state.hold.iter().chain(&state.plan);
    let mine = if model.pods()[pod].counted.contains(&counter) {
        places
            .filter(|place| model.neighbours().value(counter, place.node).is_some())
            .count() as i64
    } else {
        0
    };
    model.neighbours().total(counter) == mine
}

fn itself(model: &Model, pod: PodId, asked: &Asked) -> bool {
    asked
        .near
        .iter()
        .all(|counter| model.pods()[pod].counted.contains(counter))
}

/// Whether preferred affinity of any pod affects the score of this pod at present.
#[must_use]
pub fn has_preferences(model: &Model, pod: PodId) -> bool {
    let pod = &model.pods()[pod];
    let asks = model.classes()[pod.class].asked.as_ref().is_some_and(|asked| {
        let preferred = &mut asked.preferred.iter();
        preferred.any(|(counter, _)| model.neighbours().total(*counter) > 0)
    });
    asks || pod.counted.iter().any(|counter| model.neighbours().wanted(*counter))
}

/// The sum of preferred weights for a node.
#[must_use]
pub fn preference(model: &Model, id: PodId, node: NodeId) -> i64 {
    let pod = &model.pods()[id];
    let asked = model.classes()[pod.class].asked.as_ref();
    let value = |counter: CounterId| model.neighbours().value(counter, node);
    let mine = asked
        .iter()
        .flat_map(|asked| &asked.preferred)
        .filter_map(|&(counter, weight)| Some(weight * others(model, id, counter, value(counter)?)));
    let theirs = pod.counted.iter().filter_map(|&counter| {
        let at = value(counter)?;
        let own_weight: i64 = asked
            .iter()
            .flat_map(|asked| &asked.preferred)
            .filter(|(other, _)| *other == counter)
            .map(|(_, weight)| *weight)
            .sum();
        let mine = if own_weight == 0 {
            0
        } else {
            own_weight * own(model, id, counter, at)
        };
        Some(model.neighbours().weight(counter, at) - mine)
    });
    mine.sum::<i64>() + theirs.sum::<i64>()
}

/// [`preference`] for each node, by its position.
#[must_use]
pub fn preferences(model: &Model, id: PodId) -> Vec<i64> {
    let pod = &model.pods()[id];
    let asked = model.classes()[pod.class].asked.as_ref();
    let mine: &[(CounterId, i64)] = asked.map_or(&[], |asked| &asked.preferred);
    let mut sums = vec![0; model.nodes().slots()];
    for &(counter, weight) in mine {
        let counted = pod.counted.contains(&counter);
        let own = |value| if counted { own(model, id, counter, value) } else { 0 };
        let pods = model.neighbours().all_pods(counter);
        model.neighbours().spread_out(
            counter,
            pods.map(|(value, pods)| (value, weight * (pods - own(value)))),
            &mut sums,
        );
    }
    for &counter in pod
        .counted
        .iter()
        .filter(|counter| model.neighbours().wanted(**counter))
    {
        let own_weight: i64 = mine
            .iter()
            .filter(|(other, _)| *other == counter)
            .map(|(_, weight)| weight)
            .sum();
        let own = |value| {
            if own_weight == 0 {
                0
            } else {
                own_weight * own(model, id, counter, value)
            }
        };
        let weights = model.neighbours().all_weights(counter);
        model.neighbours().spread_out(
            counter,
            weights.map(|(value, weight)| (value, weight - own(value))),
            &mut sums,
        );
    }
    sums
}

/// One of a pod's spread constraints, evaluated at one moment.
#[derive(Clone, Copy, Debug)]
struct Limit {
    counter: CounterId,
    /// The largest count of a value that still allows one more pod.
    most: i64,
    /// The value at which the pod itself is counted.
    mine: Option<u32>,
}

/// A pod's spread constraints, evaluated at one moment.
#[derive(Clone, Debug, Default)]
pub struct Spreading {
    limits: SmallVec<[Limit; 2]>,
}

impl Spreading {
    /// `None`: the pod has no spread constraints.
    #[must_use]
    pub fn of(model: &Model, pod: PodId) -> Option<Self> {
        let pod = &model.pods()[pod];
        let class = &model.classes()[pod.class];
        let asked = class.asked.as_ref().filter(|asked| !asked.spread.is_empty())?;
        let constraints = &class.constraints.relations.as_ref()?.spread;
        let stays = pod.state.hold.as_ref().filter(|_| !pod.state.terminates());
        let limit = |(constraint, &counter): (&Spread, &CounterId)| {
            let counted = pod.counted.contains(&counter);
            let mine = stays.and_then(|place| model.neighbours().value(counter, place.node));
            let mine = mine.filter(|_| counted);
            let there = mine.map(|value| model.neighbours().staying(counter, value) - 1);
            let fewest = if (model.neighbours().values(counter) as i64) < constraint.min_domains {
                0
            } else {
                let fewest = model.neighbours().fewest(counter);
                there.map_or(fewest, |there| there.min(fewest))
            };
            Limit {
                counter,
                most: fewest + constraint.max_skew - i64::from(counted),
                mine,
            }
        };
        Some(Self {
            limits: constraints.iter().zip(&asked.spread).map(limit).collect(),
        })
    }

    /// Why one more pod on a node would violate a spread constraint.
    #[must_use]
    pub fn clash(&self, model: &Model, node: NodeId) -> Option<SpreadConflict> {
        self.limits.iter().find_map(|limit| {
            let Some(value) = model.neighbours().label_value(limit.counter, node) else {
                return Some(SpreadConflict::MissingLabel);
            };
            let pods = model.neighbours().staying(limit.counter, value) - i64::from(limit.mine == Some(value));
            (pods > limit.most).then_some(SpreadConflict::Skew)
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
