//! The watched kinds as the watches use them: type, variant on the bus and store, generated from the table in `kinds.rs`.

use std::fmt::Debug;
use std::sync::Arc;

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::charged::Charged;
use super::{Feed, Key, Store, Stores, watch, watch_metadata};
use crate::components::Error;
use crate::kinds::{Kind, Object, kinds, types};
use crate::mirror::Entry;

/// A kind that is watched.
pub trait Watched:
    Entry + Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind.
    const KIND: Kind;
    /// There are so many that the store keeps them compact.
    const COMPACT: bool;
    /// Wraps an object for the bus.
    fn object(object: Arc<Self>) -> Object;
    /// Its store.
    fn store(stores: &Stores) -> &Store<Self>;
    /// Restores fields that no longer change; returns other objects that must be restored again.
    fn settle(&mut self, _before: impl FnOnce() -> Option<Arc<Self>>, _charged: &mut Charged) -> Vec<Key> {
        Vec::new()
    }
    /// Restores an object after more became known; returns it if it changed. `first`: only its own fields were known before.
    fn again(&self, _charged: &mut Charged, _first: bool) -> Option<Self> {
        None
    }
    /// The object was deleted.
    fn leave(&self, _charged: &mut Charged) {}
}

/// Drops large fields that are never read.
pub fn trim<K: Watched>(object: &mut K) {
    object.meta_mut().managed_fields = None;
    Entry::trim(object);
}

/// Only pods have charged fields.
macro_rules! charged {
    (Pod) => {
        fn settle(&mut self, before: impl FnOnce() -> Option<Arc<Self>>, charged: &mut Charged) -> Vec<Key> {
            charged.settle(self, before)
        }
        fn again(&self, charged: &mut Charged, first: bool) -> Option<Self> {
            charged.again(self, first)
        }
        fn leave(&self, charged: &mut Charged) {
            charged.gone(self);
        }
    };
    ($other:ident) => {};
}

macro_rules! compact {
    (Node) => {
        true
    };
    (Pod) => {
        true
    };
    (PodGroup) => {
        true
    };
    ($other:ident) => {
        false
    };
}

macro_rules! form {
    (Whole, $kind:ident, $feed:ident) => {
        watch::<types::$kind>($feed).await
    };
    (Metadata, $kind:ident, $feed:ident) => {
        watch_metadata::<types::$kind>($feed).await
    };
}

macro_rules! watched {
    ($($(#[$doc:meta])* $kind:ident, $store:ident, $presence:ident, $condition:ident, $form:ident, $listeners:tt;)*) => {
        $(impl Watched for types::$kind {
            const KIND: Kind = Kind::$kind;
            const COMPACT: bool = compact!($kind);
            fn object(object: Arc<Self>) -> Object {
                Object::$kind(object)
            }
            fn store(stores: &Stores) -> &Store<Self> {
                &stores.$store
            }
            charged!($kind);
        })*

        /// Watches the kind until a subscriber is gone.
        pub(super) async fn start(kind: Kind, feed: Feed) -> Result<(), Error> {
            match kind {
                $(Kind::$kind => form!($form, $kind, feed),)*
            }
        }
    };
}
kinds!(watched);
