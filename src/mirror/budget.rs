//! PodDisruptionBudget objects → disruption budgets.
//!
//! Absent: the policy for pods that run but are not ready. They count as all others do, where the API server may let some of them go.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;

use super::{name, relations};
use crate::engine::input::{BudgetInput, PodSelector};

/// Reads a budget. One that the API server's controller has not looked at since it changed allows nothing yet: every eviction would be refused.
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

#[cfg(test)]
mod tests;
