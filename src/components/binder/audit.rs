//! Checks the rules G-1, G-2 and G-3 (see [`crate::rules`]) against the watched objects. A violation is logged as ERROR and counted in a metric.
//!
//! Only a violation that lasts is reported: while a watch lists again, new objects are known before deleted ones are forgotten, which takes many seconds
//! if the process gets little of the CPU.
//!
//! An index from devices to groups limits the check after a change to the groups concerned.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;
use tracing::{error, info};

use super::groups::{Group, GroupId, Groups};
use crate::api::gpu_request::{self, Part};
use crate::api::names::node_label;
use crate::components::watches::Stores;
use crate::mirror::node::gpu_memory_mib;

/// A whole device, in millionths.
const WHOLE: u64 = 1_000_000;

/// A violation is reported once it has lasted for so long.
const LASTS: Duration = Duration::from_secs(60);

/// The id of the rule that is broken, and how.
type Violation = (&'static str, String);

/// The current violations.
#[derive(Default)]
pub struct Audit {
    /// Those that are reported.
    broken: BTreeMap<GroupId, Violation>,
    /// Those that are not reported yet, and since when they last.
    new: BTreeMap<GroupId, (Instant, Violation)>,
    devices: HashMap<GroupId, BTreeSet<String>>,
    groups: HashMap<(Arc<str>, String), BTreeSet<GroupId>>,
}

impl Audit {
    /// Checks a changed group, and those that share or shared a device with it.
    pub fn look(&mut self, changed: &GroupId, groups: &Groups, stores: &Stores, now: Instant) {
        let mut concerned = self.index(changed, groups.get(changed).map(devices).unwrap_or_default());
        concerned.insert(changed.clone());
        for id in concerned {
            let found = groups.get(&id).and_then(|group| self.violation(&id, group, stores));
            self.note(id, found, now);
        }
    }

    /// When [`Audit::report`] has something to do.
    pub fn next(&self) -> Option<Instant> {
        self.new.values().map(|(since, _)| *since + LASTS).min()
    }

    /// Reports the violations that have lasted long enough.
    pub fn report(&mut self, now: Instant) {
        if self.next().is_none_or(|next| next > now) {
            return;
        }
        for (id, (_, violation)) in self.new.extract_if(.., |_, (since, _)| *since + LASTS <= now) {
            let (rule, what) = &violation;
            error!(node = %id.node, group = %id.group, rule, error = what, "shared GPU is allocated wrongly");
            metrics::counter!("unikai_shared_gpu_breaches_total").increment(1);
            self.broken.insert(id, violation);
        }
        self.show();
    }

    /// Updates the devices of a group. Returns the groups with a device that it got or lost.
    fn index(&mut self, id: &GroupId, now: BTreeSet<String>) -> BTreeSet<GroupId> {
        let before = self.devices.remove(id).unwrap_or_default();
        let mut concerned = BTreeSet::new();
        for device in before.symmetric_difference(&now) {
            let key = (Arc::clone(&id.node), device.clone());
            let sharing = self.groups.entry(key.clone()).or_default();
            if now.contains(device) {
                sharing.insert(id.clone());
            } else {
                sharing.remove(id);
            }
            concerned.extend(sharing.iter().cloned());
            if sharing.is_empty() {
                self.groups.remove(&key);
            }
        }
        if !now.is_empty() {
            self.devices.insert(id.clone(), now);
        }
        concerned
    }

    /// The violation of a group.
    fn violation(&self, id: &GroupId, group: &Group, stores: &Stores) -> Option<Violation> {
        let none = BTreeSet::new();
        let own = self.devices.get(id).unwrap_or(&none);
        if own.len() > 1 {
            return Some(("G-1", format!("the group has {} devices: {own:?}", own.len())));
        }
        let sharing = own
            .iter()
            .filter_map(|device| self.groups.get(&(Arc::clone(&id.node), device.clone())));
        if let Some(other) = sharing.flatten().find(|other| *other != id) {
            let what = format!("device {own:?} is given to group {} too", other.group);
            return Some(("G-2", what));
        }
        let given = given(id, group, stores);
        (given > WHOLE).then(|| {
            let users = group.users.len();
            (
                "G-3",
                format!("{given} millionths of the device are given to {users} pods"),
            )
        })
    }

    fn note(&mut self, id: GroupId, found: Option<Violation>, now: Instant) {
        match found {
            Some(found) if self.broken.get(&id) == Some(&found) => drop(self.new.remove(&id)),
            Some(found) => {
                let since = self.new.get(&id).filter(|(_, before)| *before == found);
                let since = since.map_or(now, |(since, _)| *since);
                self.new.insert(id, (since, found));
            }
            None => {
                self.new.remove(&id);
                if let Some((rule, was)) = self.broken.remove(&id) {
                    info!(node = %id.node, group = %id.group, rule, was, "shared GPU is allocated correctly again");
                    self.show();
                }
            }
        }
    }

    fn show(&self) {
        #[expect(clippy::cast_precision_loss, reason = "few")]
        metrics::gauge!("unikai_shared_gpus_broken").set(self.broken.len() as f64);
    }
}

/// The devices that a group's reservation pods hold.
fn devices(group: &Group) -> BTreeSet<String> {
    let holders = group.holders.values().filter(|holder| holder.error.is_none());
    holders.filter_map(|holder| holder.device.clone()).collect()
}

/// The portions of a group's users, in millionths of its device.
fn given(id: &GroupId, group: &Group, stores: &Stores) -> u64 {
    let node = stores.nodes.get("", &id.node);
    let labels = node.as_ref().and_then(|node| node.metadata.labels.as_ref());
    let memory = labels
        .and_then(|labels| gpu_memory_mib(labels.get(node_label::GPU_MEMORY)?))
        .and_then(|mib| u64::try_from(mib).ok());
    let pods = group.users.values();
    let pods = pods.filter_map(|pod| stores.pods.get(&pod.namespace, &pod.name));
    pods.filter_map(|pod| portion(&pod, memory)).sum()
}

/// A pod's portion of each of its devices, in millionths.
fn portion(pod: &Pod, memory: Option<u64>) -> Option<u64> {
    let part = gpu_request::share(pod.metadata.annotations.as_ref())?.part;
    match part {
        Part::Fraction(billionths) => u64::try_from(billionths / 1_000).ok(),
        Part::Memory(mib) => Some(u64::try_from(mib).ok()? * WHOLE / memory.filter(|memory| *memory > 0)?),
    }
}

#[cfg(test)]
mod tests;
