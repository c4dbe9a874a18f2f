//! The NUMA zones of nodes: what pods use of them, and reports on what is free.

use crate::engine::input::{NodeInput, PodInput};
use crate::engine::model::Model;
use crate::engine::model::epochs::Change;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::numa::{Ledger, ZoneShare};
use crate::engine::model::pod::Place;

impl Model {
    /// The NUMA zones of a node that a pod there uses; none where the kubelet does not align it, even with a record. `None`: the record does not name known
    /// zones.
    pub(super) fn zones_of(&self, node: NodeId, input: &PodInput) -> Option<Vec<ZoneShare>> {
        let aligned = match (&self.nodes[node].numa, &input.numa) {
            (Some(ledger), Some(numa)) if ledger.aligns(numa) => Some((ledger, numa)),
            _ => None,
        };
        let Some((ledger, numa)) = aligned else {
            return Some(Vec::new());
        };
        Some(ledger.recorded(&numa.record)).filter(|zones| !zones.is_empty())
    }

    /// The zones that a node is to have, without pods.
    pub(super) fn ledger_of(&mut self, input: &NodeInput) -> Option<Ledger> {
        let numa = input.numa.as_ref()?;
        self.zone_reports += 1;
        Some(Ledger::of(numa, self.zone_reports))
    }

    /// Whether an event about a node only reports what is free in its zones.
    pub(super) fn is_zone_report(&self, id: NodeId, input: &NodeInput) -> bool {
        let Some(before) = &self.nodes[id].input else {
            return false;
        };
        let (Some(old), Some(new)) = (&before.numa, &input.numa) else {
            return false;
        };
        let same_zones = (old.policy, old.pod_scope, &old.zones) == (new.policy, new.pod_scope, &new.zones);
        let old = NodeInput {
            numa: input.numa.clone(),
            ..NodeInput::clone(before)
        };
        same_zones && old == *input
    }

    /// Takes over what is reported as free. Nothing else that depends on the node changes.
    pub(super) fn zones_reported(&mut self, id: NodeId, input: Box<NodeInput>) {
        let mut zones = self.ledger_of(&input);
        if let Some(ledger) = &mut zones {
            debug_assert!(self.nodes[id].coming.is_empty(), "plans end with the cycle");
            for state in self.nodes[id].pods.iter().map(|pod| &self.pods[*pod].state) {
                if let Some(extras) = state.hold.as_ref().map(Place::extras) {
                    ledger.account(&extras.zones, extras.after_report, state.weight(), 1);
                }
            }
        }
        let node = &mut self.nodes[id];
        (node.numa, node.input) = (zones, Some(input));
        self.touched.add(id.at());
        self.epochs.node_used(id);
        self.epochs.bump(Change::CapacityFreed);
        self.mark_changed(true);
    }

    /// The last report on the zones of a node, for a pod that is placed there; 0 if it uses none of them.
    #[must_use]
    pub fn zone_report(&self, node: NodeId, zones: &[ZoneShare]) -> u64 {
        let ledger = self.nodes[node].numa.as_ref().filter(|_| !zones.is_empty());
        ledger.map_or(0, |ledger| ledger.report)
    }

    /// The place of a pod on a node if the last report on the node's zones includes the pod, and whether the pod is leaving it.
    pub(super) fn in_zone_report(&self, id: PodId) -> Option<(Place, bool)> {
        let state = &self.pods[id].state;
        let place = state.hold.as_ref()?;
        let (ledger, extras) = (self.nodes[place.node].numa.as_ref()?, place.extras());
        let included = ledger.report != 0 && extras.after_report != ledger.report && !extras.zones.is_empty();
        included.then(|| (place.clone(), state.leaving))
    }

    /// A pod has left a place that the last report includes.
    pub(super) fn left_zones(&mut self, place: &Place, leaving: bool) {
        if let Some(ledger) = &mut self.nodes[place.node].numa {
            ledger.gone(&place.extras().zones, leaving);
        }
    }
}
