//! Verdicts about a pod that fits no node.

use std::cmp::Reverse;

use crate::engine::actions::context::CycleContext;
use crate::engine::decision::{Cause, Verdict};
use crate::engine::explain::refusal::PodProblem;
use crate::engine::input::{GPU, Name, Time};
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodGroupId, PodId};
use crate::engine::model::resources::{CPU, GPUS, mig_slices};
use crate::engine::placement::claims;
use crate::engine::placement::rules::resources::larger_than_all_nodes;
use crate::engine::policy::ActionKind;

use super::holders::{Answers, Shortage, parts};
use super::obstacles::{Obstacle, bad_conditions, of_refusal};
use super::scan::{NodeScan, free, free_parts, portion};
use super::words::{count, gpus, instant, number, one_sentence, quantity, resource_name};

/// Kinds of obstacles in a message.
const NAMED: usize = 5;

/// A pod that fits no node.
#[derive(Clone, Copy)]
pub struct Unplaced<'a> {
    /// The cluster.
    pub model: &'a Model,
    /// The settings and the time.
    pub context: CycleContext<'a>,
    /// Its pod group.
    pub pod_group: PodGroupId,
    /// The pod.
    pub pod: PodId,
    /// Pods of its pod set that were placed before it.
    pub placed: usize,
    /// The report of the attempt.
    pub problem: &'a PodProblem,
    /// The scan of the nodes.
    pub scan: &'a NodeScan,
    /// Answers about holders.
    pub answers: &'a Answers,
}

type TimedVerdict = (Verdict, Option<Time>);

/// Why no node can take the pod, whichever pods run.
#[must_use]
pub fn never(model: &Model, pod: PodId) -> Option<Verdict> {
    let entry = &model.pods()[pod];
    let volumes = entry.input.volumes.as_ref();
    if let Some(text) = volumes.and_then(|volumes| volumes.missing.as_ref()) {
        return Some(Verdict::new(Cause::Volumes, sentence_of(text)));
    }
    if let Some(text) = &model.classes()[entry.class].constraints.blocked {
        return Some(Verdict::new(Cause::ObjectMissing, sentence_of(text)));
    }
    if let Some(position) = larger_than_all_nodes(model, pod) {
        return Some(too_large(model, pod, position));
    }
    let refused = claims::refused(model, pod)?;
    let missing = entry
        .input
        .claims
        .iter()
        .flat_map(|claims| &claims.named)
        .find_map(|named| {
            let key = named.claim.as_ref()?;
            let known = model.devices().claims.find(key).map(|id| &model.devices().claims[id]);
            known.is_none_or(|claim| claim.input.is_none()).then_some(key)
        });
    let sentence = match missing {
        Some(key) => format!("ResourceClaim {key} does not exist; create it"),
        None => sentence_of(&refused),
    };
    Some(Verdict::new(Cause::Devices, sentence))
}

/// A message of a rule as a sentence.
fn sentence_of(text: &str) -> String {
    let text = one_sentence(text).replace("persistentvolumeclaim", "PersistentVolumeClaim");
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn too_large(model: &Model, pod: PodId, position: usize) -> Verdict {
    let shape = &model.shapes()[model.pods()[pod].shape];
    let asked = quantity(model, position, shape.vector.get(position));
    let nodes: Vec<NodeId> = model.by_name().to_vec();
    let largest = nodes
        .iter()
        .rev()
        .max_by_key(|id| model.nodes()[**id].allocatable.get(position));
    let most = largest.map_or(0, |id| model.nodes()[*id].allocatable.get(position));
    let name = resource_name(model, position);
    if position > GPUS && mig_slices(&name) > 0 && most <= 0 {
        return Verdict::new(
            Cause::MigProfile,
            format!("No node has MIG profile {name} (asks {asked})"),
        );
    }
    let sentence = match largest.filter(|_| most > 0) {
        Some(node) => {
            let (most, node) = (number(model, position, most), &model.nodes()[*node].name);
            format!(
                "The pod asks for {asked}, no node has more than {most} ({node}); ask for less or add a larger node"
            )
        }
        None if nodes.is_empty() => format!("There are no nodes (asks {asked})"),
        None => format!("No node has {name} (asks {asked})"),
    };
    Verdict::new(
        if nodes.is_empty() {
            Cause::NoNodes
        } else {
            Cause::TooLarge
        },
        sentence,
    )
}

impl Unplaced<'_> {
    /// The verdict, and when it expires.
    #[must_use]
    pub fn verdict(&self) -> TimedVerdict {
        let Self { scan, .. } = *self;
        if scan.nodes == 0 {
            return (self.no_nodes(), None);
        }
        if let Some(verdict) = self.too_many_devices() {
            return (verdict, None);
        }
        let wanted = self.alike();
        if scan.fitting > 0 {
            return if wanted > 1 && scan.slots < wanted {
                self.gang(wanted)
            } else {
                (self.as_found(), None)
            };
        }
        let full: Vec<usize> = scan
            .out
            .keys()
            .filter_map(|obstacle| match obstacle {
                Obstacle::Full(at) => Some(*at),
                _ => None,
            })
            .collect();
        match &*full {
            [only] if scan.out.len() == 1 => self.full(*only, wanted),
            [] => (self.obstacles(), None),
            several => {
                let (room, until) = self.full(several[0], wanted);
                let mut verdict = self.obstacles();
                verdict.evidence.push(room.sentence);
                verdict.evidence.extend(room.evidence);
                (verdict, until)
            }
        }
    }

    /// Pods of the next attempt with the same class and shape.
    fn alike(&self) -> i64 {
        let pods = self.model.pods();
        let kind = (pods[self.pod].shape, pods[self.pod].class);
        let chunk = self.model.next_chunk(self.pod_group, self.context.now);
        let alike = chunk
            .iter()
            .filter(|pod| (pods[**pod].shape, pods[**pod].class) == kind);
        (alike.count() as i64).max(1)
    }

    fn no_nodes(&self) -> Verdict {
        let Self { model, scan, pod, .. } = self;
        let shape = &model.shapes()[model.pods()[*pod].shape];
        let sentence = if scan.without_gpus > 0 {
            let asked = quantity(model, GPUS, shape.quota[GPUS]);
            format!(
                "No node has GPUs (asks {asked}, {})",
                count(scan.without_gpus, "node without", "nodes without")
            )
        } else {
            format!("There are no nodes in node pool {}", self.context.policy.node_pool)
        };
        Verdict::new(Cause::NoNodes, sentence)
    }

    /// `GPU nodes` or `nodes`.
    fn kind(&self) -> &'static str {
        match (self.scan.gpu, self.scan.nodes) {
            (true, 1) => "GPU node",
            (true, _) => "GPU nodes",
            (false, 1) => "node",
            (false, _) => "nodes",
        }
    }

    /// One sentence with all obstacles.
    fn obstacles(&self) -> Verdict {
        let Self { model, scan, pod, .. } = self;
        let mut all: Vec<(&Obstacle, usize)> = scan.out.iter().map(|(obstacle, nodes)| (obstacle, *nodes)).collect();
        all.sort_by_key(|(_, nodes)| Reverse(*nodes));
        let (total, kind) = (scan.nodes, self.kind());
        let (have, fit) = if total == 1 { ("has", "fits") } else { ("have", "fit") };
        let cause = match &*all {
            [(only, _)] => only.cause(),
            _ => Cause::Nodes,
        };
        if let [(Obstacle::Selector(at), _)] = *all {
            let (key, value) = &model.classes()[model.pods()[*pod].class].constraints.selector[*at];
            return Verdict::new(
                cause,
                format!("0 of {total} {kind} {have} label {key}={value} (nodeSelector)"),
            );
        }
        if let [(Obstacle::Rule(Cause::GpuMemoryUnknown, _), _)] = *all {
            let sentence = format!(
                "0 of {total} {kind} {have} label nvidia.com/gpu.memory, without which GPU memory cannot be asked for"
            );
            return Verdict::new(cause, sentence);
        }
        let clauses: Vec<String> = all
            .iter()
            .take(NAMED)
            .map(|(obstacle, nodes)| self.clause(obstacle, *nodes))
            .collect();
        let rest: usize = all.iter().skip(NAMED).map(|(_, nodes)| nodes).sum();
        let rest = if rest > 0 {
            format!(", {rest} for other reasons")
        } else {
            String::new()
        };
        Verdict::new(
            cause,
            format!("0 of {total} {kind} {fit}: {}{rest}", clauses.join(", ")),
        )
    }

    fn clause(&self, obstacle: &Obstacle, nodes: usize) -> String {
        let most = match obstacle {
            Obstacle::Full(at) => {
                let (_, most, node) = free(self.model, &self.scan.open, *at);
                node.map(|node| {
                    let name = &self.model.nodes()[node].name;
                    format!("at most {} free on {name}", number(self.model, *at, most))
                })
            }
            Obstacle::NotReady(Some(conditions)) => self.since(conditions),
            _ => None,
        };
        format!(
            "{nodes} {}",
            obstacle.predicate(self.model, self.pod, nodes, most.as_deref())
        )
    }

    /// Since when the first of the nodes with these conditions is not ready.
    fn since(&self, conditions: &Name) -> Option<String> {
        let nodes = self.model.nodes().iter();
        let faults = nodes.filter_map(|(_, node)| Some(&node.input.as_ref()?.faults));
        let since = faults
            .filter(|faults| bad_conditions(faults).as_ref() == Some(conditions))
            .flatten()
            .filter_map(|fault| fault.since);
        Some(format!("since {}", instant(since.min()?, self.context.now)))
    }

    /// The result of the attempt, where another attempt would give another after the rollback.
    fn as_found(&self) -> Verdict {
        let mut all: Vec<(Obstacle, usize)> = Vec::new();
        for (refusal, nodes) in &self.problem.counts {
            let obstacle = of_refusal(self.model, self.pod, None, refusal);
            match all.iter_mut().find(|(known, _)| *known == obstacle) {
                Some((_, sum)) => *sum = (*sum).max(*nodes),
                None => all.push((obstacle, *nodes)),
            }
        }
        all.sort_by_key(|(_, nodes)| Reverse(*nodes));
        let clauses: Vec<String> = (all.iter().take(NAMED))
            .map(|(obstacle, nodes)| format!("{nodes} {}", obstacle.predicate(self.model, self.pod, *nodes, None)))
            .collect();
        let (name, nodes) = (&self.model.pods()[self.pod].input.pod.name, self.kind());
        let why = if clauses.is_empty() {
            String::new()
        } else {
            format!(": of the {nodes} {}", clauses.join(", "))
        };
        let needed = self.model.next_chunk(self.pod_group, self.context.now).len();
        let (cause, sentence) = match &*all {
            _ if needed > 1 => (
                Cause::Gang,
                format!(
                    "{} of {needed} pods of the gang fit, and {name} does not beside them{why}",
                    self.placed
                ),
            ),
            [(only, _)] => (only.cause(), format!("Pod {name} fits nowhere at present{why}")),
            _ => (Cause::Nodes, format!("Pod {name} fits nowhere at present{why}")),
        };
        Verdict::new(cause, sentence)
    }

    /// It requests portions of more GPUs than a node has, or more memory of one than any GPU has.
    fn too_many_devices(&self) -> Option<Verdict> {
        let Self { model, scan, .. } = self;
        let shape = &model.shapes()[model.pods()[self.pod].shape];
        if !shape.shared || scan.open.is_empty() || scan.fitting > 0 {
            return None;
        }
        // Nodes are in the order of their names; of several equal ones the last is taken.
        let devices = |id: &NodeId| model.nodes()[*id].allocatable.get(GPUS) / GPU;
        let largest = scan.open.iter().rev().max_by_key(|id| devices(id))?;
        let name = &model.nodes()[*largest].name;
        if shape.gpu.count > devices(largest) {
            let asked = if shape.gpu.memory > 0 {
                format!("{} MiB of each of {} GPUs", shape.gpu.memory, shape.gpu.count)
            } else {
                parts(portion(shape), shape.gpu.count)
            };
            let most = quantity(model, GPUS, devices(largest) * GPU);
            let sentence = format!("The pod asks for {asked}, no node has more than {most} ({name}); ask for fewer");
            return Some(Verdict::new(Cause::TooLarge, sentence));
        }
        let memory = |id: &NodeId| model.nodes()[*id].gpu_memory();
        let largest = scan.open.iter().rev().max_by_key(|id| memory(id))?;
        let (most, name) = (memory(largest), &model.nodes()[*largest].name);
        (shape.gpu.memory > most).then(|| {
            let asked = shape.gpu.memory;
            let sentence = format!(
                "The pod asks for {asked} MiB of GPU memory, no GPU has more than {most} MiB ({name}); ask for less"
            );
            Verdict::new(Cause::TooLarge, sentence)
        })
    }

    /// Every candidate node has too little of one resource.
    fn full(&self, position: usize, wanted: i64) -> TimedVerdict {
        let Self { model, scan, .. } = *self;
        let shape = &model.shapes()[model.pods()[self.pod].shape];
        if wanted > 1 {
            return self.gang(wanted);
        }
        if position == GPUS && shape.shared {
            return self.parts_full();
        }
        let asked = shape.vector.get(position);
        let (sum, most, node) = free(model, &scan.open, position);
        if position != GPUS {
            let mut verdict = self.obstacles();
            if position > GPUS {
                return (verdict, None);
            }
            let intro = format!("Waits for {}", quantity(model, position, asked));
            let (room, until) = self.answers.holders(
                model,
                self.context,
                self.pod,
                self.lack(position, asked, sum.min(asked - 1)),
                &intro,
            );
            verdict.evidence.push(room.sentence);
            return (verdict, until);
        }
        let intro = format!("Waits for {}", quantity(model, position, asked));
        let (held, until) =
            self.answers
                .holders(model, self.context, self.pod, self.lack(position, asked, most), &intro);
        if sum < asked || asked <= 0 {
            return (held, until);
        }
        let at = node.map_or_else(String::new, |node| format!(" ({})", model.nodes()[node].name));
        let sentence = format!(
            "GPUs are fragmented: {} are free, at most {} on one node{at}, the pod needs {}{}",
            gpus(sum),
            gpus(most),
            gpus(asked),
            self.consolidation()
        );
        let verdict = Verdict {
            evidence: std::iter::once(held.sentence).chain(held.evidence).collect(),
            ..Verdict::new(Cause::Fragmented, sentence)
        };
        (verdict, until)
    }

    fn lack(&self, position: usize, asked: i64, free: i64) -> Shortage<'_> {
        Shortage {
            pod_group: self.pod_group,
            position,
            asked,
            free,
            nodes: &self.scan.open,
        }
    }

    /// The sentence about consolidation, where free resources are fragmented.
    fn consolidation(&self) -> String {
        let entry = &self.model.pod_groups()[self.pod_group];
        let preemptible = entry.input.as_ref().is_some_and(|input| input.preemptible);
        if !self.context.policy.actions.contains(&ActionKind::Consolidation) {
            String::new()
        } else if !preemptible {
            "; consolidation moves nothing for non-preemptible workloads".to_owned()
        } else if let Some(delay) = entry.delay(self.context.now) {
            let until = instant(delay.until, self.context.now);
            format!("; consolidation moves nothing for it before {until} ({})", delay.cause)
        } else {
            "; consolidation found no move".to_owned()
        }
    }

    /// No GPU has the requested portion free.
    fn parts_full(&self) -> TimedVerdict {
        let Self { model, scan, .. } = *self;
        let shape = &model.shapes()[model.pods()[self.pod].shape];
        let (most, node, sum) = free_parts(model, &scan.open);
        let count = shape.gpu.count.max(1);
        let (asked, part) = if shape.gpu.memory > 0 {
            let of = node.map_or(1, |node| model.nodes()[node].gpu_memory()).max(1);
            let each = if count > 1 {
                format!(" on each of {count} GPUs")
            } else {
                String::new()
            };
            let part = i64::try_from(i128::from(shape.gpu.memory) * i128::from(GPU) / i128::from(of)).unwrap_or(GPU);
            (format!("{} MiB of GPU memory{each}", shape.gpu.memory), part)
        } else {
            (parts(portion(shape), count), portion(shape))
        };
        let intro = format!("Waits for {asked}");
        let (held, until) = self.answers.holders(
            model,
            self.context,
            self.pod,
            self.lack(GPUS, part * count, most.min(part - 1)),
            &intro,
        );
        if sum < part * count || sum == 0 {
            return (held, until);
        }
        let at = node.map_or_else(String::new, |node| format!(" ({})", model.nodes()[node].name));
        let sentence = format!(
            "GPUs are fragmented: at most {} of one GPU is free{at}, {} in all, the pod needs {asked}{}",
            gpus(most),
            gpus(sum),
            self.consolidation()
        );
        let verdict = Verdict {
            evidence: std::iter::once(held.sentence).chain(held.evidence).collect(),
            ..Verdict::new(Cause::Fragmented, sentence)
        };
        (verdict, until)
    }

    /// Fewer pods fit than the gang needs.
    fn gang(&self, wanted: i64) -> TimedVerdict {
        let Self { model, scan, .. } = *self;
        let shape = &model.shapes()[model.pods()[self.pod].shape];
        let position = if shape.cpu_only { CPU } else { GPUS };
        let each = if shape.shared {
            match shape.gpu.memory {
                0 => parts(portion(shape), shape.gpu.count.max(1)),
                memory => format!("{memory} MiB of GPU memory"),
            }
        } else {
            quantity(model, position, shape.vector.get(position))
        };
        let evidence = self.besides();
        if scan.room < wanted {
            let sub_group = self
                .sub_group()
                .map_or_else(String::new, |name| format!(" of sub-group {name}"));
            let sentence = format!(
                "The gang needs {wanted} pods{sub_group} of {each} at once, and all nodes that suit it have room for {} even when empty",
                scan.room
            );
            let verdict = Verdict {
                evidence: evidence.into_iter().collect(),
                ..Verdict::new(Cause::GangTooLarge, sentence)
            };
            return (verdict, None);
        }
        let asked = shape.vector.get(position).saturating_mul(wanted);
        let (sum, most, node) = free(model, &scan.open, position);
        let slots = scan.slots;
        let intro = if shape.shared {
            format!("Waits for room for {wanted} pods of {each} ({slots} fit)")
        } else {
            format!(
                "Waits for {} ({wanted} pods of {each}, {slots} fit)",
                quantity(model, position, asked)
            )
        };
        let usable = slots.saturating_mul(shape.vector.get(position));
        let (mut held, until) = self.answers.holders(
            model,
            self.context,
            self.pod,
            self.lack(position, asked, usable),
            &intro,
        );
        if position == GPUS && !shape.shared && sum >= asked {
            let at = node.map_or_else(String::new, |node| format!(" ({})", model.nodes()[node].name));
            let sentence = format!(
                "GPUs are fragmented: {} are free, at most {} on one node{at}, each of {wanted} pods needs {}{}",
                gpus(sum),
                gpus(most),
                gpus(shape.vector.get(GPUS)),
                self.consolidation()
            );
            let mut fragmented = Verdict::new(Cause::Fragmented, sentence);
            fragmented.evidence.push(held.sentence);
            fragmented.evidence.append(&mut held.evidence);
            held = fragmented;
        }
        held.evidence.extend(evidence);
        (held, until)
    }

    /// The obstacles of the gang on nodes that lack more than free resources, beside the nodes where some of its pods fit.
    fn besides(&self) -> Option<String> {
        let Self { scan, .. } = self;
        if scan.fitting == 0 {
            return None;
        }
        let spec = |(obstacle, _): &(&Obstacle, &usize)| !matches!(obstacle, Obstacle::Full(_));
        let clauses = scan.out.iter().filter(spec).take(NAMED);
        let clauses: Vec<String> = clauses.map(|(obstacle, nodes)| self.clause(obstacle, *nodes)).collect();
        (!clauses.is_empty()).then(|| format!("Of {} {}, {}", scan.nodes, self.kind(), clauses.join(", ")))
    }

    fn sub_group(&self) -> Option<Name> {
        let entry = &self.model.pod_groups()[self.pod_group];
        let member = self.model.pods()[self.pod].member?;
        let name = &entry.tree[member as usize].name;
        (name != "default").then(|| name.as_str().into())
    }
}
