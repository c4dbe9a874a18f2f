//! ReplicaSets: as many pods as they ask for. They adopt no pods that others have made.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Shared;
use super::informer::{Informer, Key};
use super::pods::{is_active, node_of, phase, ready_since};
use super::queue::Again;
use super::workload::{
    available, count, create_pods, delete_pods, nonzero, pod_from_template, report_failure, said, uid, wanted,
    write_status,
};

/// Brings the pods of one ReplicaSet to the number that it asks for, and its status up to date.
pub(super) async fn reconcile(shared: &Shared, replica_sets: &Informer<ReplicaSet>, key: Key) -> kube::Result<Again> {
    let Some(set) = replica_sets.get(&key) else {
        return Ok(Again::OnChange);
    };
    let outcome = if set.metadata.deletion_timestamp.is_none() {
        scale(shared, &set, &key.ns).await
    } else {
        Ok(())
    };
    let again = update_status(shared, replica_sets, &set, outcome.as_ref().err()).await?;
    if let Err(error) = outcome {
        report_failure(
            shared,
            set.as_ref(),
            "FailedCreate",
            &format!("Error creating: {}", said(&error)),
        )
        .await?;
        return Err(error);
    }
    Ok(again)
}

async fn scale(shared: &Shared, set: &ReplicaSet, ns: &str) -> kube::Result<()> {
    let Some(spec) = &set.spec else { return Ok(()) };
    let mut pods = active_pods(shared, set);
    let wanted = wanted(spec.replicas, 1);
    if pods.len() > wanted {
        pods.sort_by_key(|pod| worth(pod));
        return delete_pods(shared, &pods[..pods.len() - wanted]).await;
    }
    let template = spec.template.clone().unwrap_or_default();
    let prefix = set.metadata.name.as_deref().unwrap_or_default();
    let missing = (pods.len()..wanted)
        .map(|_| pod_from_template(set, &template, prefix))
        .collect();
    create_pods(shared, ns, missing).await
}

fn active_pods(shared: &Shared, set: &ReplicaSet) -> Vec<Arc<Pod>> {
    let pods = shared.pods.controlled_by(uid(&set.metadata));
    pods.into_iter().filter(|pod| is_active(pod)).collect()
}

/// Pods that are worth less go first: unbound ones, then those that do not run, then those that are not ready, then the youngest.
fn worth(pod: &Pod) -> (bool, bool, bool, std::cmp::Reverse<Option<Time>>) {
    let age = std::cmp::Reverse(pod.metadata.creation_timestamp.clone());
    (
        node_of(pod).is_some(),
        phase(pod) == "Running",
        ready_since(pod).is_some(),
        age,
    )
}

async fn update_status(
    shared: &Shared,
    replica_sets: &Informer<ReplicaSet>,
    set: &ReplicaSet,
    failure: Option<&kube::Error>,
) -> kube::Result<Again> {
    let pods = active_pods(shared, set);
    let min_ready = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
    let ready: Vec<_> = pods.iter().filter_map(|pod| ready_since(pod)).collect();
    let (available, next) = available(ready.iter().copied(), min_ready, shared.clock.now());
    let known = set.status.clone().unwrap_or_default();
    let status = ReplicaSetStatus {
        replicas: count(pods.len()),
        fully_labeled_replicas: nonzero(pods.len()),
        ready_replicas: nonzero(ready.len()),
        available_replicas: nonzero(available),
        observed_generation: set.metadata.generation,
        conditions: conditions(shared, &known, failure),
        terminating_replicas: known.terminating_replicas,
    };
    if status != known {
        write_status(
            shared,
            replica_sets,
            &ReplicaSet {
                status: Some(status),
                ..set.clone()
            },
        )
        .await?;
    }
    Ok(next.map_or(Again::OnChange, Again::At))
}

/// The condition `ReplicaFailure` while pods cannot be created.
fn conditions(
    shared: &Shared,
    known: &ReplicaSetStatus,
    failure: Option<&kube::Error>,
) -> Option<Vec<ReplicaSetCondition>> {
    let message = said(failure?);
    let before = known
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "ReplicaFailure");
    Some(vec![ReplicaSetCondition {
        type_: "ReplicaFailure".to_owned(),
        status: "True".to_owned(),
        reason: Some("FailedCreate".to_owned()),
        message: Some(message),
        last_transition_time: before
            .and_then(|condition| condition.last_transition_time.clone())
            .or_else(|| Some(Time(shared.clock.now()))),
    }])
}
