//! The NUMA exporter: the process on nodes, with a simulated kubelet; and the DaemonSet that the operator creates for it.

use std::convert::Infallible;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use prost::Message;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use unikai::api::{Config, SchedulingShard};
use unikai::cli::manifests;
use unikai::devcluster::apiserver::Identity;
use unikai::devcluster::world::NodeSpec;
use unikai::numa_exporter::kubelet::{
    ContainerDevices, ContainerMemory, ContainerResources, ListPodResourcesResponse, NumaNode, PodResources,
    TopologyInfo,
};

use super::configuration::{CONFIG, SHARD, change, says};
use super::lab::{Lab, Replica, TEAM, eventually, pod};

const NAMESPACE: &str = "kai-numa-exporter";
const NAME: &str = "numa-placement-exporter";
const OBSERVED: &str = "kai.scheduler/numa-placement-observed";

/// The response of the simulated kubelet; `None`: an error.
type Says = Arc<Mutex<Option<ListPodResourcesResponse>>>;

/// A kubelet's pod resources API.
fn kubelet(socket: &Path, says: Says) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let says = Arc::clone(&says);
            let answer = hyper::service::service_fn(move |request: Request<Incoming>| {
                let says = Arc::clone(&says);
                async move {
                    assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
                    let mut trailers = HeaderMap::new();
                    let said = says.lock().unwrap().clone();
                    trailers.insert("grpc-status", if said.is_some() { "0" } else { "14" }.parse().unwrap());
                    let message = said.unwrap_or_default().encode_to_vec();
                    let mut body = BytesMut::new();
                    body.put_u8(0);
                    body.put_u32(u32::try_from(message.len()).unwrap());
                    body.put_slice(&message);
                    let frames: Vec<Result<Frame<Bytes>, Infallible>> =
                        vec![Ok(Frame::data(body.freeze())), Ok(Frame::trailers(trailers))];
                    let body = StreamBody::new(futures::stream::iter(frames));
                    Ok::<_, Infallible>(Response::new(body))
                }
            });
            tokio::spawn(async move {
                let connection = auto::Builder::new(TokioExecutor::new()).http2_only();
                let _ = connection.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
}

/// A pod with so many GPUs and CPUs in a zone.
fn given(name: &str, zone: i64, gpus: usize, cpu_ids: &[i64]) -> PodResources {
    let topology = || {
        Some(TopologyInfo {
            nodes: vec![NumaNode { id: zone }],
        })
    };
    let container = ContainerResources {
        name: "main".to_owned(),
        devices: vec![ContainerDevices {
            resource_name: "nvidia.com/gpu".to_owned(),
            device_ids: (0..gpus).map(|gpu| format!("GPU-{gpu}")).collect(),
            topology: topology(),
        }],
        cpu_ids: cpu_ids.to_vec(),
        memory: vec![ContainerMemory {
            memory_type: "memory".to_owned(),
            size: 1 << 30,
            topology: topology(),
        }],
    };
    PodResources {
        name: name.to_owned(),
        namespace: TEAM.to_owned(),
        containers: vec![container],
    }
}

/// `unikai numa-exporter`, killed when dropped.
struct Exporter {
    child: Child,
    log: std::path::PathBuf,
}

impl Exporter {
    fn start(lab: &Lab, folder: &Path, identity: &Identity) -> Self {
        lab.server.rbac().hold(identity);
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, lab.server.kubeconfig(identity)).unwrap();
        let log = folder.join("log");
        let child = Command::new(env!("CARGO_BIN_EXE_unikai"))
            .args(["--log-format", "json", "numa-exporter", "--poll-interval", "100ms"])
            .args(["--drift-resync-interval", "500ms", "--podresources-socket"])
            .arg(folder.join("kubelet.sock"))
            .arg("--sysfs-root")
            .arg(folder.join("sys"))
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env("NODE_NAME", "gpu-1")
            .stdout(File::create(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the exporter's log:\n{}", self.log());
        }
    }
}

/// A node's /sys with two zones of four CPUs.
fn sysfs(folder: &Path) {
    for (zone, list) in [("node0", "0-3\n"), ("node1", "4-7\n")] {
        let zone = folder.join("sys/devices/system/node").join(zone);
        std::fs::create_dir_all(&zone).unwrap();
        std::fs::write(zone.join("cpulist"), list).unwrap();
    }
}

async fn observed(lab: &Lab, name: &str, expected: &str) {
    eventually(&format!("{name} says {expected}"), async || {
        let pod: Pod = lab.pods().get(name).await.map_err(|error| error.to_string())?;
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let says = annotations.get(OBSERVED).cloned().unwrap_or_default();
        (says == expected).then_some(()).ok_or(says)
    })
    .await;
}

async fn install(lab: &Lab) {
    for (_, yaml) in manifests::numa_exporter() {
        lab.apply(&yaml).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_allocated_by_the_kubelet_are_written_on_pods() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    install(&lab).await;
    let operator = lab.replica("one").await;
    lab.create(pod("ours", 2)).await.unwrap();
    lab.runs("ours").await;
    // A pod of another scheduler: every client with the right to patch it may change its annotations.
    let mut free = pod("free", 0);
    free["spec"]["schedulerName"] = json!("other");
    free["spec"]["nodeName"] = json!("gpu-1");
    lab.create(free.clone()).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    sysfs(folder.path());
    let says: Says = Arc::default();
    kubelet(&folder.path().join("kubelet.sock"), Arc::clone(&says));
    let identity = Identity::service_account(NAMESPACE, NAME);
    let exporter = Exporter::start(&lab, folder.path(), &identity);
    eventually("a kubelet that fails is told of", async || {
        let log = exporter.log();
        let told = log.contains("the kubelet says: status 14");
        told.then_some(()).ok_or(log)
    })
    .await;
    let pods = vec![
        given("ours", 0, 2, &[1, 2, 4]),
        given("free", 1, 0, &[]),
        given("unknown", 1, 1, &[]),
    ];
    *says.lock().unwrap() = Some(ListPodResourcesResponse { pod_resources: pods });
    let ours = concat!(
        r#"[{"zone":"node-0","amount":{"cpu":"2","memory":"1073741824","nvidia.com/gpu":"2"}},"#,
        r#"{"zone":"node-1","amount":{"cpu":"1"}}]"#
    );
    observed(&lab, "ours", ours).await;
    let memory = r#"[{"zone":"node-1","amount":{"memory":"1073741824"}}]"#;
    observed(&lab, "free", memory).await;
    assert_eq!(
        exporter.log().matches("status 14").count(),
        2,
        "once when it begins, once when it ends"
    );

    // What others write is repaired.
    let forged = json!({"metadata": {"annotations": {OBSERVED: "forged"}}});
    let patch = Patch::Merge(forged);
    lab.pods().patch("free", &PatchParams::default(), &patch).await.unwrap();
    observed(&lab, "free", memory).await;

    // A pod of the same name with the same zones is another pod.
    lab.pods()
        .delete("free", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    eventually("the pod is there again", async || {
        lab.create(free.clone())
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await;
    observed(&lab, "free", memory).await;

    // Nothing is written while nothing changes. The last write is recorded after its object can be read, and is repeated if the annotations are
    // compared before the watch shows it.
    let writes = || lab.server.audit().writes_of(&identity).len();
    eventually("the writes end", async || {
        let before = writes();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let since = writes() - before;
        if since == 0 {
            Ok(())
        } else {
            Err(format!("{since} writes in 2 s"))
        }
    })
    .await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exporter_may_change_only_its_annotation() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    install(&lab).await;
    let mut free = pod("free", 0);
    free["spec"]["schedulerName"] = json!("other");
    free["spec"]["nodeName"] = json!("cpu-1");
    lab.create(free).await.unwrap();
    let exporter = lab
        .server
        .client(&Identity::service_account(NAMESPACE, NAME))
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(exporter, TEAM);
    let patch = async |patch: Value| {
        let patched = pods.patch("free", &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| error.to_string())
    };
    patch(json!({"metadata": {"annotations": {OBSERVED: "[]"}}}))
        .await
        .unwrap();
    for more in [
        json!({"metadata": {"annotations": {OBSERVED: "[]", "other": "a"}}}),
        json!({"metadata": {"labels": {"other": "a"}}}),
        json!({"spec": {"activeDeadlineSeconds": 1}}),
    ] {
        let refused = patch(more).await.unwrap_err();
        assert!(refused.contains("changes its annotation alone"), "{refused}");
    }
}

fn sets(lab: &Lab) -> Api<DaemonSet> {
    Api::namespaced(lab.client.clone(), NAMESPACE)
}

async fn set(lab: &Lab, what: &str, is_so: impl Fn(&Value) -> bool) -> DaemonSet {
    eventually(what, async || {
        let set = sets(lab).get(NAME).await.map_err(|error| error.to_string())?;
        let value = serde_json::to_value(&set).unwrap();
        if is_so(&value) { Ok(set) } else { Err(value.to_string()) }
    })
    .await
}

async fn no_set(lab: &Lab) {
    eventually("there is no DaemonSet", async || {
        let found = sets(lab).get_opt(NAME).await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |found| Err(format!("{found:?}")))
    })
    .await;
}

fn writes(lab: &Lab, operator: &Replica) -> Vec<String> {
    let writes = lab.writes_of(operator).into_iter();
    writes.filter(|write| write.contains("daemonsets")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_set_is_created_and_deleted_with_its_settings() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    install(&lab).await;
    let operator = lab.replica("one").await;
    says(&lab, SHARD, "Deployed", "True", 1).await;
    let numa = |on: bool| json!({"spec": {"plugins": {"numa": {"enabled": on}}}});
    let config = |exporter: Value| json!({"spec": {"numaPlacementExporter": exporter}});
    change::<SchedulingShard>(&lab, SHARD, numa(true)).await;
    let made = set(&lab, "a shard asks for it", |_| true).await;
    let owner = made.metadata.owner_references.unwrap().remove(0);
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("ClusterRole", "unikai"));
    let pod = made.spec.unwrap().template.spec.unwrap();
    assert_eq!(
        pod.node_selector.unwrap()["feature.node.kubernetes.io/memory-numa"],
        "true"
    );
    assert_eq!(pod.service_account_name.as_deref(), Some(NAME));

    let generation = change::<Config>(&lab, CONFIG, config(json!({"pollInterval": "5s"}))).await;
    set(&lab, "it follows Config", |set| {
        set.to_string().contains("--poll-interval=5s")
    })
    .await;
    says(&lab, CONFIG, "DependenciesFulfilled", "True", generation).await;
    let broken =
        json!({"spec": {"template": {"spec": {"nodeSelector": {"feature.node.kubernetes.io/memory-numa": "false"}}}}});
    sets(&lab)
        .patch(NAME, &PatchParams::default(), &Patch::Merge(broken))
        .await
        .unwrap();
    set(&lab, "it is repaired", |set| {
        set["spec"]["template"]["spec"]["nodeSelector"]["feature.node.kubernetes.io/memory-numa"] == "true"
    })
    .await;
    // Its status is no difference, nor is what others add.
    let noted = json!({"metadata": {"labels": {"theirs": "a"}}});
    sets(&lab)
        .patch(NAME, &PatchParams::default(), &Patch::Merge(noted))
        .await
        .unwrap();

    // Another selector cannot be repaired in place.
    sets(&lab).delete(NAME, &DeleteParams::default()).await.unwrap();
    set(&lab, "it is made again", |_| true).await;

    change::<Config>(&lab, CONFIG, config(json!({"service": {"enabled": false}}))).await;
    no_set(&lab).await;
    change::<Config>(&lab, CONFIG, config(json!({"service": {"enabled": null}}))).await;
    set(&lab, "the shard asks for it again", |_| true).await;
    change::<SchedulingShard>(&lab, SHARD, numa(false)).await;
    no_set(&lab).await;
    change::<Config>(&lab, CONFIG, config(json!({"service": {"enabled": true}}))).await;
    set(&lab, "Config asks for it", |_| true).await;
    let expected = [
        "create", "update", "update", "create", "delete", "create", "delete", "create",
    ];
    // A write is recorded after its object can be read.
    eventually("each write is recorded", async || {
        let all = writes(&lab, &operator);
        if all.len() < expected.len() {
            Err(format!("{all:?}"))
        } else {
            Ok(())
        }
    })
    .await;
    let all = writes(&lab, &operator);
    let verbs: Vec<_> = all.iter().filter_map(|write| write.split(' ').next()).collect();
    assert_eq!(verbs, expected, "{all:?}");
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_reported_in_the_config_and_affects_nothing_else() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    let operator = lab.replica("one").await;
    let on = json!({"spec": {"numaPlacementExporter": {"service": {"enabled": true}}}});
    let generation = change::<Config>(&lab, CONFIG, on).await;
    let message = says(&lab, CONFIG, "DependenciesFulfilled", "False", generation).await;
    assert_eq!(
        message,
        "\nNumaPlacementExporter is missing the right to make its DaemonSet: apply manifests/numa-exporter"
    );
    says(&lab, CONFIG, "Available", "True", generation).await;
    lab.create(pod("runs", 0)).await.unwrap();
    lab.runs("runs").await;
    assert_eq!(writes(&lab, &operator), Vec::<String>::new());

    // The right comes later, and is found without a restart.
    install(&lab).await;
    set(&lab, "it is made", |_| true).await;
    says(&lab, CONFIG, "DependenciesFulfilled", "True", generation).await;
    assert_eq!(operator.log().matches("is missing the right").count(), 1);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_set_is_deleted_with_the_manifests() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    install(&lab).await;
    let mut operator = lab.replica("one").await;
    let on = json!({"spec": {"numaPlacementExporter": {"service": {"enabled": true}}}});
    change::<Config>(&lab, CONFIG, on).await;
    set(&lab, "it is made", |_| true).await;
    for (name, yaml) in manifests::files("unikai:test") {
        if !name.contains("operator.yaml") {
            lab.delete(&yaml).await;
        }
    }
    no_set(&lab).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    no_set(&lab).await;
    operator.kill();
    // It had no rights any more.
    lab.server.rbac().forget();
}
