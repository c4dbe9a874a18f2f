//! The node's pods, as the watch shows them, and the annotations written on them.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use crate::api::names::annotation;

/// Wait after the first refusal of a text, which doubles with each further one, and its maximum.
const AGAIN: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(1);

/// A pod by namespace and name.
pub type Key = (String, String);

/// A pod.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    uid: String,
    /// Its annotation.
    says: Option<String>,
    /// The last written annotation, if it is still valid.
    written: Option<String>,
    refused: Option<Refused>,
}

/// A text that the API server refuses to write on a pod.
#[derive(Clone, Debug, PartialEq)]
struct Refused {
    text: String,
    /// When to try again, and how long that was put off.
    again: Instant,
    wait: Duration,
}

/// The pods of the node.
#[derive(Debug, Default)]
pub struct Known {
    pods: HashMap<Key, Seen>,
    /// Pods of the list in progress.
    listing: HashMap<Key, Seen>,
    listed: bool,
}

impl Known {
    /// Whether the first list is complete.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Applies an event of the watch.
    pub fn see(&mut self, event: Event<PartialObjectMeta<Pod>>) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(pod) => {
                let (key, seen) = self.read(&pod);
                self.listing.insert(key, seen);
            }
            Event::InitDone => {
                self.pods = std::mem::take(&mut self.listing);
                self.listed = true;
            }
            Event::Apply(pod) => {
                let (key, seen) = self.read(&pod);
                self.pods.insert(key, seen);
            }
            Event::Delete(pod) => {
                self.pods.remove(&key(&pod));
            }
        }
    }

    /// The written annotation stays valid while the UID is the same.
    fn read(&self, pod: &PartialObjectMeta<Pod>) -> (Key, Seen) {
        let (key, uid) = (key(pod), pod.uid().unwrap_or_default());
        let before = self.pods.get(&key).filter(|before| before.uid == uid);
        let seen = Seen {
            says: pod.annotations().get(annotation::NUMA_PLACEMENT_OBSERVED).cloned(),
            written: before.and_then(|before| before.written.clone()),
            refused: before.and_then(|before| before.refused.clone()),
            uid,
        };
        (key, seen)
    }

    /// The UID of a pod on which this text is not written yet, and may be tried now.
    pub fn differs(&self, key: &Key, text: &str) -> Option<String> {
        let pod = self.pods.get(key)?;
        let waits = |refused: &Refused| refused.text == text && Instant::now() < refused.again;
        if pod.refused.as_ref().is_some_and(waits) {
            return None;
        }
        let there = pod.written.as_ref().or(pod.says.as_ref());
        (there.map(String::as_str) != Some(text)).then(|| pod.uid.clone())
    }

    /// Records a write.
    pub fn wrote(&mut self, key: &Key, uid: &str, text: String) {
        if let Some(pod) = self.pods.get_mut(key).filter(|pod| pod.uid == uid) {
            pod.written = Some(text);
            pod.refused = None;
        }
    }

    /// Records that a write was refused.
    pub fn refused(&mut self, key: &Key, uid: &str, text: String) {
        let Some(pod) = self.pods.get_mut(key).filter(|pod| pod.uid == uid) else {
            return;
        };
        let before = pod.refused.as_ref().filter(|before| before.text == text);
        let wait = before.map_or(AGAIN, |before| (before.wait * 2).min(MOST));
        let again = Instant::now() + wait;
        pod.refused = Some(Refused { text, again, wait });
    }

    /// Whether a text was refused on a pod that is still there, and nothing was written on it since.
    pub fn any_refused(&self) -> bool {
        self.pods.values().any(|pod| pod.refused.is_some())
    }

    /// Drops the record of writes: from now on only what the watch shows counts.
    pub fn forget_written(&mut self) {
        for pod in self.pods.values_mut() {
            pod.written = None;
        }
    }
}

fn key(pod: &PartialObjectMeta<Pod>) -> Key {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, says: Option<&str>) -> PartialObjectMeta<Pod> {
        let annotations = says.map(|says| json!({annotation::NUMA_PLACEMENT_OBSERVED: says}));
        let metadata = json!({"name": "a", "namespace": "team", "uid": uid, "annotations": annotations});
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})).unwrap()
    }

    fn key() -> Key {
        ("team".to_owned(), "a".to_owned())
    }

    #[test]
    fn a_text_is_written_once_on_each_pod() {
        let mut known = Known::default();
        assert_eq!(known.differs(&key(), "x"), None, "nothing is known of it");
        known.see(Event::Init);
        known.see(Event::InitApply(pod("1", None)));
        assert!(!known.is_listed());
        known.see(Event::InitDone);
        assert!(known.is_listed());
        assert_eq!(known.differs(&key(), "x").as_deref(), Some("1"));
        known.wrote(&key(), "1", "x".to_owned());
        assert_eq!(known.differs(&key(), "x"), None);
        assert_eq!(known.differs(&key(), "y").as_deref(), Some("1"));
        // Another pod of the name has no annotation yet, whatever a late answer shows.
        known.see(Event::Apply(pod("2", None)));
        known.wrote(&key(), "1", "x".to_owned());
        assert_eq!(known.differs(&key(), "x").as_deref(), Some("2"));
        known.see(Event::Delete(pod("2", None)));
        assert_eq!(known.differs(&key(), "x"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_text_is_tried_again_at_growing_intervals() {
        let mut known = Known::default();
        known.see(Event::Apply(pod("1", None)));
        let mut tried = 0;
        for _ in 0..3_600 {
            // The pod changes all the time.
            known.see(Event::Apply(pod("1", None)));
            if let Some(uid) = known.differs(&key(), "x") {
                known.refused(&key(), &uid, "x".to_owned());
                tried += 1;
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!((60..75).contains(&tried), "{tried} attempts in an hour");
        assert!(known.any_refused(), "also while it waits");
        assert!(known.differs(&key(), "y").is_some(), "another text is tried at once");
        known.see(Event::Apply(pod("2", None)));
        assert!(known.differs(&key(), "x").is_some(), "and so is another pod");
        assert!(!known.any_refused());
        known.refused(&key(), "2", "x".to_owned());
        known.wrote(&key(), "2", "y".to_owned());
        assert!(!known.any_refused());
    }

    #[test]
    fn changes_by_others_are_noticed_at_the_next_comparison() {
        let mut known = Known::default();
        known.see(Event::Apply(pod("1", Some("x"))));
        assert_eq!(known.differs(&key(), "x"), None, "it is there from an earlier process");
        known.see(Event::Apply(pod("1", None)));
        known.wrote(&key(), "1", "x".to_owned());
        known.see(Event::Apply(pod("1", Some("forged"))));
        assert_eq!(known.differs(&key(), "x"), None);
        known.forget_written();
        assert_eq!(known.differs(&key(), "x").as_deref(), Some("1"));
        // A list replaces everything before.
        known.see(Event::Init);
        known.see(Event::InitDone);
        assert_eq!(known.differs(&key(), "x"), None);
    }
}
