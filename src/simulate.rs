//! The scheduler on virtual time: a cluster and a stream of jobs in, a report on the jobs out.
//!
//! Objects go through mirror and engine as in the operator; binds and evictions are carried out as a cluster would, at once or after the time that
//! pods take to leave. Nothing here decides, waits or knows the time of day: the same scenario gives the same report. Absent: kubelets that fail,
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
pub use world::run;

#[cfg(test)]
mod tests;
