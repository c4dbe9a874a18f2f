//! The three patch formats, and the refusal of server-side apply.

use serde_json::Value;

use super::Call;
use crate::devcluster::apiserver::{
    patch::{self, PatchError},
    registry::Origin,
    status::{ApiError, ApiResult},
};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A patch as it came.
pub(super) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Reads the body by its content type.
    pub fn of(call: &Call) -> ApiResult<Self> {
        let custom = matches!(call.resource.origin, Origin::Custom { .. });
        let offered: &[&str] = if custom {
            &[JSON, MERGE]
        } else {
            &[JSON, MERGE, STRATEGIC]
        };
        let media_type = call.content_type.split(';').next().unwrap_or_default().trim();
        if !offered.contains(&media_type) {
            return Err(ApiError::unsupported_media_type(offered));
        }
        let body: Value = serde_json::from_slice(&call.body)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
        Ok(match media_type {
            JSON => Patch::Json(body),
            MERGE => Patch::Merge(body),
            _ => Patch::Strategic(body),
        })
    }

    /// The object after the patch.
    pub fn apply(&self, call: &Call, object: &Value) -> ApiResult<Value> {
        self.apply_to(&call.resource.kind, object)
    }

    /// The object of another kind, such as a Scale, after the patch.
    pub fn apply_to(&self, kind: &str, object: &Value) -> ApiResult<Value> {
        let patched = match self {
            Patch::Json(operations) => patch::json(object, operations),
            Patch::Merge(changes) => patch::merge(object, changes),
            Patch::Strategic(changes) => patch::strategic(kind, object, changes),
        };
        patched.map_err(|error| match error {
            PatchError::Malformed(why) => ApiError::bad_request(why),
            PatchError::Unprocessable(why) => {
                tracing::debug!(%why, "patch does not apply");
                let message = "the server rejected our request due to an error in our request";
                ApiError::new(422, "Invalid", message)
            }
        })
    }
}
