//! Carries decisions out: binds pods to nodes, deletes pods that are evicted.
//!
//! A plain pod costs one request, the Binding, which also writes its annotations. The pod's UID goes with every request, so that a
//! re-created pod of the same name is never touched. A request whose fate is not known is looked up before it is sent again.
//! What the binder cannot do it refuses, with an event, and tells the scheduler. Absent: shared GPUs, volumes that are bound
//! late.

mod attempt;
mod claims;
mod limit;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tracing::{Instrument, debug, info, info_span};

use crate::api::names::{object, reason};
use crate::components::bus::{
    Bind, BindOrder, BindSeen, Bus, Evict, Note, Outcome, Severity, Sighting, Subject, ToScheduler,
};
use crate::components::retry::Backoff;
use crate::components::{Context, Error};
use attempt::{Attempt, Ending, Report};
use limit::Limit;

/// Wait before a pod whose bind failed is tried again: first and longest.
const RETRY: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};
/// Pods and nodes whose failures are remembered; beyond that the oldest are forgotten with all others.
const FAILURES_MAX: usize = 8_192;

/// Binds and evicts until shutdown; then what is under way is finished, and nothing else is begun.
///
/// # Errors
/// If another component is gone, or a task of this one panicked.
pub async fn run(context: Context, mut inbox: mpsc::Receiver<BindOrder>, bus: Bus) -> Result<(), Error> {
    let mut binder = Binder::new(context.clone(), bus);
    loop {
        binder.start();
        let pause = binder.pause.map(tokio::time::Instant::from_std);
        tokio::select! {
            () = context.shutdown.cancelled() => break,
            order = inbox.recv() => binder.queue(order.ok_or(Error::Closed)?),
            Some(ended) = binder.under_way.join_next() => binder.ended(ended)?,
            () = sleep_until(pause.unwrap_or_else(tokio::time::Instant::now)), if pause.is_some() => binder.pause = None,
        }
    }
    while let Some(ended) = binder.under_way.join_next().await {
        binder.ended(ended)?;
    }
    Ok(())
}

/// A piece of work.
#[derive(Debug)]
enum Job {
    Bind(Bind),
    Evict(Evict),
}

struct Binder {
    context: Context,
    bus: Bus,
    queue: VecDeque<Job>,
    under_way: JoinSet<(Job, Report)>,
    limit: Limit,
    /// Nothing starts before: the server asked for it.
    pause: Option<Instant>,
    failures: Failures,
}

impl Binder {
    fn new(context: Context, bus: Bus) -> Self {
        Self {
            context,
            bus,
            queue: VecDeque::new(),
            under_way: JoinSet::new(),
            limit: Limit::default(),
            pause: None,
            failures: Failures::default(),
        }
    }

    /// Evictions go before bindings: somebody waits for what they free.
    fn queue(&mut self, order: BindOrder) {
        for evict in order.evictions.into_iter().rev() {
            self.queue.push_front(Job::Evict(evict));
        }
        self.queue.extend(order.binds.into_iter().map(Job::Bind));
    }

    /// Starts as much as the limit admits.
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
            let failed_before = self.failures.of(&job);
            self.under_way.spawn(async move {
                let began = SystemTime::now();
                let report = if leading {
                    carry_out(&attempt, &job).await
                } else {
                    Report::not_tried("not the leader")
                };
                trace(&bus, &job, &report, &attempt, began);
                answer(&bus, &job, &report, failed_before).await;
                (job, report)
            });
        }
    }

    fn ended(&mut self, ended: Result<(Job, Report), tokio::task::JoinError>) -> Result<(), Error> {
        let (job, report) = ended.map_err(|panic| Error::Panicked {
            task: "bind",
            panic: panic.to_string(),
        })?;
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
        self.failures.note(&job, &report.ending);
        if let Some(note) = note(&self.context, &job, &report) {
            self.bus.events.send(note);
        }
        metrics::counter!("unikai_binder_jobs_total", "kind" => job.kind(), "ending" => report.ending.word())
            .increment(1);
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
fn trace(bus: &Bus, job: &Job, report: &Report, attempt: &Attempt, began: SystemTime) {
    let Job::Bind(bind) = job else { return };
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
            steps: attempt.steps.take(),
            failed,
        }))
    });
}

/// Tells the scheduler what its watch will not show.
async fn answer(bus: &Bus, job: &Job, report: &Report, failed_before: u32) {
    let Ending::Failed(why) = &report.ending else { return };
    let outcome = match job {
        Job::Bind(bind) => {
            let wait = RETRY.wait(failed_before + 1);
            let pod = bind.placement.pod.clone();
            info!(ns = %pod.namespace, name = %pod.name, node = %bind.placement.node, error = why, "pod not bound");
            let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::ZERO);
            Outcome::NotBound {
                pod,
                retry_at: Timestamp::now() + wait,
            }
        }
        Job::Evict(evict) => {
            info!(ns = %evict.pod.namespace, name = %evict.pod.name, error = why, "pod not evicted");
            Outcome::NotEvicted { pod: evict.pod.clone() }
        }
    };
    if bus.scheduler.send(ToScheduler::Outcome(outcome)).await.is_err() {
        debug!("outcome not delivered: the scheduler has ended");
    }
}

/// The event about the end of a job.
fn note(context: &Context, job: &Job, report: &Report) -> Option<Note> {
    let note = |subject, severity, reason, message| Note {
        subject,
        severity,
        reason,
        message,
        source: context.settings.scheduler_name.clone(),
        annotations: std::collections::BTreeMap::new(),
    };
    match (job, &report.ending) {
        (Job::Bind(bind), Ending::Done) => {
            let (pod, node) = (&bind.placement.pod, &bind.placement.node);
            let pool = context
                .settings
                .node_pool
                .as_deref()
                .unwrap_or(object::DEFAULT_NODE_POOL);
            let text = format!(
                "Successfully assigned pod {}/{} to node {node} at node-pool {pool}",
                pod.namespace, pod.name
            );
            Some(note(
                Subject::Pod(pod.clone()),
                Severity::Normal,
                reason::SCHEDULED,
                text,
            ))
        }
        (Job::Bind(bind), Ending::Failed(why)) if report.tried => {
            let (pod, node) = (&bind.placement.pod, &bind.placement.node);
            let text = format!(
                "Failed to bind pod {}/{} to node {node}. {why}",
                pod.namespace, pod.name
            );
            Some(note(
                Subject::Pod(pod.clone()),
                Severity::Warning,
                reason::FAILED_BINDING,
                text,
            ))
        }
        (Job::Evict(evict), Ending::Done) => Some(Note {
            annotations: evict.details.clone(),
            ..note(
                Subject::PodGroup(evict.group.clone()),
                Severity::Normal,
                reason::EVICT,
                evict.message.clone(),
            )
        }),
        (Job::Bind(_) | Job::Evict(_), Ending::Failed(_) | Ending::Overtaken) => None,
    }
}

/// Failures in a row, per pod and per node: a pod that fails wherever it goes and a node that fails whatever comes both wait
/// longer and longer.
#[derive(Default)]
struct Failures {
    pods: HashMap<Arc<str>, u32>,
    nodes: HashMap<Arc<str>, u32>,
}

impl Failures {
    fn of(&self, job: &Job) -> u32 {
        let Job::Bind(bind) = job else { return 0 };
        let pod = self.pods.get(&bind.placement.pod.uid).copied().unwrap_or_default();
        let node = self.nodes.get(&bind.placement.node).copied().unwrap_or_default();
        pod.max(node)
    }

    fn note(&mut self, job: &Job, ending: &Ending) {
        let Job::Bind(bind) = job else { return };
        let (pod, node) = (&bind.placement.pod.uid, &bind.placement.node);
        match ending {
            Ending::Failed(_) => {
                if self.pods.len() + self.nodes.len() >= FAILURES_MAX {
                    *self = Self::default();
                }
                *self.pods.entry(Arc::clone(pod)).or_default() += 1;
                *self.nodes.entry(Arc::clone(node)).or_default() += 1;
            }
            Ending::Done => {
                self.pods.remove(pod);
                self.nodes.remove(node);
            }
            Ending::Overtaken => {
                self.pods.remove(pod);
            }
        }
    }
}
