//! Prediction of the kubelet's Topology Manager: the NUMA zones that it will use for a pod, or that it will refuse the pod.

use crate::engine::input::{Name, NumaPolicy, PodNuma};
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::node::Node;
use crate::engine::model::numa::{Ledger, ZoneShare, is_device};

/// The predicted result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It refuses the pod.
    Refused,
    /// It takes the pod without aligning it.
    Unaligned,
    /// It uses these zones.
    Zones(Vec<ZoneShare>),
}

/// Requested amounts, by index into the node's zoned resources.
type Need = Vec<(usize, i64)>;

/// Predicts the result for a pod on a node now, or (`now` false) once releasing pods have gone.
#[must_use]
pub fn fit(node: &Node, pod: &PodNuma, now: bool) -> Fit {
    let Some(ledger) = &node.numa else {
        return Fit::Unaligned;
    };
    if !ledger.aligns(pod) {
        return Fit::Unaligned;
    }
    let mut free = ledger.free(now);
    let need = |request: &Vec<(Name, i64)>| -> Need {
        let aligned = |(name, amount): &(Name, i64)| {
            let counts = *amount > 0 && (pod.guaranteed || is_device(name));
            Some((ledger.resource(name).filter(|_| counts)?, *amount))
        };
        request.iter().filter_map(aligned).collect()
    };
    let whole = std::slice::from_ref(&pod.whole);
    let (together, alone) = if ledger.input.pod_scope {
        (whole, [].as_slice())
    } else {
        (&*pod.together, &*pod.alone)
    };
    for request in alone {
        if choose(ledger, &free, &need(request)) == Choice::Refused {
            return Fit::Refused;
        }
    }
    let mut used: Vec<Need> = vec![Vec::new(); free.len()];
    for request in together {
        let need = need(request);
        match choose(ledger, &free, &need) {
            Choice::Refused => return Fit::Refused,
            Choice::Unaligned => return Fit::Unaligned,
            Choice::Zones(zones) => draw(&zones, need, &mut free, &mut used),
        }
    }
    let shares = used.into_iter().enumerate().filter(|(_, amounts)| !amounts.is_empty());
    let named = |amounts: Need| {
        amounts
            .into_iter()
            .map(|(at, amount)| (ledger.resources[at].clone(), amount))
    };
    let share = |(zone, amounts)| ZoneShare {
        zone,
        amounts: named(amounts).collect(),
    };
    Fit::Zones(shares.map(share).collect())
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Refused,
    Unaligned,
    Zones(Vec<usize>),
}

fn choose(ledger: &Ledger, free: &[Vec<i64>], need: &Need) -> Choice {
    let covered = |zones: &[usize]| {
        let sum = |at: usize| zones.iter().map(|zone| free[*zone][at]).sum::<i64>();
        need.iter().all(|(at, amount)| sum(*at) >= *amount)
    };
    let refused = |zones: Option<Vec<usize>>| zones.map_or(Choice::Refused, Choice::Zones);
    match ledger.input.policy {
        NumaPolicy::None => Choice::Unaligned,
        _ if need.is_empty() => Choice::Zones(Vec::new()),
        NumaPolicy::SingleNode => refused((0..free.len()).map(|zone| vec![zone]).find(|zones| covered(zones))),
        NumaPolicy::Restricted => refused(width(ledger, need).and_then(|width| {
            let mut zones = Vec::new();
            first_set(width, free.len(), &mut zones, &covered).then_some(zones)
        })),
        NumaPolicy::BestEffort => greedy(free, need).map_or(Choice::Unaligned, Choice::Zones),
    }
}

/// The number of zones that the needs must span: the fewest that fit each of them; `None` if these numbers differ or there are no needs.
fn width(ledger: &Ledger, need: &Need) -> Option<usize> {
    let mut widths = need.iter().map(|&(at, amount)| {
        let mut sizes: Vec<i64> = ledger.allocatable.iter().map(|zone| zone[at]).collect();
        sizes.sort_unstable_by(|left, right| right.cmp(left));
        let mut sum = 0;
        sizes.iter().position(|size| {
            sum += size;
            sum >= amount
        })
    });
    let first = widths.next()??;
    widths.all(|width| width == Some(first)).then_some(first + 1)
}

/// The first set of so many zones, in order of their numbers, that covers the needs.
fn first_set(width: usize, zones: usize, chosen: &mut Vec<usize>, covered: &dyn Fn(&[usize]) -> bool) -> bool {
    if chosen.len() == width {
        return covered(chosen);
    }
    let from = chosen.last().map_or(0, |last| last + 1);
    for zone in from..zones {
        chosen.push(zone);
        if first_set(width, zones, chosen, covered) {
            return true;
        }
        chosen.pop();
    }
    false
}

/// Best-effort choice: zones one by one, the one that covers most first.
fn greedy(free: &[Vec<i64>], need: &Need) -> Option<Vec<usize>> {
    let mut rest = need.clone();
    let mut zones = Vec::new();
    while rest.iter().any(|(_, amount)| *amount > 0) {
        let help = |zone: usize| -> i64 {
            rest.iter()
                .map(|(at, amount)| (*amount).min(free[zone][*at]).max(0))
                .sum()
        };
        let unused = (0..free.len()).filter(|zone| !zones.contains(zone));
        let best = unused.max_by_key(|zone| (help(*zone), std::cmp::Reverse(*zone)))?;
        if help(best) == 0 {
            return None;
        }
        for (at, amount) in &mut rest {
            *amount -= (*amount).min(free[best][*at]).max(0);
        }
        zones.push(best);
    }
    Some(zones)
}

fn draw(zones: &[usize], need: Need, free: &mut [Vec<i64>], used: &mut [Need]) {
    for (at, mut amount) in need {
        for &zone in zones {
            let taken = amount.min(free[zone][at]).max(0);
            if taken > 0 {
                free[zone][at] -= taken;
                amount -= taken;
                match used[zone].iter_mut().find(|(known, _)| *known == at) {
                    Some((_, sum)) => *sum += taken,
                    None => used[zone].push((at, taken)),
                }
            }
        }
    }
}

/// Whether the kubelet will admit the pod, now or later.
#[must_use]
pub fn allows(model: &Model, pod: PodId, id: NodeId) -> bool {
    let node = &model.nodes()[id];
    let Some(pod) = model.pods()[pod].input.numa.as_ref().filter(|_| node.numa.is_some()) else {
        return true;
    };
    fit(node, pod, false) != Fit::Refused
}

/// Whether nodes are scored by NUMA zones for a pod.
#[must_use]
pub fn counts(model: &Model, pod: PodId) -> bool {
    let tracked = |(name, amount): &(Name, i64)| *amount > 0 && model.zoned_devices().contains(name);
    model.most_zones() > 0
        && model.pods()[pod]
            .input
            .numa
            .as_ref()
            .is_some_and(|pod| pod.guaranteed || pod.whole.iter().any(tracked))
}

/// 100 divided by the number of zones that the pod will span.
#[must_use]
pub fn score(model: &Model, pod: PodId, id: NodeId) -> f64 {
    let node = &model.nodes()[id];
    let Some(pod) = &model.pods()[pod].input.numa else {
        return 0.0;
    };
    let span = match &node.numa {
        None => model.most_zones(),
        Some(ledger) if !ledger.aligns(pod) => ledger.now.len(),
        Some(_) => match fit(node, pod, false) {
            Fit::Refused | Fit::Unaligned => return 0.0,
            Fit::Zones(zones) => zones.len().max(1),
        },
    };
    100.0 / span as f64
}

#[cfg(test)]
mod tests;
