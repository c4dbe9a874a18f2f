//! PromQL queries for usage, and parsing of their results.
//!
//! Usage over a window is the sum of what a queue held at each step; divided by the same sum of the capacity it is the queue's share. Series
//! of one queue at one instant that differ in the exporter's name or the queue's display name count once.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::settings::{Metrics, Prometheus, Settings};
use super::window::Window;
use crate::engine::input::{Millis, Name, Time};

/// Largest share that is reported.
const MOST: f64 = 1_000.0;
/// The labels that identify a queue: its name, which takes precedence, and its display name, the only one that some exporters write.
const LABELS: [&str; 2] = ["queue_metadata_name", "queue_name"];

/// The queries for [`shares`], in its order: capacity, and what queues held, each of cpu, memory and GPUs. `None`: the window has
/// just begun, so nothing is used.
#[must_use]
pub fn queries(how: &Settings, server: &Prometheus, now: Time) -> Option<Vec<String>> {
    let size = match &how.window {
        Window::Sliding(size) => *size,
        window => now.0 - window.start(now).0,
    };
    if size <= 0 {
        return None;
    }
    let resolution = Millis::try_from(server.resolution.as_millis())
        .unwrap_or(Millis::MAX)
        .max(1);
    // A step at least, even right after the window began.
    let range = format!("[{}:{}]", span(size.max(resolution)), span(resolution));
    let sum = |metric: &str| {
        let mut each = metric.to_owned();
        if let Some(half_life) = how.half_life {
            let (now, half_life) = (now.0.div_euclid(1_000), half_life as f64 / 1e3);
            each = format!("(({each}) * (0.5^(({now} - time()) / {half_life:.6})))");
        }
        format!("sum_over_time(({each}){range})")
    };
    let each = |metrics: &Metrics| [metrics.cpu.clone(), metrics.memory.clone(), metrics.gpu.clone()];
    let whole = each(&server.capacity).map(|metric| sum(&metric));
    let held = each(&server.allocated).map(|metric| sum(&format!("max by ({}) ({metric})", LABELS.join(", "))));
    Some([whole, held].concat())
}

/// A duration in PromQL.
fn span(length: Millis) -> String {
    if length % 1_000 == 0 {
        format!("{}s", length / 1_000)
    } else {
        format!("{length}ms")
    }
}

/// A timestamp in PromQL.
#[must_use]
pub fn instant(now: Time) -> String {
    format!("{}.{:03}", now.0.div_euclid(1_000), now.0.rem_euclid(1_000))
}

/// A result: a value for each queue, or one without a queue.
pub type Answer = BTreeMap<String, f64>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

/// Parses a result. Values of one queue are added; NaN, infinite and negative values count as 0.
///
/// # Errors
/// The server's error, or a parse error.
pub fn read(body: &[u8]) -> Result<Answer, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("not an answer of Prometheus: {error}"))?;
    let Some(data) = body.data.filter(|_| body.status == "success") else {
        let silent = body.error.is_empty();
        return Err(if silent {
            format!("no data and no error, with the status {:?}", body.status)
        } else {
            body.error
        });
    };
    if data.result_type != "vector" {
        return Err(format!("a {} is no answer to an instant query", data.result_type));
    }
    let mut answer = Answer::new();
    for mut sample in data.result {
        let named = LABELS.iter().filter_map(|label| sample.metric.remove(*label));
        let queue = named.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        let value = sample.value.1.parse().unwrap_or(0.0);
        if f64::is_finite(value) && value > 0.0 {
            let sum = answer.entry(queue).or_default();
            *sum = (*sum + value).min(f64::MAX);
        }
    }
    Ok(answer)
}

/// Usage of each queue from the results of [`queries`]: parts per billion of the capacity. Without capacity the usage is 0.
#[must_use]
pub fn shares(answers: &[Answer]) -> Vec<(Name, [i64; 3])> {
    let mut shares: BTreeMap<&str, [i64; 3]> = BTreeMap::new();
    let (whole, held) = answers.split_at(answers.len() / 2);
    for (resource, (whole, held)) in whole.iter().zip(held).enumerate() {
        let whole: f64 = whole.values().next().copied().unwrap_or_default();
        for (queue, held) in held.iter().filter(|(queue, _)| whole > 0.0 && !queue.is_empty()) {
            #[expect(clippy::cast_possible_truncation, reason = "within bounds")]
            let share = ((held / whole).min(MOST) * 1e9).round() as i64;
            if let Some(part) = shares.entry(queue).or_default().get_mut(resource) {
                *part = share;
            }
        }
    }
    shares
        .into_iter()
        .map(|(queue, shares)| (queue.into(), shares))
        .collect()
}

#[cfg(test)]
mod tests;
