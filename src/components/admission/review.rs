//! What the API server asks a webhook and what it is answered, and nothing of what the rules are.

use std::borrow::Cow;

use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The envelope of a question.
#[derive(Debug, Deserialize)]
pub struct Review {
    /// The question.
    pub request: Request,
}

/// A request to the API server that is up for review.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Goes back with the answer.
    pub uid: String,
    /// Name; empty where the API server is still to generate one.
    #[serde(default)]
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// What is done.
    pub operation: Operation,
    /// The object as it will be; null on delete.
    #[serde(default)]
    pub object: Document,
    /// The object as it is; null on create.
    #[serde(default)]
    pub old_object: Document,
}

/// An object of a question, kept as text: each rule reads what it needs of it, straight into a type. A tree of the whole would take hundreds
/// of times the memory of the text.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Document(Option<Box<RawValue>>);

impl Document {
    /// Reads what the type holds of the object; the rest is passed over.
    ///
    /// # Errors
    /// If the object does not have the form of the type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.as_deref().map_or("null", RawValue::get))
    }

    /// All of it, as a tree. Not for what comes from outside.
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

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is new.
    Create,
    /// It is changed.
    Update,
    /// It goes.
    Delete,
    /// A connection is opened to it.
    Connect,
}

/// The answer of the rules.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    /// Why not, if so.
    pub denial: Option<Denial>,
    /// The object after mutation, if it was changed. The API server is sent the difference to [`Request::object`].
    pub patch: Option<json_patch::Patch>,
    /// What the user is told beside.
    pub warnings: Vec<String>,
}

/// A request that is turned down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// HTTP status: 403 for a broken rule, 400 for an object that cannot be read.
    pub code: u16,
    /// What is wrong and what to do, for the user.
    pub message: String,
}

impl Verdict {
    /// Nothing to object to, nothing to change.
    #[must_use]
    pub fn allow() -> Self {
        Self::default()
    }

    /// A rule is broken.
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

    /// The object cannot be read.
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

    /// Whether the request goes on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }
}

/// The envelope of an answer.
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
    /// Puts a verdict in its envelope.
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

/// The API server cuts longer warnings off in the middle of a word.
const WARNING_LENGTH_MAX: usize = 256;

fn shortened(warning: &str) -> Cow<'_, str> {
    if warning.chars().count() <= WARNING_LENGTH_MAX {
        return Cow::Borrowed(warning);
    }
    let kept: String = warning.chars().take(WARNING_LENGTH_MAX - 1).collect();
    Cow::Owned(format!("{kept}…"))
}
