//! An object as compressed JSON. A typed pod takes twenty times as much memory, and most pods are not read again before they end.
//!
//! The resource version is not part of it, so that an object that changed only in fields that are never read has the same text.

use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource;
use lz4_flex::block::{compress_with_dict, decompress_with_dict};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The dictionary of the compression: text that most objects have in common.
const COMMON: &[u8] = include_bytes!("compact/common.json");

/// Bytes of most objects as JSON: the initial size of buffers.
const USUAL: usize = 2_048;

/// See the module. Copies share the text.
#[derive(Debug)]
pub struct Compact<K> {
    text: Arc<[u8]>,
    /// Bytes of the JSON.
    length: usize,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Compact<K> {
    fn clone(&self) -> Self {
        Self {
            text: Arc::clone(&self.text),
            length: self.length,
            of: PhantomData,
        }
    }
}

impl<K: Serialize + DeserializeOwned + Resource> Compact<K> {
    /// The JSON of an object without its resource version; `None` if it has none.
    #[must_use]
    pub fn json(object: &mut K) -> Option<Vec<u8>> {
        let version = object.meta_mut().resource_version.take();
        let mut json = Vec::with_capacity(USUAL);
        let written = serde_json::to_writer(&mut json, object);
        object.meta_mut().resource_version = version;
        written.is_ok().then_some(json)
    }

    /// The compact form of such a JSON.
    #[must_use]
    pub fn of(json: &[u8]) -> Self {
        Self {
            text: compress_with_dict(json, COMMON).into(),
            length: json.len(),
            of: PhantomData,
        }
    }

    /// The compact form of an object; `None` if it has no JSON.
    #[must_use]
    pub fn pack(object: &mut K) -> Option<Self> {
        Self::json(object).map(|json| Self::of(&json))
    }

    fn expand(&self) -> Option<Vec<u8>> {
        decompress_with_dict(&self.text, self.length, COMMON).ok()
    }

    /// Whether it is the compact form of this JSON.
    #[must_use]
    pub fn is(&self, json: &[u8]) -> bool {
        self.length == json.len() && self.expand().is_some_and(|own| own == json)
    }

    /// Whether both share one text.
    #[must_use]
    pub fn has_text_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text)
    }

    /// The object, without resource version. `None` does not occur for JSON of [`Compact::json`].
    #[must_use]
    pub fn object(&self) -> Option<K> {
        serde_json::from_slice(&self.expand()?).ok()
    }
}

#[cfg(test)]
mod tests;
