//! What the grouper writes, against an API server in this process, on virtual time.

mod again;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::components::bus::{GroupTimes, ToEvents, channels};
use crate::components::tests::lab::{Lab, read, refuse, seconds};
use crate::components::{Parts, Settings};
use crate::devcluster::apiserver::{Match, Times};
use crate::engine::input::Time;

/// A pod without owners.
fn pod() -> Pod {
    read(json!({
        "metadata": {"namespace": "team", "name": "a", "uid": "1"},
        "spec": {"schedulerName": "kai-scheduler", "containers": []}, "status": {"phase": "Pending"},
    }))
}

/// Its pod group.
fn group() -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"namespace": "team", "name": "pg-a-1"}, "spec": {"minMember": 1},
    })
}

/// The names of the pod group of a Job's pods.
fn gang_of(owner: &Value) -> Value {
    let name = format!("pg-job-{}", owner["uid"].as_str().expect("a uid"));
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"namespace": "team", "name": name},
    })
}

/// The decision that it begins to run, so many seconds after the beginning of 2026.
fn started(second: i64) -> GroupTimes {
    GroupTimes {
        group: GroupKey::new("team", "pg-a-1"),
        stale_since: None,
        last_start: Some(Time((1_767_225_600 + second) * 1_000)),
        last_eviction: None,
    }
}

/// The grouper of a process that leads, in term 1. The pod group exists.
struct Case {
    lab: Lab,
    bus: Bus,
    /// The inboxes of the components to which it sends.
    others: (
        Vec<mpsc::Receiver<ToScheduler>>,
        mpsc::Receiver<ToPodGroups>,
        mpsc::Receiver<ToEvents>,
    ),
}

impl Case {
    async fn start(settings: Settings) -> Self {
        let lab = Lab::start(settings, &["team"]).await;
        lab.install_definitions().await;
        lab.stores.pod_groups.insert(read(lab.create(group()).await));
        let (bus, inboxes) = channels(1);
        let (context, stores) = (lab.context.clone(), Arc::clone(&lab.stores));
        tokio::spawn(run(context, inboxes.grouper, stores, bus.clone()));
        let case = Self {
            lab,
            bus,
            others: (inboxes.schedulers, inboxes.podgroups, inboxes.events),
        };
        for kind in Kind::told_to(&[Listener::Grouper]) {
            case.tell(ToGrouper::Change(Change::Synced(kind))).await;
        }
        case
    }

    /// Sends a message, and waits until it is handled and the writes are done.
    async fn tell(&self, message: ToGrouper) {
        self.bus.grouper.send(message).await.expect("the grouper runs");
        sleep(seconds(2)).await;
    }

    /// The watch shows the pod.
    async fn show_pod(&self) {
        self.show(pod()).await;
    }

    /// The watch shows a pod.
    async fn show(&self, pod: Pod) {
        let (pod, _) = self.lab.stores.pods.insert(pod);
        self.tell(ToGrouper::Change(Change::Applied(Object::Pod(pod)))).await;
    }

    /// Another client sets annotations of the pod group, and the watch shows it.
    async fn annotate(&self, annotations: &Value) {
        self.change_metadata(&group(), json!({"annotations": annotations}))
            .await;
    }

    /// Another client changes the metadata of a pod group, and the watch shows it.
    async fn change_metadata(&self, group: &Value, metadata: Value) {
        let changed = self.lab.patch(group, json!({"metadata": metadata})).await;
        let (changed, _) = self.lab.stores.pod_groups.insert(read(changed));
        self.tell(ToGrouper::Change(Change::Applied(Object::PodGroup(changed))))
            .await;
    }

    /// The scheduler has decided this in that term.
    async fn decide(&self, term: u64, times: GroupTimes) {
        self.tell(ToGrouper::Times(term, vec![times])).await;
    }

    /// A Job with these annotations, as the owner of pods.
    async fn job(&self, annotations: &Value) -> Value {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"namespace": "team", "name": "job", "annotations": annotations},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}},
        });
        let uid = self.lab.create(job).await["metadata"]["uid"].clone();
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": uid, "controller": true})
    }

    /// The pods that events of the grouper are about.
    fn told(&mut self) -> BTreeSet<String> {
        let mut told = BTreeSet::new();
        while let Ok(ToEvents::Ours(note)) = self.others.2.try_recv() {
            assert_eq!(note.reason, names::reason::POD_GROUPER_WARNING);
            if let Subject::Pod(pod) = note.subject {
                told.insert(pod.name.to_string());
            }
        }
        told
    }

    /// The annotations of the pod group.
    async fn annotations(&self) -> Value {
        self.lab.see(&group()).await["metadata"]["annotations"].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn equal_pod_groups_that_wait_for_the_scheduler_are_in_memory_once() {
    let mut case = Case::start(Settings::default()).await;
    let owner = case.job(&json!({"kai.scheduler/batch-min-member": "3"})).await;
    for number in 0..3 {
        case.show(read(json!({
            "metadata": {
                "namespace": "team", "name": format!("job-{number}"), "uid": format!("{number}"),
                "ownerReferences": [owner],
            },
            "spec": {"schedulerName": "kai-scheduler", "containers": []}, "status": {"phase": "Pending"},
        })))
        .await;
    }
    let mut groups = Vec::new();
    while let Ok(message) = case.others.0[0].try_recv() {
        if let ToScheduler::Grouped(grouping) = message {
            groups.push(grouping.group);
        }
    }
    // Its creation has changed the group.
    let [_, second, third] = &*groups else {
        panic!("it is grouped {} times", groups.len());
    };
    assert!(Arc::ptr_eq(second, third));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_leads_again_keeps_the_times_that_another_wrote_meanwhile() {
    let case = Case::start(Settings::default()).await;
    case.decide(1, started(1)).await;
    assert_eq!(
        case.annotations().await,
        json!({annotation::LAST_START_TIMESTAMP: "2026-01-01T00:00:01Z"})
    );

    case.lab.lose();
    let meanwhile = json!({
        annotation::LAST_EVICTION_TIMESTAMP: "2026-01-01T00:00:02Z",
        annotation::LAST_START_TIMESTAMP: "2026-01-01T00:00:03Z",
    });
    case.annotate(&meanwhile).await;
    case.lab.lead(2);
    sleep(seconds(2)).await;
    assert_eq!(case.annotations().await, meanwhile);
}

#[tokio::test(start_paused = true)]
async fn times_are_written_before_the_end() {
    let case = Case::start(Settings::default()).await;
    case.show_pod().await;
    case.bus
        .grouper
        .send(ToGrouper::Times(1, vec![started(1)]))
        .await
        .expect("the grouper runs");
    case.lab.context.shutdown.cancel();
    sleep(seconds(2)).await;
    let written = &case.annotations().await[annotation::LAST_START_TIMESTAMP];
    assert_eq!(written, "2026-01-01T00:00:01Z");
}

#[tokio::test(start_paused = true)]
async fn times_are_written_though_the_last_pod_goes_before() {
    let case = Case::start(Settings::default()).await;
    case.show_pod().await;
    let times = ToGrouper::Times(1, vec![started(1)]);
    let gone = ToGrouper::Change(Change::Deleted(Object::Pod(Arc::new(pod()))));
    for message in [times, gone] {
        case.bus.grouper.send(message).await.expect("the grouper runs");
    }
    sleep(seconds(2)).await;
    let written = &case.annotations().await[annotation::LAST_START_TIMESTAMP];
    assert_eq!(written, "2026-01-01T00:00:01Z");
}

#[tokio::test(start_paused = true)]
async fn times_that_could_not_be_written_are_written_later_in_the_same_term_only() {
    let case = Case::start(Settings::default()).await;
    let fail = |times| case.lab.fault(Match::verb_on("patch", "podgroups"), refuse(500), times);
    let failed = fail(Times::Next(1));
    case.decide(1, started(1)).await;
    assert_eq!(case.lab.struck(failed), 1);
    let first = json!({annotation::LAST_START_TIMESTAMP: "2026-01-01T00:00:01Z"});
    assert_eq!(case.annotations().await, first);

    let failed = fail(Times::Always);
    case.decide(1, started(2)).await;
    assert!(case.lab.struck(failed) > 0);
    case.lab.lose();
    case.lab.server.faults().remove(failed);
    case.lab.lead(2);
    sleep(seconds(2)).await;
    assert_eq!(case.annotations().await, first, "decided in the term before");
    case.decide(1, started(3)).await;
    assert_eq!(case.annotations().await, first, "decided in the term before, and late");
    case.decide(2, started(4)).await;
    assert_eq!(
        case.annotations().await,
        json!({annotation::LAST_START_TIMESTAMP: "2026-01-01T00:00:04Z"})
    );
}

#[tokio::test(start_paused = true)]
async fn what_others_change_on_a_pod_group_stays_though_its_pod_was_grouped_before() {
    let case = Case::start(Settings::default()).await;
    case.annotate(&json!({annotation::LAST_START_TIMESTAMP: "2026-01-01T00:00:01Z", "note": "before"}))
        .await;
    case.show_pod().await;
    let grouped = case.annotations().await;
    assert!(grouped[annotation::TOP_OWNER_METADATA].is_string(), "{grouped}");

    case.annotate(&json!({annotation::LAST_START_TIMESTAMP: "2026-01-01T00:00:02Z", "note": "after"}))
        .await;
    let annotations = case.annotations().await;
    assert_eq!(annotations[annotation::LAST_START_TIMESTAMP], "2026-01-01T00:00:02Z");
    assert_eq!(annotations["note"], "after");
}

/// As when a Job is deleted with `--cascade=orphan`. If its pod group named it again, the garbage collector would delete that.
#[tokio::test(start_paused = true)]
async fn a_pod_group_whose_owner_is_removed_stays_without_one() {
    for write_is_planned in [false, true] {
        let case = Case::start(Settings::default()).await;
        let owner = case.job(&json!({})).await;
        let gang = gang_of(&owner);
        let name = gang["metadata"]["name"].as_str().expect("a name");
        let bound = |owners: Value| -> Pod {
            read(json!({
                "metadata": {
                    "namespace": "team", "name": "job-0", "uid": "0", "ownerReferences": owners,
                    "annotations": {annotation::POD_GROUP_NAME: name},
                },
                "spec": {"schedulerName": "kai-scheduler", "nodeName": "n1", "containers": []},
                "status": {"phase": "Running"},
            }))
        };
        let metadata = async || case.lab.see(&gang).await["metadata"].clone();
        case.show(bound(json!([owner]))).await;
        assert_eq!(metadata().await["ownerReferences"][0]["uid"], owner["uid"]);

        case.show(bound(json!(null))).await;
        if write_is_planned {
            // It waits for bindings.
            case.lab.context.background.bindings(true);
            let times = GroupTimes {
                group: GroupKey::new("team", name),
                ..started(1)
            };
            case.decide(1, times).await;
        }
        case.change_metadata(&gang, json!({"ownerReferences": null})).await;
        assert_eq!(metadata().await["ownerReferences"], Value::Null);
        case.lab.context.background.bindings(false);
        case.change_metadata(&gang, json!({"annotations": {"note": "later"}}))
            .await;
        let metadata = metadata().await;
        assert_eq!(metadata["ownerReferences"], Value::Null, "planned: {write_is_planned}");
        let started = &metadata["annotations"][annotation::LAST_START_TIMESTAMP];
        assert_eq!(started.is_string(), write_is_planned);
    }
}

#[tokio::test(start_paused = true)]
async fn while_grouping_is_switched_off_times_are_written_and_pods_are_ignored() {
    let parts = Parts {
        grouper: false,
        ..Parts::default()
    };
    let case = Case::start(Settings {
        parts,
        ..Settings::default()
    })
    .await;
    case.show_pod().await;
    case.decide(1, started(1)).await;
    assert_eq!(
        case.annotations().await,
        json!({annotation::LAST_START_TIMESTAMP: "2026-01-01T00:00:01Z"}),
        "grouping adds annotations"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_names_another_pod_group_after_it_was_grouped_keeps_that_name() {
    let case = Case::start(Settings::default()).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "team", "name": "b"},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "i"}]},
    });
    let created = case.lab.create(pod.clone()).await;
    case.show(read(created)).await;
    let named = json!({"metadata": {"annotations": {annotation::POD_GROUP_NAME: "gang"}}});
    let named = case.lab.patch(&pod, named).await;
    case.show(read(named)).await;
    // By then its annotation would have been written.
    sleep(seconds(30)).await;
    let annotations = &case.lab.see(&pod).await["metadata"]["annotations"];
    assert_eq!(annotations[annotation::POD_GROUP_NAME], "gang");
}

#[tokio::test(start_paused = true)]
async fn the_sub_group_of_a_pod_is_written_as_soon_as_the_pod_is_bound() {
    let case = Case::start(Settings::default()).await;
    let parts = json!({"kai.scheduler/subgroups": "leader=1,worker=1", "kai.scheduler/subgroup-label": "role"});
    let owner = case.job(&parts).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "team", "name": "job-0", "labels": {"role": "worker"}, "ownerReferences": [owner],
        },
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "i"}]},
    });
    let mut shown = case.lab.create(pod.clone()).await;
    case.show(read(shown.clone())).await;
    let labels = async || case.lab.see(&pod).await["metadata"]["labels"].clone();
    assert_eq!(
        labels().await[label::SUBGROUP_NAME],
        Value::Null,
        "its Binding comes first"
    );

    let group = format!("pg-job-{}", owner["uid"].as_str().expect("a uid"));
    shown["metadata"]["annotations"] = json!({annotation::POD_GROUP_NAME: group});
    shown["spec"]["nodeName"] = json!("n1");
    case.show(read(shown)).await;
    assert_eq!(labels().await[label::SUBGROUP_NAME], "worker");
}

#[tokio::test(start_paused = true)]
async fn the_grouping_of_a_pod_that_is_excluded_later_is_withdrawn() {
    let mut case = Case::start(Settings::default()).await;
    case.show_pod().await;
    let mut excluded = pod();
    excluded.metadata.annotations = Some([(annotation::SKIP_POD_GROUPER.to_owned(), "true".to_owned())].into());
    case.show(excluded).await;
    let mut told = Vec::new();
    while let Ok(message) = case.others.0[0].try_recv() {
        told.push(match message {
            ToScheduler::Grouped(grouping) => format!("{} grouped", grouping.pod.uid),
            ToScheduler::Ungrouped(pod) => format!("{} not grouped", pod.uid),
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(told, ["1 grouped", "1 not grouped"]);
}

#[tokio::test(start_paused = true)]
async fn pods_are_told_of_writes_about_them_that_are_refused() {
    let mut case = Case::start(Settings::default()).await;
    let refused = case
        .lab
        .fault(Match::verb_on("create", "podgroups"), refuse(422), Times::Always);
    case.show(read(json!({
        "metadata": {"namespace": "team", "name": "b", "uid": "2"},
        "spec": {"schedulerName": "kai-scheduler", "containers": []}, "status": {"phase": "Pending"},
    })))
    .await;
    assert!(case.lab.struck(refused) > 0);
    assert_eq!(
        case.told(),
        BTreeSet::from(["b".to_owned()]),
        "its group does not exist"
    );

    case.show_pod().await;
    case.lab
        .fault(Match::verb_on("patch", "pods"), refuse(422), Times::Always);
    case.tell(ToGrouper::Waiting(vec![GroupKey::new("team", "pg-a-1")]))
        .await;
    assert!(case.told().contains("a"), "its annotation is refused");
}
