//! A pod's request, prepared for arithmetic. Pods with equal requests share one shape.

use crate::engine::input::{Amounts, GPU, GpuKind, GpuRequest, Keyed, WHOLE};

use super::resources::{CPU, GPUS, MEMORY, PODS, ResourceNames, Resources, Shared, mig_slices};

/// Hundredths of a device in which portions are counted, as millionths of a GPU.
const HUNDREDTH: i64 = GPU / 100;

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
        vector.set(CPU, request.cpu);
        vector.set(MEMORY, request.memory);
        vector.set(PODS, 1);
        vector.set(GPUS, counted(gpu.portion) * gpu.count + gpu.dra * GPU);
        let mut mig_gpus = 0;
        for (name, amount) in request.other.iter().chain(&gpu.mig) {
            vector.bump(names.position(name), *amount);
        }
        for (name, amount) in &gpu.mig {
            mig_gpus += mig_slices(name) * amount * GPU;
        }
        let shared = matches!(gpu.kind, GpuKind::Fraction | GpuKind::Memory);
        let cpu_only = vector.get(GPUS) == 0 && !matches!(gpu.kind, GpuKind::Memory | GpuKind::Mig);
        let quota = [
            request.cpu,
            request.memory,
            vector.get(GPUS) + mig_gpus + gpu.by_class * GPU,
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
            (100 * self.gpu.memory + memory - 1) / memory * (WHOLE / 100)
        } else {
            self.gpu.portion
        }
    }

    /// What it counts in its queue once it is on a node whose devices have `memory` MiB.
    #[must_use]
    pub fn accepted(&self, memory: i64) -> Shared {
        let mut amount = self.quota;
        if self.gpu.memory > 0 {
            amount[GPUS] += self.device_portion(memory) / (WHOLE / GPU) * self.gpu.count;
        }
        amount
    }

    /// MiB asked for by memory, over all devices.
    #[must_use]
    pub fn memory_sum(&self) -> i64 {
        self.gpu.memory * self.gpu.count
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
