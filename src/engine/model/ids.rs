//! Dense ids: positions in the model's arenas.

use std::num::NonZeroU32;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The position.
            #[must_use]
            pub fn at(self) -> usize {
                self.0.get() as usize - 1
            }

            /// The id of a position.
            #[must_use]
            pub fn of(position: usize) -> Self {
                let position = u32::try_from(position).ok();
                // Position + 1, so that `Option` of an id needs no extra space.
                let number = position.and_then(|position| NonZeroU32::MIN.checked_add(position));
                Self(number.expect("fewer than 2^32 things"))
            }
        }
    )*};
}

ids! {
    /// A node.
    NodeId,
    /// A pod.
    PodId,
    /// A pod group.
    PodGroupId,
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
