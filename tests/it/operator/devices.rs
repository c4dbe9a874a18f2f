//! Devices that pods claim: from a template to a device, a binding, and back.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Resource;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use unikai::api::{PodGroup, QuantityMap};
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, TEAM, eventually, pod};

const ONE_DEVICE: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec:
  extendedResourceName: example.com/gpu-card
  selectors: [{cel: {expression: \"device.driver == 'gpu.example.com'\"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: cpu-1-gpus}
spec:
  driver: gpu.example.com
  nodeName: cpu-1
  pool: {name: cpu-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: card-0, attributes: {model: {string: X1}}}]
";

const TEMPLATE: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-card, namespace: team}
spec:
  spec:
    devices:
      requests:
      - name: card
        exactly: {deviceClassName: gpu.example.com, selectors: [{cel: {expression: \"device.attributes['gpu.example.com'].model == 'X1'\"}}]}
";

fn claiming(name: &str) -> Value {
    let mut pod = pod(name, 0);
    pod["spec"]["resourceClaims"] = json!([{"name": "card", "resourceClaimTemplateName": "one-card"}]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "card"}]);
    pod
}

fn claims(lab: &Lab) -> Api<ResourceClaim> {
    Api::namespaced(lab.client.clone(), TEAM)
}

/// The claim made for a pod, its devices and the pods that it is reserved for.
async fn claim_of(lab: &Lab, pod: &str) -> Option<(Vec<String>, Vec<String>)> {
    let all = claims(lab).list(&ListParams::default()).await.unwrap();
    let owned = |claim: &&ResourceClaim| {
        claim
            .meta()
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.name == pod)
    };
    let status = all.items.iter().find(owned)?.status.clone().unwrap_or_default();
    let devices = status
        .allocation
        .and_then(|allocation| allocation.devices)
        .unwrap_or_default();
    let devices = devices
        .results
        .into_iter()
        .flatten()
        .map(|result| result.device)
        .collect();
    Some((
        devices,
        status
            .reserved_for
            .into_iter()
            .flatten()
            .map(|consumer| consumer.name)
            .collect(),
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_is_allocated_to_one_pod_after_the_other() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1"), NodeSpec::cpu("cpu-2")]).await;
    lab.apply(ONE_DEVICE).await;
    lab.apply(&TEMPLATE.replace("team", TEAM)).await;
    let operator = lab.replica("one").await;
    lab.create(claiming("first")).await.unwrap();
    assert_eq!(lab.runs("first").await, "cpu-1");
    assert_eq!(
        claim_of(&lab, "first").await,
        Some((vec!["card-0".to_owned()], vec!["first".to_owned()]))
    );

    lab.create(claiming("second")).await.unwrap();
    // At first it may say that its claim is not made yet.
    eventually("it says that no device is free", async || {
        let says = lab.unschedulable("second").await;
        let right = says.contains("Waits for 1 GPU");
        right.then_some(()).ok_or(says)
    })
    .await;
    assert_eq!(claim_of(&lab, "second").await, Some((Vec::new(), Vec::new())));

    lab.delete_pod("first").await;
    assert_eq!(lab.runs("second").await, "cpu-1");
    eventually("the first claim is gone, the second has the device", async || {
        match (claim_of(&lab, "first").await, claim_of(&lab, "second").await) {
            (None, Some((devices, pods))) if devices == ["card-0"] && pods == ["second"] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    operator.assert_no_errors();
}

/// The first write of a claim has no effect and no answer, the second an effect.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_writes_of_claims_are_repeated() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    lab.apply(ONE_DEVICE).await;
    lab.apply(&TEMPLATE.replace("team", TEAM)).await;
    let operator = lab.replica_with("one", &["--request-timeout", "2"]).await;
    let written = || Match {
        user: Some(operator.identity.user.clone()),
        ..Match::verb_on("patch", "resourceclaims")
    };
    let faults = lab.server.faults();
    let hangs = [Effect::Hang, Effect::HangAfter].map(|effect| faults.add(written(), effect, Times::Next(1)));
    lab.create(claiming("claims")).await.unwrap();
    lab.create(pod("plain", 0)).await.unwrap();
    lab.runs("plain").await;
    lab.runs("claims").await;
    assert_eq!(hangs.map(|rule| faults.struck(rule)), [1, 1]);
    assert_eq!(
        claim_of(&lab, "claims").await,
        Some((vec!["card-0".to_owned()], vec!["claims".to_owned()]))
    );
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extended_resource_of_a_device_class_gets_a_claim() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1"), NodeSpec::cpu("cpu-2")]).await;
    lab.apply(ONE_DEVICE).await;
    let operator = lab.replica("one").await;
    let mut asking = pod("asking", 0);
    asking["spec"]["containers"][0]["resources"]["limits"] = json!({"example.com/gpu-card": "1"});
    lab.create(asking).await.unwrap();
    eventually("it is bound, and its status names the claim", async || {
        let pod: Pod = lab.pods().get("asking").await.map_err(|error| error.to_string())?;
        let node = pod.spec.and_then(|spec| spec.node_name);
        let status = pod.status.and_then(|status| status.extended_resource_claim_status);
        match (node.as_deref(), status) {
            (Some("cpu-1"), Some(status)) if status.request_mappings.len() == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(
        claim_of(&lab, "asking").await,
        Some((vec!["card-0".to_owned()], vec!["asking".to_owned()]))
    );
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_groups_and_queues_show_the_devices_that_pods_claim() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    lab.apply(&ONE_DEVICE.replace("[{name: card-0", "[{name: card-1}, {name: card-2}, {name: card-0"))
        .await;
    for (name, count) in [("one", 1), ("two", 2)] {
        lab.apply(&format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: {name}, namespace: {TEAM}}}\nspec: {{spec: {{devices: {{requests: [{{name: card, exactly: {{deviceClassName: gpu.example.com, count: {count}}}}}]}}}}}}"
        ))
        .await;
    }
    let operator = lab.replica("one").await;
    lab.apply(&format!(
        "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {{name: train, namespace: {TEAM}}}\nspec: {{queue: test, minMember: 2}}"
    ))
    .await;
    let shows = async |requested: &str, allocated: &str| {
        eventually("status and queue show the devices", async || {
            let groups: Api<PodGroup> = Api::namespaced(lab.client.clone(), TEAM);
            let group = groups.get("train").await.map_err(|error| error.to_string())?;
            let group = group
                .status
                .and_then(|status| status.resources_status)
                .unwrap_or_default();
            let queue = lab.queues().get("default").await.map_err(|error| error.to_string())?;
            let queue = queue.status.unwrap_or_default();
            let devices =
                |amounts: &QuantityMap| amounts.get("gpu.example.com").map_or("", |amount| &amount.0).to_owned();
            let found = [&group.requested, &group.allocated, &queue.requested, &queue.allocated].map(devices);
            if found == [requested, allocated, requested, allocated] {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    };
    for (name, template) in [("small", "one"), ("large", "two")] {
        let mut member = claiming(name);
        member["metadata"]["annotations"] = json!({"pod-group-name": "train"});
        member["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = json!(template);
        lab.create(member).await.unwrap();
        if name == "small" {
            shows("1", "").await;
        }
    }
    lab.running(2).await;
    shows("3", "3").await;
    lab.delete_pod("large").await;
    shows("1", "1").await;
    operator.assert_no_errors();
}
