//! Pods that name a queue, or whose namespace does, and another scheduler: probably a mistake, reported once to their owners. Pure.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};

use crate::components::{Settings, pods};

/// Pods of one namespace that are reported while they exist; more would add nothing.
const TOLD_PER_NAMESPACE: usize = 64;
/// A bound pod is reported only up to this age, in seconds.
const YOUNG: i64 = 300;

/// The reported pods, by namespace and UID.
#[derive(Debug, Default)]
pub struct OtherSchedulers {
    told: HashMap<String, HashSet<String>>,
}

impl OtherSchedulers {
    /// What to report to the owner of a pod.
    pub fn message(
        &mut self,
        pod: &Pod,
        namespace: Option<&Namespace>,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<String> {
        let message = message(pod, namespace, settings, now)?;
        let meta = &pod.metadata;
        let told = self.told.entry(meta.namespace.clone()?).or_default();
        (told.len() < TOLD_PER_NAMESPACE && told.insert(meta.uid.clone()?)).then_some(message)
    }

    /// The pod was deleted.
    pub fn forget(&mut self, pod: &Pod) {
        let meta = &pod.metadata;
        let (Some(namespace), Some(uid)) = (&meta.namespace, &meta.uid) else {
            return;
        };
        if let Some(told) = self.told.get_mut(namespace) {
            told.remove(uid);
            if told.is_empty() {
                self.told.remove(namespace);
            }
        }
    }
}

fn message(pod: &Pod, namespace: Option<&Namespace>, settings: &Settings, now: Timestamp) -> Option<String> {
    if pods::is_ours(pod, settings)
        || pods::is_finished(pod)
        || pod.metadata.deletion_timestamp.is_some()
        || settings.own_pods.role(pod) != pods::Role::Workload
        || is_of_a_node(pod)
    {
        return None;
    }
    let created = pod.metadata.creation_timestamp.as_ref();
    let age = created.map_or(0, |created| now.as_second() - created.0.as_second());
    if pods::is_bound(pod) && age > YOUNG {
        return None;
    }
    let key = &settings.queue_label_key;
    let own = pods::named_queue(pod.metadata.labels.as_ref(), key).map(|queue| (queue, "the pod"));
    let of_namespace = || pods::named_queue(namespace?.metadata.labels.as_ref(), key);
    let queue = own.or_else(|| Some((of_namespace()?, "its namespace")));
    let (queue, by) = queue?;
    let spec = pod.spec.as_ref()?;
    let other = spec.scheduler_name.as_deref().unwrap_or("default-scheduler");
    let ours = &settings.scheduler_name;
    Some(format!(
        "The pod is scheduled by {other}, not by {ours}, though {by} names queue {queue}; set spec.schedulerName: {ours}"
    ))
}

/// Of a DaemonSet, or created by a kubelet: it is bound to its node in any case.
fn is_of_a_node(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(others: &mut OtherSchedulers, pod: Value, namespace: Value) -> Option<String> {
        let (pod, namespace): (Pod, Namespace) = (
            serde_json::from_value(pod).unwrap(),
            serde_json::from_value(namespace).unwrap(),
        );
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        others.message(&pod, Some(&namespace), &Settings::default(), now)
    }

    fn pod(name: &str, scheduler: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"schedulerName": scheduler, "containers": []}})
    }

    #[test]
    fn a_pod_with_a_queue_and_another_scheduler_gets_one_event() {
        let mut others = OtherSchedulers::default();
        let queue = json!({"metadata": {"name": "team", "labels": {"kai.scheduler/queue": "research"}}});
        let says = told(&mut others, pod("a", "default-scheduler"), queue.clone());
        assert_eq!(
            says.as_deref(),
            Some(
                "The pod is scheduled by default-scheduler, not by kai-scheduler, though its namespace names queue research; \
                 set spec.schedulerName: kai-scheduler"
            )
        );
        assert_eq!(told(&mut others, pod("a", "default-scheduler"), queue.clone()), None);
        let mut labelled = pod("b", "kai-schedular");
        labelled["metadata"]["labels"] = json!({"kai.scheduler/queue": "own"});
        let says = told(&mut others, labelled, json!({})).unwrap();
        assert!(says.starts_with(
            "The pod is scheduled by kai-schedular, not by kai-scheduler, though the pod names queue own"
        ));
    }

    #[test]
    fn correct_pods_get_no_event() {
        let mut others = OtherSchedulers::default();
        let queue = json!({"metadata": {"name": "team", "labels": {"kai.scheduler/queue": "research"}}});
        let mut right = vec![pod("a", "kai-scheduler")];
        for change in [
            json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]}}),
            json!({"status": {"phase": "Succeeded"}}),
            // It is too old to be reported.
            json!({"spec": {"nodeName": "n1"}}),
        ] {
            let mut other = pod("b", "default-scheduler");
            json_patch(&mut other, change);
            right.push(other);
        }
        for pod in right {
            assert_eq!(told(&mut others, pod.clone(), queue.clone()), None, "{pod}");
        }
        assert_eq!(
            told(&mut others, pod("c", "default-scheduler"), json!({})),
            None,
            "no queue is named"
        );
        assert!(others.told.is_empty());
    }

    fn json_patch(object: &mut Value, change: Value) {
        let (Value::Object(object), Value::Object(change)) = (object, change) else {
            panic!("no objects")
        };
        for (key, value) in change {
            let target = object.entry(key).or_insert(json!({}));
            for (key, value) in value.as_object().unwrap() {
                target[key.as_str()] = value.clone();
            }
        }
    }

    #[test]
    fn events_per_namespace_are_limited_and_records_expire() {
        let mut others = OtherSchedulers::default();
        let queue = json!({"metadata": {"name": "team", "labels": {"kai.scheduler/queue": "research"}}});
        let names: Vec<String> = (0..200).map(|number| format!("p{number}")).collect();
        let said = names
            .iter()
            .filter(|name| told(&mut others, pod(name, "default-scheduler"), queue.clone()).is_some());
        assert_eq!(said.count(), TOLD_PER_NAMESPACE);
        for name in &names {
            others.forget(&serde_json::from_value(pod(name, "x")).unwrap());
        }
        assert!(others.told.is_empty());
    }
}
