//! Traces for an OpenTelemetry collector: one for each workload, from the moment it was first seen until its pods are bound, and one
//! for each cycle that decided something.
//!
//! ```text
//! workload                    first pod seen ─▶ last pod bound
//! ├─ group                    until its pod group was known
//! ├─ queue                    until a cycle gave it places
//! │  ├─ attempt               a cycle that found none, and why …
//! │  └─ attempt               … and the one that did; each points at the cycle's own trace
//! └─ bind                     of each pod, with what was done for it one after the other
//!    └─ post binding
//!
//! cycle
//! ├─ prepare, divide, allocate, …, finish
//! └─ reclaim
//!    └─ search                for victims
//! ```
//!
//! Only attempts with a new result are exported: a cycle that finds what an earlier one found adds none. Traces do not influence decisions, and cost
//! nothing unless a collector is configured.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Span, SpanContext, Status, TraceContextExt, Tracer};
use opentelemetry::{Context as Parent, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::bus::{BindSeen, CycleSeen, GroupKey, GroupOutcome, TraceEvent};

/// Workloads with an open trace; further ones get none.
const WORKLOADS_MAX: usize = 10_000;
/// With so many workloads, or so many pods that wait, those pods are forgotten that have not changed for [`FORGOTTEN_AFTER`], and whose workload has had no
/// attempt with a new result for as long: the event about their deletion may have been dropped.
const PODS_MANY: usize = 100_000;
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);
/// Time between searches for them.
const SWEEP_EVERY: Duration = Duration::from_secs(10 * 60);
/// Attempts in the trace of one workload.
const ATTEMPTS_MAX: u32 = 100;

/// Makes spans of trace events until all senders are gone: at shutdown the binder still finishes open binds, and their spans are exported. Traces of
/// workloads that wait end then.
///
/// # Errors
/// If every other component is gone before shutdown.
pub async fn run(
    shutdown: CancellationToken,
    mut inbox: mpsc::Receiver<TraceEvent>,
    tracer: SdkTracer,
) -> Result<(), Error> {
    let mut recorder = Recorder::new(tracer);
    while let Some(event) = inbox.recv().await {
        recorder.take(event);
    }
    if shutdown.is_cancelled() {
        Ok(())
    } else {
        Err(Error::Closed)
    }
}

/// A workload with an open trace.
struct Workload {
    root: Parent,
    /// While it waits for places.
    queue: Option<Parent>,
    /// Its pods that are not bound, by UID.
    waiting: HashSet<Arc<str>>,
    /// When the last other pod ceased to wait, or the last attempt ended. Events of binds that end together may come in any order.
    settled: SystemTime,
    attempts: u32,
}

/// A pod that waits.
struct Waiting {
    group: GroupKey,
    /// When it was last seen.
    seen: SystemTime,
}

struct Recorder {
    tracer: SdkTracer,
    /// Pods without a group, by UID: when they were first seen.
    ungrouped: HashMap<Arc<str>, SystemTime>,
    /// Pods of groups that wait, by UID.
    waiting: HashMap<Arc<str>, Waiting>,
    workloads: HashMap<GroupKey, Workload>,
    /// When pods were bound, by UID, for some time or until they are deleted: events about their waiting that come later are outdated.
    settled: HashMap<Arc<str>, SystemTime>,
    /// When forgotten pods were last searched.
    swept: SystemTime,
}

impl Recorder {
    fn new(tracer: SdkTracer) -> Self {
        Self {
            tracer,
            ungrouped: HashMap::new(),
            waiting: HashMap::new(),
            workloads: HashMap::new(),
            settled: HashMap::new(),
            swept: SystemTime::UNIX_EPOCH,
        }
    }

    fn take(&mut self, event: TraceEvent) {
        match event {
            TraceEvent::Pod { pod, group, at } => {
                self.sweep(at);
                if let Some(known) = self.waiting.get_mut(&pod.uid) {
                    known.seen = at;
                    return;
                }
                if self.settled.contains_key(&pod.uid) || self.workloads.len() >= WORKLOADS_MAX {
                    return;
                }
                let first = *self.ungrouped.entry(pod.uid.clone()).or_insert(at);
                if let Some(group) = group {
                    self.grouped(pod.uid.clone(), group, None, (first, at));
                }
            }
            TraceEvent::Grouped { pod, group, queue, at } => {
                if let Some(first) = self.ungrouped.get(&pod.uid).copied() {
                    self.grouped(pod.uid.clone(), group, Some(queue), (first, at));
                }
            }
            TraceEvent::Gone { uid, at } => {
                self.ungrouped.remove(&uid);
                self.settled.remove(&uid);
                self.settle(&uid, at);
            }
            TraceEvent::Cycle(cycle) => self.cycle(&cycle),
            TraceEvent::Bound(bind) => self.bound(&bind),
        }
    }

    /// The group of a pod, whenever the pod was first seen.
    fn grouped(
        &mut self,
        uid: Arc<str>,
        key: GroupKey,
        queue: Option<String>,
        (seen, known): (SystemTime, SystemTime),
    ) {
        self.ungrouped.remove(&uid);
        if let Some(workload) = self.workloads.get_mut(&key) {
            workload.waiting.insert(uid.clone());
        } else {
            let mut about = vec![
                KeyValue::new("k8s.namespace.name", key.namespace().to_string()),
                KeyValue::new("unikai.pod_group", key.name().to_string()),
            ];
            about.extend(queue.map(|queue| KeyValue::new("unikai.queue", queue)));
            let root = self.begin("workload", &Parent::new(), seen, about);
            self.span("group", &root, (seen, known), Vec::new());
            let queue = self.begin("queue", &root, known, Vec::new());
            let workload = Workload {
                root,
                queue: Some(queue),
                waiting: HashSet::from([uid.clone()]),
                settled: known,
                attempts: 0,
            };
            self.workloads.insert(key.clone(), workload);
        }
        let waiting = Waiting {
            group: key,
            seen: known,
        };
        self.waiting.insert(uid, waiting);
    }

    fn cycle(&mut self, cycle: &CycleSeen) {
        let count = |of: fn(&GroupOutcome) -> usize| {
            cycle.attempts.iter().map(|(_, outcome)| of(outcome)).sum::<usize>() as i64
        };
        let about = vec![
            KeyValue::new(
                "unikai.bound",
                count(|outcome| {
                    if let GroupOutcome::Bound(pods) = outcome {
                        *pods
                    } else {
                        0
                    }
                }),
            ),
            KeyValue::new("unikai.evicted", cycle.evicted as i64),
            KeyValue::new(
                "unikai.unschedulable",
                count(|outcome| usize::from(matches!(outcome, GroupOutcome::Unschedulable(_)))),
            ),
        ];
        let at = |after| cycle.began + after;
        let root = self.begin("cycle", &Parent::new(), cycle.began, about);
        for &(name, begin, end) in &cycle.steps {
            let step = self.begin(name, &root, at(begin), Vec::new());
            let within = |search: &&(&str, bool, _, _)| search.2 >= begin && search.3 <= end;
            for &(searcher, solved, begin, end) in cycle.searches.iter().filter(within) {
                let about = vec![
                    KeyValue::new("unikai.generator", searcher),
                    KeyValue::new("unikai.solved", solved),
                ];
                self.span("search", &step, (at(begin), at(end)), about);
            }
            step.span().end_with_timestamp(at(end));
        }
        let end = at(cycle.took);
        root.span().end_with_timestamp(end);
        let link = root.span().span_context().clone();
        for (key, outcome) in &cycle.attempts {
            self.attempt(key, outcome, (cycle.began, end), &link);
        }
    }

    fn attempt(&mut self, key: &GroupKey, outcome: &GroupOutcome, when: (SystemTime, SystemTime), cycle: &SpanContext) {
        let Some(workload) = self.workloads.get_mut(key) else {
            return;
        };
        workload.attempts += 1;
        workload.settled = workload.settled.max(when.1);
        let queue = workload.queue.take();
        let (tries, root) = (workload.attempts, workload.root.clone());
        let queue = queue.unwrap_or_else(|| self.begin("queue", &root, when.0, Vec::new()));
        if tries <= ATTEMPTS_MAX {
            let (outcome, detail) = match outcome {
                GroupOutcome::Bound(pods) => ("bound", KeyValue::new("unikai.pods", *pods as i64)),
                GroupOutcome::Pipelined(pods) => ("pipelined", KeyValue::new("unikai.pods", *pods as i64)),
                GroupOutcome::Unschedulable(why) => ("unschedulable", KeyValue::new("unikai.reason", why.clone())),
            };
            let about = vec![KeyValue::new("unikai.outcome", outcome), detail];
            let attempt = self.begin("attempt", &queue, when.0, about);
            attempt.span().add_link(cycle.clone(), Vec::new());
            attempt.span().end_with_timestamp(when.1);
        }
        if matches!(outcome, GroupOutcome::Bound(_)) {
            queue.span().end_with_timestamp(when.1);
        } else if let Some(workload) = self.workloads.get_mut(key) {
            workload.queue = Some(queue);
        }
    }

    fn bound(&mut self, bind: &BindSeen) {
        let Some(workload) = self.workloads.get(&bind.group) else {
            return;
        };
        let about = vec![
            KeyValue::new("k8s.pod.name", bind.pod.name.to_string()),
            KeyValue::new("k8s.pod.uid", bind.pod.uid.to_string()),
            KeyValue::new("k8s.node.name", bind.node.to_string()),
        ];
        let span = self.begin("bind", &workload.root, bind.began, about);
        for &(name, began, ended) in &bind.steps {
            self.span(name, &span, (began, ended), Vec::new());
        }
        if let Some(why) = &bind.failed {
            span.span().set_status(Status::error(why.clone()));
        }
        span.span().end_with_timestamp(bind.ended);
        if bind.failed.is_none() {
            // It may have been deleted already.
            if self.waiting.contains_key(&bind.pod.uid) {
                self.settled.insert(bind.pod.uid.clone(), bind.ended);
            }
            self.settle(&bind.pod.uid, bind.ended);
        }
    }

    /// A pod no longer waits; its workload's trace ends with the last of them.
    fn settle(&mut self, uid: &str, at: SystemTime) {
        let Some(Waiting { group: key, .. }) = self.waiting.remove(uid) else {
            return;
        };
        let Some(workload) = self.workloads.get_mut(&key) else {
            return;
        };
        workload.waiting.remove(uid);
        workload.settled = workload.settled.max(at);
        if workload.waiting.is_empty()
            && let Some(workload) = self.workloads.remove(&key)
        {
            let end = workload.settled;
            if let Some(queue) = workload.queue {
                queue.span().end_with_timestamp(end);
            }
            workload.root.span().end_with_timestamp(end);
        }
    }

    /// Forgets pods that have probably been deleted, and those that were bound long ago. A forgotten pod that still waits is recorded again from its
    /// next change on.
    fn sweep(&mut self, now: SystemTime) {
        let longer_than = |time: Duration, since: SystemTime| now.duration_since(since).is_ok_and(|past| past >= time);
        // The clock may have been set back.
        if self.swept <= now && !longer_than(SWEEP_EVERY, self.swept) {
            return;
        }
        self.swept = now;
        self.settled.retain(|_, bound| !longer_than(FORGOTTEN_AFTER, *bound));
        let pods = self.ungrouped.len() + self.waiting.len();
        if pods < PODS_MANY && self.workloads.len() < WORKLOADS_MAX {
            return;
        }
        self.ungrouped.retain(|_, seen| !longer_than(FORGOTTEN_AFTER, *seen));
        let is_left = |waiting: &Waiting| {
            let workload = self.workloads.get(&waiting.group);
            let last = workload.map_or(waiting.seen, |workload| workload.settled.max(waiting.seen));
            longer_than(FORGOTTEN_AFTER, last)
        };
        let left = self.waiting.iter().filter(|(_, waiting)| is_left(waiting));
        let forgotten: Vec<_> = left.map(|(uid, waiting)| (Arc::clone(uid), waiting.seen)).collect();
        for (uid, seen) in forgotten {
            self.settle(&uid, seen);
        }
    }

    /// A span that has begun, as the parent of others.
    fn begin(&self, name: &'static str, parent: &Parent, at: SystemTime, about: Vec<KeyValue>) -> Parent {
        let span = self
            .tracer
            .span_builder(name)
            .with_start_time(at)
            .with_attributes(about);
        parent.with_span(span.start_with_context(&self.tracer, parent))
    }

    /// A finished span.
    fn span(&self, name: &'static str, parent: &Parent, when: (SystemTime, SystemTime), about: Vec<KeyValue>) {
        let span = self
            .tracer
            .span_builder(name)
            .with_start_time(when.0)
            .with_attributes(about);
        span.start_with_context(&self.tracer, parent).end_with_timestamp(when.1);
    }
}

#[cfg(test)]
mod tests;
