//! Admission webhooks: which configured webhooks match a request, and calls over HTTPS.
//! Mutating webhooks run first, one after the other (and again where `reinvocationPolicy: IfNeeded` asks for it);
//! validating ones side by side. Absent: `matchPolicy: Equivalent` is taken as `Exact`, since no built-in kind is served
//! in two versions, and match conditions have no `authorizer`.

mod call;
pub(super) mod check;
mod config;
mod review;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

pub use super::admission_request::{Operation, Request};
use super::patch;
use super::schema::FieldError;
pub use call::Answerer;
use call::Caller;
use config::{Match, Webhook};
use review::Verdict;

/// A request that admission refuses.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// HTTP status code.
    pub code: u16,
    /// The `Status` object to answer with.
    pub status: Value,
    /// Warnings of the webhooks that were called so far.
    pub warnings: Vec<String>,
}

/// The configured webhooks and their connections. Configurations are swapped as a whole.
#[derive(Debug, Default)]
pub struct Webhooks {
    configured: RwLock<Configured>,
    caller: Caller,
}

#[derive(Debug, Default, Clone)]
struct Configured {
    mutating: Arc<[Webhook]>,
    validating: Arc<[Webhook]>,
}

impl Webhooks {
    /// No webhooks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the Services of webhooks are: (namespace, name, port) → address. Replaces the earlier map.
    pub fn set_services(&self, services: BTreeMap<(String, String, u16), SocketAddr>) {
        self.caller.set_services(services);
    }

    /// Answers the calls of all webhooks in this process, whatever address they are configured with.
    pub fn answer_by(&self, answerer: Answerer) {
        self.caller.answer_by(answerer);
    }

    /// Sets the client certificate for calls of webhooks, and its key, as PEM. A real API server reads them from the file that
    /// `--admission-control-config-file` names.
    ///
    /// # Errors
    /// When they are not a valid certificate and key.
    pub fn set_identity(&self, certificate: &str, key: &str) -> Result<(), serde_json::Error> {
        self.caller.set_identity(certificate, key)
    }

    /// Applies the stored configurations (all `MutatingWebhookConfiguration` and `ValidatingWebhookConfiguration` objects).
    /// Called after each change of any of them; connections of webhooks that stay the same are kept.
    pub fn configure(&self, mutating: &[Value], validating: &[Value]) {
        let configured = Configured {
            mutating: Webhook::all(mutating).into(),
            validating: Webhook::all(validating).into(),
        };
        self.caller
            .retain(configured.mutating.iter().chain(configured.validating.iter()));
        *self.configured.write().unwrap_or_else(PoisonError::into_inner) = configured;
    }

    /// Checks one configuration object before it is stored: what is missing, and match conditions that do not compile.
    pub fn check(configuration: &Value) -> Vec<FieldError> {
        check::configuration(configuration)
    }

    /// Whether any webhook has a rule for this request; without, `mutate` and `validate` need not be called.
    pub fn wants(&self, request: &Request<'_>) -> bool {
        let configured = self.configured();
        configured
            .mutating
            .iter()
            .chain(configured.validating.iter())
            .any(|webhook| webhook.has_rule_for(request))
    }

    /// Calls the mutating webhooks; `object` is changed in place (`None` on deletes). Returns the warnings.
    pub async fn mutate(&self, request: &Request<'_>, object: Option<&mut Value>) -> Result<Vec<String>, Rejection> {
        let webhooks = self.configured().mutating;
        let mut warnings = Vec::new();
        let Some(object) = object else {
            for webhook in webhooks.iter() {
                self.mutate_one(webhook, request, None, &mut warnings).await?;
            }
            return Ok(warnings);
        };
        // The object after each webhook with `reinvocationPolicy: IfNeeded`.
        let mut left: Vec<(&Webhook, Value)> = Vec::new();
        for webhook in webhooks.iter() {
            let asked = self.mutate_one(webhook, request, Some(object), &mut warnings).await?;
            if asked && webhook.reinvoke {
                left.push((webhook, object.clone()));
            }
        }
        for (webhook, seen) in left {
            if seen != *object {
                self.mutate_one(webhook, request, Some(object), &mut warnings).await?;
            }
        }
        Ok(warnings)
    }

    /// Calls the validating webhooks. Returns the warnings.
    pub async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, Rejection> {
        let webhooks = self.configured().validating;
        let calls = webhooks.iter().map(|webhook| async move {
            match webhook.matches(request, object)? {
                Match::No => Ok(None),
                Match::Yes => self.ask(webhook, request, object, false).await,
            }
        });
        let mut warnings = Vec::new();
        let mut refused = None;
        for answer in futures::future::join_all(calls).await {
            match answer {
                Ok(verdict) => {
                    let Some(mut verdict) = verdict else { continue };
                    warnings.append(&mut verdict.warnings);
                    if let Some(rejection) = verdict.rejection {
                        refused.get_or_insert(rejection);
                    }
                }
                Err(rejection) => drop(refused.get_or_insert(rejection)),
            }
        }
        match refused {
            Some(rejection) => Err(Rejection { warnings, ..rejection }),
            None => Ok(warnings),
        }
    }

    fn configured(&self) -> Configured {
        self.configured.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls one mutating webhook if it matches; returns whether it did.
    async fn mutate_one(
        &self,
        webhook: &Webhook,
        request: &Request<'_>,
        object: Option<&mut Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Rejection> {
        let with_warnings = |rejection: Rejection, warnings: &mut Vec<String>| Rejection {
            warnings: std::mem::take(warnings),
            ..rejection
        };
        match webhook.matches(request, object.as_deref()) {
            Ok(Match::Yes) => {}
            Ok(Match::No) => return Ok(false),
            Err(rejection) => return Err(with_warnings(rejection, warnings)),
        }
        let verdict = match self.ask(webhook, request, object.as_deref(), true).await {
            Ok(Some(verdict)) => verdict,
            Ok(None) => return Ok(true),
            Err(rejection) => return Err(with_warnings(rejection, warnings)),
        };
        warnings.extend(verdict.warnings);
        if let Some(rejection) = verdict.rejection {
            return Err(with_warnings(rejection, warnings));
        }
        if let (Some(change), Some(object)) = (verdict.patch, object) {
            let patched = patch::json_explained(object, &change);
            *object = patched.map_err(|error| with_warnings(Rejection::internal(&error), warnings))?;
        }
        Ok(true)
    }

    /// The response of one webhook; `None` if the call failed and its failure policy is `Ignore`.
    async fn ask(
        &self,
        webhook: &Webhook,
        request: &Request<'_>,
        object: Option<&Value>,
        mutating: bool,
    ) -> Result<Option<Verdict>, Rejection> {
        let uid = crate::random::uuid().to_string();
        let body = review::encode(&uid, request, object);
        let answer = match self.caller.post(webhook, body).await {
            Ok(answer) => Verdict::decode(&webhook.name, &uid, &answer, mutating),
            Err(error) => Err(format!("failed to call webhook: {error}")),
        };
        match answer {
            Ok(verdict) => Ok(Some(verdict)),
            Err(error) if webhook.ignore_failure => {
                tracing::warn!(webhook = %webhook.name, %error, "webhook failed and is ignored");
                Ok(None)
            }
            Err(error) => Err(Rejection::internal(&format!(
                "failed calling webhook {:?}: {error}",
                webhook.name
            ))),
        }
    }
}
