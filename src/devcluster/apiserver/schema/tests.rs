//! Expected messages were seen on a real API server (1.35) with the same CRD.

use serde_json::{Value, json};

use super::super::crd::{self, Crd};
use super::invalid_status;

/// The compiled test CRD, which exercises most of what a schema can say.
pub(in super::super) fn widget() -> Crd {
    Crd::compile(&widget_source()).expect("the test CRD is right")
}

pub(in super::super) fn widget_source() -> Value {
    let mut source = serde_yaml_ng::from_str(include_str!("tests/widget.yaml")).expect("YAML");
    crd::default(&mut source);
    source
}

fn object(spec: &str) -> Value {
    let spec: Value = serde_yaml_ng::from_str(&format!("{{{spec}}}")).expect("YAML");
    json!({"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

/// Prunes, defaults and validates, as a create does; the sentence after `is invalid: `, or the stored spec.
fn create(spec: &str) -> Result<Value, String> {
    let crd = widget();
    let mut object = object(spec);
    crd.versions[0].admit_shape(&mut object);
    let errors = crd.versions[0].validate(&object, None);
    if errors.is_empty() {
        return Ok(object["spec"].clone());
    }
    let status = invalid_status("test.dev", "Widget", "w", &errors);
    let message = status["message"].as_str().expect("a message").to_owned();
    Err(message
        .replace("Widget.test.dev \"w\" is invalid: ", "")
        .replace(&format!(", {NOT_CHECKED}"), " +NOT_CHECKED"))
}

const NOT_CHECKED: &str = "<nil>: Invalid value: null: some validation rules were not checked because the object was \
                           invalid; correct the existing errors to complete validation";

#[test]
fn refusals_read_as_on_the_real_server() {
    let cases = [
        (
            "name: a",
            r#"spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long"#,
        ),
        (
            "name: abcdefg",
            r#"[spec.name: Too long: may not be more than 5 bytes +NOT_CHECKED]"#,
        ),
        (
            "name: AB",
            r#"spec.name: Invalid value: "AB": spec.name in body should match '^[a-z]+$'"#,
        ),
        (
            "mode: z, name: ab",
            r#"[spec.mode: Unsupported value: "z": supported values: "a", "b" +NOT_CHECKED]"#,
        ),
        (
            "name: ab, count: 0",
            "spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1",
        ),
        (
            "name: ab, count: 11",
            "spec.count: Invalid value: 11: spec.count in body should be less than or equal to 10",
        ),
        (
            "name: ab, count: 1.5",
            r#"[spec.count: Invalid value: "number": spec.count in body must be of type integer: "number" +NOT_CHECKED]"#,
        ),
        (
            "name: ab, ratio: 0.7",
            "spec.ratio: Invalid value: 0.7: spec.ratio in body should be a multiple of 0.5",
        ),
        (
            "name: ab, when: yesterday",
            r#"[spec.when: Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday" +NOT_CHECKED]"#,
        ),
        (
            "name: ab, dur: x",
            r#"[spec.dur: Invalid value: "x": spec.dur in body must be of type duration: "x" +NOT_CHECKED]"#,
        ),
        (
            r#"name: ab, bytes: "%%""#,
            r#"[spec.bytes: Invalid value: "%%": spec.bytes in body must be of type byte: "%%" +NOT_CHECKED]"#,
        ),
        (
            "name: ab, labels: {a: aaaa}",
            "[spec.labels.a: Too long: may not be more than 3 bytes +NOT_CHECKED]",
        ),
        (
            "name: ab, labels: {}",
            "spec.labels: Invalid value: 0: spec.labels in body should have at least 1 properties",
        ),
        (
            "name: ab, labels: {a: b, b: c, c: d}",
            "[spec.labels: Too many: 3: must have at most 2 items +NOT_CHECKED]",
        ),
        (
            r#"name: ab, quantities: {a: 1, b: "2", c: "x"}"#,
            r#"spec.quantities.c: Invalid value: "x": spec.quantities.c in body should match '^[0-9]+$'"#,
        ),
        (
            "name: ab, quantities: {a: 1.5}",
            r#"[spec.quantities.a: Invalid value: "number": spec.quantities.a in body must be of type integer,string: "number", <nil>: Invalid value: "": "spec.quantities.a" must validate at least one schema (anyOf), spec.quantities.a: Invalid value: "number": spec.quantities.a in body must be of type integer: "number" +NOT_CHECKED]"#,
        ),
        (
            "name: ab, port: true",
            r#"[spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean" +NOT_CHECKED]"#,
        ),
        ("name: ab, tags: [a, a]", r#"spec.tags[1]: Duplicate value: "a""#),
        (
            "name: ab, tags: []",
            "spec.tags: Invalid value: 0: spec.tags in body should have at least 1 items",
        ),
        (
            "name: ab, tags: [a,b,c,d]",
            "[spec.tags: Too many: 4: must have at most 3 items +NOT_CHECKED]",
        ),
        (
            "name: ab, items: [{name: a},{name: a}]",
            r#"spec.items[1]: Duplicate value: {"name":"a"}"#,
        ),
        (
            "name: ab, items: [{value: 1}]",
            "[spec.items[0].name: Required value +NOT_CHECKED]",
        ),
        (
            "name: ab, items: [3]",
            r#"[spec.items[0]: Invalid value: "integer": spec.items[0] in body must be of type object: "integer", spec.items[0]: Invalid value: 3: must be an object for an array of list-type map +NOT_CHECKED]"#,
        ),
        (
            "name: ab, one: {}",
            r#"[<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid, spec.one.a: Required value +NOT_CHECKED]"#,
        ),
        (
            "name: ab, one: {a: x, b: y}",
            r#"<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ),
        (
            "name: ab, levels: [{nodeLabel: a},{nodeLabel: a}]",
            "spec.levels: Invalid value: nodeLabel must be unique",
        ),
        (
            "name: ab, levels: [{nodeLabel: a},{}]",
            r#"spec.levels: Invalid value: "array": no such key: nodeLabel evaluating rule: nodeLabel must be unique"#,
        ),
        ("name: ab, celmsg: 1", "spec.celmsg: Forbidden: got small"),
        (
            "name: ab, celplain: x",
            r#"spec.celplain: Invalid value: "x": failed rule: self != 'x'"#,
        ),
        (
            "name: ab, count: 5, big: 4",
            "spec.count: Invalid value: count below big",
        ),
        (
            "name: ab, template: {a: b}",
            "[spec.template.apiVersion: Required value, spec.template.kind: Required value +NOT_CHECKED]",
        ),
        ("nam: ab", "[spec.name: Required value +NOT_CHECKED]"),
        ("name: null", "[spec.name: Required value +NOT_CHECKED]"),
        (
            "name: ab, nested: 5",
            r#"[spec.nested: Invalid value: "integer": spec.nested in body must be of type object: "integer" +NOT_CHECKED]"#,
        ),
        (
            "name: a, mode: z, count: 0",
            r#"[spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1, spec.mode: Unsupported value: "z": supported values: "a", "b", spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long +NOT_CHECKED]"#,
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(create(spec), Err(expected.to_owned()), "{spec}");
    }
}

#[test]
fn defaults_fill_gaps_and_nulls() {
    let plain = json!({"name": "ab", "mode": "a", "flag": true, "nulldef": "x", "nested": {"deep": "dd"}});
    assert_eq!(create("name: ab"), Ok(plain.clone()));
    assert_eq!(
        create("name: ab, flag: null, free: null, nulldef: null"),
        Ok(plain.clone())
    );
    let mut nullable = plain.clone();
    nullable["nullable"] = Value::Null;
    assert_eq!(create("name: ab, nullable: null"), Ok(nullable));
    let mut items = plain;
    items["items"] = json!([{"name": "x", "value": 7}]);
    assert_eq!(create("name: ab, items: [{name: x}]"), Ok(items));
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let mut object =
        object("name: ab, nested: {x: y}, foo: bar, items: [{name: a, zz: 1}], free: {a: {b: 1}}, any: [1, x]");
    object["bogus"] = json!(1);
    object["metadata"]["strange"] = json!(1);
    let pruned = widget().versions[0].admit_shape(&mut object);
    assert_eq!(
        pruned,
        [
            "bogus",
            "metadata.strange",
            "spec.foo",
            "spec.items[0].zz",
            "spec.nested.x"
        ]
    );
    assert_eq!(object["spec"]["free"], json!({"a": {"b": 1}}));
    assert_eq!(object["spec"]["any"], json!([1, "x"]));
    assert_eq!(object["spec"]["items"], json!([{"name": "a", "value": 7}]));
    assert_eq!(object["metadata"], json!({"name": "w"}));
}

#[test]
fn admitting_twice_changes_nothing() {
    let version = &widget().versions[0];
    let mut once =
        object("name: ab, items: [{name: a}], nested: null, template: {apiVersion: v1, kind: Pod, spec: {}}");
    version.admit_shape(&mut once);
    let mut twice = once.clone();
    assert!(version.admit_shape(&mut twice).is_empty());
    assert_eq!(once, twice);
}

#[test]
fn transition_rules_compare_with_the_stored_object() {
    let version = &widget().versions[0];
    let stored = object("name: ab, levels: [{nodeLabel: a}]");
    assert!(version.validate(&stored, None).is_empty());
    assert!(version.validate(&stored, Some(&stored)).is_empty());
    let changed = object("name: ab, levels: [{nodeLabel: b}]");
    let errors = version.validate(&changed, Some(&stored));
    assert_eq!(
        errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["spec.levels: Invalid value: immutable levels"]
    );
    assert!(
        version.validate(&changed, Some(&object("name: ab"))).is_empty(),
        "no earlier levels to compare with"
    );
}

#[test]
fn the_status_object_carries_one_cause_per_error() {
    let errors = widget().versions[0].validate(&object("name: a, count: 0"), None);
    let status = invalid_status("test.dev", "Widget", "w", &errors);
    assert_eq!(status["code"], 422);
    assert_eq!(status["reason"], "Invalid");
    assert_eq!(
        status["details"],
        json!({"name": "w", "group": "test.dev", "kind": "Widget", "causes": [
            {"reason": "FieldValueInvalid", "field": "spec.count",
             "message": "Invalid value: 0: spec.count in body should be greater than or equal to 1"},
            {"reason": "FieldValueInvalid", "field": "spec.name",
             "message": "Invalid value: \"a\": spec.name in body should be at least 2 chars long"},
        ]})
    );
}
