//! Why not: reasons as data, and KAI's words for them.

pub mod domains;
pub mod eviction;
pub mod hold;
pub mod queue;
pub mod refusal;
pub mod report;
mod standing;
