//! The actions of a cycle, run in the policy's order, and the parts that they share.

pub mod allocate;
pub mod budgets;
pub mod capacity;
pub mod conclude;
pub mod context;
pub mod cycle;
pub mod cycle_log;
pub mod node_scratch;
pub mod place;
pub mod skip;
pub mod spare;
pub mod stale;
pub mod turns;
pub mod unbound;
pub mod unschedulable;
pub mod victims;
