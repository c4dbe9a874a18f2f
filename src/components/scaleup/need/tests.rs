//! Which scaling pods are made and taken away.

use serde_json::{Value, json};

use super::*;
use crate::components::pods::OwnPods;

fn account() -> Account {
    OwnPods::default().scaling
}

fn waiting(name: &str, annotations: Value) -> Arc<Pod> {
    let pod = json!({
        "metadata": {"namespace": "team", "name": name, "annotations": annotations},
        "spec": {
            "nodeSelector": {"pool": "a"},
            "containers": [
                {"name": "one", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
                {"name": "two", "resources": {"requests": {"cpu": "1"}}},
            ],
        },
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn fraction(portion: &str, devices: u32) -> Value {
    json!({"gpu-fraction": portion, "gpu-fraction-num-devices": devices.to_string()})
}

/// A need with pods named a, b, c…, of which those with these positions have their scaling pod.
fn need(pods: &[Value], scaled: &[usize]) -> Need {
    let mut need = Need::new(10);
    for (at, annotations) in pods.iter().enumerate() {
        let pod = waiting(&name(at), annotations.clone());
        need.pod(&pod);
        if scaled.contains(&at) {
            let devices = need.waiting[&Key::of(&pod.metadata)].devices;
            need.scaling(&scaling_pod(&WaitingPod(pod), devices, &Settings::default(), &account()).unwrap());
        }
    }
    need
}

fn name(at: usize) -> String {
    format!("pod-{at:02}")
}

/// The pods for which scaling pods are made, with their GPUs.
fn made(need: &Need) -> Vec<(String, i64)> {
    made_at(need, Instant::now())
}

fn made_at(need: &Need, now: Instant) -> Vec<(String, i64)> {
    let plan = need.plan(std::iter::empty(), now);
    plan.make
        .iter()
        .map(|(wanted, gpus)| (wanted.name().to_owned(), *gpus))
        .collect()
}

fn plan(need: &Need) -> Plan {
    need.plan(std::iter::empty(), Instant::now())
}

#[test]
fn scaling_pods_request_the_sum_of_portions() {
    let one = |portion| fraction(portion, 1);
    let memory = || json!({"gpu-memory": "1000"});
    for (pods, scaled, expected) in [
        (vec![one("0.7"), one("0.7"), one("0.1")], vec![0, 1], vec![]),
        (vec![one("0.7"), one("0.1")], vec![], vec![(0, 1)]),
        (vec![one("0.7"), one("0.7")], vec![], vec![(0, 1), (1, 1)]),
        (vec![fraction("0.2", 2)], vec![], vec![(0, 2)]),
        (vec![fraction("0.9", 2)], vec![], vec![(0, 2)]),
        (vec![memory(); 11], vec![], vec![(0, 1), (1, 1)]),
        (vec![one("a4f"), one("0.7")], vec![], vec![(1, 1)]),
        (vec![json!({})], vec![], vec![]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|(at, gpus)| (name(at), gpus)).collect();
        assert_eq!(made(&need(&pods, &scaled)), expected, "{pods:?}");
    }
}

#[test]
fn needless_scaling_pods_are_deleted_before_others_are_created() {
    let mut need = need(&[fraction("0.7", 1), fraction("0.7", 1), fraction("0.7", 1)], &[0]);
    need.pod_gone(&Key::of(&waiting(&name(0), json!({})).metadata));
    let changes = plan(&need);
    assert_eq!((changes.take_away.len(), changes.make.len()), (1, 0));
}

#[test]
fn a_completed_scaling_pod_is_deleted() {
    let mut need = need(&[fraction("0.7", 1)], &[]);
    let wanted = WaitingPod(waiting(&name(0), json!({})));
    let mut landed = scaling_pod(&wanted, 1, &Settings::default(), &account()).unwrap();
    landed.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    assert!(need.scaling(&landed));
    assert_eq!(plan(&need).take_away.len(), 1);
    assert!(need.scaling_gone(&landed));
}

#[test]
fn a_scaling_pod_that_does_not_terminate_is_deleted_once_and_blocks_no_other() {
    let mut need = need(&[fraction("0.7", 1), fraction("0.7", 1)], &[]);
    let wanted = WaitingPod(waiting(&name(0), fraction("0.7", 1)));
    let mut stuck = scaling_pod(&wanted, 1, &Settings::default(), &account()).unwrap();
    stuck.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    need.scaling(&stuck);
    assert_eq!(plan(&need).take_away.len(), 1);
    stuck.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert!(need.scaling(&stuck));
    assert!(plan(&need).take_away.is_empty(), "it was asked to go");
    assert_eq!(made(&need), [(name(1), 1)], "its own name is taken until it has gone");
    need.scaling_gone(&stuck);
    assert_eq!(made(&need), [(name(0), 1), (name(1), 1)]);
}

#[test]
fn a_created_scaling_pod_is_not_created_again_before_the_watch_shows_it() {
    let need = need(&[fraction("0.7", 1)], &[]);
    let key = Key::of(&waiting(&name(0), json!({})).metadata);
    let made = Scaling::new(key, 1);
    assert!(need.plan(std::iter::once(&made), Instant::now()).is_empty());
}

#[test]
fn a_pod_without_a_verdict_keeps_its_scaling_pod_and_gets_no_new_one() {
    let mut need = need(&[fraction("0.7", 1)], &[0]);
    let mut silent = Pod::clone(&waiting(&name(0), fraction("0.7", 1)));
    silent.status = None;
    need.pod(&Arc::new(silent.clone()));
    assert!(plan(&need).is_empty());
    silent.metadata.name = Some("another".to_owned());
    need.pod(&Arc::new(silent));
    assert!(plan(&need).is_empty());
}

#[test]
fn a_scaling_pod_could_run_where_the_pod_could() {
    let mut pod = Pod::clone(&waiting("a-pod", fraction("0.5", 2)));
    let affinity = |default: Value| {
        json!({
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                default,
                {"topologyKey": "zone", "namespaces": ["other"]},
                {"topologyKey": "zone", "namespaceSelector": {}},
            ]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": default},
            ]},
        })
    };
    pod.spec.as_mut().unwrap().affinity = serde_json::from_value(affinity(json!({"topologyKey": "zone"}))).unwrap();
    let wanted = WaitingPod(Arc::new(pod));
    let made = scaling_pod(&wanted, 2, &Settings::default(), &account()).unwrap();
    let spec = made.spec.clone().unwrap();
    assert_eq!(
        serde_json::to_value(&spec.affinity).unwrap(),
        affinity(json!({"topologyKey": "zone", "namespaces": ["team"]})),
        "a term without namespaces means that of the pod"
    );
    assert_eq!(spec.node_selector.unwrap()["pool"], "a");
    let resources = spec.containers[0].resources.clone().unwrap();
    let text = |amounts: Option<BTreeMap<String, Quantity>>| {
        let amounts = amounts.unwrap().into_iter();
        amounts
            .map(|(key, amount)| format!("{key}={}", amount.0))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(text(resources.limits), "nvidia.com/gpu=2");
    assert_eq!(text(resources.requests), "cpu=1500m memory=1Gi nvidia.com/gpu=2");
    assert_eq!(read_scaling(&made).unwrap().pod, Key::of(&wanted.0.metadata));
    assert_eq!(made.labels()["shared-gpu-pod-name"], "a-pod");
    let long = WaitingPod(waiting(&"x".repeat(80), fraction("0.5", 1)));
    let made = scaling_pod(&long, 1, &Settings::default(), &account()).unwrap();
    assert_eq!(
        read_scaling(&made).unwrap().pod,
        Key::of(&long.0.metadata),
        "a name too long for a label"
    );
}

#[test]
fn on_openshift_a_scaling_pod_has_no_fixed_user() {
    let user_of = |openshift: bool| {
        let settings = Settings {
            openshift,
            ..Settings::default()
        };
        let wanted = WaitingPod(waiting("a-pod", fraction("0.5", 1)));
        let made = scaling_pod(&wanted, 1, &settings, &account()).unwrap();
        let security = made.spec.unwrap().containers[0].security_context.clone().unwrap();
        assert_eq!(security.run_as_non_root, Some(true));
        security.run_as_user
    };
    assert_eq!([false, true].map(user_of), [Some(10_000), None]);
}

/// A need with pods of these namespaces and annotations; those with a star have their scaling pod, and those of `selects` a node selector.
fn need_of(pods: &[(&str, Value)]) -> Need {
    let mut need = Need::new(10);
    for (namespace, annotations) in pods {
        let mut pod = Pod::clone(&waiting("pod", annotations.clone()));
        pod.metadata.namespace = Some(namespace.trim_end_matches('*').to_owned());
        if !namespace.starts_with("selects") {
            pod.spec.as_mut().unwrap().node_selector = None;
        }
        let pod = Arc::new(pod);
        need.pod(&pod);
        if namespace.ends_with('*') {
            let devices = need.waiting[&Key::of(&pod.metadata)].devices;
            need.scaling(&scaling_pod(&WaitingPod(pod), devices, &Settings::default(), &account()).unwrap());
        }
    }
    need
}

#[test]
fn portions_that_make_up_no_whole_gpu_are_added_up_over_namespaces() {
    let one = |portion| fraction(portion, 1);
    let memory = || json!({"gpu-memory": "1000"});
    let teams: Vec<_> = (0..11).map(|at| format!("team-{at:02}")).collect();
    let small = teams.iter().map(|team| (team.as_str(), memory())).collect();
    for (pods, expected) in [
        (small, vec!["team-00", "team-01"]),
        (vec![("a", one("0.7")), ("b", one("0.1"))], vec!["a"]),
        (vec![("a", one("0.7")), ("b", one("0.7"))], vec!["a", "b"]),
        (vec![("a", one("0.1")), ("b*", one("0.7"))], vec![]),
        (vec![("a", one("0.7")), ("b*", one("0.7"))], vec!["a"]),
        (vec![("a", one("0.999")), ("b*", one("0.1"))], vec!["a"]),
        (vec![("a", one("0.5")), ("selects*", one("0.01"))], vec!["a"]),
    ] {
        let plan = plan(&need_of(&pods));
        let made: Vec<_> = plan.make.iter().map(|(wanted, _)| wanted.namespace()).collect();
        assert_eq!(made, expected, "{pods:?}");
    }
}

#[test]
fn a_namespace_that_requests_very_many_gpus_affects_no_other() {
    for devices in [1_048_500, 1_048_576] {
        for large in ["large", "large*"] {
            let need = need_of(&[(large, fraction("0.01", devices)), ("other", fraction("0.7", 1))]);
            let plan = plan(&need);
            let made: Vec<_> = plan.make.iter().map(|(wanted, _)| wanted.namespace()).collect();
            assert!(made.contains(&"other"), "{large} {devices}: {made:?}");
        }
    }
}

#[test]
fn others_are_created_in_place_of_a_scaling_pod_that_is_refused() {
    let start = Instant::now();
    let at = |seconds: u64| start + std::time::Duration::from_secs(seconds);
    let mut need = need(&[fraction("0.5", 1), fraction("0.4", 1), fraction("0.3", 1)], &[]);
    let key = |at: usize| Key::of(&waiting(&name(at), json!({})).metadata);
    assert_eq!(made_at(&need, start), [(name(0), 1), (name(1), 1)]);
    assert_eq!((need.has_refused(), need.next_attempt(start)), (false, None));
    need.refused(&key(0), start);
    assert_eq!((need.has_refused(), need.next_attempt(start)), (true, Some(at(5))));
    assert_eq!(made_at(&need, at(4)), [(name(1), 1), (name(2), 1)]);
    need.pod(&waiting(&name(0), fraction("0.6", 1)));
    assert_eq!(
        made_at(&need, at(4)),
        [(name(1), 1), (name(2), 1)],
        "also if the pod changes"
    );
    need.refused(&key(1), start);
    assert_eq!(made_at(&need, at(4)), [(name(2), 1)]);
    assert_eq!(
        made_at(&need, at(5)),
        [(name(2), 1), (name(0), 1)],
        "those that were refused come last"
    );
    need.refused(&key(0), at(5));
    assert_eq!(need.next_attempt(at(5)), Some(at(15)));
    need.pod_gone(&key(0));
    need.pod_gone(&key(1));
    assert!(!need.has_refused());
}
