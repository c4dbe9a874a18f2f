//! Validating admission policies: CEL rules that the API server evaluates itself, if a binding puts them in force. They run after
//! mutating webhooks and before validating ones. Absent: parameters, audit annotations, `authorizer`, the controller that checks types, and the cost
//! budget, as everywhere in `cel`.

mod check;
#[cfg(test)]
mod tests;

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Value, json};

use super::cel::{Computed, Expression, Variable};
use super::matching::{Conditions, Matching, describe, text, variable};
use super::schema::FieldError;
use super::webhook::{Rejection, Request};

/// The variables of expressions.
const VARIABLES: [Variable<'static>; 5] = [
    variable("object"),
    variable("oldObject"),
    variable("request"),
    variable("namespaceObject"),
    variable("variables"),
];

/// The policies that are bound. Swapped as a whole.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    bound: RwLock<Arc<[Binding]>>,
}

/// A policy in force.
#[derive(Debug)]
struct Binding {
    name: String,
    denies: bool,
    warns: bool,
    policy: Arc<Policy>,
    /// The binding's own match rules, if any.
    matching: Option<Matching>,
}

#[derive(Debug)]
struct Policy {
    name: String,
    ignore_failure: bool,
    matching: Matching,
    conditions: Conditions,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
}

#[derive(Debug)]
struct Validation {
    source: String,
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

impl Policies {
    /// Compiles the stored policies and bindings. What does not compile cannot have been stored, and is left out.
    pub fn configure(&self, policies: &[Value], bindings: &[Value]) {
        let policies: Vec<Arc<Policy>> = policies.iter().filter_map(Policy::parse).map(Arc::new).collect();
        let mut bound: Vec<Binding> = bindings
            .iter()
            .filter_map(|binding| Binding::parse(binding, &policies))
            .collect();
        bound.sort_by(|one, other| one.name.cmp(&other.name));
        *self.bound.write().unwrap_or_else(PoisonError::into_inner) = bound.into();
    }

    /// Checks a policy or a binding before it is stored.
    pub fn check(object: &Value) -> Vec<FieldError> {
        check::object(object)
    }

    /// Evaluates the policies on a request. Returns warnings.
    pub fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, Rejection> {
        let bound = Arc::clone(&self.bound.read().unwrap_or_else(PoisonError::into_inner));
        let mut warnings = Vec::new();
        for binding in bound.iter() {
            let Some((message, reason)) = binding.objection(request, object) else {
                continue;
            };
            let (policy, own) = (&binding.policy.name, &binding.name);
            if binding.warns {
                warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{own}': {message}"
                ));
            }
            if binding.denies {
                let why =
                    format!("ValidatingAdmissionPolicy '{policy}' with binding '{own}' denied request: {message}");
                return Err(refusal(request, &why, &message, &reason));
            }
        }
        Ok(warnings)
    }
}

impl Binding {
    fn parse(binding: &Value, policies: &[Arc<Policy>]) -> Option<Self> {
        let spec = &binding["spec"];
        let policy = policies.iter().find(|policy| spec["policyName"] == *policy.name)?;
        let actions = spec["validationActions"].as_array();
        let acts = |wanted: &str| actions.is_some_and(|actions| actions.iter().any(|action| action == wanted));
        let narrowed = !spec["matchResources"].is_null();
        Some(Self {
            name: text(&binding["metadata"]["name"]),
            denies: acts("Deny"),
            warns: acts("Warn"),
            policy: Arc::clone(policy),
            matching: narrowed
                .then(|| parse_matching(&spec["matchResources"]))
                .map_or(Some(None), |m| m.map(Some))?,
        })
    }

    /// A violation of a policy: message and reason.
    fn objection(&self, request: &Request<'_>, object: Option<&Value>) -> Option<(String, String)> {
        let in_scope = |matching: &Matching| {
            (matching.has_no_rules() || matching.has_rule_for(request)) && matching.selects(request, object)
        };
        if !self.policy.matching.has_rule_for(request)
            || !self.policy.matching.selects(request, object)
            || !self.matching.as_ref().is_none_or(in_scope)
        {
            return None;
        }
        let failed = |expression: &str, error: &str| {
            let message = format!("expression '{expression}' resulted in error: {error}");
            (!self.policy.ignore_failure).then(|| (message, "Invalid".to_owned()))
        };
        match self.policy.conditions.hold(request, object) {
            Ok(true) => self.policy.objection(request, object, failed),
            Ok(false) => None,
            Err(unclear) => failed(&unclear.expression, &unclear.error),
        }
    }
}

impl Policy {
    fn parse(policy: &Value) -> Option<Self> {
        let spec = &policy["spec"];
        let list = |name: &str| spec[name].as_array().into_iter().flatten();
        let variables = list("variables").map(|variable| {
            let compiled = Expression::compile(variable["expression"].as_str()?, &VARIABLES).ok()?;
            Some((text(&variable["name"]), compiled))
        });
        Some(Self {
            name: text(&policy["metadata"]["name"]),
            ignore_failure: spec["failurePolicy"] == "Ignore",
            matching: parse_matching(&spec["matchConstraints"])?,
            conditions: Conditions::parse(&spec["matchConditions"])?,
            variables: variables.collect::<Option<_>>()?,
            validations: list("validations").map(Validation::parse).collect::<Option<_>>()?,
        })
    }

    /// The first validation that is false, as a violation.
    fn objection(
        &self,
        request: &Request<'_>,
        object: Option<&Value>,
        failed: impl Fn(&str, &str) -> Option<(String, String)>,
    ) -> Option<(String, String)> {
        let asked = describe(request);
        let given = [
            ("object", object.unwrap_or(&Value::Null)),
            ("oldObject", request.old_object.unwrap_or(&Value::Null)),
            ("request", &asked),
            ("namespaceObject", request.namespace_object.unwrap_or(&Value::Null)),
        ];
        let mut variables = Computed::default();
        for (name, expression) in &self.variables {
            let value = expression.compute(&given, &variables);
            variables.insert(name, value);
        }
        self.validations
            .iter()
            .find_map(|validation| match validation.expression.compute(&given, &variables) {
                Ok(cel::Value::Bool(true)) => None,
                Ok(cel::Value::Bool(false)) => {
                    Some((validation.message(&given, &variables), validation.reason.clone()))
                }
                Ok(_) => failed(&validation.source, "it is not a bool"),
                Err(error) => failed(&validation.source, &error),
            })
    }
}

impl Validation {
    fn parse(validation: &Value) -> Option<Self> {
        let source = text(&validation["expression"]);
        let compile = |text: &str| Expression::compile(text, &VARIABLES).ok();
        let message_expression = match validation["messageExpression"].as_str() {
            Some(text) => Some(compile(text)?),
            None => None,
        };
        Some(Self {
            expression: compile(&source)?,
            message: text(&validation["message"]),
            message_expression,
            reason: validation["reason"].as_str().unwrap_or("Invalid").to_owned(),
            source,
        })
    }

    /// The message: as computed, if that is one line; else as given; else the expression.
    fn message(&self, given: &[(&str, &Value)], variables: &Computed) -> String {
        const BYTES_MAX: usize = 5 * 1024;
        let computed =
            self.message_expression
                .as_ref()
                .and_then(|expression| match expression.compute(given, variables) {
                    Ok(cel::Value::String(text)) => Some(text.trim().to_owned()),
                    Ok(_) | Err(_) => None,
                });
        let usable = |text: &String| !text.is_empty() && text.len() <= BYTES_MAX && !text.contains('\n');
        match computed.filter(usable) {
            Some(text) => text,
            None if !self.message.is_empty() => self.message.clone(),
            None => format!("failed expression: {}", self.source.trim()),
        }
    }
}

fn parse_matching(given: &Value) -> Option<Matching> {
    Matching::parse(given, "resourceRules", "excludeResourceRules")
}

/// The refusal, in the API server's words.
fn refusal(request: &Request<'_>, why: &str, message: &str, reason: &str) -> Rejection {
    let code = match reason {
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    let mut rejection = Rejection::forbidden(request, why);
    rejection.code = code;
    rejection.status["code"] = json!(code);
    rejection.status["reason"] = json!(reason);
    rejection.status["details"]["causes"] = json!([{"message": message}]);
    rejection
}
