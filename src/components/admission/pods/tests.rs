mod agreement;
mod updates;

use serde_json::{Value, json};

use super::*;
use crate::api::Queue;
use crate::components::admission::queues::Rules;
use crate::components::admission::{FailurePolicy, QueueLabels, Scope};
use queue_label::{Source, Tree};

fn context<'a>(workload: Option<&'a Workload>, random: &'a str) -> PodContext<'a> {
    PodContext {
        queue: workload.map(|workload| workload.queue.as_str()),
        has_runtime_class: true,
        random,
    }
}

pub(in crate::components::admission) fn settings() -> Settings {
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
        address: ([127, 0, 0, 1], 9443).into(),
        target: None,
    }
}

/// A pod with one container, as far as these words say more: annotations `key=value`, and `limit=NAME:AMOUNT`.
fn pod(words: &[&str]) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "team", "annotations": {}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "ubuntu"}]},
    });
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        if key == "limit" {
            let (name, amount) = value.split_once(':').unwrap();
            pod["spec"]["containers"][0]["resources"]["limits"][name] = json!(amount);
        } else {
            pod["metadata"]["annotations"][key] = json!(value);
        }
    }
    pod
}

fn create(object: &Value) -> Request {
    serde_json::from_value(json!({"uid": "u", "namespace": "team", "operation": "CREATE", "object": object})).unwrap()
}

fn update(old: &Value, object: &Value) -> Request {
    serde_json::from_value(
        json!({"uid": "u", "namespace": "team", "operation": "UPDATE", "object": object, "oldObject": old}),
    )
    .unwrap()
}

/// The pod after mutation, as the API server makes it from the patch.
fn mutated(object: &Value, workload: Option<&Workload>, settings: &Settings) -> Value {
    let verdict = mutate(&create(object), context(workload, "x2b4c6d"), settings);
    assert_eq!(verdict.denial, None);
    let mut after = object.clone();
    json_patch::patch(&mut after, &verdict.patch.unwrap_or_default()).unwrap();
    after
}

fn denial(verdict: Verdict) -> Option<String> {
    verdict.denial.map(|denial| denial.message)
}

#[test]
fn pods_of_other_schedulers_are_not_changed() {
    let mut other = pod(&["gpu-fraction=7"]);
    other["spec"]["schedulerName"] = json!("default-scheduler");
    let workload = workload("missing", Source::Pod);
    assert_eq!(
        mutate(&create(&other), context(Some(&workload), "x"), &settings()),
        Verdict::allow()
    );
    assert_eq!(
        validate(&create(&other), Some(&workload), &settings()),
        Verdict::allow()
    );
}

#[test]
fn a_plain_pod_is_not_changed() {
    let plain = pod(&["limit=nvidia.com/gpu:1"]);
    assert_eq!(mutated(&plain, None, &settings()), plain);
}

#[test]
fn a_pod_that_cannot_be_read_is_a_bad_request() {
    let mut odd = pod(&[]);
    odd["spec"]["containers"] = json!("none");
    assert_eq!(
        mutate(&create(&odd), context(None, "x"), &settings())
            .denial
            .unwrap()
            .code,
        400
    );
}

#[test]
fn the_namespace_is_that_of_the_request() {
    let mut bare = pod(&[]);
    bare["metadata"].as_object_mut().unwrap().remove("namespace");
    assert_eq!(mutated(&bare, None, &settings())["metadata"]["namespace"], "team");
    bare["metadata"]["namespace"] = json!("other");
    assert_eq!(
        denial(mutate(&create(&bare), context(None, "x"), &settings())).as_deref(),
        Some("error: the namespace from the provided object other does not match the namespace team")
    );
}

#[test]
fn requests_for_parts_of_gpus_are_validated() {
    const TWICE: &str = "cannot request both GPU and GPU memory";
    const MEMORY: &str = "gpu-memory annotation value must be a positive integer greater than 0";
    const FRACTION: &str = "gpu-fraction annotation value must be a positive number smaller than 1.0";
    const COUNT: &str = "fraction count annotation value must be a positive integer greater than 0";
    const WRITTEN: &str = "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation .given value: ";
    let odd = |text: &str| format!("{WRITTEN}{text}");
    for (words, expected) in [
        (&["gpu-fraction=0.5"] as &[&str], ""),
        (&["gpu-fraction=5e-1"], ""),
        (&["gpu-fraction=.5"], ""),
        (&["gpu-fraction=1.2e-10"], ""),
        (&["gpu-fraction=1"], FRACTION),
        (&["gpu-fraction=1.0"], FRACTION),
        (&["gpu-fraction=1.5"], FRACTION),
        (&["gpu-fraction=-1"], FRACTION),
        (&["gpu-fraction=0"], FRACTION),
        (&["gpu-fraction=Inf"], FRACTION),
        (&["gpu-fraction=500m"], FRACTION),
        (&["gpu-fraction=50%"], FRACTION),
        (&["gpu-fraction="], FRACTION),
        (&["gpu-fraction=NaN"], &odd("NaN")),
        (&["gpu-fraction=0x1p-1"], &odd("0x1p-1")),
        (
            &["gpu-fraction=0.5", "limit=nvidia.com/gpu:0"],
            "cannot have both GPU fraction request and whole GPU resource request/limit",
        ),
        (&["gpu-fraction=0.5", "gpu-memory=1024"], TWICE),
        (&["gpu-memory=1024", "limit=nvidia.com/gpu:1"], TWICE),
        (
            &["gpu-fraction=0.5", "gpu-memory=1024", "limit=nvidia.com/gpu:2m"],
            "cannot have both GPU fraction request and whole GPU resource request/limit",
        ),
        (&["gpu-memory=18446744073709551616"], MEMORY),
        (&["gpu-memory="], MEMORY),
        (&["gpu-memory=2000"], ""),
        (&["gpu-memory=0"], MEMORY),
        (&["gpu-memory=-5"], MEMORY),
        (&["gpu-memory=+5"], MEMORY),
        (&["gpu-memory=1.5"], MEMORY),
        (&["gpu-memory=3Gi"], MEMORY),
        (
            &["gpu-fraction-num-devices=2"],
            "cannot request multiple fractional devices without specifying fraction portion or gpu-memory",
        ),
        (&["gpu-fraction-num-devices=2", "gpu-memory=1000"], ""),
        (&["gpu-fraction=0.5", "gpu-fraction-num-devices=0"], COUNT),
        (&["gpu-fraction=0.2", "gpu-fraction-num-devices=1.2"], COUNT),
        (
            &["mps=true", "limit=nvidia.com/gpu:1"],
            "MPS is only supported with GPU fraction request",
        ),
        (&["mps=true", "gpu-fraction=0.5"], ""),
        (&["limit=nvidia.com/gpu:2"], ""),
    ] {
        let found = denial(validate(&create(&pod(words)), None, &settings())).unwrap_or_default();
        assert_eq!(found, expected, "{words:?}");
    }
}

#[test]
fn whole_gpu_limits_of_all_containers_count() {
    let limits = json!({"limits": {"nvidia.com/gpu": "1"}});
    let mut sidecar = pod(&["gpu-memory=1024"]);
    sidecar["spec"]["containers"] = json!([{"name": "main"}, {"name": "side", "resources": limits}]);
    let mut init = pod(&["gpu-fraction=0.5"]);
    init["spec"]["initContainers"] = json!([{"name": "prepare", "resources": limits}]);
    let found = [sidecar, init].map(|pod| denial(validate(&create(&pod), None, &settings())));
    let expected = [
        "cannot request both GPU and GPU memory",
        "cannot have both GPU fraction request and whole GPU resource request/limit",
    ];
    assert_eq!(found, expected.map(|text| Some(text.to_owned())));
    let mut two = pod(&[]);
    two["spec"]["containers"] =
        json!([{"name": "a", "resources": limits}, {"name": "b", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]);
    assert_eq!(validate(&create(&two), None, &settings()), Verdict::allow());
}

#[test]
fn disabled_gpu_sharing_does_not_affect_existing_pods() {
    let off = Settings {
        gpu_sharing: false,
        ..settings()
    };
    let old = pod(&["gpu-fraction=0.5"]);
    let refused = "attempting to create a pod team/train-0 with gpu sharing request, while GPU sharing is disabled";
    assert_eq!(denial(validate(&create(&old), None, &off)).as_deref(), Some(refused));

    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"team": "a"});
    assert_eq!(validate(&update(&old, &labelled), None, &off), Verdict::allow());
    labelled["metadata"]["annotations"]["gpu-fraction"] = json!("0.7");
    assert_eq!(
        denial(validate(&update(&old, &labelled), None, &off)).as_deref(),
        Some(refused)
    );
}

/// A pod of the Job `train` with half of a GPU.
fn sharing_pod_of_a_job() -> Value {
    let mut owned = pod(&["gpu-fraction=0.5"]);
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j"}]);
    owned
}

#[test]
fn a_pod_that_shares_a_gpu_refers_to_the_config_maps_of_the_binder() {
    let owned = sharing_pod_of_a_job();
    let after = mutated(&owned, None, &settings());

    assert_eq!(
        after["metadata"]["annotations"]["runai/shared-gpu-configmap"],
        "train-x2b4c6d-shared-gpu"
    );
    assert_eq!(after["spec"]["runtimeClassName"], "nvidia");
    let container = &after["spec"]["containers"][0];
    let map = "train-x2b4c6d-shared-gpu-0";
    let from = |key: &str| json!({"name": key, "valueFrom": {"configMapKeyRef": {"name": map, "key": key}}});
    assert_eq!(
        container["env"],
        json!([
            from("NVIDIA_VISIBLE_DEVICES"),
            from("RUNAI_NUM_OF_GPUS"),
            from("GPU_PORTION")
        ])
    );
    assert_eq!(
        container["envFrom"],
        json!([{"configMapRef": {"name": format!("{map}-evar"), "optional": false}}])
    );
    assert_eq!(
        after["spec"]["volumes"],
        json!([{"name": format!("{map}-vol"), "configMap": {"name": map}}])
    );

    assert_eq!(
        mutated(&after, None, &settings()),
        after,
        "asked again, nothing changes"
    );
}

#[test]
fn the_binders_variables_replace_those_of_the_pod() {
    let mut chosen = pod(&["gpu-memory=2000"]);
    chosen["spec"]["containers"][0]["env"] = json!([
        {"name": "GPU_PORTION", "value": "1"}, {"name": "KEPT", "value": "x"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
    ]);
    let after = mutated(&chosen, None, &settings());
    let env = after["spec"]["containers"][0]["env"].as_array().unwrap();
    let names: Vec<_> = env.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["KEPT", "NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION"]
    );
    assert!(env[1..].iter().all(|variable| variable.get("value").is_none()));
}

#[test]
fn the_memory_limit_comes_from_the_config_map_where_the_library_is_used() {
    let limited = Settings {
        hami_core: true,
        ..settings()
    };
    let mut several = pod(&["gpu-fraction=0.5", "gpu-fraction-container-name=gpu"]);
    several["spec"]["containers"] =
        json!([{"name": "side"}, {"name": "gpu", "env": [{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "9g"}]}]);
    let after = mutated(&several, None, &limited);
    let key = "CUDA_DEVICE_MEMORY_LIMIT";
    let map = "train-0-x2b4c6d-shared-gpu-1";
    assert_eq!(
        after["spec"]["containers"][1]["env"].as_array().unwrap().last(),
        Some(&json!({"name": key, "valueFrom": {"configMapKeyRef": {"name": map, "key": key, "optional": true}}}))
    );
    assert_eq!(after["spec"]["containers"][0], json!({"name": "side"}));
    assert_eq!(mutated(&after, None, &limited), after, "asked again, nothing changes");
    let whole = pod(&["limit=nvidia.com/gpu:1"]);
    assert_eq!(mutated(&whole, None, &limited), whole);
}

#[test]
fn config_maps_are_named_after_owner_pod_or_prefix_and_fit() {
    let prefix = |object: &Value| {
        let after = mutated(object, None, &settings());
        let names = [
            after["metadata"]["annotations"]["runai/shared-gpu-configmap"].clone(),
            after["spec"]["volumes"][0]["name"].clone(),
        ];
        names.map(|name| name.as_str().unwrap().to_owned())
    };
    let mut dotted = pod(&["gpu-memory=100"]);
    dotted["metadata"]["name"] = json!("test.pod");
    assert_eq!(
        prefix(&dotted),
        ["test.pod-x2b4c6d-shared-gpu", "test-pod-x2b4c6d-shared-gpu-0-vol"]
    );

    dotted["metadata"]["annotations"]["runai/shared-gpu-configmap"] = json!("test_pod.config@1");
    assert_eq!(
        prefix(&dotted),
        ["test_pod.config@1", "test-pod-config-1-0-vol"],
        "a bare pod may bring its own"
    );

    let mut generated = pod(&["gpu-memory=100"]);
    generated["metadata"] = json!({"generateName": "job-", "annotations": {"gpu-memory": "100"}});
    assert_eq!(prefix(&generated)[0], "job-x2b4c6d-shared-gpu");

    let mut owned = pod(&["gpu-memory=100", "runai/shared-gpu-configmap=of-the-template"]);
    let long = format!("{}.b-and-more", "a".repeat(32));
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "X", "name": long, "uid": "j"}]);
    let [name, volume] = prefix(&owned);
    assert_eq!(
        name,
        format!("{}-x2b4c6d-shared-gpu", "a".repeat(32)),
        "a template's prefix would be shared by its pods"
    );
    assert!(volume.len() <= 63 && name.len() + "-0-evar".len() <= 63);
}

#[test]
fn pods_of_a_template_that_was_copied_from_a_pod_get_config_maps_of_their_own() {
    let mut owned = sharing_pod_of_a_job();
    let expected = mutated(&owned, None, &settings());
    let other: Value = serde_json::from_str(&expected.to_string().replace("x2b4c6d", "bcdfghj")).unwrap();
    assert_eq!(
        mutated(&other, None, &settings()),
        other,
        "the webhook is called twice for one request"
    );
    let with_fields = |pod: &Value, annotation: &str| {
        let mut fields = json!({"f:metadata": {"f:annotations": {}}});
        fields["f:metadata"]["f:annotations"][format!("f:{annotation}")] = json!({});
        let mut pod = pod.clone();
        pod["metadata"]["managedFields"] =
            json!([{"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": fields}]);
        pod
    };
    let again = with_fields(&other, "gpu-fraction");
    assert_eq!(mutated(&again, None, &settings()), again);
    let key = "runai/shared-gpu-configmap";
    assert_eq!(
        mutated(&with_fields(&other, key), None, &settings()),
        with_fields(&expected, key),
        "the template has it"
    );
    for of_a_template in [
        "train-x2b4c6-shared-gpu",
        "train-x2b4c6a-shared-gpu",
        "training-data-shared-gpu",
    ] {
        owned["metadata"]["annotations"][key] = json!(of_a_template);
        assert_eq!(mutated(&owned, None, &settings()), expected, "{of_a_template}");
    }
}

#[test]
fn the_named_container_gets_the_gpu() {
    let mut several = pod(&["gpu-fraction=0.5", "gpu-fraction-container-name=gpu"]);
    several["spec"]["containers"] = json!([{"name": "side"}, {"name": "gpu"}]);
    let after = mutated(&several, None, &settings());
    assert_eq!(after["spec"]["containers"][0], json!({"name": "side"}));
    assert_eq!(after["spec"]["volumes"][0]["name"], "train-0-x2b4c6d-shared-gpu-1-vol");

    several["spec"]["initContainers"] = json!([{"name": "gpu"}]);
    let after = mutated(&several, None, &settings());
    assert_eq!(
        after["spec"]["volumes"][0]["name"], "train-0-x2b4c6d-shared-gpu-i0-vol",
        "init containers come first"
    );

    several["metadata"]["annotations"]["gpu-fraction-container-name"] = json!("nobody");
    assert_eq!(
        denial(mutate(&create(&several), context(None, "x"), &settings())).as_deref(),
        Some("failed to get fraction container ref: container with name nobody not found for fraction request")
    );
}

#[test]
fn a_runtime_class_of_the_pods_own_is_kept_and_none_is_set_where_none_is_wanted() {
    let mut own = pod(&["gpu-fraction=0.5"]);
    own["spec"]["runtimeClassName"] = json!("mine");
    assert_eq!(mutated(&own, None, &settings())["spec"]["runtimeClassName"], "mine");
    own["spec"]["runtimeClassName"] = json!("");
    assert_eq!(mutated(&own, None, &settings())["spec"]["runtimeClassName"], "nvidia");
    let by_memory = mutated(&pod(&["gpu-memory=2000"]), None, &settings());
    assert_eq!(by_memory["spec"]["runtimeClassName"], "nvidia");
    let none = Settings {
        gpu_fraction_runtime_class: String::new(),
        ..settings()
    };
    assert_eq!(
        mutated(&pod(&["gpu-fraction=0.5"]), None, &none)["spec"].get("runtimeClassName"),
        None
    );
}

#[test]
fn visible_devices_are_overridden_for_all_containers() {
    let blocked = Settings {
        block_nvidia_visible_devices: true,
        ..settings()
    };
    let mut mixed = pod(&[]);
    let all = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
    mixed["spec"]["containers"] = json!([
        {"name": "cpu", "env": all},
        {"name": "bare"},
        {"name": "gpu", "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}},
        {"name": "claims", "resources": {"claims": [{"name": "device"}]}},
    ]);
    let after = mutated(&mixed, None, &blocked);
    let void = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]);
    let env: Vec<&Value> = after["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| &container["env"])
        .collect();
    assert_eq!(env, [&void, &void, &Value::Null, &Value::Null]);

    let mut greedy = after.clone();
    greedy["spec"]["containers"][2]["env"] = all;
    assert_eq!(
        denial(validate(&create(&greedy), None, &blocked)).as_deref(),
        Some(
            "container gpu has an environment variable NVIDIA_VISIBLE_DEVICES defined with a value of all. This is forbidden due to conflicts with Nvidia's device plugin. The only values that are allowed are 'void' or 'none'"
        )
    );
    assert_eq!(
        validate(&update(&greedy, &greedy), None, &blocked),
        Verdict::allow(),
        "it was there before the rule"
    );
    assert_eq!(validate(&create(&after), None, &blocked), Verdict::allow());
}

#[test]
fn allowed_values_of_visible_devices_in_containers_with_gpus() {
    let blocked = Settings {
        block_nvidia_visible_devices: true,
        ..settings()
    };
    let says = |variable: Value| {
        let mut pod = pod(&["limit=nvidia.com/gpu:1"]);
        pod["spec"]["containers"][0]["env"] = json!([variable]);
        let verdict = |settings: &Settings| denial(validate(&create(&pod), None, settings));
        assert_eq!(verdict(&settings()), None, "the rule is opt-in");
        verdict(&blocked)
    };
    let name = "NVIDIA_VISIBLE_DEVICES";
    for allowed in ["void", "none", ""] {
        assert_eq!(says(json!({"name": name, "value": allowed})), None, "{allowed}");
    }
    for forbidden in ["1", "1,2", "all"] {
        let told = format!(
            "container main has an environment variable {name} defined with a value of {forbidden}. This is forbidden due to conflicts with Nvidia's device plugin. The only values that are allowed are 'void' or 'none'"
        );
        assert_eq!(says(json!({"name": name, "value": forbidden})), Some(told));
    }
    let from = json!({"name": name, "valueFrom": {"configMapKeyRef": {"name": "map", "key": name}}});
    let told = format!(
        "container main has an environment variable {name} defined with a valueFrom reference. This is forbidden due to possible conflicts with Nvidia's device plugin"
    );
    assert_eq!(says(from), Some(told));

    let lost = pod(&["gpu-fraction=0.5", "gpu-fraction-container-name=nobody"]);
    assert_eq!(
        denial(validate(&create(&lost), None, &blocked)).as_deref(),
        Some("failed to get fraction container ref: container with name nobody not found for fraction request")
    );
}

#[test]
fn an_update_is_not_refused_for_a_fraction_container_that_was_unknown_before() {
    let blocked = Settings {
        block_nvidia_visible_devices: true,
        ..settings()
    };
    let says = |old: &Value, object: &Value| denial(validate(&update(old, object), None, &blocked));
    let sharing = pod(&["gpu-fraction=0.5"]);
    let lost = pod(&["gpu-fraction=0.5", "gpu-fraction-container-name=nobody"]);
    let mut labelled = lost.clone();
    labelled["metadata"]["labels"] = json!({"team": "a"});
    assert_eq!(says(&lost, &labelled), None);
    labelled["spec"]["containers"][0]["env"] = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
    let told = says(&lost, &labelled).expect("a container that changes is checked");
    assert!(told.starts_with("container main has an environment variable"), "{told}");
    let other = pod(&["gpu-fraction=0.5", "gpu-fraction-container-name=nobody-else"]);
    for old in [&sharing, &other] {
        assert_eq!(
            says(old, &lost).as_deref(),
            Some("failed to get fraction container ref: container with name nobody not found for fraction request")
        );
    }
}

fn workload(queue: &str, source: Source) -> Workload {
    let queues = [
        ("default", ""),
        ("test", "default"),
        ("default-parent-queue", ""),
        ("default-queue", "default-parent-queue"),
    ];
    let queues = queues.map(|(name, parent)| queue_object(name, parent, None));
    Workload {
        queue: queue.to_owned(),
        source,
        tree: queues.iter().collect(),
    }
}

fn queue_object(name: &str, parent: &str, allowed: Option<&str>) -> Queue {
    let annotations = allowed.map(|allowed| json!({"unikai.dev/allowed-namespaces": allowed}));
    let metadata = json!({"name": name, "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"parentQueue": parent}})).unwrap()
}

#[test]
fn a_queue_that_is_not_open_to_the_namespace_refuses_the_pod_and_says_which_are() {
    let queues = [
        queue_object("top", "", None),
        queue_object("gold", "top", Some("team-a, research-*")),
        queue_object("lab", "", Some("team-b")),
        queue_object("inner", "lab", None),
        queue_object("free", "top", None),
    ];
    let says = |queue: &str, namespace: &str, mode: QueueLabels| {
        let workload = Workload {
            queue: queue.to_owned(),
            source: Source::Pod,
            tree: queues.iter().collect(),
        };
        denial(queue_label::validate(&workload, namespace, &with(mode)))
    };
    for (queue, namespace) in [
        ("gold", "team-a"),
        ("gold", "research-7"),
        ("inner", "team-b"),
        ("free", "any"),
    ] {
        assert_eq!(
            says(queue, namespace, QueueLabels::Enforce),
            None,
            "{queue} {namespace}"
        );
    }
    let gold = "Queue gold is not open to namespace team-b: the annotation unikai.dev/allowed-namespaces does not name it. \
        Ask the queue's administrator, or set the label kai.scheduler/queue to one of: free, inner";
    assert_eq!(says("gold", "team-b", QueueLabels::Enforce).as_deref(), Some(gold));
    assert_eq!(says("gold", "team-b", QueueLabels::Warn).as_deref(), Some(gold));
    assert_eq!(
        says("gold", "team-b", QueueLabels::Off),
        None,
        "the scheduler holds it back"
    );
    assert_eq!(
        says("inner", "any", QueueLabels::Enforce).as_deref(),
        Some(
            "Queue inner is not open to namespace any: the annotation unikai.dev/allowed-namespaces of queue lab above it does not name it. \
             Ask the queue's administrator, or set the label kai.scheduler/queue to free"
        )
    );
}

fn with(queue_labels: QueueLabels) -> Settings {
    Settings {
        queue_labels,
        ..settings()
    }
}

#[test]
fn every_pod_shows_its_queue_unless_that_is_off() {
    let label = |object: &Value, queue: &str, mode: QueueLabels| {
        mutated(object, Some(&workload(queue, Source::Default)), &with(mode))["metadata"]["labels"]["kai.scheduler/queue"].clone()
    };
    let bare = pod(&[]);
    assert_eq!(label(&bare, "default-queue", QueueLabels::Enforce), "default-queue");
    assert_eq!(label(&bare, "default-queue", QueueLabels::Warn), "default-queue");
    assert_eq!(label(&bare, "default-queue", QueueLabels::Off), Value::Null);
    let mut labelled = bare.clone();
    labelled["metadata"]["labels"] = json!({"kai.scheduler/queue": "test"});
    assert_eq!(label(&labelled, "other", QueueLabels::Enforce), "test");
    labelled["metadata"]["labels"] = json!({"kai.scheduler/queue": ""});
    assert_eq!(
        label(&labelled, "test", QueueLabels::Enforce),
        "test",
        "an empty label names nothing"
    );
}

#[test]
fn a_queue_that_no_label_can_name_is_not_written() {
    let bare = pod(&[]);
    for queue in [
        "q".repeat(64),
        format!("team.{}", "p".repeat(59)),
        "a/b".to_owned(),
        "-a".to_owned(),
    ] {
        let after = mutated(&bare, Some(&workload(&queue, Source::Default)), &settings());
        assert_eq!(after, bare, "{queue}");
    }
    let longest = "q".repeat(63);
    let after = mutated(&bare, Some(&workload(&longest, Source::Default)), &settings());
    assert_eq!(after["metadata"]["labels"]["kai.scheduler/queue"], longest);
}

#[test]
fn a_queue_that_cannot_run_the_pod_is_refused_with_a_sentence_that_says_what_to_do() {
    let found =
        |queue: &str, source: Source| denial(queue_label::validate(&workload(queue, source), "team", &settings()));
    assert_eq!(found("test", Source::Pod), None);
    assert_eq!(
        found("tset", Source::Pod).as_deref(),
        Some(
            "queue \"tset\" does not exist. Set the label kai.scheduler/queue to one of: default-queue, test; or create the queue"
        )
    );
    assert_eq!(
        found("default", Source::Pod).as_deref(),
        Some(
            "queue \"default\" is the parent of other queues; workloads run in queues without children. Set the label kai.scheduler/queue to test, or create the queue"
        )
    );
    assert_eq!(
        found("gone", Source::PodContext).as_deref(),
        Some(
            "queue \"gone\", which the pod's workload, project or namespace names, does not exist. Set the label kai.scheduler/queue to one of: default-queue, test; or create the queue"
        )
    );
    let none = Workload {
        queue: "default-queue".to_owned(),
        source: Source::Default,
        tree: Tree::default(),
    };
    assert_eq!(
        denial(queue_label::validate(&none, "team", &settings())).as_deref(),
        Some(
            "queue \"default-queue\", where pods run that name none, does not exist. There is no queue to run in: create one, and name it in the label kai.scheduler/queue"
        )
    );
}

#[test]
fn the_message_lists_only_some_of_many_queues() {
    let queues: Vec<_> = (0..40)
        .map(|number| queue_object(&format!("q{number:02}"), "", None))
        .collect();
    let tree = queues.iter().collect();
    let lost = Workload {
        queue: "x".to_owned(),
        source: Source::Pod,
        tree,
    };
    assert_eq!(
        denial(queue_label::validate(&lost, "team", &settings())).as_deref(),
        Some(
            "queue \"x\" does not exist. Set the label kai.scheduler/queue to one of: q00, q01, q02, q03, q04, and 35 more (kubectl get queues); or create the queue"
        )
    );
}

#[test]
fn the_setting_decides_between_refusal_warning_and_silence() {
    let lost = workload("tset", Source::Pod);
    let object = pod(&[]);
    let verdict = |mode: QueueLabels| validate(&create(&object), Some(&lost), &with(mode));
    assert!(!verdict(QueueLabels::Enforce).is_allowed());
    let warned = verdict(QueueLabels::Warn);
    assert!(
        warned.is_allowed() && warned.warnings[0].starts_with("queue \"tset\" does not exist."),
        "{warned:?}"
    );
    assert_eq!(verdict(QueueLabels::Off), Verdict::allow());
    assert_eq!(
        validate(&update(&object, &object), Some(&lost), &settings()),
        Verdict::allow(),
        "the queue of a pod that exists is settled"
    );
}

#[test]
fn pods_in_namespaces_without_webhooks_draw_a_warning() {
    for (namespace, told) in [("kai-scheduler", 1), ("kube-system", 1), ("team", 0)] {
        let mut request = create(&pod(&[]));
        request.namespace = namespace.to_owned();
        let verdict = validate(&request, None, &settings());
        assert_eq!((verdict.denial, verdict.warnings.len()), (None, told), "{namespace}");
    }
    let mut request = create(&pod(&["gpu-fraction=7"]));
    request.namespace = "kai-scheduler".to_owned();
    let warnings = validate(&request, None, &settings()).warnings;
    assert_eq!(
        warnings,
        [
            "pods in namespace kai-scheduler are not reviewed: they are not given the label kai.scheduler/queue, and cannot share GPUs. Run workloads in a namespace of their own"
        ]
    );
}
