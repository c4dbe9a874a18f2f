//! The HTTPS server of the webhooks: reads the question, fetches what the rule must know, asks the rule, answers.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::RustlsConfig;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::lookups::Lookups;
use super::pods::gpu_sharing::random_suffix;
use super::review::{Answer, Operation, Request, Review, Verdict};
use super::{Settings, pod_groups, pods, queues, topologies};
use crate::api::names::webhook;
use crate::components::readiness::Handle;

/// The API server takes objects of up to 3 MiB, and sends the old one along.
const BODY_LENGTH_MAX: usize = 8 << 20;
/// How long requests under way may take at the end.
const DRAIN: Duration = Duration::from_secs(1);

/// What the handlers share.
pub struct Webhooks {
    /// Finds things out.
    pub lookups: Lookups,
    /// What is asked of the rules.
    pub settings: Settings,
}

/// Serves on the listener with the certificate of `tls`, whichever it is at the time, until `end`. Begins when there is one.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    mut tls: watch::Receiver<Option<Arc<ServerConfig>>>,
    webhooks: Arc<Webhooks>,
    readiness: Handle,
    end: CancellationToken,
) -> std::io::Result<()> {
    let first = tokio::select! {
        first = tls.wait_for(Option::is_some) => first.ok().and_then(|config| config.clone()),
        () = end.cancelled() => None,
    };
    let Some(first) = first else { return Ok(()) };
    let config = RustlsConfig::from_config(first);
    let handle = axum_server::Handle::<SocketAddr>::new();
    let address = listener.local_addr()?;
    let router = router(webhooks).into_make_service();
    let server = axum_server::from_tcp_rustls(listener, config.clone())?
        .map(|acceptor| acceptor.acceptor(NoDelayAcceptor::new()))
        .handle(handle.clone())
        .serve(router);
    let keep_certificate = async {
        readiness.ready();
        info!(%address, "webhooks served");
        while tls.changed().await.is_ok() {
            let next = tls.borrow_and_update().clone();
            if let Some(next) = next {
                config.reload_from_config(next);
                info!("webhook certificate changed");
            }
        }
        std::future::pending::<()>().await;
    };
    let shut_down = async {
        end.cancelled().await;
        handle.graceful_shutdown(Some(DRAIN));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = server => served,
        () = keep_certificate => Ok(()),
        () = shut_down => Ok(()),
    }
}

fn router(webhooks: Arc<Webhooks>) -> Router {
    Router::new()
        .route(webhook::MUTATE_POD_PATH, post(mutate_pod))
        .route(webhook::VALIDATE_POD_PATH, post(validate_pod))
        .route(webhook::VALIDATE_QUEUE_PATH, post(validate_queue))
        .route(webhook::VALIDATE_POD_GROUP_PATH, post(validate_pod_group))
        .route(webhook::VALIDATE_TOPOLOGY_PATH, post(validate_topology))
        .layer(DefaultBodyLimit::max(BODY_LENGTH_MAX))
        .with_state(webhooks)
}

async fn mutate_pod(State(webhooks): State<Arc<Webhooks>>, body: Bytes) -> Response {
    answer("mutate-pod", &body, async |request| {
        let workload = webhooks.workload(request).await;
        let random = random_suffix(uuid::Uuid::new_v4().into_bytes());
        pods::mutate(request, workload.as_ref(), &webhooks.settings, &random)
    })
    .await
}

async fn validate_pod(State(webhooks): State<Arc<Webhooks>>, body: Bytes) -> Response {
    answer("validate-pod", &body, async |request| {
        let workload = webhooks.workload(request).await;
        pods::validate(request, workload.as_ref(), &webhooks.settings)
    })
    .await
}

async fn validate_queue(State(webhooks): State<Arc<Webhooks>>, body: Bytes) -> Response {
    answer("validate-queue", &body, async |request| {
        let find = |name: &str| webhooks.lookups.queue_named(name);
        queues::validate(request, &find, webhooks.settings.validate_queue_quotas)
    })
    .await
}

async fn validate_pod_group(body: Bytes) -> Response {
    answer("validate-pod-group", &body, async |request| {
        pod_groups::validate(request)
    })
    .await
}

async fn validate_topology(body: Bytes) -> Response {
    answer("validate-topology", &body, async |request| {
        topologies::validate(request)
    })
    .await
}

impl Webhooks {
    /// The queue of a new pod of ours, if the rules are to care.
    async fn workload(&self, request: &Request) -> Option<pods::queue_label::Workload> {
        if request.operation != Operation::Create || self.settings.queue_labels == super::QueueLabels::Off {
            return None;
        }
        let mut pod = pods::ours(request, &self.settings).ok()??;
        pod.metadata.namespace.get_or_insert_with(|| request.namespace.clone());
        self.lookups.workload(&pod).await
    }
}

async fn answer(name: &'static str, body: &[u8], rule: impl AsyncFnOnce(&Request) -> Verdict) -> Response {
    let since = Instant::now();
    let review: Review = match serde_json::from_slice(body) {
        Ok(review) => review,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("not an AdmissionReview: {error}\n")).into_response(),
    };
    let verdict = rule(&review.request).await;
    let outcome = if verdict.is_allowed() { "allowed" } else { "denied" };
    metrics::counter!("unikai_admission_reviews_total", "webhook" => name, "outcome" => outcome).increment(1);
    metrics::histogram!("unikai_admission_review_duration_seconds", "webhook" => name).record(since.elapsed());
    Json(Answer::new(review.request.uid, verdict)).into_response()
}
