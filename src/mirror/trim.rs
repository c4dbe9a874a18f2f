//! Drops fields of a pod that are never read, such as commands of containers. They can be most of the pod, and take many times the memory of their text.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, ContainerState, ContainerStatus, EnvFromSource, EnvVar, EphemeralContainer, Pod,
    PodCondition, PodSpec, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::api::names::{annotation, condition, object};
use crate::api::{QuantityMap, limits};

/// Types of the pod conditions that are read; one that a reader needs is added here.
const READ_CONDITIONS: [&str; 5] = [
    condition::POD_SCHEDULED,
    condition::POD_BOUND,
    condition::BOUND_IN_POD_GROUP,
    condition::POD_READY,
    condition::POD_RESIZE_PENDING,
];

/// Whether a type of pod conditions is read.
pub fn reads_condition(name: &str) -> bool {
    READ_CONDITIONS.contains(&name)
}

/// Whether a pod has the container of a reservation pod, so that the records of users in its annotations are exempt from the limits. Namespace and service
/// account, which tenants cannot fake, are not known where pods are read. This is harmless: on other pods these records are removed before any component
/// gets the pod (`components::watches`), and until then they take no more memory than the text of the pod, which Kubernetes limits.
pub fn keeps_user_records(pod: &Pod) -> bool {
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.any(|container| container.name == object::RESERVATION_CONTAINER)
}

/// Whether an annotation records a user of the GPU that a reservation pod holds.
pub fn is_user_record(key: &str) -> bool {
    key.starts_with(annotation::GPU_USER_PREFIX)
}

/// Drops fields that are never read. The pod is within the limits of `bounds` already.
pub fn trim_pod(pod: &mut Pod) {
    let reserves = keeps_user_records(pod);
    let meta = &mut pod.metadata;
    (meta.finalizers, meta.generate_name, meta.generation) = (None, None, None);
    meta.deletion_grace_period_seconds = None;
    if let Some(annotations) = &mut meta.annotations {
        trim_others(annotations, |key| reserves && is_user_record(key));
    }
    trim_owners(&mut meta.owner_references);
    if let Some(spec) = &mut pod.spec {
        trim_spec(spec);
    }
    if let Some(status) = &mut pod.status {
        (status.host_ip, status.host_ips, status.pod_ip, status.pod_ips) = (None, None, None, None);
        (status.ephemeral_container_statuses, status.observed_generation) = (None, None);
        (status.allocated_resources, status.resources, status.resize) = (None, None, None);
        (status.start_time, status.extended_resource_claim_status) = (None, None);
        trim_conditions(&mut status.conditions);
        let spec = pod.spec.as_ref();
        let containers = spec.map(|spec| &*spec.containers).unwrap_or_default();
        for text in [&mut status.reason, &mut status.message] {
            *text = text.take().filter(|_| reserves);
            text.iter_mut()
                .for_each(|text| cut(text, limits::CONTAINER_MESSAGE_BYTES));
        }
        let init_containers = spec
            .and_then(|spec| spec.init_containers.as_deref())
            .unwrap_or_default();
        trim_statuses(&mut status.container_statuses, containers);
        trim_statuses(&mut status.init_container_statuses, init_containers);
    }
}

/// Drops the longest annotations until the limit is met. Those that are read are short.
pub fn trim_annotations(annotations: &mut BTreeMap<String, String>) {
    trim_others(annotations, |_| false);
}

/// [`trim_annotations`], except for some that stay and do not count.
fn trim_others(annotations: &mut BTreeMap<String, String>, stays: impl Fn(&str) -> bool) {
    let counted = annotations.iter().filter(|(key, _)| !stays(key));
    let mut bytes: usize = counted.map(|(key, value)| key.len() + value.len()).sum();
    if bytes <= limits::ANNOTATION_BYTES_PER_POD {
        return;
    }
    let mut by_length: Vec<(usize, String)> = annotations
        .iter()
        .filter(|(key, _)| !stays(key))
        .map(|(key, value)| (value.len(), key.clone()))
        .collect();
    by_length.sort_unstable();
    while bytes > limits::ANNOTATION_BYTES_PER_POD
        && let Some((length, key)) = by_length.pop()
    {
        annotations.remove(&key);
        bytes -= key.len() + length;
    }
}

/// Keeps the controller and some other owners. Names that are too long for any object are cut, but stay invalid.
fn trim_owners(owners: &mut Option<Vec<OwnerReference>>) {
    let Some(owners) = owners else { return };
    if owners.len() > limits::OWNERS_PER_POD {
        owners.sort_by_key(|owner| owner.controller != Some(true));
        owners.truncate(limits::OWNERS_PER_POD);
        owners.shrink_to_fit();
    }
    for owner in owners {
        for name in [&mut owner.api_version, &mut owner.kind, &mut owner.name, &mut owner.uid] {
            cut(name, limits::OWNER_NAME_BYTES);
        }
    }
}

/// Keeps the conditions that are read: kubelets and controllers change others often.
fn trim_conditions(conditions: &mut Option<Vec<PodCondition>>) {
    let Some(all) = conditions else { return };
    all.retain(|condition| reads_condition(&condition.type_));
    for condition in &mut *all {
        (condition.last_probe_time, condition.observed_generation) = (None, None);
    }
    all.shrink_to_fit();
    if all.is_empty() {
        *conditions = None;
    }
}

/// Keeps the resources in container statuses, and these only while containers are being resized. The state of a reservation pod's container is read too, like the
/// reason and message of its status: it says why the pod has no device.
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
    let reserves = |status: &ContainerStatus| status.name == object::RESERVATION_CONTAINER;
    if !statuses.iter().flatten().any(is_resized) {
        let reserving = statuses.take().into_iter().flatten().find(reserves);
        *statuses = reserving.map(|status| vec![status]);
    }
    for status in statuses.iter_mut().flatten() {
        let (state, last_state) = if reserves(status) {
            (status.state.take(), status.last_state.take())
        } else {
            (None, None)
        };
        *status = ContainerStatus {
            state: state.map(trim_state),
            last_state: last_state.map(trim_state),
            name: std::mem::take(&mut status.name),
            allocated_resources: status.allocated_resources.take(),
            resources: status.resources.take(),
            ..ContainerStatus::default()
        };
    }
}

/// Cuts the texts. The kubelet does not write longer ones.
fn trim_state(mut state: ContainerState) -> ContainerState {
    let waiting = state
        .waiting
        .iter_mut()
        .flat_map(|waiting| [&mut waiting.reason, &mut waiting.message]);
    let terminated = state
        .terminated
        .iter_mut()
        .flat_map(|ended| [&mut ended.reason, &mut ended.message, &mut ended.container_id]);
    for text in waiting.chain(terminated).flatten() {
        cut(text, limits::CONTAINER_MESSAGE_BYTES);
    }
    state
}

fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.shrink_to_fit();
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
    (spec.active_deadline_seconds, spec.termination_grace_period_seconds) = (None, None);
    (spec.preemption_policy, spec.runtime_class_name, spec.workload_ref) = (None, None, None);
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
    for volume in spec.volumes.iter_mut().flatten() {
        trim_volume(volume, &mut left);
    }
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

/// Keeps the kind of a volume and the object that it names.
fn trim_volume(volume: &mut Volume, left: &mut usize) {
    if let Some(map) = &mut volume.config_map {
        map.items = None;
    }
    if let Some(secret) = &mut volume.secret {
        secret.items = None;
    }
    if let Some(downward) = &mut volume.downward_api {
        downward.items = None;
    }
    if let Some(csi) = &mut volume.csi {
        csi.volume_attributes = None;
    }
    if let Some(flex) = &mut volume.flex_volume {
        flex.options = None;
    }
    if let Some(ephemeral) = &mut volume.ephemeral {
        ephemeral.volume_claim_template = None;
    }
    if let Some(projected) = &mut volume.projected {
        let maps = projected.sources.take().into_iter().flatten();
        let maps = maps.filter_map(|source| source.config_map);
        let named = maps.map(|map| VolumeProjection {
            config_map: Some(ConfigMapProjection { items: None, ..map }),
            ..VolumeProjection::default()
        });
        projected.sources = some(named, left);
    }
}

/// Keeps the variables with values from ConfigMaps.
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

/// Keeps the volumes' names, without paths.
fn mounts(all: Option<Vec<VolumeMount>>, left: &mut usize) -> Option<Vec<VolumeMount>> {
    let name = |mount: VolumeMount| VolumeMount {
        name: mount.name,
        ..VolumeMount::default()
    };
    some(all.into_iter().flatten().map(name), left)
}

/// Keeps as many as `left` allows, and shrinks the list to its length.
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
    use crate::mirror::Entry as _;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"annotations": {"gpu-fraction": "0.5"}}, "spec": spec})).unwrap()
    }

    #[test]
    fn fields_about_nodes_and_config_maps_are_kept() {
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
    fn only_conditions_that_are_read_stay() {
        let at = "2026-01-01T00:00:00Z";
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": at, "lastTransitionTime": at, "observedGeneration": 2});
        let with = |kinds: &[&str]| {
            let mut pod = pod(json!({"containers": []}));
            let conditions: Vec<_> = kinds.iter().map(|kind| condition(kind)).collect();
            pod.status = Some(
                serde_json::from_value(json!({"phase": "Running", "startTime": at, "conditions": conditions})).unwrap(),
            );
            trim_pod(&mut pod);
            serde_json::to_value(pod.status.unwrap()).unwrap()
        };
        let kept = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]);
        let all = ["Initialized", "PodScheduled", "ContainersReady", "example.com/gate"];
        assert_eq!(with(&all), json!({"phase": "Running", "conditions": kept}));
        assert_eq!(with(&["Initialized"]), json!({"phase": "Running"}));
    }

    #[test]
    fn of_statuses_only_the_state_of_a_reservation_container_stays_and_its_texts_are_cut() {
        let status = |name: &str| {
            json!({"name": name, "image": "i", "imageID": "x", "ready": false, "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m".repeat(100_000)}},
                "lastState": {"terminated": {"exitCode": 1, "message": "it lost its GPU"}}})
        };
        let names = ["resource-reservation", "resource-reservation", "main"];
        let mut pod = pod(json!({"containers": names.map(|name| json!({"name": name}))}));
        pod.status = Some(serde_json::from_value(json!({"containerStatuses": names.map(status)})).unwrap());
        trim_pod(&mut pod);
        let kept = pod.status.unwrap().container_statuses.unwrap();
        assert_eq!(
            (kept.len(), &*kept[0].name, &*kept[0].image),
            (1, "resource-reservation", "")
        );
        let waiting = kept[0].state.as_ref().unwrap().waiting.as_ref().unwrap();
        let ended = kept[0].last_state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
        assert_eq!(waiting.message.as_ref().unwrap().len(), limits::CONTAINER_MESSAGE_BYTES);
        assert_eq!(ended.message.as_deref(), Some("it lost its GPU"));
    }

    #[test]
    fn why_a_pod_ended_stays_for_reservation_pods_only() {
        let read = |container: &str| {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": container}]},
                "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "m".repeat(100_000)}});
            let mut pod = Pod::read(&pod.to_string()).unwrap();
            trim_pod(&mut pod);
            let status = pod.status.unwrap();
            (status.reason, status.message.map(|message| message.len()))
        };
        let kept = (
            Some("UnexpectedAdmissionError".to_owned()),
            Some(limits::CONTAINER_MESSAGE_BYTES),
        );
        assert_eq!(read("resource-reservation"), kept);
        assert_eq!(read("main"), (None, None));
    }

    #[test]
    fn the_records_of_users_stay_on_reservation_pods_only_and_do_not_count() {
        let kept = |container: &str| {
            let mut pod = pod(json!({"containers": [{"name": container}]}));
            let annotations = pod.metadata.annotations.get_or_insert_default();
            let record = |at: usize| (format!("{}{at}", annotation::GPU_USER_PREFIX), "x".repeat(2_000));
            annotations.extend((0..100).map(record));
            annotations.insert("long".to_owned(), "x".repeat(limits::ANNOTATION_BYTES_PER_POD));
            trim_pod(&mut pod);
            let (records, others): (Vec<_>, Vec<_>) = pod
                .metadata
                .annotations
                .unwrap()
                .into_keys()
                .partition(|key| is_user_record(key));
            assert_eq!(others, ["gpu-fraction"], "they do not stay in place of others");
            records.len()
        };
        assert_eq!(kept("resource-reservation"), 100);
        assert!(kept("main") < 33);
    }

    #[test]
    fn only_used_fields_of_owners_and_volumes_are_kept() {
        let owner = |name: String, controller: bool| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": controller});
        let mut owners: Vec<_> = (0..20_000).map(|at| owner(at.to_string(), false)).collect();
        owners.push(owner("n".repeat(100_000), true));
        let items = json!(vec![json!({"key": "k", "path": "p"}); 1_000]);
        let volumes = json!([
            {"name": "map", "configMap": {"name": "m", "items": items}}, {"name": "secret", "secret": {"secretName": "s", "items": items}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "csi", "csi": {"driver": "d", "volumeAttributes": {"a": "x".repeat(100_000)}}},
            {"name": "all", "projected": {"sources": [{"configMap": {"name": "n", "optional": true, "items": items}}, {"secret": {"items": items}}]}},
        ]);
        let mut large = pod(json!({"containers": [], "volumes": volumes}));
        large.metadata.owner_references = serde_json::from_value(json!(owners)).unwrap();
        trim_pod(&mut large);
        let owners = large.metadata.owner_references.unwrap();
        assert_eq!(
            (owners.len(), owners[0].controller),
            (limits::OWNERS_PER_POD, Some(true))
        );
        assert_eq!(
            (owners[0].name.len(), &*owners[1].name),
            (limits::OWNER_NAME_BYTES, "0")
        );
        let kept = json!([
            {"name": "map", "configMap": {"name": "m"}}, {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "own", "ephemeral": {}},
            {"name": "csi", "csi": {"driver": "d"}}, {"name": "all", "projected": {"sources": [{"configMap": {"name": "n", "optional": true}}]}},
        ]);
        assert_eq!(serde_json::to_value(large.spec.unwrap().volumes).unwrap(), kept);
    }

    #[test]
    fn the_largest_fields_are_removed() {
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
