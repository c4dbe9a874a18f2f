//! A large object without what no rule needs: status and field managers, which can be most of it. An Argo workflow, for example, lists its steps in both.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    api_version: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    uid: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    labels: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    owner_references: Option<&'a RawValue>,
}

/// The JSON of the object with its identity, labels, annotations, owners and spec; the text is skipped, not decoded. `None` if it is no object.
pub fn reduced(text: &[u8]) -> Option<Vec<u8>> {
    let object: Object = serde_json::from_slice(text).ok()?;
    serde_json::to_vec(&object).ok()
}
