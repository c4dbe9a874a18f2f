//! An owner of pods, reduced to what grouping reads. A pod without owners is its own workload.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DynamicObject;
use serde_json::Value;

use crate::api::limits;

/// An owner of pods, or a pod that is its own owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// API group; empty for the core group.
    pub group: String,
    /// API version without the group.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its owner references.
    pub owners: Vec<OwnerReference>,
    /// The whole object, for rules that count replicas; null if only the metadata is known.
    pub body: Value,
}

impl Workload {
    /// The workload of that kind with that metadata.
    #[must_use]
    pub fn new(api_version: &str, kind: &str, meta: &ObjectMeta) -> Self {
        let (group, version) = split_api_version(api_version);
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            labels: first(meta.labels.as_ref(), limits::LABELS_PER_POD),
            annotations: first(meta.annotations.as_ref(), limits::ANNOTATIONS_PER_POD),
            owners: meta.owner_references.clone().unwrap_or_default(),
            body: Value::Null,
        }
    }

    /// An object from the API server, without large fields that are never read.
    #[must_use]
    pub fn of_object(api_version: &str, kind: &str, mut object: DynamicObject) -> Self {
        object.metadata.managed_fields = None;
        let mut workload = Self::new(api_version, kind, &object.metadata);
        let built_in = matches!(&*workload.group, "" | "apps" | "batch");
        if let Some(template) = object.data.pointer_mut("/spec/template").filter(|_| built_in) {
            template.as_object_mut().map(|template| template.remove("spec"));
        }
        workload.body = serde_json::to_value(object).unwrap_or_default();
        workload
    }

    /// A pod as its own workload.
    #[must_use]
    pub fn of_pod(pod: &Pod) -> Self {
        Self::new("v1", "Pod", &pod.metadata)
    }

    /// The same without the object, which may be large.
    #[must_use]
    pub fn without_body(&self) -> Self {
        Self {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            owners: self.owners.clone(),
            body: Value::Null,
        }
    }

    /// `group/version`, or `version` in the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// An owner reference to it.
    #[must_use]
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            ..OwnerReference::default()
        }
    }

    /// The label's value, if there is one and it is not empty.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .get(key)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The annotation's value.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Inherits labels and annotations of the owner above for keys that it lacks.
    pub fn inherit(&mut self, above: &Self) {
        for (key, value) in &above.labels {
            self.labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for (key, value) in &above.annotations {
            self.annotations.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// The first entries, by key. Workloads have some dozens, and each of their pod groups inherits all of them.
fn first(entries: Option<&BTreeMap<String, String>>, most: usize) -> BTreeMap<String, String> {
    let first = entries.into_iter().flatten().take(most);
    first.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// `apps/v1` → (`apps`, `v1`); `v1` → (``, `v1`).
#[must_use]
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_with_thousands_of_labels_keeps_the_first() {
        let many: BTreeMap<_, _> = (0..10_000)
            .map(|at| (format!("key-{at:05}"), "value".to_owned()))
            .collect();
        let meta = ObjectMeta {
            labels: Some(many.clone()),
            annotations: Some(many),
            ..ObjectMeta::default()
        };
        let workload = Workload::new("batch/v1", "Job", &meta);
        let (labels, annotations) = (limits::LABELS_PER_POD, limits::ANNOTATIONS_PER_POD);
        assert_eq!(
            (workload.labels.len(), workload.annotations.len()),
            (labels, annotations)
        );
        assert_eq!(workload.label("key-00000"), Some("value"));
    }

    #[test]
    fn a_workload_without_its_body_is_otherwise_the_same() {
        let meta = ObjectMeta {
            name: Some("gang".to_owned()),
            uid: Some("1".to_owned()),
            labels: Some(BTreeMap::from([("team".to_owned(), "a".to_owned())])),
            ..ObjectMeta::default()
        };
        let bare = Workload::new("scheduler.grove.io/v1alpha1", "PodGang", &meta);
        let whole = Workload {
            body: serde_json::json!({"spec": {}}),
            ..bare.clone()
        };
        assert_eq!(whole.without_body(), bare);
    }
}
