//! What the binder does beside binding: reservation pods are made and taken away, bind requests are ended. Each chore says how it
//! ended; what failed is done again when the keeper or the review of requests asks for it again.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tracing::{debug, error, info};

use super::course::{drop_request, only};
use super::groups::{Command, GroupId};
use super::requests::{Caller, Trouble};
use super::{fraction, notes, reservation};
use crate::api::BindRequest;
use crate::api::names::{bind_phase, condition, label, object, reason};
use crate::components::bus::{Bind, PodRef};
use crate::components::pods;
use crate::components::retry::Failure;
use crate::components::watches::Key;
use crate::mirror::bind_request::{failed, made_for, node};

/// How a chore ended.
pub enum Chore {
    /// A reservation pod was made, or not.
    Made(GroupId, Result<Box<Pod>, String>),
    /// Reservation pods were taken away, or users evicted, as far as was right; the pods evicted.
    GivenUp(GroupId, Vec<PodRef>),
    /// A bind request was seen to.
    Tended(Key),
}

/// Carries out what the keeper of groups asks for.
pub async fn carry_out(caller: Caller, command: Command) -> Chore {
    match command {
        Command::Make { id, tolerations } => {
            let made = make(&caller, &id, tolerations).await;
            Chore::Made(id, made.map(Box::new))
        }
        Command::Remove { id, pods, unless_used } => {
            if unless_used && !matches!(members(&caller, &id, Member::User).await, Ok(users) if users.is_empty()) {
                debug!(node = %id.node, group = %id.group, "group is in use");
                return Chore::GivenUp(id, Vec::new());
            }
            for (name, uid) in pods {
                let api: Api<Pod> = Api::namespaced(caller.context.writes.clone(), object::RESERVATION_NAMESPACE);
                let params = only(Some(uid));
                match caller
                    .delete("delete a reservation pod", || api.delete(&name, &params))
                    .await
                {
                    Ok(()) => info!(name, node = %id.node, group = %id.group, "GPU given back"),
                    Err(trouble) => info!(name, error = trouble.why, "reservation pod not deleted"),
                }
            }
            Chore::GivenUp(id, Vec::new())
        }
        Command::Evict { id, users } => {
            let evicted = if matches!(members(&caller, &id, Member::Reservation).await, Ok(found) if found.is_empty()) {
                evict(&caller, &id, users).await
            } else {
                Vec::new()
            };
            Chore::GivenUp(id, evicted)
        }
    }
}

/// Makes the reservation pod of a group. One of the name that is there already is as good: the name says node and group.
async fn make(caller: &Caller, id: &GroupId, tolerations: Vec<Toleration>) -> Result<Pod, String> {
    let pod = reservation::pod(&id.node, &id.group, tolerations, &caller.context.settings.sharing);
    let name = pod.name_any();
    let (reads, writes): (Api<Pod>, Api<Pod>) = (
        Api::namespaced(caller.context.reads.clone(), object::RESERVATION_NAMESPACE),
        Api::namespaced(caller.context.writes.clone(), object::RESERVATION_NAMESPACE),
    );
    let failed = |why: &str| {
        format!(
            "failed to create GPU reservation pod {}/{name}: {why}",
            object::RESERVATION_NAMESPACE
        )
    };
    let mut last = String::new();
    for _ in 0..LOOKS {
        let params = PostParams::default();
        match caller
            .call("create a reservation pod", || writes.create(&params, &pod))
            .await
        {
            Ok(created) => return Ok(created),
            Err(trouble) if trouble.failure == Failure::Conflict => last = trouble.why,
            Err(trouble) => return Err(failed(&trouble.why)),
        }
        let found = caller.call("look at a reservation pod", || reads.get_opt(&name)).await;
        if let Some(found) = found.map_err(|trouble| failed(&trouble.why))? {
            return Ok(found);
        }
    }
    Err(failed(&last))
}

/// How often what is in the way of a creation is looked at.
const LOOKS: usize = 4;

/// What to look for in a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    User,
    Reservation,
}

/// The pods of a group that the API server holds right now.
async fn members(caller: &Caller, id: &GroupId, wanted: Member) -> Result<Vec<Pod>, Trouble> {
    let client: Client = caller.context.reads.clone();
    let api: Api<Pod> = match wanted {
        Member::User => Api::all(client),
        Member::Reservation => Api::namespaced(client, object::RESERVATION_NAMESPACE),
    };
    let mut found = Vec::new();
    // A group's name makes a label's name only where it is used as one.
    let forms = [
        format!("{}={}", label::GPU_GROUP, id.group),
        format!("{}{}", label::GPU_GROUP_PREFIX, id.group),
    ];
    for form in forms {
        let params = ListParams::default().labels(&form);
        found.extend(
            caller
                .call("list the pods of a group", || api.list(&params))
                .await?
                .items,
        );
    }
    let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(&*id.node);
    found.retain(|pod| {
        let is_one = reservation::is_one(pod);
        let right = match wanted {
            Member::User => !is_one,
            Member::Reservation => is_one,
        };
        right
            && on_node(pod)
            && !pods::is_finished(pod)
            && fraction::group_labels(pod).any(|(_, group)| **group == *id.group)
    });
    Ok(found)
}

/// Deletes pods whose device somebody else may get.
async fn evict(caller: &Caller, id: &GroupId, users: Vec<PodRef>) -> Vec<PodRef> {
    error!(node = %id.node, group = %id.group, users = users.len(), "shared GPU has lost its reservation pod; its users are evicted");
    let mut evicted = Vec::new();
    for user in users {
        let api: Api<Pod> = Api::namespaced(caller.context.writes.clone(), &user.namespace);
        let mut params = only(Some(user.uid.to_string()));
        params.grace_period_seconds = None;
        match caller.delete("evict a pod", || api.delete(&user.name, &params)).await {
            Ok(()) => evicted.push(user),
            Err(trouble) => info!(ns = %user.namespace, name = %user.name, error = trouble.why, "pod not evicted"),
        }
    }
    evicted
}

/// Takes a bind request away that has served its purpose. One whose pod is not there is looked at anew first: the watch of pods may be behind.
pub async fn drop_done(caller: Caller, key: Key, request: Arc<BindRequest>, pod_known: bool) -> Chore {
    let ns = request.metadata.namespace.as_deref().unwrap_or_default();
    let name = request.spec.pod_name.clone().unwrap_or_default();
    if !pod_known {
        let api: Api<Pod> = Api::namespaced(caller.context.reads.clone(), ns);
        let found = caller.call("look for a pod", || api.get_opt(&name)).await;
        let is_its = |pod: &Pod| made_for(&request, pod.metadata.uid.as_deref());
        if !matches!(found, Ok(found) if !found.as_ref().is_some_and(is_its)) {
            return Chore::Tended(key);
        }
    }
    if let Err(trouble) = drop_request(&caller, &request).await {
        info!(ns, name, error = trouble.why, "bind request not deleted");
    }
    Chore::Tended(key)
}

/// Says of a bind request that stays that it was carried out; and of its pod, where KAI's full trail is asked for.
pub async fn succeed(caller: Caller, key: Key, request: Arc<BindRequest>, pod: Option<Arc<Pod>>) -> Chore {
    let node = node(&request).unwrap_or_default();
    let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    if caller.context.settings.sharing.always_bind_requests
        && let Some(pod) = pod.filter(|pod| on_node(pod))
    {
        condition(&caller, &pods::pod_ref(&pod), Some(&pod), Verdict::Bound(node)).await;
    }
    let status = json!({"phase": bind_phase::SUCCEEDED, "reason": null});
    patch_status(&caller, &request, status).await;
    Chore::Tended(key)
}

/// Says that an attempt at somebody else's bind request has failed. Whether another is to follow.
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

/// How many attempts at a request have failed.
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
    if let Err(trouble) = patched {
        info!(ns, name, error = trouble.why, "bind request not reported on");
    }
}

/// A bind has succeeded that had failed before: the pod is to say so. One that succeeds at once is its own proof; and for the full
/// trail every pod says so in the end.
pub async fn correct(caller: &Caller, node: &str, pod: Option<&Pod>) {
    let told_anyway = caller.context.settings.sharing.always_bind_requests;
    if let Some(pod) = pod.filter(|pod| !told_anyway && known(pod).is_some()) {
        condition(caller, &pods::pod_ref(pod), Some(pod), Verdict::Bound(node)).await;
    }
}

/// A bind has failed: the pod is to say why.
pub async fn blame(caller: &Caller, bind: &Bind, pod: Option<&Pod>, why: &str) {
    let verdict = Verdict::Failed(&bind.placement.node, why);
    condition(caller, &bind.placement.pod, pod, verdict).await;
}

/// What a pod says about its bind.
enum Verdict<'a> {
    /// It is bound to the node.
    Bound(&'a str),
    /// It could not be bound to the node, and why.
    Failed(&'a str, &'a str),
}

/// What the pod says about its bind.
fn known(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == condition::POD_BOUND)
}

/// Writes the pod's condition about its bind, if it says something else.
async fn condition(caller: &Caller, reference: &PodRef, pod: Option<&Pod>, verdict: Verdict<'_>) {
    let (status, reason, message) = match verdict {
        Verdict::Bound(node) => ("True", reason::BOUND, notes::bound_to(node)),
        Verdict::Failed(node, why) => (
            "False",
            reason::BINDING_ERROR,
            format!(
                "Failed to bind pod {}/{} to node {node}: {why}",
                reference.namespace, reference.name
            ),
        ),
    };
    let says_so = |known: &PodCondition| known.status == status && known.message.as_deref() == Some(&message);
    if pod.and_then(known).is_some_and(says_so) {
        return;
    }
    let api: Api<Pod> = Api::namespaced(caller.context.writes.clone(), &reference.namespace);
    let patch = Patch::Strategic(json!({"metadata": {"uid": &*reference.uid}, "status": {"conditions": [{
        "type": condition::POD_BOUND, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": Time(Timestamp::now()),
    }]}}));
    let params = PatchParams::default();
    let patched = caller
        .call("write a condition", || {
            api.patch_status(&reference.name, &params, &patch)
        })
        .await;
    if let Err(trouble) = patched {
        debug!(error = trouble.why, "condition not written");
    }
}
