//! From victims gathered to candidates: which of them to evict.

use std::collections::BTreeSet;

use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodGroupId};
use crate::engine::policy::VictimGenerator;

use super::Search;
use super::gather::Gathering;
use crate::engine::actions::victims::{Batch, Candidate, node_of};

/// Candidates of a state, in order.
#[must_use]
pub fn candidates(model: &Model, search: &Search, gathering: &Gathering, generator: VictimGenerator) -> Vec<Candidate> {
    match generator {
        VictimGenerator::NodeLocalGreedy => node_local(model, gathering),
        VictimGenerator::MultiNodeGang => multi_node(model, search, gathering),
    }
}

fn node_local(model: &Model, gathering: &Gathering) -> Vec<Candidate> {
    let Some(last) = gathering.potential.last() else {
        return if gathering.recorded.is_empty() {
            Vec::new()
        } else {
            vec![Candidate {
                batches: gathering.recorded.clone(),
            }]
        };
    };
    let mut nodes: Vec<NodeId> = model.pod_groups()[last.pod_group]
        .pods
        .iter()
        .filter_map(|pod| node_of(model, *pod))
        .collect();
    nodes.sort_by(|left, right| model.nodes()[*left].name.cmp(&model.nodes()[*right].name));
    nodes.dedup();
    let mut found: Vec<Candidate> = Vec::new();
    for node in nodes {
        let here = |batch: &&Batch| batch.pods.iter().any(|pod| node_of(model, *pod) == Some(node));
        let pod_groups: BTreeSet<PodGroupId> = gathering
            .potential
            .iter()
            .filter(here)
            .map(|batch| batch.pod_group)
            .collect();
        if pod_groups.is_empty() {
            continue;
        }
        let mut batches: Vec<Batch> = gathering
            .recorded
            .iter()
            .filter(|batch| !pod_groups.contains(&batch.pod_group))
            .cloned()
            .collect();
        let mut order: Vec<PodGroupId> = Vec::new();
        for batch in gathering
            .potential
            .iter()
            .filter(|batch| pod_groups.contains(&batch.pod_group))
        {
            if !order.contains(&batch.pod_group) {
                order.push(batch.pod_group);
            }
        }
        for pod_group in order {
            let of = gathering
                .recorded
                .iter()
                .chain(&gathering.potential)
                .filter(|batch| batch.pod_group == pod_group);
            batches.push(Batch {
                pod_group,
                pods: of.flat_map(|batch| batch.pods.iter().copied()).collect(),
            });
        }
        let candidate = Candidate { batches };
        if !found.iter().any(|other| other.victims() == candidate.victims()) {
            found.push(candidate);
        }
    }
    found
}

fn multi_node(model: &Model, search: &Search, gathering: &Gathering) -> Vec<Candidate> {
    if gathering.potential.is_empty() {
        return vec![Candidate {
            batches: gathering.recorded.clone(),
        }];
    }
    let (demand, smallest) = gathering.demand();
    let mut holding: Vec<NodeId> = Vec::new();
    let mut seen = BTreeSet::new();
    for pod in gathering.potential.iter().flat_map(|batch| &batch.pods) {
        if let Some(node) = node_of(model, *pod)
            && seen.insert(node)
        {
            holding.push(node);
        }
    }
    let elsewhere = model
        .by_name()
        .iter()
        .filter(|id| search.feasible.has(id.at()) || recorded_on(model, gathering, **id));
    let baseline: i64 = elsewhere
        .filter(|id| !seen.contains(id))
        .map(|id| gathering.capacity(*id))
        .sum();
    holding.retain(|node| smallest <= 0 || gathering.capacity(*node) >= smallest);
    holding.sort_by_key(|node| gathering.capacity(*node));
    let remaining = (demand - baseline).max(0);
    let mut sum = 0;
    let mut least = 0;
    while sum < remaining {
        let Some(node) = holding.get(least) else {
            return Vec::new();
        };
        sum += gathering.capacity(*node);
        least += 1;
    }
    let mut lengths = vec![least];
    let mut more = 1;
    while least + more < holding.len() {
        lengths.push(least + more);
        more = 2 * more + 1;
    }
    lengths.push(holding.len());
    lengths.dedup();
    lengths
        .into_iter()
        .map(|length| prefix(model, gathering, &holding[..length]))
        .collect()
}

fn recorded_on(model: &Model, gathering: &Gathering, node: NodeId) -> bool {
    gathering
        .recorded
        .iter()
        .flat_map(|batch| &batch.pods)
        .any(|pod| node_of(model, *pod) == Some(node))
}

fn prefix(model: &Model, gathering: &Gathering, nodes: &[NodeId]) -> Candidate {
    let touches = |batch: &&Batch| {
        batch
            .pods
            .iter()
            .any(|pod| node_of(model, *pod).is_some_and(|node| nodes.contains(&node)))
    };
    let mut batches = gathering.recorded.clone();
    batches.extend(gathering.potential.iter().filter(touches).cloned());
    Candidate { batches }
}
