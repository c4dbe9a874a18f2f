//! Failures in a row: of pods, which wait longer and longer before they are tried again, and of nodes, on which for longer and
//! longer no GPU is opened for sharing after none could be reserved (because one of them is bad, say).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Ending, Report};
use crate::components::bus::Bind;
use crate::components::retry::Backoff;

/// Pods and nodes whose failures are remembered; beyond that the oldest are forgotten with all others.
const FAILURES_MAX: usize = 8_192;
/// Wait before a pod whose bind failed is tried again: first and longest.
pub const RETRY: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};
/// The same for opening a GPU on a node: longer, so that pods go elsewhere first.
const OPEN_AGAIN: Backoff = Backoff {
    first: Duration::from_secs(10),
    longest: Duration::from_secs(300),
};

/// What failed, and how often.
#[derive(Default)]
pub struct Failures {
    pods: HashMap<Arc<str>, u32>,
    nodes: HashMap<Arc<str>, u32>,
}

/// How long to wait if a bind fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// With its pod.
    pub pod: Duration,
    /// With opening another GPU on its node.
    pub node: Duration,
}

impl Failures {
    /// How long to wait if this bind fails, too.
    #[must_use]
    pub fn waits(&self, bind: &Bind) -> Waits {
        let pod = self.pods.get(&bind.placement.pod.uid).copied().unwrap_or_default();
        let node = self.nodes.get(&bind.placement.node).copied().unwrap_or_default();
        Waits {
            pod: RETRY.wait(pod + 1),
            node: OPEN_AGAIN.wait(node + 1),
        }
    }

    /// Notes how a bind ended. `opened`: it has opened GPUs for sharing.
    pub fn note(&mut self, bind: &Bind, report: &Report, opened: bool) {
        let (pod, node) = (&bind.placement.pod.uid, &bind.placement.node);
        if !matches!(report.ending, Ending::Failed(_)) {
            self.pods.remove(pod);
            if opened {
                self.nodes.remove(node);
            }
            return;
        }
        if self.pods.len() + self.nodes.len() >= FAILURES_MAX {
            *self = Self::default();
        }
        *self.pods.entry(Arc::clone(pod)).or_default() += 1;
        if report.no_device {
            *self.nodes.entry(Arc::clone(node)).or_default() += 1;
        }
    }
}
