//! A configured webhook in compiled form, and which requests it wants.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::cel::{Expression, Variable};
use super::super::selector::LabelSelector;
use super::{Operation, Rejection, Request};

/// What a match condition may look at.
pub(super) const CONDITION_VARIABLES: [Variable<'static>; 3] = [
    Variable {
        name: "object",
        shape: None,
    },
    Variable {
        name: "oldObject",
        shape: None,
    },
    Variable {
        name: "request",
        shape: None,
    },
];

const DEFAULT_TIMEOUT_SECONDS: u64 = 10;

/// Whether a webhook wants a request.
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

/// Where a webhook is and whom to trust there.
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
    rules: Vec<Rule>,
    namespace_selector: LabelSelector,
    object_selector: LabelSelector,
    /// Source and compiled form.
    conditions: Vec<(String, Expression)>,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
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
        let conditions = webhook["matchConditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|condition| {
                let source = text(&condition["expression"]);
                Expression::compile(&source, &CONDITION_VARIABLES)
                    .ok()
                    .map(|compiled| (source, compiled))
            });
        Some(Self {
            name: text(&webhook["name"]),
            endpoint: Endpoint::parse(&webhook["clientConfig"])?,
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_TIMEOUT_SECONDS)),
            ignore_failure: webhook["failurePolicy"] == "Ignore",
            reinvoke: webhook["reinvocationPolicy"] == "IfNeeded",
            rules: webhook["rules"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Rule::parse)
                .collect(),
            namespace_selector: LabelSelector::from_object(&webhook["namespaceSelector"])?,
            object_selector: LabelSelector::from_object(&webhook["objectSelector"])?,
            conditions: conditions.collect::<Option<_>>()?,
        })
    }

    /// Whether one of the rules names this kind of request. Webhook configurations themselves never go to webhooks.
    pub fn has_rule_for(&self, request: &Request<'_>) -> bool {
        let exempt =
            request.group == "admissionregistration.k8s.io" && request.resource.ends_with("webhookconfigurations");
        !exempt && self.rules.iter().any(|rule| rule.matches(request))
    }

    /// Whether the webhook wants the request with this object. An error refuses the request.
    pub fn matches(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Match, Rejection> {
        if !self.has_rule_for(request)
            || !self.selects_namespace(request, object)
            || !self.selects_object(request, object)
        {
            return Ok(Match::No);
        }
        self.conditions_hold(request, object)
    }

    fn selects_namespace(&self, request: &Request<'_>, object: Option<&Value>) -> bool {
        if self.namespace_selector.is_empty() {
            return true;
        }
        // A Namespace is in itself: with its labels of now, and of before where it goes.
        let own = (request.group.is_empty() && request.resource == "namespaces")
            .then(|| object.or(request.old_object))
            .flatten();
        let namespace = own.or(request.namespace_object);
        namespace.is_none_or(|namespace| self.namespace_selector.matches(namespace))
    }

    fn selects_object(&self, request: &Request<'_>, object: Option<&Value>) -> bool {
        self.object_selector.is_empty()
            || [object, request.old_object]
                .into_iter()
                .flatten()
                .any(|object| self.object_selector.matches(object))
    }

    fn conditions_hold(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Match, Rejection> {
        if self.conditions.is_empty() {
            return Ok(Match::Yes);
        }
        let uses_request = self.conditions.iter().any(|(_, condition)| condition.uses("request"));
        let asked = if uses_request { describe(request) } else { Value::Null };
        let variables = [
            ("object", object.unwrap_or(&Value::Null)),
            ("oldObject", request.old_object.unwrap_or(&Value::Null)),
            ("request", &asked),
        ];
        let mut failed = None;
        for (source, condition) in &self.conditions {
            match condition.matches(&variables) {
                Ok(true) => {}
                // A condition that is false decides, whatever another one may be.
                Ok(false) => return Ok(Match::No),
                Err(error) => failed = failed.or(Some((source, error))),
            }
        }
        match failed {
            None => Ok(Match::Yes),
            Some(_) if self.ignore_failure => Ok(Match::No),
            Some((source, error)) => Err(Rejection::condition_failed(request, source, &error)),
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

/// The `request` variable of match conditions.
fn describe(request: &Request<'_>) -> Value {
    let (group, version, kind) = request.kind;
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": request.group, "version": request.version, "resource": request.resource});
    json!({
        "kind": kind, "resource": resource, "subResource": request.subresource, "requestKind": kind,
        "requestResource": resource, "requestSubResource": request.subresource, "name": request.name,
        "namespace": request.namespace, "operation": request.operation.as_str(), "userInfo": request.user,
        "dryRun": request.dry_run, "options": request.options,
    })
}

impl Rule {
    fn parse(rule: &Value) -> Self {
        Self {
            operations: strings(&rule["operations"]),
            groups: strings(&rule["apiGroups"]),
            versions: strings(&rule["apiVersions"]),
            resources: strings(&rule["resources"]),
            scope: text(&rule["scope"]),
        }
    }

    fn matches(&self, request: &Request<'_>) -> bool {
        let names = |list: &[String], wanted: &str| list.iter().any(|entry| entry == "*" || entry == wanted);
        names(&self.operations, request.operation.as_str())
            && names(&self.groups, request.group)
            && names(&self.versions, request.version)
            && self
                .resources
                .iter()
                .any(|pattern| resource_matches(pattern, request.resource, request.subresource))
            && self.scope_matches(request)
    }

    fn scope_matches(&self, request: &Request<'_>) -> bool {
        let namespaced = !request.namespace.is_empty() && request.resource != "namespaces";
        match self.scope.as_str() {
            "Namespaced" => namespaced,
            "Cluster" => !namespaced,
            _ => true,
        }
    }
}

/// `pods`, `pods/status`, `pods/*`, `*/status`, `*` (no subresources), `*/*`.
fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    let (wanted, wanted_sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    let sub = if pattern == "*/*" {
        true
    } else {
        wanted_sub == subresource || (wanted_sub == "*" && !subresource.is_empty())
    };
    sub && (wanted == "*" || wanted == resource)
}

impl Operation {
    /// All, as rules write them.
    pub(super) const NAMES: [&'static str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
}
