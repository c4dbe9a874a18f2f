//! The inputs of a cycle that do not change while it runs.

use crate::engine::fairshare::order::Rules;
use crate::engine::input::Time;
use crate::engine::placement::score::Scorers;
use crate::engine::policy::Policy;

/// The inputs of a cycle beside the model.
#[derive(Clone, Copy)]
pub struct CycleContext<'a> {
    /// The settings.
    pub policy: &'a Policy,
    /// The score terms that the policy switches on.
    pub scorers: &'a Scorers,
    /// The rules of order that the policy switches on.
    pub rules: Rules,
    /// The time of the cycle.
    pub now: Time,
}

impl<'a> CycleContext<'a> {
    /// The context of a cycle.
    #[must_use]
    pub fn new(policy: &'a Policy, scorers: &'a Scorers, now: Time) -> Self {
        Self {
            policy,
            scorers,
            rules: Rules::of(policy),
            now,
        }
    }
}
