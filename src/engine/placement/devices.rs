//! Device allocation: a search over claims, requests and devices in their order. The first solution is taken.

pub mod locality;
mod matching;

use std::fmt;

use smallvec::SmallVec;

use crate::engine::input::devices::{
    AllocationInput, Capacity, ConstraintInput, DeviceInput, OptionInput, Reach, RequestInput, ResultInput,
};
use crate::engine::input::{Name, NodeRequirement, NodeTerm, SelectorOp};
use crate::engine::model::Model;
use crate::engine::model::devices::{Allocation, Device, LATER, NOW};
use crate::engine::model::ids::{DeviceId, NodeId, PodId};
use crate::engine::model::selectors::{meets_any, tolerates};

/// Limit on devices tried in a search.
pub const STEPS: usize = 20_000;
/// The limit on further nodes, once searches for equal claims have taken [`STEPS`] in vain, if looking at each device once for each that is wanted takes no more.
const FEW_STEPS: usize = 500;
/// After so many steps, it is checked whether there are enough devices at all. Most searches end before.
const STEPS_BEFORE_CHECK: usize = 100;
/// Devices per claim that the API server allows.
const MOST_RESULTS: usize = 32;

/// A claim that needs devices.
#[derive(Clone, Copy, Debug)]
pub struct DeviceDemand<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// Its requests.
    pub requests: &'a [&'a RequestInput],
    /// Its constraints among devices.
    pub constraints: &'a [ConstraintInput],
}

/// Which devices are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Those that are neither allocated nor planned for a pod.
    Now,
    /// Those that will be free once releasing pods have gone.
    Later,
    /// All, as if none were allocated.
    Empty,
}

/// Why there is no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDevices {
    /// No devices satisfy the claims.
    None,
    /// The search failed, with the reason.
    Failed(String),
}

impl fmt::Display for NoDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no devices"),
            Self::Failed(text) => f.write_str(text),
        }
    }
}

/// A search without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InVain {
    /// Why there is none.
    pub why: NoDevices,
    /// Devices tried or looked at; 0 if no more than a short search may try.
    pub steps: usize,
}

/// How long a search may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// [`STEPS`].
    Full,
    /// As long as a search on the node that never goes back, but at least a few hundred steps.
    Short,
}

/// Steps of a search.
struct Steps {
    /// Devices tried.
    used: usize,
    /// Devices looked at to see whether there are enough.
    checked: usize,
    /// The limit of each of the two.
    limit: usize,
}

impl Steps {
    fn within(limit: usize) -> Self {
        Self {
            used: 0,
            checked: 0,
            limit,
        }
    }

    /// The larger of the two.
    fn most(&self) -> usize {
        self.used.max(self.checked)
    }
}

/// Devices of a node for all these claims together, without those that the pod keeps for other claims. What a short search finds, a full one finds, too.
///
/// # Errors
/// If there are none, or the search fails.
pub fn find(
    model: &Model,
    node: NodeId,
    asks: &[DeviceDemand],
    kept: &[&Allocation],
    when: When,
    length: Length,
) -> Result<Vec<AllocationInput>, InVain> {
    let mut all = candidates(model, node);
    let short = short(asks, all.len());
    let limit = match length {
        Length::Full => STEPS,
        Length::Short => short,
    };
    if when == When::Later {
        // Pods evicted in this statement may be reprieved if their devices are not taken.
        let evicted = |pod: PodId| {
            let state = &model.pods()[pod].state;
            state.leaving && state.evicted_from.is_some()
        };
        all.sort_by_cached_key(|device| model.devices().is_left_by(*device, evicted));
    }
    let mut near = Vec::new();
    let mut steps_near = Steps::within(limit);
    if when != When::Empty && locality::concerns(model, asks, kept) {
        near = locality::neighbourhoods(model, &all, kept, when);
    }
    for (least, devices) in near {
        // An error here occurs again below, or does not matter.
        match try_these(model, node, asks, kept, when, devices, &mut steps_near) {
            Ok(Some(found)) if locality::closeness_of(model, found.iter(), kept.iter().copied()) >= least => {
                return Ok(found);
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let mut steps = Steps::within(limit);
    let found = try_these(model, node, asks, kept, when, all, &mut steps);
    found.and_then(|found| found.ok_or(NoDevices::None)).map_err(|why| {
        let used = steps_near.most() + steps.most();
        InVain {
            why,
            steps: if used > short { used } else { 0 },
        }
    })
}

/// The steps of a short search among so many devices.
fn short(asks: &[DeviceDemand], devices: usize) -> usize {
    let requests = asks.iter().flat_map(|ask| ask.requests);
    let wanted = requests.map(|request| {
        let counts = request
            .options
            .iter()
            .map(|option| option.count.unwrap_or(MOST_RESULTS));
        counts.sum::<usize>()
    });
    wanted.sum::<usize>().saturating_mul(devices).clamp(FEW_STEPS, STEPS)
}

/// The first solution with these devices. `steps` accumulates.
fn try_these(
    model: &Model,
    node: NodeId,
    asks: &[DeviceDemand],
    kept: &[&Allocation],
    when: When,
    candidates: Vec<DeviceId>,
    steps: &mut Steps,
) -> Result<Option<Vec<AllocationInput>>, NoDevices> {
    let mut search = Search::new(model, node, asks, kept, when, candidates);
    if !search.each_alone() || !search.run(steps)? {
        return Ok(None);
    }
    let taken = std::mem::take(&mut search.taken);
    let of = |claim: usize| search.allocation(taken.iter().filter(|one| one.claim == claim));
    Ok(Some((0..asks.len()).map(of).collect()))
}

/// The devices that can be used from a node, in the order in which they are tried.
fn candidates(model: &Model, id: NodeId) -> Vec<DeviceId> {
    let inventory = model.devices();
    let usable = |device: &DeviceId| {
        let offer = inventory.devices[*device].offer.as_ref();
        offer.is_some_and(|offer| offer.usable)
    };
    let mut found: Vec<DeviceId> = published(model, id, true).filter(usable).collect();
    if !inventory.elsewhere().is_empty() {
        found.sort_by(|left, right| inventory.rank(*left).cmp(&inventory.rank(*right)));
    }
    found
}

/// The published devices that can be used from a node, of complete or of incomplete pools.
fn published(model: &Model, id: NodeId, complete: bool) -> impl Iterator<Item = DeviceId> {
    let (node, inventory) = (&model.nodes()[id], model.devices());
    let of_such_a_pool = move |device: &DeviceId| {
        let pool = inventory.devices[*device].pool;
        inventory.pools[pool].complete == complete
    };
    let reaches = move |device: &DeviceId| {
        let offer = inventory.devices[*device].offer.as_ref();
        match offer.map(|offer| &offer.reach) {
            Some(Reach::Selected(terms)) => meets_any(terms, node),
            Some(Reach::All) => true,
            Some(Reach::Node(_)) | None => false,
        }
    };
    let of_node = inventory.of_node(&node.name).iter().copied();
    let elsewhere = inventory.elsewhere().iter().copied();
    of_node
        .filter(of_such_a_pool)
        .chain(elsewhere.filter(of_such_a_pool).filter(reaches))
}

/// A chosen device.
struct Taken {
    claim: usize,
    request: usize,
    option: usize,
    device: DeviceId,
    admin: bool,
    parts: Option<Vec<(Name, i128)>>,
}

struct Search<'a> {
    model: &'a Model,
    node: NodeId,
    asks: &'a [DeviceDemand<'a>],
    when: When,
    candidates: Vec<DeviceId>,
    taken: Vec<Taken>,
    steps: usize,
    limit: usize,
}

/// A request of a claim, and one of its options.
#[derive(Clone, Copy)]
struct RequestOption<'a> {
    claim: usize,
    request: usize,
    option: usize,
    wanted: &'a OptionInput,
}

impl<'a> Search<'a> {
    fn new(
        model: &'a Model,
        node: NodeId,
        asks: &'a [DeviceDemand<'a>],
        kept: &[&Allocation],
        when: When,
        candidates: Vec<DeviceId>,
    ) -> Self {
        let kept = kept
            .iter()
            .flat_map(|kept| kept.given.results.iter().zip(&kept.devices));
        let kept = kept.map(|(result, device)| Taken {
            claim: usize::MAX,
            request: 0,
            option: 0,
            device: *device,
            admin: result.admin,
            parts: result.taken.clone(),
        });
        Self {
            model,
            node,
            asks,
            when,
            candidates,
            taken: kept
                .filter(|one| model.devices().devices[one.device].offer.is_some())
                .collect(),
            steps: 0,
            limit: 0,
        }
    }

    /// Whether there is a solution, which is in `taken` then.
    fn run(&mut self, steps: &mut Steps) -> Result<bool, NoDevices> {
        let (kept, before) = (self.taken.len(), steps.used);
        (self.steps, self.limit) = (before, steps.limit.min(before + STEPS_BEFORE_CHECK));
        let mut found = self.claim(0, 0);
        if self.steps > self.limit && self.limit < steps.limit {
            self.taken.truncate(kept);
            found = Ok(false);
            let (enough, checked) = self.has_enough(steps.limit.saturating_sub(steps.checked));
            steps.checked += checked;
            if enough {
                // From the start, with all steps, so that the check changes no result.
                (self.steps, self.limit) = (before, steps.limit);
                found = self.claim(0, 0);
            }
        }
        steps.used = self.steps;
        found
    }

    fn claim(&mut self, claim: usize, request: usize) -> Result<bool, NoDevices> {
        let Some(ask) = self.asks.get(claim) else {
            return Ok(true);
        };
        let Some(input) = ask.requests.get(request) else {
            return self.claim(claim + 1, 0);
        };
        for (option, wanted) in input.options.iter().enumerate() {
            let asked = RequestOption {
                claim,
                request,
                option,
                wanted,
            };
            let found = match wanted.count {
                Some(count) => self.pick(asked, count, 0)?,
                None => self.all(asked)?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether each of several requests can have its devices if the others have none. A request that never can would cost all combinations of those before it.
    fn each_alone(&self) -> bool {
        let all = self.asks.iter().enumerate();
        let mut all = all.flat_map(|(claim, ask)| (0..ask.requests.len()).map(move |request| (claim, request)));
        let several = self.asks.iter().map(|ask| ask.requests.len()).sum::<usize>() > 1;
        !several || all.all(|(claim, request)| self.is_possible(claim, request))
    }

    fn is_possible(&self, claim: usize, request: usize) -> bool {
        self.options(claim, request).any(|asked| {
            let needed = asked.wanted.count.unwrap_or(1);
            let suitable = self.candidates.iter().filter(|id| self.suits(asked, **id));
            suitable.take(needed).count() == needed
        })
    }

    fn options(&self, claim: usize, request: usize) -> impl Iterator<Item = RequestOption<'a>> {
        let input: &'a RequestInput = self.asks[claim].requests[request];
        let options = input.options.iter().enumerate();
        options.map(move |(option, wanted)| RequestOption {
            claim,
            request,
            option,
            wanted,
        })
    }

    /// Whether a request can have a device besides what is taken.
    fn suits(&self, asked: RequestOption, id: DeviceId) -> bool {
        let (device, offer) = (&self.model.devices().devices[id], self.offer(id));
        let free = asked.wanted.admin || self.free(device, id, offer);
        // An error is reported when the search comes to it.
        free && self.selected(asked, offer).unwrap_or(true)
            && tolerated(asked.wanted, offer)
            && self.agrees(asked, offer)
            && self.parts(asked.wanted, device, id, offer).is_some()
    }

    /// Takes `count` devices from a position on, then the remaining requests.
    fn pick(&mut self, asked: RequestOption<'a>, count: usize, from: usize) -> Result<bool, NoDevices> {
        if count == 0 {
            return self.claim(asked.claim, asked.request + 1);
        }
        for at in from..self.candidates.len() {
            if self.candidates.len() - at < count {
                return Ok(false);
            }
            if self.try_one(asked, self.candidates[at])? {
                if self.pick(asked, count - 1, at + 1)? {
                    return Ok(true);
                }
                self.taken.pop();
            }
        }
        Ok(false)
    }

    /// Takes every device that the selectors allow and that has the requested capacity, then the remaining requests.
    fn all(&mut self, asked: RequestOption<'a>) -> Result<bool, NoDevices> {
        self.check_pools(asked)?;
        let mark = self.taken.len();
        for at in 0..self.candidates.len() {
            let id = self.candidates[at];
            let offer = self.offer(id);
            let wanted = self.selected(asked, offer)? && shares(asked.wanted, offer).is_some();
            if wanted && !self.try_one(asked, id)? {
                self.taken.truncate(mark);
                return Ok(false);
            }
        }
        if self.taken.len() > mark && self.claim(asked.claim, asked.request + 1)? {
            return Ok(true);
        }
        self.taken.truncate(mark);
        Ok(false)
    }

    /// Fails if not all devices of the node are known.
    fn check_pools(&self, asked: RequestOption) -> Result<(), NoDevices> {
        let Some(device) = published(self.model, self.node, false).next() else {
            return Ok(());
        };
        let inventory = self.model.devices();
        let (driver, pool) = &inventory.pools[inventory.devices[device].pool].key;
        Err(NoDevices::Failed(format!(
            "claim {}, request {}: asks for all devices, but pool {driver}/{pool} is incomplete or invalid",
            self.asks[asked.claim].name,
            self.name_of(asked.claim, asked.request, asked.option),
        )))
    }

    fn offer(&self, device: DeviceId) -> &'a DeviceInput {
        let model: &'a Model = self.model;
        model.devices().devices[device]
            .offer
            .as_ref()
            .expect("candidates are on offer")
    }

    fn name_of(&self, claim: usize, request: usize, option: usize) -> Name {
        let request = self.asks[claim].requests[request];
        match &request.options[option].name {
            Some(option) => format!("{}/{option}", request.name).into(),
            None => request.name.clone(),
        }
    }

    fn selected(&self, asked: RequestOption, offer: &DeviceInput) -> Result<bool, NoDevices> {
        for selector in &asked.wanted.selectors {
            if let Ok(at) = offer.fails.binary_search_by_key(selector, |(number, _)| *number) {
                return Err(NoDevices::Failed(format!(
                    "claim {}, request {}: device {}: {}",
                    self.asks[asked.claim].name,
                    self.name_of(asked.claim, asked.request, asked.option),
                    offer.name,
                    offer.fails[at].1
                )));
            }
            if offer.meets.binary_search(selector).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a device if it meets the request.
    fn try_one(&mut self, asked: RequestOption<'a>, id: DeviceId) -> Result<bool, NoDevices> {
        self.steps += 1;
        if self.steps > self.limit {
            return Err(NoDevices::Failed(format!(
                "claim {}: no devices found after {STEPS} attempts",
                self.asks[asked.claim].name
            )));
        }
        let model: &'a Model = self.model;
        let (device, offer) = (&model.devices().devices[id], self.offer(id));
        let mut mine = self.taken.iter().filter(|one| one.claim == asked.claim);
        // Several requests may each take a part of one device.
        let excludes = |one: &Taken| one.device == id && (!offer.multi || one.request == asked.request);
        if mine.clone().count() >= MOST_RESULTS || mine.any(excludes) {
            return Ok(false);
        }
        let free = asked.wanted.admin || self.free(device, id, offer);
        if !free || !self.selected(asked, offer)? || !tolerated(asked.wanted, offer) || !self.agrees(asked, offer) {
            return Ok(false);
        }
        let Some(parts) = self.parts(asked.wanted, device, id, offer) else {
            return Ok(false);
        };
        self.taken.push(Taken {
            claim: asked.claim,
            request: asked.request,
            option: asked.option,
            device: id,
            admin: asked.wanted.admin,
            parts,
        });
        Ok(true)
    }

    /// Index into a device's figures.
    fn at(&self) -> SmallVec<[usize; 2]> {
        match self.when {
            When::Now => [NOW, LATER].into_iter().collect(),
            When::Later => [LATER].into_iter().collect(),
            When::Empty => SmallVec::new(),
        }
    }

    /// Devices chosen in this search that take something of a device.
    fn takers(&self, id: DeviceId) -> impl Iterator<Item = &Taken> {
        self.taken.iter().filter(move |one| one.device == id && !one.admin)
    }

    fn free(&self, device: &Device, id: DeviceId, offer: &DeviceInput) -> bool {
        let given = self.at().iter().any(|at| device.given(*at)) || self.takers(id).any(|one| one.parts.is_none());
        let used = given || self.at().iter().any(|at| device.in_use(*at)) || self.takers(id).next().is_some();
        if given || (used && !offer.multi) {
            return false;
        }
        // A partially allocated device that is in use consumes counters already.
        let draws = self.takers(id).next().is_some()
            || (!self.at().is_empty() && self.at().iter().all(|at| device.in_use(*at)));
        let pool = &self.model.devices().pools[device.pool];
        draws
            || offer.draws.iter().enumerate().all(|(position, (counter, _))| {
                // A counter named twice is checked against the sum, once.
                if offer.draws[..position].iter().any(|(other, _)| other == counter) {
                    return true;
                }
                let draw = |offer: &DeviceInput| {
                    let those = offer.draws.iter().filter(|(other, _)| other == counter);
                    those.map(|(_, amount)| *amount).sum::<i128>()
                };
                let Some((amount, drawn)) = pool.counters.get(*counter) else {
                    return false;
                };
                let mut seen: SmallVec<[DeviceId; 8]> = SmallVec::new();
                let mut more = draw(offer);
                for one in self
                    .taken
                    .iter()
                    .filter(|one| !one.admin && !seen.contains(&one.device))
                    .collect::<SmallVec<[&Taken; 8]>>()
                {
                    let other = &self.model.devices().devices[one.device];
                    if !seen.contains(&one.device) && other.pool == device.pool {
                        seen.push(one.device);
                        // A device in use consumes counters already.
                        if self.at().is_empty() || self.at().iter().any(|at| !other.in_use(*at)) {
                            more += draw(self.offer(one.device));
                        }
                    }
                }
                if self.at().is_empty() {
                    return more <= *amount;
                }
                self.at().iter().all(|at| drawn[*at] + more <= *amount)
            })
    }

    /// The share of each capacity of a partially allocated device; `None` if it has too little.
    fn parts(
        &self,
        wanted: &OptionInput,
        device: &Device,
        id: DeviceId,
        offer: &DeviceInput,
    ) -> Option<Option<Vec<(Name, i128)>>> {
        let Some(parts) = shares(wanted, offer)? else {
            return Some(None);
        };
        let mut both = offer.capacities.iter().zip(&parts);
        let fits = both.all(|((name, capacity), (_, amount))| {
            let here = self.takers(id).flat_map(|one| one.parts.iter().flatten());
            let here: i128 = here.filter(|(other, _)| other == name).map(|(_, amount)| amount).sum();
            let most = self.at().iter().map(|at| device.taken(name, *at)).max().unwrap_or(0);
            most + here + amount <= capacity.value
        });
        (wanted.admin || fits).then_some(Some(parts))
    }

    /// The claim's constraints still hold with this device.
    fn agrees(&self, asked: RequestOption, offer: &DeviceInput) -> bool {
        let constraints = self.asks[asked.claim].constraints;
        constraints.iter().all(|constraint| {
            let about = |request: usize, option: usize| self.is_about(constraint, asked.claim, request, option);
            if !about(asked.request, asked.option) {
                return true;
            }
            let Some(value) = offer.attribute(&constraint.attribute) else {
                return false;
            };
            let those = self.taken.iter().filter(|one| one.claim == asked.claim);
            let mut others = those.filter(|one| about(one.request, one.option));
            others.all(|one| {
                let same = self.offer(one.device).attribute(&constraint.attribute) == Some(value);
                same != constraint.distinct
            })
        })
    }

    /// Whether a constraint of a claim applies to a request, if this option is chosen.
    fn is_about(&self, constraint: &ConstraintInput, claim: usize, request: usize, option: usize) -> bool {
        let about = |name: &Name| {
            *name == self.asks[claim].requests[request].name || *name == self.name_of(claim, request, option)
        };
        constraint.requests.is_empty() || constraint.requests.iter().any(about)
    }

    fn allocation<'t>(&self, taken: impl Iterator<Item = &'t Taken> + Clone) -> AllocationInput {
        let result = |one: &Taken| {
            let device = &self.model.devices().devices[one.device];
            let (driver, pool) = self.model.devices().pools[device.pool].key.clone();
            ResultInput {
                request: self.name_of(one.claim, one.request, one.option),
                driver,
                pool,
                device: device.name.clone(),
                admin: one.admin,
                taken: one.parts.clone(),
            }
        };
        AllocationInput {
            results: taken.clone().map(result).collect(),
            nodes: self.nodes(taken.map(|one| self.offer(one.device))),
        }
    }

    /// The nodes from which all these devices can be used.
    fn nodes<'t>(&self, offers: impl Iterator<Item = &'t DeviceInput>) -> Option<Vec<NodeTerm>> {
        let mut all: Option<Vec<NodeTerm>> = None;
        for offer in offers {
            match &offer.reach {
                _ if offer.binds => return Some(vec![self.here()]),
                Reach::Node(_) => return Some(vec![self.here()]),
                Reach::All => {}
                Reach::Selected(terms) => {
                    // Terms are alternatives: an intersection that is not one term is narrowed to this node.
                    all = match (all, &**terms) {
                        (None, terms) => Some(terms.to_vec()),
                        (Some(known), terms) if known == terms => Some(known),
                        (Some(mut known), [term]) if known.len() == 1 => {
                            let NodeTerm { labels, fields } = &mut known[0];
                            for (mine, theirs) in [(labels, &term.labels), (fields, &term.fields)] {
                                let fresh: Vec<_> = theirs.iter().filter(|one| !mine.contains(one)).cloned().collect();
                                mine.extend(fresh);
                            }
                            Some(known)
                        }
                        (Some(_), _) => return Some(vec![self.here()]),
                    };
                }
            }
        }
        all
    }

    fn here(&self) -> NodeTerm {
        NodeTerm {
            labels: Vec::new(),
            fields: vec![NodeRequirement {
                key: "metadata.name".into(),
                op: SelectorOp::In,
                values: vec![self.model.nodes()[self.node].name.clone()],
            }],
        }
    }
}

fn tolerated(wanted: &OptionInput, offer: &DeviceInput) -> bool {
    let mut taints = offer.taints.iter();
    taints.all(|taint| wanted.tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// The share of each capacity that a request takes of a device, `Some(None)` if it takes the whole device; `None` if the device is too small.
fn shares(wanted: &OptionInput, offer: &DeviceInput) -> Option<Option<Vec<(Name, i128)>>> {
    let capacity = |name: &Name| {
        let found = offer.capacities.binary_search_by(|(other, _)| other.cmp(name)).ok()?;
        Some(&offer.capacities[found].1)
    };
    for (name, amount) in &wanted.capacity {
        if capacity(name)?.value < *amount {
            return None;
        }
    }
    if !offer.multi {
        return Some(None);
    }
    let shares = offer.capacities.iter().map(|(name, capacity)| {
        let asked = wanted.capacity.iter().find(|(other, _)| other == name);
        let amount = share(capacity, asked.map(|(_, amount)| *amount))?;
        (wanted.admin || amount <= capacity.value).then(|| (name.clone(), amount))
    });
    shares.collect::<Option<Vec<_>>>().map(Some)
}

/// How much of a capacity a request takes; `None` if no allowed share fits.
#[must_use]
pub fn share(capacity: &Capacity, asked: Option<i128>) -> Option<i128> {
    let Some(policy) = &capacity.policy else {
        return Some(asked.unwrap_or(capacity.value));
    };
    let Some(asked) = asked else {
        return Some(policy.default.unwrap_or(capacity.value));
    };
    if let Some((least, most, step)) = policy.range {
        let above = (asked - least).max(0);
        let amount = match step {
            Some(step) if step > 0 => least + (above + step - 1) / step * step,
            Some(_) | None => least + above,
        };
        return Some(amount).filter(|amount| most.is_none_or(|most| *amount <= most));
    }
    if policy.values.is_empty() {
        return Some(asked);
    }
    policy.values.iter().copied().find(|value| *value >= asked)
}

#[cfg(test)]
pub(in crate::engine) mod tests;
