//! Reservation pods: each requests one whole GPU from the device plugin, reports its UUID, and holds it for the pods that share it.
//! Their specification, and how one is read. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodSpec, ResourceRequirements,
    Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;

use crate::api::QuantityMap;
use crate::api::names::{annotation, env, label, object, priority_class, resource};
use crate::components::fractions::users::{self, Users};
use crate::components::pods::{Account, OwnPods, Role};
use crate::components::{fractions, pods};

/// Waiting reasons that do not resolve themselves.
const STUCK_REASONS: [&str; 7] = [
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// The name of the reservation pod of a group on a node, the same in every process and release.
#[must_use]
pub fn name(node: &str, group: &str) -> String {
    let hex = pods::short_digest(&format!("{node}/{group}"));
    format!("{}{hex}", object::RESERVATION_POD_PREFIX)
}

/// The reservation pod of a group on a node, with its first users and that service account.
#[must_use]
pub fn pod(
    node: &str,
    group: &str,
    tolerations: Vec<Toleration>,
    users: &Users,
    settings: &fractions::Settings,
    account: &Account,
) -> Pod {
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    };
    let stays = (annotation::KARPENTER_DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    let named = users.iter().map(|(uid, user)| users::annotation(uid, user));
    let annotations = std::iter::once(stays).chain(named);
    // Nothing beside the GPU unless it is configured: a pod is placed before the reservation pod of its GPU exists, so it may fill the node, and the
    // kubelet would refuse a reservation pod that requests more.
    let amounts = |given: &QuantityMap| {
        let mut amounts = given.clone();
        amounts.retain(|name, _| !resource::WHOLE_GPUS.contains(&name.as_str()));
        amounts.insert(resource::NVIDIA_GPU.to_owned(), Quantity("1".to_owned()));
        Some(amounts)
    };
    // Where only one is given, requests equal limits, so that the pod is evicted or OOM-killed last.
    let limits = if settings.limits.is_empty() {
        &settings.requests
    } else {
        &settings.limits
    };
    let requests = if settings.requests.is_empty() {
        limits
    } else {
        &settings.requests
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(name(node, group)),
            namespace: Some(account.namespace.clone()),
            labels: Some(BTreeMap::from([
                (label::APP.to_owned(), settings.app_label.clone()),
                (label::GPU_GROUP.to_owned(), group.to_owned()),
            ])),
            annotations: Some(annotations.collect()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(node.to_owned()),
            service_account_name: Some(account.name.clone()),
            runtime_class_name: settings.runtime_class.clone(),
            priority_class_name: Some(priority_class::RESERVATION.to_owned()),
            security_context: Some(settings.pod_security.clone().unwrap_or_else(pods::default_seccomp)),
            image_pull_secrets: pods::pull_secrets(&settings.pull_secrets),
            tolerations: (!tolerations.is_empty()).then_some(tolerations),
            containers: vec![Container {
                name: object::RESERVATION_CONTAINER.to_owned(),
                image: Some(settings.image.clone()),
                image_pull_policy: Some("IfNotPresent".to_owned()),
                args: Some(vec!["reserve".to_owned()]),
                env: Some(vec![
                    field(env::POD_NAME, "metadata.name"),
                    field(env::POD_NAMESPACE, "metadata.namespace"),
                ]),
                resources: Some(ResourceRequirements {
                    requests: amounts(requests),
                    limits: amounts(limits),
                    claims: None,
                }),
                security_context: Some(
                    settings
                        .container_security
                        .clone()
                        .unwrap_or_else(pods::without_privileges),
                ),
                termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// Whether a pod reserves a GPU.
#[must_use]
pub fn is_reservation_pod(pod: &Pod, own: &OwnPods) -> bool {
    own.role(pod) == Role::Reservation
        && pod
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(label::GPU_GROUP))
}

/// The UUID of the GPU that a reservation pod holds.
#[must_use]
pub fn device(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations
        .get(annotation::RESERVED_GPU)
        .map(String::as_str)
        .filter(|device| !device.is_empty())
}

/// Why a reservation pod will not get a GPU, or lost it.
#[must_use]
pub fn error(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    if pods::is_finished(pod) {
        let (reason, message) = status.map(|s| (text(&s.reason), text(&s.message))).unwrap_or_default();
        return Some(
            format!("it has ended: {} {reason} {message}", pods::phase(pod))
                .trim_end()
                .to_owned(),
        );
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let containers = containers.unwrap_or_default();
    if device(pod).is_some() {
        return containers.iter().find_map(other_device);
    }
    containers.iter().find_map(|container: &ContainerStatus| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting
            .reason
            .as_deref()
            .filter(|reason| STUCK_REASONS.contains(reason))?;
        let ended = container
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let said = ended
            .and_then(|ended| ended.message.as_deref())
            .or(waiting.message.as_deref());
        Some(
            format!("{reason}: {}", said.unwrap_or_default().trim())
                .trim_end_matches([':', ' '])
                .to_owned(),
        )
    })
}

/// The termination message of a container that was restarted and got another GPU.
fn other_device(container: &ContainerStatus) -> Option<String> {
    let (state, last) = (container.state.as_ref(), container.last_state.as_ref());
    let running = state.is_some_and(|state| state.running.is_some());
    let mut ended = state
        .into_iter()
        .chain(last)
        .filter_map(|state| state.terminated.as_ref());
    let said = ended.find_map(|ended| {
        let message = ended.message.as_deref()?;
        let said = message.get(message.find(fractions::OTHER_DEVICE)?..)?;
        Some(said.trim().to_owned())
    });
    said.filter(|_| !running)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_name_is_a_function_of_node_and_group() {
        assert_eq!(name("node-1", "gpu-group"), "gpu-reservation-4e9da835aeef818e");
        assert_eq!(
            name("gpu-node-7", "3f0c1c1e-6f5a-4c0e-9b0a-2f6d1b7e8a11"),
            "gpu-reservation-565765cd1c89dd70"
        );
    }

    /// The requests and limits of a reservation pod, with these settings for both.
    fn amounts(requests: serde_json::Value, limits: serde_json::Value) -> [serde_json::Value; 2] {
        let settings = fractions::Settings {
            requests: serde_json::from_value(requests).unwrap(),
            limits: serde_json::from_value(limits).unwrap(),
            ..fractions::Settings::default()
        };
        let account = OwnPods::default().reservation;
        let pod = pod("n1", "g", Vec::new(), &Users::default(), &settings, &account);
        let resources = pod.spec.unwrap().containers.remove(0).resources.unwrap();
        [json!(resources.requests), json!(resources.limits)]
    }

    #[test]
    fn a_reservation_pod_requests_one_gpu_and_nothing_else() {
        let usual = json!({"nvidia.com/gpu": "1"});
        assert_eq!(amounts(json!({}), json!({})), [usual.clone(), usual]);
    }

    #[test]
    fn given_requests_are_limits_too_and_given_limits_requests() {
        let (little, much) = (json!({"cpu": "1"}), json!({"cpu": "2"}));
        let [one, two] = ["1", "2"].map(|cpu| json!({"nvidia.com/gpu": "1", "cpu": cpu}));
        assert_eq!(amounts(little.clone(), json!({})), [one.clone(), one.clone()]);
        assert_eq!(amounts(json!({}), much.clone()), [two.clone(), two.clone()]);
        assert_eq!(amounts(little, much), [one, two]);
    }

    #[test]
    fn settings_cannot_make_it_request_other_gpus() {
        let [requests, _] = amounts(
            json!({"cpu": "1", "nvidia.com/gpu": "4", "amd.com/gpu": "1"}),
            json!({}),
        );
        assert_eq!(requests, json!({"nvidia.com/gpu": "1", "cpu": "1"}));
    }

    #[test]
    fn it_tolerates_what_it_is_told_to() {
        let tolerations = |given: Vec<Toleration>| {
            let pod = pod(
                "n1",
                "g",
                given,
                &Users::default(),
                &fractions::Settings::default(),
                &OwnPods::default().reservation,
            );
            pod.spec.unwrap().tolerations
        };
        assert_eq!(tolerations(Vec::new()), None);
        let any = Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        };
        assert_eq!(tolerations(vec![any.clone()]), Some(vec![any]));
    }

    #[test]
    fn a_pod_that_is_being_deleted_holds_nothing() {
        let leaving =
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}});
        let why = error(&serde_json::from_value(leaving).unwrap());
        assert_eq!(why.as_deref(), Some("it is being deleted"));
    }

    #[test]
    fn the_reason_why_a_reservation_pod_cannot_start_is_reported() {
        let read = |status: serde_json::Value| error(&serde_json::from_value(json!({"status": status})).unwrap());
        assert_eq!(read(json!({"phase": "Pending"})), None);
        let waiting = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "found 2 devices, 1 was expected\n"}}}]});
        let other = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "Error: the container has another GPU than before: GPU-a\n"}}}]});
        let reserved = json!({"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "GPU-a"}}, "status": other});
        assert_eq!(
            error(&serde_json::from_value(reserved).unwrap()).unwrap(),
            "the container has another GPU than before: GPU-a"
        );
        assert_eq!(
            read(waiting).unwrap(),
            "CrashLoopBackOff: found 2 devices, 1 was expected"
        );
        let refused = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"});
        assert_eq!(
            read(refused).unwrap(),
            "it has ended: Failed UnexpectedAdmissionError no devices"
        );
    }
}
