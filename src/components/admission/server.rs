//! The HTTPS server of the webhooks: reads a request, looks up what the rule needs, applies the rule, responds.
//!
//! Input is untrusted, so everything is limited: the number and idle time of connections, the time of handshake, headers and body, the length of a body,
//! the memory to decode it (estimated before), and the sum of that over all open requests and those of one namespace. Requests beyond a
//! limit get an error at once or after a short wait.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::Pod;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::body::{Bodies, Body};
use super::connections::{Connections, IDLE, OfConnection};
use super::handshakes::Handshakes;
use super::lookups::{Lookups, Unanswered};
use super::pods::PodContext;
use super::pods::gpu_sharing::random_suffix;
use super::pods::queue_label::Workload;
use super::review::{Answer, Operation, Request, Review, Verdict};
use super::{QueueLabels, Settings, hints, pod_groups, pods, queues, topologies};
use crate::api::limits;
use crate::api::names::webhook;
use crate::components::fractions::is_fractional;
use crate::components::pods::named_queue;
use crate::components::shares::Shares;
use crate::components::weight;

/// Time limit of open requests at shutdown.
const DRAIN: Duration = Duration::from_secs(1);
/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a request waits for others. After it the API server or its user repeats the request.
const WAIT: Duration = Duration::from_secs(1);
/// Minimum memory that a request is counted with.
const LEAST_WEIGHT: usize = 256 << 10;
/// HTTP/2 window: bytes of one connection that are received and not read yet.
const WINDOW: u32 = 256 << 10;

/// The context of request handlers.
pub struct Webhooks {
    lookups: Lookups,
    settings: Settings,
    bodies: Bodies,
    /// Limit on the memory to decode requests.
    reviews: Shares,
}

/// Serves on the listener with the current certificate of `tls` until `end`. Starts once there is one.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    mut tls: watch::Receiver<Option<Arc<ServerConfig>>>,
    mut answers: Answers,
    open: &watch::Sender<bool>,
    end: CancellationToken,
) -> std::io::Result<()> {
    let both = async {
        // The senders live until the end.
        answers.wait_for(Option::is_some).await.ok()?;
        tls.wait_for(Option::is_some).await.ok()?.clone()
    };
    let first = end.run_until_cancelled(both).await.flatten();
    let Some(first) = first else { return Ok(()) };
    let config = RustlsConfig::from_config(first);
    let handle = axum_server::Handle::<SocketAddr>::new();
    let address = listener.local_addr()?;
    let router = router(answers).into_make_service();
    let mut server = axum_server::from_tcp_rustls(listener, config.clone())?
        .map(|acceptor| Handshakes::with(acceptor.handshake_timeout(HANDSHAKE).acceptor(Connections::new())))
        .handle(handle.clone());
    bound(server.http_builder());
    let server = server.serve(router);
    let keep_certificate = async {
        open.send_replace(true);
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

/// The paths of the webhooks.
pub fn router(answers: Answers) -> Router {
    Router::new()
        .route(webhook::MUTATE_POD_PATH, post(mutate_pod))
        .route(webhook::VALIDATE_POD_PATH, post(validate_pod))
        .route(webhook::VALIDATE_QUEUE_PATH, post(validate_queue))
        .route(webhook::VALIDATE_POD_GROUP_PATH, post(validate_pod_group))
        .route(webhook::VALIDATE_TOPOLOGY_PATH, post(validate_topology))
        .with_state(answers)
}

/// The limits of one connection.
fn bound(builder: &mut auto::Builder<TokioExecutor>) {
    builder
        .http1()
        .timer(TokioTimer::new())
        // Counts from the last response. It must be longer than the API server keeps an idle connection, or the next request could hit a closed one.
        .header_read_timeout(IDLE)
        .max_buf_size(64 << 10);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(100)
        .max_header_list_size(16 << 10)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(64 << 10)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10));
}

/// The current handler.
pub type Answers = watch::Receiver<Option<Arc<Webhooks>>>;

type Shared = State<Answers>;

/// The handler for a new request.
fn now(State(answers): Shared) -> Result<Arc<Webhooks>, StatusCode> {
    let now = answers.borrow().clone();
    now.ok_or(StatusCode::SERVICE_UNAVAILABLE)
}

async fn mutate_pod(answers: Shared, request: HttpRequest) -> Response {
    let webhooks = match now(answers) {
        Ok(webhooks) => webhooks,
        Err(status) => return status.into_response(),
    };
    let rule = async |request: &Request| {
        let queue = webhooks.missing_label(request).await;
        let context = PodContext {
            queue: queue.as_deref(),
            has_runtime_class: webhooks.has_runtime_class(request).await,
            random: &random_suffix(crate::random::uuid().into_bytes()),
        };
        let hints = hints::of_pod(request, &webhooks.lookups.priority_classes(), &webhooks.settings);
        pods::mutate(request, context, &webhooks.settings).warn(hints)
    };
    webhooks.answer("mutate-pod", weight::Kind::Pod, request, rule).await
}

async fn validate_pod(answers: Shared, request: HttpRequest) -> Response {
    let webhooks = match now(answers) {
        Ok(webhooks) => webhooks,
        Err(status) => return status.into_response(),
    };
    let rule = async |request: &Request| {
        let workload = webhooks.workload(request).await;
        pods::validate(request, workload.as_ref(), &webhooks.settings)
    };
    webhooks.answer("validate-pod", weight::Kind::Pod, request, rule).await
}

async fn validate_queue(answers: Shared, request: HttpRequest) -> Response {
    let webhooks = match now(answers) {
        Ok(webhooks) => webhooks,
        Err(status) => return status.into_response(),
    };
    let rule = async |request: &Request| webhooks.review_queue(request).await;
    webhooks
        .answer("validate-queue", weight::Kind::Other, request, rule)
        .await
}

async fn validate_pod_group(answers: Shared, request: HttpRequest) -> Response {
    let webhooks = match now(answers) {
        Ok(webhooks) => webhooks,
        Err(status) => return status.into_response(),
    };
    let rule = async |request: &Request| {
        let hints = hints::of_pod_group(request, &webhooks.lookups.priority_classes());
        pod_groups::validate(request).warn(hints)
    };
    webhooks
        .answer("validate-pod-group", weight::Kind::Other, request, rule)
        .await
}

async fn validate_topology(answers: Shared, request: HttpRequest) -> Response {
    let webhooks = match now(answers) {
        Ok(webhooks) => webhooks,
        Err(status) => return status.into_response(),
    };
    let rule = async |request: &Request| topologies::validate(request);
    webhooks
        .answer("validate-topology", weight::Kind::Other, request, rule)
        .await
}

impl Webhooks {
    /// Without requests.
    pub fn new(lookups: Lookups, settings: Settings) -> Self {
        let permits = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        Self {
            lookups,
            settings,
            bodies: Bodies::new(),
            reviews: Shares::new(
                permits(limits::WEBHOOK_REVIEWS_BYTES),
                permits(limits::WEBHOOK_REVIEW_BYTES),
            ),
        }
    }

    async fn answer(
        &self,
        name: &'static str,
        kind: weight::Kind,
        request: HttpRequest,
        rule: impl AsyncFnOnce(&Request) -> Verdict,
    ) -> Response {
        let since = Instant::now();
        let (outcome, response) = match self.review(kind, request, rule).await {
            Ok((uid, verdict)) => {
                let outcome = if verdict.is_allowed() { "allowed" } else { "denied" };
                (outcome, Json(Answer::new(uid, verdict)).into_response())
            }
            Err(refusal) => ("unread", refusal.into_response()),
        };
        metrics::counter!("unikai_admission_reviews_total", "webhook" => name, "outcome" => outcome).increment(1);
        metrics::histogram!("unikai_admission_review_duration_seconds", "webhook" => name).record(since.elapsed());
        response
    }

    async fn review(
        &self,
        kind: weight::Kind,
        request: HttpRequest,
        rule: impl AsyncFnOnce(&Request) -> Verdict,
    ) -> Result<(String, Verdict), Refusal> {
        let connection = request.extensions().get::<OfConnection>().cloned();
        let body = self.bodies.read(request).await;
        let Body { text, place } = body.map_err(|(status, why)| (status, why.to_owned()))?;
        let _handled = connection.as_ref().map(OfConnection::handle);
        let (review, weight) = read(&text, kind)?;
        drop(text);
        let permits = u32::try_from(weight.max(LEAST_WEIGHT)).unwrap_or(u32::MAX);
        let permit = tokio::select! {
            permit = tokio::time::timeout(WAIT, self.reviews.take(&review.request.namespace, permits)) => permit.ok().flatten(),
            () = place.given_up() => None,
        };
        drop(place);
        let _permit = permit.ok_or_else(|| {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "too many questions at the same time\n".to_owned(),
            )
        })?;
        let verdict = rule(&review.request).await;
        Ok((review.request.uid, verdict))
    }

    /// The queue for the label of a new pod that has none.
    async fn missing_label(&self, request: &Request) -> Option<String> {
        let pod = self.created(request)?;
        if named_queue(pod.metadata.labels.as_ref(), &self.settings.queue_label_key).is_some() {
            return None;
        }
        self.lookups.queue(&pod).await.map(|(queue, _)| queue)
    }

    /// The queue of a new pod, if a rule needs it.
    async fn workload(&self, request: &Request) -> Option<Workload> {
        self.lookups.workload(&self.created(request)?).await
    }

    /// A new pod of ours, if rules need its queue.
    fn created(&self, request: &Request) -> Option<Pod> {
        let settings = &self.settings;
        let exempt = settings.exempt_namespaces().contains(&&*request.namespace);
        if request.operation != Operation::Create || settings.queue_labels == QueueLabels::Off || exempt {
            return None;
        }
        let mut pod = pods::ours(request, settings).ok()??;
        pod.metadata.namespace.get_or_insert_with(|| request.namespace.clone());
        Some(pod)
    }

    /// The verdict on a queue. Its parent is read where it must exist and the watch does not show it: both may have been created together.
    async fn review_queue(&self, request: &Request) -> Verdict {
        let rules = self.settings.queue_rules;
        let unseen = |parent: &String| rules.quotas && self.lookups.queue_named(parent).is_none();
        let mut read = None;
        if let Some(parent) = queues::parent(request).filter(unseen) {
            match self.lookups.read_queue(&parent).await {
                Ok(found) => read = found.map(|queue| (parent, Arc::new(queue))),
                Err(Unanswered) => {
                    let name = &request.name;
                    return Verdict::deny(format!(
                        "queue {name}: its parent queue {parent} cannot be read now. Try again"
                    ));
                }
            }
        }
        let find = |name: &str| {
            let parent = read.iter().find(|(parent, _)| parent == name);
            let seen = self.lookups.queue_named(name);
            seen.or_else(|| parent.map(|(_, queue)| Arc::clone(queue)))
        };
        let hints = hints::of_queue(request, &find, rules.quotas);
        queues::validate(request, &find, rules).warn(hints)
    }

    /// Whether the cluster has the runtime class for the pod, if a rule needs it.
    async fn has_runtime_class(&self, request: &Request) -> bool {
        if request.operation != Operation::Create {
            return false;
        }
        let class = &self.settings.gpu_fraction_runtime_class;
        let asked = pods::ours(request, &self.settings);
        let wanted =
            self.settings.gpu_sharing && !class.is_empty() && matches!(asked, Ok(Some(pod)) if is_fractional(&pod));
        wanted && self.lookups.has_runtime_class(class).await
    }
}

/// Why a request is rejected: the HTTP status and the message.
type Refusal = (StatusCode, String);

/// Decodes an AdmissionReview; its objects stay text.
fn read(text: &[u8], kind: weight::Kind) -> Result<(Review, usize), Refusal> {
    let weight = weight::of(text, kind, limits::WEBHOOK_REVIEW_BYTES).map_err(|error| match error {
        weight::TooMuch::Deep => (StatusCode::BAD_REQUEST, format!("{error}\n")),
        weight::TooMuch::Large(_) => (StatusCode::PAYLOAD_TOO_LARGE, format!("{error}\n")),
    })?;
    let review = serde_json::from_slice(text)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("not an AdmissionReview: {error}\n")))?;
    Ok((review, weight))
}

#[cfg(test)]
mod tests;
