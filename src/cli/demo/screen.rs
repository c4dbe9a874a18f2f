//! The live table, printed anew at each change.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use kube::ResourceExt;

use super::{Snapshot, gpus, node, phase, reason};
use crate::api::names::{label, resource};

/// The table that was printed last.
#[derive(Default)]
pub(super) struct Screen {
    shown: String,
}

impl Screen {
    /// Prints the state of the cluster if it differs from what was printed last.
    pub(super) fn draw(&mut self, snapshot: &Snapshot) -> std::io::Result<()> {
        let table = table(snapshot);
        if table == self.shown {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        write!(out, "\n{table}")?;
        self.shown = table;
        out.flush()
    }
}

fn table(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let width = usize::from(std::io::stdout().is_terminal()) * 40 + 60;
    let _ = writeln!(
        text,
        "  {:<18} {:<8} {:>4}  {:<10} {:<11} waits because",
        "POD", "QUEUE", "GPUS", "STATUS", "NODE"
    );
    for pod in &snapshot.pods {
        let queue = pod.labels().get(label::QUEUE).map_or("", String::as_str);
        let why = if node(pod).is_some() {
            ""
        } else {
            reason(pod).unwrap_or_default()
        };
        let why: String = why.lines().next().unwrap_or_default().chars().take(width).collect();
        let line = format!(
            "  {:<18} {queue:<8} {:>4}  {:<10} {:<11} {why}",
            pod.name_any(),
            gpus(pod),
            phase(pod),
            node(pod).unwrap_or("-"),
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for queue in &snapshot.queues {
        let amount =
            |map: &crate::api::QuantityMap| map.get(resource::NVIDIA_GPU).map_or("0".to_owned(), |q| q.0.clone());
        if let Some(status) = &queue.status {
            let (held, wanted) = (amount(&status.allocated), amount(&status.requested));
            if wanted != "0" {
                let _ = writeln!(text, "  queue {}: {held} of {wanted} GPUs asked for", queue.name_any());
            }
        }
    }
    for host in &snapshot.nodes {
        let allocatable = host.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let Some(total) = allocatable.and_then(|a| a.get(resource::NVIDIA_GPU)?.0.parse::<usize>().ok()) else {
            continue;
        };
        let here = snapshot
            .pods
            .iter()
            .filter(|pod| node(pod) == Some(&host.name_any()) && phase(pod) != "Succeeded");
        let used = here.map(|pod| gpus(pod) as usize).sum::<usize>().min(total);
        let _ = writeln!(
            text,
            "  {:<12} [{}{}] {used}/{total} GPUs",
            host.name_any(),
            "#".repeat(used),
            ".".repeat(total - used)
        );
    }
    text
}
