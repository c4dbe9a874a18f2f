//! The controllers that an API server without a controller manager lacks: which watch feeds which, and how many work at once.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use tokio::task::JoinSet;

use super::gc::Collector;
use super::informer::{Informer, Key};
use super::job::Jobs;
use super::queue::WorkQueue;
use super::workload::controller_key;
use super::{
    Shared, Timings, claims, default_scheduler, deployment, disruption, namespaces, replica_set, spawn_watch,
    stateful_set, volumes,
};

/// How many objects of one kind are worked on at once.
const AT_ONCE: usize = 16;

type Queue = Arc<WorkQueue<Key>>;

/// Spawns all controllers and the watches that only they need.
pub(super) fn spawn(tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>, timings: &Timings) {
    let deployments: Arc<Informer<Deployment>> = Informer::new();
    let replica_sets: Arc<Informer<ReplicaSet>> = Informer::new();
    let stateful_sets: Arc<Informer<StatefulSet>> = Informer::new();
    let jobs: Arc<Informer<Job>> = Informer::new();

    let namespaces_queue: Queue = Arc::new(WorkQueue::new());
    let gone_in = Arc::clone(&namespaces_queue);
    let collector = Collector::new(shared.client.clone(), move |ns| gone_in.add(Key::new("", ns)));
    collector.listen(&shared.pods);
    collector.listen(&shared.nodes);
    collector.listen(&shared.config_maps);
    collector.listen(&deployments);
    collector.listen(&replica_sets);
    collector.listen(&stateful_sets);
    collector.listen(&jobs);

    spawn_deployments(tasks, shared, &deployments, &replica_sets);
    spawn_replica_sets(tasks, shared, &replica_sets);
    spawn_stateful_sets(tasks, shared, &stateful_sets);
    spawn_jobs(tasks, shared, &jobs, timings);
    spawn_namespaces(tasks, shared, &collector, namespaces_queue);
    claims::spawn(tasks, shared, &collector);
    let scales = disruption::Scales {
        deployments: Arc::clone(&deployments),
        replica_sets: Arc::clone(&replica_sets),
        stateful_sets: Arc::clone(&stateful_sets),
    };
    disruption::spawn(tasks, shared, &collector, scales);
    default_scheduler::spawn(tasks, shared);
    volumes::spawn(tasks, shared);
    collector.spawn(tasks, shared);

    spawn_watch(tasks, "watch of deployments", &deployments, &shared.client);
    spawn_watch(tasks, "watch of replica sets", &replica_sets, &shared.client);
    spawn_watch(tasks, "watch of stateful sets", &stateful_sets, &shared.client);
    spawn_watch(tasks, "watch of jobs", &jobs, &shared.client);
}

/// A queue that gets every change of a kind, and of its pods or sets where they are controlled by the kind.
fn queue_for<K, D>(kind: &Informer<K>, dependents: &Informer<D>) -> Queue
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
    D: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let queue: Queue = Arc::new(WorkQueue::new());
    let own = Arc::clone(&queue);
    kind.on_change(move |change| own.add(change.key.clone()));
    let owners = Arc::clone(&queue);
    dependents.on_change(move |change| {
        let owner = change
            .newest()
            .and_then(|object| controller_key(object.meta(), &K::kind(&())));
        if let Some(owner) = owner {
            owners.add(owner);
        }
    });
    queue
}

fn spawn_deployments(
    tasks: &mut JoinSet<&'static str>,
    shared: &Arc<Shared>,
    deployments: &Arc<Informer<Deployment>>,
    replica_sets: &Arc<Informer<ReplicaSet>>,
) {
    let queue = queue_for(deployments, replica_sets);
    // A Deployment that recreates waits for the pods of its old ReplicaSets to be gone.
    let (ends, sets) = (Arc::clone(&queue), Arc::downgrade(replica_sets));
    shared.pods.on_change(move |change| {
        let (Some(pod), None) = (change.old, change.new) else {
            return;
        };
        let set = sets
            .upgrade()
            .zip(controller_key(&pod.metadata, "ReplicaSet"))
            .and_then(|(sets, key)| sets.get(&key));
        if let Some(deployment) = set.and_then(|set| controller_key(&set.metadata, "Deployment")) {
            ends.add(deployment);
        }
    });
    let (shared, deployments, replica_sets) = (Arc::clone(shared), Arc::clone(deployments), Arc::clone(replica_sets));
    tasks.spawn(async move {
        deployments.synced().await;
        replica_sets.synced().await;
        shared.pods.synced().await;
        let reconcile = |key| deployment::reconcile(&shared, &deployments, &replica_sets, key);
        queue.run(&shared.clock, AT_ONCE, reconcile).await;
        "deployment controller"
    });
}

fn spawn_replica_sets(tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>, sets: &Arc<Informer<ReplicaSet>>) {
    let queue = queue_for(sets, &shared.pods);
    let (shared, sets) = (Arc::clone(shared), Arc::clone(sets));
    tasks.spawn(async move {
        sets.synced().await;
        shared.pods.synced().await;
        queue
            .run(&shared.clock, AT_ONCE, |key| {
                replica_set::reconcile(&shared, &sets, key)
            })
            .await;
        "replica set controller"
    });
}

fn spawn_stateful_sets(tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>, sets: &Arc<Informer<StatefulSet>>) {
    let queue = queue_for(sets, &shared.pods);
    let (shared, sets) = (Arc::clone(shared), Arc::clone(sets));
    tasks.spawn(async move {
        sets.synced().await;
        shared.pods.synced().await;
        queue
            .run(&shared.clock, AT_ONCE, |key| {
                stateful_set::reconcile(&shared, &sets, key)
            })
            .await;
        "stateful set controller"
    });
}

fn spawn_jobs(tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>, jobs: &Arc<Informer<Job>>, timings: &Timings) {
    let controller = Arc::new(Jobs::new(Arc::clone(jobs), timings.clone()));
    // The ends of pods are counted before the Job is looked at because of them.
    let (counter, clock) = (Arc::clone(&controller), shared.clock.clone());
    shared
        .pods
        .on_change(move |change| counter.pod_changed(change, clock.now()));
    let queue = queue_for(jobs, &shared.pods);
    let counter = Arc::downgrade(&controller);
    jobs.on_change(move |change| {
        if let (Some(old), None, Some(counter)) = (change.old, change.new, counter.upgrade()) {
            counter.job_gone(old);
        }
    });
    let (shared, jobs) = (Arc::clone(shared), Arc::clone(jobs));
    tasks.spawn(async move {
        jobs.synced().await;
        shared.pods.synced().await;
        queue
            .run(&shared.clock, AT_ONCE, |key| controller.reconcile(&shared, key))
            .await;
        "job controller"
    });
}

fn spawn_namespaces(tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>, collector: &Arc<Collector>, queue: Queue) {
    let namespaces: Arc<Informer<Namespace>> = Informer::new();
    let changed = Arc::clone(&queue);
    namespaces.on_change(move |change| changed.add(change.key.clone()));
    spawn_watch(tasks, "watch of namespaces", &namespaces, &shared.client);
    let (shared, collector) = (Arc::clone(shared), Arc::clone(collector));
    tasks.spawn(async move {
        namespaces.synced().await;
        collector.kinds().await;
        let reconcile = |key| namespaces::reconcile(&shared, &namespaces, &collector, key);
        queue.run(&shared.clock, AT_ONCE, reconcile).await;
        "namespace controller"
    });
}
