//! What keeps a pod from a node, with its message.

use std::collections::BTreeSet;

use crate::engine::decision::Cause;
use crate::engine::input::{ClaimState, HostPort, Name, NodeFault, NodeTerm, PodVolumes, Taint, TaintEffect};
use crate::engine::model::Model;
use crate::engine::model::constraints::Constraints;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::node::Node;
use crate::engine::model::resources::{CPU, GPUS, MEMORY, PODS};
use crate::engine::model::selectors::{meets, tolerates};
use crate::engine::model::volumes::Unreachable;
use crate::engine::placement::neighbours::{AffinityConflict, SpreadConflict};
use crate::engine::placement::rules::{Refusal, gpu_kind, host_ports, node_ready, resources};
use crate::engine::placement::volumes::VolumeConflict;

use super::words::{one_sentence, quantity, requirement, requirements, resource_name};

/// What keeps a pod from a node. In the order of the message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The node lacks a label of the node selector, given by its position there.
    Selector(usize),
    /// A requirement of the node affinity does not hold: the term, and the position of the requirement in it.
    Affinity(Option<(usize, bool, usize)>),
    /// A taint.
    Taint(Name, Name),
    /// Even when empty, the node has less than is requested of the resource at that position.
    TooSmall(usize),
    /// Any other rule.
    Rule(Cause, String),
    /// A host port is taken, by the pod of that name.
    HostPort(i32, Name),
    /// Too little of the resource at that position is free.
    Full(usize),
    /// Not ready, by these node conditions if any are the reason: see [`bad_conditions`].
    NotReady(Option<Name>),
    /// Cordoned.
    Cordoned,
}

/// Taints that Kubernetes adds for fields and conditions of the node.
const CORDONED: &str = "node.kubernetes.io/unschedulable";
const OF_CONDITIONS: &str = "node.kubernetes.io/";

/// What keeps all pods of a class from a node as long as neither changes: the most specific obstacle.
#[must_use]
pub fn lasting(constraints: &Constraints, node: &Node) -> Option<Obstacle> {
    let input = node.input.as_ref()?;
    let label = |key: &Name| node.label(key).map(|value| &**value);
    let lacks = |(key, value): &(Name, Name)| label(key) != Some(&**value);
    if let Some(at) = constraints.selector.iter().position(lacks) {
        return Some(Obstacle::Selector(at));
    }
    if !constraints.selects(node) {
        return Some(Obstacle::Affinity(unmet(constraints.required.as_deref(), node)));
    }
    let keeps = |taint: &&Taint| {
        taint.effect != TaintEffect::PreferNoSchedule
            && !constraints.tolerations.iter().any(|one| tolerates(one, taint))
    };
    let own = |taint: &&Taint| !taint.key.starts_with(OF_CONDITIONS);
    let named = |taint: &Taint| Obstacle::Taint(taint.key.clone(), taint.value.clone());
    if let Some(taint) = input.taints.iter().filter(keeps).find(own) {
        return Some(named(taint));
    }
    if input.unschedulable {
        return Some(Obstacle::Cordoned);
    }
    if let Some(conditions) = bad_conditions(&input.faults) {
        return Some(Obstacle::NotReady(Some(conditions)));
    }
    input.taints.iter().find(keeps).map(|taint| match &*taint.key {
        CORDONED => Obstacle::Cordoned,
        "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable" => Obstacle::NotReady(None),
        _ => named(taint),
    })
}

/// The conditions by which a node is not ready, in one text. `None`: it is ready.
#[must_use]
pub fn bad_conditions(faults: &[NodeFault]) -> Option<Name> {
    match faults {
        [] => None,
        [only] => Some(only.condition.clone()),
        // If the kubelet does not answer, all conditions become Unknown.
        [first, ..] if &*first.condition == "Ready=Unknown" => Some(first.condition.clone()),
        several => {
            let names: Vec<&str> = several.iter().map(|fault| &*fault.condition).collect();
            Some(names.join(", ").into())
        }
    }
}

/// The first requirement of the first term that a node does not meet.
fn unmet(terms: Option<&[NodeTerm]>, node: &Node) -> Option<(usize, bool, usize)> {
    let term = terms?.first()?;
    let label = |key: &Name| node.label(key).map(|value| &**value);
    let labels = term.labels.iter().position(|one| !meets(one, label(&one.key)));
    let fields = || term.fields.iter().position(|one| !meets(one, Some(&node.name)));
    labels
        .map(|at| (0, false, at))
        .or_else(|| fields().map(|at| (0, true, at)))
}

/// The message of a rule that refuses a node with enough free resources.
#[must_use]
pub fn of_refusal(model: &Model, pod: PodId, node: Option<NodeId>, refusal: &Refusal) -> Obstacle {
    let constraints = &model.classes()[model.pods()[pod].class].constraints;
    let relations = constraints.relations.as_deref();
    let rule = |cause: Cause, text: String| Obstacle::Rule(cause, text);
    match refusal {
        Refusal::Resources(short) => match short {
            resources::Refusal::Gpus => Obstacle::Full(GPUS),
            resources::Refusal::Cpu => Obstacle::Full(CPU),
            resources::Refusal::Memory => Obstacle::Full(MEMORY),
            resources::Refusal::Other(name) | resources::Refusal::Mig(name) => {
                match model.resources().find(&Name::from(name.as_str())) {
                    Some(at) => Obstacle::Full(at),
                    None => rule(Cause::Resources, format!("has|have no {name}")),
                }
            }
            resources::Refusal::GpuMemory => rule(Cause::TooLarge, "has|have GPUs with too little memory".to_owned()),
        },
        Refusal::QueueQuota(_) => rule(
            Cause::QueueLimit,
            "would take the queue over its limit or quota".to_owned(),
        ),
        Refusal::GpuKind(kind) => rule(
            Cause::GpuKind,
            match kind {
                gpu_kind::Refusal::LegacyMig(_) => "takes|take no MIG instances by annotation",
                gpu_kind::Refusal::DraOnly => "offers|offer GPUs by resource claim only, where none is shared",
                gpu_kind::Refusal::OtherVendor(_) => "has|have GPUs of another vendor",
                gpu_kind::Refusal::NoMig => "has|have no MIG instances",
                gpu_kind::Refusal::SingleStrategy => {
                    "offers|offer whole MIG devices only (nvidia.com/mig.strategy=single)"
                }
                gpu_kind::Refusal::MixedStrategy => "offers|offer MIG instances only (nvidia.com/mig.strategy=mixed)",
            }
            .to_owned(),
        ),
        Refusal::WholeGpuSource(_) => rule(Cause::GpuKind, "offers|offer GPUs by resource claim only".to_owned()),
        Refusal::GpuMemoryKnown(_) => rule(
            Cause::GpuMemoryUnknown,
            "lacks|lack label nvidia.com/gpu.memory, without which GPU memory cannot be asked for".to_owned(),
        ),
        Refusal::GpuSharing(_) => rule(
            Cause::GpuSharing,
            "could not reserve a GPU for sharing and will be tried again".to_owned(),
        ),
        Refusal::PodSlots(_) => rule(Cause::PodSlots, "runs|run as many pods as the kubelet takes".to_owned()),
        Refusal::NodeReady(node_ready::Refusal::Unschedulable) => Obstacle::Cordoned,
        Refusal::NodeReady(node_ready::Refusal::Condition(_)) => {
            let input = node.and_then(|node| model.nodes()[node].input.as_ref());
            Obstacle::NotReady(input.and_then(|input| bad_conditions(&input.faults)))
        }
        Refusal::Taints(_) => rule(Cause::Taints, "has|have a taint that is not tolerated".to_owned()),
        Refusal::NodeAffinity(_) => Obstacle::Affinity(None),
        Refusal::HostPorts(_) => {
            let taken = node.and_then(|node| host_ports::taken(model, pod, &model.nodes()[node]));
            match taken {
                Some((HostPort { port, .. }, by)) => Obstacle::HostPort(*port, by.name.clone()),
                None => rule(Cause::HostPort, "has|have a host port of the pod in use".to_owned()),
            }
        }
        Refusal::PodAffinity(conflict) => match conflict.0 {
            AffinityConflict::Affinity => {
                let term = relations.and_then(|relations| relations.near.first());
                let named = term.map_or_else(String::new, |term| {
                    let pods = requirements(term.pods.labels.as_deref());
                    format!(" {pods} near it (podAffinity over {})", term.key)
                });
                rule(Cause::PodAffinity, format!("has|have no pod{named}"))
            }
            AffinityConflict::AntiAffinity => {
                let term = relations.and_then(|relations| relations.apart.first());
                let named = term.map_or_else(String::new, |term| {
                    let pods = requirements(term.pods.labels.as_deref());
                    format!(" {pods} (podAntiAffinity over {})", term.key)
                });
                rule(Cause::PodAntiAffinity, format!("is|are too near a pod{named}"))
            }
            AffinityConflict::ExistingAntiAffinity => rule(
                Cause::PodAntiAffinity,
                "has|have a pod that must not be near this one (its podAntiAffinity)".to_owned(),
            ),
        },
        Refusal::TopologySpread(conflict) => {
            let constraints = relations.map_or(&[][..], |relations| &relations.spread);
            match conflict.0 {
                SpreadConflict::MissingLabel => {
                    let lacking = constraints.iter().find(|constraint| {
                        node.is_some_and(|node| model.nodes()[node].label(&constraint.key).is_none())
                    });
                    let key = lacking
                        .or(constraints.first())
                        .map_or("", |constraint| &*constraint.key);
                    rule(
                        Cause::TopologySpread,
                        format!("lacks|lack label {key} (topologySpreadConstraints)"),
                    )
                }
                SpreadConflict::Skew => {
                    let first = constraints.first();
                    let named = first.map_or_else(String::new, |first| {
                        format!(" of {} over {}", first.max_skew, first.key)
                    });
                    rule(Cause::TopologySpread, format!("would pass maxSkew{named}"))
                }
            }
        }
        Refusal::VolumeBinding(conflict) => {
            let volumes = model.pods()[pod].input.volumes.as_deref();
            rule(Cause::Volumes, volume(conflict, volumes))
        }
        Refusal::WorkerNodes(refusal) => rule(
            Cause::WorkerNodes,
            format!("lacks|lack the label of nodes for {} pods", refusal.kind.to_uppercase()),
        ),
        Refusal::ResourceClaims(refusal) => {
            let text = if refusal.0.starts_with("cannot allocate all DRA claims") {
                format!("has|have no free devices for {}", claims(model, pod))
            } else if refusal.0.contains("node selector does not match") {
                format!("cannot reach the devices that {} got", claims(model, pod))
            } else {
                format!("cannot serve {}: {}", claims(model, pod), one_sentence(&refusal.0))
            };
            rule(Cause::Devices, text)
        }
        Refusal::NumaAlignment(_) => rule(
            Cause::Numa,
            "cannot align the pod to NUMA zones (Topology Manager)".to_owned(),
        ),
        Refusal::SharedGpuChoice(refusal) => match *refusal {},
    }
}

/// The claims that a pod names.
fn claims(model: &Model, pod: PodId) -> String {
    let claims = model.pods()[pod].input.claims.as_deref();
    let named = claims.into_iter().flat_map(|claims| &claims.named);
    let names: Vec<&str> = named
        .filter_map(|named| named.claim.as_deref())
        .filter_map(|key| key.rsplit('/').next())
        .take(3)
        .collect();
    match &*names {
        [] => "its resource claims".to_owned(),
        names => format!("resource claim {}", names.join(", ")),
    }
}

fn volume(conflict: &VolumeConflict, volumes: Option<&PodVolumes>) -> String {
    let claims = volumes.into_iter().flat_map(|volumes| &volumes.claims);
    let exclusive = claims.clone().filter(|claim| claim.exclusive);
    let name = |key: &str| key.rsplit('/').next().unwrap_or(key).to_owned();
    let all: Vec<String> = claims.take(3).map(|claim| name(&claim.key)).collect();
    let of = if all.is_empty() {
        "its claims".to_owned()
    } else {
        format!("claim {}", all.join(", "))
    };
    match conflict {
        VolumeConflict::Unreachable(Unreachable::Affinity) => {
            format!("cannot reach the volume of {of} (its node affinity)")
        }
        VolumeConflict::Unreachable(Unreachable::Zone) => format!("is|are in another zone than the volume of {of}"),
        VolumeConflict::Unreachable(Unreachable::Lost) => format!("cannot serve {of}, whose volume does not exist"),
        VolumeConflict::Unreachable(Unreachable::Elsewhere) | VolumeConflict::NoVolume => {
            format!("has|have no PersistentVolume for {of}")
        }
        VolumeConflict::NoRoom => {
            let waiting = volumes.into_iter().flat_map(|volumes| &volumes.claims);
            let waiting =
                waiting.filter(|claim| matches!(*claim.state, ClaimState::Waiting(_)) && !claim.class.is_empty());
            let classes: BTreeSet<&str> = waiting.map(|claim| &*claim.class).collect();
            let classes: Vec<&str> = classes.into_iter().collect();
            let class = match &*classes {
                [] => String::new(),
                classes => format!(" of class {}", classes.join(" or ")),
            };
            format!("has|have too little free storage{class} for {of}")
        }
        VolumeConflict::NoRoomOf(class) => format!("has|have too little free storage of class {class} for {of}"),
        VolumeConflict::NoSourceOf(class) => format!("has|have no storage of class {class} for {of}"),
        VolumeConflict::TooMany => "takes|take no more volumes".to_owned(),
        VolumeConflict::InUse => {
            let names: Vec<String> = exclusive.take(3).map(|claim| name(&claim.key)).collect();
            format!(
                "cannot serve claim {}, which is ReadWriteOncePod and in use by another pod",
                names.join(", ")
            )
        }
        VolumeConflict::DiskInUse => "has|have a disk of the pod in use".to_owned(),
    }
}

impl Obstacle {
    /// Its kind.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Selector(_) => Cause::NodeSelector,
            Self::Affinity(_) => Cause::NodeAffinity,
            Self::Taint(..) => Cause::Taints,
            Self::TooSmall(_) => Cause::TooLarge,
            Self::Rule(cause, _) => *cause,
            Self::HostPort(..) => Cause::HostPort,
            Self::Full(PODS) => Cause::PodSlots,
            Self::Full(_) => Cause::Resources,
            Self::NotReady(_) => Cause::NotReady,
            Self::Cordoned => Cause::Cordoned,
        }
    }

    /// What `nodes` nodes do or are: the predicate to their number. `more` is what else is known: the most that one of them has
    /// free of what they are short of, or since when they are not ready.
    #[must_use]
    pub fn predicate(&self, model: &Model, pod: PodId, nodes: usize, more: Option<&str>) -> String {
        let constraints = &model.classes()[model.pods()[pod].class].constraints;
        let shape = &model.shapes()[model.pods()[pod].shape];
        let verb = |one: &'static str, many: &'static str| if nodes == 1 { one } else { many };
        match self {
            Self::Selector(at) => {
                let (key, value) = &constraints.selector[*at];
                format!("{} label {key}={value} (nodeSelector)", verb("lacks", "lack"))
            }
            Self::Affinity(place) => {
                let terms = constraints.required.as_deref().unwrap_or_default();
                let unmet = place.and_then(|(term, fields, at)| {
                    let term = terms.get(term)?;
                    let list = if fields { &term.fields } else { &term.labels };
                    list.get(at).map(requirement)
                });
                let unmet = unmet.map_or_else(String::new, |unmet| format!(" {unmet}"));
                format!("{} not match{unmet} (nodeAffinity)", verb("does", "do"))
            }
            Self::Taint(key, value) if value.is_empty() => format!("{} taint {key}", verb("has", "have")),
            Self::Taint(key, value) => format!("{} taint {key}={value}", verb("has", "have")),
            Self::TooSmall(at) => {
                let asked = quantity(model, *at, shape.vector.get(*at));
                format!("{} too small (asks {asked})", verb("is", "are"))
            }
            Self::Rule(_, text) => {
                // `has|have` stands for the verb in both numbers.
                match text
                    .split_once(' ')
                    .and_then(|(verb, rest)| Some((verb.split_once('|')?, rest)))
                {
                    Some(((one, many), rest)) => format!("{} {rest}", if nodes == 1 { one } else { many }),
                    None => text.clone(),
                }
            }
            Self::HostPort(port, by) => format!("{} host port {port} in use by {by}", verb("has", "have")),
            Self::Full(GPUS) => format!("{} full", verb("is", "are")),
            Self::Full(PODS) => {
                format!("{} as many pods as the kubelet takes", verb("runs", "run"))
            }
            Self::Full(at) => {
                let asked = quantity(model, *at, shape.vector.get(*at));
                let free = more.map_or_else(String::new, |free| format!(", {free}"));
                format!(
                    "{} too little free {} (asks {asked}{free})",
                    verb("has", "have"),
                    resource_name(model, *at)
                )
            }
            Self::NotReady(condition) => {
                let since = more.map_or_else(String::new, |since| format!(" {since}"));
                let condition = condition
                    .as_ref()
                    .map_or_else(String::new, |condition| format!(" ({condition}{since})"));
                format!("{} not ready{condition}", verb("is", "are"))
            }
            Self::Cordoned => format!("{} cordoned", verb("is", "are")),
        }
    }
}
