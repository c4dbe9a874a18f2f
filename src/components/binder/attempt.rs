//! One binding or eviction, from the first request to a certain end.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::claim_turns::ClaimTurns;
use super::claims::Claims;
use super::requests::{AGAIN, TIMEOUT};
use crate::api::names::{annotation, condition, reason};
use crate::clock;
use crate::components::bus::{Evict, OrderedBind, PodRef, Step, StepLog};
use crate::components::retry::{Failure, LATE, asked_pause, failure, is_unanswered, refused_by_budget};
use crate::components::watches::{Stores, found_group, recorded_group};
use crate::components::{Context, pods};
use crate::engine::policy::DisruptionBudgets;

/// Requests per bind.
const BIND_TRIES: u32 = 5;
/// Further requests per bind while one that was not answered may still take effect.
const LATE_TRIES: u32 = 10;
/// Requests per eviction: fewer, since other victims may be found.
const EVICT_TRIES: u32 = 2;

/// Why a bind fails whose pod names another pod group by now: the scheduler charges that one since, and may have given away what the bind takes.
pub const OTHER_GROUP: &str = "the pod names another pod group than when its bind was decided";

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As ordered.
    Done,
    /// Obsolete: the pod is gone, was re-created, is being deleted, or is bound elsewhere. The watch shows it.
    Overtaken,
    /// Not done, and why.
    Failed(String),
}

impl Ending {
    /// For metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Overtaken => "overtaken",
            Self::Failed(_) => "failed",
        }
    }
}

/// How a job ended, and what its requests showed of the API server's load.
#[derive(Debug)]
pub struct Report {
    /// The end.
    pub ending: Ending,
    /// A request was sent.
    pub tried: bool,
    /// What kind of failure the last one was; for metrics.
    pub cause: &'static str,
    /// It failed as far as is known, but a request may have taken effect, or still may: the pod could not be read since, or not late enough.
    pub uncertain: bool,
    /// Until when a request that was not answered may take effect.
    pub late_until: Option<Instant>,
    /// It failed because no GPU could be reserved on the node.
    pub no_device: bool,
    /// Duration of each answered request.
    pub answers: Vec<Duration>,
    /// Requests that were throttled or timed out.
    pub refusals: u32,
    /// The longest `Retry-After`.
    pub pause: Option<Duration>,
}

impl Report {
    /// A report before the first request.
    #[must_use]
    pub fn new(ending: Ending) -> Self {
        Self {
            ending,
            tried: true,
            cause: "",
            uncertain: false,
            late_until: None,
            no_device: false,
            answers: Vec::new(),
            refusals: 0,
            pause: None,
        }
    }

    /// The same with an ending that is certain.
    fn with(self, ending: Ending) -> Self {
        Self {
            ending,
            ..self.certain()
        }
    }

    /// The same: no request has taken effect.
    fn certain(self) -> Self {
        Self {
            uncertain: false,
            ..self
        }
    }

    /// The same after the pod was read at that time, and is unbound.
    fn unbound(self, read: Instant) -> Self {
        Self {
            uncertain: self.may_take_effect(read),
            ..self
        }
    }

    /// Whether at that time a request that was not answered might still take effect.
    fn may_take_effect(&self, at: Instant) -> bool {
        self.late_until.is_some_and(|until| at < until)
    }

    /// The report of this attempt and the next together.
    fn then(mut self, next: Self) -> Self {
        self.answers.extend(next.answers);
        let is_late = self.may_take_effect(Instant::now());
        Self {
            uncertain: next.uncertain || (is_late && matches!(next.ending, Ending::Failed(_))),
            late_until: self.late_until.max(next.late_until),
            answers: self.answers,
            refusals: self.refusals + next.refusals,
            pause: self.pause.max(next.pause),
            ..next
        }
    }

    /// A report of a job that was not started.
    #[must_use]
    pub fn not_tried(why: &str) -> Self {
        Self {
            tried: false,
            ..Self::new(Ending::Failed(why.to_owned()))
        }
    }
}

/// What a read of the pod shows.
enum Seen {
    Unbound,
    Bound,
    Overtaken,
}

/// The context of a job.
pub struct Attempt {
    /// Clients and settings.
    pub context: Context,
    /// The watched objects.
    pub stores: Arc<Stores>,
    /// Turns of writing resource claims.
    pub claim_turns: Arc<ClaimTurns>,
    /// The steps, for traces.
    pub steps: StepLog,
}

impl Attempt {
    /// Whether the pod still names the pod group of the decision, as far as is known.
    fn names_its_group(&self, bind: &OrderedBind) -> bool {
        let pod = &bind.placement.pod;
        let known = self.stores.pods.get_same(&pod.namespace, &pod.name, Some(&pod.uid));
        known.is_none_or(|known| bind.names_its_group(&known))
    }

    /// Binds a pod. The end is known, unless the term or the process ends before.
    pub async fn bind(&self, bind: &OrderedBind) -> Report {
        if let Some(group) = self.group_to_record(bind) {
            let report = self
                .steps
                .step("record the pod group", self.record_group(bind, group))
                .await;
            if report.ending != Ending::Done {
                return report.certain();
            }
        }
        if !bind.labels.is_empty() {
            let report = self.steps.step("label the pod", self.label(bind)).await;
            if report.ending != Ending::Done {
                return report.certain();
            }
        }
        if !bind.steps.contains(&Step::Claims) {
            return self.bind_now(bind).await;
        }
        let _open = self.claim_turns.bind(&bind.placement.pod.uid);
        let claims = Claims::of(&self.context, bind, Arc::clone(&self.claim_turns));
        let report = match self.steps.step("reserve claims", claims.reserve()).await {
            Ok(()) => self.bind_now(bind).await,
            Err(why) => Report {
                cause: "claims",
                ..Report::new(Ending::Failed(why))
            },
        };
        let pod = &bind.placement.pod;
        if matches!(report.ending, Ending::Failed(_))
            && !report.uncertain
            && let Some(Seen::Unbound) = self.look(pod, Some(&bind.placement.node)).await
        {
            claims.release().await;
        }
        report
    }

    /// The pod group that the Binding names, if another process might find another one for the pod once it is bound.
    fn group_to_record<'b>(&self, bind: &'b OrderedBind) -> Option<&'b str> {
        let pod = &bind.placement.pod;
        let group = bind.annotations.get(annotation::POD_GROUP_NAME)?;
        let known = self.stores.pods.get(&pod.namespace, &pod.name)?;
        let differs = match recorded_group(&known) {
            Some(recorded) => recorded != group,
            None => bind.regrouped || found_group(&self.stores, &known).is_some_and(|found| found != *group),
        };
        differs.then_some(group)
    }

    /// Writes the pod group into the pod's status.
    async fn record_group(&self, bind: &OrderedBind, group: &str) -> Report {
        let (pod, node) = (&bind.placement.pod, Some(&*bind.placement.node));
        let kind = condition::BOUND_IN_POD_GROUP;
        self.set_condition(pod, node, BIND_TRIES, kind, reason::BOUND, group)
            .await
    }

    /// Sets a condition in the pod's status.
    async fn set_condition(
        &self,
        pod: &PodRef,
        node: Option<&str>,
        most: u32,
        kind: &str,
        reason: &str,
        message: &str,
    ) -> Report {
        let api: Api<Pod> = Api::namespaced(self.context.writes.clone(), &pod.namespace);
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": &*pod.uid},
            "status": {"conditions": [{
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": Time(clock::now()),
            }]},
        }));
        let params = PatchParams::default();
        let write = || async { api.patch_status(&pod.name, &params, &patch).await.map(drop) };
        self.until_certain(pod, node, most, write).await
    }

    /// Adds missing labels to the pod.
    async fn label(&self, bind: &OrderedBind) -> Report {
        let pod = &bind.placement.pod;
        let api: Api<Pod> = Api::namespaced(self.context.writes.clone(), &pod.namespace);
        let patch = Patch::Merge(json!({"metadata": {"uid": &*pod.uid, "labels": bind.labels}}));
        let params = PatchParams::default();
        let label = || async { api.patch(&pod.name, &params, &patch).await.map(drop) };
        self.until_certain(pod, Some(&bind.placement.node), BIND_TRIES, label)
            .await
    }

    async fn bind_now(&self, bind: &OrderedBind) -> Report {
        let pod = &bind.placement.pod;
        if !self.names_its_group(bind) {
            return Report {
                cause: "pod_group",
                ..Report::new(Ending::Failed(OTHER_GROUP.to_owned()))
            };
        }
        let api: Api<Pod> = Api::namespaced(self.context.writes.clone(), &pod.namespace);
        let body = binding(bind);
        let post = || async {
            let params = PostParams::default();
            api.create_subresource::<Binding, Value>("binding", &pod.name, &params, &body)
                .await
                .map(drop)
        };
        self.steps.step("post binding", self.until_known(bind, post)).await
    }

    /// Repeats the Binding until it is known whether the pod is bound, or the term is over: what it may hold is given to nobody before.
    async fn until_known<F>(&self, bind: &OrderedBind, post: impl Fn() -> F) -> Report
    where
        F: Future<Output = Result<(), kube::Error>>,
    {
        let (pod, node) = (&bind.placement.pod, Some(&*bind.placement.node));
        let mut report = self.until_certain(pod, node, BIND_TRIES, &post).await;
        let mut tries = 0;
        while report.uncertain && self.context.is_leading() && !self.context.shutdown.is_cancelled() {
            tries += 1;
            sleep(AGAIN.wait(tries)).await;
            let read = Instant::now();
            report = match self.look(pod, node).await {
                Some(Seen::Bound) => report.with(Ending::Done),
                Some(Seen::Overtaken) => report.with(Ending::Overtaken),
                // Its place is kept anyway until an earlier request can no longer take effect.
                Some(Seen::Unbound) if report.may_take_effect(read) && tries <= LATE_TRIES => {
                    report.then(self.until_certain(pod, node, 1, &post).await)
                }
                Some(Seen::Unbound) => report.unbound(read),
                None => report,
            };
        }
        report
    }

    /// Evicts a pod, with its own grace period: by the eviction API, which respects disruption budgets, or by a deletion where
    /// the decision exceeds budgets or the settings ignore them. A pod that is deleted gets the condition first that the eviction API sets.
    pub async fn evict(&self, evict: &Evict) -> Report {
        let pod = &evict.pod;
        let api: Api<Pod> = Api::namespaced(self.context.writes.clone(), &pod.namespace);
        if evict.overrules_budgets || self.context.settings.disruption_budgets == DisruptionBudgets::Ignore {
            let (kind, reason) = (condition::DISRUPTION_TARGET, reason::PREEMPTION_BY_SCHEDULER);
            let marked = self
                .set_condition(pod, None, EVICT_TRIES, kind, reason, &evict.message)
                .await;
            if marked.ending != Ending::Done {
                return marked.certain();
            }
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(pod.uid.to_string()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            let delete = || async { api.delete(&pod.name, &params).await.map(drop) };
            return self.until_certain(pod, None, EVICT_TRIES, delete).await;
        }
        let request = || pods::evict(&api, pod);
        self.until_certain(pod, None, EVICT_TRIES, request).await
    }

    /// Repeats the request until it is known to have succeeded, to be impossible, or to be obsolete.
    async fn until_certain<F>(&self, pod: &PodRef, node: Option<&str>, most: u32, request: impl Fn() -> F) -> Report
    where
        F: Future<Output = Result<(), kube::Error>>,
    {
        let mut report = Report::new(Ending::Failed("no answer from the api server".to_owned()));
        for tries in 1..=most {
            let sent = Instant::now();
            let answer = timeout(TIMEOUT, request()).await;
            let (mut by_budget, mut unanswered) = (false, true);
            let (failure, why, pause) = match answer {
                Ok(Ok(())) => {
                    report.answers.push(sent.elapsed());
                    // Also if an earlier request was not answered.
                    return report.with(Ending::Done);
                }
                Ok(Err(error)) => {
                    (by_budget, unanswered) = (refused_by_budget(&error), is_unanswered(&error));
                    (failure(&error), error.to_string(), asked_pause(&error))
                }
                Err(_) => (
                    Failure::Unknown,
                    format!("no answer after {} s", TIMEOUT.as_secs()),
                    None,
                ),
            };
            debug!(ns = %pod.namespace, name = %pod.name, error = why, tries, "request failed");
            let answered = Instant::now();
            if unanswered {
                report.late_until = Some(sent + LATE);
            }
            report.ending = Ending::Failed(why);
            report.cause = match failure {
                _ if by_budget => "budget",
                // Of a pod that exists, a webhook or a proxy said that.
                Failure::Gone => Failure::Refused.as_str(),
                failure => failure.as_str(),
            };
            match failure {
                Failure::Refused => return report,
                // No watch shows the end of a bind or an eviction whose pod is there after all: the answer alone does not say that it is gone.
                Failure::Gone | Failure::Conflict => match self.look(pod, node).await {
                    Some(Seen::Bound) => return report.with(Ending::Done),
                    Some(Seen::Overtaken) => return report.with(Ending::Overtaken),
                    // Refused for a reason that the pod does not show, such as scheduling gates or a webhook.
                    Some(Seen::Unbound) => return report.unbound(answered),
                    None => {
                        report.uncertain = true;
                        sleep(AGAIN.wait(tries)).await;
                    }
                },
                Failure::Busy => {
                    report.refusals += 1;
                    report.pause = pause;
                    sleep(report.pause.unwrap_or_else(|| AGAIN.wait(tries))).await;
                }
                Failure::Unknown => {
                    report.refusals += 1;
                    sleep(AGAIN.wait(tries)).await;
                    match self.look(pod, node).await {
                        Some(Seen::Bound) => return report.with(Ending::Done),
                        Some(Seen::Overtaken) => return report.with(Ending::Overtaken),
                        Some(Seen::Unbound) => report = report.unbound(answered),
                        None => report.uncertain = true,
                    }
                }
            }
            if !self.context.is_leading() {
                return report;
            }
        }
        report
    }

    /// Reads the pod from the API server; `None` if the read fails.
    async fn look(&self, pod: &PodRef, node: Option<&str>) -> Option<Seen> {
        let api: Api<Pod> = Api::namespaced(self.context.reads.clone(), &pod.namespace);
        let seen = timeout(TIMEOUT, api.get_opt(&pod.name)).await.ok()?.ok()?;
        let Some(seen) = seen.filter(|seen| seen.metadata.uid.as_deref() == Some(&*pod.uid)) else {
            return Some(Seen::Overtaken);
        };
        let bound_to = pods::node(&seen);
        Some(match node {
            Some(node) if bound_to == Some(node) => Seen::Bound,
            Some(_) if bound_to.is_some() => Seen::Overtaken,
            Some(_) | None if seen.metadata.deletion_timestamp.is_some() => Seen::Overtaken,
            Some(_) | None => Seen::Unbound,
        })
    }
}

/// The Binding: the node, and annotations that the API server copies to the pod.
fn binding(bind: &OrderedBind) -> Binding {
    let pod = &bind.placement.pod;
    Binding {
        metadata: ObjectMeta {
            name: Some(pod.name.to_string()),
            namespace: Some(pod.namespace.to_string()),
            uid: Some(pod.uid.to_string()),
            annotations: Some(bind.annotations.clone()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(bind.placement.node.to_string()),
            ..ObjectReference::default()
        },
    }
}
