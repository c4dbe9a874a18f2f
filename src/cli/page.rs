//! `unikai page`: the page in a browser of this machine, with the rights of the user who runs the command.
//!
//! It serves the page itself, and forwards the page's requests to the operator with the caller's token, which the browser never gets. Requests must have a secret
//! that is created for this run and is in the printed link. So other users of the machine, and other web sites in the browser, cannot send requests.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Json, Router};
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::client::{Client, Connection};
use super::output::say;
use crate::api::names::header as named;
use crate::api::views::Problem;
use crate::operator::{page, shutdown};

/// Arguments of `unikai page`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The local port to listen on [default: a free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,

    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  unikai page                  prints the link, by the API server of the kubeconfig
  unikai page --port 8484      to see it from another machine: ssh -L 8484:127.0.0.1:8484 HOST

Ends at SIGINT (Ctrl-C) or SIGTERM.";

/// Limit on the body of a request: manifests.
const BODY_MAX: usize = 8 << 20;
/// The headers of requests that are forwarded, and those of responses.
const ASKED: [header::HeaderName; 3] = [header::ACCEPT_ENCODING, header::CONTENT_TYPE, header::IF_NONE_MATCH];
const ANSWERED: [header::HeaderName; 7] = [
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::ETAG,
    header::RETRY_AFTER,
    header::VARY,
    header::X_CONTENT_TYPE_OPTIONS,
];
/// Timeout of the operator's response.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Interval of renewing the token: those that are requested for the page last twice as long.
const RENEWED: Duration = Duration::from_secs(300);

/// Forwards requests.
struct Proxy {
    /// How to reach the operator.
    connection: Connection,
    /// The client of the operator.
    client: Mutex<Arc<Client>>,
    /// The secret in the link.
    secret: String,
    /// The allowed values of the header `Host`: another one would be a foreign name that resolves to this address (DNS rebinding).
    hosts: [String; 2],
}

/// Runs until a signal.
///
/// # Errors
/// When the operator cannot be reached, or the port is taken.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::open(&args.connection).await?;
    // So that an error is printed here and not only in the browser.
    client.get::<serde_json::Value>("/workloads?limit=1").await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("--port {}", args.port))?;
    let port = listener.local_addr()?.port();
    let secret = crate::random::uuid().simple().to_string();
    let link = format!("http://127.0.0.1:{port}/#token={secret}");
    let proxy = Arc::new(Proxy {
        connection: args.connection,
        client: Mutex::new(Arc::new(client)),
        secret,
        hosts: ["127.0.0.1", "localhost"].map(|name| format!("{name}:{port}")),
    });
    say!("The page, with your rights. Everyone with this link can open it:\n\n  {link}\n\nCtrl-C ends it.");
    let end = CancellationToken::new();
    tokio::spawn(shutdown::on_signal(end.clone()));
    let mut serving = std::pin::pin!(async { axum::serve(listener, router(Arc::clone(&proxy))).await });
    loop {
        tokio::select! {
            served = &mut serving => served?,
            () = end.cancelled() => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(RENEWED) => if let Err(error) = proxy.renew().await {
                eprintln!("no other token: {error:#}");
            },
        }
    }
}

fn router(proxy: Arc<Proxy>) -> Router {
    Router::new()
        .route("/api/v1/{*rest}", any(forward))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(proxy)
        .merge(page::router())
}

/// Forwards a request, if it comes from the page of this run.
async fn forward(
    State(proxy): State<Arc<Proxy>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(why) = proxy.admits(&headers) {
        return refusal(StatusCode::UNAUTHORIZED, why.to_owned());
    }
    match proxy.answer(method, uri, only(&headers, &ASKED), body).await {
        Ok(answer) => {
            let (parts, body) = answer.into_parts();
            let mut response = (parts.status, body).into_response();
            *response.headers_mut() = only(&parts.headers, &ANSWERED);
            response
        }
        Err(error) => refusal(StatusCode::BAD_GATEWAY, format!("{error:#}")),
    }
}

impl Proxy {
    fn admits(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let text = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        if !self.hosts.iter().any(|host| host == text("host")) {
            return Err("this is served to 127.0.0.1 and localhost only");
        }
        // Digests are compared, so that the time of the comparison reveals nothing about the secret.
        if Sha256::digest(text(named::TOKEN)) != Sha256::digest(&self.secret) {
            return Err("use the link that `unikai page` prints");
        }
        Ok(())
    }

    async fn answer(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> anyhow::Result<Response<Body>> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let client = Arc::clone(&self.client.lock().unwrap_or_else(PoisonError::into_inner));
        let answer = tokio::time::timeout(MAX_WAIT, client.forward(request)).await;
        answer.with_context(|| format!("no answer in {} s", MAX_WAIT.as_secs()))?
    }

    /// Gets a new token, since tokens expire.
    async fn renew(&self) -> anyhow::Result<()> {
        let client = Arc::new(Client::open(&self.connection).await?);
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }
}

/// The headers with these names.
fn only(headers: &HeaderMap, names: &[header::HeaderName]) -> HeaderMap {
    let named = |name: &header::HeaderName| Some((name.clone(), headers.get(name)?.clone()));
    names.iter().filter_map(named).collect()
}

fn refusal(status: StatusCode, error: String) -> Response {
    (status, Json(Problem { error })).into_response()
}

#[cfg(test)]
mod tests;
