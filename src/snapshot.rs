//! A cluster as one file, in the format of KAI's snapshots: written from the watched objects, and read into changes for the mirror.
//!
//! Settings without a place in that format are in members of our own, which KAI ignores. Pure: no clock, no client.

mod format;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{Snapshot, read, verify};
pub use write::{Cluster, Place, write};
