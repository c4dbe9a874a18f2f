//! AdmissionReview: the request of the API server and the response. Absent: the rules.

use std::borrow::Cow;

use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// An AdmissionReview with a request.
#[derive(Debug, Deserialize)]
pub struct Review {
    /// The request.
    pub request: Request,
}

/// The request in an AdmissionReview.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Copied to the response.
    pub uid: String,
    /// Name; empty if the API server will generate it.
    #[serde(default)]
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// The operation.
    pub operation: Operation,
    /// The object as it will be; null on delete.
    #[serde(default)]
    pub object: Document,
    /// The object as it is; null on create.
    #[serde(default)]
    pub old_object: Document,
}

impl Request {
    /// Whether an update changes nothing of what `read` takes from the object, or the object is being deleted. Such an update is not refused for an older
    /// fault: finalizers are removed by updates.
    #[must_use]
    pub fn is_unaffected<T: PartialEq>(&self, read: impl Fn(&Document) -> Option<T>) -> bool {
        if self.operation != Operation::Update {
            return false;
        }
        let object = read(&self.object);
        self.is_of_deleted() || object.is_some() && object == read(&self.old_object)
    }

    fn is_of_deleted(&self) -> bool {
        let object = self.object.read::<Deleted>();
        object.is_ok_and(|object| object.metadata.deletion_timestamp.is_some())
    }
}

/// The field of an object that is being deleted.
#[derive(Deserialize)]
struct Deleted {
    metadata: DeletedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeletedMetadata {
    deletion_timestamp: Option<String>,
}

/// An object of a request, kept as text: each rule decodes the fields that it needs. A JSON tree would take hundreds of times
/// the memory of the text.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Document(Option<Box<RawValue>>);

impl Document {
    /// Decodes the fields of the type; all others are skipped.
    ///
    /// # Errors
    /// If the object does not match the type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.as_deref().map_or("null", RawValue::get))
    }

    /// The whole object as a JSON tree. Not for untrusted input.
    #[must_use]
    pub fn value(&self) -> Value {
        self.read().unwrap_or_default()
    }
}

impl From<&Value> for Document {
    fn from(value: &Value) -> Self {
        serde_json::from_value(value.clone()).unwrap_or_default()
    }
}

/// The operation on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is created.
    Create,
    /// It is updated.
    Update,
    /// It is deleted.
    Delete,
    /// A connection to it is opened.
    Connect,
}

/// The result of the rules.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    /// The refusal, if the request is refused.
    pub denial: Option<Denial>,
    /// The object after mutation, if it was changed. The response has the patch from [`Request::object`].
    pub patch: Option<json_patch::Patch>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// HTTP status: 403 for a broken rule, 400 for an object that cannot be read.
    pub code: u16,
    /// The message for the user: what is wrong, and what to do.
    pub message: String,
}

impl Verdict {
    /// Allowed without changes.
    #[must_use]
    pub fn allow() -> Self {
        Self::default()
    }

    /// Refused: the object violates a rule.
    #[must_use]
    pub fn deny(message: impl Into<String>) -> Self {
        Self {
            denial: Some(Denial {
                code: 403,
                message: message.into(),
            }),
            ..Self::default()
        }
    }

    /// Refused: the object cannot be read.
    #[must_use]
    pub fn unreadable(message: impl Into<String>) -> Self {
        Self {
            denial: Some(Denial {
                code: 400,
                message: message.into(),
            }),
            ..Self::default()
        }
    }

    /// Adds warnings.
    #[must_use]
    pub fn warn(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// Whether the request is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }
}

/// An AdmissionReview with a response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

impl Answer {
    /// Builds the AdmissionReview of a verdict.
    #[must_use]
    pub fn new(uid: String, verdict: Verdict) -> Self {
        let patch = verdict
            .patch
            .filter(|patch| !patch.0.is_empty() && verdict.denial.is_none())
            .map(|patch| base64::engine::general_purpose::STANDARD.encode(patch.to_string()));
        let response = Response {
            uid,
            allowed: verdict.denial.is_none(),
            status: verdict.denial.map(|denial| Status {
                code: denial.code,
                reason: if denial.code == 400 { "BadRequest" } else { "Forbidden" },
                message: denial.message,
            }),
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch,
            warnings: verdict
                .warnings
                .iter()
                .map(|warning| shortened(warning).into_owned())
                .collect(),
        };
        Self {
            api_version: "admission.k8s.io/v1",
            kind: "AdmissionReview",
            response,
        }
    }
}

/// Maximum length of a warning; the API server truncates longer ones in the middle of a word.
const WARNING_LENGTH_MAX: usize = 256;

fn shortened(warning: &str) -> Cow<'_, str> {
    if warning.chars().count() <= WARNING_LENGTH_MAX {
        return Cow::Borrowed(warning);
    }
    let kept: String = warning.chars().take(WARNING_LENGTH_MAX - 1).collect();
    Cow::Owned(format!("{kept}…"))
}
