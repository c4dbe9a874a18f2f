//! The scheduler on virtual time: a cluster and a stream of jobs in, a report on the jobs out.
//!
//! Objects go through mirror and engine as in the operator; binds and evictions take effect as in a cluster, at once or after the time that
//! pods take to terminate. Deterministic: the same scenario gives the same report. Absent: failing kubelets,
//! claims and volumes.

mod event_queue;
mod objects;
mod occupancy;
mod report;
mod scenario;
mod timeline;
mod traces;
mod world;

pub use report::{Report, Times};
pub use scenario::Scenario;
pub use traces::{jobs, openb};
pub use world::{Advance, run};

#[cfg(test)]
mod tests;
