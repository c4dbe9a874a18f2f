//! An embedded cluster with a simulated world, and replicas of the operator as processes that a test can kill.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize as _;
use serde_json::{Value, json};
use unikai::api::queue::Queue;
use unikai::devcluster::apiserver::rbac::Right;
use unikai::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer};
use unikai::devcluster::world::{NodeSpec, World, WorldHandle, WorldOptions};

pub use crate::polling::{MAX_WAIT, eventually};
use crate::support::{self, free_port};

/// Short times of leader election, so that tests do not wait long.
pub const QUICK_LEASE: &[&str] = &[
    "--lease-duration",
    "3",
    "--lease-renew-deadline",
    "2",
    "--lease-retry-period",
    "0.5",
];

/// The environment variable that names the folder where the rights are written down that journeys used.
pub const RIGHTS: &str = "UNIKAI_RIGHTS";

/// The namespace of the tests' workloads.
pub const TEAM: &str = "team";

/// A cluster to try the operator on.
pub struct Lab {
    pub server: RunningServer,
    pub world: WorldHandle,
    pub client: Client,
    dir: tempfile::TempDir,
}

impl Lab {
    /// A cluster with these nodes, everything of `manifests/` but the operator itself, the namespace `team`, and the queues
    /// `default` and, below it, `test`.
    pub async fn start(nodes: Vec<NodeSpec>) -> Lab {
        let server = ApiServer::start(Options::default())
            .await
            .expect("the API server starts");
        let client = server.client(&Identity::admin()).await.expect("a client");
        let world = WorldOptions {
            nodes,
            ..WorldOptions::default()
        };
        let world = World::start(client.clone(), world).await.expect("the world starts");
        let lab = Lab {
            server,
            world,
            client,
            dir: tempfile::tempdir().expect("a folder"),
        };
        let files = unikai::cli::manifests::files("unikai:test").into_iter();
        for (name, yaml) in files.chain(unikai::cli::manifests::gpu_sharing()) {
            if !name.contains("operator.yaml") {
                lab.apply(&yaml).await;
            }
        }
        lab.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {TEAM}}}"))
            .await;
        lab.apply(&queue("default", None)).await;
        lab.apply(&queue("test", Some("default"))).await;
        lab
    }

    /// Creates every document of a YAML text.
    pub async fn apply(&self, yaml: &str) {
        for document in serde_yaml_ng::Deserializer::from_str(yaml) {
            let object = Value::deserialize(document).expect("YAML");
            if !object.is_null() {
                self.create(object.clone())
                    .await
                    .unwrap_or_else(|e| panic!("{}: {e}", object["metadata"]["name"]));
            }
        }
    }

    /// Creates an object of any kind.
    pub async fn create(&self, object: Value) -> kube::Result<DynamicObject> {
        support::create(&self.client, object).await
    }

    /// Creates an object, again and again while the webhooks of a replica that is gone are still registered.
    pub async fn create_after_handover(&self, object: Value) {
        eventually("the webhooks are those of the new leader", async || {
            self.create(object.clone()).await.map(drop).map_err(|e| e.to_string())
        })
        .await;
    }

    /// Starts a replica of the operator and waits until it is ready.
    pub async fn replica(&self, name: &str) -> Replica {
        self.replica_with(name, &[]).await
    }

    /// The same with more flags.
    pub async fn replica_with(&self, name: &str, flags: &[&str]) -> Replica {
        let replica = self.spawn(name, flags);
        replica.ready().await;
        replica
    }

    /// Starts a replica, which writes as the operator in a pod of its own, and does not wait.
    pub fn spawn(&self, name: &str, flags: &[&str]) -> Replica {
        let identity = Identity::operator().in_pod(name);
        self.server.rbac().hold(&identity);
        let kubeconfig = self.dir.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, self.server.kubeconfig(&identity)).expect("a kubeconfig");
        let log = self.dir.path().join(format!("{name}.log"));
        let (http, webhooks) = (free_port(), free_port());
        let child = Command::new(env!("CARGO_BIN_EXE_unikai"))
            .args(["--log-format", "json", "run", "--identity", name])
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["--http-address", &format!("127.0.0.1:{http}")])
            .args(["--webhook-address", &format!("127.0.0.1:{webhooks}")])
            .args(["--webhook-url", &format!("https://127.0.0.1:{webhooks}")])
            .args(flags)
            .stdout(File::create(&log).expect("a log"))
            .stderr(Stdio::from(File::options().append(true).open(&log).expect("a log")))
            .spawn()
            .expect("the operator starts");
        Replica {
            child,
            http,
            webhooks,
            log,
            identity,
            token: self.server.token(&Identity::admin()),
        }
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), TEAM)
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub fn queues(&self) -> Api<Queue> {
        Api::all(self.client.clone())
    }

    pub async fn all_pods(&self) -> Vec<Pod> {
        self.pods().list(&ListParams::default()).await.expect("pods").items
    }

    /// Waits until so many pods run.
    pub async fn running(&self, pods: usize) {
        eventually(&format!("{pods} pods run"), async || {
            let running = self
                .all_pods()
                .await
                .iter()
                .filter(|pod| phase(pod) == "Running")
                .count();
            (running == pods).then_some(()).ok_or_else(|| format!("{running} run"))
        })
        .await;
    }

    /// Waits until a pod runs, and says where.
    pub async fn runs(&self, pod: &str) -> String {
        eventually(&format!("pod {pod} runs"), async || {
            let pod = self.pods().get(pod).await.map_err(|e| e.to_string())?;
            match (
                phase(&pod).as_str(),
                pod.spec.as_ref().and_then(|s| s.node_name.clone()),
            ) {
                ("Running", Some(node)) => Ok(node),
                _ => Err(format!("{:?}", pod.status)),
            }
        })
        .await
    }

    /// Waits until a pod says that no place was found for it, and returns the message.
    pub async fn unschedulable(&self, pod: &str) -> String {
        self.says(pod, "Unschedulable").await
    }

    /// Waits until a pod says with this reason why it does not run, and returns the message.
    pub async fn says(&self, pod: &str, reason: &str) -> String {
        eventually(&format!("pod {pod} says why it waits"), async || {
            let pod = self.pods().get(pod).await.map_err(|e| e.to_string())?;
            let conditions = pod
                .status
                .as_ref()
                .and_then(|s| s.conditions.clone())
                .unwrap_or_default();
            conditions
                .iter()
                .find(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some(reason))
                .and_then(|c| c.message.clone())
                .ok_or_else(|| format!("{conditions:?}"))
        })
        .await
    }

    pub async fn delete_pod(&self, name: &str) {
        self.pods()
            .delete(name, &DeleteParams::default())
            .await
            .expect("deleted");
    }

    /// Merges a patch into a node.
    pub async fn patch_node(&self, node: &str, patch: Value) {
        let patched = self
            .nodes()
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.expect("the node is patched");
    }

    /// Lets the schema of a CRD accept anything.
    pub async fn loosen_schema(&self, crd: &str) {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let mut definition = api.get(crd).await.expect("the CRD");
        for version in &mut definition.spec.versions {
            let anything = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            version.schema = Some(serde_json::from_value(anything).expect("a schema"));
        }
        api.replace(crd, &PostParams::default(), &definition)
            .await
            .expect("replaced");
    }

    /// The safety rules, on what the API server holds: no node and no GPU given twice, no pod bound twice, no refused pod.
    pub async fn assert_safe(&self) {
        let nodes = self.nodes().list(&ListParams::default()).await.expect("nodes");
        let capacity: BTreeMap<String, i64> = nodes.iter().map(|n| (n.name_any(), gpus_of_node(n))).collect();
        let mut used: BTreeMap<String, i64> = BTreeMap::new();
        for pod in self.all_pods().await {
            assert_ne!(
                phase(&pod),
                "Failed",
                "a kubelet refused {}: {:?}",
                pod.name_any(),
                pod.status
            );
            if let Some(node) = pod.spec.as_ref().and_then(|s| s.node_name.clone()) {
                *used.entry(node).or_default() += gpus_of_pod(&pod);
            }
        }
        for (node, gpus) in used {
            let most = capacity.get(&node).copied().unwrap_or_default();
            assert!(gpus <= most, "{node}: {gpus} GPUs given of {most}");
        }
        let mut bound = BTreeSet::new();
        for write in self.server.audit().writes() {
            if write.resource == "pods" && write.subresource == "binding" && write.code == 201 {
                assert!(bound.insert(write.name.clone()), "{} was bound twice", write.name);
            }
        }
    }

    /// Successful and failed writes of a replica besides the Lease.
    pub fn writes_of(&self, replica: &Replica) -> Vec<String> {
        let writes = self.server.audit().writes_of(&replica.identity).into_iter();
        writes
            .filter(|w| w.resource != "leases")
            .map(|w| format!("{} {}/{} {} {}", w.verb, w.resource, w.subresource, w.name, w.code))
            .collect()
    }
}

impl Drop for Lab {
    /// Asserts that no request of a replica was refused by RBAC. Writes the rights that they used into a file, if the environment names a folder.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let rbac = self.server.rbac();
        assert!(rbac.refused().is_empty(), "no right: {:#?}", rbac.refused());
        let Some(folder) = std::env::var_os(RIGHTS) else { return };
        let line = |right: &Right| format!("{}\t{}\t{}\t{}\n", right.role, right.group, right.resource, right.verb);
        let lines: String = rbac.used().iter().map(line).collect();
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = format!("{}.tsv", uuid::Uuid::new_v4());
        std::fs::write(PathBuf::from(folder).join(file), lines).expect("written");
    }
}

/// A replica of the operator. Killed when dropped; if the test fails, the end of its log is printed.
pub struct Replica {
    child: Child,
    http: u16,
    pub webhooks: u16,
    log: PathBuf,
    pub identity: Identity,
    /// Of an administrator.
    token: String,
}

impl Replica {
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{signal} {pid}")])
            .status()
            .expect("sh");
        assert!(status.success(), "kill -{signal} {pid}");
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    /// Waits for the end after SIGTERM and asserts that it was in good order.
    pub async fn ends_well(&mut self) {
        let status = eventually("the operator ends", async || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err(format!("{other:?}")),
        })
        .await;
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// Waits until `/readyz` says yes.
    pub async fn ready(&self) {
        eventually("the operator is ready", async || match self.get("/readyz").await {
            Ok(answer) if answer.starts_with("HTTP/1.1 200") => Ok(()),
            Ok(answer) => Err(format!("{answer}\n{}", self.log())),
            Err(error) => Err(format!("{error}\n{}", self.log())),
        })
        .await;
    }

    /// Waits until it leads.
    pub async fn leads(&self) {
        eventually("the replica leads", async || {
            let state = self.get("/state").await.map_err(|e| e.to_string())?;
            let body = state.split("\r\n\r\n").nth(1).unwrap_or_default();
            let state: Value = serde_json::from_str(body).map_err(|e| format!("{e}: {body}"))?;
            (state["election"]["leading"] == json!(true))
                .then_some(())
                .ok_or_else(|| state["election"].to_string())
        })
        .await;
    }

    /// A plain HTTP GET, in the name of an administrator.
    pub async fn get(&self, path: &str) -> std::io::Result<String> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.http)).await?;
        let token = &self.token;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Fails the test if the replica logged an error.
    pub fn assert_no_errors(&self) {
        let errors: Vec<_> = self
            .log()
            .lines()
            .filter(|l| l.contains("\"ERROR\""))
            .map(str::to_owned)
            .collect();
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            eprintln!(
                "the last lines of {}:\n{}",
                self.identity.pod.as_deref().unwrap_or_default(),
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        }
    }
}

pub fn phase(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default()
}

fn gpus_of_node(node: &Node) -> i64 {
    let allocatable = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
    let gpus = allocatable.and_then(|a| a.get("nvidia.com/gpu"));
    gpus.map_or(0, |q| q.0.parse().expect("whole GPUs"))
}

fn gpus_of_pod(pod: &Pod) -> i64 {
    let containers = pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default();
    let limits = containers
        .iter()
        .filter_map(|c| c.resources.as_ref()?.limits.as_ref()?.get("nvidia.com/gpu"));
    limits.map(|q| q.0.parse::<i64>().expect("whole GPUs")).sum()
}

/// An unlimited queue.
pub fn queue(name: &str, parent: Option<&str>) -> String {
    let open = "{quota: -1, limit: -1, overQuotaWeight: 1}";
    let parent = parent.map_or(String::new(), |p| format!("  parentQueue: {p}\n"));
    format!(
        "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec:\n{parent}  resources: {{cpu: {open}, gpu: {open}, memory: {open}}}\n"
    )
}

/// A pod of our scheduler in queue `test` that runs until it is deleted.
pub fn pod(name: &str, gpus: u32) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM, "labels": {"kai.scheduler/queue": "test"}},
        "spec": {
            "schedulerName": "kai-scheduler", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "ubuntu", "args": ["sleep", "infinity"], "resources": {
                "requests": {"cpu": "100m", "memory": "64Mi"}}}],
        },
    });
    if gpus > 0 {
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": gpus.to_string()});
    }
    pod
}

/// A Job whose pods are a gang.
pub fn gang(name: &str, size: u32, gpus: u32) -> Value {
    let mut template = pod(name, gpus);
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": TEAM,
            "labels": {"kai.scheduler/queue": "test"},
            "annotations": {"kai.scheduler/batch-min-member": size.to_string()},
        },
        "spec": {"parallelism": size, "completions": size, "template": {
            "metadata": {"labels": {"kai.scheduler/queue": "test"}}, "spec": template["spec"],
        }},
    })
}
