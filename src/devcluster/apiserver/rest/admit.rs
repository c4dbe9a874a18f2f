//! Admission of a request, beyond validation of the object. Built-in rules first, then webhooks.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Call;
use crate::devcluster::apiserver::{
    admission,
    status::{ApiError, ApiResult},
    store::Object,
    webhook::{self, Operation, Rejection},
};

/// One admission of a request: what webhooks get beside the object.
pub(super) struct Admission<'a> {
    call: &'a Call,
    operation: Operation,
    name: &'a str,
    old: Option<&'a Value>,
    namespace: Option<Arc<Object>>,
    options: Value,
    user: Value,
    dry_run: bool,
}

impl<'a> Admission<'a> {
    /// Of an operation on the object of this name; `old` is its stored state in served form.
    pub fn new(call: &'a Call, operation: Operation, name: &'a str, old: Option<&'a Value>) -> ApiResult<Self> {
        let own_namespace = if call.resource.is("", "namespaces") {
            name
        } else {
            call.info.namespace.as_str()
        };
        let namespace = match own_namespace {
            "" => None,
            name => call
                .cluster
                .store
                .of("", "namespaces")
                .get(&(String::new(), name.to_owned())),
        };
        Ok(Admission {
            call,
            operation,
            name,
            old,
            namespace,
            options: json!({"kind": call.options_kind(), "apiVersion": "meta.k8s.io/v1"}),
            user: call.identity.user_info(),
            dry_run: call.dry_run()?,
        })
    }

    /// Runs built-in rules and mutating webhooks on the object; true if webhooks were called, whose changes are not in normal form.
    pub async fn mutate(&self, mut object: Option<&mut Value>, warnings: &mut Vec<String>) -> ApiResult<bool> {
        let request = self.request();
        if self.operation == Operation::Create {
            self.check_namespace()?;
            if let ("", Some(object)) = (request.subresource, object.as_deref_mut()) {
                admission::on_create(&self.call.cluster.store, &self.call.resource, object)?;
            }
        }
        let asked = self.call.cluster.webhooks.wants(&request);
        if asked {
            let mutated = self.call.cluster.webhooks.mutate(&request, object).await;
            warnings.extend(mutated.map_err(rejected)?);
        }
        Ok(asked)
    }

    /// Lets policies and validating webhooks refuse the object.
    pub async fn validate(&self, object: Option<&Value>, warnings: &mut Vec<String>) -> ApiResult<()> {
        let request = self.request();
        warnings.extend(
            self.call
                .cluster
                .policies
                .validate(&request, object)
                .map_err(rejected)?,
        );
        if self.call.cluster.webhooks.wants(&request) {
            warnings.extend(
                self.call
                    .cluster
                    .webhooks
                    .validate(&request, object)
                    .await
                    .map_err(rejected)?,
            );
        }
        Ok(())
    }

    /// Objects are only created in namespaces that exist and stay.
    fn check_namespace(&self) -> ApiResult<()> {
        let call = self.call;
        if !call.resource.namespaced {
            return Ok(());
        }
        let name = &call.info.namespace;
        let Some(namespace) = &self.namespace else {
            let mut subject = call.resource.subject(name);
            subject.group = String::new();
            subject.resource = "namespaces".to_owned();
            return Err(ApiError::not_found(&subject));
        };
        if namespace.value["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let mut error = ApiError::forbidden(&call.resource.subject(self.name), &why);
        if let Some(details) = &mut error.details {
            let message = format!("namespace {name} is being terminated");
            details["causes"] =
                json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
        }
        Err(error)
    }

    fn request(&self) -> webhook::Request<'_> {
        let resource = &self.call.resource;
        let subresource = self.call.info.subresource.as_str();
        let own_kind = (
            resource.group.as_str(),
            resource.version.as_str(),
            resource.kind.as_str(),
        );
        let kind = match resource.subresources.iter().find(|(name, _)| *name == subresource) {
            Some((_, "Binding")) => ("", "v1", "Binding"),
            Some((_, "Eviction")) => ("policy", "v1", "Eviction"),
            Some(_) | None if subresource == "scale" => ("autoscaling", "v1", "Scale"),
            Some(_) | None => own_kind,
        };
        webhook::Request {
            operation: self.operation,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.plural,
            subresource,
            kind,
            name: self.name,
            namespace: &self.call.info.namespace,
            namespace_object: self.namespace.as_ref().map(|namespace| &namespace.value),
            old_object: self.old,
            options: &self.options,
            dry_run: self.dry_run,
            user: &self.user,
        }
    }
}

fn rejected(rejection: Rejection) -> ApiError {
    let mut error = ApiError::from_status(&rejection.status);
    error.code = rejection.code;
    error
}
