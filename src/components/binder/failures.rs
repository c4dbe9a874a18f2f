//! Exponential backoff after consecutive failures: of pods before they are bound or evicted again, and of nodes before a GPU
//! is opened for sharing again after a reservation failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Ending, Report};
use crate::components::bus::{OrderedBind, PodRef};
use crate::components::retry::{self, Backoff};

/// Number of pods and nodes whose failures are kept; beyond that all are dropped.
const FAILURES_MAX: usize = 8_192;
/// Backoff of a failed bind: initial and maximum.
pub const RETRY: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};
/// Backoff for opening a GPU on a node: longer, so that pods go to other nodes first.
const OPEN_AGAIN: Backoff = Backoff {
    first: Duration::from_secs(10),
    longest: retry::LONGEST,
};

/// Backoff of a failed eviction: longer, so that other victims are tried first.
const EVICT_AGAIN: Backoff = Backoff {
    first: Duration::from_secs(5),
    longest: retry::LONGEST,
};

/// What failed, and how often.
#[derive(Default)]
pub struct Failures {
    pods: HashMap<Arc<str>, u32>,
    /// Pods that could not be evicted.
    kept: HashMap<Arc<str>, u32>,
    nodes: HashMap<Arc<str>, u32>,
}

/// Retry delays after a failed bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The delay of the pod.
    pub pod: Duration,
    /// The delay of opening another GPU on the node.
    pub node: Duration,
    /// How often none could be opened there before.
    pub node_failures: u32,
}

impl Failures {
    /// The delays if this bind fails.
    #[must_use]
    pub fn waits(&self, bind: &OrderedBind) -> Waits {
        let pod = self.pods.get(&bind.placement.pod.uid).copied().unwrap_or_default();
        let node = self.nodes.get(&bind.placement.node).copied().unwrap_or_default();
        Waits {
            pod: RETRY.wait(pod + 1),
            node: OPEN_AGAIN.wait(node + 1),
            node_failures: node,
        }
    }

    /// The delay if this eviction fails.
    #[must_use]
    pub fn wait_to_evict(&self, pod: &PodRef) -> Duration {
        EVICT_AGAIN.wait(self.kept.get(&pod.uid).copied().unwrap_or_default() + 1)
    }

    /// Records how the eviction of a pod ended.
    pub fn note_eviction(&mut self, pod: &PodRef, report: &Report) {
        if !matches!(report.ending, Ending::Failed(_)) {
            self.kept.remove(&pod.uid);
        } else if report.tried {
            self.free_space();
            *self.kept.entry(Arc::clone(&pod.uid)).or_default() += 1;
        }
    }

    /// A pod is gone.
    pub fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
        self.kept.remove(uid);
    }

    fn free_space(&mut self) {
        if self.pods.len() + self.kept.len() + self.nodes.len() >= FAILURES_MAX {
            *self = Self::default();
        }
    }

    /// Records how a bind ended that was started with these delays. `opened`: it has opened GPUs for sharing.
    pub fn note(&mut self, bind: &OrderedBind, report: &Report, waits: Waits, opened: bool) {
        let (pod, node) = (&bind.placement.pod.uid, &bind.placement.node);
        if !matches!(report.ending, Ending::Failed(_)) {
            self.pods.remove(pod);
            if opened {
                self.nodes.remove(node);
            }
            return;
        }
        if !report.tried {
            return;
        }
        self.free_space();
        *self.pods.entry(Arc::clone(pod)).or_default() += 1;
        if report.no_device {
            let failures = self.nodes.entry(Arc::clone(node)).or_default();
            // One reservation fails for all binds that wait for it, and counts once.
            if *failures <= waits.node_failures {
                *failures += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bind_request;
    use super::*;
    use serde_json::json;

    /// A bind of a pod to a node.
    fn bind(pod: &str, node: &str) -> OrderedBind {
        let request = json!({"metadata": {"name": pod}, "spec": {"podName": pod, "selectedNode": node}});
        let pod = json!({"metadata": {"namespace": "ns", "name": pod, "uid": pod}});
        let (request, pod) = (serde_json::from_value(request), serde_json::from_value(pod));
        bind_request::bind(&request.unwrap(), &pod.unwrap(), "", Some(Vec::new())).unwrap()
    }

    /// A bind that starts now ends so.
    fn end(failures: &mut Failures, bind: &OrderedBind, report: &Report, opened: bool) {
        let waits = failures.waits(bind);
        failures.note(bind, report, waits, opened);
    }

    fn without_device() -> Report {
        Report {
            no_device: true,
            ..refused()
        }
    }

    /// The waits of pod and node, in seconds.
    fn waits(failures: &Failures, pod: &str, node: &str) -> (u64, u64) {
        let waits = failures.waits(&bind(pod, node));
        (waits.pod.as_secs(), waits.node.as_secs())
    }

    fn pod(uid: &str) -> PodRef {
        PodRef::new("ns", uid, uid)
    }

    fn refused() -> Report {
        Report::new(Ending::Failed("forbidden".to_owned()))
    }

    #[test]
    fn refused_evictions_back_off_exponentially() {
        let mut failures = Failures::default();
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                let wait = failures.wait_to_evict(&pod("a")).as_secs();
                failures.note_eviction(&pod("a"), &refused());
                wait
            })
            .collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(
            failures.wait_to_evict(&pod("b")).as_secs(),
            5,
            "others do not share its wait"
        );
        failures.note_eviction(&pod("a"), &Report::new(Ending::Done));
        assert_eq!(failures.wait_to_evict(&pod("a")).as_secs(), 5);
    }

    #[test]
    fn an_eviction_that_was_not_attempted_does_not_count_as_refused() {
        let mut failures = Failures::default();
        failures.note_eviction(&pod("a"), &Report::not_tried("not the leader"));
        assert_eq!(failures.wait_to_evict(&pod("a")).as_secs(), 5);
    }

    #[test]
    fn a_bind_that_was_not_attempted_does_not_count_as_failed() {
        let mut failures = Failures::default();
        let not_tried = Report::not_tried("not the leader");
        end(&mut failures, &bind("a", "n"), &not_tried, false);
        assert_eq!(waits(&failures, "a", "n"), (1, 10));
    }

    #[test]
    fn deleted_pods_have_no_backoff() {
        let mut failures = Failures::default();
        failures.note_eviction(&pod("a"), &refused());
        end(&mut failures, &bind("a", "n"), &refused(), false);
        failures.forget("a");
        assert!(failures.kept.is_empty() && failures.pods.is_empty());
    }

    #[test]
    fn a_pod_that_cannot_be_bound_waits_longer_each_time_until_it_is_bound() {
        let mut failures = Failures::default();
        let waited: Vec<_> = (0..8)
            .map(|_| {
                let wait = waits(&failures, "a", "n");
                end(&mut failures, &bind("a", "n"), &refused(), false);
                wait
            })
            .collect();
        assert_eq!(
            waited,
            [1, 2, 4, 8, 16, 32, 60, 60].map(|pod| (pod, 10)),
            "that is not the node's fault"
        );
        assert_eq!(waits(&failures, "b", "n"), (1, 10), "others do not share its wait");
        end(&mut failures, &bind("a", "n"), &Report::new(Ending::Done), false);
        assert_eq!(waits(&failures, "a", "n"), (1, 10));
    }

    #[test]
    fn a_node_without_a_device_to_share_is_left_alone_until_one_is_opened_there() {
        let mut failures = Failures::default();
        let waited: Vec<_> = (0..7)
            .map(|_| {
                end(&mut failures, &bind("a", "n"), &without_device(), false);
                waits(&failures, "b", "n").1
            })
            .collect();
        assert_eq!(waited, [20, 40, 80, 160, 300, 300, 300]);
        end(&mut failures, &bind("b", "n"), &Report::new(Ending::Done), false);
        assert_eq!(waits(&failures, "b", "n").1, 300, "bound to a GPU that was open");
        end(&mut failures, &bind("b", "n"), &Report::new(Ending::Done), true);
        assert_eq!(waits(&failures, "b", "n").1, 10);
    }

    #[test]
    fn a_reservation_that_fails_counts_once_for_all_binds_that_waited_for_it() {
        let mut failures = Failures::default();
        for wait in [20, 40] {
            let waiting = ["a", "b", "c", "d", "e"].map(|pod| bind(pod, "n"));
            let started = failures.waits(&waiting[0]);
            for bind in &waiting {
                failures.note(bind, &without_device(), started, false);
            }
            assert_eq!(waits(&failures, "f", "n").1, wait);
        }
        assert_eq!(waits(&failures, "a", "n").0, 4, "each pod waits longer");
    }

    #[test]
    fn failures_take_bounded_room() {
        let mut failures = Failures::default();
        let half = FAILURES_MAX / 2;
        for n in 0..half {
            let bind = bind(&format!("p{n}"), &format!("n{n}"));
            end(&mut failures, &bind, &without_device(), false);
        }
        assert_eq!((failures.pods.len(), failures.nodes.len()), (half, half));
        end(&mut failures, &bind("more", "n"), &refused(), false);
        assert_eq!((failures.pods.len(), failures.nodes.len()), (1, 0));
        (1..FAILURES_MAX).for_each(|n| failures.note_eviction(&pod(&n.to_string()), &refused()));
        assert_eq!(failures.kept.len(), FAILURES_MAX - 1);
        failures.note_eviction(&pod("more"), &refused());
        assert_eq!((failures.pods.len(), failures.kept.len()), (0, 1));
    }
}
