//! Priority classes that are created or deleted: pod groups that name one are grouped again, as their pods do not change.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::{AGAIN_AFTER, Grouper};
use crate::api::names::label;
use crate::components::bus::GroupKey;
use crate::components::grouping::rules::class_of_pod;
use crate::components::grouping::workload::Workload;

impl Grouper {
    /// A class exists, or exists no more. One pod of each group that it matters to is grouped again, which sets the class of the group.
    pub(super) fn class_changed(&mut self, class: &str, exists: bool) {
        let is_news = if exists {
            self.classes.insert(class.into())
        } else {
            self.classes.remove(class)
        };
        if !is_news {
            return;
        }
        // Their rules may have asked for it before.
        for member in &self.walking {
            self.grouped_pods.outdate(&member.uid);
        }
        let groups: Vec<GroupKey> = if exists {
            self.grouped_pods.absent_classes.created(class).into_iter().collect()
        } else {
            self.writer.of_class(class)
        };
        for group in groups {
            if let Some(pod) = self.grouped_pods.one_anew(&group) {
                self.grouped_pods.retry(&pod.uid, Instant::now() + AGAIN_AFTER);
            }
        }
    }

    /// Remembers the classes that a pod, its owners or the defaults for their kinds name, and that do not exist.
    pub(super) fn note_absent_classes(&mut self, group: &GroupKey, pod: &Pod, owners: &[Arc<Workload>]) {
        if !self.grouped_pods.has_members(group) {
            return;
        }
        let defaults = self.owners.defaults().unwrap_or_default();
        let of_owners = owners.iter().flat_map(|owner| {
            let label = owner.labels.get(label::PRIORITY_CLASS_NAME).map(String::as_str);
            let of_kind = defaults.get(owner).map(|entry| entry.priority_class.as_str());
            label.into_iter().chain(of_kind)
        });
        let named = class_of_pod(pod).into_iter().chain(of_owners);
        // The store, which rules ask, may know of a change that this component is still to be told.
        let exists = |class: &str| self.classes.contains(class) && self.stores.priority_classes.contains("", class);
        for class in named.filter(|class| !class.is_empty() && !exists(class)) {
            self.grouped_pods.absent_classes.add(group, class);
        }
    }
}
