//! The desired DaemonSet, and whether an existing one equals it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, EnvVar, EnvVarSource, HostPathVolumeSource, ObjectFieldSelector, PodSpec,
    PodTemplateSpec, ResourceRequirements, SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use serde_json::Value;

use crate::api::names::object::{NUMA_EXPORTER, NUMA_EXPORTER_NAMESPACE, OPERATOR};
use crate::api::names::{annotation, env, label, node_label};
use crate::api::{QuantityMap, duration};
use crate::components::{self, pods};
use crate::numa_exporter::kubelet;

/// Where the host's sysfs is in the container.
const SYSFS: &str = "/host/sys";

/// Settings of the exporter.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether the DaemonSet is wanted.
    pub on: bool,
    /// The nodes that it runs on.
    pub node_selector: BTreeMap<String, String>,
    /// The taints that it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Its affinity.
    pub affinity: Option<Affinity>,
    /// The priority of its pods.
    pub priority_class: Option<String>,
    /// What its container requests.
    pub requests: QuantityMap,
    /// Its limits.
    pub limits: QuantityMap,
    /// Whether its container gets a restricted security context; OpenShift sets its own.
    pub restricted: bool,
    /// Interval of requests to the kubelet.
    pub poll: Duration,
    /// Interval of comparisons of written annotations with those in the API server; zero: never.
    pub resync: Duration,
    /// The folder of the kubelet's socket.
    pub socket_folder: String,
    /// The socket.
    pub socket: String,
    /// Where the host's sysfs is.
    pub sysfs: String,
}

impl Default for Settings {
    fn default() -> Self {
        let amounts = |cpu: &str, memory: &str| {
            let amounts = [("cpu", cpu), ("memory", memory)];
            QuantityMap::from(amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))))
        };
        Self {
            on: false,
            node_selector: BTreeMap::from([(node_label::MEMORY_NUMA.to_owned(), "true".to_owned())]),
            tolerations: Vec::new(),
            affinity: None,
            priority_class: None,
            requests: amounts("50m", "64Mi"),
            limits: amounts("200m", "128Mi"),
            restricted: true,
            poll: Duration::from_secs(1),
            resync: Duration::from_secs(60),
            socket_folder: kubelet::FOLDER.to_owned(),
            socket: kubelet::SOCKET.to_owned(),
            sysfs: "/sys".to_owned(),
        }
    }
}

/// The DaemonSet, with the digest of its content.
#[must_use]
pub fn daemon_set(settings: &components::Settings, owner: Option<&OwnerReference>) -> DaemonSet {
    let exporter = &settings.numa_exporter;
    let labels = BTreeMap::from([(label::APP.to_owned(), NUMA_EXPORTER.to_owned())]);
    let mut managed = labels.clone();
    managed.insert(label::MANAGED_BY.to_owned(), OPERATOR.to_owned());
    let mut set = DaemonSet {
        metadata: ObjectMeta {
            name: Some(NUMA_EXPORTER.to_owned()),
            namespace: Some(NUMA_EXPORTER_NAMESPACE.to_owned()),
            labels: Some(managed),
            owner_references: owner.map(|owner| vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: Some(DaemonSetSpec {
            selector: LabelSelector {
                match_labels: Some(labels.clone()),
                match_expressions: None,
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    service_account_name: Some(NUMA_EXPORTER.to_owned()),
                    priority_class_name: exporter.priority_class.clone(),
                    node_selector: Some(exporter.node_selector.clone()),
                    tolerations: some(exporter.tolerations.clone()),
                    affinity: exporter.affinity.clone(),
                    image_pull_secrets: pods::pull_secrets(&settings.sharing.pull_secrets),
                    enable_service_links: Some(false),
                    security_context: Some(pods::default_seccomp()),
                    containers: vec![container(settings)],
                    volumes: Some(vec![
                        volume("pod-resources", &exporter.socket_folder),
                        volume("sys", &exporter.sysfs),
                    ]),
                    ..PodSpec::default()
                }),
            },
            ..DaemonSetSpec::default()
        }),
        status: None,
    };
    let text = serde_json::to_string(&set.spec).unwrap_or_default();
    let digest = pods::short_digest(&text);
    set.metadata.annotations = Some(BTreeMap::from([(annotation::DIGEST.to_owned(), digest)]));
    set
}

fn container(settings: &components::Settings) -> Container {
    let exporter = &settings.numa_exporter;
    let go = |span: Duration| duration::format_go(SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX));
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    let amounts = |amounts: &QuantityMap| (!amounts.is_empty()).then(|| amounts.clone().into_iter().collect());
    Container {
        name: NUMA_EXPORTER.to_owned(),
        image: Some(settings.sharing.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(vec![
            "numa-exporter".to_owned(),
            format!("--podresources-socket={}", exporter.socket),
            format!("--sysfs-root={SYSFS}"),
            format!("--poll-interval={}", go(exporter.poll)),
            format!("--drift-resync-interval={}", go(exporter.resync)),
        ]),
        env: Some(vec![EnvVar {
            name: env::NODE_NAME.to_owned(),
            value: None,
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    api_version: None,
                    field_path: "spec.nodeName".to_owned(),
                }),
                ..EnvVarSource::default()
            }),
        }]),
        resources: Some(ResourceRequirements {
            requests: amounts(&exporter.requests),
            limits: amounts(&exporter.limits),
            claims: None,
        }),
        // The kubelet's socket is owned by root.
        security_context: exporter.restricted.then(|| SecurityContext {
            run_as_user: Some(0),
            run_as_non_root: Some(false),
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                add: None,
                drop: Some(vec!["ALL".to_owned()]),
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![
            mount("pod-resources", &exporter.socket_folder),
            mount("sys", SYSFS),
        ]),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

fn volume(name: &str, path: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        host_path: Some(HostPathVolumeSource {
            path: path.to_owned(),
            type_: Some("Directory".to_owned()),
        }),
        ..Volume::default()
    }
}

fn some<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}

/// Whether we created it, or adopted it.
#[must_use]
pub fn is_ours(live: &DaemonSet) -> bool {
    let labels = live.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(label::MANAGED_BY))
        .map(String::as_str)
        == Some(OPERATOR)
}

/// Whether it equals the desired one: it was written from the same content, and none of that was changed since. Fields that the API server adds are ignored.
#[must_use]
pub fn is_right(live: &DaemonSet, wanted: &DaemonSet) -> bool {
    let value = |set: &DaemonSet| serde_json::to_value(set).unwrap_or_default();
    holds(&value(live), &value(wanted))
}

/// Whether `live` contains all fields and values of `wanted`.
fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| live.get(key).is_some_and(|live| holds(live, wanted))),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| holds(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

/// Whether an update can turn one into the other: the selector of a DaemonSet is immutable.
#[must_use]
pub fn may_become(live: &DaemonSet, wanted: &DaemonSet) -> bool {
    let selector = |set: &DaemonSet| set.spec.as_ref().map(|spec| spec.selector.clone());
    selector(live) == selector(wanted)
}

/// The desired object as an update of a live one: labels and annotations of other clients are kept.
#[must_use]
pub fn onto(mut wanted: DaemonSet, live: &DaemonSet) -> DaemonSet {
    let under = |live: Option<&BTreeMap<String, String>>, wanted: &mut Option<BTreeMap<String, String>>| {
        let mut all = live.cloned().unwrap_or_default();
        all.extend(wanted.take().unwrap_or_default());
        *wanted = Some(all);
    };
    under(live.metadata.labels.as_ref(), &mut wanted.metadata.labels);
    under(live.metadata.annotations.as_ref(), &mut wanted.metadata.annotations);
    wanted
        .metadata
        .resource_version
        .clone_from(&live.metadata.resource_version);
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> components::Settings {
        components::Settings::default()
    }

    /// As the API server holds it: with defaults, and what others added.
    fn stored(set: DaemonSet) -> DaemonSet {
        let mut live = set;
        live.metadata.uid = Some("a".to_owned());
        live.metadata.resource_version = Some("7".to_owned());
        live.metadata
            .labels
            .get_or_insert_default()
            .insert("theirs".to_owned(), "kept".to_owned());
        let spec = live.spec.as_mut().unwrap();
        spec.revision_history_limit = Some(10);
        let pod = spec.template.spec.as_mut().unwrap();
        pod.restart_policy = Some("Always".to_owned());
        pod.containers[0].env.as_mut().unwrap()[0]
            .value_from
            .as_mut()
            .unwrap()
            .field_ref
            .as_mut()
            .unwrap()
            .api_version = Some("v1".to_owned());
        live
    }

    #[test]
    fn fields_defaulted_by_the_api_server_are_no_difference() {
        let wanted = daemon_set(&settings(), None);
        assert!(is_right(&stored(wanted.clone()), &wanted));
    }

    #[test]
    fn changes_by_others_and_removed_settings_are_differences() {
        let mut asked = settings();
        asked.numa_exporter.priority_class = Some("high".to_owned());
        let live = stored(daemon_set(&asked, None));
        let wanted = daemon_set(&settings(), None);
        assert!(!is_right(&live, &wanted), "the class is no longer asked for");
        let mut changed = stored(wanted.clone());
        changed
            .spec
            .as_mut()
            .unwrap()
            .template
            .spec
            .as_mut()
            .unwrap()
            .containers[0]
            .image = Some("other".to_owned());
        assert!(!is_right(&changed, &wanted) && may_become(&changed, &wanted));
        let repaired = onto(wanted.clone(), &changed);
        assert!(is_right(&repaired, &wanted));
        assert_eq!(repaired.metadata.labels.unwrap()["theirs"], "kept");
        assert_eq!(repaired.metadata.resource_version.as_deref(), Some("7"));
        changed.spec.as_mut().unwrap().selector.match_labels = None;
        assert!(!may_become(&changed, &wanted));
    }
}
