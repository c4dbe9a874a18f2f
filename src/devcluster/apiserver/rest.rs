//! Requests for resources: from the parsed request to the answer, verb by verb.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    cluster::Cluster,
    identity::Identity,
    present::{Form, Presenter},
    protobuf::{self, ProtobufError},
    registry::Resource,
    request::{RequestInfo, Verb},
    status::{ApiError, ApiResult, Subject},
    store::{Object, ObjectKey, Table},
    validation,
};

mod admit;
mod bind;
mod create;
mod delete;
mod evict;
mod patch;
mod read;
mod reviews;
mod scale;
mod shape;
mod token;
mod update;

/// One request for a resource that is served.
pub(crate) struct Call {
    pub cluster: Arc<Cluster>,
    pub identity: Arc<Identity>,
    pub info: RequestInfo,
    pub resource: Arc<Resource>,
    pub form: Form,
    pub content_type: String,
    pub body: Bytes,
}

/// An answer.
pub(crate) enum Reply {
    /// One JSON document.
    Json {
        code: u16,
        body: Bytes,
        /// Sentences for the `Warning` header.
        warnings: Vec<String>,
    },
    /// A stream of watch events.
    Stream(Body),
}

/// Serves a request.
pub(crate) async fn serve(call: &Call) -> ApiResult<Reply> {
    if call.info.namespace.is_empty() && call.resource.namespaced && !call.info.name.is_empty() {
        return Err(ApiError::no_such_resource());
    }
    if !call.info.namespace.is_empty() && !call.resource.namespaced {
        return Err(ApiError::no_such_resource());
    }
    match call.info.subresource.as_str() {
        "" => main_resource(call).await,
        "status" if call.resource.has_status => match call.info.verb {
            Verb::Get => read::get(call),
            Verb::Update => update::update(call).await,
            Verb::Patch => update::patch(call).await,
            Verb::List | Verb::Watch | Verb::Create | Verb::Delete | Verb::DeleteCollection => {
                Err(ApiError::method_not_allowed())
            }
        },
        "scale" if call.resource.scale.is_some() => match call.info.verb {
            Verb::Get => scale::get(call),
            Verb::Update => scale::update(call).await,
            Verb::Patch => scale::patch(call).await,
            Verb::List | Verb::Watch | Verb::Create | Verb::Delete | Verb::DeleteCollection => {
                Err(ApiError::method_not_allowed())
            }
        },
        other => special(call, other).await,
    }
}

async fn main_resource(call: &Call) -> ApiResult<Reply> {
    if !call.resource.verbs().contains(&call.info.verb) {
        return Err(ApiError::method_not_allowed());
    }
    match call.info.verb {
        Verb::Get => read::get(call),
        Verb::List => read::list(call),
        Verb::Watch => read::watch(call),
        Verb::Create if !call.info.name.is_empty() => Err(ApiError::method_not_allowed()),
        Verb::Update | Verb::Patch if call.info.name.is_empty() => Err(ApiError::method_not_allowed()),
        Verb::Create => create::create(call).await,
        Verb::Update => update::update(call).await,
        Verb::Patch => update::patch(call).await,
        Verb::Delete => delete::delete(call).await,
        Verb::DeleteCollection => delete::delete_collection(call).await,
    }
}

/// Subresources of single kinds; those of Kubernetes that are not supported are refused with a message.
async fn special(call: &Call, subresource: &str) -> ApiResult<Reply> {
    let core = call.resource.group.is_empty();
    match (call.resource.plural.as_str(), subresource, call.info.verb) {
        ("pods", "binding", Verb::Create) if core => bind::bind(call).await,
        ("pods", "eviction", Verb::Create) if core => evict::evict(call).await,
        ("pods", "binding" | "eviction", _) if core => Err(ApiError::method_not_allowed()),
        ("namespaces", "finalize", Verb::Update) if core => update::update(call).await,
        ("namespaces", "finalize", _) if core => Err(ApiError::method_not_allowed()),
        ("pods", "log" | "exec" | "attach" | "portforward" | "proxy" | "ephemeralcontainers" | "resize", _) if core => {
            Err(ApiError::not_implemented(&format!("pods/{subresource}")))
        }
        ("serviceaccounts", "token", Verb::Create) if core => token::create(call),
        ("serviceaccounts", "token", _) if core => Err(ApiError::method_not_allowed()),
        _ => Err(ApiError::no_such_resource()),
    }
}

impl Call {
    fn table(&self) -> Arc<Table> {
        self.cluster.store.table(&self.resource.storage)
    }

    fn key(&self) -> ObjectKey {
        (self.info.namespace.clone(), self.info.name.clone())
    }

    fn subject(&self) -> Subject {
        self.resource.subject(&self.info.name)
    }

    fn find(&self) -> ApiResult<Arc<Object>> {
        self.table()
            .get(&self.key())
            .ok_or_else(|| ApiError::not_found(&self.subject()))
    }

    /// Whether nothing is to be stored.
    fn dry_run(&self) -> ApiResult<bool> {
        match self.info.query.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(ApiError::invalid_options(
                self.options_kind(),
                validation::not_supported("dryRun", &json!([other]), &["All"]),
            )),
        }
    }

    /// The kind of the request's options.
    fn options_kind(&self) -> &'static str {
        match self.info.verb {
            Verb::Get => "GetOptions",
            Verb::List | Verb::Watch => "ListOptions",
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
        }
    }

    /// The body as JSON; YAML is read as well, and the protobuf of the kinds that kubectl sends.
    fn json_body(&self) -> ApiResult<Value> {
        let refused = |error: &dyn std::fmt::Display| {
            let kind = &self.resource.kind;
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): {error}"
            ))
        };
        match self.content_type.split(';').next().unwrap_or_default().trim() {
            "application/json" | "" => serde_json::from_slice(&self.body).map_err(|error| refused(&error)),
            "application/yaml" => serde_yaml_ng::from_slice(&self.body).map_err(|error| refused(&error)),
            protobuf::MEDIA_TYPE => protobuf::decode(&self.body).map_err(|error| match error {
                ProtobufError::Malformed(_) => refused(&error),
                ProtobufError::Unknown(_) => ApiError::new(415, "UnsupportedMediaType", error.to_string()),
            }),
            _ => Err(ApiError::unsupported_media_type(&[
                "application/json",
                "application/yaml",
            ])),
        }
    }

    fn presenter(&self) -> Presenter<'_> {
        Presenter {
            resource: &self.resource,
            form: self.form,
            clock: &self.cluster.clock,
        }
    }

    fn stored_reply(&self, code: u16, object: &Object, warnings: Vec<String>) -> Reply {
        Reply::Json {
            code,
            body: self.presenter().object(object, true),
            warnings,
        }
    }
}

/// A JSON document as it is.
fn value_reply(code: u16, value: &Value, warnings: Vec<String>) -> Reply {
    Reply::Json {
        code,
        body: Bytes::from(value.to_string()),
        warnings,
    }
}

/// `Status` of a success that has no object to show.
fn success(code: u16, details: Option<Value>) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if code == 201 {
        status["code"] = json!(code);
    }
    if let Some(details) = details {
        status["details"] = details;
    }
    status
}
