//! The way to the API of an operator that runs: to an address, or through the API server of a kubeconfig. The caller's token goes along, since
//! what is shown is what its own rights let it see.

mod credentials;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use axum::body::{Body, Bytes};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

use crate::api::names::{header as named, object};
use crate::api::views::Problem;
use credentials::Credentials;

/// How long an answer may take, and be.
const PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_MAX: usize = 256 << 20;

/// How to reach the operator, and as whom.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Where the operator serves HTTP, as http://127.0.0.1:8080 [default: through the API server of the kubeconfig]
    #[arg(long, env = "UNIKAI_URL", value_name = "URL")]
    url: Option<String>,

    /// The kubeconfig file [default: that of kubectl]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The operator's namespace
    #[arg(long, env = "UNIKAI_NAMESPACE", value_name = "NAME", default_value = object::NAMESPACE)]
    operator_namespace: String,

    /// A file with the token to show [default: that of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// The token to show
    #[arg(
        long,
        env = "UNIKAI_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        conflicts_with = "token_file"
    )]
    token: Option<String>,

    /// With a kubeconfig that has a client certificate and no token: have the API server make a token of this service account
    #[arg(long, env = "UNIKAI_SERVICE_ACCOUNT", value_name = "NAMESPACE/NAME")]
    service_account: Option<String>,
}

/// Which namespaces.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Where {
    /// The namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,

    /// All namespaces that you may see
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

impl Where {
    /// The namespace; `None` for all.
    #[must_use]
    pub fn namespace(&self, client: &Client) -> Option<String> {
        if self.all_namespaces {
            return None;
        }
        Some(self.one(client))
    }

    /// The namespace of something that is in one.
    #[must_use]
    pub fn one(&self, client: &Client) -> String {
        self.namespace.clone().unwrap_or_else(|| client.namespace.clone())
    }
}

/// A way to an operator.
pub struct Client {
    way: Way,
    token: String,
    /// The namespace of whoever asks.
    namespace: String,
}

enum Way {
    /// Plain HTTP to an address.
    Direct(String),
    /// Through the API server: a client of it, and the path of the operator's service.
    Proxied(Box<kube::Client>, String),
}

impl Client {
    /// To an address, with a token.
    #[must_use]
    pub fn direct(url: String, token: String) -> Self {
        Self {
            way: Way::Direct(url),
            token,
            namespace: "default".to_owned(),
        }
    }

    /// Finds the way. Nothing is asked yet but, where a token has to be made, the API server.
    ///
    /// # Errors
    /// When there is no way, or no token.
    pub async fn open(connection: &Connection) -> anyhow::Result<Self> {
        let Credentials { config, address, token } = credentials::find(connection).await?;
        let namespace = config
            .as_ref()
            .map_or_else(|| "default".to_owned(), |config| config.default_namespace.clone());
        let way = match (connection.url.clone().or(address), config) {
            (Some(url), _) => Way::Direct(plain(&url)?),
            (None, Some(config)) => {
                let operator = &connection.operator_namespace;
                let service = format!("/api/v1/namespaces/{operator}/services/http:unikai:8080/proxy");
                Way::Proxied(Box::new(kube::Client::try_from(config)?), service)
            }
            (None, None) => bail!("there is no kubeconfig; name one, or the operator's address with --url"),
        };
        Ok(Self { way, token, namespace })
    }

    /// The namespace of whoever asks.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// An answer of the API.
    ///
    /// # Errors
    /// When the operator cannot be reached or refuses.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::GET, path, Vec::new()).await
    }

    /// The answer to something that is sent.
    ///
    /// # Errors
    /// When the operator cannot be reached or refuses.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: Vec<u8>) -> anyhow::Result<T> {
        self.ask(Method::POST, path, body).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<T> {
        let path = format!("/api/v1{path}");
        let asked = tokio::time::timeout(PATIENCE, self.send(method, &path, body)).await;
        let (status, bytes) =
            asked.unwrap_or_else(|_| Err(anyhow!("{path}: no answer in {} s", PATIENCE.as_secs())))?;
        if status.is_success() {
            return serde_json::from_slice(&bytes).with_context(|| format!("{path}: the answer cannot be read"));
        }
        let text = String::from_utf8_lossy(&bytes);
        match serde_json::from_slice::<Problem>(&bytes) {
            Ok(Problem { error }) => bail!("{error}"),
            Err(_) => bail!("{path}: {status}: {}", refusal(&text)),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.into())?;
        let answer = self.pass(request).await?;
        let status = answer.status();
        let bytes = axum::body::to_bytes(answer.into_body(), ANSWER_MAX).await?;
        Ok((status, bytes.to_vec()))
    }

    /// Passes a request on to the operator, with the caller's token.
    ///
    /// # Errors
    /// When the operator cannot be reached.
    pub async fn pass(&self, request: Request<Bytes>) -> anyhow::Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let (address, name, token) = match &self.way {
            Way::Direct(url) => (
                format!("{url}{path}"),
                header::AUTHORIZATION,
                format!("Bearer {}", self.token),
            ),
            Way::Proxied(_, service) => (
                format!("{service}{path}"),
                HeaderName::from_static(named::TOKEN),
                self.token.clone(),
            ),
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

/// The address without a slash at its end.
fn plain(url: &str) -> anyhow::Result<String> {
    if !url.starts_with("http://") {
        bail!("{url}: the operator serves plain HTTP; not of the form http://HOST:PORT");
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// What an API server says, or whoever is in between.
fn refusal(text: &str) -> String {
    let status: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str());
    message.unwrap_or(text).trim().chars().take(400).collect()
}
