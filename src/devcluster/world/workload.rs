//! Shared by workload controllers: create pods from a template, delete them, write a status, create events.

use std::fmt::Debug;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, Namespace, ObjectReference, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::Shared;
use super::informer::{Informer, Key};

/// The most pods of one workload that are created or deleted at once.
const BURST: usize = 32;

/// The reference by which `owner` controls what it makes.
pub(super) fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: uid(owner.meta()).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A pod of `owner` from its template, with a generated name after `prefix`.
pub(super) fn pod_from_template<K: Resource<DynamicType = ()>>(
    owner: &K,
    template: &PodTemplateSpec,
    prefix: &str,
) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            namespace: owner.meta().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Creates pods in growing batches, so that an API server that refuses them gets one request, not a thousand.
///
/// # Errors
/// The first refusal; the pods created before it stay.
pub(super) async fn create_pods(shared: &Shared, ns: &str, pods: Vec<Pod>) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), ns);
    let params = PostParams::default();
    let (mut rest, mut batch) = (pods.as_slice(), 1);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(batch.min(rest.len()));
        let outcomes = join_all(now.iter().map(|pod| api.create(&params, pod))).await;
        for outcome in outcomes {
            shared.pods.observe(outcome?);
        }
        (rest, batch) = (later, (batch * 2).min(BURST));
    }
    Ok(())
}

/// Deletes pods with their own grace periods; one that is gone already is no error.
///
/// # Errors
/// The first refusal.
pub(super) async fn delete_pods(shared: &Shared, pods: &[std::sync::Arc<Pod>]) -> kube::Result<()> {
    for batch in pods.chunks(BURST) {
        let outcomes = join_all(
            batch
                .iter()
                .map(|pod| delete(&shared.client, &shared.pods, pod.as_ref())),
        )
        .await;
        outcomes.into_iter().collect::<kube::Result<Vec<()>>>()?;
    }
    Ok(())
}

/// Deletes an object of a shared watch in the background manner, if it is still the one that was seen.
///
/// # Errors
/// What the API server answered, unless the object is gone already.
pub(super) async fn delete<K>(client: &kube::Client, informer: &Informer<K>, object: &K) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let meta = object.meta();
    let api: Api<K> = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or_default());
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: meta.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match api.delete(meta.name.as_deref().unwrap_or_default(), &params).await {
        Ok(answer) => {
            answer
                .map_left(|left| informer.observe(left))
                .map_right(|_| informer.forget(object));
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => {
            informer.forget(object);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Replaces the status of an object, if the object has not changed since it was read.
///
/// # Errors
/// What the API server answered.
pub(super) async fn write_status<K>(shared: &Shared, informer: &Informer<K>, object: &K) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let meta = object.meta();
    let api: Api<K> = Api::namespaced(shared.client.clone(), meta.namespace.as_deref().unwrap_or_default());
    let updated = api
        .replace_status(meta.name.as_deref().unwrap_or_default(), &PostParams::default(), object)
        .await?;
    informer.observe(updated);
    Ok(())
}

/// Writes an event on the owner about a pod that could not be created; repeats increment its count.
///
/// # Errors
/// What the API server answered.
pub(super) async fn report_failure<K>(shared: &Shared, owner: &K, reason: &str, message: &str) -> kube::Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let meta = owner.meta();
    let ns = meta.namespace.as_deref().unwrap_or_default();
    if is_terminating(shared, ns).await? {
        return Ok(());
    }
    let events: Api<Event> = Api::namespaced(shared.client.clone(), ns);
    let now = Time(shared.clock.now());
    let name = format!(
        "{}.{}",
        meta.name.as_deref().unwrap_or_default(),
        short_hash(&(uid(meta), reason, message))
    );
    if let Some(known) = events.get_opt(&name).await? {
        let again = json!({"count": known.count.unwrap_or(1) + 1, "lastTimestamp": now});
        return events
            .patch(&name, &PatchParams::default(), &Patch::Merge(again))
            .await
            .map(drop);
    }
    let component = format!("{}-controller", K::kind(&()).to_lowercase());
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: meta.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        },
        type_: Some("Warning".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        source: Some(EventSource {
            component: Some(component),
            host: None,
        }),
        ..Event::default()
    };
    events.create(&PostParams::default(), &event).await.map(drop)
}

/// Nothing can be created in a namespace that is being deleted, not even an event that says so.
async fn is_terminating(shared: &Shared, ns: &str) -> kube::Result<bool> {
    let namespace = Api::<Namespace>::all(shared.client.clone())
        .get_metadata_opt(ns)
        .await?;
    Ok(namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()))
}

/// The API server's error as one sentence.
pub(super) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// The uid, which every stored object has.
pub(super) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// A number as a status holds it: the API server leaves out what is 0.
pub(super) fn nonzero(number: usize) -> Option<i32> {
    Some(count(number)).filter(|number| *number != 0)
}

/// A count as the API holds it.
pub(super) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A wanted number of replicas; negative ones do not pass the API server.
pub(super) fn wanted(replicas: Option<i32>, default: usize) -> usize {
    replicas.map_or(default, |replicas| usize::try_from(replicas).unwrap_or(0))
}

/// How many of the pods have been ready for `min_ready_seconds`, and when the next one will have been.
pub(super) fn available(
    ready_since: impl Iterator<Item = Timestamp>,
    min_ready_seconds: Option<i32>,
    now: Timestamp,
) -> (usize, Option<Timestamp>) {
    let wait = std::time::Duration::from_secs(u64::try_from(min_ready_seconds.unwrap_or(0)).unwrap_or(0));
    let (mut available, mut next) = (0, None::<Timestamp>);
    for since in ready_since {
        let at = super::clock::later(since, wait);
        if wait.is_zero() || at <= now {
            available += 1;
        } else {
            next = Some(next.map_or(at, |next| next.min(at)));
        }
    }
    (available, next)
}

/// A short name-safe hash of a value's JSON, made of letters and digits that spell no words.
pub(super) fn short_hash<T: Serialize>(value: &T) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let json = serde_json::to_vec(value).unwrap_or_default();
    let digest = Sha256::digest(&json);
    digest
        .iter()
        .take(10)
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect()
}

/// The key of the object of `kind` that controls this one.
pub(super) fn controller_key(meta: &ObjectMeta, kind: &str) -> Option<Key> {
    let owner = super::informer::controller_of(meta).filter(|owner| owner.kind == kind)?;
    Some(Key::new(meta.namespace.as_deref().unwrap_or_default(), &owner.name))
}
