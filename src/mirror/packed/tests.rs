use serde::{Deserialize, Deserializer};

use super::*;

// Tests write objects as they are in the API.

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        core::Pod::deserialize(deserializer).map(|pod| Arc::new(pod).into())
    }
}

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PodGroup::deserialize(deserializer).map(|group| Arc::new(group).into())
    }
}

fn pod(yaml: &str) -> Pod {
    serde_yaml_ng::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

#[test]
fn a_plain_pod_is_held_in_full_without_the_object() {
    let pod = pod(
        "{metadata: {name: p, namespace: ns, uid: u, resourceVersion: '7', creationTimestamp: '2026-01-01T00:00:00Z', deletionTimestamp: '2026-01-01T00:00:01Z',
          labels: {b: x, a: ''}, annotations: {note: hello}},
          spec: {schedulerName: kai-scheduler, nodeName: n, priority: 7, priorityClassName: train, schedulingGates: [{name: g}],
                 containers: [{name: main, image: i, env: [{name: RANK, value: '1'}], resources: {requests: {cpu: '1', memory: 1Gi}}}],
                 initContainers: [{name: side, restartPolicy: Always, resources: {requests: {cpu: 100m}}}, {name: first}]},
          status: {phase: Running, qosClass: Guaranteed, nominatedNodeName: m}}",
    );
    assert!(pod.further.is_none());
    assert_eq!((&*pod.pod.namespace, &*pod.pod.name, &*pod.pod.uid), ("ns", "p", "u"));
    assert_eq!(pod.version.as_deref(), Some("7"));
    assert_eq!(
        (pod.created, pod.deleted),
        (Time(1_767_225_600_000), Some(Time(1_767_225_601_000)))
    );
    assert_eq!(pod.labels.iter().collect::<Vec<_>>(), [("a", ""), ("b", "x")]);
    assert_eq!(pod.annotations.get("note"), Some("hello"));
    assert_eq!((&*pod.scheduler, pod.phase), ("kai-scheduler", Phase::Running));
    assert_eq!((pod.node.as_deref(), pod.nominated.as_deref()), (Some("n"), Some("m")));
    assert_eq!((pod.priority, pod.priority_class.as_deref()), (Some(7), Some("train")));
    assert!(pod.gated && pod.guaranteed);
    let asked = |container: &Container| {
        let requests = container
            .requests
            .iter()
            .map(|(resource, amount)| format!("{resource}={amount}"));
        (
            container.name.to_string(),
            requests.collect::<Vec<_>>().join(" "),
            container.stays,
        )
    };
    let all: Vec<_> = pod.containers.iter().chain(&pod.init_containers).map(asked).collect();
    let expected = [
        ("main", "cpu=1 memory=1Gi", false),
        ("side", "cpu=100m", true),
        ("first", "", false),
    ];
    assert_eq!(
        all,
        expected.map(|(name, requests, stays)| (name.to_owned(), requests.to_owned(), stays))
    );
}

/// Every field that some reader looks for in the object.
#[test]
fn the_fields_of_a_pod_that_has_more_are_kept() {
    for spec in [
        "affinity: {nodeAffinity: {}}",
        "hostNetwork: true",
        "tolerations: [{operator: Exists}]",
        "volumes: [{name: v, emptyDir: {}}]",
        "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]",
        "resourceClaims: [{name: c}]",
        "ephemeralContainers: [{name: debug, envFrom: [{configMapRef: {name: m}}]}]",
        "nodeSelector: {zone: a}",
        "overhead: {cpu: 100m}",
        "containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]",
        "containers: [{name: c, envFrom: [{configMapRef: {name: m}}]}]",
        "containers: [{name: c, env: [{name: V, valueFrom: {configMapKeyRef: {name: m, key: k}}}]}]",
        "initContainers: [{name: c, restartPolicy: Always, ports: [{containerPort: 80, hostPort: 80}]}]",
        "initContainers: [{name: c, envFrom: [{configMapRef: {name: m}}]}]",
    ] {
        let pod = pod(&format!("{{metadata: {{name: p}}, spec: {{{spec}}}}}"));
        assert!(pod.spec().is_some(), "{spec}");
    }
    let claimed = pod("{metadata: {name: p}, status: {resourceClaimStatuses: [{name: c, resourceClaimName: made}]}}");
    assert!(claimed.further.is_some());
    let empty = pod(
        "{metadata: {name: p}, spec: {containers: [], tolerations: [], volumes: [], nodeSelector: {}, hostNetwork: false}}",
    );
    assert!(empty.further.is_none());
}

#[test]
fn pods_of_one_template_share_their_further_fields() {
    let of = |name: &str, zone: &str| {
        let token = format!("kube-api-access-{name}");
        let pod = pod(&format!(
            "{{metadata: {{name: {name}}}, spec: {{nodeSelector: {{zone: {zone}}}, volumes: [{{name: {token}, projected: {{sources: []}}}}],
              containers: [{{name: c, volumeMounts: [{{name: {token}, mountPath: /t}}], env: [{{name: NAME, value: {name}}}]}}]}}}}"
        ));
        pod.further.expect("further fields")
    };
    let (first, second, other) = (of("a", "shared"), of("b", "shared"), of("c", "another"));
    assert!(Arc::ptr_eq(&first, &second));
    assert!(!Arc::ptr_eq(&first, &other));
    let gone = Arc::downgrade(&other);
    drop(other);
    assert!(gone.upgrade().is_none(), "it goes with the last pod");
}

#[test]
fn only_the_token_volume_of_a_pod_loses_its_name() {
    let pod = pod(
        "{metadata: {name: p}, spec: {
          volumes: [{name: kube-api-access-data, ephemeral: {}}, {name: kube-api-access-x2b5d, projected: {sources: []}}],
          containers: [{name: c, volumeMounts: [{name: kube-api-access-data, mountPath: /d}, {name: kube-api-access-x2b5d, mountPath: /t}]}]}}",
    );
    let spec = pod.spec().unwrap();
    let volumes: Vec<_> = spec.volumes.iter().flatten().map(|volume| &*volume.name).collect();
    let mounts = spec.containers[0].volume_mounts.iter().flatten();
    let mounts: Vec<_> = mounts.map(|mount| &*mount.name).collect();
    assert_eq!(volumes, ["kube-api-access-data", "kube-api-access-"]);
    assert_eq!(mounts, volumes);
}

#[test]
fn a_pod_group_with_further_fields_is_kept_complete() {
    let group = |spec: &str| -> Group {
        let yaml = format!("{{metadata: {{name: g, namespace: ns, uid: u, labels: {{a: b}}}}, spec: {{{spec}}}}}");
        serde_yaml_ng::from_str(&yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
    };
    let plain = group(
        "queue: q, priorityClassName: train, preemptibility: preemptible, minMember: 2, minSubGroup: 1, markUnschedulable: false",
    );
    assert!(plain.whole.is_none());
    assert_eq!((&plain.key, &*plain.uid), (&GroupKey::new("ns", "g"), "u"));
    assert_eq!(
        (
            &*plain.queue,
            plain.priority_class.as_deref(),
            plain.preemptibility.as_deref()
        ),
        ("q", Some("train"), Some("preemptible"))
    );
    assert_eq!((plain.min_member, plain.min_sub_group), (Some(2), Some(1)));
    for spec in [
        "subGroups: [{name: a}]",
        "topologyConstraint: {topology: t}",
        "preemptionDelay: 5m",
        "stalenessGracePeriod: 5m",
        "schedulingBackoff: 1",
    ] {
        assert!(group(spec).whole.is_some(), "{spec}");
    }
}

#[test]
fn of_a_pod_groups_annotations_those_that_are_read_are_kept() {
    let text = "metadata: {namespace: ns, name: g, annotations: {unikai.dev/hold: \"true\", kai.scheduler/top-owner-metadata: '{}', a.team/note: n}}\nspec: {}";
    let group: Group = serde_yaml_ng::from_str(text).unwrap();
    let kept: Vec<_> = group.annotations.iter().collect();
    assert_eq!(kept, [(annotation::HOLD, "true")]);
}
