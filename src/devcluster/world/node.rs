//! What a simulated node is, and the Node object that its kubelet registers.
//!
//! GPU nodes carry the labels that GPU feature discovery writes. There are no attached volumes, images or runtime handlers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Node, NodeAddress, NodeCondition, NodeSpec as ApiNodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// The Kubernetes version that simulated kubelets report.
const KUBELET_VERSION: &str = "v1.35.0";

/// The extended resource under which whole GPUs are counted.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

const GIB: u64 = 1 << 30;

/// A node of the simulated world. Capacity and allocatable are the same.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// Name of the Node object and value of its `kubernetes.io/hostname` label.
    pub name: String,
    /// CPU in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Local storage in bytes.
    pub ephemeral_storage_bytes: u64,
    /// How many pods the kubelet takes.
    pub pods: u32,
    /// Whole GPUs; with 0 the node has neither the resource nor any GPU label.
    pub gpus: u32,
    /// Value of the `nvidia.com/gpu.product` label.
    pub gpu_product: String,
    /// Memory of each GPU in MiB, the value of the `nvidia.com/gpu.memory` label.
    pub gpu_memory_mib: u64,
    /// How many of other resources the node's device plugins offer, such as `nvidia.com/mig-1g.5gb`.
    pub extended: BTreeMap<String, u32>,
    /// Labels beside those that every kubelet writes; they win over them.
    pub labels: BTreeMap<String, String>,
    /// Taints that the node registers with.
    pub taints: Vec<Taint>,
    /// Pods get any free GPUs, as those of most device plugins do, instead of the first ones.
    pub any_gpu: bool,
}

impl NodeSpec {
    /// A node without GPUs: 32 cores, 128 GiB, 110 pods.
    pub fn cpu(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            cpu_milli: 32_000,
            memory_bytes: 128 * GIB,
            ephemeral_storage_bytes: 500 * GIB,
            pods: 110,
            gpus: 0,
            gpu_product: String::new(),
            gpu_memory_mib: 0,
            extended: BTreeMap::new(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            any_gpu: false,
        }
    }

    /// A node with `gpus` H100s of 80 GiB: 8 cores and 64 GiB for each, and no fewer than 64 cores and 512 GiB.
    pub fn gpu(name: impl Into<String>, gpus: u32) -> Self {
        let share = u64::from(gpus.max(8));
        Self {
            cpu_milli: 8_000 * share,
            memory_bytes: 64 * GIB * share,
            gpus,
            gpu_product: "NVIDIA-H100-80GB-HBM3".to_owned(),
            gpu_memory_mib: 81_559,
            ..Self::cpu(name)
        }
    }

    /// The same node with one more label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The same node with one more taint.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        let value = (!value.is_empty()).then(|| value.to_owned());
        self.taints.push(Taint {
            key: key.to_owned(),
            value,
            effect: effect.to_owned(),
            time_added: None,
        });
        self
    }

    /// What the kubelet offers to pods.
    pub fn allocatable(&self) -> BTreeMap<String, Quantity> {
        let mut offered = BTreeMap::from([
            ("cpu".to_owned(), cpu_quantity(self.cpu_milli)),
            ("memory".to_owned(), memory_quantity(self.memory_bytes)),
            (
                "ephemeral-storage".to_owned(),
                memory_quantity(self.ephemeral_storage_bytes),
            ),
            ("pods".to_owned(), Quantity(self.pods.to_string())),
        ]);
        if self.gpus > 0 {
            offered.insert(GPU_RESOURCE.to_owned(), Quantity(self.gpus.to_string()));
        }
        let extended = self.extended.iter();
        offered.extend(extended.map(|(name, count)| (name.clone(), Quantity(count.to_string()))));
        offered
    }

    /// The Node object as the kubelet registers it at `now`; `index` numbers the node for its address.
    pub(super) fn object(&self, index: usize, now: Timestamp) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.all_labels()),
                ..ObjectMeta::default()
            },
            spec: Some(ApiNodeSpec {
                pod_cidr: Some(format!("10.{}.{}.0/24", 64 + index / 256 % 128, index % 256)),
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                ..ApiNodeSpec::default()
            }),
            status: Some(self.status(index, now)),
        }
    }

    /// The status that a live kubelet reports at `now`.
    pub(super) fn status(&self, index: usize, now: Timestamp) -> NodeStatus {
        NodeStatus {
            addresses: Some(vec![
                address("InternalIP", host_ip(index)),
                address("Hostname", self.name.clone()),
            ]),
            allocatable: Some(self.allocatable()),
            capacity: Some(self.allocatable()),
            conditions: Some(ready_conditions(now)),
            node_info: Some(system_info(&self.name)),
            ..NodeStatus::default()
        }
    }

    fn all_labels(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), self.name.clone()),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
            ("beta.kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("beta.kubernetes.io/arch".to_owned(), "amd64".to_owned()),
        ]);
        if self.gpus > 0 {
            labels.extend(self.gpu_labels());
        }
        labels.extend(self.labels.clone());
        labels
    }

    /// The labels of GPU feature discovery that schedulers and people read.
    fn gpu_labels(&self) -> impl Iterator<Item = (String, String)> {
        let family = GPU_FAMILIES.iter().find(|(model, ..)| self.gpu_product.contains(model));
        let (_, family, (major, minor)) = family.copied().unwrap_or(("", "unknown", (0, 0)));
        [
            ("nvidia.com/gpu.present", "true".to_owned()),
            ("nvidia.com/gpu.product", self.gpu_product.clone()),
            ("nvidia.com/gpu.memory", self.gpu_memory_mib.to_string()),
            ("nvidia.com/gpu.count", self.gpus.to_string()),
            ("nvidia.com/gpu.replicas", "1".to_owned()),
            ("nvidia.com/gpu.family", family.to_owned()),
            ("nvidia.com/gpu.compute.major", major.to_string()),
            ("nvidia.com/gpu.compute.minor", minor.to_string()),
            ("nvidia.com/gpu.machine", "simulated".to_owned()),
            ("nvidia.com/gpu.mode", "compute".to_owned()),
            ("nvidia.com/gpu.sharing-strategy", "none".to_owned()),
            ("nvidia.com/mig.capable", (major >= 8).to_string()),
            ("nvidia.com/mig.strategy", "single".to_owned()),
            ("nvidia.com/cuda.driver.major", "570".to_owned()),
            ("nvidia.com/cuda.runtime.major", "12".to_owned()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
    }
}

/// Model name in the product label, GPU family, CUDA compute capability.
const GPU_FAMILIES: &[(&str, &str, (u32, u32))] = &[
    ("B200", "blackwell", (10, 0)),
    ("H200", "hopper", (9, 0)),
    ("H100", "hopper", (9, 0)),
    ("L40", "ada-lovelace", (8, 9)),
    ("L4", "ada-lovelace", (8, 9)),
    ("A100", "ampere", (8, 0)),
    ("V100", "volta", (7, 0)),
    ("T4", "turing", (7, 5)),
];

/// The address of the node numbered `index`.
pub(super) fn host_ip(index: usize) -> String {
    format!("172.18.{}.{}", index / 250 % 256, index % 250 + 2)
}

/// The five conditions of a healthy node.
fn ready_conditions(now: Timestamp) -> Vec<NodeCondition> {
    let healthy = |kind: &str, status: &str, reason: &str, message: &str| NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    vec![
        healthy(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        healthy(
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        healthy(
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        healthy("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
}

/// The conditions that the node life-cycle controller writes when a kubelet has gone silent.
pub(super) fn silent_conditions(now: Timestamp) -> Vec<NodeCondition> {
    ready_conditions(now)
        .into_iter()
        .map(|condition| NodeCondition {
            status: "Unknown".to_owned(),
            reason: Some("NodeStatusUnknown".to_owned()),
            message: Some("Kubelet stopped posting node status.".to_owned()),
            ..condition
        })
        .collect()
}

fn address(kind: &str, address: String) -> NodeAddress {
    NodeAddress {
        type_: kind.to_owned(),
        address,
    }
}

fn system_info(name: &str) -> NodeSystemInfo {
    NodeSystemInfo {
        architecture: "amd64".to_owned(),
        boot_id: format!("boot-{name}"),
        container_runtime_version: "containerd://2.1.0".to_owned(),
        kernel_version: "6.8.0".to_owned(),
        kube_proxy_version: String::new(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        machine_id: format!("machine-{name}"),
        operating_system: "linux".to_owned(),
        os_image: "simulated by unikai".to_owned(),
        system_uuid: format!("system-{name}"),
        ..NodeSystemInfo::default()
    }
}

/// Thousandths of a core as Kubernetes writes them: whole cores without a suffix.
fn cpu_quantity(milli: u64) -> Quantity {
    Quantity(if milli.is_multiple_of(1000) {
        (milli / 1000).to_string()
    } else {
        format!("{milli}m")
    })
}

/// Bytes as Kubernetes writes them: the largest binary suffix that is exact.
fn memory_quantity(bytes: u64) -> Quantity {
    let exact = [("Gi", GIB), ("Mi", 1 << 20), ("Ki", 1 << 10)]
        .into_iter()
        .find(|(_, unit)| bytes.is_multiple_of(*unit));
    Quantity(exact.map_or_else(
        || bytes.to_string(),
        |(suffix, unit)| format!("{}{suffix}", bytes / unit),
    ))
}
