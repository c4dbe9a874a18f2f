//! Expected messages were seen on a real API server (1.35), but for those that name no version of CEL or of its regexes.

use serde_json::{Value, json};

use super::super::schema::tests::{widget, widget_source};
use super::{Crd, accepted_status, default};

fn base() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.bad.dev"},
        "spec": {
            "group": "bad.dev", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {}}}}}}],
        },
    })
}

/// The errors of the base CRD with the value at `pointer` replaced.
fn errors_with(pointer: &str, value: Value) -> Vec<String> {
    let mut crd = base();
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    crd.pointer_mut(parent).expect("a parent")[field] = value;
    default(&mut crd);
    let errors = Crd::compile(&crd).err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

/// The errors of a property `x` with that schema, without the path up to it.
fn errors_of_property(schema: Value) -> Vec<String> {
    let errors = errors_with(
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/x",
        schema,
    );
    let prefix = "spec.validation.openAPIV3Schema.properties[spec].properties[x]";
    errors.iter().map(|error| error.replace(prefix, "")).collect()
}

#[test]
fn the_test_definition_is_valid() {
    assert_eq!(errors_with("/spec/scope", json!("Cluster")), Vec::<String>::new());
}

#[test]
fn names_scope_and_versions_are_checked() {
    let cases = [
        (
            "/metadata/name",
            json!("other"),
            r#"metadata.name: Invalid value: "other": must be spec.names.plural+"."+spec.group"#,
        ),
        (
            "/spec/scope",
            json!("Foo"),
            r#"spec.scope: Unsupported value: "Foo": supported values: "Cluster", "Namespaced""#,
        ),
        ("/spec/scope", Value::Null, "spec.scope: Required value"),
        (
            "/spec/versions/0/storage",
            json!(false),
            r#"spec.versions: Invalid value: ["v1"]: must have exactly one version marked as storage version"#,
        ),
        (
            "/spec/versions/0/schema",
            Value::Null,
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (
            "/spec/versions/0/additionalPrinterColumns",
            json!([{"name": "a", "type": "string"}]),
            "spec.additionalPrinterColumns[0].JSONPath: Required value",
        ),
        (
            "/spec/versions/0/additionalPrinterColumns",
            json!([{"name": "a", "type": "str", "jsonPath": ".a"}]),
            r#"spec.additionalPrinterColumns[0].type: Invalid value: "str": must be one of boolean,date,integer,number,string"#,
        ),
        (
            "/spec/versions/0/subresources",
            json!({"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.x"}}),
            r#"spec.subresources.scale.specReplicasPath: Invalid value: ".x": should be a json path under .spec"#,
        ),
    ];
    for (pointer, value, expected) in cases {
        assert_eq!(errors_with(pointer, value), [expected], "{pointer}");
    }
    assert_eq!(errors_with("/spec/names/kind", Value::Null).len(), 3);
}

#[test]
fn schemas_must_be_structural() {
    let cases = [
        (
            json!({}),
            ".type: Required value: must not be empty for specified object fields",
        ),
        (
            json!({"type": "text"}),
            r#".type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ),
        (json!({"type": "array"}), ".items: Required value: must be specified"),
        (
            json!({"type": "array", "items": {}}),
            ".items.type: Required value: must not be empty for specified array items",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            ".additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"type": "object", "additionalProperties": {}}),
            ".additionalProperties.type: Required value: must not be empty for specified object fields",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            ".uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}, "x-kubernetes-list-type": "map"}),
            ".x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}},
                   "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}),
            ".items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}),
            r#".x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map""#,
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {}}, "x-kubernetes-list-type": "set"}),
            ".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            json!({"type": "string", "default": 5}),
            r#".default: Invalid value: "integer":  in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}}),
            r#".default: Invalid value: {"b":1}: must not have unknown fields"#,
        ),
        (
            json!({"type": "string", "enum": ["a"], "default": "b"}),
            r#".default: Unsupported value: "b": supported values: "a""#,
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            ".properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            ".x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
        (
            json!({"type": "string", "oneOf": [{"type": "string"}]}),
            ".oneOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "string", "anyOf": [{"default": "x"}]}),
            ".anyOf[0].default: Forbidden: must be undefined to be structural",
        ),
    ];
    for (schema, expected) in cases {
        assert_eq!(errors_of_property(schema.clone()), [expected], "{schema}");
    }
    assert!(
        errors_of_property(json!({"type": "string", "pattern": "("}))[0]
            .starts_with(r#".pattern: Invalid value: "(": must be a valid regular expression, but isn't: "#)
    );
}

#[test]
fn rules_must_compile_and_fit_the_schema() {
    let rule = |rule: Value| {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}, "x-kubernetes-validations": [rule]});
        errors_of_property(schema)
    };
    let cases = [
        ("self.a == 'x'", ""),
        ("has(self.a) ? self.a.size() > 1 : true", ""),
        ("slef.a == 'x'", "undeclared reference to 'slef'"),
        ("self.b == 'x'", "undefined field 'b'"),
        (
            "self.a == 5",
            "found no matching overload for '_==_' applied to '(string, integer)'",
        ),
        ("self.a.foo()", "undeclared reference to 'foo'"),
        ("self.a", "cel expression must evaluate to a bool"),
        ("self ==", "Syntax error"),
        ("", "rule is not specified"),
    ];
    for (text, expected) in cases {
        let errors = rule(json!({"rule": text}));
        match expected {
            "" => assert_eq!(errors, Vec::<String>::new(), "{text}"),
            expected => assert!(errors.len() == 1 && errors[0].contains(expected), "{text}: {errors:?}"),
        }
    }
    let reason = rule(json!({"rule": "has(self.a)", "reason": "Bogus"}));
    assert_eq!(
        reason,
        [
            r#".x-kubernetes-validations[0].reason: Unsupported value: "Bogus": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#
        ]
    );
    let path = rule(json!({"rule": "has(self.a)", "fieldPath": ".b"}));
    assert_eq!(
        path,
        [r#".x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path"#]
    );
}

#[test]
fn compiled_names_and_subresources() {
    let crd = widget();
    assert_eq!(
        (crd.name.as_str(), crd.kind.as_str(), crd.list_kind.as_str()),
        ("widgets.test.dev", "Widget", "WidgetList")
    );
    assert_eq!(
        (crd.plural.as_str(), crd.singular.as_str(), crd.namespaced),
        ("widgets", "widget", true)
    );
    assert_eq!(crd.short_names, ["wd"]);
    let [version] = crd.versions.iter().filter(|version| version.served).collect::<Vec<_>>()[..] else {
        panic!("one version is served")
    };
    assert_eq!(version.name, "v1");
    assert!(version.has_status && version.storage && version.scale.is_some());
    assert_eq!(version.columns.len(), 9);
}

#[test]
fn accepted_status_keeps_what_was_accepted() {
    let mut crd = widget_source();
    crd["status"] = accepted_status(&crd, "2026-01-01T00:00:00Z");
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(crd["status"]["acceptedNames"]["singular"], "widget");
    assert_eq!(accepted_status(&crd, "2027-01-01T00:00:00Z"), crd["status"]);
}

#[test]
fn main_and_status_writes_are_separate() {
    let version = &widget().versions[0];
    let mut created = json!({"metadata": {"name": "w"}, "spec": {"name": "ab"}, "status": {"replicas": 3}});
    version.prepare_create(&mut created);
    assert_eq!(
        created,
        json!({"metadata": {"name": "w", "generation": 1}, "spec": {"name": "ab"}})
    );

    let mut labelled = created.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    labelled["status"] = json!({"replicas": 4});
    version.prepare_update(&mut labelled, &created);
    assert_eq!(labelled["metadata"]["generation"], 1);
    assert_eq!(labelled.get("status"), None);

    let mut changed = labelled.clone();
    changed["spec"]["count"] = json!(4);
    version.prepare_update(&mut changed, &labelled);
    assert_eq!(changed["metadata"]["generation"], 2);

    let mut status = changed.clone();
    status["spec"]["count"] = json!(5);
    status["metadata"]["labels"] = json!({"c": "d"});
    status["status"] = json!({"replicas": 4});
    version.prepare_status_update(&mut status, &changed);
    assert_eq!(status["spec"]["count"], 4);
    assert_eq!(status["metadata"], changed["metadata"]);
    assert_eq!(status["status"], json!({"replicas": 4}));
}

#[test]
fn scale_reads_and_writes_its_paths() {
    let version = &widget().versions[0];
    let mut object = json!({"metadata": {"name": "w", "namespace": "n", "labels": {}}, "spec": {"name": "ab"}, "status": {"replicas": 4, "selector": "a=b"}});
    assert_eq!(
        version.read_scale(&object),
        Some(Err(
            "the spec replicas field \".spec.replicas\" does not exist".to_owned()
        ))
    );
    version
        .write_scale(&mut object, &json!({"spec": {"replicas": 9}}))
        .expect("writes");
    assert_eq!(object["spec"], json!({"name": "ab", "replicas": 9}));
    let scale = version.read_scale(&object).expect("has a scale").expect("reads");
    assert_eq!(scale["metadata"], json!({"name": "w", "namespace": "n"}));
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]),
        (&json!(9), &json!({"replicas": 4, "selector": "a=b"}))
    );
    let refused = version
        .write_scale(&mut object, &json!({"spec": {"replicas": -1}}))
        .expect_err("negative");
    assert_eq!(
        refused.to_string(),
        ".spec.replicas: Invalid value: -1: should be a non-negative integer"
    );
}
