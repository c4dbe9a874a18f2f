use serde_json::{Value, json};

use super::super::webhook::{Operation, Request};
use super::*;

fn policy(spec: Value) -> Value {
    let mut policy = json!({
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"], "scope": "*"},
            ]},
            "validations": [{"expression": "object.metadata.name != 'bad'"}],
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        policy["spec"][field] = value.clone();
    }
    policy
}

fn binding(spec: Value) -> Value {
    let mut binding = json!({
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    for (field, value) in spec.as_object().unwrap() {
        binding["spec"][field] = value.clone();
    }
    binding
}

/// The result for a pod of this name: the code and message of a refusal, or the warnings.
fn asked(policy: &Value, binding: &Value, name: &str) -> Result<Vec<String>, (u16, String)> {
    let policies = Policies::default();
    policies.configure(std::slice::from_ref(policy), std::slice::from_ref(binding));
    let object = json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"nodeName": "n1"}});
    let namespace = json!({"metadata": {"name": "team", "labels": {"tier": "gold"}}});
    let (options, user) = (json!({"kind": "CreateOptions"}), json!({"username": "me"}));
    let request = Request {
        operation: Operation::Create,
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "",
        kind: ("", "v1", "Pod"),
        name,
        namespace: "team",
        namespace_object: Some(&namespace),
        old_object: None,
        options: &options,
        dry_run: false,
        user: &user,
    };
    let refused = |rejection: Rejection| (rejection.code, rejection.status["message"].as_str().unwrap().to_owned());
    policies.validate(&request, Some(&object)).map_err(refused)
}

fn denied(spec: Value) -> Result<Vec<String>, (u16, String)> {
    asked(&policy(spec), &binding(json!({})), "bad")
}

#[test]
fn refusals_read_as_those_of_a_real_api_server() {
    let why = "pods \"bad\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    let refusal = |code, message: &str| Err((code, format!("{why}{message}")));
    assert_eq!(
        denied(json!({})),
        refusal(422, "failed expression: object.metadata.name != 'bad'")
    );
    let expression = "object.metadata.name != 'bad'";
    let validation = json!([{"expression": expression, "message": "no", "reason": "Forbidden"}]);
    assert_eq!(denied(json!({"validations": validation})), refusal(403, "no"));
    let computed =
        json!([{"expression": expression, "message": "no", "messageExpression": "'not ' + object.metadata.name"}]);
    assert_eq!(denied(json!({"validations": computed})), refusal(422, "not bad"));
    let broken = json!([{"expression": expression, "message": "no", "messageExpression": "object.metadata.nothing"}]);
    assert_eq!(denied(json!({"validations": broken})), refusal(422, "no"));
    assert_eq!(asked(&policy(json!({})), &binding(json!({})), "good"), Ok(Vec::new()));
}

#[test]
fn variables_are_computed_in_order_and_fail_only_those_who_read_them() {
    let spec = |validation: &str| {
        json!({
            "variables": [
                {"name": "labels", "expression": "has(object.metadata.labels) ? object.metadata.labels : {}"},
                {"name": "keys", "expression": "variables.labels.filter(key, key.startsWith('a'))"},
                {"name": "missing", "expression": "object.metadata.annotations['x']"},
            ],
            "validations": [{"expression": validation, "messageExpression": "'keys: ' + variables.keys.join(', ')"}],
        })
    };
    assert_eq!(
        denied(spec("size(variables.keys) == 1 && variables.labels['app'] == 'web'")),
        Ok(Vec::new())
    );
    let (_, message) = denied(spec("size(variables.keys) == 0")).unwrap_err();
    assert!(message.ends_with("denied request: keys: app"), "{message}");
    let (_, message) = denied(spec("variables.missing == 'x'")).unwrap_err();
    assert!(
        message.contains("resulted in error: no such key: annotations"),
        "{message}"
    );
}

#[test]
fn a_policy_is_in_force_where_its_rules_selectors_conditions_and_binding_say_so() {
    let off = Ok(Vec::new());
    for spec in [
        json!({"matchConditions": [{"name": "c", "expression": "request.userInfo.username != 'me'"}]}),
        json!({"matchConditions": [{"name": "c", "expression": "object.spec.nothing == ''"}, {"name": "d", "expression": "false"}]}),
        json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]}}),
        json!({"matchConstraints": {
            "resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}],
            "excludeResourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}],
        }}),
        json!({"matchConstraints": {
            "namespaceSelector": {"matchLabels": {"tier": "silver"}},
            "resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}],
        }}),
    ] {
        assert_eq!(denied(spec.clone()), off, "{spec}");
    }
    let policy = policy(json!({}));
    for spec in [
        json!({"policyName": "other"}),
        json!({"validationActions": ["Audit"]}),
        json!({"matchResources": {"objectSelector": {"matchLabels": {"app": "api"}}}}),
    ] {
        assert_eq!(asked(&policy, &binding(spec.clone()), "bad"), off, "{spec}");
    }
    let warned = asked(&policy, &binding(json!({"validationActions": ["Warn"]})), "bad").unwrap();
    assert_eq!(
        warned,
        [
            "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: object.metadata.name != 'bad'"
        ]
    );
}

#[test]
fn what_cannot_be_evaluated_refuses_unless_failures_are_ignored() {
    let spec =
        |policy: &str| json!({"failurePolicy": policy, "validations": [{"expression": "object.spec.nothing == 'x'"}]});
    let (code, message) = denied(spec("Fail")).unwrap_err();
    assert_eq!(code, 422);
    assert!(
        message.contains("expression 'object.spec.nothing == 'x'' resulted in error: no such key: nothing"),
        "{message}"
    );
    assert_eq!(denied(spec("Ignore")), Ok(Vec::new()));
    let unclear = json!({"matchConditions": [{"name": "c", "expression": "object.spec.nothing == 'x'"}]});
    assert!(denied(unclear).is_err());
}

#[test]
fn what_does_not_compile_is_not_stored() {
    let wrong = |object: Value| -> Vec<String> {
        Policies::check(&object)
            .iter()
            .map(|error| error.field.clone())
            .collect()
    };
    assert_eq!(wrong(policy(json!({}))), [""; 0]);
    assert_eq!(wrong(binding(json!({}))), [""; 0]);
    assert_eq!(
        wrong(policy(json!({
            "matchConstraints": {}, "variables": [{"name": "", "expression": "1 +"}], "paramKind": {"kind": "X"},
            "validations": [{"expression": "nobody.knows", "reason": "Whim"}],
        }))),
        [
            "spec.matchConstraints.resourceRules",
            "spec.variables[0].name",
            "spec.variables[0].expression",
            "spec.validations[0].expression",
            "spec.validations[0].reason",
            "spec.paramKind",
        ]
    );
    assert_eq!(
        wrong(binding(json!({"policyName": "", "validationActions": []}))),
        ["spec.policyName", "spec.validationActions"]
    );
}
