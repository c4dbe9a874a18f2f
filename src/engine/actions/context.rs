//! What stays the same during a cycle.

use crate::engine::fairshare::order::Rules;
use crate::engine::input::Time;
use crate::engine::placement::score::Scorers;
use crate::engine::policy::Policy;

/// What a cycle goes by beside the model.
#[derive(Clone, Copy)]
pub struct CycleContext<'a> {
    /// The settings.
    pub policy: &'a Policy,
    /// Preferences among nodes, as the settings have them.
    pub scorers: &'a Scorers,
    /// Rules of order, as the settings have them.
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
