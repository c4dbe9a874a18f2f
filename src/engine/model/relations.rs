//! Relations between pods: for every set of pods that some pod's affinity, anti-affinity or spread constraint selects, how many of them are at each value
//! of a node label.
//!
//! Counters follow every change of a pod, so that a node is checked by a few look-ups. Terminating pods count until they are gone, except for spread
//! constraints. The next cycle counts new counters first, and recounts all if nodes changed, or counters were removed. For spread constraints only some
//! nodes count; such counters also count how many values have how many pods, so that the minimum is known without a scan.

mod index;
mod labelled;

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::input::{Name, NodeTerm, PodInput, PodSelector, PodTerm, Spread, Table, Toleration};

use super::arena::Arena;
use super::constraints::Constraints;
use super::epochs::{Epoch, Seen};
use super::ids::{CounterId, NodeId};
use super::node::Node;
use super::node_set::NodeSet;
use super::selectors::{selects_node, tolerates_taints};

pub use index::Index;
pub use labelled::{Labelled, selects};

/// Counters, by id.
pub type Counters = SmallVec<[CounterId; 2]>;

/// The subject of a counter: pods that all of the selectors select, by a node label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Subject {
    pods: Arc<[PodSelector]>,
    label: Name,
    /// `None`: on all nodes.
    counted_nodes: Option<Arc<CountedNodes>>,
}

/// Which nodes count for a spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct CountedNodes {
    /// Nodes with all of these labels: the topology keys of all spread constraints of the pod.
    labels: Vec<Name>,
    /// Nodes that meet the pod's node selector.
    selector: Vec<(Name, Name)>,
    /// Nodes that meet its required node affinity.
    required: Option<Vec<NodeTerm>>,
    /// Nodes whose taints are tolerated; `None`: taints do not matter.
    tolerations: Option<Vec<Toleration>>,
}

impl CountedNodes {
    fn of(constraint: &Spread, constraints: &Constraints, labels: &[Name]) -> Self {
        let honored = constraint.honor_affinity;
        Self {
            labels: labels.to_vec(),
            selector: if honored {
                constraints.selector.clone()
            } else {
                Vec::new()
            },
            required: constraints.required.clone().filter(|_| honored),
            tolerations: constraint.honor_taints.then(|| constraints.tolerations.clone()),
        }
    }

    fn has(&self, node: &Node) -> bool {
        self.labels.iter().all(|label| node.label(label).is_some())
            && selects_node(&self.selector, self.required.as_deref(), node)
            && self
                .tolerations
                .as_ref()
                .is_none_or(|tolerations| tolerates_taints(tolerations, node))
    }
}

/// The nodes that count for some spread constraints. They are shared by all labels, whose values take far more memory.
#[derive(Clone, Debug)]
struct Filter {
    counted_nodes: Arc<CountedNodes>,
    nodes: NodeSet,
}

/// A node label as a partition of nodes, or of some of them.
#[derive(Clone, Debug, Default)]
struct Key {
    label: Name,
    /// The filter of nodes; `None`: all nodes.
    filter: Option<usize>,
    /// The key of all nodes with this label, which has the values.
    all: usize,
    /// By node position. Empty unless it is the key of all nodes.
    values: Vec<Option<u32>>,
    /// Number of values.
    distinct: usize,
}

/// Pods of one subject, by value.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    subject: Subject,
    key: usize,
    /// Pods: all, and the terminating ones among them.
    pods: BTreeMap<u32, (i64, i64)>,
    total: i64,
    /// Number of values by number of pods that are not terminating. Empty unless only some nodes count.
    levels: BTreeMap<i64, usize>,
    /// Pods with anti-affinity to the subject.
    apart: BTreeMap<u32, i64>,
    /// Weights of preferred affinity of pods to the subject.
    weights: BTreeMap<u32, i64>,
    /// Number of classes that use it.
    users: usize,
    /// No pod has been counted yet.
    new: bool,
}

impl Counter {
    /// Adds (`sign` 1) or subtracts (-1) a pod at a value.
    fn count(&mut self, value: u32, sign: i64, leaving: bool) {
        self.total += sign;
        let entry = self.pods.entry(value).or_default();
        let before = entry.0 - entry.1;
        entry.0 += sign;
        entry.1 += if leaving { sign } else { 0 };
        let after = entry.0 - entry.1;
        if *entry == (0, 0) {
            self.pods.remove(&value);
        }
        if before != after && !self.levels.is_empty() {
            *self.levels.entry(after).or_insert(0) += 1;
            if let Some(values) = self.levels.get_mut(&before) {
                *values -= 1;
                if *values == 0 {
                    self.levels.remove(&before);
                }
            }
        }
    }
}

/// The counters that the relations of a class use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Required affinity: one for each label, all of the same pods.
    pub near: Counters,
    /// Required anti-affinity.
    pub apart: Counters,
    /// Preferred affinity, or (negative weights) anti-affinity.
    pub preferred: SmallVec<[(CounterId, i64); 2]>,
    /// Spread constraints, in their order.
    pub spread: Counters,
}

impl Asked {
    fn all(&self) -> impl Iterator<Item = CounterId> + '_ {
        let preferred = self.preferred.iter().map(|(counter, _)| *counter);
        let others = self.near.iter().chain(&self.apart).chain(&self.spread);
        others.copied().chain(preferred)
    }
}

/// A pod as the counters see it.
#[derive(Clone, Copy)]
pub struct CountedPod<'a> {
    /// Counters of subjects that it belongs to.
    pub counted: &'a [CounterId],
    /// The counters that its class uses.
    pub asked: Option<&'a Asked>,
    /// It terminates: spread constraints do not count it.
    pub leaving: bool,
}

/// All counters.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    keys: Vec<Key>,
    key_of: Table<(Name, Option<usize>), usize>,
    filters: Vec<Filter>,
    filter_of: Table<Arc<CountedNodes>, usize>,
    counters: Arena<CounterId, Counter>,
    by_subject: Table<Subject, CounterId>,
    /// The counters that pods have been compared with.
    index: Index,
    /// Those that they have not been compared with yet.
    new: Vec<CounterId>,
    /// Counters without classes.
    unused: usize,
    /// Keys and filters, from the first on, that know their nodes.
    known: (usize, usize),
    /// Counts removals of counters.
    removals: Epoch,
    /// `removals` when pods were last compared with all counters.
    compared: Seen,
    /// `removals` and the epoch of node specs at the last recount.
    counted: Seen,
}

/// Unused counters that are kept, per used one.
const SLACK: usize = 2;
/// Unused counters that are kept in all. They are counted like others, and must not outgrow what a namespace may have.
const UNUSED_MOST: usize = 256;

impl Neighbours {
    /// Whether there are no counters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_subject.is_empty()
    }

    /// The counters for a class, created if needed; `None` if its pods have no relations.
    pub fn ask(&mut self, constraints: &Constraints) -> Option<Asked> {
        let relations = constraints.relations.as_ref()?;
        let all: Arc<[PodSelector]> = relations.near.iter().map(|term| term.pods.clone()).collect();
        let subject = |pods, label: &Name, counted_nodes| Subject {
            pods,
            label: label.clone(),
            counted_nodes,
        };
        let own = |term: &PodTerm| subject(Arc::new([term.pods.clone()]), &term.key, None);
        // A duplicate term would be counted twice.
        let mut apart: Counters = relations.apart.iter().map(|term| self.counter(own(term))).collect();
        apart.sort_unstable();
        apart.dedup();
        let near = relations.near.iter();
        let near = near.map(|term| self.counter(subject(Arc::clone(&all), &term.key, None)));
        let near = near.collect();
        let preferred = relations.preferred.iter();
        let preferred = preferred.map(|(weight, term)| (self.counter(own(term)), i64::from(*weight)));
        let preferred = preferred.collect();
        let labels: Vec<Name> = relations.spread.iter().map(|spread| spread.key.clone()).collect();
        let spread = relations.spread.iter().map(|spread| {
            let counted_nodes = self.shared(CountedNodes::of(spread, constraints, &labels));
            self.counter(subject(
                Arc::new([spread.pods.clone()]),
                &spread.key,
                Some(counted_nodes),
            ))
        });
        let spread = spread.collect();
        let asked = Asked {
            near,
            apart,
            preferred,
            spread,
        };
        for id in asked.all() {
            let counter = &mut self.counters[id];
            self.unused -= usize::from(counter.users == 0);
            counter.users += 1;
        }
        Some(asked)
    }

    /// Releases the counters of a class that is removed.
    pub fn release(&mut self, asked: &Asked) {
        for id in asked.all() {
            let counter = &mut self.counters[id];
            counter.users -= 1;
            self.unused += usize::from(counter.users == 0);
        }
        let spare = 64 + SLACK * (self.by_subject.len() - self.unused);
        if self.unused > spare.min(UNUSED_MOST) {
            let unused: Vec<CounterId> = self
                .counters
                .iter()
                .filter(|(_, one)| one.users == 0)
                .map(|(id, _)| id)
                .collect();
            for id in unused {
                let counter = self.counters.remove(id).expect("it was just seen");
                self.by_subject.remove(&counter.subject);
            }
            self.unused = 0;
            self.new.retain(|id| self.counters.contains(*id));
            self.removals += 1;
            self.forget_unused_keys();
        }
    }

    /// Removes the node labels, and the filters of nodes, that no counter uses. The values are to be rebuilt afterwards.
    fn forget_unused_keys(&mut self) {
        self.keys.clear();
        self.filters.clear();
        self.known = (0, 0);
        (self.key_of, self.filter_of) = (Table::default(), Table::default());
        let ids: Vec<CounterId> = self.counters.ids().collect();
        for id in ids {
            let Subject {
                label, counted_nodes, ..
            } = self.counters[id].subject.clone();
            self.counters[id].key = self.key(&label, counted_nodes.as_ref());
        }
    }

    fn counter(&mut self, subject: Subject) -> CounterId {
        if let Some(&id) = self.by_subject.get(&subject) {
            return id;
        }
        let key = self.key(&subject.label, subject.counted_nodes.as_ref());
        let id = self.counters.insert(Counter {
            subject: subject.clone(),
            key,
            new: true,
            ..Counter::default()
        });
        self.unused += 1;
        self.by_subject.insert(subject, id);
        self.new.push(id);
        id
    }

    fn key(&mut self, label: &Name, counted_nodes: Option<&Arc<CountedNodes>>) -> usize {
        let filter = counted_nodes.map(|counted_nodes| self.filter(counted_nodes));
        let wanted = (label.clone(), filter);
        if let Some(&at) = self.key_of.get(&wanted) {
            return at;
        }
        let all = filter.map(|_| self.key(label, None));
        let at = self.keys.len();
        self.keys.push(Key {
            label: label.clone(),
            filter,
            all: all.unwrap_or(at),
            ..Key::default()
        });
        self.key_of.insert(wanted, at);
        at
    }

    fn filter(&mut self, counted_nodes: &Arc<CountedNodes>) -> usize {
        if let Some(&at) = self.filter_of.get(counted_nodes) {
            return at;
        }
        let at = self.filters.len();
        self.filters.push(Filter {
            counted_nodes: Arc::clone(counted_nodes),
            nodes: NodeSet::default(),
        });
        self.filter_of.insert(Arc::clone(counted_nodes), at);
        at
    }

    /// The copy of the filter that is kept, if there is one: it may list thousands of nodes.
    fn shared(&self, counted_nodes: CountedNodes) -> Arc<CountedNodes> {
        let known = self.filter_of.get(&counted_nodes);
        known.map_or_else(
            || Arc::new(counted_nodes),
            |at| Arc::clone(&self.filters[*at].counted_nodes),
        )
    }

    /// Number of node labels, with the nodes that count, that are kept.
    #[cfg(test)]
    pub fn labels(&self) -> usize {
        self.keys.len()
    }

    /// Number of values of node labels that are kept: one for each node and label.
    #[cfg(test)]
    pub fn values_kept(&self) -> usize {
        self.keys.iter().map(|key| key.values.len()).sum()
    }

    /// Number of counters, used or not.
    #[cfg(test)]
    pub fn counters(&self) -> usize {
        self.by_subject.len()
    }

    /// Number of counters that are checked for a pod.
    #[cfg(test)]
    pub fn candidates(&self, pod: &PodInput) -> usize {
        self.index.candidates(pod).len()
    }

    /// The counters whose subject includes a pod, without new ones. Not to be used after counters were removed.
    #[must_use]
    pub fn counted(&self, pod: &PodInput) -> Counters {
        self.selecting(&self.index, pod)
    }

    /// The counters of an index whose subject includes a pod.
    #[must_use]
    pub fn selecting(&self, index: &Index, pod: &PodInput) -> Counters {
        let mut found = index.candidates(pod);
        let pod = Labelled::of(pod, found.len());
        let selects = |id: CounterId| {
            let selectors = &self.counters[id].subject.pods;
            selectors.iter().all(|selector| pod.is_selected_by(selector))
        };
        found.retain(|id| selects(*id));
        found.shrink_to_fit();
        found
    }

    /// Whether no counter has been removed since pods were compared with all of them.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        self.compared.is_current(self.removals)
    }

    /// Whether all counters that are not new are up to date.
    #[must_use]
    pub fn is_current(&self, node_specs: Epoch) -> bool {
        self.counted.is_current(self.removals + node_specs)
    }

    /// Whether there are no new counters.
    #[must_use]
    pub fn has_counted_all(&self) -> bool {
        self.new.is_empty()
    }

    /// The counters that pods are to be compared with: the new ones; or, if some were removed, all of them, which is what the second value says.
    pub fn to_compare(&mut self) -> (Index, bool) {
        let all = self.compared.catch_up(self.removals);
        let ids: Vec<CounterId> = if all {
            self.index = Index::default();
            self.counters.ids().collect()
        } else {
            self.new.clone()
        };
        let mut index = Index::default();
        for id in ids {
            let pods = &self.counters[id].subject.pods;
            index.add(id, pods);
            self.index.add(id, pods);
        }
        (index, all)
    }

    /// Empties all counters, and rebuilds the values of node labels.
    pub fn restart(&mut self, nodes: &Arena<NodeId, Node>, node_specs: Epoch) {
        self.known = (0, 0);
        self.find_values(nodes);
        let ids: Vec<CounterId> = self.counters.ids().collect();
        for id in ids {
            let Counter {
                subject, key, users, ..
            } = std::mem::take(&mut self.counters[id]);
            self.counters[id] = Counter {
                levels: self.no_pods(key),
                subject,
                key,
                users,
                ..Counter::default()
            };
        }
        self.new.clear();
        self.counted.catch_up(self.removals + node_specs);
    }

    /// Prepares the new counters for pods to be counted by [`Self::account_new`], which [`Self::end_new`] ends.
    pub fn begin_new(&mut self, nodes: &Arena<NodeId, Node>) {
        self.find_values(nodes);
        for at in 0..self.new.len() {
            let id = self.new[at];
            self.counters[id].levels = self.no_pods(self.counters[id].key);
        }
    }

    /// See [`Self::begin_new`].
    pub fn end_new(&mut self) {
        for id in std::mem::take(&mut self.new) {
            self.counters[id].new = false;
        }
    }

    /// The levels of a counter without pods.
    fn no_pods(&self, key: usize) -> BTreeMap<i64, usize> {
        let key = &self.keys[key];
        let spreads = key.filter.is_some() && key.distinct > 0;
        spreads.then_some((0, key.distinct)).into_iter().collect()
    }

    /// Finds the values of node labels, and which nodes count where, for keys and filters that do not know them.
    fn find_values(&mut self, nodes: &Arena<NodeId, Node>) {
        let (keys, filters) = std::mem::replace(&mut self.known, (self.keys.len(), self.filters.len()));
        for filter in &mut self.filters[filters..] {
            let counted = nodes.iter().filter(|(_, node)| filter.counted_nodes.has(node));
            filter.nodes = counted.map(|(id, _)| id.at()).collect();
        }
        // The key of all nodes stands before those of some.
        for at in keys..self.keys.len() {
            match self.keys[at].filter {
                None => {
                    let (values, distinct) = values_of(&self.keys[at].label, nodes);
                    (self.keys[at].values, self.keys[at].distinct) = (values, distinct);
                }
                Some(filter) => {
                    let values = &self.keys[self.keys[at].all].values;
                    let counted = self.filters[filter].nodes.iter();
                    let counted = counted.filter_map(|node| values.get(node).copied().flatten());
                    let distinct: NodeSet = counted.map(|value| value as usize).collect();
                    self.keys[at].distinct = distinct.count();
                }
            }
        }
    }

    /// Adds (`sign` 1) or subtracts (-1) a pod on a node, in counters that are not new.
    pub fn account(&mut self, pod: CountedPod, node: NodeId, sign: i64) {
        self.account_in(false, pod, node, sign);
    }

    /// Adds a pod on a node, in new counters.
    pub fn account_new(&mut self, pod: CountedPod, node: NodeId) {
        self.account_in(true, pod, node, 1);
    }

    fn account_in(&mut self, new: bool, pod: CountedPod, node: NodeId, sign: i64) {
        for &id in pod.counted {
            if let Some(value) = self.value_in(new, id, node) {
                self.counters[id].count(value, sign, pod.leaving);
            }
        }
        let Some(asked) = pod.asked else { return };
        for &id in &asked.apart {
            if let Some(value) = self.value_in(new, id, node) {
                bump(&mut self.counters[id].apart, value, sign);
            }
        }
        for &(id, weight) in &asked.preferred {
            if let Some(value) = self.value_in(new, id, node) {
                bump(&mut self.counters[id].weights, value, sign * weight);
            }
        }
    }

    /// [`Self::value`], in a counter that is new, or not.
    fn value_in(&self, new: bool, counter: CounterId, node: NodeId) -> Option<u32> {
        (self.counters[counter].new == new).then(|| self.value(counter, node))?
    }

    /// The value of a counter's label on a node, whether or not the node counts.
    #[must_use]
    pub fn label_value(&self, counter: CounterId, node: NodeId) -> Option<u32> {
        let key = &self.keys[self.counters[counter].key];
        self.keys[key.all].values.get(node.at()).copied().flatten()
    }

    /// Values of a counter's label on nodes that count.
    #[must_use]
    pub fn values(&self, counter: CounterId) -> usize {
        self.keys[self.counters[counter].key].distinct
    }

    /// The smallest number of pods, without terminating ones, at any value; 0 if there is no value. Only for spread constraints.
    #[must_use]
    pub fn fewest(&self, counter: CounterId) -> i64 {
        self.counters[counter]
            .levels
            .first_key_value()
            .map_or(0, |(pods, _)| *pods)
    }

    /// The value of a counter's label on a node that counts.
    #[must_use]
    pub fn value(&self, counter: CounterId, node: NodeId) -> Option<u32> {
        let key = &self.keys[self.counters[counter].key];
        let counts = key
            .filter
            .is_none_or(|filter| self.filters[filter].nodes.has(node.at()));
        self.label_value(counter, node).filter(|_| counts)
    }

    /// Pods counted at a value.
    #[must_use]
    pub fn pods(&self, counter: CounterId, value: u32) -> i64 {
        self.counters[counter].pods.get(&value).map_or(0, |pods| pods.0)
    }

    /// Pods counted at a value, without terminating ones.
    #[must_use]
    pub fn staying(&self, counter: CounterId, value: u32) -> i64 {
        self.counters[counter]
            .pods
            .get(&value)
            .map_or(0, |(all, leaving)| all - leaving)
    }

    /// Pods counted at all values.
    #[must_use]
    pub fn total(&self, counter: CounterId) -> i64 {
        self.counters[counter].total
    }

    /// Pods at a value with anti-affinity to the subject.
    #[must_use]
    pub fn apart(&self, counter: CounterId, value: u32) -> i64 {
        self.counters[counter].apart.get(&value).copied().unwrap_or(0)
    }

    /// Whether any pod has anti-affinity to the subject.
    #[must_use]
    pub fn has_anti_affinity(&self, counter: CounterId) -> bool {
        !self.counters[counter].apart.is_empty()
    }

    /// Sum of preferred weights towards the subject at a value.
    #[must_use]
    pub fn weight(&self, counter: CounterId, value: u32) -> i64 {
        self.counters[counter].weights.get(&value).copied().unwrap_or(0)
    }

    /// Pods counted, by value.
    pub fn all_pods(&self, counter: CounterId) -> impl Iterator<Item = (u32, i64)> + '_ {
        let pods = self.counters[counter].pods.iter();
        pods.map(|(value, (all, _))| (*value, *all))
    }

    /// Sums of preferred weights towards the subject, by value.
    pub fn all_weights(&self, counter: CounterId) -> impl Iterator<Item = (u32, i64)> + '_ {
        let weights = self.counters[counter].weights.iter();
        weights.map(|(value, weight)| (*value, *weight))
    }

    /// Adds amounts by value to the nodes with these values, by node position. Not for spread constraints.
    pub fn spread_out(&self, counter: CounterId, amounts: impl Iterator<Item = (u32, i64)>, sums: &mut [i64]) {
        let key = &self.keys[self.keys[self.counters[counter].key].all];
        let mut by_value = vec![0; key.distinct];
        for (value, amount) in amounts {
            by_value[value as usize] = amount;
        }
        for (sum, value) in sums.iter_mut().zip(&key.values) {
            if let Some(value) = value {
                *sum += by_value[*value as usize];
            }
        }
    }

    /// Whether any pod has preferred affinity or anti-affinity to the subject.
    #[must_use]
    pub fn wanted(&self, counter: CounterId) -> bool {
        !self.counters[counter].weights.is_empty()
    }

    /// All counts, for comparison.
    pub fn figures(&self) -> impl Iterator<Item = impl std::hash::Hash + PartialEq + std::fmt::Debug + '_> {
        self.counters
            .iter()
            .map(|(id, one)| (id, one.total, &one.pods, &one.levels, &one.apart, &one.weights))
    }
}

fn bump(map: &mut BTreeMap<u32, i64>, value: u32, amount: i64) {
    let entry = map.entry(value).or_insert(0);
    *entry += amount;
    if *entry == 0 {
        map.remove(&value);
    }
}

/// The number of each node's value of a label, by node position, and how many values there are.
fn values_of(label: &Name, nodes: &Arena<NodeId, Node>) -> (Vec<Option<u32>>, usize) {
    let (mut seen, mut values) = (Table::default(), vec![None; nodes.slots()]);
    for (id, node) in nodes.iter().filter(|(_, node)| node.input.is_some()) {
        values[id.at()] = node.label(label).map(|value| {
            let next = seen.len() as u32;
            *seen.entry(value).or_insert(next)
        });
    }
    (values, seen.len())
}
