use std::net::SocketAddr;

use serde_json::json;

use super::*;
use crate::components::admission::queues::Rules;
use crate::components::admission::{FailurePolicy, Scope};

/// The settings of an installation in `kai-scheduler`.
pub fn settings() -> Settings {
    Settings {
        namespace: "kai-scheduler".to_owned(),
        scope: Scope::default(),
        scheduler_name: "kai-scheduler".to_owned(),
        queue_label_key: "kai.scheduler/queue".to_owned(),
        queue_labels: QueueLabels::Enforce,
        gpu_sharing: true,
        gpu_resources: crate::api::names::resource::WHOLE_GPUS.map(ToOwned::to_owned).into(),
        gpu_fraction_runtime_class: "nvidia".to_owned(),
        block_nvidia_visible_devices: false,
        hami_core: false,
        queue_rules: Rules::default(),
        failure_policy: FailurePolicy::Fail,
        client_authorities: None,
        address: SocketAddr::from(([127, 0, 0, 1], 9443)),
        target: None,
    }
}

fn leaves<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

fn by_service(bundle: &str) -> Desired {
    let target = Target::Service {
        name: "unikai".to_owned(),
        namespace: "kai-scheduler".to_owned(),
    };
    desired(&settings(), &target, bundle, &leaves(["test"]), None)
}

#[test]
fn webhooks_match_only_pods_of_our_scheduler() {
    insta::assert_yaml_snapshot!(by_service("PEM").mutating, @r#"
    apiVersion: admissionregistration.k8s.io/v1
    kind: MutatingWebhookConfiguration
    metadata:
      annotations:
        unikai.dev/queue-label-key: kai.scheduler/queue
      labels:
        app: admission
        app.kubernetes.io/managed-by: unikai
      name: mutating-kai-admission
    webhooks:
      - admissionReviewVersions:
          - v1
        clientConfig:
          caBundle: UEVN
          service:
            name: unikai
            namespace: kai-scheduler
            path: /mutate--v1-pod
            port: 443
        failurePolicy: Fail
        matchConditions:
          - expression: "object.spec.schedulerName == 'kai-scheduler'"
            name: scheduler-name-match
          - expression: "(has(object.metadata.annotations) && 'gpu-fraction' in object.metadata.annotations) || (has(object.metadata.annotations) && 'gpu-memory' in object.metadata.annotations) || !((has(object.metadata.labels) && 'kai.scheduler/queue' in object.metadata.labels) && object.metadata.labels['kai.scheduler/queue'] != '')"
            name: something-to-write
        name: admission.kai-scheduler.svc
        namespaceSelector:
          matchExpressions:
            - key: kubernetes.io/metadata.name
              operator: NotIn
              values:
                - kube-system
                - kai-scheduler
        reinvocationPolicy: IfNeeded
        rules:
          - apiGroups:
              - ""
            apiVersions:
              - v1
            operations:
              - CREATE
            resources:
              - pods
            scope: Namespaced
        sideEffects: None
    "#);
}

#[test]
fn webhooks_for_queues_pod_groups_and_topologies_have_kais_names() {
    let rows: Vec<String> = by_service("PEM")
        .validating
        .iter()
        .flat_map(|configuration| {
            let name = configuration.metadata.name.clone().unwrap();
            configuration.webhooks.clone().unwrap().into_iter().map(move |webhook| {
                let rule = &webhook.rules.as_ref().unwrap()[0];
                let list = |list: &Option<Vec<String>>| list.clone().unwrap().join(",");
                let path = webhook.client_config.service.unwrap().path.unwrap();
                let what = [list(&rule.api_groups), list(&rule.api_versions), list(&rule.resources)].join("/");
                format!("{name} {} {path} {what} {}", webhook.name, list(&rule.operations))
            })
        })
        .collect();
    assert_eq!(
        rows,
        [
            "validating-kai-admission admission.kai-scheduler.svc /validate--v1-pod /v1/pods CREATE,UPDATE",
            "validating-kai-admission topology.admission.kai-scheduler.svc /validate-kai-scheduler-v1alpha1-topology kai.scheduler/v1alpha1/topologies CREATE,UPDATE",
            "validating-kai-admission unreviewed.admission.kai-scheduler.svc /validate--v1-pod /v1/pods CREATE",
            "kai-queue-validation-v2 queue-validation.kai.scheduler /validate-scheduling-run-ai-v2-queue scheduling.run.ai/v2/queues CREATE,UPDATE",
            "kai-queue-validation-v2 deletion.queue-validation.kai.scheduler /validate-scheduling-run-ai-v2-queue scheduling.run.ai/v2/queues DELETE",
            "kai-podgroup-validation-v2alpha2 podgroup-validation.kai.scheduler /validate-scheduling-run-ai-v2alpha2-podgroup scheduling.run.ai/v2alpha2/podgroups CREATE,UPDATE",
        ]
    );
}

#[test]
fn outside_of_the_cluster_the_url_is_registered() {
    let Desired { mutating, .. } = desired(
        &settings(),
        &Target::Url("https://192.0.2.7:9443/".to_owned()),
        "PEM",
        &BTreeSet::new(),
        None,
    );
    let client = &mutating.webhooks.unwrap()[0].client_config;
    assert_eq!(client.url.as_deref(), Some("https://192.0.2.7:9443/mutate--v1-pod"));
    assert_eq!(client.service, None);
}

/// What an API server makes of our object: fills in its defaults, and a cloud adds a term.
fn as_stored(ours: &MutatingWebhookConfiguration) -> MutatingWebhookConfiguration {
    let mut stored = serde_json::to_value(ours).unwrap();
    stored["metadata"]["resourceVersion"] = json!("7");
    stored["metadata"]["annotations"]["cloud.example/touched"] = json!("yes");
    let webhook = &mut stored["webhooks"][0];
    webhook["timeoutSeconds"] = json!(10);
    webhook["matchPolicy"] = json!("Equivalent");
    if webhook["objectSelector"].is_null() {
        webhook["objectSelector"] = json!({});
    }
    let terms = webhook["namespaceSelector"]["matchExpressions"].as_array_mut().unwrap();
    terms.push(json!({"key": "control-plane", "operator": "DoesNotExist"}));
    serde_json::from_value(stored).unwrap()
}

#[test]
fn fields_of_others_are_kept_and_equal_configurations_are_not_written() {
    let ours = by_service("PEM").mutating;
    let live = as_stored(&ours);
    assert_eq!(ours.onto(&live), live);
}

#[test]
fn labels_that_config_no_longer_has_are_removed_from_the_selectors() {
    let ours = |labels: &[(&str, &str)]| {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut settings = settings();
        settings.scope.namespace_labels = labels.collect();
        settings.scope.pod_labels.clone_from(&settings.scope.namespace_labels);
        let target = Target::Url("https://192.0.2.7:9443".to_owned());
        desired(&settings, &target, "PEM", &BTreeSet::new(), None).mutating
    };
    let live = as_stored(&ours(&[("team", "research"), ("tier", "gpu")]));
    for fewer in [ours(&[("team", "research")]), ours(&[])] {
        let stored = as_stored(&fewer);
        assert_eq!(fewer.onto(&live), stored);
        assert_eq!(fewer.onto(&stored), stored, "nothing more is written");
    }
}

#[test]
fn namespaces_without_a_queue_are_reviewed_again_once_config_says_so() {
    let ours = |key: &str, with_queue: bool| {
        let mut settings = settings();
        settings.queue_label_key = key.to_owned();
        settings.scope.namespaces_with_queue = with_queue;
        let target = Target::Url("https://192.0.2.7:9443".to_owned());
        desired(&settings, &target, "PEM", &BTreeSet::new(), None).mutating
    };
    let keys = |configuration: &MutatingWebhookConfiguration| -> Vec<String> {
        let selector = configuration.webhooks.as_ref().unwrap()[0].namespace_selector.clone();
        let terms = selector.unwrap().match_expressions.unwrap().into_iter();
        terms.map(|term| term.key).collect()
    };
    let (own, cloud) = ("kubernetes.io/metadata.name", "control-plane");
    let live = as_stored(&ours("team/queue", true));
    assert_eq!(keys(&live), [own, "team/queue", cloud]);
    assert_eq!(keys(&ours("team/queue", false).onto(&live)), [own, cloud]);
    assert_eq!(keys(&ours("queue", true).onto(&live)), [own, "queue", cloud]);
    assert_eq!(keys(&ours("queue", false).onto(&live)), [own, cloud]);
    // Written by KAI, which leaves no annotation.
    let mut kais = live;
    kais.metadata.annotations = None;
    assert_eq!(keys(&ours("team/queue", false).onto(&kais)), [own, cloud]);
}

#[test]
fn only_where_queues_are_protected_does_a_deletion_wait_for_the_webhook() {
    let rows = |protect| {
        let mut settings = settings();
        settings.queue_rules.protect = protect;
        let target = Target::Url("https://192.0.2.7:9443".to_owned());
        let desired = desired(&settings, &target, "PEM", &BTreeSet::new(), None);
        let queues = desired.validating[1].webhooks.clone().unwrap().into_iter();
        let deletions = queues.filter(|webhook| {
            let operations = webhook.rules.as_ref().unwrap()[0].operations.clone();
            operations.unwrap().contains(&"DELETE".to_owned())
        });
        deletions
            .map(|webhook| webhook.failure_policy.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (rows(false), rows(true)),
        (vec!["Ignore".to_owned()], vec!["Fail".to_owned()])
    );
}

#[test]
fn the_owner_of_a_configuration_is_set_once_and_again_when_it_was_recreated() {
    let owner = |uid: &str| OwnerReference {
        api_version: "rbac.authorization.k8s.io/v1".to_owned(),
        kind: "ClusterRole".to_owned(),
        name: "unikai".to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    };
    let target = Target::Url("https://192.0.2.7:9443".to_owned());
    let ours = |uid| desired(&settings(), &target, "PEM", &BTreeSet::new(), Some(&owner(uid))).mutating;
    let uids = |configuration: &MutatingWebhookConfiguration| -> Vec<String> {
        let owners = configuration.metadata.owner_references.iter().flatten();
        owners.map(|owner| owner.uid.clone()).collect()
    };
    let mut live = as_stored(&by_service("PEM").mutating);
    let theirs = OwnerReference {
        name: "theirs".to_owned(),
        ..owner("their-uid")
    };
    live.metadata.owner_references = Some(vec![theirs]);
    let first = ours("first").onto(&live);
    assert_eq!(uids(&first), ["their-uid", "first"]);
    assert_eq!(uids(&ours("second").onto(&first)), ["their-uid", "second"]);
    assert_eq!(by_service("PEM").mutating.onto(&first).metadata, first.metadata);
}

#[test]
fn what_config_switches_off_has_no_webhooks_and_is_written_once() {
    let mut settings = settings();
    settings.scope = Scope {
        pods: false,
        queues: false,
        pod_groups: false,
        ..Scope::default()
    };
    let target = Target::Url("https://192.0.2.7:9443".to_owned());
    let off = desired(&settings, &target, "PEM", &BTreeSet::new(), None);
    let written = off.mutating.onto(&as_stored(&by_service("PEM").mutating));
    assert_eq!(written.webhooks, None);
    // As API servers hand it out: without the list.
    assert_eq!(off.mutating.onto(&written), written);
    for validating in off.validating {
        assert_eq!(
            (validating.onto(&validating).webhooks, &validating.webhooks),
            (None, &None)
        );
    }
}

#[test]
fn pod_groups_that_the_operator_writes_are_not_reviewed() {
    let of_pod_groups = by_service("PEM").validating[2].webhooks.clone().unwrap();
    let conditions = of_pod_groups[0].match_conditions.clone().unwrap();
    assert_eq!(
        conditions[0].expression,
        "request.userInfo.username != 'system:serviceaccount:kai-scheduler:unikai'"
    );
}

#[test]
fn changed_webhooks_are_restored() {
    let ours = by_service("NEW").mutating;
    let mut tampered = as_stored(&by_service("OLD").mutating);
    let webhooks = tampered.webhooks.as_mut().unwrap();
    webhooks[0].match_conditions = None;
    webhooks.push(MutatingWebhook {
        name: "stranger.example".to_owned(),
        ..webhooks[0].clone()
    });

    let repaired = ours.onto(&tampered);

    assert_eq!(repaired, as_stored(&ours));
    assert_eq!(repaired.onto(&tampered).onto(&repaired), repaired);
}

#[test]
fn pods_that_need_no_mutation_are_not_reviewed() {
    let condition = |settings: &Settings| something_to_write(settings).expression;
    let check = |settings: &Settings| something_to_check(settings, &leaves(["test"])).expression;
    assert!(condition(&settings()).contains("kai.scheduler/queue"));
    assert!(check(&settings()).contains("'CREATE'"));
    let off = Settings {
        queue_labels: QueueLabels::Off,
        ..settings()
    };
    assert!(!condition(&off).contains("kai.scheduler/queue"));
    assert!(
        !check(&off).contains("'CREATE'"),
        "a plain pod can be no more wrong than that"
    );
    let devices = Settings {
        block_nvidia_visible_devices: true,
        ..settings()
    };
    assert_eq!(check(&devices), "true");
    assert_eq!(condition(&devices), "true", "any container may be given the variable");
}

#[test]
fn ephemeral_containers_are_reviewed_where_containers_may_not_choose_gpus() {
    let rules = |block_nvidia_visible_devices| {
        let settings = Settings {
            block_nvidia_visible_devices,
            ..settings()
        };
        let target = Target::Url("https://192.0.2.7:9443".to_owned());
        let Desired { mutating, validating } = desired(&settings, &target, "PEM", &BTreeSet::new(), None);
        let mutate = mutating.webhooks.unwrap()[0].rules.clone();
        let validate = validating[0].webhooks.clone().unwrap()[0].rules.clone();
        [mutate, validate].map(|rules| {
            let rules = rules.unwrap().into_iter();
            let row = |rule: RuleWithOperations| [rule.resources.unwrap(), rule.operations.unwrap()].concat().join(" ");
            rules.map(row).collect::<Vec<_>>()
        })
    };
    assert_eq!(rules(false), [vec!["pods CREATE"], vec!["pods CREATE UPDATE"]]);
    let ephemeral = "pods/ephemeralcontainers UPDATE";
    assert_eq!(
        rules(true),
        [vec!["pods CREATE", ephemeral], vec!["pods CREATE UPDATE", ephemeral]]
    );
}

#[test]
fn a_pod_with_a_known_leaf_queue_is_not_reviewed() {
    let check = |leaves: BTreeSet<String>| something_to_check(&settings(), &leaves).expression;
    let queue = "object.metadata.labels['kai.scheduler/queue']";
    assert!(check(leaves(["a", "b"])).contains(&format!("{queue} in ['a','b']")));
    let many = (0..=NAMED_QUEUES_MAX).map(|queue| format!("queue-{queue}")).collect();
    assert!(
        !check(many).contains("queue-0"),
        "a condition of that size costs more than the question"
    );
    assert!(!check(BTreeSet::new()).contains(queue), "no queue is known");
}
