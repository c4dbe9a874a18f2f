//! Scaling pods: a cluster autoscaler sees missing whole GPUs, but not missing GPU portions. So for pods with a GPU portion that find no place, a pod
//! that requests whole GPUs waits in another namespace until a node is added for it; it ends at once on that node, and the GPU is free.
//!
//! What is missing is computed from the watched pods ([`need`]), shortly after the last change. After a scaling pod has ended, none is created for a
//! while, so that waiting pods can be placed on what was added. By the leader, one change at a time. It does not consider free capacity that waiting
//! pods could use with another request.

mod need;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use crate::api::names::{condition, label, reason};
use crate::components::bus::{Change, Kind, Object, ToScaleUp};
use crate::components::pods::Role;
use crate::components::retry::{Backoff, Failure, failure};
use crate::components::watches::{Key, Stores};
use crate::components::{Context, Error, pods};
use need::{Need, Plan, Scaling};

/// Changes of a burst are handled together.
const AFTER: Duration = Duration::from_millis(500);
/// After a scaling pod has ended, none is created for this time.
const COOL_DOWN: Duration = Duration::from_secs(60);
/// Wait before failed changes are retried, and before a refused scaling pod is.
const RETRY: Backoff = Backoff {
    first: Duration::from_secs(5),
    longest: Duration::from_secs(300),
};
/// By then the watch has shown a created pod.
const SHOWN: Duration = Duration::from_secs(10);
/// A request without an answer by then counts as lost.
const TIMEOUT: Duration = Duration::from_secs(10);
/// After so many refusals, and no creation, a round ends.
const REFUSED_MAX: usize = 3;

/// Settings of scaling pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether there are scaling pods.
    pub on: bool,
    /// Their image: unikai's own.
    pub image: String,
    /// Image pull secrets.
    pub pull_secrets: Vec<String>,
    /// Whether the platform is OpenShift, which chooses the user of their container and refuses a fixed one.
    pub openshift: bool,
    /// Hundredths of a GPU for a pod that requests GPU memory.
    pub memory_hundredths: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            on: false,
            image: super::fractions::IMAGE.to_owned(),
            pull_secrets: Vec::new(),
            openshift: false,
            memory_hundredths: 10,
        }
    }
}

/// Creates and deletes scaling pods until shutdown.
///
/// # Errors
/// If another component is gone, or a task of this one panicked.
pub async fn run(context: Context, mut inbox: mpsc::Receiver<ToScaleUp>) -> Result<(), Error> {
    let mut leading = context.leading.clone();
    let mut scale_up = ScaleUp::new(context.clone());
    loop {
        let wake = scale_up.due.filter(|_| scale_up.works());
        tokio::select! {
            () = context.shutdown.cancelled() => return Ok(()),
            message = inbox.recv() => {
                let ToScaleUp::Change(change) = message.ok_or(Error::Closed)?;
                scale_up.take(change, Instant::now());
            }
            changed = leading.changed() => changed.map_err(|_| Error::Closed)?,
            Some(done) = scale_up.work.join_next() => {
                let done = done.map_err(|panic| Error::Panicked { task: "scaling pods", panic: panic.to_string() })?;
                scale_up.done(done, Instant::now());
            }
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => scale_up.adjust(Instant::now()),
        }
    }
}

/// Deletes the scaling pods that were created before they were switched off, once in each term, until shutdown: a cluster autoscaler would keep nodes for them.
///
/// # Errors
/// If leader election is gone.
pub async fn remove(context: Context, stores: Arc<Stores>) -> Result<(), Error> {
    let mut leading = context.leading.clone();
    let removed = async {
        stores.pods.listed().await;
        let (mut removed_in, mut failures) = (None, 0);
        loop {
            let term = context.term();
            if term.is_none() || term == removed_in {
                leading.changed().await.map_err(|_| Error::Closed)?;
                continue;
            }
            let namespace = &context.settings.own_pods.scaling.namespace;
            let labels = [(label::APP, label::SCALING_POD_APP)];
            let left = stores.pods.select(namespace, &labels, usize::MAX, need::is_own);
            let plan = Plan {
                take_away: left
                    .iter()
                    .filter_map(|pod| Some((pod.name_any(), pod.uid()?)))
                    .collect(),
                make: Vec::new(),
            };
            if Box::pin(carry_out(context.clone(), plan)).await.failed {
                failures += 1;
                sleep(RETRY.wait(failures)).await;
            } else {
                (removed_in, failures) = (term, 0);
            }
        }
    };
    context.shutdown.run_until_cancelled(removed).await.unwrap_or(Ok(()))
}

/// The result of one round of changes.
struct Done {
    made: Vec<(String, Scaling)>,
    /// The pods whose scaling pods were refused.
    refused: Vec<Key>,
    any_gone: bool,
    failed: bool,
}

struct ScaleUp {
    context: Context,
    need: Need,
    /// Created scaling pods, with the time; until the watch shows them.
    made: BTreeMap<String, (Scaling, Instant)>,
    /// All pods are known.
    complete: bool,
    cool_until: Option<Instant>,
    /// Consecutive rounds in which a change failed, and until when no other one begins.
    failures: u32,
    paused_until: Option<Instant>,
    /// When to compute the need again.
    due: Option<Instant>,
    work: JoinSet<Done>,
}

impl ScaleUp {
    fn new(context: Context) -> Self {
        Self {
            need: Need::new(context.settings.scaling.memory_hundredths),
            context,
            made: BTreeMap::new(),
            complete: false,
            cool_until: None,
            failures: 0,
            paused_until: None,
            due: None,
            work: JoinSet::new(),
        }
    }

    fn works(&self) -> bool {
        self.complete && self.work.is_empty() && self.context.is_leading()
    }

    fn is_scaling(&self, pod: &Pod) -> bool {
        self.context.settings.own_pods.role(pod) == Role::Scaling
    }

    fn plan(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn take(&mut self, change: Change, now: Instant) {
        let changed = match &change {
            Change::Applied(Object::Pod(pod)) if self.is_scaling(pod) => self.need.scaling(pod),
            Change::Deleted(Object::Pod(pod)) if self.is_scaling(pod) => self.need.scaling_gone(pod),
            Change::Applied(Object::Pod(pod)) if pods::is_ours(pod, &self.context.settings) => self.need.pod(pod),
            Change::Deleted(Object::Pod(pod)) => self.need.pod_gone(&Key::of(&pod.metadata)),
            Change::Synced(Kind::Pod) => !std::mem::replace(&mut self.complete, true),
            Change::Applied(_) | Change::Deleted(_) | Change::Synced(_) => false,
        };
        if changed {
            self.plan(now + AFTER);
        }
    }

    /// Computes the need, and starts to meet it.
    fn adjust(&mut self, now: Instant) {
        self.due = None;
        if let Some(until) = self.paused_until.filter(|until| *until > now) {
            return self.plan(until);
        }
        self.cool_until = self.cool_until.filter(|until| *until > now);
        self.made
            .retain(|name, (_, at)| now < *at + SHOWN && !self.need.shows(name));
        let mut plan = self.need.plan(self.made.values().map(|(scaling, _)| scaling), now);
        if let Some(at) = self.need.next_attempt(now) {
            self.plan(at);
        }
        if let Some(until) = self.cool_until.filter(|_| !plan.make.is_empty()) {
            plan.make.clear();
            self.plan(until);
        }
        if !plan.is_empty() {
            self.work.spawn(carry_out(self.context.clone(), plan));
        }
    }

    fn done(&mut self, done: Done, now: Instant) {
        if !done.made.is_empty() {
            self.plan(now + SHOWN);
        }
        for (_, scaling) in &done.made {
            self.need.accepted(scaling.pod());
        }
        let made = done.made.into_iter();
        self.made.extend(made.map(|(name, scaling)| (name, (scaling, now))));
        if !done.refused.is_empty() {
            if !self.need.has_refused() {
                let ns = &self.context.settings.own_pods.scaling.namespace;
                warn!(
                    ns,
                    "scaling pods are refused; others are created, and these tried again later"
                );
            }
            for key in &done.refused {
                self.need.refused(key, now);
            }
            self.plan(now + AFTER);
        }
        if done.any_gone {
            self.cool_until = Some(now + COOL_DOWN);
            self.plan(now + COOL_DOWN);
        }
        self.failures = if done.failed { self.failures + 1 } else { 0 };
        self.paused_until = done.failed.then(|| now + RETRY.wait(self.failures));
        if let Some(until) = self.paused_until {
            self.plan(until);
        }
        if self.failures == 1 {
            let ns = &self.context.settings.own_pods.scaling.namespace;
            warn!(ns, "scaling pods cannot be changed; trying again");
        }
    }
}

/// Sends the changes of a plan until one fails. If a scaling pod is refused, those of other pods need not be.
async fn carry_out(context: Context, plan: Plan) -> Done {
    let mut done = Done {
        made: Vec::new(),
        refused: Vec::new(),
        any_gone: false,
        failed: false,
    };
    let account = &context.settings.own_pods.scaling;
    let api: Api<Pod> = Api::namespaced(context.writes.clone(), &account.namespace);
    for (name, uid) in plan.take_away {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match sent(api.delete(&name, &params)).await {
            Ok(_) | Err(Some(Failure::Gone | Failure::Conflict)) => done.any_gone = true,
            Err(_) => {
                done.failed = true;
                return done;
            }
        }
    }
    for (key, gpus) in plan.make {
        let Some(pod) = need::scaling_pod(&key, gpus, &context.settings.scaling, account) else {
            continue;
        };
        let name = pod.name_any();
        match sent(api.create(&PostParams::default(), &pod)).await {
            Ok(_) => {
                info!(ns = %key.namespace(), name = %key.name(), gpus, "a cluster autoscaler is asked for GPUs");
                unschedulable(&api, &name).await;
            }
            // It exists: the watch will show it.
            Err(Some(Failure::Conflict)) => {}
            Err(Some(Failure::Refused)) => {
                done.refused.push(key.key());
                // The refusals have a common cause, such as a quota.
                if done.made.is_empty() && done.refused.len() >= REFUSED_MAX {
                    done.failed = true;
                    return done;
                }
                continue;
            }
            Err(Some(Failure::Gone | Failure::Busy | Failure::Unknown) | None) => {
                done.failed = true;
                return done;
            }
        }
        done.made.push((name, Scaling::new(key.key(), gpus)));
    }
    done
}

/// Sets the condition that the default scheduler would set later, so that autoscalers need not wait for it.
async fn unschedulable(api: &Api<Pod>, name: &str) {
    let patch = Patch::Strategic(json!({"status": {"conditions": [{
        "type": condition::POD_SCHEDULED, "status": "False", "reason": reason::UNSCHEDULABLE,
        "message": "waits for a node with GPUs of which pods want a part",
    }]}}));
    let written = sent(api.patch_status(name, &PatchParams::default(), &patch)).await;
    if written.is_err() {
        debug!(name, "the condition of a scaling pod was not written");
    }
}

/// The answer to a request, or the class of its failure; `None`: no answer.
async fn sent<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Option<Failure>> {
    match timeout(TIMEOUT, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            debug!(%error, "scaling pod not written");
            Err(Some(failure(&error)))
        }
        Err(_) => Err(None),
    }
}

#[cfg(test)]
#[cfg(feature = "devcluster")]
mod tests;
