//! Whether the selectors of relations and disruption budgets select a pod.

use std::sync::Arc;

use crate::engine::input::{PodInput, PodSelector};
use crate::engine::model::selectors::meets;

/// So many look-ups in the labels of a pod are made one after another.
const FEW_LOOK_UPS: usize = 8;

/// A pod whose labels are looked up often: by the selectors of many counters or budgets.
pub struct Labelled<'p> {
    pod: &'p PodInput,
    /// By key; empty if there are few look-ups.
    sorted: Vec<(&'p str, &'p str)>,
}

impl<'p> Labelled<'p> {
    /// A pod, for so many selectors.
    #[must_use]
    pub fn of(pod: &'p PodInput, selectors: usize) -> Self {
        let mut sorted = Vec::new();
        if selectors > FEW_LOOK_UPS {
            sorted.extend(pod.labels.iter());
            sorted.sort_unstable();
        }
        Self { pod, sorted }
    }

    fn label(&self, key: &str) -> Option<&'p str> {
        if self.sorted.is_empty() {
            return self.pod.labels.get(key);
        }
        let at = self.sorted.binary_search_by(|(other, _)| (*other).cmp(key)).ok()?;
        Some(self.sorted[at].1)
    }

    /// Whether a selector selects it.
    #[must_use]
    pub fn is_selected_by(&self, selector: &PodSelector) -> bool {
        let Some(requirements) = &selector.labels else {
            return false;
        };
        let here = |namespaces: &Arc<[_]>| namespaces.binary_search(&self.pod.pod.namespace).is_ok();
        selector.namespaces.as_ref().is_none_or(here)
            && requirements
                .iter()
                .all(|requirement| meets(requirement, self.label(&requirement.key)))
    }
}

/// Whether a selector selects a pod.
#[must_use]
pub fn selects(selector: &PodSelector, pod: &PodInput) -> bool {
    Labelled::of(pod, 1).is_selected_by(selector)
}
