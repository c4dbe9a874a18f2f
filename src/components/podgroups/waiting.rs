//! Waiting pods, and what keeps each of them from a node according to the scheduler, the grouper and the API server. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::write_history::WriteHistory;
use crate::components::bus::{GroupKey, ObstacleKind, PodRef};

/// The reason and message of a waiting pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The reason, in condition and event.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// A pod that waits.
#[derive(Debug)]
pub struct WaitingPod {
    /// The pod.
    pub pod: PodRef,
    /// The latest report about its group, and its message for this pod.
    report: Option<(GroupKey, Said)>,
    /// The obstacle, where there is no report.
    obstacles: BTreeMap<ObstacleKind, Said>,
    /// What was written on it.
    pub history: WriteHistory,
    /// Look-ups without a result.
    pub looks: u32,
}

impl WaitingPod {
    /// Its reason and message: of the report on its group, else of the obstacle.
    #[must_use]
    pub fn said(&self) -> Option<&Said> {
        let report = self.report.as_ref().map(|(_, said)| said);
        report.or_else(|| self.obstacle())
    }

    /// The reason and message of the obstacle.
    #[must_use]
    pub fn obstacle(&self) -> Option<&Said> {
        self.obstacles.values().next()
    }

    /// The group whose report names it.
    #[must_use]
    pub fn reported_in(&self) -> Option<&GroupKey> {
        self.report.as_ref().map(|(group, _)| group)
    }

    /// Whether it waits because its pod group does not have its sub-group.
    #[must_use]
    pub fn lacks_sub_group(&self) -> bool {
        self.report.is_none() && self.obstacles.contains_key(&ObstacleKind::SubGroup)
    }
}

/// All of them, by UID.
#[derive(Debug, Default)]
pub struct WaitingPods {
    pods: HashMap<Arc<str>, WaitingPod>,
    /// Pods that a report names.
    reported: HashMap<GroupKey, BTreeSet<Arc<str>>>,
}

impl WaitingPods {
    /// A pod waits. Returns whether that is new.
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

    /// A new report about the pods of a group; it replaces the last one. Returns the pods with a new message, and those that the report no longer
    /// names.
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

    /// Whether the obstacle is recorded with this reason and message.
    #[must_use]
    pub fn is_known(&self, pod: &PodRef, kind: ObstacleKind, said: &Said) -> bool {
        let entry = self.pods.get(&pod.uid);
        entry.is_some_and(|entry| entry.obstacles.get(&kind) == Some(said))
    }

    /// Another obstacle of a pod; `None`: it has ended. Returns whether that is new.
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

    /// Terms of leadership have changed: places are announced again, and look-ups start again.
    pub fn terms_changed(&mut self) {
        for entry in self.pods.values_mut() {
            entry.obstacles.remove(&ObstacleKind::Place);
            entry.looks = 0;
        }
    }

    /// The pod no longer waits.
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
    fn the_latest_report_takes_precedence_over_obstacles() {
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
    fn an_obstacle_is_known_until_it_has_another_message_or_a_report_takes_its_place() {
        let (mut waiting, group, pod) = (WaitingPods::default(), GroupKey::new("ns", "train"), pod("a"));
        let (here, there) = (said("waits for node n1").unwrap(), said("waits for node n2").unwrap());
        let is_known = |waiting: &WaitingPods, said: &Said| waiting.is_known(&pod, ObstacleKind::Place, said);
        assert!(!is_known(&waiting, &here));
        waiting.say(&pod, ObstacleKind::Place, Some(here.clone()));
        assert!(is_known(&waiting, &here) && !is_known(&waiting, &there));
        let _ = waiting.replace(&group, "Word", &[(pod.clone(), "full".to_owned())]);
        assert!(!is_known(&waiting, &here));
    }

    #[test]
    fn records_of_pods_that_no_longer_wait_are_removed() {
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
