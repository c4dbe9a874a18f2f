//! Whether a pod's volumes fit a node, with kube-scheduler's semantics, and what its unbound claims would get there.
//!
//! Beyond kube-scheduler: volumes and capacity promised to one pod are not available to the next, and those of releasing pods are available later.

use std::collections::BTreeSet;
use std::fmt;

use crate::engine::input::{Claim, ClaimState, Name, PodVolumes, Provisioning, Waiting};
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::selectors::meets_any;
use crate::engine::model::volumes::{Promise, Promises, Unreachable, unreachable};

/// Why a node does not fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeConflict {
    /// A bound volume cannot be used there.
    Unreachable(Unreachable),
    /// No volume is available, and none can be provisioned.
    NoVolume,
    /// A volume could be provisioned if there were more capacity.
    NoRoom,
    /// The same, for a storage class whose capacity is tracked; the class.
    NoRoomOf(String),
    /// No storage capacity of a class is reported; the class.
    NoSourceOf(String),
    /// The attach limit is reached.
    TooMany,
    /// A `ReadWriteOncePod` claim is in use.
    InUse,
    /// A disk of the pod spec is in use there.
    DiskInUse,
}

/// The messages of kube-scheduler, or KAI.
impl fmt::Display for VolumeConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable(Unreachable::Affinity) => "node(s) didn't match PersistentVolume's node affinity",
            Self::Unreachable(Unreachable::Zone) => "node(s) had no available volume zone",
            Self::Unreachable(Unreachable::Lost) => {
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
            }
            Self::Unreachable(Unreachable::Elsewhere) | Self::NoVolume => {
                "node(s) didn't find available persistent volumes to bind"
            }
            Self::NoRoom => "node(s) did not have enough free storage",
            Self::NoRoomOf(class) => {
                return write!(f, "node(s) did not have enough free storage for storageclass {class}");
            }
            Self::NoSourceOf(class) => return write!(f, "no allocatable storage from storageclass {class} found"),
            Self::TooMany => "node(s) exceed max volume count",
            Self::DiskInUse => "node(s) had no available disk",
            Self::InUse => {
                "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
            }
        })
    }
}

/// Whether volumes of other pods matter for this one, so that results for it cannot be cached.
#[must_use]
pub fn concerned(model: &Model, pod: PodId) -> bool {
    let matters = |claim: &Claim| claim.exclusive || waits(claim) || limited(model, claim).is_some();
    let volumes = model.pods()[pod].input.volumes.as_ref();
    volumes.is_some_and(|volumes| !volumes.disks.is_empty() || volumes.claims.iter().any(matters))
}

/// The driver of a claim's volume and the volume, if some node limits how many of the driver's volumes are attached to it.
fn limited<'c>(model: &Model, claim: &'c Claim) -> Option<&'c (Name, Name)> {
    let attach = claim.attach.as_ref();
    attach.filter(|(driver, _)| model.storage().limited.contains(driver))
}

fn waits(claim: &Claim) -> bool {
    matches!(*claim.state, ClaimState::Waiting(_))
}

/// Whether some of these pods use the same volume, and it matters: it is not bound yet, or counts to an attach limit. Such pods fit other nodes than pods with
/// a volume each.
#[must_use]
pub fn share(model: &Model, pods: &[PodId]) -> bool {
    let volumes = pods.iter().filter_map(|pod| model.pods()[*pod].input.volumes.as_ref());
    let mut known = BTreeSet::new();
    volumes.flat_map(|volumes| &volumes.claims).any(|claim| {
        let by_claim = (None, &claim.key);
        let by_volume = limited(model, claim).map(|(driver, volume)| (Some(driver), volume));
        let mut again = |volume| !known.insert(volume);
        (waits(claim) && again(by_claim)) || by_volume.is_some_and(again)
    })
}

/// What matters of a pod's volumes besides their nodes: the drivers with attach limits, in order, of volumes that no pod uses. `None` if it is which volumes they
/// are: disks, attached volumes, and unbound claims that other pods share or that a volume is meant for.
#[must_use]
pub fn kinds(model: &Model, pod: PodId) -> Option<Vec<Name>> {
    let storage = model.storage();
    let mut drivers = Vec::new();
    let Some(volumes) = &model.pods()[pod].input.volumes else {
        return Some(drivers);
    };
    if !volumes.disks.is_empty() {
        return None;
    }
    for claim in &volumes.claims {
        let limited = limited(model, claim);
        let is_used = || storage.claim(&claim.key).is_some();
        let is_meant = || storage.meant_for(&claim.key).next().is_some();
        let is_attached = |volume: &(Name, Name)| is_used() || storage.is_shown(volume);
        if limited.is_some_and(is_attached) || (waits(claim) && (is_used() || is_meant())) {
            return None;
        }
        drivers.extend(limited.map(|(driver, _)| driver.clone()));
    }
    drivers.sort_unstable();
    Some(drivers)
}

/// What a pod's unbound claims would get on a node now, or (`now` false) once releasing pods have gone. `booked`: storage capacity is tracked, so that of
/// releasing pods becomes free.
///
/// # Errors
/// Why the node does not fit.
pub fn fit(model: &Model, pod: PodId, id: NodeId, now: bool, booked: bool) -> Result<Promises, VolumeConflict> {
    let Some(volumes) = &model.pods()[pod].input.volumes else {
        return Ok(None);
    };
    for claim in &volumes.claims {
        if let Some(why) = unreachable(&claim.state, &model.nodes()[id]) {
            return Err(VolumeConflict::Unreachable(why));
        }
    }
    let in_use = |claim: &Claim| model.storage().claim(&claim.key).is_some_and(|used| used.pods.any(now));
    if volumes.claims.iter().any(|claim| claim.exclusive && in_use(claim)) {
        return Err(VolumeConflict::InUse);
    }
    if volumes
        .disks
        .iter()
        .any(|disk| model.storage().disk_taken(id, disk, now))
    {
        return Err(VolumeConflict::DiskInUse);
    }
    if too_many(model, volumes, id, now) {
        return Err(VolumeConflict::TooMany);
    }
    let evicted = model.pods()[pod].state.evicted_from.is_some();
    if booked && evicted && !made_again(model, volumes, id) {
        return Err(VolumeConflict::NoRoom);
    }
    promises(model, volumes, id, !now && booked, booked)
}

/// Whether there is capacity to provision again the volumes that are deleted with an evicted pod, including the capacity that this frees.
fn made_again(model: &Model, volumes: &PodVolumes, id: NodeId) -> bool {
    let mut beside = 0_i128;
    let claims = volumes.claims.iter();
    claims
        .filter(|claim| claim.owned && matches!(*claim.state, ClaimState::Bound(_)))
        .all(|claim| {
            let room = model.storage().room(&claim.class, id, claim.size, beside, true);
            beside += i128::from(claim.size);
            room != Some(false)
        })
}

/// Whether the attach limit of some driver would be exceeded.
fn too_many(model: &Model, volumes: &PodVolumes, id: NodeId, now: bool) -> bool {
    let Some(input) = &model.nodes()[id].input else {
        return true;
    };
    input.attach_limits.iter().any(|(driver, most)| {
        let mut new: Vec<_> = volumes
            .claims
            .iter()
            .filter_map(|claim| claim.attach.as_ref())
            .filter(|(other, _)| other == driver)
            .map(|(_, volume)| volume)
            .collect();
        if new.is_empty() {
            return false;
        }
        new.sort_unstable();
        new.dedup();
        let mut there = 0;
        let used = model.storage().attached(id, driver, now);
        for volume in used.chain(model.storage().lingering(id, &model.nodes()[id].name, driver)) {
            there += 1;
            new.retain(|other| *other != volume);
        }
        !new.is_empty() && there + new.len() as i64 > *most
    })
}

/// Volumes for unbound claims, the smallest claim first.
fn promises(
    model: &Model,
    volumes: &PodVolumes,
    id: NodeId,
    with_freed: bool,
    booked: bool,
) -> Result<Promises, VolumeConflict> {
    let mut waiting: Vec<(&Claim, &Waiting)> = volumes
        .claims
        .iter()
        .filter_map(|claim| match &*claim.state {
            ClaimState::Waiting(asked) => Some((claim, asked)),
            ClaimState::Bound(_) | ClaimState::Lost => None,
        })
        .collect();
    if waiting.is_empty() {
        return Ok(None);
    }
    waiting.sort_by_key(|(claim, _)| (claim.size, &claim.key));
    let mut found: Vec<Promise> = Vec::with_capacity(waiting.len());
    let mut drawn: Vec<(&Waiting, i64)> = Vec::new();
    for (claim, asked) in waiting {
        let promised = model
            .storage()
            .claim(&claim.key)
            .and_then(|used| used.promised.as_ref());
        let volume = match promised {
            // Promised along with another pod.
            Some(promised) => {
                let reached = match &promised.volume {
                    Some(volume) => promised.node == id || model.storage().reaches(volume, id),
                    None => promised.node == id,
                };
                if !reached {
                    return Err(VolumeConflict::NoVolume);
                }
                promised.volume.clone()
            }
            None => {
                let existing = match asked.node {
                    Some(_) => None,
                    None => model.storage().find(&claim.key, asked, id, &found),
                };
                if existing.is_none() {
                    let provisioning = asked.provisioning.as_ref().ok_or(VolumeConflict::NoVolume)?;
                    let others = drawn.iter().filter(|(other, _)| other.class == asked.class);
                    let beside = others.map(|(_, size)| i128::from(*size)).sum();
                    make(model, asked, provisioning, id, beside, with_freed, booked)?;
                    drawn.push((asked, asked.size));
                }
                existing
            }
        };
        found.push(Promise {
            claim: claim.key.clone(),
            volume,
        });
    }
    Ok(Some(found.into()))
}

/// Whether a volume could be provisioned for a node.
fn make(
    model: &Model,
    asked: &Waiting,
    provisioning: &Provisioning,
    id: NodeId,
    beside: i128,
    with_freed: bool,
    booked: bool,
) -> Result<(), VolumeConflict> {
    if !provisioning.nodes.is_empty() && !meets_any(&provisioning.nodes, &model.nodes()[id]) {
        return Err(VolumeConflict::NoVolume);
    }
    if !provisioning.tracked {
        return Ok(());
    }
    match model.storage().room(&asked.class, id, asked.size, beside, with_freed) {
        Some(true) => Ok(()),
        Some(false) if booked => Err(VolumeConflict::NoRoomOf(asked.class.to_string())),
        None if booked => Err(VolumeConflict::NoSourceOf(asked.class.to_string())),
        Some(false) | None => Err(VolumeConflict::NoRoom),
    }
}

#[cfg(test)]
pub(super) mod tests;
