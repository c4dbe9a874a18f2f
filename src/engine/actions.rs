//! What a cycle does, in the policy's order.

pub mod allocate;
pub mod capacity;
pub mod node_scratch;
pub mod place;
pub mod session;
pub mod skip;
pub mod spare;
pub mod stale;
pub mod victims;
