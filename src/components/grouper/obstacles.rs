//! Why pods have no group: told to the podgroups component, which shows it on the pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::Grouper;
use crate::api::names;
use crate::components::bus::{Obstacle, ObstacleKind, PodRef, ToPodGroups, deliver};
use crate::components::{Error, pods};

impl Grouper {
    /// Reports why a pod has no group.
    pub(super) fn report_obstacle(&mut self, pod: PodRef, reason: &'static str, message: String) {
        self.with_obstacle.insert(Arc::clone(&pod.uid));
        self.obstacles.push(Obstacle {
            pod,
            kind: ObstacleKind::Grouping,
            reason,
            message: Some(message),
        });
    }

    /// Withdraws the report about a pod without a group.
    pub(super) fn clear_obstacle(&mut self, pod: &Pod) {
        let pod = pods::pod_ref(pod);
        if self.with_obstacle.remove(&pod.uid) {
            self.obstacles.push(Obstacle {
                pod,
                kind: ObstacleKind::Grouping,
                reason: names::reason::POD_GROUPER_WARNING,
                message: None,
            });
        }
    }

    /// Sends the reports that are not sent yet.
    pub(super) async fn pass_obstacles_on(&mut self) -> Result<(), Error> {
        if self.obstacles.is_empty() {
            return Ok(());
        }
        let obstacles = std::mem::take(&mut self.obstacles);
        deliver(&self.bus.podgroups, ToPodGroups::Obstacles(obstacles)).await
    }

    /// A pod names our scheduler, but it or its namespace lacks the labels that the configuration requires. If it names a group it is
    /// scheduled with it.
    pub(super) fn not_monitored(&mut self, pod: &Pod) {
        if pods::is_bound(pod) || pods::annotated_group(pod).is_some_and(|key| self.group_exists(&key)) {
            return self.clear_obstacle(pod);
        }
        let settings = &self.context.settings;
        let list = |labels: &BTreeMap<String, String>| {
            let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            pairs.join(",")
        };
        let wanted = [
            (&settings.pod_labels, "its labels must include"),
            (&settings.namespace_labels, "the labels of its namespace must include"),
        ];
        let wanted = wanted.iter().filter(|(labels, _)| !labels.is_empty());
        let wanted: Vec<_> = wanted
            .map(|(labels, says)| format!("{says} {}", list(labels)))
            .collect();
        let message = format!("the pod is not scheduled: {}", wanted.join(", and "));
        self.warn(pods::pod_ref(pod), names::reason::NOT_MONITORED, message);
    }
}
