//! Completes reports about pod groups that wait by facts that the engine does not have: which of their pods exist, and that a queue is in another node
//! pool. Pure.

use crate::api::Queue;
use crate::components::bus::GroupReport;
use crate::components::leadership::pool_name;
use crate::components::watches::Stores;
use crate::engine::decision::{Cause, Verdict};
use crate::engine::input::Name;
use crate::engine::model::Model;
use crate::engine::model::pod::Status;
use crate::engine::model::pod_group::PodGroup;
use crate::engine::overview::{GroupDetails, GroupSeen};
use crate::mirror::Shard;

/// Completes the reports of a cycle.
pub fn complete(reports: &mut [GroupReport], model: &Model, stores: &Stores, shard: &Shard) {
    let groups = model.pod_groups();
    for report in reports {
        let Some(pod_group) = groups.id(&report.group).map(|id| &groups[id]) else {
            continue;
        };
        if report.not_ready {
            speak_of_pods(report, pod_group, model);
        }
        if let Some(queue) = pod_group.input.as_ref().map(|input| &*input.queue)
            && let Some(sentence) = in_another_pool(report.verdict.cause, queue, stores, shard)
        {
            report.verdict = Verdict::new(Cause::QueueMissing, sentence);
        }
    }
}

/// Completes what is shown of a pod group, as its report. Whether there was something to complete.
pub fn complete_seen(group: &mut GroupSeen, stores: &Stores, shard: &Shard) -> bool {
    if let Some((cause, _)) = &group.verdict
        && let Some(sentence) = in_another_pool(*cause, &group.queue, stores, shard)
    {
        group.verdict = Some((Cause::QueueMissing, sentence));
        return true;
    }
    false
}

/// Completes the details of a pod group, as its report.
pub fn complete_details(details: &mut GroupDetails, stores: &Stores, shard: &Shard) {
    if complete_seen(&mut details.group, stores, shard)
        && let (Some((cause, sentence)), Some(report)) = (&details.group.verdict, &mut details.report)
    {
        report.verdict = Verdict::new(*cause, sentence.clone());
    }
}

/// The sentence about a queue that the engine does not know, if it is in another node pool than the shard's, or below such a queue.
fn in_another_pool(cause: Cause, queue: &str, stores: &Stores, shard: &Shard) -> Option<String> {
    let unknown = matches!(cause, Cause::QueueMissing | Cause::ParentQueueMissing);
    unknown
        .then(|| elsewhere(queue, &|name| stores.queues.get("", name), shard))
        .flatten()
}

/// Adds to a report on a pod group that lacks pods the pods that exist.
fn speak_of_pods(report: &mut GroupReport, pod_group: &PodGroup, model: &Model) {
    let pods = pod_group.pod_sets().flat_map(|(_, pods)| &pods.pods);
    let waiting = pods.filter(|pod| model.pods()[**pod].state.status == Status::Pending);
    let message = Name::from(report.message.as_str());
    report.pods = waiting
        .map(|pod| (model.pods()[*pod].input.pod.clone(), message.clone()))
        .collect();
}

/// The same for whatever finds queues by name.
fn elsewhere(queue: &str, get: &dyn Fn(&str) -> Option<std::sync::Arc<Queue>>, shard: &Shard) -> Option<String> {
    let (key, ours) = (&shard.key, shard.pool());
    let mut name = queue.to_owned();
    // The engine reports cycles of queues; here they only end the loop.
    for _ in 0..LEVELS_MAX {
        let object = get(&name)?;
        if !shard.selects(&*object) {
            let value = object.metadata.labels.as_ref().and_then(|labels| labels.get(key));
            let theirs = pool_name(value.map_or("", String::as_str));
            return Some(if name == queue {
                format!(
                    "Queue {queue} is of node pool {theirs} and takes no work of node pool {ours}; name a queue of that, or change the label {key}"
                )
            } else {
                format!(
                    "Queue {queue} takes no work, since queue {name} above it is of node pool {theirs}, not {ours}; change the label {key} of one of them"
                )
            });
        }
        name = object.spec.parent_queue.clone().filter(|parent| !parent.is_empty())?;
    }
    None
}

/// Limit on the depth of the tree.
const LEVELS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::engine::Engine;
    use crate::engine::input::Event;
    use crate::engine::policy::Policy;
    use crate::engine::tests::scenario::{NOW, group, open_queue, pod};

    fn said(queue: &str) -> Option<String> {
        let get = |name: &str| -> Option<Arc<Queue>> {
            let (pool, parent) = match name {
                "here" | "below-nothing" => (Some("blue"), (name == "below-nothing").then_some("nothing")),
                "below" => (Some("blue"), Some("middle")),
                "middle" => (Some("blue"), Some("far")),
                "far" => (Some("green"), None),
                "default" => (None, None),
                "loop" => (Some("blue"), Some("loop")),
                _ => return None,
            };
            let labels = pool.map(|pool| json!({"kai.scheduler/node-pool": pool}));
            let object = json!({"metadata": {"name": name, "labels": labels}, "spec": {"parentQueue": parent}});
            serde_json::from_value(object).ok().map(Arc::new)
        };
        let shard = Shard {
            key: "kai.scheduler/node-pool".to_owned(),
            value: "blue".to_owned(),
        };
        elsewhere(queue, &get, &shard)
    }

    #[test]
    fn a_queue_of_another_node_pool_is_not_reported_as_missing() {
        let is_said = [
            (
                "far",
                "Queue far is of node pool green and takes no work of node pool blue; name a queue of that, or change the label \
                 kai.scheduler/node-pool",
            ),
            (
                "default",
                "Queue default is of node pool default and takes no work of node pool blue; name a queue of that, or change the label \
                 kai.scheduler/node-pool",
            ),
            (
                "below",
                "Queue below takes no work, since queue far above it is of node pool green, not blue; change the label \
                 kai.scheduler/node-pool of one of them",
            ),
        ];
        for (queue, says) in is_said {
            assert_eq!(said(queue).as_deref(), Some(says));
        }
        for queue in ["here", "below-nothing", "missing", "loop"] {
            assert_eq!(said(queue), None, "{queue}");
        }
    }

    #[test]
    fn the_pods_of_a_gang_that_lacks_pods_get_its_reason() {
        let mut gang = group("gang", "q", 0);
        gang.min_member = Some(2);
        let only = pod(&gang, 0, "1");
        let mut engine = Engine::new(Policy::default());
        engine.apply(open_queue("q"), NOW);
        engine.apply(Event::Group(Box::new(gang)), NOW);
        engine.apply(Event::Pod(Box::new(only.clone())), NOW);
        let mut reports = engine.cycle(NOW).unschedulable;
        complete(&mut reports, engine.model(), &Stores::default(), &Shard::default());
        let text = "Job is not ready for scheduling. Waiting for 2 pods, currently 1 exist, 0 are gated";
        assert_eq!(reports[0].pods, [(only.pod, Name::from(text))]);
    }
}
