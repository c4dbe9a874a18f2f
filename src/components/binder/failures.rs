//! Failures in a row, per pod and per node: a pod that fails wherever it goes and a node that fails whatever comes (because of a
//! bad device, say) both wait longer and longer.

use std::collections::HashMap;
use std::sync::Arc;

use super::attempt::Ending;
use crate::components::bus::Bind;

/// Pods and nodes whose failures are remembered; beyond that the oldest are forgotten with all others.
const FAILURES_MAX: usize = 8_192;

/// What failed, and how often.
#[derive(Default)]
pub struct Failures {
    pods: HashMap<Arc<str>, u32>,
    nodes: HashMap<Arc<str>, u32>,
}

impl Failures {
    /// How many failures a bind comes after.
    #[must_use]
    pub fn of(&self, bind: &Bind) -> u32 {
        let pod = self.pods.get(&bind.placement.pod.uid).copied().unwrap_or_default();
        let node = self.nodes.get(&bind.placement.node).copied().unwrap_or_default();
        pod.max(node)
    }

    /// Notes how a bind ended.
    pub fn note(&mut self, bind: &Bind, ending: &Ending) {
        let (pod, node) = (&bind.placement.pod.uid, &bind.placement.node);
        match ending {
            Ending::Failed(_) => {
                if self.pods.len() + self.nodes.len() >= FAILURES_MAX {
                    *self = Self::default();
                }
                *self.pods.entry(Arc::clone(pod)).or_default() += 1;
                *self.nodes.entry(Arc::clone(node)).or_default() += 1;
            }
            Ending::Done => {
                self.pods.remove(pod);
                self.nodes.remove(node);
            }
            Ending::Overtaken => {
                self.pods.remove(pod);
            }
        }
    }
}
