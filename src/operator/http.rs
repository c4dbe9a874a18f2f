//! The HTTP server for people, probes and Prometheus: the page, `/healthz`, `/readyz`, `/metrics`, `/state`, `/get-snapshot`, `/get-job-order`, `/log-level`,
//! `/debug/pprof/profile`, `/api/v1/`.
//! Plain HTTP; no request changes anything in the cluster. Pages about the cluster are served to callers whom the API server authorizes (`access.rs`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper_util::rt::TokioTimer;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::access::{Access, Right};
use super::inspection::Inspection;
use super::metrics::{self, Page};
use super::page;
use super::profile;
use super::telemetry;
use super::unread;
use super::views::{self, Views};
use crate::components::admission::connections::Connections;
use crate::components::heartbeat::Heartbeat;
use crate::components::readiness::Readiness;

/// Limits on the time and the size of a request's header. The largest part of it is a token of a few kilobytes.
const HEADER: Duration = Duration::from_secs(10);
const HEADER_BYTES: usize = 64 << 10;
const HEADER_LIST: u32 = 64 << 10;
/// Limit on the body of a request. Only `/log-level` takes one: a log filter.
const BODY_MAX: usize = 1 << 10;
/// Limit on concurrent requests on one connection.
const STREAMS: u32 = 16;
/// The path of CPU profiles, as in programs written in Go.
pub const PROFILE: &str = "/debug/pprof/profile";
/// How long open requests may take at shutdown.
const DRAIN: Duration = Duration::from_millis(200);

/// Flags of the HTTP server.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Addresses")]
#[group(skip)]
pub struct Args {
    /// Address of the HTTP server with /healthz, /readyz, /metrics and /state
    #[arg(
        long,
        env = "UNIKAI_HTTP_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8080"
    )]
    pub http_address: SocketAddr,

    /// Serve /metrics, like /state, only to users with the right to read it
    #[arg(long, env = "UNIKAI_PROTECT_METRICS", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub protect_metrics: bool,
}

/// The liveness check: an error is the reason to restart the process.
pub type Alive = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A liveness check that fails when the scheduler's thread has been busy with one piece of work for `bound`.
#[must_use]
pub fn alive(heartbeat: Heartbeat, bound: Duration) -> Alive {
    Arc::new(move || {
        let busy_for = heartbeat.busy_for();
        if busy_for < bound {
            Ok(())
        } else {
            Err(format!("the scheduler has been stuck for {} s", busy_for.as_secs()))
        }
    })
}

/// Computes the content of `/state`, apart from readiness.
pub type Describe = Arc<dyn Fn() -> Value + Send + Sync>;

/// What the server's pages are made from.
pub struct Shown {
    /// For `/healthz`.
    pub alive: Alive,
    /// For `/readyz`.
    pub readiness: Readiness,
    /// For `/state`.
    pub describe: Describe,
    /// For `/metrics`.
    pub metrics: Page,
    /// Authorizes requests.
    pub access: Arc<Access>,
    /// For `/api/v1/`.
    pub views: Arc<Views>,
    /// For `/get-snapshot` and `/get-job-order`.
    pub inspection: Arc<Inspection>,
    /// Whether `/metrics` is served to authorized callers only.
    pub protect_metrics: bool,
}

type Shared = Arc<Shown>;

/// A server that is bound and not yet serving.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    /// Where it listens, with the actual port if port 0 was requested.
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
    /// When the listener fails.
    pub async fn serve(self, shown: Shown, end: CancellationToken) -> anyhow::Result<()> {
        let upkeep = shown.metrics.clone();
        let handle = axum_server::Handle::<SocketAddr>::new();
        let server = limited(self.listener)?.handle(handle.clone());
        let server = server.serve(router(Arc::new(shown)).into_make_service());
        let shut_down = async {
            end.cancelled().await;
            // A bounded time: a scraper that keeps its connection open must not delay the end of the process.
            handle.graceful_shutdown(Some(DRAIN));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            served = server => Ok(served?),
            () = upkeep.keep_up() => Ok(()),
            () = shut_down => Ok(()),
        }
    }
}

/// A server with limits on connections and requests.
fn limited(listener: TcpListener) -> anyhow::Result<axum_server::Server<SocketAddr, Connections>> {
    let mut server = axum_server::from_tcp(listener.into_std()?)?.acceptor(Connections::new());
    let protocol = server.http_builder();
    protocol
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_buf_size(HEADER_BYTES)
        // Else bodies would be copied into the connection's buffer, where they take no room of `unread`, and each copy of a static one takes memory.
        .writev(true);
    protocol
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_LIST);
    Ok(server)
}

fn router(shared: Shared) -> Router {
    let views = views::router(Arc::clone(&shared.views));
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_page))
        .route("/state", get(state))
        .route("/get-snapshot", get(get_snapshot))
        .route("/get-job-order", get(get_job_order))
        .route("/log-level", get(log_level).put(set_log_level))
        .route(PROFILE, get(cpu_profile))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(shared)
        .merge(page::router())
        .nest(views::PREFIX, views)
}

async fn healthz(State(shared): State<Shared>) -> Response {
    match (shared.alive)() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// Ready once and for all, since the Service of the webhooks leads to ready pods only; `waiting` has what is not ready now.
async fn readyz(State(shared): State<Shared>) -> Response {
    let ready = shared.readiness.were_ready();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        Json(json!({"ready": ready, "waiting": waiting(&shared.readiness)})),
    )
        .into_response()
}

async fn state(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(refusal) = shared.access.refuses(Right::view("/state"), &headers).await {
        return refusal;
    }
    let mut page = (shared.describe)();
    page["waiting"] = json!(waiting(&shared.readiness));
    Json(page).into_response()
}

async fn metrics_page(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if shared.protect_metrics
        && let Some(refusal) = shared.access.refuses(Right::view("/metrics"), &headers).await
    {
        return refusal;
    }
    match shared.metrics.text() {
        Some((text, place)) => {
            let response = unread::response(text.into(), place);
            ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], response).into_response()
        }
        None => (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many clients have not read their page yet\n",
        )
            .into_response(),
    }
}

/// Query parameters of pages about one shard.
#[derive(Debug, Deserialize)]
struct ShardQuery {
    shard: Option<String>,
}

async fn get_snapshot(State(shared): State<Shared>, Query(query): Query<ShardQuery>, headers: HeaderMap) -> Response {
    let right = Right::maintain("get", "/get-snapshot");
    match shared.access.refuses(right, &headers).await {
        Some(refusal) => refusal,
        None => {
            shared
                .inspection
                .snapshot(query.shard.as_deref(), &shared.readiness)
                .await
        }
    }
}

async fn get_job_order(State(shared): State<Shared>, Query(query): Query<ShardQuery>, headers: HeaderMap) -> Response {
    let right = Right::maintain("get", "/get-job-order");
    match shared.access.refuses(right, &headers).await {
        Some(refusal) => refusal,
        None => shared.inspection.job_order(query.shard.as_deref()).await,
    }
}

async fn log_level(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let right = Right::maintain("get", "/log-level");
    if let Some(refusal) = shared.access.refuses(right, &headers).await {
        return refusal;
    }
    match telemetry::log_level() {
        Some(level) => format!("{level}\n").into_response(),
        None => (StatusCode::NOT_FOUND, "logging is not this process's own\n").into_response(),
    }
}

/// The body is a value of `--log-level`.
async fn set_log_level(State(shared): State<Shared>, headers: HeaderMap, body: String) -> Response {
    let right = Right::maintain("put", "/log-level");
    if let Some(refusal) = shared.access.refuses(right, &headers).await {
        return refusal;
    }
    match telemetry::set_log_level(body.trim()) {
        Ok(()) => {
            info!(level = body.trim(), "the log level was changed");
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error:#}\n")).into_response(),
    }
}

/// Query parameters of a profile.
#[derive(Debug, Deserialize)]
struct ProfileQuery {
    seconds: Option<String>,
}

async fn cpu_profile(State(shared): State<Shared>, Query(query): Query<ProfileQuery>, headers: HeaderMap) -> Response {
    let right = Right::maintain("get", PROFILE);
    match shared.access.refuses(right, &headers).await {
        Some(refusal) => refusal,
        None => profile::profile(query.seconds.as_deref()).await,
    }
}

fn waiting(readiness: &Readiness) -> Vec<Value> {
    readiness
        .waiting()
        .into_iter()
        .map(|(name, reason)| json!({"name": name, "reason": reason}))
        .collect()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::time::{sleep, timeout};

    use super::unread::{Place, Room};
    use super::*;

    /// More than the buffers of the sockets.
    const LONG: usize = 64 << 20;

    /// A client that has read the beginning of a long answer, which is broken off after `longest`.
    async fn reader(longest: Duration, place: fn() -> Option<Place>) -> TcpStream {
        let answer = move || async move {
            let place = place().expect("there is room");
            unread::within(longest, vec![b'x'; LONG].into(), place)
        };
        let Bound { listener, address } = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let router = Router::new().route("/", get(answer));
        tokio::spawn(limited(listener).unwrap().serve(router.into_make_service()));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        // More than the header: the body is on its way.
        client.read_exact(&mut [0; 4 << 10]).await.unwrap();
        client
    }

    #[tokio::test]
    async fn an_answer_takes_room_until_its_client_has_read_it_or_is_gone() {
        static ROOM: Room = Room::new(LONG);
        let client = reader(unread::LONGEST, || ROOM.take("a", LONG)).await;
        let is_free = || ROOM.take("b", LONG).is_some();
        assert!(!is_free());
        drop(client);
        let freed = async {
            while !is_free() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(10), freed).await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_to_a_client_that_reads_a_byte_now_and_then_is_broken_off() {
        static ROOM: Room = Room::new(LONG);
        let mut client = reader(Duration::from_millis(500), || ROOM.take("a", LONG)).await;
        let is_free = || ROOM.take("b", LONG).is_some();
        let freed = async {
            while !is_free() {
                client.read_u8().await.unwrap();
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(10), freed).await.unwrap();
        // It reads faster now, and finds the connection closed.
        let mut rest = Vec::new();
        let read = timeout(Duration::from_secs(10), client.read_to_end(&mut rest)).await;
        assert!(read.is_ok() && rest.len() < LONG - (1 << 20), "{}", rest.len());
    }

    #[test]
    fn a_process_whose_scheduler_is_stuck_is_not_alive() {
        let bound = Duration::from_millis(20);
        let heartbeat = Heartbeat::default();
        let alive = alive(heartbeat.clone(), bound);
        heartbeat.work();
        std::thread::sleep(bound * 2);
        assert!(alive().unwrap_err().starts_with("the scheduler has been stuck"));
        heartbeat.wait();
        assert_eq!(alive(), Ok(()));
    }
}
