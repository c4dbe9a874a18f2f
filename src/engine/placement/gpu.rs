//! Which GPUs of a node a pod shares.

use std::cmp::Reverse;

use crate::engine::input::GPU;
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::pod::GroupList;
use crate::engine::model::resources::{GPUS, PODS};
use crate::engine::placement::resources::{fitting_groups, pod_fits};

use super::score::GpuOrder;

/// Chosen GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Existing GPU groups.
    pub joined: GroupList,
    /// Number of GPUs to open for sharing.
    pub fresh: usize,
    /// Some of them have room only once a releasing pod has gone.
    pub wait: bool,
}

/// The best GPUs for a request, if there are enough.
#[must_use]
pub fn choose(model: &Model, pod: PodId, id: NodeId, order: GpuOrder) -> Option<Choice> {
    let node = &model.nodes()[id];
    let shape = &model.shapes()[model.pods()[pod].shape];
    let of = node.gpu_memory();
    let memory = shape.device_memory(of);
    let mut groups: Vec<_> = fitting_groups(node, shape).collect();
    match order {
        GpuOrder::Pack => groups.sort_by_key(|(_, gpu)| (Reverse(gpu.used_memory()), gpu.name.clone())),
        GpuOrder::Spread => groups.sort_by_key(|(_, gpu)| (gpu.used_memory(), gpu.name.clone())),
        GpuOrder::Any => groups.sort_by_key(|(_, gpu)| gpu.name.clone()),
    }
    let idle = node.idle.get(GPUS);
    let released = node.future.get(GPUS) - idle;
    // Each GPU that is opened takes a pod slot for its reservation pod, beside the pod's own.
    let slots = node.future.get(PODS) - 1;
    let whole = match node.sharing_from {
        None => usize::try_from(slots.min(idle / GPU + released / GPU)).unwrap_or(0),
        Some(_) => 0,
    };
    let wanted = usize::try_from(shape.gpu.count).unwrap_or(0);
    let (joined, fresh) = match order {
        GpuOrder::Spread => (wanted.saturating_sub(whole), wanted.min(whole)),
        GpuOrder::Pack | GpuOrder::Any => (wanted.min(groups.len()), wanted.saturating_sub(groups.len())),
    };
    if joined > groups.len() || fresh > whole || wanted == 0 {
        return None;
    }
    let must_wait = groups[..joined]
        .iter()
        .any(|(_, gpu)| gpu.staying.pods + gpu.leaving.pods == 0 || gpu.free_now(of) < memory);
    // A GPU that is opened may be one that a releasing pod still has, even if another could be joined now.
    let opens_later = i64::try_from(fresh).is_ok_and(|fresh| fresh > idle / GPU);
    Some(Choice {
        joined: groups[..joined].iter().map(|(at, _)| *at).collect(),
        fresh,
        wait: must_wait || opens_later || !pod_fits(model, pod, id, true),
    })
}

/// Gives the chosen GPUs to a pod: the groups that it joins and new ones, named after the pod.
pub fn open(model: &mut Model, pod: PodId, id: NodeId, choice: &Choice) -> GroupList {
    let mut groups = choice.joined.clone();
    groups.extend(model.open_gpus(id, pod, choice.fresh));
    groups
}
