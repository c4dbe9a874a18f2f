//! Pods that share a GPU, as a user sees them with kubectl.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::api::BindRequest;
use unikai::devcluster::apiserver::{Effect, Identity, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, TEAM, eventually, phase, pod};

const SHARING: &[&str] = &["--gpu-sharing", "true"];
const RESERVATIONS: &str = "kai-resource-reservation";
const RUNTIME_CLASS: &str =
    "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}";

/// A Deployment of one pod with a part of a GPU, as third-party guides write it.
fn deployment(name: &str, annotations: Value) -> Value {
    let mut template = pod(name, 0);
    template["spec"]["terminationGracePeriodSeconds"] = json!(0);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name, "kai.scheduler/queue": "test"}, "annotations": annotations},
                "spec": template["spec"],
            },
        },
    })
}

fn fraction(portion: &str) -> Value {
    json!({"gpu-fraction": portion})
}

/// A bare pod with a part of a GPU.
fn sharing_pod(name: &str, annotations: Value) -> Value {
    let mut pod = pod(name, 0);
    pod["metadata"]["annotations"] = annotations;
    pod
}

impl Lab {
    /// The reservation pods.
    pub async fn reservations(&self) -> Vec<Pod> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), RESERVATIONS);
        api.list(&ListParams::default()).await.expect("pods").items
    }

    /// Waits until the pods whose names begin so all run, and returns them.
    pub async fn all_run(&self, prefix: &str, count: usize) -> Vec<Pod> {
        eventually(&format!("{count} pods {prefix}… run"), async || {
            let mut pods = self.all_pods().await;
            pods.retain(|pod| pod.name_any().starts_with(prefix));
            let states: Vec<_> = pods.iter().map(|pod| (pod.name_any(), phase(pod))).collect();
            (pods.len() == count && states.iter().all(|(_, phase)| phase == "Running"))
                .then_some(pods)
                .ok_or_else(|| format!("{states:?}"))
        })
        .await
    }

    async fn config_maps(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), TEAM);
        let maps = api.list(&ListParams::default()).await.expect("config maps").items;
        let named = maps
            .into_iter()
            .map(|map| (map.name_any(), map.data.unwrap_or_default()));
        named.filter(|(name, _)| name != "kube-root-ca.crt").collect()
    }

    pub async fn bind_requests(&self) -> Vec<String> {
        let api: Api<BindRequest> = Api::all(self.client.clone());
        let all = api.list(&ListParams::default()).await.expect("bind requests").items;
        all.iter().map(ResourceExt::name_any).collect()
    }

    /// Waits until nothing is left of what binds make.
    pub async fn nothing_left(&self) {
        eventually("reservations, config maps and bind requests are gone", async || {
            let left = (
                self.reservations()
                    .await
                    .iter()
                    .map(ResourceExt::name_any)
                    .collect::<Vec<_>>(),
                self.config_maps().await.into_keys().collect::<Vec<_>>(),
                self.bind_requests().await,
            );
            (left.0.is_empty() && left.1.is_empty() && left.2.is_empty())
                .then_some(())
                .ok_or_else(|| format!("{left:?}"))
        })
        .await;
    }
}

/// The column GPU-GROUP of the guides.
fn group(pod: &Pod) -> String {
    pod.labels().get("runai-gpu-group").cloned().unwrap_or_default()
}

fn node(pod: &Pod) -> String {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.clone())
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_deployments_share_a_gpu_a_third_uses_another_and_all_are_freed() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2), NodeSpec::cpu("cpu-1")]).await;
    lab.apply(RUNTIME_CLASS).await;
    let operator = lab.replica_with("one", SHARING).await;
    lab.create(deployment("vllm-test-07", fraction("0.7"))).await.unwrap();
    let first = lab.all_run("vllm-test-07", 1).await.remove(0);
    lab.create(deployment("vllm-test-02", fraction("0.2"))).await.unwrap();
    let second = lab.all_run("vllm-test-02", 1).await.remove(0);
    assert_eq!((node(&first), group(&first)), (node(&second), group(&second)));
    assert!(!group(&first).is_empty());

    let reservations = lab.reservations().await;
    let [reservation] = &reservations[..] else {
        panic!("{reservations:?}");
    };
    assert!(
        reservation.name_any().starts_with("gpu-reservation-"),
        "{}",
        reservation.name_any()
    );
    assert_eq!(reservation.labels()["runai-gpu-group"], group(&first));
    let device = reservation.annotations()["run.ai/reserve_for_gpu_index"].clone();
    assert!(device.starts_with("GPU-"), "{device}");
    assert_eq!(reservation.annotations()["karpenter.sh/do-not-disrupt"], "true");
    assert_eq!(first.annotations()["received-resource-type"], "Fraction");
    let spec = first.spec.clone().unwrap();
    assert_eq!(spec.runtime_class_name.as_deref(), Some("nvidia"));
    assert_eq!(
        reservation.spec.as_ref().unwrap().tolerations,
        spec.tolerations,
        "the workload's tolerations"
    );

    let maps = lab.config_maps().await;
    for (pod, portion) in [(&first, "0.70"), (&second, "0.20")] {
        let name = format!("{}-0", pod.annotations()["runai/shared-gpu-configmap"]);
        let expected = [
            ("NVIDIA_VISIBLE_DEVICES", device.as_str()),
            ("RUNAI_NUM_OF_GPUS", portion),
            ("GPU_PORTION", portion),
        ];
        assert_eq!(maps[&name], expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert!(maps[&format!("{name}-evar")].is_empty());
    }

    lab.create(deployment("third", fraction("0.2"))).await.unwrap();
    let third = lab.all_run("third", 1).await.remove(0);
    assert_ne!(group(&third), group(&first), "0.7 + 0.2 + 0.2 is more than a GPU");
    assert_eq!(lab.reservations().await.len(), 2);
    lab.assert_safe().await;

    for name in ["vllm-test-07", "vllm-test-02", "third"] {
        let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(lab.client.clone(), TEAM);
        api.delete(name, &DeleteParams::background()).await.unwrap();
    }
    lab.nothing_left().await;
    lab.create(pod("whole", 2)).await.unwrap();
    lab.runs("whole").await;
    assert_eq!(lab.world.refused_gpu_pods(), 0);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn portions_are_requested_by_memory_for_one_container_and_of_several_gpus() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 4)]).await;
    let operator = lab.replica_with("one", SHARING).await;
    // 81559 MiB count as 81500.
    lab.create(sharing_pod("by.memory", json!({"gpu-memory": "20375"})))
        .await
        .unwrap();
    let by_memory = lab.all_run("by.memory", 1).await.remove(0);
    let maps = lab.config_maps().await;
    let map = &maps[&format!("{}-0", by_memory.annotations()["runai/shared-gpu-configmap"])];
    assert_eq!(map["GPU_PORTION"], "0.25");
    lab.create(sharing_pod("too-much", json!({"gpu-memory": "90000"})))
        .await
        .unwrap();
    lab.unschedulable("too-much").await;

    let mut named = sharing_pod(
        "named",
        json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-init"}),
    );
    named["spec"]["initContainers"] = json!([{"name": "gpu-init", "image": "ubuntu", "command": ["true"]}]);
    lab.create(named).await.unwrap();
    let named = lab.all_run("named", 1).await.remove(0);
    let maps = lab.config_maps().await;
    let prefix = &named.annotations()["runai/shared-gpu-configmap"];
    assert!(maps.contains_key(&format!("{prefix}-i0")), "{:?}", maps.keys());

    let two = json!({"gpu-fraction": "0.6", "gpu-fraction-num-devices": "2"});
    lab.create(sharing_pod("two-devices", two)).await.unwrap();
    let two = lab.all_run("two-devices", 1).await.remove(0);
    let groups: Vec<_> = two
        .labels()
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("runai-gpu-group/")?, value.as_str())))
        .collect();
    assert_eq!(groups.len(), 2, "{:?}", two.labels());
    assert!(groups.iter().all(|(key, value)| key == value));
    assert_eq!(group(&two), "");
    let maps = lab.config_maps().await;
    let map = &maps[&format!("{}-0", two.annotations()["runai/shared-gpu-configmap"])];
    let devices: Vec<_> = map["NVIDIA_VISIBLE_DEVICES"].split(',').collect();
    assert!(devices.len() == 2 && devices[0] != devices[1], "{devices:?}");
    assert_eq!(map["GPU_PORTION"], "0.60");

    for name in ["by.memory", "too-much", "named", "two-devices"] {
        lab.delete_pod(name).await;
    }
    lab.nothing_left().await;
    assert_eq!(lab.world.refused_gpu_pods(), 0);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_pods_at_once_share_gpus_without_a_double_reservation_and_with_few_writes() {
    let nodes = (0..10).map(|i| NodeSpec::gpu(format!("gpu-{i}"), 8)).collect();
    let lab = Lab::start(nodes).await;
    let operator = lab.replica_with("one", SHARING).await;
    let portions = ["0.5", "0.25", "0.2", "0.4"];
    // Each passes the webhooks twice, which a busy machine answers for some at a time only.
    for first in (0..200).step_by(20) {
        let pods =
            (first..first + 20).map(|i| lab.create(sharing_pod(&format!("load-{i}"), fraction(portions[i % 4]))));
        for created in futures::future::join_all(pods).await {
            created.unwrap();
        }
    }
    let pods = lab.all_run("load", 200).await;
    eventually("all binds are complete", async || {
        let open = lab.bind_requests().await;
        open.is_empty()
            .then_some(())
            .ok_or_else(|| format!("{} open", open.len()))
    })
    .await;

    let groups: std::collections::BTreeSet<_> = pods.iter().map(|pod| (node(pod), group(pod))).collect();
    let reservations = lab.reservations().await;
    let reserved: std::collections::BTreeSet<_> = reservations.iter().map(|pod| (node(pod), group(pod))).collect();
    assert_eq!(
        (&reserved, reservations.len()),
        (&groups, groups.len()),
        "one reservation per group"
    );
    let devices: std::collections::BTreeSet<_> = reservations
        .iter()
        .map(|pod| pod.annotations()["run.ai/reserve_for_gpu_index"].clone())
        .collect();
    assert_eq!(devices.len(), groups.len(), "one device per group");
    assert_eq!(lab.world.refused_gpu_pods(), 0);

    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for write in lab.server.audit().writes_of(&operator.identity) {
        if ["bindrequests", "configmaps", "pods"].contains(&&*write.resource) && write.subresource != "status" {
            *counts
                .entry(format!("{} {} {}", write.verb, write.resource, write.subresource))
                .or_default() += 1;
        }
    }
    println!("{} groups, {counts:#?}", groups.len());
    let count = |what: &str| counts.get(what).copied().unwrap_or_default();
    let of_pods = ["create bindrequests ", "create pods binding", "delete bindrequests "].map(count);
    assert_eq!((of_pods, count("create configmaps ")), ([200; 3], 400));
    assert_eq!(
        count("create pods "),
        groups.len(),
        "the reservation pods write their annotations themselves"
    );
    // One label each; those who join a GPU are written down on its reservation pod, those who come together at once; the grouper names
    // the group of a pod that has waited for a while.
    let joined = 200 - groups.len();
    assert!((200..=400 + joined).contains(&count("patch pods ")), "{counts:#?}");
    operator.assert_no_errors();
}

/// Who uses a GPU stands on its reservation pod, so that nobody else need be looked at before it is given back.
#[tokio::test(flavor = "multi_thread")]
async fn gpus_are_released_without_a_list_of_pods() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2)]).await;
    let operator = lab.replica_with("one", SHARING).await;
    operator.leads().await;
    let lists = Match {
        user: Some(operator.identity.user.clone()),
        ..Match::verb_on("list", "pods")
    };
    let at_once = Effect::Delay(std::time::Duration::ZERO);
    let lists = lab.server.faults().add(lists, at_once, Times::Always);
    for name in ["first", "second"] {
        lab.create(sharing_pod(name, fraction("0.6"))).await.unwrap();
        lab.runs(name).await;
    }
    assert_eq!(lab.reservations().await.len(), 2);
    for name in ["first", "second"] {
        lab.delete_pod(name).await;
    }
    lab.nothing_left().await;
    assert_eq!(lab.server.faults().struck(lists), 0, "lists of pods");
    operator.assert_no_errors();
}

/// Reservation pods cannot be created.
fn refuse_reservations(lab: &Lab, times: Times) {
    let reservations = Match {
        namespace: Some(RESERVATIONS.to_owned()),
        ..Match::verb_on("create", "pods")
    };
    let refuse = Effect::Refuse {
        code: 403,
        retry_after: None,
    };
    lab.server.faults().add(reservations, refuse, times);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_reservation_is_explained_and_retried() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2)]).await;
    let operator = lab.replica_with("one", SHARING).await;
    refuse_reservations(&lab, Times::Next(1));
    lab.create(sharing_pod("patient", fraction("0.5"))).await.unwrap();
    eventually("an event says why", async || {
        let api: Api<Event> = Api::namespaced(lab.client.clone(), TEAM);
        let events = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let mut reasons = events.iter().filter_map(|event| event.reason.clone());
        reasons
            .any(|reason| reason == "BindingError")
            .then_some(())
            .ok_or_else(|| "no event".to_owned())
    })
    .await;
    lab.runs("patient").await;
    eventually("the condition says that it is bound", async || {
        let pod = lab.pods().get("patient").await.map_err(|e| e.to_string())?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let bound = conditions.iter().find(|condition| condition.type_ == "PodBound");
        bound
            .is_some_and(|bound| bound.status == "True")
            .then_some(())
            .ok_or_else(|| format!("{conditions:?}"))
    })
    .await;
    lab.delete_pod("patient").await;
    lab.nothing_left().await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_reservation_a_pod_is_bound_to_another_node() {
    let lab = Lab::start((1..3).map(|n| NodeSpec::gpu(format!("gpu-{n}"), 2)).collect()).await;
    let operator = lab.replica_with("one", SHARING).await;
    // Pods are packed: the next goes where the first is.
    lab.create(pod("whole", 1)).await.unwrap();
    lab.runs("whole").await;
    let full = lab.pods().get("whole").await.unwrap().spec.unwrap().node_name;
    refuse_reservations(&lab, Times::Next(1));
    let asked = std::time::Instant::now();
    lab.create(sharing_pod("wanderer", fraction("0.5"))).await.unwrap();
    lab.runs("wanderer").await;
    assert!(
        asked.elapsed() < std::time::Duration::from_secs(9),
        "the first node is not waited for"
    );
    let found = lab.pods().get("wanderer").await.unwrap().spec.unwrap().node_name;
    assert_ne!(full, found);
    operator.assert_no_errors();
}

/// A pod that shares a GPU: its name, and its reservation pod.
async fn sharing(lab: &Lab) -> (String, Pod) {
    lab.create(deployment("server", fraction("0.5"))).await.unwrap();
    let server = lab.all_run("server", 1).await.remove(0).name_any();
    (server, lab.reservations().await.remove(0))
}

/// The reservation pod is deleted by another client.
async fn rob(lab: &Lab, reservation: &Pod) {
    let api: Api<Pod> = Api::namespaced(lab.client.clone(), RESERVATIONS);
    api.delete(&reservation.name_any(), &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reservation_is_recreated_for_the_same_gpu() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2)]).await;
    let operator = lab.replica_with("one", SHARING).await;
    let (server, reservation) = sharing(&lab).await;
    let device = reservation.annotations()["run.ai/reserve_for_gpu_index"].clone();
    rob(&lab, &reservation).await;
    eventually("the GPU is reserved again", async || {
        let all = lab.reservations().await;
        let devices: Vec<_> = all
            .iter()
            .map(|pod| pod.annotations().get("run.ai/reserve_for_gpu_index").cloned())
            .collect();
        (devices == [Some(device.clone())])
            .then_some(())
            .ok_or_else(|| format!("{devices:?}"))
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(lab.all_run("server", 1).await.remove(0).name_any(), server);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_a_permanently_lost_reservation_are_evicted_and_restarted() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2)]).await;
    let _operator = lab.replica_with("one", SHARING).await;
    let (server, reservation) = sharing(&lab).await;
    // Not before: a bind that failed for another reason may have created a reservation pod already.
    refuse_reservations(&lab, Times::Next(1));
    rob(&lab, &reservation).await;
    eventually("another pod takes its place", async || {
        let pods = lab.all_pods().await;
        let names: Vec<_> = pods.iter().map(|pod| (pod.name_any(), phase(pod))).collect();
        let replaced = names.len() == 1 && names[0].0 != server && names[0].1 == "Running";
        replaced.then_some(()).ok_or_else(|| format!("{names:?}"))
    })
    .await;
    assert_eq!(lab.reservations().await.len(), 1);
    assert_eq!(lab.world.refused_gpu_pods(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bind_requests_of_another_binder_are_finished() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2)]).await;
    let mut waiting = sharing_pod("waiting", fraction("0.5"));
    waiting["metadata"]["annotations"]["runai/shared-gpu-configmap"] = json!("waiting-shared-gpu");
    let waiting = lab.create(waiting).await.unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "waiting", "uid": waiting.metadata.uid}]);
    let request = |name: &str, pod: &str, owner: &Value| {
        json!({
            "apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
            "metadata": {"name": name, "namespace": TEAM, "ownerReferences": owner},
            "spec": {"podName": pod, "selectedNode": "gpu-1", "receivedResourceType": "Fraction",
                "receivedGPU": {"count": 1, "portion": "0.50"}, "selectedGPUGroups": ["3f0c1c1e-6f5a-4c0e-9b0a-2f6d1b7e8a11"]},
        })
    };
    lab.create(request("waiting", "waiting", &owner)).await.unwrap();
    lab.create(request("gone", "gone", &json!([]))).await.unwrap();
    let operator = lab.replica_with("one", SHARING).await;
    let runs = lab.all_run("waiting", 1).await.remove(0);
    assert_eq!(group(&runs), "3f0c1c1e-6f5a-4c0e-9b0a-2f6d1b7e8a11");
    eventually("one request has succeeded and the other is gone", async || {
        let api: Api<BindRequest> = Api::namespaced(lab.client.clone(), TEAM);
        let all = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
        let phases: Vec<_> = all
            .iter()
            .map(|request| {
                (
                    request.name_any(),
                    request.status.clone().and_then(|status| status.phase),
                )
            })
            .collect();
        (phases == [("waiting".to_owned(), Some("Succeeded".to_owned()))])
            .then_some(())
            .ok_or_else(|| format!("{phases:?}"))
    })
    .await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_class_is_named_only_where_it_exists() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2)]).await;
    let flags = [SHARING, &["--reservation-runtime-class-name", "nvidia"]].concat();
    let operator = lab.replica_with("one", &flags).await;
    let class = |pod: &Pod| pod.spec.as_ref().unwrap().runtime_class_name.clone();
    lab.create(sharing_pod("before", fraction("0.5"))).await.unwrap();
    let before = lab.all_run("before", 1).await.remove(0);
    assert_eq!(class(&before), None);
    assert_eq!(class(&lab.reservations().await[0]), None);

    lab.apply(RUNTIME_CLASS).await;
    // It is cached for a second that there is none.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    lab.create(sharing_pod("after", fraction("0.9"))).await.unwrap();
    let after = lab.all_run("after", 1).await.remove(0);
    assert_eq!(class(&after).as_deref(), Some("nvidia"));
    let reservations = lab.reservations().await;
    let own = reservations
        .iter()
        .find(|pod| pod.labels()["runai-gpu-group"] == group(&after));
    assert_eq!(class(own.unwrap()).as_deref(), Some("nvidia"));
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn reservation_pods_have_a_high_priority_and_no_privileges() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let operator = lab.replica_with("one", SHARING).await;
    lab.create(sharing_pod("half", fraction("0.5"))).await.unwrap();
    lab.all_run("half", 1).await;
    let spec = lab.reservations().await.remove(0).spec.unwrap();
    assert_eq!(
        (spec.priority_class_name.as_deref(), spec.priority),
        (Some("unikai-reservation"), Some(1_000_000_000))
    );
    let seccomp = spec.security_context.and_then(|context| context.seccomp_profile);
    assert_eq!(seccomp.unwrap().type_, "RuntimeDefault");
    let container = &spec.containers[0];
    let resources = container.resources.clone().unwrap();
    assert_eq!(resources.requests, resources.limits);
    let named: Vec<_> = resources.requests.unwrap().into_keys().collect();
    assert_eq!(named, ["nvidia.com/gpu"]);
    let rights = container.security_context.clone().unwrap();
    assert_eq!(rights.capabilities.unwrap().drop.unwrap(), ["ALL"]);
    assert_eq!(
        (
            rights.allow_privilege_escalation,
            rights.read_only_root_filesystem,
            rights.run_as_non_root
        ),
        (Some(false), Some(true), Some(true))
    );
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_named_as_the_gpu_operator_configures() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    lab.apply(
        "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: clusterpolicies.nvidia.com}, spec: {group: nvidia.com, scope: Cluster, names: {kind: ClusterPolicy, plural: clusterpolicies}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}",
    )
    .await;
    let policy = json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy", "labels": {"app.kubernetes.io/version": "v25.10.0"}},
        "spec": {"cdi": {"enabled": true}},
    });
    lab.create_after_handover(policy).await;
    let operator = lab.replica_with("one", SHARING).await;
    lab.create(sharing_pod("half", fraction("0.5"))).await.unwrap();
    lab.all_run("half", 1).await;
    let maps = lab.config_maps().await;
    let visible: Vec<_> = maps
        .values()
        .filter_map(|map| map.get("NVIDIA_VISIBLE_DEVICES"))
        .collect();
    assert!(
        visible.len() == 1 && visible[0].starts_with("k8s.device-plugin.nvidia.com/gpu=GPU-"),
        "{visible:?}"
    );
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn config_maps_of_others_are_not_changed() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let operator = lab.replica_with("one", SHARING).await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs-0", "namespace": TEAM}, "data": {"keep": "this"},
    });
    lab.create(theirs).await.unwrap();
    let mut thief = sharing_pod("thief", fraction("0.5"));
    thief["metadata"]["annotations"]["runai/shared-gpu-configmap"] = json!("theirs");
    lab.create(thief).await.unwrap();
    let events: Api<Event> = Api::namespaced(lab.client.clone(), TEAM);
    eventually("an event on the pod says whose it is", async || {
        let events = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let said = events
            .into_iter()
            .filter_map(|event| Some((event.involved_object.name?, event.message?)));
        let said: Vec<_> = said.collect();
        let clash = |(name, message): &(String, String)| {
            name == "thief" && message.contains("config map theirs-0 is there already and was not made for this pod")
        };
        said.iter().any(clash).then_some(()).ok_or_else(|| format!("{said:?}"))
    })
    .await;
    let maps: Api<ConfigMap> = Api::namespaced(lab.client.clone(), TEAM);
    let map = maps.get("theirs-0").await.unwrap();
    assert_eq!(map.data, Some([("keep".to_owned(), "this".to_owned())].into()));
    assert_eq!(map.metadata.owner_references, None);

    // Others share the device meanwhile, and the pod is bound once the name is free.
    lab.create(sharing_pod("honest", fraction("0.5"))).await.unwrap();
    lab.runs("honest").await;
    maps.delete("theirs-0", &DeleteParams::default()).await.unwrap();
    lab.runs("thief").await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_gpu_sharing_manifests_are_reported() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let resource = ApiResource::erase::<Namespace>(&());
    let namespaces: Api<DynamicObject> = Api::all_with(lab.client.clone(), &resource);
    namespaces.delete(RESERVATIONS, &DeleteParams::default()).await.unwrap();
    eventually("the namespace is gone", async || {
        let there = namespaces.get_opt(RESERVATIONS).await.map_err(|e| e.to_string())?;
        there.map_or(Ok(()), |_| Err("it is there".to_owned()))
    })
    .await;
    let _operator = lab.replica_with("one", SHARING).await;
    lab.create(sharing_pod("half", fraction("0.5"))).await.unwrap();
    let events: Api<Event> = Api::namespaced(lab.client.clone(), TEAM);
    eventually("an event says what is missing", async || {
        let all = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let messages: Vec<_> = all.into_iter().filter_map(|event| event.message).collect();
        let told = messages
            .iter()
            .any(|message| message.contains("kubectl apply -f manifests/gpu-sharing/"));
        if told { Ok(()) } else { Err(format!("{messages:?}")) }
    })
    .await;
    // The roles of the namespace have gone with it.
    lab.server.rbac().forget();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_another_scheduler_that_names_a_shared_gpu_holds_nothing() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2)]).await;
    let operator = lab.replica_with("one", SHARING).await;
    lab.create(sharing_pod("mine", fraction("0.5"))).await.unwrap();
    let node = lab.runs("mine").await;
    let mut thief = sharing_pod("thief", fraction("0.5"));
    thief["spec"]["schedulerName"] = json!("default-scheduler");
    thief["spec"]["nodeName"] = json!(node);
    thief["metadata"]["labels"]["runai-gpu-group"] = json!(group(&lab.pods().get("mine").await.unwrap()));
    lab.create(thief).await.unwrap();
    lab.runs("thief").await;
    lab.delete_pod("mine").await;
    eventually("the GPU is given back", async || {
        let held = lab.reservations().await.len();
        (held == 0).then_some(()).ok_or_else(|| format!("{held} are held"))
    })
    .await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_get_another_gpu_when_their_reservation_pod_loses_it() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 2)]).await;
    let operator = lab.replica_with("one", SHARING).await;
    lab.create(deployment("serving", fraction("0.5"))).await.unwrap();
    let first = lab.all_run("serving", 1).await.remove(0);
    // As `unikai reserve` writes after a restart in which its container was given another GPU.
    let reservation = lab.reservations().await.remove(0).name_any();
    let itself = Identity::service_account(RESERVATIONS, RESERVATIONS);
    let itself = lab.server.client(&itself).await.unwrap();
    let api: Api<Pod> = Api::namespaced(itself, RESERVATIONS);
    let other = json!({"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "GPU-other"}}});
    api.patch(&reservation, &PatchParams::default(), &Patch::Merge(other))
        .await
        .unwrap();
    eventually("another pod runs, on a GPU that is held for it", async || {
        let pods = lab.all_pods().await;
        let new = pods
            .iter()
            .find(|pod| pod.uid() != first.uid() && phase(pod) == "Running");
        let new = new.ok_or_else(|| format!("{} pods", pods.len()))?;
        let held = lab.reservations().await;
        let devices: Vec<_> = held
            .iter()
            .map(|pod| pod.annotations()["run.ai/reserve_for_gpu_index"].clone())
            .collect();
        let maps = lab.config_maps().await;
        let map = maps.get(&format!("{}-0", new.annotations()["runai/shared-gpu-configmap"]));
        let told = map
            .and_then(|map| map.get("NVIDIA_VISIBLE_DEVICES"))
            .ok_or("no config map")?;
        let right = devices == [told.clone()] && told != "GPU-other";
        if right {
            Ok(())
        } else {
            Err(format!("{devices:?}, {told}"))
        }
    })
    .await;
    drop(operator);
}
