//! A large object without what no rule needs: status and field managers, which can be most of it. An Argo workflow, for example, lists its steps in both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    api_version: &'a str,
    kind: &'a str,
    #[serde(borrow)]
    metadata: BTreeMap<&'a str, &'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
}

/// The JSON of the object with its metadata and spec; the text is skipped, not decoded. `None` if it is no object.
pub fn reduced(text: &[u8]) -> Option<Vec<u8>> {
    let mut object: Object = serde_json::from_slice(text).ok()?;
    object.metadata.remove("managedFields");
    serde_json::to_vec(&object).ok()
}
