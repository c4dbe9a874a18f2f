//! Why one pod does not fit: a count per reason over the nodes that refuse it, and the reasons of each node if the policy has them listed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::api::names::resource;
use crate::engine::fairshare::quotas;
use crate::engine::model::Model;
use crate::engine::model::ids::PodId;
use crate::engine::model::resources::{CPU, GPUS, MEMORY, PODS};
use crate::engine::placement::choose::Context;
use crate::engine::placement::rules::{Reasons, Refusal, refusals, resources};
use crate::engine::policy::Policy;

/// Nodes or reasons that a message lists: every pod that waits has the list in its condition and its events.
const NODES_MAX: usize = 50;
/// Bytes of their lines, half of what the message of an event may have.
const NODE_LINES_MAX: usize = 4_096;

/// Why a pod fits nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodProblem {
    /// Replaces "no nodes with enough resources were found".
    pub headline: Option<String>,
    /// Number of nodes by reason.
    pub counts: BTreeMap<Refusal, usize>,
    /// With [`Policy::detailed_errors`], a line with the reasons of each node, to be added to the message of the pod.
    pub nodes: String,
}

impl PodProblem {
    /// The message, as KAI reports it.
    #[must_use]
    pub fn text(&self) -> String {
        let headline = self
            .headline
            .as_deref()
            .unwrap_or("no nodes with enough resources were found");
        // Some reasons name the node, so there may be one for each.
        let mut counts: Vec<_> = self.counts.iter().collect();
        counts.sort_by_key(|(_, nodes)| Reverse(**nodes));
        let listed = counts.iter().take(NODES_MAX);
        let mut sorted: Vec<_> = listed.map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
        if counts.len() > NODES_MAX {
            sorted.push(format!("reasons that are not listed: {}", counts.len() - NODES_MAX));
        }
        sorted.sort();
        let sorted = sorted.join(". \n");
        if sorted.is_empty() {
            headline.to_owned()
        } else {
            format!("{headline}: {sorted}.")
        }
    }
}

/// Collects the reasons of all candidate nodes that refuse a pod.
pub fn examine(model: &Model, context: Context, pod: PodId) -> PodProblem {
    // Fast path: in a full cluster most nodes lack resources only.
    let missing = resources::missing_mask(model, pod);
    let of_mask = |mask: u64| -> Reasons { resources::of_mask(model, mask).map(Refusal::from).collect() };
    let (mut lacking, mut said) = (RefusalCounts::<u64>::default(), RefusalCounts::<Reasons>::default());
    let mut lines = context.policy.detailed_errors.then(NodeLines::default);
    for id in context.scope.by_name(model) {
        let node = &model.nodes()[id];
        if let Some(mask) = missing.as_ref().and_then(|missing| missing(node)) {
            if let Some(lines) = &mut lines {
                lines.add(&node.name, &of_mask(mask));
            }
            lacking.cast(mask);
        } else {
            let reasons = refusals(&context.pair(model, pod, id)).unwrap_or_default();
            if let Some(lines) = &mut lines {
                lines.add(&node.name, &reasons);
            }
            said.cast(reasons);
        }
    }
    let lacking = lacking.counted().map(|(mask, nodes)| (of_mask(mask), nodes));
    let mut counts = BTreeMap::new();
    for (reasons, nodes) in lacking.chain(said.counted()) {
        for reason in reasons {
            *counts.entry(reason).or_insert(0) += nodes;
        }
    }
    PodProblem {
        headline: None,
        counts,
        nodes: lines.map_or_else(String::new, NodeLines::text),
    }
}

/// A line with the reasons of each node, up to the limits; further nodes are counted.
#[derive(Debug, Default)]
struct NodeLines {
    text: String,
    listed: usize,
    more: usize,
}

impl NodeLines {
    fn add(&mut self, node: &str, reasons: &[Refusal]) {
        if reasons.is_empty() {
            return;
        }
        if self.more == 0 && self.listed < NODES_MAX {
            let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
            let line = format!("\n<{node}>: {}.", reasons.join(", "));
            if self.text.len() + line.len() <= NODE_LINES_MAX {
                self.text += &line;
                self.listed += 1;
                return;
            }
        }
        self.more += 1;
    }

    fn text(self) -> String {
        match self.more {
            0 => self.text,
            1 => self.text + "\nand 1 more node.",
            more => format!("{}\nand {more} more nodes.", self.text),
        }
    }
}

/// Counts equal reasons of nodes.
#[derive(Debug, Default)]
struct RefusalCounts<T> {
    /// The last value and its count: most nodes have the same reasons as the node before.
    last: Option<(T, usize)>,
    counts: BTreeMap<T, usize>,
}

impl<T: Ord> RefusalCounts<T> {
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

/// The checks that a pod fails in any state of the cluster, with KAI's names and in its order: what it needs is missing, or no node is large enough.
fn failed_checks(model: &Model, policy: &Policy, id: PodId) -> impl Iterator<Item = (&'static str, String)> {
    let input = &model.pods()[id].input;
    let volumes = input.volumes.as_ref().and_then(|volumes| volumes.missing.as_ref());
    let checks = [
        ("VolumeBinding", volumes.map(ToString::to_string)),
        ("ConfigMap", input.blocked.as_ref().map(ToString::to_string)),
        ("MaxNodePoolResources", larger_than_all_nodes(model, policy, id)),
    ];
    checks.into_iter().filter_map(|(check, text)| Some((check, text?)))
}

/// Why a pod cannot be scheduled in any state of the cluster: what the first failed check says.
#[must_use]
pub fn impossible(model: &Model, policy: &Policy, id: PodId) -> Option<String> {
    failed_checks(model, policy, id).next().map(|(_, text)| text)
}

/// All failed checks, in the message of a placement attempt.
#[must_use]
pub fn too_large(model: &Model, policy: &Policy, id: PodId) -> Option<String> {
    let lines = failed_checks(model, policy, id).map(|(check, text)| format!("{check}: {text}.\n"));
    let lines: String = lines.collect();
    let pod = &model.pods()[id].input.pod;
    (!lines.is_empty()).then(|| format!("Scheduling conditions were not met for pod {pod}:\n{lines}"))
}

fn larger_than_all_nodes(model: &Model, policy: &Policy, id: PodId) -> Option<String> {
    let position = resources::larger_than_all_nodes(model, id)?;
    let name = model.resources().name(position);
    let (item, unit) = match position {
        GPUS => ("GPU", ""),
        CPU => ("CPU", " cores"),
        MEMORY => ("memory", " GB"),
        _ => (&**name, ""),
    };
    let most = if position > MEMORY && position != GPUS {
        0
    } else {
        model.largest().get(position)
    };
    let pool = &policy.node_pool;
    let tail = if most <= 0 {
        format!("No node in the {pool} node-pool has {item} resources")
    } else {
        let most = quotas::readable(most, position);
        format!("Max {item} resources available in a single node in the {pool} node-pool is topped at {most}{unit}")
    };
    let pod = &model.pods()[id].input.pod;
    Some(format!("The pod {pod} requires {}. {tail}", requirements(model, id)))
}

fn requirements(model: &Model, pod: PodId) -> String {
    let shape = &model.shapes()[model.pods()[pod].shape];
    let show = |position: usize| quotas::readable(shape.vector.get(position), position);
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
        let name = model.resources().name(position);
        if matches!(&**name, resource::EPHEMERAL_STORAGE | "storage") {
            text += &format!(", {name}: {} (GB)", quotas::readable(amount, MEMORY));
        } else if !name.starts_with(resource::NVIDIA_MIG_PREFIX) {
            text += &format!(", {name}: {amount}");
        }
    }
    for &(position, amount) in &rest {
        let name = model.resources().name(position);
        if name.starts_with(resource::NVIDIA_MIG_PREFIX) {
            text += &format!(", mig {name}: {amount}");
        }
    }
    text
}
