//! How a pod's place counts on its node.

/// How a place counts on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Held, and not releasing.
    Staying,
    /// Held by a releasing pod.
    Leaving,
    /// Pipelined.
    Planned,
}
