//! Resource claims of a pod in placement: allocations that it shares or has already, and those that it would get on a node.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::input::devices::{AllocationInput, Extended, PodClaims, RequestInput, is_gpu};
use crate::engine::input::{GPU, Name};
use crate::engine::model::Model;
use crate::engine::model::devices::claims::Used;
use crate::engine::model::devices::claims::{Claim, Grant};
use crate::engine::model::devices::{Allocation, LATER, NOW};
use crate::engine::model::ids::{ClassId, DeviceId, NodeId, PodId, PoolId};
use crate::engine::model::node::Node;
use crate::engine::model::selectors::meets_any;

use super::devices::{DeviceDemand, Length, NoDevices, STEPS, When, find};

/// Consumers of a claim that the API server allows.
pub const MOST_CONSUMERS: usize = 256;

/// The allocation of one of a pod's claims.
#[derive(Clone, Debug)]
pub struct ChosenAllocation {
    /// Which of the claims that it names; `None` = the one for its extended resources.
    pub reference: Option<u32>,
    /// The claim.
    pub claim: Name,
    /// The claim's existing allocation.
    pub known: Option<Arc<Allocation>>,
    /// The new allocation.
    pub fresh: AllocationInput,
}

impl ChosenAllocation {
    /// Records it in the model as used by a pod.
    pub fn used(self, model: &mut Model) -> Used {
        model.use_claim(self.reference, &self.claim, self.known, &self.fresh)
    }
}

/// Why a node cannot satisfy a pod's claims, in KAI's words.
pub type NoClaims = String;

/// Why a pod's claims exclude all nodes at present.
#[must_use]
pub fn refused(model: &Model, id: PodId) -> Option<String> {
    let pod = &model.pods()[id].input;
    let claims = pod.claims.as_ref()?;
    let (namespace, name) = (&pod.pod.namespace, &pod.pod.name);
    let queue = model
        .pod_group_of(id)
        .and_then(|pod_group| pod_group.input.as_ref())
        .map(|pod_group| &pod_group.queue);
    for named in &claims.named {
        let Some(key) = &named.claim else {
            let reference = &named.reference;
            return Some(format!(
                "no resource claim name found for pod {namespace}/{name} and claim reference {reference}"
            ));
        };
        let claim = model.devices().claims.find(key).map(|id| &model.devices().claims[id]);
        let Some((claim, input)) = claim.and_then(|claim| Some((claim, claim.input.as_ref()?))) else {
            return Some(format!(
                "failed to get resource claim {key}: could not find ResourceClaim \"{key}\""
            ));
        };
        if consumers(model, claim, id) >= MOST_CONSUMERS {
            return Some(format!(
                "resource claim {key} has reached its maximum number of consumers ({MOST_CONSUMERS})"
            ));
        }
        if named.shared && input.gpus > 0 {
            let short = key.rsplit('/').next().unwrap_or_default();
            let start = format!("pod {namespace}/{name} cannot be scheduled: DRA claim {short} is a shared GPU claim");
            match (&input.queue, queue) {
                (None, _) => {
                    return Some(format!("{start} but does not have a queue label (kai.scheduler/queue)"));
                }
                (Some(label), Some(queue)) if label != queue => {
                    return Some(format!(
                        "{start} with wrong queue label (expected queue: {queue}, claim queue label: {label})"
                    ));
                }
                (Some(_), _) => {}
            }
        }
        if let Some(problem) = input.problem.as_ref().filter(|_| claim.grants.is_empty()) {
            return Some(problem.to_string());
        }
    }
    None
}

/// Number of consumers of a claim, without this pod; 0 if it is certainly below the maximum.
fn consumers(model: &Model, claim: &Claim, pod: PodId) -> usize {
    let Some(input) = &claim.input else { return 0 };
    if input.reserved.len() + claim.users.len() < MOST_CONSUMERS {
        return 0;
    }
    let users = claim
        .users
        .iter()
        .filter(|user| **user != pod)
        .map(|user| &model.pods()[*user]);
    let users: Vec<_> = users.collect();
    let is = |uid: &Name| users.iter().find(|user| user.input.pod.uid == *uid);
    let own = &model.pods()[pod].input.pod.uid;
    let stays = |uid: &&Name| *uid != own && is(uid).is_none_or(|user| user.state.evicted_from.is_none());
    let reserved = input.reserved.iter().filter(stays).count();
    let more = users.iter().filter(|user| {
        let placed = user.state.plan.is_some() || (user.state.hold.is_some() && !user.state.leaving);
        placed && !input.reserved.contains(&user.input.pod.uid)
    });
    reserved + more.count()
}

/// A claim's allocation, by what it means for further pods.
enum AllocationState<'a> {
    Nothing,
    /// Allocated and in use.
    Kept(&'a Arc<Allocation>),
    /// Allocated in the API server, and no pod uses it or waits for it.
    Idle(&'a Arc<Allocation>),
    /// Planned for pipelined pods.
    Coming(&'a Arc<Allocation>),
    /// Used by releasing pods only.
    Leaving(&'a Arc<Allocation>),
}

fn has(claim: &Claim) -> AllocationState<'_> {
    let with = |test: fn(&Grant) -> bool| {
        claim
            .grants
            .iter()
            .find(|grant| test(grant))
            .map(|grant| &grant.allocation)
    };
    if let Some(kept) = with(|grant| grant.staying > 0) {
        AllocationState::Kept(kept)
    } else if let Some(coming) = with(|grant| grant.planned > 0) {
        AllocationState::Coming(coming)
    } else if let Some(shown) = claim.shown.as_ref().filter(|_| claim.idle()) {
        if claim.awaited {
            AllocationState::Kept(shown)
        } else {
            AllocationState::Idle(shown)
        }
    } else if let Some(leaving) = with(|grant| grant.leaving > 0) {
        AllocationState::Leaving(leaving)
    } else {
        AllocationState::Nothing
    }
}

/// The limit on the steps of a search for devices.
#[derive(Clone, Copy)]
enum Limit {
    /// None but that of a full search.
    Full,
    /// Short searches once searches for pods of this class have taken [`STEPS`] in vain, so that claims that are hard to refuse are not searched for in full on
    /// each node, by each caller.
    OfClass(ClassId),
}

/// Allocations for a pod's claims on a node, now or (`now` false) once releasing pods have gone.
///
/// # Errors
/// If the node cannot satisfy the claims.
pub fn choose(model: &Model, pod: PodId, id: NodeId, now: bool) -> Result<Vec<ChosenAllocation>, NoClaims> {
    choose_within(model, pod, id, now, Limit::Full)
}

/// The same for one of many nodes, with few steps if many were in vain in this cycle. Where this finds allocations, [`choose`] does, too.
///
/// # Errors
/// If the node cannot satisfy the claims, or this takes too many steps.
pub fn choose_bounded(model: &Model, pod: PodId, id: NodeId, now: bool) -> Result<Vec<ChosenAllocation>, NoClaims> {
    choose_within(model, pod, id, now, Limit::OfClass(model.pods()[pod].class))
}

fn choose_within(
    model: &Model,
    pod: PodId,
    id: NodeId,
    now: bool,
    limit: Limit,
) -> Result<Vec<ChosenAllocation>, NoClaims> {
    let Some(claims) = &model.pods()[pod].input.claims else {
        return Ok(Vec::new());
    };
    let node = &model.nodes()[id];
    let mut given: Vec<ChosenAllocation> = Vec::new();
    let mut open: SmallVec<[usize; 4]> = SmallVec::new();
    let extended = claims
        .extended
        .as_ref()
        .filter(|extended| needed(model, node, extended).next().is_some());
    let named = claims.named.iter().enumerate();
    let named = named.filter_map(|(at, named)| Some((Some(at as u32), named.claim.as_ref()?)));
    for (reference, key) in named.chain(extended.map(|extended| (None, &extended.key))) {
        let claim = model.devices().claims.find(key).map(|id| &model.devices().claims[id]);
        let known = match claim.map_or(AllocationState::Nothing, has) {
            AllocationState::Nothing => None,
            AllocationState::Kept(kept) if reaches(kept, node) => Some(kept.clone()),
            AllocationState::Idle(shown) if reaches(shown, node) && stays_free(model, shown) => Some(shown.clone()),
            AllocationState::Idle(shown) if reaches(shown, node) => {
                return Err(format!("devices of claim {key} are promised to another"));
            }
            AllocationState::Coming(coming) if reaches(coming, node) && !now => Some(coming.clone()),
            AllocationState::Coming(_) if now => return Err(format!("claim {key} waits for devices")),
            AllocationState::Kept(_) | AllocationState::Idle(_) | AllocationState::Coming(_) => {
                return Err(format!("claim {key} node selector does not match node {}", node.name));
            }
            AllocationState::Leaving(leaving) if reaches(leaving, node) && stays_free(model, leaving) => {
                Some(leaving.clone())
            }
            AllocationState::Leaving(_) if now => return Err(format!("claim {key} is being given back")),
            AllocationState::Leaving(_) => None,
        };
        if known.is_none() {
            open.push(given.len());
        }
        given.push(ChosenAllocation {
            reference,
            claim: key.clone(),
            known,
            fresh: AllocationInput::default(),
        });
    }
    if open.is_empty() {
        return Ok(given);
    }
    let when = if now { When::Now } else { When::Later };
    let found = allocate(model, id, &given, &open, extended, when, limit).map_err(|error| match error {
        NoDevices::None => format!("cannot allocate all DRA claims on node {}", node.name),
        NoDevices::Failed(text) => format!("cannot allocate DRA claims on node {}: {text}", node.name),
    })?;
    for (at, fresh) in open.into_iter().zip(found) {
        given[at].fresh = fresh;
    }
    Ok(given)
}

/// Devices for all unallocated claims together.
fn allocate(
    model: &Model,
    id: NodeId,
    given: &[ChosenAllocation],
    open: &[usize],
    extended: Option<&Extended>,
    when: When,
    limit: Limit,
) -> Result<Vec<AllocationInput>, NoDevices> {
    let node = &model.nodes()[id];
    let requests: Vec<Vec<&RequestInput>> = open
        .iter()
        .map(|&at| match (given[at].reference, extended) {
            (None, Some(extended)) => {
                let mut requests: Vec<_> = needed(model, node, extended).flatten().collect();
                requests.sort_by(|left, right| left.name.cmp(&right.name));
                requests
            }
            _ => input_of(model, &given[at].claim).map_or_else(Vec::new, |input| input.requests.iter().collect()),
        })
        .collect();
    let asks: Vec<DeviceDemand> = open
        .iter()
        .zip(&requests)
        .map(|(&at, requests)| DeviceDemand {
            name: &given[at].claim,
            requests,
            constraints: input_of(model, &given[at].claim).map_or(&[], |input| &input.constraints),
        })
        .collect();
    // Devices that the pod keeps are not free for its other claims.
    let kept: Vec<&Allocation> = given.iter().filter_map(|given| given.known.as_deref()).collect();
    let (searches, free) = (&model.devices().searches, when as usize);
    let length = match limit {
        Limit::OfClass(class) if searches.in_vain(class, free) >= STEPS => Length::Short,
        Limit::OfClass(_) | Limit::Full => Length::Full,
    };
    find(model, id, &asks, &kept, when, length).map_err(|in_vain| {
        if let Limit::OfClass(class) = limit {
            searches.add_in_vain(class, free, in_vain.steps);
        }
        in_vain.why
    })
}

fn input_of<'a>(model: &'a Model, key: &Name) -> Option<&'a crate::engine::input::devices::ClaimInput> {
    let id = model.devices().claims.find(key)?;
    model.devices().claims[id].input.as_deref()
}

/// The requests for extended resources that the node's device plugins do not offer.
fn needed<'a>(
    model: &Model,
    node: &Node,
    extended: &'a Extended,
) -> impl Iterator<Item = &'a Vec<RequestInput>> + use<'a> {
    let offers = |name: &Name, gpu: bool| {
        if gpu {
            return node
                .input
                .as_ref()
                .is_some_and(|input| input.gpu_resources.contains(name));
        }
        let position = model.resources().find(name);
        position.is_some_and(|position| node.allocatable.get(position) > 0)
    };
    let wanted = extended.wanted.iter().filter(|(name, gpu, _)| !offers(name, *gpu));
    wanted
        .map(|(_, _, requests)| requests)
        .collect::<SmallVec<[_; 2]>>()
        .into_iter()
}

fn reaches(allocation: &Allocation, node: &Node) -> bool {
    let terms = allocation.given.nodes.as_ref();
    terms.is_none_or(|terms| meets_any(terms, node))
}

/// Whether the allocation's devices are still free later: no pipelined pod takes them.
fn stays_free(model: &Model, allocation: &Allocation) -> bool {
    let results = || {
        let all = allocation.given.results.iter().zip(&allocation.devices);
        all.filter(|(result, _)| !result.admin)
    };
    // Several requests may each take a part of one device.
    let parts = |id: DeviceId, capacity: &Name| -> i128 {
        let of_device = results().filter(|(_, other)| **other == id);
        let amounts = of_device.flat_map(|(result, _)| result.taken.iter().flatten());
        let amounts = amounts.filter(|(name, _)| name == capacity);
        amounts.map(|(_, amount)| amount).sum()
    };
    let mut drawing: SmallVec<[DeviceId; 4]> = SmallVec::new();
    let mut draws: SmallVec<[(PoolId, usize, i128); 4]> = SmallVec::new();
    for (result, id) in results() {
        let device = &model.devices().devices[*id];
        let Some(offer) = &device.offer else {
            continue;
        };
        let too_much = result.taken.iter().flatten().any(|(name, _)| {
            let most = offer.capacities.iter().find(|(other, _)| other == name);
            most.is_some_and(|(_, most)| device.taken(name, LATER) + parts(*id, name) > most.value)
        });
        if device.given(LATER) || (result.taken.is_none() && device.in_use(LATER)) || too_much {
            return false;
        }
        if !device.in_use(LATER) && !drawing.contains(id) {
            drawing.push(*id);
            for (counter, amount) in &offer.draws {
                let known = draws
                    .iter_mut()
                    .find(|(pool, other, _)| (*pool, *other) == (device.pool, *counter));
                match known {
                    Some((.., sum)) => *sum += amount,
                    None => draws.push((device.pool, *counter, *amount)),
                }
            }
        }
    }
    draws.iter().all(|(pool, counter, amount)| {
        let counter = model.devices().pools[*pool].counters.get(*counter);
        counter.is_none_or(|(most, drawn)| drawn[LATER] + amount <= *most)
    })
}

/// GPUs of a pod's request that need not be free on a node, because its claims hold them there already or may be satisfied by other devices.
#[must_use]
pub fn spared(model: &Model, pod: PodId, id: NodeId, at: usize) -> i64 {
    let pod = &model.pods()[pod];
    let shape = &model.shapes()[pod.shape];
    let Some(claims) = pod.input.claims.as_ref().filter(|_| shape.gpu.dra > 0) else {
        return 0;
    };
    if !model.devices().plain() {
        return shape.gpu.dra * GPU;
    }
    if shape.gpu.dra_shared == 0 {
        return 0;
    }
    let node = &model.nodes()[id];
    let held = claims.named.iter().filter_map(|named| {
        let claim = &model.devices().claims[model.devices().claims.find(named.claim.as_ref()?)?];
        match has(claim) {
            AllocationState::Kept(known)
            | AllocationState::Idle(known)
            | AllocationState::Coming(known)
            | AllocationState::Leaving(known)
                if reaches(known, node) =>
            {
                Some(known)
            }
            _ => None,
        }
    });
    let gpus = held.flat_map(|known| known.given.results.iter().zip(&known.devices));
    let in_use = gpus.filter(|(result, device)| {
        !result.admin && is_gpu(&result.driver) && model.devices().devices[**device].in_use(at)
    });
    (in_use.count() as i64).min(shape.gpu.dra) * GPU
}

/// Whether a node may fit a pod although it has fewer GPUs free than requested.
#[must_use]
pub fn need_less(model: &Model, pod: PodId) -> bool {
    let pod = &model.pods()[pod];
    pod.input.claims.is_some() && {
        let gpu = &model.shapes()[pod.shape].gpu;
        gpu.dra_shared > 0 || (gpu.dra > 0 && !model.devices().plain())
    }
}

/// Extended resources that a pod requests and that a claim provides on this node.
#[must_use]
pub fn provided_by_claims(model: &Model, pod: PodId, id: NodeId) -> SmallVec<[usize; 2]> {
    let node = &model.nodes()[id];
    of_classes(model, pod)
        .filter(|at| node.allocatable.get(*at) == 0)
        .collect()
}

/// Extended resources that a pod requests and that device classes may provide, without GPUs.
pub fn of_classes(model: &Model, pod: PodId) -> impl Iterator<Item = usize> {
    let claims = model.pods()[pod].input.claims.iter();
    let wanted = claims
        .flat_map(|claims| &claims.extended)
        .flat_map(|extended| &extended.wanted);
    let names = wanted.filter(|(_, gpu, _)| !gpu);
    names.filter_map(move |(name, ..)| model.resources().find(name))
}

/// Whether some candidate node could satisfy the pod's claims if no devices were allocated. Scans all candidates, for one pod of each class in a cycle.
#[must_use]
pub fn possible_when_unallocated(model: &Model, pod: PodId) -> bool {
    let pod = &model.pods()[pod];
    let Some(claims) = &pod.input.claims else { return true };
    if claims.named.iter().any(|named| {
        let id = named.claim.as_ref().and_then(|key| model.devices().claims.find(key));
        id.is_some_and(|id| !model.devices().claims[id].grants.is_empty())
    }) {
        return true;
    }
    let searches = &model.devices().searches;
    searches.is_possible(pod.class, || some_node_satisfies(model, pod.class, claims))
}

/// Whether some node of a class could satisfy these claims if no devices were allocated.
fn some_node_satisfies(model: &Model, class: ClassId, claims: &PodClaims) -> bool {
    let nodes = model
        .by_name()
        .iter()
        .filter(|id| model.class_nodes(class).has(id.at()));
    nodes.into_iter().any(|&id| {
        let node = &model.nodes()[id];
        let extended = claims
            .extended
            .as_ref()
            .filter(|extended| needed(model, node, extended).next().is_some());
        let named = claims.named.iter().filter_map(|named| named.claim.as_ref());
        let keys = named
            .map(|key| (Some(0), key))
            .chain(extended.map(|extended| (None, &extended.key)));
        let given: Vec<ChosenAllocation> = keys
            .map(|(reference, key)| ChosenAllocation {
                reference,
                claim: key.clone(),
                known: None,
                fresh: AllocationInput::default(),
            })
            .collect();
        let open: Vec<usize> = (0..given.len()).collect();
        let limit = Limit::OfClass(class);
        allocate(model, id, &given, &open, extended, When::Empty, limit).is_ok()
    })
}

/// Index into a device's figures.
#[must_use]
pub fn figures(now: bool) -> usize {
    if now { NOW } else { LATER }
}
