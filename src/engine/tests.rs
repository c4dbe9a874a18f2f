//! Tests of the engine through its front door: events in, decisions out.

mod below_minimum;
mod bounds;
mod carry;
mod charged_elsewhere;
mod device_searches;
mod devices;
mod events;
mod evictions_in_vain;
pub mod faults;
mod growth;
pub mod holdings;
mod incidents;
mod limits;
mod plain;
mod properties;
mod refresh;
mod reports;
pub mod scenario;
mod spare;
mod tables;
mod verdicts;

pub(in crate::engine) use scenario::{group, node, sub_group};
