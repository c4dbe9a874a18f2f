//! A pod's request, prepared for arithmetic. Pods with equal requests share one shape.

use crate::engine::input::{Amounts, GPU, GpuKind, GpuRequest, Keyed, WHOLE};

use super::resources::{CPU, GPUS, MEMORY, PODS, ResourceNames, Resources, Shared, mig_slices};

/// Hundredths of a device in which portions are counted, as millionths of a GPU.
const HUNDREDTH: i64 = GPU / 100;

/// Maximum of each amount that a pod requests, and of its memory of GPUs. No node has as much, and the sum over 131,072 pods does not overflow.
const MOST: i64 = (1 << 46) - 1;

/// MiB assumed per GPU where a node does not say.
pub const UNKNOWN_GPU_MEMORY: i64 = 100;

/// A request.
#[derive(Debug)]
pub struct Shape {
    /// The key: the request as in the input.
    asked: (Amounts, GpuRequest),
    /// Number of pods with it.
    pub pods: usize,
    /// Request against a node; for shared GPUs the GPU position has the sum of portions.
    pub vector: Resources,
    /// The GPU part.
    pub gpu: GpuRequest,
    /// Request against queues; 0 GPUs for requests by memory, see [`Shape::memory_sum`].
    pub quota: Shared,
    /// Requests portions of GPUs, by share or by memory.
    pub shared: bool,
    /// Requests no GPUs of any kind.
    pub cpu_only: bool,
    /// A portion above a whole device or without devices: fits nowhere.
    pub invalid: bool,
}

impl Keyed for Shape {
    type Key = (Amounts, GpuRequest);
    fn key(&self) -> &(Amounts, GpuRequest) {
        &self.asked
    }
}

impl Shape {
    /// The shape of a request.
    pub fn new(request: &Amounts, gpu: &GpuRequest, names: &mut ResourceNames) -> Self {
        let mut vector = Resources::default();
        let gpus = |count: i64| count.saturating_mul(GPU);
        let (cpu, memory) = (request.cpu.min(MOST), request.memory.min(MOST));
        let regular = counted(gpu.portion).saturating_mul(gpu.count);
        vector.set(CPU, cpu);
        vector.set(MEMORY, memory);
        vector.set(PODS, 1);
        vector.set(GPUS, regular.saturating_add(gpus(gpu.dra)).min(MOST));
        for (name, amount) in request.other.iter().chain(&gpu.mig) {
            vector.bump(names.position(name), (*amount).min(MOST));
        }
        let of_mig = gpu
            .mig
            .iter()
            .map(|(name, amount)| gpus(mig_slices(name).saturating_mul(*amount)));
        let of_mig = of_mig.fold(0, i64::saturating_add);
        let shared = matches!(gpu.kind, GpuKind::Fraction | GpuKind::Memory);
        let cpu_only = vector.get(GPUS) == 0 && !matches!(gpu.kind, GpuKind::Memory | GpuKind::Mig);
        let quota = [
            cpu,
            memory,
            (vector.get(GPUS).saturating_add(of_mig))
                .saturating_add(gpus(gpu.by_class))
                .min(MOST),
        ];
        let invalid = shared && (gpu.count < 1 || gpu.portion > WHOLE);
        Self {
            asked: (request.clone(), gpu.clone()),
            pods: 0,
            vector,
            gpu: gpu.clone(),
            quota,
            shared,
            cpu_only,
            invalid,
        }
    }

    /// Whether it requests neither shared GPUs nor MIG instances.
    #[must_use]
    pub fn plain(&self) -> bool {
        !self.shared && self.gpu.mig.is_empty()
    }

    /// MiB that it takes on each of its devices when a device has `memory` MiB.
    #[must_use]
    pub fn device_memory(&self, memory: i64) -> i64 {
        if self.gpu.memory > 0 {
            self.gpu.memory
        } else {
            let exact = i128::from(self.gpu.portion) * i128::from(memory) / i128::from(WHOLE);
            // Never rounded down to nothing.
            i64::try_from(exact).unwrap_or(i64::MAX).max(self.gpu.portion.min(1))
        }
    }

    /// Portion of each device in billionths when a device has `memory` MiB; memory requests are rounded up to hundredths.
    #[must_use]
    pub fn device_portion(&self, memory: i64) -> i64 {
        if self.gpu.memory > 0 {
            let hundredths = (100 * i128::from(self.gpu.memory) + i128::from(memory) - 1) / i128::from(memory);
            i64::try_from(hundredths * i128::from(WHOLE / 100)).unwrap_or(i64::MAX)
        } else {
            self.gpu.portion
        }
    }

    /// What it counts in its queue once it is on a node whose devices have `memory` MiB.
    #[must_use]
    pub fn accepted(&self, memory: i64) -> Shared {
        let mut amount = self.quota;
        if self.gpu.memory > 0 {
            let portions = (self.device_portion(memory) / (WHOLE / GPU)).saturating_mul(self.gpu.count);
            amount[GPUS] = amount[GPUS].saturating_add(portions).min(MOST);
        }
        amount
    }

    /// What it counts in its queue on a node that is not known: memory of GPUs counts in GPUs of `divisor` MiB.
    #[must_use]
    pub fn requested(&self, divisor: Option<i64>) -> Shared {
        let mut amount = self.quota;
        let by_memory = memory_as_gpus(self.memory_sum(), divisor);
        amount[GPUS] = amount[GPUS].saturating_add(by_memory).min(MOST);
        amount
    }

    /// MiB asked for by memory, over all devices.
    #[must_use]
    pub fn memory_sum(&self) -> i64 {
        self.gpu.memory.saturating_mul(self.gpu.count).min(MOST)
    }
}

/// A portion in billionths, in millionths of a GPU as queues and nodes count it: rounded to hundredths, or up to one millionth if that gives 0.
fn counted(portion: i64) -> i64 {
    match (portion + WHOLE / 200) / (WHOLE / 100) {
        0 => (portion.max(0) + WHOLE / GPU - 1) / (WHOLE / GPU),
        hundredths => hundredths * HUNDREDTH,
    }
}

/// MiB as millionths of GPUs of `divisor` MiB; at least 1 if there is any.
#[must_use]
pub fn memory_as_gpus(memory: i64, divisor: Option<i64>) -> i64 {
    divisor.map_or(0, |divisor| {
        let exact = i128::from(memory) * i128::from(GPU) / i128::from(divisor);
        i64::try_from(exact).unwrap_or(i64::MAX).max(memory.min(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pod_requests_is_bounded_so_that_sums_do_not_overflow() {
        let mut names = ResourceNames::default();
        let request = Amounts {
            cpu: i64::MAX,
            memory: i64::MAX,
            other: vec![("example.com/x".into(), i64::MAX)],
            ..Amounts::default()
        };
        let profile = |number: i64| (format!("nvidia.com/mig-64g.{number}gb").into(), 1 << 28);
        let of_mig = GpuRequest {
            kind: GpuKind::Mig,
            mig: (1..=64).map(profile).collect(),
            ..GpuRequest::default()
        };
        let by_memory = GpuRequest {
            kind: GpuKind::Memory,
            count: i64::MAX,
            memory: i64::MAX,
            ..GpuRequest::default()
        };
        for gpu in [of_mig, by_memory] {
            let shape = Shape::new(&request, &gpu, &mut names);
            let accepted = [UNKNOWN_GPU_MEMORY, 80_000].map(|memory| shape.accepted(memory));
            let amounts = accepted.iter().flatten().copied();
            let mut amounts = amounts.chain(shape.vector.iter().map(|(_, amount)| amount));
            assert!(amounts.all(|amount| (0..=MOST).contains(&amount)));
            assert!((0..=MOST).contains(&shape.memory_sum()));
        }
    }
}
