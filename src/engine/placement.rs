//! Filtering and scoring of nodes for a pod.

pub mod bounds;
pub mod choose;
pub mod claims;
pub mod devices;
pub mod domains;
pub mod gpu;
pub mod neighbours;
pub mod numa;
pub mod preferred;
pub mod resources;
pub mod rules;
pub mod score;
pub mod volumes;
