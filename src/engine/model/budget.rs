//! Disruption budgets: how many of some pods may still be evicted.
//!
//! Only pods that run count; the API server evicts all others whatever their budget says. What is decided is taken off a budget at once; the next event
//! about it tells the truth again.

use std::collections::BTreeMap;

use crate::engine::input::{BudgetInput, Name, PodInput, PodStatus};

use super::relations::selects;

/// All budgets, by namespace and name.
#[derive(Debug, Default)]
pub struct Budgets(BTreeMap<Name, BTreeMap<Name, BudgetInput>>);

impl Budgets {
    /// Takes in a budget; false if it was known just so.
    pub fn put(&mut self, budget: BudgetInput) -> bool {
        let here = self.0.entry(budget.namespace.clone()).or_default();
        here.insert(budget.name.clone(), budget.clone()).as_ref() != Some(&budget)
    }

    /// Forgets a budget; false if it was not known.
    pub fn remove(&mut self, namespace: &Name, name: &Name) -> bool {
        let Some(here) = self.0.get_mut(namespace) else {
            return false;
        };
        let known = here.remove(name).is_some();
        if here.is_empty() {
            self.0.remove(namespace);
        }
        known
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of these pods together may be evicted. The API server never evicts a pod that two budgets speak of.
    pub fn allow<'p>(&self, pods: impl Iterator<Item = &'p PodInput>) -> bool {
        let mut lost: BTreeMap<(&Name, &Name), i64> = BTreeMap::new();
        for pod in pods {
            let here = self.0.get(&pod.pod.namespace).into_iter().flatten();
            let mut own = here.filter(|(_, budget)| counts(budget, pod));
            let Some((name, budget)) = own.next() else { continue };
            let lost = lost.entry((&budget.namespace, name)).or_insert(0);
            *lost += 1;
            if *lost > budget.allowed || own.next().is_some() {
                return false;
            }
        }
        true
    }

    /// A pod is being evicted (`by` 1), or is not after all (-1).
    pub fn spend(&mut self, pod: &PodInput, by: i64) {
        let here = self.0.get_mut(&pod.pod.namespace).into_iter().flatten();
        for (_, budget) in here.filter(|(_, budget)| counts(budget, pod)) {
            budget.allowed -= by;
        }
    }
}

fn counts(budget: &BudgetInput, pod: &PodInput) -> bool {
    pod.status == PodStatus::Running && selects(&budget.pods, pod)
}
