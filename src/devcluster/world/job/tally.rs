//! How the pods of each Job have ended so far.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::{index_of, listed_indexes};
use crate::devcluster::world::clock::later;
use crate::devcluster::world::informer::{Change, controller_of};
use crate::devcluster::world::pods::phase;
use crate::devcluster::world::workload::{uid, wanted};

/// The tallies of all Jobs by uid.
#[derive(Default)]
pub(super) struct Tallies(Mutex<HashMap<String, Tally>>);

#[derive(Default)]
struct Tally {
    /// The counts in the status when this Job was first reconciled, beyond those counted here.
    before: Option<Before>,
    succeeded: HashSet<String>,
    failed: HashSet<String>,
    /// Pods whose failure does not count: the controller deletes them itself, or the Job's pod failure policy ignores it.
    excused: HashSet<String>,
    indexes: BTreeSet<usize>,
    failures_in_a_row: u32,
    last_failure: Option<Timestamp>,
}

struct Before {
    succeeded: usize,
    failed: usize,
}

/// How many of a Job's pods have ended, and how.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub succeeded: usize,
    pub failed: usize,
    /// The indexes that have succeeded, of an indexed Job.
    pub indexes: BTreeSet<usize>,
    failures_in_a_row: u32,
    last_failure: Option<Timestamp>,
}

impl Tallies {
    /// Counts the end of a pod, once. `ignored`: whether its failure does not count.
    pub fn pod_changed(&self, change: &Change<'_, Pod>, now: Timestamp, ignored: impl Fn(&Pod) -> bool) {
        let Some(pod) = change.newest() else { return };
        let Some(job) = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job") else {
            return;
        };
        let deleted = change.new.is_none() || pod.metadata.deletion_timestamp.is_some();
        let pod_uid = uid(&pod.metadata);
        let mut tallies = self.lock();
        let tally = tallies.entry(job.uid.clone()).or_default();
        match phase(pod) {
            "Succeeded" => tally.succeed(pod_uid, index_of(pod)),
            phase if phase == "Failed" || deleted => {
                if ignored(pod) {
                    tally.excused.insert(pod_uid.to_owned());
                }
                tally.fail(pod_uid, now);
            }
            _ => {}
        }
        if change.new.is_none() {
            tally.excused.remove(pod_uid);
        }
    }

    /// These pods are deleted by the controller itself, which does not count as their failure.
    pub fn excuse<'a>(&self, job: &str, pods: impl Iterator<Item = &'a str>) {
        self.lock()
            .entry(job.to_owned())
            .or_default()
            .excused
            .extend(pods.map(str::to_owned));
    }

    pub fn forget(&self, job: &str) {
        self.lock().remove(job);
    }

    /// The sum of the ends counted here and those in the status before.
    pub fn counts(&self, job: &Job) -> Counts {
        let mut tallies = self.lock();
        let tally = tallies.entry(uid(&job.metadata).to_owned()).or_default();
        let known = job.status.clone().unwrap_or_default();
        let (succeeded, failed) = (tally.succeeded.len(), tally.failed.len());
        if tally.before.is_none() {
            tally.indexes.extend(
                known
                    .completed_indexes
                    .as_deref()
                    .map(listed_indexes)
                    .unwrap_or_default(),
            );
        }
        let before = tally.before.get_or_insert_with(|| Before {
            succeeded: wanted(known.succeeded, 0).saturating_sub(succeeded),
            failed: wanted(known.failed, 0).saturating_sub(failed),
        });
        Counts {
            succeeded: before.succeeded + succeeded,
            failed: before.failed + failed,
            indexes: tally.indexes.clone(),
            failures_in_a_row: tally.failures_in_a_row,
            last_failure: tally.last_failure,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Tally>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn succeed(&mut self, pod: &str, index: Option<usize>) {
        if self.succeeded.insert(pod.to_owned()) {
            self.indexes.extend(index);
            self.failures_in_a_row = 0;
        }
    }

    fn fail(&mut self, pod: &str, now: Timestamp) {
        let counted = self.succeeded.contains(pod) || self.excused.contains(pod);
        if !counted && self.failed.insert(pod.to_owned()) {
            self.failures_in_a_row += 1;
            self.last_failure = Some(now);
        }
    }
}

impl Counts {
    /// When the next pod may be started, given how many have failed since the last success.
    pub fn next_try(&self, first_delay: Duration) -> Option<Timestamp> {
        let factor = 2_u32.saturating_pow(self.failures_in_a_row.checked_sub(1)?).min(60);
        Some(later(self.last_failure?, first_delay.saturating_mul(factor)))
    }
}
