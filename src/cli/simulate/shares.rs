//! `unikai simulate shares`: divides resources among queues as the scheduler does at the start of each cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::engine::fairshare::divide::{QueueDemand, divide};
use crate::engine::input::{GPU, Time};

/// Arguments of `unikai simulate shares`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One JSON object per line: `{"total": {"gpu", "cpu" (milli-cores), "memory" (bytes)}, "kValue", "queues": [{"name", "parent", "priority",
    /// "created", "gpu": {"quota", "limit", "weight", "request", "usage"}, "cpu": …, "memory": …}]}`; -1 = unlimited, usage = share of the cluster
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Amounts of the three resources that queues share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Amounts {
    gpu: f64,
    cpu: f64,
    memory: f64,
}

/// A cluster and its queues.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    total: Amounts,
    #[serde(default)]
    k_value: f64,
    queues: Vec<Queue>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Queue {
    name: String,
    parent: Option<String>,
    /// 0 if absent, as in KAI's simulator.
    #[serde(default)]
    priority: i64,
    created: Option<Timestamp>,
    #[serde(default)]
    gpu: Share,
    #[serde(default)]
    cpu: Share,
    #[serde(default)]
    memory: Share,
}

/// Amounts are in the resource's own unit.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Share {
    quota: f64,
    limit: f64,
    weight: f64,
    request: f64,
    usage: f64,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            quota: 0.0,
            limit: -1.0,
            weight: 1.0,
            request: 0.0,
            usage: 0.0,
        }
    }
}

/// A resource: how it is read, and in which unit it is divided.
struct Resource {
    share: fn(&Queue) -> &Share,
    amount: fn(&mut Amounts) -> &mut f64,
    /// How many integer units of the division one unit of the input has.
    parts: f64,
    /// The smallest amount, in units of the division, that is given beyond quotas.
    unit: i64,
}

const RESOURCES: [Resource; 3] = [
    Resource {
        share: |queue| &queue.gpu,
        amount: |amounts| &mut amounts.gpu,
        parts: 1e6,
        unit: GPU,
    },
    Resource {
        share: |queue| &queue.cpu,
        amount: |amounts| &mut amounts.cpu,
        parts: 1.0,
        unit: 1,
    },
    Resource {
        share: |queue| &queue.memory,
        amount: |amounts| &mut amounts.memory,
        parts: 1.0,
        unit: 1,
    },
];

/// Runs the subcommand: one line of JSON per line of the file.
///
/// # Errors
/// When the file or a line of it cannot be read, or standard output is gone.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let name = args.file.display().to_string();
    let file = File::open(&args.file).with_context(|| name.clone())?;
    let mut out = std::io::stdout().lock();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(|| name.clone())?;
        let case = || format!("{name}, line {}", number + 1);
        let read: Case = serde_json::from_str(&line).with_context(case)?;
        let shares = shares(&read).with_context(case)?;
        writeln!(out, "{}", serde_json::to_string(&shares)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Each queue's fair share: the top queues divide the total, the queues below each of them what it got, and so on.
fn shares(case: &Case) -> anyhow::Result<BTreeMap<String, Amounts>> {
    let mut names = BTreeSet::new();
    let mut below: BTreeMap<Option<&str>, Vec<&Queue>> = BTreeMap::new();
    for queue in &case.queues {
        ensure!(names.insert(&*queue.name), "queue {:?} is listed twice", queue.name);
        below.entry(queue.parent.as_deref()).or_default().push(queue);
    }
    let mut shares: BTreeMap<String, Amounts> = BTreeMap::new();
    let mut waiting = vec![(None, case.total)];
    while let Some((parent, total)) = waiting.pop() {
        for queue in below.get(&parent).into_iter().flatten() {
            shares.insert(queue.name.clone(), Amounts::default());
        }
        for resource in &RESOURCES {
            let siblings = below.get(&parent).map(Vec::as_slice).unwrap_or_default();
            level(resource, total, case.k_value, siblings, &mut shares);
        }
        for queue in below.get(&parent).into_iter().flatten() {
            waiting.push((Some(&*queue.name), shares[&queue.name]));
        }
    }
    for queue in &case.queues {
        ensure!(
            shares.contains_key(&queue.name),
            "queue {:?} is below a queue that is not listed, or below itself",
            queue.name
        );
    }
    Ok(shares)
}

/// Divides one resource among siblings.
fn level(resource: &Resource, mut total: Amounts, k: f64, siblings: &[&Queue], shares: &mut BTreeMap<String, Amounts>) {
    let mut demands: Vec<QueueDemand> = siblings.iter().map(|queue| demand(queue, resource)).collect();
    let total = whole(*(resource.amount)(&mut total) * resource.parts);
    divide(total, resource.unit, whole(k.max(0.0) * 1e6), &mut demands);
    for (queue, demand) in siblings.iter().zip(&demands) {
        if let Some(share) = shares.get_mut(&queue.name) {
            *(resource.amount)(share) = demand.fair as f64 / resource.parts;
        }
    }
}

fn demand(queue: &Queue, resource: &Resource) -> QueueDemand {
    let share = (resource.share)(queue);
    let bound = |value: f64| (value >= 0.0).then(|| whole(value * resource.parts));
    QueueDemand {
        quota: bound(share.quota),
        limit: bound(share.limit),
        weight: whole(share.weight * 1e6),
        request: whole(share.request * resource.parts),
        priority: queue.priority,
        created: Time(queue.created.map_or(0, Timestamp::as_millisecond)),
        name: (&*queue.name).into(),
        usage: whole(share.usage * 1e9),
        fair: 0,
    }
}

/// The nearest whole number, within what the division can count with.
fn whole(value: f64) -> i64 {
    const MOST: f64 = (1_u64 << 55) as f64;
    #[expect(clippy::cast_possible_truncation, reason = "within bounds; not a number becomes 0")]
    let whole = value.clamp(-MOST, MOST).round() as i64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(case: &str) -> Result<String, String> {
        let case: Case = serde_json::from_str(case).expect("a case");
        let shares = shares(&case).map_err(|error| error.to_string())?;
        let line = shares.iter().map(|(queue, share)| format!("{queue} {}", share.gpu));
        Ok(line.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn over_quota_resources_are_divided_by_weight_and_usage_per_level() {
        let tree = r#"{"total": {"gpu": 16}, "kValue": 1, "queues": [
            {"name": "d", "gpu": {"request": 40}}, {"name": "e", "gpu": {"request": 6}},
            {"name": "a", "parent": "d", "gpu": {"request": 20, "usage": 0.6}},
            {"name": "b", "parent": "d", "gpu": {"request": 20, "usage": 0.4}}]}"#;
        assert_eq!(divided(tree), Ok("a 4, b 6, d 10, e 6".to_owned()));
    }

    #[test]
    fn an_invalid_queue_tree_is_refused() {
        let circle =
            r#"{"total": {"gpu": 16}, "queues": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]}"#;
        let twice = r#"{"total": {"gpu": 16}, "queues": [{"name": "a"}, {"name": "a"}]}"#;
        assert_eq!(
            [circle, twice].map(|case| divided(case).unwrap_err()),
            [
                "queue \"a\" is below a queue that is not listed, or below itself",
                "queue \"a\" is listed twice"
            ]
        );
    }
}
