use super::*;
use crate::engine::input::Time;
use crate::mirror::identity::{Account, OwnPods};

fn pod(yaml: &str) -> Pod {
    serde_yaml_ng::from_str(yaml).expect("a pod")
}

/// A pod in a mirror without other objects.
fn read_alone(yaml: &str, request: Option<&BindRequest>, membership: Option<&Membership>) -> PodInput {
    read(
        &Arc::new(pod(yaml)),
        request,
        membership,
        &Settings::default(),
        PodContext {
            namespaces: &Namespaces::default(),
            claims: &Claims::default(),
            templates: &Templates::default(),
        },
        &mut Vec::new(),
    )
}

fn plain(yaml: &str) -> PodInput {
    read_alone(yaml, None, None)
}

/// A pod with a phase and whatever else, read with or without a bind request.
fn status_of(phase: &str, metadata: &str, spec: &str, requested: bool) -> PodStatus {
    let request: BindRequest =
        serde_yaml_ng::from_str("{metadata: {name: p}, spec: {podName: p, selectedNode: n2}}").expect("a bind request");
    let yaml =
        format!("{{metadata: {{name: p, {metadata}}}, spec: {{containers: [], {spec}}}, status: {{phase: {phase}}}}}");
    read_alone(&yaml, requested.then_some(&request), None).status
}

#[test]
fn statuses_follow_phase_deletion_node_request_and_gates_in_this_order() {
    let (leaving, node, gates) = (
        "deletionTimestamp: '2026-01-01T00:00:00Z'",
        "nodeName: n1",
        "schedulingGates: [{name: g}]",
    );
    let table = [
        ("Running", "", node, false, PodStatus::Running),
        ("Running", leaving, node, false, PodStatus::Releasing),
        ("Pending", leaving, "", false, PodStatus::Releasing),
        ("Pending", "", node, true, PodStatus::Bound),
        ("Pending", "", gates, true, PodStatus::Binding),
        ("Pending", "", gates, false, PodStatus::Gated),
        ("Pending", "", "", false, PodStatus::Pending),
        ("Succeeded", leaving, "", false, PodStatus::Succeeded),
        ("Failed", leaving, "", false, PodStatus::Failed),
        ("Unknown", "", "", false, PodStatus::Unknown),
        ("Unknown", "", node, false, PodStatus::Running),
        ("Unknown", leaving, node, false, PodStatus::Releasing),
        ("''", "", "", false, PodStatus::Unknown),
    ];
    for (phase, metadata, spec, requested, expected) in table {
        assert_eq!(
            status_of(phase, metadata, spec, requested),
            expected,
            "{phase} {metadata} {spec} {requested}"
        );
    }
}

#[test]
fn only_a_running_pod_can_be_stuck_in_termination() {
    let since = |phase: &str| {
        plain(&format!(
            "{{metadata: {{name: p, deletionTimestamp: '2026-01-01T00:00:00Z'}}, status: {{phase: {phase}}}}}"
        ))
        .releasing_since
    };
    assert_eq!(
        (since("Running"), since("Pending")),
        (Some(Time(1_767_225_600_000)), None)
    );
}

#[test]
fn a_pod_is_read_whole() {
    let read = plain(
        "{metadata: {name: p, namespace: ns, uid: u1, creationTimestamp: '2026-01-01T00:00:00Z', annotations: {pod-group-name: g, received-resource-type: Fraction},
            labels: {kai.scheduler/subgroup-name: workers, kai.scheduler/task-priority: '7', runai-gpu-group: a, runai-gpu-group/b: b, runai-gpu-group/a: a, ray.io/node-type: head}},
          spec: {schedulerName: kai-scheduler, nodeName: n1, containers: []}, status: {phase: Running, nominatedNodeName: n2}}",
    );
    assert_eq!(
        (&*read.pod.uid, &*read.pod.namespace, &*read.pod.name, read.created),
        ("u1", "ns", "p", Time(1_767_225_600_000))
    );
    assert_eq!(read.group, Some(GroupKey::new("ns", "g")));
    assert_eq!(
        (
            read.sub_group.as_deref(),
            read.node.as_deref(),
            read.nominated_node.as_deref()
        ),
        (Some("workers"), Some("n1"), Some("n2"))
    );
    assert_eq!(
        (read.received, read.gpu_groups),
        (Some(GpuKind::Fraction), vec![name("a"), name("b")])
    );
    assert_eq!(
        (read.task_priority, read.ray_head, read.kubeflow_master),
        (Some(7), true, false)
    );
    assert_eq!(
        (read.foreign, read.of_unikai, read.reservation, read.blocked),
        (false, false, false, None)
    );
}

#[test]
fn prefixed_gpu_groups_count_without_the_plain_label() {
    let read =
        plain("{metadata: {name: p, labels: {runai-gpu-group/x: x, runai-gpu-group/y: y, runai-gpu-groups: no}}}");
    assert_eq!(read.gpu_groups, [name("x"), name("y")]);
}

#[test]
fn a_bind_request_gives_node_and_gpus_to_a_pod_that_has_none() {
    let request: BindRequest = serde_yaml_ng::from_str(
        "{metadata: {name: p}, spec: {podName: p, selectedNode: n2, receivedResourceType: Fraction, selectedGPUGroups: [g1]}}",
    )
    .expect("a bind request");
    let read = |yaml: &str| read_alone(yaml, Some(&request), None);
    let waiting =
        read("{metadata: {name: p, labels: {runai-gpu-group: old}}, spec: {containers: []}, status: {phase: Pending}}");
    assert_eq!(
        (waiting.status, waiting.node.as_deref()),
        (PodStatus::Binding, Some("n2"))
    );
    assert_eq!(
        (waiting.received, waiting.gpu_groups),
        (Some(GpuKind::Fraction), vec![name("g1")])
    );
    let running = read("{metadata: {name: p}, spec: {containers: [], nodeName: n1}, status: {phase: Running}}");
    assert_eq!(
        (running.status, running.node.as_deref()),
        (PodStatus::Running, Some("n1"))
    );
}

/// The pod group and sub-group of a pod that the grouper has put into `leaf` of `found`.
fn place_of(metadata: &str, spec: &str) -> [Option<String>; 2] {
    let membership = Membership {
        group: GroupKey::new("ns", "found"),
        sub_group: Some(name("leaf")),
    };
    let yaml = format!("{{metadata: {{namespace: ns, {metadata}}}, spec: {{containers: [], {spec}}}}}");
    let read = read_alone(&yaml, None, Some(&membership));
    [
        read.group.map(|group| group.name().to_owned()),
        read.sub_group.map(|sub_group| sub_group.to_string()),
    ]
}

const OWNED: &str = "ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: j}]";

#[test]
fn the_grouper_decides_the_place_of_a_waiting_pod_but_not_the_group_that_one_without_owners_names() {
    let waiting = "schedulerName: kai-scheduler";
    let found = [Some("found".to_owned()), Some("leaf".to_owned())];
    let label = "labels: {kai.scheduler/subgroup-name: own}";
    let said = "annotations: {pod-group-name: said}";
    assert_eq!(place_of("", waiting), found);
    assert_eq!(place_of(label, waiting), found);
    assert_eq!(place_of("annotations: {pod-group-name: found}", waiting), found);
    assert_eq!(place_of(&format!("{said}, {label}, {OWNED}"), waiting), found);
    assert_eq!(place_of(said, waiting), [Some("said".to_owned()), None]);
    assert_eq!(place_of("", "schedulerName: other"), [None, None]);
}

#[test]
fn a_bound_pod_is_in_the_place_that_it_names_and_in_the_groupers_sub_group_until_it_names_one() {
    let bound = "schedulerName: kai-scheduler, nodeName: n1";
    let place = |group: &str, sub_group: &str| [Some(group.to_owned()), Some(sub_group.to_owned())];
    let found = "annotations: {pod-group-name: found}";
    assert_eq!(place_of(found, bound), place("found", "leaf"));
    let labelled = format!("{found}, labels: {{kai.scheduler/subgroup-name: own}}");
    assert_eq!(place_of(&labelled, bound), place("found", "own"));
    assert_eq!(place_of("", bound), place("found", "leaf"));
    let said = format!("annotations: {{pod-group-name: said}}, {OWNED}");
    assert_eq!(place_of(&said, bound), [Some("said".to_owned()), None]);
}

#[test]
fn pods_of_other_schedulers_are_foreign_and_pods_of_unikai_are_marked() {
    let foreign = plain(
        "{metadata: {name: p, namespace: ns, annotations: {pod-group-name: g}}, spec: {schedulerName: default-scheduler, containers: []}}",
    );
    assert_eq!((foreign.foreign, foreign.group), (true, None));
    let scaling = plain(
        "{metadata: {name: p, namespace: kai-scale-adjust}, spec: {serviceAccountName: kai-scale-adjust, containers: []}}",
    );
    assert_eq!((scaling.of_unikai, scaling.reservation), (true, false));
}

/// A pod with that namespace, service account, labels and number of GPUs: whether it is a pod of unikai, and whether its GPU counts as shared.
fn reservation(namespace: &str, account: &str, labels: &str, gpus: u32) -> (bool, bool) {
    let read = plain(&format!(
        "{{metadata: {{name: p, namespace: {namespace}, labels: {{{labels}}}}}, spec: {{serviceAccountName: {account}, nodeName: n, containers: [
            {{name: c, resources: {{requests: {{nvidia.com/gpu: '{gpus}'}}}}}}]}}}}"
    ));
    (read.of_unikai, read.reservation)
}

#[test]
fn reservation_pods_are_recognised_by_namespace_service_account_and_request() {
    let ours = "kai-resource-reservation";
    let group = "app: kai-resource-reservation, runai-gpu-group: g";
    assert_eq!(reservation(ours, ours, group, 1), (true, true));
    // Labels alone, which a tenant can write.
    assert_eq!(reservation("team", ours, group, 1), (false, false));
    assert_eq!(reservation("team", "default", group, 8), (false, false));
    assert_eq!(reservation(ours, "default", group, 1), (false, false));
    assert_eq!(reservation("team", "default", "app: scaling-pod", 8), (false, false));
    // A reservation pod with other requests counts for these.
    assert_eq!(reservation(ours, ours, group, 8), (true, false));
    assert_eq!(reservation(ours, ours, group, 0), (true, false));
    assert_eq!(
        reservation(ours, ours, "app: kai-resource-reservation", 1),
        (true, false)
    );
}

#[test]
fn own_pods_are_recognised_by_the_configured_service_accounts() {
    let own = OwnPods {
        reservation: Account::new("gpus", "holder"),
        scaling: Account::new("scale", "scaler"),
    };
    let role = |namespace: &str, account: &str| own.role_of(namespace, account);
    assert_eq!(role("gpus", "holder"), Role::Reservation);
    assert_eq!(role("scale", "scaler"), Role::Scaling);
    assert_eq!(role("gpus", "scaler"), Role::Workload);
    assert_eq!(
        role("kai-resource-reservation", "kai-resource-reservation"),
        Role::Workload
    );
}

#[test]
fn a_finished_pod_keeps_its_group_although_its_spec_is_gone() {
    let read = plain(
        "{metadata: {name: p, namespace: ns, uid: u, annotations: {pod-group-name: g}}, status: {phase: Succeeded}}",
    );
    assert_eq!(
        (read.status, read.group.is_some(), read.foreign),
        (PodStatus::Succeeded, true, false)
    );
}

#[test]
fn pods_that_cannot_be_scheduled_have_the_reason() {
    let blocked = |metadata: &str, spec: &str| {
        plain(&format!(
            "{{metadata: {{name: p, {metadata}}}, spec: {{schedulerName: kai-scheduler, {spec}}}}}"
        ))
        .blocked
    };
    assert_eq!(blocked("", "containers: [], resourceClaims: [{name: gpu}]"), None);
    let devices = "annotations: {gpu-fraction: '0.5', gpu-fraction-num-devices: '0'}";
    assert_eq!(
        blocked(devices, "containers: []").as_deref(),
        Some("annotation gpu-fraction-num-devices: \"0\" is not a whole number above 0")
    );
    assert!(blocked("annotations: {gpu-fraction: much}", "containers: []").is_some());
}

#[test]
fn invalid_task_priorities_are_ordered_last() {
    let priority = |text: &str| {
        plain(&format!(
            "{{metadata: {{name: p, labels: {{kai.scheduler/task-priority: '{text}'}}}}}}"
        ))
        .task_priority
    };
    assert_eq!(
        (
            priority("-3"),
            priority("first"),
            plain("{metadata: {name: p}}").task_priority
        ),
        (Some(-3), Some(i64::MIN), None)
    );
}
