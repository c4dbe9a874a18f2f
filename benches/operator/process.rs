//! A scheduler as a process of its own, and what it costs.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::cluster::Cluster;
use crate::free_port::free_port;

/// Clock ticks in a second, as `/proc` counts CPU time on Linux.
const TICKS: f64 = 100.0;
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Killed when dropped.
pub struct Process {
    child: Child,
    /// Where it serves HTTP.
    pub http: u16,
}

impl Process {
    /// The operator under its own service account, outside the cluster; returns when it is ready.
    pub async fn operator(cluster: &Cluster) -> anyhow::Result<Self> {
        let [http, webhooks] = [free_port(), free_port()];
        let binary = std::env::var_os("UNIKAI").unwrap_or_else(|| env!("CARGO_BIN_EXE_unikai").into());
        let child = Command::new(binary)
            .args(["--log-format", "json", "run", "--identity", "bench", "--kubeconfig"])
            .arg(cluster.operator_kubeconfig())
            .args(["--http-address", &format!("127.0.0.1:{http}")])
            .args(["--webhook-address", &format!("127.0.0.1:{webhooks}")])
            .args(["--webhook-url", &format!("https://127.0.0.1:{webhooks}")])
            .stdout(File::create(cluster.dir().join("operator.log"))?)
            .stderr(File::create(cluster.dir().join("operator.err"))?)
            .spawn()
            .context("the operator")?;
        let mut process = Self { child, http };
        let deadline = Instant::now() + MAX_WAIT;
        while !ready(http).await {
            if let Some(status) = process.child.try_wait()? {
                bail!("the operator ended: {status}; {}", cluster.dir().display());
            }
            if Instant::now() > deadline {
                bail!("the operator is not ready; {}", cluster.dir().display());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(process)
    }

    /// kube-scheduler without client-side limits in the way.
    pub fn kube_scheduler(binary: &Path, cluster: &Cluster) -> anyhow::Result<Self> {
        let port = free_port();
        let config = cluster.dir().join("kube-scheduler.yaml");
        let kubeconfig = cluster.admin_kubeconfig();
        std::fs::write(
            &config,
            format!(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {{leaderElect: false}}\nclientConnection: {{kubeconfig: {}, qps: 1000, burst: 2000}}\n",
                kubeconfig.display()
            ),
        )?;
        let child = Command::new(binary)
            .arg("--config")
            .arg(&config)
            .args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string()])
            .arg("--cert-dir")
            .arg(cluster.dir().join("kube-scheduler"))
            .stdout(File::create(cluster.dir().join("kube-scheduler.out"))?)
            .stderr(File::create(cluster.dir().join("kube-scheduler.log"))?)
            .spawn()
            .context("kube-scheduler")?;
        Ok(Self { child, http: port })
    }

    /// CPU time so far, of all its threads.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The name, in parentheses, may hold blanks; user and system time are the 14th and 15th fields of the line.
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let ticks: f64 = fields.skip(11).take(2).filter_map(|f| f.parse::<f64>().ok()).sum();
        ticks / TICKS
    }

    /// The memory that it holds.
    pub fn memory_mib(&self) -> u64 {
        self.status_mib("VmRSS:")
    }

    /// The most memory that it ever held.
    pub fn peak_memory_mib(&self) -> u64 {
        self.status_mib("VmHWM:")
    }

    fn status_mib(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find(|l| l.starts_with(field)).unwrap_or_default();
        line.split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(0)
            / 1024
    }

    /// Asks it to end and waits.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        let status = tokio::task::spawn_blocking(move || self.child.wait()).await??;
        if !status.success() {
            bail!("the operator ended badly: {status}");
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn ready(port: u16) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else {
        return false;
    };
    let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut answer = String::new();
    stream.write_all(request).await.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.starts_with("HTTP/1.1 200")
}
