//! Alibaba's GPU cluster trace of 2023 ("openb"): a table of nodes and one of pods.

use std::collections::BTreeMap;

use super::{amount, cell, number, rows};
use crate::simulate::scenario::{Job, Machine, PRIORITY, Shape};

const MIB: f64 = 1_048_576.0;

/// Reads the table of nodes: `sn, cpu_milli, memory_mib, gpu, model`.
///
/// # Errors
/// If it is not such a table.
pub fn nodes(text: &str) -> anyhow::Result<Vec<Machine>> {
    rows(text, b',', |columns, row| {
        let at = |name: &str| columns.one(&[name]);
        let model = cell(row, columns.any(&["model"]));
        Ok(Some(Machine {
            name: cell(row, Some(at("sn")?)).to_owned(),
            cpu: amount(cell(row, Some(at("cpu_milli")?)))? as i64,
            memory: (amount(cell(row, Some(at("memory_mib")?)))? * MIB) as i64,
            gpus: amount(cell(row, Some(at("gpu")?)))? as i64,
            model: (!model.is_empty()).then(|| model.to_owned()),
            labels: BTreeMap::new(),
        }))
    })
}

/// Reads the table of pods. Each is a job in the queue named after its QoS class, and runs as long as in the trace.
///
/// # Errors
/// If it is not such a table.
pub fn pods(text: &str) -> anyhow::Result<Vec<Job>> {
    rows(text, b',', |columns, row| {
        let text = |name: &str| Ok::<_, anyhow::Error>(cell(row, Some(columns.one(&[name])?)));
        let created = amount(text("creation_time")?)?;
        let deleted = number(text("deletion_time")?).unwrap_or(created);
        let begun = number(text("scheduled_time")?).unwrap_or(created);
        let (devices, part) = (amount(text("num_gpu")?)? as i64, amount(text("gpu_milli")?)? as i64);
        let models = text("gpu_spec")?.split('|').filter(|model| !model.is_empty());
        Ok(Some(Job {
            name: text("name")?.to_owned(),
            queue: text("qos")?.to_ascii_lowercase(),
            arrives: (created * 1e3) as i64,
            pods: 1,
            min: 1,
            shape: Shape {
                cpu: amount(text("cpu_milli")?)? as i64,
                memory: (amount(text("memory_mib")?)? * MIB) as i64,
                gpu: devices.saturating_mul(part.min(1_000)),
                models: models.map(ToOwned::to_owned).collect(),
            },
            priority: PRIORITY,
            runs: Some(((deleted - begun).max(1.0) * 1e3) as i64),
            checkpoint: None,
        }))
    })
}
