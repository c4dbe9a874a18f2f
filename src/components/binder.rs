//! Carries decisions out: binds pods to nodes, deletes pods that are evicted, keeps shared GPUs reserved.
//!
//! A plain pod costs one request, the Binding, which also writes its annotations. The pod's UID goes with every request, so that a
//! re-created pod of the same name is never touched. A request whose fate is not known is looked up before it is sent again.
//! A pod that needs more takes a [`course`], which is written down as a bind request first; bind requests that are found (left by a
//! process that died, or made by others) are gone through in the same way. What fails is undone, told in an event, and to the
//! scheduler.

mod attempt;
mod audit;
mod chores;
mod claims;
mod course;
mod failures;
mod fraction;
mod groups;
mod intent;
mod limit;
mod notes;
mod requests;
mod reservation;
mod reviews;
mod volumes;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep_until;
use tracing::{Instrument, debug, info, info_span};

use crate::api::BindRequest;
use crate::components::bus::{
    Bind, BindOrder, BindSeen, Bus, Change, Evict, Kind, Object, Outcome, PodRef, Sighting, Step, StepLog, ToBinder,
    ToScheduler,
};
use crate::components::watches::{Key, Stores};
use crate::components::{Context, Error};
use attempt::{Attempt, Ending, Report};
use audit::Audit;
use chores::Chore;
use course::{Ask, Course};
use failures::{Failures, RETRY, Waits};
use groups::{GroupId, Groups};
use intent::Care;
use limit::Limit;
use requests::Caller;
use reviews::Reviews;

/// Binds of several steps under way: most of them wait for a device.
const COURSES_MAX: usize = 1_024;
/// Requests of such binds, and of chores, at the same time.
const CALLS_MAX: usize = 32;
/// Questions to the keeper of groups that wait to be heard.
const ASKS_MAX: usize = 1_024;

/// Binds and evicts until shutdown; then what is under way is finished, and nothing else is begun.
///
/// # Errors
/// If another component is gone, or a task of this one panicked.
pub async fn run(
    context: Context,
    mut inbox: mpsc::Receiver<ToBinder>,
    stores: Arc<Stores>,
    bus: Bus,
) -> Result<(), Error> {
    let (keeper, mut asked) = mpsc::channel(ASKS_MAX);
    let mut leading = context.leading.clone();
    let mut binder = Binder::new(context.clone(), stores, bus, keeper);
    loop {
        binder.tend();
        binder.start();
        let wake = binder.wake();
        tokio::select! {
            () = context.shutdown.cancelled() => break,
            changed = leading.changed() => changed.map_err(|_| Error::Closed)?,
            message = inbox.recv() => binder.take(message.ok_or(Error::Closed)?),
            Some(ask) = asked.recv() => binder.asked(ask),
            Some(ended) = binder.under_way.join_next() => binder.ended(ended)?,
            Some(ended) = binder.courses.join_next() => binder.course_ended(ended)?,
            Some(ended) = binder.chores.join_next() => binder.chore_ended(ended)?,
            () = sleep_until(wake.unwrap_or_else(Instant::now).into()), if wake.is_some() => {}
        }
    }
    // Who waits for a device waits no longer: the next leader goes on where the bind request says.
    drop(asked);
    binder.groups = Groups::default();
    while let Some(ended) = binder.under_way.join_next().await {
        binder.ended(ended)?;
    }
    while let Some(ended) = binder.courses.join_next().await {
        binder.course_ended(ended)?;
    }
    Ok(())
}

/// A piece of work of one request.
#[derive(Debug)]
enum Job {
    Bind(Box<Bind>),
    Evict(Evict),
}

/// A bind of several steps that has ended.
struct Finished {
    bind: Bind,
    report: Report,
    resumed: Option<Arc<BindRequest>>,
    /// It was refused because another bind of the same pod is under way.
    double: bool,
}

struct Binder {
    context: Context,
    stores: Arc<Stores>,
    bus: Bus,
    queue: VecDeque<Job>,
    under_way: JoinSet<(Job, Report)>,
    limit: Limit,
    /// Nothing starts before: the server asked for it.
    pause: Option<Instant>,
    failures: Failures,

    caller: Caller,
    keeper: mpsc::Sender<Ask>,
    waiting_courses: VecDeque<Course>,
    courses: JoinSet<Finished>,
    /// Pods (by uid) with a course, waiting or under way.
    on_course: HashSet<Arc<str>>,
    chores: JoinSet<Chore>,
    groups: Groups,
    reviews: Reviews,
    audit: Audit,
    /// Kinds whose first list has not come.
    missing: Vec<Kind>,
    active: bool,
}

impl Binder {
    fn new(context: Context, stores: Arc<Stores>, bus: Bus, keeper: mpsc::Sender<Ask>) -> Self {
        Self {
            caller: Caller::new(context.clone(), CALLS_MAX),
            groups: Groups::new(context.settings.sharing.patience),
            reviews: Reviews::new(&context.settings),
            context,
            stores,
            bus,
            queue: VecDeque::new(),
            under_way: JoinSet::new(),
            limit: Limit::default(),
            pause: None,
            failures: Failures::default(),
            keeper,
            waiting_courses: VecDeque::new(),
            courses: JoinSet::new(),
            on_course: HashSet::new(),
            chores: JoinSet::new(),
            audit: Audit::default(),
            missing: vec![
                Kind::Pod,
                Kind::Node,
                Kind::BindRequest,
                Kind::PersistentVolume,
                Kind::PersistentVolumeClaim,
            ],
            active: false,
        }
    }

    fn take(&mut self, message: ToBinder) {
        match message {
            ToBinder::Order(order) => self.queue(order),
            ToBinder::Change(change) => self.changed(change),
        }
    }

    fn changed(&mut self, change: Change) {
        let now = Instant::now();
        let concerned = match change {
            Change::Applied(Object::Pod(pod)) => {
                self.reviews.pod(&pod, now);
                self.groups.pod(&pod, now)
            }
            Change::Deleted(Object::Pod(pod)) => {
                self.reviews.pod_gone(&pod, now);
                self.groups.pod_gone(&pod, now)
            }
            Change::Applied(Object::BindRequest(request)) => {
                self.reviews.request(&request, now);
                Vec::new()
            }
            Change::Deleted(Object::BindRequest(request)) => {
                self.reviews.request_gone(&request);
                Vec::new()
            }
            Change::Synced(kind) => {
                self.missing.retain(|missing| *missing != kind);
                Vec::new()
            }
            Change::Applied(_) | Change::Deleted(_) => Vec::new(),
        };
        for id in concerned {
            self.audit.look(&id, &self.groups, &self.stores);
        }
    }

    /// Evictions go before bindings: somebody waits for what they free.
    fn queue(&mut self, order: BindOrder) {
        for evict in order.evictions.into_iter().rev() {
            self.queue.push_front(Job::Evict(evict));
        }
        for bind in order.binds {
            let in_steps = bind
                .steps
                .iter()
                .any(|step| matches!(step, Step::GpuShare | Step::Volumes));
            if in_steps || self.context.settings.sharing.always_bind_requests {
                self.queue_course(bind, None);
            } else {
                self.queue.push_back(Job::Bind(Box::new(bind)));
            }
        }
    }

    fn queue_course(&mut self, bind: Bind, resumes: Option<Arc<BindRequest>>) {
        let uid = &bind.placement.pod.uid;
        if self.on_course.contains(uid) {
            // A resumed bind will do; a new decision has to wait for it.
            if resumes.is_none() {
                let (bus, waits) = (self.bus.clone(), self.failures.waits(&bind));
                self.courses.spawn(async move {
                    let report = Report::not_tried("another bind of the pod is under way");
                    not_bound(&bus, &bind, &report, waits).await;
                    Finished {
                        bind,
                        report,
                        resumed: None,
                        double: true,
                    }
                });
            }
            return;
        }
        self.on_course.insert(Arc::clone(uid));
        self.groups.open(uid, &course::group_ids(&bind));
        self.waiting_courses.push_back(Course {
            caller: self.caller.clone(),
            stores: Arc::clone(&self.stores),
            keeper: self.keeper.clone(),
            bind,
            resumes,
            steps: self.bus.traces.steps(),
        });
    }

    /// Starts as much as the limits admit.
    fn start(&mut self) {
        while self.pause.is_none()
            && self.limit.admits(self.under_way.len())
            && let Some(job) = self.queue.pop_front()
        {
            let attempt = Attempt {
                context: self.context.clone(),
                steps: self.bus.traces.steps(),
            };
            let (bus, leading) = (self.bus.clone(), self.context.is_leading());
            let waits = match &job {
                Job::Bind(bind) => self.failures.waits(bind),
                Job::Evict(_) => Waits::default(),
            };
            self.under_way.spawn(async move {
                let began = SystemTime::now();
                let report = if leading {
                    carry_out(&attempt, &job).await
                } else {
                    Report::not_tried("not the leader")
                };
                if let Job::Bind(bind) = &job {
                    trace(&bus, bind, &report, &attempt.steps, began);
                }
                match &job {
                    Job::Bind(bind) => not_bound(&bus, bind, &report, waits).await,
                    Job::Evict(evict) => not_evicted(&bus, evict, &report).await,
                }
                (job, report)
            });
        }
        while self.courses.len() < COURSES_MAX
            && let Some(course) = self.waiting_courses.pop_front()
        {
            let (bus, waits) = (self.bus.clone(), self.failures.waits(&course.bind));
            let pod = &course.bind.placement.pod;
            let span = info_span!("bind", ns = %pod.namespace, name = %pod.name, node = %course.bind.placement.node);
            self.courses.spawn(go_through(course, bus, waits).instrument(span));
        }
    }

    /// When something is due that no message will tell of.
    fn wake(&self) -> Option<Instant> {
        let others = if self.active {
            [self.groups.next(), self.reviews.next()]
        } else {
            [self.groups.next(), None]
        };
        self.pause.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Does what is due.
    fn tend(&mut self) {
        let now = Instant::now();
        self.pause = self.pause.filter(|pause| *pause > now);
        let active = self.missing.is_empty() && self.context.is_leading();
        if active != self.active {
            self.active = active;
            self.groups.set_active(active, now);
            self.reviews.look_at_all(now);
        }
        for command in self.groups.due(now) {
            self.chores.spawn(chores::carry_out(self.caller.clone(), command));
        }
        if active {
            for key in self.reviews.due(now) {
                self.review(key, now);
            }
        }
    }

    /// Looks at a bind request that has changed, or whose pod has.
    fn review(&mut self, key: Key, now: Instant) {
        let Some(request) = self.stores.bind_requests.get(&key.namespace, &key.name) else {
            return self.reviews.forget(&key);
        };
        let pod = self
            .stores
            .pods
            .get(&key.namespace, request.spec.pod_name.as_deref().unwrap_or_default());
        let uid = pod
            .as_ref()
            .and_then(|pod| pod.metadata.uid.as_deref())
            .unwrap_or_default();
        if self.on_course.contains(uid) || self.reviews.was_bound(uid) {
            return;
        }
        let node = crate::mirror::bind_request::node(&request).unwrap_or_default();
        let node_known = self.stores.nodes.get("", node).is_some();
        let stays = self.context.settings.sharing.always_bind_requests;
        let promised = |pod: &Pod| volumes::promised(&self.stores, pod, node);
        match intent::care(
            &request,
            pod.as_deref(),
            node_known,
            stays,
            self.reviews.shard(),
            promised,
        ) {
            Care::Leave => {}
            Care::Drop => {
                self.reviews.begin(&key, now);
                let chore = chores::drop_done(self.caller.clone(), key, request, pod.is_some());
                self.chores.spawn(chore);
            }
            Care::Succeed => {
                self.reviews.begin(&key, now);
                self.chores
                    .spawn(chores::succeed(self.caller.clone(), key, request, pod));
            }
            Care::CarryOut(bind) => {
                info!(ns = key.namespace, name = key.name, "bind request is carried out");
                self.queue_course(*bind, Some(request));
            }
        }
    }

    fn asked(&mut self, ask: Ask) {
        let tolerations = ask.pod.spec.as_ref().and_then(|spec| spec.tolerations.clone());
        self.groups
            .ask(&ask.id, tolerations.unwrap_or_default(), ask.answer, Instant::now());
    }

    fn ended(&mut self, ended: Result<(Job, Report), JoinError>) -> Result<(), Error> {
        let (job, report) = ended.map_err(|panic| panicked("bind", &panic))?;
        for latency in &report.answers {
            self.limit.answered(*latency);
        }
        if report.refusals > 0 {
            self.limit.refused();
            self.pause = report.pause.map(|pause| Instant::now() + pause).max(self.pause);
        }
        if let (Job::Bind(_), Ending::Done, Some(latency)) = (&job, &report.ending, report.answers.last()) {
            metrics::histogram!("kai_task_bind_latency_milliseconds").record(latency.as_secs_f64() * 1e3);
        }
        let note = match &job {
            Job::Bind(bind) => {
                self.failures.note(bind, &report, false);
                notes::of_bind(&self.context.settings, bind, &report, false)
            }
            Job::Evict(evict) => notes::of_eviction(&self.context.settings, evict, &report),
        };
        if let Some(note) = note {
            self.bus.events.send(note);
        }
        count(job.kind(), &report.ending);
        Ok(())
    }

    fn course_ended(&mut self, ended: Result<Finished, JoinError>) -> Result<(), Error> {
        let now = Instant::now();
        let finished = ended.map_err(|panic| panicked("bind", &panic))?;
        let Finished {
            bind,
            report,
            resumed,
            double,
        } = finished;
        if double {
            return Ok(());
        }
        let pod = &bind.placement.pod;
        let bound = report.ending == Ending::Done;
        self.on_course.remove(&pod.uid);
        let ids: Vec<GroupId> = course::group_ids(&bind);
        self.groups.close(pod, &ids, bound, now);
        let wait_after_failure = self.failures.waits(&bind).pod;
        self.failures.note(&bind, &report, self.groups.opened_by(pod, &ids));
        let shown = self.stores.pods.get(&pod.namespace, &pod.name);
        let wait = match &report.ending {
            Ending::Done => {
                let seen = shown
                    .as_ref()
                    .is_none_or(|shown| crate::components::pods::is_bound(shown));
                self.reviews.bound(pod, seen);
                Duration::ZERO
            }
            Ending::Overtaken => RETRY.first,
            Ending::Failed(_) => {
                let foreign = resumed.as_deref().filter(|request| !intent::is_ours(request));
                let attempts = foreign.map_or(0, |request| u32::try_from(chores::attempts(request)).unwrap_or(0));
                wait_after_failure.max(RETRY.wait(attempts + 1))
            }
        };
        self.reviews.again(pod, now + wait);
        let told = [
            notes::of_bind(&self.context.settings, &bind, &report, true),
            notes::of_trail(&self.context.settings, &bind, &report),
        ];
        told.into_iter().flatten().for_each(|note| self.bus.events.send(note));
        count("bind in steps", &report.ending);
        Ok(())
    }

    fn chore_ended(&mut self, ended: Result<Chore, JoinError>) -> Result<(), Error> {
        let now = Instant::now();
        match ended.map_err(|panic| panicked("chore of the binder", &panic))? {
            Chore::Made(id, made) => {
                self.groups.made(&id, made.as_deref().map_err(Clone::clone), now);
                self.audit.look(&id, &self.groups, &self.stores);
            }
            Chore::GivenUp(id, evicted) => {
                for pod in &evicted {
                    let note = notes::of_lost_device(&self.context.settings, pod, &id.group);
                    self.bus.events.send(note);
                }
                self.groups.given_up(&id, now);
            }
            Chore::Tended(key) => self.reviews.finish(&key, now),
        }
        Ok(())
    }
}

impl Job {
    fn kind(&self) -> &'static str {
        match self {
            Self::Bind(_) => "bind",
            Self::Evict(_) => "evict",
        }
    }
}

fn count(kind: &'static str, ending: &Ending) {
    metrics::counter!("unikai_binder_jobs_total", "kind" => kind, "ending" => ending.word()).increment(1);
}

fn panicked(task: &'static str, panic: &JoinError) -> Error {
    Error::Panicked {
        task,
        panic: panic.to_string(),
    }
}

async fn carry_out(attempt: &Attempt, job: &Job) -> Report {
    match job {
        Job::Bind(bind) => {
            let pod = &bind.placement.pod;
            let span = info_span!("bind", ns = %pod.namespace, name = %pod.name, node = %bind.placement.node);
            attempt.bind(bind).instrument(span).await
        }
        Job::Evict(evict) => {
            let span = info_span!("evict", ns = %evict.pod.namespace, name = %evict.pod.name);
            attempt.evict(evict).instrument(span).await
        }
    }
}

/// Lets the trace of the workload tell of the bind.
fn trace(bus: &Bus, bind: &Bind, report: &Report, steps: &StepLog, began: SystemTime) {
    bus.traces.tell(|| {
        let failed = match &report.ending {
            Ending::Failed(why) => Some(why.clone()),
            Ending::Done | Ending::Overtaken => None,
        };
        Sighting::Bound(Box::new(BindSeen {
            pod: bind.placement.pod.clone(),
            group: bind.placement.group.clone(),
            node: Arc::clone(&bind.placement.node),
            began,
            ended: SystemTime::now(),
            steps: steps.take(),
            failed,
        }))
    });
}

/// A bind of several steps, from its first to its end.
async fn go_through(course: Course, bus: Bus, waits: Waits) -> Finished {
    let began = SystemTime::now();
    let (report, request) = if course.caller.context.is_leading() {
        course.run().await
    } else {
        (Report::not_tried("not the leader"), None)
    };
    let Course {
        caller,
        stores,
        bind,
        resumes,
        steps,
        ..
    } = course;
    trace(&bus, &bind, &report, &steps, began);
    let pod = stores.pods.get(&bind.placement.pod.namespace, &bind.placement.pod.name);
    let foreign = resumes.as_deref().filter(|request| !intent::is_ours(request));
    match &report.ending {
        Ending::Done => chores::correct(&caller, &bind.placement.node, pod.as_deref()).await,
        Ending::Overtaken => {}
        Ending::Failed(_) if caller.context.shutdown.is_cancelled() => {}
        Ending::Failed(why) => {
            // The scheduler first, so that it knows how long to wait when it sees the request go.
            let goes_on = match foreign {
                Some(request) => chores::fail(&caller, request, why).await,
                None => false,
            };
            if !goes_on {
                not_bound(&bus, &bind, &report, waits).await;
            }
            chores::blame(&caller, &bind, pod.as_deref(), why).await;
        }
    }
    let over = report.ending != Ending::Done && !caller.context.shutdown.is_cancelled();
    if let Some(request) = request.filter(|request| over && intent::is_ours(request))
        && let Err(trouble) = course::drop_request(&caller, &request).await
    {
        info!(error = trouble.why, "bind request not deleted");
    }
    Finished {
        bind,
        report,
        resumed: resumes,
        double: false,
    }
}

/// Tells the scheduler of a failed bind, which its watch will not show.
async fn not_bound(bus: &Bus, bind: &Bind, report: &Report, waits: Waits) {
    let Ending::Failed(why) = &report.ending else { return };
    let (pod, node) = (bind.placement.pod.clone(), Arc::clone(&bind.placement.node));
    info!(ns = %pod.namespace, name = %pod.name, %node, error = why, "pod not bound");
    let after = |wait| Timestamp::now() + SignedDuration::try_from(wait).unwrap_or(SignedDuration::ZERO);
    if report.no_device {
        let retry_at = after(waits.node);
        tell(bus, Outcome::NoDevice { node, retry_at }).await;
    }
    let retry_at = after(waits.pod);
    tell(bus, Outcome::NotBound { pod, retry_at }).await;
}

/// Tells the scheduler of a failed eviction.
async fn not_evicted(bus: &Bus, evict: &Evict, report: &Report) {
    let Ending::Failed(why) = &report.ending else { return };
    let pod: PodRef = evict.pod.clone();
    info!(ns = %pod.namespace, name = %pod.name, error = why, "pod not evicted");
    tell(bus, Outcome::NotEvicted { pod }).await;
}

async fn tell(bus: &Bus, outcome: Outcome) {
    if bus.scheduler.send(ToScheduler::Outcome(outcome)).await.is_err() {
        debug!("outcome not delivered: the scheduler has ended");
    }
}
