//! Gathering victims from the worst on: worst queue, worst job in it, what that job can best do without.

use std::collections::BTreeSet;

use crate::engine::fairshare::lines::{active_of, requests};
use crate::engine::fairshare::order::Rules;
use crate::engine::model::Model;
use crate::engine::model::class::NodeSet;
use crate::engine::model::gang::{Gang, Tasks};
use crate::engine::model::ids::{GangId, NodeId, TaskId};
use crate::engine::model::resources::GPUS;

use super::Search;
use super::tree::{Job, JobTree};
use crate::engine::actions::session::Session;
use crate::engine::actions::victims::bounds::{asked_gpus, first_fit};
use crate::engine::actions::victims::room::free_gpus;
use crate::engine::actions::victims::{Batch, node_of};
use crate::engine::fairshare::tree::Purpose;

/// Victims so far, and those still to come.
pub struct Gathering {
    /// Pods to place.
    pub pods: Vec<TaskId>,
    /// Victims that earlier probes needed.
    pub recorded: Vec<Batch>,
    /// Victims gathered since.
    pub potential: Vec<Batch>,
    rules: Rules,
    taken: BTreeSet<TaskId>,
    rest: JobTree,
    /// Who is gathered after them.
    beyond: Vec<GangId>,
    /// Free GPUs per node position, with all victims so far gone.
    capacity: Vec<i64>,
    needs: Vec<i64>,
    /// If all needs are equal: how many of them the capacities hold.
    slots: Option<i64>,
    nodes: NodeSet,
}

impl Session<'_> {
    /// Starts gathering for the first `count` pods.
    pub fn gather(&self, search: &Search, count: usize, recorded: &[Batch]) -> Gathering {
        let pods = search.case.chunk[..count].to_vec();
        let rest = lined_up(self.model, self.rules, &search.eligible);
        let mut capacity = vec![0; self.model.nodes.slots()];
        for &id in &self.model.by_name {
            capacity[id.at()] = free_gpus(&self.model.nodes[id], self.model);
        }
        let needs: Vec<i64> = pods.iter().map(|task| asked_gpus(self.model, *task)).collect();
        let mut gathering = Gathering {
            taken: recorded.iter().flat_map(|batch| batch.tasks.iter().copied()).collect(),
            pods,
            recorded: recorded.to_vec(),
            potential: Vec::new(),
            rules: self.rules,
            rest,
            beyond: search.beyond.clone(),
            capacity,
            slots: None,
            needs,
            nodes: search.feasible.clone(),
        };
        gathering.count_slots();
        for batch in recorded {
            gathering.free(self.model, batch);
        }
        gathering
    }
}

/// These gangs, to be robbed.
fn lined_up(model: &Model, rules: Rules, gangs: &[GangId]) -> JobTree {
    let mut tree = JobTree::new(rules, Purpose::Rob);
    for &gang in gangs {
        let tasks = model.gangs[gang].tasks.iter().copied();
        let tasks: Tasks = tasks.filter(|task| evictable(model, *task)).collect();
        if !tasks.is_empty() {
            tree.push(model, victim_job(model, rules, gang, tasks));
        }
    }
    tree
}

/// A pod that eviction would remove from somewhere.
fn evictable(model: &Model, task: TaskId) -> bool {
    let task = &model.tasks[task];
    task.member.is_some() && task.state.status.active_allocated()
}

fn victim_job(model: &Model, rules: Rules, gang: GangId, tasks: Tasks) -> Job {
    let entry = &model.gangs[gang];
    let stage = entry.stage(&active_of(model, entry, &tasks));
    Job {
        order: rules.job(entry, stage),
        gang,
        amount: requests(model, &next_chunk(model, entry, &tasks)),
        tasks: Some(tasks),
    }
}

/// What a gang of which these pods are left can best do without.
fn next_chunk(model: &Model, gang: &Gang, tasks: &[TaskId]) -> Tasks {
    let remaining: BTreeSet<TaskId> = tasks.iter().copied().collect();
    let pods_of = |member| -> Tasks {
        let pods = gang.pods(member).map(|pods| &*pods.tasks).unwrap_or_default();
        pods.iter().copied().filter(|task| remaining.contains(task)).collect()
    };
    gang.evict_chunk(&active_of(model, gang, tasks), &pods_of)
}

impl Gathering {
    fn count_slots(&mut self) {
        let size = self.needs[0];
        if size > 0 && self.needs.iter().all(|need| *need == size) {
            self.slots = Some(self.capacity.iter().map(|free| (free / size).max(0)).sum());
        }
    }

    /// Counts a batch as gone.
    fn free(&mut self, model: &Model, batch: &Batch) {
        for &task in &batch.tasks {
            let Some(node) = node_of(model, task) else { continue };
            self.nodes.add(node.at());
            let size = self.needs[0];
            let capacity = &mut self.capacity[node.at()];
            let before = *capacity;
            *capacity += model.accepted(task)[GPUS];
            if let Some(slots) = &mut self.slots {
                *slots += (*capacity / size).max(0) - (before / size).max(0);
            }
        }
    }

    /// Takes the next victims. False if there are none left.
    pub fn step(&mut self, model: &Model) -> bool {
        if self.next(model) {
            return true;
        }
        self.rest = lined_up(model, self.rules, &std::mem::take(&mut self.beyond));
        self.next(model)
    }

    fn next(&mut self, model: &Model) -> bool {
        while let Some(job) = self.rest.pop(model) {
            let tasks = job.tasks.clone().unwrap_or_default();
            let gang = &model.gangs[job.gang];
            let chunk = next_chunk(model, gang, &tasks);
            let known = chunk.iter().any(|task| self.taken.contains(task));
            let gone = |task: &TaskId| {
                if known {
                    self.taken.contains(task)
                } else {
                    chunk.contains(task)
                }
            };
            let (taken, left): (Tasks, Tasks) = tasks.iter().copied().partition(gone);
            self.rest.took(model, &job, &requests(model, &taken));
            if !left.is_empty() {
                self.rest.push(model, victim_job(model, self.rules, job.gang, left));
            }
            if !known {
                let batch = Batch {
                    gang: job.gang,
                    tasks: chunk,
                };
                self.free(model, &batch);
                self.potential.push(batch);
                return true;
            }
        }
        false
    }

    /// Whether the pods could find room with all victims so far gone, if only GPUs and node affinity counted.
    #[must_use]
    pub fn passes(&self, model: &Model) -> bool {
        let gpus = match self.slots {
            Some(slots) => slots >= self.needs.len() as i64,
            None => self.needs.iter().all(|need| *need <= 0) || first_fit(&self.needs, self.capacity.clone()),
        };
        gpus && self.pods.iter().all(|task| self.affinity_met(model, *task))
    }

    fn affinity_met(&self, model: &Model, task: TaskId) -> bool {
        let constraints = &model.classes[model.tasks[task].class].constraints;
        (constraints.selector.is_empty() && constraints.required.is_none())
            || model
                .by_name
                .iter()
                .any(|id| self.nodes.has(id.at()) && constraints.selects(&model.nodes[*id]))
    }

    /// GPUs free on a node once all victims so far are gone.
    #[must_use]
    pub fn capacity(&self, node: NodeId) -> i64 {
        self.capacity[node.at()]
    }

    /// GPUs that the pods ask for: together, and the smallest need.
    #[must_use]
    pub fn demand(&self) -> (i64, i64) {
        (self.needs.iter().sum(), self.needs.iter().copied().min().unwrap_or(0))
    }
}
