//! Queries usage from a Prometheus server: six queries, within one deadline, with answers of bounded size. Also checks whether it answers.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use axum::body::{Body, to_bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::uri::{Authority, Parts, PathAndQuery};
use http::{Request, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::ConfigExt;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt as _};

use crate::components::accounts::Shares;
use crate::engine::input::Time;
use crate::usage::promql::{self, Answer};
use crate::usage::{Prometheus, Settings};

/// Maximum size of an answer: some tens of thousands of queues.
const MOST: usize = 8 << 20;
/// Timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(5);
/// An idle connection is closed.
const IDLE: Duration = Duration::from_secs(90);
/// Characters of an error's text in messages.
const TOLD: usize = 300;

type Http = BoxCloneSyncService<Request<Body>, http::Response<Incoming>, BoxError>;

/// A Prometheus server by its URL, which may contain user and password.
pub struct Endpoint {
    /// Without path.
    parts: Parts,
    /// Prefix of the paths of its API.
    folder: String,
    credentials: Option<HeaderValue>,
    http: Http,
}

impl Endpoint {
    /// Sends no request yet.
    ///
    /// # Errors
    /// If the URL is invalid, or there are no trusted certificates.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let url: Uri = url.parse().context("its URL is none")?;
        let mut parts = url.into_parts();
        let authority = parts.authority.context("its URL names no host")?;
        let (credentials, host) = match authority.as_str().rsplit_once('@') {
            Some((credentials, host)) => (Some(basic(credentials)?), host.parse::<Authority>()?),
            None => (None, authority),
        };
        let folder = parts.path_and_query.as_ref().map_or("", PathAndQuery::path);
        let folder = folder.trim_end_matches('/').to_owned();
        parts.authority = Some(host);
        parts.path_and_query = None;
        let mut config = Config::new(at(&parts, "/")?);
        if parts.scheme != Some(http::uri::Scheme::HTTPS) {
            // No certificates are needed, and an image may have none.
            config.root_cert = Some(Vec::new());
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        let connector = config.rustls_https_connector_with_connector(tcp)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build::<_, Body>(connector);
        Ok(Self {
            parts,
            folder,
            credentials,
            http: BoxCloneSyncService::new(client.map_err(BoxError::from)),
        })
    }

    /// Checks its status page; any success will do. The caller sets a deadline.
    ///
    /// # Errors
    /// Why the check failed.
    pub async fn ping(&self) -> anyhow::Result<()> {
        let request = Request::get(self.uri("/api/v1/status/config")?).body(Body::empty())?;
        let status = self.send(request).await?.status();
        ensure!(status.is_success(), "the server says {status}");
        Ok(())
    }

    fn uri(&self, path: &str) -> anyhow::Result<Uri> {
        at(&self.parts, &format!("{}{path}", self.folder))
    }

    async fn send(&self, mut request: Request<Body>) -> anyhow::Result<http::Response<Incoming>> {
        if let Some(credentials) = &self.credentials {
            request.headers_mut().insert(AUTHORIZATION, credentials.clone());
        }
        let sent = self.http.clone().oneshot(request).await;
        sent.map_err(|error| anyhow!(error))
    }
}

fn at(parts: &Parts, path: &str) -> anyhow::Result<Uri> {
    let mut whole = Parts::default();
    whole.scheme.clone_from(&parts.scheme);
    whole.authority.clone_from(&parts.authority);
    whole.path_and_query = Some(path.parse()?);
    Ok(Uri::from_parts(whole)?)
}

/// A Prometheus server that usage is queried from.
pub struct Server {
    settings: Prometheus,
    endpoint: Endpoint,
    uri: Uri,
}

impl Server {
    /// Sends no request yet.
    ///
    /// # Errors
    /// If the URL is invalid, or there are no trusted certificates.
    pub fn new(settings: Prometheus) -> anyhow::Result<Self> {
        let endpoint = Endpoint::new(&settings.url)?;
        let uri = endpoint.uri("/api/v1/query")?;
        Ok(Self {
            settings,
            endpoint,
            uri,
        })
    }

    /// Usage of queues until now.
    ///
    /// # Errors
    /// If one of the queries fails, or they take too long together.
    pub async fn usage(&self, how: &Settings, now: Time) -> anyhow::Result<Shares> {
        let Some(queries) = promql::queries(how, &self.settings, now) else {
            return Ok(Vec::new());
        };
        let all = async {
            let mut answers = Vec::with_capacity(queries.len());
            for query in &queries {
                answers.push(self.query(query, now).await.with_context(|| query.clone())?);
            }
            Ok(promql::shares(&answers))
        };
        let timeout = self.settings.timeout;
        tokio::time::timeout(timeout, all)
            .await
            .map_err(|_| anyhow!("no answer within {timeout:?}"))?
    }

    async fn query(&self, query: &str, now: Time) -> anyhow::Result<Answer> {
        let form = [("query", query), ("time", &promql::instant(now))];
        let request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(encode(&form)))?;
        let response = self.endpoint.send(request).await?;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), MOST).await;
        let body =
            body.with_context(|| format!("the answer ({status}) cannot be read, or has more than {MOST} bytes"))?;
        match promql::read(&body) {
            Ok(answer) if status == StatusCode::OK => Ok(answer),
            Ok(_) => bail!("the server says {status}"),
            Err(error) => bail!(
                "the server says {status}: {}",
                error.chars().take(TOLD).collect::<String>()
            ),
        }
    }
}

/// `user:password`, in which special characters are written as `%XX`.
fn basic(credentials: &str) -> anyhow::Result<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(decode(credentials))))?;
    value.set_sensitive(true);
    Ok(value)
}

fn decode(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().iter();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(&byte) = bytes.next() {
        let rest = bytes.as_slice();
        let hex = rest
            .get(..2)
            .filter(|_| byte == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(escaped) => {
                decoded.push(escaped);
                bytes.nth(1);
            }
            None => decoded.push(byte),
        }
    }
    decoded
}

fn encode(form: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in form {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests;
