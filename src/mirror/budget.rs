//! PodDisruptionBudget objects → disruption budgets.
//!
//! Absent: `unhealthyPodEvictionPolicy`. Unready pods count like others, although the API server may allow their eviction.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;

use super::identity::object_key;
use super::{Entry, Mirror, Output, Problem, bounds, name, relations};
use crate::engine::input::{BudgetInput, Event, PodSelector};

/// Reads a budget. While the controller has not observed its latest generation it allows nothing: the API server would refuse every eviction.
#[must_use]
pub fn read(budget: &PodDisruptionBudget) -> BudgetInput {
    let namespace = name(&budget.namespace().unwrap_or_default());
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let status = budget.status.as_ref();
    let current = status.filter(|status| status.observed_generation >= budget.metadata.generation);
    BudgetInput {
        name: name(&budget.name_any()),
        pods: PodSelector {
            labels: selector.and_then(relations::requirements),
            namespaces: Some(vec![namespace.clone()]),
        },
        namespace,
        allowed: current.map_or(0, |status| i64::from(status.disruptions_allowed)),
    }
}

impl Entry for PodDisruptionBudget {
    type Packed = Self;
    fn trim(&mut self) {
        bounds::cut_budget(self);
    }
    fn changed(object: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let (namespace, budget) = (object.namespace().unwrap_or_default(), object.name_any());
        let excess = bounds::of_budget(object).filter(|_| there);
        let key = object_key(&namespace, &budget);
        mirror.aside.limit("PodDisruptionBudget", || key.clone(), excess);
        if there && excess.is_none() {
            out.events.push(Event::Budget(Box::new(read(object))));
            return;
        }
        if let Some(excess) = excess {
            out.reject(
                "PodDisruptionBudget",
                &namespace,
                &budget,
                Problem::ExceededLimit(excess),
            );
        }
        out.events.push(Event::BudgetGone {
            namespace: name(&namespace),
            name: name(&budget),
        });
    }
}

#[cfg(test)]
mod tests;
