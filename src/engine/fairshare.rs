//! Fair shares and the order of queues: division of the cluster over the queue tree, the order of queues and pod groups, limits and quotas.

pub mod divide;
pub mod min_runtime;
pub mod order;
pub mod quotas;
pub mod reclaim;
pub mod sorted;
pub mod tree;

use super::model::Model;
use super::model::queue::Queue;
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
    with_memory(sum, memory, divisor)
}

/// What the pods of a queue hold or request, those by GPU memory included.
#[must_use]
pub fn wanted_of_queue(model: &Model, queue: &Queue) -> Shared {
    with_memory(queue.wanted, queue.wanted_memory, smallest_gpu(model))
}

fn with_memory(mut sum: Shared, memory: i64, divisor: Option<i64>) -> Shared {
    let gpus = &mut sum[super::model::resources::GPUS];
    *gpus = gpus.saturating_add(super::model::shape::memory_as_gpus(memory, divisor));
    sum
}
