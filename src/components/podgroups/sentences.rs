//! What is to be said on each pod that waits, from the latest report about its group. Pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::components::bus::{GroupKey, PodRef};

/// The sentences, by pod UID.
#[derive(Debug, Default)]
pub struct Sentences {
    pods: HashMap<Arc<str>, (PodRef, Option<GroupKey>, String)>,
    groups: HashMap<GroupKey, BTreeSet<Arc<str>>>,
}

impl Sentences {
    /// What a new report says about the pods of a group; it replaces what was said. Returns the pods with something new to say.
    #[must_use]
    pub fn replace(&mut self, group: &GroupKey, pods: &[(PodRef, String)]) -> Vec<Arc<str>> {
        let before = self.groups.remove(group).unwrap_or_default();
        let now: BTreeSet<_> = pods.iter().map(|(pod, _)| Arc::clone(&pod.uid)).collect();
        for uid in before.difference(&now) {
            self.pods.remove(uid);
        }
        let mut news = Vec::new();
        for (pod, message) in pods {
            let entry = (pod.clone(), Some(group.clone()), message.clone());
            if self.pods.insert(Arc::clone(&pod.uid), entry.clone()).as_ref() != Some(&entry) {
                news.push(Arc::clone(&pod.uid));
            }
        }
        if !now.is_empty() {
            self.groups.insert(group.clone(), now);
        }
        news
    }

    /// What is to be said about one pod, whatever its group says.
    pub fn say(&mut self, pod: PodRef, message: String) {
        self.pods.insert(Arc::clone(&pod.uid), (pod, None, message));
    }

    /// Nothing is to be said about the pod any more.
    pub fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    /// The pod of that UID and what is to be said on it.
    #[must_use]
    pub fn about(&self, uid: &str) -> Option<(&PodRef, &str)> {
        self.pods.get(uid).map(|(pod, _, message)| (pod, message.as_str()))
    }

    /// The group whose report says it.
    #[must_use]
    pub fn group(&self, uid: &str) -> Option<&GroupKey> {
        self.pods.get(uid).and_then(|(_, group, _)| group.as_ref())
    }

    /// Every pod with something to say.
    #[must_use]
    pub fn pods(&self) -> Vec<Arc<str>> {
        let mut pods: Vec<_> = self.pods.keys().cloned().collect();
        pods.sort_unstable();
        pods
    }
}
