//! Finds the counters that a pod may belong to, by its namespace and labels, so that it is compared with few selectors.

use crate::engine::input::{Name, NodeRequirement, PodInput, PodSelector, SelectorOp, Table};

use super::{CounterId, Counters};

/// A counter with more namespaces than these is checked for pods of all namespaces.
const NAMESPACES_LISTED: usize = 64;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Counters of pods in some namespaces only: relations within one namespace cost nothing in others.
    in_namespace: Table<Name, Candidates>,
    /// All other counters.
    anywhere: Candidates,
}

impl Index {
    /// Adds a counter of the pods that all of these selectors select.
    pub fn add(&mut self, id: CounterId, pods: &[PodSelector]) {
        let mut requirements = pods.iter().flat_map(|selector| selector.labels.iter().flatten());
        let listed = requirements.find(|requirement| requirement.op == SelectorOp::In);
        let namespaces = pods.iter().filter_map(|selector| selector.namespaces.as_ref());
        let few = namespaces.filter(|namespaces| namespaces.len() <= NAMESPACES_LISTED);
        match few.min_by_key(|namespaces| namespaces.len()) {
            Some(namespaces) => {
                for namespace in namespaces.iter() {
                    let here = self.in_namespace.entry(namespace.clone()).or_default();
                    here.add(id, listed);
                }
            }
            None => self.anywhere.add(id, listed),
        }
    }

    /// The namespaces of all pods that may belong to its counters; `None`: any.
    #[must_use]
    pub fn namespaces(&self) -> Option<impl Iterator<Item = &Name>> {
        self.anywhere.is_empty().then(|| self.in_namespace.keys())
    }

    /// The counters that a pod may belong to, sorted.
    #[must_use]
    pub fn candidates(&self, pod: &PodInput) -> Counters {
        let here = self.in_namespace.get(&pod.pod.namespace).into_iter();
        let all = here.chain([&self.anywhere]);
        let mut found: Counters = all.flat_map(|candidates| candidates.of(pod)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Counters of one namespace, or of any, indexed by label.
#[derive(Clone, Debug, Default)]
struct Candidates {
    /// Those that require one of some values of a label.
    by_label: Table<Name, Table<Name, Vec<CounterId>>>,
    /// All others.
    by_nothing: Vec<CounterId>,
}

impl Candidates {
    fn add(&mut self, id: CounterId, listed: Option<&NodeRequirement>) {
        let Some(requirement) = listed else {
            return self.by_nothing.push(id);
        };
        let by_value = self.by_label.entry(requirement.key.clone()).or_default();
        for value in &requirement.values {
            by_value.entry(value.clone()).or_default().push(id);
        }
    }

    fn is_empty(&self) -> bool {
        self.by_label.is_empty() && self.by_nothing.is_empty()
    }

    fn of<'c>(&'c self, pod: &'c PodInput) -> impl Iterator<Item = CounterId> + 'c {
        let labelled = |(key, value): (&str, &str)| self.by_label.get(key)?.get(value);
        let labels = (!self.by_label.is_empty()).then(|| pod.labels.iter());
        let listed = labels.into_iter().flatten().filter_map(labelled);
        listed.flatten().chain(&self.by_nothing).copied()
    }
}
