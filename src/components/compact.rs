//! An object as compressed JSON. A typed pod takes twenty times as much memory, and most pods are not looked at again before they end.

use std::marker::PhantomData;
use std::sync::Arc;

use lz4_flex::block::{compress_with_dict, decompress_with_dict};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Compression refers to this text, so that what all objects have in common takes no room in each.
const COMMON: &[u8] = include_bytes!("compact/common.json");

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

impl<K: Serialize + DeserializeOwned> Compact<K> {
    /// The compact form of an object; `None` if it has no JSON.
    #[must_use]
    pub fn of(object: &K) -> Option<Self> {
        let json = serde_json::to_vec(object).ok()?;
        Some(Self {
            text: compress_with_dict(&json, COMMON).into(),
            length: json.len(),
            of: PhantomData,
        })
    }

    /// The object. `None` does not occur for a form that [`Compact::of`] made.
    #[must_use]
    pub fn object(&self) -> Option<K> {
        let json = decompress_with_dict(&self.text, self.length, COMMON).ok()?;
        serde_json::from_slice(&json).ok()
    }
}

#[cfg(test)]
mod tests;
