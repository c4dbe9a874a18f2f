//! The binder: binds pods to nodes, evicts pods, keeps shared GPUs reserved.
//!
//! A plain pod costs one request, the Binding, which also writes its annotations. Every request carries the pod's UID, so that a
//! re-created pod of the same name is never touched. After a request without an answer the pod is read before the request is repeated.
//! A pod that needs more is bound in several steps ([`multi_step`]) and has a bind request first; bind requests that exist already (left by a
//! process that died, or created by others) go through the same steps. A bind that fails is undone, unless the pod may be bound, and reported in an event
//! and to the scheduler.

mod after_evictions;
mod attempt;
mod audit;
mod bind_request;
mod carry_out;
mod claim_turns;
mod claims;
mod cleanup;
mod endings;
mod evictions;
mod failures;
mod fraction;
mod groups;
mod limit;
mod multi_step;
mod notes;
mod open_binds;
mod outcomes;
mod requests;
mod reservation;
mod reserve;
mod reviews;
mod slow_jobs;
mod stray_claims;
mod volume_turns;
mod volumes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{Instrument, error, info, info_span, warn};

use crate::api::BindRequest;
use crate::clock;
use crate::components::bus::{
    BindOrder, Bus, Change, Evict, Kind, Listener, Object, OrderedBind, PodRef, Step, ToBinder,
};
use crate::components::fair::NamespaceQueues;
use crate::components::leadership::Scope;
use crate::components::views::Views;
use crate::components::watches::{Key, Stores};
use crate::components::{Context, Error, Settings, panics, pods};
use after_evictions::{AfterEvictions, Released};
use attempt::{Attempt, Ending, Report};
use audit::Audit;
use bind_request::BindRequestAction;
use carry_out::{Finished, carry_out, ended, go_through};
use cleanup::Cleanup;
use endings::{count, count_failure, faulty, record_latency};
use evictions::Evictions;
use failures::{Failures, RETRY, Waits};
use groups::{DueCommand, GroupId, Groups};
use limit::Limit;
use multi_step::{GroupRequest, MultiStepBind};
use outcomes::{not_bound, not_evicted};
use requests::Caller;
use reserve::Reserver;
use reviews::Reviews;
use slow_jobs::SlowJobs;
use stray_claims::{Stray, StrayClaims};

/// Limit on concurrent multi-step binds: most of them wait for a device.
const MULTI_STEP_MAX: usize = 1_024;
/// The same per namespace, so that volumes that are never provisioned do not block other namespaces.
const MULTI_STEP_PER_NAMESPACE: usize = MULTI_STEP_MAX / 4;
/// Limit on concurrent requests of multi-step binds and cleanup.
const CALLS_MAX: usize = 32;
/// Capacity of the channel to the manager of GPU groups.
const ASKS_MAX: usize = 1_024;

/// Binds and evicts until shutdown; then open jobs are finished, and no other is started.
///
/// # Errors
/// If another component is gone, or a task of this one panicked.
pub async fn run(
    context: Context,
    mut inbox: mpsc::Receiver<ToBinder>,
    stores: Arc<Stores>,
    bus: Bus,
) -> Result<(), Error> {
    let (group_requests, mut asked) = mpsc::channel(ASKS_MAX);
    let mut leading = context.leading.clone();
    let mut binder = Binder::new(context.clone(), stores, bus, group_requests);
    let slow_jobs = Arc::clone(&binder.slow_jobs);
    loop {
        binder.run_due(inbox.is_empty());
        binder.start();
        let wake = binder.wake();
        context.background.bindings(binder.has_outstanding());
        tokio::select! {
            () = context.shutdown.cancelled() => break,
            changed = leading.changed() => {
                changed.map_err(|_| Error::Closed)?;
                let terms = leading.borrow_and_update();
                binder.views.keep(|number| terms.numbered(number).is_some());
            }
            message = inbox.recv() => binder.take(message.ok_or(Error::Closed)?),
            Some(ask) = asked.recv() => binder.asked(ask),
            Some(ended) = binder.under_way.join_next() => binder.ended(ended)?,
            () = slow_jobs.changed() => {}
            Some(ended) = binder.multi_step_binds.join_next() => binder.multi_step_ended(ended)?,
            Some(ended) = binder.cleanups.join_next() => binder.cleanup_ended(ended)?,
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
        }
    }
    // Binds that wait for a device end: the next leader resumes them by their bind requests.
    drop(asked);
    binder.groups = Groups::default();
    let jobs = async {
        while let Some(ended) = binder.under_way.join_next().await {
            binder.ended(ended)?;
        }
        while let Some(ended) = binder.multi_step_binds.join_next().await {
            binder.multi_step_ended(ended)?;
        }
        // A reservation pod that is created when nobody knows of it takes a GPU that others were given.
        while let Some(ended) = binder.cleanups.join_next().await {
            binder.cleanup_ended(ended)?;
        }
        Ok(())
    };
    timeout(FINISH, jobs).await.unwrap_or_else(|_| {
        warn!("jobs of the binder do not end, as the API server does not answer; the next leader sees what has become of them");
        Ok(())
    })
}

/// A bind or an eviction that takes one request.
#[derive(Debug)]
enum Job {
    Bind(Box<OrderedBind>),
    Evict(Evict),
}

/// A job, and the term of leadership in which it was ordered. It is not carried out in a later one.
#[derive(Debug)]
struct Ordered {
    job: Job,
    term: u64,
}

/// How long open jobs may take at shutdown: less than all components may.
const FINISH: Duration = Duration::from_secs(15);
/// Limit on open jobs, including slow ones.
const UNDER_WAY_MAX: usize = 1_024;
/// Of these, binds of one namespace: a webhook for its pods may not answer.
const UNDER_WAY_PER_NAMESPACE: usize = UNDER_WAY_MAX / 4;
/// Why a job is not started.
const TERM_OVER: &str = "the term of leadership in which it was decided is over";
/// Listeners whose kinds must have caught up before the binder deletes reservation pods or carries out bind requests.
const DECIDED_BY: [Listener; 2] = [Listener::Binder, Listener::BinderOnceListed];

struct Binder {
    context: Context,
    stores: Arc<Stores>,
    bus: Bus,
    evicting: VecDeque<Ordered>,
    binding: NamespaceQueues<Ordered>,
    under_way: JoinSet<(Job, Report)>,
    slow_jobs: Arc<SlowJobs>,
    limit: Limit,
    /// Nothing starts before this instant: the API server sent `Retry-After`.
    pause: Option<Instant>,
    failures: Failures,
    evictions: Evictions,
    after_evictions: AfterEvictions,

    caller: Caller,
    group_requests: mpsc::Sender<GroupRequest>,
    waiting_multi_step: NamespaceQueues<MultiStepBind>,
    multi_step_binds: JoinSet<Finished>,
    cleanups: JoinSet<Cleanup>,
    groups: Groups,
    reviews: Reviews,
    stray_claims: StrayClaims,
    audit: Audit,
    /// Kinds that have not been listed yet.
    missing: Vec<Kind>,
    /// Kinds that have caught up in this term of leadership.
    views: Views,
    /// The terms in which the binder may clean up, by scope.
    active: BTreeMap<Scope, u64>,
}

impl Binder {
    fn new(context: Context, stores: Arc<Stores>, bus: Bus, group_requests: mpsc::Sender<GroupRequest>) -> Self {
        Self {
            caller: Caller::new(context.clone(), CALLS_MAX),
            groups: Groups::new(context.settings.sharing.max_wait, context.settings.own_pods.clone()),
            reviews: Reviews::default(),
            stray_claims: StrayClaims::default(),
            context,
            stores,
            bus,
            evicting: VecDeque::new(),
            binding: NamespaceQueues::new(UNDER_WAY_PER_NAMESPACE),
            under_way: JoinSet::new(),
            slow_jobs: Arc::default(),
            limit: Limit::default(),
            pause: None,
            failures: Failures::default(),
            evictions: Evictions::default(),
            after_evictions: AfterEvictions::default(),
            group_requests,
            waiting_multi_step: NamespaceQueues::new(MULTI_STEP_PER_NAMESPACE),
            multi_step_binds: JoinSet::new(),
            cleanups: JoinSet::new(),
            audit: Audit::default(),
            missing: Kind::told_to(&DECIDED_BY),
            views: Views::of(Kind::told_to(&DECIDED_BY)),
            active: BTreeMap::new(),
        }
    }

    fn take(&mut self, message: ToBinder) {
        match message {
            ToBinder::Order(order) => self.queue(order),
            ToBinder::Change(change) => {
                if let Err(panic) = panics::catch(|| self.changed(change.clone())) {
                    let note = panics::set_aside("binder", &change, &panic, &self.context.settings.scheduler_name);
                    note.into_iter().for_each(|note| self.bus.events.send_as_cluster(note));
                }
            }
            ToBinder::Current(kind, term) => {
                self.views.current(kind, term);
            }
        }
    }

    fn changed(&mut self, change: Change) {
        let now = Instant::now();
        let concerned = match change {
            Change::Applied(Object::Pod(pod)) => {
                self.reviews.pod(&pod, now);
                // GPU group labels of pods of other schedulers are ignored.
                if pods::is_ours(&pod, &self.context.settings)
                    || reservation::is_reservation_pod(&pod, &self.context.settings.own_pods)
                {
                    self.groups.pod(&pod, now)
                } else {
                    Vec::new()
                }
            }
            Change::Deleted(Object::Pod(pod)) => {
                self.forget(pod.metadata.uid.as_deref().unwrap_or_default());
                self.reviews.pod_gone(&pod, now);
                self.groups.pod_gone(&pod, now)
            }
            Change::Applied(Object::BindRequest(request)) => {
                self.reviews.request(&request, now);
                Vec::new()
            }
            Change::Deleted(Object::BindRequest(request)) => {
                self.request_gone(&request, now);
                Vec::new()
            }
            Change::Applied(Object::Node(node)) => {
                self.node_changed(&node, node.metadata.labels.as_ref(), now);
                Vec::new()
            }
            Change::Deleted(Object::Node(node)) => {
                self.node_changed(&node, None, now);
                Vec::new()
            }
            // Those that are known when a term begins are all looked at then.
            Change::Applied(Object::ResourceClaim(claim)) if !self.active.is_empty() => {
                self.stray_claims.claim(&claim, now);
                Vec::new()
            }
            Change::Synced(kind) => {
                self.missing.retain(|missing| *missing != kind);
                Vec::new()
            }
            Change::Applied(_) | Change::Deleted(_) => Vec::new(),
        };
        for id in concerned {
            self.audit.look(&id, &self.groups, &self.stores, now);
        }
    }

    /// A node has these labels now.
    fn node_changed(&mut self, node: &Node, labels: Option<&BTreeMap<String, String>>, now: Instant) {
        let term = term_of(labels, &self.context.settings, &self.active);
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.groups.node(name, term, now);
    }

    /// A bind request was deleted: a pod that may have been bound with it uses no GPUs, unless it is bound.
    fn request_gone(&mut self, request: &BindRequest, now: Instant) {
        self.reviews.request_gone(request);
        let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
        for owner in request.metadata.owner_references.iter().flatten() {
            let uid: Arc<str> = owner.uid.as_str().into();
            if !self.is_known_bound(namespace, &owner.name, &uid) && !self.reviews.is_in_steps(&uid) {
                self.groups.not_bound(&uid, &[], now);
            }
        }
    }

    /// Whether a pod is bound, as far as is known.
    fn is_known_bound(&self, namespace: &str, name: &str, uid: &str) -> bool {
        let shown = || self.stores.pods.get_same(namespace, name, Some(uid));
        self.reviews.was_bound(uid) || shown().is_some_and(|pod| pods::is_bound(&pod))
    }

    /// Evictions start before binds: pipelined pods wait for what they free.
    fn queue(&mut self, order: BindOrder) {
        let term = order.term;
        for evict in order.evictions {
            self.after_evictions.eviction(&evict.pod.uid);
            let job = Job::Evict(evict);
            self.evicting.push_back(Ordered { job, term });
        }
        let released = self.after_evictions.binds(order.binds, term);
        self.release(released);
    }

    /// Starts binds that need not wait for evictions any longer, or reports them as failed.
    fn release(&mut self, released: Released) {
        for (bind, term) in released.start {
            self.queue_bind(bind, term);
        }
        for bind in released.fail {
            self.not_started(
                bind,
                "an eviction without which the bind would exceed the limit of its queue was refused",
            );
        }
    }

    fn queue_bind(&mut self, bind: OrderedBind, term: u64) {
        let in_steps = bind
            .steps
            .iter()
            .any(|step| matches!(step, Step::GpuShare | Step::Volumes));
        if in_steps || self.context.settings.sharing.always_bind_requests {
            self.queue_multi_step(bind, None, term);
        } else {
            let namespace = bind.placement.pod.namespace.clone();
            let job = Job::Bind(Box::new(bind));
            self.binding.push(&namespace, Ordered { job, term });
        }
    }

    /// Reports a bind as failed that was not started.
    fn not_started(&mut self, bind: OrderedBind, why: &'static str) {
        let (bus, waits) = (self.bus.clone(), self.failures.waits(&bind));
        self.multi_step_binds.spawn(async move {
            let report = Report::not_tried(why);
            not_bound(&bus, &bind, &report, waits).await;
            Finished {
                bind,
                report,
                resumed: None,
                waits,
                started: false,
            }
        });
    }

    fn queue_multi_step(&mut self, bind: OrderedBind, resumes: Option<Arc<BindRequest>>, term: u64) {
        let (pod, uid) = (&bind.placement.pod, &bind.placement.pod.uid);
        if self.reviews.is_in_steps(uid) {
            return self.not_started(bind, "another bind of the pod is under way");
        }
        if self.is_known_bound(&pod.namespace, &pod.name, uid) {
            // The scheduler decided before it was told.
            return info!(ns = %pod.namespace, name = %pod.name, "not bound again: the pod is bound");
        }
        self.reviews.steps_begin(uid);
        self.groups.open(uid, &multi_step::group_ids(&bind));
        let namespace = bind.placement.pod.namespace.clone();
        let multi_step = MultiStepBind {
            caller: self.caller.of_term(term),
            stores: Arc::clone(&self.stores),
            group_requests: self.group_requests.clone(),
            bind,
            resumes,
            steps: self.bus.traces.steps(),
        };
        self.waiting_multi_step.push(&namespace, multi_step);
    }

    /// Starts as many jobs as the limits allow.
    fn start(&mut self) {
        while self.pause.is_none()
            && self.under_way.len() < UNDER_WAY_MAX
            && self
                .limit
                .admits(self.under_way.len().saturating_sub(self.slow_jobs.count()))
            && let Some(Ordered { job, term }) = self.evicting.pop_front().or_else(|| self.binding.pop())
        {
            let caller = self.caller.of_term(term);
            let attempt = Attempt {
                context: caller.context.clone(),
                stores: Arc::clone(&self.stores),
                claim_turns: Arc::clone(&caller.claim_turns),
                steps: self.bus.traces.steps(),
            };
            let (bus, slow_jobs) = (self.bus.clone(), Arc::clone(&self.slow_jobs));
            let waits = match &job {
                Job::Bind(bind) => self.failures.waits(bind),
                Job::Evict(evict) => Waits {
                    pod: self.failures.wait_to_evict(&evict.pod),
                    ..Waits::default()
                },
            };
            self.under_way.spawn(async move {
                let began = clock::system_time();
                let report = if attempt.context.is_leading() {
                    let carried_out =
                        Box::pin(panics::caught(slow_jobs.watch(carry_out(&attempt, &caller, &job)))).await;
                    carried_out.unwrap_or_else(|panic| faulty(&panic))
                } else {
                    Report::not_tried(TERM_OVER)
                };
                if let Job::Bind(bind) = &job {
                    ended(&bus, bind, &report, &attempt.steps, began);
                }
                match &job {
                    Job::Bind(bind) => not_bound(&bus, bind, &report, waits).await,
                    Job::Evict(evict) => not_evicted(&bus, evict, &report, waits).await,
                }
                (job, report)
            });
        }
        while self.multi_step_binds.len() < MULTI_STEP_MAX
            && let Some(multi_step) = self.waiting_multi_step.pop()
        {
            let (bus, waits) = (self.bus.clone(), self.failures.waits(&multi_step.bind));
            let pod = &multi_step.bind.placement.pod;
            let span =
                info_span!("bind", ns = %pod.namespace, name = %pod.name, node = %multi_step.bind.placement.node);
            self.multi_step_binds
                .spawn(go_through(multi_step, bus, waits).instrument(span));
        }
    }

    /// Whether a Binding or an eviction is outstanding. Slow ones do not count, so that hanging requests delay no background writes.
    fn has_outstanding(&self) -> bool {
        let waiting = !self.evicting.is_empty() || !self.binding.is_empty();
        waiting || self.under_way.len() > self.slow_jobs.count()
    }

    /// The next timer.
    fn wake(&self) -> Option<Instant> {
        let timers = [
            self.pause,
            self.groups.next(),
            self.audit.next(),
            self.reviews.next(),
            self.stray_claims.next(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Runs timers that are due. While changes wait to be taken, what lasts may be over already, so that the audit reports nothing.
    fn run_due(&mut self, caught_up: bool) {
        let now = Instant::now();
        self.pause = self.pause.filter(|pause| *pause > now);
        if caught_up {
            self.audit.report(now);
        }
        let active = self.acts_in();
        if active != self.active {
            self.active = active;
            self.groups.evaluate_all(now);
            self.reviews.review_all(now);
            self.stray_claims = StrayClaims::of_term(&self.stores, now);
        }
        let commands = due(
            &mut self.groups,
            &self.stores,
            &self.context.settings,
            &self.active,
            now,
        );
        for due in commands {
            let left_as_is = Cleanup::GivenUp(due.command.id().clone(), due.number, Vec::new());
            let reserver = self.reserver(self.caller.of_term(due.term));
            self.cleanup(left_as_is, cleanup::carry_out(reserver, due));
        }
        for key in self.reviews.due(now) {
            self.review(key, now);
        }
        for stray in self.stray_claims.due(&self.stores, now) {
            self.give_back(stray, now);
        }
    }

    /// The current terms in which all watches have caught up.
    fn acts_in(&self) -> BTreeMap<Scope, u64> {
        if !self.missing.is_empty() || !self.context.settings.known {
            return BTreeMap::new();
        }
        let terms = self.context.leading.borrow();
        let known = terms.all().filter(|(_, term)| self.views.are_current(term.number));
        known.map(|(scope, term)| (scope.clone(), term.number)).collect()
    }

    /// Reviews a bind request that has changed, or whose pod has. Those outside the active terms are all reviewed when a term begins.
    fn review(&mut self, key: Key, now: Instant) {
        let Some(request) = self.stores.bind_requests.get(&key.namespace, &key.name) else {
            return self.reviews.forget(&key);
        };
        let scope = self.context.scope_of(request.metadata.labels.as_ref());
        let Some(&term) = self.active.get(&scope) else { return };
        let pod = self
            .stores
            .pods
            .get(&key.namespace, request.spec.pod_name.as_deref().unwrap_or_default());
        let uid = pod
            .as_ref()
            .and_then(|pod| pod.metadata.uid.as_deref())
            .unwrap_or_default();
        if self.reviews.is_in_steps(uid) || self.reviews.was_bound(uid) {
            return;
        }
        let node = crate::mirror::bind_request::node(&request).unwrap_or_default();
        let node_known = self.stores.nodes.contains("", node);
        let stays = self.context.settings.sharing.always_bind_requests;
        let promised = |pod: &Pod| volumes::promised(&self.stores, pod, node);
        match bind_request::action(
            &request,
            pod.as_deref(),
            node_known,
            stays,
            &self.context.settings.pools.key,
            promised,
        ) {
            BindRequestAction::Leave => {}
            BindRequestAction::Drop => {
                self.reviews.begin(&key, now);
                let cleanup = cleanup::drop_done(self.caller.of_term(term), key.clone(), request, pod);
                self.cleanup(Cleanup::RequestDone(key), cleanup);
            }
            BindRequestAction::Succeed => {
                self.reviews.begin(&key, now);
                let cleanup = cleanup::succeed(self.caller.of_term(term), key.clone(), request, pod);
                self.cleanup(Cleanup::RequestDone(key), cleanup);
            }
            BindRequestAction::CarryOut(bind) => {
                info!(ns = key.namespace, name = key.name, "bind request is carried out");
                self.queue_multi_step(*bind, Some(request), term);
            }
        }
    }

    /// Gives back a claim that is reserved for pods without a node, unless another process decides about them.
    fn give_back(&mut self, stray: Stray, now: Instant) {
        let in_steps = |pod: &Pod| {
            self.reviews
                .is_in_steps(pod.metadata.uid.as_deref().unwrap_or_default())
        };
        let pods = stray.pods.into_iter().filter(|pod| !in_steps(pod));
        let term = |pod: &Pod| stray_claims::term(pod, &self.context, &self.stores, &self.active);
        let pods: Vec<_> = pods.filter_map(|pod| Some((term(&pod)?, pod))).collect();
        if pods.is_empty() {
            return self.stray_claims.done(&stray.claim, now);
        }
        let cleanup = stray_claims::give_back(self.caller.clone(), stray.claim.clone(), pods);
        self.cleanup(Cleanup::ClaimDone(stray.claim), cleanup);
    }

    /// Starts a cleanup; its result if it panics is given here.
    fn cleanup(&mut self, faulty: Cleanup, cleanup: impl Future<Output = Cleanup> + Send + 'static) {
        self.cleanups.spawn(async move {
            panics::caught(cleanup).await.unwrap_or_else(|panic| {
                metrics::counter!("unikai_object_panics_total", "component" => "binder").increment(1);
                error!(panic, "a cleanup of the binder panicked");
                faulty
            })
        });
    }

    fn reserver(&self, caller: Caller) -> Reserver {
        Reserver {
            caller,
            schedulers: self.bus.schedulers.clone(),
            stores: Arc::clone(&self.stores),
        }
    }

    fn asked(&mut self, ask: GroupRequest) {
        let tolerations = ask.pod.spec.as_ref().and_then(|spec| spec.tolerations.clone());
        let uid = ask.pod.metadata.uid.as_deref().unwrap_or_default().into();
        let user = (uid, ask.user);
        self.groups.ask(
            &ask.id,
            user,
            tolerations.unwrap_or_default(),
            ask.answer,
            Instant::now(),
        );
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
        metrics::gauge!("unikai_binder_concurrency_limit").set(self.limit.allowed());
        let note = match &job {
            Job::Bind(bind) => {
                record_latency(&report);
                self.binding.done(&bind.placement.pod.namespace);
                self.record_ending(bind, &report, Waits::default(), false);
                notes::of_bind(&self.context.settings, bind, &report)
            }
            Job::Evict(evict) => {
                self.failures.note_eviction(&evict.pod, &report);
                self.evictions.note(&self.context, evict, &report, &self.stores);
                let refused = matches!(report.ending, Ending::Failed(_));
                let released = self.after_evictions.ended(&evict.pod.uid, refused);
                self.forget_if_gone(&evict.pod);
                self.release(released);
                notes::of_eviction(&self.context.settings, evict, &report)
            }
        };
        if let Some(note) = note {
            self.bus.events.send(note);
        }
        count(job.kind(), &report.ending);
        if matches!(job, Job::Bind(_)) {
            count_failure(&report);
        }
        Ok(())
    }

    /// Records how a bind ended, as long as its pod exists.
    fn record_ending(&mut self, bind: &OrderedBind, report: &Report, waits: Waits, opened: bool) {
        self.failures.note(bind, report, waits, opened);
        self.forget_if_gone(&bind.placement.pod);
    }

    /// Forgets a pod that is gone.
    fn forget(&mut self, uid: &str) {
        self.failures.forget(uid);
        self.after_evictions.forget(uid);
    }

    /// Forgets a pod that went before the job ended: no watch event follows that would.
    fn forget_if_gone(&mut self, pod: &PodRef) {
        if !self.stores.pods.has(&pod.namespace, &pod.name, &pod.uid) {
            self.forget(&pod.uid);
        }
    }

    fn multi_step_ended(&mut self, ended: Result<Finished, JoinError>) -> Result<(), Error> {
        let now = Instant::now();
        let finished = ended.map_err(|panic| panicked("bind", &panic))?;
        let Finished {
            bind,
            report,
            resumed,
            waits,
            started,
        } = finished;
        if !started {
            return Ok(());
        }
        record_latency(&report);
        let pod = &bind.placement.pod;
        self.waiting_multi_step.done(&pod.namespace);
        let bound = report.ending == Ending::Done;
        let is_told = self.reviews.steps_end(&pod.uid, bound);
        let ids: Vec<GroupId> = multi_step::group_ids(&bind);
        let shown = self.stores.pods.get(&pod.namespace, &pod.name);
        // A pod that is gone meanwhile uses nothing, and no further event will come for it.
        let stays = shown
            .as_ref()
            .is_some_and(|shown| shown.metadata.uid.as_deref() == Some(&*pod.uid) && !pods::is_finished(shown));
        // As long as it may be bound, its device is not given to others.
        self.groups.close(pod, &ids, (bound || report.uncertain) && stays, now);
        // The store is ahead of the changes: an older one may still be to come that shows the pod unbound.
        if is_told && shown.as_ref().is_some_and(|shown| pods::is_bound(shown)) {
            self.groups.shown_bound(&pod.uid);
        }
        let wait_after_failure = self.failures.waits(&bind).pod;
        self.record_ending(&bind, &report, waits, self.groups.is_only_user(pod, &ids));
        let wait = match &report.ending {
            Ending::Done => Duration::ZERO,
            Ending::Overtaken => RETRY.first,
            Ending::Failed(_) => {
                let foreign = resumed.as_deref().filter(|request| !bind_request::is_ours(request));
                let attempts = foreign.map_or(0, |request| u32::try_from(cleanup::attempts(request)).unwrap_or(0));
                wait_after_failure.max(RETRY.wait(attempts + 1))
            }
        };
        self.reviews.again(pod, now + wait);
        let told = [
            notes::of_bind(&self.context.settings, &bind, &report),
            notes::of_trail(&self.context.settings, &bind, &report),
        ];
        told.into_iter().flatten().for_each(|note| self.bus.events.send(note));
        count("bind in steps", &report.ending);
        count_failure(&report);
        Ok(())
    }

    fn cleanup_ended(&mut self, ended: Result<Cleanup, JoinError>) -> Result<(), Error> {
        let now = Instant::now();
        match ended.map_err(|panic| panicked("cleanup of the binder", &panic))? {
            Cleanup::Made(id, number, made, request) => {
                if let Some(request) = request {
                    // A term that is over changes nothing about what was sent.
                    let reserver = self.reserver(self.caller.clone());
                    self.cleanup(Cleanup::Settled, async move {
                        reserver.settle(request).await;
                        Cleanup::Settled
                    });
                }
                self.groups
                    .made(&id, number, made.as_deref().map_err(Clone::clone), now);
                self.audit.look(&id, &self.groups, &self.stores, now);
            }
            Cleanup::Recorded(id, number, recorded) => {
                self.groups
                    .recorded(&id, number, recorded.as_deref().map_err(Clone::clone), now);
            }
            Cleanup::GivenUp(id, number, evicted) => {
                for pod in &evicted {
                    let note = notes::of_lost_device(&self.context.settings, pod, &id.group);
                    self.bus.events.send(note);
                }
                self.groups.given_up(&id, number, now);
            }
            Cleanup::RequestDone(key) => self.reviews.finish(&key, now),
            Cleanup::ClaimDone(key) => self.stray_claims.done(&key, now),
            Cleanup::Settled => {}
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

/// Runs the manager's commands, each in the term of its node's pool; `active`: the terms in which commands are run.
fn due(
    groups: &mut Groups,
    stores: &Stores,
    settings: &Settings,
    active: &BTreeMap<Scope, u64>,
    now: Instant,
) -> Vec<DueCommand> {
    groups.due(now, |id| {
        let node = stores.nodes.get("", &id.node);
        let labels = node.as_ref().and_then(|node| node.metadata.labels.as_ref());
        term_of(labels, settings, active)
    })
}

/// The term of the pool of a node with these labels, if it is one of these.
fn term_of(
    labels: Option<&BTreeMap<String, String>>,
    settings: &Settings,
    active: &BTreeMap<Scope, u64>,
) -> Option<u64> {
    active.get(&settings.pools.scope(labels)).copied()
}

fn panicked(task: &'static str, panic: &JoinError) -> Error {
    Error::Panicked {
        task,
        panic: panic.to_string(),
    }
}

#[cfg(test)]
#[cfg(feature = "devcluster")]
mod tests;
