//! What each journey costs the API server, write by write: as few as possible, and more with `--always-bind-requests`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::api::{BindRequest, PodGroup};
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, Replica, TEAM, eventually, gang, phase, pod, queue};

const TRAIL: &[&str] = &["--always-bind-requests", "--gpu-sharing"];
const FEW: &[&str] = &["--gpu-sharing"];

/// Writes of one kind, and how many of it are right. What comes within a while is written at once: where things go slowly, in more
/// than one step.
type Row = (&'static str, RangeInclusive<usize>);

const fn exactly(what: &'static str, times: usize) -> Row {
    (what, times..=times)
}

impl Lab {
    /// The operator's writes in the namespaces of pods, by kind, once they have come to an end.
    async fn journey(&self, operator: &Replica) -> BTreeMap<String, usize> {
        let count = || {
            let mut counts = BTreeMap::new();
            for write in self.server.audit().writes_of(&operator.identity) {
                if write.namespace == TEAM || write.namespace == "kai-resource-reservation" {
                    let slash = if write.subresource.is_empty() { "" } else { "/" };
                    let what = format!("{} {}{slash}{}", write.verb, write.resource, write.subresource);
                    *counts.entry(what).or_default() += 1;
                }
            }
            counts
        };
        let mut before = None;
        eventually("writes come to an end", async || {
            let now = count();
            let settled = before.as_ref() == Some(&now);
            before = Some(now.clone());
            // Longer than any write is delayed.
            tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
            settled.then_some(now.clone()).ok_or_else(|| format!("{now:?}"))
        })
        .await
    }

    async fn assert_journey(&self, operator: &Replica, expected: &[Row]) {
        let mut writes = self.journey(operator).await;
        for (what, times) in expected {
            let found = writes.remove(*what).unwrap_or_default();
            assert!(times.contains(&found), "{what}: {found}, not {times:?}; and {writes:?}");
        }
        assert!(writes.is_empty(), "nobody expects {writes:?}");
        self.server.audit().clear();
        operator.assert_no_errors();
    }

    /// The events about an object: source, reason and message.
    async fn events_of(&self, name: &str) -> Vec<[String; 3]> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), TEAM);
        let events = api.list(&ListParams::default()).await.expect("events").items;
        let about = events
            .into_iter()
            .filter(|event| event.involved_object.name.as_deref() == Some(name));
        let mut told: Vec<_> = about
            .map(|event| {
                let source = event.source.and_then(|source| source.component).unwrap_or_default();
                [
                    source,
                    event.reason.unwrap_or_default(),
                    event.message.unwrap_or_default(),
                ]
            })
            .collect();
        told.sort();
        told
    }

    /// The condition of a pod: status, reason and message.
    async fn condition(&self, name: &str, kind: &str) -> Option<[String; 3]> {
        let pod = self.pods().get(name).await.expect("the pod");
        let conditions = pod.status?.conditions?;
        let found = conditions.into_iter().find(|condition| condition.type_ == kind)?;
        Some([
            found.status,
            found.reason.unwrap_or_default(),
            found.message.unwrap_or_default(),
        ])
    }

    async fn bind_request(&self, name: &str) -> Option<BindRequest> {
        let api: Api<BindRequest> = Api::namespaced(self.client.clone(), TEAM);
        api.get_opt(name).await.expect("an answer")
    }
}

async fn lab() -> Lab {
    Lab::start(vec![NodeSpec::gpu("gpu-1", 8), NodeSpec::cpu("cpu-1")]).await
}

/// A pod, its group, and what they say: the least.
const PLAIN: [Row; 5] = [
    exactly("create pods/binding", 1),
    exactly("create podgroups", 1),
    ("patch podgroups", 0..=1),
    ("patch podgroups/status", 1..=2),
    exactly("create events", 1),
];

/// The same with `--always-bind-requests`.
const PLAIN_TRAIL: [Row; 8] = [
    exactly("create bindrequests", 1),
    exactly("create pods/binding", 1),
    exactly("patch bindrequests/status", 1),
    exactly("patch pods/status", 1),
    exactly("create events", 2),
    exactly("create podgroups", 1),
    ("patch podgroups", 0..=1),
    ("patch podgroups/status", 1..=2),
];

#[tokio::test(flavor = "multi_thread")]
async fn plain_pods_cost_five_writes_each_at_most() {
    let lab = lab().await;
    let operator = lab.replica_with("one", FEW).await;
    for (name, gpus) in [("cpu-only-pod", 0), ("gpu-pod", 1)] {
        lab.create(pod(name, gpus)).await.unwrap();
        let node = lab.runs(name).await;
        lab.assert_journey(&operator, &PLAIN).await;
        assert_eq!(lab.condition(name, "PodBound").await, None);
        let scheduled = format!("Successfully assigned pod team/{name} to node {node} at node-pool default");
        let told = [["kai-scheduler".to_owned(), "Scheduled".to_owned(), scheduled]];
        assert_eq!(lab.events_of(name).await, told);
    }
}

impl Lab {
    /// GPUs that the queue's status shows as held.
    async fn gpus_of_queue(&self, gpus: &str) {
        eventually(&format!("the queue holds {gpus} GPUs"), async || {
            let queue = self.queues().get("test").await.map_err(|e| e.to_string())?;
            let allocated = queue.status.map(|status| status.allocated).unwrap_or_default();
            let shown = allocated.get("nvidia.com/gpu").map(|amount| amount.0.clone());
            (shown.as_deref() == Some(gpus))
                .then_some(())
                .ok_or_else(|| format!("{shown:?}"))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn single_pods_cost_two_writes_where_only_those_that_wait_get_a_pod_group() {
    for (mode, groups_of_waiting) in [("waiting", 1), ("never", 0)] {
        let lab = lab().await;
        let mut operator = lab.replica_with("one", &["--plain-pod-groups", mode]).await;
        lab.create(pod("first", 2)).await.unwrap();
        lab.runs("first").await;
        let two = [exactly("create pods/binding", 1), exactly("create events", 1)];
        lab.assert_journey(&operator, &two).await;
        lab.gpus_of_queue("2").await;

        lab.create(pod("large", 9)).await.unwrap();
        lab.unschedulable("large").await;
        let writes = lab.journey(&operator).await;
        let created = writes.get("create podgroups").copied().unwrap_or_default();
        assert_eq!(created, groups_of_waiting, "{mode}: {writes:?}");
        lab.delete_pod("large").await;

        // The next process knows what runs by its pods alone.
        operator.signal("TERM");
        operator.ends_well().await;
        let operator = lab.replica_with("two", &["--plain-pod-groups", mode]).await;
        lab.create(pod("second", 1)).await.unwrap();
        lab.runs("second").await;
        lab.gpus_of_queue("3").await;
        lab.delete_pod("first").await;
        lab.gpus_of_queue("1").await;
        lab.assert_safe().await;
        operator.assert_no_errors();
    }
}

/// Without a PodGroup, a process that starts later would charge the other queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_pod_that_names_another_queue_later_gets_a_pod_group_with_the_first_one() {
    let lab = lab().await;
    lab.apply(&queue("other", Some("default"))).await;
    let operator = lab.replica_with("one", &["--plain-pod-groups", "never"]).await;
    lab.create(pod("large", 9)).await.unwrap();
    lab.unschedulable("large").await;
    let label = json!({"metadata": {"labels": {"kai.scheduler/queue": "other"}}});
    let (params, label) = (PatchParams::default(), Patch::Merge(label));
    lab.pods().patch("large", &params, &label).await.unwrap();
    let groups: Api<PodGroup> = Api::namespaced(lab.client.clone(), TEAM);
    eventually("the pod group is written", async || {
        let found = groups.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let queues: Vec<_> = found.items.into_iter().map(|group| group.spec.queue).collect();
        (queues == [Some("test".to_owned())])
            .then_some(())
            .ok_or_else(|| format!("{queues:?}"))
    })
    .await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_writes_wait_until_bindings_are_done() {
    let lab = lab().await;
    // Each binding takes a while, so that the burst lasts longer than anything waits by itself.
    let slow = Effect::Delay(std::time::Duration::from_millis(700));
    let binding = Match::bindings();
    lab.server.faults().add(binding, slow, Times::Always);
    let operator = lab.replica_with("one", &["--background-delay", "60"]).await;
    let names: Vec<String> = (0..4).map(|number| format!("pod-{number}")).collect();
    for name in &names {
        lab.create(pod(name, 1)).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    for name in &names {
        lab.runs(name).await;
    }
    lab.journey(&operator).await;
    let writes = lab.server.audit().writes_of(&operator.identity);
    let writes: Vec<_> = writes.iter().filter(|write| write.namespace == TEAM).collect();
    let last_binding = writes.iter().rposition(|write| write.subresource == "binding");
    let first_other = writes.iter().position(|write| write.subresource != "binding");
    assert!(last_binding < first_other, "{writes:?}");
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_full_trail_has_all_objects_that_kai_writes() {
    let lab = lab().await;
    let operator = lab.replica_with("one", TRAIL).await;
    for (name, gpus) in [("cpu-only-pod", 0), ("gpu-pod", 1)] {
        lab.create(pod(name, gpus)).await.unwrap();
        let node = lab.runs(name).await;
        lab.assert_journey(&operator, &PLAIN_TRAIL).await;

        let created = lab.pods().get(name).await.unwrap();
        assert_eq!(created.annotations()["received-resource-type"], "Regular");
        assert!(created.annotations()["pod-group-name"].starts_with(&format!("pg-{name}-")));
        let request = lab.bind_request(name).await.expect("the request stays");
        assert_eq!(request.labels()["selected-node"], node);
        assert_eq!(request.status.unwrap().phase.as_deref(), Some("Succeeded"));
        let bound = format!("Pod bound successfully to node {node}");
        let condition = ["True".to_owned(), "Bound".to_owned(), bound.clone()];
        assert_eq!(lab.condition(name, "PodBound").await, Some(condition));
        let scheduled = format!("Successfully assigned pod team/{name} to node {node} at node-pool default");
        let told = [
            ["binder".to_owned(), "Bound".to_owned(), bound],
            ["kai-scheduler".to_owned(), "Scheduled".to_owned(), scheduled],
        ];
        assert_eq!(lab.events_of(name).await, told);
    }
    // The request goes with its pod, and does not stand in the way of the next one of the name.
    lab.delete_pod("gpu-pod").await;
    eventually("the pod is gone", async || {
        match lab.pods().get_opt("gpu-pod").await.map_err(|e| e.to_string())? {
            None => Ok(()),
            Some(_) => Err("it is there".to_owned()),
        }
    })
    .await;
    lab.create(pod("gpu-pod", 1)).await.unwrap();
    lab.runs("gpu-pod").await;
    eventually("the new pod's request has succeeded", async || {
        let request = lab.bind_request("gpu-pod").await.ok_or("it is gone")?;
        let uid = lab.pods().get("gpu-pod").await.map_err(|e| e.to_string())?.uid();
        let phase = request.status.as_ref().and_then(|status| status.phase.as_deref());
        let right = phase == Some("Succeeded") && uid.as_deref() == Some(&*request.owner_references()[0].uid);
        right.then_some(()).ok_or_else(|| format!("{request:?}"))
    })
    .await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_disabled_full_trail_are_deleted() {
    let lab = lab().await;
    let mut operator = lab.replica_with("one", TRAIL).await;
    lab.create(pod("lone", 1)).await.unwrap();
    lab.runs("lone").await;
    lab.journey(&operator).await;
    assert!(lab.bind_request("lone").await.is_some());
    operator.signal("TERM");
    operator.ends_well().await;
    let operator = lab.replica_with("two", FEW).await;
    lab.nothing_left().await;
    assert_eq!(phase(&lab.pods().get("lone").await.unwrap()), "Running");
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_shares_the_writes_about_its_group() {
    for (flags, trail) in [(FEW, 0), (TRAIL, 4)] {
        let lab = lab().await;
        let operator = lab.replica_with("one", flags).await;
        lab.create(gang("train", 4, 2)).await.unwrap();
        lab.running(4).await;
        let expected = [
            exactly("create bindrequests", trail),
            exactly("create pods/binding", 4),
            exactly("patch bindrequests/status", trail),
            exactly("patch pods/status", trail),
            // Those about pods; where the Job is slow to create them, one that the gang is not complete.
            ("create events", 4 + trail..=5 + trail),
            exactly("create podgroups", 1),
            ("patch podgroups", 0..=1),
            ("patch podgroups/status", 1..=3),
        ];
        lab.assert_journey(&operator, &expected).await;
        let groups: Api<PodGroup> = Api::namespaced(lab.client.clone(), TEAM);
        assert_eq!(groups.list(&ListParams::default()).await.unwrap().items.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_of_a_gpu_costs_its_reservation_and_its_config_maps() {
    for (flags, trail) in [(FEW, 0), (TRAIL, 1)] {
        let lab = lab().await;
        let operator = lab.replica_with("one", flags).await;
        let share = |name: &str| -> Value {
            let mut pod = pod(name, 0);
            pod["metadata"]["annotations"] = json!({"gpu-fraction": "0.5"});
            pod
        };
        // The first opens a device, the second joins it.
        for (name, reservations) in [("first", 1), ("second", 0)] {
            lab.create(share(name)).await.unwrap();
            lab.runs(name).await;
            let expected = [
                exactly("create bindrequests", 1),
                exactly("create pods", reservations),
                exactly("create configmaps", 2),
                // Its label; and who joins is written down on the reservation pod.
                exactly("patch pods", 2 - reservations),
                exactly("create pods/binding", 1),
                exactly("patch bindrequests/status", trail),
                exactly("delete bindrequests", 1 - trail),
                exactly("patch pods/status", trail),
                exactly("create events", 1 + trail),
                exactly("create podgroups", 1),
                ("patch podgroups", 0..=1),
                ("patch podgroups/status", 1..=2),
            ];
            lab.assert_journey(&operator, &expected).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_pending_pod_is_written_once_per_object() {
    for flags in [FEW, TRAIL] {
        let lab = lab().await;
        let operator = lab.replica_with("one", flags).await;
        lab.create(pod("large", 9)).await.unwrap();
        lab.unschedulable("large").await;
        let expected = [
            // Condition of the pod; its group's name, for all who look at it while it waits.
            exactly("patch pods/status", 1),
            exactly("patch pods", 1),
            // One on the pod, one on its group.
            exactly("create events", 2),
            exactly("create podgroups", 1),
            ("patch podgroups/status", 1..=2),
        ];
        lab.assert_journey(&operator, &expected).await;
        let delete = lab.pods().delete("large", &DeleteParams::default()).await;
        delete.expect("deleted");
        lab.assert_journey(&operator, &[("patch podgroups/status", 0..=1)])
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_full_trail_a_bound_pod_names_a_group_that_can_be_read() {
    let lab = lab().await;
    // The group's creation takes longer than anything else.
    let slow = Effect::Delay(std::time::Duration::from_millis(1_500));
    let creation = Match::verb_on("create", "podgroups");
    lab.server.faults().add(creation, slow, Times::Always);
    let operator = lab.replica_with("one", TRAIL).await;
    lab.create(pod("lone", 1)).await.unwrap();
    let bound = eventually("the pod is bound", async || {
        let pod = lab.pods().get("lone").await.map_err(|e| e.to_string())?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        node.map(|_| pod).ok_or_else(|| "no node yet".to_owned())
    })
    .await;
    let groups: Api<PodGroup> = Api::namespaced(lab.client.clone(), TEAM);
    let group = groups.get(&bound.annotations()["pod-group-name"]).await;
    group.expect("it is there as soon as the pod is bound");
    operator.assert_no_errors();
}
