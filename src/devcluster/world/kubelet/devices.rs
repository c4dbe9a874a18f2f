//! The GPUs of a simulated node: each has a UUID, and a pod that asks for GPUs gets the first that are free, or any, as from a
//! device plugin. A container that runs `unikai reserve` writes the UUID of its GPU into its pod's annotations.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use sha2::{Digest, Sha256};

use crate::devcluster::world::node::NodeSpec;

/// The annotation in which a reservation pod reports its GPU.
pub(super) const RESERVED: &str = "run.ai/reserve_for_gpu_index";

/// The GPUs of pods by uid, which the kubelet of a node keeps on its disk.
pub(super) type Checkpoint = BTreeMap<String, Vec<String>>;

/// The GPUs of a node: all, the free ones, and those that an earlier kubelet allocated.
#[derive(Debug, Default)]
pub(super) struct Devices {
    all: Vec<String>,
    free: BTreeSet<usize>,
    before: Checkpoint,
    /// A pod gets any free ones, which follow from its uid, instead of the first.
    any: bool,
}

impl Devices {
    /// The GPUs of a node, named after it, and what an earlier kubelet allocated there.
    pub fn of(node: &NodeSpec, before: Checkpoint) -> Self {
        let all: Vec<_> = (0..node.gpus).map(|number| uuid(&node.name, number)).collect();
        Self {
            free: (0..all.len()).collect(),
            all,
            before,
            any: node.any_gpu,
        }
    }

    /// Whether a pod has had its GPUs before this kubelet was started.
    pub fn knows(&self, pod: &Pod) -> bool {
        let before = pod
            .metadata
            .uid
            .as_ref()
            .is_some_and(|uid| self.before.contains_key(uid));
        before || reserved(pod).is_some()
    }

    /// Allocates GPUs to a pod. One that an earlier kubelet gave GPUs, or that reports one, gets these.
    pub fn take(&mut self, pod: &Pod, count: i64) -> Vec<String> {
        let before = pod.metadata.uid.as_ref().and_then(|uid| self.before.remove(uid));
        let before = before.unwrap_or_else(|| reserved(pod).into_iter().map(str::to_owned).collect());
        let known = before
            .iter()
            .filter_map(|uuid| self.all.iter().position(|other| other == uuid));
        let known: Vec<usize> = known.filter(|at| self.free.contains(at)).collect();
        let count = usize::try_from(count).unwrap_or(0);
        let mut others: Vec<usize> = self.free.iter().copied().filter(|at| !known.contains(at)).collect();
        if self.any {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            others.sort_by_cached_key(|at| Sha256::digest(format!("{uid}/{at}")));
        }
        let taken: Vec<usize> = known.iter().copied().chain(others).take(count).collect();
        for at in &taken {
            self.free.remove(at);
        }
        taken.into_iter().map(|at| self.all[at].clone()).collect()
    }

    /// Frees a pod's GPUs.
    pub fn give_back(&mut self, devices: &mut Vec<String>) {
        for device in devices.drain(..) {
            self.free.extend(self.all.iter().position(|other| *other == device));
        }
    }
}

/// The GPU that a pod reports to reserve.
pub(super) fn reserved(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(RESERVED).map(String::as_str)
}

/// Whether a container of the pod runs `unikai reserve`.
pub(super) fn is_reservation(pod: &Pod) -> bool {
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.any(|container| {
        container
            .args
            .iter()
            .flatten()
            .next()
            .is_some_and(|arg| arg == "reserve")
    })
}

/// A UUID as the driver writes them, the same for the same GPU in every run.
fn uuid(node: &str, number: u32) -> String {
    let digest = Sha256::digest(format!("{node}/{number}"));
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("GPU-{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_is_given_once_and_can_be_given_again() {
        let mut devices = Devices::of(&NodeSpec::gpu("n1", 2), Checkpoint::new());
        let pod = Pod::default();
        let mut first = devices.take(&pod, 1);
        let second = devices.take(&pod, 1);
        assert_ne!(first, second);
        assert!(devices.take(&pod, 1).is_empty());
        let uuid = first[0].clone();
        devices.give_back(&mut first);
        assert_eq!(devices.take(&pod, 1), [uuid]);
    }

    #[test]
    fn an_existing_pod_keeps_the_gpu_that_it_names() {
        let mut devices = Devices::of(&NodeSpec::gpu("n1", 4), Checkpoint::new());
        let uuid = uuid("n1", 2);
        let mut pod = Pod::default();
        pod.metadata.annotations = Some([(RESERVED.to_owned(), uuid.clone())].into());
        assert_eq!(devices.take(&pod, 1), [uuid]);
    }

    #[test]
    fn after_a_restart_of_the_kubelet_a_pod_keeps_its_gpus() {
        let uuids = [uuid("n1", 3), uuid("n1", 1)];
        let before = Checkpoint::from([("u".to_owned(), uuids.to_vec())]);
        let mut devices = Devices::of(&NodeSpec::gpu("n1", 4), before);
        let mut pod = Pod::default();
        pod.metadata.uid = Some("u".to_owned());
        assert!(devices.knows(&pod) && !devices.knows(&Pod::default()));
        assert_eq!(devices.take(&pod, 2), uuids);
    }
}
