//! The end of a cycle: the pod states that the cycle changed become decisions.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::decision::{Bind, ClaimGrant, Decisions, Eviction, GroupTimes, Pipeline};
use crate::engine::input::{GPU, GpuKind, GroupKey, Name, PodInput, WHOLE};
use crate::engine::model::Model;
use crate::engine::model::devices::claims::Used;
use crate::engine::model::ids::{PodGroupId, PodId};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::numa::{Ledger, ZoneShare};
use crate::engine::model::pod::{Place, State, Status};
use crate::engine::model::resources::GPUS;

use super::cycle::Cycle;
use super::cycle_log::CycleLog;
use super::unbound::was_bound;

mod limits;

/// Makes decisions of the committed state changes, and marks them in the model as assumed.
pub fn conclude(cycle: &mut Cycle, decisions: &mut Decisions) {
    let Cycle {
        model,
        kept,
        log,
        context,
        ..
    } = cycle;
    hold_back_parts(model);
    let mut seen = NodeSet::default();
    let mut decided = model.take_decided();
    decided.retain(|pod| seen.add(pod.at()));
    let states = decided.iter().map(|pod| model.pods()[*pod].state.status);
    let with = |wanted: Status| states.clone().filter(|status| *status == wanted).count();
    decisions.bind.reserve(with(Status::Allocated));
    decisions.pipeline.reserve(with(Status::Pipelined));
    decisions.evict.reserve(with(Status::Releasing));
    // In a loop of its own, so that the memory loads of many pods overlap.
    let bound: Vec<bool> = decided.iter().map(|pod| was_bound(model, *pod)).collect();
    let beyond = budgets_exceeded(model, &decided, &bound);
    let places = places_of_pipelined(model, &decided);
    let mut preemptors: BTreeSet<PodGroupId> = BTreeSet::new();
    for (pod, bound) in decided.into_iter().zip(bound) {
        preemptors.extend(conclude_pod(model, log, pod, bound, decisions));
    }
    for preemptor in preemptors {
        let places = places.get(&preemptor).copied().unwrap_or_default();
        model.evicted_for(preemptor, places, context.now);
    }
    for eviction in &mut decisions.evict {
        eviction
            .exceeds
            .extend(beyond.get(&eviction.pod.uid).into_iter().flatten().cloned());
    }
    limits::await_evictions(model, context.policy, &mut decisions.bind);
    for &pod_group in &log.timed {
        let pod_group = &model.pod_groups()[pod_group];
        if let Some(input) = &pod_group.input {
            decisions.times.push(GroupTimes {
                group: pod_group.key.clone(),
                stale_since: input.stale_since,
                last_start: input.last_start,
                last_eviction: input.last_eviction,
            });
        }
    }
    decisions.times.sort_by(|left, right| left.group.cmp(&right.group));
    decisions.work = log.work;
    // Here rather than at the start of the next cycle: a new pod waits for that one.
    kept.capacity.begin(model);
    kept.capacity.update(model);
}

/// Pipelines the allocated pods of pod groups, pod sets and sets whose minimum is met only with pipelined pods, so that none is bound in part. A later action
/// of the cycle may have taken places of a pod group that was allocated as a whole.
fn hold_back_parts(model: &mut Model) {
    let decided = model.decided().iter().copied();
    let mut placed: Vec<PodId> = decided
        .filter(|pod| model.pods()[*pod].state.status == Status::Allocated)
        .collect();
    placed.sort_unstable();
    placed.dedup();
    let mut pod_groups: Vec<PodGroupId> = placed.iter().filter_map(|pod| model.pods()[*pod].pod_group).collect();
    pod_groups.sort_unstable();
    pod_groups.dedup();
    let in_part = pod_groups.into_iter().filter_map(|pod_group| {
        let members = model.pod_groups()[pod_group].waiting_for_plans();
        members.contains(&true).then_some((pod_group, members))
    });
    let in_part: BTreeMap<PodGroupId, _> = in_part.collect();
    placed.retain(|pod| {
        let pod = &model.pods()[*pod];
        let members = pod.pod_group.and_then(|pod_group| in_part.get(&pod_group));
        members.is_some_and(|members| members[pod.member.unwrap_or(0) as usize])
    });
    for pod in placed {
        let plan = model.pods()[pod].state.hold.clone();
        model.settle(pod, State::pipelined(plan));
    }
}

/// How many pods of each pod group with pipelined pods have a place. The plans themselves end with the cycle.
fn places_of_pipelined(model: &Model, decided: &[PodId]) -> BTreeMap<PodGroupId, usize> {
    let mut places = BTreeMap::new();
    let pods = decided.iter().map(|pod| &model.pods()[*pod]);
    let pipelined = pods.filter(|pod| pod.state.status == Status::Pipelined);
    for pod_group in pipelined.filter_map(|pod| pod.pod_group) {
        let count = || model.pod_groups()[pod_group].places();
        places.entry(pod_group).or_insert_with(count);
    }
    places
}

/// Returns the pod group for which the pod is evicted, if it is.
fn conclude_pod(
    model: &mut Model,
    log: &mut CycleLog,
    id: PodId,
    bound: bool,
    decisions: &mut Decisions,
) -> Option<PodGroupId> {
    let state = model.pods()[id].state.clone();
    if state.status == Status::Allocated {
        decisions.bind.extend(bind(model, id));
        model.binding(id);
        model.assume_bound(id);
        return None;
    }
    if let Some(place) = state.plan.as_ref().filter(|_| state.status == Status::Pipelined) {
        decisions.pipeline.extend(pipeline(model, id, place));
    }
    if !matches!(state.status, Status::Pipelined | Status::Releasing) {
        return None;
    }
    if state.hold.is_some() && bound {
        let eviction = eviction(model, log, id);
        let preemptor = eviction.as_ref().and_then(|eviction| eviction.for_group.as_ref());
        let preemptor = preemptor.and_then(|preemptor| model.pod_groups().id(preemptor));
        decisions.evict.extend(eviction);
        model.settle(
            id,
            State {
                status: Status::Releasing,
                plan: None,
                ..state
            },
        );
        model.assume_evicted(id, preemptor);
        preemptor
    } else {
        model.settle(id, State::nowhere(Status::Pending));
        None
    }
}

/// The disruption budgets that evictions exceed, by the uids of the evicted pods.
fn budgets_exceeded(model: &Model, decided: &[PodId], bound: &[bool]) -> BTreeMap<Name, Vec<Name>> {
    if model.budgets().is_empty() {
        return BTreeMap::new();
    }
    let evicted = decided.iter().zip(bound).filter(|(id, bound)| {
        let state = &model.pods()[**id].state;
        **bound && state.hold.is_some() && matches!(state.status, Status::Pipelined | Status::Releasing)
    });
    let evicted: Vec<&PodInput> = evicted.map(|(id, _)| &*model.pods()[*id].input).collect();
    model.budgets().exceeded(&evicted)
}

fn group_of(model: &Model, id: PodId) -> Option<GroupKey> {
    model.pods()[id]
        .pod_group
        .map(|pod_group| model.pod_groups()[pod_group].key.clone())
}

fn group_names(model: &Model, place: &Place) -> Vec<Name> {
    let node = &model.nodes()[place.node];
    let groups = place.extras().groups.iter();
    groups.map(|group| node.groups[*group as usize].name.clone()).collect()
}

fn bind(model: &Model, id: PodId) -> Option<Bind> {
    let pod = &model.pods()[id];
    let place = pod.state.hold.as_ref()?;
    let (node, shape) = (&model.nodes()[place.node], &model.shapes()[pod.shape]);
    let (received, gpu_count, gpu_portion) = match shape.gpu.kind {
        GpuKind::Fraction | GpuKind::Memory => (
            GpuKind::Fraction,
            shape.gpu.count,
            shape.device_portion(node.gpu_memory()),
        ),
        GpuKind::Mig => (GpuKind::Mig, 0, 0),
        GpuKind::Regular => {
            let count = (shape.vector.get(GPUS) - shape.gpu.dra * GPU) / GPU;
            (GpuKind::Regular, count, if count > 0 { WHOLE } else { 0 })
        }
    };
    Some(Bind {
        pod: model.pods()[id].input.pod.clone(),
        group: group_of(model, id)?,
        node: node.name.clone(),
        received,
        gpu_count,
        gpu_portion,
        gpu_groups: group_names(model, place),
        zones: zone_names(model, place),
        volumes: place
            .extras()
            .volumes
            .iter()
            .flat_map(|all| all.iter())
            .cloned()
            .collect(),
        claims: claim_grants(model, id, place),
        after_evictions: None,
    })
}

fn claim_grants(model: &Model, id: PodId, place: &Place) -> Vec<ClaimGrant> {
    let Some(claims) = &model.pods()[id].input.claims else {
        return Vec::new();
    };
    let grant = |used: &Used| ClaimGrant {
        reference: used.reference.map(|at| claims.named[at as usize].reference.clone()),
        claim: model.devices().claims[used.claim].key.clone(),
        allocation: used.allocation.given.clone(),
    };
    place
        .extras()
        .devices
        .iter()
        .flat_map(|used| &**used)
        .map(grant)
        .collect()
}

fn zone_names(model: &Model, place: &Place) -> Vec<(Name, Vec<(Name, i64)>)> {
    let ledger = model.nodes()[place.node].numa.as_ref();
    let named = |ledger: &Ledger| {
        let zone = |share: &ZoneShare| (ledger.input.zones[share.zone].name.clone(), share.amounts.clone());
        place.extras().zones.iter().map(zone).collect()
    };
    ledger.map(named).unwrap_or_default()
}

fn pipeline(model: &Model, id: PodId, place: &Place) -> Option<Pipeline> {
    Some(Pipeline {
        pod: model.pods()[id].input.pod.clone(),
        group: group_of(model, id)?,
        node: model.nodes()[place.node].name.clone(),
        gpu_groups: group_names(model, place),
    })
}

fn eviction(model: &Model, log: &mut CycleLog, id: PodId) -> Option<Eviction> {
    let reason = log.evictions.remove(&id)?;
    Some(Eviction {
        pod: model.pods()[id].input.pod.clone(),
        group: group_of(model, id)?,
        action: reason.action,
        for_group: reason.preemptor,
        why: reason.cause,
        exceeds: Vec::new(),
    })
}
