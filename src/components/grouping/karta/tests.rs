mod fuzz;

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
        &format!(".a{}", " | . + .".repeat(20)),
        &format!(".a{}", " | tojson".repeat(20)),
        &format!("[{}] | length", ["(.a, .b)"; 20].join(" | ")),
        &format!(".a{}", r#" | "\(.)\(.)""#.repeat(20)),
        &format!("[{}] | length", ["(1,1,1,1,1,1,1)"; 6].join(" + ")),
        &format!("[{}] | length", ["(1,1,1,1,1,1,1)"; 6].join(" == ")),
        &format!(".a{}", " | .[0,0,0]".repeat(14)),
        &format!("[.a{}] | length", " | if 1,1 then . else . end".repeat(20)),
    ] {
        assert!(Query::new(harmful).is_err(), "{harmful}");
    }
    let product = answers("(.a | numbers) * (.b | tonumber)", json!({"a": 3, "b": "4"}));
    assert_eq!(product, Ok(vec![json!(12)]));
    assert_eq!(
        answers(r#".a | split("-") | join("+")"#, json!({"a": "x-y"})),
        Ok(vec![json!("x+y")])
    );

    let numbers = answers("(.a | numbers) - 1, ([.a] - [3] | length)", json!({"a": 3}));
    assert_eq!(numbers, Ok(vec![json!(2), json!(0)]));

    let large = json!({"a": vec![1; 20_000]});
    for combined in [
        "[.a[] as $x | .a[] | . + $x] | length",
        "[.a[] + .a[]] | length",
        "[{x: .a[], y: .a[]}] | length",
        "[.a[.a[]:]] | length",
        "[.a[:.a[]]] | length",
        "[.. ] | length",
        ".a - .b",
        ".a | contains(.b)",
        ".b | inside(.a)",
    ] {
        assert!(answers(combined, large.clone()).is_err(), "{combined}");
    }
    let groups: Vec<Value> = (0..3_500).map(|number| json!({"name": format!("g{number}")})).collect();
    let large_texts = [json!("x".repeat(700_000)), json!(vec!["x".repeat(200); 3_500])];
    let with_each = r#".spec.prefix as $p | [.spec.groups[] | "\($p)-\(.name)"]"#;
    for repeated in [
        with_each,
        r#".spec.prefix as $p | .spec.groups | map("\($p)-\(.name)")"#,
        "[.spec.groups[] as {$name} | .spec.prefix]",
        "[.spec.groups[].name + .spec.prefix]",
        ".spec.groups[].name + .spec.prefix",
        "[{name: .spec.groups[].name, prefix: .spec.prefix}]",
        "[.spec | select(.groups[].name != null)]",
        "[if .spec.groups[].name then .spec.prefix else 0 end]",
        r#".spec.prefix as $p | [.spec.prefix | scan("x") | $p]"#,
    ] {
        for prefix in &large_texts {
            let object = json!({"spec": {"prefix": prefix, "groups": groups}});
            let error = answers(repeated, object).unwrap_err();
            assert!(error.starts_with("the object is too large"), "{repeated}: {error}");
        }
    }
    let answer = answers(with_each, json!({"spec": {"prefix": "p", "groups": groups[..200]}})).unwrap();
    assert_eq!(answer[0][199], json!("p-g199"));
    let least = answers(".a | length", json!({"a": i64::MIN}));
    assert!(least.is_err() || least == Ok(vec![json!(i64::MIN)]));
    let splits = r#"[.a | split("")[] as $x | .a | split("")[] | . + $x] | length"#;
    assert!(answers(splits, json!({"a": "x".repeat(20_000)})).is_err());
    let multiplies = "[., ., ., .] | tojson | tojson | tojson";
    assert!(answers(multiplies, json!({"a": "x".repeat(2_000_000)})).is_err());
    assert_eq!(answers("[.a[] | . + 1] | length", large), Ok(vec![json!(20_000)]));
    let small = json!({"a": [1, 2]});
    assert_eq!(
        answers("[.a[] as $x | .a[] | . + $x] | length", small),
        Ok(vec![json!(4)])
    );
}

/// What authors of Kartas write works for objects of the usual size, with some hundred values.
#[test]
fn usual_queries_work_for_usual_objects() {
    let containers: Vec<Value> = (0..20)
        .map(|number| {
            json!({
                "name": format!("c{number}"), "image": "registry.example.com/team/train:v1.2-cuda",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "resources": {"limits": {"nvidia.com/gpu": "2", "memory": "64Gi"}, "requests": {"cpu": "8"}},
            })
        })
        .collect();
    let template = json!({"metadata": {"labels": {"role": "worker"}}, "spec": {"containers": containers}});
    let object = json!({
        "metadata": {"name": "Flow_1", "namespace": "team", "labels": {"app": "flow", "ray.io/group": "g"}},
        "spec": {
            "replicas": 3, "minReplicas": 2, "template": template,
            "replicaSpecs": {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": 4, "minReplicas": 2, "template": template, "tags": ["a", "b"]},
            },
            "groups": [{"name": "g", "replicas": 2, "numOfHosts": 4}, {"name": "h", "replicas": 1, "suspend": true}],
        },
    });
    for (query, wanted) in [
        (".spec.template.spec | .containers[0].name", json!("c0")),
        ("[.spec.replicaSpecs[] | .replicas] | add", json!(5)),
        (
            "[.spec.replicaSpecs[] | .replicas - (.minReplicas // 1)] | add",
            json!(2),
        ),
        (".spec.replicas - .spec.minReplicas", json!(1)),
        (
            "[.spec.groups[] | (.replicas | numbers) * (.numOfHosts // 1 | numbers)] | add",
            json!(9),
        ),
        (
            "[.spec.groups[] | select(.suspend != true) | .replicas] | add // 0",
            json!(2),
        ),
        (
            "[.spec.replicaSpecs | to_entries[] | select(.key | contains(\"Work\")) | .value.replicas] | first",
            json!(4),
        ),
        (
            "[.spec.replicaSpecs[] | .tags // [] | select(contains([\"a\"]))] | length",
            json!(1),
        ),
        (
            ".spec.template.spec.containers | map(select(.image | contains(\"train\"))) | length",
            json!(20),
        ),
        (
            ".metadata.name as $n | [.spec.groups[] | \"\\($n)-\\(.name)\"] | join(\",\")",
            json!("Flow_1-g,Flow_1-h"),
        ),
        (
            ".metadata.name | ascii_downcase | gsub(\"[^a-z0-9-]+\"; \"-\") | gsub(\"^-+|-+$\"; \"\") | gsub(\"--+\"; \"-\")",
            json!("flow-1"),
        ),
        (
            ".spec.template.spec.containers[0].image | split(\"/\") | last | split(\":\") | last | split(\"-\") | first | ltrimstr(\"v\") | split(\".\") | first",
            json!("1"),
        ),
        (
            "[.spec.replicaSpecs | to_entries[] | {name: (.key | ascii_downcase), min: (.value.minReplicas // .value.replicas), max: .value.replicas}] \
             | map({name, spare: (.max - .min), text: \"\\(.name)=\\(.min)\"}) | map(select(.spare > 0) | .text) | join(\",\")",
            json!("worker=2"),
        ),
        (
            "[.spec.template.spec.containers[] | .resources.limits[\"nvidia.com/gpu\"] // \"0\" | tonumber] | add",
            json!(40),
        ),
        (
            "if .spec.suspend then 0 elif (.spec.replicas | type) == \"number\" then .spec.replicas else 1 end",
            json!(3),
        ),
        (".metadata.labels[\"ray.io/group\"] // .metadata.labels.app", json!("g")),
        (
            ".metadata.labels | with_entries(select(.key | startswith(\"ray.io/\"))) | keys | first",
            json!("ray.io/group"),
        ),
        (
            "try (.spec.replicas | tostring | test(\"^[0-9]+$\")) catch false",
            json!(true),
        ),
    ] {
        assert_eq!(answers(query, object.clone()), Ok(vec![wanted]), "{query}");
    }
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
