//! The commands that query a running operator, as users run them, against the cluster of `unikai dev`.

use std::path::Path;
use std::process::Command;

use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use unikai::api::Queue;
use unikai::cli::dev::cluster::LocalCluster;
use unikai::devcluster::apiserver::Identity;
use unikai::devcluster::world::NodeSpec;
use unikai::operator::settings::Settings;

use crate::support::{create, eventually};

/// Somebody's kubeconfig that says nothing of the operator, so that only the API server leads to it.
fn without_address(kubeconfig: &str) -> String {
    let mut config: Value = serde_yaml_ng::from_str(kubeconfig).unwrap();
    config["clusters"][0]["cluster"]
        .as_object_mut()
        .unwrap()
        .remove("extensions");
    config.to_string()
}

/// What a command prints in a folder, by the file `kubeconfig` there, its errors behind it, and whether it went well.
pub async fn run(command: &str, folder: &Path) -> (bool, String) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_unikai"));
    run.args(command.split_whitespace())
        .env("KUBECONFIG", folder.join("kubeconfig"))
        .env_remove("UNIKAI_TOKEN")
        .env_remove("UNIKAI_URL")
        .current_dir(folder);
    let output = tokio::task::spawn_blocking(move || run.output().unwrap())
        .await
        .unwrap();
    let text = [output.stdout, output.stderr]
        .map(|text| String::from_utf8(text).unwrap())
        .concat();
    (output.status.success(), text)
}

/// A cluster of one node with two GPUs, and its kubeconfig.
pub struct Stage {
    pub cluster: LocalCluster,
    folder: tempfile::TempDir,
    pub admin: kube::Client,
}

impl Stage {
    pub async fn start() -> Self {
        let nodes = vec![NodeSpec::gpu("gpu-1", 2), NodeSpec::cpu("cpu-1")];
        let cluster = Box::pin(LocalCluster::start(nodes, Some(Settings::embedded())))
            .await
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), cluster.kubeconfig()).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap();
        let admin = kube::Client::try_from(config).unwrap();
        let stage = Self { cluster, folder, admin };
        for (name, parent) in [("lab", None), ("team", Some("lab"))] {
            let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
            let queue: Queue = serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"parentQueue": parent, "resources": {"gpu": open, "cpu": open, "memory": open}},
            }))
            .unwrap();
            Api::all(stage.admin.clone())
                .create(&PostParams::default(), &queue)
                .await
                .unwrap();
        }
        stage
    }

    /// What a command prints, its errors behind it, and whether it went well.
    pub async fn run(&self, command: &str) -> (bool, String) {
        run(command, self.folder.path()).await
    }

    /// What a command prints, which must go well.
    pub async fn says(&self, command: &str) -> String {
        let (well, text) = self.run(command).await;
        assert!(well, "{command}: {text}");
        text
    }
}

pub fn pod(name: &str, gpus: u32, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"kai.scheduler/queue": "team", "priorityClassName": class}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_show_a_job_from_what_if_to_its_eviction() {
    let stage = Box::pin(Stage::start()).await;
    create(&stage.admin, pod("low", 2, "train")).await.unwrap();
    let jobs = eventually("the pod runs", async || {
        let jobs = stage.says("jobs").await;
        jobs.contains("Running").then_some(jobs)
    })
    .await;
    let headings: Vec<_> = jobs.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        headings,
        [
            "NAMESPACE",
            "NAME",
            "QUEUE",
            "STATE",
            "PODS",
            "GPUS",
            "LINE",
            "AGE",
            "REASON"
        ]
    );

    // Another of the same priority would wait, a more urgent one would have it evicted; asking changes nothing.
    let file = |name: &str, text: String| std::fs::write(stage.folder.path().join(name), text).unwrap();
    file("same.json", pod("same", 1, "train").to_string());
    file("urgent.json", pod("urgent", 1, "build").to_string());
    let (well, said) = stage.run("what-if -f same.json").await;
    assert!(
        !well && said.starts_with("No pod would run now.\n") && said.contains("would wait: "),
        "{said}"
    );
    let said = eventually("the next question may be asked", async || {
        let (well, said) = stage.run("what-if -f urgent.json").await;
        well.then_some(said)
    })
    .await;
    assert!(
        said.starts_with("All pods would run after 1 pod is evicted.\n"),
        "{said}"
    );
    assert!(
        said.contains("default/urgent would run on gpu-1, once evicted pods have terminated"),
        "{said}"
    );
    assert!(
        said.contains("default/low of ") && said.contains("would be evicted by preempt"),
        "{said}"
    );
    let none: Value = serde_json::from_str(&stage.says("why-evicted -A -o json").await).unwrap();
    assert_eq!(none["evictions"], json!([]));

    create(&stage.admin, pod("same", 1, "train")).await.unwrap();
    let said = eventually("the pod that waits is explained", async || {
        let (well, said) = stage.run("explain pod same").await;
        (well && !said.contains("has not been tried yet") && said.contains("number 1 in the line of queue team"))
            .then_some(said)
    })
    .await;
    assert!(said.lines().next().unwrap().ends_with('.'), "{said}");
    let jobs = stage.says("jobs --queue lab --waiting -o wide").await;
    assert!(jobs.lines().count() == 2 && jobs.contains("Waiting"), "{jobs}");

    create(&stage.admin, pod("urgent", 1, "build")).await.unwrap();
    let said = eventually("the eviction is known", async || {
        let said = stage.says("why-evicted low").await;
        said.contains("by preempt").then_some(said)
    })
    .await;
    assert!(said.contains("from node gpu-1"), "{said}");
    let evictions = stage.says("why-evicted").await;
    assert!(
        evictions.contains("low") && evictions.contains("preempt") && evictions.contains("team"),
        "{evictions}"
    );

    let queues = stage.says("queues").await;
    let team = queues.lines().find(|line| line.contains("team")).unwrap();
    assert!(team.starts_with("  "), "below its parent: {queues}");
    let nodes = stage.says("nodes --gpu").await;
    assert!(nodes.contains("gpu-1") && !nodes.contains("cpu-1"), "{nodes}");
    let node: Value = serde_yaml_ng::from_str(&stage.says("nodes gpu-1 -o yaml").await).unwrap();
    assert_eq!(node["gpus"]["total"], json!(2.0), "{node}");
    assert!(
        stage
            .says("explain node gpu-1")
            .await
            .starts_with("Node gpu-1 takes pods; ")
    );
    assert!(stage.says("explain queue team").await.contains("Queue team holds "));
    assert!(stage.says("top").await.contains("GPUs "));
    let (well, said) = stage.run("explain pod nobody").await;
    assert!(!well, "{said}");
    assert_eq!(said, "error: there is no pod nobody in the namespace default\n");
    stage.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_proxies_to_the_operator_and_creates_tokens() {
    let stage = Box::pin(Stage::start()).await;
    let server = stage.cluster.server();
    let file = stage.folder.path().join("kubeconfig");
    std::fs::write(&file, without_address(&stage.cluster.kubeconfig())).unwrap();

    // With the token of the kubeconfig, through the proxy.
    let queues = stage.says("queues").await;
    assert!(queues.contains("  team"), "{queues}");
    create(&stage.admin, pod("one", 1, "train")).await.unwrap();
    let jobs = eventually("the pod runs", async || {
        let jobs = stage.says("jobs").await;
        jobs.contains("Running").then_some(jobs)
    })
    .await;
    assert!(jobs.contains("team"), "{jobs}");
    std::fs::write(
        stage.folder.path().join("next.json"),
        pod("next", 1, "train").to_string(),
    )
    .unwrap();
    let said = stage.says("what-if -f next.json").await;
    assert!(said.starts_with("All pods would run.\n"), "{said}");
    let (well, said) = stage.run("queues --operator-namespace nowhere").await;
    assert!(!well, "{said}");
    assert_eq!(
        said,
        "error: /api/v1/queues: 503 Service Unavailable: no endpoints available for service \"http:unikai:8080\"\n"
    );

    // As a service account, whose token the API server makes: it sees what that may see.
    server.audit().clear();
    let viewer = Identity::service_account("kai-scheduler", "unikai-viewer");
    server.rbac().hold(&viewer);
    let as_viewer = "--service-account kai-scheduler/unikai-viewer";
    let queues = stage.says(&format!("queues {as_viewer}")).await;
    assert!(queues.contains("  team"), "{queues}");
    let made = server.audit().writes();
    assert!(
        made.iter()
            .any(|entry| entry.subresource == "token" && entry.name == "unikai-viewer"),
        "{made:?}"
    );
    let nobody = Identity::service_account("default", "default");
    server.rbac().hold(&nobody);
    let (well, said) = stage.run("queues --service-account default/default").await;
    assert!(!well, "{said}");
    assert_eq!(
        said,
        "error: you need the right to list queues.scheduling.run.ai in the cluster\n"
    );
    let (well, said) = stage.run("queues --service-account default/missing").await;
    assert!(
        !well
            && said.contains("the API server makes none of the service account default/missing for you")
            && said.contains("serviceaccounts \"missing\" not found"),
        "{said}"
    );
    let (well, said) = stage.run("queues --service-account missing").await;
    assert!(!well, "{said}");
    assert_eq!(
        said,
        "error: --service-account missing: not of the form NAMESPACE/NAME\n"
    );

    // Who may not use the proxy is told so by the API server.
    let stranger = Identity::service_account("default", "stranger");
    server.rbac().hold(&stranger);
    std::fs::write(&file, without_address(&server.kubeconfig(&stranger))).unwrap();
    let (well, said) = stage.run("queues").await;
    assert!(
        !well && said.contains("403") && said.contains("services/proxy"),
        "{said}"
    );
    stage.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_operator_the_commands_name_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &'static str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unikai"));
        command
            .args(args.split_whitespace())
            .env("KUBECONFIG", folder.path().join("none"))
            .env_remove("UNIKAI_TOKEN")
            .env_remove("UNIKAI_URL")
            .env("HOME", folder.path());
        tokio::task::spawn_blocking(move || {
            let output = command.output().unwrap();
            assert!(!output.status.success());
            String::from_utf8(output.stderr).unwrap()
        })
    };
    let said = run("queues").await.unwrap();
    let expected = format!("error: KUBECONFIG {}: ", folder.path().join("none").display());
    assert!(said.starts_with(&expected), "{said}");
    let said = run("queues --url http://127.0.0.1:1 --token t").await.unwrap();
    assert!(
        said.starts_with("error: the operator cannot be reached at http://127.0.0.1:1"),
        "{said}"
    );
    let said = run("queues --url https://127.0.0.1:1 --token t").await.unwrap();
    assert!(said.contains("the operator serves plain HTTP"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_runs_it_as_a_plugin_and_shells_complete_it() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-unikai");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_unikai"), &plugin).unwrap();
    let output = Command::new(&plugin).args(["queues", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("Usage: kubectl unikai queues [OPTIONS]"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(&plugin).args(["completion", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("why-evicted"), "{shell}");
    }
}
