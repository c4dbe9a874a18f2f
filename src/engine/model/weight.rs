//! How a pod counts where it is, or will be.

/// How a place weighs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// There to stay.
    Staying,
    /// There, and leaving.
    Leaving,
    /// Not there yet.
    Planned,
}
