use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::judge::Found as Line;
use super::seen::{Certificates, Policies, Webhook};
use super::*;
use crate::api::crds;
use crate::api::names::object::{MUTATING_WEBHOOK, POD_GROUP_WEBHOOK, QUEUE_WEBHOOK, VALIDATING_WEBHOOK};
use crate::cli::manifests;
use crate::cli::migrate::found::{Found, FoundDeployment, Part};

const NOW: &str = "2026-01-31T12:00:00Z";
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name, "generation": 1}, "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [
        {"name": "unikai", "args": ["run", "--gpu-sharing=true"]}]}}},
        "status": {"availableReplicas": 1, "observedGeneration": 1}})
}

fn queue(name: &str, parent: Option<&str>, quota: i64) -> Value {
    let free = json!({"quota": -1, "limit": -1});
    json!({"metadata": {"name": name}, "spec": {"parentQueue": parent,
        "resources": {"cpu": free, "memory": free, "gpu": {"quota": quota, "limit": -1}}}})
}

/// Those of the manifests.
fn policies() -> Policies {
    let mut there = Policies::default();
    let files = manifests::files("unikai:test");
    let (_, text) = files.iter().find(|(name, _)| name.contains("policies")).unwrap();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let object = Value::deserialize(document).unwrap();
        if object["kind"] == "ValidatingAdmissionPolicy" {
            there.policies.push(of(object));
        } else {
            there.bindings.push(of(object));
        }
    }
    there
}

/// An installation in which nothing is wrong.
fn sound() -> Installation {
    let webhook = |configuration: &str| Webhook {
        configuration: configuration.to_owned(),
        name: "a.kai.scheduler".to_owned(),
        client: WebhookClientConfig {
            ca_bundle: Some(ByteString(AUTHORITY.into())),
            ..of(json!({"service": {"namespace": "kai-scheduler", "name": "unikai"}}))
        },
    };
    let lease = json!({"spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-01-31T11:59:55.000000Z"}});
    let node = json!({"metadata": {"name": "gpu-1", "labels": {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "80000"}},
        "status": {"capacity": {"nvidia.com/gpu": "8"}}});
    let shard = json!({"metadata": {"name": "default"}, "spec": {}, "status": {"conditions": [
        {"type": "FieldsIgnored", "status": "False", "reason": "None", "message": "", "lastTransitionTime": NOW}]}});
    let mut queues = vec![queue("top", None, 8), queue("team", Some("top"), 8)];
    Installation {
        found: Found {
            namespace: "kai-scheduler".to_owned(),
            kai: Vec::new(),
            own: Some(FoundDeployment::of(of(deployment("unikai")))),
            config: Some(of(json!({"metadata": {"name": "kai-config"}, "spec": {}}))),
            shards: vec![of(shard)],
        },
        definitions: crds::all(),
        lacking: Ok(Vec::new()),
        pods: vec![of(
            json!({"metadata": {"name": "unikai-1", "labels": {"app": "unikai"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        )],
        service: Some(of(
            json!({"spec": {"selector": {"app": "unikai"}, "ports": [{"port": 443}, {"port": 8080}]}}),
        )),
        leases: BTreeMap::from([("kai-scheduler".to_owned(), Some(of(lease)))]),
        webhooks: [MUTATING_WEBHOOK, VALIDATING_WEBHOOK, QUEUE_WEBHOOK, POD_GROUP_WEBHOOK]
            .map(webhook)
            .into(),
        kai_webhooks: Vec::new(),
        policies: Ok(policies()),
        certificates: Some(Certificates {
            authorities: AUTHORITY.to_owned(),
            expires: Some("2026-06-01T00:00:00Z".parse().unwrap()),
        }),
        nodes: vec![of(node)],
        runtime_classes: vec!["nvidia".to_owned()],
        reservation_namespace_exists: true,
        queues: queues.drain(..).map(of).collect(),
    }
}

/// What is not in order.
fn wrong(installation: &Installation) -> Vec<Line> {
    let sections = judge::judge(installation, now());
    let lines = sections.into_iter().flat_map(|section| section.findings);
    lines.filter(|line| line.mark != Mark::Ok).collect()
}

#[test]
fn a_correct_installation_has_no_findings() {
    let installation = sound();
    assert_eq!(wrong(&installation), []);
    let shown = text(&judge::judge(&installation, now()), false);
    assert!(
        shown.starts_with("Definitions\n-----------\n√ all CustomResourceDefinitions"),
        "{shown}"
    );
    assert!(shown.ends_with("0 failures, 0 warnings\n"), "{shown}");
}

/// A fault: what it does to a sound installation, its mark, and how the line about it begins.
type Fault = (fn(&mut Installation), Mark, &'static str);

fn gpu_node(change: impl FnOnce(&mut Value), installation: &mut Installation) {
    let mut node = serde_json::to_value(&installation.nodes[0]).unwrap();
    change(&mut node);
    installation.nodes[0] = of(node);
}

fn own(change: impl FnOnce(&mut Value), installation: &mut Installation) {
    let mut own = deployment("unikai");
    change(&mut own);
    installation.found.own = Some(FoundDeployment::of(of(own)));
}

fn lease(spec: Value, installation: &mut Installation) {
    let lease = Some(of(json!({"spec": spec})));
    installation.leases.insert("kai-scheduler".to_owned(), lease);
}

fn condition(kind: &str, status: &str, installation: &mut Installation) {
    installation.found.shards = vec![of(
        json!({"metadata": {"name": "default"}, "spec": {}, "status": {"conditions": [
        {"type": kind, "status": status, "reason": "A", "message": "spec.args.a", "lastTransitionTime": NOW}]}}),
    )];
}

/// Sets a field of `spec.global` of Config.
fn global(field: &str, value: &str, installation: &mut Installation) {
    let config = json!({"metadata": {"name": "kai-config"}, "spec": {"global": {field: value}}});
    installation.found.config = Some(of(config));
}

fn queues(queues: &[Value], installation: &mut Installation) {
    installation.queues = queues.iter().cloned().map(of).collect();
}

const FAULTS: &[Fault] = &[
    (
        |i| drop(i.definitions.remove(0)),
        Mark::Failed,
        "CustomResourceDefinition configs.kai.scheduler is missing",
    ),
    (
        |i| i.definitions[0].spec.versions[0].served = false,
        Mark::Failed,
        "configs.kai.scheduler does not serve version v1",
    ),
    (
        |i| {
            for crd in &mut i.definitions {
                let mut value = serde_json::to_value(&*crd).unwrap();
                let path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
                if let Some(Value::Object(fields)) = value.pointer_mut(path) {
                    fields.remove("summary");
                }
                *crd = of(value);
            }
        },
        Mark::Warning,
        "podgroups.scheduling.run.ai is KAI's or an older one: it drops status.summary",
    ),
    (
        |i| i.lacking = Ok(vec!["create pods/binding".to_owned()]),
        Mark::Failed,
        "the operator lacks rights: create pods/binding",
    ),
    (
        |i| i.lacking = Err("forbidden".to_owned()),
        Mark::Warning,
        "the operator's rights are not known: forbidden",
    ),
    (
        |i| i.found.own = None,
        Mark::Failed,
        "there is no Deployment unikai in namespace kai-scheduler",
    ),
    (
        |i| own(|d| d["spec"]["replicas"] = json!(0), i),
        Mark::Failed,
        "Deployment unikai is scaled to 0 replicas",
    ),
    (
        |i| own(|d| d["status"] = json!({}), i),
        Mark::Failed,
        "no replica of Deployment unikai is available",
    ),
    (
        |i| own(|d| d["spec"]["replicas"] = json!(3), i),
        Mark::Warning,
        "1 of 3 replicas of Deployment unikai are available",
    ),
    (|i| i.service = None, Mark::Failed, "there is no Service unikai"),
    (|i| i.pods.clear(), Mark::Failed, "Service unikai selects no ready pod"),
    (
        |i| i.leases.values_mut().for_each(|lease| *lease = None),
        Mark::Failed,
        "Lease kai-scheduler has no holder",
    ),
    (
        |i| {
            lease(
                json!({"holderIdentity": "one", "renewTime": "2026-01-31T11:50:00.000000Z"}),
                i,
            );
        },
        Mark::Failed,
        "Lease kai-scheduler of one has not been renewed since 2026-01-31T11:50:00Z",
    ),
    (
        |i| i.webhooks.retain(|webhook| webhook.configuration != QUEUE_WEBHOOK),
        Mark::Failed,
        "webhook configuration kai-queue-validation-v2 is not registered by unikai",
    ),
    (
        |i| i.webhooks[0].client.ca_bundle = None,
        Mark::Failed,
        "webhook a.kai.scheduler of mutating-kai-admission has no caBundle",
    ),
    (
        |i| i.webhooks[0].client.ca_bundle = Some(ByteString(AUTHORITY.replace("MA==", "MQ==").into())),
        Mark::Failed,
        "webhook a.kai.scheduler of mutating-kai-admission trusts another authority",
    ),
    (
        |i| i.webhooks[0].client.service = Some(of(json!({"namespace": "kai-scheduler", "name": "admission"}))),
        Mark::Failed,
        "webhook a.kai.scheduler of mutating-kai-admission leads to Service kai-scheduler/admission",
    ),
    (
        |i| i.certificates.as_mut().unwrap().expires = Some("2026-01-31T11:00:00Z".parse().unwrap()),
        Mark::Failed,
        "there is no certificate in Secret unikai-webhook-tls that is valid",
    ),
    (
        |i| i.certificates.as_mut().unwrap().expires = Some("2026-02-01T00:00:00Z".parse().unwrap()),
        Mark::Warning,
        "the certificate of the webhooks expires at 2026-02-01T00:00:00Z",
    ),
    (
        |i| i.certificates = None,
        Mark::Warning,
        "Secret unikai-webhook-tls may not be read",
    ),
    (
        |i| i.policies = Err("forbidden".to_owned()),
        Mark::Warning,
        "the admission policies are not known: forbidden",
    ),
    (
        |i| i.policies.as_mut().unwrap().policies.truncate(1),
        Mark::Failed,
        "admission policy unikai-reservation-pods is missing",
    ),
    (
        |i| i.policies.as_mut().unwrap().policies.truncate(2),
        Mark::Failed,
        "admission policy unikai-claims is missing",
    ),
    (
        |i| drop(i.policies.as_mut().unwrap().bindings.remove(0)),
        Mark::Failed,
        "admission policy unikai-pods has no binding that denies requests",
    ),
    (
        |i| {
            let bindings = &mut i.policies.as_mut().unwrap().bindings;
            bindings[1].spec.as_mut().unwrap().validation_actions = Some(vec!["Audit".to_owned()]);
        },
        Mark::Failed,
        "admission policy unikai-reservation-pods has no binding that denies requests",
    ),
    (
        |i| global("schedulerName", "other", i),
        Mark::Failed,
        "admission policy unikai-pods is for pods of another scheduler than other",
    ),
    (
        |i| global("queueLabelKey", "example.com/queue", i),
        Mark::Failed,
        "admission policy unikai-pods does not protect the queue label example.com/queue",
    ),
    (
        |i| global("nodePoolLabelKey", "example.com/pool", i),
        Mark::Failed,
        "admission policy unikai-pods does not protect the node-pool label example.com/pool",
    ),
    (
        |i| condition("FieldsIgnored", "True", i),
        Mark::Warning,
        "SchedulingShard default: spec.args.a",
    ),
    (
        |i| condition("Available", "False", i),
        Mark::Failed,
        "SchedulingShard default is not in force: spec.args.a",
    ),
    (
        |i| condition("Ready", "False", i),
        Mark::Failed,
        "SchedulingShard default is not in force: spec.args.a",
    ),
    (
        |i| condition("PrometheusConnected", "False", i),
        Mark::Warning,
        "SchedulingShard default: spec.args.a",
    ),
    (|i| i.found.shards.clear(), Mark::Failed, "there is no SchedulingShard"),
    (
        |i| gpu_node(|node| node["status"] = json!({}), i),
        Mark::Failed,
        "nodes with the label nvidia.com/gpu.count offer no GPUs: gpu-1",
    ),
    (
        |i| {
            gpu_node(
                |node| node["metadata"]["labels"] = json!({"nvidia.com/gpu.count": "8"}),
                i,
            );
        },
        Mark::Warning,
        "nodes with GPUs lack the label nvidia.com/gpu.memory",
    ),
    (
        |i| i.runtime_classes.clear(),
        Mark::Warning,
        "GPUs are shared, and there is no RuntimeClass nvidia",
    ),
    (
        |i| i.reservation_namespace_exists = false,
        Mark::Failed,
        "GPUs are shared, and there is no namespace kai-resource-reservation",
    ),
    (
        |i| {
            i.found.kai.push((
                Part::Scheduler,
                FoundDeployment::of(of(deployment("kai-scheduler-default"))),
            ));
        },
        Mark::Failed,
        "Deployments of KAI run: kai-scheduler-default",
    ),
    (
        |i| i.kai_webhooks.push("mutating-kai-old".to_owned()),
        Mark::Failed,
        "webhook configurations of KAI are registered: mutating-kai-old",
    ),
    (|i| i.queues.clear(), Mark::Failed, "there is no leaf queue"),
    (
        |i| queues(&[queue("team", Some("gone"), 1)], i),
        Mark::Failed,
        "queue team: its parent queue gone does not exist",
    ),
    (
        |i| {
            queues(
                &[queue("a", Some("b"), 0), queue("b", Some("a"), 0), queue("c", None, 0)],
                i,
            );
        },
        Mark::Failed,
        "queue a is below itself: a → b → a",
    ),
    (
        |i| queues(&[queue("top", None, 4), queue("team", Some("top"), 5)], i),
        Mark::Warning,
        "queue top: the queues below it have gpu quotas of 5 together, itself it has 4",
    ),
    (
        |i| i.queues[1].spec.resources.as_mut().unwrap().gpu.as_mut().unwrap().limit = None,
        Mark::Warning,
        "queue team: spec.resources.gpu.limit is not set, which means 0",
    ),
    (
        |i| i.queues[1].spec.resources.as_mut().unwrap().gpu.as_mut().unwrap().limit = Some(2.0),
        Mark::Warning,
        "queue team: the gpu quota (8) is above the limit (2)",
    ),
    (
        |i| {
            let mut held = queue("team", Some("top"), 8);
            held["metadata"]["annotations"] = json!({"unikai.dev/hold": "maintenance"});
            queues(&[queue("top", None, 8), held], i);
        },
        Mark::Warning,
        "queue team is held (maintenance): nothing is started in it and below it",
    ),
];

#[test]
fn each_injected_fault_is_found_with_its_remedy() {
    for (plant, mark, says) in FAULTS {
        let mut installation = sound();
        plant(&mut installation);
        let found = wrong(&installation);
        let about = found.iter().find(|line| line.says.starts_with(says));
        let about = about.unwrap_or_else(|| panic!("{says}: {found:#?}"));
        assert_eq!(about.mark, *mark, "{says}");
        assert!(about.remedy.as_ref().is_some_and(|remedy| !remedy.is_empty()), "{says}");
        assert!(found.len() <= 3, "one fault, many alarms: {found:#?}");
    }
    assert!(FAULTS.len() >= 25);
}

#[test]
fn webhooks_that_config_switches_off_are_not_missed() {
    let off = json!({"webhooks": {"enableValidation": false}});
    let without = json!({"service": {"enabled": false}});
    let cases: [(&str, Value, &[&str]); 5] = [
        ("admission", without.clone(), &[QUEUE_WEBHOOK, POD_GROUP_WEBHOOK]),
        (
            "queueController",
            off.clone(),
            &[MUTATING_WEBHOOK, VALIDATING_WEBHOOK, POD_GROUP_WEBHOOK],
        ),
        (
            "podGroupController",
            off,
            &[MUTATING_WEBHOOK, VALIDATING_WEBHOOK, QUEUE_WEBHOOK],
        ),
        (
            "queueController",
            without.clone(),
            &[MUTATING_WEBHOOK, VALIDATING_WEBHOOK, POD_GROUP_WEBHOOK],
        ),
        (
            "podGroupController",
            without,
            &[MUTATING_WEBHOOK, VALIDATING_WEBHOOK, QUEUE_WEBHOOK],
        ),
    ];
    for (field, value, left) in cases {
        let mut installation = sound();
        installation
            .webhooks
            .retain(|webhook| left.contains(&webhook.configuration.as_str()));
        assert_eq!(wrong(&installation).len(), 4 - left.len(), "{field}");
        let config = json!({"metadata": {"name": "kai-config"}, "spec": {field: value}});
        installation.found.config = Some(of(config));
        assert_eq!(wrong(&installation), [], "{field}");
    }
}

#[test]
fn what_config_says_of_shared_gpus_has_precedence_over_the_flags() {
    let mut installation = sound();
    installation.reservation_namespace_exists = false;
    installation.runtime_classes.clear();
    let mut with = |flag: &str, admission: Value| {
        let run = json!({"name": "unikai", "args": ["run", flag]});
        own(
            |own| own["spec"]["template"]["spec"]["containers"][0] = run,
            &mut installation,
        );
        let config = json!({"metadata": {"name": "kai-config"}, "spec": {"admission": admission}});
        installation.found.config = Some(of(config));
        wrong(&installation).len()
    };
    assert_eq!(with("--gpu-sharing=false", json!({})), 0);
    assert_eq!(with("--gpu-sharing=false", json!({"gpuSharing": true})), 2);
    let without_class = json!({"gpuSharing": true, "gpuPodRuntimeClassName": ""});
    assert_eq!(with("--gpu-sharing=false", without_class), 1);
    assert_eq!(with("--gpu-sharing=true", json!({"gpuSharing": false})), 0);
}

#[test]
fn a_missing_namespace_of_another_name_needs_manifests_of_its_own() {
    let mut installation = sound();
    installation.reservation_namespace_exists = false;
    let remedy = |installation: &Installation| {
        let mut found = wrong(installation).into_iter();
        found
            .find(|line| line.says.starts_with("GPUs are shared, and there is no namespace"))
            .and_then(|line| line.remedy)
    };
    assert_eq!(
        remedy(&installation).as_deref(),
        Some("kubectl apply -f manifests/gpu-sharing/")
    );
    let config =
        json!({"metadata": {"name": "kai-config"}, "spec": {"binder": {"resourceReservation": {"namespace": "held"}}}});
    installation.found.config = Some(of(config));
    assert_eq!(
        remedy(&installation).as_deref(),
        Some("unikai manifests --gpu-sharing --reservation-namespace held | kubectl apply -f -")
    );
}

#[test]
fn policies_must_have_the_names_of_config_else_of_the_flags() {
    let mut installation = sound();
    let run = json!({"name": "unikai", "args": ["run", "--gpu-sharing=true", "--scheduler-name=by-flag", "--node-pool-label-key="]});
    own(
        |own| own["spec"]["template"]["spec"]["containers"][0] = run,
        &mut installation,
    );
    let found = wrong(&installation);
    let [line] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(
        line.says,
        "admission policy unikai-pods is for pods of another scheduler than by-flag"
    );
    let remedy = line.remedy.as_deref().unwrap();
    assert!(
        remedy.starts_with("unikai manifests --dir FOLDER --scheduler-name=by-flag --node-pool-label-key=, then "),
        "{remedy}"
    );
    global("schedulerName", "kai-scheduler", &mut installation);
    assert_eq!(wrong(&installation), []);
}

#[test]
fn policies_must_exempt_the_operator() {
    let mut installation = sound();
    let there = installation.policies.as_mut().unwrap();
    for policy in &mut there.policies {
        let other = serde_json::to_string(policy)
            .unwrap()
            .replace("kai-scheduler:unikai", "other:unikai");
        *policy = serde_json::from_str(&other).unwrap();
    }
    let found = wrong(&installation);
    let user = "system:serviceaccount:kai-scheduler:unikai, whose writes it refuses";
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|line| line.says.ends_with(user)), "{found:#?}");
}

#[test]
fn json_output_has_the_same_findings() {
    let mut installation = sound();
    installation.found.own = None;
    let sections = json!(judge::judge(&installation, now()));
    let operator = &sections[1];
    assert_eq!(operator["name"], "Operator");
    assert_eq!(operator["findings"][0]["mark"], "failed");
    assert_eq!(
        operator["findings"][0]["remedy"],
        "unikai manifests --image IMAGE | kubectl apply -f -, with the image that you built and pushed"
    );
}

#[test]
fn the_namespace_of_reservation_pods_is_that_of_the_config_else_of_the_flag() {
    let mut found = sound().found;
    assert_eq!(found.reservation_namespace(), "kai-resource-reservation");
    let mut own = deployment("unikai");
    own["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["run", "--reservation-namespace", "by-flag"]);
    found.own = Some(FoundDeployment::of(of(own)));
    assert_eq!(found.reservation_namespace(), "by-flag");
    let binder = |namespace: &str| json!({"metadata": {"name": "kai-config"}, "spec": {"binder": {"resourceReservation": {"namespace": namespace}}}});
    found.config = Some(of(binder("by-config")));
    assert_eq!(found.reservation_namespace(), "by-config");
    found.config = Some(of(binder("")));
    assert_eq!(found.reservation_namespace(), "by-flag");
}

#[test]
fn a_right_to_several_objects_is_checked_for_each_of_them() {
    let rights = seen::rights("kai-scheduler");
    let named = rights.iter().filter(|right| {
        let of = (right.verb.as_deref(), right.resource.as_deref());
        of == (Some("update"), Some("validatingwebhookconfigurations"))
    });
    let names: Vec<Option<&str>> = named.map(|right| right.name.as_deref()).collect();
    let wanted = [VALIDATING_WEBHOOK, QUEUE_WEBHOOK, POD_GROUP_WEBHOOK];
    assert_eq!(names, wanted.map(Some));
}
