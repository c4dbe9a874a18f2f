//! PodDisruptionBudgets: how many of the selected pods may still be evicted.
//!
//! Only pods that run count; the API server evicts all others regardless of budgets. A decided eviction is deducted from the budget at once, until an
//! event about the budget includes it: one that lists the pod as disrupted, or that comes when the pod terminates.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::engine::input::{BudgetInput, Name, PodInput, PodStatus};

use super::relations::{Labelled, selects};

/// All budgets, by namespace and name.
#[derive(Debug, Default)]
pub struct Budgets {
    budgets: BTreeMap<Name, BTreeMap<Name, Budget>>,
    /// Pods, by uid, whose eviction is deducted from budgets: namespace and names of the budgets.
    spent: BTreeMap<Name, (Name, SmallVec<[Name; 1]>)>,
}

/// A budget, and what is deducted from its number.
#[derive(Debug)]
struct Budget {
    input: BudgetInput,
    /// Pods by uid.
    spent: BTreeSet<Name>,
}

impl Budget {
    fn counts(&self, pod: &PodInput) -> bool {
        pod.status == PodStatus::Running && selects(&self.input.pods, pod)
    }

    fn left(&self) -> i64 {
        self.input.allowed - self.spent.len() as i64
    }
}

impl Budgets {
    /// Replaces a budget. Its number includes the evictions of pods that it lists, and of those that do not run any more. `pod` finds pods by
    /// uid. False if nothing changed.
    pub fn put<'p>(&mut self, input: BudgetInput, pod: impl Fn(&Name) -> Option<&'p PodInput>) -> bool {
        let known = self.take(&input.namespace, &input.name);
        let same = known.as_ref().is_some_and(|known| known.input == input);
        let before = known.map(|known| known.spent).unwrap_or_default();
        let count = before.len();
        let is_left = |uid: &Name| {
            let running = pod(uid).filter(|pod| pod.status == PodStatus::Running);
            running.is_some_and(|pod| !input.disrupted.contains(&pod.pod.name))
        };
        let spent: BTreeSet<Name> = before.into_iter().filter(is_left).collect();
        let news = !same || spent.len() < count;
        for pod in &spent {
            self.note_spent(pod, &input.namespace, &input.name);
        }
        let here = self.budgets.entry(input.namespace.clone()).or_default();
        here.insert(input.name.clone(), Budget { input, spent });
        news
    }

    fn note_spent(&mut self, pod: &Name, namespace: &Name, name: &Name) {
        let own = || (namespace.clone(), SmallVec::new());
        let (_, names) = self.spent.entry(pod.clone()).or_insert_with(own);
        names.push(name.clone());
    }

    /// Removes a budget; false if it was not known.
    pub fn remove(&mut self, namespace: &Name, name: &Name) -> bool {
        let known = self.take(namespace, name).is_some();
        if self.budgets.get(namespace).is_some_and(BTreeMap::is_empty) {
            self.budgets.remove(namespace);
        }
        known
    }

    fn take(&mut self, namespace: &Name, name: &Name) -> Option<Budget> {
        let budget = self.budgets.get_mut(namespace)?.remove(name)?;
        for pod in &budget.spent {
            if let Some((_, names)) = self.spent.get_mut(pod) {
                names.retain(|other| other != name);
                if names.is_empty() {
                    self.spent.remove(pod);
                }
            }
        }
        Some(budget)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.budgets.is_empty()
    }

    /// The budgets that select a pod.
    fn of<'b>(&'b self, pod: &'b PodInput) -> impl Iterator<Item = (&'b Name, &'b Budget)> {
        let here = self.budgets.get(&pod.pod.namespace);
        let here = here.filter(|_| pod.status == PodStatus::Running);
        let pod = Labelled::of(pod, here.map_or(0, BTreeMap::len));
        let all = here.into_iter().flatten();
        all.filter(move |(_, budget)| pod.is_selected_by(&budget.input.pods))
    }

    /// Whether all of these pods together may be evicted. The API server never evicts a pod that two budgets select.
    pub fn allow<'p>(&'p self, pods: impl Iterator<Item = &'p PodInput>) -> bool {
        let mut lost: BTreeMap<(&Name, &Name), i64> = BTreeMap::new();
        for pod in pods {
            let mut own = self.of(pod);
            let Some((name, budget)) = own.next() else { continue };
            let lost = lost.entry((&budget.input.namespace, name)).or_insert(0);
            *lost += 1;
            if *lost > budget.left() || own.next().is_some() {
                return false;
            }
        }
        true
    }

    /// A budget, by namespace and name, that does not allow to evict all of these pods together.
    pub fn against<'b>(&'b self, pods: impl Iterator<Item = &'b PodInput>) -> Option<(&'b Name, &'b Name)> {
        let mut lost: BTreeMap<(&Name, &Name), i64> = BTreeMap::new();
        for pod in pods {
            let own: Vec<_> = self.of(pod).collect();
            for (name, budget) in &own {
                let key = (&budget.input.namespace, *name);
                let lost = lost.entry(key).or_insert(0);
                *lost += 1;
                if *lost > budget.left() || own.len() > 1 {
                    return Some(key);
                }
            }
        }
        None
    }

    /// Which of these pods, all deducted already, exceed which budgets, by the pods' uids. Pods at the front are within the budget.
    pub fn exceeded(&self, evicted: &[&PodInput]) -> BTreeMap<Name, Vec<Name>> {
        let uids: BTreeSet<&Name> = evicted.iter().map(|pod| &pod.pod.uid).collect();
        let before = |budget: &Budget| budget.spent.iter().filter(|uid| !uids.contains(uid)).count() as i64;
        let mut left: BTreeMap<(&Name, &Name), i64> = BTreeMap::new();
        let mut exceeded = BTreeMap::new();
        for pod in evicted {
            let own: Vec<_> = self.of(pod).collect();
            let mut names: Vec<Name> = Vec::new();
            for (name, budget) in &own {
                let key = (&budget.input.namespace, *name);
                let left = left.entry(key).or_insert_with(|| budget.input.allowed - before(budget));
                *left -= 1;
                if *left < 0 || own.len() > 1 {
                    names.push((*name).clone());
                }
            }
            if !names.is_empty() {
                exceeded.insert(pod.pod.uid.clone(), names);
            }
        }
        exceeded
    }

    /// Deducts a pod's eviction.
    pub fn spend(&mut self, pod: &PodInput) {
        let here = self.budgets.get_mut(&pod.pod.namespace).into_iter().flatten();
        let mut spent = Vec::new();
        for (name, budget) in here {
            if budget.counts(pod) && budget.spent.insert(pod.pod.uid.clone()) {
                spent.push(name.clone());
            }
        }
        for name in spent {
            self.note_spent(&pod.pod.uid, &pod.pod.namespace, &name);
        }
    }

    /// Gives back a pod's deduction, because it is not evicted after all or is gone. Budgets whose number includes the eviction by now are not changed.
    pub fn refund(&mut self, pod: &Name) {
        let Some((namespace, names)) = self.spent.remove(pod) else {
            return;
        };
        let Some(here) = self.budgets.get_mut(&namespace) else {
            return;
        };
        for name in names {
            if let Some(budget) = here.get_mut(&name) {
                budget.spent.remove(pod);
            }
        }
    }
}

#[cfg(test)]
mod tests;
