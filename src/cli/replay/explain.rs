//! Why a pod group waits, level by level: its queues from its own up, the nodes, the domains of a topology.

use serde_json::{Value, json};

use crate::engine::decision::{Detail, GroupReport, QueueStanding};
use crate::engine::fairshare::quotas::readable;

/// Names of the shared resources, in the order of their figures.
const SHARED: [&str; 3] = ["cpu", "memory", "gpu"];

/// The levels as JSON. Cpu in milli-cores, memory in bytes, GPUs in millionths; null = unlimited.
pub fn levels(report: &GroupReport, queues: &[QueueStanding]) -> Value {
    let figures = |of: &dyn Fn(usize) -> Value| -> Value {
        let each = SHARED.iter().enumerate().map(|(at, name)| ((*name).to_owned(), of(at)));
        Value::Object(each.collect())
    };
    let queues = queues.iter().map(|queue| {
        json!({
            "level": "queue",
            "queue": *queue.queue,
            "allocated": figures(&|at| json!(queue.allocated[at])),
            "fairShare": figures(&|at| json!(queue.fair[at])),
            "quota": figures(&|at| json!(queue.quota[at])),
            "limit": figures(&|at| json!(queue.limit[at])),
        })
    });
    let found = report.reasons.iter().filter_map(|reason| match &reason.detail {
        Detail::Text => None,
        Detail::Queue(figures) => Some(json!({
            "level": "limit",
            "queue": *figures.name,
            "code": reason.code.as_str(),
        })),
        Detail::Nodes(nodes) => Some(json!({
            "level": "nodes",
            "pod": nodes.pod.to_string(),
            "subGroup": *nodes.sub_group,
            "placed": nodes.placed,
            "required": nodes.required,
            "headline": nodes.headline,
            "refusals": nodes.refusals.iter().map(|(why, nodes)| json!({"why": why, "nodes": nodes})).collect::<Vec<_>>(),
        })),
        Detail::Domain(domain) => Some(json!({
            "level": "domain",
            "domain": *domain.domain,
            "required": domain.required,
            "slots": domain.slots,
            "short": domain.short.iter().map(|short| json!({"resource": *short.resource, "asked": short.asked, "free": short.free})).collect::<Vec<_>>(),
        })),
    });
    queues.chain(found).collect()
}

/// The levels for people.
pub fn lines(report: &GroupReport, queues: &[QueueStanding]) -> Vec<String> {
    let amount =
        |at: usize, amount: Option<i64>| amount.map_or_else(|| "unlimited".to_owned(), |amount| readable(amount, at));
    let queues = queues.iter().map(|queue| {
        let each = SHARED.iter().enumerate().map(|(at, name)| {
            format!(
                "{name} {} of {} (quota {}, limit {})",
                amount(at, Some(queue.allocated[at])),
                amount(at, Some(queue.fair[at])),
                amount(at, queue.quota[at]),
                amount(at, queue.limit[at])
            )
        });
        let each: Vec<String> = each.collect();
        format!("queue {} holds, of its fair share: {}", queue.queue, each.join("; "))
    });
    let found = report.reasons.iter().filter_map(|reason| match &reason.detail {
        Detail::Text => None,
        Detail::Queue(figures) => Some(format!("queue {}: {}", figures.name, reason.code.as_str())),
        Detail::Nodes(nodes) => {
            let each = nodes.refusals.iter().map(|(why, nodes)| format!("{nodes} {why}"));
            let headline = nodes.headline.as_ref().map(|text| text.trim_end().replace('\n', " "));
            let all: Vec<String> = headline.into_iter().chain(each).collect();
            Some(format!("nodes for {}: {}", nodes.pod, all.join("; ")))
        }
        Detail::Domain(domain) => {
            let short: Vec<&str> = domain.short.iter().map(|short| &*short.resource).collect();
            Some(match domain.slots {
                Some(slots) => format!("domain {}: room for {slots} of {} pods", domain.domain, domain.required),
                None => format!("domain {}: too little {}", domain.domain, short.join(", ")),
            })
        }
    });
    queues.chain(found).collect()
}
