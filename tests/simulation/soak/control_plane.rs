//! The API server of a soak: the embedded one, or etcd and kube-apiserver as processes that can be killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use http::header;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::sleep;
use tower::util::BoxCloneSyncService;
use unikai::devcluster::apiserver::in_process::{InProcess, Service};
use unikai::devcluster::apiserver::{Identity, Options};

use super::audit;
use crate::real_server::{RealServer, UnderShell};

/// An API server, and how to connect to it.
pub enum ControlPlane {
    /// In this process, called without sockets. The replicas, which are processes, reach it through their proxies.
    Embedded(InProcess),
    Processes(Processes),
}

/// etcd and kube-apiserver.
pub struct Processes {
    server: RealServer,
    running: [Option<UnderShell>; 2],
    audit_log: PathBuf,
}

/// What can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Etcd,
    ApiServer,
}

impl ControlPlane {
    /// The embedded API server.
    pub async fn embedded() -> anyhow::Result<Self> {
        Ok(Self::Embedded(InProcess::start(Options::default()).await?))
    }

    /// etcd and kube-apiserver from the folder `assets`, with their data and logs in `folder`.
    pub fn of_processes(assets: &Path, folder: &Path) -> anyhow::Result<Self> {
        let (policy, log) = (folder.join("audit-policy.json"), folder.join("audit.log"));
        std::fs::write(&policy, audit::policy())?;
        // There are no service accounts for pods to be given. The log is one file, of a few GB.
        let flags = format!(
            "--disable-admission-plugins=ServiceAccount --audit-policy-file={} --audit-log-path={} --audit-log-maxsize=1000000",
            policy.display(),
            log.display()
        );
        let mut control_plane = Self::Processes(Processes {
            server: RealServer::prepare(assets, folder, &flags)?,
            running: [None, None],
            audit_log: log,
        });
        control_plane.start(Part::Etcd)?;
        control_plane.start(Part::ApiServer)?;
        Ok(control_plane)
    }

    /// A client of the administrator. It does not try again by itself.
    pub async fn admin(&self) -> anyhow::Result<Client> {
        match self {
            Self::Embedded(server) => Ok(server.client(&Identity::admin())),
            Self::Processes(processes) => processes.client("admin").await,
        }
    }

    /// The API server for the replicas: requests count as those of the operator's service account.
    pub async fn for_operator(&self) -> anyhow::Result<Service> {
        match self {
            Self::Embedded(server) => Ok(server.service(&Identity::operator())),
            Self::Processes(processes) => Ok(forwarder(processes.client("operator").await?)),
        }
    }

    /// Waits until it answers.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let client = self.admin().await?;
        for _ in 0..600 {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            if client.request_text(request).await.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(200)).await;
        }
        anyhow::bail!("the API server is not ready")
    }

    /// The log of all writes, for [`audit::replay`]. The embedded API server has none.
    pub fn audit_log(&self) -> Option<&Path> {
        match self {
            Self::Embedded(_) => None,
            Self::Processes(processes) => Some(&processes.audit_log),
        }
    }

    /// Starts a part that was killed.
    pub fn start(&mut self, part: Part) -> anyhow::Result<()> {
        if let Self::Processes(processes) = self {
            let command = &processes.server.commands[part as usize];
            processes.running[part as usize] = Some(UnderShell::start(command, "")?);
        }
        Ok(())
    }

    /// Kills a part, as `kill -9` does.
    pub fn kill(&mut self, part: Part) {
        if let Self::Processes(processes) = self {
            processes.running[part as usize] = None;
        }
    }
}

impl Processes {
    async fn client(&self, who: &str) -> anyhow::Result<Client> {
        let kubeconfig = Kubeconfig::from_yaml(&self.server.kubeconfig(who))?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }
}

/// Requests to the API server as the client's user.
fn forwarder(client: Client) -> Service {
    BoxCloneSyncService::new(tower::service_fn(
        move |mut request: http::Request<kube::client::Body>| {
            let client = client.clone();
            for of_connection in [
                header::HOST,
                header::CONNECTION,
                header::TRANSFER_ENCODING,
                header::CONTENT_LENGTH,
            ] {
                request.headers_mut().remove(of_connection);
            }
            async move {
                let answer = client.send(request).await?;
                Ok(answer.map(Body::new))
            }
        },
    ))
}
