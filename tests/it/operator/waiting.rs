//! Pods that wait for something outside of scheduling cycles have the reason in their condition, until it is available.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use unikai::api::PodGroup;
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, TEAM, eventually, pod};

fn group(name: &str, members: u32) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": TEAM}, "spec": {"minMember": members, "queue": "test"}})
}

fn member(name: &str, group: &str) -> Value {
    let mut pod = pod(name, 1);
    pod["metadata"]["annotations"] = json!({"pod-group-name": group});
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_shows_that_its_group_is_missing_and_later_what_the_group_lacks() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    lab.create(member("first", "train")).await.unwrap();
    let gone = "Pod group 'train' does not exist in namespace 'team'; create it or correct the pod's annotation pod-group-name";
    assert_eq!(lab.says("first", "PodGroupNotFound").await, gone);
    lab.create(group("train", 2)).await.unwrap();
    let lacks = lab.says("first", "NotReady").await;
    assert!(lacks.contains('2') && lacks.contains('1'), "{lacks}");

    let groups: Api<PodGroup> = Api::namespaced(lab.client.clone(), TEAM);
    groups.delete("train", &DeleteParams::default()).await.unwrap();
    assert_eq!(lab.says("first", "PodGroupNotFound").await, gone);
    lab.create(group("train", 2)).await.unwrap();
    assert_eq!(lab.says("first", "NotReady").await, lacks);
    lab.create(member("second", "train")).await.unwrap();
    lab.running(2).await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_be_grouped_has_the_reason_until_it_can() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    let mut alone = pod("alone", 1);
    alone["metadata"]["annotations"] = json!({"kai.scheduler/skip-podgrouper": "true"});
    lab.create(alone).await.unwrap();
    let says = lab.says("alone", "PodGrouperWarning").await;
    assert!(
        says.starts_with("The pod names no pod group, and the annotation kai.scheduler/skip-podgrouper keeps"),
        "{says}"
    );
    lab.create(group("mine", 1)).await.unwrap();
    let named = Patch::Merge(json!({"metadata": {"annotations": {"pod-group-name": "mine"}}}));
    lab.pods()
        .patch("alone", &PatchParams::default(), &named)
        .await
        .unwrap();
    lab.runs("alone").await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_another_scheduler_with_a_queue_gets_one_event() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    let mut other = pod("other", 0);
    other["spec"].as_object_mut().unwrap().remove("schedulerName");
    lab.create(other).await.unwrap();
    lab.create(pod("ours", 1)).await.unwrap();
    let events: Api<Event> = Api::namespaced(lab.client.clone(), TEAM);
    let about = async |name: &str| -> Vec<String> {
        let all = events.list(&ListParams::default()).await.expect("events").items;
        let about = all
            .into_iter()
            .filter(|event| event.involved_object.name.as_deref() == Some(name));
        let told = about.filter(|event| event.reason.as_deref() == Some("OtherScheduler"));
        told.filter_map(|event| event.message).collect()
    };
    eventually("the owner is told", async || {
        (!about("other").await.is_empty()).then_some(())
    })
    .await;
    // It changes, and nothing is told once more.
    let label = Patch::Merge(json!({"metadata": {"labels": {"more": "labels"}}}));
    lab.pods()
        .patch("other", &PatchParams::default(), &label)
        .await
        .unwrap();
    lab.runs("ours").await;
    assert_eq!(
        about("other").await,
        [
            "The pod is scheduled by default-scheduler, not by kai-scheduler, though the pod names queue test; set spec.schedulerName: kai-scheduler"
        ]
    );
    assert!(about("ours").await.is_empty());
    operator.assert_no_errors();
}
