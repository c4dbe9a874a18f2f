//! What the API server stores, reduced to the fields that the rules are about.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::Value;
use unikai::devcluster::apiserver::in_process::{InProcess, Stored};

use crate::claims::Wants;
use crate::plan::{CHARGED_FOR_INSTANCE, INSTANCE, POOL_LABEL, TEAMS};
use crate::sub_groups::{RACK, SUB_GROUP};
use crate::volumes::{VolumeClaimSeen, VolumeSeen};
use crate::zones;

/// The label of a PodGroup that a tenant wrote in the grouper's place.
pub const OF_TENANT: &str = "of-tenant";
/// The label by which pods stay off the nodes of others with the same value.
pub const APART: &str = "apart";
/// The label of a node that has been in another node pool, and of a shard that was gone.
pub const MOVED: &str = "moved";

/// The fields of a pod that rules use.
#[derive(Clone, Debug, Default)]
pub struct PodSeen {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: String,
    pub finished: bool,
    pub succeeded: bool,
    /// Its kubelet lacked a GPU for it.
    pub refused: bool,
    /// It stays off the nodes of others with the same value.
    pub apart: Option<String>,
    pub deleting: bool,
    pub ours: bool,
    pub reservation: bool,
    pub gpus: i64,
    /// MIG instances.
    pub instances: i64,
    pub cpu: i64,
    /// CPUs that it has for itself (no other pod has a limit of CPUs), and how many of each NUMA zone it is to use.
    pub exclusive: i64,
    pub zones: BTreeMap<String, i64>,
    /// Thousandths of each device; 0 for none.
    pub portion: i64,
    pub devices: i64,
    pub groups: Vec<String>,
    pub group: String,
    pub queue: String,
    /// Of a reservation pod: its users by uid, each with its recorded portion in thousandths.
    pub users: BTreeMap<String, i64>,
    pub device: Option<String>,
    /// The message of its condition `PodScheduled=False`.
    pub waiting_message: Option<String>,
    pub non_preemptible: bool,
    pub pool: Option<String>,
    /// The sub-group that its label names, whether there is one or not.
    pub sub_group: Option<String>,
    /// It got a part of a GPU after admission, which gives such pods their ConfigMap.
    pub without_config_map: bool,
    /// The names of its claims, as far as they are made.
    pub claims: Vec<String>,
    /// How many devices it claims.
    pub claimed: usize,
    /// The name of the claim for its volume.
    pub volume_claim: Option<String>,
}

impl PodSeen {
    pub fn on_node(&self) -> bool {
        !self.node.is_empty() && !self.finished
    }

    /// GPUs for which the queue is charged, in thousandths.
    pub fn charged(&self) -> i64 {
        self.gpus * 1000 + self.portion * self.devices + self.instances * CHARGED_FOR_INSTANCE
    }

    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSeen {
    pub gpus: i64,
    pub instances: i64,
    pub cpu: i64,
    pub pods: i64,
    pub open: bool,
    pub pool: Option<String>,
    pub moved: bool,
    pub rack: Option<String>,
}

/// A sub-group of a pod group.
#[derive(Clone, Debug, Default)]
pub struct SubGroupSeen {
    pub min: usize,
    /// Its pods must be in one rack.
    pub in_rack: bool,
    /// The sub-group above it, and whether all pods of that must be in one rack.
    pub above: Option<(String, bool)>,
}

#[derive(Clone, Debug, Default)]
pub struct GroupSeen {
    pub queue: String,
    pub min: usize,
    pub non_preemptible: bool,
    /// A tenant wrote it in the grouper's place.
    pub of_tenant: bool,
    pub pool: Option<String>,
    /// Those that have pods.
    pub sub_groups: BTreeMap<String, SubGroupSeen>,
    /// So many of these are enough.
    pub enough: usize,
}

impl GroupSeen {
    /// The sub-groups that must be in one rack with this one, and itself if its pods must be in one rack.
    pub fn in_rack_with(&self, name: &str) -> Vec<&str> {
        let Some(sub_group) = self.sub_groups.get(name) else {
            return Vec::new();
        };
        let is_together = |(other, seen): &(&String, &SubGroupSeen)| {
            let below_the_same = matches!(&sub_group.above, Some((_, true))) && seen.above == sub_group.above;
            below_the_same || (sub_group.in_rack && *other == name)
        };
        self.sub_groups
            .iter()
            .filter(is_together)
            .map(|(other, _)| &**other)
            .collect()
    }

    /// Whether a pod that names this pod group is a member: it names one of the sub-groups, or there are none.
    pub fn takes(&self, pod: &PodSeen) -> bool {
        match &pod.sub_group {
            Some(name) => self.sub_groups.contains_key(name),
            None => self.sub_groups.is_empty(),
        }
    }

    /// How many of these pods its minimum lacks, or that of each sub-group; if some sub-groups are enough, of those that lack the fewest.
    pub fn missing(&self, pods: &[&PodSeen]) -> BTreeMap<Option<String>, usize> {
        if self.sub_groups.is_empty() {
            return BTreeMap::from([(None, self.min.saturating_sub(pods.len()))]);
        }
        let missing = self.sub_groups.iter().map(|(name, sub_group)| {
            let there = pods.iter().filter(|pod| pod.sub_group.as_ref() == Some(name));
            (Some(name.clone()), sub_group.min.saturating_sub(there.count()))
        });
        let mut missing: Vec<_> = missing.collect();
        missing.sort_by_key(|(_, missing)| *missing);
        missing.truncate(self.enough);
        missing.into_iter().collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueSeen {
    /// What its status shows, in thousandths of a GPU.
    pub allocated: i64,
    /// In thousandths of a GPU; `None` is no limit.
    pub limit: Option<i64>,
    pub quota: Option<i64>,
}

/// A claim for devices.
#[derive(Clone, Debug, Default)]
pub struct ClaimSeen {
    pub wants: Wants,
    /// The devices allocated to it: their node and name.
    pub devices: Vec<(String, String)>,
    /// Uids of the pods that it is reserved for.
    pub reserved: BTreeSet<String>,
    /// It was made for one pod.
    pub of_one_pod: bool,
    pub deleting: bool,
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    Pool(Option<&'a str>),
    Node(&'a str),
    Pod { namespace: &'a str, name: &'a str },
    Group { namespace: &'a str, name: &'a str },
}

/// What the API server stores.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// In ms of the run.
    pub at: u64,
    /// By uid.
    pub pods: BTreeMap<String, PodSeen>,
    /// The uids of pods, by namespace and name.
    pub uids: BTreeMap<(String, String), String>,
    pub nodes: BTreeMap<String, NodeSeen>,
    pub groups: BTreeMap<(String, String), GroupSeen>,
    pub queues: BTreeMap<String, QueueSeen>,
    /// The bind requests, each with its node.
    pub bind_requests: BTreeMap<String, String>,
    pub claims: BTreeMap<(String, String), ClaimSeen>,
    /// The devices that drivers offer, by slice: their node and name.
    pub offered: BTreeMap<String, Vec<(String, String)>>,
    pub volume_claims: BTreeMap<(String, String), VolumeClaimSeen>,
    pub volumes: BTreeMap<String, VolumeSeen>,
    /// The CPUs of the NUMA zones of each node that has some.
    pub zones: BTreeMap<String, BTreeMap<String, i64>>,
    /// Those of tenants' pods.
    pub config_maps: BTreeSet<String>,
    /// When the Lease of each shard was renewed, by its own account.
    pub renewals: BTreeMap<String, String>,
    /// The node pools that have had their shard from the beginning.
    pub sharded: BTreeSet<String>,
    /// The Config switches the scheduler or the binder off, without which no pod is evicted.
    pub evicts_none: bool,
}

/// A kind that the rules are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Pod,
    Node,
    PodGroup,
    Queue,
    BindRequest,
    ResourceClaim,
    ResourceSlice,
    VolumeClaim,
    Volume,
    Zones,
    ConfigMap,
    Lease,
    Shard,
    Config,
}

impl Kind {
    pub const ALL: [Self; 14] = [
        Self::Pod,
        Self::Node,
        Self::PodGroup,
        Self::Queue,
        Self::BindRequest,
        Self::ResourceClaim,
        Self::ResourceSlice,
        Self::VolumeClaim,
        Self::Volume,
        Self::Zones,
        Self::ConfigMap,
        Self::Lease,
        Self::Shard,
        Self::Config,
    ];

    /// Group, version and name of the kind.
    pub fn of_api(self) -> GroupVersionKind {
        let (group, version, kind) = match self {
            Self::Pod => ("", "v1", "Pod"),
            Self::Node => ("", "v1", "Node"),
            Self::PodGroup => ("scheduling.run.ai", "v2alpha2", "PodGroup"),
            Self::Queue => ("scheduling.run.ai", "v2", "Queue"),
            Self::BindRequest => ("scheduling.run.ai", "v1alpha2", "BindRequest"),
            Self::ResourceClaim => ("resource.k8s.io", "v1", "ResourceClaim"),
            Self::ResourceSlice => ("resource.k8s.io", "v1", "ResourceSlice"),
            Self::VolumeClaim => ("", "v1", "PersistentVolumeClaim"),
            Self::Volume => ("", "v1", "PersistentVolume"),
            Self::Zones => ("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology"),
            Self::ConfigMap => ("", "v1", "ConfigMap"),
            Self::Lease => ("coordination.k8s.io", "v1", "Lease"),
            Self::Shard => ("kai.scheduler", "v1", "SchedulingShard"),
            Self::Config => ("kai.scheduler", "v1", "Config"),
        };
        GroupVersionKind::gvk(group, version, kind)
    }
}

/// Reads what the API server stores. Only objects that have changed since are read again.
pub struct Reader {
    server: InProcess,
    state: State,
    kinds: Vec<KindRead>,
}

/// The objects of a kind that were read.
struct KindRead {
    kind: Kind,
    resource: ApiResource,
    /// The revision of the last change.
    changed: u64,
    /// By address.
    objects: HashMap<usize, Stored>,
}

impl Reader {
    pub fn new(server: &InProcess) -> Self {
        let kinds = Kind::ALL.iter().map(|kind| KindRead {
            kind: *kind,
            resource: ApiResource::from_gvk(&kind.of_api()),
            changed: 0,
            objects: HashMap::new(),
        });
        Self {
            server: server.clone(),
            state: State::default(),
            kinds: kinds.collect(),
        }
    }

    /// What is stored now; `at` is in ms of the run.
    pub fn read(&mut self, at: u64) -> &State {
        self.state.at = at;
        self.read_kinds(&Kind::ALL)
    }

    /// The same, of these kinds only.
    pub fn read_kinds(&mut self, kinds: &[Kind]) -> &State {
        for read in self.kinds.iter_mut().filter(|read| kinds.contains(&read.kind)) {
            read.read(&self.server, &mut self.state);
        }
        &self.state
    }

    /// What was stored when it was last read.
    pub fn last(&self) -> &State {
        &self.state
    }
}

impl KindRead {
    fn read(&mut self, server: &InProcess, state: &mut State) {
        let ApiResource { group, plural, .. } = &self.resource;
        let changed = server.changed(group, plural);
        if changed == self.changed {
            return;
        }
        self.changed = changed;
        let mut before = std::mem::take(&mut self.objects);
        let mut new = Vec::new();
        for stored in server.objects(group, plural) {
            if before.remove(&stored.address()).is_none() {
                new.push(stored.clone());
            }
            self.objects.insert(stored.address(), stored);
        }
        before.values().for_each(|gone| state.remove(self.kind, gone));
        new.iter().for_each(|stored| state.put(self.kind, stored));
    }
}

impl State {
    fn pod(&self, namespace: &str, name: &str) -> Option<&PodSeen> {
        let uid = self.uids.get(&(namespace.to_owned(), name.to_owned()))?;
        self.pods.get(uid)
    }

    /// Whether a tenant has written a pod group with the name that the grouper gives to the one of this pod.
    pub fn has_own_group_of_tenant(&self, pod: &PodSeen) -> bool {
        let key = (pod.namespace.clone(), format!("pg-{}-{}", pod.name, pod.uid));
        self.groups.get(&key).is_some_and(|group| group.of_tenant)
    }

    /// Whether a pod is of a non-preemptible pod group that has its minimum on nodes. A pod with a part of a GPU may have lost it.
    pub fn is_protected(&self, namespace: &str, name: &str) -> bool {
        let Some(pod) = self
            .pod(namespace, name)
            .filter(|pod| pod.ours && pod.on_node() && pod.portion == 0)
        else {
            return false;
        };
        let Some(group) = self.groups.get(&(pod.namespace.clone(), pod.group.clone())) else {
            return false;
        };
        let of_group = |other: &&PodSeen| (&other.namespace, &other.group) == (&pod.namespace, &pod.group);
        let members = self.pods.values().filter(of_group).filter(|member| member.on_node());
        group.non_preemptible && members.count() >= group.min
    }

    /// Records an object as it is stored now.
    pub fn put(&mut self, kind: Kind, stored: &Value) {
        let (namespace, name) = key(stored);
        match kind {
            Kind::Pod => {
                let pod = pod(stored);
                self.uids.insert((namespace, name), pod.uid.clone());
                self.pods.insert(pod.uid.clone(), pod);
            }
            Kind::Node => drop(self.nodes.insert(name, node(stored))),
            Kind::PodGroup => drop(self.groups.insert((namespace, name), group(stored))),
            Kind::Queue => drop(self.queues.insert(name, queue(stored))),
            Kind::BindRequest => {
                let node = text(&stored["spec"]["selectedNode"]);
                self.bind_requests.insert(format!("{namespace}/{name}"), node);
            }
            Kind::ResourceClaim => drop(self.claims.insert((namespace, name), claim(stored))),
            Kind::ResourceSlice => drop(self.offered.insert(name, slice(stored))),
            Kind::VolumeClaim => {
                self.volume_claims
                    .insert((namespace, name), VolumeClaimSeen::of(stored));
            }
            Kind::Volume => drop(self.volumes.insert(name, VolumeSeen::of(stored))),
            Kind::Zones => drop(self.zones.insert(name, zones::reported(stored))),
            Kind::ConfigMap => {
                if TEAMS.contains(&&*namespace) && name != "kube-root-ca.crt" {
                    self.config_maps.insert(name);
                }
            }
            Kind::Lease => {
                let of_replica = !stored["metadata"]["labels"]["unikai.dev/replica-of"].is_null();
                if namespace == "kai-scheduler" && !of_replica {
                    self.renewals.insert(name, stored["spec"]["renewTime"].to_string());
                }
            }
            Kind::Config => {
                let is_off = |component: &&str| stored["spec"][*component]["service"]["enabled"] == false;
                self.evicts_none = ["scheduler", "binder"].iter().any(is_off);
            }
            Kind::Shard => {
                if stored["metadata"]["labels"][MOVED].is_null() {
                    self.sharded.insert(text(&stored["spec"]["partitionLabelValue"]));
                }
            }
        }
    }

    /// Removes an object that was deleted.
    pub fn remove(&mut self, kind: Kind, stored: &Value) {
        let (namespace, name) = key(stored);
        match kind {
            Kind::Pod => {
                let uid = text(&stored["metadata"]["uid"]);
                let named = (namespace, name);
                // Another pod may have its name by now.
                if self.uids.get(&named) == Some(&uid) {
                    self.uids.remove(&named);
                }
                self.pods.remove(&uid);
            }
            Kind::Node => drop(self.nodes.remove(&name)),
            Kind::PodGroup => drop(self.groups.remove(&(namespace, name))),
            Kind::Queue => drop(self.queues.remove(&name)),
            Kind::BindRequest => drop(self.bind_requests.remove(&format!("{namespace}/{name}"))),
            Kind::ResourceClaim => drop(self.claims.remove(&(namespace, name))),
            Kind::ResourceSlice => drop(self.offered.remove(&name)),
            Kind::VolumeClaim => drop(self.volume_claims.remove(&(namespace, name))),
            Kind::Volume => drop(self.volumes.remove(&name)),
            Kind::Zones => drop(self.zones.remove(&name)),
            Kind::ConfigMap => drop(self.config_maps.remove(&name)),
            Kind::Lease => drop(self.renewals.remove(&name)),
            Kind::Config => self.evicts_none = false,
            Kind::Shard => drop(self.sharded.remove(&text(&stored["spec"]["partitionLabelValue"]))),
        }
    }

    /// Removes all objects of a kind.
    pub fn clear(&mut self, kind: Kind) {
        match kind {
            Kind::Pod => {
                self.pods.clear();
                self.uids.clear();
            }
            Kind::Node => self.nodes.clear(),
            Kind::PodGroup => self.groups.clear(),
            Kind::Queue => self.queues.clear(),
            Kind::BindRequest => self.bind_requests.clear(),
            Kind::ResourceClaim => self.claims.clear(),
            Kind::ResourceSlice => self.offered.clear(),
            Kind::VolumeClaim => self.volume_claims.clear(),
            Kind::Volume => self.volumes.clear(),
            Kind::Zones => self.zones.clear(),
            Kind::ConfigMap => self.config_maps.clear(),
            Kind::Lease => self.renewals.clear(),
            Kind::Shard => self.sharded.clear(),
            Kind::Config => self.evicts_none = false,
        }
    }

    /// The node pools whose leaders may write about an object; `None` if those of all may. The leader of the default one stands in for those without a shard.
    pub fn pools_of(&self, about: &About<'_>) -> Option<Vec<Option<String>>> {
        let mut pools = self.pools(about)?;
        if pools.iter().flatten().any(|pool| !self.sharded.contains(pool)) {
            pools.push(None);
        }
        Some(pools)
    }

    fn pools(&self, about: &About<'_>) -> Option<Vec<Option<String>>> {
        match *about {
            About::Pool(pool) => Some(vec![pool.map(str::to_owned)]),
            About::Node(name) => {
                let node = self.nodes.get(name)?;
                // A decision of the pool in which it was may be under way.
                (!node.moved).then(|| vec![node.pool.clone()])
            }
            About::Group { namespace, name } => {
                let group = self.groups.get(&(namespace.to_owned(), name.to_owned()))?;
                Some(vec![group.pool.clone()])
            }
            About::Pod { namespace, name } => {
                let pod = self.pod(namespace, name)?;
                // A tenant may write its pod group in the grouper's place, also after the bind.
                let groups = [pod.group.clone(), format!("pg-{name}-{}", pod.uid)];
                let groups = groups.map(|group| self.groups.get(&(namespace.to_owned(), group)));
                let mut pools: Vec<_> = groups.into_iter().flatten().map(|group| group.pool.clone()).collect();
                // Its pod group may be deleted while it is bound.
                if let Some(node) = self.bind_requests.get(&format!("{namespace}/{name}")) {
                    pools.extend(self.pools(&About::Node(node))?);
                }
                if pod.node.is_empty() {
                    pools.push(pod.pool.clone());
                } else {
                    pools.extend(self.pools(&About::Node(&pod.node))?);
                }
                Some(pools)
            }
        }
    }

    /// The reservation pods, by node and GPU group.
    pub fn reservations(&self) -> BTreeMap<(&str, &str), Vec<&PodSeen>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| pod.reservation) {
            for group in &pod.groups {
                all.entry((&*pod.node, &**group)).or_default().push(pod);
            }
        }
        all
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Namespace and name.
fn key(stored: &Value) -> (String, String) {
    let meta = &stored["metadata"];
    (text(&meta["namespace"]), text(&meta["name"]))
}

/// Reads a stored pod.
fn pod(stored: &Value) -> PodSeen {
    let (meta, spec, status) = (&stored["metadata"], &stored["spec"], &stored["status"]);
    let annotation = |key: &str| meta["annotations"][key].as_str();
    let containers = list(&spec["containers"]);
    let limit = |resource: &str| -> i64 {
        let amounts = containers
            .iter()
            .map(|container| &container["resources"]["limits"][resource]);
        let amounts = amounts.filter_map(|amount| {
            amount
                .as_str()
                .map_or_else(|| amount.as_i64(), |text| text.parse().ok())
        });
        amounts.sum()
    };
    let cpu = containers
        .iter()
        .map(|container| milli(&container["resources"]["requests"]["cpu"]));
    // A pod may ask for a part of a GPU after its place was decided, and before the Binding: it has none then.
    let regular = spec["nodeName"].is_string() && annotation("received-resource-type") == Some("Regular");
    let portion = annotation("gpu-fraction").filter(|_| !regular).map_or(0, thousandths);
    let labels = meta["labels"].as_object();
    let groups = labels
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.as_str() == "runai-gpu-group" || key.starts_with("runai-gpu-group/"));
    let annotations = meta["annotations"].as_object();
    let users = annotations.into_iter().flatten().filter_map(|(key, record)| {
        let uid = key.strip_prefix("gpu-user.unikai.dev/")?;
        let record: Value = serde_json::from_str(record.as_str()?).ok()?;
        Some((
            uid.to_owned(),
            record["share"]["gpu-fraction"].as_str().map_or(0, thousandths),
        ))
    });
    let mut volumes = list(&spec["volumes"]).iter();
    let references = list(&spec["resourceClaims"]);
    let named = references
        .iter()
        .filter_map(|reference| reference["resourceClaimName"].as_str());
    let made = list(&status["resourceClaimStatuses"]).iter();
    let made = made.filter_map(|made| made["resourceClaimName"].as_str());
    let conditions = list(&status["conditions"]);
    let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled");
    let said = scheduled.filter(|condition| condition["status"] == "False" && condition["reason"].is_string());
    PodSeen {
        namespace: text(&meta["namespace"]),
        name: text(&meta["name"]),
        uid: text(&meta["uid"]),
        node: text(&spec["nodeName"]),
        finished: matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")),
        succeeded: status["phase"] == "Succeeded",
        refused: status["reason"] == "UnexpectedAdmissionError",
        apart: meta["labels"][APART].as_str().map(str::to_owned),
        deleting: meta["deletionTimestamp"].is_string(),
        ours: spec["schedulerName"] == "kai-scheduler",
        reservation: meta["namespace"] == "kai-resource-reservation",
        gpus: limit("nvidia.com/gpu"),
        instances: limit(INSTANCE),
        cpu: cpu.sum(),
        exclusive: limit("cpu"),
        zones: zones::predicted(stored),
        portion,
        devices: annotation("gpu-fraction-num-devices")
            .and_then(|text| text.parse().ok())
            .unwrap_or(1),
        groups: groups
            .filter_map(|(_, value)| value.as_str().map(str::to_owned))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        group: annotation("pod-group-name").unwrap_or_default().to_owned(),
        queue: text(&meta["labels"]["kai.scheduler/queue"]),
        users: users.collect(),
        device: annotation("run.ai/reserve_for_gpu_index").map(str::to_owned),
        waiting_message: said.map(|condition| text(&condition["message"])),
        without_config_map: portion > 0 && annotation("runai/shared-gpu-configmap").is_none(),
        pool: meta["labels"][POOL_LABEL].as_str().map(str::to_owned),
        sub_group: meta["labels"][SUB_GROUP].as_str().map(str::to_owned),
        non_preemptible: is_non_preemptible(&meta["labels"]["priorityClassName"]),
        claims: named.chain(made).map(str::to_owned).collect(),
        claimed: references.len(),
        volume_claim: volumes
            .find_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned)),
    }
}

/// Reads a stored claim.
fn claim(stored: &Value) -> ClaimSeen {
    let (meta, status) = (&stored["metadata"], &stored["status"]);
    let results = list(&status["allocation"]["devices"]["results"]).iter();
    ClaimSeen {
        wants: Wants::of(&stored["spec"]),
        devices: results
            .map(|result| (text(&result["pool"]), text(&result["device"])))
            .collect(),
        reserved: list(&status["reservedFor"])
            .iter()
            .map(|pod| text(&pod["uid"]))
            .collect(),
        of_one_pod: !list(&meta["ownerReferences"]).is_empty(),
        deleting: meta["deletionTimestamp"].is_string(),
    }
}

/// Reads the devices of a stored ResourceSlice.
fn slice(stored: &Value) -> Vec<(String, String)> {
    let (spec, devices) = (&stored["spec"], list(&stored["spec"]["devices"]).iter());
    devices
        .map(|device| (text(&spec["nodeName"]), text(&device["name"])))
        .collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Reads a stored node.
fn node(stored: &Value) -> NodeSeen {
    let allocatable = &stored["status"]["allocatable"];
    let whole = |key: &str| {
        allocatable[key]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    let conditions = list(&stored["status"]["conditions"]);
    let ready = conditions
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let tainted = stored["spec"]["taints"]
        .as_array()
        .is_some_and(|taints| !taints.is_empty());
    NodeSeen {
        pool: stored["metadata"]["labels"][POOL_LABEL].as_str().map(str::to_owned),
        moved: !stored["metadata"]["labels"][MOVED].is_null(),
        rack: stored["metadata"]["labels"][RACK].as_str().map(str::to_owned),
        gpus: whole("nvidia.com/gpu"),
        instances: whole(INSTANCE),
        cpu: milli(&allocatable["cpu"]),
        pods: whole("pods"),
        open: ready
            && !tainted
            && stored["spec"]["unschedulable"] != true
            && stored["metadata"]["deletionTimestamp"].is_null(),
    }
}

/// Reads a stored queue.
fn queue(stored: &Value) -> QueueSeen {
    let bound = |name: &str| {
        let gpus = stored["spec"]["resources"]["gpu"][name].as_f64().unwrap_or(-1.0);
        (gpus >= 0.0).then_some((gpus * 1000.0) as i64)
    };
    let allocated = |resource: &str| milli(&stored["status"]["allocated"][resource]);
    QueueSeen {
        // Instances are counted apart, each as one.
        allocated: allocated("nvidia.com/gpu") + allocated(INSTANCE) / 1000 * CHARGED_FOR_INSTANCE,
        limit: bound("limit"),
        quota: bound("quota"),
    }
}

/// Reads a stored pod group.
fn group(stored: &Value) -> GroupSeen {
    let all = list(&stored["spec"]["subGroups"]);
    let in_rack = |sub_group: &Value| !sub_group["topologyConstraint"]["requiredTopologyLevel"].is_null();
    let sub_groups = all.iter().filter(|sub_group| !sub_group["minMember"].is_null());
    let sub_groups = sub_groups.map(|sub_group| {
        let above = all.iter().find(|above| above["name"] == sub_group["parent"]);
        let seen = SubGroupSeen {
            min: sub_group["minMember"].as_u64().unwrap_or(0) as usize,
            in_rack: in_rack(sub_group),
            above: above.map(|above| (text(&above["name"]), in_rack(above))),
        };
        (text(&sub_group["name"]), seen)
    });
    let sub_groups: BTreeMap<_, _> = sub_groups.collect();
    let enough = stored["spec"]["minSubGroup"].as_u64();
    let enough = enough.map_or(sub_groups.len(), |enough| enough as usize);
    let mut mins: Vec<usize> = sub_groups.values().map(|sub_group| sub_group.min).collect();
    mins.sort_unstable();
    let min = mins.iter().take(enough).sum();
    let own_min = || stored["spec"]["minMember"].as_u64().unwrap_or(1) as usize;
    GroupSeen {
        queue: stored["spec"]["queue"].as_str().unwrap_or_default().to_owned(),
        min: if sub_groups.is_empty() { own_min() } else { min },
        non_preemptible: is_non_preemptible(&stored["spec"]["priorityClassName"]),
        of_tenant: !stored["metadata"]["labels"][OF_TENANT].is_null(),
        pool: stored["metadata"]["labels"][POOL_LABEL].as_str().map(str::to_owned),
        sub_groups,
        enough,
    }
}

/// Whether workloads of a priority class are.
fn is_non_preemptible(class: &Value) -> bool {
    matches!(class.as_str(), Some("build" | "inference"))
}

fn milli(value: &Value) -> i64 {
    let Some(text) = value.as_str() else {
        return value.as_i64().map_or(0, |whole| whole * 1000);
    };
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or(0),
        None => text.parse::<f64>().map_or(0, |whole| (whole * 1000.0) as i64),
    }
}

fn thousandths(text: &str) -> i64 {
    text.parse::<f64>()
        .map_or(0, |portion| (portion * 1000.0).round() as i64)
}
