//! unikai's admission policies forbid changes of what a bound pod is charged for, and KAI makes such changes. So the policies are bound while unikai
//! schedules, and not while KAI does.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding as Binding,
};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;

use super::{if_there, within};
use crate::cli::manifests;

/// The bindings in the manifests.
fn of_manifests() -> Vec<Binding> {
    let files = manifests::files(manifests::DEFAULT_IMAGE);
    let texts = files
        .iter()
        .filter(|(_, text)| text.contains("kind: ValidatingAdmissionPolicyBinding"));
    let documents = texts.flat_map(|(_, text)| serde_yaml_ng::Deserializer::from_str(text));
    documents
        .filter_map(|document| Binding::deserialize(document).ok())
        .collect()
}

/// The names of unikai's bound policies.
///
/// # Errors
/// When a request fails.
pub async fn in_force(client: &Client) -> anyhow::Result<Vec<String>> {
    let api = Api::<Binding>::all(client.clone());
    let found = if_there("listing admission policies", api.list(&ListParams::default())).await?;
    let ours: Vec<_> = of_manifests().iter().map(ResourceExt::name_any).collect();
    let names = found.into_iter().flatten().map(|binding| binding.name_any());
    Ok(names.filter(|name| ours.contains(name)).collect())
}

/// The names of installed policies that are not bound.
///
/// # Errors
/// When a request fails.
pub async fn at_rest(client: &Client) -> anyhow::Result<Vec<String>> {
    let active = in_force(client).await?;
    let api = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    let found = if_there("listing admission policies", api.list(&ListParams::default())).await?;
    let names = found.into_iter().flatten().map(|policy| policy.name_any());
    let names: Vec<_> = names.filter(|name| !active.contains(name)).collect();
    let ours = of_manifests();
    let installed = ours.iter().filter(|binding| {
        let policy = binding.spec.as_ref().and_then(|spec| spec.policy_name.as_ref());
        policy.is_some_and(|policy| names.contains(policy))
    });
    Ok(installed.map(ResourceExt::name_any).collect())
}

/// Creates the bindings.
///
/// # Errors
/// When a request fails.
pub async fn begin(client: &Client, names: &[String]) -> anyhow::Result<()> {
    let api = Api::<Binding>::all(client.clone());
    for binding in of_manifests()
        .into_iter()
        .filter(|binding| names.contains(&binding.name_any()))
    {
        within(
            "binding an admission policy",
            api.create(&PostParams::default(), &binding),
        )
        .await?;
    }
    Ok(())
}

/// Deletes the bindings; the policies stay.
///
/// # Errors
/// When a request fails.
pub async fn end(client: &Client, names: &[String]) -> anyhow::Result<()> {
    let api = Api::<Binding>::all(client.clone());
    for name in names {
        if_there(
            "unbinding an admission policy",
            api.delete(name, &DeleteParams::default()),
        )
        .await?;
    }
    Ok(())
}
