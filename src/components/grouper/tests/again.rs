//! Pods that are grouped again though they have not changed, and groups of pods that state different things.

use std::cell::Cell;

use k8s_openapi::api::scheduling::v1::PriorityClass;

use super::*;
use crate::api::names::{preemptibility, third_party};
use crate::components::tests::idle_context;
use crate::components::tests::lab::MOMENT;
use crate::components::watches::Key;
use crate::devcluster::apiserver::Effect;

/// A pod of the owner, with further metadata.
fn pod_of(owner: &Value, name: &str, further: &Value) -> Pod {
    let mut metadata = json!({"namespace": "team", "name": name, "uid": name, "ownerReferences": [owner]});
    for (key, value) in further.as_object().expect("metadata") {
        metadata[key.as_str()] = value.clone();
    }
    read(json!({
        "metadata": metadata,
        "spec": {"schedulerName": "kai-scheduler", "containers": []}, "status": {"phase": "Pending"},
    }))
}

/// A Job that asks for so many pods at once.
fn asks_for(pods: &str) -> Value {
    json!({annotation::BATCH_MIN_MEMBER: pods})
}

impl Case {
    /// The spec of the Job's pod group, as it is stored.
    async fn gang(&self, owner: &Value) -> Value {
        self.lab.see(&gang_of(owner)).await["spec"].clone()
    }

    /// The user changes annotations of the Job, of which nobody is told.
    async fn annotate_job(&self, annotations: Value) {
        self.change_job(json!({"annotations": annotations})).await;
    }

    /// The same of any of its metadata.
    async fn change_job(&self, metadata: Value) {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "team", "name": "job"}});
        self.lab.patch(&job, json!({"metadata": metadata})).await;
    }

    /// The watch shows that a priority class exists, or exists no more.
    async fn class(&self, name: &str, exists: bool) {
        let class: PriorityClass = read(json!({"metadata": {"name": name}, "value": 90}));
        let classes = &self.lab.stores.priority_classes;
        let change = if exists {
            Change::Applied(Object::PriorityClass(classes.insert(class).0))
        } else {
            classes.remove(&Key::of(&class.metadata));
            Change::Deleted(Object::PriorityClass(Arc::new(class)))
        };
        self.tell(ToGrouper::Change(change)).await;
    }

    /// The watch shows a pod, and the next change follows at once.
    async fn show_soon(&self, pod: Pod) {
        let (pod, _) = self.lab.stores.pods.insert(pod);
        let shown = ToGrouper::Change(Change::Applied(Object::Pod(pod)));
        self.bus.grouper.send(shown).await.expect("the grouper runs");
        sleep(MOMENT).await;
    }

    /// The watch shows that the pod is gone.
    async fn gone(&self, pod: Pod) {
        self.tell(ToGrouper::Change(Change::Deleted(Object::Pod(Arc::new(pod)))))
            .await;
    }

    /// The API server serves a kind of Ray.
    async fn serve_ray(&self, kind: &str, plural: &str) {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version =
            json!({"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}});
        let names = json!({"kind": kind, "plural": plural});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.ray.io")},
            "spec": {"group": "ray.io", "scope": "Namespaced", "names": names, "versions": [version]},
        });
        self.lab.create(definition).await;
        sleep(seconds(1)).await;
    }

    /// Creates an object of Ray; returns it as an owner.
    async fn ray(&self, kind: &str, further: &Value) -> Value {
        let mut object = json!({
            "apiVersion": "ray.io/v1", "kind": kind, "metadata": {"namespace": "team", "name": "job"},
        });
        json_patch::merge(&mut object, further);
        let uid = self.lab.create(object).await["metadata"]["uid"].clone();
        json!({"apiVersion": "ray.io/v1", "kind": kind, "name": "job", "uid": uid, "controller": true})
    }

    /// How many groupings were sent to the scheduler since the last call.
    fn groupings(&mut self) -> usize {
        let sent = std::iter::from_fn(|| self.others.0[0].try_recv().ok());
        sent.filter(|message| matches!(message, ToScheduler::Grouped(_)))
            .count()
    }

    /// The minimums of groups in these, without repetitions.
    fn minimums(&mut self) -> Vec<Option<i32>> {
        let sent = std::iter::from_fn(|| self.others.0[0].try_recv().ok());
        let minimums = sent.filter_map(|message| match message {
            ToScheduler::Grouped(grouping) => Some(grouping.group.spec.min_member),
            _ => None,
        });
        let mut minimums: Vec<_> = minimums.collect();
        minimums.dedup();
        minimums
    }
}

/// As when a Ray cluster is scaled down: its minimum is the number of pods that it asks for.
#[tokio::test(start_paused = true)]
async fn a_gang_that_pods_leave_follows_its_owner() {
    let mut case = Case::start(Settings::default()).await;
    let owner = case.job(&asks_for("3")).await;
    for name in ["p0", "p1", "p2"] {
        case.show(pod_of(&owner, name, &json!({}))).await;
    }
    assert_eq!(case.gang(&owner).await["minMember"], 3);

    case.annotate_job(asks_for("2")).await;
    case.groupings();
    let leaving = pod_of(&owner, "p0", &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    case.show(leaving.clone()).await;
    assert_eq!(case.gang(&owner).await["minMember"], 2);
    assert_eq!(case.groupings(), 1, "one pod that stays is grouped again");

    case.annotate_job(asks_for("1")).await;
    case.gone(leaving).await;
    assert_eq!(case.gang(&owner).await["minMember"], 1);
}

/// As when a Ray cluster is scaled up just after its first pod was grouped.
#[tokio::test(start_paused = true)]
async fn a_gang_whose_owner_changes_just_after_it_was_read_follows_it() {
    let mut case = Case::start(Settings::default()).await;
    let owner = case.job(&asks_for("3")).await;
    case.show_soon(pod_of(&owner, "p0", &json!({}))).await;
    case.annotate_job(asks_for("4")).await;
    case.show_soon(pod_of(&owner, "p1", &json!({}))).await;
    sleep(seconds(60)).await;
    assert_eq!(case.gang(&owner).await["minMember"], 4);
    assert_eq!(case.groupings(), 3, "one pod is grouped again, once");
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_owner_changes_between_two_pods_that_come_within_a_moment_follows_it() {
    let mut case = Case::start(Settings::default()).await;
    let owner = case.job(&asks_for("3")).await;
    // The owner is read for the first pod and for the third.
    for (name, wait) in [("p0", 900), ("p1", 200), ("p2", 100)] {
        case.show_soon(pod_of(&owner, name, &json!({}))).await;
        sleep(Duration::from_millis(wait)).await;
    }
    case.annotate_job(asks_for("4")).await;
    case.show_soon(pod_of(&owner, "p3", &json!({}))).await;
    sleep(seconds(60)).await;
    assert_eq!(case.gang(&owner).await["minMember"], 4);
    assert!(case.groupings() <= 6);
}

/// The minimum of a Ray job's pods comes from its cluster, which is read after the job, and so need not be read again for a pod that comes a second later.
#[tokio::test(start_paused = true)]
async fn a_gang_follows_an_object_that_changes_just_after_it_was_read_for_its_owner() {
    let case = Case::start(Settings::default()).await;
    case.serve_ray("RayJob", "rayjobs").await;
    case.serve_ray("RayCluster", "rayclusters").await;
    let job = case.ray("RayJob", &json!({"status": {"rayClusterName": "job"}})).await;
    let workers = |count: u32| json!({"spec": {"workerGroupSpecs": [{"groupName": "workers", "replicas": count}]}});
    let mut cluster = workers(2);
    cluster["metadata"] = json!({"ownerReferences": [job]});
    let cluster = case.ray("RayCluster", &cluster).await;
    let pod = |name: &str| pod_of(&cluster, name, &json!({"labels": {third_party::RAY_GROUP: "workers"}}));

    let slow = Effect::Delay(Duration::from_millis(900));
    case.lab.fault(Match::verb_on("get", "rayjobs"), slow, Times::Next(1));
    case.show_soon(pod("p0")).await;
    sleep(Duration::from_millis(950)).await;
    let stored = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"namespace": "team", "name": "job"},
    });
    case.lab.patch(&stored, workers(3)).await;
    sleep(Duration::from_millis(200)).await;
    case.show_soon(pod("p1")).await;
    sleep(seconds(60)).await;
    assert_eq!(case.gang(&job).await["minMember"], 4, "the head and three workers");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_group_that_starts_with_the_first_are_grouped_once() {
    let mut case = Case::start(Settings::default()).await;
    let owner = case.job(&json!({})).await;
    for name in ["p0", "p1", "p2"] {
        case.show_soon(pod_of(&owner, name, &json!({}))).await;
    }
    sleep(seconds(60)).await;
    assert_eq!(case.groupings(), 3);
}

#[tokio::test(start_paused = true)]
async fn pods_whose_owner_is_gone_stay_in_their_group_and_nobody_is_told() {
    let mut case = Case::start(Settings::default()).await;
    let owner = case.job(&asks_for("2")).await;
    let [first, second] = ["p0", "p1"].map(|name| pod_of(&owner, name, &json!({})));
    case.show(first.clone()).await;
    case.show(second).await;
    let gone = case
        .lab
        .fault(Match::verb_on("get", "jobs"), refuse(404), Times::Always);
    case.groupings();
    case.gone(first).await;
    assert!(case.lab.struck(gone) > 0);
    assert_eq!(case.gang(&owner).await["minMember"], 2);
    assert_eq!(case.groupings(), 0);
    assert!(case.others.2.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_group_has_the_highest_class_that_its_pods_name_whichever_is_grouped_last() {
    let states = |class: &str, preemptibility: &str| json!({"labels": {label::PRIORITY_CLASS_NAME: class, label::PREEMPTIBILITY: preemptibility}});
    for order in [[0, 1], [1, 0]] {
        let case = Case::start(Settings::default()).await;
        for (name, value) in [("build", 100), ("train", 50)] {
            let class = json!({"metadata": {"name": name}, "value": value});
            case.lab.stores.priority_classes.insert(read(class));
        }
        let owner = case.job(&json!({})).await;
        let pods = [
            pod_of(&owner, "p0", &states("build", "preemptible")),
            pod_of(&owner, "p1", &states("train", "non-preemptible")),
        ];
        for at in order {
            case.show(pods[at].clone()).await;
        }
        let stated = |spec: Value| (spec["priorityClassName"].clone(), spec["preemptibility"].clone());
        assert_eq!(
            stated(case.gang(&owner).await),
            (json!("build"), json!("non-preemptible"))
        );

        let [high, _] = pods;
        case.gone(high).await;
        case.show(pod_of(&owner, "p2", &json!({}))).await;
        assert_eq!(
            stated(case.gang(&owner).await),
            (json!("train"), json!("non-preemptible")),
            "of the pods that are there"
        );
    }
}

#[tokio::test]
async fn pods_without_owners_give_their_namespace_no_more_walks() {
    let (bus, _inboxes) = channels(1);
    let stores = Arc::new(Stores::default());
    let mut grouper = Grouper::new(idle_context(), Arc::clone(&stores), bus);
    let mut group = |pod: Pod| {
        let (pod, _) = stores.pods.insert(pod);
        grouper.grouped_pods.record(&pod);
        grouper.group(&Member::of(&pod));
        grouper.walks.len()
    };
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j", "controller": true});
    for number in 0..2 * WALKS_PER_NAMESPACE {
        group(pod_of(&owner, &format!("owned-{number}"), &json!({})));
    }
    for number in 0..10 {
        let mut alone = pod_of(&owner, &format!("alone-{number}"), &json!({}));
        alone.metadata.owner_references = None;
        assert_eq!(group(alone), WALKS_PER_NAMESPACE);
    }
}

/// The owners of a pod that comes later may be known from an earlier read. After a start all are read once, and no pods come.
#[tokio::test]
async fn pods_that_are_there_at_the_start_have_not_come() {
    let (bus, _inboxes) = channels(1);
    let mut grouper = Grouper::new(idle_context(), Arc::default(), bus);
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j", "controller": true});
    let mut shown = |name: &str, kinds_missing: &[Kind]| {
        grouper.missing = kinds_missing.to_vec();
        let pod = pod_of(&owner, name, &json!({}));
        grouper.pod(&pod);
        let uid = pod.metadata.uid.unwrap_or_default();
        grouper.grouped_pods.get(&uid).is_some_and(|entry| entry.came.is_some())
    };
    assert!(!shown("there", &[Kind::Pod]));
    assert!(shown("later", &[]));
    assert!(!shown("there", &[]), "it is known");
}

#[tokio::test]
async fn a_namespace_that_gets_the_required_labels_has_its_pods_grouped_once() {
    let settings = Settings {
        namespace_labels: BTreeMap::from([("scheduled".to_owned(), "yes".to_owned())]),
        ..Settings::default()
    };
    let context = Context {
        settings: Arc::new(settings),
        ..idle_context()
    };
    let (bus, _inboxes) = channels(1);
    let mut grouper = Grouper::new(context, Arc::default(), bus);
    grouper.missing.clear();
    for namespace in ["team", "other"] {
        let mut pod = pod();
        pod.metadata.namespace = Some(namespace.to_owned());
        pod.metadata.uid = Some(namespace.to_owned());
        grouper.grouped_pods.record(&pod);
    }
    for (labels, queued) in [
        (json!({}), 0),
        (json!({"scheduled": "yes"}), 1),
        (json!({"scheduled": "yes", "more": "yes"}), 0),
        (json!({"scheduled": "no"}), 0),
        (json!({"scheduled": "yes"}), 1),
    ] {
        let namespace: Namespace = read(json!({"metadata": {"name": "team", "labels": labels}}));
        grouper.namespace(&namespace);
        let pods = std::iter::from_fn(|| grouper.queue.pop());
        assert_eq!(pods.count(), queued, "{labels}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_scheduler_is_told_of_minimums_that_the_api_server_refuses() {
    let mut case = Case::start(Settings::default()).await;
    let owner = case.job(&asks_for("2")).await;
    let pod = |name: &str| pod_of(&owner, name, &json!({}));
    for name in ["p0", "p1", "p2"] {
        case.show(pod(name)).await;
    }
    assert_eq!(case.minimums(), [Some(2)]);
    let refused = case
        .lab
        .fault(Match::verb_on("patch", "podgroups"), refuse(422), Times::Always);
    case.annotate_job(asks_for("5")).await;
    case.gone(pod("p0")).await;
    assert_eq!(case.minimums(), [Some(5), Some(2)], "as computed, then as stored");
    case.show(pod("p3")).await;
    assert_eq!(case.minimums(), [Some(2)]);

    case.lab.server.faults().remove(refused);
    sleep(seconds(120)).await;
    assert_eq!(case.gang(&owner).await["minMember"], 5);
    assert_eq!(case.minimums(), [Some(5)]);
}

/// As when a class and a workload that names it are applied together.
#[tokio::test(start_paused = true)]
async fn a_priority_class_that_is_created_or_deleted_after_pods_were_grouped_takes_effect() {
    let urgent = json!({"labels": {label::PRIORITY_CLASS_NAME: "urgent"}});
    for by_owner in [false, true] {
        let case = Case::start(Settings::default()).await;
        let owner = case.job(&json!({})).await;
        let (of_job, of_pod) = if by_owner {
            (urgent.clone(), json!({}))
        } else {
            (json!({}), urgent.clone())
        };
        case.change_job(of_job).await;
        case.show(pod_of(&owner, "p0", &of_pod)).await;
        case.show(pod_of(&owner, "p1", &json!({}))).await;
        let class = async || case.gang(&owner).await["priorityClassName"].clone();
        assert_eq!(class().await, "train");
        for (exists, expected) in [(true, "urgent"), (false, "train"), (true, "urgent")] {
            case.class("urgent", exists).await;
            assert_eq!(class().await, expected, "named by the owner: {by_owner}");
        }
    }
}

#[tokio::test]
async fn what_was_found_before_a_priority_class_was_created_does_not_count() {
    let (bus, _inboxes) = channels(1);
    let stores = Arc::new(Stores::default());
    let mut grouper = Grouper::new(idle_context(), Arc::clone(&stores), bus);
    let (pod, _) = stores.pods.insert(pod());
    let member = Member::of(&pod);
    grouper.grouped_pods.record(&pod);
    grouper.group(&member);
    let walked = Walked {
        pod: member.clone(),
        version: grouper.grouped_pods.get(&member.uid).expect("a pod").version,
        anew: true,
        came: None,
        found: Ok(Ok(Found::Skipped)),
    };
    grouper.class_changed("urgent", true);
    grouper.returned(walked);
    assert_eq!(grouper.queue.pop(), Some(member.clone()));
    let entry = grouper.grouped_pods.get(&member.uid).expect("a pod");
    assert!(entry.anew, "nor that its owners were read");
}

/// A change that the watch has stored is sent to the grouper once the schedulers have room for it.
#[tokio::test(start_paused = true)]
async fn a_change_of_a_pod_that_is_stored_while_its_owners_are_read_and_told_later_counts() {
    let case = Case::start(Settings::default()).await;
    let owner = case.job(&json!({})).await;
    let slow = Effect::Delay(seconds(1));
    case.lab.fault(Match::verb_on("get", "jobs"), slow, Times::Always);
    case.show_soon(pod_of(&owner, "p0", &json!({}))).await;
    let strict = json!({"labels": {label::PREEMPTIBILITY: preemptibility::NON_PREEMPTIBLE}});
    let (changed, _) = case.lab.stores.pods.insert(pod_of(&owner, "p0", &strict));
    sleep(seconds(5)).await;
    case.tell(ToGrouper::Change(Change::Applied(Object::Pod(changed))))
        .await;
    sleep(seconds(5)).await;
    assert_eq!(
        case.gang(&owner).await["preemptibility"],
        preemptibility::NON_PREEMPTIBLE
    );
}

/// A process that has just started knows all pods, and may read the owners of one that waits sooner than those of a bound one.
#[tokio::test]
async fn after_a_restart_bound_pods_count_for_their_group_before_they_are_grouped() {
    let regrouped = |stored: Value, bound: Value, waiting: Value| {
        let (bus, _inboxes) = channels(1);
        let stores = Arc::new(Stores::default());
        let class = json!({"metadata": {"name": "build"}, "value": 100});
        stores.priority_classes.insert(read(class));
        let group = |spec: Value| -> PodGroup {
            read(json!({"metadata": {"namespace": "team", "name": "pg-job-j"}, "spec": spec}))
        };
        stores.pod_groups.insert(group(stored));
        let mut grouper = Grouper::new(idle_context(), Arc::clone(&stores), bus);
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j", "controller": true});
        let named = json!({annotation::POD_GROUP_NAME: "pg-job-j"});
        let mut bound = pod_of(&owner, "p0", &json!({"annotations": named, "labels": bound}));
        bound.spec.as_mut().expect("a spec").node_name = Some("n1".to_owned());
        let waiting = pod_of(&owner, "p1", &json!({"labels": waiting}));
        grouper.grouped_pods.record(&bound);
        grouper.grouped_pods.record(&waiting);
        let found = Grouped {
            group: group(json!({"minMember": 1, "priorityClassName": "train"})),
            sub_group: None,
            class_of_pods: true,
            preemptibility_of_pods: true,
            doubtful: false,
            rule: String::new(),
        };
        grouper.grouped(&Member::of(&waiting), &waiting, found);
        let Some(ToScheduler::Grouped(grouping)) = grouper.outbox.pop_back() else {
            panic!("it is not grouped");
        };
        let spec = &grouping.group.spec;
        json!([spec.priority_class_name, spec.preemptibility])
    };
    assert_eq!(
        regrouped(
            json!({"priorityClassName": "build"}),
            json!({label::PRIORITY_CLASS_NAME: "build"}),
            json!({}),
        ),
        json!(["build", null])
    );
    assert_eq!(
        regrouped(
            json!({"priorityClassName": "train", "preemptibility": "non-preemptible"}),
            json!({label::PREEMPTIBILITY: "non-preemptible"}),
            json!({label::PREEMPTIBILITY: "preemptible"}),
        ),
        json!(["train", "non-preemptible"])
    );
    assert_eq!(
        regrouped(
            json!({"priorityClassName": "train"}),
            json!({}),
            json!({label::PREEMPTIBILITY: "non-preemptible"}),
        ),
        json!(["train", null]),
        "it has pods that run"
    );
}

#[test]
fn a_group_of_many_pods_that_state_different_things_is_not_searched_for_each_of_them() {
    let key = GroupKey::new("team", "pg-job-j");
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j", "controller": true});
    let says = |at: usize, says: &str| {
        let labels = json!({"labels": {label::PREEMPTIBILITY: says}});
        pod_of(&owner, &format!("p{at}"), &labels)
    };
    let mut pods = GroupedPods::default();
    let add = |pods: &mut GroupedPods, pod: Pod| {
        pods.record(&pod);
        pods.assign(&pod, key.clone(), None);
    };
    // Whether it is non-preemptible, and how many were looked at.
    let strictest = |pods: &GroupedPods| {
        let looked_at = Cell::new(0);
        let strictest = pods.highest(&key, |stated| {
            looked_at.set(looked_at.get() + 1);
            stated.non_preemptible
        });
        (strictest, looked_at.get())
    };
    for at in 0..100 {
        add(&mut pods, says(at, "preemptible"));
    }
    assert_eq!(strictest(&pods), (Some(false), 1));
    for odd in [50, 100] {
        add(&mut pods, says(odd, "non-preemptible"));
        assert_eq!(strictest(&pods), (Some(true), 2));
        add(&mut pods, says(odd, "preemptible"));
        assert_eq!(strictest(&pods), (Some(false), 1));
    }

    let mut last = says(7, "non-preemptible");
    add(&mut pods, last.clone());
    last.status.as_mut().expect("a status").phase = Some("Succeeded".to_owned());
    pods.record(&last);
    assert_eq!(strictest(&pods), (Some(false), 1), "it has ended");
    pods.forget(&last);
    for at in 0..=100 {
        pods.forget(&says(at, ""));
    }
    assert_eq!(strictest(&pods), (None, 0));
}

#[test]
fn a_bound_pod_counts_for_the_group_that_it_names_until_it_is_grouped_or_ends() {
    let [named, other] = ["named", "other"].map(|name| GroupKey::new("team", name));
    let mut bound = pod();
    bound.metadata.annotations = Some([(annotation::POD_GROUP_NAME.to_owned(), "named".to_owned())].into());
    bound.spec.as_mut().expect("a spec").node_name = Some("n1".to_owned());
    let mut finished = bound.clone();
    finished.status.as_mut().expect("a status").phase = Some("Succeeded".to_owned());

    let mut pods = GroupedPods::default();
    let run = |pods: &GroupedPods| (pods.runs(&named), pods.runs(&other));
    pods.record(&bound);
    assert_eq!(run(&pods), (true, false));
    pods.assign(&bound, other.clone(), None);
    assert_eq!(run(&pods), (false, true));
    pods.forget(&bound);
    assert_eq!(run(&pods), (false, false));
    pods.record(&bound);
    pods.record(&finished);
    assert_eq!(run(&pods), (false, false));
}
