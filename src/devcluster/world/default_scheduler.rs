//! A stand-in for kube-scheduler: a pod of the default scheduler goes to any node that fits, one by one.
//!
//! It looks at resources, host ports, node selectors, required node affinity, taints and cordons. Absent: preferences, pod affinity, topology
//! spread, preemption, volumes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::json;
use tokio::task::JoinSet;

use super::Shared;
use super::fit::{self, HostPort};
use super::informer::Key;
use super::node::GPU_RESOURCE;
use super::pods::{is_finished, node_of};
use super::queue::{Again, WorkQueue};
use super::resources::Amounts;

/// The scheduler that pods name when they name none.
const NAME: &str = "default-scheduler";

/// The scheduler's view of the cluster.
#[derive(Default)]
struct View {
    nodes: BTreeMap<String, NodeView>,
    /// Pods that hold resources of a node; also those whose binding is under way.
    placed: HashMap<Key, Placed>,
    /// Pods that did not fit when they were last looked at.
    unschedulable: BTreeSet<Key>,
}

struct Placed {
    node: String,
    held: Held,
}

/// What a pod takes of its node.
struct Held {
    amounts: Amounts,
    ports: Vec<HostPort>,
}

impl Held {
    fn of(pod: &Pod) -> Self {
        Self {
            amounts: Amounts::of_pod(pod),
            ports: fit::host_ports(pod),
        }
    }
}

struct NodeView {
    node: Arc<Node>,
    allocatable: Amounts,
    held: Amounts,
}

struct Scheduler {
    view: Mutex<View>,
    queue: WorkQueue<Key>,
}

/// Spawns the scheduler.
pub(super) fn spawn(tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>) {
    let scheduler = Arc::new(Scheduler {
        view: Mutex::default(),
        queue: WorkQueue::new(),
    });
    let listener = Arc::clone(&scheduler);
    shared.nodes.on_change(move |change| {
        let retry = listener.view().node_changed(&change.key.name, change.new);
        retry.into_iter().for_each(|key| listener.queue.add(key));
    });
    let listener = Arc::clone(&scheduler);
    shared.pods.on_change(move |change| {
        let retry = listener.view().pod_changed(change.key, change.new.map(Arc::as_ref));
        retry.into_iter().for_each(|key| listener.queue.add(key));
        if change.new.is_some_and(|pod| is_ours(pod)) {
            listener.queue.add(change.key.clone());
        }
    });
    let shared = Arc::clone(shared);
    tasks.spawn(async move {
        shared.nodes.synced().await;
        shared.pods.synced().await;
        scheduler
            .queue
            .run(&shared.clock, 16, |key| scheduler.schedule(&shared, key))
            .await;
        "default scheduler"
    });
}

/// Whether the pod waits for the default scheduler.
fn is_ours(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.scheduler_name.as_deref().unwrap_or(NAME) == NAME
        && node_of(pod).is_none()
        && spec.scheduling_gates.iter().flatten().next().is_none()
        && pod.metadata.deletion_timestamp.is_none()
        && !is_finished(pod)
}

impl Scheduler {
    async fn schedule(&self, shared: &Shared, key: Key) -> kube::Result<Again> {
        let Some(pod) = shared.pods.get(&key).filter(|pod| is_ours(pod)) else {
            return Ok(Again::OnChange);
        };
        let placed = self.view().place(&key, &pod);
        let outcome = match placed {
            Ok(node) => {
                let bound = bind(shared, &key, &pod, &node).await;
                if bound.is_err() {
                    self.view().release(&key);
                }
                bound
            }
            Err(message) => mark_unschedulable(shared, &key, &pod, &message).await,
        };
        match outcome {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Again::OnChange),
            outcome => outcome.map(|()| Again::OnChange),
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn bind(shared: &Shared, key: &Key, pod: &Pod, node: &str) -> kube::Result<()> {
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            uid: pod.metadata.uid.clone(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let pods: Api<Pod> = Api::namespaced(shared.client.clone(), &key.ns);
    pods.create_subresource::<_, Status>("binding", &key.name, &PostParams::default(), &binding)
        .await
        .map(drop)
}

/// Writes why the pod does not fit, unless it says so already.
async fn mark_unschedulable(shared: &Shared, key: &Key, pod: &Pod, message: &str) -> kube::Result<()> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let known = conditions
        .into_iter()
        .find(|condition| condition.type_ == "PodScheduled");
    if known.is_some_and(|condition| condition.status == "False" && condition.message.as_deref() == Some(message)) {
        return Ok(());
    }
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastProbeTime": null, "lastTransitionTime": Time(shared.clock.now()),
    });
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
    let pods: Api<Pod> = Api::namespaced(shared.client.clone(), &key.ns);
    pods.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .map(drop)
}

impl View {
    /// Adds or updates a node; returns the pods that may fit because of it.
    fn node_changed(&mut self, name: &str, node: Option<&Arc<Node>>) -> Vec<Key> {
        let Some(node) = node else {
            self.nodes.remove(name);
            return Vec::new();
        };
        let offered = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = Amounts::from_quantities(offered.into_iter().flatten());
        match self.nodes.get_mut(name) {
            Some(known) => (known.node, known.allocatable) = (Arc::clone(node), allocatable),
            None => {
                let mut held = Amounts::default();
                self.placed
                    .values()
                    .filter(|placed| placed.node == name)
                    .for_each(|placed| held.add(&placed.held.amounts));
                self.nodes.insert(
                    name.to_owned(),
                    NodeView {
                        node: Arc::clone(node),
                        allocatable,
                        held,
                    },
                );
            }
        }
        self.unschedulable.iter().cloned().collect()
    }

    /// Adds or updates a pod; returns the pods that may fit because of resources that it freed.
    fn pod_changed(&mut self, key: &Key, pod: Option<&Pod>) -> Vec<Key> {
        let holds = pod
            .filter(|pod| !is_finished(pod))
            .and_then(|pod| Some((pod, node_of(pod)?)));
        match holds {
            Some((pod, node)) => {
                self.unschedulable.remove(key);
                if self.placed.get(key).is_none_or(|placed| placed.node != node) {
                    self.hold(key, node, Held::of(pod));
                }
                Vec::new()
            }
            None if pod.is_some_and(is_ours) => Vec::new(),
            None => {
                self.unschedulable.remove(key);
                if self.release(key) {
                    self.unschedulable.iter().cloned().collect()
                } else {
                    Vec::new()
                }
            }
        }
    }

    /// Chooses a node and takes its resources, or returns why there is none.
    fn place(&mut self, key: &Key, pod: &Pod) -> Result<String, String> {
        self.release(key);
        let asked = Held::of(pod);
        let mut obstacles: BTreeMap<String, usize> = BTreeMap::new();
        let mut fitting = Vec::new();
        for (name, view) in &self.nodes {
            match view
                .obstacle(pod, &asked.amounts)
                .or_else(|| self.ports_taken(name, &asked.ports))
            {
                None => fitting.push((view.preference(&asked.amounts), Reverse(name))),
                Some(obstacle) => *obstacles.entry(obstacle).or_default() += 1,
            }
        }
        let Some((_, Reverse(name))) = fitting.into_iter().max() else {
            self.unschedulable.insert(key.clone());
            return Err(explain(self.nodes.len(), &obstacles));
        };
        let name = name.clone();
        self.unschedulable.remove(key);
        self.hold(key, &name, asked);
        Ok(name)
    }

    /// The obstacle that a pod on the node uses one of these host ports.
    fn ports_taken(&self, node: &str, ports: &[HostPort]) -> Option<String> {
        let mut others = self.placed.values().filter(|placed| placed.node == node);
        let taken = !ports.is_empty() && others.any(|placed| fit::clash(ports, &placed.held.ports));
        taken.then(|| "node(s) didn't have free ports for the requested pod ports".to_owned())
    }

    fn hold(&mut self, key: &Key, node: &str, held: Held) {
        self.release(key);
        if let Some(view) = self.nodes.get_mut(node) {
            view.held.add(&held.amounts);
        }
        let node = node.to_owned();
        self.placed.insert(key.clone(), Placed { node, held });
    }

    fn release(&mut self, key: &Key) -> bool {
        let Some(Placed { node, held }) = self.placed.remove(key) else {
            return false;
        };
        if let Some(view) = self.nodes.get_mut(&node) {
            view.held.subtract(&held.amounts);
        }
        true
    }
}

impl NodeView {
    /// Why the pod cannot run here, in kube-scheduler's words.
    fn obstacle(&self, pod: &Pod, asked: &Amounts) -> Option<String> {
        let cordoned = self.node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        if cordoned {
            return Some("node(s) were unschedulable".to_owned());
        }
        if !fit::tolerates(pod, &self.node) {
            return Some("node(s) had untolerated taint(s)".to_owned());
        }
        if !fit::selects(pod, &self.node) {
            return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
        }
        let mut short = asked
            .iter()
            .filter(|(name, amount)| *amount > 0 && self.free(name) < *amount);
        short.next().map(|(name, _)| {
            if name == "pods" {
                "Too many pods".to_owned()
            } else {
                format!("Insufficient {name}")
            }
        })
    }

    /// Pods without GPUs avoid GPU nodes if possible; then the node with most free CPU.
    fn preference(&self, asked: &Amounts) -> (bool, i64) {
        let keeps_off = asked.get(GPU_RESOURCE) == 0 && self.allocatable.get(GPU_RESOURCE) > 0;
        (!keeps_off, self.free("cpu"))
    }

    fn free(&self, resource: &str) -> i64 {
        self.allocatable.get(resource) - self.held.get(resource)
    }
}

fn explain(nodes: usize, obstacles: &BTreeMap<String, usize>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let parts: Vec<String> = obstacles
        .iter()
        .map(|(obstacle, count)| format!("{count} {obstacle}"))
        .collect();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests;
