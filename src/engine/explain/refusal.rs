//! Why one pod does not fit: a count per reason over the nodes that refuse it.

use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};

use crate::api::names::resource;
use crate::engine::fairshare::gates;
use crate::engine::input::{GPU, GpuKind};
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::node::Node;
use crate::engine::model::resources::{CPU, GPUS, MEMORY, PODS, mig_slices};
use crate::engine::model::shape::Shape;
use crate::engine::placement::choose::Context;
use crate::engine::placement::claims;
use crate::engine::placement::filter;
use crate::engine::placement::neighbours::{self, Clash};
use crate::engine::placement::numa;
use crate::engine::placement::volumes::{self, VolumeClash};
use crate::engine::policy::Policy;

/// A reason of a node. Its text is [`Refusal::text`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Cordoned.
    Unschedulable,
    /// Its conditions say so.
    NotReady,
    /// Too few GPUs.
    Gpus,
    /// Its GPUs are too small.
    GpuMemory,
    /// Too little cpu.
    Cpu,
    /// Too little memory.
    Memory,
    /// Too little of another resource, by name.
    Other(String),
    /// Too few instances of a MIG profile, by name.
    Mig(String),
    /// No pod slot is left.
    PodSlots,
    /// A taint is not tolerated.
    Taint,
    /// Node selector or affinity.
    Affinity,
    /// A host port is taken.
    Ports,
    /// Pods that are there already.
    Neighbours(Clash),
    /// Volumes.
    Volumes(VolumeClash),
    /// It lacks the devices that are claimed; a sentence.
    Devices(String),
    /// Its kubelet would not align it to NUMA zones.
    Numa,
    /// A GPU could not be had for sharing, and is not tried again yet.
    SharingFailed,
    /// The kind of GPU request does not go with the node; a sentence.
    Kind(String),
    /// A queue's gate; a sentence.
    Gate(String),
    /// Reserved for other pods; a sentence.
    Reserved(String),
}

impl Refusal {
    /// KAI's words.
    #[must_use]
    pub fn text(&self) -> String {
        let enough = |what: &str| format!("node(s) didn't have enough resources: {what}");
        match self {
            Self::Unschedulable => "node is unschedulable".to_owned(),
            Self::NotReady => "node has NotReady condition".to_owned(),
            Self::Gpus => enough("GPUs"),
            Self::GpuMemory => enough("GPU memory"),
            Self::Cpu => enough("CPU cores"),
            Self::Memory => enough("memory"),
            Self::Other(name) => enough(name),
            Self::Mig(profile) => format!("node(s) didn't have enough of mig profile: {profile}"),
            Self::PodSlots => "node(s) pod number exceeded".to_owned(),
            Self::Taint => "node(s) had untolerated taint(s)".to_owned(),
            Self::Affinity => "node(s) didn't match Pod's node affinity/selector".to_owned(),
            Self::Ports => "node(s) didn't have free ports for the requested pod ports".to_owned(),
            Self::Neighbours(clash) => match clash {
                Clash::Near => "node(s) didn't match pod affinity rules",
                Clash::Apart => "node(s) didn't match pod anti-affinity rules",
                Clash::Shunned => "node(s) didn't satisfy existing pods anti-affinity rules",
                Clash::SpreadLabel => "node(s) didn't match pod topology spread constraints (missing required label)",
                Clash::Spread => "node(s) didn't match pod topology spread constraints",
            }
            .to_owned(),
            Self::Volumes(clash) => clash.text(),
            Self::Numa => "node cannot NUMA-align the pod's resources under its Topology Manager policy".to_owned(),
            Self::SharingFailed => "node(s) failed to reserve a GPU for sharing and will be tried again".to_owned(),
            Self::Kind(text) | Self::Gate(text) | Self::Reserved(text) | Self::Devices(text) => text.clone(),
        }
    }
}

/// Why a pod fits nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodProblem {
    /// Said instead of "no nodes with enough resources were found".
    pub headline: Option<String>,
    /// Reasons and how many nodes gave them.
    pub counts: BTreeMap<Refusal, usize>,
}

impl PodProblem {
    /// KAI's words.
    #[must_use]
    pub fn text(&self) -> String {
        let headline = self
            .headline
            .as_deref()
            .unwrap_or("no nodes with enough resources were found");
        let mut sorted: Vec<_> = self
            .counts
            .iter()
            .map(|(reason, count)| format!("{count} {}", reason.text()))
            .collect();
        sorted.sort();
        let sorted = sorted.join(". \n");
        if sorted.is_empty() {
            headline.to_owned()
        } else {
            format!("{headline}: {sorted}.")
        }
    }
}

/// Asks every node in question why it refuses a pod.
pub fn examine(model: &Model, context: Context, task: PodId) -> PodProblem {
    let pod = &model.pods[task];
    let shape = &model.shapes[pod.shape];
    // In a full cluster most nodes have too little, which is seen at a glance where nothing but amounts is asked for: one bit each.
    let plain = pod.input.claims.is_none() && shape.plain() && shape.vector.iter().count() <= 64;
    let (mut lacking, mut said) = (Votes::<u64>::default(), Votes::<Refusals>::default());
    for &id in model.by_name.iter().filter(|id| context.scope.has(**id)) {
        let node = &model.nodes[id];
        if plain && !shape.vector.fits(&node.future, false) {
            lacking.cast(short(shape, node).fold(0, |bits, at| bits | 1 << at));
        } else {
            said.cast(refusals(model, context, task, id));
        }
    }
    let lacking = lacking.counted().map(|(bits, nodes)| {
        let positions = (0..64).filter(|at| bits >> at & 1 == 1);
        (positions.filter_map(|at| shortage(model, at)).collect(), nodes)
    });
    let mut counts = BTreeMap::new();
    for (reasons, nodes) in lacking.chain(said.counted()) {
        for reason in reasons {
            *counts.entry(reason).or_insert(0) += nodes;
        }
    }
    PodProblem { headline: None, counts }
}

/// How many nodes said what.
#[derive(Debug, Default)]
struct Votes<T> {
    /// Most nodes say what the one before said.
    last: Option<(T, usize)>,
    counts: BTreeMap<T, usize>,
}

impl<T: Ord> Votes<T> {
    fn cast(&mut self, vote: T) {
        match &mut self.last {
            Some((said, nodes)) if *said == vote => *nodes += 1,
            last => {
                let before = last.replace((vote, 1));
                self.count(before);
            }
        }
    }

    fn count(&mut self, said: Option<(T, usize)>) {
        if let Some((said, nodes)) = said {
            *self.counts.entry(said).or_insert(0) += nodes;
        }
    }

    fn counted(mut self) -> impl Iterator<Item = (T, usize)> {
        let last = self.last.take();
        self.count(last);
        self.counts.into_iter()
    }
}

/// Reasons of one node.
pub type Refusals = SmallVec<[Refusal; 1]>;

/// Why a node refuses a pod; empty if it does not.
#[must_use]
pub fn refusals(model: &Model, context: Context, task: PodId, id: NodeId) -> Refusals {
    let policy = context.policy;
    let pod = &model.pods[task];
    let (node, shape) = (&model.nodes[id], &model.shapes[pod.shape]);
    if !filter::task_fits(model, task, id, false) {
        let spared = claims::spared(model, task, id, claims::figures(true));
        return shortages(model, shape, node, spared);
    }
    let constraints = &model.classes[pod.class].constraints;
    if let Some((closed, amount)) = filter::closed_gate(model, task, node).filter(|_| shape.gpu.memory > 0) {
        let details = gates::message(model, closed, &amount);
        return smallvec![Refusal::Gate(format!(
            "node does not have enough capacity. Reason: {}, Details: {details}",
            closed.code.as_str()
        ))];
    }
    if !filter::node_kind_allows(node, shape) {
        return smallvec![Refusal::Kind(kind_text(model, task, id))];
    }
    if !claims::gpus_served(model, task, id) {
        let text = "device-plugin GPU requests cannot be scheduled on DRA-only nodes";
        return smallvec![Refusal::Kind(text.to_owned())];
    }
    let input = node.input.as_ref();
    if shape.gpu.memory > 0 && input.is_none_or(|input| input.gpu_memory.is_none()) {
        return smallvec![Refusal::Kind(format!(
            "node is not a gpu node or the gpu memory count on the node was not synced yet, task: <{}/{}>, node: <{}>",
            pod.input.pod.namespace, pod.input.pod.name, node.name
        ))];
    }
    if !filter::sharing_open(node, shape) {
        return smallvec![Refusal::SharingFailed];
    }
    if !filter::slots_suffice(node, shape) {
        return smallvec![Refusal::PodSlots];
    }
    let mut conditions = Refusals::new();
    if input.is_some_and(|input| input.unschedulable) {
        conditions.push(Refusal::Unschedulable);
    }
    if input.is_some_and(|input| !input.ready) {
        conditions.push(Refusal::NotReady);
    }
    if !conditions.is_empty() {
        return conditions;
    }
    if !constraints.tolerates(node) {
        return smallvec![Refusal::Taint];
    }
    if !constraints.selects(node) {
        return smallvec![Refusal::Affinity];
    }
    if !constraints.ports.is_empty() && !filter::ports_free(model, task, node) {
        return smallvec![Refusal::Ports];
    }
    let clash = neighbours::clash(model, task, id).or_else(|| context.spreading?.clash(model, id));
    if let Some(clash) = clash {
        return smallvec![Refusal::Neighbours(clash)];
    }
    if let Err(clash) = volumes::fit(model, task, id, false, policy.csi_storage) {
        return smallvec![Refusal::Volumes(clash)];
    }
    if policy.restrict_nodes && !filter::worker_label_fits(policy, node, shape) {
        let kind = if shape.cpu_only { "cpu" } else { "gpu" };
        return smallvec![Refusal::Reserved(format!(
            "{kind} task: <{}/{}> can't run on non {kind} nodes, node: <{}>",
            pod.input.pod.namespace, pod.input.pod.name, node.name
        ))];
    }
    if let Err(text) = claims::choose(model, task, id, false) {
        return smallvec![Refusal::Devices(text)];
    }
    if !numa::allows(model, task, id) {
        return smallvec![Refusal::Numa];
    }
    Refusals::new()
}

fn kind_text(model: &Model, task: PodId, id: NodeId) -> String {
    let (shape, node) = (&model.shapes[model.pods[task].shape], &model.nodes[id]);
    if shape.gpu.legacy_mig {
        return format!("Legacy MIG jobs cannot be scheduled on node {}", node.name);
    }
    if shape.shared && node.input.as_ref().is_some_and(|input| input.dra_gpus) {
        return "fractional/shared GPU pods are not yet supported on DRA-only nodes".to_owned();
    }
    if shape.gpu.kind == GpuKind::Mig && node.input.as_ref().is_some_and(|input| !input.mig) {
        return "MIG job cannot be scheduled on non-MIG node".to_owned();
    }
    match shape.gpu.kind {
        GpuKind::Mig => "only whole gpu jobs can run on a node with MigStrategy='single'",
        GpuKind::Regular => "non MIG jobs cant run on a node with MigStrategy='mixed'",
        GpuKind::Fraction | GpuKind::Memory => "only whole gpu jobs can run on a node with MigStrategy='single'",
    }
    .to_owned()
}

/// What a node has too little of.
fn shortages(model: &Model, shape: &Shape, node: &Node, spared: i64) -> Refusals {
    let mut reasons = Refusals::new();
    for (name, amount) in &shape.gpu.mig {
        let position = model.resources.find(name);
        if position.is_none_or(|at| free(node, at) < *amount) {
            reasons.push(Refusal::Mig(name.to_string()));
        }
    }
    let gpus = if shape.gpu.memory > 0 {
        shape.accepted(node.gpu_memory())[GPUS]
    } else {
        shape.vector.get(GPUS)
    };
    if shape.gpu.mig.is_empty() && gpus - spared > free(node, GPUS).max(0) {
        reasons.push(Refusal::Gpus);
    } else if shape.gpu.memory > 0 && shape.gpu.memory > node.gpu_memory() {
        reasons.push(Refusal::GpuMemory);
    } else if shape.shared && reasons.is_empty() && shape.vector.fits(&node.future, true) && free(node, GPUS) < GPU {
        reasons.push(Refusal::Gpus);
    }
    let others = short(shape, node).filter(|at| *at != GPUS);
    reasons.extend(others.filter_map(|at| shortage(model, at)));
    reasons
}

fn free(node: &Node, position: usize) -> i64 {
    node.idle.get(position) - node.planned.get(position)
}

/// The resources that a node has too little of, by position, as far as amounts tell.
fn short<'a>(shape: &'a Shape, node: &'a Node) -> impl Iterator<Item = usize> + 'a {
    let short = |(at, asked): (usize, i64)| {
        let anyway = matches!(at, CPU | MEMORY);
        ((anyway || asked > 0) && asked > free(node, at)).then_some(at)
    };
    shape.vector.iter().filter_map(short)
}

/// Too little of the resource at a position. Instances of a GPU are told of by their profile.
fn shortage(model: &Model, at: usize) -> Option<Refusal> {
    match at {
        CPU => Some(Refusal::Cpu),
        MEMORY => Some(Refusal::Memory),
        GPUS => Some(Refusal::Gpus),
        _ => {
            let name = model.resources.name(at);
            (mig_slices(name) == 0).then(|| Refusal::Other(name.to_string()))
        }
    }
}

/// What makes a pod hopeless whatever happens in the cluster: something that it needs is missing, or no node is large enough.
#[must_use]
pub fn impossible(model: &Model, policy: &Policy, task: PodId) -> Option<String> {
    let pod = &model.pods[task];
    if let Some(text) = &model.classes[pod.class].constraints.blocked {
        return Some(text.to_string());
    }
    let shape = &model.shapes[pod.shape];
    let extended = pod.input.claims.iter().flat_map(|claims| &claims.extended);
    let stood_for = extended
        .flat_map(|extended| &extended.wanted)
        .filter(|(_, gpu, _)| !gpu);
    let stood_for: Vec<_> = stood_for.filter_map(|(name, ..)| model.resources.find(name)).collect();
    let elsewhere = if model.devices.plain() { 0 } else { shape.gpu.dra * GPU };
    let short = |position: &usize| {
        let spared = if *position == GPUS { elsewhere } else { 0 };
        let asked = shape.vector.get(*position) - spared;
        asked > 0 && asked > model.largest.get(*position) && !stood_for.contains(position)
    };
    let others = shape.vector.iter().map(|(at, _)| at).skip(PODS);
    let position = [GPUS, CPU, MEMORY]
        .into_iter()
        .chain(others)
        .find(|position| short(position))?;
    let name = model.resources.name(position);
    let (item, unit) = match position {
        GPUS => ("GPU", ""),
        CPU => ("CPU", " cores"),
        MEMORY => ("memory", " GB"),
        _ => (&**name, ""),
    };
    let most = if position > MEMORY && position != GPUS {
        0
    } else {
        model.largest.get(position)
    };
    let pool = &policy.node_pool;
    let tail = if most <= 0 {
        format!("No node in the {pool} node-pool has {item} resources")
    } else {
        let most = gates::readable(most, position);
        format!("Max {item} resources available in a single node in the {pool} node-pool is topped at {most}{unit}")
    };
    Some(format!(
        "The pod {}/{} requires {}. {tail}",
        pod.input.pod.namespace,
        pod.input.pod.name,
        requirements(model, task)
    ))
}

/// [`impossible`] as an attempt to place the pod words it.
#[must_use]
pub fn too_large(model: &Model, policy: &Policy, task: PodId) -> Option<String> {
    let text = impossible(model, policy, task)?;
    let pod = &model.pods[task].input;
    let check = if pod.blocked.is_some() {
        "ConfigMap"
    } else if pod.volumes.as_ref().is_some_and(|volumes| volumes.missing.is_some()) {
        "VolumeBinding"
    } else {
        "MaxNodePoolResources"
    };
    Some(format!(
        "Scheduling conditions were not met for pod {}/{}:\n{check}: {text}.\n",
        pod.pod.namespace, pod.pod.name
    ))
}

fn requirements(model: &Model, task: PodId) -> String {
    let shape = &model.shapes[model.pods[task].shape];
    let show = |position: usize| gates::readable(shape.vector.get(position), position);
    let mut text = format!(
        "GPU: {}, CPU: {} (cores), memory: {} (GB)",
        show(GPUS),
        show(CPU),
        show(MEMORY)
    );
    let rest: Vec<_> = shape
        .vector
        .iter()
        .skip(PODS)
        .filter(|(_, amount)| *amount != 0)
        .collect();
    for &(position, amount) in &rest {
        let name = model.resources.name(position);
        if !name.starts_with(resource::NVIDIA_MIG_PREFIX) {
            text += &format!(", {name}: {amount}");
        }
    }
    for &(position, amount) in &rest {
        let name = model.resources.name(position);
        if name.starts_with(resource::NVIDIA_MIG_PREFIX) {
            text += &format!(", mig {name}: {amount}");
        }
    }
    text
}
