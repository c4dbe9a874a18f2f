//! Kinds of pods that fit nowhere at present.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::explain::refusal::PodProblem;
use crate::engine::model::Mark;
use crate::engine::model::ids::{ClassId, ShapeId};

/// Pods of a kind that fitted nowhere, while nothing was freed since.
#[derive(Debug, Default)]
pub struct UnschedulableCache {
    kinds: BTreeMap<(ClassId, ShapeId), Arc<PodProblem>>,
    since: Vec<(Mark, (ClassId, ShapeId))>,
}

impl UnschedulableCache {
    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets what was found after a mark, because it is taken back.
    pub fn rolled_back(&mut self, mark: Mark) {
        while let Some((found, kind)) = self.since.last().copied()
            && found > mark
        {
            self.since.pop();
            self.kinds.remove(&kind);
        }
    }

    /// What is placed now stays, so what was found holds from here on.
    pub fn committed(&mut self) {
        self.since.clear();
    }

    /// Remembers a kind.
    pub fn add(&mut self, mark: Mark, kind: (ClassId, ShapeId), problem: Arc<PodProblem>) {
        self.kinds.insert(kind, problem);
        self.since.push((mark, kind));
    }

    /// What was found about a kind.
    #[must_use]
    pub fn get(&self, kind: (ClassId, ShapeId)) -> Option<&Arc<PodProblem>> {
        self.kinds.get(&kind)
    }
}
