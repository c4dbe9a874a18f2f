//! Resource claims: created from templates for pods, and deallocated when no pod uses them any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;

use super::gc::Collector;
use super::informer::{Informer, Key};
use super::pods::is_finished;
use super::queue::{Again, WorkQueue};
use super::workload::controller_reference;
use super::{Shared, spawn_watch};

/// Which of its pod's references a claim was made for.
const REFERENCE: &str = "resource.kubernetes.io/pod-claim-name";
/// Keeps a claim with devices from being deleted.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How many objects are worked on at once.
const AT_ONCE: usize = 8;

/// The controller of claims.
pub(super) fn spawn(tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>, collector: &Arc<Collector>) {
    let claims: Arc<Informer<ResourceClaim>> = Informer::new();
    let templates: Arc<Informer<ResourceClaimTemplate>> = Informer::new();
    collector.listen(&claims);
    let (waiting, used) = (Arc::new(WorkQueue::new()), Arc::new(WorkQueue::new()));
    let changed = Arc::clone(&used);
    claims.on_change(move |change| changed.add(change.key.clone()));
    let (pods, ends, known) = (Arc::clone(&waiting), Arc::clone(&used), Arc::downgrade(&claims));
    shared.pods.on_change(move |change| {
        let Some(pod) = change
            .newest()
            .filter(|pod| references(pod).next().is_some() || has_extended(pod))
        else {
            return;
        };
        match change.new.filter(|pod| !is_finished(pod)) {
            Some(_) => pods.add(change.key.clone()),
            None => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                for claim in known.upgrade().iter().flat_map(|claims| claims.list()) {
                    if consumers(&claim).any(|consumer| consumer.uid == uid) {
                        ends.add(Key::of(&claim.metadata));
                    }
                }
            }
        }
    });
    // A pod may be there before its template.
    let (pods, all) = (Arc::clone(&waiting), Arc::downgrade(shared));
    templates.on_change(move |change| {
        for pod in all.upgrade().iter().flat_map(|shared| shared.pods.list()) {
            let named = |reference: &PodResourceClaim| {
                reference.resource_claim_template_name.as_deref() == Some(change.key.name.as_str())
            };
            if pod.metadata.namespace.as_deref() == Some(change.key.ns.as_str()) && references(&pod).any(named) {
                pods.add(Key::of(&pod.metadata));
            }
        }
    });
    spawn_watch(tasks, "watch of resource claims", &claims, &shared.client);
    spawn_watch(tasks, "watch of resource claim templates", &templates, &shared.client);
    let (making, made, from) = (Arc::clone(shared), Arc::clone(&claims), Arc::clone(&templates));
    tasks.spawn(async move {
        making.pods.synced().await;
        made.synced().await;
        from.synced().await;
        waiting
            .run(&making.clock, AT_ONCE, |key| make(&making, &made, &from, key))
            .await;
        "claims from templates"
    });
    let shared = Arc::clone(shared);
    tasks.spawn(async move {
        shared.pods.synced().await;
        claims.synced().await;
        used.run(&shared.clock, AT_ONCE, |key| free(&shared, &claims, key))
            .await;
        "ends of claims"
    });
}

fn references(pod: &Pod) -> impl Iterator<Item = &PodResourceClaim> {
    pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten())
}

fn has_extended(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.is_some_and(|status| status.extended_resource_claim_status.is_some())
}

fn consumers(claim: &ResourceClaim) -> impl Iterator<Item = &ResourceClaimConsumerReference> {
    claim
        .status
        .iter()
        .flat_map(|status| status.reserved_for.iter().flatten())
}

/// Creates the claims of a pod's templates, and writes their names to the pod's status.
async fn make(
    shared: &Shared,
    claims: &Informer<ResourceClaim>,
    templates: &Informer<ResourceClaimTemplate>,
    key: Key,
) -> kube::Result<Again> {
    let Some(pod) = shared
        .pods
        .get(&key)
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
    else {
        return Ok(Again::OnChange);
    };
    let status = pod.status.as_ref();
    let told: BTreeMap<&str, &Option<String>> = status
        .into_iter()
        .flat_map(|status| status.resource_claim_statuses.iter().flatten())
        .map(|told| (told.name.as_str(), &told.resource_claim_name))
        .collect();
    let own = claims.controlled_by(pod.metadata.uid.as_deref().unwrap_or_default());
    let mut names = Vec::new();
    let mut news = false;
    for reference in references(&pod) {
        let Some(template) = &reference.resource_claim_template_name else {
            continue;
        };
        if let Some(claim) = told.get(reference.name.as_str()) {
            names.push(json!({"name": reference.name, "resourceClaimName": claim}));
            continue;
        }
        let made = own
            .iter()
            .find(|claim| claim.annotations().get(REFERENCE) == Some(&reference.name));
        let name = match made {
            Some(claim) => claim.name_any(),
            None => {
                let Some(template) = templates.get(&Key::new(&key.ns, template)) else {
                    continue;
                };
                make_one(shared, claims, &pod, &reference.name, &template).await?
            }
        };
        names.push(json!({"name": reference.name, "resourceClaimName": name}));
        news = true;
    }
    if news {
        let api: Api<Pod> = Api::namespaced(shared.client.clone(), &key.ns);
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": names}});
        match api
            .patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            outcome => drop(outcome?),
        }
    }
    Ok(Again::OnChange)
}

async fn make_one(
    shared: &Shared,
    claims: &Informer<ResourceClaim>,
    pod: &Pod,
    reference: &str,
    template: &ResourceClaimTemplate,
) -> kube::Result<String> {
    let meta = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(REFERENCE.to_owned(), reference.to_owned());
    let claim = ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-{reference}-", pod.name_any())),
            namespace: pod.metadata.namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    };
    let api: Api<ResourceClaim> = Api::namespaced(shared.client.clone(), &pod.namespace().unwrap_or_default());
    let made = api.create(&PostParams::default(), &claim).await?;
    let name = made.name_any();
    claims.observe(made);
    Ok(name)
}

/// Removes finished and deleted pods from a claim's reservation, and the allocation with the last of them.
async fn free(shared: &Shared, claims: &Informer<ResourceClaim>, key: Key) -> kube::Result<Again> {
    let Some(claim) = claims.get(&key) else {
        return Ok(Again::OnChange);
    };
    let pods: Api<Pod> = Api::namespaced(shared.client.clone(), &key.ns);
    let mut stays = Vec::new();
    for consumer in consumers(&claim) {
        let known = shared.pods.get(&Key::new(&key.ns, &consumer.name));
        // The watch of pods may be behind that of claims, so the pod is read from the API server.
        let pod = match known.filter(|pod| pod.metadata.uid.as_deref() == Some(consumer.uid.as_str())) {
            Some(pod) => Some(Pod::clone(&pod)),
            None => pods.get_opt(&consumer.name).await?,
        };
        let same = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(consumer.uid.as_str()));
        if same.is_some_and(|pod| !is_finished(&pod)) {
            stays.push(consumer.clone());
        }
    }
    let api: Api<ResourceClaim> = Api::namespaced(shared.client.clone(), &key.ns);
    let outcome = write(&api, &key.name, ResourceClaim::clone(&claim), stays).await;
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Again::OnChange),
        outcome => outcome.map(|()| Again::OnChange),
    }
}

async fn write(
    api: &Api<ResourceClaim>,
    name: &str,
    mut claim: ResourceClaim,
    stays: Vec<ResourceClaimConsumerReference>,
) -> kube::Result<()> {
    let before = consumers(&claim).count();
    if before > stays.len() {
        let status = claim.status.get_or_insert_default();
        if stays.is_empty() {
            status.allocation = None;
        }
        status.reserved_for = Some(stays).filter(|stays| !stays.is_empty());
        claim = api.replace_status(name, &PostParams::default(), &claim).await?;
    }
    let free = claim.status.as_ref().is_none_or(|status| status.allocation.is_none());
    let held = claim
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER);
    // One that is about to be given devices carries the finalizer, too: only one that was freed just now, or must go, loses it.
    if free && held && (before > 0 || claim.metadata.deletion_timestamp.is_some()) {
        if let Some(finalizers) = &mut claim.metadata.finalizers {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        api.replace(name, &PostParams::default(), &claim).await?;
    }
    Ok(())
}
