use super::*;
use crate::engine::input::{GPU, Taint, TaintEffect};

fn node(yaml: &str) -> NodeInput {
    let node: Arc<Node> = Arc::new(serde_yaml_ng::from_str(yaml).expect("a node"));
    let mut problems = Vec::new();
    let read = read(&node, &Settings::default(), &Last::default(), &mut problems);
    assert_eq!(problems, []);
    read
}

#[test]
fn a_node_is_read_whole() {
    let read = node(
        "{metadata: {name: n1, labels: {nvidia.com/gpu.count: '8', nvidia.com/gpu.memory: '81920', zone: a}},
          spec: {unschedulable: true, taints: [{key: gpu, value: 'yes', effect: NoSchedule}, {key: odd, effect: Sometimes}]},
          status: {allocatable: {cpu: 64, memory: 1Ti, nvidia.com/gpu: 8, pods: 110}}}",
    );
    assert_eq!(
        (
            &*read.name,
            read.labels.len(),
            read.unschedulable,
            read.faults.is_empty()
        ),
        ("n1", 3, true, true)
    );
    assert_eq!(
        read.taints,
        [Taint {
            key: name("gpu"),
            value: name("yes"),
            effect: TaintEffect::NoSchedule
        }]
    );
    assert_eq!(
        (
            read.allocatable.cpu,
            read.allocatable.memory,
            read.allocatable.gpu,
            read.pods
        ),
        (64_000, 1 << 40, 8 * GPU, 110)
    );
    assert_eq!(
        (read.gpu_memory, read.gpu_count, read.mig, read.dra_gpus),
        (Some(81_900), Some(8), false, false)
    );
}

#[test]
fn a_node_that_is_not_ready_says_by_which_conditions() {
    let faults = |conditions: &str| -> Vec<(String, Option<i64>)> {
        let node = node(&format!(
            "{{metadata: {{name: n}}, status: {{conditions: [{conditions}]}}}}"
        ));
        let said = |fault: &NodeFault| (fault.condition.to_string(), fault.since.map(|since| since.0));
        node.faults.iter().map(said).collect()
    };
    let sound = "{type: Ready, status: 'True'}, {type: DiskPressure, status: 'False'}, {type: Odd, status: 'True'}";
    assert!(faults(sound).is_empty());
    let since = "lastTransitionTime: '1970-01-01T00:00:07Z'";
    assert_eq!(
        faults(&format!(
            "{{type: DiskPressure, status: 'True'}}, {{type: Ready, status: Unknown, {since}}}"
        )),
        [
            ("Ready=Unknown".to_owned(), Some(7_000)),
            ("DiskPressure=True".to_owned(), None)
        ]
    );
    assert_eq!(
        faults(
            "{type: PIDPressure, status: 'True'}, {type: Ready, status: 'True'}, {type: MemoryPressure, status: 'True'},
             {type: NetworkUnavailable, status: Unknown}"
        ),
        [
            ("MemoryPressure=True".to_owned(), None),
            ("PIDPressure=True".to_owned(), None),
            ("NetworkUnavailable=Unknown".to_owned(), None)
        ]
    );
}

#[test]
fn gpu_memory_is_cleaned() {
    let table = [
        ("4096", Some(4000)),
        ("4295000001", Some(4000)),
        ("16384", Some(16_300)),
        ("81559", Some(81_500)),
        ("46068", Some(46_000)),
        ("50", None),
        ("-7", None),
        ("lots", None),
    ];
    assert_eq!(
        table.map(|(text, _)| gpu_memory(text)),
        table.map(|(_, expected)| expected)
    );
}

#[test]
fn conditions_make_a_node_not_ready() {
    let ready = |conditions: &str| {
        node(&format!(
            "{{metadata: {{name: n}}, status: {{conditions: [{conditions}]}}}}"
        ))
        .faults
        .is_empty()
    };
    assert!(ready(""));
    assert!(ready(
        "{type: Ready, status: 'True'}, {type: MemoryPressure, status: 'False'}, {type: Odd, status: 'True'}"
    ));
    assert!(!ready("{type: Ready, status: 'False'}"));
    assert!(!ready("{type: Ready, status: Unknown}"));
    assert!(!ready(
        "{type: Ready, status: 'True'}, {type: DiskPressure, status: 'True'}"
    ));
    assert!(!ready(
        "{type: Ready, status: 'True'}, {type: NetworkUnavailable, status: Unknown}"
    ));
}

#[test]
fn mig_follows_the_label_else_the_resources() {
    let mig = |label: &str, count: u8| {
        let labels = if label.is_empty() {
            String::new()
        } else {
            format!("node-role.kubernetes.io/mig-enabled: '{label}'")
        };
        node(&format!("{{metadata: {{name: n, labels: {{{labels}}}}}, status: {{allocatable: {{nvidia.com/mig-1g.5gb: {count}}}}}}}")).mig
    };
    assert!(mig("", 1) && !mig("", 0));
    assert!(mig("true", 0) && mig("1", 0));
    assert!(!mig("false", 1) && !mig("maybe", 1));
}

#[test]
fn a_node_with_different_fields_is_parsed_separately() {
    let last = Last::default();
    let mut read = |cpu: &str| {
        let yaml = format!("{{metadata: {{name: n}}, status: {{allocatable: {{cpu: {cpu}, pods: 110}}}}}}");
        let node = Arc::new(serde_yaml_ng::from_str(&yaml).expect("a node"));
        let mut problems = Vec::new();
        let read = read(&node, &Settings::default(), &last, &mut problems);
        (read.allocatable.cpu, read.pods, problems.len())
    };
    assert_eq!(
        ["64", "64", "32", "lots", "lots", "32"].map(&mut read),
        [
            (64_000, 110, 0),
            (64_000, 110, 0),
            (32_000, 110, 0),
            (0, 110, 1),
            (0, 110, 1),
            (32_000, 110, 0)
        ]
    );
    let bare: Arc<Node> = Arc::new(serde_yaml_ng::from_str("{metadata: {name: n}}").expect("a node"));
    assert_eq!(super::read(&bare, &Settings::default(), &last, &mut Vec::new()).pods, 0);
}

#[test]
fn nodes_share_the_texts_of_their_labels() {
    let last = Last::default();
    let labels = |labels: &str| {
        let yaml = format!("{{metadata: {{name: n, labels: {{{labels}}}}}}}");
        let node = Arc::new(serde_yaml_ng::from_str(&yaml).expect("a node"));
        read(&node, &Settings::default(), &last, &mut Vec::new()).labels
    };
    let first = labels("arch: amd64, hostname: n1, zone: a");
    let second = labels("arch: amd64, hostname: n2, rack: r, zone: a");
    let texts: Vec<_> = second.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(
        texts,
        [("arch", "amd64"), ("hostname", "n2"), ("rack", "r"), ("zone", "a")]
    );
    let same = |a: &Name, b: &Name| std::ptr::eq(&raw const **a, &raw const **b);
    assert!(same(&first[0].0, &second[0].0) && same(&first[0].1, &second[0].1));
    assert!(same(&first[1].0, &second[1].0) && !same(&first[1].1, &second[1].1));
}

#[test]
fn a_heartbeat_changes_nothing() {
    let trimmed = |beat: &str| {
        let mut node: Node = serde_yaml_ng::from_str(&format!(
            "{{metadata: {{name: n}}, status: {{images: [{{names: [i]}}], volumesInUse: [v],
                conditions: [{{type: Ready, status: 'True', lastHeartbeatTime: '{beat}', lastTransitionTime: '2026-01-01T00:00:00Z'}}]}}}}"
        ))
        .expect("a node");
        trim(&mut node);
        node
    };
    let node = trimmed("2026-01-01T00:00:10Z");
    assert_eq!(node, trimmed("2026-01-01T00:05:10Z"));
    let status = node.status.expect("a status");
    assert_eq!((status.images, status.volumes_in_use), (None, None));
    let since = &status.conditions.expect("conditions")[0].last_transition_time;
    assert!(since.is_some());
}
