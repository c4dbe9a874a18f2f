//! Webhook configurations: unikai overwrites KAI's of the same names, and `adopt` deletes those of other names, so KAI's are stored in a ConfigMap for
//! the way back. `back` restores them, and deletes those of unikai that they do not replace. The ConfigMap has one more record: `pod_security`.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{if_there, within};
use crate::api::names::{label, object};

/// KAI's names; a Config may set others.
const MUTATING: &str = "mutating-kai-";
const VALIDATING: [&str; 3] = ["validating-kai-", "kai-queue-validation-", "kai-podgroup-validation-"];

/// Whether unikai created it.
fn is_own(object: &impl ResourceExt) -> bool {
    object.labels().get(label::MANAGED_BY).map(String::as_str) == Some(object::OPERATOR)
}

fn is_kai(object: &impl ResourceExt) -> bool {
    let owners = object.owner_references().iter();
    let name = object.name_any();
    let named = std::iter::once(MUTATING)
        .chain(VALIDATING)
        .any(|prefix| name.starts_with(prefix));
    let owned = owners
        .into_iter()
        .any(|owner| owner.api_version.starts_with("kai.scheduler/"));
    !is_own(object) && (named || owned)
}

/// A kind of webhook configuration.
trait Kept:
    Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
    /// Prefix of its key in the ConfigMap.
    const PREFIX: &'static str;
}

impl Kept for MutatingWebhookConfiguration {
    const PREFIX: &'static str = "mutating.";
}

impl Kept for ValidatingWebhookConfiguration {
    const PREFIX: &'static str = "validating.";
}

/// Its key in the ConfigMap.
fn key<K: Kept>(object: &K) -> String {
    format!("{}{}", K::PREFIX, object.name_any())
}

async fn all<K: Kept>(client: &Client) -> anyhow::Result<Vec<K>> {
    let api = Api::<K>::all(client.clone());
    Ok(
        within("listing webhook configurations", api.list(&ListParams::default()))
            .await?
            .items,
    )
}

/// Whether KAI created it.
pub const KAIS: &str = "KAI's";

/// The names of configurations, and who created them.
///
/// # Errors
/// When a request fails.
pub async fn whose(client: &Client) -> anyhow::Result<Vec<(String, &'static str)>> {
    fn say<K: ResourceExt>(found: Vec<K>) -> impl Iterator<Item = (String, &'static str)> {
        found.into_iter().filter_map(|found| {
            let whose = if is_own(&found) {
                "unikai's"
            } else if is_kai(&found) {
                KAIS
            } else {
                return None;
            };
            Some((found.name_any(), whose))
        })
    }
    let mut found: Vec<_> = say(all::<MutatingWebhookConfiguration>(client).await?).collect();
    found.extend(say(all::<ValidatingWebhookConfiguration>(client).await?));
    Ok(found)
}

/// KAI's configurations to restore: key in the ConfigMap, and object.
async fn to_keep<K: Kept>(client: &Client) -> anyhow::Result<BTreeMap<String, String>> {
    let mut kept = BTreeMap::new();
    for mut found in all::<K>(client).await?.into_iter().filter(is_kai) {
        let meta = found.meta_mut();
        (meta.uid, meta.resource_version, meta.creation_timestamp) = (None, None, None);
        (meta.managed_fields, meta.generation) = (None, None);
        kept.insert(key(&found), serde_json::to_string(&found)?);
    }
    Ok(kept)
}

/// Deletes KAI's configurations that unikai does not overwrite: nothing answers them any more, so they would refuse all pods. Returns their names.
///
/// # Errors
/// When a request fails.
pub async fn delete_others(client: &Client, dry_run: bool) -> anyhow::Result<Vec<String>> {
    let mut names = delete::<MutatingWebhookConfiguration>(client, is_other, dry_run).await?;
    names.extend(delete::<ValidatingWebhookConfiguration>(client, is_other, dry_run).await?);
    Ok(names)
}

fn is_other(found: &impl ResourceExt) -> bool {
    is_kai(found) && !object::WEBHOOKS.contains(&found.name_any().as_str())
}

/// Deletes unikai's configurations for which none of KAI's is stored (`kept`): once unikai has stopped, nothing answers them. Returns their names.
///
/// # Errors
/// When a request fails.
pub async fn delete_own(
    client: &Client,
    kept: Option<&BTreeMap<String, String>>,
    dry_run: bool,
) -> anyhow::Result<Vec<String>> {
    let stored = |key: &str| kept.is_some_and(|kept| kept.contains_key(key));
    let mutating = |found: &MutatingWebhookConfiguration| is_own(found) && !stored(&key(found));
    let validating = |found: &ValidatingWebhookConfiguration| is_own(found) && !stored(&key(found));
    let mut names = delete(client, mutating, dry_run).await?;
    names.extend(delete(client, validating, dry_run).await?);
    Ok(names)
}

/// Deletes the configurations of a kind to which this applies; returns their names.
async fn delete<K: Kept>(client: &Client, applies: impl Fn(&K) -> bool, dry_run: bool) -> anyhow::Result<Vec<String>> {
    let (api, params) = (Api::<K>::all(client.clone()), DeleteParams::default());
    let mut names = Vec::new();
    for found in all::<K>(client).await?.into_iter().filter(applies) {
        let name = found.name_any();
        if !dry_run {
            if_there("deleting a webhook configuration", api.delete(&name, &params)).await?;
        }
        names.push(name);
    }
    Ok(names)
}

/// The stored configurations.
pub struct Memory {
    api: Api<ConfigMap>,
}

impl Memory {
    /// In this namespace.
    pub fn new(client: &Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
        }
    }

    /// What is stored; `None`: nothing has been adopted.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn read(&self) -> anyhow::Result<Option<BTreeMap<String, String>>> {
        let map = if_there(
            "reading the saved webhook configurations",
            self.api.get(object::MIGRATION),
        )
        .await?;
        Ok(map.map(|map| map.data.unwrap_or_default()))
    }

    /// Stores KAI's configurations, unless they are stored already; returns the names of those stored now.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn keep(&self, client: &Client, dry_run: bool) -> anyhow::Result<Vec<String>> {
        let before = self.read().await?;
        let mut found = to_keep::<MutatingWebhookConfiguration>(client).await?;
        found.extend(to_keep::<ValidatingWebhookConfiguration>(client).await?);
        found.retain(|key, text| before.as_ref().and_then(|before| before.get(key)) != Some(text));
        let names = found
            .keys()
            .map(|key| key.split_once('.').map_or(key.as_str(), |(_, name)| name).to_owned());
        let names = names.collect();
        if dry_run || (before.is_some() && found.is_empty()) {
            return Ok(names);
        }
        if before.is_none() {
            let map: ConfigMap = serde_json::from_value(json!({
                "metadata": {"name": object::MIGRATION, "labels": {label::MANAGED_BY: object::OPERATOR}},
                "data": found,
            }))?;
            within(
                "saving KAI's webhook configurations",
                self.api.create(&PostParams::default(), &map),
            )
            .await?;
        } else {
            let patch = Patch::Merge(json!({"data": found}));
            let params = PatchParams::default();
            let patched = self.api.patch(object::MIGRATION, &params, &patch);
            within("saving KAI's webhook configurations", patched).await?;
        }
        Ok(names)
    }

    /// Stores one more text, beside the configurations.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn add(&self, key: &str, text: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"data": {key: text}}));
        let params = PatchParams::default();
        let patched = self.api.patch(object::MIGRATION, &params, &patch);
        within("saving what migrate back restores", patched).await.map(drop)
    }

    /// Deletes the ConfigMap.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn forget(&self) -> anyhow::Result<()> {
        let params = DeleteParams::default();
        let deleted = self.api.delete(object::MIGRATION, &params);
        if_there("deleting the saved webhook configurations", deleted)
            .await
            .map(drop)
    }
}

/// Restores a stored configuration; returns whether it differed. `key`: its key in the ConfigMap.
///
/// # Errors
/// When a request fails, or the text does not decode.
pub async fn put_back(client: &Client, key: &str, text: &str, dry_run: bool) -> anyhow::Result<bool> {
    if key.starts_with(MutatingWebhookConfiguration::PREFIX) {
        put::<MutatingWebhookConfiguration>(client, text, dry_run).await
    } else {
        put::<ValidatingWebhookConfiguration>(client, text, dry_run).await
    }
}

async fn put<K: Kept>(client: &Client, text: &str, dry_run: bool) -> anyhow::Result<bool> {
    let mut kept: K = serde_json::from_str(text)?;
    let (api, name) = (Api::<K>::all(client.clone()), kept.name_any());
    let there = if_there("reading a webhook configuration", api.get(&name)).await?;
    if there.as_ref().is_some_and(|there| says_the_same(there, &kept)) {
        return Ok(false);
    }
    if dry_run {
        return Ok(true);
    }
    match there {
        Some(there) => {
            kept.meta_mut().resource_version = there.resource_version();
            within(
                "restoring a webhook configuration",
                api.replace(&name, &PostParams::default(), &kept),
            )
            .await?;
        }
        None => {
            within(
                "restoring a webhook configuration",
                api.create(&PostParams::default(), &kept),
            )
            .await?;
        }
    }
    Ok(true)
}

/// Whether they are equal apart from fields that the API server sets.
fn says_the_same<K: Kept>(one: &K, other: &K) -> bool {
    let said = |object: &K| {
        let mut value = serde_json::to_value(object).unwrap_or_default();
        if let Some(members) = value.as_object_mut() {
            members.remove("metadata");
        }
        (value, object.labels().clone(), object.owner_references().to_vec())
    };
    said(one) == said(other) && said(one).0 != Value::Null
}
