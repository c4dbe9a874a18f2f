//! Why a pod waits that neither the scheduler nor the grouper has reported, from the objects alone. Pure.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Pod;

use super::conditions::node_pool;
use super::status::backs_off;
use super::waiting::Said;
use crate::api::PodGroup;
use crate::api::names::{annotation, object, reason};
use crate::components::bus::GroupKey;
use crate::components::leadership::{Pools, Scope};
use crate::components::watches::Stores;
use crate::components::{Settings, pods};

/// What the objects do not show.
#[derive(Debug, Default)]
pub struct Known {
    /// Why scheduling is switched off by the configuration.
    pub off: BTreeSet<Scope>,
    /// Pod groups that the scheduler could not read, with its messages.
    pub set_aside: HashMap<GroupKey, String>,
}

/// The sentence for switched-off scheduling.
#[must_use]
pub fn switched_off(settings: &Settings) -> Said {
    let part = if settings.parts.binder { "scheduler" } else { "binder" };
    let message = format!(
        "Scheduling is switched off: spec.{part}.service.enabled of Config '{}' is false, or the Config or the SchedulingShard is invalid: see their conditions",
        object::CONFIG
    );
    let reason = reason::SWITCHED_OFF;
    Said { reason, message }
}

/// The sentence for a node pool without a shard.
#[must_use]
pub fn no_shard(pool: &str, pools: &Pools) -> Said {
    let key = &pools.key;
    let remedy = if pool == object::DEFAULT_NODE_POOL && !pools.default_has_shard {
        format!("create one without partitionLabelValue or set the label {key}")
    } else {
        format!("create one with partitionLabelValue '{pool}' or change the label {key}")
    };
    Said {
        reason: reason::NO_SHARD,
        message: format!("No SchedulingShard schedules the node pool '{pool}'; {remedy}"),
    }
}

/// The sentence for a waiting pod; `None`: no cause is known. `group`: the group that it names, if it exists.
#[must_use]
pub fn why(pod: &Pod, group: Option<&PodGroup>, known: &Known, stores: &Stores, settings: &Settings) -> Option<Said> {
    let say = |reason: &'static str, message: String| Some(Said { reason, message });
    let Some(key) = pods::annotated_group(pod) else {
        if settings.parts.grouper {
            return None;
        }
        let message = format!(
            "The pod names no pod group, and none is made for it: spec.podGrouper.service.enabled of Config '{}' is false",
            object::CONFIG
        );
        return say(reason::POD_GROUPER_WARNING, message);
    };
    let Some(group) = group else {
        let message = format!(
            "Pod group '{}' does not exist in namespace '{}'; create it or correct the pod's annotation {}",
            key.name(),
            key.namespace(),
            annotation::POD_GROUP_NAME
        );
        return say(reason::POD_GROUP_NOT_FOUND, message);
    };
    if let Some(message) = known.set_aside.get(&key) {
        return say(reason::SET_ASIDE, format!("Pod group '{}': {message}", key.name()));
    }
    let meta = &pod.metadata;
    let request = stores.bind_requests.get(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    );
    if let Some(node) = request.and_then(|request| request.spec.selected_node.clone()) {
        return say(reason::BINDING, format!("The pod is being bound to node {node}"));
    }
    // A group that is not retried in this node pool keeps its last message; of others the scheduler has reported nothing.
    if !backs_off(group) {
        return None;
    }
    let pool = node_pool(group, settings);
    let conditions = group.status.iter().flat_map(|status| &status.scheduling_conditions);
    let mut own = conditions.filter(|condition| condition.node_pool.as_deref() == Some(pool.as_str()));
    let message = own.next_back().and_then(|condition| condition.message.clone())?;
    say(reason::UNSCHEDULABLE, message)
}
