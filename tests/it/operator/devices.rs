//! Devices that pods claim: from a template to a device, a binding, and back.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Resource;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
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
async fn a_device_goes_from_pod_to_pod() {
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
    let says = lab.unschedulable("second").await;
    assert!(says.contains("didn't have enough resources: GPUs"), "{says}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_a_class_stands_for_gets_a_claim_of_its_own() {
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
