//! The replicas of the operator as processes. Each reaches the API server through a proxy with a [`Link`], which has the faults of the simulation.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Request, StatusCode, header};
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tower::ServiceExt as _;
use unikai::devcluster::apiserver::in_process::Service;

use crate::free_port::free_port;
use crate::network::{Link, LinksOfRun};

/// The environment variable that names another binary of the operator than the one that was built with the tests.
const OPERATOR: &str = "UNIKAI_OPERATOR";

/// A replica as a process.
pub struct Process {
    pub name: String,
    pub link: Link,
    pub started: Instant,
    child: Child,
    proxy: AbortHandle,
    webhooks: u16,
    log: PathBuf,
    /// How much of the log was read.
    read: u64,
    told_to_end: bool,
    /// It was stopped, and may end until then: a scheduler that does not come on gives up the Lease.
    may_end_until: Option<Instant>,
}

/// What all replicas share.
pub struct Setting {
    pub folder: PathBuf,
    /// The API server, with the operator's rights.
    pub api_server: Service,
    pub links: LinksOfRun,
    /// Where the API server reaches the webhooks.
    pub webhooks: Webhooks,
    pub seed: u64,
}

impl Process {
    /// Starts the replica that is the `started`th of the run.
    pub async fn start(setting: &Setting, place: &str, started: u64) -> anyhow::Result<Self> {
        let name = format!("{place}-{started}");
        let seed = setting.seed.wrapping_mul(1_000).wrapping_add(started);
        let link = Link::new(&name, seed, setting.api_server.clone(), &setting.links);
        let (proxy, port) = serve(&link).await?;
        let kubeconfig = setting.folder.join(format!("{name}.kubeconfig"));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "soak",
            "clusters": [{"name": "soak", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "users": [{"name": "operator", "user": {}}],
            "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "operator"}}],
        });
        std::fs::write(&kubeconfig, config.to_string())?;
        let (http, webhooks) = (free_port(), free_port());
        let log = setting.folder.join(format!("{name}.log"));
        let built = || env!("CARGO_BIN_EXE_unikai").into();
        let child = Command::new(std::env::var_os(OPERATOR).unwrap_or_else(built))
            .args([
                "--log-format",
                "json",
                "run",
                "--identity",
                &name,
                "--gpu-sharing",
                "true",
                "--kubeconfig",
            ])
            .arg(&kubeconfig)
            .args(["--http-address", &format!("127.0.0.1:{http}")])
            .args(["--webhook-address", &format!("127.0.0.1:{webhooks}")])
            .args(["--webhook-url", &setting.webhooks.url()])
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?)
            .spawn()
            .context("the operator")?;
        setting.webhooks.add(webhooks);
        Ok(Self {
            name,
            link,
            started: Instant::now(),
            child,
            proxy,
            webhooks,
            log,
            read: 0,
            told_to_end: false,
            may_end_until: None,
        })
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(&mut self, setting: &Setting) {
        self.told_to_end = true;
        setting.webhooks.remove(self.webhooks);
        self.link.crash();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end.
    pub fn terminate(&mut self) {
        self.told_to_end = true;
        self.signal("TERM");
    }

    /// Stops it, as a machine that is moved or swaps does.
    pub fn stop(&mut self) {
        self.may_end_until = Some(Instant::now() + Duration::from_hours(1));
        self.signal("STOP");
    }

    /// Ends the stop.
    pub fn resume(&mut self) {
        self.may_end_until = Some(Instant::now() + Duration::from_mins(1));
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-s", signal, &id]).status();
    }

    /// How it ended, unless it runs.
    pub fn has_ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(status.to_string())
    }

    /// Whether it was told to end, or a fault explains that it ends.
    pub fn may_end(&self) -> bool {
        self.told_to_end || self.may_end_until.is_some_and(|until| Instant::now() < until)
    }

    /// The memory that it holds, in KiB.
    pub fn memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    }

    /// Lines that it has logged as ERROR since the last time, and panics. Its whole log is in a file of its name.
    pub fn errors(&mut self) -> Vec<String> {
        let mut new = Vec::new();
        let read = File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_end(&mut new)
        });
        if read.is_err() {
            return Vec::new();
        }
        // The last line may be incomplete.
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        let text = String::from_utf8_lossy(&new[..whole]).into_owned();
        text.lines().filter(|line| is_error(line)).map(str::to_owned).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.proxy.abort();
    }
}

/// As in the simulation, what libraries log as ERROR does not count.
fn is_error(line: &str) -> bool {
    let Ok(entry) = serde_json::from_str::<Value>(line) else {
        return line.contains("panicked");
    };
    let target = entry["target"].as_str().unwrap_or_default();
    entry["level"] == "ERROR" && target.starts_with("unikai")
}

/// Serves a link over HTTP until it is aborted.
async fn serve(link: &Link) -> anyhow::Result<(AbortHandle, u16)> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let service = link.service();
    let proxy = axum::Router::new().fallback(move |request: Request<Body>| {
        let service = service.clone();
        async move { forward(service, request).await }
    });
    let task = tokio::spawn(async move {
        let _ = axum::serve(listener, proxy).await;
    });
    Ok((task.abort_handle(), port))
}

async fn forward(service: Service, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    match service.oneshot(request).await {
        Ok(mut answer) => {
            let headers: &mut HeaderMap = answer.headers_mut();
            headers.remove(header::TRANSFER_ENCODING);
            headers.remove(header::CONNECTION);
            answer
        }
        // The API server is away.
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// The one address at which the API server calls webhooks: a connection goes to the first replica that takes it.
#[derive(Clone)]
pub struct Webhooks {
    port: u16,
    replicas: Arc<Mutex<Vec<u16>>>,
}

impl Webhooks {
    pub async fn serve() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let webhooks = Self {
            port: listener.local_addr()?.port(),
            replicas: Arc::default(),
        };
        let served = webhooks.clone();
        tokio::spawn(async move {
            while let Ok((mut caller, _)) = listener.accept().await {
                let replicas = served.clone();
                tokio::spawn(async move {
                    if let Some(mut replica) = replicas.connect().await {
                        let _ = tokio::io::copy_bidirectional(&mut caller, &mut replica).await;
                    }
                });
            }
        });
        Ok(webhooks)
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn replicas(&self) -> std::sync::MutexGuard<'_, Vec<u16>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, port: u16) {
        self.replicas().push(port);
    }

    fn remove(&self, port: u16) {
        self.replicas().retain(|known| *known != port);
    }

    async fn connect(&self) -> Option<tokio::net::TcpStream> {
        let ports = self.replicas().clone();
        for port in ports {
            let connected = tokio::net::TcpStream::connect(("127.0.0.1", port));
            if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(2), connected).await {
                return Some(stream);
            }
        }
        None
    }
}
