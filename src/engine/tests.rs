//! Tests of the engine through its front door: events in, decisions out.

mod events;
mod properties;
mod scenario;
mod tables;

pub(in crate::engine) use scenario::{group, node};
