//! unikai: a Kubernetes scheduler for AI workloads in one process. `docs/ARCHITECTURE.md` describes the modules.

pub mod api;
pub mod cli;
pub mod clock;
pub mod components;
pub mod config;
#[cfg(feature = "devcluster")]
pub mod devcluster;
pub mod engine;
mod fuzz;
pub mod kinds;
pub mod mirror;
pub mod numa_exporter;
pub mod operator;
pub mod random;
pub mod rules;
pub mod scheduler_core;
pub mod simulate;
pub mod snapshot;
pub mod usage;
pub mod workloads;
