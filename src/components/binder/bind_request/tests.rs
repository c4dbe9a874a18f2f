//! Bind requests: content, and what to do about existing ones.

use serde_json::{Value, json};

use super::*;

fn pod(node: Option<&str>, phase: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "a", "uid": "uid-a"},
        "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
    }))
    .unwrap()
}

/// The label of node pools.
const POOL: &str = "kai.scheduler/node-pool";

/// A bind that the scheduler ordered, to two halves of GPUs.
pub fn decided() -> OrderedBind {
    OrderedBind {
        pool: "".into(),
        labels: BTreeMap::new(),
        placement: Bind {
            pod: pods::pod_ref(&pod(None, "Pending")),
            group: pods::group_key(&pod(None, "Pending").metadata),
            node: "n1".into(),
            received: GpuKind::Fraction,
            gpu_count: 2,
            gpu_portion: WHOLE / 2,
            gpu_groups: vec!["g".into(), "h".into()],
            zones: Vec::new(),
            volumes: Vec::new(),
            claims: Vec::new(),
            after_evictions: None,
        },
        annotations: [("received-resource-type".to_owned(), "Fraction".to_owned())].into(),
        regrouped: false,
        named: None,
        steps: vec![Step::GpuShare],
        given: Default::default(),
        share: Share::of([("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "2")].into_iter()),
    }
}

fn ours() -> BindRequest {
    request(&decided(), &Settings::default())
}

fn theirs(status: Value) -> BindRequest {
    let mut request = ours();
    request.metadata.labels = None;
    request.status = serde_json::from_value(status).unwrap();
    request
}

fn action_for(request: &BindRequest, pod: Option<&Pod>) -> BindRequestAction {
    action(request, pod, true, false, POOL, |_| Some(Vec::new()))
}

#[test]
fn a_bind_request_has_all_data_of_the_bind() {
    let (written, decided) = (ours(), decided());
    assert_eq!(
        serde_json::to_value(&written.spec).unwrap(),
        json!({
            "podName": "a", "selectedNode": "n1", "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 2, "portion": "0.50"}, "selectedGPUGroups": ["g", "h"],
            "resourceClaimAllocations": [], "predictedNUMAZones": [],
        })
        .as_object()
        .map(|spec| {
            let filled = spec.iter().filter(|(_, value)| **value != json!([]));
            filled
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect::<serde_json::Map<_, _>>()
                .into()
        })
        .unwrap_or(Value::Null)
    );
    assert_eq!(written.owner_references()[0].uid, "uid-a");
    assert_eq!(
        bind(&written, &pod(None, "Pending"), POOL, Some(Vec::new())),
        Some(decided)
    );
}

#[test]
fn a_resumed_bind_names_the_pod_group_of_the_decision_whatever_the_pod_names_now() {
    let mut bind = decided();
    let annotation = ("pod-group-name".to_owned(), "gang".to_owned());
    bind.annotations.extend([annotation.clone()]);
    let request = request(&bind, &Settings::default());
    let mut changed = pod(None, "Pending");
    for named in [None, Some("other")] {
        let named = named.map(|name| [(annotation.0.clone(), name.to_owned())].into());
        changed.metadata.annotations = named;
        let resumed = super::bind(&request, &changed, POOL, Some(Vec::new())).unwrap();
        assert_eq!(resumed.placement.group.name(), "gang");
        assert_eq!(resumed.annotations.get("pod-group-name"), Some(&annotation.1));
    }
}

#[test]
fn portions_have_two_places() {
    let shown = [WHOLE, WHOLE / 2, WHOLE / 3, WHOLE / 8, 0].map(portion);
    assert_eq!(shown, ["1.00", "0.50", "0.33", "0.12", "0.00"]);
    let tiny = [WHOLE / 200, WHOLE / 200 - 1, WHOLE / 1_000].map(portion);
    assert_eq!(
        tiny,
        ["0.01", "0.004999999", "0.001"],
        "more where two places would be none"
    );
}

#[test]
fn a_node_with_a_name_too_long_for_a_label_is_no_obstacle() {
    let mut bind = decided();
    bind.placement.node = "n".repeat(64).into();
    let request = request(&bind, &Settings::default());
    assert!(!request.labels().contains_key(label::SELECTED_NODE));
    bind.placement.node = "n".repeat(63).into();
    assert_eq!(labelled(&bind, "")[label::SELECTED_NODE], "n".repeat(63));
}

/// The labels of the request of a bind; `key`: the label of node pools.
fn labelled(bind: &OrderedBind, key: &str) -> BTreeMap<String, String> {
    let mut settings = Settings::default();
    settings.pools.key = key.to_owned();
    request(bind, &settings).metadata.labels.unwrap()
}

#[test]
fn a_request_has_the_label_of_its_node_pool() {
    let mut pooled = decided();
    pooled.pool = "blue".into();
    assert_eq!(labelled(&pooled, POOL)[POOL], "blue");
    assert!(!labelled(&pooled, "").contains_key(""), "there are no pools");
    assert!(!labelled(&decided(), POOL).contains_key(POOL), "the default pool");
}

#[test]
fn the_pod_gets_the_label_of_the_pool_unless_it_has_it() {
    let mut request = ours();
    let labels = |request: &BindRequest, pod: &Pod| bind(request, pod, POOL, Some(Vec::new())).unwrap().labels;
    let mut waiting = pod(None, "Pending");
    assert_eq!(labels(&request, &waiting), BTreeMap::new());
    request.labels_mut().insert(POOL.to_owned(), "blue".to_owned());
    let blue = BTreeMap::from([(POOL.to_owned(), "blue".to_owned())]);
    assert_eq!(labels(&request, &waiting), blue);
    waiting.metadata.labels = Some(blue);
    assert_eq!(labels(&request, &waiting), BTreeMap::new());
}

#[test]
fn the_predicted_numa_zones_are_written_on_the_pod_of_a_resumed_bind() {
    let waiting = pod(None, "Pending");
    let annotations_of = |request: &BindRequest| bind(request, &waiting, POOL, Some(Vec::new())).unwrap().annotations;
    let mut request = ours();
    let written = annotations_of(&request);
    assert!(!written.contains_key(annotation::NUMA_PLACEMENT_PREDICTED));
    assert!(!written.contains_key(annotation::NUMA_PLACEMENT_OBSERVED));
    let mut spec = serde_json::to_value(&request.spec).unwrap();
    spec["predictedNUMAZones"] = json!([{"zone": "node-0", "amount": {"cpu": "4"}}]);
    request.spec = serde_json::from_value(spec).unwrap();
    assert!(!request.spec.predicted_numa_zones.is_empty());
    let zones = serde_json::to_string(&request.spec.predicted_numa_zones).unwrap();
    let written = annotations_of(&request);
    assert_eq!(written[annotation::NUMA_PLACEMENT_PREDICTED], zones);
    // Nobody has observed a pod without a node; a tenant may annotate it until the Binding.
    assert_eq!(written[annotation::NUMA_PLACEMENT_OBSERVED], "[]");
}

#[test]
fn a_request_with_devices_for_claims_is_dropped_since_others_may_have_them_by_now() {
    let waiting = pod(None, "Pending");
    for (field, value) in [
        ("resourceClaimAllocations", json!([{"name": "gpu"}])),
        ("extendedResourceClaimAllocation", json!({})),
    ] {
        let mut request = ours();
        let mut spec = serde_json::to_value(&request.spec).unwrap();
        spec[field] = value;
        request.spec = serde_json::from_value(spec).unwrap();
        assert_eq!(action_for(&request, Some(&waiting)), BindRequestAction::Drop, "{field}");
    }
}

#[test]
fn a_request_that_is_being_deleted_is_left_alone() {
    let mut leaving = ours();
    leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let waiting = pod(None, "Pending");
    assert_eq!(action_for(&leaving, Some(&waiting)), BindRequestAction::Leave);
}

#[test]
fn requests_are_the_same_if_they_bind_the_same_pod_to_the_same_place() {
    assert!(same(&ours(), &ours()));
    let mut other = decided();
    other.placement.node = "n2".into();
    assert!(!same(&ours(), &request(&other, &Settings::default())), "another node");
    let mut other = ours();
    other.metadata.owner_references.as_mut().unwrap()[0].uid = "uid-b".to_owned();
    assert!(!same(&ours(), &other), "another pod of the name");
}

#[test]
fn open_bind_requests_of_any_creator_are_executed() {
    let waiting = pod(None, "Pending");
    for request in [ours(), theirs(json!({})), theirs(json!({"phase": "Succeeded"}))] {
        assert!(matches!(
            action_for(&request, Some(&waiting)),
            BindRequestAction::CarryOut(_)
        ));
    }
}

#[test]
fn our_completed_bind_requests_are_deleted_and_those_of_others_are_marked() {
    let running = pod(Some("n1"), "Running");
    assert_eq!(action_for(&ours(), Some(&running)), BindRequestAction::Drop);
    assert_eq!(
        action_for(&theirs(json!({})), Some(&running)),
        BindRequestAction::Succeed
    );
    assert_eq!(
        action_for(&theirs(json!({"phase": "Succeeded"})), Some(&running)),
        BindRequestAction::Leave
    );
}

#[test]
fn with_the_full_trail_our_bind_requests_are_kept_with_their_pods() {
    let (running, mut done) = (pod(Some("n1"), "Running"), ours());
    assert_eq!(
        action(&done, Some(&running), true, true, POOL, |_| None),
        BindRequestAction::Succeed
    );
    done.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    assert_eq!(
        action(&done, Some(&running), true, true, POOL, |_| None),
        BindRequestAction::Leave
    );
    assert_eq!(action(&done, None, true, true, POOL, |_| None), BindRequestAction::Drop);
    assert_eq!(
        action(&done, Some(&running), true, false, POOL, |_| None),
        BindRequestAction::Drop,
        "the trail is not asked for any more"
    );
}

#[test]
fn a_bind_request_without_its_pod_or_node_is_deleted() {
    let waiting = pod(None, "Pending");
    assert_eq!(action_for(&ours(), None), BindRequestAction::Drop);
    assert_eq!(
        action(&theirs(json!({})), Some(&waiting), false, false, POOL, |_| None),
        BindRequestAction::Drop
    );
    let mut another = waiting;
    another.metadata.uid = Some("uid-b".to_owned());
    assert_eq!(
        action_for(&ours(), Some(&another)),
        BindRequestAction::Drop,
        "a former pod of the same name"
    );
}

#[test]
fn failed_bind_requests_of_others_are_retried_up_to_their_backoff_limit() {
    let waiting = pod(None, "Pending");
    let mut request = theirs(json!({"phase": "Failed", "failedAttempts": 1}));
    assert_eq!(
        action_for(&request, Some(&waiting)),
        BindRequestAction::Drop,
        "the first failure was the last"
    );
    request.spec.backoff_limit = Some(3);
    assert!(matches!(
        action_for(&request, Some(&waiting)),
        BindRequestAction::CarryOut(_)
    ));
    request.status.as_mut().unwrap().failed_attempts = Some(3);
    assert_eq!(action_for(&request, Some(&waiting)), BindRequestAction::Drop);
}
