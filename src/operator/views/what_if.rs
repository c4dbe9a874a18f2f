//! Decisions about pods that do not exist: a temporary mirror and engine get the current objects and these pods, and are dropped afterwards.
//!
//! Requests run one at a time, on a thread of their own, with a pause after each that is a multiple of its time: they take a bounded part of one CPU.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;
use axum::response::Response;
use http_body_util::LengthLimitError;
use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::super::access::refusal;
use super::super::inspection::{Inspection, Known, Refusal};
use super::turns::{Pause, Turns, busy};
use crate::api::views::{Verdict, WhatIfAsked, WouldBind, WouldEvict, WouldWait};
use crate::api::{PodGroup, label_keys};
use crate::clock;
use crate::components::bus::{GroupKey, Grouping, Object};
use crate::components::weight;
use crate::engine::decision::Decisions;
use crate::engine::input::Time;
use crate::mirror::{GroupDraft, PackedChange};
use crate::scheduler_core::SchedulerCore;
use crate::workloads::{Made, Surroundings, made_in, namespaces};

/// Bytes of a request, the time within which it must arrive, and how many are received at a time.
const BODY_MAX: usize = 8 << 20;
const BODY_TIME: Duration = Duration::from_secs(30);
const RECEIVED_AT_ONCE: usize = 4;
/// Memory that parsing a request may take.
const PARSED_MAX: usize = 128 << 20;
/// Bytes of manifests of workloads.
const TEXT_MAX: usize = 512 << 10;
/// Maximum number of pods in a request.
const PODS_MAX: usize = 4_096;
/// Time limit of a request.
const DEADLINE: Duration = Duration::from_secs(30);
/// The pause after a request.
const PAUSE: Pause = Pause {
    times: 4,
    at_most: Duration::MAX,
};
/// Cycles that are run. Pods beyond the minimum of their group may be placed in later ones.
const CYCLES: usize = 4;
/// Changes applied between two checks of the clock.
const BATCH: usize = 4_096;

/// Runs the requests, one at a time.
pub struct WhatIfs {
    inspection: Arc<Inspection>,
    receiving: Arc<Semaphore>,
    reading: Turns,
    deciding: Turns,
}

/// The body of a request. While it exists, it takes one of the places for those that are received.
pub struct Received {
    text: Bytes,
    _place: OwnedSemaphorePermit,
}

/// A parsed request.
pub enum Question {
    /// It is about these pods.
    Pods(Asked),
    /// It is about the pods that the workloads of manifests would create. They are grouped only once it is known that the caller may see their namespaces, as
    /// the result depends on these.
    Manifests(Manifests),
}

/// Manifests with the namespaces that they are about.
pub struct Manifests {
    received: Received,
    /// The namespace of objects that name none.
    namespace: String,
    all_namespaces: HashSet<String>,
}

impl Question {
    /// The namespaces of the request.
    pub fn namespaces(&self) -> HashSet<String> {
        match self {
            Self::Pods(asked) => asked.namespaces(),
            Self::Manifests(manifests) => manifests.all_namespaces.clone(),
        }
    }
}

impl Manifests {
    fn read(received: Received, namespace: String) -> Result<Self, String> {
        let all = namespaces(received.text()?, &namespace).map_err(|error| format!("{error:#}"))?;
        Ok(Self {
            received,
            namespace,
            all_namespaces: all,
        })
    }

    /// The pods, grouped as the grouper would.
    fn group(&self, surroundings: Surroundings) -> Result<Asked, String> {
        let made = made_in(surroundings, self.received.text()?, &self.namespace);
        Asked::made(made.map_err(|error| format!("{error:#}"))?)
    }
}

impl Received {
    fn text(&self) -> Result<&str, String> {
        std::str::from_utf8(&self.text).map_err(|_| "not a text".to_owned())
    }
}

/// Pods, and their pod groups.
pub struct Asked {
    pods: Vec<core::Pod>,
    groups: Vec<PodGroup>,
}

/// The decisions.
#[derive(Debug, Default)]
pub struct Decided {
    /// Whether each of the requested pods would be bound.
    pub runs: bool,
    /// Pods that would be bound.
    pub binds: Vec<WouldBind>,
    /// Pods that would be evicted.
    pub evicts: Vec<WouldEvict>,
    /// Pod groups that would wait.
    pub waits: Vec<WouldWait>,
    /// Objects that could not be used.
    pub notes: Vec<String>,
}

impl Asked {
    fn read(text: &[u8]) -> Result<Self, String> {
        weight::of(text, weight::Kind::Other, PARSED_MAX).map_err(|why| why.to_string())?;
        let asked: WhatIfAsked = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        Self::of(asked)
    }

    fn of(asked: WhatIfAsked) -> Result<Self, String> {
        if asked.pods.is_empty() || asked.pods.len() > PODS_MAX || asked.pod_groups.len() > PODS_MAX {
            return Err(format!("between 1 and {PODS_MAX} pods can be asked about at once"));
        }
        let pods: Vec<core::Pod> = all(asked.pods, "pod")?;
        let groups: Vec<PodGroup> = all(asked.pod_groups, "pod group")?;
        Ok(Self::new(pods, groups))
    }

    /// The pods that workloads would create.
    fn made(made: Made) -> Result<Self, String> {
        if made.pods.len() > PODS_MAX {
            return Err(format!("between 1 and {PODS_MAX} pods can be asked about at once"));
        }
        let mut pods: Vec<core::Pod> = made.pods.into_iter().map(Arc::unwrap_or_clone).collect();
        let mut groups: Vec<PodGroup> = made.groups.into_iter().map(Arc::unwrap_or_clone).collect();
        let now = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(clock::now()));
        for pod in &mut pods {
            pod.metadata.creation_timestamp.clone_from(&now);
        }
        for group in &mut groups {
            group.metadata.creation_timestamp.clone_from(&now);
        }
        Ok(Self::new(pods, groups))
    }

    fn new(mut pods: Vec<core::Pod>, mut groups: Vec<PodGroup>) -> Self {
        for (number, pod) in pods.iter_mut().enumerate() {
            add_label_keys(pod);
            let meta = &mut pod.metadata;
            meta.uid = Some(format!("what-if-pod-{number}"));
            meta.namespace.get_or_insert_with(|| "default".to_owned());
            meta.deletion_timestamp = None;
            meta.resource_version = None;
            pod.status = Some(core::PodStatus {
                phase: Some("Pending".to_owned()),
                ..core::PodStatus::default()
            });
            if let Some(spec) = &mut pod.spec {
                spec.node_name = None;
                let init = spec.init_containers.iter_mut().flatten();
                spec.containers.iter_mut().chain(init).for_each(ask_for_limits);
            }
        }
        for (number, group) in groups.iter_mut().enumerate() {
            let meta = &mut group.metadata;
            meta.uid = Some(format!("what-if-group-{number}"));
            meta.namespace.get_or_insert_with(|| "default".to_owned());
            meta.deletion_timestamp = None;
            meta.resource_version = None;
            group.status = None;
        }
        Self { pods, groups }
    }

    fn namespaces(&self) -> HashSet<String> {
        let pods = self.pods.iter().filter_map(ResourceExt::namespace);
        pods.chain(self.groups.iter().filter_map(ResourceExt::namespace))
            .collect()
    }
}

/// Adds the label keys of a pod to its selectors, as an API server does.
fn add_label_keys(pod: &mut core::Pod) {
    let selects = |spec: &core::PodSpec| spec.affinity.is_some() || spec.topology_spread_constraints.is_some();
    if !pod.spec.as_ref().is_some_and(selects) {
        return;
    }
    let added = serde_json::to_value(&*pod).and_then(|mut value| {
        label_keys::add_to_selectors(&mut value);
        serde_json::from_value(value)
    });
    if let Ok(added) = added {
        *pod = added;
    }
}

/// Sets missing requests of a container to its limits, as an API server does.
fn ask_for_limits(container: &mut core::Container) {
    let Some(resources) = &mut container.resources else {
        return;
    };
    let limits = resources.limits.clone().unwrap_or_default();
    let requests = resources.requests.get_or_insert_default();
    for (name, amount) in limits {
        requests.entry(name).or_insert(amount);
    }
}

/// Parses objects as if they had just been created.
fn all<K: DeserializeOwned>(objects: Vec<Map<String, Value>>, kind: &str) -> Result<Vec<K>, String> {
    let now = json!(clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let read = objects.into_iter().map(|mut object| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("creationTimestamp".to_owned(), now.clone());
        }
        let name = object
            .get("metadata")
            .map(|metadata| metadata["name"].clone())
            .unwrap_or_default();
        if !name.is_string() {
            return Err(format!("a {kind} lacks metadata.name"));
        }
        serde_json::from_value(Value::Object(object))
            .map_err(|error| format!("the {kind} {name} cannot be read: {error}"))
    });
    read.collect()
}

impl WhatIfs {
    /// Reads the objects through `inspection`.
    #[must_use]
    pub fn new(inspection: Arc<Inspection>) -> Self {
        Self {
            inspection,
            receiving: Arc::new(Semaphore::new(RECEIVED_AT_ONCE)),
            reading: Turns::new(PAUSE),
            deciding: Turns::new(PAUSE),
        }
    }

    /// Receives the body of a request.
    ///
    /// # Errors
    /// The response that refuses it: too many others are being received, it is too long, or it does not arrive.
    pub async fn receive(&self, body: Body) -> Result<Received, Response> {
        let place = Arc::clone(&self.receiving).try_acquire_owned().map_err(|_| busy())?;
        let is_too_long = |error: &axum::Error| {
            let cause = std::error::Error::source(error);
            cause.is_some_and(<dyn std::error::Error>::is::<LengthLimitError>)
        };
        let (code, why) = match tokio::time::timeout(BODY_TIME, to_bytes(body, BODY_MAX)).await {
            Ok(Ok(text)) => return Ok(Received { text, _place: place }),
            Ok(Err(error)) if is_too_long(&error) => {
                let why = format!("more than {} MiB cannot be asked about", BODY_MAX >> 20);
                (StatusCode::PAYLOAD_TOO_LARGE, why)
            }
            Ok(Err(error)) => (StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}")),
            Err(_) => {
                let why = format!("the request has not arrived after {} s", BODY_TIME.as_secs());
                (StatusCode::REQUEST_TIMEOUT, why)
            }
        };
        Err(refusal(code, why))
    }

    /// Parses a request.
    ///
    /// # Errors
    /// The response that refuses it: others are being parsed, or this one is invalid.
    pub async fn read(&self, received: Received) -> Result<Question, Response> {
        let read = self.reading.take(move || Asked::read(&received.text));
        let read = read.await?.map_err(|why| refusal(StatusCode::BAD_REQUEST, why))?;
        Ok(Question::Pods(read))
    }

    /// Parses manifests: the request is about the pods that they would create.
    ///
    /// # Errors
    /// The response that refuses it: others are being parsed, or these are invalid.
    pub async fn read_manifests(&self, received: Received, namespace: String) -> Result<Question, Response> {
        if received.text.len() > TEXT_MAX {
            let why = format!("manifests of more than {} KiB cannot be asked about", TEXT_MAX >> 10);
            return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let read = self.reading.take(move || Manifests::read(received, namespace));
        let read = read.await?.map_err(|why| refusal(StatusCode::BAD_REQUEST, why))?;
        Ok(Question::Manifests(read))
    }

    /// Decides about the requested pods. The caller must have been found to see the namespaces of the question.
    ///
    /// # Errors
    /// The response that refuses it: another request is running, the first lists are incomplete, what determines groups is not known, the manifests cannot be
    /// grouped, or the time limit was exceeded.
    pub async fn decide(&self, shard: Option<&str>, question: Question) -> Result<Decided, Response> {
        let refused = |(status, why): Refusal| refusal(status, why.trim().to_owned());
        let known = self.inspection.known(shard).await.map_err(refused)?;
        let group: Box<dyn FnOnce() -> Result<Asked, String> + Send> = match question {
            Question::Pods(asked) => Box::new(|| Ok(asked)),
            Question::Manifests(manifests) => {
                // Not in the turn, which a slow API server would prolong.
                let surroundings = self.inspection.surroundings().await.map_err(refused)?;
                Box::new(move || manifests.group(surroundings))
            }
        };
        let decided = self.deciding.take(move || -> Result<Option<Decided>, String> {
            let until = Instant::now() + DEADLINE;
            Ok(decide(known, group()?, until))
        });
        let decided = decided.await?.map_err(|why| refused((StatusCode::BAD_REQUEST, why)))?;
        decided.ok_or_else(|| {
            let why = format!("it is not decided after {} s", DEADLINE.as_secs());
            refusal(StatusCode::SERVICE_UNAVAILABLE, why)
        })
    }
}

/// Runs the cycles; `None` if the time limit is exceeded.
fn decide(known: Known, asked: Asked, until: Instant) -> Option<Decided> {
    let mut decided = Decided::default();
    let objects = known.stores.objects();
    let mut changes: Vec<_> = objects.map(|object| PackedChange::Applied(object.into())).collect();
    changes.extend(known.groupings.into_iter().map(grouped));
    let mut ours = HashSet::new();
    for group in asked.groups {
        let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
        if known.stores.pod_groups.contains(&namespace, &name) {
            decided.notes.push(format!(
                "The pod group {namespace}/{name} exists, and is taken as it is"
            ));
        } else {
            changes.push(PackedChange::Applied(Object::PodGroup(Arc::new(group)).into()));
        }
    }
    for pod in asked.pods {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        if known.stores.pods.contains(&namespace, &name) {
            decided
                .notes
                .push(format!("The pod {namespace}/{name} exists, and is left out"));
            continue;
        }
        ours.insert((namespace, name));
        changes.push(PackedChange::Applied(Object::Pod(Arc::new(pod)).into()));
    }
    let mut core = SchedulerCore::new(known.rules.mirror, known.rules.policy);
    let now = Time(clock::now().as_millisecond());
    for batch in changes.chunks(BATCH) {
        if Instant::now() >= until {
            return None;
        }
        let rejections = core.load(batch, now).into_iter();
        let about = |namespace: &str, name: &str| ours.iter().any(|(of, pod)| of == namespace && pod == name);
        let told = rejections.filter(|rejection| about(&rejection.namespace, &rejection.name));
        decided.notes.extend(told.map(|rejection| rejection.to_string()));
    }
    drop(changes);
    for _ in 0..CYCLES {
        if Instant::now() >= until {
            return None;
        }
        let decisions = core.cycle(now, &mut |_| ());
        if decisions.is_empty() {
            break;
        }
        take(&mut decided, &core, decisions, &ours);
    }
    decided
        .binds
        .sort_by(|left, right| (&left.namespace, &left.pod).cmp(&(&right.namespace, &right.pod)));
    decided.runs = !ours.is_empty() && decided.binds.len() == ours.len();
    Some(decided)
}

fn grouped(grouping: Grouping) -> PackedChange {
    PackedChange::Grouped(GroupDraft {
        namespace: grouping.pod.namespace.to_string(),
        pod: grouping.pod.name.to_string(),
        uid: grouping.pod.uid.to_string(),
        group: grouping.group,
        sub_group: grouping.sub_group,
    })
}

/// Collects the decisions about the requested pods.
fn take(decided: &mut Decided, core: &SchedulerCore, decisions: Decisions, ours: &HashSet<(String, String)>) {
    let is_ours = |namespace: &str, name: &str| ours.contains(&(namespace.to_owned(), name.to_owned()));
    let bound = decisions.bind.iter().map(|bind| (&bind.pod, &bind.node, false));
    let planned = decisions.pipeline.iter().map(|plan| (&plan.pod, &plan.node, true));
    for (pod, node, after_evictions) in bound
        .chain(planned)
        .filter(|(pod, ..)| is_ours(&pod.namespace, &pod.name))
    {
        let known = |bind: &&mut WouldBind| bind.pod == *pod.name && bind.namespace == *pod.namespace;
        let bind = WouldBind {
            namespace: pod.namespace.to_string(),
            pod: pod.name.to_string(),
            node: Some(node.to_string()),
            after_evictions,
        };
        match decided.binds.iter_mut().find(known) {
            // A later cycle may choose another node.
            Some(before) => *before = bind,
            None => decided.binds.push(bind),
        }
    }
    let groups: HashSet<GroupKey> = {
        let model = core.engine.model();
        let pods = model
            .pods()
            .iter()
            .filter(|(_, pod)| is_ours(&pod.input.pod.namespace, &pod.input.pod.name));
        pods.filter_map(|(id, _)| model.pod_group_of(id).map(|group| group.key.clone()))
            .collect()
    };
    let evicted = decisions.evict.iter();
    let evicted = evicted.filter(|evicted| evicted.for_group.as_ref().is_some_and(|group| groups.contains(group)));
    decided.evicts.extend(evicted.map(|evicted| WouldEvict {
        namespace: evicted.pod.namespace.to_string(),
        pod: evicted.pod.name.to_string(),
        workload: evicted.group.name().to_owned(),
        action: evicted.action.as_str().to_owned(),
        message: evicted.sentence(),
    }));
    for report in decisions
        .unschedulable
        .into_iter()
        .filter(|report| groups.contains(&report.group))
    {
        let waits = WouldWait {
            namespace: report.group.namespace().to_owned(),
            workload: report.group.name().to_owned(),
            verdict: Verdict {
                cause: report.verdict.cause.as_str().to_owned(),
                sentence: report.verdict.sentence,
            },
            evidence: report.verdict.evidence,
        };
        decided
            .waits
            .retain(|known| (&known.namespace, &known.workload) != (&waits.namespace, &waits.workload));
        decided.waits.push(waits);
    }
    let over: Vec<_> = decisions
        .cleared
        .iter()
        .map(|group| (group.namespace(), group.name()))
        .collect();
    decided
        .waits
        .retain(|known| !over.contains(&(&*known.namespace, &*known.workload)));
}

#[cfg(test)]
mod tests;
