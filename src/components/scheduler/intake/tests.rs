mod rebuilds;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::api::names::annotation;
use crate::api::{PodGroup, Queue};
use crate::components::bus::Kind;
use crate::components::retry::LATE;
use crate::components::watches::{Key, Stores};
use crate::engine::input::{GroupKey, Time};
use crate::engine::model::pod::Status;
use crate::engine::tests::faults::panic_when_served;
use crate::mirror::aside::GROUP_FAILED;

pub const NOW: Time = Time(1_000_000);
/// The annotation of pods that cannot be packed.
const UNPACKABLE: &str = "example.com/unpackable";

pub fn read<K: DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A pod of group `g` for a GPU; `fault` makes the mirror panic when it gets it.
pub fn pod(name: &str, version: usize, more: &Value, fault: Option<&str>) -> Object {
    let mut annotations = json!({annotation::POD_GROUP_NAME: "g"});
    if let Some(fault) = fault {
        annotations["example.com/fault"] = json!(fault);
    }
    let mut spec = json!({"schedulerName": "kai-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]});
    let mut phase = json!({"phase": "Pending"});
    if let Some(node) = more.get("node") {
        spec["nodeName"] = node.clone();
        phase = json!({"phase": "Running"});
    }
    let metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string(),
        "annotations": annotations});
    Object::Pod(read(json!({"metadata": metadata, "spec": spec, "status": phase})))
}

/// A cluster of one node with so many GPUs, as watches and scheduler see it.
pub struct Cluster {
    pub stores: Arc<Stores>,
    pub intake: Intake,
}

impl Cluster {
    pub fn new(gpus: usize) -> Self {
        let mut cluster = Self {
            stores: Arc::default(),
            intake: Intake::new(mirror::Settings::default(), Policy::default()),
        };
        let resources = json!({"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": resources, "conditions": ready}});
        let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let shares = json!({"resources": {"cpu": open, "memory": open, "gpu": open}});
        let queue =
            json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": shares});
        let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"queue": "q", "minMember": 1}});
        cluster.tell(Object::Node(read(node)));
        cluster.tell(Object::Queue(read(queue)));
        cluster.tell(Object::PodGroup(read(group)));
        cluster
    }

    /// Applies a change; returns the objects that were set aside.
    pub fn tell(&mut self, object: Object) -> Vec<String> {
        match object.clone() {
            Object::Node(node) => drop(self.stores.nodes.insert(Node::clone(&node))),
            Object::Queue(queue) => drop(self.stores.queues.insert(Queue::clone(&queue))),
            Object::PodGroup(group) => drop(self.stores.pod_groups.insert(PodGroup::clone(&group))),
            Object::Pod(pod) => drop(self.stores.pods.insert(Pod::clone(&pod))),
            Object::DeviceClass(class) => drop(self.stores.device_classes.insert(DeviceClass::clone(&class))),
            Object::ResourceClaim(claim) => drop(self.stores.resource_claims.insert(ResourceClaim::clone(&claim))),
            other => panic!("{other:?}"),
        }
        let taken = self
            .intake
            .change(&mirror::packed_change(object, true), None, NOW, &|tell| {
                self.stores.tell_all(tell)
            });
        taken
            .failed_objects
            .iter()
            .map(|object| format!("{} {}", object.kind, object.key))
            .collect()
    }

    pub fn bound(&mut self) -> Vec<String> {
        let binds = self.intake.core.engine.cycle(NOW).bind;
        binds.iter().map(|bind| bind.pod.name.to_string()).collect()
    }

    fn aside(&mut self) -> usize {
        self.intake.core.mirror.aside.all().count()
    }
}

#[test]
fn an_object_that_causes_a_panic_is_set_aside_and_others_are_scheduled() {
    let mut cluster = Cluster::new(8);
    assert!(cluster.tell(pod("first", 1, &json!({}), None)).is_empty());
    assert_eq!(
        cluster.tell(pod("poison", 1, &json!({}), Some("the fault"))),
        ["Pod ns/poison"]
    );
    assert!(cluster.tell(pod("second", 1, &json!({}), None)).is_empty());
    assert!(
        cluster.tell(pod("poison", 1, &json!({}), Some("the fault"))).is_empty(),
        "nothing new"
    );
    assert_eq!(cluster.aside(), 1);
    assert_eq!(cluster.bound(), ["first", "second"]);
    assert!(cluster.tell(pod("poison", 2, &json!({}), None)).is_empty());
    assert_eq!((cluster.aside(), cluster.bound()), (0, vec!["poison".to_owned()]));
}

#[test]
fn an_object_that_causes_three_panics_is_not_retried() {
    let mut cluster = Cluster::new(8);
    let tell = |cluster: &mut Cluster, version| cluster.tell(pod("poison", version, &json!({}), Some("the fault")));
    let failed: Vec<usize> = (1..10)
        .filter(|version| !tell(&mut cluster, *version).is_empty())
        .collect();
    assert_eq!(failed, [1, 2, 3]);
    assert_eq!(cluster.aside(), 1);
}

#[test]
fn several_objects_that_cause_panics_are_all_found() {
    let mut cluster = Cluster::new(8);
    for name in ["a", "b"] {
        // As after an update to a version with a bug: the stores have an object that makes it panic.
        let Object::Pod(poison) = pod(name, 1, &json!({}), Some("the fault")) else {
            unreachable!()
        };
        cluster.stores.pods.insert(Pod::clone(&poison));
    }
    let failed = cluster.tell(pod("c", 1, &json!({}), Some("the fault")));
    assert_eq!(failed, ["Pod ns/c", "Pod ns/a", "Pod ns/b"]);
    cluster.tell(pod("good", 1, &json!({}), None));
    assert_eq!(cluster.bound(), ["good"]);
}

#[test]
fn cycles_wait_until_earlier_decisions_are_shown() {
    let mut cluster = Cluster::new(1);
    cluster.tell(pod("first", 1, &json!({}), None));
    assert_eq!(cluster.bound(), ["first"]);
    cluster.tell(pod("second", 1, &json!({}), None));
    assert_eq!(cluster.intake.waits_until(NOW), None, "the model knows of the bind");
    cluster.tell(pod("poison", 1, &json!({}), Some("the fault")));
    let until = Some(Time(NOW.0 + MAX_WAIT));
    assert_eq!(
        cluster.intake.waits_until(NOW),
        until,
        "the new model would give the only GPU twice"
    );
    cluster.tell(pod("first", 2, &json!({"node": "n"}), None));
    assert_eq!(cluster.intake.waits_until(NOW), None);
    assert_eq!(cluster.bound(), Vec::<String>::new());
}

#[test]
fn a_bind_that_failed_meanwhile_is_not_waited_for() {
    let mut cluster = Cluster::new(1);
    cluster.tell(pod("first", 1, &json!({}), None));
    assert_eq!(cluster.bound(), ["first"]);
    cluster.tell(pod("poison", 1, &json!({}), Some("the fault")));
    assert!(cluster.intake.waits_until(NOW).is_some());
    let unbound = Event::Unbound {
        pod: "first".into(),
        retry_at: None,
    };
    cluster.intake.tell(unbound, NOW, &|tell| cluster.stores.tell_all(tell));
    assert_eq!(cluster.intake.waits_until(NOW), None);
    assert_eq!(cluster.bound(), ["first"]);
}

/// A node of this node pool, or of the default one, which is the shard's, with a GPU.
fn node(name: &str, pool: Option<&str>) -> Arc<Node> {
    let resources = json!({"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "1"});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let labels = pool.map(|pool| json!({"kai.scheduler/node-pool": pool}));
    let metadata = json!({"name": name, "labels": labels});
    read(json!({"metadata": metadata, "status": {"allocatable": resources, "conditions": ready}}))
}

impl Cluster {
    /// Such a node is created or changed.
    pub fn node(&mut self, name: &str, pool: Option<&str>) {
        self.tell(Object::Node(node(name, pool)));
    }

    /// The store shows such a node, and its change has not been taken yet.
    pub fn store_node(&self, name: &str, pool: Option<&str>) {
        self.stores.nodes.insert(Node::clone(&node(name, pool)));
    }

    /// Whether mirror and engine know a node, after the nodes that are due are admitted.
    fn knows(&mut self, node: &str) -> bool {
        self.with_intake(|intake, all| intake.admit_nodes(NOW, all));
        let nodes = &self.intake.core.engine.model().nodes();
        nodes.id(node).is_some_and(|id| nodes[id].input.is_some())
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_from_another_node_pool_gets_pods_once_the_decisions_of_that_are_known() {
    let mut cluster = Cluster::new(1);
    cluster.node("new", None);
    assert!(cluster.knows("new"), "it was in no other node pool");
    cluster.node("moves", Some("blue"));
    cluster.node("moves", None);
    assert!(!cluster.knows("moves"));
    sleep(LATE / 2).await;
    cluster.node("moves", None);
    cluster.rebuilt();
    assert!(!cluster.knows("moves"));
    sleep(LATE / 2).await;
    assert!(cluster.knows("moves"));
    cluster.node("moves", Some("blue"));
    assert!(!cluster.knows("moves"), "it has left at once");
    cluster.node("moves", None);
    cluster.node("moves", Some("blue"));
    sleep(LATE).await;
    assert!(!cluster.knows("moves"), "it has left again");
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_at_a_node_that_is_due_the_others_are_read_as_the_stores_show_them() {
    let mut cluster = Cluster::new(1);
    for name in ["a", "left", "gone", "stays"] {
        cluster.node(name, Some("blue"));
        cluster.node(name, None);
    }
    let mut poison = Node::clone(&node("a", None));
    poison
        .annotations_mut()
        .insert("example.com/fault".to_owned(), "the fault".to_owned());
    cluster.tell(Object::Node(Arc::new(poison)));
    // The messages about these have not arrived.
    cluster.store_node("left", Some("blue"));
    cluster.stores.nodes.remove(&key("", "gone"));
    sleep(LATE).await;
    let known = ["a", "left", "gone", "stays"].map(|name| cluster.knows(name));
    assert_eq!(known, [false, false, false, true]);
    assert_eq!((cluster.aside(), cluster.intake.arrivals.next()), (1, None));
}

#[test]
fn a_pod_that_cannot_be_packed_any_more_leaves_the_model_when_it_is_deleted() {
    let mut cluster = Cluster::new(1);
    cluster.tell(pod("odd", 1, &json!({"node": "n"}), None));
    cluster.tell(pod("waits", 1, &json!({}), None));
    let odd = pod("odd", 2, &json!({"node": "n"}), None);
    let position = Position {
        kind: Kind::Pod,
        number: 3,
    };
    cluster.intake.unreadable(odd.identity(), "the fault", position);
    assert_eq!((cluster.aside(), cluster.bound()), (1, Vec::new()), "its GPU is in use");
    let gone = packed::bare_deletion(odd);
    cluster.with_intake(|intake, all| intake.change(&gone, Some(position), NOW, all));
    assert_eq!((cluster.aside(), cluster.bound()), (0, vec!["waits".to_owned()]));
}

#[test]
fn groupings_are_kept_when_the_model_is_rebuilt() {
    let mut cluster = Cluster::new(8);
    let mut ungrouped = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1"},
        "spec": {"schedulerName": "kai-scheduler", "containers": []}, "status": {"phase": "Pending"}});
    cluster.tell(Object::Pod(read(ungrouped.clone())));
    let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "draft", "namespace": "ns"}, "spec": {"queue": "q", "minMember": 1}});
    let grouping = PackedChange::Grouped(mirror::GroupDraft {
        namespace: "ns".to_owned(),
        pod: "p".to_owned(),
        uid: "p".to_owned(),
        group: read(group),
        sub_group: None,
    });
    cluster
        .intake
        .change(&grouping, None, NOW, &|tell| cluster.stores.tell_all(tell));
    cluster.tell(pod("poison", 1, &json!({}), Some("the fault")));
    assert_eq!(cluster.bound(), ["p"], "its group is not written yet");
    ungrouped["metadata"]["resourceVersion"] = json!("2");
    cluster.tell(Object::Pod(read(ungrouped)));
    let model = cluster.intake.core.engine.model();
    assert!(model.pods().iter().all(|(_, task)| task.pod_group.is_some()));
}

impl Cluster {
    /// The pods that are bound by the next cycle that does not fail, and what failed before.
    fn bound_in_the_end(&mut self) -> (Vec<String>, Vec<Failed>) {
        let mut failures = Vec::new();
        loop {
            let decided = self.intake.cycle(NOW, &|tell| self.stores.tell_all(tell), &mut |_| ());
            match decided {
                Ok(decisions) => {
                    let binds = decisions.bind.iter().map(|bind| bind.pod.name.to_string());
                    return (binds.collect(), failures);
                }
                Err(failed) if failed.for_good => return (Vec::new(), failures),
                Err(failed) => failures.push(*failed),
            }
        }
    }

    /// A pod group of this name, and a pod of it.
    pub fn submit(&mut self, name: &str, version: usize, preemptibility: &str) {
        let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string()},
            "spec": {"queue": "q", "minMember": 1, "preemptibility": preemptibility}});
        self.tell(Object::PodGroup(read(group)));
        let Object::Pod(pod) = pod(&format!("{name}-pod"), 1, &json!({}), None) else {
            unreachable!()
        };
        let mut pod = (*pod).clone();
        pod.metadata.annotations = Some([(annotation::POD_GROUP_NAME.to_owned(), name.to_owned())].into());
        self.tell(Object::Pod(Arc::new(pod)));
    }
}

#[test]
fn a_failed_cycle_is_repeated_on_a_new_model() {
    let mut cluster = Cluster::new(8);
    cluster.submit("odd", 1, "preemptible");
    panic_when_served(&GroupKey::new("ns", "odd"), 1);
    let (bound, failures) = cluster.bound_in_the_end();
    assert_eq!((bound, failures.len()), (vec!["odd-pod".to_owned()], 1));
    assert_eq!(failures[0].panic, "the fault");
    assert!(failures[0].taken.failed_group.is_none());
    assert_eq!(cluster.aside(), 0);
}

#[test]
fn a_pod_group_whose_cycles_panic_is_set_aside_until_it_changes_and_others_are_scheduled() {
    let mut cluster = Cluster::new(8);
    let odd = GroupKey::new("ns", "odd");
    cluster.submit("odd", 1, "preemptible");
    cluster.submit("other", 1, "preemptible");
    panic_when_served(&odd, 2);
    let (bound, mut failures) = cluster.bound_in_the_end();
    assert_eq!((bound, failures.len()), (vec!["other-pod".to_owned()], 2));
    assert_eq!(failures.remove(1).taken.failed_group, Some(odd.clone()));
    let all: Vec<_> = cluster.intake.core.mirror.aside.all().collect();
    assert_eq!(all, [("PodGroup", "ns", "odd", GROUP_FAILED.to_owned())]);

    cluster.submit("odd", 2, "preemptible");
    assert_eq!(cluster.bound(), Vec::<String>::new(), "it asks for the same as before");
    cluster.submit("odd", 3, "non-preemptible");
    assert_eq!((cluster.aside(), cluster.bound()), (0, vec!["odd-pod".to_owned()]));
}

#[test]
fn a_pod_group_that_causes_three_panics_is_not_retried() {
    let mut cluster = Cluster::new(8);
    panic_when_served(&GroupKey::new("ns", "odd"), u32::MAX);
    let mut failures = Vec::new();
    for version in 1..8 {
        let preemptibility = ["preemptible", "non-preemptible"][version % 2];
        cluster.submit("odd", version, preemptibility);
        failures.push(cluster.bound_in_the_end().1.len());
    }
    assert_eq!(failures, [2, 2, 2, 0, 0, 0, 0]);
    assert_eq!(cluster.aside(), 1);
}

#[test]
fn retry_times_are_kept_when_the_model_is_rebuilt() {
    let mut cluster = Cluster::new(1);
    cluster.tell(pod("first", 1, &json!({}), None));
    assert_eq!(cluster.bound(), ["first"]);
    let later = Time(NOW.0 + 30_000);
    let unbound = Event::Unbound {
        pod: "first".into(),
        retry_at: Some(later),
    };
    cluster.intake.tell(unbound, NOW, &|tell| cluster.stores.tell_all(tell));
    cluster.tell(pod("poison", 1, &json!({}), Some("the fault")));
    assert_eq!(cluster.bound(), Vec::<String>::new());
    let wakes = cluster.intake.core.engine.next_wakeup(NOW);
    assert_eq!(wakes.map(|(at, _)| at), Some(later));
    let binds = cluster.intake.core.engine.cycle(later).bind;
    assert_eq!(binds.len(), 1);
}

#[test]
fn messages_about_states_that_a_rebuilt_model_is_past_are_passed_over() {
    let mut cluster = Cluster::new(8);
    let (waits, runs) = (
        pod("moved", 1, &json!({}), None),
        pod("moved", 2, &json!({"node": "n"}), None),
    );
    let insert = |cluster: &Cluster, object: &Object| {
        let Object::Pod(pod) = object else { unreachable!() };
        cluster.stores.pods.insert(Pod::clone(pod));
        cluster.position(Kind::Pod)
    };
    let (first, second) = (insert(&cluster, &waits), insert(&cluster, &runs));
    cluster.with_intake(|intake, all| intake.rebuild(NOW, all));
    let status = |cluster: &Cluster| {
        let pods = cluster.intake.core.engine.model().pods();
        pods.iter().map(|(_, pod)| pod.state.status).collect::<Vec<_>>()
    };
    assert_eq!(status(&cluster), [Status::Running]);
    for (object, there, position) in [(&waits, true, first), (&waits, false, first), (&runs, true, second)] {
        let change = mirror::packed_change(object.clone(), there);
        cluster.with_intake(|intake, all| intake.change(&change, Some(position), NOW, all));
        assert_eq!(status(&cluster), [Status::Running]);
    }
    let third = insert(&cluster, &waits);
    let gone = mirror::packed_change(runs, false);
    cluster.with_intake(|intake, all| intake.change(&gone, Some(third), NOW, all));
    assert_eq!(status(&cluster), []);
}

#[test]
fn retries_that_a_fast_clock_decided_are_due_soon_after_it_is_set_back() {
    let mut cluster = Cluster::new(1);
    cluster.tell(pod("first", 1, &json!({}), None));
    assert_eq!(cluster.bound(), ["first"]);
    let ahead = Time(NOW.0 + 3_600_000);
    let stores = Arc::clone(&cluster.stores);
    let everything: &Everything = &|tell| stores.tell_all(tell);
    cluster.intake.follow_clock(ahead, everything);
    let unbound = Event::Unbound {
        pod: "first".into(),
        retry_at: Some(Time(ahead.0 + 1_000)),
    };
    cluster.intake.tell(unbound, ahead, everything);
    assert!(cluster.intake.follow_clock(NOW, everything).told);
    assert_eq!(cluster.bound(), Vec::<String>::new());
    let wakes = cluster.intake.core.engine.next_wakeup(NOW);
    assert_eq!(wakes.map(|(at, _)| at), Some(Time(NOW.0 + 300_000)));
}

#[test]
fn a_clock_that_is_set_back_makes_a_stuck_pod_one_that_leaves_again() {
    let mut cluster = Cluster::new(1);
    let stuck_after = Policy::default().stuck_after;
    let mut leaving = pod("leaving", 1, &json!({"node": "n"}), None);
    let Object::Pod(pod) = &mut leaving else { unreachable!() };
    let deleted_at = jiff::Timestamp::from_millisecond(NOW.0).unwrap();
    Arc::make_mut(pod).metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(deleted_at));
    cluster.tell(leaving);
    let status = |cluster: &Cluster| {
        let pods = cluster.intake.core.engine.model().pods();
        pods.iter().map(|(_, pod)| pod.state.status).collect::<Vec<_>>()
    };
    let follow = |cluster: &mut Cluster, now: i64| {
        let stores = Arc::clone(&cluster.stores);
        let rebuilt = cluster.intake.follow_clock(Time(now), &|tell| stores.tell_all(tell));
        rebuilt.told
    };

    let late = NOW.0 + stuck_after + 1;
    assert!(!follow(&mut cluster, late));
    cluster.intake.core.engine.cycle(Time(late));
    assert_eq!(status(&cluster), [Status::Stuck]);

    assert!(!follow(&mut cluster, late - 999), "a correction of less than a second");
    assert_eq!(status(&cluster), [Status::Stuck]);
    assert!(follow(&mut cluster, late - 1_000));
    assert_eq!(status(&cluster), [Status::Releasing]);
    assert!(!follow(&mut cluster, late - 1_000), "once");
}

#[test]
fn a_bound_pod_that_is_set_aside_counts_on_its_node_until_it_is_deleted() {
    let mut cluster = Cluster::new(1);
    let runs = |version, fault| pod("poison", version, &json!({"node": "n"}), fault);
    cluster.tell(runs(1, None));
    cluster.tell(pod("waits", 1, &json!({}), None));
    assert_eq!(cluster.bound(), Vec::<String>::new());
    assert_eq!(cluster.tell(runs(2, Some("the fault"))), ["Pod ns/poison"]);
    assert_eq!(cluster.bound(), Vec::<String>::new(), "its GPU is not given twice");
    for version in 3..6 {
        cluster.tell(runs(version, Some("the fault")));
        assert_eq!(cluster.bound(), Vec::<String>::new());
    }
    let gone = runs(6, Some("the fault"));
    cluster
        .intake
        .change(&mirror::packed_change(gone, false), None, NOW, &|tell| {
            cluster.stores.tell_all(tell)
        });
    assert_eq!(cluster.bound(), ["waits"]);
}

#[test]
fn usage_is_kept_when_the_model_is_rebuilt_and_applied_once_the_queue_exists() {
    let mut cluster = Cluster::new(8);
    let usage = vec![("q".into(), [1, 2, 3]), ("later".into(), [4, 5, 6])];
    cluster
        .intake
        .tell(Event::Usage(usage), NOW, &|tell| cluster.stores.tell_all(tell));
    cluster.tell(pod("poison", 1, &json!({}), Some("the fault")));
    let later =
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "later"}, "spec": {}});
    cluster.tell(Object::Queue(read(later)));
    cluster.intake.core.engine.cycle(NOW);
    let mut known: Vec<_> = cluster.intake.core.engine.queues().map(|queue| queue.usage).collect();
    known.sort_unstable();
    assert_eq!(known, [[1, 2, 3], [4, 5, 6]]);
}

#[test]
fn reports_from_before_a_rebuild_are_cleared_once_their_pod_groups_no_longer_wait() {
    let mut cluster = Cluster::new(1);
    cluster.tell(pod("runs", 1, &json!({"node": "n"}), None));
    for name in ["deleted", "first", "second"] {
        cluster.submit(name, 1, "preemptible");
    }
    let group = |name: &str| GroupKey::new("ns", name);
    let waiting = vec![group("deleted"), group("first"), group("second")];
    assert_eq!(cluster.reports(), (waiting, Vec::new()));

    for gone in ["runs", "deleted-pod"] {
        cluster.stores.pods.remove(&key("ns", gone));
    }
    cluster.stores.pod_groups.remove(&key("ns", "deleted"));
    cluster.rebuilt();
    cluster.rebuilt();
    let cleared = vec![group("deleted"), group("first")];
    assert_eq!(cluster.reports(), (vec![group("second")], cleared));
    assert_eq!(cluster.reports(), (Vec::new(), Vec::new()), "once");
}

/// A reservation pod on the node for the group `shared`.
fn reservation(uid: &str) -> Arc<Pod> {
    read(json!({
        "metadata": {"namespace": "kai-resource-reservation", "name": "r", "uid": uid, "resourceVersion": "1",
            "labels": {"runai-gpu-group": "shared"}},
        "spec": {"nodeName": "n", "serviceAccountName": "kai-resource-reservation",
            "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Pending"},
    }))
}

fn key(namespace: &str, name: &str) -> Key {
    Key {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

impl Cluster {
    /// The position of the last change of a kind.
    fn position(&self, kind: Kind) -> Position {
        let number = self.stores.tell_all(&mut |_| ())[&kind];
        Position { kind, number }
    }

    fn with_intake(&mut self, change: impl FnOnce(&mut Intake, &Everything) -> Taken) -> Taken {
        let stores = Arc::clone(&self.stores);
        change(&mut self.intake, &|tell| stores.tell_all(tell))
    }

    fn requested(&mut self, uid: &str) {
        self.with_intake(|intake, all| intake.requested(reservation(uid), NOW, all));
    }

    fn settled(&mut self, uid: &str) {
        self.with_intake(|intake, all| intake.settled(reservation(uid), NOW, all));
    }

    fn rebuilt(&mut self) -> Taken {
        self.with_intake(|intake, all| intake.rebuild(NOW, all))
    }

    /// The pod groups that a cycle reports as waiting, and those whose reports it clears.
    fn reports(&mut self) -> (Vec<GroupKey>, Vec<GroupKey>) {
        let decided = self.intake.cycle(NOW, &|tell| self.stores.tell_all(tell), &mut |_| ());
        let Ok(decisions) = decided else { unreachable!() };
        let waiting = decisions.unschedulable.into_iter().map(|report| report.group);
        (waiting.collect(), decisions.cleared)
    }
}

#[test]
fn a_gpu_is_not_given_to_others_while_a_reservation_of_it_may_still_take_effect() {
    let mut cluster = Cluster::new(1);
    cluster.requested("first");
    cluster.tell(pod("whole", 1, &json!({}), None));
    assert!(cluster.bound().is_empty());
    cluster.rebuilt();
    assert!(cluster.bound().is_empty(), "nor after a rebuild");
    cluster.requested("second");
    cluster.settled("first");
    assert!(cluster.bound().is_empty(), "another request is under way");
    cluster.settled("second");
    assert_eq!(cluster.bound(), ["whole"]);
}

#[test]
fn a_reservation_that_the_watch_shows_counts_until_it_is_deleted_whatever_is_settled() {
    let mut cluster = Cluster::new(1);
    cluster.requested("first");
    cluster.tell(Object::Pod(reservation("real")));
    cluster.tell(pod("whole", 1, &json!({}), None));
    cluster.settled("first");
    assert!(cluster.bound().is_empty());
    cluster.requested("late");
    let real = reservation("real");
    cluster.stores.pods.remove(&Key::of(&real.metadata));
    cluster.with_intake(|intake, all| intake.change(&mirror::packed_change(Object::Pod(real), false), None, NOW, all));
    assert!(cluster.bound().is_empty(), "it may be created again");
    cluster.settled("late");
    assert_eq!(cluster.bound(), ["whole"]);
}

#[test]
fn a_reservation_that_has_failed_may_be_created_again_until_its_request_is_settled() {
    let mut cluster = Cluster::new(1);
    cluster.requested("first");
    let mut failed = Pod::clone(&reservation("real"));
    failed.status.get_or_insert_default().phase = Some("Failed".to_owned());
    cluster.tell(Object::Pod(Arc::new(failed)));
    cluster.tell(pod("whole", 1, &json!({}), None));
    assert!(cluster.bound().is_empty());
    cluster.settled("first");
    assert_eq!(cluster.bound(), ["whole"]);
}

/// The pod with which the scheduler is told of the request has a uid of its own.
#[test]
fn a_reservation_pod_that_is_set_aside_stays_so_whatever_is_requested() {
    let mut cluster = Cluster::new(1);
    let mut poison = Pod::clone(&reservation("real"));
    poison.metadata.annotations = Some([("example.com/fault".to_owned(), "the fault".to_owned())].into());
    assert_eq!(
        cluster.tell(Object::Pod(Arc::new(poison))),
        ["Pod kai-resource-reservation/r"]
    );
    cluster.requested("first");
    cluster.settled("first");
    assert_eq!(cluster.aside(), 1);
}
