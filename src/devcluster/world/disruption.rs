//! Disruption budgets: how many of the selected pods may be evicted now, by how many are ready, and how many are to be.
//!
//! A percentage and `maxUnavailable` are of the pods that are to run: the replicas of a Deployment, ReplicaSet or StatefulSet, and all other selected pods that
//! have not ended. (Kubernetes allows no eviction where such a budget selects pods of Jobs or without a controller.) Absent: other kinds with a
//! scale, and conditions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use tokio::task::JoinSet;

use super::clock::later;
use super::deployment::share;
use super::gc::Collector;
use super::informer::{Change, Informer, Key, controller_of};
use super::pods::{is_active, is_finished, ready_since};
use super::queue::{Again, WorkQueue};
use super::workload::{controller_key, count, uid, wanted, write_status};
use super::{Shared, spawn_watch};

/// How many budgets are worked on at once.
const AT_ONCE: usize = 4;
/// Time between two looks at a budget, each of which counts its pods anew: many pods may change at once.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a pod counts as evicted after the API server has accepted its eviction, if it is not deleted.
const EVICTION_ENDS: Duration = Duration::from_secs(120);

/// The watches of the kinds with replicas.
pub(super) struct Scales {
    pub deployments: Arc<Informer<Deployment>>,
    pub replica_sets: Arc<Informer<ReplicaSet>>,
    pub stateful_sets: Arc<Informer<StatefulSet>>,
}

struct Controller {
    shared: Arc<Shared>,
    budgets: Arc<Informer<PodDisruptionBudget>>,
    scales: Scales,
    looked_at: Looks,
}

/// When each budget was looked at last.
#[derive(Default)]
struct Looks(Mutex<BTreeMap<Key, Timestamp>>);

impl Looks {
    /// Begins a look at a budget; or returns when the next may be, as the last one was a moment ago.
    fn begin(&self, key: &Key, now: Timestamp) -> Option<Timestamp> {
        let mut last = self.lock();
        let next = last.get(key).map(|at| later(*at, PAUSE)).filter(|next| *next > now);
        if next.is_none() {
            last.insert(key.clone(), now);
        }
        next
    }

    /// The next look may be at once.
    fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Spawns the controller and its watch.
pub(super) fn spawn(
    tasks: &mut JoinSet<&'static str>,
    shared: &Arc<Shared>,
    collector: &Arc<Collector>,
    scales: Scales,
) {
    let budgets: Arc<Informer<PodDisruptionBudget>> = Informer::new();
    collector.listen(&budgets);
    let queue: Arc<WorkQueue<Key>> = Arc::new(WorkQueue::new());
    let changed = Arc::clone(&queue);
    budgets.on_change(move |change| changed.add(change.key.clone()));
    let (concerned, known) = (Arc::clone(&queue), Arc::downgrade(&budgets));
    shared.pods.on_change(move |change| {
        if is_same(change) {
            return;
        }
        for budget in known.upgrade().iter().flat_map(|budgets| budgets.list()) {
            let here = budget.metadata.namespace.as_deref() == Some(change.key.ns.as_str());
            let mut pods = [change.old, change.new].into_iter().flatten();
            if here && pods.any(selects(&budget)) {
                concerned.add(Key::of(&budget.metadata));
            }
        }
    });
    spawn_watch(tasks, "watch of disruption budgets", &budgets, &shared.client);
    let controller = Controller {
        shared: Arc::clone(shared),
        budgets,
        scales,
        looked_at: Looks::default(),
    };
    tasks.spawn(async move {
        controller.shared.pods.synced().await;
        controller.budgets.synced().await;
        controller.scales.deployments.synced().await;
        controller.scales.replica_sets.synced().await;
        controller.scales.stateful_sets.synced().await;
        let reconcile = |key| controller.reconcile(key);
        queue.run(&controller.shared.clock, AT_ONCE, reconcile).await;
        "disruption controller"
    });
}

/// Whether nothing about a pod has changed that budgets depend on.
fn is_same(change: &Change<'_, Pod>) -> bool {
    let (Some(old), Some(new)) = (change.old, change.new) else {
        return false;
    };
    let state = |pod: &Pod| {
        let deleting = pod.metadata.deletion_timestamp.is_some();
        (ready_since(pod).is_some(), is_finished(pod), deleting)
    };
    let (before, after) = (&old.metadata, &new.metadata);
    before.uid == after.uid && before.labels == after.labels && state(old) == state(new)
}

/// Tells whether a budget selects a pod of its namespace. One without a selector selects none.
fn selects(budget: &PodDisruptionBudget) -> impl Fn(&Arc<Pod>) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    move |pod| selector.as_ref().is_some_and(|selector| selector.matches(pod.labels()))
}

impl Controller {
    async fn reconcile(&self, key: Key) -> kube::Result<Again> {
        let Some(budget) = self.budgets.get(&key) else {
            self.looked_at.forget(&key);
            return Ok(Again::OnChange);
        };
        let now = self.shared.clock.now();
        if let Some(next) = self.looked_at.begin(&key, now) {
            return Ok(Again::At(next));
        }
        let (status, again) = self.status(&budget, now);
        if budget.status.as_ref() != Some(&status) {
            let told = PodDisruptionBudget {
                status: Some(status),
                ..PodDisruptionBudget::clone(&budget)
            };
            let written = write_status(&self.shared, &self.budgets, &told).await;
            written.inspect_err(|_| self.looked_at.forget(&key))?;
        }
        Ok(again)
    }

    /// The status of a budget, and when it changes by itself.
    fn status(&self, budget: &PodDisruptionBudget, now: Timestamp) -> (PodDisruptionBudgetStatus, Again) {
        let known = budget.status.clone().unwrap_or_default();
        let mut pods = self.shared.pods.list();
        pods.retain(|pod| pod.metadata.namespace == budget.metadata.namespace);
        pods.retain(selects(budget));
        let mut again = Again::OnChange;
        let mut evicted = known.disrupted_pods.clone().unwrap_or_default();
        evicted.retain(|name, since| {
            let end = later(since.0, EVICTION_ENDS);
            let is_to_go = |pod: &Arc<Pod>| pod.name_any() == *name && pod.metadata.deletion_timestamp.is_none();
            let counts = end > now && pods.iter().any(is_to_go);
            if counts {
                again = again.or_at(end);
            }
            counts
        });
        let is_healthy =
            |pod: &&Arc<Pod>| is_active(pod) && ready_since(pod).is_some() && !evicted.contains_key(&pod.name_any());
        let healthy = pods.iter().filter(is_healthy).count();
        let (expected, desired) = self.expected_and_desired(budget, &pods);
        let allowed = if expected == 0 {
            0
        } else {
            healthy.saturating_sub(desired)
        };
        let status = PodDisruptionBudgetStatus {
            current_healthy: count(healthy),
            desired_healthy: count(desired),
            disrupted_pods: Some(evicted).filter(|evicted| !evicted.is_empty()),
            disruptions_allowed: count(allowed),
            expected_pods: count(expected),
            observed_generation: budget.metadata.generation,
            conditions: known.conditions,
        };
        (status, again)
    }

    /// How many pods count, and how many of them are to be healthy.
    fn expected_and_desired(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> (usize, usize) {
        let spec = budget.spec.as_ref();
        let most = spec.and_then(|spec| spec.max_unavailable.as_ref());
        let least = spec.and_then(|spec| spec.min_available.as_ref());
        match (most, least) {
            (Some(most), _) => {
                let expected = self.expected(pods);
                (expected, expected.saturating_sub(share(most, expected, true)))
            }
            (None, Some(IntOrString::Int(least))) => (pods.len(), usize::try_from(*least).unwrap_or(0)),
            (None, Some(least)) => {
                let expected = self.expected(pods);
                (expected, share(least, expected, true))
            }
            (None, None) => (0, 0),
        }
    }

    /// How many pods are to run: the replicas of all controllers of the selected pods, and the pods of other controllers, or of none, that have not ended.
    fn expected(&self, pods: &[Arc<Pod>]) -> usize {
        let (mut replicas, mut others) = (BTreeMap::new(), 0);
        for pod in pods {
            match self.scale(pod) {
                Some((controller, wanted)) => {
                    replicas.insert(controller, wanted);
                }
                None => others += usize::from(!is_finished(pod)),
            }
        }
        others + replicas.values().sum::<usize>()
    }

    /// The uid of the controller with replicas that a pod belongs to, and their number.
    fn scale(&self, pod: &Pod) -> Option<(String, usize)> {
        let owner = controller_of(&pod.metadata)?;
        let key = Key::new(pod.metadata.namespace.as_deref().unwrap_or_default(), &owner.name);
        let (controller, replicas) = match owner.kind.as_str() {
            "ReplicaSet" => {
                let set = self.scales.replica_sets.get(&key)?;
                let deployment = controller_key(&set.metadata, "Deployment");
                match deployment.and_then(|key| self.scales.deployments.get(&key)) {
                    Some(deployment) => {
                        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                        (uid(&deployment.metadata).to_owned(), replicas)
                    }
                    None => (owner.uid.clone(), set.spec.as_ref().and_then(|spec| spec.replicas)),
                }
            }
            "StatefulSet" => {
                let set = self.scales.stateful_sets.get(&key)?;
                (owner.uid.clone(), set.spec.as_ref().and_then(|spec| spec.replicas))
            }
            _ => return None,
        };
        Some((controller, wanted(replicas, 1)))
    }
}

#[cfg(test)]
mod tests;
