//! Which pod group a pod belongs to, by its owners and the rule for their kind. The grouper acts on the answer;
//! admission uses it for the queue. Absent: writes, and updates of existing pod groups.

pub mod counts;
pub mod defaults;
pub mod fields;
pub mod karta;
pub mod owners;
pub mod readable;
pub mod rules;
pub mod stated;
mod wanted;
pub mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tracing::warn;

use crate::api::PodGroup;
use crate::api::names::{annotation, third_party};
use crate::components::bus::GroupKey;
use crate::components::watches::Stores;
use crate::components::{Settings, pods};
use defaults::Defaults;
use karta::Karta;
use owners::{Chain, OwnerError, Owners};
use rules::{Cluster, Grouped, Input, KindName, Reference, RuleError};
use workload::Workload;

/// Pods with the labels that a rule asks for of which this many are read. A rule asks for the launcher of a job.
const SELECTED_MOST: usize = 256;
/// Objects that a rule may request; more means an endless loop.
const QUESTIONS_MAX: usize = 16;

/// The cluster as rules see it: watched objects, and owners that were read.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Watched objects.
    pub stores: &'a Stores,
    /// Owners and other objects that were read.
    pub owners: &'a Owners,
    /// The configuration.
    pub settings: &'a Settings,
}

impl Cluster for Known<'_> {
    fn has_priority_class(&self, name: &str) -> bool {
        self.stores.priority_classes.get("", name).is_some()
    }

    fn pod_group(&self, namespace: &str, name: &str) -> Option<Arc<PodGroup>> {
        self.stores.pod_groups.get(namespace, name)
    }

    fn namespace_queue(&self, namespace: &str) -> Option<String> {
        let namespace = self.stores.namespaces.get("", namespace)?;
        pods::named_queue(namespace.metadata.labels.as_ref(), &self.settings.queue_label_key).cloned()
    }

    fn pods(&self, namespace: &str, labels: &[(&str, &str)]) -> Vec<Arc<Pod>> {
        self.stores.pods.select(namespace, labels, SELECTED_MOST, |pod| {
            pods::is_ours(pod, self.settings) && carries(pod, labels)
        })
    }

    fn object(&self, wanted: &Reference) -> Result<Arc<Workload>, RuleError> {
        self.owners.object(wanted)
    }

    fn kartas(&self, kind: &KindName) -> Result<Arc<Vec<Karta>>, RuleError> {
        self.owners.kartas(kind)
    }

    fn defaults(&self) -> Result<Arc<Defaults>, RuleError> {
        self.owners.defaults()
    }
}

/// Whether the pod has all of these labels.
#[must_use]
pub fn carries(pod: &Pod, wanted: &[(&str, &str)]) -> bool {
    let labels = pod.metadata.labels.as_ref();
    wanted.iter().all(|(key, value)| {
        labels
            .and_then(|labels| labels.get(*key))
            .is_some_and(|found| found == value)
    })
}

/// The definitions among the objects that are valid and about the kind.
#[must_use]
pub fn valid_kartas(objects: impl Iterator<Item = Value>, kind: &KindName) -> Vec<Karta> {
    let read = |object: Value| match Karta::read(&object, kind) {
        Ok(karta) => karta,
        Err(reason) => {
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            warn!(name, reason, "Karta ignored");
            None
        }
    };
    objects.filter_map(read).collect()
}

/// The result for a pod.
#[derive(Clone, Debug)]
pub enum Found {
    /// Its group, and the owners that determined it.
    Group(Box<Grouped>, Vec<Arc<Workload>>),
    /// It is not grouped by us.
    Skipped,
}

/// Why a pod has no group.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Its owners are not known.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// Its workload is invalid.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl Known<'_> {
    /// The group of a pod, if everything that it depends on is cached: no request is sent.
    #[must_use]
    pub fn cached(&self, pod: &Pod) -> Option<Found> {
        match self.owners.cached(pod)? {
            Chain::OptedOut => Some(Found::Skipped),
            // See `resolve_stored`.
            Chain::Owned(_) if self.lacks_group(pod).is_some() => None,
            Chain::Owned(chain) => {
                let found = self.group(pod, chain).ok()?;
                let Found::Group(grouped, chain) = &found else {
                    return Some(found);
                };
                // A pod without a sub-group may belong to a new part of its owner: the owner is read again.
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                if grouped.may_find_place() && self.owners.invalidate(namespace, chain) {
                    return None;
                }
                Some(found)
            }
        }
    }

    /// The group of a pod; reads what is missing.
    ///
    /// # Errors
    /// If its owners are not found, or its workload is invalid. What was read is read again next time.
    pub async fn resolve(&self, pod: &Pod) -> Result<Found, Failed> {
        let chain = match self.owners.chain(pod).await? {
            Chain::OptedOut => return Ok(Found::Skipped),
            Chain::Owned(chain) => chain,
        };
        for _ in 0..QUESTIONS_MAX {
            match self.group(pod, chain.clone()) {
                Err(RuleError::Unknown(wanted)) => match self.owners.fetch(&wanted).await {
                    Ok(()) => {}
                    Err(error) => return self.refused(pod, &chain, error),
                },
                Err(error) => return self.refused(pod, &chain, error),
                Ok(found) => return Ok(found),
            }
        }
        self.refused(pod, &chain, RuleError::Workload("the rule asks without end".to_owned()))
    }

    /// The same for a pod that is stored: asks the API server for the pod group that a bound one names and the watch does not show. `anew`: its owners may have
    /// changed, so what is cached does not count.
    ///
    /// # Errors
    /// The same, and if there is no answer.
    pub async fn resolve_stored(&self, pod: &Pod, anew: bool) -> Result<Found, Failed> {
        let chain = if anew {
            self.owners.chain_anew(pod).await?
        } else {
            self.owners.chain(pod).await?
        };
        if matches!(chain, Chain::Owned(_))
            && let Some(group) = self.lacks_group(pod)
            && self.owners.has_pod_group(&group).await?
        {
            return Ok(Found::Skipped);
        }
        self.resolve(pod).await
    }

    /// The pod group of a bound pod without owners, made by another client, that the watch does not show. It is gone, or not shown yet. If it is gone the pod is
    /// grouped as one that names none.
    fn lacks_group(&self, pod: &Pod) -> Option<GroupKey> {
        if !pods::is_bound(pod) || !names_foreign_group(pod) {
            return None;
        }
        let group = pods::annotated_group(pod)?;
        let is_known = self.stores.pod_groups.contains(group.namespace(), group.name());
        (!is_known).then_some(group)
    }

    fn refused(&self, pod: &Pod, chain: &[Arc<Workload>], error: RuleError) -> Result<Found, Failed> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        self.owners.invalidate(namespace, chain);
        Err(error.into())
    }

    fn group(&self, pod: &Pod, chain: Vec<Arc<Workload>>) -> Result<Found, RuleError> {
        if names_foreign_group(pod) && self.lacks_group(pod).is_none() {
            return Ok(Found::Skipped);
        }
        let grouped = rules::group(&Input {
            pod,
            chain: &chain,
            settings: self.settings,
            cluster: self,
        })?;
        Ok(Found::Group(Box::new(grouped), chain))
    }
}

/// Whether the pod is one that we group: it names our scheduler, and it and its namespace carry the labels that the configuration
/// asks for.
#[must_use]
pub fn is_addressed(pod: &Pod, namespace: Option<&BTreeMap<String, String>>, settings: &Settings) -> bool {
    pods::is_ours(pod, settings)
        && has_all(pod.metadata.labels.as_ref(), &settings.pod_labels)
        && has_all(namespace, &settings.namespace_labels)
}

/// Whether all wanted labels are among the labels.
#[must_use]
pub fn has_all(labels: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> bool {
    let has = |key: &String, value: &String| labels.and_then(|labels| labels.get(key)) == Some(value);
    wanted.iter().all(|(key, value)| has(key, value))
}

/// The pod's annotation excludes it from grouping.
pub fn skips_grouping(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(annotation::SKIP_POD_GROUPER))
        .is_some_and(|value| value == "true")
}

/// A pod without owners names another group than the grouper's: the group was created for it by another client.
pub fn names_foreign_group(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.as_ref();
    if owners.is_some_and(|owners| !owners.is_empty()) {
        return false;
    }
    let Some(named) = pods::annotated_group(pod) else {
        return false;
    };
    let meta = &pod.metadata;
    let own = pods::default_group_name(
        meta.name.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default(),
    );
    named.name() != own && spark_application(pod) != Some(named.name())
}

/// The id of the Spark application of a pod, after which its group is named. Pods of Spark have both labels.
#[must_use]
pub fn spark_application(pod: &Pod) -> Option<&str> {
    let labels = pod.metadata.labels.as_ref()?;
    let application = labels.get(third_party::SPARK_APP_SELECTOR)?;
    labels
        .contains_key(third_party::SPARK_APP_NAME)
        .then_some(application.as_str())
}

#[cfg(test)]
mod tests;
