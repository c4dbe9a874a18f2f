//! Which pod group a pod belongs to: who owns it, and what the rule for that kind of workload says. The grouper acts on the answer;
//! admission asks beforehand, for the queue. What is absent: any write, and what becomes of a pod group that exists.

pub mod owners;
pub mod rules;
pub mod workload;

use k8s_openapi::api::core::v1::Pod;

use crate::api::names::{annotation, third_party};
use crate::components::watches::Stores;
use rules::Cluster;

/// The cluster as the watches know it.
pub struct Known<'a> {
    /// What the watches saw.
    pub stores: &'a Stores,
    /// The label of a namespace that names the queue of its workloads.
    pub queue_label_key: &'a str,
}

impl Cluster for Known<'_> {
    fn has_priority_class(&self, name: &str) -> bool {
        self.stores.priority_classes.get("", name).is_some()
    }

    fn has_pod_group(&self, namespace: &str, name: &str) -> bool {
        self.stores.pod_groups.get(namespace, name).is_some()
    }

    fn namespace_queue(&self, namespace: &str) -> Option<String> {
        let namespace = self.stores.namespaces.get("", namespace)?;
        let label = namespace.metadata.labels.as_ref()?.get(self.queue_label_key)?;
        Some(label.clone()).filter(|queue| !queue.is_empty())
    }
}

/// The pod's own annotation keeps the grouper away.
pub fn left_alone(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(annotation::SKIP_POD_GROUPER))
        .is_some_and(|value| value == "true")
}

/// An ownerless pod names a group that is not the one it would get from us: somebody made that group for it.
pub fn names_foreign_group(pod: &Pod) -> bool {
    let meta = &pod.metadata;
    let own = format!(
        "pg-{}-{}",
        meta.name.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default()
    );
    let named = meta
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(annotation::POD_GROUP_NAME));
    named.is_some_and(|named| *named != own && !is_spark(pod, named))
}

/// Spark pods are named after their application.
fn is_spark(pod: &Pod, group: &str) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(third_party::SPARK_APP_SELECTOR))
        .is_some_and(|application| application == group)
}
