use super::*;

fn topology(text: &str) -> NodeResourceTopology {
    serde_yaml_ng::from_str(text).expect("a topology")
}

fn asked(yaml: &str) -> PodNuma {
    let pod: Pod = serde_yaml_ng::from_str(yaml).expect("a pod");
    of_pod(&pod, None)
}

fn named(amounts: &[(Name, i64)]) -> Vec<(&str, i64)> {
    amounts.iter().map(|(name, amount)| (&**name, *amount)).collect()
}

/// A pod's recorded amounts by zone.
fn recorded(pod: &PodNuma) -> Vec<String> {
    let zones = pod.record.iter();
    zones
        .map(|(zone, amounts)| format!("{zone} {:?}", named(amounts)))
        .collect()
}

#[test]
fn zones_come_in_order_of_their_numbers_without_what_is_ignored() {
    let read = read(
        &topology(
            "{zones: [{name: node-10, type: Node}, {name: extra, type: Node}, {name: socket-0, type: Socket},
              {name: node-2, type: Node, resources: [{name: cpu, allocatable: 1500m, available: '1'}, {name: memory, allocatable: 1Ki}, {name: nvidia.com/gpu, allocatable: '2'}]}],
              attributes: [{name: topologyManagerPolicy, value: restricted}, {name: topologyManagerScope, value: pod}]}",
        ),
        &["memory".to_owned()],
        false,
    )
    .unwrap();
    assert_eq!((read.policy, read.pod_scope), (NumaPolicy::Restricted, true));
    assert_eq!(
        read.zones.iter().map(|zone| &*zone.name).collect::<Vec<_>>(),
        ["node-2", "node-10", "extra"]
    );
    assert_eq!(
        named(&read.zones[0].allocatable),
        [("cpu", 1500), ("nvidia.com/gpu", 2)]
    );
    assert_eq!(
        super::read(&topology("{zones: [{name: socket-0, type: Socket}]}"), &[], false),
        None
    );
}

#[test]
fn free_amounts_are_read_if_the_settings_use_them() {
    let topology = topology(
        "{zones: [{name: node-1, type: Node, resources: [{name: cpu, allocatable: '4', available: 1500m}]},
          {name: node-0, type: Node, resources: [{name: cpu, allocatable: '4', available: '3'}, {name: memory, allocatable: '4', available: '1'}]}]}",
    );
    let ignored = ["memory".to_owned()];
    let free = read(&topology, &ignored, true).unwrap().free;
    assert_eq!(
        free.iter().map(|zone| named(zone)).collect::<Vec<_>>(),
        [[("cpu", 3000)], [("cpu", 1500)]]
    );
    assert!(read(&topology, &ignored, false).unwrap().free.is_empty());
}

#[test]
fn amounts_of_zones_are_limited_so_that_their_differences_do_not_overflow() {
    let topology = topology(
        "{zones: [{name: node-0, type: Node, resources: [{name: memory, allocatable: '10E', available: '-10E'}]}]}",
    );
    let read = read(&topology, &[], true).unwrap();
    let most = requests::MOST;
    assert_eq!(named(&read.zones[0].allocatable), [("memory", most)]);
    assert_eq!(named(&read.free[0]), [("memory", -most)]);
}

#[test]
fn the_policy_format_of_older_agents_is_read() {
    for (word, wanted) in [
        ("SingleNUMANodePodLevel", (NumaPolicy::SingleNode, true)),
        ("SingleNUMANodeContainerLevel", (NumaPolicy::SingleNode, false)),
        ("Restricted", (NumaPolicy::Restricted, false)),
        ("BestEffortPodLevel", (NumaPolicy::BestEffort, true)),
        ("None", (NumaPolicy::None, false)),
    ] {
        let read = read(
            &topology(&format!(
                "{{topologyPolicies: [{word}], zones: [{{name: a, type: Node}}]}}"
            )),
            &[],
            false,
        );
        let read = read.unwrap();
        assert_eq!((read.policy, read.pod_scope), wanted, "{word}");
    }
}

#[test]
fn cpu_counts_in_whole_cores_of_guaranteed_pods() {
    let pod = |class: &str| {
        asked(&format!(
            "{{metadata: {{name: p}}, status: {{qosClass: {class}}}, spec: {{containers: [
               {{name: a, resources: {{requests: {{cpu: '44', nvidia.com/gpu: '1'}}}}}}, {{name: b, resources: {{requests: {{cpu: 4500m}}}}}}],
               initContainers: [{{name: i, resources: {{requests: {{cpu: '10'}}}}}}, {{name: s, restartPolicy: Always, resources: {{requests: {{cpu: '1'}}}}}}]}}}}"
        ))
    };
    let guaranteed = pod("Guaranteed");
    assert_eq!(named(&guaranteed.whole), [("cpu", 45_000), ("nvidia.com/gpu", 1)]);
    assert_eq!(guaranteed.together.len(), 3);
    assert_eq!(named(&guaranteed.alone[0]), [("cpu", 10_000)]);
    assert_eq!(named(&pod("Burstable").whole), [("nvidia.com/gpu", 1)]);
}

#[test]
fn only_requests_of_containers_are_aligned() {
    let pod = asked(
        "{metadata: {name: p}, status: {qosClass: Guaranteed}, spec: {overhead: {cpu: '1'}, resources: {requests: {cpu: '8', memory: 4Gi}},
          containers: [{name: c, resources: {requests: {nvidia.com/gpu: '1'}}}]}}",
    );
    assert_eq!(named(&pod.whole), [("nvidia.com/gpu", 1)]);
}

#[test]
fn the_observed_placement_takes_precedence_over_the_predicted_one() {
    let record = |node: &str, observed: &str, predicted: &str| {
        let pod = asked(&format!(
            "{{metadata: {{name: p, annotations: {{kai.scheduler/numa-placement-observed: '{observed}', kai.scheduler/numa-placement-predicted: '{predicted}'}}}},
              status: {{qosClass: Guaranteed}}, spec: {{{node}containers: [{{name: c, resources: {{requests: {{cpu: '2'}}}}}}]}}}}"
        ));
        recorded(&pod)
    };
    let on_node = |observed: &str, predicted: &str| record("nodeName: n0, ", observed, predicted);
    let zone = |zone: &str| format!(r#"[{{"zone":"{zone}","amount":{{"cpu":"2"}}}}]"#);
    let [a, b] = [r#"a [("cpu", 2000)]"#, r#"b [("cpu", 2000)]"#];
    assert_eq!(on_node(&zone("a"), &zone("b")), [a]);
    assert_eq!(on_node("nonsense", &zone("b")), [b]);
    assert_eq!(on_node("[]", &zone("b")), [b], "as it is cleared by a Binding");
    assert_eq!(on_node("[]", ""), Vec::<String>::new());
    for nothing in ["{}", r#"{"cpu":"0"}"#, r#"{"memory":"1Gi"}"#] {
        let observed = format!(r#"[{{"zone":"a","amount":{nothing}}}]"#);
        assert_eq!(on_node(&observed, &zone("b")), [b], "{nothing}");
    }
    assert_eq!(
        record("", &zone("a"), &zone("b")),
        [b],
        "nothing is observed before it has a node"
    );
}

#[test]
fn a_record_counts_for_no_more_than_the_pod_requests() {
    let record = |requests: &str, in_a: &str, in_b: &str| {
        let observed = format!(r#"[{{"zone":"a","amount":{{{in_a}}}}},{{"zone":"b","amount":{{{in_b}}}}}]"#);
        recorded(&asked(&format!(
            "{{metadata: {{name: p, annotations: {{kai.scheduler/numa-placement-observed: '{observed}'}}}},
              status: {{qosClass: Guaranteed}}, spec: {{nodeName: n0, containers: [{{name: c, resources: {{requests: {{{requests}}}}}}}]}}}}"
        )))
    };
    assert_eq!(
        record("cpu: 500m", r#""cpu":"1000""#, r#""memory":"1Gi""#),
        Vec::<String>::new(),
        "no exclusive cores, and no memory"
    );
    assert_eq!(
        record(
            "cpu: '4', nvidia.com/gpu: '1'",
            r#""cpu":"3","nvidia.com/gpu":"9223372036854775807""#,
            r#""cpu":"3""#
        ),
        [r#"a [("cpu", 3000), ("nvidia.com/gpu", 1)]"#, r#"b [("cpu", 1000)]"#]
    );
    assert_eq!(
        record("cpu: '4'", r#""cpu":"-8""#, r#""cpu":"4""#),
        ["a []", r#"b [("cpu", 4000)]"#]
    );
    let most = requests::MOST;
    assert_eq!(
        record("cpu: '9223372036854775'", r#""cpu":"9223372036854775""#, ""),
        [format!(r#"a [("cpu", {most})]"#), "b []".to_owned()],
        "two such pods do not overflow"
    );
}

#[test]
fn zones_are_written_as_they_are_read() {
    let written = zones(&[(
        "node-0".into(),
        vec![("cpu".into(), 3500), ("nvidia.com/gpu".into(), 2)],
    )]);
    let text = serde_json::to_string(&written).unwrap();
    assert_eq!(
        text,
        r#"[{"zone":"node-0","amount":{"cpu":"3500m","nvidia.com/gpu":"2"}}]"#
    );
}
