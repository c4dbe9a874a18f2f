//! A configured webhook in compiled form, with request matching.

use std::time::Duration;

use serde_json::Value;

use super::super::matching::{Conditions, Matching, text};
use super::{Operation, Rejection, Request};

const DEFAULT_TIMEOUT_SECONDS: u64 = 10;

/// Whether a webhook matches a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    Yes,
    No,
}

/// Where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    Url(String),
    Service {
        namespace: String,
        name: String,
        port: u16,
        path: String,
    },
}

/// The address of a webhook and its CA.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    pub location: Location,
    /// PEM, base64 as configured; empty for the system's roots.
    pub ca_bundle: String,
}

/// One webhook of one configuration.
#[derive(Debug)]
pub(super) struct Webhook {
    pub name: String,
    pub endpoint: Endpoint,
    pub timeout: Duration,
    pub ignore_failure: bool,
    pub reinvoke: bool,
    matching: Matching,
    conditions: Conditions,
}

impl Webhook {
    /// The webhooks of all configurations, in the order in which they are called: by name of the configuration. One that
    /// does not compile cannot have been stored, and is left out.
    pub fn all(configurations: &[Value]) -> Vec<Self> {
        let mut configurations: Vec<&Value> = configurations.iter().collect();
        configurations.sort_by_key(|configuration| configuration["metadata"]["name"].as_str());
        let webhooks = configurations
            .iter()
            .flat_map(|configuration| configuration["webhooks"].as_array().into_iter().flatten());
        webhooks.filter_map(Self::parse).collect()
    }

    fn parse(webhook: &Value) -> Option<Self> {
        Some(Self {
            name: text(&webhook["name"]),
            endpoint: Endpoint::parse(&webhook["clientConfig"])?,
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_TIMEOUT_SECONDS)),
            ignore_failure: webhook["failurePolicy"] == "Ignore",
            reinvoke: webhook["reinvocationPolicy"] == "IfNeeded",
            matching: Matching::parse(webhook, "rules", "")?,
            conditions: Conditions::parse(&webhook["matchConditions"])?,
        })
    }

    /// Whether one of the rules names this kind of request.
    pub fn has_rule_for(&self, request: &Request<'_>) -> bool {
        self.matching.has_rule_for(request)
    }

    /// Whether the webhook matches the request with this object. An error refuses the request.
    pub fn matches(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Match, Rejection> {
        if !self.matching.has_rule_for(request) || !self.matching.selects(request, object) {
            return Ok(Match::No);
        }
        match self.conditions.hold(request, object) {
            Ok(true) => Ok(Match::Yes),
            Ok(false) => Ok(Match::No),
            Err(_) if self.ignore_failure => Ok(Match::No),
            Err(unclear) => Err(Rejection::condition_failed(
                request,
                &unclear.expression,
                &unclear.error,
            )),
        }
    }
}

impl Endpoint {
    fn parse(config: &Value) -> Option<Self> {
        let location = match (&config["url"], &config["service"]) {
            (Value::String(url), _) => Location::Url(url.clone()),
            (_, service) if service.is_object() => Location::Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: service["port"]
                    .as_u64()
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(443),
                path: text(&service["path"]),
            },
            _ => return None,
        };
        Some(Self {
            location,
            ca_bundle: text(&config["caBundle"]),
        })
    }
}

impl Operation {
    /// All, as rules write them.
    pub(super) const NAMES: [&'static str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
}
