//! The patch kinds of the Kubernetes API, as pure functions over JSON: JSON patch, JSON merge patch and strategic merge
//! patch. Server-side apply is absent: the server answers it with 415.

mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use strategic::strategic;

/// Why a patch could not be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: 400 BadRequest.
    #[error("{0}")]
    Malformed(String),
    /// The patch is well-formed but does not apply to this object: 422 Invalid.
    #[error("{0}")]
    Unprocessable(String),
}

/// Applies an RFC 6902 JSON patch. Like the API server it hides why a patch does not apply.
pub fn json(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_array() {
        return Err(PatchError::Malformed(
            "error decoding patch: a JSON patch must be a list of operations".to_owned(),
        ));
    }
    let refused =
        || PatchError::Unprocessable("the server rejected our request due to an error in our request".to_owned());
    let operations: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(|_| refused())?;
    let mut patched = original.clone();
    json_patch::patch(&mut patched, &operations).map_err(|_| refused())?;
    must_be_object(patched)
}

/// Applies an RFC 6902 JSON patch; the error is the reason why it does not apply.
pub fn json_explained(original: &Value, patch: &Value) -> Result<Value, String> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(|error| error.to_string())?;
    let mut patched = original.clone();
    json_patch::patch(&mut patched, &operations).map_err(|error| error.to_string())?;
    must_be_object(patched).map_err(|error| error.to_string())
}

/// Applies an RFC 7386 JSON merge patch.
pub fn merge(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed(
            "error decoding patch: a merge patch must be an object".to_owned(),
        ));
    }
    let mut patched = original.clone();
    json_patch::merge(&mut patched, patch);
    must_be_object(patched)
}

fn must_be_object(patched: Value) -> Result<Value, PatchError> {
    if patched.is_object() {
        return Ok(patched);
    }
    Err(PatchError::Unprocessable(
        "the patch does not leave an object".to_owned(),
    ))
}
