//! The unschedulable cache: kinds of pods that fitted no node in this action.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::explain::refusal::PodProblem;
use crate::engine::model::Mark;
use crate::engine::model::ids::{ClassId, ShapeId};

/// Kinds of pods that fitted no node. Valid until resources are freed.
#[derive(Debug, Default)]
pub struct UnschedulableCache {
    kinds: BTreeMap<(ClassId, ShapeId), Arc<PodProblem>>,
    since: Vec<(Mark, (ClassId, ShapeId))>,
}

impl UnschedulableCache {
    /// Removes all kinds.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes kinds added after a mark, because the changes since are rolled back.
    pub fn rolled_back(&mut self, mark: Mark) {
        while let Some((found, kind)) = self.since.last().copied()
            && found > mark
        {
            self.since.pop();
            self.kinds.remove(&kind);
        }
    }

    /// Keeps all kinds, because the open statement is committed.
    pub fn committed(&mut self) {
        self.since.clear();
    }

    /// Adds a kind.
    pub fn add(&mut self, mark: Mark, kind: (ClassId, ShapeId), problem: Arc<PodProblem>) {
        self.kinds.insert(kind, problem);
        self.since.push((mark, kind));
    }

    /// Why a kind fits no node, if it is in the cache.
    #[must_use]
    pub fn get(&self, kind: (ClassId, ShapeId)) -> Option<&Arc<PodProblem>> {
        self.kinds.get(&kind)
    }
}
