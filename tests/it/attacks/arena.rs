//! A cluster under attack: the embedded API server or a real one, simulated kubelets, the operator as a process of its own, a tenant
//! who may only write pods, jobs and pod groups of the namespace `evil`, and an innocent tenant in the namespace `team`.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config, ResourceExt};
use serde::Deserialize as _;
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer};
use unikai::devcluster::world::{NodeSpec, World, WorldHandle, WorldOptions};

use crate::apiserver::harness::own_real_server;
use crate::polling::in_time;
use crate::support::{create, free_port};

/// The environment variable that names another binary of the operator than the one that was built with the tests, such as a release build.
pub const OPERATOR: &str = "UNIKAI_OPERATOR";
/// The attacker's namespace.
pub const EVIL: &str = "evil";
/// The innocent tenant's namespace.
pub const TEAM: &str = "team";
/// GPUs that the attacker's queue may have.
pub const LIMIT: f64 = 4.0;
/// The attacker's name.
const TENANT: &str = "mallory";
/// The GPUs of a node.
const GPUS: u32 = 4;

/// Devices that pods may claim.
const DEVICES: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: x.example.com}
spec:
  selectors: [{cel: {expression: \"device.driver == 'x.example.com'\"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: cpu-1-devices}
spec:
  driver: x.example.com
  nodeName: cpu-1
  pool: {name: cpu-1, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: d0, attributes: {name: {string: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}}}
  - {name: d1, attributes: {name: {string: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab}}}
";

/// What a pod was created with, whatever it is changed to later.
#[derive(Clone, Debug)]
struct Claimed {
    namespace: String,
    gpus: f64,
    /// What it uses of each device that it shares; 0 if it shares none.
    portion: f64,
}

/// The cluster.
pub struct Arena {
    /// The administrator.
    pub admin: Client,
    /// The attacker.
    pub tenant: Client,
    /// A client with the operator's rights.
    pub operator_client: Client,
    /// Where the operator's webhooks listen.
    pub webhooks: u16,
    /// Where its health and metrics are.
    pub http: u16,
    world: WorldHandle,
    operator: Mutex<Option<Child>>,
    command: Mutex<Command>,
    claimed: Mutex<BTreeMap<String, Claimed>>,
    devices: Mutex<BTreeMap<String, String>>,
    rss_at_start: Mutex<u64>,
    /// Counts the begin and the end of each restart.
    restarts: AtomicUsize,
    server: Option<RunningServer>,
    folder: tempfile::TempDir,
}

impl Arena {
    /// The embedded API server.
    pub async fn embedded() -> Arena {
        let server = ApiServer::start(Options::default())
            .await
            .expect("the API server starts");
        Self::embedded_in(server, &[]).await
    }

    /// The size of an attack: all on a real API server, a third on the embedded one, which takes long in a debug build.
    pub fn size(&self, all: usize) -> usize {
        if self.server.is_some() { all / 3 } else { all }
    }

    /// The same with a server that runs already, and more flags of the operator.
    pub async fn embedded_in(server: RunningServer, flags: &[&str]) -> Arena {
        let (operator, tenant) = (Identity::operator(), Identity::user(TENANT, &[]));
        server.rbac().hold(&operator);
        server.rbac().hold(&tenant);
        let [admin, operator, tenant] = [Identity::admin(), operator, tenant].map(|who| server.kubeconfig(&who));
        Self::set_up([admin, operator, tenant], Some(server), flags).await
    }

    /// A real API server, if its binaries are there.
    pub async fn real() -> Option<Arena> {
        Self::real_with("", &[]).await
    }

    /// The same with more flags of the API server and of the operator.
    pub async fn real_with(server: &str, flags: &[&str]) -> Option<Arena> {
        let path = own_real_server(server).await?;
        let admin = std::fs::read_to_string(path).expect("a kubeconfig");
        let acting_as = |user: &str, groups: &[&str]| {
            let mut config: Value = serde_yaml_ng::from_str(&admin).expect("YAML");
            config["users"][0]["user"]["as"] = json!(user);
            config["users"][0]["user"]["as-groups"] = json!(groups);
            serde_yaml_ng::to_string(&config).expect("YAML")
        };
        let operator = acting_as(
            "system:serviceaccount:kai-scheduler:unikai",
            &[
                "system:serviceaccounts",
                "system:serviceaccounts:kai-scheduler",
                "system:authenticated",
            ],
        );
        let tenant = acting_as(TENANT, &["system:authenticated"]);
        Some(Self::set_up([admin, operator, tenant], None, flags).await)
    }

    async fn set_up([admin, operator, tenant]: [String; 3], server: Option<RunningServer>, flags: &[&str]) -> Arena {
        let folder = tempfile::tempdir().expect("a folder");
        let (admin, tenant) = (connect(&admin).await, connect(&tenant).await);
        let operator_client = connect(&operator).await;
        let nodes = ["gpu-1", "gpu-2"].map(|name| NodeSpec::gpu(name, GPUS)).into_iter();
        let world = WorldOptions {
            nodes: nodes.chain([NodeSpec::cpu("cpu-1")]).collect(),
            ..WorldOptions::default()
        };
        let world = World::start(admin.clone(), world).await.expect("the world starts");
        let path = folder.path().join("operator.kubeconfig");
        std::fs::write(&path, operator).expect("a kubeconfig");
        let (http, webhooks) = (free_port(), free_port());
        let built = || env!("CARGO_BIN_EXE_unikai").into();
        let mut command = Command::new(std::env::var_os(OPERATOR).unwrap_or_else(built));
        command
            .args(["--log-format", "json", "run", "--gpu-sharing", "true", "--kubeconfig"])
            .arg(&path)
            .args(["--http-address", &format!("127.0.0.1:{http}")])
            .args(["--webhook-address", &format!("127.0.0.1:{webhooks}")])
            .args(["--webhook-url", &format!("https://127.0.0.1:{webhooks}")])
            .args(flags);
        let arena = Arena {
            admin,
            tenant,
            operator_client,
            webhooks,
            http,
            world,
            operator: Mutex::new(None),
            command: Mutex::new(command),
            claimed: Mutex::default(),
            devices: Mutex::default(),
            rss_at_start: Mutex::default(),
            restarts: AtomicUsize::default(),
            server,
            folder,
        };
        arena.install().await;
        arena.start_operator().await;
        // Pods that are created before the webhooks are registered miss what these add, such as the names of ConfigMaps.
        arena
            .eventually("the operator is ready", async || {
                let answer = arena.http_get("/readyz").await.map_err(|error| error.to_string())?;
                answer.starts_with("HTTP/1.1 200").then_some(()).ok_or(answer)
            })
            .await;
        arena
    }

    async fn install(&self) {
        let files = unikai::cli::manifests::files("unikai:test").into_iter();
        for (name, yaml) in files.chain(unikai::cli::manifests::gpu_sharing()) {
            if !name.contains("operator.yaml") {
                self.apply(&yaml).await;
            }
        }
        let rights = json!([
            {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": ["*"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
            {"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups", "podgroups/status"], "verbs": ["*"]},
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["*"]},
            {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["*"]},
        ]);
        self.apply(DEVICES).await;
        for namespace in [EVIL, TEAM] {
            self.create_as_admin(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
                .await;
        }
        self.create_as_admin(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": TENANT, "namespace": EVIL}, "rules": rights,
        }))
        .await;
        self.create_as_admin(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": TENANT, "namespace": EVIL},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": TENANT},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT}],
        }))
        .await;
        // No controller aggregates roles here, so the operator is bound to the aggregated role directly.
        self.create_as_admin(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "owners"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "unikai-owners-known"},
            "subjects": [{"kind": "ServiceAccount", "name": "unikai", "namespace": "kai-scheduler"}],
        }))
        .await;
        let queue = |name: &str, parent: Option<&str>, gpu: Value| {
            let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
            let mut spec = json!({"resources": {"cpu": open, "memory": open, "gpu": gpu}});
            if let Some(parent) = parent {
                spec["parentQueue"] = json!(parent);
            }
            json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
        };
        let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        self.create_as_admin(queue("default", None, open.clone())).await;
        self.create_as_admin(queue("innocent", Some("default"), open)).await;
        self.create_as_admin(queue(
            "greedy",
            Some("default"),
            json!({"quota": 2, "limit": LIMIT, "overQuotaWeight": 1}),
        ))
        .await;
    }

    /// Creates every document of a YAML text, once what it needs is served.
    async fn apply(&self, yaml: &str) {
        for document in serde_yaml_ng::Deserializer::from_str(yaml) {
            let object = Value::deserialize(document).expect("YAML");
            if !object.is_null() {
                self.create_as_admin(object).await;
            }
        }
    }

    async fn create_as_admin(&self, object: Value) {
        self.eventually(
            &format!("{} is created", object["metadata"]["name"]),
            async || match create(&self.admin, object.clone()).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                Err(error) => Err(error.to_string()),
            },
        )
        .await;
    }

    /// Starts the operator, and waits until it leads.
    pub async fn start_operator(&self) {
        let log = self.folder.path().join("operator.log");
        let log = || {
            std::fs::File::options()
                .create(true)
                .append(true)
                .open(&log)
                .expect("a log")
        };
        let child = self
            .command
            .lock()
            .unwrap()
            .stdout(Stdio::from(log()))
            .stderr(Stdio::from(log()))
            .spawn();
        *self.operator.lock().unwrap() = Some(child.expect("the operator starts"));
        self.eventually("the operator leads", async || {
            let metrics = self.http_get("/metrics").await.map_err(|error| error.to_string())?;
            let leads = metrics
                .lines()
                .any(|line| line.starts_with("unikai_leader") && line.ends_with(" 1"));
            leads.then_some(()).ok_or_else(|| "it does not lead".to_owned())
        })
        .await;
        // The first pod also waits for default queues.
        self.innocent().await;
        *self.rss_at_start.lock().unwrap() = self.rss();
    }

    /// `kill -9`, and a new process, which leads at the end.
    pub async fn restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        let mut child = self.operator.lock().unwrap().take().expect("an operator");
        child.kill().expect("killed");
        child.wait().expect("gone");
        self.start_operator().await;
        self.innocent().await;
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Memory of the operator in MiB.
    pub fn rss(&self) -> u64 {
        let id = self.operator.lock().unwrap().as_ref().expect("an operator").id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or_default() / 1024
    }

    /// A plain HTTP GET of the operator.
    pub async fn http_get(&self, path: &str) -> std::io::Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        self.http_send(&request).await
    }

    /// Sends a whole request of HTTP/1.1 to the operator, and reads until it closes the connection.
    pub async fn http_send(&self, request: &str) -> std::io::Result<String> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.http)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// The attacker creates an object. The caller may ignore the result: a refusal is as good as an attack without effect.
    pub async fn create(&self, object: Value) -> kube::Result<DynamicObject> {
        let created = create(&self.tenant, object.clone()).await?;
        if object["kind"] == "Pod" {
            let uid = created.uid().unwrap_or_default();
            self.claimed.lock().unwrap().insert(uid, claimed(&object));
        }
        Ok(created)
    }

    /// The attacker merges a patch into a pod.
    pub async fn patch(&self, pod: &str, patch: Value) -> kube::Result<Pod> {
        let api: Api<Pod> = Api::namespaced(self.tenant.clone(), EVIL);
        api.patch(pod, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    /// The attacker's pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.tenant.clone(), EVIL)
    }

    /// Waits until a pod of the attacker runs.
    pub async fn runs(&self, name: &str) {
        self.eventually(&format!("{name} runs"), async || {
            let pod = self.pods().get(name).await.map_err(|error| error.to_string())?;
            (phase(&pod) == "Running")
                .then_some(())
                .ok_or_else(|| format!("{:?}", pod.status))
        })
        .await;
        self.note_devices().await;
    }

    /// Creates an innocent pod, waits until it is bound, and deletes it. Returns the time from creation to binding.
    pub async fn innocent(&self) -> Duration {
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), TEAM);
        let name = format!("innocent-{}", uuid::Uuid::new_v4().simple());
        let mut pod = pod(&name, json!({"cpu": "10m"}));
        pod["metadata"]["namespace"] = json!(TEAM);
        pod["metadata"]["labels"] = json!({"kai.scheduler/queue": "innocent"});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let began = Instant::now();
        self.eventually("an innocent pod is admitted", async || {
            api.create(&PostParams::default(), &pod)
                .await
                .map(drop)
                .map_err(|error| error.to_string())
        })
        .await;
        self.eventually("an innocent pod is bound", async || {
            let pod = api.get(&name).await.map_err(|error| error.to_string())?;
            let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            bound.then_some(()).ok_or_else(|| format!("{:?}", pod.status))
        })
        .await;
        let took = began.elapsed();
        let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
        took
    }

    /// Creates and deletes innocent pods until the attack ends. Returns the longest wait of one of them. Those that waited for a restart of the operator,
    /// thus for the old one's Lease to end, do not count.
    pub async fn innocents_during(&self, attack: impl Future<Output = ()>) -> Duration {
        let mut attack = std::pin::pin!(attack);
        let mut longest = Duration::ZERO;
        loop {
            tokio::select! {
                () = &mut attack => break,
                took = async {
                    let before = self.restarts.load(Ordering::Relaxed);
                    let took = self.innocent().await;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    let after = self.restarts.load(Ordering::Relaxed);
                    if after == before && before.is_multiple_of(2) { took } else { Duration::ZERO }
                } => longest = longest.max(took),
            }
        }
        longest.max(self.innocent().await)
    }

    /// The rules that hold whatever happens: the operator was never restarted, the attacker's queue is within its limit, no node and no
    /// device is given twice, counted by what pods were created with.
    pub async fn holds(&self) {
        {
            let mut operator = self.operator.lock().unwrap();
            let ended = operator.as_mut().expect("an operator").try_wait().expect("its state");
            assert!(ended.is_none(), "the operator ended: {ended:?}\n{}", self.log());
        }
        assert_eq!(
            self.world.refused_gpu_pods(),
            0,
            "a kubelet had no device for a pod\n{}",
            self.log()
        );
        self.note_devices().await;
        let all: Api<Pod> = Api::all(self.admin.clone());
        let pods = all.list(&ListParams::default()).await.expect("pods").items;
        let on_node = |pod: &&Pod| {
            pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
                && !matches!(&*phase(pod), "Succeeded" | "Failed")
        };
        let reserved: BTreeMap<&str, &Pod> = (pods.iter().filter(on_node))
            .filter(|pod| pod.namespace().as_deref() == Some("kai-resource-reservation"))
            .filter_map(|pod| Some((pod.annotations().get("run.ai/reserve_for_gpu_index")?.as_str(), pod)))
            .collect();
        let (mut of_tenant, mut of_device) = (0.0, BTreeMap::<String, f64>::new());
        for pod in pods.iter().filter(on_node) {
            let uid = pod.uid().unwrap_or_default();
            let Some(claimed) = self.claimed.lock().unwrap().get(&uid).cloned() else {
                continue;
            };
            if claimed.namespace == EVIL {
                of_tenant += claimed.gpus;
            }
            if claimed.portion > 0.0 && phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none() {
                let devices = self.devices.lock().unwrap().get(&uid).cloned();
                let devices =
                    devices.unwrap_or_else(|| panic!("{} runs without a device\n{}", pod.name_any(), self.log()));
                for device in devices.split(',') {
                    assert!(
                        reserved.contains_key(device),
                        "{} uses {device}, which no reservation holds: {:?}\n{}",
                        pod.name_any(),
                        reserved.keys(),
                        self.log()
                    );
                    *of_device.entry(device.to_owned()).or_default() += claimed.portion;
                }
            }
        }
        assert!(
            of_tenant <= LIMIT + 1e-9,
            "the queue has {of_tenant} GPUs of {LIMIT}\n{}",
            self.log()
        );
        for (device, used) in of_device {
            assert!(used <= 1.0 + 1e-9, "{device} is given {used} times\n{}", self.log());
        }
    }

    /// Records the first device of each sharing pod.
    async fn note_devices(&self) {
        let all: Api<ConfigMap> = Api::namespaced(self.admin.clone(), EVIL);
        let maps = all.list(&ListParams::default()).await.expect("config maps").items;
        for map in maps {
            let owner = map.owner_references().first().map(|owner| owner.uid.clone());
            let device = map.data.as_ref().and_then(|data| data.get("NVIDIA_VISIBLE_DEVICES"));
            if let (Some(owner), Some(device)) = (owner, device) {
                self.devices
                    .lock()
                    .unwrap()
                    .entry(owner)
                    .or_insert_with(|| device.clone());
            }
        }
    }

    /// Deletes everything that the attacker created, and waits until it is gone.
    pub async fn clean_up(&self) {
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), EVIL);
        let kinds = [
            ("batch/v1", "Job"),
            ("scheduling.run.ai/v2alpha2", "PodGroup"),
            ("v1", "Pod"),
        ];
        for (version, kind) in kinds {
            let resource = resource_of(version, kind);
            let api: Api<DynamicObject> = Api::namespaced_with(self.admin.clone(), EVIL, &resource);
            let how = DeleteParams::background().grace_period(0);
            let _ = api.delete_collection(&how, &ListParams::default()).await;
        }
        self.eventually("the attacker's pods are gone", async || {
            let left = pods
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?
                .items;
            for pod in left.iter().filter(|pod| pod.metadata.finalizers.is_some()) {
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let _ = pods.patch(&pod.name_any(), &PatchParams::default(), &none).await;
            }
            left.is_empty()
                .then_some(())
                .ok_or_else(|| format!("{} are left", left.len()))
        })
        .await;
    }

    /// Bytes that the operator has logged.
    pub fn logged(&self) -> u64 {
        let log = self.folder.path().join("operator.log").metadata();
        log.map(|log| log.len()).unwrap_or_default()
    }

    /// Growth of the operator's memory since its start, MiB.
    pub fn growth(&self) -> i64 {
        self.rss().cast_signed() - self.rss_at_start.lock().unwrap().cast_signed()
    }

    /// Panics in the operator's log, and its last lines.
    pub fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("operator.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let panics = lines
            .windows(2)
            .filter(|pair| pair[0].contains("panicked at"))
            .flatten();
        let last = &lines[lines.len().saturating_sub(30)..];
        let short = |line: &&str| line.chars().take(600).collect::<String>();
        panics.chain(last).map(short).collect::<Vec<_>>().join("\n")
    }

    /// Waits until it is found; else prints the operator's log.
    pub async fn eventually<T>(&self, what: &str, look: impl AsyncFnMut() -> Result<T, String>) -> T {
        match in_time(look).await {
            Ok(found) => found,
            Err(why) => panic!("not in time: {what}: {why}\n{}", self.log()),
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some(child) = self.operator.get_mut().ok().and_then(Option::as_mut) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A pod of the attacker, of our scheduler, that runs until it is deleted.
pub fn pod(name: &str, limits: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": EVIL, "labels": {"kai.scheduler/queue": "greedy"}},
        "spec": {
            "schedulerName": "kai-scheduler", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "ubuntu", "args": ["sleep", "infinity"], "resources": {"limits": limits}}],
        },
    })
}

/// A pod with whole GPUs.
pub fn with_gpus(name: &str, gpus: u32) -> Value {
    pod(name, json!({"nvidia.com/gpu": gpus.to_string()}))
}

/// A pod with a part of a GPU.
pub fn with_fraction(name: &str, fraction: &str) -> Value {
    let mut pod = pod(name, json!({}));
    pod["metadata"]["annotations"] = json!({"gpu-fraction": fraction});
    pod
}

/// The whole GPUs that a pod holds: of its containers and sidecars at the same time, or of an init container with the sidecars before it, whichever is
/// more.
fn whole_gpus(spec: &Value) -> Option<f64> {
    let of = |container: &Value| -> Option<f64> {
        let gpus = &container["resources"]["limits"]["nvidia.com/gpu"];
        gpus.as_str()?.parse().ok()
    };
    let all = |list: &str| spec[list].as_array().cloned().unwrap_or_default();
    let (mut sidecars, mut most, mut any) = (0.0, 0.0_f64, false);
    for container in all("initContainers") {
        let Some(gpus) = of(&container) else { continue };
        any = true;
        if container["restartPolicy"] == "Always" {
            sidecars += gpus;
        } else {
            most = most.max(sidecars + gpus);
        }
    }
    let regular: Vec<f64> = all("containers").iter().filter_map(of).collect();
    any |= !regular.is_empty();
    any.then(|| most.max(sidecars + regular.iter().sum::<f64>()))
}

fn claimed(pod: &Value) -> Claimed {
    let whole = whole_gpus(&pod["spec"]);
    let annotation = |name: &str| pod["metadata"]["annotations"][name].as_str()?.parse::<f64>().ok();
    let fraction = annotation("gpu-fraction").unwrap_or_default();
    // A pod of another scheduler is on its node, and in no queue.
    let queued = f64::from(u8::from(pod["spec"]["schedulerName"] == "kai-scheduler"));
    Claimed {
        namespace: pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
        gpus: queued * whole.unwrap_or(fraction * annotation("gpu-fraction-num-devices").unwrap_or(1.0)),
        portion: if whole.is_none() { fraction } else { 0.0 },
    }
}

/// The phase of a pod.
pub fn phase(pod: &Pod) -> String {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.clone())
        .unwrap_or_default()
}

fn resource_of(version: &str, kind: &str) -> ApiResource {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

async fn connect(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a configuration");
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}
