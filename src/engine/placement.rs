//! Which nodes a pod fits, and which of them is best.

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
