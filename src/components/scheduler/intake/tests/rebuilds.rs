//! What a rebuild finds in the stores before the messages about it arrive.

use std::cell::Cell;

use super::*;

/// A change that a store has, and of which the message has not arrived.
type Late = (PackedChange, Position);

impl Cluster {
    /// A change that a store has.
    fn late(&self, object: Object, there: bool) -> Late {
        let position = self.position(object.kind());
        (mirror::packed_change(object, there), position)
    }

    /// The store gets a node.
    fn stored(&self, node: Arc<Node>) -> Late {
        self.stores.nodes.insert(Node::clone(&node));
        self.late(Object::Node(node), true)
    }

    /// A message arrives.
    fn take(&mut self, (change, position): &Late) -> Taken {
        self.with_intake(|intake, all| intake.change(change, Some(*position), NOW, all))
    }
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_holds_back_a_node_from_another_node_pool_whose_message_has_not_arrived() {
    let mut cluster = Cluster::new(1);
    cluster.node("moves", Some("blue"));
    let late = cluster.stored(node("moves", None));
    cluster.rebuilt();
    assert!(!cluster.knows("moves"));
    cluster.take(&late);
    assert!(!cluster.knows("moves"));
    sleep(LATE).await;
    assert!(cluster.knows("moves"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_in_the_rebuilt_model_is_not_held_back() {
    let mut cluster = Cluster::new(1);
    cluster.node("returned", None);
    let late = [Some("blue"), None].map(|pool| cluster.stored(node("returned", pool)));
    cluster.rebuilt();
    for late in &late {
        cluster.take(late);
        assert!(cluster.knows("returned") && cluster.intake.arrivals.next().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_deleted_while_it_was_held_back_is_known_only_if_it_was_created_again() {
    for (created_again, messages_first) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut cluster = Cluster::new(1);
        cluster.node("moves", Some("blue"));
        cluster.node("moves", None);
        let last = cluster.stores.nodes.remove(&key("", "moves")).unwrap();
        let mut late = vec![cluster.late(Object::Node(last), false)];
        if created_again {
            late.push(cluster.stored(node("moves", None)));
        }
        cluster.rebuilt();
        if messages_first {
            late.iter().for_each(|late| drop(cluster.take(late)));
        }
        sleep(LATE).await;
        assert_eq!(cluster.knows("moves"), created_again);
        late.iter().for_each(|late| drop(cluster.take(late)));
        assert_eq!(cluster.knows("moves"), created_again);
    }
}

/// A pod group with this uid.
fn group(name: &str, uid: &str, spec: &Value) -> PodGroup {
    let metadata = json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1"});
    let group =
        json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec});
    serde_json::from_value(group).unwrap()
}

impl Cluster {
    /// A cluster with the pod group `odd`, which was set aside because two cycles panicked.
    fn with_a_failed_group() -> Self {
        let mut cluster = Self::new(8);
        cluster.submit("odd", 1, "preemptible");
        panic_when_served(&GroupKey::new("ns", "odd"), 2);
        assert_eq!((cluster.bound_in_the_end().1.len(), cluster.aside()), (2, 1));
        cluster
    }

    fn nothing_failed(&self) -> bool {
        self.intake.core.mirror.aside.nothing_failed()
    }
}

#[test]
fn an_object_that_is_gone_when_the_model_is_rebuilt_is_not_set_aside_any_more() {
    let mut cluster = Cluster::new(8);
    cluster.tell(pod("poison", 1, &json!({}), Some("the fault")));
    cluster.rebuilt();
    assert!(!cluster.nothing_failed(), "it still exists");
    let poison = cluster.stores.pods.remove(&key("ns", "poison")).unwrap();
    let late = cluster.late(Object::Pod(poison), false);
    cluster.rebuilt();
    cluster.take(&late);
    assert!(cluster.nothing_failed());
    let counts = cluster.intake.core.mirror.aside.news();
    assert_eq!(counts.and_then(|counts| counts.get("Pod")), Some(&0));
}

#[test]
fn a_pod_group_that_is_created_again_is_placed_although_one_of_its_name_was_set_aside() {
    let spec = json!({"queue": "q", "minMember": 1, "preemptibility": "preemptible"});
    for created_before_the_rebuild in [false, true] {
        let mut cluster = Cluster::with_a_failed_group();
        let gone = cluster.stores.pod_groups.remove(&key("ns", "odd")).unwrap();
        let gone = cluster.late(Object::PodGroup(gone), false);
        let again = group("odd", "again", &spec);
        if created_before_the_rebuild {
            cluster.stores.pod_groups.insert(again.clone());
        }
        let taken = cluster.rebuilt();
        assert_eq!(taken.released, [("PodGroup", "ns/odd".into())]);
        cluster.take(&gone);
        assert!(cluster.nothing_failed());
        if !created_before_the_rebuild {
            cluster.tell(Object::PodGroup(Arc::new(again)));
        }
        assert_eq!(cluster.bound(), ["odd-pod"]);
    }
}

#[test]
fn a_pod_group_that_is_not_gone_stays_set_aside_when_the_model_is_rebuilt() {
    let mut cluster = Cluster::with_a_failed_group();
    assert!(cluster.rebuilt().released.is_empty());
    assert_eq!((cluster.aside(), cluster.bound()), (1, Vec::new()));
}

#[test]
fn a_pod_group_that_is_gone_before_its_second_panic_is_not_set_aside() {
    let mut cluster = Cluster::new(8);
    cluster.submit("odd", 1, "preemptible");
    panic_when_served(&GroupKey::new("ns", "odd"), 2);
    let stores = Arc::clone(&cluster.stores);
    let mut set_aside = || {
        let decided = cluster.intake.cycle(NOW, &|tell| stores.tell_all(tell), &mut |_| ());
        let Err(failed) = decided else { unreachable!() };
        failed.taken.failed_group
    };
    assert_eq!(set_aside(), None);
    stores.pod_groups.remove(&key("ns", "odd"));
    assert_eq!(set_aside(), None);
    assert!(cluster.nothing_failed());
}

#[test]
fn objects_that_cannot_be_packed_are_set_aside_once_and_all_others_are_read() {
    let mut cluster = Cluster::new(8);
    let stored = |name: &str, fault: Option<&str>| {
        let Object::Pod(pod) = pod(name, 1, &json!({}), fault) else {
            unreachable!()
        };
        Pod::clone(&pod)
    };
    let mut odd = stored("odd", None);
    let annotations = odd.metadata.annotations.get_or_insert_default();
    annotations.insert(UNPACKABLE.to_owned(), String::new());
    for pod in [odd, stored("poison", Some("the fault")), stored("good", None)] {
        cluster.stores.pods.insert(pod);
    }
    let (passes, stores) = (Cell::new(0), Arc::clone(&cluster.stores));
    let everything: &Everything = &|tell| {
        passes.set(passes.get() + 1);
        assert!(passes.get() < 10, "the rebuild ends");
        stores.tell_all(tell)
    };
    let failed = |taken: Taken| -> Vec<String> {
        let keys = taken.failed_objects.iter().map(|object| object.key.to_string());
        keys.collect()
    };
    let first = failed(cluster.intake.rebuild(NOW, everything));
    assert_eq!(
        (first, passes.get()),
        (vec!["ns/odd".to_owned(), "ns/poison".to_owned()], 2)
    );
    let second = failed(cluster.intake.rebuild(NOW, everything));
    assert_eq!((second, passes.get()), (Vec::new(), 3), "nothing new");
    assert_eq!((cluster.aside(), cluster.bound()), (2, vec!["good".to_owned()]));
    cluster.tell(pod("odd", 2, &json!({}), None));
    assert_eq!((cluster.aside(), cluster.bound()), (1, vec!["odd".to_owned()]));
}

#[test]
fn a_rebuild_tells_what_it_cannot_use_and_what_it_can_use_again() {
    let mut cluster = Cluster::new(8);
    let nested = |levels: usize| {
        let sub_group =
            |at: usize| json!({"name": format!("s{at}"), "parent": at.checked_sub(1).map(|above| format!("s{above}"))});
        let sub_groups: Vec<Value> = (0..levels).map(sub_group).collect();
        group("deep", "deep", &json!({"queue": "q", "subGroups": sub_groups}))
    };
    let told = |taken: Taken| -> Vec<String> { taken.rejections.iter().map(ToString::to_string).collect() };

    cluster.stores.pod_groups.insert(nested(20));
    let late = cluster.late(Object::PodGroup(Arc::new(nested(20))), true);
    assert_eq!(
        told(cluster.rebuilt()),
        ["PodGroup ns/deep: there are more than 16 levels of sub-groups: set aside until that changes"]
    );
    assert!(told(cluster.take(&late)).is_empty(), "once");
    assert!(told(cluster.rebuilt()).is_empty(), "nothing new");

    cluster.stores.pod_groups.insert(nested(2));
    assert_eq!(cluster.rebuilt().released, [("PodGroup", "ns/deep".into())]);

    let odd = json!({"metadata": {"name": "odd"}, "status": {"allocatable": {"cpu": "lots"}}});
    cluster.stored(read(odd));
    assert_eq!(
        told(cluster.rebuilt()),
        ["Node odd: status.allocatable: quantity \"lots\" of cpu cannot be used"]
    );
}
