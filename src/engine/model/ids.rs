//! Dense ids: positions in the model's arenas.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The position.
            #[must_use]
            pub fn at(self) -> usize {
                self.0 as usize
            }

            /// The id of a position.
            #[must_use]
            pub fn of(position: usize) -> Self {
                Self(u32::try_from(position).expect("fewer than 2^32 things"))
            }
        }
    )*};
}

ids! {
    /// A node.
    NodeId,
    /// A pod.
    TaskId,
    /// A pod group.
    GangId,
    /// A queue.
    QueueId,
    /// A set of pods with the same static placement constraints.
    ClassId,
    /// A request that many pods share.
    ShapeId,
    /// A count of pods by a node label.
    CounterId,
    /// A pool of devices that pods claim.
    PoolId,
    /// A device that pods claim.
    DeviceId,
    /// A claim for devices.
    ClaimId,
}
