use serde_json::json;

use super::*;

fn answers(code: &str, object: Value) -> Result<Vec<Value>, String> {
    Query::new(code)?.run(&Subject::new(object))
}

#[test]
fn queries_have_no_side_effects() {
    let object = json!({"spec": {"workers": [{"name": "a", "n": 2}, {"name": "b"}]}});
    assert_eq!(
        answers(".spec.workers[].n", object.clone()),
        Ok(vec![json!(2), Value::Null])
    );
    assert_eq!(answers(".spec.workers | length", object.clone()), Ok(vec![json!(2)]));
    assert_eq!(
        answers(
            r#"[.spec.workers[] | select(.name == "a") | .n] | add // 0"#,
            object.clone()
        ),
        Ok(vec![json!(2)])
    );
    assert_eq!(
        answers(r#"("x-" + .spec.workers[0].name)"#, object.clone()),
        Ok(vec![json!("x-a")])
    );
    for harmful in [
        ".spec = 1",
        ".spec |= 1",
        ".spec += 1",
        "del(.spec)",
        "..",
        "recurse",
        "range(10)",
        "paths",
        "walk(.)",
        "repeat(1)",
        "halt",
        "input",
        "env",
        "def f: f; f",
        r#""\(range(9))""#,
        "[limit(3; repeat(1))]",
        ".a[range(3)]",
        "{a: ..}",
        "until(false; .)",
        "",
        ".[",
        "nonsense",
    ] {
        assert!(Query::new(harmful).is_err(), "{harmful}");
    }
    let many = json!({"list": vec![1; 2000]});
    assert!(answers(".list[]", many).unwrap_err().contains("1000 results"));
}

/// The objects are tenants', the queries administrators'.
#[test]
fn the_work_of_a_query_is_bounded_for_every_object() {
    for harmful in [
        ".a * .b",
        ".a * 1000000000",
        "1000000 * (1000000 * .a)",
        "reduce .a[] as $x (.; . + .)",
        "foreach .a[] as $x (.; . + .)",
        "test(.pattern)",
        r#"gsub("a"; .b)"#,
        r#"gsub("a"; "\(.b)")"#,
        "join(.a)",
        "indices(.a)",
        &format!(".a{}", " | min".repeat(300)),
        &format!(".a{}", " or .a".repeat(300)),
        &format!("{}.a{}", "(".repeat(300), ")".repeat(300)),
    ] {
        assert!(Query::new(harmful).is_err(), "{harmful}");
    }
    let product = answers("(.a | numbers) * (.b | tonumber)", json!({"a": 3, "b": "4"}));
    assert_eq!(product, Ok(vec![json!(12)]));
    assert_eq!(
        answers(r#".a | split("-") | join("+")"#, json!({"a": "x-y"})),
        Ok(vec![json!("x+y")])
    );

    let large = json!({"a": vec![1; 20_000]});
    for combined in [
        "[.a[] as $x | .a[] | . + $x] | length",
        "[.a[] + .a[]] | length",
        "[{x: .a[], y: .a[]}] | length",
        "[.. ] | length",
    ] {
        assert!(answers(combined, large.clone()).is_err(), "{combined}");
    }
    assert_eq!(answers("[.a[] | . + 1] | length", large), Ok(vec![json!(20_000)]));
    let small = json!({"a": [1, 2]});
    assert_eq!(
        answers("[.a[] as $x | .a[] | . + $x] | length", small),
        Ok(vec![json!(4)])
    );
}

fn kind() -> KindName {
    KindName {
        group: "jobs.example.com".to_owned(),
        version: "v1".to_owned(),
        kind: "Flow".to_owned(),
    }
}

/// A definition of a flow with a pool of leaders and members.
fn definition() -> Value {
    json!({"metadata": {"name": "flow"}, "spec": {
        "structureDefinition": {
            "rootComponent": {"name": "flow", "kind": kind_json(), "statusDefinition": {}},
            "childComponents": [
                {"name": "pool", "ownerRef": "flow", "scaleDefinition": {"replicasPath": ".spec.replicas"}},
                {"name": "leader", "ownerRef": "pool", "specDefinition": {"podTemplateSpecPath": ".spec.a"},
                 "scaleDefinition": {"replicasPath": ".spec.leaders"},
                 "podSelector": {"componentTypeSelector": {"keyPath": ".metadata.labels.role", "value": "leader"}}},
                {"name": "member", "ownerRef": "pool", "specDefinition": {"podTemplateSpecPath": ".spec.b"},
                 "scaleDefinition": {"replicasPath": ".spec.members", "minReplicasPath": ".spec.min"},
                 "podSelector": {"componentTypeSelector": {"keyPath": ".metadata.labels.role", "value": "member"}}},
            ],
        },
        "optimizationInstructions": {"gangScheduling": {"podGroup": {"name": "g"}}},
    }})
}

fn kind_json() -> Value {
    json!({"group": "jobs.example.com", "version": "v1", "kind": "Flow"})
}

#[test]
fn parts_are_multiplied_along_the_tree() {
    let karta = Karta::read(&definition(), &kind()).unwrap().unwrap();
    let scale = |spec: Value| karta.scale(0, &Subject::new(json!({"spec": spec})));
    assert_eq!(scale(json!({"replicas": 3, "leaders": 1, "members": 4})), Ok(15));
    assert_eq!(
        scale(json!({"replicas": 3, "leaders": 1, "members": 4, "min": 2})),
        Ok(9)
    );
    assert_eq!(scale(json!({"leaders": 1, "members": 4})), Ok(5));
    assert!(scale(json!({"replicas": "3", "leaders": 1, "members": 4})).is_err());
    let pod = Subject::new(json!({"metadata": {"labels": {"role": "member"}}}));
    let holds = |name: &str| karta.holds(karta.component(name).unwrap(), &pod);
    assert_eq!(
        [holds("pool"), holds("leader"), holds("member")],
        [Ok(true), Ok(false), Ok(true)]
    );
}

#[test]
fn a_definition_that_makes_no_sense_is_refused() {
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut definition = definition();
        change(&mut definition);
        Karta::read(&definition, &kind())
    };
    let structure = "/spec/structureDefinition";
    let at = |value: &mut Value, pointer: &str, new: Value| {
        *value.pointer_mut(&format!("{structure}{pointer}")).unwrap() = new;
    };
    assert!(broken(&|value| at(value, "/childComponents/0/ownerRef", json!("nobody"))).is_err());
    assert!(broken(&|value| at(value, "/childComponents/0/ownerRef", json!("member"))).is_err());
    assert!(broken(&|value| at(value, "/childComponents/1/name", json!("pool"))).is_err());
    assert!(broken(&|value| at(value, "/rootComponent/statusDefinition", Value::Null)).is_err());
    assert!(
        broken(&|value| at(
            value,
            "/childComponents/0/scaleDefinition/replicasPath",
            json!("del(.x)")
        ))
        .is_err()
    );
    let other = broken(&|value| at(value, "/rootComponent/kind/version", json!("v2"))).unwrap();
    assert!(other.is_none());
}
