//! What workloads hold of a resource on some nodes, by queue. Pod groups that wait for the same resource of the same nodes share it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodGroupId, PodId, QueueId};
use crate::engine::model::pod::Status;
use crate::engine::model::resources::GPUS;

/// Pods that are scanned; with more, figures are lower bounds.
const PODS_MAX: usize = 4096;
/// Results that are kept. Each takes up to 200 KB.
const KEPT: usize = 8;

/// What a workload holds.
#[derive(Debug)]
pub struct Held {
    /// The pod group; `None`: pods of other schedulers.
    pub pod_group: Option<PodGroupId>,
    /// It is terminating already.
    pub leaves: bool,
    /// How much.
    pub amount: i64,
}

/// What the workloads of a queue hold.
#[derive(Debug)]
pub struct QueueHeld {
    /// The queue.
    pub queue: Option<QueueId>,
    /// How much in all.
    pub amount: i64,
    /// By name.
    pub workloads: Vec<Held>,
}

/// What all workloads hold.
#[derive(Debug)]
pub struct HeldByAll {
    /// Sorted by id.
    pub queues: Vec<QueueHeld>,
    /// What the nodes have.
    pub total: i64,
    /// All pods were scanned.
    pub exact: bool,
}

impl HeldByAll {
    /// What a queue holds.
    #[must_use]
    pub fn of_queue(&self, queue: Option<QueueId>) -> i64 {
        let at = self.queues.binary_search_by_key(&queue, |held| held.queue);
        at.map_or(0, |at| self.queues[at].amount)
    }

    /// Scans the pods on the nodes for the resource at this position.
    fn scan(model: &Model, position: usize, nodes: &[NodeId]) -> Self {
        let (mut seen, mut workloads) = (0, Vec::new());
        let pods = nodes.iter().flat_map(|node| &model.nodes()[*node].pods);
        for &id in pods.take(PODS_MAX) {
            seen += 1;
            let amount = held_by(model, id, position);
            if amount > 0 {
                let pod = &model.pods()[id];
                let pod_group = pod.pod_group.filter(|_| !pod.input.foreign);
                let leaves = pod.state.leaving || matches!(pod.state.status, Status::Releasing | Status::Stuck);
                let queue = pod_group.and_then(|pod_group| model.pod_groups()[pod_group].queue);
                workloads.push(((queue, pod_group, leaves), amount));
            }
        }
        workloads.sort_unstable_by_key(|(workload, _)| *workload);
        let mut queues: Vec<QueueHeld> = Vec::new();
        for same in workloads.chunk_by(|one, other| one.0 == other.0) {
            let ((queue, pod_group, leaves), _) = same[0];
            let held = Held {
                pod_group,
                leaves,
                amount: same.iter().map(|(_, amount)| amount).sum(),
            };
            match queues.last_mut().filter(|last| last.queue == queue) {
                Some(last) => {
                    last.amount += held.amount;
                    last.workloads.push(held);
                }
                None => queues.push(QueueHeld {
                    queue,
                    amount: held.amount,
                    workloads: vec![held],
                }),
            }
        }
        // By name: the order of ids is that of creation.
        let name = |held: &Held| held.pod_group.map(|pod_group| &model.pod_groups()[pod_group].key);
        for queue in &mut queues {
            let by_name = |one: &Held, other: &Held| (name(one), one.leaves).cmp(&(name(other), other.leaves));
            queue.workloads.sort_unstable_by(by_name);
        }
        let has = nodes.iter().map(|node| model.nodes()[*node].allocatable.get(position));
        Self {
            queues,
            total: has.sum(),
            exact: seen < PODS_MAX,
        }
    }
}

fn held_by(model: &Model, id: PodId, position: usize) -> i64 {
    let pod = &model.pods()[id];
    if pod.input.of_unikai || pod.input.reservation {
        0
    } else if position <= GPUS {
        model.accepted(id)[position]
    } else {
        model.shapes()[pod.shape].vector.get(position)
    }
}

/// The last results for one model.
#[derive(Debug, Default)]
pub struct Scans(RefCell<VecDeque<Scanned>>);

#[derive(Debug)]
struct Scanned {
    position: usize,
    nodes: Vec<NodeId>,
    held: Rc<HeldByAll>,
}

impl Scans {
    /// What is held of the resource at this position on these nodes.
    #[must_use]
    pub fn held(&self, model: &Model, position: usize, nodes: &[NodeId]) -> Rc<HeldByAll> {
        let mut kept = self.0.borrow_mut();
        let same = kept
            .iter()
            .find(|kept| kept.position == position && kept.nodes == nodes);
        if let Some(same) = same {
            return Rc::clone(&same.held);
        }
        let held = Rc::new(HeldByAll::scan(model, position, nodes));
        kept.truncate(KEPT - 1);
        kept.push_front(Scanned {
            position,
            nodes: nodes.to_vec(),
            held: Rc::clone(&held),
        });
        held
    }
}
