use super::*;
use k8s_openapi::api::scheduling::v1::PriorityClass;

fn group(yaml: &str) -> PodGroup {
    serde_yaml_ng::from_str(&format!("{{metadata: {{name: g, namespace: ns, {yaml}}}, spec: {{}}}}"))
        .unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

fn whole(yaml: &str) -> Group {
    serde_yaml_ng::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

fn read_with(
    group: &Group,
    classes: &Classes,
    topologies: &BTreeMap<Box<str>, Arc<Topology>>,
) -> (GroupInput, Vec<Problem>) {
    let mut problems = Vec::new();
    let key = group.key.clone();
    let queue = name(&group.queue);
    let read = read(key, group, queue, &Shard::default(), classes, topologies, &mut problems);
    (read, problems)
}

fn plain(group: &Group) -> (GroupInput, Vec<Problem>) {
    read_with(group, &Classes::default(), &BTreeMap::new())
}

#[test]
fn a_pod_group_is_read_whole() {
    let (read, problems) = plain(&whole(
        "{metadata: {name: g, namespace: ns, uid: u, creationTimestamp: '2026-01-01T00:00:00Z', annotations: {
            kai.scheduler/last-start-timestamp: '2026-01-01T00:00:01Z', kai.scheduler/last-eviction-timestamp: '2026-01-01T01:00:02+01:00', kai.scheduler/stale-podgroup-timestamp: '2026-01-01T00:00:03Z'}},
          spec: {queue: q, minMember: 3, preemptionDelay: 5m, stalenessGracePeriod: -1s, markUnschedulable: false}}",
    ));
    let at = |second: i64| Some(Time(1_767_225_600_000 + second * 1000));
    assert_eq!(read.key, GroupKey::new("ns", "g"));
    assert_eq!(
        (&*read.uid, &*read.queue, read.min_member, read.min_sub_group),
        ("u", "q", Some(3), None)
    );
    assert_eq!(
        (
            Some(read.created),
            read.last_start,
            read.last_eviction,
            read.stale_since
        ),
        (at(0), at(1), at(2), at(3))
    );
    assert_eq!(
        (read.preemption_delay, read.staleness_grace),
        (Some(300_000), Some(-1000))
    );
    assert_eq!((read.back_off, read.backed_off), (false, false));
    assert_eq!(problems, []);
}

#[test]
fn unreadable_fields_count_as_absent() {
    let (read, problems) = plain(&whole(
        "{metadata: {name: g, namespace: ns, annotations: {kai.scheduler/last-start-timestamp: yesterday, kai.scheduler/stale-podgroup-timestamp: ''}},
          spec: {preemptionDelay: a while}}",
    ));
    assert_eq!(
        (
            read.last_start,
            read.stale_since,
            read.preemption_delay,
            read.min_member
        ),
        (None, None, None, None)
    );
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn priority_comes_from_the_class_and_decides_preemptibility() {
    let mut classes = Classes::default();
    let class = |yaml: &str| serde_yaml_ng::from_str::<PriorityClass>(yaml).expect("a priority class");
    classes.put(&class("{metadata: {name: inference}, value: 125}"));
    let read = |spec: &str| {
        let (read, _) = read_with(
            &whole(&format!("{{metadata: {{name: g, namespace: ns}}, spec: {{{spec}}}}}")),
            &classes,
            &BTreeMap::new(),
        );
        (read.priority, read.preemptible)
    };
    assert_eq!(read("priorityClassName: inference"), (125, false));
    assert_eq!(
        read("priorityClassName: inference, preemptibility: preemptible"),
        (125, true)
    );
    assert_eq!(read("priorityClassName: gone"), (50, true));
    assert_eq!(read("preemptibility: non-preemptible"), (50, false));
}

#[test]
fn sub_groups_keep_their_order_and_aliases_become_labels() {
    let topology: Topology = serde_yaml_ng::from_str(
        "{metadata: {name: net}, spec: {levels: [{nodeLabel: cloud/block, alias: block}, {nodeLabel: cloud/rack}]}}",
    )
    .expect("a topology");
    let topologies = BTreeMap::from([("net".into(), Arc::new(topology))]);
    let group = whole(
        "{metadata: {name: g, namespace: ns}, spec: {minSubGroup: 1, topologyConstraint: {topology: net, requiredTopologyLevel: block, preferredTopologyLevel: cloud/rack},
          subGroups: [{name: b, minMember: 2, parent: a, topologyConstraint: {topology: other, requiredTopologyLevel: block}}, {name: a, minSubGroup: 0, topologyConstraint: {requiredTopologyLevel: block}}]}}",
    );
    let (read, _) = read_with(&group, &Classes::default(), &topologies);
    let constraint = |topology: &str, required: Option<&str>, preferred: Option<&str>| {
        Some(input::TopologyConstraint {
            topology: name(topology),
            required: required.map(name),
            preferred: preferred.map(name),
        })
    };
    assert_eq!(
        read.topology,
        constraint("net", Some("cloud/block"), Some("cloud/rack"))
    );
    let sub = |own: &str, parent: Option<&str>, min_member: Option<i64>, min_sub_group: Option<i64>, topology| {
        SubGroupInput {
            name: name(own),
            parent: parent.map(name),
            min_member,
            min_sub_group,
            topology,
        }
    };
    let expected = [
        sub("b", Some("a"), Some(2), None, constraint("other", Some("block"), None)),
        sub("a", None, None, Some(0), None),
    ];
    assert_eq!((read.min_sub_group, &read.sub_groups[..]), (Some(1), &expected[..]));
    assert!(names_topology(&group, "net") && names_topology(&group, "other") && !names_topology(&group, "third"));
}

#[test]
fn a_group_backs_off_while_its_newest_condition_names_its_pool() {
    let backed_off = |backoff: &str, pool: &str, conditions: &[(&str, &str)]| {
        let label = if pool.is_empty() {
            String::new()
        } else {
            format!("labels: {{kai.scheduler/node-pool: {pool}}}")
        };
        let mut group = group(&label);
        group.spec.scheduling_backoff = backoff.parse().ok();
        let conditions = conditions.iter().map(|(id, pool)| SchedulingCondition {
            transition_id: Some((*id).to_owned()),
            node_pool: Some((*pool).to_owned()),
            ..SchedulingCondition::default()
        });
        group.status = Some(crate::api::pod_group::PodGroupStatus {
            scheduling_conditions: conditions.collect(),
            ..Default::default()
        });
        plain(&Arc::new(group).into()).0.backed_off
    };
    assert!(!backed_off("-1", "a", &[("1", "a")]));
    assert!(!backed_off("", "a", &[("1", "a")]));
    assert!(!backed_off("1", "a", &[]));
    assert!(!backed_off("1", "a", &[("1", "b")]));
    assert!(backed_off("1", "a", &[("1", "a")]));
    assert!(backed_off("1", "", &[("1", "default")]));
    assert!(!backed_off("1", "", &[("1", "b")]));
    assert!(backed_off("1", "a", &[("2", "a"), ("10", "a"), ("9", "b")]));
    assert!(
        !backed_off("1", "a", &[("2", "b"), ("2", "a"), ("odd", "a")]),
        "of two equal ids the earlier counts"
    );
}

#[test]
fn the_fast_time_parser_agrees_with_the_library() {
    let texts = [
        "2026-01-31T12:00:00Z",
        "1970-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "9999-12-30T21:59:59Z",
        "9999-12-31T23:59:59Z",
        "2024-02-29T23:59:59Z",
        "2025-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31 12:00:00Z",
        "2026-01-31T12:00:0xZ",
        "-026-01-31T12:00:00Z",
    ];
    for text in texts {
        assert_eq!(
            super::plain(text),
            text.parse().ok().filter(|_| text.contains('T')),
            "{text}"
        );
    }
    // Other forms are parsed by the library.
    for text in [
        "2026-01-31T12:00:00.5Z",
        "2026-01-31T12:00:00+01:00",
        "2016-12-31T23:59:60Z",
        "",
    ] {
        assert_eq!(super::plain(text), None, "{text}");
    }
}
