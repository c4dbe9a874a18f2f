//! Installs the manifests into the embedded cluster, as `kubectl apply -f manifests/ -f manifests/gpu-sharing/` would, except the operator's own Deployment and
//! Service: there it runs in this process.

use anyhow::{Context, anyhow};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::discovery::{Discovery, Scope};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;

use crate::api::names::annotation;
use crate::cli::manifests;
use crate::components;

/// Creates the objects for an operator with these settings, and waits until the API server serves the custom resources.
///
/// # Errors
/// When an object cannot be created; one that exists is left as it is.
pub(super) async fn manifests(client: &Client, settings: &components::Settings) -> anyhow::Result<()> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut definitions = Vec::new();
    for object in objects(settings)? {
        let kind = object
            .types
            .as_ref()
            .map(|types| types.kind.clone())
            .unwrap_or_default();
        let name = object.name_any();
        create(client, &discovery, object)
            .await
            .with_context(|| format!("{kind} {name}"))?;
        if kind == "CustomResourceDefinition" {
            definitions.push(name);
        }
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let served = definitions
        .iter()
        .map(|name| await_condition(api.clone(), name, conditions::is_crd_established()));
    try_join_all(served)
        .await
        .context("the custom resources are not served")?;
    Ok(())
}

/// Creates the objects of a YAML text in their order.
///
/// # Errors
/// When the text is not YAML of objects, or one cannot be created.
pub(in crate::cli) async fn yaml(client: &Client, text: &str) -> anyhow::Result<()> {
    let discovery = Discovery::new(client.clone()).run().await?;
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let object = DynamicObject::deserialize(document)?;
        let name = object.name_any();
        create(client, &discovery, object).await.with_context(|| name)?;
    }
    Ok(())
}

/// The objects of the manifests in their order, but for the operator's workload.
pub(super) fn objects(settings: &components::Settings) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for (_, text) in manifests::files_with(settings) {
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let mut object = DynamicObject::deserialize(document)?;
            let kind = object.types.as_ref().map(|types| types.kind.as_str());
            if !matches!(kind, Some("Deployment" | "Service")) {
                let applied = serde_json::to_string(&object)?;
                // So that a later `kubectl apply` finds nothing to change.
                object
                    .annotations_mut()
                    .insert(annotation::KUBECTL_LAST_APPLIED.to_owned(), applied);
                objects.push(object);
            }
        }
    }
    Ok(objects)
}

async fn create(client: &Client, discovery: &Discovery, object: DynamicObject) -> anyhow::Result<()> {
    let types = object.types.clone().context("it has no kind")?;
    let (resource, capabilities) = discovery
        .resolve_typemeta(&types)
        .with_context(|| format!("{} is not served", types.api_version))?;
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (Scope::Namespaced, Some(ns)) => Api::namespaced_with(client.clone(), &ns, &resource),
        (Scope::Namespaced, None) => return Err(anyhow!("it has no namespace")),
    };
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => Ok(created.map(drop)?),
    }
}
