//! The cluster at one moment, as the operator's API shows it.

use uuid::Uuid;

use crate::api::views::{Node, NodeList, Queue, QueueList, Workload, WorkloadList};
use crate::cli::client::Client;
use crate::cli::show::{Look, number, table};
use crate::cli::{nodes, queues};

/// The namespace of the demo's workloads.
const NAMESPACE: &str = "demo";

/// Smaller differences are ignored.
const ROUNDING: f64 = 1e-3;

/// See the module.
pub(super) struct Picture {
    queues: Vec<Queue>,
    nodes: Vec<Node>,
    workloads: Vec<Workload>,
}

impl Picture {
    /// The cluster's current state; `None` if the responses are from different moments.
    ///
    /// # Errors
    /// When the operator does not answer.
    pub async fn take(operator: &Client) -> anyhow::Result<Option<Self>> {
        let queues: QueueList = operator.get("/queues").await?;
        let nodes: NodeList = operator.list("/nodes").await?;
        let workloads: WorkloadList = operator.list(&format!("/workloads?namespace={NAMESPACE}")).await?;
        let same = queues.meta.as_of == nodes.meta.as_of && nodes.meta.as_of == workloads.meta.as_of;
        Ok(same.then(|| Self::of(queues.queues, nodes.nodes, workloads.workloads)))
    }

    fn of(mut queues: Vec<Queue>, mut nodes: Vec<Node>, workloads: Vec<Workload>) -> Self {
        queues.retain(|queue| matches!(&*queue.name, "teams" | "red" | "blue"));
        nodes.retain(|node| node.gpus.is_some());
        Self {
            queues,
            nodes,
            workloads,
        }
    }

    fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.name == name)
    }

    /// Whether a queue holds so many GPUs, no pod is pending or terminating, and the figures of nodes and queues agree.
    pub fn holds(&self, queue: &str, gpus: f64) -> bool {
        let leaves = self.queues.iter().filter(|queue| queue.depth > 0);
        let held: f64 = leaves.map(|queue| queue.allocated.gpu).sum();
        let of_nodes = self.nodes.iter().filter_map(|node| node.gpus.as_ref());
        let used: f64 = of_nodes.map(|gpus| gpus.total - gpus.free).sum();
        let settled = self.workloads.iter().all(|workload| {
            let pods = &workload.pods;
            pods.leaving == 0 && pods.running + pods.waiting == pods.wanted
        });
        let found = self.queue(queue);
        settled
            && (held - used).abs() < ROUNDING
            && found.is_some_and(|queue| (queue.allocated.gpu - gpus).abs() < ROUNDING)
    }

    /// Whether the pods of a queue request so many GPUs: all exist, also those that are created in place of evicted ones.
    pub fn requests(&self, queue: &str, gpus: f64) -> bool {
        let found = self.queue(queue);
        found.is_some_and(|queue| (queue.requested.gpu - gpus).abs() < ROUNDING)
    }

    /// Whether there is a verdict on a workload that has the current figures of its queue.
    pub fn explains(&self, workload: &str) -> bool {
        let mut named = self.workloads.iter().filter(|known| short(&known.name) == workload);
        named.any(|workload| {
            let said = workload.verdict.as_ref().map_or("", |verdict| &verdict.sentence);
            let queue = self.queue(&workload.queue);
            queue.is_some_and(|queue| said.contains(&format!("holds {} ", number(queue.allocated.gpu))))
        })
    }

    /// The pods of each shared GPU.
    pub fn users_of_shared_gpus(&self) -> Vec<usize> {
        let gpus = self.nodes.iter().filter_map(|node| node.gpus.as_ref());
        gpus.flat_map(|gpus| gpus.shared.iter().map(|gpu| gpu.users.len()))
            .collect()
    }

    /// The state as text.
    pub fn text(&self, look: &Look) -> String {
        let mut text = queues::words(&self.queues, look) + "\n" + &nodes::words(&self.nodes, look);
        if !self.workloads.is_empty() {
            let headings = ["WORKLOAD", "QUEUE", "STATE", "PODS", "GPUS", "REASON"];
            let mut rows = vec![headings.map(str::to_owned).to_vec()];
            rows.extend(self.workloads.iter().map(row));
            text = text + "\n" + &table(&rows);
        }
        text
    }
}

fn row(workload: &Workload) -> Vec<String> {
    let pods = &workload.pods;
    let why = workload.verdict.as_ref().map(|said| said.sentence.clone());
    vec![
        short(&workload.name).to_owned(),
        workload.queue.clone(),
        format!("{:?}", workload.state),
        format!("{}/{}", pods.running, pods.wanted),
        number(workload.requested.gpu),
        why.unwrap_or_default(),
    ]
}

/// The name of the Job or pod that a pod group was made for, which is `pg-NAME-UID`.
fn short(pod_group: &str) -> &str {
    let named = |name: &'_ str| -> Option<usize> {
        let end = name.len().checked_sub(Uuid::nil().hyphenated().to_string().len() + 1)?;
        let uid = name.get(end..)?.strip_prefix('-')?;
        Uuid::parse_str(uid).is_ok().then_some(end)
    };
    let name = pod_group.strip_prefix("pg-").unwrap_or(pod_group);
    named(name).and_then(|end| name.get(..end)).unwrap_or(pod_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_group_is_shown_by_the_name_of_its_workload() {
        for (group, name) in [
            ("pg-workers-0b0f1b9e-6a4c-4f43-a3c1-0c3f5a4de6a1", "workers"),
            ("pg-a-b-0b0f1b9e-6a4c-4f43-a3c1-0c3f5a4de6a1", "a-b"),
            ("pg-a", "pg-a"),
            ("mine", "mine"),
        ] {
            assert_eq!(short(group), name);
        }
    }
}
