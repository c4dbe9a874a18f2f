//! Gangs follow their owners: these are read again a moment after pods have come or gone, unless they were read since.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Grouper;
use crate::components::bus::GroupKey;
use crate::components::grouping::workload::Workload;

/// Wait after a pod has come to a gang or left it before its owners are read again: others usually do so with it. What was read before may be read again then.
const AFTER_CHANGE: Duration = Duration::from_secs(1);

impl Grouper {
    /// A pod leaves its group. If that is a gang its owner may need fewer pods from now on, and the others would be evicted for those that lack.
    pub(super) fn leaves(&mut self, uid: &str) {
        let group = self.grouped_pods.get(uid).and_then(|entry| entry.group.clone());
        if let Some(group) = group.filter(|group| self.writer.is_gang(group)) {
            let now = Instant::now();
            self.doubted.plan(&group, now + AFTER_CHANGE);
            self.grouped_pods.changed.insert(group, now);
        }
    }

    /// A pod was grouped by these owners; it came at that time, if it had no group before. If they were read before pods came or left, as what was just read is
    /// not read again at once, they may ask for other minimums since.
    pub(super) fn grouped_by(&mut self, group: &GroupKey, owners: &[Arc<Workload>], came: Option<Instant>) {
        let Some(changed) = came.max(self.grouped_pods.changed.get(group).copied()) else {
            return;
        };
        let is_settled = !self.writer.is_gang(group) || self.owners.are_read_since(group.namespace(), owners, changed);
        if is_settled {
            self.grouped_pods.changed.remove(group);
        } else {
            self.doubted.plan(group, changed + AFTER_CHANGE);
            self.grouped_pods.changed.insert(group.clone(), changed);
        }
    }
}
