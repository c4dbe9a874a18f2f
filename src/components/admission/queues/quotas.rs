//! Quotas in the tree: the sum of the children should not exceed the parent. Warnings only.
//!
//! A quota of -1 is unlimited and counts as infinite; an absent one is 0.

use crate::api::Queue;
use crate::api::queue::{QueueResource, QueueResources};

/// A resource that has a quota: its name, the number of decimals in messages, and its field.
struct Resource {
    name: &'static str,
    decimals: usize,
    of: fn(&QueueResources) -> Option<&QueueResource>,
}

const CPU: Resource = Resource {
    name: "CPU",
    decimals: 0,
    of: |resources| resources.cpu.as_ref(),
};
const GPU: Resource = Resource {
    name: "GPU",
    decimals: 2,
    of: |resources| resources.gpu.as_ref(),
};
const MEMORY: Resource = Resource {
    name: "Memory",
    decimals: 0,
    of: |resources| resources.memory.as_ref(),
};

impl Resource {
    fn quota(&self, resources: &QueueResources) -> f64 {
        match (self.of)(resources).and_then(|resource| resource.quota) {
            Some(quota) if quota < 0.0 => f64::INFINITY,
            Some(quota) => quota,
            None => 0.0,
        }
    }

    fn print(&self, quota: f64) -> String {
        if quota.is_infinite() {
            "unlimited".to_owned()
        } else {
            format!("{quota:.*}", self.decimals)
        }
    }
}

/// Warnings about a queue whose quotas with those of its `siblings` exceed its parent's.
pub fn against_parent(own: &QueueResources, parent: &Queue, siblings: &[impl AsRef<Queue>]) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(above) = &parent.spec.resources else {
        return warnings;
    };
    let name = parent.metadata.name.as_deref().unwrap_or_default();
    for resource in [CPU, GPU, MEMORY] {
        let (child, most) = (resource.quota(own), resource.quota(above));
        let kind = resource.name;
        let exceeds = |what: &str, quota: f64| {
            format!(
                "{what} {kind} quota ({}) exceeds parent queue {name} {kind} quota ({})",
                resource.print(quota),
                resource.print(most)
            )
        };
        if child > most {
            warnings.push(exceeds("child queue", child));
        }
        // KAI sums up CPU alone here; the others are summed up when the parent changes.
        let total = child + sum(&resource, siblings);
        if kind == CPU.name && total > most {
            warnings.push(exceeds("total children", total));
        }
    }
    warnings
}

/// Warnings about a queue whose children's quotas exceed its new ones.
pub fn against_children(own: &QueueResources, children: &[impl AsRef<Queue>]) -> Vec<String> {
    let cpu = CPU.quota(own);
    let mut warnings = Vec::new();
    for child in children {
        let child = child.as_ref();
        let quota = child
            .spec
            .resources
            .as_ref()
            .map_or(0.0, |resources| CPU.quota(resources));
        if quota > cpu {
            warnings.push(format!(
                "child queue {} CPU quota ({}) exceeds parent CPU quota ({})",
                child.metadata.name.as_deref().unwrap_or_default(),
                CPU.print(quota),
                CPU.print(cpu)
            ));
        }
    }
    for resource in [CPU, GPU, MEMORY] {
        let (total, most) = (sum(&resource, children), resource.quota(own));
        if total > most {
            warnings.push(format!(
                "total children {name} quota ({}) exceeds parent {name} quota ({})",
                resource.print(total),
                resource.print(most),
                name = resource.name
            ));
        }
    }
    warnings
}

fn sum(resource: &Resource, queues: &[impl AsRef<Queue>]) -> f64 {
    let resources = queues.iter().filter_map(|queue| queue.as_ref().spec.resources.as_ref());
    resources.map(|resources| resource.quota(resources)).sum()
}
