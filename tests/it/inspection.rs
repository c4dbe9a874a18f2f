//! Snapshots, the order of pending pod groups, the log level and CPU profiles, over the operator's HTTP server.

mod profile;

use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use unikai::devcluster::apiserver::Identity;
use unikai::operator::Running;
use unikai::operator::settings::Settings;

use crate::support::{Cluster, create, eventually};

/// A token of a user with that ClusterRole of the manifests.
async fn token_with(cluster: &Cluster, role: &str) -> String {
    let identity = Identity::service_account("team", role);
    cluster.server.rbac().hold(&identity);
    let manifests = include_str!("../../manifests/30-rbac.yaml");
    let roles = manifests
        .split("\n---\n")
        .filter_map(|text| serde_yaml_ng::from_str::<ClusterRole>(text).ok());
    let found = roles
        .filter(|found| found.rules.is_some())
        .find(|found| found.metadata.name.as_deref() == Some(role))
        .expect("the role is in the manifests");
    let params = PostParams::default();
    Api::all(cluster.admin.clone()).create(&params, &found).await.unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": "team", "name": role}],
    }))
    .unwrap();
    Api::all(cluster.admin.clone()).create(&params, &binding).await.unwrap();
    cluster.server.token(&identity)
}

/// The answer to a request.
async fn ask(running: &Running, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
    let (status, body) = answer(send(running, method, path, token, body).await).await;
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// A connection on which a request is sent.
async fn send(running: &Running, method: &str, path: &str, token: Option<&str>, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(running.http).await.unwrap();
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\n{token}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Status and body of the answer on a connection.
async fn answer(mut stream: TcpStream) -> (u16, Vec<u8>) {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_off(end + 4))
}

async fn unikai(args: &[&str], token: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unikai"));
    command.args(args).env_remove("UNIKAI_TOKEN");
    if let Some(token) = token {
        command.env("UNIKAI_TOKEN", token);
    }
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

async fn fetch(running: &Running, token: &str, out: &Path) -> Output {
    let url = format!("http://{}", running.http);
    unikai(
        &["snapshot", "--url", &url, "--out", out.to_str().unwrap()],
        Some(token),
    )
    .await
}

/// Pods and what is decided about them.
async fn replayed(file: &Path) -> Value {
    let output = unikai(&["replay", "-o", "json", file.to_str().unwrap()], None).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn gang_pod(gang: &str, index: usize, gpus: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{gang}-{index}"), "namespace": "team", "labels": {"kai.scheduler/queue": "leaf"},
            "annotations": {"pod-group-name": gang, "kai.scheduler/skip-podgrouper": "true"},
        },
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_snapshot_gives_the_operators_decisions() {
    let cluster = Cluster::start().await;
    cluster.queue("root", None).await;
    cluster.queue("leaf", Some("root")).await;
    cluster.node("n1").await;
    // A node pool without a shard: not in the snapshot.
    cluster.node("n2").await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.admin.clone());
    let label = kube::api::Patch::Merge(json!({"metadata": {"labels": {"kai.scheduler/node-pool": "other"}}}));
    nodes
        .patch("n2", &kube::api::PatchParams::default(), &label)
        .await
        .unwrap();
    let running = cluster.ready_operator(Settings::embedded()).await;
    let token = token_with(&cluster, "unikai-maintainer").await;

    // Five of eight GPUs are taken; a gang of two does not fit, and the pods without a gang wait behind nothing.
    for (gang, size, gpus) in [("runs", 1, 5), ("waits", 2, 2)] {
        let group = json!({
            "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": gang, "namespace": "team"},
            "spec": {"minMember": size, "queue": "leaf"},
        });
        create(&cluster.admin, group).await.unwrap();
        for index in 0..size {
            create(&cluster.admin, gang_pod(gang, index, gpus)).await.unwrap();
        }
        if gang == "runs" {
            assert_eq!(cluster.bound("team", "runs-0").await, "n1");
        }
    }
    eventually("the gang is said to wait", async || {
        let groups = Api::<unikai::api::PodGroup>::namespaced(cluster.admin.clone(), "team");
        let status = groups.get("waits").await.ok()?.status?;
        (!serde_json::to_value(status).ok()?["schedulingConditions"]
            .as_array()?
            .is_empty())
        .then_some(())
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.zip");
    let fetched = fetch(&running, &token, &file).await;
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let decided = replayed(&file).await;
    assert_eq!(
        (&decided["bind"], &decided["evict"]),
        (&json!([]), &json!([])),
        "{decided}"
    );
    assert_eq!(decided["unschedulable"][0]["podGroup"], "team/waits");

    // The order of what waits.
    let (status, body) = ask(&running, "GET", "/get-job-order", Some(&token), "").await;
    assert_eq!(status, 200, "{body}");
    let order: Value = serde_json::from_str(&body).unwrap();
    let waits = json!([{"id": "waits", "namespace": "team", "priority": 50}]);
    assert_eq!(order, json!({"global_order": waits, "queue_order": {"leaf": waits}}));

    // With the pod gone that is in the way, the operator binds both, and so does a replay of a snapshot that shows it gone.
    let mut archive = zip::ZipArchive::new(std::fs::File::open(&file).unwrap()).unwrap();
    let mut snapshot: Value = serde_json::from_reader(archive.by_name("snapshot.json").unwrap()).unwrap();
    let nodes: Vec<_> = snapshot["rawObjects"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["metadata"]["name"].clone())
        .collect();
    assert_eq!(nodes, ["n1"]);
    let pods = snapshot["rawObjects"]["pods"].as_array_mut().unwrap();
    assert_eq!(pods.len(), 3);
    pods.retain(|pod| pod["metadata"]["name"] != "runs-0");
    let edited = folder.path().join("edited.json");
    std::fs::write(&edited, snapshot.to_string()).unwrap();
    let decided = replayed(&edited).await;
    let mut bound: Vec<_> = decided["bind"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bind| (&bind["pod"], &bind["node"]))
        .collect();
    bound.sort_by_key(|(pod, _)| pod.to_string());
    let n1 = json!("n1");
    assert_eq!(bound, [(&json!("team/waits-0"), &n1), (&json!("team/waits-1"), &n1)]);
    cluster
        .pods("team")
        .delete("runs-0", &kube::api::DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    for pod in ["waits-0", "waits-1"] {
        assert_eq!(cluster.bound("team", pod).await, "n1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inspection_requires_the_maintainer_role() {
    let cluster = Cluster::start().await;
    let running = cluster.ready_operator(Settings::embedded()).await;
    let viewer = token_with(&cluster, "unikai-viewer").await;
    let maintainer = token_with(&cluster, "unikai-maintainer").await;
    for path in ["/get-snapshot", "/get-job-order", "/log-level", "/debug/pprof/profile"] {
        assert_eq!(ask(&running, "GET", path, None, "").await.0, 401, "{path}");
        let (status, why) = ask(&running, "GET", path, Some(&viewer), "").await;
        assert_eq!(
            (status, why),
            (
                403,
                format!("a ClusterRole must allow verb get on nonResourceURLs [{path}], as unikai-maintainer does\n")
            )
        );
    }
    assert_eq!(ask(&running, "PUT", "/log-level", Some(&viewer), "debug").await.0, 403);
    // In this process logging is the test's.
    assert_eq!(
        ask(&running, "PUT", "/log-level", Some(&maintainer), "debug").await.0,
        400
    );
    assert_eq!(
        ask(&running, "PUT", "/log-level", Some(&maintainer), &"x".repeat(2_000))
            .await
            .0,
        413
    );
    assert_eq!(
        ask(&running, "GET", "/get-job-order", Some(&maintainer), "").await.0,
        200
    );
    assert_eq!(ask(&running, "GET", "/state", Some(&maintainer), "").await.0, 200);
    assert_eq!(
        ask(&running, "GET", "/get-snapshot?shard=other", Some(&maintainer), "").await,
        (404, "there is no shard other; there are: default\n".to_owned())
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.zip");
    let refused = fetch(&running, &viewer, &file).await;
    assert!(!refused.status.success() && !file.exists());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("403 Forbidden: a ClusterRole must allow verb get"),
        "{said}"
    );
}
