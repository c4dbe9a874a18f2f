//! Decoding that tolerates malformed objects: one that does not decode does not prevent the others of a list from being read.
//!
//! Watches read [`Guarded`] objects, which keep the metadata of an object that failed; a JSON value is decoded by [`decode`]. Both
//! name the object and the reason. Absent: any decision on what to do with a rejected object.

use std::fmt::Display;

use kube::Resource;
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

/// An object in a list or watch that may have failed to decode. Use it as the object type of a `kube` client or watcher.
pub type Guarded<K> = DeserializeGuard<K>;

/// An object that could not be decoded, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {} cannot be read: {reason}", self.object())]
pub struct Rejection {
    /// The kind that was expected, e.g. `Queue`.
    pub kind: String,
    /// The object's namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name; empty if even that could not be read.
    pub name: String,
    /// The decoder's error.
    pub reason: String,
}

impl Rejection {
    /// The object as `namespace/name`, or `name` if it has no namespace.
    pub fn object(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

/// Decodes one object.
///
/// # Errors
/// Returns the object's identity and the decoder's reason.
pub fn decode<K>(value: serde_json::Value) -> Result<K, Rejection>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let text = |pointer: &str| {
        value
            .pointer(pointer)
            .and_then(|field| field.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    K::deserialize(value).map_err(|error| rejection::<K>(namespace, name, error))
}

/// Unwraps an object that came through a [`Guarded`] list or watch.
///
/// # Errors
/// Returns the object's identity and the decoder's reason.
pub fn unguard<K: Resource<DynamicType = ()>>(guarded: Guarded<K>) -> Result<K, Rejection> {
    guarded.0.map_err(|InvalidObject { error, metadata }| {
        rejection::<K>(
            metadata.namespace.unwrap_or_default(),
            metadata.name.unwrap_or_default(),
            error,
        )
    })
}

fn rejection<K: Resource<DynamicType = ()>>(namespace: String, name: String, reason: impl Display) -> Rejection {
    Rejection {
        kind: K::kind(&()).into_owned(),
        namespace,
        name,
        reason: reason.to_string(),
    }
}

/// For `#[serde(deserialize_with)]`: reads `null` as the default value, as Go's decoders do.
///
/// # Errors
/// Those of the inner type.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// For a spec type that derives serde's traits with `remote = "Self"`: an object without a spec is read as one with the default spec.
macro_rules! absent_as_default {
    ($spec:ident) => {
        impl<'de> serde::Deserialize<'de> for $spec {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;

                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = $spec;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        formatter.write_str("an object")
                    }

                    fn visit_none<E>(self) -> Result<$spec, E> {
                        Ok($spec::default())
                    }

                    fn visit_unit<E>(self) -> Result<$spec, E> {
                        Ok($spec::default())
                    }

                    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<$spec, D::Error> {
                        $spec::deserialize(deserializer)
                    }
                }

                // For a missing field, serde calls the deserializer with `None`.
                deserializer.deserialize_option(Visitor)
            }
        }

        impl serde::Serialize for $spec {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $spec::serialize(self, serializer)
            }
        }
    };
}
pub(super) use absent_as_default;

#[cfg(test)]
mod tests;
