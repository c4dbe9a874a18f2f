//! Events about devices and the claims for them, and what pods on nodes use of these.

use std::sync::Arc;

use crate::engine::input::Name;
use crate::engine::input::devices::{AllocationInput, ClaimInput, PodClaims};

use super::super::Model;
use super::super::devices::claims::{Grants, Used};
use super::super::ids::{ClaimId, PodId};

impl Model {
    /// Makes the next cycle decide again, because devices were allocated, freed, added or removed.
    pub(super) fn devices_changed(&mut self) {
        self.take_charges();
        self.mark_changed(true);
    }

    /// Updates or removes a claim. Pods on nodes use the allocation that the API server shows; where it shows none, the one that they had.
    pub(super) fn claim_changed(&mut self, key: &Name, input: Option<Box<ClaimInput>>) {
        let known = self.devices.claims.find(key);
        if known.is_some_and(|id| self.devices.claims[id].input == input) || (known.is_none() && input.is_none()) {
            return;
        }
        let users = known.map_or_else(Vec::new, |id| self.devices.claims[id].users.clone());
        let placed = |model: &Self, pod: PodId| model.pods[pod].state.hold.is_some();
        let users: Vec<PodId> = users.into_iter().filter(|pod| placed(self, *pod)).collect();
        for &pod in &users {
            self.account(pod, -1);
        }
        let id = self.devices.set_claim(key, input);
        for &pod in &users {
            let mut hold = self.pods[pod].state.hold.take().expect("only those with a place");
            let claims = self.pods[pod].input.claims.clone();
            let held = hold.extras().devices.clone();
            let devices = claims.and_then(|claims| self.grants_of(&claims, held));
            hold.change(|extras| extras.devices = devices);
            self.pods[pod].state.hold = Some(hold);
            self.account(pod, 1);
            if let Some(pod_group) = self.pods[pod].pod_group {
                self.pod_group_changed(pod_group);
            }
        }
        self.look_for_waiting(id);
        self.devices_changed();
    }

    /// A pod names claims.
    pub(super) fn join_claims(&mut self, pod: PodId, claims: &PodClaims) {
        for key in keys(claims) {
            self.devices.join(key, pod);
            if let Some(id) = self.devices.claims.find(key) {
                self.look_for_waiting(id);
            }
        }
        self.take_charges();
    }

    /// A pod that named claims is gone.
    pub(super) fn leave_claims(&mut self, pod: PodId, claims: &PodClaims) {
        for key in keys(claims) {
            self.devices.leave(key, pod);
            if let Some(id) = self.devices.claims.find(key) {
                self.look_for_waiting(id);
            }
        }
        self.take_charges();
    }

    /// Whether a pod that a claim is reserved for is still alive, or another pod uses it.
    fn look_for_waiting(&mut self, id: ClaimId) {
        let claim = &self.devices.claims[id];
        let Some(input) = &claim.input else {
            return self.devices.set_awaited(id, false);
        };
        let alive = |uid: &Name| self.pods.id(uid).is_some_and(|pod| self.pods[pod].state.status.alive());
        let awaited = input.foreign || (claim.shown.is_some() && input.reserved.iter().any(alive));
        self.devices.set_awaited(id, awaited);
    }

    /// What a pod on a node uses: what the API server shows of each claim, else what it `held`, else what a bind under way promises.
    pub(super) fn grants_of(&mut self, claims: &PodClaims, held: Option<Arc<Grants>>) -> Option<Arc<Grants>> {
        let mut grants = Grants::new();
        let named = claims.named.iter().enumerate();
        let named =
            named.filter_map(|(at, named)| Some((Some(at as u32), named.claim.as_ref()?, named.promised.as_ref())));
        let extended = claims.extended.iter();
        let extended = extended.map(|extended| (None, &extended.key, extended.promised.as_ref()));
        for (reference, key, promised) in named.chain(extended) {
            let claim = self.devices.claims.find(key);
            let shown = claim.and_then(|id| self.devices.claims[id].shown.clone().map(|shown| (id, shown)));
            let used = shown.or_else(|| {
                let had = held.iter().flat_map(|held| &**held);
                let had = had.into_iter().find(|had| had.reference == reference);
                let had = had.map(|had| had.allocation.given.clone());
                let given = had.or_else(|| promised.map(|promised| AllocationInput::clone(promised)))?;
                let id = self.devices.claim_for(key);
                Some((id, self.devices.allocation(id, &given)))
            });
            grants.extend(used.map(|(claim, allocation)| Used {
                reference,
                claim,
                allocation,
            }));
        }
        (!grants.is_empty()).then(|| Arc::new(grants))
    }
}

fn keys(claims: &PodClaims) -> impl Iterator<Item = &Name> {
    let named = claims.named.iter().filter_map(|named| named.claim.as_ref());
    named.chain(claims.extended.iter().map(|extended| &extended.key))
}
