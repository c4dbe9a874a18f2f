//! One run: a cluster, its world, the replicas and the actors, all in this thread and on tokio's paused clock.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use unikai::devcluster::apiserver::in_process::InProcess;
use unikai::devcluster::apiserver::{Clock, Identity, Options};
use unikai::devcluster::world::{NodeSpec, Timings, World, WorldHandle, WorldOptions};
use unikai::operator::settings::{EmbeddedArgs, Settings};
use unikai::operator::{Operator, Running};

use crate::actors::Actors;
use crate::invariants::{self, History, Rule};
use crate::network::{Canary, Link, LinksOfRun, WithState};
use crate::plan::{self, NODES, PARENTS, QUEUES, REPLICAS, Step, Timed};
use crate::state::{Kind, Reader, State};
use crate::story::{Story, Violation};
use crate::sub_groups::RACK;

/// How often administrators try to put everything in order after the last fault, and how often at most: until webhooks are answered.
const TRY_EVERY: Duration = Duration::from_secs(3);
const TRIES: u32 = 20;
/// How long after that everything must be in order.
const REST: Duration = Duration::from_secs(440);
/// How long after the last workload is deleted nothing may be left.
const EMPTY: Duration = Duration::from_secs(200);

/// How often the rules that always hold are checked, besides after each step.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// How often the rules are checked in each of these two times.
const CHECKS: u32 = 20;
/// After so many checks in a row that find everything in order, the rest of the time is left out.
const IN_ORDER: u32 = 3;
/// One in so many seeds waits for the whole time, as what is in order may not stay so.
const WHOLE_TIME: u64 = 8;

/// How a run is made.
#[derive(Clone, Debug, Default)]
pub struct How {
    pub canary: Option<Canary>,
    /// A file for the whole story.
    pub story: Option<String>,
}

/// What came of a run.
pub struct Outcome {
    pub violation: Option<Violation>,
    pub hash: u64,
    pub requests: u64,
    pub last: String,
}

/// Ends the process if a run takes too long: a task that never waits keeps virtual time from passing. Real time is needed to notice that.
struct Overdue(#[expect(dead_code, reason = "its end is what counts")] mpsc::Sender<()>);

impl Overdue {
    fn begin(seed: u64, steps: usize) -> Self {
        let (sender, ended) = mpsc::channel();
        let limit = Duration::from_mins(2) + Duration::from_millis(500) * u32::try_from(steps).unwrap_or(u32::MAX);
        let watch = move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                println!(
                    "seed {seed} with {steps} steps does not end: after {limit:?}, virtual time does not pass any more"
                );
                std::process::exit(1);
            }
        };
        std::thread::spawn(watch);
        Self(sender)
    }
}

/// Runs the steps of a seed.
pub fn run(seed: u64, steps: &[Timed], how: &How) -> Outcome {
    let _overdue = Overdue::begin(seed, steps.len());
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true);
    // Without it, whose turn it is of those that are ready differs from run to run.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_be_bytes()));
    let runtime = builder.build().expect("a runtime");
    fastrand::seed(seed);
    unikai::random::seed(Some(seed));
    let outcome = runtime.block_on(async {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        unikai::clock::simulate(Some(start));
        let story = Story::begin(how.story.as_deref());
        let robs = |timed: &Timed| matches!(timed.step, Step::ReservationGone(_) | Step::Drain(_));
        let errors = crate::errors::listen(&story, steps.iter().any(robs));
        let mut simulation = Simulation::set(seed, how.canary, &story).await;
        let violation = simulation.play(steps).await;
        drop(errors);
        Outcome {
            violation,
            hash: story.hash(),
            requests: story.requests(),
            last: story.last(60),
        }
    });
    drop(runtime);
    unikai::clock::simulate(None);
    unikai::random::seed(None);
    outcome
}

/// A replica, or its place while it is gone.
pub struct Replica {
    pub name: String,
    pub link: Link,
    pub running: Option<Running>,
}

type Endpoints = Arc<Mutex<Vec<(Link, axum::Router)>>>;

/// Everything of a run.
pub struct Simulation {
    pub server: InProcess,
    pub world: WorldHandle,
    pub replicas: Vec<Replica>,
    pub story: Story,
    actors: Actors,
    pub seed: u64,
    links: LinksOfRun,
    /// Where webhooks are answered.
    endpoints: Endpoints,
    reader: Arc<Mutex<Reader>>,
    history: History,
    started: u64,
}

impl Simulation {
    async fn set(seed: u64, canary: Option<Canary>, story: &Story) -> Self {
        let options = Options {
            clock: Clock::system(),
            ..Options::default()
        };
        let server = InProcess::start(options).await.expect("an API server");
        let endpoints = Endpoints::default();
        server.answer_webhooks_by(answerer(&endpoints));
        let reader = Arc::new(Mutex::new(Reader::new(&server)));
        let links = LinksOfRun::new(story, canary, with_state(&reader));
        let client = |name: &str, identity: &Identity| {
            let link = Link::new(name, seed, server.service(identity), &links);
            kube::Client::new(link.unwatched(), "default")
        };
        let actors = Actors::new(
            client("admin", &Identity::admin()),
            client("tenant", &Identity::user("tenant", &[])),
        );
        actors.install().await;
        let nodes = NODES.iter().map(|(name, gpus)| node(name, *gpus)).collect();
        let options = WorldOptions {
            nodes,
            timings: Timings {
                pod_start: Duration::from_millis(300),
                termination: Duration::from_millis(500),
                ..Timings::default()
            },
            ..WorldOptions::default()
        };
        let world = World::start(client("world", &Identity::admin()), options)
            .await
            .expect("a world");
        let mut simulation = Self {
            server,
            world,
            replicas: Vec::new(),
            story: story.clone(),
            actors,
            seed,
            links,
            endpoints,
            reader,
            history: History::default(),
            started: 0,
        };
        for name in REPLICAS {
            let replica = simulation.start(name).await;
            simulation.replicas.push(replica);
        }
        if let Some(first) = simulation.replicas.first().and_then(|replica| replica.running.as_ref()) {
            first.ready().await;
        }
        simulation
    }

    /// Starts a replica under a new name.
    async fn start(&mut self, place: &str) -> Replica {
        self.started += 1;
        let name = format!("{place}-{}", self.started);
        let identity = Identity::operator().in_pod(&name);
        let service = self.server.service(&identity);
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(self.started);
        let link = Link::new(&name, seed, service, &self.links);
        let running = Operator::start_in_process(link.service(), settings(&name, self.seed, self.started))
            .await
            .expect("it starts");
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.push((link.clone(), running.webhook_router()));
        Replica {
            name,
            link,
            running: Some(running),
        }
    }

    /// Starts the replica of that place unless it runs.
    pub async fn start_at(&mut self, at: usize) {
        self.remove_ended();
        if self.replicas[at].running.is_none() {
            let replica = self.start(REPLICAS[at]).await;
            self.replicas[at] = replica;
        }
    }

    /// Kills the replica of that place.
    pub fn kill(&mut self, at: usize) {
        self.replicas[at].link.crash();
        self.remove_ended();
    }

    /// Tells the replica of that place to end; it is gone when it has ended.
    pub fn shut_down(&self, at: usize) {
        if let Some(running) = &self.replicas[at].running {
            running.shutdown_token().cancel();
        }
    }

    /// Removes replicas that have crashed or ended. One that ended by itself is a violation.
    fn remove_ended(&mut self) {
        for replica in &mut self.replicas {
            let Some(running) = &replica.running else { continue };
            let shut_down = running.shutdown_token().is_cancelled();
            if running.has_ended() && !shut_down && !replica.link.has_crashed() {
                self.story.violation("E-1", format!("{} has ended", replica.name));
            }
            if replica.link.has_crashed() || running.has_ended() {
                replica.link.crash();
                replica.running = None;
            }
        }
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|(link, _)| !link.has_crashed());
    }

    /// Carries out the steps and checks the rules after each; then ends all faults, and checks the rules of a cluster at rest.
    async fn play(&mut self, steps: &[Timed]) -> Option<Violation> {
        for (number, timed) in steps.iter().enumerate() {
            if timed.step != Step::Wait {
                self.story.step(number, &format!("{:?}", timed.step));
            }
            Actors::act(self, &timed.step).await;
            if let Some(violation) = self.watch_for(timed.then).await {
                return Some(violation);
            }
        }
        self.story
            .step(steps.len(), "faults end, administrators put everything in order");
        for at in 0..self.replicas.len() {
            self.replicas[at].link.end_faults();
            self.start_at(at).await;
        }
        (0..NODES.len()).for_each(|at| self.node_changes(at));
        for _ in 0..TRIES {
            if let Some(violation) = self.watch_for(TRY_EVERY).await {
                return Some(violation);
            }
            if Actors::put_in_order(self).await {
                break;
            }
        }
        self.pass(REST, invariants::AT_REST).await;
        self.story.step(steps.len(), "all workloads are deleted");
        Actors::delete_all(self).await;
        self.pass(EMPTY, invariants::EMPTY).await;
        self.story.broken()
    }

    /// Lets time pass, and checks the rules that always hold all the while; returns the first that is broken.
    async fn watch_for(&mut self, time: Duration) -> Option<Violation> {
        let until = Instant::now() + time;
        loop {
            sleep(CHECK_EVERY.min(until.saturating_duration_since(Instant::now()))).await;
            self.check(invariants::ALWAYS);
            let broken = self.story.broken();
            if broken.is_some() || Instant::now() >= until {
                return broken;
            }
        }
    }

    /// A node changes now, so that its kubelet may refuse pods that were decided before.
    pub fn node_changes(&mut self, at: usize) {
        self.history.node_changes(NODES[at].0, self.story.at());
    }

    /// Somebody deletes reservation pods of a node.
    pub fn reservations_go(&mut self, node: &str) {
        self.history.reservations_go(node, self.story.at());
    }

    /// Lets time pass, until everything is in order by these rules or all of it has passed, and checks the rules several times.
    async fn pass(&mut self, time: Duration, rules: &[Rule]) {
        let mut in_order = 0;
        for _ in 0..CHECKS {
            if self.story.broken().is_some() || (in_order >= IN_ORDER && !self.seed.is_multiple_of(WHOLE_TIME)) {
                return;
            }
            self.watch_for(time / CHECKS).await;
            let broken = invariants::broken(rules, locked(&self.reader).last(), &self.history);
            let is_in_order = broken.is_empty() && self.history.gangs_are_whole();
            in_order = if is_in_order { in_order + 1 } else { 0 };
        }
        self.check(rules);
    }

    /// Checks rules.
    pub fn check(&mut self, rules: &[Rule]) {
        self.remove_ended();
        let mut reader = locked(&self.reader);
        let now = reader.read(self.story.at());
        if rules.first().is_some_and(|rule| rule.id == invariants::ALWAYS[0].id) {
            self.history.take(now);
        }
        for (rule, what) in invariants::broken(rules, now, &self.history) {
            self.story.violation(rule.id, what);
        }
    }

    /// What the API server stores.
    pub fn state(&self) -> State {
        locked(&self.reader).read(self.story.at()).clone()
    }

    pub fn actors(&self) -> &Actors {
        &self.actors
    }
}

/// Shows what the rules about requests need.
fn with_state(reader: &Arc<Mutex<Reader>>) -> WithState {
    const KINDS: [Kind; 5] = [Kind::Node, Kind::Pod, Kind::PodGroup, Kind::BindRequest, Kind::Shard];
    let reader = Arc::clone(reader);
    Arc::new(move |ask| ask(locked(&reader).read_kinds(&KINDS)))
}

fn locked(reader: &Mutex<Reader>) -> MutexGuard<'_, Reader> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node of the world.
pub fn node(name: &str, gpus: u32) -> NodeSpec {
    let mut node = if gpus == 0 {
        NodeSpec::cpu(name)
    } else {
        NodeSpec::gpu(name, gpus)
    };
    node.cpu_milli = 16_000;
    node.pods = 30;
    node.any_gpu = true;
    let pool = plan::pool_of(name).map(|pool| (plan::POOL_LABEL.to_owned(), pool.to_owned()));
    node.labels.extend(pool);
    node.labels.insert(RACK.to_owned(), plan::rack_of(name).to_owned());
    if let Some((_, instances)) = plan::INSTANCES.iter().find(|(divided, _)| *divided == name) {
        node.extended.insert(plan::INSTANCE.to_owned(), *instances);
        node.labels
            .insert("nvidia.com/mig.strategy".to_owned(), "mixed".to_owned());
    }
    node
}

/// Flags of which each new replica has one pair, as if it were upgraded or set up anew.
const OTHER_FLAGS: &[[&str; 2]] = &[
    ["--messages", "plain"],
    ["--messages", "kai"],
    ["--plain-pod-groups", "waiting"],
    ["--always-bind-requests", "true"],
    ["--disruption-budgets", "respect"],
    ["--background-delay", "0"],
];

/// The settings of the replica that is started as the `started`th.
fn settings(name: &str, seed: u64, started: u64) -> Settings {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        args: EmbeddedArgs,
    }
    // Watches that are stale go on for this long, which few seeds need to see in each of 27 kinds.
    let watch_timeout = if seed.is_multiple_of(4) { "20" } else { "150" };
    // Each builds a second model of the cluster: few seeds need many.
    let self_check = if seed % 8 == 1 { "3" } else { "60" };
    // The first two replicas have the defaults, so that most seeds begin alike.
    let mut random = fastrand::Rng::with_seed(seed ^ (started << 32));
    let other = if started <= 2 {
        0
    } else {
        random.usize(0..OTHER_FLAGS.len())
    };
    let [flag, value] = OTHER_FLAGS[other];
    let flags = [
        "unikai",
        flag,
        value,
        "--identity",
        name,
        "--gpu-sharing",
        "true",
        "--numa",
        "--watch-timeout",
        watch_timeout,
        "--self-check-interval",
        self_check,
        "--webhook-url",
        "https://192.0.2.1:9443",
    ];
    let args = <Flags as clap::Parser>::parse_from(flags).args;
    Settings::try_from(args).expect("valid settings")
}

impl Drop for Simulation {
    /// The API server reaches the replicas by their endpoints, and the replicas reach the API server: neither would be dropped.
    fn drop(&mut self) {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.clear();
    }
}

/// Has the first replica that lives answer reviews.
fn answerer(endpoints: &Endpoints) -> unikai::devcluster::apiserver::webhook::Answerer {
    let endpoints = Arc::clone(endpoints);
    Arc::new(move |path, body| {
        let first = endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let first = first
            .iter()
            .find(|(link, _)| !link.has_crashed())
            .map(|(_, router)| router.clone());
        Box::pin(async move {
            let router = first.ok_or("connection refused")?;
            let mut request = http::Request::new(Body::from(body));
            *request.method_mut() = http::Method::POST;
            *request.uri_mut() = path.parse().map_err(|error| format!("{error}"))?;
            let json = http::HeaderValue::from_static("application/json");
            request.headers_mut().insert(http::header::CONTENT_TYPE, json);
            let answer = router.oneshot(request).await.map_err(|error| error.to_string())?;
            let (parts, body) = answer.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX)
                .await
                .map_err(|error| error.to_string())?;
            Ok((parts.status, body))
        })
    })
}

/// The names of the queues that a run begins with, and their parents.
pub fn queues() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let parents = PARENTS.iter().map(|name| (*name, None));
    parents.chain(QUEUES.iter().map(|name| (*name, Some(plan::parent_of(name)))))
}
