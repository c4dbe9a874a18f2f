//! Between a replica and the API server: a link that delays, loses, repeats and refuses requests, and holds watches back, all drawn from the seed.
//!
//! What has left a replica may arrive up to [`LATEST`] later, also when the replica has given up or died meanwhile. The time between the end
//! of the fence and the end of the Lease is for that.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};
use unikai::devcluster::apiserver::in_process::{InProcess, Service};

use crate::story::Story;

/// How late a request may arrive.
const LATEST: Duration = Duration::from_secs(3);

/// How late those of a canary arrive.
const TOO_LATE: Duration = Duration::from_secs(40);

/// What a link does to requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// Nothing arrives and nothing comes back; of one resource, or of all.
    Cut(Option<&'static str>),
    /// Each request meets one of the misfortunes with this probability, in percent.
    Chance(u8),
    /// Watches of one resource show nothing new; of all with `None`.
    Stale(Option<&'static str>),
}

/// The end of a replica at one of its writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fatal {
    /// The write does not arrive.
    Before,
    /// It takes effect, and the answer does not come back.
    After,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Misfortune {
    LateThere,
    LateBack,
    NeverThere,
    NeverBack,
    Twice,
    Refused(u16),
    FailedAfter(u16),
}

/// A wrong network, to see that the rules find what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Bindings go to one node, whatever they say.
    OneNode,
    /// Bindings arrive when the Lease has long run out.
    TooLate,
}

/// The link of one replica. Clones share it.
#[derive(Clone)]
pub struct Link {
    state: Arc<Mutex<State>>,
    /// Counts up when watches break.
    drops: Arc<watch::Sender<u64>>,
    changed: Arc<watch::Sender<u64>>,
    pub name: String,
    server: InProcess,
    service: Service,
    story: Story,
    canary: Option<Canary>,
}

struct State {
    random: fastrand::Rng,
    troubles: Vec<(Instant, Trouble)>,
    fatal: Option<(u32, Fatal)>,
    dead: bool,
}

impl Link {
    pub fn new(
        name: &str,
        seed: u64,
        server: &InProcess,
        service: Service,
        story: &Story,
        canary: Option<Canary>,
    ) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                random: fastrand::Rng::with_seed(seed),
                troubles: Vec::new(),
                fatal: None,
                dead: false,
            })),
            drops: Arc::default(),
            changed: Arc::default(),
            name: name.to_owned(),
            server: server.clone(),
            service,
            story: story.clone(),
            canary,
        }
    }

    /// Begins a trouble that lasts so long.
    pub fn trouble(&self, trouble: Trouble, lasts: Duration) {
        self.state().troubles.push((Instant::now() + lasts, trouble));
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Ends all troubles.
    pub fn heal(&self) {
        let mut state = self.state();
        state.troubles.clear();
        state.fatal = None;
        drop(state);
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Breaks all watches.
    pub fn drop_watches(&self) {
        self.drops.send_modify(|drops| *drops += 1);
    }

    /// Has the replica die at one of its next writes.
    pub fn die_at(&self, write: u32, fatal: Fatal) {
        self.state().fatal = Some((write, fatal));
    }

    /// The replica is gone: nothing that it sends from now on arrives.
    pub fn die(&self) {
        self.state().dead = true;
    }

    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// The API server through this link.
    pub fn service(&self) -> Service {
        let link = self.clone();
        let service = tower::service_fn(move |request| link.clone().call(request).boxed());
        BoxCloneSyncService::new(service)
    }

    /// The same for those whose network is perfect, and whose writes no rule concerns.
    pub fn unwatched(&self) -> Service {
        let link = self.clone();
        let service = tower::service_fn(move |request| {
            let link = link.clone();
            async move {
                let call = Call::of(request).await?;
                let answer = link.service.clone().oneshot(call.request()).await?;
                link.story.tell(&link.name, &call.line(), answer.status().as_str());
                Ok(answer)
            }
        });
        BoxCloneSyncService::new(service)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(self, request: Request<kube::client::Body>) -> Result<Response<Body>, BoxError> {
        let call = Call::of(request).await?;
        let mutating = !matches!(call.method, Method::GET | Method::HEAD);
        let resource = resource_of(&call.path).to_owned();
        let (misfortune, delays, fatal) = self.draw(mutating, &resource);
        if self.state().dead || self.is_cut(&resource) {
            self.story.tell(&self.name, &call.line(), "lost");
            return std::future::pending().await;
        }
        match fatal {
            Some(Fatal::Before) => {
                self.story.tell(&self.name, &call.line(), "the replica dies before");
                self.die();
                return std::future::pending().await;
            }
            Some(Fatal::After) => {
                self.die();
                let _ = self.arrive(&call, "and the replica dies").await;
                return std::future::pending().await;
            }
            None => {}
        }
        if misfortune == Some(Misfortune::NeverThere) {
            self.story.tell(&self.name, &call.line(), "lost");
            return std::future::pending().await;
        }
        if let Some(Misfortune::Refused(code)) = misfortune {
            self.story
                .tell(&self.name, &call.line(), &format!("refused with {code}"));
            sleep(delays.1).await;
            return Ok(refusal(code));
        }
        // What is on its way arrives, even if nobody waits for it any more.
        let link = self.clone();
        let arrived = tokio::spawn(async move {
            sleep(delays.0).await;
            if link.canary == Some(Canary::TooLate) && call.path.ends_with("/binding") {
                sleep(TOO_LATE).await;
            }
            let answer = link.arrive(&call, "").await;
            if misfortune == Some(Misfortune::Twice) && mutating {
                sleep(delays.1).await;
                return link.arrive(&call, "again").await;
            }
            answer
        });
        let answer = arrived.await??;
        sleep(delays.1).await;
        match misfortune {
            Some(Misfortune::NeverBack) => std::future::pending().await,
            Some(Misfortune::FailedAfter(code)) => Ok(refusal(code)),
            _ if self.is_cut(&resource) => std::future::pending().await,
            _ => Ok(answer.map(|body| self.held_back(body, resource))),
        }
    }

    /// What happens to a request, and the delays there and back.
    fn draw(&self, mutating: bool, resource: &str) -> (Option<Misfortune>, (Duration, Duration), Option<Fatal>) {
        let mut state = self.state();
        let now = Instant::now();
        state.troubles.retain(|(until, _)| *until > now);
        let fatal = match &mut state.fatal {
            Some((left, fatal)) if mutating && resource != "leases" => {
                let fatal = *fatal;
                let strikes = *left == 0;
                *left = left.saturating_sub(1);
                strikes.then_some(fatal)
            }
            _ => None,
        };
        let chance = state.troubles.iter().find_map(|(_, trouble)| match trouble {
            Trouble::Chance(percent) => Some(*percent),
            Trouble::Cut(_) | Trouble::Stale(_) => None,
        });
        let random = &mut state.random;
        let mut there = Duration::from_micros(random.u64(200..3_000));
        let mut back = Duration::from_micros(random.u64(200..3_000));
        let strikes = chance.is_some_and(|percent| random.u8(0..100) < percent);
        let misfortune = strikes.then(|| match random.u8(0..12) {
            0 | 1 => Misfortune::LateThere,
            2 | 3 => Misfortune::LateBack,
            4 => Misfortune::NeverThere,
            5 => Misfortune::NeverBack,
            6 => Misfortune::Twice,
            7 => Misfortune::Refused(if mutating { 409 } else { 429 }),
            8 => Misfortune::Refused(429),
            9 => Misfortune::Refused(500),
            10 => Misfortune::FailedAfter(504),
            _ => Misfortune::FailedAfter(500),
        });
        let late = Duration::from_millis(random.u64(10..LATEST.as_millis() as u64));
        match misfortune {
            Some(Misfortune::LateThere) => there = late,
            Some(Misfortune::LateBack) => back = late,
            _ => {}
        }
        (misfortune, (there, back), fatal)
    }

    fn is_cut(&self, resource: &str) -> bool {
        let now = Instant::now();
        self.state().troubles.iter().any(|(until, trouble)| {
            *until > now && matches!(trouble, Trouble::Cut(of) if of.is_none_or(|of| of == resource))
        })
    }

    /// Until when watches of a resource show nothing.
    fn stale_until(&self, resource: &str) -> Option<Instant> {
        let now = Instant::now();
        let state = self.state();
        let troubles = state.troubles.iter().filter(|(until, _)| *until > now);
        let stale = troubles.filter(|(_, trouble)| match trouble {
            Trouble::Cut(of) | Trouble::Stale(of) => of.is_none_or(|of| of == resource),
            Trouble::Chance(_) => false,
        });
        stale.map(|(until, _)| *until).max()
    }

    /// The request arrives at the server.
    async fn arrive(&self, call: &Call, note: &str) -> Result<Response<Body>, BoxError> {
        self.look_at(call);
        let answer = self.service.clone().oneshot(self.wrong(call).request()).await;
        match &answer {
            Ok(answer) => self.story.tell(
                &self.name,
                &call.line(),
                &format!(
                    "{}{}{note}",
                    answer.status().as_u16(),
                    if note.is_empty() { "" } else { " " }
                ),
            ),
            Err(error) => self.story.tell(&self.name, &call.line(), &error.to_string()),
        }
        answer
    }

    /// What the canary makes of a request.
    fn wrong(&self, call: &Call) -> Call {
        let mut call = call.clone();
        if self.canary == Some(Canary::OneNode)
            && call.path.ends_with("/binding")
            && let Ok(mut body) = serde_json::from_slice::<serde_json::Value>(&call.body)
        {
            body["target"]["name"] = "gpu-1".into();
            call.body = Bytes::from(body.to_string());
        }
        call
    }

    /// The rule that only the leader writes.
    fn look_at(&self, call: &Call) {
        let reads = matches!(call.method, Method::GET | Method::HEAD);
        if reads || call.path.contains("reviews") {
            return;
        }
        // The Lease is how a leader is made, and whoever comes first makes the first certificate.
        if matches!(resource_of(&call.path), "leases" | "secrets") {
            return;
        }
        let leases = self.server.objects("coordination.k8s.io", "leases");
        let lease = leases.iter().find(|lease| lease["metadata"]["name"] == "kai-scheduler");
        let spec = lease.map(|lease| &lease["spec"]);
        let renewed = spec.and_then(|spec| spec["renewTime"].as_str()?.parse::<jiff::Timestamp>().ok());
        let lasts = spec.and_then(|spec| spec["leaseDurationSeconds"].as_i64()).unwrap_or(0);
        let holds = spec.is_some_and(|spec| spec["holderIdentity"] == self.name.as_str());
        let valid =
            renewed.is_some_and(|renewed| unikai::clock::now() < renewed + jiff::SignedDuration::from_secs(lasts));
        if !(holds && valid) {
            let holder = spec.map(|spec| spec["holderIdentity"].to_string()).unwrap_or_default();
            self.story.breach(
                "L-1",
                format!("{} writes {} while the Lease is {holder}'s", self.name, call.line()),
            );
        }
    }

    /// A body that comes in pieces, which the link holds back and breaks.
    fn held_back(&self, body: Body, resource: String) -> Body {
        let mut drops = self.drops.subscribe();
        drops.borrow_and_update();
        let changed = self.changed.subscribe();
        let (link, chunks) = (self.clone(), body.into_data_stream());
        Body::from_stream(stream::unfold(
            (link, chunks, drops, changed, resource),
            |(link, mut chunks, mut drops, mut changed, resource)| async move {
                loop {
                    changed.borrow_and_update();
                    if link.is_dead() {
                        std::future::pending::<()>().await;
                    }
                    if let Some(until) = link.stale_until(&resource) {
                        tokio::select! {
                            biased;
                            _ = drops.changed() => return None,
                            _ = changed.changed() => {}
                            () = sleep_until(until) => {}
                        }
                        continue;
                    }
                    tokio::select! {
                        biased;
                        _ = drops.changed() => return None,
                        _ = changed.changed() => {}
                        chunk = chunks.next() => {
                            let chunk = chunk?.ok()?;
                            return Some((Ok::<_, Infallible>(chunk), (link, chunks, drops, changed, resource)));
                        }
                    }
                }
            },
        ))
    }
}

/// A request that can be sent again.
#[derive(Clone, Debug)]
struct Call {
    method: Method,
    uri: http::Uri,
    path: String,
    headers: http::HeaderMap,
    body: Bytes,
}

impl Call {
    async fn of(request: Request<kube::client::Body>) -> Result<Self, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        Ok(Self {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            uri: parts.uri,
            headers: parts.headers,
            body,
        })
    }

    fn request(&self) -> Request<kube::client::Body> {
        let mut request = Request::new(kube::client::Body::from(self.body.to_vec()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// As the story tells it.
    fn line(&self) -> String {
        let watch = self.uri.query().is_some_and(|query| query.contains("watch=true"));
        let verb = if watch { "WATCH" } else { self.method.as_str() };
        let mut body = String::new();
        // Certificates are random.
        if !matches!(self.method, Method::GET) && !self.path.contains("secrets") && !self.path.contains("webhookconf") {
            body = format!(" {}", String::from_utf8_lossy(&self.body));
        }
        format!("{verb} {}{body}", self.path)
    }
}

/// The plural of a path's resource.
fn resource_of(path: &str) -> &str {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = &*parts else {
        return "";
    };
    match *rest {
        ["namespaces", _, resource, ..] | [resource, ..] => resource,
        [] => "",
    }
}

fn refusal(code: u16) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{reason} (injected)"), "reason": reason, "code": code,
    });
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).expect("a status");
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    if code == 429 {
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, http::HeaderValue::from(1));
    }
    response
}
