//! Drops fields of a pod that are never read, such as commands of containers. They can be most of it, and take many times the memory of their text.

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, EnvFromSource, EnvVar, EphemeralContainer, Pod, PodSpec, VolumeMount,
};

use super::identity::{Role, role};
use crate::api::{QuantityMap, limits};

/// Drops what is never read of a pod that is within the limits on numbers already.
pub fn trim_pod(pod: &mut Pod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        let mut bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        while bytes > limits::ANNOTATION_BYTES_PER_POD {
            // The longest are dropped first; those that are read are short.
            let longest = annotations.iter().max_by_key(|(_, value)| value.len());
            let Some(longest) = longest.map(|(key, _)| key.clone()) else {
                break;
            };
            let gone = annotations.remove(&longest).unwrap_or_default();
            bytes -= longest.len() + gone.len();
        }
    }
    let is_reservation = role(pod) == Role::Reservation;
    if let Some(spec) = &mut pod.spec {
        trim_spec(spec);
    }
    if let Some(status) = &mut pod.status {
        (status.host_ip, status.host_ips, status.pod_ip, status.pod_ips) = (None, None, None, None);
        (status.ephemeral_container_statuses, status.observed_generation) = (None, None);
        (status.allocated_resources, status.resources) = (None, None);
        // The containers of a reservation pod say why it has no device.
        if !is_reservation {
            let spec = pod.spec.as_ref();
            let containers = spec.map(|spec| &*spec.containers).unwrap_or_default();
            let init_containers = spec
                .and_then(|spec| spec.init_containers.as_deref())
                .unwrap_or_default();
            trim_statuses(&mut status.container_statuses, containers);
            trim_statuses(&mut status.init_container_statuses, init_containers);
        }
    }
}

/// Of containers' statuses, the resources are read, if the containers are being resized.
fn trim_statuses(statuses: &mut Option<Vec<ContainerStatus>>, containers: &[Container]) {
    let is_resized = |status: &ContainerStatus| {
        let container = containers.iter().find(|container| container.name == status.name);
        let asked = container
            .and_then(|container| container.resources.as_ref()?.requests.as_ref())
            .filter(|asked| !asked.is_empty());
        let given = status
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref());
        let differs = |held: Option<&QuantityMap>| {
            held.filter(|held| !held.is_empty())
                .is_some_and(|held| Some(held) != asked)
        };
        differs(status.allocated_resources.as_ref()) || differs(given)
    };
    if !statuses.iter().flatten().any(is_resized) {
        *statuses = None;
    }
    for status in statuses.iter_mut().flatten() {
        *status = ContainerStatus {
            name: std::mem::take(&mut status.name),
            allocated_resources: status.allocated_resources.take(),
            resources: status.resources.take(),
            ..ContainerStatus::default()
        };
    }
}

fn trim_spec(spec: &mut PodSpec) {
    (spec.host_aliases, spec.image_pull_secrets, spec.readiness_gates) = (None, None, None);
    (spec.dns_config, spec.security_context, spec.os) = (None, None, None);
    (
        spec.automount_service_account_token,
        spec.dns_policy,
        spec.enable_service_links,
    ) = (None, None, None);
    (spec.host_ipc, spec.host_pid, spec.host_users) = (None, None, None);
    (spec.hostname, spec.hostname_override, spec.subdomain) = (None, None, None);
    (
        spec.service_account,
        spec.set_hostname_as_fqdn,
        spec.share_process_namespace,
    ) = (None, None, None);
    if let Some(gates) = &mut spec.scheduling_gates {
        gates.truncate(1);
        gates.shrink_to_fit();
    }
    let mut left = limits::CONFIG_MAP_REFERENCES_PER_POD;
    let containers = spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten());
    for container in containers {
        *container = Container {
            name: std::mem::take(&mut container.name),
            ports: container.ports.take(),
            resources: container.resources.take(),
            restart_policy: container.restart_policy.take(),
            env: variables(container.env.take(), &mut left),
            env_from: sources(container.env_from.take(), &mut left),
            volume_mounts: mounts(container.volume_mounts.take(), &mut left),
            ..Container::default()
        };
    }
    for container in spec.ephemeral_containers.iter_mut().flatten() {
        *container = EphemeralContainer {
            name: std::mem::take(&mut container.name),
            env: variables(container.env.take(), &mut left),
            env_from: sources(container.env_from.take(), &mut left),
            volume_mounts: mounts(container.volume_mounts.take(), &mut left),
            ..EphemeralContainer::default()
        };
    }
}

/// Those that a ConfigMap gives a value.
fn variables(all: Option<Vec<EnvVar>>, left: &mut usize) -> Option<Vec<EnvVar>> {
    let refers = |variable: &EnvVar| {
        let source = variable.value_from.as_ref();
        source.is_some_and(|source| source.config_map_key_ref.is_some())
    };
    some(all.into_iter().flatten().filter(refers), left)
}

fn sources(all: Option<Vec<EnvFromSource>>, left: &mut usize) -> Option<Vec<EnvFromSource>> {
    let refers = |source: &EnvFromSource| source.config_map_ref.is_some();
    some(all.into_iter().flatten().filter(refers), left)
}

/// By name: where to is not read.
fn mounts(all: Option<Vec<VolumeMount>>, left: &mut usize) -> Option<Vec<VolumeMount>> {
    let name = |mount: VolumeMount| VolumeMount {
        name: mount.name,
        ..VolumeMount::default()
    };
    some(all.into_iter().flatten().map(name), left)
}

/// As many as are left to the pod, in no more room than they need.
fn some<T>(all: impl Iterator<Item = T>, left: &mut usize) -> Option<Vec<T>> {
    let mut kept: Vec<T> = all.take(*left).collect();
    *left -= kept.len();
    kept.shrink_to_fit();
    (!kept.is_empty()).then_some(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"annotations": {"gpu-fraction": "0.5"}}, "spec": spec})).unwrap()
    }

    #[test]
    fn what_decides_on_nodes_and_config_maps_stays() {
        let reference = json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}});
        let container = json!({
            "name": "c", "ports": [{"containerPort": 1, "hostPort": 2}], "resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always",
            "env": [reference], "envFrom": [{"configMapRef": {"name": "n"}}], "volumeMounts": [{"name": "v", "mountPath": ""}]});
        let kept = pod(
            json!({"containers": [container], "nodeName": "n0", "schedulerName": "s", "schedulingGates": [{"name": "g"}]}),
        );
        let mut trimmed = kept.clone();
        trim_pod(&mut trimmed);
        assert_eq!(trimmed, kept);
    }

    #[test]
    fn statuses_of_containers_stay_during_a_resize() {
        let status = |allocated: &str| {
            let status = json!({"name": "c", "image": "i", "imageID": "x", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": allocated}}});
            let mut pod = pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}));
            pod.status = Some(
                serde_json::from_value(json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [status]}))
                    .unwrap(),
            );
            trim_pod(&mut pod);
            let status = pod.status.unwrap();
            assert_eq!((status.pod_ip, status.phase.as_deref()), (None, Some("Running")));
            status.container_statuses
        };
        assert_eq!(status("1"), None);
        let resized = status("2").unwrap();
        assert_eq!((&*resized[0].name, &*resized[0].image), ("c", ""));
        assert_eq!(resized[0].allocated_resources.as_ref().unwrap()["cpu"].0, "2");
    }

    #[test]
    fn what_takes_most_room_goes() {
        let many = |one: serde_json::Value| vec![one; 20_000];
        let reference = json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}});
        let lists = json!({
            "name": "c", "args": many(json!("")), "command": many(json!("")), "env": many(json!({"name": "A"})),
            "volumeMounts": many(json!({"name": "v", "mountPath": "/"})), "image": "x".repeat(100_000)});
        let referring = json!({"name": "d", "env": many(reference)});
        let mut large = pod(json!({
            "containers": [lists, referring], "initContainers": [lists], "ephemeralContainers": [lists], "hostAliases": many(json!({"ip": "1"}))}));
        let annotations = large.metadata.annotations.get_or_insert_default();
        annotations.extend((0..10).map(|at| (format!("a{at}"), "x".repeat(20_000))));
        trim_pod(&mut large);
        let text = serde_json::to_string(&large).unwrap();
        assert!(text.len() < 200_000, "{} bytes are left", text.len());
        assert!(large.metadata.annotations.unwrap().contains_key("gpu-fraction"));
    }
}
