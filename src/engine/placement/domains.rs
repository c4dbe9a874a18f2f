//! Topology domains for the pods of a pod group, in the order in which they are tried.
//!
//! First the domains of the preferred level, then wider ones up to the required level (or the whole topology); within a level the one with the least, but enough,
//! free capacity first. Capacity is an estimate: placing the pods decides. Where pods need several preferred domains, those with the most free come first. Where
//! the domain of a few pods binds others that follow, domains with room for all of them come first.

use std::cmp::{Ordering, Reverse};

use smallvec::SmallVec;

use crate::engine::input::{GPU, Name, TopologyConstraint};
use crate::engine::model::Model;
use crate::engine::model::epochs::{Change, Epoch};
use crate::engine::model::ids::{NodeId, PodId, ShapeId};
use crate::engine::model::node::{Node, SharedGpu};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::resources::{GPUS, PODS, Resources};
use crate::engine::model::topology::{Domain, Topology};

use super::claims;

/// A topology constraint and the pods to place.
pub struct Question<'a> {
    /// The constraint.
    pub constraint: &'a TopologyConstraint,
    /// Pods to place.
    pub pods: &'a [PodId],
    /// Nodes of pods that are placed already and must stay together with these.
    pub with: &'a [NodeId],
    /// Candidate nodes; `None` = all.
    pub among: Option<&'a NodeSet>,
    /// All pods for which the required domain is chosen now, if `pods` are only the first of them.
    pub all: &'a [PodId],
}

/// Domains to try.
#[derive(Debug, Default)]
pub struct Domains {
    /// In this order.
    pub order: Vec<usize>,
    /// Domains of the preferred level, from the least to the most free capacity.
    pub preferred: Vec<usize>,
}

/// Why no domain can be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such topology.
    NoTopology,
    /// A level is not in the topology, or the preferred one is wider than the required one.
    NoLevel {
        /// It is the required level.
        required: bool,
        /// Its name.
        level: Name,
    },
    /// All candidates are in one domain (`None`: the whole topology), which has too little free.
    Everything(Option<Name>),
    /// No domain of the required level has enough free.
    Each {
        /// What they lack: at most [`DOMAINS_LISTED`], those with room for the most pods first where that was counted.
        listed: Vec<DomainShortage>,
        /// Domains that are not listed.
        more: usize,
    },
}

/// Domains that a refusal lists: the lowest level of a topology may have one for each node, and each has a reason in the report.
pub(crate) const DOMAINS_LISTED: usize = 50;

/// What a domain lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainShortage {
    /// The domain.
    pub domain: Name,
    /// Number of pods that fit, if it could be computed.
    pub slots: Option<i64>,
    /// Insufficient resources: position, requested, free.
    pub short: Vec<(usize, i64, i64)>,
}

/// The combined request of the pods.
#[derive(Clone, Debug)]
struct Need {
    count: i64,
    /// Position, sum and maximum of each requested resource except pod slots.
    asked: SmallVec<[(usize, i64, i64); 4]>,
    /// All pods request the same GPU and extended resources, so that capacity can be counted in pods.
    alike: bool,
    /// All pods share GPUs.
    shared: bool,
    /// Some pod shares GPUs.
    fractions: bool,
    shapes: SmallVec<[ShapeId; 2]>,
    /// Nodes count as if they were empty.
    empty: bool,
}

/// The capacity of a domain.
#[derive(Clone, Debug, Default, PartialEq)]
struct Capacity {
    /// Free amount of each requested resource.
    free: SmallVec<[i64; 4]>,
    /// Number of pods that fit.
    slots: i64,
}

impl Need {
    fn of(model: &Model, pods: &[PodId]) -> Self {
        let mut shapes: SmallVec<[(ShapeId, i64); 2]> = SmallVec::new();
        for &pod in pods {
            let shape = model.pods()[pod].shape;
            match shapes.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, count)) => *count += 1,
                None => shapes.push((shape, 1)),
            }
        }
        // Nodes need not have these.
        let of_classes = pods.iter().flat_map(|pod| claims::of_classes(model, *pod));
        let of_classes: SmallVec<[usize; 2]> = of_classes.collect();
        let mut asked: SmallVec<[(usize, i64, i64); 4]> = SmallVec::new();
        for &(id, count) in &shapes {
            for (position, amount) in model.shapes()[id]
                .vector
                .iter()
                .filter(|(at, amount)| *at != PODS && *amount > 0 && !of_classes.contains(at))
            {
                let sum = amount.saturating_mul(count);
                match asked.iter_mut().find(|(known, ..)| *known == position) {
                    Some((_, total, most)) => (*total, *most) = (total.saturating_add(sum), (*most).max(amount)),
                    None => asked.push((position, sum, amount)),
                }
            }
        }
        asked.sort_unstable();
        let alike = |position: usize| {
            let asks = |(id, _): &(ShapeId, i64)| {
                let shape = &model.shapes()[*id];
                let claimed = if position == GPUS { shape.gpu.dra * GPU } else { 0 };
                shape.vector.get(position) > claimed
            };
            shapes.iter().all(asks) || !shapes.iter().any(asks)
        };
        let kind = |id: &ShapeId| &model.shapes()[*id];
        let plain = |position: &usize| *position >= GPUS;
        let shapes: SmallVec<[ShapeId; 2]> = shapes.iter().map(|(id, _)| *id).collect();
        Self {
            count: pods.len() as i64,
            alike: asked.iter().map(|(position, ..)| *position).filter(plain).all(alike),
            shared: shapes.iter().map(kind).all(|shape| shape.shared),
            fractions: shapes.iter().map(kind).any(|shape| shape.shared),
            asked,
            shapes,
            empty: false,
        }
    }

    /// Whether capacity counted for other pods holds for these.
    fn counts_like(&self, other: &Self) -> bool {
        let each = |need: &Self| -> SmallVec<[(usize, i64); 4]> {
            need.asked
                .iter()
                .map(|(position, _, most)| (*position, *most))
                .collect()
        };
        let rules = |need: &Self| (need.alike, need.shared, need.fractions, need.empty);
        each(self) == each(other)
            && rules(self) == rules(other)
            && (!self.fractions || self.shapes == other.shapes)
            && (!self.asked.is_empty() || self.count == other.count)
    }

    fn free<'n>(&self, node: &'n Node) -> &'n Resources {
        if self.empty { &node.allocatable } else { &node.future }
    }

    /// Shared GPUs of a node that stay in use.
    fn shared_gpus<'n>(&self, node: &'n Node) -> impl Iterator<Item = &'n SharedGpu> + use<'n> {
        let groups = if self.empty { &[] } else { &*node.groups };
        groups.iter().filter(|gpu| gpu.used() && !gpu.all_leaving())
    }

    /// Number of pods with the largest request that fit on a node. Shared GPUs are counted device by device.
    fn slots(&self, model: &Model, node: &Node) -> i64 {
        if self.asked.is_empty() && !self.fractions {
            return self.count;
        }
        let plain = self.asked.iter().filter(|(at, ..)| !(self.shared && *at == GPUS));
        let each = plain.map(|(at, _, most)| self.free(node).get(*at) / most);
        let slots = each.fold(self.free(node).get(PODS), i64::min).max(0);
        if slots == 0 || !self.shared {
            return slots;
        }
        let of = node.gpu_memory();
        let kind = |id: &ShapeId| &model.shapes()[*id];
        let part = self
            .shapes
            .iter()
            .map(|id| kind(id).device_memory(of))
            .max()
            .unwrap_or(0)
            .max(1);
        let devices = self
            .shapes
            .iter()
            .map(|id| kind(id).gpu.count)
            .max()
            .unwrap_or(1)
            .max(1);
        let parts: i64 = self.shared_gpus(node).map(|gpu| gpu.free_later(of).max(0) / part).sum();
        let whole = (self.free(node).get(GPUS) / GPU).max(0);
        slots.min((parts + whole.saturating_mul(of / part)) / devices)
    }

    fn capacity(&self, model: &Model, nodes: &[NodeId]) -> Capacity {
        let mut capacity = Capacity {
            free: self.asked.iter().map(|_| 0).collect(),
            slots: 0,
        };
        for node in nodes.iter().map(|id| &model.nodes()[*id]) {
            for (free, (position, ..)) in capacity.free.iter_mut().zip(&self.asked) {
                *free += self.free(node).get(*position);
                if *position == GPUS && self.fractions {
                    let of = node.gpu_memory();
                    *free += self
                        .shared_gpus(node)
                        .map(|gpu| gpu.free_later(of).max(0) * GPU / of)
                        .sum::<i64>();
                }
            }
            if self.alike {
                capacity.slots += self.slots(model, node);
            }
        }
        capacity
    }

    fn fits(&self, capacity: &Capacity) -> bool {
        if self.alike {
            capacity.slots >= self.count
        } else {
            self.asked
                .iter()
                .zip(&capacity.free)
                .all(|((_, sum, _), free)| sum <= free)
        }
    }

    /// The fraction of a domain's free capacity that the pods would take.
    fn share(&self, capacity: &Capacity) -> Share {
        let each = self.asked.iter().zip(&capacity.free).map(|((_, sum, _), &free)| {
            if free > 0 {
                Share { asked: *sum, free }
            } else {
                Share { asked: 1000, free: 1 }
            }
        });
        each.max().unwrap_or(Share { asked: 0, free: 1 })
    }

    fn lack(&self, capacity: &Capacity, domain: &Name) -> DomainShortage {
        let each = self.asked.iter().zip(&capacity.free);
        let short = each.filter(|((_, sum, _), free)| sum > free);
        DomainShortage {
            domain: domain.clone(),
            slots: self.alike.then_some(capacity.slots),
            short: short
                .map(|((position, sum, _), free)| (*position, *sum, *free))
                .collect(),
        }
    }
}

/// An exact quotient.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Share {
    asked: i64,
    free: i64,
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        let product = |left: i64, right: i64| i128::from(left) * i128::from(right);
        product(self.asked, other.free).cmp(&product(other.asked, self.free))
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The domains to try. `None`: the constraint asks for nothing.
///
/// # Errors
/// If no domain fits the pods.
pub fn domains(
    model: &Model,
    question: &Question,
    cache: &mut DomainCapacityCache,
) -> Result<Option<(Name, Domains)>, Refused> {
    let constraint = question.constraint;
    if constraint.required.is_none() && constraint.preferred.is_none() {
        return Ok(None);
    }
    let topology = model
        .topologies()
        .get(&constraint.topology)
        .ok_or(Refused::NoTopology)?;
    let (required, preferred) = levels(topology, constraint)?;
    let finest = preferred.or(required).unwrap_or(0);
    let top = topology.common_domain(question.among, finest);
    let need = Need::of(model, question.pods);
    let area = Area {
        name: &constraint.topology,
        topology,
        top,
        finest,
    };
    let domains = cache.of(model, area, &need);
    if !need.fits(domains.capacity(top)) {
        return Err(Refused::Everything(
            (top != 0).then(|| topology.domains[top].name.clone()),
        ));
    }
    let sorted = domains.sorted();
    let level = |domain: &usize| topology.domains[*domain].level;
    let homes: Option<Vec<usize>> = required.filter(|_| !question.with.is_empty()).map(|required| {
        let home = |node: &NodeId| topology.domain_of(*node, required);
        question.with.iter().filter_map(home).collect()
    });
    let at_home = |domain: usize| {
        let up = std::iter::successors(Some(domain), |&at| (at != 0).then(|| topology.domains[at].parent));
        homes
            .as_ref()
            .is_none_or(|homes| up.into_iter().any(|at| homes.contains(&at)))
    };
    let widest = required.unwrap_or(0);
    let in_question = |domain: &&usize| level(domain) >= widest && at_home(**domain);
    let mut order: Vec<usize> = sorted
        .iter()
        .filter(in_question)
        .copied()
        .filter(|domain| need.fits(domains.capacity(*domain)))
        .collect();
    if order.is_empty() {
        let mut lacking: Vec<usize> = sorted
            .iter()
            .filter(in_question)
            .copied()
            .filter(|domain| level(domain) == widest)
            .collect();
        lacking.sort_by_key(|domain| Reverse(domains.capacity(*domain).slots));
        let more = lacking.len().saturating_sub(DOMAINS_LISTED);
        lacking.truncate(DOMAINS_LISTED);
        let lack = |domain: &usize| need.lack(domains.capacity(*domain), &topology.domains[*domain].name);
        let listed = lacking.iter().map(lack).collect();
        return Err(Refused::Each { listed, more });
    }
    order.sort_by_key(|domain| Reverse(level(domain)));
    if question.all.len() > question.pods.len() {
        let need = Need::of(model, question.all);
        let domains = cache.of(model, area, &need);
        order.sort_by_key(|domain| !need.fits(domains.capacity(*domain)));
    }
    let preferred = preferred.map_or_else(Vec::new, |preferred| {
        sorted
            .iter()
            .copied()
            .filter(|domain| level(domain) == preferred)
            .collect()
    });
    Ok(Some((constraint.topology.clone(), Domains { order, preferred })))
}

/// Whether no domain of the required level fits the pods even if it is empty.
#[must_use]
pub fn never_room(model: &Model, question: &Question) -> bool {
    let constraint = question.constraint;
    let found = model.topologies().get(&constraint.topology).and_then(|topology| {
        let (required, _) = levels(topology, constraint).ok()?;
        Some((topology, required?))
    });
    let Some((topology, required)) = found else {
        return false;
    };
    let need = Need {
        empty: true,
        ..Need::of(model, question.pods)
    };
    let homes: Vec<_> = question
        .with
        .iter()
        .filter_map(|node| topology.domain_of(*node, required))
        .collect();
    let fitting = |(at, domain): (usize, &Domain)| {
        domain.level == required
            && (question.with.is_empty() || homes.contains(&at))
            && need.fits(&need.capacity(model, topology.nodes_of(at)))
    };
    !topology.domains.iter().enumerate().any(fitting)
}

/// The required and the preferred level by number.
fn levels(topology: &Topology, constraint: &TopologyConstraint) -> Result<(Option<usize>, Option<usize>), Refused> {
    let find = |level: &Option<Name>, required: bool| match level {
        None => Ok(None),
        Some(name) => match topology.level(name) {
            Some(level) => Ok(Some(level)),
            None => Err(Refused::NoLevel {
                required,
                level: name.clone(),
            }),
        },
    };
    let (required, preferred) = (find(&constraint.required, true)?, find(&constraint.preferred, false)?);
    match (&constraint.preferred, preferred) {
        (Some(name), Some(level)) if required.is_some_and(|required| level < required) => Err(Refused::NoLevel {
            required: false,
            level: name.clone(),
        }),
        _ => Ok((required, preferred)),
    }
}

/// A domain and those below it, down to a level.
#[derive(Clone, Copy)]
struct Area<'a> {
    name: &'a Name,
    topology: &'a Topology,
    top: usize,
    finest: usize,
}

/// Number of cache entries.
const CACHE_ENTRIES: usize = 4;

/// The capacity of domains as counted in this cycle, the latest first. Domains whose nodes changed since are recounted on use.
#[derive(Debug, Default)]
pub struct DomainCapacityCache(Vec<CacheEntry>);

#[derive(Debug)]
struct CacheEntry {
    topology: Name,
    top: usize,
    finest: usize,
    need: Need,
    /// By position behind `top`.
    capacities: Vec<Capacity>,
    /// The epoch of [`Change::NodeUsage`] at the last count.
    counted: Epoch,
}

impl DomainCapacityCache {
    fn of<'a>(&'a mut self, model: &Model, area: Area<'a>, need: &'a Need) -> DomainCapacities<'a> {
        let fits = |kept: &CacheEntry| {
            (&kept.topology, kept.top, kept.finest) == (area.name, area.top, area.finest) && kept.need.counts_like(need)
        };
        let mut kept = match self.0.iter().position(fits) {
            Some(at) => self.0.remove(at),
            None => CacheEntry::new(area, need.clone()),
        };
        kept.count(model, area);
        #[cfg(debug_assertions)]
        {
            let mut anew = CacheEntry::new(area, need.clone());
            anew.count(model, area);
            assert_eq!(
                kept.capacities, anew.capacities,
                "what is kept is what would be counted"
            );
        }
        self.0.truncate(CACHE_ENTRIES - 1);
        self.0.insert(0, kept);
        DomainCapacities {
            topology: area.topology,
            need,
            top: area.top,
            finest: area.finest,
            capacities: &self.0[0].capacities,
        }
    }
}

impl CacheEntry {
    fn new(area: Area, need: Need) -> Self {
        Self {
            topology: area.name.clone(),
            top: area.top,
            finest: area.finest,
            need,
            capacities: Vec::new(),
            counted: 0,
        }
    }

    /// Recounts domains whose nodes changed.
    fn count(&mut self, model: &Model, area: Area) {
        let Area {
            topology, top, finest, ..
        } = area;
        let fresh = self.capacities.is_empty();
        if fresh {
            let below = topology.domains[top + 1..].iter();
            let inner = below
                .take_while(|domain| domain.level > topology.domains[top].level)
                .count();
            self.capacities = vec![Capacity::default(); inner + 1];
        }
        let mut changed = vec![fresh; self.capacities.len()];
        for domain in (top..top + self.capacities.len()).rev() {
            let entry = &topology.domains[domain];
            if entry.level > finest {
                continue;
            }
            let below = entry.children.iter().map(|child| child - top);
            if entry.level == finest || entry.children.is_empty() {
                let nodes = topology.nodes_of(domain);
                if fresh
                    || nodes
                        .iter()
                        .any(|node| model.epochs().node_used_since(*node, self.counted))
                {
                    changed[domain - top] = true;
                    self.capacities[domain - top] = self.need.capacity(model, nodes);
                }
            } else if fresh || below.clone().any(|child| changed[child]) {
                changed[domain - top] = true;
                let mut sum = self.need.capacity(model, &[]);
                for capacity in below.map(|child| &self.capacities[child]) {
                    sum.slots += capacity.slots;
                    for (mine, theirs) in sum.free.iter_mut().zip(&capacity.free) {
                        *mine += theirs;
                    }
                }
                self.capacities[domain - top] = sum;
            }
        }
        self.counted = model.epochs().of(Change::NodeUsage);
    }
}

/// The capacity of a domain and of those below it.
struct DomainCapacities<'a> {
    topology: &'a Topology,
    need: &'a Need,
    top: usize,
    finest: usize,
    /// By position behind `top`.
    capacities: &'a [Capacity],
}

impl DomainCapacities<'_> {
    fn capacity(&self, domain: usize) -> &Capacity {
        &self.capacities[domain - self.top]
    }

    /// All counted domains, parents first, siblings from the least to the most free capacity.
    fn sorted(&self) -> Vec<usize> {
        let mut sorted = Vec::new();
        let mut open = vec![self.top];
        while let Some(domain) = open.pop() {
            sorted.push(domain);
            let entry = &self.topology.domains[domain];
            if entry.level < self.finest {
                let mut children: Vec<(Share, usize)> = entry
                    .children
                    .iter()
                    .map(|&child| (self.need.share(self.capacity(child)), child))
                    .collect();
                children.sort_by_key(|(share, _)| Reverse(*share));
                open.extend(children.into_iter().rev().map(|(_, child)| child));
            }
        }
        sorted
    }
}

#[cfg(test)]
mod tests;
