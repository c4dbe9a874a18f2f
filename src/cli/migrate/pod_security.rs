//! The pod security labels of the namespace. unikai's manifests enforce `restricted` there, by which KAI's pods are refused, so `adopt` records the labels
//! of before, and `back` restores them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::{if_there, within};
use crate::api::names::object;

/// The key of the record in the ConfigMap.
pub const RECORD: &str = "pod-security";

const PREFIX: &str = "pod-security.kubernetes.io/";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// The level in unikai's manifest, and the label that says whose manifest it is.
const RESTRICTED: &str = "restricted";
const APP: &str = "app.kubernetes.io/name";

type Labels = BTreeMap<String, String>;

/// What is to be recorded of the namespace; `None`: its labels are those of unikai's manifest already.
///
/// # Errors
/// When a request fails.
pub async fn to_keep(client: &Client, namespace: &str) -> anyhow::Result<Option<String>> {
    let labels = labels(client, namespace).await?;
    record(&labels)
        .map(|kept| Ok(serde_json::to_string(&kept)?))
        .transpose()
}

/// Restores the recorded labels; returns whether they differed.
///
/// # Errors
/// When a request fails, or the record does not decode.
pub async fn put_back(client: &Client, namespace: &str, record: Option<&str>, dry_run: bool) -> anyhow::Result<bool> {
    let record = record.map(serde_json::from_str).transpose()?;
    let changes = changes(&labels(client, namespace).await?, record.as_ref());
    if changes.is_empty() || dry_run {
        return Ok(!changes.is_empty());
    }
    let api = Api::<Namespace>::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": changes}}));
    let params = PatchParams::default();
    let patched = api.patch(namespace, &params, &patch);
    within("restoring the labels of the namespace", patched).await?;
    Ok(true)
}

async fn labels(client: &Client, namespace: &str) -> anyhow::Result<Labels> {
    let api = Api::<Namespace>::all(client.clone());
    let found = if_there("reading the namespace", api.get(namespace)).await?;
    Ok(found.and_then(|found| found.metadata.labels).unwrap_or_default())
}

/// The pod security labels, unless unikai's manifest set them: what they were before is not known then.
fn record(labels: &Labels) -> Option<Labels> {
    let is = |key: &str, value: &str| labels.get(key).is_some_and(|given| given == value);
    if is(APP, object::OPERATOR) && is(ENFORCE, RESTRICTED) {
        return None;
    }
    let kept = labels.iter().filter(|(key, _)| key.starts_with(PREFIX));
    Some(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// The labels to set, and those to remove, which have no value. Without a record the level that unikai's manifest enforces is removed: pods are admitted
/// as in a namespace without labels.
fn changes(labels: &Labels, record: Option<&Labels>) -> BTreeMap<String, Option<String>> {
    let Some(record) = record else {
        let enforced = labels.get(ENFORCE).filter(|level| *level == RESTRICTED);
        return enforced.map(|_| (ENFORCE.to_owned(), None)).into_iter().collect();
    };
    let missing = record.iter().filter(|(key, value)| labels.get(*key) != Some(*value));
    let missing = missing.map(|(key, value)| (key.clone(), Some(value.clone())));
    let added = labels
        .keys()
        .filter(|key| key.starts_with(PREFIX) && !record.contains_key(*key));
    missing.chain(added.map(|key| (key.clone(), None))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    /// Those of unikai's manifest.
    fn unikais() -> Labels {
        let namespaces = &crate::cli::manifests::files("any")[0].1;
        let namespace: Namespace = serde_yaml_ng::from_str(namespaces).expect("a namespace");
        namespace.metadata.labels.expect("labels")
    }

    #[test]
    fn labels_of_the_namespace_are_restored_as_they_were_recorded() {
        let kais = labels_of([("name", "kai-scheduler"), (ENFORCE, "privileged")]);
        let kept = record(&kais).expect("a record");
        assert_eq!(kept, labels_of([(ENFORCE, "privileged")]));
        let changes = changes(&unikais(), Some(&kept));
        let removed = |label: &str| (format!("{PREFIX}{label}"), None);
        let expected = [
            removed("audit"),
            (ENFORCE.to_owned(), Some("privileged".to_owned())),
            removed("warn"),
        ];
        assert_eq!(changes, expected.into());
        assert!(super::changes(&kais, Some(&kept)).is_empty(), "nothing is left to do");
    }

    #[test]
    fn labels_that_were_absent_are_removed() {
        let kept = record(&labels_of([("name", "kai-scheduler")])).expect("a record");
        let changes = changes(&unikais(), Some(&kept));
        assert!(
            changes.len() == 3 && changes.values().all(Option::is_none),
            "{changes:?}"
        );
    }

    #[test]
    fn labels_of_unikais_manifest_are_not_recorded_and_without_a_record_none_is_enforced() {
        assert_eq!(record(&unikais()), None);
        assert_eq!(changes(&unikais(), None), [(ENFORCE.to_owned(), None)].into());
        let own_choice = labels_of([(ENFORCE, "baseline")]);
        assert!(changes(&own_choice, None).is_empty(), "not unikai's");
    }
}
