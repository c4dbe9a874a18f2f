//! What could fit at best: free GPUs per node, and whether the pods could find room if only GPUs counted.

use crate::engine::input::GPU;
use crate::engine::model::Model;
use crate::engine::model::ids::TaskId;
use crate::engine::model::node::Node;
use crate::engine::model::resources::{GPUS, mig_slices};

/// GPUs of a node that are free, or will be: whole ones, parts of shared ones, MIG slices. In millionths.
#[must_use]
pub fn free_gpus(node: &Node, model: &Model) -> i64 {
    let of = node.gpu_memory();
    let shared = node.groups.iter().filter(|gpu| gpu.used() && !gpu.all_leaving());
    let parts: i64 = shared.map(|gpu| gpu.free_later(of).max(0) * GPU / of).sum();
    let slices: i64 = node
        .future
        .iter()
        .filter(|(_, amount)| *amount > 0)
        .map(|(at, amount)| mig_slices(model.resources.name(at)) * amount * GPU)
        .sum();
    node.future.get(GPUS) + parts + slices
}

/// GPUs that a pending pod asks for; requests by memory count nothing.
#[must_use]
pub fn asked_gpus(model: &Model, task: TaskId) -> i64 {
    model.shapes[model.tasks[task].shape].quota[GPUS]
}

/// GPUs that a pod holds.
#[must_use]
pub fn held_gpus(model: &Model, task: TaskId) -> i64 {
    model.accepted(task)[GPUS]
}

/// Whether needs, largest first, fit one after the other into the largest capacities.
#[must_use]
pub fn first_fit(needs: &[i64], mut capacities: Vec<i64>) -> bool {
    let mut needs = needs.to_vec();
    needs.sort_unstable_by(|left, right| right.cmp(left));
    capacities.sort_unstable_by(|left, right| right.cmp(left));
    capacities.truncate(needs.len());
    let mut given = vec![0; capacities.len()];
    for need in needs {
        if need == 0 {
            return true;
        }
        let holder = (0..capacities.len())
            .take_while(|at| capacities[*at] >= need)
            .find(|at| capacities[*at] - given[*at] >= need);
        match holder {
            Some(at) => given[at] += need,
            None => return false,
        }
    }
    true
}
