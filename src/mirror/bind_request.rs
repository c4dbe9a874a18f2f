//! Bind requests → the pods that they bind. One counts if it has not failed finally, its node is in the shard, and it was created for
//! this pod (not for a former pod of the same name).

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use super::identity::object_key;
use super::links::Links;
use super::packed::Pod;
use super::{Entry, Mirror, Output};
use crate::api::BindRequest;
use crate::api::names::{annotation, bind_phase};
use crate::engine::input::{GroupKey, Table};

impl Entry for BindRequest {
    type Packed = Self;
    fn changed(request: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        // The request may have named another pod before.
        let former = mirror
            .requests
            .named_by(request)
            .filter(|former| **former != *pod_key(request));
        if let Some(former) = former {
            mirror.with_pod(&former, out, |mirror| mirror.requests.remove(request));
        }
        mirror.with_pod(&pod_key(request), out, |mirror| {
            if there {
                mirror.requests.put(Arc::clone(request));
            } else {
                mirror.requests.remove(request);
            }
        });
    }
}

/// All bind requests, by the pod (`namespace/name`) that they are for.
#[derive(Default)]
pub struct Requests {
    by_pod: Table<Box<str>, BTreeMap<String, Arc<BindRequest>>>,
    /// The pod that each request names.
    pods: Table<Box<str>, Box<str>>,
    /// The pods with a request to each node.
    by_node: Links,
}

impl Requests {
    /// The pod that a request named when it was recorded.
    fn named_by(&self, request: &BindRequest) -> Option<Box<str>> {
        self.pods.get(&request_key(request)).cloned()
    }

    /// Records a bind request.
    pub fn put(&mut self, request: Arc<BindRequest>) {
        self.remove(&request);
        let key = pod_key(&request);
        self.pods.insert(request_key(&request), key.clone());
        if let Some(node) = node(&request) {
            self.by_node.add(node, &key);
        }
        self.by_pod.entry(key).or_default().insert(request.name_any(), request);
    }

    /// Removes a bind request.
    pub fn remove(&mut self, request: &BindRequest) {
        let Some(key) = self.pods.remove(&request_key(request)) else {
            return;
        };
        if let Some(of_pod) = self.by_pod.get_mut(&key) {
            let removed = of_pod.remove(&request.name_any());
            if let Some(to) = removed.as_deref().and_then(node)
                && of_pod.values().all(|other| node(other) != Some(to))
            {
                self.by_node.remove(to, &key);
            }
            if of_pod.is_empty() {
                self.by_pod.remove(&key);
            }
        }
    }

    /// The bind request that counts for a pod, the last by name if there are several.
    pub fn of(&self, key: &str, uid: &str, known_node: impl Fn(&str) -> bool) -> Option<&BindRequest> {
        let mut of_pod = self.by_pod.get(key)?.values().rev();
        of_pod
            .find(|request| made_for(request, Some(uid)) && !failed(request) && node(request).is_some_and(&known_node))
            .map(Arc::as_ref)
    }

    /// The pods with a bind request to a node, sorted.
    #[must_use]
    pub fn pods_bound_for(&self, name: &str) -> Vec<Box<str>> {
        self.by_node.to(name).cloned().collect()
    }
}

/// A request as `namespace/name`.
fn request_key(request: &BindRequest) -> Box<str> {
    object_key(
        request.metadata.namespace.as_deref().unwrap_or_default(),
        &request.name_any(),
    )
}

/// The pod that a bind request is for, as `namespace/name`.
fn pod_key(request: &BindRequest) -> Box<str> {
    object_key(
        request.metadata.namespace.as_deref().unwrap_or_default(),
        request.spec.pod_name.as_deref().unwrap_or_default(),
    )
}

/// Whether an annotation belongs to a pod's GPU sharing request.
#[must_use]
pub fn is_share(key: &str) -> bool {
    matches!(
        key,
        annotation::GPU_FRACTION | annotation::GPU_MEMORY | annotation::GPU_FRACTION_NUM_DEVICES
    )
}

/// The pod with the GPU sharing request of its bind decision, if its annotations have changed since.
#[must_use]
pub fn as_decided(request: &BindRequest, pod: &Pod) -> Option<Pod> {
    let text = request.annotations().get(annotation::GPU_SHARE)?;
    let share: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    let decided = || share.iter().map(|(key, value)| (&**key, &**value));
    if pod.annotations.iter().filter(|(key, _)| is_share(key)).eq(decided()) {
        return None;
    }
    let others = pod.annotations.iter().filter(|(key, _)| !is_share(key));
    Some(Pod {
        annotations: others.chain(decided()).collect(),
        ..pod.clone()
    })
}

/// The pod group for which the bind was decided; none in the requests of other clients.
#[must_use]
pub fn group(request: &BindRequest) -> Option<GroupKey> {
    let name = request.annotations().get(annotation::POD_GROUP_NAME)?;
    let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
    (!name.is_empty()).then(|| GroupKey::new(namespace, name))
}

/// Failed with no attempts left.
#[must_use]
pub fn failed(request: &BindRequest) -> bool {
    request.status.as_ref().is_some_and(|status| {
        let attempts = status.failed_attempts.unwrap_or_default();
        status.phase.as_deref() == Some(bind_phase::FAILED)
            && request.spec.backoff_limit.is_none_or(|limit| attempts >= limit)
    })
}

/// The node that a bind request chose.
#[must_use]
pub fn node(request: &BindRequest) -> Option<&str> {
    request.spec.selected_node.as_deref().filter(|node| !node.is_empty())
}

/// Whether it was created for the pod of this uid, not for a former one of the same name.
#[must_use]
pub fn made_for(request: &BindRequest, uid: Option<&str>) -> bool {
    let mut owners = request
        .owner_references()
        .iter()
        .filter(|owner| owner.kind == "Pod")
        .peekable();
    owners.peek().is_none() || owners.any(|owner| Some(&*owner.uid) == uid)
}
