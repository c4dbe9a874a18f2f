//! `manifests/`: up to date, in step with the code's names, and granting no more than is needed.

mod chart;
mod flags;
mod monitoring;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use unikai::api::names::{object, priority_class};
use unikai::cli::{crds, manifests};

/// All files below a folder, by their paths in it.
fn tree(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in std::fs::read_dir(&current).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), text);
            }
        }
    }
    files
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

#[test]
fn the_folder_holds_what_the_binary_generates() {
    let generated = tempfile::tempdir().unwrap();
    let written = Command::new(env!("CARGO_BIN_EXE_unikai"))
        .args(["manifests", "--dir"])
        .arg(generated.path())
        .output()
        .unwrap();
    assert!(written.status.success());
    let (held, wanted) = (tree(&folder()), tree(generated.path()));
    let differ: BTreeSet<_> = held
        .keys()
        .chain(wanted.keys())
        .filter(|path| held.get(*path) != wanted.get(*path))
        .collect();
    assert!(
        differ.is_empty(),
        "run `cargo gen-manifests`, and delete what is left over: {differ:?}"
    );
    let plain: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some())
        .collect();
    assert_eq!(
        plain.len(),
        manifests::files("any").len(),
        "what `kubectl apply -f manifests/` takes"
    );
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]));
    objects
}

fn read(text: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .filter(|document| !document.is_null())
        .collect()
}

/// What a program prints, if there is that program.
fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        eprintln!("no {program}: not tried");
        return None;
    };
    assert!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn kustomize_makes_the_same_objects_and_components_add_theirs() {
    let base = folder();
    let Some(objects) = printed("kubectl", &["kustomize", base.to_str().unwrap()]) else {
        return;
    };
    let plain: Vec<Value> = manifests::files(manifests::DEFAULT_IMAGE)
        .iter()
        .flat_map(|(_, text)| read(text))
        .collect();
    assert_eq!(sorted(read(&objects)), sorted(plain.clone()));

    // kustomize takes bases beside or above the file that names them, and by relative paths only.
    let own = tempfile::tempdir().unwrap();
    for (path, text) in tree(&base) {
        let path = own.path().join("manifests").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let folders = [
        "gpu-sharing",
        "config-maps",
        "kai-services",
        "monitoring",
        "network-policy",
        "numa-exporter",
        "two-replicas",
    ];
    let components: String = folders.iter().map(|name| format!("- manifests/{name}\n")).collect();
    let text = format!("resources:\n- manifests\ncomponents:\n{components}");
    std::fs::write(own.path().join("kustomization.yaml"), text).unwrap();
    let all = read(&printed("kubectl", &["kustomize", own.path().to_str().unwrap()]).unwrap());
    let added: usize = folders
        .iter()
        .flat_map(|folder| tree(&base.join(folder)))
        .filter(|(path, _)| path.extension().is_some())
        .map(|(_, text)| read(&text).len())
        .sum();
    assert_eq!(all.len(), plain.len() + added);
    let deployment = all.iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    for name in ["UNIKAI_GPU_SHARING", "UNIKAI_CONFIG_MAPS"] {
        let set = env.as_array().unwrap().iter().find(|one| one["name"] == name);
        assert_eq!(set.unwrap()["value"], "true");
    }
}

#[test]
fn definitions_are_those_of_crds() {
    let in_manifests: Vec<_> = manifests::files("any")
        .into_iter()
        .filter(|(name, _)| name.starts_with("10-"))
        .collect();
    let in_crds: Vec<_> = crds::files()
        .into_iter()
        .map(|(name, text)| (format!("10-{name}"), text))
        .collect();
    assert_eq!(in_manifests, in_crds);
}

#[test]
fn every_object_fits_into_the_annotation_of_kubectl_apply() {
    let largest = documents()
        .iter()
        .map(|document| document.to_string().len())
        .max()
        .unwrap();
    assert!(largest < 200 * 1024, "{largest} bytes; kubectl can apply up to 262144");
}

#[test]
fn manifests_are_in_the_order_of_dependencies() {
    let kinds: Vec<String> = documents()
        .iter()
        .map(|document| document["kind"].as_str().unwrap().to_owned())
        .collect();
    let mut order = kinds.clone();
    order.dedup();
    insta::assert_snapshot!(order.join("\n"));
}

#[test]
fn the_image_can_be_named() {
    let files = manifests::files("registry.example.com/unikai@sha256:0123");
    assert!(
        files
            .iter()
            .any(|(_, text)| text.contains("image: registry.example.com/unikai@sha256:0123\n"))
    );
    assert!(files.iter().all(|(_, text)| !text.contains("${")));
}

#[test]
fn names_in_the_manifests_are_those_of_the_code() {
    let namespaces: Vec<_> = all::<Namespace>("Namespace")
        .into_iter()
        .map(|namespace| namespace.metadata.name.unwrap())
        .collect();
    assert_eq!(
        namespaces,
        [
            object::NAMESPACE,
            object::RESERVATION_NAMESPACE,
            object::SCALE_ADJUST_NAMESPACE
        ]
    );

    let classes: BTreeMap<_, _> = all::<PriorityClass>("PriorityClass")
        .into_iter()
        .map(|class| (class.metadata.name.unwrap(), class.value))
        .collect();
    assert_eq!(
        classes,
        [
            (priority_class::TRAIN, 50),
            ("build-preemptible", 75),
            (priority_class::BUILD, 100),
            (priority_class::INFERENCE, 125),
            (priority_class::RESERVATION, 1_000_000_000),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    );
    let workloads: BTreeMap<_, _> = classes
        .into_iter()
        .filter(|(name, _)| name != priority_class::RESERVATION)
        .collect();
    assert_eq!(
        workloads,
        priority_class::INSTALLED
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    );

    let named: BTreeSet<_> = cluster_role("unikai")
        .into_iter()
        .flat_map(|rule| rule.resource_names.unwrap_or_default())
        .collect();
    assert_eq!(
        named,
        [
            object::MUTATING_WEBHOOK,
            object::VALIDATING_WEBHOOK,
            object::QUEUE_WEBHOOK,
            object::POD_GROUP_WEBHOOK,
            // The role itself.
            object::OPERATOR,
        ]
        .map(str::to_owned)
        .into()
    );
    let secrets: Vec<_> = role("unikai", object::NAMESPACE)
        .into_iter()
        .flat_map(|rule| rule.resource_names.unwrap_or_default())
        .collect();
    assert_eq!(secrets, [object::WEBHOOK_SECRET]);

    let aggregated: Vec<_> = all::<ClusterRole>("ClusterRole")
        .into_iter()
        .filter(|role| {
            role.metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key("unikai.dev/aggregate-to-owners"))
        })
        .map(|role| role.metadata.name.unwrap())
        .collect();
    assert_eq!(aggregated, ["unikai-owners-known"]);
}

#[test]
fn the_service_finds_the_pods_and_their_ports() {
    let deployment = one::<Deployment>("Deployment");
    let template = deployment.spec.as_ref().unwrap().template.clone();
    let labels = template.metadata.unwrap().labels.unwrap();
    let ports: BTreeMap<String, i32> = template.spec.unwrap().containers[0]
        .ports
        .iter()
        .flatten()
        .map(|port| (port.name.clone().unwrap(), port.container_port))
        .collect();
    assert_eq!(ports, [("http".to_owned(), 8080), ("webhook".to_owned(), 9443)].into());

    let service = one::<Service>("Service");
    assert_eq!(service.metadata.name.as_deref(), Some(object::OPERATOR));
    let spec = service.spec.unwrap();
    assert!(
        spec.selector
            .unwrap()
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    );
    for port in spec.ports.unwrap() {
        let Some(IntOrString::String(target)) = port.target_port else {
            panic!("{port:?}");
        };
        assert!(ports.contains_key(&target), "{target}");
    }
    let topology_key = deployment
        .spec
        .unwrap()
        .template
        .spec
        .unwrap()
        .affinity
        .unwrap()
        .pod_anti_affinity
        .unwrap();
    let terms = topology_key
        .preferred_during_scheduling_ignored_during_execution
        .unwrap();
    assert_eq!(terms[0].pod_affinity_term.topology_key, "kubernetes.io/hostname");
}

/// Pod Security Admission's restricted profile, as far as a pod without volumes can break it.
#[test]
fn the_pod_is_restricted() {
    let pod = one::<Deployment>("Deployment").spec.unwrap().template.spec.unwrap();
    assert_eq!(
        (pod.host_network, pod.host_pid, pod.host_ipc, pod.volumes),
        (None, None, None, None)
    );
    let security = pod.security_context.unwrap();
    assert_eq!(security.run_as_non_root, Some(true));
    // OpenShift refuses a user that is not of the namespace's range.
    assert_eq!((security.run_as_user, security.run_as_group), (None, None));
    assert_eq!(security.seccomp_profile.unwrap().type_, "RuntimeDefault");
    for container in pod.containers {
        let security = container.security_context.unwrap();
        assert_eq!(security.allow_privilege_escalation, Some(false));
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert_eq!(security.capabilities.unwrap().drop.unwrap(), ["ALL"]);
        let limits = container.resources.unwrap().limits.unwrap();
        assert_eq!(
            limits.keys().collect::<Vec<_>>(),
            ["memory"],
            "a CPU limit slows scheduling down"
        );
    }
}

#[test]
fn the_cluster_role_has_few_rights() {
    let everything = [
        cluster_role("unikai"),
        cluster_role("unikai-owners-known"),
        cluster_role("unikai-gpu-sharing"),
        role("unikai", object::NAMESPACE),
        role("unikai", object::RESERVATION_NAMESPACE),
        role(object::RESERVATION_SERVICE_ACCOUNT, object::RESERVATION_NAMESPACE),
    ]
    .concat();
    for rule in &everything {
        let texts = [&rule.api_groups, &rule.resources, &rule.non_resource_urls]
            .into_iter()
            .flatten()
            .flatten()
            .chain(&rule.verbs);
        for text in texts {
            assert!(!text.contains('*'), "a wildcard in {rule:?}");
        }
        assert!(
            !rule
                .verbs
                .iter()
                .any(|verb| ["escalate", "bind", "impersonate", "deletecollection"].contains(&&**verb)),
            "{rule:?}"
        );
    }
    assert!(
        cluster_role("unikai-owners-known")
            .iter()
            .all(|rule| rule.verbs == ["get"]),
        "owners are only read"
    );

    let writes: BTreeSet<String> = [cluster_role("unikai"), cluster_role("unikai-gpu-sharing")]
        .concat()
        .iter()
        .flat_map(|rule| {
            let verbs = rule
                .verbs
                .iter()
                .filter(|verb| !["get", "list", "watch"].contains(&&***verb))
                .cloned()
                .collect::<Vec<_>>();
            let names = rule
                .resource_names
                .as_ref()
                .map(|names| format!(" {names:?}"))
                .unwrap_or_default();
            let resources = rule.resources.clone().unwrap_or_default();
            resources
                .into_iter()
                .filter(|_| !verbs.is_empty())
                .map(|resource| format!("{resource}: {}{names}", verbs.join(" ")))
                .collect::<Vec<_>>()
        })
        .collect();
    insta::assert_snapshot!(writes.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn secrets_are_out_of_reach_of_the_cluster_role() {
    let roles = ["unikai", "unikai-owners-known", "unikai-gpu-sharing"];
    for rule in roles.map(cluster_role).concat() {
        for resource in rule.resources.unwrap_or_default() {
            assert!(
                !["secrets", "serviceaccounts", "deployments/scale"].contains(&&*resource),
                "{resource}"
            );
            // Written for containers with a part of a GPU, never read.
            let reads = rule
                .verbs
                .iter()
                .any(|verb| ["get", "list", "watch"].contains(&&**verb));
            assert!(resource != "configmaps" || !reads, "{:?}", rule.verbs);
        }
    }
}

fn documents() -> Vec<Value> {
    [manifests::files(manifests::DEFAULT_IMAGE), manifests::gpu_sharing()]
        .concat()
        .iter()
        .flat_map(|(_, text)| serde_yaml_ng::Deserializer::from_str(text))
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// All objects of a kind, read strictly: what the type does not know is a mistake in the manifest.
fn all<K: DeserializeOwned + serde::Serialize>(kind: &str) -> Vec<K> {
    documents()
        .into_iter()
        .filter(|document| document["kind"] == kind)
        .map(|document| {
            let typed: K = serde_json::from_value(document.clone()).unwrap();
            let written = serde_json::to_value(&typed).unwrap();
            assert_eq!(
                without_empty_rules(written),
                document,
                "a field that {kind} does not have"
            );
            typed
        })
        .collect()
}

/// An aggregated role is written without rules, since the API server fills them in.
fn without_empty_rules(mut document: Value) -> Value {
    if document["rules"] == json!([]) {
        document.as_object_mut().unwrap().remove("rules");
    }
    document
}

fn one<K: DeserializeOwned + serde::Serialize>(kind: &str) -> K {
    let mut objects = all(kind);
    assert_eq!(objects.len(), 1, "{kind}");
    objects.remove(0)
}

fn cluster_role(name: &str) -> Vec<PolicyRule> {
    let role = all::<ClusterRole>("ClusterRole")
        .into_iter()
        .find(|role| role.metadata.name.as_deref() == Some(name));
    role.unwrap().rules.unwrap_or_default()
}

fn role(name: &str, namespace: &str) -> Vec<PolicyRule> {
    let wanted = (Some(name), Some(namespace));
    let role = all::<Role>("Role")
        .into_iter()
        .find(|role| (role.metadata.name.as_deref(), role.metadata.namespace.as_deref()) == wanted);
    role.unwrap().rules.unwrap_or_default()
}

/// A file of `manifests/monitoring/`, which not every cluster can take.
fn monitoring(name: &str) -> Value {
    let path = format!("{}/manifests/monitoring/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_yaml_ng::from_str(&text).unwrap()
}

/// Every text under a key, wherever it is.
fn texts_under<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|value| texts_under(value, key, found));
        }
        Value::Array(items) => items.iter().for_each(|value| texts_under(value, key, found)),
        _ => {}
    }
}

#[test]
fn the_service_monitor_finds_the_service_and_its_port() {
    let monitor = monitoring("service-monitor");
    let service = one::<Service>("Service");
    let labels = service.metadata.labels.unwrap();
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(
        wanted
            .iter()
            .all(|(key, value)| labels.get(key).is_some_and(|own| value == own))
    );
    let ports = service.spec.unwrap().ports.unwrap();
    let port = monitor["spec"]["endpoints"][0]["port"].as_str();
    assert!(ports.iter().any(|own| own.name.as_deref() == port));
    for object in [&monitor, &monitoring("alerts")] {
        assert_eq!(
            object["metadata"]["labels"]["kai.scheduler/accounting"], "true",
            "what KAI's Prometheus selects"
        );
    }
}

#[test]
fn a_prometheus_that_follows_annotations_scrapes_the_operator_once() {
    let texts = ["40-operator.yaml", "kai-services/services.yaml"];
    let files = tree(&folder());
    let scraped: Vec<_> = texts
        .iter()
        .flat_map(|name| read(&files[Path::new(name)]))
        .filter(|object| object["metadata"]["annotations"]["prometheus.io/scrape"] == "true")
        .map(|object| object["metadata"]["name"].clone())
        .collect();
    assert_eq!(scraped, [object::OPERATOR]);
}

#[test]
fn listing_config_maps_requires_a_separate_manifest() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/config-maps/rbac.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let documents: Vec<Value> = documents
        .map(|document| Value::deserialize(document).unwrap())
        .collect();
    let [role, binding] = &*documents else {
        panic!("{documents:?}")
    };
    let listing = |rules: &[PolicyRule]| -> Vec<PolicyRule> {
        let of_config_maps = |rule: &&PolicyRule| rule.resources.iter().flatten().any(|one| one == "configmaps");
        let lists = |rule: &&PolicyRule| rule.verbs.iter().any(|verb| verb == "list" || verb == "watch");
        rules.iter().filter(of_config_maps).filter(lists).cloned().collect()
    };
    assert_eq!(listing(&cluster_role("unikai")), []);
    let role: ClusterRole = serde_json::from_value(role.clone()).unwrap();
    assert_eq!(listing(&role.rules.unwrap())[0].verbs, ["list", "watch"]);
    let ours = all::<ClusterRoleBinding>("ClusterRoleBinding")
        .into_iter()
        .find(|binding| binding.role_ref.name == "unikai");
    let apart: ClusterRoleBinding = serde_json::from_value(binding.clone()).unwrap();
    assert_eq!(apart.subjects, ours.unwrap().subjects);
    assert_eq!(apart.role_ref.name, role.metadata.name.unwrap());
}

#[test]
fn rights_of_gpu_sharing_are_in_its_own_manifest() {
    let (base, sharing) = (manifests::files(manifests::DEFAULT_IMAGE), manifests::gpu_sharing());
    let count = |files: &[(String, String)], is_it: fn(&Value) -> bool| {
        let objects = files.iter().flat_map(|(_, text)| read(text));
        objects.filter(is_it).count()
    };
    let config_maps_of_all: fn(&Value) -> bool = |object| {
        let rules = object["rules"].as_array().into_iter().flatten();
        let mut resources = rules.flat_map(|rule| rule["resources"].as_array().into_iter().flatten());
        object["kind"] == "ClusterRole" && resources.any(|resource| resource == "configmaps")
    };
    let reservations: fn(&Value) -> bool = |object| {
        let metadata = &object["metadata"];
        let is_namespace = object["kind"] == "Namespace" && metadata["name"] == object::RESERVATION_NAMESPACE;
        is_namespace || metadata["namespace"] == object::RESERVATION_NAMESPACE
    };
    for is_it in [config_maps_of_all, reservations] {
        assert_eq!(count(&base, is_it), 0);
        assert!(count(&sharing, is_it) > 0);
    }
}

#[test]
fn renewals_of_the_lease_have_a_priority_level_of_their_own() {
    let schemas = all::<FlowSchema>("FlowSchema");
    let spec = |name: &str| {
        let schema = schemas
            .iter()
            .find(|schema| schema.metadata.name.as_deref() == Some(name));
        schema.unwrap().spec.clone().unwrap()
    };
    let (renewals, rest) = (spec("unikai-leader-election"), spec("unikai"));
    assert_eq!(renewals.priority_level_configuration.name, "leader-election");
    assert_ne!(rest.priority_level_configuration.name, "leader-election");
    assert!(
        renewals.matching_precedence < rest.matching_precedence,
        "the first that matches counts"
    );
    for spec in [&renewals, &rest] {
        let subjects = spec.rules.iter().flatten().flat_map(|rule| &rule.subjects);
        let accounts: Vec<_> = subjects
            .filter_map(|subject| subject.service_account.as_ref())
            .map(|account| (account.name.as_str(), account.namespace.as_str()))
            .collect();
        assert_eq!(accounts, [("unikai", object::NAMESPACE)]);
    }
    let rules = renewals.rules.iter().flatten();
    let rules: Vec<_> = rules.flat_map(|rule| rule.resource_rules.iter().flatten()).collect();
    let [rule] = &rules[..] else { panic!("{rules:?}") };
    assert_eq!(rule.resources, ["leases"]);
    assert_eq!(rule.verbs, ["*"]);
    assert_eq!(rule.namespaces, Some(vec![object::NAMESPACE.to_owned()]));
}

#[test]
fn the_network_policy_restricts_only_the_webhook_port() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/manifests/network-policy/network-policy.yaml"
    );
    let document: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let policy: NetworkPolicy = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(
        serde_json::to_value(&policy).unwrap(),
        document,
        "a field that there is not"
    );
    let template = one::<Deployment>("Deployment").spec.unwrap().template;
    let spec = policy.spec.unwrap();
    assert_eq!(
        spec.pod_selector.unwrap().match_labels,
        template.metadata.unwrap().labels,
        "the operator's pods"
    );
    let ports = template.spec.unwrap().containers.remove(0).ports.unwrap();
    let names: Vec<_> = ports.into_iter().filter_map(|port| port.name).collect();
    let rules = spec.ingress.unwrap();
    let to_all = |name: &str| {
        let port = Some(IntOrString::String(name.to_owned()));
        let about = |rule: &&NetworkPolicyIngressRule| rule.ports.iter().flatten().any(|one| one.port == port);
        let about: Vec<_> = rules.iter().filter(about).collect();
        assert_eq!(about.len(), 1, "{name}");
        about[0].from.is_none()
    };
    let open: Vec<_> = names.iter().map(|name| (name.as_str(), to_all(name))).collect();
    assert_eq!(open, [("http", true), ("webhook", false)]);
}

/// Rights that no journey uses and that are needed all the same, by group, resource and verb, and for what.
const BEYOND_THE_JOURNEYS: [(&str, &str); 12] = [
    (" events patch", "an event that is told again"),
    (
        "resource.k8s.io resourceclaims delete",
        "a bind that fails after its claim was made",
    ),
    (
        "resource.k8s.io resourceclaims/binding patch",
        "API servers that ask for it beside the status",
    ),
    ("run.ai kartas get", "workloads of kinds that only a Karta describes"),
    ("run.ai kartas list", "the same"),
    (" configmaps delete", "a bind to a part of a GPU that fails"),
    (" configmaps patch", "a ConfigMap of the name that is there already"),
    (" configmaps get", "priorities by kind of workload"),
    (" configmaps create", "what queues have used, where no GPUs are shared"),
    (" secrets update", "the next certificate, after two months"),
    (
        "admissionregistration.k8s.io mutatingwebhookconfigurations delete",
        "API servers that ask for it when an owner is added",
    ),
    (
        "admissionregistration.k8s.io validatingwebhookconfigurations delete",
        "the same",
    ),
];

/// The rules of `manifests/numa-exporter/`: of the exporter, and of the operator for it.
fn of_the_exporter() -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let text = manifests::numa_exporter().remove(0).1;
    let rules = |kind: &str| {
        let found = read(&text)
            .into_iter()
            .find(|document| document["kind"] == kind)
            .unwrap();
        serde_json::from_value(found["rules"].clone()).unwrap()
    };
    (rules("ClusterRole"), rules("Role"))
}

#[test]
fn names_of_the_numa_exporter_are_those_of_the_code() {
    let documents = read(&manifests::numa_exporter().remove(0).1);
    let named = |kind: &str| -> Vec<&str> {
        let of_kind = documents.iter().filter(|document| document["kind"] == kind);
        of_kind
            .filter_map(|document| document["metadata"]["name"].as_str())
            .collect()
    };
    assert_eq!(named("Namespace"), [object::NUMA_EXPORTER_NAMESPACE]);
    assert_eq!(named("ServiceAccount"), [object::NUMA_EXPORTER]);
    // Not KAI's `kai-numa-placement-exporter`, which would be overwritten.
    assert_eq!(named("ClusterRole"), ["unikai-numa-exporter"]);
    assert_eq!(named("ClusterRoleBinding"), ["unikai-numa-exporter"]);
    let names: Vec<_> = of_the_exporter()
        .1
        .into_iter()
        .filter_map(|rule| rule.resource_names)
        .flatten()
        .collect();
    assert_eq!(names, [object::NUMA_EXPORTER]);
    let account = format!(
        "system:serviceaccount:{}:{}",
        object::NUMA_EXPORTER_NAMESPACE,
        object::NUMA_EXPORTER
    );
    for (name, text) in manifests::files("any").into_iter().chain(manifests::numa_exporter()) {
        let knows = name.contains("policies") || name.contains("numa-exporter");
        assert_eq!(text.contains(&account), knows, "{name}");
    }
}

/// All rights that the manifests give the operator: role, group, resource, verb.
fn granted() -> BTreeSet<[String; 4]> {
    let roles = [
        ("ClusterRole unikai", cluster_role("unikai")),
        ("ClusterRole unikai-gpu-sharing", cluster_role("unikai-gpu-sharing")),
        ("Role kai-scheduler/unikai", role("unikai", object::NAMESPACE)),
        (
            "Role kai-resource-reservation/unikai",
            role("unikai", object::RESERVATION_NAMESPACE),
        ),
        (
            "Role kai-scale-adjust/unikai",
            role("unikai", object::SCALE_ADJUST_NAMESPACE),
        ),
    ];
    let exporter = of_the_exporter();
    let roles = roles.into_iter().chain([
        ("ClusterRole unikai-numa-exporter", exporter.0),
        ("Role kai-numa-exporter/unikai", exporter.1),
    ]);
    let mut granted = BTreeSet::new();
    for (name, rules) in roles {
        for rule in rules {
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        granted.insert([name, group, resource, verb].map(str::to_owned));
                    }
                }
            }
        }
    }
    granted
}

/// Runs after the journeys, which write down what they used: see `.ci/run`. That they want nothing else, each of them asserts itself.
#[test]
#[ignore = "needs the rights that all journeys used, in the folder that UNIKAI_RIGHTS names"]
fn every_granted_right_is_used_by_a_test() {
    let folder = std::env::var_os(crate::operator::lab::RIGHTS).expect("UNIKAI_RIGHTS");
    let files = std::fs::read_dir(folder).expect("journeys have run");
    let mut used = BTreeSet::new();
    for file in files {
        for line in std::fs::read_to_string(file.unwrap().path()).unwrap().lines() {
            let fields: Vec<_> = line.split('\t').map(str::to_owned).collect();
            used.insert(<[String; 4]>::try_from(fields).unwrap());
        }
    }
    let known = |right: &&[String; 4]| {
        let [_, group, resource, verb] = right;
        let right = format!("{group} {resource} {verb}");
        BEYOND_THE_JOURNEYS.iter().any(|(beyond, _)| *beyond == right)
    };
    let needless: Vec<_> = granted()
        .difference(&used)
        .filter(|right| !known(right))
        .cloned()
        .collect();
    assert!(needless.is_empty(), "{needless:#?}");
}
