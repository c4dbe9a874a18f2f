//! The room for relations between pods: what the engine counts for them is limited by namespace, as each counter is compared with many pods, and each choice of
//! nodes with all nodes.
//!
//! Equal relations of a namespace share a counter, and count once. A pod whose relations do not fit is set aside until others are gone. Namespace selectors
//! count as they are written, not as the namespaces that they select, so nothing here depends on the namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec};

use super::{read_spread, relating, requirements, weight};
use crate::api::limits::{self, ExceededLimit};
use crate::engine::input::{Name, NodeRequirement, NodeTerm, SelectorOp, Spread, Table, Toleration};
use crate::mirror::affinity::{Wish, terms};
use crate::mirror::packed::Pod;
use crate::mirror::{constraints, name};

/// What a namespace selector counts beside its requirements: it is resolved to the names of the namespaces that it selects.
const NAMESPACE_SELECTOR: usize = 8;

/// The selector of an affinity term or spread constraint, as it is written.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Selector {
    labels: Option<Vec<NodeRequirement>>,
    namespaces: Vec<Name>,
    /// The namespace selector.
    selected: Option<Vec<NodeRequirement>>,
    /// It selects only in the pod's own namespace.
    own: bool,
}

impl Selector {
    fn of_term(term: &PodAffinityTerm, pod: &Pod) -> Self {
        let mut namespaces: Vec<Name> = term.namespaces.iter().flatten().map(|one| name(one)).collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(pod.pod.namespace.clone());
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        let selected = term.namespace_selector.as_ref().and_then(requirements);
        Self {
            labels: term.label_selector.as_ref().and_then(requirements),
            own: selected.is_none() && namespaces.iter().all(|one| *one == pod.pod.namespace),
            namespaces,
            selected,
        }
    }

    fn of_spread(spread: Spread) -> Self {
        Self {
            labels: spread.pods.labels,
            namespaces: spread.pods.namespaces.unwrap_or_default().to_vec(),
            selected: None,
            own: true,
        }
    }

    /// Whether it selects by values of a label, by which pods are found quickly.
    fn lists_values(&self) -> bool {
        let mut labels = self.labels.iter().flatten();
        labels.any(|requirement| requirement.op == SelectorOp::In)
    }

    fn weight(&self) -> usize {
        let selected = self.selected.as_deref().filter(|selected| !selected.is_empty());
        let namespaces = if self.own { 0 } else { self.namespaces.len() };
        weight(self.labels.as_deref().unwrap_or_default())
            + namespaces
            + selected.map_or(0, |selected| NAMESPACE_SELECTOR + weight(selected))
    }
}

/// The nodes on which a spread constraint counts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nodes {
    labels: Vec<Name>,
    selector: Vec<(Name, Name)>,
    required: Option<Vec<NodeTerm>>,
    tolerations: Option<Vec<Toleration>>,
}

impl Nodes {
    fn of(spread: &Spread, labels: Vec<Name>, spec: &PodSpec) -> Self {
        let honored = spread.honor_affinity;
        Self {
            labels,
            selector: if honored {
                constraints::node_selector(spec)
            } else {
                Vec::new()
            },
            required: constraints::required(spec).filter(|_| honored),
            tolerations: spread.honor_taints.then(|| constraints::tolerations(spec)),
        }
    }

    fn weight(&self) -> usize {
        let terms = self.required.iter().flatten();
        let requirements: usize = terms.map(|term| weight(&term.labels) + weight(&term.fields)).sum();
        let tolerations = self.tolerations.as_ref().map_or(0, Vec::len);
        1 + self.labels.len() + self.selector.len() + requirements + tolerations
    }
}

/// What the engine keeps for relations, once for all pods that have it.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Part {
    /// A counter of the pods that all of the selectors select, by a node label, on some nodes or all.
    Counter(Arc<[Selector]>, Name, Option<Arc<Nodes>>),
    /// A choice of nodes.
    Nodes(Arc<Nodes>),
}

impl Part {
    fn room(&self) -> Taken {
        match self {
            Self::Counter(selectors, _, _) => {
                let all = 1 + selectors.iter().map(Selector::weight).sum::<usize>();
                let narrow = selectors.iter().any(|one| one.own) && selectors.iter().any(Selector::lists_values);
                Taken {
                    all,
                    wide: if narrow { 0 } else { all },
                    nodes: 0,
                }
            }
            Self::Nodes(nodes) => Taken {
                nodes: nodes.weight(),
                ..Taken::default()
            },
        }
    }
}

/// The parts of a pod's relations.
fn parts(pod: &Pod, spec: &PodSpec) -> Vec<Part> {
    let mut parts = Vec::new();
    let terms = || spec.affinity.iter().flat_map(terms);
    let near = terms().filter(|(wish, _)| *wish == Wish::Near);
    let near: Arc<[Selector]> = near.map(|(_, term)| Selector::of_term(term, pod)).collect();
    parts.extend(terms().map(|(wish, term)| {
        let selectors = match wish {
            // Required affinity selects the pods that all of its terms select.
            Wish::Near => Arc::clone(&near),
            Wish::Apart | Wish::Preferred(_) => Arc::new([Selector::of_term(term, pod)]),
        };
        Part::Counter(selectors, name(&term.topology_key), None)
    }));
    let spreads = spec.topology_spread_constraints.iter().flatten();
    let spreads: Vec<Spread> = spreads.filter_map(|constraint| read_spread(constraint, pod)).collect();
    let labels: Vec<Name> = spreads.iter().map(|spread| spread.key.clone()).collect();
    // There are at most four choices, which may list thousands of nodes.
    let mut choices: Vec<((bool, bool), Arc<Nodes>)> = Vec::new();
    for spread in spreads {
        let honors = (spread.honor_affinity, spread.honor_taints);
        let known = choices.iter().find(|(other, _)| *other == honors);
        let nodes = known.map(|(_, nodes)| Arc::clone(nodes)).unwrap_or_else(|| {
            let nodes = Arc::new(Nodes::of(&spread, labels.clone(), spec));
            choices.push((honors, Arc::clone(&nodes)));
            parts.push(Part::Nodes(Arc::clone(&nodes)));
            nodes
        });
        let key = spread.key.clone();
        parts.push(Part::Counter(Arc::new([Selector::of_spread(spread)]), key, Some(nodes)));
    }
    parts
}

/// Room that is taken.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// By all counters.
    all: usize,
    /// By those whose pods are of other namespaces, or not found by a label.
    wide: usize,
    /// By choices of nodes.
    nodes: usize,
}

impl Taken {
    fn add(&mut self, more: Self) {
        self.all += more.all;
        self.wide += more.wide;
        self.nodes += more.nodes;
    }

    fn subtract(&mut self, less: Self) {
        self.all -= less.all;
        self.wide -= less.wide;
        self.nodes -= less.nodes;
    }

    /// The limit that this exceeds.
    fn excess(self) -> Option<ExceededLimit> {
        let wide = (
            self.wide,
            limits::WIDE_RELATION_ENTRIES_PER_NAMESPACE,
            "requirements and values in different affinity terms and spread constraints of the namespace's pods that select in other namespaces or by no value of a label",
        );
        let all = (
            self.all,
            limits::RELATION_ENTRIES_PER_NAMESPACE,
            "requirements and values in different affinity terms and spread constraints of the namespace's pods",
        );
        let nodes = (
            self.nodes,
            limits::SPREAD_NODE_ENTRIES_PER_NAMESPACE,
            "requirements and values in different choices of nodes of the namespace's pods with spread constraints",
        );
        let exceeded = [wide, all, nodes].into_iter().find(|(taken, limit, _)| taken > limit);
        exceeded.map(|(_, limit, what)| ExceededLimit { what, limit })
    }
}

/// A part that some pods have.
#[derive(Debug)]
struct Known {
    part: Arc<Part>,
    room: Taken,
    /// Pods that have it.
    pods: usize,
    /// Those that are not set aside. It takes room if there are any.
    admitted: usize,
}

/// A pod with relations.
#[derive(Debug)]
struct Asking {
    parts: Box<[u32]>,
    /// Why it is set aside.
    excess: Option<ExceededLimit>,
}

/// The pods of one namespace.
#[derive(Debug, Default)]
struct Here {
    numbers: Table<Arc<Part>, u32>,
    known: Vec<Option<Known>>,
    free: Vec<u32>,
    pods: Table<Box<str>, Asking>,
    /// Pods that wait for room.
    waiting: BTreeSet<Box<str>>,
    taken: Taken,
}

impl Here {
    fn known(&self, number: u32) -> Option<&Known> {
        self.known.get(number as usize)?.as_ref()
    }

    fn known_mut(&mut self, number: u32) -> Option<&mut Known> {
        self.known.get_mut(number as usize)?.as_mut()
    }

    fn number(&mut self, part: Part) -> u32 {
        if let Some(&number) = self.numbers.get(&part) {
            return number;
        }
        let part = Arc::new(part);
        let fresh = Some(Known {
            room: part.room(),
            part: Arc::clone(&part),
            pods: 0,
            admitted: 0,
        });
        let number = self.free.pop().unwrap_or(self.known.len() as u32);
        match self.known.get_mut(number as usize) {
            Some(slot) => *slot = fresh,
            None => self.known.push(fresh),
        }
        self.numbers.insert(part, number);
        number
    }

    /// Takes room for parts, if all of them fit; else the limit that they exceed.
    fn admit(&mut self, parts: &[u32]) -> Option<ExceededLimit> {
        let mut taken = self.taken;
        for known in parts.iter().filter_map(|number| self.known(*number)) {
            if known.admitted == 0 {
                taken.add(known.room);
                if let Some(excess) = taken.excess() {
                    return Some(excess);
                }
            }
        }
        self.taken = taken;
        for number in parts {
            if let Some(known) = self.known_mut(*number) {
                known.admitted += 1;
            }
        }
        None
    }

    fn enter(&mut self, key: &str, parts: Vec<Part>) {
        let mut alone = Taken::default();
        parts.iter().for_each(|part| alone.add(part.room()));
        if let Some(excess) = alone.excess() {
            // There will never be room for it, so its parts, which may be many, are not even compared.
            let asking = Asking {
                parts: Box::default(),
                excess: Some(excess),
            };
            self.pods.insert(key.into(), asking);
            return;
        }
        let mut numbers: Vec<u32> = parts.into_iter().map(|part| self.number(part)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in &numbers {
            if let Some(known) = self.known_mut(*number) {
                known.pods += 1;
            }
        }
        let excess = self.admit(&numbers);
        if excess.is_some() {
            self.waiting.insert(key.into());
        }
        let parts = numbers.into_boxed_slice();
        self.pods.insert(key.into(), Asking { parts, excess });
    }

    /// Forgets a pod. Returns whether there is more room now.
    fn leave(&mut self, key: &str) -> bool {
        let Some(asking) = self.pods.remove(key) else {
            return false;
        };
        self.waiting.remove(key);
        let mut more = false;
        for &number in &asking.parts {
            let Some(known) = self.known_mut(number) else { continue };
            known.pods -= 1;
            let mut freed = None;
            if asking.excess.is_none() {
                known.admitted -= 1;
                freed = Some(known.room).filter(|_| known.admitted == 0);
            }
            let unused = (known.pods == 0).then(|| Arc::clone(&known.part));
            if let Some(room) = freed {
                self.taken.subtract(room);
                more = true;
            }
            if let Some(part) = unused {
                self.numbers.remove(&part);
                if let Some(slot) = self.known.get_mut(number as usize) {
                    *slot = None;
                }
                self.free.push(number);
            }
        }
        more
    }

    /// Admits the pods for which there is room now, in the order of their names, and returns them.
    fn admit_waiting(&mut self) -> Vec<Box<str>> {
        let mut admitted = Vec::new();
        for key in std::mem::take(&mut self.waiting) {
            let Some(mut asking) = self.pods.remove(&key) else {
                continue;
            };
            if self.admit(&asking.parts).is_none() {
                asking.excess = None;
                admitted.push(key.clone());
            } else {
                self.waiting.insert(key.clone());
            }
            self.pods.insert(key, asking);
        }
        admitted
    }
}

/// The pods with relations, by namespace.
#[derive(Debug, Default)]
pub struct Room(Table<Name, Here>);

/// What a change of a pod's relations did.
#[derive(Debug, Default)]
pub struct Admission {
    /// Whether the pod itself is set aside now and was not, or was and is not.
    pub turned: bool,
    /// Other pods that are not set aside any more.
    pub admitted: Vec<Box<str>>,
}

impl Room {
    /// Records the relations of a pod, or removes them if it is gone.
    pub fn note_pod(&mut self, key: &str, old: Option<&Pod>, new: Option<&Pod>) -> Admission {
        let asks = |pod: &&Pod| pod.excess.is_none() && relating(pod).is_some();
        let (old, new) = (old.filter(asks), new.filter(asks));
        let Some(namespace) = new.or(old).map(|pod| pod.pod.namespace.clone()) else {
            return Admission::default();
        };
        if old.zip(new).is_some_and(|(old, new)| same_relations(old, new)) {
            return Admission::default();
        }
        let before = self.excess(&namespace, key);
        let here = self.0.entry(namespace.clone()).or_default();
        let more = here.leave(key);
        if let Some((pod, spec)) = new.and_then(|pod| Some((pod, relating(pod)?))) {
            here.enter(key, parts(pod, spec));
        }
        let admitted = if more { here.admit_waiting() } else { Vec::new() };
        if here.pods.is_empty() {
            self.0.remove(&namespace);
        }
        Admission {
            turned: before.is_some() != self.excess(&namespace, key).is_some(),
            admitted,
        }
    }

    /// The limit for which a pod, by its namespace and key, is set aside.
    #[must_use]
    pub fn excess(&self, namespace: &Name, key: &str) -> Option<ExceededLimit> {
        self.0.get(namespace)?.pods.get(key)?.excess
    }
}

/// Whether two versions of a pod surely have the same relations. They depend on its labels by `matchLabelKeys`.
fn same_relations(old: &Pod, new: &Pod) -> bool {
    let further = old.further.as_ref().zip(new.further.as_ref());
    further.is_some_and(|(old, new)| Arc::ptr_eq(old, new)) && old.labels == new.labels
}
