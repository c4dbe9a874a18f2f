//! The watched kinds, in one table. All code with a part for each kind is generated from it: the enums below, the
//! match over them in the mirror, watches and stores, the rights to list and watch in the manifests, the members that `unikai replay` reads of a
//! snapshot, and the counts on `/state`.
//!
//! A new kind is a row in [`kinds!`], its type in [`types`], and an `impl mirror::Entry` that turns its objects into events of the engine.

use std::borrow::Cow;
use std::sync::Arc;

use kube::Resource;

/// The Rust type of each kind, under the kind's name.
pub mod types {
    pub use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
    pub use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    pub use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
    pub use k8s_openapi::api::scheduling::v1::PriorityClass;
    pub use k8s_openapi::api::storage::v1::{
        CSIDriver as CsiDriver, CSINode as CsiNode, CSIStorageCapacity as CsiStorageCapacity, StorageClass,
        VolumeAttachment,
    };

    pub use crate::api::{BindRequest, NodeResourceTopology, PodGroup, Queue, Topology};

    /// A ConfigMap, of which nothing but its metadata is read.
    pub type ConfigMap = kube::core::PartialObjectMeta<k8s_openapi::api::core::v1::ConfigMap>;
}

/// The table. `kinds!(name)` expands the macro `name` with its rows:
///
/// - the kind, which is also the name of its type in [`types`], and the field of its store, whose name in camelCase is also the kind's on
///   `/state` and in snapshots;
/// - `Required`: nothing is decided before it is listed; or `Optional`: the API server may not serve it, or we may not read it, and then
///   it counts as having no objects;
/// - when it is watched ([`Condition`]);
/// - `Whole`, or `Metadata` if only the metadata of objects is requested;
/// - which components get its changes besides the scheduler, which gets all ([`Listener`]).
///
/// Kinds that others depend on come first: a new mirror reads all objects in this order.
macro_rules! kinds {
    ($expand:ident) => {
        $expand! {
            /// Priority classes.
            PriorityClass, priority_classes, Required, Always, Whole, [Grouper PodGroups];
            /// Topologies.
            Topology, topologies, Required, Always, Whole, [];
            /// Namespaces.
            Namespace, namespaces, Required, Always, Whole, [Grouper PodGroups];
            /// The NUMA zones of nodes. Agents write them all the time.
            NodeResourceTopology, node_resource_topologies, Optional, WithNuma, Whole, [];
            /// ConfigMaps, by name.
            ConfigMap, config_maps, Required, WithConfigMaps, Metadata, [];
            /// Classes of devices.
            DeviceClass, device_classes, Optional, Always, Whole, [];
            /// Devices that drivers offer.
            ResourceSlice, resource_slices, Optional, Always, Whole, [];
            /// Storage classes.
            StorageClass, storage_classes, Optional, Always, Whole, [];
            /// Storage drivers.
            CsiDriver, csi_drivers, Optional, Always, Whole, [];
            /// The storage drivers of each node.
            CsiNode, csi_nodes, Optional, Always, Whole, [];
            /// The free capacity of storage drivers.
            CsiStorageCapacity, csi_storage_capacities, Optional, Always, Whole, [];
            /// Volumes that are attached to nodes.
            VolumeAttachment, volume_attachments, Optional, Always, Whole, [];
            /// Volumes.
            PersistentVolume, persistent_volumes, Optional, Always, Whole, [BinderOnceListed];
            /// Claims on volumes.
            PersistentVolumeClaim, persistent_volume_claims, Optional, Always, Whole, [BinderOnceListed];
            /// Queues.
            Queue, queues, Required, Always, Whole, [Queues];
            /// Nodes.
            Node, nodes, Required, Always, Whole, [PodGroups Binder];
            /// Bind requests.
            BindRequest, bind_requests, Required, Always, Whole, [Binder];
            /// Claims for devices.
            ResourceClaim, resource_claims, Optional, Always, Whole, [PodGroups Binder];
            /// Disruption budgets.
            PodDisruptionBudget, pod_disruption_budgets, Optional, Always, Whole, [];
            /// Pod groups.
            PodGroup, pod_groups, Required, Always, Whole, [Grouper PodGroups];
            /// Pods, of all schedulers: the others' pods use up nodes too.
            Pod, pods, Required, Always, Whole, [Grouper PodGroups Binder ScaleUp];
        }
    };
}
pub(crate) use kinds;

/// Whether a cluster can lack the kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

/// When a kind is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// In every cluster.
    Always,
    /// If the NUMA zones of nodes count.
    WithNuma,
    /// If pods wait for their ConfigMaps. The right to list and watch them is not among the others, but in `manifests/config-maps/`.
    WithConfigMaps,
}

/// Components that get changes, besides the scheduler. None does anything before every kind whose changes it gets has been listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The grouper.
    Grouper,
    /// The component `podgroups`.
    PodGroups,
    /// The component `queues`.
    Queues,
    /// The binder.
    Binder,
    /// The binder, which only gets the message that all are listed: it reads objects from the store.
    BinderOnceListed,
    /// The component `scaleup`.
    ScaleUp,
}

macro_rules! define {
    ($($(#[$doc:meta])* $kind:ident, $store:ident, $presence:ident, $condition:ident, $form:ident, [$($listener:ident)*];)*) => {
        /// A kind that is watched. There is one watch each for the whole process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        /// A watched object. Shared: all receivers hold the same allocation, and so does the store of the watch, unless it keeps the kind compact.
        #[derive(Clone, Debug)]
        pub enum Object {
            $($(#[$doc])* $kind(Arc<types::$kind>),)*
        }

        impl Object {
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }
        }

        impl Kind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            fn presence(self) -> Presence {
                match self { $(Self::$kind => Presence::$presence,)* }
            }

            /// When it is watched.
            #[must_use]
            pub fn condition(self) -> Condition {
                match self { $(Self::$kind => Condition::$condition,)* }
            }

            /// Components that get its changes besides the scheduler.
            #[must_use]
            pub fn listeners(self) -> &'static [Listener] {
                match self { $(Self::$kind => &[$(Listener::$listener),*],)* }
            }

            /// The plural name, as in `kubectl get`.
            #[must_use]
            pub fn plural(self) -> &'static str {
                match self { $(Self::$kind => literal(types::$kind::plural(&())),)* }
            }

            /// Its API group; empty for that of Kubernetes' core.
            #[must_use]
            pub fn group(self) -> &'static str {
                match self { $(Self::$kind => literal(types::$kind::group(&())),)* }
            }
        }
    };
}
kinds!(define);

impl Kind {
    /// Whether the API server may not serve it, or not let us read it; then it counts as having no objects.
    #[must_use]
    pub fn optional(self) -> bool {
        self.presence() == Presence::Optional
    }

    /// The kinds whose changes one of these gets.
    #[must_use]
    pub fn told_to(listeners: &[Listener]) -> Vec<Self> {
        let is_told = |kind: &Self| kind.listeners().iter().any(|listener| listeners.contains(listener));
        Self::ALL.iter().copied().filter(is_told).collect()
    }
}

/// Names of kinds that are known when the program is built.
fn literal(name: Cow<'static, str>) -> &'static str {
    match name {
        Cow::Borrowed(name) => name,
        Cow::Owned(_) => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    macro_rules! stores {
        ($($(#[$doc:meta])* $kind:ident, $store:ident, $presence:ident, $condition:ident, $form:ident, $listeners:tt;)*) => {
            const STORES: &[&str] = &[$(stringify!($store)),*];
        };
    }
    kinds!(stores);

    #[test]
    fn stores_are_named_after_their_kind() {
        let plurals: Vec<_> = Kind::ALL.iter().map(|kind| kind.plural()).collect();
        let stores: Vec<_> = STORES.iter().map(|store| store.replace('_', "")).collect();
        assert_eq!(plurals, stores);
        assert_eq!(
            plurals.iter().collect::<BTreeSet<_>>().len(),
            plurals.len(),
            "each once"
        );
    }

    #[test]
    fn components_that_get_changes_of_each_kind() {
        use Kind::{
            BindRequest, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodGroup, PriorityClass,
            ResourceClaim,
        };
        assert_eq!(
            Kind::told_to(&[Listener::Grouper]),
            [PriorityClass, Namespace, PodGroup, Pod]
        );
        assert_eq!(
            Kind::told_to(&[Listener::Binder, Listener::BinderOnceListed]),
            [
                PersistentVolume,
                PersistentVolumeClaim,
                Node,
                BindRequest,
                ResourceClaim,
                Pod
            ]
        );
        assert!(Kind::ResourceSlice.optional() && !Pod.optional());
    }
}
