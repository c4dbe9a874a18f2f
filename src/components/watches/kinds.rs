//! What differs between the watched kinds: their type, their place in the store and on the bus, and what can be thrown away.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::Resource;
use serde::de::DeserializeOwned;

use super::charged::Charged;
use super::{Feed, Key, Store, Stores, watch, watch_metadata};
use crate::api::names::annotation;
use crate::api::{BindRequest, NodeResourceTopology, PodGroup, Queue, Topology};
use crate::components::Error;
use crate::components::bus::{Kind, Object, StorageObject};
use crate::mirror::{ConfigMapMeta, bounds, leaner};

/// A kind that is watched.
pub trait Watched: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    /// Which one.
    const KIND: Kind;
    /// As an object on the bus.
    fn object(object: Arc<Self>) -> Object;
    /// Its store.
    fn store(stores: &Stores) -> &Store<Self>;
    /// Drops what is large and never read.
    fn trim(&mut self) {
        self.meta_mut().managed_fields = None;
        self.trim_more();
    }
    /// What is large and never read in this kind only.
    fn trim_more(&mut self) {}
    /// Puts back what does not change any more, whatever is written into it; says which other objects are to be looked at again.
    fn settle(&mut self, _before: impl FnOnce() -> Option<Arc<Self>>, _charged: &mut Charged) -> Vec<Key> {
        Vec::new()
    }
    /// The object as it counts now that more is known, if that is different. `first`: nothing but its own words was known.
    fn again(&self, _charged: &mut Charged, _first: bool) -> Option<Self> {
        None
    }
    /// The object is gone.
    fn leave(&self, _charged: &mut Charged) {}
}

macro_rules! watched {
    ($kind:ident, $store:ident $(, $trim:item)?) => {
        impl Watched for $kind {
            const KIND: Kind = Kind::$kind;
            fn object(object: Arc<Self>) -> Object {
                Object::$kind(object)
            }
            fn store(stores: &Stores) -> &Store<Self> {
                &stores.$store
            }
            $($trim)?
        }
    };
}

macro_rules! storage {
    ($type:ident, $kind:ident, $object:ident, $store:ident) => {
        impl Watched for $type {
            const KIND: Kind = Kind::$kind;
            fn object(object: Arc<Self>) -> Object {
                Object::Storage(StorageObject::$object(object))
            }
            fn store(stores: &Stores) -> &Store<Self> {
                &stores.$store
            }
        }
    };
}

storage!(
    PersistentVolumeClaim,
    PersistentVolumeClaim,
    Claim,
    persistent_volume_claims
);
storage!(PersistentVolume, PersistentVolume, Volume, persistent_volumes);
storage!(StorageClass, StorageClass, Class, storage_classes);
storage!(CSIDriver, CsiDriver, Driver, csi_drivers);
storage!(CSINode, CsiNode, Node, csi_nodes);
storage!(CSIStorageCapacity, CsiStorageCapacity, Capacity, csi_storage_capacities);
storage!(VolumeAttachment, VolumeAttachment, Attachment, volume_attachments);
watched!(Namespace, namespaces);
watched!(PriorityClass, priority_classes);
watched!(Queue, queues);
watched!(
    PodGroup,
    pod_groups,
    fn trim_more(&mut self) {
        bounds::cut_group(self);
    }
);
watched!(BindRequest, bind_requests);
watched!(Topology, topologies);
watched!(DeviceClass, device_classes);
watched!(ResourceSlice, resource_slices);
watched!(ResourceClaim, resource_claims);
watched!(
    PodDisruptionBudget,
    pod_disruption_budgets,
    fn trim_more(&mut self) {
        bounds::cut_budget(self);
    }
);
watched!(NodeResourceTopology, node_resource_topologies);

impl Watched for ConfigMapMeta {
    const KIND: Kind = Kind::ConfigMap;
    fn object(object: Arc<Self>) -> Object {
        Object::ConfigMap(object)
    }
    fn store(stores: &Stores) -> &Store<Self> {
        &stores.config_maps
    }
    fn trim_more(&mut self) {
        (self.metadata.annotations, self.metadata.labels) = (None, None);
    }
}

watched!(
    Node,
    nodes,
    fn trim_more(&mut self) {
        if let Some(status) = &mut self.status {
            status.images = None;
        }
    }
);

impl Watched for Pod {
    const KIND: Kind = Kind::Pod;
    fn object(object: Arc<Self>) -> Object {
        Object::Pod(object)
    }
    fn store(stores: &Stores) -> &Store<Self> {
        &stores.pods
    }
    fn trim_more(&mut self) {
        if let Some(annotations) = &mut self.metadata.annotations {
            // A whole manifest, which nobody below needs.
            annotations.remove(annotation::KUBECTL_LAST_APPLIED);
        }
        bounds::cut_pod(self);
        leaner::trim_pod(self);
    }
    fn settle(&mut self, before: impl FnOnce() -> Option<Arc<Self>>, charged: &mut Charged) -> Vec<Key> {
        charged.settle(self, before().as_deref())
    }
    fn again(&self, charged: &mut Charged, first: bool) -> Option<Self> {
        charged.again(self, first)
    }
    fn leave(&self, charged: &mut Charged) {
        charged.gone(self);
    }
}

/// Watches the kind until a subscriber is gone.
pub(super) async fn start(kind: Kind, feed: Feed) -> Result<(), Error> {
    match kind {
        Kind::Pod => watch::<Pod>(feed).await,
        Kind::Node => watch::<Node>(feed).await,
        Kind::Namespace => watch::<Namespace>(feed).await,
        Kind::PriorityClass => watch::<PriorityClass>(feed).await,
        Kind::Queue => watch::<Queue>(feed).await,
        Kind::PodGroup => watch::<PodGroup>(feed).await,
        Kind::BindRequest => watch::<BindRequest>(feed).await,
        Kind::Topology => watch::<Topology>(feed).await,
        Kind::DeviceClass => watch::<DeviceClass>(feed).await,
        Kind::ResourceSlice => watch::<ResourceSlice>(feed).await,
        Kind::ResourceClaim => watch::<ResourceClaim>(feed).await,
        Kind::PersistentVolumeClaim => watch::<PersistentVolumeClaim>(feed).await,
        Kind::PersistentVolume => watch::<PersistentVolume>(feed).await,
        Kind::StorageClass => watch::<StorageClass>(feed).await,
        Kind::CsiDriver => watch::<CSIDriver>(feed).await,
        Kind::CsiNode => watch::<CSINode>(feed).await,
        Kind::CsiStorageCapacity => watch::<CSIStorageCapacity>(feed).await,
        Kind::VolumeAttachment => watch::<VolumeAttachment>(feed).await,
        Kind::PodDisruptionBudget => watch::<PodDisruptionBudget>(feed).await,
        Kind::NodeResourceTopology => watch::<NodeResourceTopology>(feed).await,
        Kind::ConfigMap => watch_metadata::<ConfigMapMeta>(feed).await,
    }
}
