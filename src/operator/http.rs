//! The HTTP server for people, probes and Prometheus: `/healthz`, `/readyz`, `/metrics`, `/state`. Plain HTTP, and nothing
//! that changes anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::metrics::{self, Page};
use crate::components::readiness::Readiness;

/// Flags of the HTTP server.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Addresses")]
#[group(skip)]
pub struct Args {
    /// Where to serve /healthz, /readyz, /metrics and /state over plain HTTP
    #[arg(
        long,
        env = "UNIKAI_HTTP_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8080"
    )]
    pub http_address: SocketAddr,
}

/// Answers what the state page shows beyond readiness.
pub type Describe = Arc<dyn Fn() -> Value + Send + Sync>;

#[derive(Clone)]
struct Shared {
    readiness: Readiness,
    describe: Describe,
    metrics: Page,
}

/// A server that is bound and not yet serving.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    /// Where it listens; the port is the one that was drawn if port 0 was asked for.
    pub address: SocketAddr,
}

/// Binds the address.
///
/// # Errors
/// When the address cannot be bound.
pub async fn bind(address: SocketAddr) -> anyhow::Result<Bound> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("--http-address {address}"))?;
    let address = listener.local_addr()?;
    Ok(Bound { listener, address })
}

impl Bound {
    /// Serves until `end`.
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(
        self,
        readiness: Readiness,
        describe: Describe,
        metrics: Page,
        end: CancellationToken,
    ) -> anyhow::Result<()> {
        let upkeep = metrics.clone();
        let shared = Shared {
            readiness,
            describe,
            metrics,
        };
        let server = axum::serve(self.listener, router(shared)).with_graceful_shutdown(end.clone().cancelled_owned());
        tokio::select! {
            served = server => Ok(served?),
            () = upkeep.keep_up() => Ok(()),
            // A scraper that keeps its connection open does not keep the process alive.
            () = async { end.cancelled().await; tokio::time::sleep(Duration::from_millis(200)).await } => Ok(()),
        }
    }
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_page))
        .route("/state", get(state))
        .with_state(shared)
}

async fn readyz(State(shared): State<Shared>) -> Response {
    let waiting = waiting(&shared.readiness);
    let status = if waiting.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(json!({"ready": waiting.is_empty(), "waiting": waiting}))).into_response()
}

async fn state(State(shared): State<Shared>) -> Json<Value> {
    let mut page = (shared.describe)();
    page["waiting"] = json!(waiting(&shared.readiness));
    Json(page)
}

async fn metrics_page(State(shared): State<Shared>) -> Response {
    let headers = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    (headers, shared.metrics.render()).into_response()
}

fn waiting(readiness: &Readiness) -> Vec<Value> {
    readiness
        .waiting()
        .into_iter()
        .map(|(name, reason)| json!({"name": name, "reason": reason}))
        .collect()
}
