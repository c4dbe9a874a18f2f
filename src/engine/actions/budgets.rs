//! Whether disruption budgets allow evictions.

use crate::engine::model::Model;
use crate::engine::model::ids::PodId;
use crate::engine::policy::{DisruptionBudgets, Policy};

/// Whether no budget counts: the policy ignores them, or there are none.
#[must_use]
pub fn unbudgeted(model: &Model, policy: &Policy) -> bool {
    policy.disruption_budgets == DisruptionBudgets::Ignore || model.budgets().is_empty()
}

/// Whether budgets allow that all of these are evicted.
pub fn within_budgets(model: &Model, policy: &Policy, pods: impl Iterator<Item = PodId>) -> bool {
    unbudgeted(model, policy) || model.budgets().allow(pods.map(|pod| &*model.pods()[pod].input))
}
