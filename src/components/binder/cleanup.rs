//! Cleanup of the binder: reservation pods are created and deleted, bind requests are completed. Each cleanup returns how it
//! ended; what failed is repeated when the manager of GPU groups or the review of requests asks for it again.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tracing::{debug, error, info};

use super::groups::{Command, DueCommand, GroupId, NoDevice};
use super::multi_step::{drop_request, only};
use super::requests::{Caller, RequestError};
use super::reserve::{Request, Reserver};
use super::{fraction, notes, reservation};
use crate::api::BindRequest;
use crate::api::names::{bind_phase, condition, reason};
use crate::clock;
use crate::components::bus::{OrderedBind, PodRef};
use crate::components::fractions::users::{self, Users};
use crate::components::pods;
use crate::components::watches::Key;
use crate::mirror::bind_request::{failed, made_for, node};

/// How a cleanup ended. Commands of the manager of GPU groups have their group and number.
pub enum Cleanup {
    /// Result of creating a reservation pod; the request, if it may still take effect or watches do not show its effect yet.
    Made(GroupId, u64, Result<Box<Pod>, NoDevice>, Option<Request>),
    /// A request for a reservation pod has no effect any more that watches do not show.
    Settled,
    /// Result of recording users on a reservation pod.
    Recorded(GroupId, u64, Result<Box<Pod>, String>),
    /// Reservation pods were deleted, or users evicted, if the checks allowed it; the evicted pods.
    GivenUp(GroupId, u64, Vec<PodRef>),
    /// A bind request was handled.
    RequestDone(Key),
    /// A claim of pods without a node was given back, or is looked at again.
    ClaimDone(Key),
}

/// Runs a command of the manager of GPU groups, with the caller of `reserver`.
pub async fn carry_out(reserver: Reserver, due: DueCommand) -> Cleanup {
    let (caller, number) = (&reserver.caller, due.number);
    match due.command {
        Command::Make { id, tolerations, users } => {
            let (made, request) = reserver.reserve(&id, tolerations, &users).await;
            Cleanup::Made(id, number, made.map(Box::new), request)
        }
        Command::Record { id, pod, add, gone } => {
            let recorded = record(caller, pod, &add, &gone).await;
            Cleanup::Recorded(id, number, recorded.map(Box::new))
        }
        Command::Remove { id, pods, unless_used } => {
            if unless_used && is_used(caller, &id, &pods).await {
                debug!(node = %id.node, group = %id.group, "group is in use");
                return Cleanup::GivenUp(id, number, Vec::new());
            }
            for (name, uid) in pods {
                let api: Api<Pod> = Api::namespaced(caller.context.writes.clone(), reservations_in(caller));
                let params = only(Some(uid));
                match caller
                    .delete("delete a reservation pod", || api.delete(&name, &params))
                    .await
                {
                    Ok(()) => info!(name, node = %id.node, group = %id.group, "GPU given back"),
                    Err(error) => info!(name, error = error.why, "reservation pod not deleted"),
                }
            }
            Cleanup::GivenUp(id, number, Vec::new())
        }
        Command::Evict { id, users } => {
            let evicted = if matches!(members(caller, &id, Member::Reservation).await, Ok(found) if found.is_empty()) {
                evict(caller, &id, users).await
            } else {
                Vec::new()
            };
            Cleanup::GivenUp(id, number, evicted)
        }
    }
}

/// The namespace of reservation pods.
fn reservations_in(caller: &Caller) -> &str {
    &caller.context.settings.own_pods.reservation.namespace
}

/// Records the users of a group on its reservation pod.
async fn record(caller: &Caller, pod: (String, String), add: &Users, gone: &[String]) -> Result<Pod, String> {
    let (name, uid) = pod;
    let added = add.iter().map(|(uid, user)| users::annotation(uid, user));
    let mut annotations: BTreeMap<String, Option<String>> = added.map(|(key, value)| (key, Some(value))).collect();
    annotations.extend(gone.iter().map(|uid| (users::key(uid), None)));
    let api: Api<Pod> = Api::namespaced(caller.context.writes.clone(), reservations_in(caller));
    let patch = Patch::Merge(json!({"metadata": {"uid": uid, "annotations": annotations}}));
    let params = PatchParams::default();
    let patched = caller
        .call("write down the users of a GPU", || api.patch(&name, &params, &patch))
        .await;
    patched.map_err(|error| {
        format!(
            "the users of GPU reservation pod {}/{name} cannot be written down: {}",
            reservations_in(caller),
            error.why
        )
    })
}

/// Whether a container may still use the device of these reservation pods: a user that they name is on the node, whatever its labels, or the list
/// failed. For a reservation pod without recorded users (of an older release), pods with the group's label count.
async fn is_used(caller: &Caller, id: &GroupId, reservations: &[(String, String)]) -> bool {
    let reads: Api<Pod> = Api::namespaced(caller.context.reads.clone(), reservations_in(caller));
    let mut named = Users::new();
    for (name, _) in reservations {
        match caller.call("look at a reservation pod", || reads.get_opt(name)).await {
            Ok(found) => named.extend(found.iter().flat_map(users::of)),
            Err(_) => return true,
        }
    }
    if named.is_empty() {
        return !matches!(members(caller, id, Member::User).await, Ok(users) if users.is_empty());
    }
    for (uid, user) in named {
        let api: Api<Pod> = Api::namespaced(caller.context.reads.clone(), &user.namespace);
        let found = caller.call("look at a user of a GPU", || api.get_opt(&user.name)).await;
        let uses = |pod: &Pod| {
            let on_node = pods::node(pod) == Some(&*id.node);
            pod.metadata.uid.as_ref() == Some(&uid) && on_node && !pods::is_finished(pod)
        };
        if !matches!(found, Ok(found) if !found.as_ref().is_some_and(uses)) {
            return true;
        }
    }
    false
}

/// Page size of lists; few nodes have more pods.
const PAGE: u32 = 250;

/// Which pods of a group to list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    User,
    Reservation,
}

/// Lists the pods of a group in the API server, by node name, which API servers index.
async fn members(caller: &Caller, id: &GroupId, wanted: Member) -> Result<Vec<Pod>, RequestError> {
    let client: Client = caller.context.reads.clone();
    let api: Api<Pod> = match wanted {
        Member::User => Api::all(client),
        Member::Reservation => Api::namespaced(client, reservations_in(caller)),
    };
    let on_node = format!("spec.nodeName={}", id.node);
    let mut params = ListParams::default().fields(&on_node).limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = caller.call("list the pods of a node", || api.list(&params)).await?;
        found.extend(page.items);
        params.continue_token = page.metadata.continue_.filter(|next| !next.is_empty());
        if params.continue_token.is_none() {
            break;
        }
    }
    found.retain(|pod| {
        let is_reservation_pod = reservation::is_reservation_pod(pod, &caller.context.settings.own_pods);
        let right = match wanted {
            Member::User => !is_reservation_pod && pods::is_ours(pod, &caller.context.settings),
            Member::Reservation => is_reservation_pod,
        };
        right && !pods::is_finished(pod) && fraction::group_labels(pod).any(|(_, group)| **group == *id.group)
    });
    Ok(found)
}

/// Evicts pods whose device is no longer reserved.
async fn evict(caller: &Caller, id: &GroupId, users: Vec<PodRef>) -> Vec<PodRef> {
    error!(node = %id.node, group = %id.group, users = users.len(), "shared GPU has lost its reservation pod; its users are evicted");
    let mut evicted = Vec::new();
    for user in users {
        let api: Api<Pod> = Api::namespaced(caller.context.writes.clone(), &user.namespace);
        let mut params = only(Some(user.uid.to_string()));
        params.grace_period_seconds = None;
        match caller.delete("evict a pod", || api.delete(&user.name, &params)).await {
            Ok(()) => evicted.push(user),
            Err(error) => info!(ns = %user.namespace, name = %user.name, error = error.why, "pod not evicted"),
        }
    }
    evicted
}

/// Deletes a bind request that is done. If its pod is missing, the pod is read first: the watch of pods may be behind.
pub async fn drop_done(caller: Caller, key: Key, request: Arc<BindRequest>, pod: Option<Arc<Pod>>) -> Cleanup {
    let ns = request.metadata.namespace.as_deref().unwrap_or_default();
    let name = request.spec.pod_name.clone().unwrap_or_default();
    let is_its = |pod: &Pod| made_for(&request, pod.metadata.uid.as_deref());
    if let (Some(pod), Some(node)) = (pod.as_deref().filter(|pod| is_its(pod)), node(&request))
        && pods::node(pod) == Some(node)
    {
        // The process that bound it after a failure may have ended before it said so.
        correct(&caller, node, Some(pod)).await;
    }
    if pod.is_none() {
        let api: Api<Pod> = Api::namespaced(caller.context.reads.clone(), ns);
        let found = caller.call("look for a pod", || api.get_opt(&name)).await;
        if !matches!(found, Ok(found) if !found.as_ref().is_some_and(is_its)) {
            return Cleanup::RequestDone(key);
        }
    }
    if let Err(error) = drop_request(&caller, &request).await {
        info!(ns, name, error = error.why, "bind request not deleted");
    }
    Cleanup::RequestDone(key)
}

/// Marks a bind request that is kept as succeeded; and sets the pod's condition, if `always_bind_requests` is set.
pub async fn succeed(caller: Caller, key: Key, request: Arc<BindRequest>, pod: Option<Arc<Pod>>) -> Cleanup {
    let node = node(&request).unwrap_or_default();
    let on_node = |pod: &Pod| pods::node(pod) == Some(node);
    if caller.context.settings.sharing.always_bind_requests
        && let Some(pod) = pod.filter(|pod| on_node(pod))
    {
        condition(&caller, &pods::pod_ref(&pod), Some(&pod), Verdict::Bound(node)).await;
    }
    let status = json!({"phase": bind_phase::SUCCEEDED, "reason": null});
    patch_status(&caller, &request, status).await;
    Cleanup::RequestDone(key)
}

/// Records a failed attempt on a bind request that we did not create. Returns whether another attempt follows.
pub async fn fail(caller: &Caller, request: &BindRequest, why: &str) -> bool {
    let attempts = attempts(request).saturating_add(1);
    let status = json!({"phase": bind_phase::FAILED, "reason": why, "failedAttempts": attempts});
    patch_status(caller, request, status).await;
    let mut after = request.clone();
    let status = after.status.get_or_insert_default();
    status.phase = Some(bind_phase::FAILED.to_owned());
    status.failed_attempts = Some(attempts);
    !failed(&after)
}

/// Number of failed attempts of a request.
#[must_use]
pub fn attempts(request: &BindRequest) -> i32 {
    let status = request.status.as_ref();
    status.and_then(|status| status.failed_attempts).unwrap_or_default()
}

async fn patch_status(caller: &Caller, request: &BindRequest, status: Value) {
    let ns = request.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<BindRequest> = Api::namespaced(caller.context.writes.clone(), ns);
    let patch = Patch::Merge(json!({"metadata": {"uid": request.uid()}, "status": status}));
    let (name, params) = (request.name_any(), PatchParams::default());
    let patched = caller
        .call("report on a bind request", || api.patch_status(&name, &params, &patch))
        .await;
    if let Err(error) = patched {
        info!(ns, name, error = error.why, "bind request status not written");
    }
}

/// Sets the pod's condition after a success that follows a failure. Not after a first success; and if `always_bind_requests` is set, every pod gets the
/// condition in the end.
pub async fn correct(caller: &Caller, node: &str, pod: Option<&Pod>) {
    let told_anyway = caller.context.settings.sharing.always_bind_requests;
    if let Some(pod) = pod.filter(|pod| !told_anyway && known(pod).is_some()) {
        condition(caller, &pods::pod_ref(pod), Some(pod), Verdict::Bound(node)).await;
    }
}

/// Sets the pod's condition after a failure.
pub async fn blame(caller: &Caller, bind: &OrderedBind, pod: Option<&Pod>, why: &str) {
    let verdict = Verdict::Failed(&bind.placement.node, why);
    condition(caller, &bind.placement.pod, pod, verdict).await;
}

/// The state of a pod's `PodBound` condition.
enum Verdict<'a> {
    /// Bound to the node.
    Bound(&'a str),
    /// Not bound to the node, and why.
    Failed(&'a str, &'a str),
}

/// The pod's current condition.
fn known(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == condition::POD_BOUND)
}

/// Writes the pod's condition if it differs.
async fn condition(caller: &Caller, reference: &PodRef, pod: Option<&Pod>, verdict: Verdict<'_>) {
    let (status, reason, message) = match verdict {
        Verdict::Bound(node) => ("True", reason::BOUND, notes::bound_to(node)),
        Verdict::Failed(node, why) => (
            "False",
            reason::BINDING_ERROR,
            notes::not_bound_to(node, reference, why),
        ),
    };
    let says_so = |known: &PodCondition| known.status == status && known.message.as_deref() == Some(&message);
    if pod.and_then(known).is_some_and(says_so) {
        return;
    }
    let api: Api<Pod> = Api::namespaced(caller.context.writes.clone(), &reference.namespace);
    let patch = Patch::Strategic(json!({"metadata": {"uid": &*reference.uid}, "status": {"conditions": [{
        "type": condition::POD_BOUND, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": Time(clock::now()),
    }]}}));
    let params = PatchParams::default();
    let patched = caller
        .call("write a condition", || {
            api.patch_status(&reference.name, &params, &patch)
        })
        .await;
    if let Err(error) = patched {
        debug!(error = error.why, "condition not written");
    }
}
