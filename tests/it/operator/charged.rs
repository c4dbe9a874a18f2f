//! A tenant changes bound pods, while the operator runs and while it does not. They stay charged as before: no GPU is allocated
//! twice, and limits hold.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::api::limits;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, QUICK_LEASE, TEAM, eventually, pod};

fn sharing() -> Vec<&'static str> {
    [&["--gpu-sharing", "true"], QUICK_LEASE].concat()
}

/// A queue that may hold so many GPUs.
fn limited(name: &str, gpus: u32) -> String {
    let open = "{quota: -1, limit: -1, overQuotaWeight: 1}";
    format!(
        "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec:\n  parentQueue: default\n  resources: {{cpu: {open}, memory: {open}, gpu: {{quota: {gpus}, limit: {gpus}, overQuotaWeight: 1}}}}\n"
    )
}

fn in_queue(mut pod: Value, queue: &str) -> Value {
    pod["metadata"]["labels"] = json!({"kai.scheduler/queue": queue});
    pod
}

fn sharing_pod(name: &str, fraction: &str) -> Value {
    let mut pod = pod(name, 0);
    pod["metadata"]["annotations"] = json!({"gpu-fraction": fraction});
    pod
}

impl Lab {
    /// Removes the admission policies, so that only the operator protects.
    async fn without_policies(&self) {
        for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
            let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&gvk));
            for object in api.list(&ListParams::default()).await.into_iter().flatten() {
                api.delete(&object.name_any(), &DeleteParams::default())
                    .await
                    .expect("deleted");
            }
        }
    }

    /// Nor are there webhooks, until an operator registers them again.
    async fn without_webhooks(&self) {
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        for object in validating.list(&ListParams::default()).await.expect("listed") {
            let deleted = validating.delete(&object.name_any(), &DeleteParams::default()).await;
            deleted.expect("deleted");
        }
    }

    /// The tenant patches the metadata of a pod. A webhook may refuse invalid values.
    async fn write(&self, pod: &str, metadata: Value) {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match self.pods().patch(pod, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            written => drop(written.unwrap_or_else(|error| panic!("{pod}: {error}"))),
        }
    }

    /// Waits for the event `ChangeIgnored` of a pod.
    async fn told_that_changes_are_ignored(&self, pod: &str) {
        eventually("an event says that the change is ignored", async || {
            self.is_told_that_changes_are_ignored(pod).await
        })
        .await;
    }

    /// Whether an object has an event `ChangeIgnored`.
    async fn is_told_that_changes_are_ignored(&self, name: &str) -> Result<(), String> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), TEAM);
        let events = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let told = |event: &Event| {
            event.reason.as_deref() == Some("ChangeIgnored") && event.involved_object.name.as_deref() == Some(name)
        };
        let told = events.iter().any(told);
        told.then_some(()).ok_or_else(|| "no event".to_owned())
    }

    /// Waits for an event with these words.
    async fn event_says(&self, words: &str) {
        let api: Api<Event> = Api::namespaced(self.client.clone(), TEAM);
        eventually(&format!("an event says: {words}"), async || {
            let events = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
            let said: Vec<_> = events.iter().filter_map(|event| event.message.clone()).collect();
            let told = said.iter().any(|message| message.contains(words));
            told.then_some(()).ok_or_else(|| format!("{said:?}"))
        })
        .await;
    }

    async fn finds_no_place(&self, pod: Value) {
        let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
        self.create_after_handover(pod).await;
        self.unschedulable(&name).await;
    }
}

/// Everything that a tenant may try on the labels and annotations of a running pod.
fn attacks() -> Vec<Value> {
    vec![
        json!({"annotations": {"pod-group-name": "nosuch"}}),
        json!({"labels": {"kai.scheduler/subgroup-name": "bogus"}}),
        json!({"labels": {"kai.scheduler/queue": "default"}}),
        json!({"annotations": {"nvidia.com/mig-none": "1"}}),
        json!({"annotations": {"gpu-fraction": "0.01"}}),
        json!({"annotations": {"gpu-fraction": null, "gpu-memory": "1"}}),
        json!({"labels": {"runai-gpu-group": null}}),
        json!({"labels": {"runai-gpu-group": "made-up", "runai-gpu-group/x": "x"}}),
        json!({"labels": {"app": "kai-resource-reservation"}}),
        json!({"annotations": {"received-resource-type": "Regular"}}),
        json!({"labels": null, "annotations": null, "ownerReferences": null}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_gpus_stay_charged_to_their_queue_when_labels_of_the_running_pod_change() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 4)]).await;
    lab.without_policies().await;
    lab.apply(&limited("small", 2)).await;
    let mut operator = lab.replica_with("one", &sharing()).await;
    lab.create(in_queue(pod("held", 2), "small")).await.unwrap();
    lab.runs("held").await;
    for (number, attack) in attacks().into_iter().enumerate() {
        lab.write("held", attack.clone()).await;
        lab.finds_no_place(in_queue(pod(&format!("more-{number}"), 1), "small"))
            .await;
        lab.delete_pod(&format!("more-{number}")).await;
    }
    lab.told_that_changes_are_ignored("held").await;

    // Once more while no operator runs.
    operator.kill();
    lab.without_webhooks().await;
    let astray = json!({"labels": {"kai.scheduler/queue": "test", "kai.scheduler/subgroup-name": "bogus"},
        "annotations": {"pod-group-name": "nosuch", "nvidia.com/mig-none": "1"}});
    lab.write("held", astray).await;
    let mut operator = lab.replica_with("two", &sharing()).await;
    lab.finds_no_place(in_queue(pod("late", 1), "small")).await;
    operator.kill();
    lab.write(
        "held",
        json!({"labels": null, "annotations": null, "ownerReferences": null}),
    )
    .await;
    let _operator = lab.replica_with("three", &sharing()).await;
    lab.finds_no_place(in_queue(pod("later", 1), "small")).await;
    lab.delete_pod("held").await;
    lab.runs("late").await;
    lab.runs("later").await;
    lab.assert_safe().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_gpu_stays_with_its_user_when_labels_of_the_pod_change() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    lab.without_policies().await;
    let mut operator = lab.replica_with("one", &sharing()).await;
    lab.create(sharing_pod("held", "0.9")).await.unwrap();
    lab.runs("held").await;
    let reserved = lab.reservations().await.remove(0).metadata.uid;
    for (number, attack) in attacks().into_iter().enumerate() {
        lab.write("held", attack).await;
        lab.finds_no_place(sharing_pod(&format!("more-{number}"), "0.5")).await;
        lab.delete_pod(&format!("more-{number}")).await;
    }
    lab.told_that_changes_are_ignored("held").await;
    for (replica, wiped) in [
        ("two", json!({"annotations": {"gpu-fraction": "0.01"}})),
        ("three", json!({"labels": null, "annotations": null})),
    ] {
        operator.kill();
        lab.without_webhooks().await;
        lab.write("held", wiped).await;
        operator = lab.replica_with(replica, &sharing()).await;
        operator.leads().await;
        lab.finds_no_place(sharing_pod(&format!("after-{replica}"), "0.5"))
            .await;
        // Longer than a group without users is kept.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let reservations = lab.reservations().await;
        let uids: Vec<_> = reservations.iter().map(|pod| pod.metadata.uid.clone()).collect();
        assert_eq!(uids, std::slice::from_ref(&reserved), "the device is still reserved");
    }
    lab.delete_pod("held").await;
    lab.runs("after-two").await;
    lab.runs("after-three").await;
    assert_eq!(lab.reservations().await.len(), 1, "they share it");
    assert_eq!(lab.world.refused_gpu_pods(), 0);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_the_labels_of_a_reservation_pod_counts_for_its_request() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8), NodeSpec::gpu("gpu-2", 1)]).await;
    let operator = lab.replica_with("one", &sharing()).await;
    let disguised = |name: &str, app: &str, node: &str, gpus: u32| {
        let mut pod = pod(name, gpus);
        pod["metadata"]["labels"] = json!({"app": app, "runai-gpu-group": "x"});
        pod["spec"]["schedulerName"] = json!("default-scheduler");
        pod["spec"]["nodeName"] = json!(node);
        pod
    };
    // Pods of another scheduler that pretend to be reservation pods: one with GPUs, which would not be counted, and one without, which would release GPUs.
    lab.create(disguised("eight", "kai-resource-reservation", "gpu-1", 8))
        .await
        .unwrap();
    lab.create(disguised("none", "scaling-pod", "gpu-2", 0)).await.unwrap();
    lab.runs("eight").await;
    lab.runs("none").await;
    lab.create(pod("honest", 1)).await.unwrap();
    assert_eq!(lab.runs("honest").await, "gpu-2");
    lab.create(pod("too-much", 1)).await.unwrap();
    lab.unschedulable("too-much").await;
    assert_eq!(lab.world.refused_gpu_pods(), 0);
    operator.assert_no_errors();
}

/// The decision is for a small part; before the Binding the pod asks for a large one.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_asks_for_more_while_it_is_being_bound_is_decided_anew() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let operator = lab.replica_with("one", &sharing()).await;
    let requests = Match::verb_on("create", "bindrequests");
    let slow = Effect::Delay(Duration::from_secs(3));
    let slow = lab.server.faults().add(requests, slow, Times::Next(1));
    lab.create(sharing_pod("grows", "0.2")).await.unwrap();
    eventually("it is being bound", async || {
        (lab.server.faults().struck(slow) == 1).then_some(())
    })
    .await;
    lab.write("grows", json!({"annotations": {"gpu-fraction": "0.9"}}))
        .await;
    lab.runs("grows").await;
    lab.event_says("the pod's GPU sharing request has changed since its bind was decided")
        .await;
    // Nine tenths of the only GPU are taken.
    lab.finds_no_place(sharing_pod("more", "0.5")).await;
    lab.delete_pod("grows").await;
    lab.runs("more").await;
    operator.assert_no_errors();
}

/// What a pod asks for is recorded on the reservation pod, which has only so much room.
#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_share_with_too_long_annotations_is_not_reserved() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let operator = lab.replica_with("one", &sharing()).await;
    let long = format!("0.5{}", "0".repeat(limits::GPU_SHARE_BYTES));
    lab.create(sharing_pod("long", &long)).await.unwrap();
    lab.event_says("the pod's annotations for a part of a GPU are too long")
        .await;
    assert_eq!(lab.reservations().await.len(), 0);
    lab.create(sharing_pod("short", "0.9")).await.unwrap();
    lab.runs("short").await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_deleted_at_the_end_of_its_bind_leaves_no_reservation() {
    let lab = Lab::start((1..3).map(|n| NodeSpec::gpu(format!("gpu-{n}"), 1)).collect()).await;
    let operator = lab.replica_with("one", &sharing()).await;
    let reservations = Match {
        namespace: Some("kai-resource-reservation".to_owned()),
        ..Match::verb_on("create", "pods")
    };
    let refuse = Effect::Refuse {
        code: 403,
        retry_after: None,
    };
    lab.server.faults().add(reservations, refuse, Times::Next(1));
    lab.create(sharing_pod("brief", "0.5")).await.unwrap();
    eventually("it says that the first bind failed", async || {
        let pod: Pod = lab.pods().get("brief").await.map_err(|e| e.to_string())?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let failed = conditions.iter().any(|condition| condition.type_ == "PodBound");
        failed.then_some(()).ok_or_else(|| format!("{conditions:?}"))
    })
    .await;
    // After the binding the pod is to say that it is bound now; that takes so long that the pod is gone before.
    let conclusions = Match {
        user: Some(operator.identity.user.clone()),
        subresource: Some("status".to_owned()),
        ..Match::verb_on("patch", "pods")
    };
    let slow = Effect::Delay(Duration::from_secs(3));
    lab.server.faults().add(conclusions, slow, Times::Always);
    lab.runs("brief").await;
    lab.delete_pod("brief").await;
    lab.nothing_left().await;
    operator.assert_no_errors();
}

/// A job of one pod that asks for so many GPUs in a queue.
fn job(name: &str, gpus: u32, queue: &str) -> Value {
    let pod = pod(name, gpus);
    let labels = json!({"kai.scheduler/queue": queue});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": TEAM, "labels": labels},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": pod["spec"]}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn changing_the_owner_of_running_pods_does_not_protect_them_from_reclaim() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 4)]).await;
    lab.apply(&limited("owed", 4)).await;
    let nothing = limited("greedy", 0).replace("quota: 0, limit: 0", "quota: 0, limit: -1");
    lab.apply(&nothing).await;
    let operator = lab.replica_with("one", &sharing()).await;
    let mut greedy = job("greedy", 4, "greedy");
    greedy["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    lab.create(greedy).await.unwrap();
    let runs = lab.all_run("greedy", 1).await.remove(0);
    let group = runs.annotations()["pod-group-name"].clone();

    let jobs: Api<Job> = Api::namespaced(lab.client.clone(), TEAM);
    let labels = json!({"kai.scheduler/preemptibility": "non-preemptible", "priorityClassName": "inference", "kai.scheduler/queue": "owed"});
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    jobs.patch("greedy", &PatchParams::default(), &patch).await.unwrap();
    let mut touched = 0;
    eventually("an event says that the change is ignored", async || {
        // Owners are cached for a while; a pod that changes is grouped again.
        touched += 1;
        lab.write(
            &runs.name_any(),
            json!({"annotations": {"touched": touched.to_string()}}),
        )
        .await;
        lab.is_told_that_changes_are_ignored(&group).await
    })
    .await;

    lab.create(in_queue(pod("owed", 4), "owed")).await.unwrap();
    lab.runs("owed").await;
    operator.assert_no_errors();
}
