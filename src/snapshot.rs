//! A cluster as one file, in the format of KAI's snapshots: written from objects as they are known, and read into what a scheduler is told.
//!
//! What decides here and has no place in that format stands in members of our own, which KAI passes over. Pure: no clock, no client.

mod format;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{Snapshot, read, verify};
pub use write::{Cluster, Place, write};
