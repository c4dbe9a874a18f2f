//! A client of a running operator's HTTP API: at an address, or through the API server of a kubeconfig. Requests carry the caller's token, since
//! the operator answers by the caller's rights.

mod credentials;
mod flags;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::body::{Body, Bytes};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::show::{self, Output};
use crate::api::names::{header as named, object};
use crate::api::views::{NodeList, Problem, WorkloadList};
use credentials::Credentials;
pub use flags::{Kubeconfig, Subject, Token, Where};

/// Limits on the time and the size of a response.
const MAX_WAIT: Duration = Duration::from_secs(60);
const ANSWER_MAX: usize = 256 << 20;
/// The type of all that is sent.
const MANIFESTS: &str = "application/yaml";
/// Interval at which an operator that is busy is asked again.
const BUSY: Duration = Duration::from_secs(2);

/// How to reach the operator, and with which credentials.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// URL of the operator's HTTP server, such as http://127.0.0.1:8080 [default: through the API server of the kubeconfig]
    #[arg(long, env = "UNIKAI_URL", value_name = "URL")]
    url: Option<String>,

    #[command(flatten)]
    kubeconfig: Kubeconfig,

    /// The operator's namespace
    #[arg(long, env = "UNIKAI_NAMESPACE", value_name = "NAME", default_value = object::NAMESPACE)]
    operator_namespace: String,

    #[command(flatten)]
    token: Token,

    /// If the kubeconfig has a client certificate and no token: request a token of this service account from the API server
    #[arg(long, env = "UNIKAI_SERVICE_ACCOUNT", value_name = "NAMESPACE/NAME")]
    service_account: Option<String>,
}

/// The API server of a kubeconfig, with the kubeconfig's credentials.
#[derive(Clone)]
pub struct Cluster {
    /// A client of it.
    pub api: kube::Client,
    /// The namespace of the kubeconfig.
    pub namespace: String,
}

impl Cluster {
    /// Reads the kubeconfig. Sends no request.
    ///
    /// # Errors
    /// When there is no kubeconfig, or it is invalid.
    pub async fn open(kubeconfig: &Kubeconfig) -> anyhow::Result<Self> {
        Self::of(config(kubeconfig).await?)
    }

    fn of(config: kube::Config) -> anyhow::Result<Self> {
        let namespace = config.default_namespace.clone();
        let api = kube::Client::try_from(config)?;
        Ok(Self { api, namespace })
    }
}

async fn config(kubeconfig: &Kubeconfig) -> anyhow::Result<kube::Config> {
    let (config, _) = credentials::read(kubeconfig).await?;
    config.context("there is no kubeconfig; name one with --kubeconfig")
}

/// A client of the API server whose requests are limited to this time, and are repeated within it.
///
/// # Errors
/// When there is no kubeconfig, or it is invalid.
pub async fn api_server(kubeconfig: &Kubeconfig, request: Duration) -> anyhow::Result<kube::Client> {
    let mut config = config(kubeconfig).await?;
    config.connect_timeout = Some(request / 2);
    config.read_timeout = Some(request);
    config.default_retry = true;
    Ok(kube::Client::try_from(config)?)
}

/// A client of an operator's HTTP API.
pub struct Client {
    way: Way,
    token: Mutex<String>,
    /// The source of the token, for another one when it expires; `None`: the token stays.
    source: Option<Connection>,
    /// The API server, if a kubeconfig leads to one.
    cluster: Option<Cluster>,
    /// Whether control characters in answers stay as they are.
    verbatim: bool,
}

enum Way {
    /// Plain HTTP to an address.
    Direct(String),
    /// Through the API server's proxy: its client, and the path of the operator's Service.
    Proxied(kube::Client, String),
}

/// The operator's refusal of a request.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Denied {
    status: StatusCode,
    text: String,
}

/// Whether an error is the operator's refusal of a request for which the caller lacks a right.
#[must_use]
pub fn is_forbidden(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<Denied>()
        .is_some_and(|denied| denied.status == StatusCode::FORBIDDEN)
}

impl Client {
    /// For an address, with a token: `unikai demo` uses it for its own operator.
    #[cfg(feature = "devcluster")]
    #[must_use]
    pub fn direct(url: String, token: String) -> Self {
        Self {
            way: Way::Direct(url),
            token: Mutex::new(token),
            source: None,
            cluster: None,
            verbatim: false,
        }
    }

    /// Finds address and credentials. Sends no request, except to the API server if a token must be created.
    ///
    /// # Errors
    /// When the operator's address or a token cannot be found.
    pub async fn open(connection: &Connection) -> anyhow::Result<Self> {
        let Credentials { config, address, token } = credentials::find(connection).await?;
        let cluster = config.map(Cluster::of).transpose()?;
        let way = match (connection.url.clone().or(address), &cluster) {
            (Some(url), _) => Way::Direct(plain(&url)?),
            (None, Some(cluster)) => {
                let operator = &connection.operator_namespace;
                let service = format!("/api/v1/namespaces/{operator}/services/http:unikai:8080/proxy");
                Way::Proxied(cluster.api.clone(), service)
            }
            (None, None) => bail!("there is no kubeconfig; name one, or the operator's address with --url"),
        };
        Ok(Self {
            way,
            token: Mutex::new(token),
            source: Some(connection.clone()),
            cluster,
            verbatim: false,
        })
    }

    /// The same for an output format: control characters in answers are escaped, unless the format does that itself.
    #[must_use]
    pub fn printing(self, output: Output) -> Self {
        let verbatim = matches!(output, Output::Json | Output::Yaml);
        Self { verbatim, ..self }
    }

    /// The caller's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        let cluster = self.cluster.as_ref();
        cluster.map_or("default", |cluster| &*cluster.namespace)
    }

    /// The API server.
    ///
    /// # Errors
    /// When there is no kubeconfig.
    pub fn cluster(&self) -> anyhow::Result<&Cluster> {
        let missing = "there is no kubeconfig, and this needs the API server; name one with --kubeconfig";
        self.cluster.as_ref().context(missing)
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// When the operator cannot be reached or refuses.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::GET, path, Vec::new()).await
    }

    /// All pages of a list in order of names.
    ///
    /// # Errors
    /// When the operator cannot be reached or refuses.
    pub async fn list<T: DeserializeOwned + Paged>(&self, path: &str) -> anyhow::Result<T> {
        let mut whole: T = self.get(path).await?;
        while let Some(last) = whole.next() {
            let mark = if path.contains('?') { '&' } else { '?' };
            let page: T = self.get(&format!("{path}{mark}after={last}")).await?;
            whole.append(page);
        }
        Ok(whole)
    }

    /// Sends manifests with a POST request.
    ///
    /// # Errors
    /// When the operator cannot be reached or refuses.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, manifests: String) -> anyhow::Result<T> {
        self.ask(Method::POST, path, manifests.into_bytes()).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<T> {
        self.ask_within(MAX_WAIT, method, path, body).await
    }

    /// An operator that is busy is asked again; if it is busy all the time, it says so in the error.
    async fn ask_within<T: DeserializeOwned>(
        &self,
        max_wait: Duration,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<T> {
        let path = format!("/api/v1{path}");
        let mut busy = None;
        let asked = async {
            let mut renewed = false;
            loop {
                let answer = self.send(method.clone(), &path, body.clone()).await?;
                match answer.0 {
                    // Others have their turns before.
                    StatusCode::TOO_MANY_REQUESTS => {
                        busy = Some(answer);
                        tokio::time::sleep(BUSY).await;
                    }
                    StatusCode::UNAUTHORIZED if !renewed => {
                        renewed = true;
                        if !Box::pin(self.renew()).await? {
                            return Ok(answer);
                        }
                    }
                    _ => return Ok(answer),
                }
            }
        };
        let asked = tokio::time::timeout(max_wait, asked).await;
        let unanswered = || busy.with_context(|| format!("{path}: no answer in {} s", max_wait.as_secs()));
        let (status, bytes) = asked.unwrap_or_else(|_| unanswered())?;
        if status.is_success() {
            return self
                .decode(&bytes)
                .with_context(|| format!("{path}: the answer cannot be read"));
        }
        let text = match serde_json::from_slice::<Problem>(&bytes) {
            Ok(Problem { error }) => show::escaped_lines(&error),
            Err(_) => {
                let text = String::from_utf8_lossy(&bytes);
                format!("{path}: {status}: {}", show::escaped_lines(&refusal(&text)))
            }
        };
        Err(Denied { status, text }.into())
    }

    /// Finds the token once more, as it may have expired. Returns whether it is another one.
    async fn renew(&self) -> anyhow::Result<bool> {
        let Some(source) = &self.source else { return Ok(false) };
        let Credentials { token, .. } = credentials::find(source).await?;
        let mut known = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let is_another = *known != token;
        *known = token;
        Ok(is_another)
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> serde_json::Result<T> {
        if self.verbatim {
            return serde_json::from_slice(bytes);
        }
        let mut answer: Value = serde_json::from_slice(bytes)?;
        show::escape_strings(&mut answer);
        serde_json::from_value(answer)
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, MANIFESTS)
            .body(body.into())?;
        let answer = self.forward(request).await?;
        let status = answer.status();
        let bytes = axum::body::to_bytes(answer.into_body(), ANSWER_MAX).await?;
        Ok((status, bytes.to_vec()))
    }

    /// Forwards a request to the operator, with the caller's token.
    ///
    /// # Errors
    /// When the operator cannot be reached.
    pub async fn forward(&self, request: Request<Bytes>) -> anyhow::Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (address, name, token) = match &self.way {
            Way::Direct(url) => (format!("{url}{path}"), header::AUTHORIZATION, format!("Bearer {token}")),
            Way::Proxied(_, service) => (format!("{service}{path}"), HeaderName::from_static(named::TOKEN), token),
        };
        parts.uri = address.parse()?;
        parts.headers.insert(name, HeaderValue::from_str(&token)?);
        match &self.way {
            Way::Direct(url) => {
                let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
                let client: hyper_util::client::legacy::Client<HttpConnector, Body> = client.build_http();
                let answer = client.request(Request::from_parts(parts, Body::from(body))).await;
                let answer = answer.with_context(|| format!("the operator cannot be reached at {url}"))?;
                Ok(answer.map(Body::new))
            }
            Way::Proxied(client, _) => {
                let body = kube::client::Body::from(body.to_vec());
                let answer = client.send(Request::from_parts(parts, body)).await;
                Ok(answer.context("the API server cannot be reached")?.map(Body::new))
            }
        }
    }
}

/// A list that the operator hands out in pages.
pub trait Paged {
    /// The value of `after` for the next page.
    fn next(&self) -> Option<&str>;
    /// Adds the entries of the next page.
    fn append(&mut self, page: Self);
}

impl Paged for NodeList {
    fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    fn append(&mut self, page: Self) {
        self.nodes.extend(page.nodes);
        self.next = page.next;
    }
}

impl Paged for WorkloadList {
    fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    fn append(&mut self, page: Self) {
        self.workloads.extend(page.workloads);
        self.next = page.next;
    }
}

/// The address without a slash at its end.
fn plain(url: &str) -> anyhow::Result<String> {
    if !url.starts_with("http://") {
        bail!("{url}: the operator serves plain HTTP; not of the form http://HOST:PORT");
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// The message in the response of an API server, or of a proxy before it.
fn refusal(text: &str) -> String {
    let status: Option<Value> = serde_json::from_str(text).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str());
    message.unwrap_or(text).trim().chars().take(400).collect()
}

#[cfg(test)]
pub(super) mod tests;
