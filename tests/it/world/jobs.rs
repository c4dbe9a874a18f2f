//! Jobs: how their pods run, fail, and are replaced.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::stage::{Stage, eventually, is_ready};
use super::{settle, start};

/// A Job whose pods run a command.
pub fn job(name: &str, command: &str, spec: Value) -> Value {
    let mut spec = spec;
    let containers = json!([{"name": "main", "image": "work", "command": ["sh", "-c", command]}]);
    spec["template"] = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Lets time pass until the Job has this condition.
async fn finish(stage: &Stage, name: &str, kind: &str) -> Job {
    let finished = async || {
        stage.pass(1);
        let job: Job = stage.get(name).await;
        conditions(&job).contains(&format!("{kind}=True")).then_some(job)
    };
    eventually(&format!("{name} to be {kind}"), finished).await
}

fn conditions(job: &Job) -> Vec<String> {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .map(|condition| format!("{}={}", condition.type_, condition.status))
        .collect()
}

pub async fn a_job_completes(stage: &Stage) {
    stage
        .create::<Job>(job("work", "sleep 2", json!({"parallelism": 2, "completions": 4})))
        .await;
    stage
        .until("work", "two active pods", |job: &Job| {
            job.status.as_ref().and_then(|s| s.active) == Some(2)
        })
        .await;
    let pods: Vec<Pod> = stage.list().await;
    assert_eq!(pods.len(), 2);
    assert_eq!(
        pods[0].labels().get("batch.kubernetes.io/job-name").map(String::as_str),
        Some("work")
    );
    let done = finish(stage, "work", "Complete").await;
    assert_eq!(conditions(&done), ["SuccessCriteriaMet=True", "Complete=True"]);
    let status = done.status.expect("a status");
    assert_eq!((status.succeeded, status.active, status.failed), (Some(4), None, None));
    assert!(status.start_time.is_some() && status.completion_time.is_some());
}

pub async fn an_indexed_job_completes(stage: &Stage) {
    let spec = json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed"});
    stage.create::<Job>(job("work", "sleep 2", spec)).await;
    stage
        .until("work", "three active pods", |job: &Job| {
            job.status.as_ref().and_then(|s| s.active) == Some(3)
        })
        .await;
    let mut hosts: Vec<String> = stage
        .list::<Pod>()
        .await
        .into_iter()
        .filter_map(|pod| pod.spec?.hostname)
        .collect();
    hosts.sort();
    assert_eq!(hosts, ["work-0", "work-1", "work-2"]);
    let done = finish(stage, "work", "Complete").await;
    assert_eq!(
        done.status.and_then(|status| status.completed_indexes).as_deref(),
        Some("0-2")
    );
}

pub async fn a_job_fails(stage: &Stage) {
    stage
        .create::<Job>(job("work", "exit 1", json!({"backoffLimit": 2})))
        .await;
    let failed = finish(stage, "work", "Failed").await;
    assert_eq!(conditions(&failed), ["FailureTarget=True", "Failed=True"]);
    let status = failed.status.expect("a status");
    assert_eq!(status.failed, Some(3));
    let last = status
        .conditions
        .and_then(|conditions| conditions.last().cloned())
        .expect("a condition");
    assert_eq!(last.reason.as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(stage.list::<Pod>().await.len(), 3, "failed pods stay to be looked at");
}

pub async fn a_job_is_suspended_resumed_and_expires(stage: &Stage) {
    let spec = json!({"suspend": true, "ttlSecondsAfterFinished": 60});
    stage.create::<Job>(job("work", "sleep 1000", spec)).await;
    let is = |job: &Job, shown: &str| conditions(job).contains(&shown.to_owned());
    stage
        .until("work", "its suspension", |job: &Job| is(job, "Suspended=True"))
        .await;
    assert!(stage.list::<Pod>().await.is_empty());
    stage.patch::<Job>("work", json!({"spec": {"suspend": false}})).await;
    start(stage, 1).await;
    stage.patch::<Job>("work", json!({"spec": {"suspend": true}})).await;
    settle(stage, 0).await;
    let suspended: Job = stage
        .until("work", "its suspension", |job: &Job| is(job, "Suspended=True"))
        .await;
    assert_eq!(
        suspended.status.and_then(|status| status.failed),
        None,
        "a suspended pod has not failed"
    );
    stage.patch::<Job>("work", json!({"spec": {"suspend": false}})).await;
    start(stage, 1).await;
    stage.pass(1000);
    finish(stage, "work", "Complete").await;
    stage.pass(61);
    stage.until_gone::<Job>("work").await;
    settle(stage, 0).await;
}

/// An eviction is a failure of the pod, which a Job counts unless its policy ignores disruptions.
pub async fn a_job_ignores_disruptions_if_it_says_so(stage: &Stage) {
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let tolerant = json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [rule]}});
    stage.create::<Job>(job("tolerant", "sleep 100000", tolerant)).await;
    stage
        .create::<Job>(job("strict", "sleep 100000", json!({"backoffLimit": 0})))
        .await;
    start(stage, 2).await;
    let before: Vec<Pod> = stage.list().await;
    for pod in &before {
        stage.evict(&pod.name_any()).await.expect("nothing protects it");
    }
    let strict = finish(stage, "strict", "Failed").await;
    assert_eq!(strict.status.and_then(|status| status.failed), Some(1));
    let replaced = async || {
        stage.pass(1);
        let pods = stage.list::<Pod>().await;
        pods.into_iter()
            .find(|pod| is_ready(pod) && before.iter().all(|old| old.uid() != pod.uid()))
    };
    let next = eventually("another pod of the tolerant Job", replaced).await;
    assert_eq!(next.owner_references()[0].name, "tolerant");
    let tolerant: Job = stage.get("tolerant").await;
    assert_eq!(conditions(&tolerant), Vec::<String>::new());
    assert_eq!(tolerant.status.and_then(|status| status.failed), None);
}

pub async fn a_job_of_another_controller_is_left_alone(stage: &Stage) {
    let theirs = json!({"managedBy": "example.com/other"});
    stage.create::<Job>(job("theirs", "sleep 100000", theirs)).await;
    stage.create::<Job>(job("ours", "sleep 100000", json!({}))).await;
    start(stage, 1).await;
    let pods: Vec<Pod> = stage.list().await;
    assert!(pods.iter().all(|pod| pod.owner_references()[0].name == "ours"));
    let theirs: Job = stage.get("theirs").await;
    assert!(theirs.status.unwrap_or_default().start_time.is_none());
}
