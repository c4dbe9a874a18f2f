//! Resource claims: which pods use which, and their allocations.
//!
//! A pod's [`Place`](crate::engine::model::pod::Place) names the allocations that it uses. An allocation takes its devices as long as some pod uses it; one that the API
//! server shows and no pod uses takes them too, until the API server shows none.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::input::Name;
use crate::engine::input::devices::{AllocationInput, ClaimInput};

use super::{Allocation, Both, Inventory, LATER, NOW};
use crate::engine::model::arena::Arena;
use crate::engine::model::ids::{ClaimId, PodId};
use crate::engine::model::weight::Weight;

/// An allocation that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Used {
    /// Which of the claims that the pod names; `None` = the one for its extended resources.
    pub reference: Option<u32>,
    /// The claim.
    pub claim: ClaimId,
    /// The allocation.
    pub allocation: Arc<Allocation>,
}

/// The allocations that a pod uses.
pub type Grants = Vec<Used>;

/// An allocation of a claim, and the pods that use it.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The allocation.
    pub allocation: Arc<Allocation>,
    /// Pods that use it and are not releasing.
    pub staying: u32,
    /// Releasing pods that use it.
    pub leaving: u32,
    /// Pipelined pods that will use it.
    pub planned: u32,
    /// Its devices are counted as taken.
    pub counts: Both<bool>,
}

/// A claim.
#[derive(Debug)]
pub struct Claim {
    /// Its identity.
    pub key: Name,
    /// Its input; `None` before its event and after its deletion.
    pub input: Option<Box<ClaimInput>>,
    /// The allocation that the API server shows.
    pub shown: Option<Arc<Allocation>>,
    /// All its allocations: mostly none or one; two while a pod is to be moved.
    pub grants: SmallVec<[Grant; 1]>,
    /// Pods that name it, by id.
    pub users: Vec<PodId>,
    /// A pod that it is reserved for is still pending: the shown allocation stays although no pod uses it.
    pub awaited: bool,
}

impl Claim {
    /// No pod uses what the API server shows.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.shown.is_some() && self.grants.iter().all(|grant| grant.staying + grant.leaving == 0)
    }

    fn wanted(&self, grant: &Grant) -> Both<bool> {
        let idle = self.idle() && self.shown.as_ref() == Some(&grant.allocation);
        [
            grant.staying + grant.leaving > 0 || idle,
            grant.staying + grant.planned > 0 || (idle && self.awaited),
        ]
    }
}

/// All claims.
#[derive(Debug, Default)]
pub struct Claims {
    all: Arena<ClaimId, Claim>,
    ids: BTreeMap<Name, ClaimId>,
}

impl std::ops::Index<ClaimId> for Claims {
    type Output = Claim;
    fn index(&self, id: ClaimId) -> &Claim {
        &self.all[id]
    }
}

impl Claims {
    /// The claim of a key, if it is known or a pod names it.
    #[must_use]
    pub fn find(&self, key: &Name) -> Option<ClaimId> {
        self.ids.get(key).copied()
    }

    /// Removes a claim without references.
    pub(in crate::engine::model) fn drop_unused(&mut self, id: ClaimId) {
        let unused = |claim: &Claim| claim.input.is_none() && claim.users.is_empty() && claim.grants.is_empty();
        if self.all.contains(id) && unused(&self.all[id]) {
            let gone = self.all.remove(id).expect("it was there");
            self.ids.remove(&gone.key);
        }
    }

    /// All claims.
    pub fn iter(&self) -> impl Iterator<Item = (ClaimId, &Claim)> {
        self.all.iter()
    }
}

impl Inventory {
    /// The claim of a key; creates the entry if there is none.
    pub(crate) fn claim_for(&mut self, key: &Name) -> ClaimId {
        if let Some(&id) = self.claims.ids.get(key) {
            return id;
        }
        let id = self.claims.all.insert(Claim {
            key: key.clone(),
            input: None,
            shown: None,
            grants: SmallVec::new(),
            users: Vec::new(),
            awaited: false,
        });
        self.claims.ids.insert(key.clone(), id);
        id
    }

    /// Adds a pod that names a claim.
    pub(in crate::engine::model) fn join(&mut self, key: &Name, pod: PodId) {
        let id = self.claim_for(key);
        let users = &mut self.claims.all[id].users;
        if let Err(at) = users.binary_search(&pod) {
            users.insert(at, pod);
        }
    }

    /// Removes a pod that named a claim.
    pub(in crate::engine::model) fn leave(&mut self, key: &Name, pod: PodId) {
        if let Some(id) = self.claims.find(key) {
            self.claims.all[id].users.retain(|user| *user != pod);
            self.left_claims.push(id);
        }
    }

    /// Sets the input of a claim. Its pods must not be accounted meanwhile.
    pub(in crate::engine::model) fn set_claim(&mut self, key: &Name, input: Option<Box<ClaimInput>>) -> ClaimId {
        let id = self.claim_for(key);
        self.uncount(id);
        let given = input.as_ref().and_then(|input| input.allocation.as_deref());
        let shown = given.map(|given| self.allocation(id, given));
        let claim = &mut self.claims.all[id];
        (claim.shown, claim.input) = (shown.clone(), input);
        if let Some(shown) = &shown {
            self.grant(id, shown);
        }
        self.drop_grants(id);
        self.recount(id);
        self.left_claims.push(id);
        id
    }

    /// An allocation of a claim; reuses an equal one.
    pub(crate) fn allocation(&mut self, id: ClaimId, given: &AllocationInput) -> Arc<Allocation> {
        let known = self.claims[id].grants.iter().map(|grant| &grant.allocation);
        if let Some(known) = known.into_iter().find(|known| known.given == *given) {
            return known.clone();
        }
        Arc::new(self.resolve(given.clone()))
    }

    /// Sets whether a pod that the claim is reserved for is still pending.
    pub(in crate::engine::model) fn set_awaited(&mut self, id: ClaimId, awaited: bool) {
        if self.claims[id].awaited != awaited {
            self.claims.all[id].awaited = awaited;
            self.recount(id);
        }
    }

    fn grant(&mut self, id: ClaimId, allocation: &Arc<Allocation>) -> usize {
        let grants = &self.claims[id].grants;
        let found = grants.iter().position(|grant| grant.allocation == *allocation);
        found.unwrap_or_else(|| {
            self.name(id, allocation, 1);
            let grants = &mut self.claims.all[id].grants;
            grants.push(Grant {
                allocation: allocation.clone(),
                staying: 0,
                leaving: 0,
                planned: 0,
                counts: [false; 2],
            });
            grants.len() - 1
        })
    }

    /// A pod begins (`sign` 1) or stops (-1) using an allocation.
    pub(in crate::engine::model) fn account(
        &mut self,
        id: ClaimId,
        allocation: &Arc<Allocation>,
        weight: Weight,
        sign: i64,
    ) {
        let at = self.grant(id, allocation);
        let grant = &mut self.claims.all[id].grants[at];
        let tally = match weight {
            Weight::Staying => &mut grant.staying,
            Weight::Leaving => &mut grant.leaving,
            Weight::Planned => &mut grant.planned,
        };
        *tally = tally.wrapping_add_signed(sign as i32);
        self.recount(id);
        self.drop_grants(id);
    }

    /// Stops counting the claim's devices.
    pub(in crate::engine::model) fn uncount(&mut self, id: ClaimId) {
        self.count(id, |_, _| [false; 2]);
    }

    /// Counts the claim's devices again.
    pub(in crate::engine::model) fn recount(&mut self, id: ClaimId) {
        self.count(id, Claim::wanted);
    }

    fn count(&mut self, id: ClaimId, wanted: impl Fn(&Claim, &Grant) -> Both<bool>) {
        for at in 0..self.claims[id].grants.len() {
            let claim = &self.claims[id];
            let grant = &claim.grants[at];
            let (old, new) = (grant.counts, wanted(claim, grant));
            if old != new {
                let step = |at: usize| i64::from(new[at]) - i64::from(old[at]);
                let allocation = grant.allocation.clone();
                self.claims.all[id].grants[at].counts = new;
                self.take(&allocation, [step(NOW), step(LATER)]);
            }
        }
    }

    /// Removes allocations that no pod uses and the API server does not show.
    fn drop_grants(&mut self, id: ClaimId) {
        let mut at = 0;
        while let Some(grant) = self.claims[id].grants.get(at) {
            let used = grant.staying + grant.leaving + grant.planned > 0;
            if used || self.claims[id].shown.as_ref() == Some(&grant.allocation) {
                at += 1;
                continue;
            }
            let counted = grant.counts;
            debug_assert_eq!(counted, [false; 2], "what is not used takes nothing");
            let gone = self.claims.all[id].grants.remove(at);
            self.name(id, &gone.allocation, -1);
        }
    }
}
