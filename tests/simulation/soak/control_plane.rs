//! The API server of a soak: the embedded one, or etcd and kube-apiserver as processes that can be killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::time::sleep;
use unikai::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer};

use crate::free_port::free_port;

/// An API server, and how to connect to it.
pub enum ControlPlane {
    Embedded(RunningServer),
    Processes(Processes),
}

/// etcd and kube-apiserver.
pub struct Processes {
    commands: [String; 2],
    running: [Option<UnderShell>; 2],
    port: u16,
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
        Ok(Self::Embedded(ApiServer::start(Options::default()).await?))
    }

    /// etcd and kube-apiserver from the folder `assets`, with their data and logs in `folder`.
    pub fn of_processes(assets: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut control_plane = Self::Processes(Processes::prepared(assets, folder)?);
        control_plane.start(Part::Etcd)?;
        control_plane.start(Part::ApiServer)?;
        Ok(control_plane)
    }

    /// A client of the administrator, or of the operator's service account. It does not try again by itself.
    pub async fn client(&self, operator: bool) -> anyhow::Result<Client> {
        let identity = if operator {
            Identity::operator()
        } else {
            Identity::admin()
        };
        let kubeconfig = match self {
            Self::Embedded(server) => server.kubeconfig(&identity),
            Self::Processes(processes) => processes.kubeconfig(operator),
        };
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// Waits until it answers.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let client = self.client(false).await?;
        for _ in 0..600 {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            if client.request_text(request).await.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(200)).await;
        }
        anyhow::bail!("the API server is not ready")
    }

    /// Starts a part that was killed.
    pub fn start(&mut self, part: Part) -> anyhow::Result<()> {
        if let Self::Processes(processes) = self {
            processes.running[part as usize] = Some(UnderShell::start(&processes.commands[part as usize])?);
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
    fn prepared(assets: &Path, folder: &Path) -> anyhow::Result<Self> {
        let [etcd, peer, port] = [(); 3].map(|()| free_port());
        let key = rcgen::KeyPair::generate()?;
        std::fs::write(folder.join("sa.key"), key.serialize_pem())?;
        std::fs::write(folder.join("sa.pub"), key.public_key_pem())?;
        let operator = Identity::operator();
        let tokens = format!(
            "t-admin,admin,u1,\"system:masters\"\nt-operator,{},u2,\"{}\"\n",
            operator.user,
            operator.groups.join(",")
        );
        std::fs::write(folder.join("tokens.csv"), tokens)?;
        let (at, assets) = (folder.display(), assets.display());
        let etcd_command = format!(
            "{assets}/etcd --data-dir {at}/etcd --unsafe-no-fsync --log-level warn --quota-backend-bytes 8589934592 \
             --listen-client-urls http://127.0.0.1:{etcd} --advertise-client-urls http://127.0.0.1:{etcd} \
             --listen-peer-urls http://127.0.0.1:{peer} --initial-advertise-peer-urls http://127.0.0.1:{peer} \
             --initial-cluster default=http://127.0.0.1:{peer} >>{at}/etcd.log 2>&1"
        );
        // No controller manager, so no service accounts for pods to be given.
        let server_command = format!(
            "{assets}/kube-apiserver --etcd-servers=http://127.0.0.1:{etcd} --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
             --secure-port={port} --cert-dir={at}/pki --service-cluster-ip-range=10.200.0.0/16 --service-account-issuer=https://real \
             --service-account-key-file={at}/sa.pub --service-account-signing-key-file={at}/sa.key --token-auth-file={at}/tokens.csv \
             --authorization-mode=RBAC --endpoint-reconciler-type=none --disable-admission-plugins=ServiceAccount >>{at}/apiserver.log 2>&1"
        );
        Ok(Self {
            commands: [etcd_command, server_command],
            running: [None, None],
            port,
        })
    }

    fn kubeconfig(&self, operator: bool) -> String {
        let who = if operator { "operator" } else { "admin" };
        let server = format!("https://127.0.0.1:{}", self.port);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "soak",
            "clusters": [{"name": "soak", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": who, "user": {"token": format!("t-{who}")}}],
            "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": who}}],
        })
        .to_string()
    }
}

/// A process under a shell that kills it when this process drops it or ends.
struct UnderShell {
    shell: Child,
}

impl UnderShell {
    fn start(command: &str) -> anyhow::Result<Self> {
        let script = format!("{command} </dev/null &\nprocess=$!\ncat >/dev/null\nkill -KILL $process; wait");
        let shell = Command::new("sh").arg("-c").arg(script).stdin(Stdio::piped()).spawn()?;
        Ok(Self { shell })
    }
}

impl Drop for UnderShell {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// The folder with etcd and kube-apiserver, if the environment names one.
pub fn assets() -> Option<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from)
}
