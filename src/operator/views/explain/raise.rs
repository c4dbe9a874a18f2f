//! Commands that raise the limits and quotas for which a workload waits, to exactly what it needs.

use serde_json::{Map, json};

use crate::api::views::{Amounts, Bounds, Queue, WorkloadDetails};
use crate::engine::decision::Cause;

/// One command for each queue, from the workload's own queue up.
pub fn commands(details: &WorkloadDetails) -> Vec<String> {
    let cause = details.workload.verdict.as_ref().map(|verdict| verdict.cause.as_str());
    let asked = waiting(details);
    let of = |queue: &Queue| match cause {
        Some(cause) if cause == Cause::QueueLimit.as_str() => {
            raise(queue, "limit", queue.limit, queue.allocated, asked)
        }
        Some(cause) if cause == Cause::QueueQuota.as_str() => {
            raise(queue, "quota", queue.quota, queue.non_preemptible, asked)
        }
        Some(_) | None => None,
    };
    details.queues.iter().filter_map(of).collect()
}

/// The sum of the requests of its waiting pods, if all of its pods have equal requests.
fn waiting(details: &WorkloadDetails) -> Amounts {
    let (workload, pods) = (&details.workload, &details.workload.pods);
    let part = pods.waiting as f64 / pods.wanted.max(1) as f64;
    Amounts {
        gpu: workload.requested.gpu * part,
        cpu: workload.requested.cpu * part,
        memory: workload.requested.memory * part,
    }
}

/// A command that raises fields of one queue, in the units of these fields: GPUs, milli-cores, millions of bytes.
fn raise(queue: &Queue, field: &str, bound: Bounds, held: Amounts, asked: Amounts) -> Option<String> {
    let mut resources = Map::new();
    for (name, bound, held, asked, unit) in [
        ("gpu", bound.gpu, held.gpu, asked.gpu, 1.0),
        ("cpu", bound.cpu, held.cpu, asked.cpu, 1e3),
        ("memory", bound.memory, held.memory, asked.memory, 1e-6),
    ] {
        let needed = held + asked;
        // Sums of fractions of GPUs have rounding errors.
        if bound.is_some_and(|bound| needed > bound + 1e-6) {
            let amount = (needed * unit - 1e-6).ceil();
            resources.insert(name.to_owned(), json!({field: amount as i64}));
        }
    }
    if resources.is_empty() {
        return None;
    }
    let patch = json!({"spec": {"resources": resources}});
    Some(format!("kubectl patch queue {} --type merge -p '{patch}'", queue.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(limit: [Option<f64>; 3], held: [f64; 3]) -> Queue {
        let [gpu, cpu, memory] = limit;
        let limit = Bounds { gpu, cpu, memory };
        let [gpu, cpu, memory] = held;
        let allocated = Amounts { gpu, cpu, memory };
        Queue {
            name: "small".to_owned(),
            limit,
            allocated,
            ..Queue::default()
        }
    }

    #[test]
    fn suggested_limits_are_in_the_units_of_the_queue() {
        let asked = Amounts {
            gpu: 0.5,
            cpu: 1.5,
            memory: f64::from(1 << 30),
        };
        let command = |limit, held| {
            let queue = queue(limit, held);
            raise(&queue, "limit", queue.limit, queue.allocated, asked)
        };
        let patch = |resources: &str| {
            Some(format!(
                r#"kubectl patch queue small --type merge -p '{{"spec":{{"resources":{resources}}}}}'"#
            ))
        };
        assert_eq!(
            command([Some(1.0), Some(2.0), None], [0.7, 0.5, 0.0]),
            patch(r#"{"gpu":{"limit":2}}"#)
        );
        assert_eq!(
            command([None, Some(1.0), Some(1e9)], [0.0, 0.25, 1e6]),
            patch(r#"{"cpu":{"limit":1750},"memory":{"limit":1075}}"#)
        );
        assert_eq!(command([Some(8.0), None, None], [7.5, 0.0, 0.0]), None);
    }
}
