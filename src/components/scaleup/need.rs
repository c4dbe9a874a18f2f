//! The number of missing GPUs, and the scaling pods for them. Pure.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Affinity, Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use tokio::time::Instant;

use super::{RETRY, Settings};
use crate::api::gpu_request::{self, GpuShare, Part, WHOLE};
use crate::api::names::{condition, label, reason, resource};
use crate::api::quantity::{Amount, Format};
use crate::components::pods::{self, Account};
use crate::components::watches::Key;
use crate::mirror::affinity::terms_mut;

/// Annotation of a scaling pod: the pod that it stands for, as `namespace/name`, as labels hold no long names.
const FOR_POD: &str = "unikai.dev/for-pod";

/// A pod with GPU portions and without a node.
#[derive(Clone, Debug)]
pub struct Waiting {
    pod: Arc<Pod>,
    /// Hundredths of each device.
    hundredths: i64,
    devices: i64,
    /// The scheduler reported that there is no place; until then an existing scaling pod for it stays.
    unschedulable: bool,
    /// How often its scaling pod was refused, and until when it is not tried again.
    refusals: u32,
    held_until: Option<Instant>,
}

/// A scaling pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaling {
    uid: String,
    pod: Key,
    gpus: i64,
    finished: bool,
    /// It is being deleted, which may take long: its node may be gone.
    leaves: bool,
}

impl Scaling {
    /// The pod that it is for.
    #[must_use]
    pub fn pod(&self) -> &Key {
        &self.pod
    }

    /// A scaling pod that was just created.
    #[must_use]
    pub fn new(pod: Key, gpus: i64) -> Self {
        Self {
            uid: String::new(),
            pod,
            gpus,
            finished: false,
            leaves: false,
        }
    }
}

/// Changes to make.
#[derive(Debug, Default)]
pub struct Plan {
    /// Scaling pods to delete: name and uid.
    pub take_away: Vec<(String, String)>,
    /// Scaling pods to create: for which pod, and with how many GPUs.
    pub make: Vec<(WaitingPod, i64)>,
}

impl Plan {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.take_away.is_empty() && self.make.is_empty()
    }
}

/// A pod that gets a scaling pod.
#[derive(Clone, Debug)]
pub struct WaitingPod(Arc<Pod>);

impl WaitingPod {
    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::of(&self.0.metadata)
    }
}

/// Waiting pods and scaling pods.
#[derive(Debug)]
pub struct Need {
    memory_hundredths: i64,
    waiting: BTreeMap<Key, Waiting>,
    scaling: BTreeMap<String, Scaling>,
}

/// What pods of a namespace lack, and what scaling pods request for them.
///
/// Whole GPUs are computed for each namespace, so that an excessive request in one does not affect the others. The hundredths beyond them are
/// added up over all namespaces, so that small portions in many namespaces get one GPU together. Those of a namespace where a pod requests several
/// devices, or selects nodes, are left out: perhaps there is no such node, and other namespaces would wait for it.
#[derive(Debug, Default)]
struct GpuShortage {
    /// Hundredths of GPUs that the pods lack.
    hundredths: i64,
    /// The most devices that one of the pods lacks.
    devices: i64,
    /// One of the pods selects nodes.
    selects: bool,
    /// GPUs that scaling pods request: the sum, and the most of one.
    total: i64,
    most: i64,
}

impl GpuShortage {
    fn request(&mut self, gpus: i64) {
        self.total = self.total.saturating_add(gpus);
        self.most = self.most.max(gpus);
    }

    /// Whole GPUs that the pods lack.
    fn whole(&self) -> i64 {
        self.hundredths / 100
    }

    /// Hundredths beyond these.
    fn rest(&self) -> i64 {
        self.hundredths % 100
    }

    /// Whether the rest is added to that of other namespaces.
    fn is_shared(&self) -> bool {
        !self.selects && self.devices.max(self.most) <= 1
    }

    /// Whether a GPU is requested beyond the whole ones, which pods of other namespaces can use.
    fn spares_one(&self) -> bool {
        self.is_shared() && self.total > self.whole()
    }
}

impl Need {
    /// Empty. A pod that requests GPU memory counts as so many hundredths of a GPU.
    #[must_use]
    pub fn new(memory_hundredths: i64) -> Self {
        Self {
            memory_hundredths,
            waiting: BTreeMap::new(),
            scaling: BTreeMap::new(),
        }
    }

    /// A pod of ours was created or changed. Returns whether the need may change.
    pub fn pod(&mut self, pod: &Arc<Pod>) -> bool {
        let key = Key::of(&pod.metadata);
        match self.read(pod) {
            Some(mut waiting) => {
                let mut known = false;
                if let Some(before) = self.waiting.get(&key) {
                    known = (before.hundredths, before.devices, before.unschedulable)
                        == (waiting.hundredths, waiting.devices, waiting.unschedulable);
                    (waiting.refusals, waiting.held_until) = (before.refusals, before.held_until);
                }
                self.waiting.insert(key, waiting);
                !known
            }
            None => self.waiting.remove(&key).is_some(),
        }
    }

    /// A pod was deleted. Returns whether the need may change.
    pub fn pod_gone(&mut self, key: &Key) -> bool {
        self.waiting.remove(key).is_some()
    }

    /// The scaling pod for a pod was refused: others are created in its place, until it is tried again.
    pub fn refused(&mut self, key: &Key, now: Instant) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.refusals = waiting.refusals.saturating_add(1);
            waiting.held_until = Some(now + RETRY.wait(waiting.refusals));
        }
    }

    /// The scaling pod for a pod was created.
    pub fn accepted(&mut self, key: &Key) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            (waiting.refusals, waiting.held_until) = (0, None);
        }
    }

    /// Whether the scaling pod of a waiting pod was refused.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.refusals > 0)
    }

    /// When the next scaling pod that was refused is tried again.
    #[must_use]
    pub fn next_attempt(&self, now: Instant) -> Option<Instant> {
        let held = self.waiting.values().filter_map(|waiting| waiting.held_until);
        held.filter(|until| *until > now).min()
    }

    /// A scaling pod was created or changed. Returns whether the need may change.
    pub fn scaling(&mut self, pod: &Pod) -> bool {
        let Some(scaling) = read_scaling(pod) else { return false };
        let before = self.scaling.insert(pod.name_any(), scaling.clone());
        before != Some(scaling)
    }

    /// A scaling pod was deleted. Returns whether the need may change.
    pub fn scaling_gone(&mut self, pod: &Pod) -> bool {
        self.scaling.remove(&pod.name_any()).is_some()
    }

    fn read(&self, pod: &Arc<Pod>) -> Option<Waiting> {
        if pods::is_bound(pod) || pods::is_finished(pod) || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let GpuShare { part, devices } = gpu_request::share(pod.metadata.annotations.as_ref())?;
        let hundredths = match part {
            Part::Fraction(billionths) => (billionths + WHOLE / 200) / (WHOLE / 100),
            Part::Memory(_) => self.memory_hundredths,
        };
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
        let told = conditions
            .unwrap_or_default()
            .iter()
            .find(|told| told.type_ == condition::POD_SCHEDULED);
        let refused = told.map(|told| told.status == "False" && told.reason.as_deref() == Some(reason::UNSCHEDULABLE));
        Some(Waiting {
            pod: Arc::clone(pod),
            hundredths: hundredths.max(1),
            devices,
            unschedulable: refused.unwrap_or(false),
            refusals: 0,
            held_until: None,
        })
        .filter(|_| refused != Some(false))
    }

    /// Whether a scaling pod of that name exists.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        self.scaling.contains_key(name)
    }

    /// The changes to make; `made` are scaling pods that the watch does not show yet.
    pub fn plan<'a>(&'a self, made: impl Iterator<Item = &'a Scaling>, now: Instant) -> Plan {
        let stays = |scaling: &Scaling| !scaling.finished && self.waiting.contains_key(&scaling.pod);
        let gone = self
            .scaling
            .iter()
            .filter(|(_, scaling)| !scaling.leaves && !stays(scaling));
        let take_away: Vec<_> = gone
            .map(|(name, scaling)| (name.clone(), scaling.uid.clone()))
            .collect();
        let mut plan = Plan {
            take_away,
            make: Vec::new(),
        };
        if !plan.take_away.is_empty() {
            return plan;
        }
        let mut shortages: BTreeMap<&str, GpuShortage> = BTreeMap::new();
        let mut there = BTreeSet::new();
        for scaling in self.scaling.values().chain(made) {
            let shortage = shortages.entry(&scaling.pod.namespace).or_default();
            // Its name is in use until it is deleted, but the autoscaler adds no node for it any more.
            if there.insert(&scaling.pod) && !scaling.leaves {
                shortage.request(scaling.gpus);
            }
        }
        let candidates = self.waiting.iter().filter(|(_, waiting)| waiting.unschedulable);
        let mut candidates: Vec<_> = candidates.collect();
        for (key, waiting) in &candidates {
            let shortage = shortages.entry(&key.namespace).or_default();
            let own = waiting.hundredths.saturating_mul(waiting.devices);
            shortage.hundredths = shortage.hundredths.saturating_add(own);
            shortage.devices = shortage.devices.max(waiting.devices);
            shortage.selects |= selects_nodes(&waiting.pod);
        }
        let shared = || shortages.values().filter(|shortage| shortage.is_shared());
        let rests: i64 = shared().map(GpuShortage::rest).sum();
        let spared: i64 = shared().map(|shortage| i64::from(shortage.spares_one())).sum();
        // GPUs for what is beyond whole ones, in all namespaces.
        let mut missing = (rests + 99) / 100 - spared;
        let is_held = |waiting: &Waiting| waiting.held_until.is_some_and(|until| until > now);
        candidates.retain(|(key, waiting)| !there.contains(key) && !is_held(waiting));
        // Those that were refused come last, so that others have their turn.
        candidates.sort_by_key(|(_, waiting)| waiting.refusals);
        for (key, waiting) in candidates {
            let shortage = shortages.entry(&key.namespace).or_default();
            let lacks = match shortage.total.cmp(&shortage.whole()) {
                Ordering::Less => true,
                Ordering::Equal => shortage.rest() > 0 && (missing > 0 || !shortage.is_shared()),
                Ordering::Greater => false,
            };
            if lacks || waiting.devices > shortage.most.max(1) {
                shortage.request(waiting.devices);
                missing -= i64::from(shortage.spares_one());
                plan.make.push((WaitingPod(Arc::clone(&waiting.pod)), waiting.devices));
            }
        }
        plan
    }
}

/// Whether there may be nodes that the pod cannot use.
fn selects_nodes(pod: &Pod) -> bool {
    let selects = |spec: &PodSpec| spec.node_selector.is_some() || spec.affinity.is_some();
    pod.spec.as_ref().is_some_and(selects)
}

/// Whether unikai created the scaling pod, not KAI.
#[must_use]
pub fn is_own(pod: &Pod) -> bool {
    pod.annotations().contains_key(FOR_POD)
}

fn read_scaling(pod: &Pod) -> Option<Scaling> {
    let labels = pod.labels();
    let named = pod.annotations().get(FOR_POD).and_then(|text| text.split_once('/'));
    let (namespace, name) = match named {
        Some(named) => named,
        None => (
            labels.get(label::SHARED_GPU_POD_NAMESPACE)?.as_str(),
            labels.get(label::SHARED_GPU_POD_NAME)?.as_str(),
        ),
    };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let limits = containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    let gpus = limits.filter_map(|limits| limits.get(resource::NVIDIA_GPU)?.0.parse::<i64>().ok());
    Some(Scaling {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        pod: Key {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        gpus: gpus.sum(),
        finished: pods::is_finished(pod),
        leaves: pod.metadata.deletion_timestamp.is_some(),
    })
}

/// The affinity for a pod in another namespace: terms without namespaces still select pods of this one.
fn affinity_from(namespace: &str, affinity: &Affinity) -> Affinity {
    let mut affinity = affinity.clone();
    for term in terms_mut(&mut affinity) {
        if term.namespace_selector.is_none() && term.namespaces.as_ref().is_none_or(Vec::is_empty) {
            term.namespaces = Some(vec![namespace.to_owned()]);
        }
    }
    affinity
}

/// The scaling pod for a pod: with the same placement constraints, and whole GPUs.
#[must_use]
pub fn scaling_pod(wanted: &WaitingPod, gpus: i64, settings: &Settings, account: &Account) -> Option<Pod> {
    let spec = wanted.0.spec.as_ref()?;
    let key = format!("{}/{}", wanted.namespace(), wanted.name());
    let hex = pods::short_digest(&key);
    let mut labels = BTreeMap::from([(label::APP.to_owned(), label::SCALING_POD_APP.to_owned())]);
    for (key, value) in [
        (label::SHARED_GPU_POD_NAME, wanted.name()),
        (label::SHARED_GPU_POD_NAMESPACE, wanted.namespace()),
    ] {
        if value.len() <= label::VALUE_LENGTH_MAX {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
    let mut security = pods::without_privileges();
    if settings.openshift {
        security.run_as_user = None;
    }
    let gpus = BTreeMap::from([(resource::NVIDIA_GPU.to_owned(), Quantity(gpus.to_string()))]);
    let mut requests = gpus.clone();
    for (resource, format) in [("cpu", Format::DecimalSi), ("memory", Format::BinarySi)] {
        let asked = spec.containers.iter().filter_map(|container| {
            let requests = container.resources.as_ref()?.requests.as_ref()?;
            Amount::of(requests.get(resource)?).ok()
        });
        let sum = asked.fold(Amount::ZERO, Amount::saturating_add);
        if !sum.is_zero() {
            requests.insert(resource.to_owned(), sum.to_quantity(format));
        }
    }
    Some(Pod {
        metadata: ObjectMeta {
            name: Some(format!("scaling-{hex}")),
            namespace: Some(account.namespace.clone()),
            labels: Some(labels),
            annotations: Some([(FOR_POD.to_owned(), key)].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            affinity: spec.affinity.as_ref().map(|of| affinity_from(wanted.namespace(), of)),
            tolerations: spec.tolerations.clone(),
            node_selector: spec.node_selector.clone(),
            restart_policy: Some("OnFailure".to_owned()),
            service_account_name: Some(account.name.clone()),
            automount_service_account_token: Some(false),
            security_context: Some(pods::default_seccomp()),
            image_pull_secrets: pods::pull_secrets(&settings.pull_secrets),
            containers: vec![Container {
                name: label::SCALING_POD_APP.to_owned(),
                image: Some(settings.image.clone()),
                image_pull_policy: Some("IfNotPresent".to_owned()),
                // It prints its version and ends.
                args: Some(vec!["--version".to_owned()]),
                resources: Some(ResourceRequirements {
                    requests: Some(requests),
                    limits: Some(gpus),
                    claims: None,
                }),
                security_context: Some(security),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        status: None,
    })
}

#[cfg(test)]
mod tests;
