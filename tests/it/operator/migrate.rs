//! From KAI to unikai and back, with pods that run. KAI's objects are those that its operator makes; its processes are stand-ins that do nothing.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::api::{Config, PodGroup, Queue};
use unikai::devcluster::apiserver::Identity;
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, eventually, gang, phase, pod};

const NAMESPACE: &str = "kai-scheduler";
const SHARING: &[&str] = &["--gpu-sharing", "true"];
/// Name, and replicas.
const DEPLOYMENTS: [(&str, i32); 8] = [
    ("kai-operator", 1),
    ("kai-scheduler-default", 2),
    ("binder", 1),
    ("admission", 2),
    ("pod-grouper", 1),
    ("podgroup-controller", 1),
    ("queue-controller", 1),
    ("node-scale-adjuster", 1),
];

/// How `adopt` ends.
const REMOVING: &str = "KAI's objects stay for migrate back; do not remove them by helm uninstall, which deletes objects that unikai uses, but as in docs/migration.md, \"Removing KAI\"";
/// The mutating webhook configuration of KAI if `spec.admission.mutatingWebhookConfigurationName` of Config sets it.
const RENAMED: &str = "pods-of-the-platform";
/// Webhook configurations of unikai that this KAI does not have.
const LACKING: [&str; 2] = ["mutating-kai-admission", "kai-podgroup-validation-v2alpha2"];

/// Runs the command with the kubeconfig that kubectl would use.
async fn migrate(lab: &Lab, args: &[&str]) -> (bool, String) {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join(".kube");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("config"), lab.server.kubeconfig(&Identity::admin())).expect("a kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_unikai"));
    command.arg("migrate").args(args);
    command.env("HOME", home.path()).env_remove("KUBECONFIG");
    let run = tokio::task::spawn_blocking(move || command.output().expect("it runs"));
    let Output { status, stdout, stderr } = run.await.expect("it runs");
    let said = [stdout, stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    (status.success(), said)
}

/// A Deployment as KAI's operator makes it.
fn deployment(name: &str, replicas: i32) -> Value {
    let labels = if name == "kai-operator" {
        json!({"app": name})
    } else {
        json!({"app": name, "app.kubernetes.io/managed-by": "kai-operator"})
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": name, "image": format!("ghcr.io/kai-scheduler/kai-scheduler/{name}:v0.17.0"), "args": ["sleep", "infinity"]}],
            }},
        },
    })
}

fn webhook(name: &str, service: &str, group: &str, version: &str, resource: &str) -> Value {
    json!({
        "name": name, "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": service, "namespace": NAMESPACE, "path": "/somewhere"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [group], "apiVersions": [version], "resources": [resource], "scope": "*"}],
    })
}

async fn install_kai(lab: &Lab) {
    // What unikai has registered and put in force is not there yet.
    let (params, all) = (DeleteParams::default(), ListParams::default());
    for config in &Api::<MutatingWebhookConfiguration>::all(lab.client.clone())
        .list(&all)
        .await
        .unwrap()
    {
        Api::<MutatingWebhookConfiguration>::all(lab.client.clone())
            .delete(&config.name_any(), &params)
            .await
            .unwrap();
    }
    let validating = Api::<ValidatingWebhookConfiguration>::all(lab.client.clone());
    for config in &validating.list(&all).await.unwrap() {
        validating.delete(&config.name_any(), &params).await.unwrap();
    }
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(lab.client.clone());
    for binding in &bindings.list(&all).await.unwrap() {
        bindings.delete(&binding.name_any(), &params).await.unwrap();
    }
    // KAI's reservation pods do not say who uses them.
    let reservations = Api::<Pod>::namespaced(lab.client.clone(), "kai-resource-reservation");
    for reservation in lab.reservations().await {
        let users = reservation
            .annotations()
            .keys()
            .filter(|key| key.contains("unikai.dev"));
        let none: BTreeMap<_, _> = users.map(|key| (key.clone(), Value::Null)).collect();
        let patch = Patch::Merge(json!({"metadata": {"annotations": none}}));
        reservations
            .patch(&reservation.name_any(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    label_namespace(lab, &json!({"enforce": "baseline", "audit": null, "warn": null})).await;
    for (name, replicas) in DEPLOYMENTS {
        lab.create(deployment(name, replicas)).await.unwrap();
    }
    // The mutating one has another name, and there is none for pod groups.
    let admission = "admission.kai-scheduler.svc";
    for (name, hook) in [
        (
            "validating-kai-admission",
            webhook(admission, "admission", "", "v1", "pods"),
        ),
        (
            "kai-queue-validation-v2",
            webhook(
                "queue-validation.kai.scheduler",
                "queue-controller",
                "scheduling.run.ai",
                "v2",
                "queues",
            ),
        ),
    ] {
        lab.create(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name, "labels": {"app": "admission"}}, "webhooks": [hook],
        }))
        .await
        .unwrap();
    }
    let setting = Patch::Merge(json!({"spec": {"binder": {"maxConcurrentReconciles": 20}}}));
    let config = Api::<Config>::all(lab.client.clone())
        .patch("kai-config", &PatchParams::default(), &setting)
        .await
        .unwrap();
    let owner = json!({"apiVersion": "kai.scheduler/v1", "kind": "Config", "name": "kai-config", "uid": config.uid(), "controller": true});
    lab.create(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": RENAMED, "ownerReferences": [owner]},
        "webhooks": [webhook(admission, "admission", "", "v1", "pods")],
    }))
    .await
    .unwrap();
}

/// Sets or removes pod security labels of the namespace.
async fn label_namespace(lab: &Lab, levels: &Value) {
    let levels = levels.as_object().unwrap().iter();
    let labels: BTreeMap<_, _> = levels
        .map(|(mode, level)| (format!("pod-security.kubernetes.io/{mode}"), level))
        .collect();
    Api::<Namespace>::all(lab.client.clone())
        .patch(
            NAMESPACE,
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"labels": labels}})),
        )
        .await
        .unwrap();
}

async fn pod_security(lab: &Lab) -> Vec<String> {
    let namespace = Api::<Namespace>::all(lab.client.clone()).get(NAMESPACE).await.unwrap();
    let labels = namespace.labels().iter();
    labels
        .filter_map(|(key, level)| Some(format!("{}={level}", key.strip_prefix("pod-security.kubernetes.io/")?)))
        .collect()
}

/// How many replicas each is to have, and how many are noted.
async fn replicas(lab: &Lab) -> Vec<(String, Option<i32>, bool)> {
    let api = Api::<Deployment>::namespaced(lab.client.clone(), NAMESPACE);
    let all = api.list(&ListParams::default()).await.unwrap();
    let noted = |one: &Deployment| one.annotations().contains_key("unikai.dev/replicas-before-migration");
    let mut all: Vec<_> = all
        .iter()
        .map(|one| {
            (
                one.name_any(),
                one.spec.as_ref().and_then(|spec| spec.replicas),
                noted(one),
            )
        })
        .collect();
    all.sort();
    all
}

fn expected(now: impl Fn(i32) -> i32, noted: bool) -> Vec<(String, Option<i32>, bool)> {
    let mut all: Vec<_> = DEPLOYMENTS
        .iter()
        .map(|(name, replicas)| ((*name).to_owned(), Some(now(*replicas)), noted))
        .collect();
    all.sort();
    all
}

/// What is registered, without what the API server adds.
async fn registered(lab: &Lab) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for config in Api::<MutatingWebhookConfiguration>::all(lab.client.clone())
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        all.insert(config.name_any(), json!([config.labels(), config.webhooks]));
    }
    for config in Api::<ValidatingWebhookConfiguration>::all(lab.client.clone())
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        all.insert(config.name_any(), json!([config.labels(), config.webhooks]));
    }
    all
}

/// What must not change of the tenants' pods and of the reservation pods.
async fn pods(lab: &Lab) -> Vec<Value> {
    let mut all = lab.all_pods().await;
    all.extend(lab.reservations().await);
    let mut all: Vec<_> = all
        .iter()
        .map(|pod| {
            let started = pod
                .status
                .as_ref()
                .and_then(|status| status.start_time.as_ref())
                .map(|time| time.0.to_string());
            let restarts: Vec<_> = pod
                .status
                .iter()
                .flat_map(|status| status.container_statuses.iter().flatten())
                .map(|of| of.restart_count)
                .collect();
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let group = pod.labels().get("runai-gpu-group");
            json!([
                pod.name_any(),
                pod.uid(),
                node,
                group,
                phase(pod),
                started,
                restarts,
                pod.metadata.deletion_timestamp.is_some()
            ])
        })
        .collect();
    all.sort_by_key(ToString::to_string);
    all
}

/// Statuses, without when and how often something was said.
async fn statuses(lab: &Lab) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for group in Api::<PodGroup>::all(lab.client.clone())
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        all.insert(format!("group {}", group.name_any()), json!(group.status));
    }
    for queue in Api::<Queue>::all(lab.client.clone())
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        all.insert(format!("queue {}", queue.name_any()), json!(queue.status));
    }
    for status in all.values_mut() {
        for condition in status["schedulingConditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = json!(null);
            condition["transitionID"] = json!(null);
        }
    }
    all
}

async fn in_force(lab: &Lab) -> usize {
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(lab.client.clone());
    bindings.list(&ListParams::default()).await.unwrap().items.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_to_unikai_and_back_does_not_affect_running_pods() {
    // 160 whole GPUs and twenty that two pods share each; four are left, and the gangs ask for eight on each of two nodes.
    let lab = Lab::start((0..23).map(|node| NodeSpec::gpu(format!("n{node:02}"), 8)).collect()).await;
    let policies = in_force(&lab).await;
    let mut before = lab.replica_with("before", SHARING).await;
    before.leads().await;
    for index in 0..160 {
        lab.create(pod(&format!("whole-{index}"), 1)).await.unwrap();
    }
    for index in 0..40 {
        let mut shared = pod(&format!("shared-{index}"), 0);
        shared["metadata"]["annotations"] = json!({"gpu-fraction": "0.5"});
        lab.create(shared).await.unwrap();
    }
    lab.running(200).await;
    for index in 0..30 {
        lab.create(gang(&format!("gang-{index}"), 2, 8)).await.unwrap();
    }
    // Told in several writes.
    let mut last = BTreeMap::new();
    let mut since = Instant::now();
    eventually("all is said of the gangs, and nothing more comes", async || {
        let now = statuses(&lab).await;
        let told = |status: &Value| !status["schedulingConditions"].is_null() && !status["resourcesStatus"].is_null();
        let waiting = now.values().filter(|status| told(status)).count();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        let settled = waiting == 30 && since.elapsed() > Duration::from_secs(3);
        settled.then_some(()).ok_or_else(|| format!("{waiting} wait"))
    })
    .await;
    before.signal("TERM");
    before.ends_well().await;
    install_kai(&lab).await;
    let (there, said, hooks) = (pods(&lab).await, statuses(&lab).await, registered(&lab).await);
    assert_eq!((there.len(), lab.reservations().await.len()), (200 + 60 + 20, 20));

    let (ok, told) = migrate(&lab, &["check"]).await;
    assert!(ok, "{told}");
    for line in [
        "  kai-scheduler-default: 2 replicas; image ghcr.io/kai-scheduler/kai-scheduler/kai-scheduler-default:v0.17.0",
        "  validating-kai-admission: KAI's",
        "  podgroups.scheduling.run.ai: v2alpha2",
        "  reservation pods: 20",
        "  Config kai-config: spec.binder.maxConcurrentReconciles: ",
        "would scale Deployment kai-operator from 1 to 0",
        "would delete webhook configuration pods-of-the-platform of KAI",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    let (ok, told) = migrate(&lab, &["adopt", "--dry-run"]).await;
    assert!(
        ok && told.contains("would scale Deployment kai-scheduler-default from 2 to 0"),
        "{told}"
    );
    assert_eq!(
        (replicas(&lab).await, registered(&lab).await),
        (expected(|all| all, false), hooks.clone())
    );

    // Without max_wait it may be ended in the midst; then it goes on where it was.
    migrate(&lab, &["adopt", "--timeout", "0"]).await;
    let (ok, told) = migrate(&lab, &["adopt"]).await;
    assert!(ok && told.contains("KAI has stopped; now start unikai"), "{told}");
    assert!(told.ends_with(&format!("\n{REMOVING}\n")), "{told}");
    assert_eq!(replicas(&lab).await, expected(|_| 0, true));
    // unikai overwrites the others.
    let mut left = hooks.clone();
    left.remove(RENAMED).expect("it was registered");
    assert_eq!((in_force(&lab).await, registered(&lab).await), (policies, left));

    // As unikai's manifests do.
    let levels = json!({"enforce": "restricted", "audit": "restricted", "warn": "restricted"});
    label_namespace(&lab, &levels).await;
    let mut after = lab.replica_with("after", SHARING).await;
    after.leads().await;
    lab.create_after_handover(pod("new", 1)).await;
    lab.runs("new").await;
    lab.delete_pod("new").await;
    eventually("statuses are as before", async || {
        let now = statuses(&lab).await;
        let other = said.iter().find(|(name, status)| now.get(*name) != Some(*status));
        other.map_or(Ok(()), |(name, status)| {
            Err(format!("{name}: {status} is {:?}", now.get(name)))
        })
    })
    .await;
    assert_eq!(pods(&lab).await, there);
    eventually("unikai has registered its webhooks", async || {
        let now = registered(&lab).await;
        let missing = LACKING.iter().find(|name| !now.contains_key(**name));
        missing.map_or(Ok(()), |name| Err(format!("{name} is missing")))
    })
    .await;
    lab.assert_safe().await;
    after.signal("TERM");
    after.ends_well().await;

    let unikais = registered(&lab).await;
    let (ok, told) = migrate(&lab, &["back", "--dry-run"]).await;
    assert!(
        ok && told.contains("would scale Deployment kai-operator from 0 to 1"),
        "{told}"
    );
    for name in LACKING {
        let line = format!("would delete webhook configuration {name} of unikai\n");
        assert!(told.contains(&line), "{told}");
    }
    assert_eq!(registered(&lab).await, unikais);
    let (ok, told) = migrate(&lab, &["back"]).await;
    assert!(ok && told.contains("KAI is started again"), "{told}");
    assert_eq!(replicas(&lab).await, expected(|all| all, false));
    assert_eq!((in_force(&lab).await, registered(&lab).await), (0, hooks));
    assert_eq!(pod_security(&lab).await, ["enforce=baseline"]);
    // The group of the pod that is gone stays until its garbage is collected.
    let mut now = statuses(&lab).await;
    now.retain(|name, _| said.contains_key(name));
    assert_eq!((pods(&lab).await, now), (there, said));
    let maps = Api::<ConfigMap>::namespaced(lab.client.clone(), NAMESPACE);
    assert!(maps.get_opt("unikai-migration").await.unwrap().is_none());
    let (ok, told) = migrate(&lab, &["back"]).await;
    assert!(
        !ok && told.contains("nothing was adopted in namespace kai-scheduler"),
        "{told}"
    );
    lab.assert_safe().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_refuses_unexpected_states() {
    let lab = Lab::start(vec![NodeSpec::gpu("n1", 8)]).await;
    let (ok, told) = migrate(&lab, &["adopt"]).await;
    assert!(
        !ok && told.contains("error: there is no KAI in namespace kai-scheduler"),
        "{told}"
    );
    lab.create(deployment("kai-operator", 1)).await.unwrap();
    lab.create(deployment("kai-scheduler-default", 1)).await.unwrap();
    let mut own = deployment("unikai", 1);
    own["metadata"]["labels"] = json!({"app.kubernetes.io/name": "unikai"});
    lab.create(own).await.unwrap();
    let (ok, told) = migrate(&lab, &["adopt"]).await;
    assert!(
        !ok && told.contains("would both run and schedule; stop unikai first: kubectl scale"),
        "{told}"
    );

    // With unikai installed and scaled to zero, adopt starts it, and back ends it.
    let api = Api::<Deployment>::namespaced(lab.client.clone(), NAMESPACE);
    let scale = |replicas: i32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api.patch("unikai", &PatchParams::default(), &scale(0)).await.unwrap();
    let (ok, told) = migrate(&lab, &["adopt"]).await;
    assert!(ok && told.contains("unikai schedules now"), "{told}");
    let now = |name: &str, count: i32, noted: bool| (name.to_owned(), Some(count), noted);
    assert_eq!(
        replicas(&lab).await,
        [
            now("kai-operator", 0, true),
            now("kai-scheduler-default", 0, true),
            now("unikai", 1, false)
        ]
    );
    // Again: there is nothing left to do.
    let (ok, told) = migrate(&lab, &["adopt"]).await;
    assert_eq!((ok, told), (true, format!("unikai schedules now\n{REMOVING}\n")));
    assert!(include_str!("../../../docs/migration.md").contains("\n## Removing KAI\n"));
    // Someone starts a scheduler of KAI beside unikai: neither direction goes on.
    api.patch("kai-scheduler-default", &PatchParams::default(), &scale(1))
        .await
        .unwrap();
    let (ok, told) = migrate(&lab, &["back"]).await;
    assert!(
        !ok && told.contains("both run and schedule; stop one first: kubectl scale"),
        "{told}"
    );
    api.patch("kai-scheduler-default", &PatchParams::default(), &scale(0))
        .await
        .unwrap();
    let (ok, told) = migrate(&lab, &["back"]).await;
    assert!(ok, "{told}");
    assert_eq!(
        replicas(&lab).await,
        [
            now("kai-operator", 1, false),
            now("kai-scheduler-default", 1, false),
            now("unikai", 0, true)
        ]
    );
}
