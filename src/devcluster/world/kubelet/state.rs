//! The kubelets of all simulated nodes as one synchronous state machine: changes and time go in, pods to write come out.
//!
//! A node admits pods in the order of their events and refuses those that do not fit, as a real kubelet does: that makes a
//! scheduler's over-commitment visible. A pod holds its resources until its containers have ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, PodStatus};
use serde_json::Value;

use super::devices::{self, Checkpoint, Devices};
use super::lifetime::{Lifetime, Outcome};
use super::status::{Report, Shown};
use crate::devcluster::world::Timings;
use crate::devcluster::world::clock::later;
use crate::devcluster::world::fit;
use crate::devcluster::world::informer::Key;
use crate::devcluster::world::node::{GPU_RESOURCE, NodeSpec, host_ip};
use crate::devcluster::world::pods::{is_finished, node_of, phase};
use crate::devcluster::world::resources::Amounts;

/// Whether a ConfigMap exists.
pub(super) type ConfigMapExists = Box<dyn Fn(&Key) -> bool + Send + Sync>;

/// The ConfigMap with the cluster's CA, which every pod mounts and a bare API server does not have.
const ROOT_CA: &str = "kube-root-ca.crt";

/// All kubelets.
pub(super) struct Kubelets {
    timings: Timings,
    config_map_exists: ConfigMapExists,
    nodes: BTreeMap<String, NodeState>,
    /// What kubelets that ended have left, by node.
    checkpoints: BTreeMap<String, Checkpoint>,
    pods: HashMap<Key, PodRun>,
    timers: BTreeSet<(Timestamp, Key)>,
    /// ConfigMap → pods that wait for it.
    awaiting: HashMap<Key, BTreeSet<Key>>,
    unwritten: Vec<Key>,
    refusals: Refusals,
}

/// How many pods were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refusals {
    pub all: u64,
    pub gpu: u64,
}

/// A request to the API server.
#[derive(Debug)]
pub(super) struct PodWrite {
    pub uid: String,
    pub status: Option<Value>,
    /// The GPU that the pod reserves.
    pub reserved: Option<Reserved>,
    pub delete: bool,
}

/// What the container of a reservation pod writes into its pod's annotations.
#[derive(Debug)]
pub(super) struct Reserved {
    /// The GPU's UUID.
    pub device: String,
    /// The pod's service account: whose token the container has.
    pub account: String,
}

struct NodeState {
    object: Node,
    capacity: Amounts,
    held: Amounts,
    devices: Devices,
    index: usize,
    addresses_given: usize,
}

struct PodRun {
    pod: Arc<Pod>,
    node: String,
    life: Lifetime,
    held: Option<Amounts>,
    /// The UUIDs of its GPUs.
    devices: Vec<String>,
    stage: Stage,
    /// When the stage ends by itself.
    stage_ends: Option<Timestamp>,
    /// When the containers are killed, once the pod is being deleted.
    killed_at: Option<Timestamp>,
    timer: Option<Timestamp>,
    started: Timestamp,
    restarts: u32,
    host_ip: String,
    pod_ip: String,
    unwritten: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The containers are being created.
    Starting,
    Shown(Shown),
    /// The containers have ended and the pod is to be deleted; its final state, if a finalizer keeps it.
    Gone(Shown),
}

impl Kubelets {
    pub fn new(timings: Timings, config_map_exists: ConfigMapExists) -> Self {
        Self {
            timings,
            config_map_exists,
            nodes: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            pods: HashMap::new(),
            timers: BTreeSet::new(),
            awaiting: HashMap::new(),
            unwritten: Vec::new(),
            refusals: Refusals::default(),
        }
    }

    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Whether this node has a live kubelet.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// Starts the kubelet of a node that is registered as `object`, with the pods that it already has.
    pub fn start(&mut self, spec: &NodeSpec, object: Node, index: usize, mut pods: Vec<Arc<Pod>>, now: Timestamp) {
        self.stop(&spec.name);
        let before = self.checkpoints.remove(&spec.name).unwrap_or_default();
        let state = NodeState {
            object,
            capacity: Amounts::from_quantities(&spec.allocatable()),
            held: Amounts::default(),
            devices: Devices::of(spec, before),
            index,
            addresses_given: 0,
        };
        // Running pods were admitted before pending ones; those that have their GPUs come before those that get any.
        pods.sort_by_key(|pod| {
            (
                phase(pod) != "Running",
                !state.devices.knows(pod),
                pod.metadata.creation_timestamp.clone(),
                Key::of(&pod.metadata),
            )
        });
        self.nodes.insert(spec.name.clone(), state);
        for pod in pods {
            self.pod_changed(&Key::of(&pod.metadata), Some(&pod), now);
        }
    }

    /// Ends the kubelet of a node; its pods are left as they are.
    pub fn stop(&mut self, node: &str) {
        let (mut of_node, mut left) = (Vec::new(), Checkpoint::new());
        for (key, run) in self.pods.iter().filter(|(_, run)| run.node == node) {
            of_node.push(key.clone());
            if let Some(uid) = run.pod.metadata.uid.clone().filter(|_| !run.devices.is_empty()) {
                left.insert(uid, run.devices.clone());
            }
        }
        if self.nodes.contains_key(node) {
            self.checkpoints.insert(node.to_owned(), left);
        }
        for key in of_node {
            self.remove(&key);
        }
        self.nodes.remove(node);
    }

    /// Records new labels.
    pub fn node_changed(&mut self, node: &Node) {
        if let Some(state) = node.metadata.name.as_ref().and_then(|name| self.nodes.get_mut(name)) {
            state.object = node.clone();
        }
    }

    pub fn pod_changed(&mut self, key: &Key, pod: Option<&Arc<Pod>>, now: Timestamp) {
        let bound = pod
            .and_then(|pod| Some((pod, node_of(pod)?)))
            .filter(|(_, node)| self.nodes.contains_key(*node));
        let Some((pod, node)) = bound else {
            self.remove(key);
            return;
        };
        if self
            .pods
            .get(key)
            .is_some_and(|run| run.pod.metadata.uid != pod.metadata.uid)
        {
            self.remove(key);
        }
        match self.pods.get_mut(key) {
            Some(run) => run.pod = Arc::clone(pod),
            None => self.take(key, pod, node, now),
        }
        self.heed_others(key, now);
    }

    pub fn config_map_changed(&mut self, config_map: &Key, now: Timestamp) {
        for pod in self.awaiting.remove(config_map).into_iter().flatten() {
            self.begin(&pod, now);
        }
    }

    /// The next instant at which [`Kubelets::tick`] has something to do.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Carries on all pods whose time has come.
    pub fn tick(&mut self, now: Timestamp) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            let Some((at, key)) = self.timers.pop_first() else {
                return;
            };
            if let Some(run) = self.pods.get_mut(&key) {
                run.timer = None;
                // Time may have advanced by much at once, so pods are handled in the order in which they were due.
                self.carry_on(&key, at);
            }
        }
    }

    /// The pods that have something to write since the last call.
    pub fn take_unwritten(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.unwritten)
    }

    /// What to write about a pod, if anything.
    pub fn take_write(&mut self, key: &Key, now: Timestamp) -> Option<PodWrite> {
        let run = self.pods.get_mut(key)?;
        if !std::mem::take(&mut run.unwritten) {
            return None;
        }
        let uid = run.pod.metadata.uid.clone().unwrap_or_default();
        match &run.stage {
            Stage::Starting => None,
            Stage::Shown(shown) => Some(PodWrite {
                uid,
                status: Some(run.report(shown, now)),
                reserved: run.reserved(shown).map(|device| Reserved {
                    device: device.to_owned(),
                    account: run.account(),
                }),
                delete: false,
            }),
            Stage::Gone(last) => {
                // Finalizers keep the pod after the deletion; then it must be seen to have ended.
                let stays = run
                    .pod
                    .metadata
                    .finalizers
                    .as_ref()
                    .is_some_and(|finalizers| !finalizers.is_empty());
                let status = (stays && !is_finished(&run.pod)).then(|| run.report(last, now));
                Some(PodWrite {
                    uid,
                    status,
                    reserved: None,
                    delete: true,
                })
            }
        }
    }

    /// A write has failed and is to be made again.
    pub fn write_failed(&mut self, key: &Key, uid: &str) {
        if let Some(run) = self.pods.get_mut(key)
            && run.pod.metadata.uid.as_deref() == Some(uid)
        {
            run.unwritten = true;
        }
    }

    /// Admits a pod that is new on its node, or from before the world was started.
    fn take(&mut self, key: &Key, pod: &Arc<Pod>, node: &str, now: Timestamp) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        let known = pod.status.as_ref();
        state.addresses_given += 1;
        let default_run = self.timings.run_to_completion;
        let mut run = PodRun {
            pod: Arc::clone(pod),
            node: node.to_owned(),
            life: Lifetime::of(pod, default_run),
            held: None,
            devices: Vec::new(),
            stage: Stage::Starting,
            stage_ends: None,
            killed_at: None,
            timer: None,
            started: known
                .and_then(|status| status.start_time.as_ref())
                .map_or(now, |time| time.0),
            restarts: known.map_or(0, restarts),
            host_ip: host_ip(state.index),
            pod_ip: known
                .and_then(|status| status.pod_ip.clone())
                .unwrap_or_else(|| state.pod_ip()),
            unwritten: false,
        };
        match phase(pod) {
            "Succeeded" | "Failed" => run.stage = Stage::Shown(Shown::Ended { at: now }),
            "Running" => {
                let since = run.started;
                run.hold(state);
                run.stage = Stage::Shown(Shown::Running { since });
                run.stage_ends = run.fate_at(since);
                self.pods.insert(key.clone(), run);
                self.set_timer(key);
                return;
            }
            _ if pod.metadata.deletion_timestamp.is_some() => {}
            _ => match refusal(pod, state, ports_taken(&self.pods, pod, node)) {
                Some(refusal) => {
                    self.refusals.all += 1;
                    self.refusals.gpu += u64::from(refusal.of_gpu);
                    tracing::warn!(%key, node, message = refusal.message, "kubelet refuses a pod");
                    run.stage = Stage::Shown(Shown::Refused {
                        reason: refusal.reason,
                        message: refusal.message,
                    });
                    run.unwritten = true;
                    self.unwritten.push(key.clone());
                }
                None => {
                    run.hold(state);
                    self.pods.insert(key.clone(), run);
                    self.begin(key, now);
                    return;
                }
            },
        }
        self.pods.insert(key.clone(), run);
    }

    /// Creates the containers, or waits for the ConfigMaps that they need.
    fn begin(&mut self, key: &Key, now: Timestamp) {
        let Some(run) = self.pods.get_mut(key) else { return };
        let missing = needed_config_maps(&run.pod)
            .into_iter()
            .find(|(needed, _)| needed.name != ROOT_CA && !(self.config_map_exists)(needed));
        match missing {
            Some((config_map, from_env)) => {
                let message = format!("configmap {:?} not found", config_map.name);
                let reason = if from_env {
                    "CreateContainerConfigError"
                } else {
                    "ContainerCreating"
                };
                run.stage = Stage::Shown(Shown::Waiting {
                    reason,
                    message: if from_env { message } else { String::new() },
                });
                self.awaiting.entry(config_map).or_default().insert(key.clone());
                self.mark_unwritten(key);
            }
            None => {
                run.stage = Stage::Starting;
                let delay = self.timings.pod_start.saturating_add(run.life.init);
                run.stage_ends = Some(later(now, delay));
                if delay.is_zero() {
                    self.carry_on(key, now);
                } else {
                    self.set_timer(key);
                }
            }
        }
    }

    /// Applies changes by other clients to a known pod: its end, or its deletion.
    fn heed_others(&mut self, key: &Key, now: Timestamp) {
        let Some(run) = self.pods.get_mut(key) else { return };
        if is_finished(&run.pod) && run.held.is_some() {
            run.stage = Stage::Shown(Shown::Ended { at: now });
            run.stage_ends = None;
            self.release(key);
        }
        let Some(run) = self.pods.get_mut(key) else { return };
        if run.pod.metadata.deletion_timestamp.is_none() || matches!(run.stage, Stage::Gone(_)) {
            return;
        }
        let seconds = run
            .pod
            .metadata
            .deletion_grace_period_seconds
            .and_then(|grace| u64::try_from(grace).ok());
        let grace = Duration::from_secs(seconds.unwrap_or(0));
        let lives = matches!(
            run.stage,
            Stage::Shown(Shown::Running { .. } | Shown::BackingOff { .. })
        );
        let wait = match (lives, run.life.ignores_sigterm) {
            (false, _) => Duration::ZERO,
            (true, true) => grace,
            (true, false) => grace.min(self.timings.termination),
        };
        let at = later(now, wait);
        run.killed_at = Some(run.killed_at.map_or(at, |known| known.min(at)));
        if wait.is_zero() {
            self.carry_on(key, now);
        } else {
            self.set_timer(key);
        }
    }

    /// Does what is due for a pod at `now`.
    fn carry_on(&mut self, key: &Key, now: Timestamp) {
        let Some(run) = self.pods.get_mut(key) else { return };
        if run.stage_ends.is_some_and(|at| at <= now) {
            run.stage_ends = None;
            run.next_stage(&self.timings, now);
            if run.has_ended() {
                self.release(key);
            }
            self.mark_unwritten(key);
        }
        let Some(run) = self.pods.get_mut(key) else { return };
        if run.killed_at.is_some_and(|at| at <= now || run.has_ended()) && !matches!(run.stage, Stage::Gone(_)) {
            run.stage = Stage::Gone(match &run.stage {
                Stage::Shown(ended) if run.has_ended() => ended.clone(),
                Stage::Starting | Stage::Shown(_) | Stage::Gone(_) => Shown::Killed { at: now },
            });
            run.stage_ends = None;
            self.release(key);
            self.mark_unwritten(key);
        }
        self.set_timer(key);
    }

    fn set_timer(&mut self, key: &Key) {
        let Some(run) = self.pods.get_mut(key) else { return };
        let gone = matches!(run.stage, Stage::Gone(_));
        let next = [run.stage_ends, run.killed_at.filter(|_| !gone)]
            .into_iter()
            .flatten()
            .min();
        if run.timer == next {
            return;
        }
        if let Some(old) = std::mem::replace(&mut run.timer, next) {
            self.timers.remove(&(old, key.clone()));
        }
        if let Some(at) = next {
            self.timers.insert((at, key.clone()));
        }
    }

    fn mark_unwritten(&mut self, key: &Key) {
        if let Some(run) = self.pods.get_mut(key) {
            run.unwritten = true;
            self.unwritten.push(key.clone());
        }
    }

    fn release(&mut self, key: &Key) {
        if let Some(run) = self.pods.get_mut(key)
            && let Some(held) = run.held.take()
            && let Some(node) = self.nodes.get_mut(&run.node)
        {
            node.held.subtract(&held);
            node.devices.give_back(&mut run.devices);
        }
    }

    fn remove(&mut self, key: &Key) {
        self.release(key);
        let Some(run) = self.pods.remove(key) else { return };
        if let Some(at) = run.timer {
            self.timers.remove(&(at, key.clone()));
        }
        for (config_map, _) in needed_config_maps(&run.pod) {
            if let Some(waiting) = self.awaiting.get_mut(&config_map) {
                waiting.remove(key);
            }
        }
    }
}

impl NodeState {
    fn pod_ip(&self) -> String {
        let index = self.index;
        format!(
            "10.{}.{}.{}",
            64 + index / 256 % 128,
            index % 256,
            self.addresses_given % 253 + 1
        )
    }
}

impl PodRun {
    fn hold(&mut self, node: &mut NodeState) {
        let held = Amounts::of_pod(&self.pod);
        node.held.add(&held);
        self.devices = node.devices.take(&self.pod, held.get(GPU_RESOURCE) / 1000);
        self.held = Some(held);
    }

    /// The pod's service account.
    fn account(&self) -> String {
        let account = self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.clone());
        account.unwrap_or_else(|| "default".to_owned())
    }

    /// The GPU that a running reservation pod has not yet written down.
    fn reserved(&self, shown: &Shown) -> Option<&str> {
        let told = devices::reserved(&self.pod).is_some();
        (matches!(shown, Shown::Running { .. }) && !told && devices::is_reservation(&self.pod))
            .then(|| self.devices.first().map(String::as_str))?
    }

    /// Whether the pod has ended.
    fn has_ended(&self) -> bool {
        match &self.stage {
            Stage::Starting | Stage::Gone(_) => false,
            Stage::Shown(shown) => match shown {
                Shown::Refused { .. }
                | Shown::InitFailedForGood { .. }
                | Shown::Ended { .. }
                | Shown::Killed { .. } => true,
                Shown::Waiting { .. } | Shown::Running { .. } | Shown::BackingOff { .. } | Shown::InitFailed { .. } => {
                    false
                }
            },
        }
    }

    /// When containers that run since `since` come to their end.
    fn fate_at(&self, since: Timestamp) -> Option<Timestamp> {
        match self.life.outcome {
            Outcome::RunsOn => None,
            Outcome::Ends(after) | Outcome::Restarts(after) => Some(later(since, after)),
        }
    }

    /// Moves on to what follows a stage that has come to its end.
    fn next_stage(&mut self, timings: &Timings, now: Timestamp) {
        let next = match (&self.stage, self.life.init_failure) {
            (Stage::Starting, Some(code)) if self.life.never_restarts => Shown::InitFailedForGood { code, at: now },
            (Stage::Starting, Some(code)) => Shown::InitFailed { code, at: now },
            (Stage::Starting, None) | (Stage::Shown(Shown::BackingOff { .. }), _) => {
                self.stage_ends = self.fate_at(now);
                Shown::Running { since: now }
            }
            (Stage::Shown(Shown::Running { .. }), _) if matches!(self.life.outcome, Outcome::Restarts(_)) => {
                let factor = 2_u32.saturating_pow(self.restarts).min(30);
                self.restarts += 1;
                self.stage_ends = Some(later(now, timings.restart_backoff.saturating_mul(factor)));
                Shown::BackingOff { ended: now }
            }
            (Stage::Shown(_), _) => Shown::Ended { at: now },
            (Stage::Gone(_), _) => return,
        };
        self.stage = Stage::Shown(next);
    }

    fn report(&self, shown: &Shown, now: Timestamp) -> Value {
        let report = Report {
            pod: &self.pod,
            life: &self.life,
            shown,
            started: self.started,
            restarts: self.restarts,
            host_ip: &self.host_ip,
            pod_ip: &self.pod_ip,
        };
        report.patch(now)
    }
}

struct Refusal {
    reason: String,
    message: String,
    of_gpu: bool,
}

impl Refusal {
    fn new(reason: impl Into<String>, message: &str, of_gpu: bool) -> Self {
        Self {
            reason: reason.into(),
            message: format!("Pod was rejected: {message}"),
            of_gpu,
        }
    }
}

/// Whether a pod that holds resources of the node uses a host port that this pod asks for.
fn ports_taken(pods: &HashMap<Key, PodRun>, pod: &Pod, node: &str) -> bool {
    let wanted = fit::host_ports(pod);
    let holds = |run: &&PodRun| run.node == node && run.held.is_some();
    !wanted.is_empty()
        && pods
            .values()
            .filter(holds)
            .any(|run| fit::clash(&wanted, &fit::host_ports(&run.pod)))
}

/// Why a kubelet refuses a pod, in a real kubelet's words.
fn refusal(pod: &Pod, node: &NodeState, ports_taken: bool) -> Option<Refusal> {
    if !fit::selects(pod, &node.object) {
        let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        return Some(Refusal::new("NodeAffinity", message, false));
    }
    let ports = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    lacking(pod, node).or_else(|| ports_taken.then(|| Refusal::new("NodePorts", ports, false)))
}

/// The refusal for want of a resource.
fn lacking(pod: &Pod, node: &NodeState) -> Option<Refusal> {
    let asked = Amounts::of_pod(pod);
    let (name, amount) = asked
        .iter()
        .filter(|(name, _)| !comes_by_claim(pod, name))
        .find(|(name, amount)| *amount > 0 && node.held.get(name) + amount > node.capacity.get(name))?;
    let (used, capacity) = (node.held.get(name), node.capacity.get(name));
    // All resources with a domain are those of device plugins.
    if name.contains('/') {
        let message = format!(
            "Allocate failed due to requested number of devices unavailable for {name}. Requested: {}, Available: {}, which is unexpected",
            amount / 1000,
            (capacity - used).max(0) / 1000,
        );
        let of_gpu = name.starts_with("nvidia.com/");
        return Some(Refusal::new("UnexpectedAdmissionError", &message, of_gpu));
    }
    let unit = if name == "cpu" { 1 } else { 1000 };
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
        amount / unit,
        used / unit,
        capacity / unit,
    );
    Some(Refusal::new(format!("OutOf{name}"), &message, false))
}

/// A claim created for the pod provides the resource: the node need not have any.
fn comes_by_claim(pod: &Pod, resource: &str) -> bool {
    let claim = pod
        .status
        .as_ref()
        .and_then(|status| status.extended_resource_claim_status.as_ref());
    let mut mappings = claim.iter().flat_map(|claim| &claim.request_mappings);
    mappings.any(|mapping| mapping.resource_name == resource)
}

/// The ConfigMaps without which the containers cannot be created; `true` for those that an environment variable needs.
fn needed_config_maps(pod: &Pod) -> Vec<(Key, bool)> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let ns = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mounted = mounted_config_maps(spec).map(|name| (Key::new(ns, name), false));
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let named = containers.flat_map(|container| {
        let whole = container
            .env_from
            .iter()
            .flatten()
            .filter_map(|source| source.config_map_ref.as_ref());
        let whole = whole
            .filter(|source| source.optional != Some(true))
            .map(|source| source.name.as_str());
        let values = container
            .env
            .iter()
            .flatten()
            .filter_map(|env| env.value_from.as_ref()?.config_map_key_ref.as_ref());
        let values = values
            .filter(|source| source.optional != Some(true))
            .map(|source| source.name.as_str());
        whole.chain(values)
    });
    mounted.chain(named.map(|name| (Key::new(ns, name), true))).collect()
}

fn mounted_config_maps(spec: &PodSpec) -> impl Iterator<Item = &str> {
    spec.volumes.iter().flatten().flat_map(|volume| {
        let whole = volume
            .config_map
            .iter()
            .filter(|source| source.optional != Some(true))
            .map(|source| source.name.as_str());
        let projected = volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten());
        let parts = projected.filter_map(|source| source.config_map.as_ref());
        whole.chain(
            parts
                .filter(|source| source.optional != Some(true))
                .map(|source| source.name.as_str()),
        )
    })
}

fn restarts(status: &PodStatus) -> u32 {
    let counts = status
        .container_statuses
        .iter()
        .flatten()
        .filter_map(|status| u32::try_from(status.restart_count).ok());
    counts.max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
