//! What a tenant writes into a bound pod, and what is seen of it.

use serde_json::{Value, json};

use super::*;
use crate::api::PodGroup;
use crate::components::watches::kinds;

/// The watch of pods, and the API server that it looks at.
struct Watch {
    charged: Charged,
    shown: BTreeMap<String, Pod>,
}

fn pod(labels: Value, annotations: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "a", "uid": "1", "labels": labels, "annotations": annotations},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "n1", "containers": []}, "status": {"phase": "Running"},
    }))
    .unwrap()
}

fn unbound(mut pod: Pod) -> Pod {
    pod.spec.as_mut().unwrap().node_name = None;
    pod
}

/// A reservation pod on a node, for a group, with its users: uid and fraction.
fn reservation(node: &str, group: &str, users: &[(&str, &str)]) -> Pod {
    let user = |fraction: &str| User {
        namespace: "team".to_owned(),
        name: "a".to_owned(),
        share: users::Share::of([("gpu-fraction", fraction)].into_iter()),
    };
    let named = users
        .iter()
        .map(|(uid, fraction)| users::annotation(uid, &user(fraction)));
    serde_json::from_value(json!({
        "metadata": {"namespace": "kai-resource-reservation", "name": format!("r-{group}"), "uid": format!("r-{group}"),
            "labels": {"runai-gpu-group": group}, "annotations": named.collect::<BTreeMap<_, _>>()},
        "spec": {"serviceAccountName": "kai-resource-reservation", "nodeName": node, "containers": []},
    }))
    .unwrap()
}

fn group(name: &str, sub_groups: &[&str]) -> PodGroup {
    let sub_groups: Vec<_> = sub_groups
        .iter()
        .map(|name| json!({"name": name, "minMember": 1}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": name}, "spec": {"subGroups": sub_groups}, "status": {},
    }))
    .unwrap()
}

impl Watch {
    fn new(groups: &[PodGroup]) -> Self {
        let stores = Arc::new(Stores::default());
        for group in groups {
            stores.pod_groups.insert(group.clone());
        }
        let mut watch = Self {
            charged: Charged::new(stores, &Settings::default()),
            shown: BTreeMap::new(),
        };
        watch.charged.listed();
        watch
    }

    /// The pod as everybody sees it.
    fn see(&mut self, mut pod: Pod) -> Pod {
        let before = self.shown.get(&pod.name_any()).cloned();
        for key in self.charged.settle(&mut pod, || before.map(Arc::new)) {
            if let Some(known) = self.shown.get(&key.name)
                && let Some(anew) = self.charged.again(known, false)
            {
                self.shown.insert(key.name, anew);
            }
        }
        self.shown.insert(pod.name_any(), pod.clone());
        pod
    }

    fn told(&mut self) -> Vec<String> {
        self.charged.notes().into_iter().map(|note| note.message).collect()
    }
}

fn bound() -> Pod {
    pod(
        json!({"kai.scheduler/queue": "q", "kai.scheduler/subgroup-name": "workers", "runai-gpu-group": "g", "app": "web"}),
        json!({"pod-group-name": "pg", "gpu-fraction": "0.9", "received-resource-type": "Fraction"}),
    )
}

#[test]
fn changes_of_a_bound_pod_do_not_change_what_it_is_charged_for() {
    let attacks = [
        json!({"annotations": {"pod-group-name": "nosuch"}}),
        json!({"annotations": {"gpu-fraction": "0.01"}}),
        json!({"annotations": {"gpu-fraction": null, "gpu-memory": "1"}}),
        json!({"annotations": {"gpu-fraction-num-devices": "8"}}),
        json!({"annotations": {"nvidia.com/mig-none": "1"}}),
        json!({"annotations": {"received-resource-type": "Regular"}}),
        json!({"labels": {"kai.scheduler/subgroup-name": "bogus"}}),
        json!({"labels": {"kai.scheduler/subgroup-name": null}}),
        json!({"labels": {"kai.scheduler/queue": "other"}}),
        json!({"labels": {"kai.scheduler/node-pool": "other"}}),
        json!({"labels": {"kai.scheduler/preemptibility": "non-preemptible"}}),
        json!({"labels": {"priorityClassName": "train"}}),
        json!({"labels": {"runai-gpu-group": null}}),
        json!({"labels": {"runai-gpu-group/h": "h"}}),
        json!({"labels": null, "annotations": null}),
    ];
    for attack in attacks {
        let mut watch = Watch::new(&[group("pg", &["workers"])]);
        watch.see(bound());
        let mut written = json!(bound());
        json_patch::merge(&mut written["metadata"], &attack);
        let written: Pod = serde_json::from_value(written).unwrap();
        let seen = watch.see(written.clone());
        let of = |pod: &Pod| watch.charged.charged(pod);
        assert_eq!(of(&seen), of(&bound()), "{attack}");
        assert_eq!(watch.told().len(), 1, "{attack}");
        watch.see(written);
        assert!(watch.told().is_empty(), "once: {attack}");
    }
}

#[test]
fn other_labels_and_pods_that_are_not_bound_may_change() {
    let mut watch = Watch::new(&[]);
    let other = |app: &str, fraction: &str| pod(json!({"app": app}), json!({"gpu-fraction": fraction}));
    watch.see(unbound(other("web", "0.9")));
    let seen = watch.see(unbound(other("web", "0.1")));
    assert_eq!(seen.annotations()["gpu-fraction"], "0.1");
    watch.see(other("web", "0.1"));
    assert_eq!(watch.see(other("db", "0.1")).labels()["app"], "db");
    assert!(watch.told().is_empty());
}

#[test]
fn only_the_grouper_may_set_the_sub_group_of_a_bound_pod() {
    let mut watch = Watch::new(&[group("pg", &["workers"])]);
    let named = |labels: Value| pod(labels, json!({"pod-group-name": "pg"}));
    watch.see(named(json!({})));
    let bogus = watch.see(named(json!({"kai.scheduler/subgroup-name": "bogus"})));
    assert!(!bogus.labels().contains_key("kai.scheduler/subgroup-name"));
    assert_eq!(watch.told().len(), 1);
    let workers = json!({"kai.scheduler/subgroup-name": "workers"});
    let late = watch.see(named(workers));
    assert_eq!(late.labels()["kai.scheduler/subgroup-name"], "workers");
    assert!(watch.told().is_empty());
}

#[test]
fn after_a_restart_the_charge_is_read_from_the_reservation_pod() {
    let stripped = pod(json!({}), json!({"gpu-fraction": "0.01"}));
    let mut watch = Watch::new(&[]);
    watch.see(reservation("n1", "g", &[("1", "0.9")]));
    let seen = watch.see(stripped.clone());
    assert_eq!(seen.annotations()["gpu-fraction"], "0.9");
    assert_eq!(seen.labels()["runai-gpu-group"], "g");
    assert_eq!(watch.told().len(), 1);

    // The list may bring the pod first.
    let mut watch = Watch::new(&[]);
    watch.see(stripped);
    watch.see(reservation("n1", "g", &[("1", "0.9")]));
    assert_eq!(watch.shown["a"].labels()["runai-gpu-group"], "g");

    // The reservation pod may go, and the pod still holds what it holds.
    watch.charged.gone(&reservation("n1", "g", &[]));
    let seen = watch.see(pod(json!({}), json!({})));
    assert_eq!(seen.annotations()["gpu-fraction"], "0.9");
}

/// Together these records are longer than annotations of a pod may be.
#[test]
fn all_users_of_a_gpu_that_many_pods_share_are_known() {
    let long = |at: usize| {
        let user = User {
            namespace: "n".repeat(63),
            name: "p".repeat(253),
            share: users::Share::of([("gpu-fraction", &*"0".repeat(256))].into_iter()),
        };
        users::annotation(&format!("00000000-0000-0000-0000-{at:012}"), &user)
    };
    let with_records = |mut pod: Pod| {
        pod.spec.as_mut().unwrap().containers =
            serde_json::from_value(json!([{"name": "resource-reservation"}])).unwrap();
        pod.annotations_mut().extend((0..100).map(long));
        kinds::trim(&mut pod);
        pod
    };
    let mut watch = Watch::new(&[]);
    let seen = watch.see(with_records(reservation("n1", "g", &[("1", "0.01")])));
    assert_eq!(users::of(&seen).len(), 101);
    let charged = watch.see(pod(json!({}), json!({})));
    assert_eq!(charged.annotations()["gpu-fraction"], "0.01");

    // The container of a reservation pod makes no pod of a tenant one.
    for tenants in [with_records(bound()), with_records(unbound(bound()))] {
        let seen = Watch::new(&[]).see(tenants);
        assert!(users::of(&seen).is_empty());
        assert_eq!(seen.annotations()["gpu-fraction"], "0.9");
    }
}

#[test]
fn records_on_reservation_pods_of_other_nodes_or_of_failed_binds_are_ignored() {
    let mut watch = Watch::new(&[]);
    watch.see(reservation("n2", "h", &[("1", "0.9")]));
    watch.see(reservation("n1", "g", &[]));
    let waits = pod(json!({}), json!({"gpu-fraction": "0.3"}));
    assert_eq!(watch.see(unbound(waits.clone())), unbound(waits));
    let seen = watch.see(pod(json!({"runai-gpu-group": "g"}), json!({"gpu-fraction": "0.3"})));
    assert_eq!(seen.annotations()["gpu-fraction"], "0.3");
    assert_eq!(seen.labels()["runai-gpu-group"], "g");
}

/// A bind that failed may leave its record on a reservation pod for a while.
#[test]
fn of_more_records_than_the_pod_has_devices_those_of_its_own_groups_count() {
    let [stale, own] = [("h", "0.2"), ("g", "0.9")].map(|(group, share)| reservation("n1", group, &[("1", share)]));
    let seen_in_order = |first: &[&Pod], labels: Value, then: &[&Pod]| {
        let mut watch = Watch::new(&[]);
        first.iter().for_each(|pod| drop(watch.see((*pod).clone())));
        watch.see(pod(labels, json!({"gpu-fraction": "0.9"})));
        then.iter().for_each(|pod| drop(watch.see((*pod).clone())));
        let seen = &watch.shown["a"];
        let groups = seen.labels().values().cloned().collect::<Vec<_>>();
        (groups, seen.annotations()["gpu-fraction"].clone())
    };
    let labels = json!({"runai-gpu-group": "g"});
    let expected = (vec!["g".to_owned()], "0.9".to_owned());
    assert_eq!(seen_in_order(&[&stale, &own], labels.clone(), &[]), expected);
    assert_eq!(seen_in_order(&[&own], labels.clone(), &[&stale]), expected);
    let late = seen_in_order(&[&stale], labels.clone(), &[&own]);
    assert_eq!(late, expected, "its own labels are remembered");
    assert_eq!(seen_in_order(&[], labels, &[&stale, &own]), expected);

    let stripped = seen_in_order(&[&stale, &own], json!({}), &[]);
    assert_eq!(stripped.0, ["g", "h"], "its labels do not decide");
}

#[test]
fn a_pod_that_names_another_group_later_stays_with_its_own() {
    let mut watch = Watch::new(&[]);
    for group in ["g", "h"] {
        watch.see(reservation("n1", group, &[("1", "0.9")]));
    }
    let named = |group: &str| pod(json!({"runai-gpu-group": group}), json!({"gpu-fraction": "0.9"}));
    watch.see(named("g"));
    assert_eq!(watch.see(named("h")).labels()["runai-gpu-group"], "g");
}

#[test]
fn a_user_of_several_gpus_has_all_recorded_groups() {
    let two = |group: &str| {
        let share = users::Share::of([("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "2")].into_iter());
        let user = User {
            namespace: "team".to_owned(),
            name: "a".to_owned(),
            share,
        };
        let mut pod = reservation("n1", group, &[]);
        pod.annotations_mut().extend([users::annotation("1", &user)]);
        pod
    };
    let mut watch = Watch::new(&[]);
    watch.see(two("g"));
    watch.see(two("h"));
    let seen = watch.see(pod(json!({"runai-gpu-group/x": "x"}), json!({"gpu-fraction": "0.5"})));
    let labels: Vec<&str> = seen.labels().keys().map(String::as_str).collect();
    assert_eq!(labels, ["runai-gpu-group/g", "runai-gpu-group/h"]);
    assert_eq!(seen.annotations()["gpu-fraction-num-devices"], "2");
}

#[test]
fn after_a_restart_a_pod_belongs_to_the_group_that_is_named_after_it_or_its_owner() {
    let named = |group: &str| pod(json!({}), json!({"pod-group-name": group}));
    let owned = |group: &str| {
        let mut pod = named(group);
        pod.metadata.owner_references =
            serde_json::from_value(json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "7"}]))
                .unwrap();
        pod
    };
    let first = |groups: &[&str], pod: Pod| {
        let groups: Vec<_> = groups.iter().map(|name| group(name, &[])).collect();
        Watch::new(&groups).see(pod).annotations()["pod-group-name"].clone()
    };
    assert_eq!(first(&["pg-a-1"], named("nosuch")), "pg-a-1");
    assert_eq!(first(&["pg-a-1", "other"], named("other")), "pg-a-1");
    assert_eq!(first(&["pg-job-7", "other"], owned("other")), "pg-job-7");
    assert_eq!(first(&["pg-job-7"], owned("pg-job-7")), "pg-job-7");
    assert_eq!(first(&["made-by-hand"], named("made-by-hand")), "made-by-hand");
    assert_eq!(first(&[], named("nosuch")), "nosuch", "others find out");
}

#[test]
fn a_pod_is_charged_to_the_pod_group_in_which_it_was_bound_whenever_it_is_first_seen() {
    let record = json!({"type": "unikai.dev/bound-in-pod-group", "status": "True", "message": "gang"});
    let bound_in_gang = |named: &str| {
        let mut pod = pod(json!({}), json!({"pod-group-name": named}));
        pod.status.as_mut().unwrap().conditions = serde_json::from_value(json!([record])).unwrap();
        pod
    };
    let groups = [group("pg-a-1", &[]), group("gang", &[])];
    let mut watch = Watch::new(&groups);
    watch.see(unbound(bound_in_gang("gang")));
    let seen = watch.see(bound_in_gang("gang"));
    assert_eq!(seen.annotations()["pod-group-name"], "gang");
    assert!(watch.told().is_empty());
    for named in ["gang", "pg-a-1", "nosuch"] {
        let seen = Watch::new(&groups).see(bound_in_gang(named));
        assert_eq!(seen.annotations()["pod-group-name"], "gang", "{named}");
    }
}

#[test]
fn a_pod_that_asks_for_a_part_of_a_gpu_after_its_place_was_decided_has_none() {
    let asks = |received: &str| {
        let annotations = json!({"gpu-fraction": "0.1", "received-resource-type": received});
        pod(json!({}), annotations)
    };
    let mut watch = Watch::new(&[]);
    watch.see(unbound(pod(json!({}), json!({}))));
    let seen = watch.see(asks("Regular"));
    assert_eq!(seen.annotations().get("gpu-fraction"), None);
    assert!(watch.told()[0].contains("gpu-fraction"));
    assert_eq!(Watch::new(&[]).see(asks("Regular")), seen, "also after a restart");

    let seen = Watch::new(&[]).see(asks("Fraction"));
    assert_eq!(seen.annotations()["gpu-fraction"], "0.1");
}

#[test]
fn a_pod_that_was_bound_without_a_pod_group_gets_the_one_that_the_grouper_writes_once() {
    let mut watch = Watch::new(&[]);
    let named = |group: &str| pod(json!({}), json!({"pod-group-name": group}));
    assert!(watch.see(pod(json!({}), json!({}))).annotations().is_empty());
    assert_eq!(watch.see(named("pg-a-1")).annotations()["pod-group-name"], "pg-a-1");
    assert_eq!(watch.see(named("other")).annotations()["pod-group-name"], "pg-a-1");
}

#[test]
fn a_sub_group_written_just_before_the_binding_must_be_one_of_the_pod_group() {
    let mut watch = Watch::new(&[group("gang", &["workers"])]);
    let member = |sub_group| {
        pod(
            json!({"kai.scheduler/subgroup-name": sub_group}),
            json!({"pod-group-name": "gang"}),
        )
    };
    watch.see(unbound(member("workers")));
    assert_eq!(
        watch.see(member("bogus")).labels().get("kai.scheduler/subgroup-name"),
        None
    );
}

#[test]
fn a_pod_whose_binding_names_no_pod_group_is_charged_to_its_own() {
    let mut watch = Watch::new(&[group("pg-a-1", &[])]);
    let member = pod(json!({}), json!({}));
    watch.see(unbound(member.clone()));
    assert_eq!(watch.see(member).annotations()["pod-group-name"], "pg-a-1");
}

#[test]
fn after_a_restart_a_sub_group_that_the_group_does_not_have_is_none() {
    let mut watch = Watch::new(&[group("pg-a-1", &["workers"])]);
    let astray = pod(
        json!({"kai.scheduler/subgroup-name": "bogus"}),
        json!({"pod-group-name": "pg-a-1"}),
    );
    assert!(watch.see(astray).labels().is_empty());
}

#[test]
fn pods_seen_before_their_pod_groups_are_processed_again() {
    let mut charged = Charged::new(Arc::default(), &Settings::default());
    let mut early = pod(json!({}), json!({"pod-group-name": "nosuch"}));
    charged.settle(&mut early, || None);
    assert_eq!(early.annotations()["pod-group-name"], "nosuch");
    charged.stores.pod_groups.insert(group("pg-a-1", &[]));
    let keys = charged.listed();
    assert_eq!(keys.len(), 1);
    let anew = charged.again(&early, true).expect("it belongs elsewhere");
    assert_eq!(anew.annotations()["pod-group-name"], "pg-a-1");
}
