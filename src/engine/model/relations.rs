//! Who is near whom: for every set of pods that some pod's affinity, anti-affinity or spread constraint speaks of, how many of them are at each value
//! of a node label.
//!
//! Counters are kept while pods come and go, so that a node is judged by a few look-ups. Pods that leave count until they are gone. A counter that is
//! new, or a node whose labels changed, makes all of it be counted anew before the next cycle decides.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::engine::input::{Name, PodInput, PodSelector, PodTerm, Relations, SelectorOp, Table};

use super::arena::Arena;
use super::class::meets;
use super::ids::{CounterId, NodeId};
use super::node::Node;

/// Counters, by id.
pub type Counters = SmallVec<[CounterId; 2]>;

/// What is counted: pods that all of the selectors select, by a node label, or (`None`) node by node.
type Subject = (Vec<PodSelector>, Option<Name>);

/// A node label as a partition of nodes.
#[derive(Clone, Debug, Default)]
struct Key {
    label: Option<Name>,
    /// By node position.
    values: Vec<Option<u32>>,
}

/// Pods of one subject, by value.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    subject: Subject,
    key: usize,
    /// Pods: all, and those of them that leave.
    pods: BTreeMap<u32, (i64, i64)>,
    total: i64,
    /// Pods that must not be near the subject.
    apart: BTreeMap<u32, i64>,
    /// Weights of pods that had better be near the subject.
    weights: BTreeMap<u32, i64>,
    /// Classes that use it.
    users: usize,
}

/// The counters that a class of pods asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Of pods that must be near: one for each label, all of the same pods.
    pub near: Counters,
    /// Of pods that must not be near.
    pub apart: Counters,
    /// Of pods that had better be near, or (negative weights) had better not.
    pub preferred: SmallVec<[(CounterId, i64); 2]>,
    /// Of pods among which to spread: by label, and node by node.
    pub spread: SmallVec<[(CounterId, CounterId); 1]>,
}

impl Asked {
    fn all(&self) -> impl Iterator<Item = CounterId> + '_ {
        let preferred = self.preferred.iter().map(|(counter, _)| *counter);
        let spread = self.spread.iter().flat_map(|(by_label, by_node)| [*by_label, *by_node]);
        self.near
            .iter()
            .chain(&self.apart)
            .copied()
            .chain(preferred)
            .chain(spread)
    }
}

/// A pod as the counters see it.
#[derive(Clone, Copy)]
pub struct Presence<'a> {
    /// Counters of subjects that it belongs to.
    pub counted: &'a [CounterId],
    /// What its class asks.
    pub asked: Option<&'a Asked>,
    /// It leaves.
    pub leaving: bool,
}

/// All counters.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    keys: Vec<Key>,
    counters: Arena<CounterId, Counter>,
    by_subject: Table<Subject, CounterId>,
    /// Counters whose pods have one of some values of a label.
    by_label: Table<Name, Table<Name, Vec<CounterId>>>,
    /// All other counters.
    by_nothing: Vec<CounterId>,
    /// Counters that no class uses any more.
    unused: usize,
    /// Everything must be counted anew.
    pub stale: bool,
}

/// So many unused counters may be kept for each used one.
const SLACK: usize = 2;

impl Neighbours {
    /// There is nothing to count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_subject.is_empty()
    }

    /// The counters for a class, new ones where needed.
    pub fn ask(&mut self, relations: &Relations) -> Asked {
        let all: Vec<PodSelector> = relations.near.iter().map(|term| term.pods.clone()).collect();
        let own = |term: &PodTerm| (vec![term.pods.clone()], Some(term.key.clone()));
        // A term given twice says nothing more, but would be counted twice.
        let mut apart: Counters = relations.apart.iter().map(|term| self.counter(own(term))).collect();
        apart.sort_unstable();
        apart.dedup();
        let asked = Asked {
            near: relations
                .near
                .iter()
                .map(|term| self.counter((all.clone(), Some(term.key.clone()))))
                .collect(),
            apart,
            preferred: relations
                .preferred
                .iter()
                .map(|(weight, term)| (self.counter(own(term)), i64::from(*weight)))
                .collect(),
            spread: relations
                .spread
                .iter()
                .map(|spread| {
                    let pods = vec![spread.pods.clone()];
                    (
                        self.counter((pods.clone(), Some(spread.key.clone()))),
                        self.counter((pods, None)),
                    )
                })
                .collect(),
        };
        for id in asked.all() {
            let counter = &mut self.counters[id];
            self.unused -= usize::from(counter.users == 0);
            counter.users += 1;
        }
        asked
    }

    /// A class is gone.
    pub fn release(&mut self, asked: &Asked) {
        for id in asked.all() {
            let counter = &mut self.counters[id];
            counter.users -= 1;
            self.unused += usize::from(counter.users == 0);
        }
        if self.unused > 64 + SLACK * (self.by_subject.len() - self.unused) {
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
            self.stale = true;
        }
    }

    fn counter(&mut self, subject: Subject) -> CounterId {
        if let Some(&id) = self.by_subject.get(&subject) {
            return id;
        }
        let key = self
            .keys
            .iter()
            .position(|key| key.label == subject.1)
            .unwrap_or_else(|| {
                self.keys.push(Key {
                    label: subject.1.clone(),
                    values: Vec::new(),
                });
                self.keys.len() - 1
            });
        let id = self.counters.insert(Counter {
            subject: subject.clone(),
            key,
            ..Counter::default()
        });
        self.unused += 1;
        self.by_subject.insert(subject, id);
        self.stale = true;
        id
    }

    /// The counters of subjects that a pod belongs to.
    #[must_use]
    pub fn counted(&self, pod: &PodInput) -> Counters {
        if self.is_empty() {
            return Counters::new();
        }
        let labelled = pod
            .labels
            .iter()
            .filter_map(|(key, value)| self.by_label.get(key)?.get(value))
            .flatten();
        let mut found: Counters = labelled
            .chain(&self.by_nothing)
            .copied()
            .filter(|id| {
                self.counters[*id]
                    .subject
                    .0
                    .iter()
                    .all(|selector| selects(selector, pod))
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Empties all counters, and sorts nodes by their labels as they are now.
    pub fn restart(&mut self, nodes: &Arena<NodeId, Node>) {
        for key in &mut self.keys {
            let mut seen: Table<&Name, u32> = Table::default();
            key.values = vec![None; nodes.slots()];
            for (id, node) in nodes.iter().filter(|(_, node)| node.input.is_some()) {
                key.values[id.at()] = match &key.label {
                    None => Some(id.0),
                    Some(label) => node.label(label).map(|value| {
                        let next = seen.len() as u32;
                        *seen.entry(value).or_insert(next)
                    }),
                };
            }
        }
        (self.by_label, self.by_nothing) = (Table::default(), Vec::new());
        let ids: Vec<CounterId> = self.counters.ids().collect();
        for id in ids {
            let counter = &mut self.counters[id];
            counter.pods.clear();
            counter.apart.clear();
            counter.weights.clear();
            counter.total = 0;
            let requirements = counter
                .subject
                .0
                .iter()
                .flat_map(|selector| selector.labels.iter().flatten());
            let listed = requirements
                .into_iter()
                .find(|requirement| requirement.op == SelectorOp::In);
            match listed {
                Some(requirement) => {
                    let by_value = self.by_label.entry(requirement.key.clone()).or_default();
                    for value in &requirement.values {
                        by_value.entry(value.clone()).or_default().push(id);
                    }
                }
                None => self.by_nothing.push(id),
            }
        }
        self.stale = false;
    }

    /// Counts a pod on a node (`sign` 1), or no longer (-1).
    pub fn account(&mut self, pod: Presence, node: NodeId, sign: i64) {
        for &id in pod.counted {
            if let Some(value) = self.value(id, node) {
                let counter = &mut self.counters[id];
                counter.total += sign;
                let entry = counter.pods.entry(value).or_default();
                entry.0 += sign;
                entry.1 += if pod.leaving { sign } else { 0 };
                if *entry == (0, 0) {
                    counter.pods.remove(&value);
                }
            }
        }
        let Some(asked) = pod.asked else { return };
        for &id in &asked.apart {
            if let Some(value) = self.value(id, node) {
                bump(&mut self.counters[id].apart, value, sign);
            }
        }
        for &(id, weight) in &asked.preferred {
            if let Some(value) = self.value(id, node) {
                bump(&mut self.counters[id].weights, value, sign * weight);
            }
        }
    }

    /// The value of a counter's label on a node.
    #[must_use]
    pub fn value(&self, counter: CounterId, node: NodeId) -> Option<u32> {
        self.keys[self.counters[counter].key]
            .values
            .get(node.at())
            .copied()
            .flatten()
    }

    /// Pods counted at a value.
    #[must_use]
    pub fn pods(&self, counter: CounterId, value: u32) -> i64 {
        self.counters[counter].pods.get(&value).map_or(0, |pods| pods.0)
    }

    /// Pods counted at a value that do not leave.
    #[must_use]
    pub fn staying(&self, counter: CounterId, value: u32) -> i64 {
        self.counters[counter]
            .pods
            .get(&value)
            .map_or(0, |(all, leaving)| all - leaving)
    }

    /// Pods counted anywhere.
    #[must_use]
    pub fn total(&self, counter: CounterId) -> i64 {
        self.counters[counter].total
    }

    /// Pods at a value that must not be near what is counted.
    #[must_use]
    pub fn apart(&self, counter: CounterId, value: u32) -> i64 {
        self.counters[counter].apart.get(&value).copied().unwrap_or(0)
    }

    /// Somebody anywhere must not be near what is counted.
    #[must_use]
    pub fn shunned(&self, counter: CounterId) -> bool {
        !self.counters[counter].apart.is_empty()
    }

    /// Weights at a value of pods that had better be near what is counted.
    #[must_use]
    pub fn weight(&self, counter: CounterId, value: u32) -> i64 {
        self.counters[counter].weights.get(&value).copied().unwrap_or(0)
    }

    /// Somebody anywhere had better be near what is counted, or had better not.
    #[must_use]
    pub fn wanted(&self, counter: CounterId) -> bool {
        !self.counters[counter].weights.is_empty()
    }

    /// Everything counted, to tell states apart.
    pub fn figures(&self) -> impl Iterator<Item = impl std::hash::Hash + PartialEq + std::fmt::Debug + '_> {
        self.counters
            .iter()
            .map(|(id, one)| (id, one.total, &one.pods, &one.apart, &one.weights))
    }
}

fn bump(map: &mut BTreeMap<u32, i64>, value: u32, amount: i64) {
    let entry = map.entry(value).or_insert(0);
    *entry += amount;
    if *entry == 0 {
        map.remove(&value);
    }
}

/// Whether a selector selects a pod.
fn selects(selector: &PodSelector, pod: &PodInput) -> bool {
    let Some(requirements) = &selector.labels else {
        return false;
    };
    selector
        .namespaces
        .as_ref()
        .is_none_or(|namespaces| namespaces.binary_search(&pod.namespace).is_ok())
        && requirements
            .iter()
            .all(|requirement| meets(requirement, pod.labels.get(&requirement.key)))
}
