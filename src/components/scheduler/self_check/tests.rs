use serde_json::json;
use tokio::time::sleep_until;

use super::*;
use crate::components::bus::Object;
use crate::components::scheduler::intake::tests::{Cluster, NOW, pod, read};
use crate::components::tests::TimeOfDay;
use crate::engine::input::{Event, GroupKey, Name};

/// A scheduler without its thread, on simulated time, and its self-checks.
struct Checked {
    cluster: Cluster,
    check: SelfCheck,
    _time: TimeOfDay,
}

impl Checked {
    /// A node with 8 GPUs; `runs` and `first` of group `g` run on it, `second` is to be bound, `third` waits in its group.
    fn new() -> Self {
        let time = TimeOfDay::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let mut cluster = Cluster::new(3);
        cluster.tell(pod("runs", 1, &json!({"node": "n"}), None));
        cluster.tell(pod("first", 1, &json!({"node": "n"}), None));
        cluster.tell(pod("second", 1, &json!({}), None));
        assert_eq!(cluster.bound(), ["second"]);
        cluster.submit("other", 1, "preemptible");
        assert!(cluster.bound().is_empty());
        Self {
            cluster,
            check: SelfCheck::new("default", Duration::from_secs(600)),
            _time: time,
        }
    }

    /// The findings of the next self-check; `meanwhile` runs after each of its steps.
    async fn next(&mut self, mut meanwhile: impl FnMut(&mut Cluster)) -> Ended {
        loop {
            sleep_until(self.check.due().unwrap()).await;
            let stores = Arc::clone(&self.cluster.stores);
            if let Some(ended) = self.check.advance(&mut self.cluster.intake, &stores, NOW) {
                return ended;
            }
            meanwhile(&mut self.cluster);
        }
    }

    async fn finds(&mut self) -> Vec<(&'static str, String)> {
        let ended = self.next(|_| ()).await;
        let of_objects = ended.differences.into_iter().map(|one| (one.kind.as_str(), one.name));
        of_objects
            .chain(ended.broken.into_iter().map(|(rule, _)| ("rule", rule)))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_correct_model_has_no_differences() {
    let mut checked = Checked::new();
    assert_eq!(checked.finds().await, []);
    let mut version = 1;
    let ended = checked
        .next(|cluster| {
            version += 1;
            cluster.tell(pod("first", version, &json!({"node": "n"}), None));
            cluster.tell(pod(&format!("more-{version}"), 1, &json!({}), None));
            cluster.bound();
        })
        .await;
    assert_eq!((ended.ending, version > 5), (Ending::Same, true));
}

#[tokio::test(start_paused = true)]
async fn missed_changes_are_reported_with_both_values() {
    let missed = |event: Event| async {
        let mut checked = Checked::new();
        checked.cluster.intake.core.engine.apply(event, NOW);
        checked.next(|_| ()).await.differences
    };
    let one = |differences: &[Difference], kind: &str, name: &str| {
        let named = |difference: &&Difference| (difference.kind.as_str(), &*difference.name) == (kind, name);
        differences.iter().find(named).cloned().expect("the object")
    };
    let pod = one(&missed(Event::PodGone("first".into())).await, "pod", "ns/first");
    assert_eq!(pod.left, None);
    assert!(pod.right.unwrap().contains("Running, node: Some(\"n\")"));

    let node = one(&missed(Event::NodeGone("n".into())).await, "node", "n");
    assert!(node.left.is_none() && node.right.is_some());
    let queue = one(&missed(Event::QueueGone("q".into())).await, "queue", "q");
    assert!(queue.left.is_none() && queue.right.is_some());
    let gone = Event::GroupGone(GroupKey::new("ns", "other"));
    let group = one(&missed(gone).await, "pod_group", "ns/other");
    assert!(group.left.is_none() && group.right.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_violated_rule_is_found_and_the_model_is_rebuilt_once() {
    let mut checked = Checked::new();
    let tamper = |checked: &mut Checked| {
        let engine = &mut checked.cluster.intake.core.engine;
        engine.tamper(|model| model.charge_wrongly("q"));
    };
    tamper(&mut checked);
    let ended = checked.next(|_| ()).await;
    assert_eq!(ended.ending, Ending::Differs);
    let (rule, example) = ended.broken.first().unwrap();
    assert_eq!(
        rule,
        "M-4 (a queue's counters are the sum over its pods and the queues below)"
    );
    assert!(example.starts_with("q: "), "{example}");
    assert!(checked.check.report(&ended), "it is built anew");

    let stores = Arc::clone(&checked.cluster.stores);
    let everything = |tell: &mut dyn FnMut(Object)| stores.tell_all(tell);
    checked.cluster.intake.rebuild(NOW, &everything);
    assert!(
        checked.cluster.intake.waits_until(NOW).is_some(),
        "second is being bound"
    );
    let ended = checked.next(|_| ()).await;
    assert_eq!(ended.ending, Ending::Same);
    assert!(!checked.check.report(&ended));

    tamper(&mut checked);
    let ended = checked.next(|_| ()).await;
    assert!(checked.check.report(&ended), "the one before found nothing");
    let ended = checked.next(|_| ()).await;
    assert_eq!(ended.ending, Ending::Differs);
    assert!(!checked.check.report(&ended), "to build it anew has not helped");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_loses_gpus_is_no_difference() {
    let mut checked = Checked::new();
    let resources = json!({"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "1"});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": resources, "conditions": ready}});
    checked.cluster.tell(Object::Node(read(node)));
    let model = checked.cluster.intake.core.engine.model();
    assert!(!model.broken_rules().is_empty());
    assert_eq!(checked.finds().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_held_back_or_will_be_once_its_change_is_taken_is_no_difference() {
    for is_stored_before in [false, true] {
        let mut checked = Checked::new();
        checked.cluster.node("moves", Some("blue"));
        if is_stored_before {
            checked.cluster.store_node("moves", None);
        }
        let mut steps = 0;
        let ended = checked.next(|cluster| {
            steps += 1;
            if steps == 1 {
                cluster.node("moves", None);
            }
        });
        assert_eq!(ended.await.ending, Ending::Same);
        assert!(
            checked.cluster.intake.arrivals.next().is_some(),
            "it is still held back"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn selectors_of_devices_that_came_in_another_order_are_no_difference() {
    let mut checked = Checked::new();
    let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
    checked.cluster.tell(Object::DeviceClass(read(class)));
    // The stores show them by name.
    for name in ["b", "a"] {
        let selectors = json!([{"cel": {"expression": format!("device.driver == '{name}'")}}]);
        let exactly =
            json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": selectors});
        let devices = json!({"requests": [{"name": "device", "exactly": exactly}]});
        let claim = json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"devices": devices}});
        checked.cluster.tell(Object::ResourceClaim(read(claim)));
        let Object::Pod(pod) = pod(&format!("claims-{name}"), 1, &json!({}), None) else {
            unreachable!()
        };
        let mut pod = json!(*pod);
        pod["spec"]["resourceClaims"] = json!([{"name": "device", "resourceClaimTemplateName": "template"}]);
        pod["status"]["resourceClaimStatuses"] = json!([{"name": "device", "resourceClaimName": name}]);
        checked.cluster.tell(Object::Pod(read(pod)));
    }
    assert_eq!(checked.finds().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_temporary_difference_is_not_reported() {
    let mut checked = Checked::new();
    // The store is ahead of the scheduler for as long as the first comparison takes.
    let Object::Pod(late) = pod("late", 1, &json!({}), None) else {
        unreachable!()
    };
    checked.cluster.stores.pods.insert((*late).clone());
    let mut told = false;
    let mut compared = 0;
    let ended = loop {
        sleep_until(checked.check.due().unwrap()).await;
        let stores = Arc::clone(&checked.cluster.stores);
        if let Some(ended) = checked.check.advance(&mut checked.cluster.intake, &stores, NOW) {
            break ended;
        }
        let suspects = checked.check.running.as_ref().map(|run| &run.stage);
        if let (Some(Stage::Waiting(_, _, Some(differences))), false) = (suspects, told) {
            assert_eq!(
                differences.first().map(|one| &*one.name),
                Some("ns/late"),
                "{differences:?}"
            );
            (told, compared) = (true, differences.len());
            checked.cluster.tell(pod("late", 1, &json!({}), None));
        }
    };
    assert!(compared > 0);
    assert_eq!((ended.ending, ended.differences), (Ending::Same, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_self_check_ends_without_result_if_the_model_is_rebuilt_meanwhile() {
    let mut checked = Checked::new();
    let ended = checked
        .next(|cluster| {
            let stores = Arc::clone(&cluster.stores);
            cluster.intake.rebuild(NOW, &|tell| stores.tell_all(tell));
        })
        .await;
    assert_eq!(ended.ending, Ending::GivenUp);
    assert!(!checked.check.report(&ended));
}

#[tokio::test]
async fn the_second_model_is_built_in_a_thread_of_its_own() {
    let mut cluster = Cluster::new(3);
    cluster.tell(pod("first", 1, &json!({"node": "n"}), None));
    let name = Name::from("first");
    cluster.intake.core.engine.apply(Event::PodGone(name), NOW);
    let mut check = SelfCheck::new("default", Duration::from_millis(1));
    let ended = loop {
        sleep_until(check.due().unwrap()).await;
        let stores = Arc::clone(&cluster.stores);
        if let Some(ended) = check.advance(&mut cluster.intake, &stores, NOW) {
            break ended;
        }
    };
    assert_eq!(ended.ending, Ending::Differs);
    assert!(ended.differences.iter().any(|one| one.name == "ns/first"));
    assert!(check.due().unwrap() - Instant::now() > ended.worked * (REST / 2));
}

#[test]
fn an_interval_of_zero_switches_it_off() {
    assert_eq!(SelfCheck::new("default", Duration::ZERO).due(), None);
}
