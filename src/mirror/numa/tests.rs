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
fn the_observed_placement_takes_precedence_over_the_predicted_one() {
    let record = |observed: &str, predicted: &str| {
        let pod = asked(&format!(
            "{{metadata: {{name: p, annotations: {{kai.scheduler/numa-placement-observed: '{observed}', kai.scheduler/numa-placement-predicted: '{predicted}'}}}}, spec: {{containers: []}}}}"
        ));
        pod.record
            .iter()
            .map(|(zone, amounts)| format!("{zone} {:?}", named(amounts)))
            .collect::<Vec<_>>()
    };
    let zone = |zone: &str| format!(r#"[{{"zone":"{zone}","amount":{{"cpu":"2"}}}}]"#);
    assert_eq!(record(&zone("a"), &zone("b")), [r#"a [("cpu", 2000)]"#]);
    assert_eq!(record("nonsense", &zone("b")), [r#"b [("cpu", 2000)]"#]);
    assert_eq!(record("[]", ""), Vec::<String>::new());
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
