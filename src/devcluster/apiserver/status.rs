//! Errors as the Kubernetes API returns them: `Status` objects with the code, reason, message and causes that clients match on.

use std::fmt;

use serde_json::{Value, json};

use super::schema::{self, FieldError};

/// The object or collection of an error.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// API group, empty for core.
    pub group: String,
    /// Plural resource name.
    pub resource: String,
    /// Kind, for 422 answers.
    pub kind: String,
    /// Object name, empty for a collection.
    pub name: String,
}

impl Subject {
    fn resource_and_group(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self, kind: &str) -> Value {
        let mut details = json!({"name": self.name, "kind": kind});
        if !self.group.is_empty() {
            details["group"] = json!(self.group);
        }
        details
    }
}

/// A refused request.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// `Status.reason`.
    pub reason: String,
    /// `Status.message`.
    pub message: String,
    /// `Status.details`.
    pub details: Option<Value>,
    /// Seconds for the `Retry-After` header.
    pub retry_after: Option<u32>,
}

/// The answer to a request, or the reason it is refused.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error of any kind.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        ApiError {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: None,
            retry_after: None,
        }
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// 404: no such object.
    pub fn not_found(subject: &Subject) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} {:?} not found", subject.resource_and_group(), subject.name),
        )
        .with_details(subject.details(&subject.resource))
    }

    /// 404: no such path or resource.
    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    /// 405: the resource exists and does not take this verb.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(json!({}))
    }

    /// 409: the name is taken.
    pub fn already_exists(subject: &Subject) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} {:?} already exists", subject.resource_and_group(), subject.name),
        )
        .with_details(subject.details(&subject.resource))
    }

    /// 409: a precondition does not hold.
    pub fn conflict(subject: &Subject, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {why}",
            subject.resource_and_group(),
            subject.name
        );
        Self::new(409, "Conflict", message).with_details(subject.details(&subject.resource))
    }

    /// 409: someone else wrote in between.
    pub fn modified(subject: &Subject) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422: fields are refused. `errors` is not empty.
    pub fn invalid(subject: &Subject, errors: &[FieldError]) -> Self {
        let mut error = Self::from_status(&schema::invalid_status(
            &subject.group,
            &subject.kind,
            &subject.name,
            errors,
        ));
        if let Some(details) = error.details.as_mut().and_then(Value::as_object_mut) {
            details.retain(|_, value| value != "");
        }
        error
    }

    /// 422: a query parameter or an options object is refused.
    pub fn invalid_options(kind: &str, error: FieldError) -> Self {
        let subject = Subject {
            group: "meta.k8s.io".to_owned(),
            kind: kind.to_owned(),
            ..Subject::default()
        };
        Self::invalid(&subject, &[error])
    }

    /// The error that a `Status` object describes.
    pub fn from_status(status: &Value) -> Self {
        let text = |field: &str| status[field].as_str().unwrap_or_default();
        let code = status["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(500);
        let mut error = Self::new(code, text("reason"), text("message"));
        error.details = status.get("details").cloned();
        error
    }

    /// 403: admission refuses.
    pub fn forbidden(subject: &Subject, why: &str) -> Self {
        let message = format!(
            "{} {:?} is forbidden: {why}",
            subject.resource_and_group(),
            subject.name
        );
        Self::new(403, "Forbidden", message).with_details(subject.details(&subject.resource))
    }

    /// 400: the request cannot be read.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: no or unknown credentials.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 415: a body format that is not served.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 410: the revision is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 501: known to Kubernetes, not offered here.
    pub fn not_implemented(what: &str) -> Self {
        Self::new(
            501,
            "NotImplemented",
            format!("{what} is not offered by the embedded cluster"),
        )
    }

    /// 504: the revision asked for lies in the future.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(504, "Timeout", message).with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }));
        error.retry_after = Some(1);
        error
    }

    /// 500: a fault of this server.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// The `Status` object.
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(seconds) = self.retry_after {
            if !status["details"].is_object() {
                status["details"] = json!({});
            }
            status["details"]["retryAfterSeconds"] = json!(seconds);
        }
        status
    }
}
