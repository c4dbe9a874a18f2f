//! Between a replica and the API server: a link that delays, loses, repeats and refuses requests, and holds watches back, all drawn from the seed.
//!
//! What has left a replica may arrive up to [`LATEST`] later, also when the replica has given up or died meanwhile. The time between the end
//! of the fence and the end of the Lease is for that.

use std::collections::BTreeMap;
use std::io;
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
use unikai::devcluster::apiserver::in_process::Service;

use crate::plan::POOL_LABEL;
use crate::state::{About, State as Stored};
use crate::story::Story;

/// How late a request may arrive.
const LATEST: Duration = Duration::from_secs(3);

/// How late Bindings of the canary arrive.
const TOO_LATE: Duration = Duration::from_secs(40);

/// A fault of a link.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkFault {
    /// Nothing arrives and nothing comes back; of one resource, or of all.
    Cut(Option<&'static str>),
    /// Requests fail at once, and those under way and watches break, as when the server is down; of one resource, or of all.
    Down(Option<&'static str>),
    /// Each request has a request fault with this probability, in percent.
    Chance(u8),
    /// Watches of one resource show nothing new; of all with `None`.
    Stale(Option<&'static str>),
}

/// Where a replica crashes, relative to one of its writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CrashPoint {
    /// The write does not arrive.
    Before,
    /// It takes effect, and the answer does not come back.
    After,
}

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RequestFault {
    LateThere,
    LateBack,
    NeverThere,
    NeverBack,
    Twice,
    Refused(u16),
    FailedAfter(u16),
}

/// A deliberate error, to see that the rules find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Bindings go to one node, whatever they say.
    OneNode,
    /// Bindings arrive long after the Lease has expired.
    TooLate,
}

/// The Leases: of the cluster with its default node pool, and of the other pool.
const LEASES: [&str; 2] = ["kai-scheduler", "kai-scheduler-blue"];

/// The link of one replica. Clones share it.
#[derive(Clone)]
pub struct Link {
    state: Arc<Mutex<State>>,
    /// Counts up when watches break.
    drops: Arc<watch::Sender<u64>>,
    changed: Arc<watch::Sender<u64>>,
    pub name: String,
    service: Service,
    run: LinksOfRun,
}

/// Shows nodes, pods and pod groups as they are stored now.
pub type WithState = Arc<dyn Fn(&mut dyn FnMut(&Stored)) + Send + Sync>;

/// What the links of a run share.
#[derive(Clone)]
pub struct LinksOfRun {
    story: Story,
    canary: Option<Canary>,
    with_state: WithState,
    /// The Leases by name, as the API server answered the last write of each.
    leases: Arc<Mutex<BTreeMap<String, LeaseWritten>>>,
}

/// What the API server answered to a write of a Lease.
struct LeaseWritten {
    holder: String,
    lasts: Duration,
    /// When it arrived, on a clock that does not jump.
    at: Instant,
    revision: u64,
}

impl LinksOfRun {
    pub fn new(story: &Story, canary: Option<Canary>, with_state: WithState) -> Self {
        Self {
            story: story.clone(),
            canary,
            with_state,
            leases: Arc::default(),
        }
    }

    /// What is stored now.
    fn ask<T>(&self, question: impl Fn(&Stored) -> Option<T>) -> Option<T> {
        let mut answer = None;
        (self.with_state)(&mut |state| answer = question(state));
        answer
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<String, LeaseWritten>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the answer to a write of a Lease. Answers may come in another order than the writes.
    fn lease_is_written(&self, answer: &[u8]) {
        let lease: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let written = LeaseWritten {
            holder: text(&lease["spec"]["holderIdentity"]),
            lasts: Duration::from_secs(lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(0)),
            at: Instant::now(),
            revision: text(&lease["metadata"]["resourceVersion"]).parse().unwrap_or(0),
        };
        let mut leases = self.leases();
        let last = leases.get(&text(&lease["metadata"]["name"]));
        if last.is_none_or(|last| last.revision < written.revision) {
            leases.insert(text(&lease["metadata"]["name"]), written);
        }
    }
}

struct State {
    random: fastrand::Rng,
    faults: Vec<(Instant, LinkFault)>,
    crash_point: Option<(u32, CrashPoint)>,
    crashed: bool,
}

impl Link {
    pub fn new(name: &str, seed: u64, service: Service, run: &LinksOfRun) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                random: fastrand::Rng::with_seed(seed),
                faults: Vec::new(),
                crash_point: None,
                crashed: false,
            })),
            drops: Arc::default(),
            changed: Arc::default(),
            name: name.to_owned(),
            service,
            run: run.clone(),
        }
    }

    /// Begins a fault that lasts so long.
    pub fn fault(&self, fault: LinkFault, lasts: Duration) {
        self.state().faults.push((Instant::now() + lasts, fault));
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Ends all faults.
    pub fn end_faults(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.crash_point = None;
        drop(state);
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Breaks all watches.
    pub fn drop_watches(&self) {
        self.drops.send_modify(|drops| *drops += 1);
    }

    /// Makes the replica crash at one of its next writes.
    pub fn crash_at(&self, write: u32, crash_point: CrashPoint) {
        self.state().crash_point = Some((write, crash_point));
    }

    /// The replica crashes: nothing that it sends from now on arrives.
    pub fn crash(&self) {
        self.state().crashed = true;
    }

    pub fn has_crashed(&self) -> bool {
        self.state().crashed
    }

    /// The API server through this link.
    pub fn service(&self) -> Service {
        let link = self.clone();
        let service = tower::service_fn(move |request| link.clone().call(request).boxed());
        BoxCloneSyncService::new(service)
    }

    /// The same without faults and without the rule about writes, for clients other than replicas.
    pub fn unwatched(&self) -> Service {
        let link = self.clone();
        let service = tower::service_fn(move |request| {
            let link = link.clone();
            async move {
                let call = Call::of(request).await?;
                let answer = link.service.clone().oneshot(call.request()).await?;
                link.run
                    .story
                    .request(&link.name, &call.line(), answer.status().as_str());
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
        let (request_fault, delays, crash_point) = self.draw(mutating, &resource);
        if self.state().crashed || self.is_cut(&resource) {
            self.run.story.request(&self.name, &call.line(), "lost");
            return std::future::pending().await;
        }
        if self.is_down(&resource) {
            self.run.story.request(&self.name, &call.line(), "connection refused");
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        match crash_point {
            Some(CrashPoint::Before) => {
                self.run
                    .story
                    .request(&self.name, &call.line(), "the replica crashes before");
                self.crash();
                return std::future::pending().await;
            }
            Some(CrashPoint::After) => {
                self.crash();
                let _ = self.arrive(&call, "and the replica crashes").await;
                return std::future::pending().await;
            }
            None => {}
        }
        if request_fault == Some(RequestFault::NeverThere) {
            self.run.story.request(&self.name, &call.line(), "lost");
            return Err(self.broken(&resource).await);
        }
        if let Some(RequestFault::Refused(code)) = request_fault {
            self.run
                .story
                .request(&self.name, &call.line(), &format!("refused with {code}"));
            sleep(delays.1).await;
            return Ok(refusal(code));
        }
        // A request that was sent arrives, even if its sender no longer waits, or its connection breaks.
        let link = self.clone();
        let arrived = tokio::spawn(async move {
            sleep(delays.0).await;
            if link.run.canary == Some(Canary::TooLate) && call.path.ends_with("/binding") {
                sleep(TOO_LATE).await;
            }
            let answer = link.arrive(&call, "").await;
            if request_fault == Some(RequestFault::Twice) && mutating {
                sleep(delays.1).await;
                return link.arrive(&call, "again").await;
            }
            answer
        });
        let answered = async {
            let answer = arrived.await?;
            sleep(delays.1).await;
            answer
        };
        let answer = tokio::select! {
            biased;
            broken = self.broken(&resource) => return Err(broken),
            answer = answered => answer?,
        };
        match request_fault {
            Some(RequestFault::NeverBack) => Err(self.broken(&resource).await),
            Some(RequestFault::FailedAfter(code)) => Ok(refusal(code)),
            _ if self.is_cut(&resource) => Err(self.broken(&resource).await),
            _ => Ok(answer.map(|body| self.held_back(body, resource))),
        }
    }

    /// Waits until the server is down for a resource, which breaks its connections.
    async fn broken(&self, resource: &str) -> BoxError {
        let mut changed = self.changed.subscribe();
        while !self.is_down(resource) {
            // This link is a sender.
            let _ = changed.changed().await;
        }
        reset().into()
    }

    /// Draws the fault of a request, the delays of request and response, and whether the replica crashes.
    fn draw(&self, mutating: bool, resource: &str) -> (Option<RequestFault>, (Duration, Duration), Option<CrashPoint>) {
        let mut state = self.state();
        let now = Instant::now();
        state.faults.retain(|(until, _)| *until > now);
        let crash_point = match &mut state.crash_point {
            Some((left, crash_point)) if mutating && resource != "leases" => {
                let crash_point = *crash_point;
                let strikes = *left == 0;
                *left = left.saturating_sub(1);
                strikes.then_some(crash_point)
            }
            _ => None,
        };
        let chance = state.faults.iter().find_map(|(_, fault)| match fault {
            LinkFault::Chance(percent) => Some(*percent),
            LinkFault::Cut(_) | LinkFault::Down(_) | LinkFault::Stale(_) => None,
        });
        let random = &mut state.random;
        let mut there = Duration::from_micros(random.u64(200..3_000));
        let mut back = Duration::from_micros(random.u64(200..3_000));
        let strikes = chance.is_some_and(|percent| random.u8(0..100) < percent);
        let request_fault = strikes.then(|| match random.u8(0..12) {
            0 | 1 => RequestFault::LateThere,
            2 | 3 => RequestFault::LateBack,
            4 => RequestFault::NeverThere,
            5 => RequestFault::NeverBack,
            6 => RequestFault::Twice,
            7 => RequestFault::Refused(if mutating { 409 } else { 429 }),
            8 => RequestFault::Refused(429),
            9 => RequestFault::Refused(500),
            10 => RequestFault::FailedAfter(504),
            _ => RequestFault::FailedAfter(500),
        });
        let late = Duration::from_millis(random.u64(10..LATEST.as_millis() as u64));
        match request_fault {
            Some(RequestFault::LateThere) => there = late,
            Some(RequestFault::LateBack) => back = late,
            _ => {}
        }
        (request_fault, (there, back), crash_point)
    }

    fn is_cut(&self, resource: &str) -> bool {
        self.has_fault(|fault| matches!(fault, LinkFault::Cut(of) if of.is_none_or(|of| of == resource)))
    }

    fn is_down(&self, resource: &str) -> bool {
        self.has_fault(|fault| matches!(fault, LinkFault::Down(of) if of.is_none_or(|of| of == resource)))
    }

    fn has_fault(&self, is: impl Fn(&LinkFault) -> bool) -> bool {
        let now = Instant::now();
        self.state()
            .faults
            .iter()
            .any(|(until, fault)| *until > now && is(fault))
    }

    /// Until when watches of a resource show nothing.
    fn stale_until(&self, resource: &str) -> Option<Instant> {
        let now = Instant::now();
        let state = self.state();
        let faults = state.faults.iter().filter(|(until, _)| *until > now);
        let stale = faults.filter(|(_, fault)| match fault {
            LinkFault::Cut(of) | LinkFault::Stale(of) => of.is_none_or(|of| of == resource),
            LinkFault::Chance(_) | LinkFault::Down(_) => false,
        });
        stale.map(|(until, _)| *until).max()
    }

    /// The request arrives at the server.
    async fn arrive(&self, call: &Call, note: &str) -> Result<Response<Body>, BoxError> {
        self.is_no_eviction_of_protected(call);
        let forbidden = self.forbidden(call);
        let mut answer = self.service.clone().oneshot(self.wrong(call).request()).await;
        // Its object may have moved to another node pool while the request was under way: then its resource version is an old one.
        let conflicts = answer
            .as_ref()
            .is_ok_and(|answer| answer.status() == StatusCode::CONFLICT);
        if let Some(what) = forbidden.filter(|_| !conflicts) {
            self.run.story.violation("L-1", what);
        }
        if call.writes_lease() && answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
            let (parts, body) = answer?.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await?;
            self.run.lease_is_written(&body);
            answer = Ok(Response::from_parts(parts, Body::from(body)));
        }
        match &answer {
            Ok(answer) => self.run.story.request(
                &self.name,
                &call.line(),
                &format!(
                    "{}{}{note}",
                    answer.status().as_u16(),
                    if note.is_empty() { "" } else { " " }
                ),
            ),
            Err(error) => self.run.story.request(&self.name, &call.line(), &error.to_string()),
        }
        answer
    }

    /// The request as the canary changes it.
    fn wrong(&self, call: &Call) -> Call {
        let mut call = call.clone();
        if self.run.canary == Some(Canary::OneNode)
            && call.path.ends_with("/binding")
            && let Ok(mut body) = serde_json::from_slice::<serde_json::Value>(&call.body)
        {
            body["target"]["name"] = "gpu-1".into();
            call.body = Bytes::from(body.to_string());
        }
        call
    }

    /// What breaks the rule that only the leader writes.
    fn forbidden(&self, call: &Call) -> Option<String> {
        let reads = matches!(call.method, Method::GET | Method::HEAD);
        if reads || call.path.contains("reviews") {
            return None;
        }
        // Leases elect the leader, and the first replica creates the certificate.
        if matches!(resource_of(&call.path), "leases" | "secrets") {
            return None;
        }
        let leases = self.run.leases();
        let holds = |name: &str| {
            let lease = leases.get(name);
            lease.is_some_and(|lease| lease.holder == self.name && lease.at.elapsed() < lease.lasts)
        };
        let allowed = match self.pools_of(call) {
            Some(pools) => pools.iter().any(|pool| holds(LEASES[usize::from(pool.is_some())])),
            None => LEASES.iter().any(|name| holds(name)),
        };
        (!allowed).then(|| {
            let holders = leases.iter().map(|(name, lease)| format!("{name} {}", lease.holder));
            let holders: Vec<_> = holders.collect();
            format!("{} writes {} while the Leases are {holders:?}", self.name, call.line())
        })
    }

    /// The rule that pods of whole, non-preemptible pod groups are not evicted.
    fn is_no_eviction_of_protected(&self, call: &Call) {
        let parts: Vec<_> = call.path.split('/').skip(1).collect();
        let ["api", "v1", "namespaces", namespace, "pods", name, ref rest @ ..] = *parts else {
            return;
        };
        let evicts = rest == ["eviction"] || (rest.is_empty() && call.method == Method::DELETE);
        if evicts
            && self
                .run
                .ask(|state| state.is_protected(namespace, name).then_some(()))
                .is_some()
        {
            let what = format!("{} evicts {namespace}/{name}, which is not preemptible", self.name);
            self.run.story.violation("V-1", what);
        }
    }

    /// The node pools whose leaders may send this request; `None` if those of all may. A pod belongs to the pool of its pod group, whatever its label says.
    fn pools_of(&self, call: &Call) -> Option<Vec<Option<String>>> {
        let parts: Vec<_> = call.path.split('/').skip(1).collect();
        let body = || serde_json::from_slice::<serde_json::Value>(&call.body).ok();
        let pools_of = |about: &About<'_>| self.run.ask(|state| state.pools_of(about));
        let of_node = |pointer: &str| pools_of(&About::Node(body()?.pointer(pointer)?.as_str()?));
        match *parts {
            ["api", "v1", "namespaces", _, "pods", _, "binding"] => of_node("/target/name"),
            ["api", "v1", "namespaces", _, "pods"] => of_node("/spec/nodeName"),
            ["api", "v1", "namespaces", namespace, "pods", name, ..] => pools_of(&About::Pod { namespace, name }),
            ["apis", _, _, "namespaces", _, "bindrequests"] => of_node("/spec/selectedNode"),
            ["apis", _, _, "namespaces", namespace, "podgroups", name, ..] => {
                pools_of(&About::Group { namespace, name })
            }
            ["apis", _, _, "namespaces", _, "podgroups"] => {
                pools_of(&About::Pool(body()?["metadata"]["labels"][POOL_LABEL].as_str()))
            }
            _ => None,
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
                    if link.has_crashed() {
                        std::future::pending::<()>().await;
                    }
                    if link.is_down(&resource) {
                        return Some((Err(reset()), (link, chunks, drops, changed, resource)));
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
                            return Some((Ok(chunk), (link, chunks, drops, changed, resource)));
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

    /// Whether it creates or changes a Lease.
    fn writes_lease(&self) -> bool {
        resource_of(&self.path) == "leases" && matches!(self.method, Method::POST | Method::PUT | Method::PATCH)
    }

    /// Its line in the story.
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

/// The error of a connection that breaks.
fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
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
