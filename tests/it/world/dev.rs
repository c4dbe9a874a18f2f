//! `unikai dev` as a person starts it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::stage::{connect, eventually, phase};
use crate::apiserver::harness::own_real_server;

/// A running `unikai dev`; killed if a test gives up.
pub struct Dev {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Dev {
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unikai"));
        command
            .arg("dev")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("unikai starts");
        let out = BufReader::new(process.stdout.take().expect("its output"));
        Self { process, out }
    }

    /// Reads the output up to a line that starts with `end`.
    pub fn read_until(&mut self, end: &str) -> String {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(
                self.out.read_line(&mut line).expect("its output"),
                0,
                "it ended early, after: {text}"
            );
            text += &line;
            if line.starts_with(end) {
                return text;
            }
        }
    }

    /// Sends a signal and waits for the end.
    fn signal(&mut self, name: &str) -> ExitStatus {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill")
            .args([format!("-{name}"), pid])
            .status()
            .expect("kill runs");
        assert!(sent.success());
        self.process.wait().expect("it ends")
    }
}

async fn node_names(client: &Client) -> Vec<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes
        .list(&ListParams::default())
        .await
        .expect("the nodes")
        .iter()
        .map(ResourceExt::name_any)
        .collect()
}

async fn run_pod(client: &Client, scheduler: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "hello"},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "work", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }));
    pods.create(&PostParams::default(), &pod.expect("a pod"))
        .await
        .expect("the pod is created");
    eventually("the pod to run", async || {
        let pod = pods.get("hello").await.expect("the pod");
        (phase(&pod) == "Running").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_runs_a_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("new");
    let mut dev = Dev::start(&[
        "--no-operator",
        "--gpu-nodes",
        "1",
        "--cpu-nodes",
        "1",
        "--kubeconfig-out",
        out.to_str().expect("a path"),
    ]);
    let told = dev.read_until("Ctrl-C");
    let path = out.canonicalize().expect("the folder").join("unikai-dev.kubeconfig");
    assert_eq!(
        told,
        format!(
            "A cluster (2 nodes, 8 GPUs) runs on this machine, without an operator. In another terminal:\n\n  \
             export KUBECONFIG={}\n  kubectl get nodes\n  kubectl run hello --image=busybox -- sleep 600\n\nCtrl-C ends it.\n",
            path.display()
        )
    );
    let client = connect(&path).await;
    assert_eq!(node_names(&client).await, ["cpu-node-1", "gpu-node-1"]);
    run_pod(&client, "default-scheduler").await;
    assert!(dev.signal("INT").success());
    assert!(!path.exists(), "the kubeconfig file goes with the cluster");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_runs_the_operator() {
    let mut dev = Dev::start(&["--scheduler-name", "other", "--queue-labels", "off"]);
    let told = dev.read_until("Ctrl-C");
    let line = told
        .lines()
        .find_map(|line| line.trim().strip_prefix("export KUBECONFIG="));
    let path = PathBuf::from(line.expect("the path"));
    let url = told
        .lines()
        .find_map(|line| line.strip_prefix("The operator serves HTTP at ")?.split_once(','))
        .expect("the address")
        .0;
    let unikai = env!("CARGO_BIN_EXE_unikai");
    let next = format!(
        "  kubectl get nodes\n  kubectl apply -f docs/quickstart.yaml\n  kubectl get pods -n team -o wide -w\n  \
         {unikai} jobs -A\n  {unikai} queues\n  {unikai} top\n\n\
         The operator serves HTTP at {url}, such as {url}/metrics and {url}/readyz.\nCtrl-C ends it.\n"
    );
    assert!(told.ends_with(&next), "{told}");
    let queues = Command::new(unikai).arg("queues").env("KUBECONFIG", &path).output();
    let queues = String::from_utf8(queues.expect("it runs").stdout).expect("text");
    assert!(queues.contains("default-queue"), "{queues}");
    assert!(
        path.file_name()
            .expect("a name")
            .to_string_lossy()
            .contains("kubeconfig")
    );
    let client = connect(&path).await;
    run_pod(&client, "other").await;
    assert!(dev.signal("TERM").success());
    assert!(!path.exists());
}

#[test]
fn operator_flags_require_an_operator() {
    for without in [&["--no-operator"][..], &["--kubeconfig", "none"]] {
        let mut dev = Command::new(env!("CARGO_BIN_EXE_unikai"));
        let refused = dev.args(["dev", "--queue-labels", "warn"]).args(without).output();
        let told = String::from_utf8(refused.expect("it runs").stderr).expect("text");
        let first = told.lines().next().unwrap_or_default();
        let of_both = ["--queue-labels <MODE>", without[0]];
        assert!(
            first.contains("cannot be used with") && of_both.iter().all(|flag| first.contains(flag)),
            "{told}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_for_a_real_api_server() {
    let Some(path) = own_real_server("").await else { return };
    let kubeconfig = path.to_str().expect("a path");
    let mut dev = Dev::start(&[
        "--kubeconfig",
        kubeconfig,
        "--controllers",
        "--gpu-nodes",
        "1",
        "--cpu-nodes",
        "0",
    ]);
    let told = dev.read_until("The cluster");
    assert_eq!(
        told,
        "The cluster has simulated nodes (1 node, 8 GPUs) until Ctrl-C ends them.\n"
    );
    let client = connect(&path).await;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    eventually("the node's lease", async || {
        leases.get_opt("gpu-node-1").await.ok().flatten()
    })
    .await;
    eventually("the default service account", async || {
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), "default");
        accounts.get_opt("default").await.expect("an answer")
    })
    .await;
    run_pod(&client, "default-scheduler").await;
    assert!(dev.signal("TERM").success());
    assert!(node_names(&client).await.is_empty(), "its nodes go with it");
    let pods: Api<Pod> = Api::namespaced(client, "default");
    assert!(
        pods.get_opt("hello").await.expect("an answer").is_none(),
        "and their pods"
    );
}
