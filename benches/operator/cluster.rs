//! A cluster to measure on: an API server, embedded or real, what `manifests/` installs, and nodes with simulated kubelets.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::Deserialize as _;
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer};
use unikai::devcluster::world::{NodeSpec, World, WorldHandle, WorldOptions};

use crate::real_server::{RealServer, UnderShell};

const MAX_WAIT: Duration = Duration::from_secs(60);

/// The queues of a quick start and a namespace.
const SETTING: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: load}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: default}
spec: {resources: {cpu: {quota: -1, limit: -1, overQuotaWeight: 1}, gpu: {quota: -1, limit: -1, overQuotaWeight: 1}, memory: {quota: -1, limit: -1, overQuotaWeight: 1}}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: test}
spec: {parentQueue: default, resources: {cpu: {quota: -1, limit: -1, overQuotaWeight: 1}, gpu: {quota: -1, limit: -1, overQuotaWeight: 1}, memory: {quota: -1, limit: -1, overQuotaWeight: 1}}}
";

/// A cluster; all of it ends when dropped.
pub struct Cluster {
    /// A client of the administrator.
    pub admin: Client,
    server: Server,
    dir: tempfile::TempDir,
    _world: Option<WorldHandle>,
}

enum Server {
    Embedded(RunningServer),
    Real {
        _control_plane: [UnderShell; 2],
        audit: PathBuf,
        since: Mutex<u64>,
    },
}

impl Cluster {
    /// A cluster on the embedded API server.
    pub async fn embedded(nodes: usize) -> anyhow::Result<Self> {
        let (dir, server) = Self::start_embedded().await?;
        Self::furnish(dir, server, Some((nodes, true))).await
    }

    /// The same without nodes, kubelets and controllers: nothing changes by itself.
    pub async fn without_controllers() -> anyhow::Result<Self> {
        let (dir, server) = Self::start_embedded().await?;
        Self::furnish(dir, server, None).await
    }

    /// Adds an object to the embedded API server as it is.
    pub fn preload(&self, object: Value) -> anyhow::Result<()> {
        match &self.server {
            Server::Embedded(server) => server.preload(object),
            Server::Real { .. } => bail!("a real API server takes requests only"),
        }
    }

    async fn start_embedded() -> anyhow::Result<(tempfile::TempDir, Server)> {
        let dir = tempfile::tempdir()?;
        let server = ApiServer::start(Options::default()).await?;
        std::fs::write(
            dir.path().join("admin.kubeconfig"),
            server.kubeconfig(&Identity::admin()),
        )?;
        std::fs::write(
            dir.path().join("operator.kubeconfig"),
            server.kubeconfig(&Identity::operator()),
        )?;
        Ok((dir, Server::Embedded(server)))
    }

    /// A cluster on etcd and kube-apiserver.
    pub async fn real(assets: &Path, nodes: usize) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let control_plane = start_real(assets, dir.path())?;
        let client = client_of(&dir.path().join("admin.kubeconfig")).await?;
        let deadline = Instant::now() + MAX_WAIT;
        while client
            .request_text(http::Request::get("/readyz").body(Vec::new())?)
            .await
            .is_err()
        {
            if Instant::now() > deadline {
                bail!("kube-apiserver does not come up");
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let audit = dir.path().join("audit.log");
        let server = Server::Real {
            _control_plane: control_plane,
            audit,
            since: Mutex::new(0),
        };
        Self::furnish(dir, server, Some((nodes, false))).await
    }

    async fn furnish(dir: tempfile::TempDir, server: Server, world: Option<(usize, bool)>) -> anyhow::Result<Self> {
        let admin = client_of(&dir.path().join("admin.kubeconfig")).await?;
        let files = unikai::cli::manifests::files("unikai:bench").into_iter();
        for (name, yaml) in files.chain(unikai::cli::manifests::gpu_sharing()) {
            if !name.contains("operator.yaml") {
                apply(&admin, &yaml).await.context(name)?;
            }
        }
        apply(&admin, SETTING).await?;
        let world = match world {
            None => None,
            Some((nodes, controllers)) => {
                let options = WorldOptions {
                    nodes: (0..nodes).map(|i| NodeSpec::gpu(format!("node-{i:04}"), 8)).collect(),
                    controllers,
                    ..WorldOptions::default()
                };
                Some(World::start(admin.clone(), options).await?)
            }
        };
        Ok(Self {
            admin,
            server,
            dir,
            _world: world,
        })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.dir().join("admin.kubeconfig")
    }

    pub fn operator_kubeconfig(&self) -> PathBuf {
        self.dir().join("operator.kubeconfig")
    }

    /// A token of an identity; only the embedded API server issues them.
    pub fn token(&self, identity: &Identity) -> Option<String> {
        match &self.server {
            Server::Embedded(server) => Some(server.token(identity)),
            Server::Real { .. } => None,
        }
    }

    /// Resets the count of writes.
    pub fn forget_writes(&self) {
        match &self.server {
            Server::Embedded(server) => server.audit().clear(),
            Server::Real { audit, since, .. } => {
                *since.lock().expect("offset") = std::fs::metadata(audit).map_or(0, |m| m.len());
            }
        }
    }

    /// What the operator wrote, by the API server's own log: verb, resource and status code, and how often.
    pub fn operator_writes(&self) -> BTreeMap<String, usize> {
        let operator = Identity::operator();
        let mut counts = BTreeMap::new();
        let mut count = |verb: &str, resource: &str, subresource: &str, code: u64| {
            let slash = if subresource.is_empty() { "" } else { "/" };
            *counts
                .entry(format!("{verb} {resource}{slash}{subresource} {code}"))
                .or_default() += 1;
        };
        match &self.server {
            Server::Embedded(server) => {
                for w in server.audit().writes_of(&operator) {
                    count(&w.verb, &w.resource, &w.subresource, w.code.into());
                }
            }
            Server::Real { audit, since, .. } => {
                for entry in entries(audit, *since.lock().expect("offset")) {
                    if entry["user"]["username"] == json!(operator.user) {
                        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                        let object = &entry["objectRef"];
                        count(
                            &text(&entry["verb"]),
                            &text(&object["resource"]),
                            &text(&object["subresource"]),
                            entry["responseStatus"]["code"].as_u64().unwrap_or(0),
                        );
                    }
                }
            }
        }
        counts
    }
}

fn entries(audit: &Path, since: u64) -> Vec<Value> {
    use std::io::{Seek as _, SeekFrom};
    let Ok(mut file) = std::fs::File::open(audit) else {
        return Vec::new();
    };
    if file.seek(SeekFrom::Start(since)).is_err() {
        return Vec::new();
    }
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

async fn client_of(kubeconfig: &Path) -> anyhow::Result<Client> {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Creates every document of a YAML text; a CRD may need a moment until its kind is served.
async fn apply(client: &Client, yaml: &str) -> anyhow::Result<()> {
    for document in serde_yaml_ng::Deserializer::from_str(yaml) {
        let object = Value::deserialize(document)?;
        if object.is_null() {
            continue;
        }
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.clone().context("apiVersion and kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            match api.create(&PostParams::default(), &object).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 409 => break,
                Err(kube::Error::Api(status)) if status.code == 404 && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error).context(types.kind),
            }
        }
    }
    Ok(())
}

/// Starts etcd and kube-apiserver, with an audit log of all writes.
fn start_real(assets: &Path, dir: &Path) -> anyhow::Result<[UnderShell; 2]> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
    });
    std::fs::write(dir.join("audit.yaml"), serde_yaml_ng::to_string(&policy)?)?;
    let at = dir.display();
    // There are no service accounts for pods to be given.
    let flags = format!(
        "--disable-admission-plugins=ServiceAccount \
         --audit-policy-file={at}/audit.yaml --audit-log-path={at}/audit.log --audit-log-maxsize=2000"
    );
    let server = RealServer::prepare(assets, dir, &flags)?;
    for who in ["admin", "operator"] {
        std::fs::write(dir.join(format!("{who}.kubeconfig")), server.kubeconfig(who))?;
    }
    let [etcd, kube_apiserver] = &server.commands;
    Ok([UnderShell::start(etcd, "")?, UnderShell::start(kube_apiserver, "")?])
}
