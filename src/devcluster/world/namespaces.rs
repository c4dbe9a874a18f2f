//! Namespaces: each gets its default service account; a terminating one is removed when it is empty.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams, PropagationPolicy};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};

use super::Shared;
use super::gc::Collector;
use super::informer::{Informer, Key};
use super::queue::Again;

/// The finalizer that a namespace carries in its spec until it is empty.
const FINALIZER: &str = "kubernetes";

/// Reconciles one namespace.
pub(super) async fn reconcile(
    shared: &Shared,
    namespaces: &Informer<Namespace>,
    collector: &Arc<Collector>,
    key: Key,
) -> kube::Result<Again> {
    let Some(namespace) = namespaces.get(&key) else {
        return Ok(Again::OnChange);
    };
    if namespace.metadata.deletion_timestamp.is_none() {
        ensure_service_account(shared, &key.name).await?;
    } else if has_finalizer(&namespace) && empty(shared, collector, &key.name).await? {
        finalize(shared, namespace.as_ref()).await?;
    }
    Ok(Again::OnChange)
}

/// Without it, a real API server admits no pods into the namespace.
async fn ensure_service_account(shared: &Shared, ns: &str) -> kube::Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(shared.client.clone(), ns);
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    match accounts.create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Deletes the content of the namespace; returns whether it is empty. Called again when the rest is gone.
async fn empty(shared: &Shared, collector: &Arc<Collector>, ns: &str) -> kube::Result<bool> {
    let content = collector.in_namespace(ns);
    if !content.is_empty() {
        for (uid, entry) in content.iter().filter(|(_, entry)| !entry.deleting) {
            collector.delete(uid, entry, PropagationPolicy::Background).await?;
        }
        return Ok(false);
    }
    // The watches may be behind and do not have all kinds, so the API server is asked for the rest.
    let mut left = 0;
    for kind in collector.kinds().await.iter().filter(|kind| kind.namespaced) {
        let api: Api<DynamicObject> = Api::namespaced_with(shared.client.clone(), ns, &kind.resource);
        let found = match api.list_metadata(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            found => found?,
        };
        left += found.items.len();
        for object in found
            .items
            .iter()
            .filter(|object| object.metadata.deletion_timestamp.is_none())
        {
            delete_by_name(&api, &object.name_any()).await?;
        }
    }
    if left == 0 {
        delete_events_and_leases(shared, ns).await?;
    }
    Ok(left == 0)
}

async fn delete_by_name(api: &Api<DynamicObject>, name: &str) -> kube::Result<()> {
    match api.delete(name, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// The kinds that the garbage collector does not watch.
async fn delete_events_and_leases(shared: &Shared, ns: &str) -> kube::Result<()> {
    let (params, all) = (DeleteParams::background(), ListParams::default());
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(shared.client.clone(), ns);
    events.delete_collection(&params, &all).await?;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(shared.client.clone(), ns);
    leases.delete_collection(&params, &all).await.map(drop)
}

fn has_finalizer(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten());
    finalizers.into_iter().any(|finalizer| finalizer == FINALIZER)
}

/// Removes the finalizer, so that the API server removes the namespace.
async fn finalize(shared: &Shared, namespace: &Namespace) -> kube::Result<()> {
    let mut finalized = namespace.clone();
    if let Some(finalizers) = finalized.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    let api: Api<Namespace> = Api::all(shared.client.clone());
    match api
        .replace_subresource("finalize", &namespace.name_any(), &PostParams::default(), &finalized)
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome.map(drop),
    }
}
