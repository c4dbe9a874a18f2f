//! The pods that wait, and what keeps each of them from a node, as the scheduler, the grouper and the API server say. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::write_history::WriteHistory;
use crate::components::bus::{GroupKey, ObstacleKind, PodRef};

/// What is said of a pod that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The word, in condition and event.
    pub reason: &'static str,
    /// The sentences.
    pub message: String,
}

/// A pod that waits.
#[derive(Debug)]
pub struct WaitingPod {
    /// Which one.
    pub pod: PodRef,
    /// The latest report about its group, and what it says of this pod.
    report: Option<(GroupKey, Said)>,
    /// What else is said of it, where there is no report.
    obstacles: BTreeMap<ObstacleKind, Said>,
    /// What was written on it.
    pub history: WriteHistory,
    /// How often it was looked for a reason in vain.
    pub looks: u32,
}

impl WaitingPod {
    /// What is said of it: by the report on its group, else by whoever could do nothing with it.
    #[must_use]
    pub fn said(&self) -> Option<&Said> {
        let report = self.report.as_ref().map(|(_, said)| said);
        report.or_else(|| self.obstacles.values().next())
    }

    /// The group whose report speaks of it.
    #[must_use]
    pub fn reported_in(&self) -> Option<&GroupKey> {
        self.report.as_ref().map(|(group, _)| group)
    }
}

/// All of them, by UID.
#[derive(Debug, Default)]
pub struct WaitingPods {
    pods: HashMap<Arc<str>, WaitingPod>,
    /// Those of which a report speaks.
    reported: HashMap<GroupKey, BTreeSet<Arc<str>>>,
}

impl WaitingPods {
    /// A pod waits. True if that is news.
    pub fn see(&mut self, pod: &PodRef) -> bool {
        let before = self.pods.len();
        self.entry(pod);
        self.pods.len() > before
    }

    fn entry(&mut self, pod: &PodRef) -> &mut WaitingPod {
        let new = || WaitingPod {
            pod: pod.clone(),
            report: None,
            obstacles: BTreeMap::new(),
            history: WriteHistory::default(),
            looks: 0,
        };
        self.pods.entry(Arc::clone(&pod.uid)).or_insert_with(new)
    }

    /// What a new report says about the pods of a group; it replaces what was said. Returns the pods with something new to say, and those of which
    /// the report speaks no more.
    #[must_use]
    pub fn replace(&mut self, group: &GroupKey, reason: &'static str, pods: &[(PodRef, String)]) -> Vec<PodRef> {
        let before = self.reported.remove(group).unwrap_or_default();
        let now: BTreeSet<_> = pods.iter().map(|(pod, _)| Arc::clone(&pod.uid)).collect();
        let mut news = Vec::new();
        for uid in before.difference(&now) {
            if let Some(entry) = self.pods.get_mut(uid) {
                entry.report.take_if(|(of, _)| of == group);
                news.push(entry.pod.clone());
            }
        }
        for (pod, message) in pods {
            let entry = self.entry(pod);
            entry.obstacles.remove(&ObstacleKind::Place);
            let message = message.clone();
            let report = Some((group.clone(), Said { reason, message }));
            if entry.report != report {
                entry.report = report;
                news.push(pod.clone());
            }
        }
        if !now.is_empty() {
            self.reported.insert(group.clone(), now);
        }
        news
    }

    /// What else keeps a pod from a node; `None`: that no longer does. True if that is news.
    pub fn say(&mut self, pod: &PodRef, kind: ObstacleKind, said: Option<Said>) -> bool {
        match said {
            Some(said) => {
                let before = self.entry(pod).obstacles.insert(kind, said.clone());
                before.as_ref() != Some(&said)
            }
            None => {
                let entry = self.pods.get_mut(&pod.uid);
                entry.is_some_and(|entry| entry.obstacles.remove(&kind).is_some())
            }
        }
    }

    /// The pod waits no more.
    pub fn forget(&mut self, uid: &str) {
        let report = self.pods.remove(uid).and_then(|entry| entry.report);
        if let Some((group, _)) = report
            && let Some(pods) = self.reported.get_mut(&group)
        {
            pods.remove(uid);
            if pods.is_empty() {
                self.reported.remove(&group);
            }
        }
    }

    /// The pod of that UID.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&WaitingPod> {
        self.pods.get(uid)
    }

    /// The pod of that UID, to change.
    pub fn get_mut(&mut self, uid: &str) -> Option<&mut WaitingPod> {
        self.pods.get_mut(uid)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<PodRef> {
        let mut pods: Vec<_> = self.pods.values().map(|entry| entry.pod.clone()).collect();
        pods.sort_unstable();
        pods
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodRef {
        PodRef::new("ns", name, &format!("uid-{name}"))
    }

    fn said(message: &str) -> Option<Said> {
        let message = message.to_owned();
        Some(Said {
            reason: "Word",
            message,
        })
    }

    #[test]
    fn a_report_counts_more_than_an_obstacle_and_the_latest_report_counts() {
        let (mut waiting, group) = (WaitingPods::default(), GroupKey::new("ns", "train"));
        let (a, b) = (pod("a"), pod("b"));
        assert!(waiting.see(&a) && !waiting.see(&a));
        assert!(waiting.say(&a, ObstacleKind::Place, said("waits for node n1")));
        assert!(waiting.say(&a, ObstacleKind::Grouping, said("no owner")));
        assert!(!waiting.say(&a, ObstacleKind::Grouping, said("no owner")));
        let report =
            |pods: &[&PodRef]| -> Vec<_> { pods.iter().map(|pod| ((*pod).clone(), "full".to_owned())).collect() };
        assert_eq!(
            waiting.replace(&group, "Word", &report(&[&a, &b])),
            [a.clone(), b.clone()]
        );
        assert_eq!(waiting.get(&a.uid).unwrap().said(), said("full").as_ref());
        let silent = waiting.replace(&group, "Word", &report(&[&b]));
        assert_eq!(silent, std::slice::from_ref(&a));
        assert_eq!(waiting.get(&a.uid).unwrap().said(), said("no owner").as_ref());
        assert!(waiting.say(&a, ObstacleKind::Grouping, None));
        assert_eq!(
            waiting.get(&a.uid).unwrap().said(),
            None,
            "the report took back the place"
        );
    }

    #[test]
    fn nothing_is_kept_of_pods_that_wait_no_more() {
        let (mut waiting, group) = (WaitingPods::default(), GroupKey::new("ns", "train"));
        let pods = [(pod("a"), "full".to_owned()), (pod("b"), "full".to_owned())];
        let _ = waiting.replace(&group, "Word", &pods);
        waiting.forget("uid-a");
        waiting.forget("uid-b");
        assert!(waiting.pods.is_empty() && waiting.reported.is_empty());
        assert!(!waiting.say(&pod("a"), ObstacleKind::SubGroup, None));
        assert!(waiting.pods.is_empty());
    }
}
