//! Why pod groups wait and pods are evicted: reasons as data, and KAI's messages for them.

pub mod domains;
pub mod eviction;
pub mod hold;
pub mod queue;
pub mod refusal;
pub mod report;
mod standing;
