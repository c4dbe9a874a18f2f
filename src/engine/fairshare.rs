//! Fair shares and the order of queues: division of the cluster over the queue tree, the order of queues and pod groups, limits and quotas.

pub mod divide;
pub mod min_runtime;
pub mod order;
pub mod quotas;
pub mod reclaim;
pub mod sorted;
pub mod tree;

use super::model::Model;
use super::model::resources::Shared;

/// Divisor that turns requests by GPU memory into GPUs: the smallest MiB per GPU in the cluster.
#[must_use]
pub fn smallest_gpu(model: &Model) -> Option<i64> {
    model.gpu_memory().map(|(least, _)| least)
}

/// The largest MiB per GPU in the cluster.
#[must_use]
pub fn largest_gpu(model: &Model) -> Option<i64> {
    model.gpu_memory().map(|(_, most)| most)
}

/// Sum of the requests of pending pods; requests by GPU memory are divided by `divisor`.
pub fn wanted(model: &Model, pods: &[super::model::ids::PodId], divisor: Option<i64>) -> Shared {
    let mut sum = [0; 3];
    let mut memory = 0;
    for &pod in pods {
        let shape = &model.shapes()[model.pods()[pod].shape];
        super::model::resources::add(&mut sum, &shape.quota, 1);
        memory += shape.memory_sum();
    }
    let by_memory = super::model::shape::memory_as_gpus(memory, divisor);
    let gpus = &mut sum[super::model::resources::GPUS];
    *gpus = gpus.saturating_add(by_memory);
    sum
}
