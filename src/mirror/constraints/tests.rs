use super::*;

fn others_of(spec: &PodSpec) -> Option<Name> {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    others(spec.priority_class_name.as_deref(), spec.priority, volumes)
}

fn spec(yaml: &str) -> PodSpec {
    serde_yaml_ng::from_str(&format!("{{containers: [], {yaml}}}")).expect("a pod spec")
}

fn requirement_of(key: &str, op: SelectorOp, values: &[&str]) -> NodeRequirement {
    NodeRequirement {
        key: name(key),
        op,
        values: values.iter().map(|value| name(value)).collect(),
    }
}

#[test]
fn selectors_and_affinity_keep_their_shape() {
    let spec = spec(
        "nodeSelector: {zone: a, pool: x},
         affinity: {nodeAffinity: {
           requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
             {matchExpressions: [{key: gpu, operator: In, values: [a, b]}, {key: old, operator: DoesNotExist}, {key: cores, operator: Gt, values: ['4']}]},
             {matchFields: [{key: metadata.name, operator: In, values: [n1]}]},
             {matchExpressions: [{key: gpu, operator: Near, values: [a]}]}]}}}",
    );
    assert_eq!(
        node_selector(&spec),
        [(name("pool"), name("x")), (name("zone"), name("a"))]
    );
    let first = vec![
        requirement_of("gpu", SelectorOp::In, &["a", "b"]),
        requirement_of("old", SelectorOp::DoesNotExist, &[]),
        requirement_of("cores", SelectorOp::Gt, &["4"]),
    ];
    let expected = vec![
        NodeTerm {
            labels: first,
            fields: vec![],
        },
        NodeTerm {
            labels: vec![],
            fields: vec![requirement_of("metadata.name", SelectorOp::In, &["n1"])],
        },
    ];
    assert_eq!(
        required(&spec),
        Some(expected),
        "a term with an operator that does not exist matches nothing and is left out"
    );
}

#[test]
fn no_requirement_is_not_the_same_as_one_that_nothing_meets() {
    assert_eq!(required(&spec("")), None);
    let impossible = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Near}]}]}}}";
    assert_eq!(required(&spec(impossible)), Some(vec![]));
}

#[test]
fn invalid_tolerations_tolerate_nothing() {
    let spec = spec(
        "tolerations: [{operator: Exists}, {key: gpu, value: 'yes', effect: NoSchedule}, {key: gpu, operator: Equal, value: a}, {key: b, operator: Exists, value: ignored, effect: ''},
                       {key: c, operator: Odd}, {key: d, effect: Odd}]",
    );
    let toleration = |key: Option<&str>, exists: bool, value: &str, effect: Option<TaintEffect>| Toleration {
        key: key.map(name),
        exists,
        value: name(value),
        effect,
    };
    let expected = [
        toleration(None, true, "", None),
        toleration(Some("gpu"), false, "yes", Some(TaintEffect::NoSchedule)),
        toleration(Some("gpu"), false, "a", None),
        toleration(Some("b"), true, "", None),
    ];
    assert_eq!(tolerations(&spec), expected);
}

#[test]
fn host_ports_are_found_everywhere_and_all_ports_with_host_network() {
    let ports = |extra: &str| {
        let yaml = format!(
            "{{containers: [{{name: a, ports: [{{containerPort: 80, hostPort: 8080, hostIP: 10.0.0.1}}, {{containerPort: 81, protocol: UDP}}]}}],
               initContainers: [{{name: s, restartPolicy: Always, ports: [{{containerPort: 1, hostPort: 9}}]}}, {{name: i, ports: [{{containerPort: 1, hostPort: 10}}]}}]{extra}}}"
        );
        let spec: PodSpec = serde_yaml_ng::from_str(&yaml).expect("a pod spec");
        host_ports(&spec)
            .iter()
            .map(|port| format!("{}:{}/{}", port.ip, port.port, port.protocol))
            .collect::<Vec<_>>()
    };
    assert_eq!(ports(""), ["10.0.0.1:8080/TCP", ":9/TCP"]);
    assert_eq!(ports(", hostNetwork: true"), ["10.0.0.1:8080/TCP", ":81/UDP", ":9/TCP"]);
}

#[test]
fn constraints_of_different_pods_are_distinguished() {
    let texts = [
        "",
        "priorityClassName: train",
        "priorityClassName: train, priority: 5",
        "volumes: [{name: data, emptyDir: {}}]",
    ];
    let others: Vec<_> = texts.iter().map(|text| others_of(&spec(text))).collect();
    assert_eq!(others[0], None);
    for (index, one) in others.iter().enumerate() {
        assert!(others[..index].iter().all(|other| other != one), "{}", texts[index]);
    }
    let volumes = |yaml: &str| others_of(&spec(yaml));
    assert_eq!(
        volumes("volumes: [{name: a, emptyDir: {}}]"),
        volumes("volumes: [{name: b, emptyDir: {}}]")
    );
    assert_eq!(volumes("volumes: [{name: a, configMap: {name: x}}]"), None);
}
