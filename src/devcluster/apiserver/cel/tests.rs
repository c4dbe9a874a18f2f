use serde_json::json;

use super::identifiers::escape;
use super::{Expression, Variable};

const VARIABLES: [Variable<'static>; 3] = [
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

fn matches(text: &str) -> Result<bool, String> {
    let object = json!({
        "metadata": {"name": "p", "labels": {"kai.scheduler/queue": "test"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "a", "count": 3}, {"name": "b"}]},
    });
    let request = json!({"operation": "CREATE", "userInfo": {"username": "me", "groups": ["g"]}});
    let null = json!(null);
    Expression::compile(text, &VARIABLES)?.matches(&[("object", &object), ("oldObject", &null), ("request", &request)])
}

#[test]
fn typical_match_conditions_are_evaluated() {
    for (text, expected) in [
        ("object.spec.schedulerName == 'kai-scheduler'", true),
        ("object.spec.schedulerName == 'other'", false),
        ("has(object.spec.nodeName)", false),
        ("!has(object.spec.nodeName) || object.spec.nodeName == ''", true),
        (
            "has(object.metadata.labels) && 'kai.scheduler/queue' in object.metadata.labels",
            true,
        ),
        ("object.metadata.labels['kai.scheduler/queue'].startsWith('te')", true),
        ("object.metadata.?annotations.orValue({}).size() == 0", true),
        ("object.spec.containers.exists(c, c.name == 'b')", true),
        ("object.spec.containers.all(c, has(c.count))", false),
        ("object.spec.containers.map(c, c.name) == ['a', 'b']", true),
        (
            "object.spec.containers.filter(c, has(c.count) && c.count > 2).size() == 1",
            true,
        ),
        (
            "request.operation in ['CREATE', 'UPDATE'] && 'g' in request.userInfo.groups",
            true,
        ),
        ("request.userInfo.username.matches('^m')", true),
        ("oldObject == null || oldObject.spec != object.spec", true),
        (
            "object.spec.schedulerName.lowerAscii() == 'kai-scheduler' && size(object.spec.containers) == 2",
            true,
        ),
    ] {
        assert_eq!(matches(text), Ok(expected), "{text}");
    }
}

#[test]
fn errors_name_what_is_wrong() {
    assert_eq!(
        matches("object.spec.nothing == 'x'"),
        Err("no such key: nothing".to_owned())
    );
    assert_eq!(
        matches("object.spec.schedulerName").unwrap_err(),
        "expression must evaluate to bool, not string"
    );
    let unknown = matches("authorizer.group('').resource('pods').check('get').allowed()").unwrap_err();
    assert!(
        unknown.starts_with("compilation failed: ERROR: <input>: undeclared reference to '"),
        "{unknown}"
    );
}

#[test]
fn an_expression_uses_only_the_variables_that_it_reads() {
    let expression = Expression::compile("object.spec.schedulerName == 'x'", &VARIABLES).expect("compiles");
    assert!(expression.uses("object") && !expression.uses("request"));
}

#[test]
fn field_names_that_are_no_identifiers_are_escaped() {
    for (name, escaped) in [
        ("plain", "plain"),
        ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
        ("namespace", "__namespace__"),
        ("a__b", "a__underscores__b"),
    ] {
        assert_eq!(escape(name), escaped);
    }
}

#[test]
fn expressions_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Expression>();
}
