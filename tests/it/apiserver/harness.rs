//! One test body, two servers: the embedded one, and a real one that is started once per test run.

use std::path::{Path, PathBuf};

use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use unikai::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer};

use crate::polling::{eventually, in_time};
use crate::real_server::{RealServer, UnderShell, assets};

/// A server to test against, with a namespace of the test's own.
pub struct Cluster {
    pub client: Client,
    pub kubeconfig: PathBuf,
    pub namespace: String,
    pub real: bool,
    _server: Option<RunningServer>,
    _folder: Option<tempfile::TempDir>,
}

/// An answer: status code and body.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

impl Answer {
    /// The message of a `Status`.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// Code, reason and message of a refusal.
    pub fn refusal(&self) -> (u16, &str, &str) {
        (
            self.code,
            self.body["reason"].as_str().unwrap_or_default(),
            self.message(),
        )
    }

    /// The body of an answer that must be a success.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{}: {}", self.code, self.body);
        self.body
    }

    /// `metadata.resourceVersion`.
    pub fn revision(&self) -> String {
        self.body["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// Runs a test against each server there is.
pub async fn on_each(test: impl AsyncFn(&Cluster)) {
    let folder = tempfile::tempdir().unwrap();
    let server = ApiServer::start(Options::default()).await.unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(&Identity::admin())).unwrap();
    test(&cluster(kubeconfig, false, Some(server), Some(folder)).await).await;
    if let Some(kubeconfig) = real_server().await {
        test(&cluster(kubeconfig.clone(), true, None, None).await).await;
    }
}

async fn cluster(
    kubeconfig: PathBuf,
    real: bool,
    server: Option<RunningServer>,
    folder: Option<tempfile::TempDir>,
) -> Cluster {
    let client = client_of(&std::fs::read_to_string(&kubeconfig).unwrap()).await;
    let namespace = format!("t-{}", uuid::Uuid::new_v4().simple());
    let cluster = Cluster {
        client,
        kubeconfig,
        namespace,
        real,
        _server: server,
        _folder: folder,
    };
    cluster
        .post("/api/v1/namespaces", &json!({"metadata": {"name": cluster.namespace}}))
        .await
        .ok();
    // No controller makes it on either server.
    cluster
        .post(
            &cluster.core("serviceaccounts"),
            &json!({"metadata": {"name": "default"}}),
        )
        .await
        .ok();
    cluster
}

/// A client without retries, so that refusals are visible.
pub async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

impl Cluster {
    /// The same server and namespace, as another user who may do everything.
    pub async fn acting_as(&self, user: &str) -> Cluster {
        let mut kubeconfig: Value =
            serde_yaml_ng::from_str(&std::fs::read_to_string(&self.kubeconfig).unwrap()).unwrap();
        kubeconfig["users"][0]["user"]["as"] = json!(user);
        kubeconfig["users"][0]["user"]["as-groups"] = json!(["system:masters"]);
        Cluster {
            client: client_of(&kubeconfig.to_string()).await,
            kubeconfig: self.kubeconfig.clone(),
            namespace: self.namespace.clone(),
            real: self.real,
            _server: None,
            _folder: None,
        }
    }

    /// The path of a core resource in the test's namespace.
    pub fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// The path of a resource of a group in the test's namespace.
    pub fn group(&self, group_version: &str, resource: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{resource}", self.namespace)
    }

    /// Sends a request as it is.
    pub async fn send(&self, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Answer {
        send(&self.client, method, path, content_type, "application/json", body).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", Vec::new()).await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        send(&self.client, "GET", path, "", accept, Vec::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "application/json", body.to_string().into_bytes())
            .await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, "application/json", body.to_string().into_bytes())
            .await
    }

    /// A JSON merge patch.
    pub async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.send(
            "PATCH",
            path,
            "application/merge-patch+json",
            body.to_string().into_bytes(),
        )
        .await
    }

    /// A strategic merge patch.
    pub async fn strategic(&self, path: &str, body: &Value) -> Answer {
        self.send(
            "PATCH",
            path,
            "application/strategic-merge-patch+json",
            body.to_string().into_bytes(),
        )
        .await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", Vec::new()).await
    }

    /// Gets until the answer is right.
    pub async fn wait_for(&self, path: &str, right: impl Fn(&Answer) -> bool) -> Answer {
        eventually(&format!("{path} is as it should be"), async || {
            let answer = self.get(path).await;
            if right(&answer) {
                Ok(answer)
            } else {
                Err(format!("it is {answer:?}"))
            }
        })
        .await
    }
}

/// Sends a request and reads the whole answer.
pub async fn send(
    client: &Client,
    method: &str,
    path: &str,
    content_type: &str,
    accept: &str,
    body: Vec<u8>,
) -> Answer {
    try_send(client, method, path, content_type, accept, body)
        .await
        .unwrap()
}

/// The same, where the connection may break.
pub async fn try_send(
    client: &Client,
    method: &str,
    path: &str,
    content_type: &str,
    accept: &str,
    body: Vec<u8>,
) -> Result<Answer, kube::Error> {
    let mut request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept);
    if !content_type.is_empty() {
        request = request.header("content-type", content_type);
    }
    let response = client.send(request.body(Body::from(body)).unwrap()).await?;
    let code = response.status().as_u16();
    let warnings = response
        .headers()
        .get_all("warning")
        .iter()
        .map(|value| value.to_str().unwrap().to_owned())
        .collect();
    let bytes = response.into_body().collect_bytes().await?;
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    Ok(Answer { code, body, warnings })
}

/// The kubeconfig of the real server of this test run, if its binaries are there.
async fn real_server() -> Option<&'static PathBuf> {
    static REAL: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    REAL.get_or_init(|| own_real_server("")).await.as_ref()
}

/// The kubeconfig of a separate real server with more flags, if its binaries are there: for tests that would disturb others.
pub async fn own_real_server(flags: &str) -> Option<PathBuf> {
    let kubeconfig = start_real(&assets()?, flags);
    wait_until_ready(&kubeconfig).await;
    Some(kubeconfig)
}

/// Starts etcd and kube-apiserver, which live as long as this process; their data goes with them.
fn start_real(assets: &Path, flags: &str) -> PathBuf {
    let folder = tempfile::tempdir().unwrap().keep();
    let server = RealServer::prepare(assets, &folder, flags).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig("admin")).unwrap();
    let remove = format!("rm -rf {}", folder.display());
    for command in &server.commands {
        std::mem::forget(UnderShell::start(command, &remove).unwrap());
    }
    kubeconfig
}

async fn wait_until_ready(kubeconfig: &Path) {
    let client = client_of(&std::fs::read_to_string(kubeconfig).unwrap()).await;
    let ready = in_time(async || {
        let ready = try_send(&client, "GET", "/readyz", "", "", Vec::new()).await;
        ready.ok().filter(|answer| answer.code == 200)
    })
    .await;
    assert!(
        ready.is_ok(),
        "the real API server does not come up: see apiserver.log beside {kubeconfig:?}"
    );
}
