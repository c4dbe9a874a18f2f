//! Turns of writing volume claims, and what their binds have left to one another to undo. Pods that share an unbound claim have binds of their own, and each may
//! fail: what one finds in place must not be removed by another a moment later, nor stay when all of them are over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::claim_turns::TURN;
use crate::components::keyed_turns::KeyedTurns;

/// A write for a claim, which is undone if the claim gets no volume.
#[derive(Clone, Debug)]
pub enum Write {
    /// The claim got the annotation that names this node.
    Node(Arc<str>, Arc<PersistentVolumeClaim>),
    /// The volume of this name got a `claimRef` to the claim.
    Reference(Arc<str>, Arc<PersistentVolumeClaim>),
}

impl Write {
    /// The node or the volume that was written, and the claim.
    fn about(&self) -> (bool, &str, Option<&str>) {
        let (is_node, name, claim) = match self {
            Self::Node(node, claim) => (true, node, claim),
            Self::Reference(volume, claim) => (false, volume, claim),
        };
        (is_node, name, claim.metadata.uid.as_deref())
    }
}

/// The turns of all volume claims, by namespace and name.
#[derive(Default)]
pub struct VolumeTurns {
    turns: KeyedTurns<Arc<str>>,
    /// What binds that have ended have not undone, as others waited for the claim.
    left: Mutex<HashMap<Arc<str>, Vec<Write>>>,
}

impl VolumeTurns {
    fn left(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<Write>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other bind reads and writes the claim; the next one may when the result is dropped.
    pub async fn next(&self, claim: &Arc<str>) -> Option<OwnedMutexGuard<()>> {
        timeout(TURN, self.turns.next(claim)).await.ok()
    }

    /// Leaves writes to be undone by the last bind that waits for the claim, each once.
    pub fn leave(&self, claim: &Arc<str>, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        let mut all = self.left();
        let left = all.entry(Arc::clone(claim)).or_default();
        for write in writes {
            if !left.iter().any(|known| known.about() == write.about()) {
                left.push(write);
            }
        }
    }

    /// Takes the writes that were left.
    pub fn take(&self, claim: &str) -> Vec<Write> {
        self.left().remove(claim).unwrap_or_default()
    }
}
