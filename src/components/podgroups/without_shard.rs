//! Events on pod groups and nodes of a node pool that no shard schedules, by the leader of the cluster. Pods get theirs in `notify`.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::PodGroups;
use crate::api::PodGroup;
use crate::components::bus::Subject;
use crate::components::pods;

impl PodGroups {
    /// A pod group was created or changed: reports it if no shard schedules it.
    pub(super) fn see_group(&self, group: &PodGroup) {
        if let Some(said) = self.no_shard(group.metadata.labels.as_ref()) {
            self.tell_no_shard(Subject::PodGroup(pods::group_key(&group.metadata)), &said);
        }
    }

    /// The same for a node.
    pub(super) fn see_node(&self, node: &Node) {
        if let Some(said) = self.no_shard(node.metadata.labels.as_ref()) {
            self.tell_no_shard(Subject::Node(node.name_any().into()), &said);
        }
    }

    /// Checks all of them once in each term, when the first lists are complete: objects created while no process led were not reported.
    pub(super) fn report_without_shard(&mut self) {
        let term = self.context.term();
        if !self.missing.is_empty() || self.looked_in == term {
            return;
        }
        self.looked_in = term;
        if term.is_some() {
            self.stores.nodes.list().iter().for_each(|node| self.see_node(node));
            self.stores
                .pod_groups
                .list()
                .iter()
                .for_each(|group| self.see_group(group));
        }
    }
}
