//! PodDisruptionBudget objects → disruption budgets.
//!
//! Those of one namespace are limited: each of its pods that may be evicted is compared with all of them. Which ones count depends on their names alone, not
//! on the order in which they come.
//!
//! Absent: `unhealthyPodEvictionPolicy`. Unready pods count like others, although the API server may allow their eviction.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;

use super::bounds;
use super::identity::object_key;
use super::{Entry, Mirror, Output, Problem, name, relations};
use crate::api::limits::{self, ExceededLimit};
use crate::engine::input::{BudgetInput, Event, Name, PodSelector};

/// Why a budget does not count although it is sound.
const ONE_TOO_MANY: ExceededLimit = ExceededLimit {
    what: "requirements and values in the disruption budgets of the namespace up to this one",
    limit: limits::BUDGET_ENTRIES_PER_NAMESPACE,
};

/// Reads a budget. While the controller has not observed its latest generation it allows nothing: the API server would refuse every eviction.
#[must_use]
pub fn read(budget: &PodDisruptionBudget) -> BudgetInput {
    let namespace = name(&budget.namespace().unwrap_or_default());
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let status = budget.status.as_ref();
    let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
    let disrupted = disrupted.into_iter().flat_map(BTreeMap::keys);
    let current = status.filter(|status| status.observed_generation >= budget.metadata.generation);
    BudgetInput {
        name: name(&budget.name_any()),
        pods: PodSelector {
            labels: selector.and_then(relations::requirements),
            namespaces: Some([namespace.clone()].into()),
        },
        namespace,
        allowed: current.map_or(0, |status| i64::from(status.disruptions_allowed)),
        disrupted: disrupted.map(|pod| name(pod)).collect(),
    }
}

/// The budgets that exceed no limit of their own, by namespace.
#[derive(Debug, Default)]
pub struct Budgets(BTreeMap<Name, Here>);

/// Those of one namespace.
#[derive(Debug, Default)]
struct Here {
    budgets: BTreeMap<Name, BudgetInput>,
    /// The weight of all.
    weight: usize,
}

fn weight(budget: &BudgetInput) -> usize {
    1 + relations::weight(budget.pods.labels.as_deref().unwrap_or_default())
}

impl Here {
    fn put(&mut self, budget: BudgetInput) {
        let name = budget.name.clone();
        self.remove(&name);
        self.weight += weight(&budget);
        self.budgets.insert(name, budget);
    }

    fn remove(&mut self, name: &Name) {
        if let Some(budget) = self.budgets.remove(name) {
            self.weight -= weight(&budget);
        }
    }

    /// The first budget that does not count; `None`: all count.
    fn first_beyond(&self) -> Option<Name> {
        if self.weight <= limits::BUDGET_ENTRIES_PER_NAMESPACE {
            return None;
        }
        let mut sum = 0;
        let mut all = self.budgets.values();
        let first = all.find(|budget| {
            sum += weight(budget);
            sum > limits::BUDGET_ENTRIES_PER_NAMESPACE
        });
        first.map(|budget| budget.name.clone())
    }

    /// The budgets from one name up to another; `None` comes after all.
    fn between(&self, one: Option<Name>, other: Option<Name>) -> Vec<Name> {
        let (from, to) = match (one, other) {
            (Some(one), Some(other)) => (one.clone().min(other.clone()), Bound::Excluded(one.max(other))),
            (Some(from), None) | (None, Some(from)) => (from, Bound::Unbounded),
            (None, None) => return Vec::new(),
        };
        // A range from a name up to itself is not allowed.
        if to == Bound::Excluded(from.clone()) {
            return Vec::new();
        }
        let range = self.budgets.range((Bound::Included(from), to));
        range.map(|(name, _)| name.clone()).collect()
    }
}

impl Budgets {
    fn first_beyond(&self, namespace: &Name) -> Option<Name> {
        self.0.get(namespace).and_then(Here::first_beyond)
    }

    /// Records or removes a budget.
    fn change(&mut self, namespace: &Name, name: &Name, budget: Option<BudgetInput>) -> Changed {
        let before = self.first_beyond(namespace);
        let here = self.0.entry(namespace.clone()).or_default();
        match budget {
            Some(budget) => here.put(budget),
            None => here.remove(name),
        }
        let after = here.first_beyond();
        let mut others = here.between(before, after.clone());
        others.retain(|other| other != name);
        if here.budgets.is_empty() {
            self.0.remove(namespace);
        }
        Changed {
            others,
            first_beyond: after,
        }
    }
}

/// What a change of a budget did.
struct Changed {
    /// The others that count from now on, or do not any more.
    others: Vec<Name>,
    /// The first budget of the namespace that does not count; `None`: all count.
    first_beyond: Option<Name>,
}

impl Mirror {
    /// Tells the engine of a budget, or that it is gone or does not count. `excess`: its own.
    fn tell_budget(
        &mut self,
        namespace: &Name,
        name: &Name,
        counts: bool,
        excess: Option<ExceededLimit>,
        out: &mut Output,
    ) {
        let sound = self.budgets.0.get(namespace).and_then(|here| here.budgets.get(name));
        let excess = excess.or(sound.filter(|_| !counts).map(|_| ONE_TOO_MANY));
        let event = match sound {
            Some(budget) if counts => Event::Budget(Box::new(budget.clone())),
            Some(_) | None => Event::BudgetGone {
                namespace: namespace.clone(),
                name: name.clone(),
            },
        };
        let key = || object_key(namespace, name);
        self.aside.limit("PodDisruptionBudget", key, excess);
        if let Some(excess) = excess {
            let problem = Problem::ExceededLimit(excess);
            out.reject("PodDisruptionBudget", namespace, name, problem);
        }
        out.events.push(event);
    }
}

impl Entry for PodDisruptionBudget {
    type Packed = Self;
    fn trim(&mut self) {
        bounds::cut_budget(self);
    }
    fn changed(object: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let (namespace, budget) = (name(&object.namespace().unwrap_or_default()), name(&object.name_any()));
        let excess = bounds::of_budget(object).filter(|_| there);
        let sound = (there && excess.is_none()).then(|| read(object));
        let Changed { others, first_beyond } = mirror.budgets.change(&namespace, &budget, sound);
        let counts = |name: &Name| first_beyond.as_ref().is_none_or(|beyond| name < beyond);
        mirror.tell_budget(&namespace, &budget, counts(&budget), excess, out);
        for other in others {
            mirror.tell_budget(&namespace, &other, counts(&other), None, out);
        }
    }
}

#[cfg(test)]
mod tests;
