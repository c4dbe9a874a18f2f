//! Jobs: pods that run to their end, a number of times, in parallel, with or without indexes.
//!
//! Outcomes are counted as pods end, in memory, and kept in the Job's status: pods carry no tracking finalizer. As with the real
//! controller, a pod that is deleted before its end counts as failed, unless the Job's pod failure policy ignores the pod's conditions. Absent: other
//! rules of pod failure policies, success policies, and back-off limits per index.

mod tally;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, PodFailurePolicyOnPodConditionsPattern};
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use self::tally::{Counts, Tallies};
use super::clock::later;
use super::informer::{Change, Informer, Key};
use super::pods::{is_active, is_finished, ready_since};
use super::queue::Again;
use super::workload::{
    controller_key, create_pods, delete, delete_pods, nonzero, pod_from_template, report_failure, said, uid, wanted,
    write_status,
};
use super::{Shared, Timings};

/// The controller of Jobs that name none; those that name another one are left alone.
const MANAGER: &str = "kubernetes.io/job-controller";

/// Annotation and label of a pod of an indexed Job.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The job controller.
pub(super) struct Jobs {
    jobs: Arc<Informer<Job>>,
    tallies: Tallies,
    timings: Timings,
}

impl Jobs {
    pub fn new(jobs: Arc<Informer<Job>>, timings: Timings) -> Self {
        Self {
            jobs,
            tallies: Tallies::default(),
            timings,
        }
    }

    /// Counts the end of a pod for its Job.
    pub fn pod_changed(&self, change: &Change<'_, Pod>, now: Timestamp) {
        self.tallies.pod_changed(change, now, |pod| self.is_ignored(pod));
    }

    /// Whether the failure of a pod is one that the policy of its Job ignores.
    fn is_ignored(&self, pod: &Pod) -> bool {
        let job = controller_key(&pod.metadata, "Job").and_then(|key| self.jobs.get(&key));
        job.is_some_and(|job| job.spec.as_ref().is_some_and(|spec| ignores(spec, pod)))
    }

    /// Forgets a Job that is gone.
    pub fn job_gone(&self, job: &Job) {
        self.tallies.forget(uid(&job.metadata));
    }

    /// One reconciliation of a Job, with its status.
    pub async fn reconcile(&self, shared: &Shared, key: Key) -> kube::Result<Again> {
        let Some(job) = self.jobs.get(&key) else {
            return Ok(Again::OnChange);
        };
        let Some(spec) = &job.spec else {
            return Ok(Again::OnChange);
        };
        let other_manager = spec.managed_by.as_deref().is_some_and(|manager| manager != MANAGER);
        if job.metadata.deletion_timestamp.is_some() || other_manager {
            return Ok(Again::OnChange);
        }
        let known = job.status.clone().unwrap_or_default();
        if let Some(finished) = finished_at(&known) {
            return self.expire(shared, &job, spec, finished).await;
        }
        let now = shared.clock.now();
        let counts = self.tallies.counts(&job);
        let pods = shared.pods.controlled_by(uid(&job.metadata));
        let step = Step {
            jobs: self,
            shared,
            job: &job,
            spec,
            known: &known,
            counts,
            pods,
            now,
        };
        step.run().await
    }

    /// Deletes a finished Job when its time to live is over.
    async fn expire(&self, shared: &Shared, job: &Job, spec: &JobSpec, finished: Timestamp) -> kube::Result<Again> {
        let Some(ttl) = spec.ttl_seconds_after_finished else {
            return Ok(Again::OnChange);
        };
        let at = later(finished, Duration::from_secs(u64::try_from(ttl).unwrap_or(0)));
        if at > shared.clock.now() {
            return Ok(Again::At(at));
        }
        delete(&shared.client, &self.jobs, job).await?;
        Ok(Again::OnChange)
    }
}

/// One reconciliation of a Job that is not finished.
struct Step<'a> {
    jobs: &'a Jobs,
    shared: &'a Shared,
    job: &'a Job,
    spec: &'a JobSpec,
    known: &'a JobStatus,
    counts: Counts,
    pods: Vec<Arc<Pod>>,
    now: Timestamp,
}

/// What is decided about a Job.
enum Verdict {
    /// Pods are to run; `again` is when to look again, if before a change.
    Running {
        again: Again,
    },
    Suspended,
    Complete,
    Failed {
        reason: &'static str,
        message: &'static str,
    },
}

impl Step<'_> {
    async fn run(mut self) -> kube::Result<Again> {
        let mut refused = None;
        let verdict = self.verdict();
        let again = match &verdict {
            Verdict::Running { again } => match self.run_pods().await {
                Ok(next) => next.map_or(*again, |at| again.or_at(at)),
                Err(error) => {
                    refused = Some(error);
                    *again
                }
            },
            Verdict::Suspended | Verdict::Complete | Verdict::Failed { .. } => {
                self.stop(self.active()).await?;
                Again::OnChange
            }
        };
        self.pods = self.shared.pods.controlled_by(uid(&self.job.metadata));
        let status = self.status(&verdict);
        if status != *self.known {
            write_status(
                self.shared,
                &self.jobs.jobs,
                &Job {
                    status: Some(status),
                    ..self.job.clone()
                },
            )
            .await?;
        }
        match refused {
            Some(error) => {
                let message = format!("Error creating: {}", said(&error));
                report_failure(self.shared, self.job, "FailedCreate", &message).await?;
                Err(error)
            }
            None => Ok(again),
        }
    }

    fn verdict(&self) -> Verdict {
        let decided = |kind: &str| condition(self.known, kind).is_some_and(|condition| condition.status == "True");
        if decided("SuccessCriteriaMet") || self.has_completed() {
            return Verdict::Complete;
        }
        if let Some(target) = condition(self.known, "FailureTarget").filter(|condition| condition.status == "True") {
            let deadline = target.reason.as_deref() == Some("DeadlineExceeded");
            return if deadline {
                DEADLINE_EXCEEDED
            } else {
                BACKOFF_LIMIT_EXCEEDED
            };
        }
        let failures = self.counts.failed + self.restarts();
        if failures > wanted(self.spec.backoff_limit, 6) {
            return BACKOFF_LIMIT_EXCEEDED;
        }
        if self.spec.suspend == Some(true) {
            return Verdict::Suspended;
        }
        match self.deadline() {
            Some(at) if at <= self.now => DEADLINE_EXCEEDED,
            deadline => Verdict::Running {
                again: deadline.map_or(Again::OnChange, Again::At),
            },
        }
    }

    fn has_completed(&self) -> bool {
        match self.spec.completions {
            Some(completions) => self.succeeded() >= wanted(Some(completions), 1),
            None => self.counts.succeeded > 0 && self.active().is_empty(),
        }
    }

    fn succeeded(&self) -> usize {
        if self.is_indexed() {
            self.counts.indexes.len()
        } else {
            self.counts.succeeded
        }
    }

    /// Restarts of containers count against the back-off limit where pods are restarted in place.
    fn restarts(&self) -> usize {
        let in_place = self
            .spec
            .template
            .spec
            .as_ref()
            .and_then(|spec| spec.restart_policy.as_deref())
            == Some("OnFailure");
        let statuses = self
            .pods
            .iter()
            .filter(|pod| in_place && is_active(pod))
            .flat_map(|pod| {
                pod.status
                    .iter()
                    .flat_map(|status| status.container_statuses.iter().flatten())
            });
        statuses
            .map(|status| usize::try_from(status.restart_count).unwrap_or(0))
            .sum()
    }

    fn deadline(&self) -> Option<Timestamp> {
        let seconds = u64::try_from(self.spec.active_deadline_seconds?).unwrap_or(0);
        let start = self.known.start_time.as_ref().map_or(self.now, |time| time.0);
        Some(later(start, Duration::from_secs(seconds)))
    }

    /// Starts the pods that are missing and stops those that are too many; when to try again, if pods that failed are given time.
    async fn run_pods(&self) -> kube::Result<Option<Timestamp>> {
        let active = self.active();
        let wanted = self.wanted_active(&active);
        if active.len() > wanted {
            let surplus = active[wanted..].to_vec();
            self.stop(surplus).await?;
            return Ok(None);
        }
        let waiting = if self.replaces_only_failed() {
            self.terminating()
        } else {
            0
        };
        let missing = wanted.saturating_sub(active.len() + waiting);
        if missing == 0 {
            return Ok(None);
        }
        if let Some(at) = self
            .counts
            .next_try(self.jobs.timings.job_backoff)
            .filter(|at| *at > self.now)
        {
            return Ok(Some(at));
        }
        let ns = self.job.metadata.namespace.as_deref().unwrap_or_default();
        create_pods(self.shared, ns, self.new_pods(&active, missing)).await?;
        Ok(None)
    }

    fn wanted_active(&self, active: &[Arc<Pod>]) -> usize {
        let parallelism = wanted(self.spec.parallelism, 1);
        match self.spec.completions {
            Some(completions) => parallelism.min(wanted(Some(completions), 1).saturating_sub(self.succeeded())),
            // Without `completions`, no pods are created after the first success.
            None if self.counts.succeeded > 0 => active.len().min(parallelism),
            None => parallelism,
        }
    }

    fn replaces_only_failed(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
    }

    fn new_pods(&self, active: &[Arc<Pod>], missing: usize) -> Vec<Pod> {
        if !self.is_indexed() {
            return (0..missing).map(|_| self.new_pod(None)).collect();
        }
        let running: BTreeSet<usize> = active.iter().filter_map(|pod| index_of(pod)).collect();
        let completions = wanted(self.spec.completions, 1);
        let open = (0..completions).filter(|index| !running.contains(index) && !self.counts.indexes.contains(index));
        open.take(missing).map(|index| self.new_pod(Some(index))).collect()
    }

    fn new_pod(&self, index: Option<usize>) -> Pod {
        let name = self.job.metadata.name.as_deref().unwrap_or_default();
        let prefix = index.map_or_else(|| name.to_owned(), |index| format!("{name}-{index}"));
        let mut pod = pod_from_template(self.job, &self.spec.template, &prefix);
        let labels = pod.metadata.labels.get_or_insert_default();
        for key in ["batch.kubernetes.io/job-name", "job-name"] {
            labels.entry(key.to_owned()).or_insert_with(|| name.to_owned());
        }
        for key in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
            labels
                .entry(key.to_owned())
                .or_insert_with(|| uid(&self.job.metadata).to_owned());
        }
        if let Some(index) = index {
            labels.insert(INDEX.to_owned(), index.to_string());
            pod.metadata
                .annotations
                .get_or_insert_default()
                .insert(INDEX.to_owned(), index.to_string());
            if let Some(spec) = &mut pod.spec {
                spec.hostname = Some(prefix);
                for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
                    let value = Some(index.to_string());
                    let variable = EnvVar {
                        name: "JOB_COMPLETION_INDEX".to_owned(),
                        value,
                        value_from: None,
                    };
                    container.env.get_or_insert_default().push(variable);
                }
            }
        }
        pod
    }

    /// Deletes surplus pods, which do not count as failed.
    async fn stop(&self, pods: Vec<Arc<Pod>>) -> kube::Result<()> {
        self.jobs
            .tallies
            .excuse(uid(&self.job.metadata), pods.iter().map(|pod| uid(&pod.metadata)));
        delete_pods(self.shared, &pods).await
    }

    fn active(&self) -> Vec<Arc<Pod>> {
        self.pods.iter().filter(|pod| is_active(pod)).cloned().collect()
    }

    fn terminating(&self) -> usize {
        self.pods
            .iter()
            .filter(|pod| !is_finished(pod) && pod.metadata.deletion_timestamp.is_some())
            .count()
    }

    fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    fn status(&self, verdict: &Verdict) -> JobStatus {
        let (active, terminating) = (self.active(), self.terminating());
        let ended = active.is_empty() && terminating == 0;
        let ready = active.iter().filter(|pod| ready_since(pod).is_some()).count();
        let suspended = matches!(verdict, Verdict::Suspended);
        let start = self.known.start_time.clone().filter(|_| !suspended);
        let mut status = JobStatus {
            active: nonzero(active.len()),
            ready: Some(super::workload::count(ready)),
            terminating: Some(super::workload::count(terminating)),
            succeeded: nonzero(self.succeeded()),
            failed: nonzero(self.counts.failed),
            start_time: start.or_else(|| (!suspended).then_some(Time(self.now))),
            completed_indexes: self
                .is_indexed()
                .then(|| intervals(&self.counts.indexes))
                .filter(|text| !text.is_empty()),
            ..self.known.clone()
        };
        match verdict {
            Verdict::Running { .. } => {
                if condition(self.known, "Suspended").is_some_and(|condition| condition.status == "True") {
                    self.set(&mut status, "Suspended", "False", "JobResumed", "Job resumed");
                }
            }
            Verdict::Suspended => self.set(&mut status, "Suspended", "True", "JobSuspended", "Job suspended"),
            Verdict::Complete => {
                let (reason, message) = ("CompletionsReached", "Reached expected number of succeeded pods");
                self.set(&mut status, "SuccessCriteriaMet", "True", reason, message);
                if ended {
                    self.set(&mut status, "Complete", "True", reason, message);
                    status.completion_time = Some(Time(self.now));
                }
            }
            Verdict::Failed { reason, message } => {
                self.set(&mut status, "FailureTarget", "True", reason, message);
                if ended {
                    self.set(&mut status, "Failed", "True", reason, message);
                }
            }
        }
        status
    }

    fn set(&self, status: &mut JobStatus, kind: &str, value: &str, reason: &str, message: &str) {
        let conditions = status.conditions.get_or_insert_default();
        let known = conditions.iter_mut().find(|condition| condition.type_ == kind);
        if known.as_ref().is_some_and(|condition| condition.status == value) {
            return;
        }
        let new = JobCondition {
            type_: kind.to_owned(),
            status: value.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_probe_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
        };
        match known {
            Some(known) => *known = new,
            None => conditions.push(new),
        }
    }
}

const BACKOFF_LIMIT_EXCEEDED: Verdict = Verdict::Failed {
    reason: "BackoffLimitExceeded",
    message: "Job has reached the specified backoff limit",
};
const DEADLINE_EXCEEDED: Verdict = Verdict::Failed {
    reason: "DeadlineExceeded",
    message: "Job was active longer than specified deadline",
};

fn condition<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

/// When a Job came to its end, if it has.
fn finished_at(status: &JobStatus) -> Option<Timestamp> {
    let end = ["Complete", "Failed"]
        .iter()
        .find_map(|kind| condition(status, kind).filter(|end| end.status == "True"))?;
    Some(end.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
}

/// Whether the first rule of the pod failure policy that matches the pod's conditions ignores its failure.
fn ignores(spec: &JobSpec, pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    let is_shown = |pattern: &PodFailurePolicyOnPodConditionsPattern| {
        let status = pattern.status.as_deref().unwrap_or("True");
        let mut conditions = conditions.unwrap_or_default().iter();
        conditions.any(|condition| condition.type_ == pattern.type_ && condition.status == status)
    };
    let mut rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    let first = rules.find(|rule| rule.on_pod_conditions.iter().flatten().any(is_shown));
    first.is_some_and(|rule| rule.action == "Ignore")
}

/// The completion index of a pod.
fn index_of(pod: &Pod) -> Option<usize> {
    pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()
}

/// Indexes as a Job's status writes them: `0-2,5`.
fn intervals(indexes: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let shown = runs.into_iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    shown.collect::<Vec<_>>().join(",")
}

/// The indexes that a Job's status lists; what cannot be read is left out.
fn listed_indexes(text: &str) -> BTreeSet<usize> {
    let runs = text.split(',').filter_map(|run| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    });
    runs.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_indexes_are_written_as_intervals_and_read_back() {
        for (indexes, text) in [(vec![], ""), (vec![3], "3"), (vec![0, 1, 2, 5, 7, 8], "0-2,5,7-8")] {
            let indexes: BTreeSet<usize> = indexes.into_iter().collect();
            assert_eq!(intervals(&indexes), text);
            assert_eq!(listed_indexes(text), indexes);
        }
    }
}
