//! Matching, reviews and checks; the calls themselves are tested against a server. Messages were seen on a real API server.

use serde_json::{Value, json};

use super::config::{Match, Webhook};
use super::review::{Verdict, encode};
use super::{Operation, Request, Webhooks};

fn webhook(change: Value) -> Value {
    let mut webhook = json!({
        "name": "w.test.dev", "clientConfig": {"url": "https://127.0.0.1:1/x"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"], "scope": "*"}],
    });
    for (name, value) in change.as_object().expect("an object") {
        webhook[name] = value.clone();
    }
    webhook
}

fn compiled(change: Value) -> Webhook {
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [webhook(change)]});
    Webhook::all(&[configuration]).pop().expect("compiles")
}

struct Given {
    operation: Operation,
    resource: &'static str,
    subresource: &'static str,
    namespace: &'static str,
    object: Value,
}

impl Default for Given {
    fn default() -> Self {
        let object =
            json!({"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {"schedulerName": "kai-scheduler"}});
        Self {
            operation: Operation::Create,
            resource: "pods",
            subresource: "",
            namespace: "team",
            object,
        }
    }
}

impl Given {
    fn with<T>(&self, check: impl FnOnce(&Request<'_>) -> T) -> T {
        let namespace = json!({"metadata": {"name": self.namespace, "labels": {"tier": "gold"}}});
        let (options, user) = (json!({"kind": "CreateOptions"}), json!({"username": "me"}));
        check(&Request {
            operation: self.operation,
            group: "",
            version: "v1",
            resource: self.resource,
            subresource: self.subresource,
            kind: ("", "v1", "Pod"),
            name: "p",
            namespace: self.namespace,
            namespace_object: (!self.namespace.is_empty()).then_some(&namespace),
            old_object: None,
            options: &options,
            dry_run: false,
            user: &user,
        })
    }

    fn matches(&self, change: Value) -> bool {
        self.with(|request| compiled(change).matches(request, Some(&self.object))) == Ok(Match::Yes)
    }
}

fn rule(field: &str, value: Value) -> Value {
    let mut rules = webhook(json!({}))["rules"].clone();
    rules[0][field] = value;
    json!({"rules": rules})
}

#[test]
fn rules_select_by_operation_resource_and_scope() {
    let create = Given::default();
    let status = Given {
        subresource: "status",
        ..Given::default()
    };
    let delete = Given {
        operation: Operation::Delete,
        ..Given::default()
    };
    let node = Given {
        resource: "nodes",
        namespace: "",
        ..Given::default()
    };
    let cases = [
        (&create, json!({}), true),
        (&delete, json!({}), false),
        (&delete, rule("operations", json!(["*"])), true),
        (&create, rule("apiGroups", json!(["apps"])), false),
        (&create, rule("apiVersions", json!(["v2", "*"])), true),
        (&create, rule("resources", json!(["*"])), true),
        (&status, rule("resources", json!(["*", "pods"])), false),
        (&status, rule("resources", json!(["pods/status"])), true),
        (&status, rule("resources", json!(["pods/*"])), true),
        (&create, rule("resources", json!(["pods/*"])), false),
        (&status, rule("resources", json!(["*/status"])), true),
        (&status, rule("resources", json!(["*/*"])), true),
        (&create, rule("resources", json!(["*/*"])), true),
        (&create, rule("scope", json!("Cluster")), false),
        (&create, rule("scope", json!("Namespaced")), true),
        (&node, rule("resources", json!(["*"])), true),
    ];
    for (given, change, expected) in cases {
        assert_eq!(
            given.matches(change.clone()),
            expected,
            "{} {}: {change}",
            given.resource,
            given.subresource
        );
    }
}

#[test]
fn selectors_look_at_the_namespace_and_the_object() {
    let given = Given::default();
    assert!(given.matches(json!({"namespaceSelector": {"matchLabels": {"tier": "gold"}}})));
    assert!(
        !given
            .matches(json!({"namespaceSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}}))
    );
    assert!(given.matches(json!({"objectSelector": {"matchLabels": {"app": "web"}}})));
    assert!(!given.matches(json!({"objectSelector": {"matchLabels": {"app": "db"}}})));
    let cluster = Given {
        namespace: "",
        ..Given::default()
    };
    assert!(
        cluster.matches(json!({"namespaceSelector": {"matchLabels": {"tier": "none"}}})),
        "no namespace, no say"
    );
}

#[test]
fn match_conditions_choose_refuse_or_pass() {
    let given = Given::default();
    let condition = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    assert!(given.matches(condition(
        "object.spec.schedulerName == 'kai-scheduler' && request.operation == 'CREATE'"
    )));
    assert!(!given.matches(condition("object.spec.schedulerName == 'other'")));
    let broken = condition("object.spec.nope == 'other'");
    let refused = given
        .with(|request| compiled(broken.clone()).matches(request, Some(&given.object)))
        .expect_err("refuses");
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.status["message"],
        "pods \"p\" is forbidden: expression 'object.spec.nope == 'other'' resulted in error: no such key: nope"
    );
    let mut ignored = broken;
    ignored["failurePolicy"] = json!("Ignore");
    assert!(!given.matches(ignored));
}

#[test]
fn webhook_configurations_never_go_to_webhooks() {
    let everything = compiled(
        json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]}),
    );
    Given::default().with(|request| {
        assert!(everything.has_rule_for(request));
        let request = Request {
            group: "admissionregistration.k8s.io",
            resource: "mutatingwebhookconfigurations",
            ..request.clone()
        };
        assert!(!everything.has_rule_for(&request));
    });
}

#[test]
fn reviews_carry_the_request() {
    let given = Given::default();
    let review = given.with(|request| encode("u-1", request, Some(&given.object)));
    let review: Value = serde_json::from_slice(&review).expect("JSON");
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    assert_eq!(
        review,
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u-1", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": "p", "namespace": "team", "operation": "CREATE", "userInfo": {"username": "me"},
            "object": given.object, "oldObject": null, "dryRun": false, "options": {"kind": "CreateOptions"},
        }})
    );
}

fn decode(response: Value, mutating: bool) -> Result<Verdict, String> {
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    Verdict::decode("w.test.dev", "u", review.to_string().as_bytes(), mutating)
}

#[test]
fn denials_read_as_on_the_real_server() {
    let cases = [
        (
            json!({"message": "no way"}),
            400,
            Value::Null,
            r#"admission webhook "w.test.dev" denied the request: no way"#,
        ),
        (
            json!({"message": "no way", "code": 403, "reason": "Forbidden"}),
            403,
            json!("Forbidden"),
            r#"admission webhook "w.test.dev" denied the request: no way"#,
        ),
        (
            json!({"reason": "Because"}),
            400,
            json!("Because"),
            r#"admission webhook "w.test.dev" denied the request: Because"#,
        ),
        (
            Value::Null,
            400,
            Value::Null,
            r#"admission webhook "w.test.dev" denied the request without explanation"#,
        ),
        (
            json!({"message": "x", "code": 200}),
            400,
            Value::Null,
            r#"admission webhook "w.test.dev" denied the request: x"#,
        ),
    ];
    for (status, code, reason, message) in cases {
        let verdict = decode(
            json!({"uid": "u", "allowed": false, "status": status, "warnings": ["careful"]}),
            false,
        )
        .expect("decodes");
        let rejection = verdict.rejection.expect("refuses");
        assert_eq!(
            (
                rejection.code,
                &rejection.status["reason"],
                rejection.status["message"].as_str()
            ),
            (code, &reason, Some(message))
        );
        assert_eq!(verdict.warnings, ["careful"]);
    }
}

#[test]
fn answers_that_make_no_sense_are_failures() {
    let cases = [
        (
            json!({"uid": "x", "allowed": true}),
            false,
            r#"received invalid webhook response: expected response.uid="u", got "x""#,
        ),
        (
            json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"}),
            false,
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
        (
            json!({"uid": "u", "allowed": true, "patch": "W10="}),
            true,
            "received invalid webhook response: webhook returned response.patch but not response.patchType",
        ),
        (
            Value::Null,
            true,
            "received invalid webhook response: webhook response was absent",
        ),
    ];
    for (response, mutating, expected) in cases {
        assert_eq!(decode(response, mutating).unwrap_err(), expected);
    }
    let patch = decode(
        json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"}),
        true,
    )
    .expect("decodes");
    assert_eq!(patch.patch, Some(json!([])));
}

#[test]
fn configurations_are_checked() {
    let cases = [
        (
            json!({"matchConditions": [{"name": "a", "expression": "foo == 1"}]}),
            "webhooks[0].matchConditions[0].expression: Invalid value: \"foo == 1\": compilation failed: ERROR: <input>: undeclared reference to 'foo' (in container '')",
        ),
        (
            json!({"matchConditions": [{"expression": "true"}]}),
            "webhooks[0].matchConditions[0].name: Required value",
        ),
        (
            json!({"name": "short"}),
            "webhooks[0].name: Invalid value: \"short\": should be a domain with at least three segments separated by dots",
        ),
        (
            json!({"admissionReviewVersions": []}),
            "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
        ),
        (
            json!({"clientConfig": {}}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            json!({"timeoutSeconds": 99}),
            "webhooks[0].timeoutSeconds: Invalid value: 99: the timeout value must be between 1 and 30 seconds",
        ),
        (
            json!({"failurePolicy": "X"}),
            "webhooks[0].failurePolicy: Unsupported value: \"X\": supported values: \"Fail\", \"Ignore\"",
        ),
        (
            json!({"sideEffects": null}),
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
        ),
        (
            rule("operations", json!(["FOO"])),
            "webhooks[0].rules[0].operations[0]: Unsupported value: \"FOO\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
        ),
        (
            json!({"clientConfig": {"service": {"name": "wh", "namespace": "ns", "path": "p"}}}),
            "webhooks[0].clientConfig.service.path: Invalid value: \"p\": must start with a '/'",
        ),
    ];
    for (change, expected) in cases {
        let errors = Webhooks::check(&json!({"webhooks": [webhook(change.clone())]}));
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [expected],
            "{change}"
        );
    }
    assert!(Webhooks::check(&json!({"webhooks": [webhook(json!({}))]})).is_empty());
}
