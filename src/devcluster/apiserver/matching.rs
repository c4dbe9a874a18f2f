//! Request matching of webhooks and admission policies: rules, selectors and match conditions in CEL.

use serde_json::{Value, json};

use super::admission_request::Request;
use super::cel::{Expression, Variable};
use super::selector::LabelSelector;

/// The variables of a condition.
pub(super) const VARIABLES: [Variable<'static>; 3] = [variable("object"), variable("oldObject"), variable("request")];

/// A variable whose values have no schema.
pub(super) const fn variable(name: &'static str) -> Variable<'static> {
    Variable { name, shape: None }
}

/// Rules and selectors.
#[derive(Debug)]
pub(super) struct Matching {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    namespace_selector: LabelSelector,
    object_selector: LabelSelector,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: String,
}

impl Matching {
    /// Reads the selectors of `given`, and the rules in its lists of these names. `None` if a selector is invalid.
    pub fn parse(given: &Value, rules: &str, excluded: &str) -> Option<Self> {
        let list = |name: &str| given[name].as_array().into_iter().flatten().map(Rule::parse).collect();
        Some(Self {
            rules: list(rules),
            excluded: list(excluded),
            namespace_selector: LabelSelector::from_object(&given["namespaceSelector"])?,
            object_selector: LabelSelector::from_object(&given["objectSelector"])?,
        })
    }

    /// Whether one of the rules matches the request, and no exclusion does. Objects that configure admission never match.
    pub fn has_rule_for(&self, request: &Request<'_>) -> bool {
        request.group != "admissionregistration.k8s.io"
            && self.rules.iter().any(|rule| rule.matches(request))
            && !self.excluded.iter().any(|rule| rule.matches(request))
    }

    /// Whether there are no rules, as where a binding narrows a policy by selectors only.
    pub fn has_no_rules(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether namespace and object are among those selected.
    pub fn selects(&self, request: &Request<'_>, object: Option<&Value>) -> bool {
        self.selects_namespace(request, object) && self.selects_object(request, object)
    }

    fn selects_namespace(&self, request: &Request<'_>, object: Option<&Value>) -> bool {
        if self.namespace_selector.is_empty() {
            return true;
        }
        // A Namespace object is matched by its own labels: the new ones, or the old ones on deletion.
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
}

/// Match conditions: source and compiled form.
#[derive(Debug)]
pub(super) struct Conditions(Vec<(String, Expression)>);

/// A condition that cannot be evaluated.
#[derive(Debug)]
pub(super) struct Unclear {
    /// Its source.
    pub expression: String,
    /// Why.
    pub error: String,
}

impl Conditions {
    /// Reads a list of conditions. `None` if one does not compile.
    pub fn parse(conditions: &Value) -> Option<Self> {
        let compiled = conditions.as_array().into_iter().flatten().map(|condition| {
            let source = text(&condition["expression"]);
            let compiled = Expression::compile(&source, &VARIABLES).ok()?;
            Some((source, compiled))
        });
        compiled.collect::<Option<_>>().map(Self)
    }

    /// Whether all are true. A false one decides, even if others fail.
    pub fn hold(&self, request: &Request<'_>, object: Option<&Value>) -> Result<bool, Unclear> {
        let uses_request = self.0.iter().any(|(_, condition)| condition.uses("request"));
        let asked = if uses_request { describe(request) } else { Value::Null };
        let variables = [
            ("object", object.unwrap_or(&Value::Null)),
            ("oldObject", request.old_object.unwrap_or(&Value::Null)),
            ("request", &asked),
        ];
        let mut unclear = None;
        for (expression, condition) in &self.0 {
            match condition.matches(&variables) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    let expression = expression.clone();
                    unclear.get_or_insert(Unclear { expression, error });
                }
            }
        }
        unclear.map_or(Ok(true), Err)
    }
}

/// The `request` variable of expressions.
pub(super) fn describe(request: &Request<'_>) -> Value {
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
            names: strings(&rule["resourceNames"]),
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
            && (self.names.is_empty() || self.names.iter().any(|name| name == request.name))
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

/// The texts in a list.
pub(super) fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
