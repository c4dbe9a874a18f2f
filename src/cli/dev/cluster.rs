//! The embedded cluster in one piece: API server, simulated world and, if wanted, the operator, in this process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::install;
use crate::api::names::object;
use crate::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer};
use crate::devcluster::world::{NodeSpec, World, WorldHandle, WorldOptions};
use crate::operator::settings::Settings;
use crate::operator::{Operator, Running};

/// How long the operator may take to be ready.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The HTTP port of the operator's Service.
const HTTP_PORT: u16 = 8080;

/// A cluster that runs in this process. Dropping it ends it at once.
pub struct LocalCluster {
    server: RunningServer,
    world: WorldHandle,
    operator: Option<EmbeddedOperator>,
}

struct EmbeddedOperator {
    http: SocketAddr,
    shutdown: CancellationToken,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl LocalCluster {
    /// Starts a cluster of these nodes; with settings of an operator, also what `kubectl apply -f manifests/` would install, and the
    /// operator itself. Returns when all is ready.
    ///
    /// # Errors
    /// What could not be started, and why.
    pub async fn start(nodes: Vec<NodeSpec>, operator: Option<Settings>) -> anyhow::Result<Self> {
        let server = ApiServer::start(Options::default())
            .await
            .context("the embedded API server")?;
        let client = server.client(&Identity::admin()).await?;
        if let Some(settings) = &operator {
            install::manifests(&client, &settings.common.components)
                .await
                .context("the manifests cannot be applied")?;
        }
        let options = WorldOptions {
            nodes,
            ..WorldOptions::default()
        };
        let world = World::start(client, options).await.context("the simulated nodes")?;
        let operator = match operator {
            Some(settings) => Some(
                EmbeddedOperator::start(&server, settings)
                    .await
                    .context("the operator")?,
            ),
            None => None,
        };
        if let Some(operator) = &operator {
            server.map_service(object::NAMESPACE, object::OPERATOR, HTTP_PORT, operator.http);
        }
        Ok(Self {
            server,
            world,
            operator,
        })
    }

    /// Where the operator serves HTTP, if there is one.
    #[must_use]
    pub fn operator_url(&self) -> Option<String> {
        self.operator
            .as_ref()
            .map(|operator| format!("http://{}", operator.http))
    }

    /// The API server.
    #[must_use]
    pub fn server(&self) -> &RunningServer {
        &self.server
    }

    /// A kubeconfig file's content, for the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let text = self.server.kubeconfig(&Identity::admin());
        match self.operator_url() {
            Some(url) => with_operator(&text, &url).unwrap_or(text),
            None => text,
        }
    }

    /// Waits until something in the cluster fails.
    pub async fn failed(&mut self) -> anyhow::Error {
        let operator = async {
            match &mut self.operator {
                Some(operator) => operator.failed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = operator => error,
            reason = self.world.wait() => anyhow!(reason),
        }
    }

    /// Shuts the operator down gracefully, then stops the rest.
    ///
    /// # Errors
    /// What failed at the end.
    pub async fn stop(self) -> anyhow::Result<()> {
        let ended = match self.operator {
            Some(operator) => operator.stop().await,
            None => Ok(()),
        };
        self.world.shutdown().await;
        self.server.shutdown().await;
        ended
    }
}

impl EmbeddedOperator {
    async fn start(server: &RunningServer, settings: Settings) -> anyhow::Result<Self> {
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&server.kubeconfig(&Identity::operator()))?;
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
        let running = Operator::start(&config, settings).await?;
        ready(&running).await?;
        let shutdown = running.shutdown_token();
        Ok(Self {
            http: running.http,
            shutdown,
            ended: tokio::spawn(running.ended()),
        })
    }

    async fn failed(&mut self) -> anyhow::Error {
        match (&mut self.ended).await {
            Ok(Ok(())) => anyhow!("the operator ended"),
            Ok(Err(error)) => error.context("the operator ended"),
            Err(error) => anyhow!(error).context("the operator ended"),
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        if self.ended.is_finished() {
            // The reason was reported already.
            return Ok(());
        }
        self.ended.await.context("the operator")?
    }
}

/// The kubeconfig with the operator's HTTP address, for the commands that use its API.
fn with_operator(kubeconfig: &str, url: &str) -> Option<String> {
    let mut config: Value = serde_yaml_ng::from_str(kubeconfig).ok()?;
    let extension = json!([{"name": object::KUBECONFIG_EXTENSION, "extension": {"url": url}}]);
    *config
        .pointer_mut("/clusters/0/cluster")?
        .as_object_mut()?
        .entry("extensions")
        .or_insert(Value::Null) = extension;
    serde_yaml_ng::to_string(&config).ok()
}

async fn ready(running: &Running) -> anyhow::Result<()> {
    if tokio::time::timeout(MAX_WAIT, running.ready()).await.is_err() {
        let waiting: Vec<String> = running
            .waiting()
            .into_iter()
            .map(|(name, reason)| format!("{name}: {reason}"))
            .collect();
        bail!("not ready after {} s: {}", MAX_WAIT.as_secs(), waiting.join("; "));
    }
    Ok(())
}
