//! Storage: available volumes, capacity for new ones, and what the pods in the model use and are promised.
//!
//! Everything that pods use is a sum over their places, updated with every change, so that neither a volume nor capacity is promised twice. What a
//! claim is promised holds until a volume is bound to it; from then on the objects show it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::input::{
    AttachmentInput, CapacityInput, ClaimState, Disk, Name, NodeTerm, PodVolumes, Reach, SelectorOp, Table,
    VolumeInput, Waiting,
};

use super::arena::Arena;
use super::epochs::{Cached, Epoch};
use super::ids::NodeId;
use super::node::Node;
use super::node_set::NodeSet;
use super::selectors::{meets, meets_any};
use super::weight::Weight;

/// What an unbound claim is promised along with a place: this volume, or (`None`) a new one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Promise {
    /// The claim.
    pub claim: Name,
    /// The volume.
    pub volume: Option<Name>,
}

/// The promises of one place. Boxed, because few places have any.
pub type Promises = Option<Arc<[Promise]>>;

/// Pods by the weight of their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Users {
    staying: u32,
    leaving: u32,
    planned: u32,
}

impl Users {
    fn shift(&mut self, weight: Weight, sign: i64) {
        let count = match weight {
            Weight::Staying => &mut self.staying,
            Weight::Leaving => &mut self.leaving,
            Weight::Planned => &mut self.planned,
        };
        *count = count.wrapping_add_signed(sign as i32);
    }

    /// Whether some pod uses it now, or (`now` false) once releasing pods have gone and pipelined ones run.
    #[must_use]
    pub fn any(self, now: bool) -> bool {
        self.staying > 0 || if now { self.leaving > 0 } else { self.planned > 0 }
    }
}

/// A claim in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Use {
    /// Pods that have a node or are pipelined to one.
    pub pods: Users,
    /// What it is promised.
    pub promised: Option<Promised>,
}

/// What a claim is promised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Promised {
    /// The node.
    pub node: NodeId,
    /// This volume, or a new one.
    pub volume: Option<Name>,
    size: i64,
    places: u32,
}

/// An available volume or a storage capacity, with the nodes that can use it.
#[derive(Clone, Debug)]
struct ForNodes<T> {
    input: Box<T>,
    nodes: Cached<NodeSet>,
}

/// Bytes that pods take of storage capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct CapacityUse {
    /// Bytes promised. Claims may request up to `i64::MAX`, so sums are wider.
    drawn: i128,
    /// Bytes of claims that are deleted with releasing pods.
    freed: i128,
}

/// A storage class.
#[derive(Clone, Debug, Default)]
struct ClassStorage {
    /// The smallest first.
    volumes: BTreeMap<(i64, Name), ForNodes<VolumeInput>>,
    /// Storage capacities, and what pods take on their nodes.
    capacities: BTreeMap<Name, (ForNodes<CapacityInput>, CapacityUse)>,
    use_by_node: BTreeMap<NodeId, CapacityUse>,
}

/// Volumes attached to a node, by driver and name.
type Attached = BTreeMap<(Name, Name), Users>;

/// Disks in pod specs on a node: read-only users, and others.
type Disks = BTreeMap<Name, [Users; 2]>;

/// All storage.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    by_class: BTreeMap<Name, ClassStorage>,
    volumes: Table<Name, (Name, i64)>,
    capacities: Table<Name, Name>,
    /// Volumes reserved for one claim: the claim, and the volume.
    meant: BTreeSet<(Name, Name)>,
    claims: BTreeMap<Name, Use>,
    /// Volumes promised, with the number of promises.
    promised: BTreeMap<Name, u32>,
    attached: BTreeMap<NodeId, Attached>,
    disks: BTreeMap<NodeId, Disks>,
    /// Attachments as the API server shows them, and their volumes by node name.
    attachments: Table<Name, AttachmentInput>,
    shown: BTreeMap<Name, BTreeMap<(Name, Name), u32>>,
    /// The same volumes on all nodes.
    shown_anywhere: BTreeMap<(Name, Name), u32>,
    /// Drivers with an attach limit on some node.
    pub limited: BTreeSet<Name>,
    /// Some source is new, and its nodes are not matched yet.
    unmatched: bool,
    /// Epoch of node specs at the last matching of all sources.
    node_specs: Epoch,
}

impl Storage {
    /// Adds or changes an available volume.
    pub fn offer(&mut self, input: Box<VolumeInput>) -> bool {
        let known = self.volumes.get(&input.name).and_then(|(class, size)| {
            let key = (*size, input.name.clone());
            self.by_class.get(class)?.volumes.get(&key)
        });
        if known.is_some_and(|known| known.input == input) {
            return false;
        }
        self.withdraw(&input.name);
        let (name, class, size) = (input.name.clone(), input.class.clone(), input.size);
        if let Some(claim) = &input.claim {
            self.meant.insert((claim.clone(), name.clone()));
        }
        self.volumes.insert(name.clone(), (class.clone(), size));
        let storage = self.by_class.entry(class).or_default();
        storage.volumes.insert((size, name), ForNodes::new(input));
        self.unmatched = true;
        true
    }

    /// Removes a volume that is no longer available.
    pub fn withdraw(&mut self, name: &Name) -> bool {
        let Some((class, size)) = self.volumes.remove(name) else {
            return false;
        };
        let storage = self
            .by_class
            .get_mut(&class)
            .expect("a volume is stored under its class");
        let gone = storage
            .volumes
            .remove(&(size, name.clone()))
            .expect("it is stored there");
        if let Some(claim) = gone.input.claim {
            self.meant.remove(&(claim, name.clone()));
        }
        self.drop_empty(&class);
        true
    }

    /// Sets a storage capacity.
    pub fn set_capacity(&mut self, input: Box<CapacityInput>) -> bool {
        let class = input.class.clone();
        let known = self.by_class.get_mut(&class);
        if let Some((known, _)) = known.and_then(|storage| storage.capacities.get_mut(&input.key)) {
            let changed = known.input != input;
            if known.input.nodes != input.nodes {
                known.nodes.forget();
                self.unmatched = true;
            }
            known.input = input;
            return changed;
        }
        self.drop_capacity(&input.key);
        self.capacities.insert(input.key.clone(), class.clone());
        let storage = self.by_class.entry(class).or_default();
        let entry = (ForNodes::new(input), CapacityUse::default());
        storage.capacities.insert(entry.0.input.key.clone(), entry);
        self.unmatched = true;
        true
    }

    /// Removes a storage capacity.
    pub fn drop_capacity(&mut self, key: &Name) -> bool {
        let Some(class) = self.capacities.remove(key) else {
            return false;
        };
        if let Some(storage) = self.by_class.get_mut(&class) {
            storage.capacities.remove(key);
        }
        self.drop_empty(&class);
        true
    }

    /// Records that a volume is attached to a node.
    pub fn attach(&mut self, input: AttachmentInput) -> bool {
        if self.attachments.get(&input.key) == Some(&input) {
            return false;
        }
        self.detach(&input.key);
        count(self.shown.entry(input.node.clone()).or_default(), &input.volume, 1);
        count(&mut self.shown_anywhere, &input.volume, 1);
        self.attachments.insert(input.key.clone(), input);
        true
    }

    /// Removes an attachment.
    pub fn detach(&mut self, key: &Name) -> bool {
        let Some(gone) = self.attachments.remove(key) else {
            return false;
        };
        count(&mut self.shown_anywhere, &gone.volume, -1);
        if let Some(volumes) = self.shown.get_mut(&gone.node) {
            count(volumes, &gone.volume, -1);
            if volumes.is_empty() {
                self.shown.remove(&gone.node);
            }
        }
        true
    }

    fn drop_empty(&mut self, class: &Name) {
        let empty = |storage: &ClassStorage| {
            storage.volumes.is_empty() && storage.capacities.is_empty() && storage.use_by_node.is_empty()
        };
        if self.by_class.get(class).is_some_and(empty) {
            self.by_class.remove(class);
        }
    }

    /// Matches new sources with nodes, or all sources if nodes changed.
    pub fn refresh(&mut self, nodes: &Arena<NodeId, Node>, by_name: &[NodeId], node_specs: Epoch) {
        let nodes_changed = self.node_specs != node_specs;
        self.node_specs = node_specs;
        if nodes_changed {
            let ready = by_name.iter().filter_map(|id| nodes[*id].input.as_ref());
            self.limited = ready
                .flat_map(|input| input.attach_limits.iter().map(|(driver, _)| driver.clone()))
                .collect();
        }
        let mut finder = Finder {
            nodes,
            by_name,
            values: Table::default(),
        };
        let unmatched = std::mem::take(&mut self.unmatched);
        if nodes_changed || unmatched {
            self.match_nodes(&mut finder);
        }
        #[cfg(debug_assertions)]
        self.assert_matched(&mut finder);
    }

    /// Compares the matched nodes with a fresh match.
    #[cfg(debug_assertions)]
    fn assert_matched(&self, finder: &mut Finder) {
        for storage in self.by_class.values() {
            for offer in storage.volumes.values() {
                let known = offer.nodes.get(self.node_specs);
                assert_eq!(*known, finder.of_volume(&offer.input), "{}", offer.input.name);
            }
            for (capacity, _) in storage.capacities.values() {
                let known = capacity.nodes.get(self.node_specs);
                assert_eq!(*known, finder.of_capacity(&capacity.input), "{}", capacity.input.key);
            }
        }
    }

    fn match_nodes(&mut self, finder: &mut Finder) {
        let node_specs = self.node_specs;
        for storage in self.by_class.values_mut() {
            for offer in storage
                .volumes
                .values_mut()
                .filter(|offer| !offer.nodes.is_current(node_specs))
            {
                offer.nodes.set(node_specs, finder.of_volume(&offer.input));
            }
            for (capacity, capacity_use) in storage.capacities.values_mut() {
                if capacity.nodes.is_current(node_specs) {
                    continue;
                }
                capacity.nodes.set(node_specs, finder.of_capacity(&capacity.input));
                *capacity_use = CapacityUse::default();
                for (_, part) in storage
                    .use_by_node
                    .iter()
                    .filter(|(node, _)| capacity.nodes.last().has(node.at()))
                {
                    capacity_use.drawn += part.drawn;
                    capacity_use.freed += part.freed;
                }
            }
        }
    }

    /// Adds (`sign` 1) or subtracts (-1) a pod's volumes at a place.
    pub fn account(&mut self, pod: &PodVolumes, node: NodeId, promises: &Promises, weight: Weight, sign: i64) {
        self.account_disks(pod, node, weight, sign);
        for claim in &pod.claims {
            let used = self.claims.entry(claim.key.clone()).or_default();
            used.pods.shift(weight, sign);
            let promise = || {
                promises
                    .iter()
                    .flat_map(|all| all.iter())
                    .find(|one| one.claim == claim.key)
            };
            let mut drawn = None;
            if let (ClaimState::Waiting(_), Some(promise)) = (&*claim.state, promise()) {
                let promised = used.promised.get_or_insert_with(|| Promised {
                    node,
                    volume: promise.volume.clone(),
                    size: claim.size,
                    places: 0,
                });
                let before = promised.places;
                promised.places = before.wrapping_add_signed(sign as i32);
                if before == 0 || promised.places == 0 {
                    match &promised.volume {
                        Some(volume) => count(&mut self.promised, volume, sign),
                        None => drawn = Some((promised.node, i128::from(sign) * i128::from(promised.size))),
                    }
                }
                if promised.places == 0 {
                    used.promised = None;
                }
            }
            if *used == Use::default() {
                self.claims.remove(&claim.key);
            }
            if let Some((node, drawn)) = drawn {
                self.add_use(&claim.class, node, CapacityUse { drawn, freed: 0 });
            }
            if claim.owned && weight == Weight::Leaving {
                let freed = i128::from(sign) * i128::from(claim.size);
                self.add_use(&claim.class, node, CapacityUse { drawn: 0, freed });
            }
            if let Some(volume) = &claim.attach {
                let attached = self.attached.entry(node).or_default();
                let users = attached.entry(volume.clone()).or_default();
                users.shift(weight, sign);
                if *users == Users::default() {
                    attached.remove(volume);
                }
                if attached.is_empty() {
                    self.attached.remove(&node);
                }
            }
        }
    }

    fn account_disks(&mut self, pod: &PodVolumes, node: NodeId, weight: Weight, sign: i64) {
        if pod.disks.is_empty() {
            return;
        }
        let disks = self.disks.entry(node).or_default();
        for disk in &pod.disks {
            let users = disks.entry(disk.name.clone()).or_default();
            users[usize::from(!disk.shared)].shift(weight, sign);
            if *users == <[Users; 2]>::default() {
                disks.remove(&disk.name);
            }
        }
        if disks.is_empty() {
            self.disks.remove(&node);
        }
    }

    /// Whether pods on a node use a disk now, or (`now` false) later, in a way that excludes another user.
    #[must_use]
    pub fn disk_taken(&self, node: NodeId, disk: &Disk, now: bool) -> bool {
        let users = self.disks.get(&node).and_then(|disks| disks.get(&disk.name));
        users.is_some_and(|[readers, others]| others.any(now) || (!disk.shared && readers.any(now)))
    }

    fn add_use(&mut self, class: &Name, node: NodeId, change: CapacityUse) {
        let storage = self.by_class.entry(class.clone()).or_default();
        let at = storage.use_by_node.entry(node).or_default();
        at.drawn += change.drawn;
        at.freed += change.freed;
        if *at == CapacityUse::default() {
            storage.use_by_node.remove(&node);
        }
        for (capacity, capacity_use) in storage.capacities.values_mut() {
            if capacity.nodes.last().has(node.at()) {
                capacity_use.drawn += change.drawn;
                capacity_use.freed += change.freed;
            }
        }
        self.drop_empty(class);
    }

    /// The users of a claim, and what it is promised.
    #[must_use]
    pub fn claim(&self, key: &Name) -> Option<&Use> {
        self.claims.get(key)
    }

    /// The promises of a pod that is on a node already, given its promises from before.
    #[must_use]
    pub fn recorded(&self, pod: &PodVolumes, promised: Option<&[Promise]>) -> Promises {
        let waiting = pod
            .claims
            .iter()
            .filter(|claim| matches!(*claim.state, ClaimState::Waiting(_)));
        let promise = |claim: &crate::engine::input::Claim| {
            let before = promised.into_iter().flatten().find(|one| one.claim == claim.key);
            let before = before.and_then(|one| one.volume.as_ref());
            let meant = self.meant_for(&claim.key);
            // The one that was promised, if it is among several.
            let meant = meant.min_by_key(|volume| Some(*volume) != before);
            Promise {
                claim: claim.key.clone(),
                volume: meant.or(before).cloned(),
            }
        };
        let all: Vec<Promise> = waiting.map(promise).collect();
        (!all.is_empty()).then(|| all.into())
    }

    /// The volume that a claim would get on a node: the one reserved for it, else the smallest that fits and is not promised to another.
    #[must_use]
    pub fn find(&self, key: &Name, asked: &Waiting, node: NodeId, beside: &[Promise]) -> Option<Name> {
        let storage = self.by_class.get(&asked.class)?;
        let will_do = |offer: &ForNodes<VolumeInput>| {
            offer.nodes.get(self.node_specs).has(node.at())
                && offer.input.size >= asked.size
                && offer.input.block == asked.block
                && offer.input.attributes_class == asked.attributes_class
        };
        let mut meant = self.meant_for(key).peekable();
        if meant.peek().is_some() {
            let fits = |volume: &&Name| self.offered(volume).is_some_and(will_do);
            return meant.find(fits).cloned();
        }
        let label = |offer: &VolumeInput, key: &Name| {
            let found = offer.labels.iter().find(|(other, _)| other == key);
            found.map(|(_, value)| value.clone())
        };
        let from = (asked.size, Name::from(""));
        let mut offers = storage.volumes.range(from..).map(|(_, offer)| offer);
        let found = offers.find(|offer| {
            let input = &offer.input;
            will_do(offer)
                && input.claim.is_none()
                && input.modes & asked.modes == asked.modes
                && !self.promised.contains_key(&input.name)
                && beside.iter().all(|other| other.volume.as_ref() != Some(&input.name))
                && asked
                    .labels
                    .iter()
                    .all(|wanted| meets(wanted, label(input, &wanted.key).as_deref()))
        });
        found.map(|offer| offer.input.name.clone())
    }

    /// The volumes reserved for a claim, in order of their names.
    pub fn meant_for<'s>(&'s self, claim: &'s Name) -> impl Iterator<Item = &'s Name> {
        let from = (claim.clone(), Name::from(""));
        let all = self.meant.range(from..).take_while(move |(of, _)| of == claim);
        all.map(|(_, volume)| volume)
    }

    /// An available volume.
    fn offered(&self, volume: &Name) -> Option<&ForNodes<VolumeInput>> {
        let (class, size) = self.volumes.get(volume)?;
        self.by_class.get(class)?.volumes.get(&(*size, volume.clone()))
    }

    /// Whether a volume can be used from a node.
    #[must_use]
    pub fn reaches(&self, volume: &Name, node: NodeId) -> bool {
        let offer = self.offered(volume);
        offer.is_some_and(|offer| offer.nodes.get(self.node_specs).has(node.at()))
    }

    /// Whether some capacity of a class on a node suffices for a volume of this size and `beside` more bytes. `None`: no capacity is reported.
    #[must_use]
    pub fn room(&self, class: &Name, node: NodeId, size: i64, beside: i128, with_freed: bool) -> Option<bool> {
        let storage = self.by_class.get(class)?;
        let sources = storage
            .capacities
            .values()
            .filter(|(source, _)| source.nodes.get(self.node_specs).has(node.at()));
        sources
            .map(|(source, capacity_use)| {
                let freed = if with_freed { capacity_use.freed } else { 0 };
                source.input.largest.is_none_or(|largest| size <= largest)
                    && i128::from(size) + beside <= i128::from(source.input.free) - capacity_use.drawn + freed
            })
            .reduce(|left, right| left || right)
    }

    /// Volumes of a driver on a node now, or (`now` false) later.
    pub fn attached(&self, node: NodeId, driver: &Name, now: bool) -> impl Iterator<Item = &Name> + use<'_> {
        of_driver(self.attached.get(&node), driver)
            .filter(move |(_, users)| users.any(now))
            .map(|((_, volume), _)| volume)
    }

    /// Volumes of a driver that are attached to a node although no pod there is known to use them.
    pub fn lingering(&self, id: NodeId, node: &Name, driver: &Name) -> impl Iterator<Item = &Name> + use<'_> {
        let used = self.attached.get(&id);
        of_driver(self.shown.get(node), driver)
            .filter(move |(volume, _)| used.is_none_or(|used| !used.contains_key(*volume)))
            .map(|((_, volume), _)| volume)
    }

    /// Whether the API server shows a volume as attached to some node.
    #[must_use]
    pub fn is_shown(&self, volume: &(Name, Name)) -> bool {
        self.shown_anywhere.contains_key(volume)
    }

    /// A copy without anything that pods use.
    #[must_use]
    pub fn unused(&self) -> Self {
        let mut unused = self.clone();
        unused.claims.clear();
        unused.promised.clear();
        unused.attached.clear();
        unused.disks.clear();
        for storage in unused.by_class.values_mut() {
            storage.use_by_node.clear();
            for (_, capacity_use) in storage.capacities.values_mut() {
                *capacity_use = CapacityUse::default();
            }
        }
        unused
    }

    /// Everything that pods use, for comparison.
    pub fn figures(&self) -> impl std::hash::Hash + PartialEq + std::fmt::Debug + '_ {
        let by_class = self.by_class.iter().filter(|(_, storage)| {
            !storage.use_by_node.is_empty()
                || storage
                    .capacities
                    .values()
                    .any(|(_, capacity_use)| *capacity_use != CapacityUse::default())
        });
        let use_by_node: Vec<_> = by_class
            .map(|(class, storage)| {
                let sources: Vec<CapacityUse> = storage
                    .capacities
                    .values()
                    .map(|(_, capacity_use)| *capacity_use)
                    .collect();
                (class, &storage.use_by_node, sources)
            })
            .collect();
        (&self.claims, &self.promised, &self.attached, &self.disks, use_by_node)
    }
}

impl<T> ForNodes<T> {
    fn new(input: Box<T>) -> Self {
        Self {
            input,
            nodes: Cached::default(),
        }
    }
}

fn count<K: Ord + Clone>(map: &mut BTreeMap<K, u32>, key: &K, sign: i64) {
    let entry = map.entry(key.clone()).or_default();
    *entry = entry.wrapping_add_signed(sign as i32);
    if *entry == 0 {
        map.remove(key);
    }
}

/// Volumes by driver and name: those of one driver.
fn of_driver<'a, T>(
    volumes: Option<&'a BTreeMap<(Name, Name), T>>,
    driver: &Name,
) -> impl Iterator<Item = (&'a (Name, Name), &'a T)> + use<'a, T> {
    let (from, driver) = ((driver.clone(), Name::from("")), driver.clone());
    let volumes = volumes.into_iter().flat_map(move |all| all.range(from.clone()..));
    volumes.take_while(move |((other, _), _)| *other == driver)
}

/// Nodes by label value, so that terms that list values need no scan of all nodes.
struct Finder<'a> {
    nodes: &'a Arena<NodeId, Node>,
    by_name: &'a [NodeId],
    values: Table<Name, Table<Name, Vec<NodeId>>>,
}

impl Finder<'_> {
    fn all(&self) -> NodeSet {
        self.by_name.iter().map(|id| id.at()).collect()
    }

    fn of_volume(&mut self, input: &VolumeInput) -> NodeSet {
        match &input.nodes {
            None => self.all(),
            Some(terms) => self.any(terms),
        }
    }

    fn of_capacity(&mut self, input: &CapacityInput) -> NodeSet {
        match &input.nodes {
            None => NodeSet::default(),
            Some(labels) if labels.is_empty() => self.all(),
            Some(labels) => self.any(&[NodeTerm {
                labels: labels.clone(),
                fields: Vec::new(),
            }]),
        }
    }

    fn any(&mut self, terms: &[NodeTerm]) -> NodeSet {
        let mut found = NodeSet::default();
        for term in terms {
            let listed = term.labels.iter().find(|wanted| wanted.op == SelectorOp::In);
            let candidates: Vec<NodeId> = match listed {
                None => self.by_name.to_vec(),
                Some(wanted) => {
                    let by_value = self.by_value(&wanted.key);
                    let with_value = wanted.values.iter().filter_map(|value| by_value.get(value));
                    with_value.flatten().copied().collect()
                }
            };
            for id in candidates {
                if meets_any(std::slice::from_ref(term), &self.nodes[id]) {
                    found.add(id.at());
                }
            }
        }
        found
    }

    fn by_value(&mut self, key: &Name) -> &Table<Name, Vec<NodeId>> {
        let (nodes, by_name) = (self.nodes, self.by_name);
        self.values.entry(key.clone()).or_insert_with(|| {
            let mut values: Table<Name, Vec<NodeId>> = Table::default();
            for &id in by_name {
                if let Some(value) = nodes[id].label(key) {
                    values.entry(value.clone()).or_default().push(id);
                }
            }
            values
        })
    }
}

/// Why a claim excludes a node, regardless of the pods on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unreachable {
    /// The volume's node affinity.
    Affinity,
    /// The volume is in another zone.
    Zone,
    /// The volume does not exist.
    Lost,
    /// A volume is being made for another node.
    Elsewhere,
}

/// Why a node is excluded for a claim, if it is.
#[must_use]
pub fn unreachable(state: &ClaimState, node: &Node) -> Option<Unreachable> {
    match state {
        ClaimState::Bound(reach) => {
            if reach.nodes.as_ref().is_some_and(|terms| !meets_any(terms, node)) {
                return Some(Unreachable::Affinity);
            }
            outside(reach, node).then_some(Unreachable::Zone)
        }
        ClaimState::Lost => Some(Unreachable::Lost),
        ClaimState::Waiting(asked) => {
            let other = asked.node.as_ref().is_some_and(|name| *name != node.name);
            other.then_some(Unreachable::Elsewhere)
        }
    }
}

/// Zone and region labels; the deprecated ones first.
const PLACES: [(&str, &str); 2] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

/// Whether a node with zone or region labels is outside the zones of a volume. Where it lacks the deprecated label the current one is compared.
fn outside(reach: &Reach, node: &Node) -> bool {
    let told = PLACES
        .iter()
        .any(|(old, new)| node.label(old).or(node.label(new)).is_some());
    let newer = |key: &str| PLACES.iter().find(|(old, _)| *old == key).map(|(_, new)| *new);
    told && reach.zones.iter().any(|(key, values)| {
        let value = node.label(key).or_else(|| node.label(newer(key)?));
        value.is_none_or(|value| !values.contains(value))
    })
}
