//! `AdmissionReview` v1: requests, responses, and messages of refusals.

use base64::Engine;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Rejection, Request};

#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct Resource<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    uid: &'a str,
    kind: Kind<'a>,
    resource: Resource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: Kind<'a>,
    request_resource: Resource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    user_info: &'a Value,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
    dry_run: bool,
    options: &'a Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: Asked<'a>,
}

/// The review that asks about a request.
pub(super) fn encode(uid: &str, request: &Request<'_>, object: Option<&Value>) -> Bytes {
    let (group, version, kind) = request.kind;
    let kind = || Kind { group, version, kind };
    let resource = || Resource {
        group: request.group,
        version: request.version,
        resource: request.resource,
    };
    let review = Review {
        kind: "AdmissionReview",
        api_version: "admission.k8s.io/v1",
        request: Asked {
            uid,
            kind: kind(),
            resource: resource(),
            sub_resource: request.subresource,
            request_kind: kind(),
            request_resource: resource(),
            request_sub_resource: request.subresource,
            name: request.name,
            namespace: request.namespace,
            operation: request.operation.as_str(),
            user_info: request.user,
            object,
            old_object: request.old_object,
            dry_run: request.dry_run,
            options: request.options,
        },
    };
    Bytes::from(serde_json::to_vec(&review).expect("a review of JSON values serializes"))
}

/// The response of a webhook.
#[derive(Debug)]
pub(super) struct Verdict {
    pub rejection: Option<Rejection>,
    pub warnings: Vec<String>,
    /// The JSON patch of a mutating webhook.
    pub patch: Option<Value>,
}

impl Verdict {
    /// Reads an answer; the error says what is wrong with it.
    pub fn decode(webhook: &str, uid: &str, answer: &[u8], mutating: bool) -> Result<Self, String> {
        let review: Value =
            serde_json::from_slice(answer).map_err(|error| format!("failed to call webhook: {error}"))?;
        let invalid = |what: &str| format!("received invalid webhook response: {what}");
        let Some(response) = review["response"].as_object() else {
            return Err(invalid("webhook response was absent"));
        };
        let (version, kind) = (&review["apiVersion"], &review["kind"]);
        if version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            return Err(invalid(&format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
                version.as_str().unwrap_or_default(),
                kind.as_str().unwrap_or_default()
            )));
        }
        let text = |name: &str| response.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("uid") != uid {
            return Err(invalid(&format!(
                "expected response.uid={uid:?}, got {:?}",
                text("uid")
            )));
        }
        let (patch, patch_type) = (text("patch"), text("patchType"));
        let patch = match (patch, patch_type) {
            ("", "") => None,
            _ if !mutating && !patch.is_empty() => {
                return Err(invalid("validating webhook may not return response.patch"));
            }
            _ if !mutating => return Err(invalid("validating webhook may not return response.patchType")),
            (_, "") => return Err(invalid("webhook returned response.patch but not response.patchType")),
            ("", _) => return Err(invalid("webhook returned response.patchType but not response.patch")),
            (patch, "JSONPatch") => Some(decode_patch(patch).map_err(|error| invalid(&error))?),
            (_, other) => return Err(invalid(&format!("invalid response.patchType {other:?}"))),
        };
        let warnings = response.get("warnings").and_then(Value::as_array).into_iter().flatten();
        let warnings = warnings.filter_map(Value::as_str).map(str::to_owned).collect();
        let allowed = response.get("allowed") == Some(&Value::Bool(true));
        let rejection = (!allowed).then(|| Rejection::denied(webhook, response.get("status").unwrap_or(&Value::Null)));
        Ok(Self {
            rejection,
            warnings,
            patch,
        })
    }
}

fn decode_patch(text: &str) -> Result<Value, String> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

impl Rejection {
    /// The error for a webhook's denial: its message after the webhook's name, with a code of at least 400.
    fn denied(webhook: &str, result: &Value) -> Self {
        let denied = format!("admission webhook {webhook:?} denied the request");
        let given = |name: &str| result[name].as_str().filter(|text| !text.is_empty());
        let message = match given("message").or(given("reason")) {
            Some(why) => format!("{denied}: {why}"),
            None => format!("{denied} without explanation"),
        };
        let code = result["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .filter(|code| *code >= 400)
            .unwrap_or(400);
        let mut status = failure(&message, code);
        for name in ["reason", "details"] {
            if !result[name].is_null() {
                status[name] = result[name].clone();
            }
        }
        Self {
            code,
            status,
            warnings: Vec::new(),
        }
    }

    /// An error of the server's own, as for webhooks that cannot be called.
    pub(super) fn internal(error: &str) -> Self {
        let mut status = failure(&format!("Internal error occurred: {error}"), 500);
        status["reason"] = json!("InternalError");
        status["details"] = json!({"causes": [{"message": error}]});
        Self {
            code: 500,
            status,
            warnings: Vec::new(),
        }
    }

    /// A match condition that cannot be evaluated.
    pub(super) fn condition_failed(request: &Request<'_>, expression: &str, error: &str) -> Self {
        Self::forbidden(
            request,
            &format!("expression '{expression}' resulted in error: {error}"),
        )
    }

    /// A forbidden request.
    pub(in crate::devcluster::apiserver) fn forbidden(request: &Request<'_>, why: &str) -> Self {
        let resource = match request.group {
            "" => request.resource.to_owned(),
            group => format!("{}.{group}", request.resource),
        };
        let mut status = failure(&format!("{resource} {:?} is forbidden: {why}", request.name), 403);
        status["reason"] = json!("Forbidden");
        status["details"] = json!({"name": request.name, "kind": request.resource});
        if !request.group.is_empty() {
            status["details"]["group"] = json!(request.group);
        }
        Self {
            code: 403,
            status,
            warnings: Vec::new(),
        }
    }
}

fn failure(message: &str, code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code})
}
