//! Queue of bind requests to review: those that changed, whose pod changed, or whose bind ended; and the pods whose bind is open, or not shown by a change
//! yet, whose requests are left alone. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use crate::api::BindRequest;
use crate::components::agenda::Agenda;
use crate::components::bus::PodRef;
use crate::components::pods;
use crate::components::watches::Key;

/// A handled request is reviewed again after this time, in case nothing changed.
const AGAIN: Duration = Duration::from_secs(10);

/// The queue.
#[derive(Default)]
pub struct Reviews {
    /// The requests for each pod, by namespace and name.
    by_pod: BTreeMap<Key, BTreeSet<Key>>,
    /// The pod that each request names.
    pods: HashMap<Key, Key>,
    agenda: Agenda<Key>,
    /// Not reviewed before this instant.
    not_before: HashMap<Key, Instant>,
    /// Uids of pods with an open bind of several steps, and whether a change has shown since that the pod is bound or gone.
    in_steps: HashMap<Arc<str>, bool>,
    /// Uids of bound pods that no change has shown as bound yet. The store of pods may: it is ahead of the changes that components get. If the bind request were
    /// deleted then, a scheduler could get that deletion before the pod's change, and would decide about the pod again.
    bound: HashSet<Arc<str>>,
}

impl Reviews {
    /// A request appeared or changed.
    pub fn request(&mut self, request: &BindRequest, now: Instant) {
        let (key, pod) = (Key::of(&request.metadata), pod_of(request));
        if self.pods.get(&key) != Some(&pod) {
            self.leave_pod(&key);
            self.by_pod.entry(pod.clone()).or_default().insert(key.clone());
            self.pods.insert(key.clone(), pod);
        }
        self.plan(&key, now);
    }

    /// A request is gone.
    pub fn request_gone(&mut self, request: &BindRequest) {
        let key = Key::of(&request.metadata);
        self.leave_pod(&key);
        self.forget(&key);
    }

    /// Removes a request from those for the pod that it named last.
    fn leave_pod(&mut self, key: &Key) {
        let Some(pod) = self.pods.remove(key) else { return };
        if let Some(of_pod) = self.by_pod.get_mut(&pod) {
            of_pod.remove(key);
            if of_pod.is_empty() {
                self.by_pod.remove(&pod);
            }
        }
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, pod: &Pod, now: Instant) {
        self.shown(pod);
        self.of_pod(&Key::of(&pod.metadata), now);
    }

    /// A pod appeared or changed.
    pub fn pod(&mut self, pod: &Pod, now: Instant) {
        if pods::is_bound(pod) || pod.metadata.deletion_timestamp.is_some() {
            self.shown(pod);
        }
        self.of_pod(&Key::of(&pod.metadata), now);
    }

    /// A change shows a pod as bound or gone.
    fn shown(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.bound.remove(uid);
        if let Some(shown) = self.in_steps.get_mut(uid) {
            *shown = true;
        }
    }

    /// A bind of several steps begins.
    pub fn steps_begin(&mut self, uid: &Arc<str>) {
        self.in_steps.insert(Arc::clone(uid), false);
    }

    /// It has ended; `bound`: the pod is bound now. Returns whether a change has shown since that the pod is bound or gone.
    pub fn steps_end(&mut self, uid: &Arc<str>, bound: bool) -> bool {
        let shown = self.in_steps.remove(uid).unwrap_or(true);
        if bound && !shown {
            self.bound.insert(Arc::clone(uid));
        }
        shown
    }

    /// Whether a bind of the pod in several steps is open.
    #[must_use]
    pub fn is_in_steps(&self, uid: &str) -> bool {
        self.in_steps.contains_key(uid)
    }

    /// Whether the pod was bound and no change has shown it yet.
    #[must_use]
    pub fn was_bound(&self, uid: &str) -> bool {
        self.bound.contains(uid)
    }

    /// Queues the requests of a pod, not before an instant.
    pub fn again(&mut self, pod: &PodRef, at: Instant) {
        let pod = Key {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
        };
        for key in self.by_pod.get(&pod).cloned().unwrap_or_default() {
            self.not_before.insert(key.clone(), at);
            self.plan(&key, at);
        }
    }

    /// Queues all requests.
    pub fn review_all(&mut self, now: Instant) {
        let keys: Vec<_> = self.by_pod.values().flatten().cloned().collect();
        keys.iter().for_each(|key| self.plan(key, now));
    }

    fn of_pod(&mut self, pod: &Key, now: Instant) {
        for key in self.by_pod.get(pod).cloned().unwrap_or_default() {
            self.plan(&key, now);
        }
    }

    fn plan(&mut self, key: &Key, at: Instant) {
        let at = self.not_before.get(key).map_or(at, |not_before| at.max(*not_before));
        self.agenda.plan(key, at);
    }

    /// When the next one is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// The requests that are due. One with a running cleanup follows when that has ended.
    pub fn due(&mut self, now: Instant) -> Vec<Key> {
        let due = self.agenda.start_due(now);
        for key in &due {
            self.agenda.finish(key);
            self.not_before.remove(key);
        }
        due
    }

    /// A cleanup of a request starts: no other until it ends.
    pub fn begin(&mut self, key: &Key, now: Instant) {
        self.not_before.insert(key.clone(), now + AGAIN);
    }

    /// The cleanup has ended.
    pub fn finish(&mut self, key: &Key, now: Instant) {
        self.plan(key, now + AGAIN);
    }

    /// The request is gone.
    pub fn forget(&mut self, key: &Key) {
        self.not_before.remove(key);
    }
}

/// The pod of a request.
fn pod_of(request: &BindRequest) -> Key {
    Key {
        namespace: request.metadata.namespace.clone().unwrap_or_default(),
        name: request.spec.pod_name.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
