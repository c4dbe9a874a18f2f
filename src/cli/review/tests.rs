use super::*;

fn answers(text: &str) -> Vec<Value> {
    let cases = case::read(text, true).expect("a readable file");
    cases.iter().map(|case| line("f", case, &review(case))).collect()
}

fn text_of(case: &Case) -> String {
    text(case, &review(case))
}

#[test]
fn manifests_are_reviewed_object_by_object() {
    let text = r#"
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: Pod
metadata: {name: half, namespace: team, annotations: {gpu-fraction: "0.5"}}
spec: {schedulerName: kai-scheduler, containers: [{name: main, image: a}]}
---
apiVersion: v1
kind: Pod
metadata: {name: whole, namespace: team, annotations: {gpu-fraction: "1"}}
spec: {schedulerName: kai-scheduler, containers: [{name: main, image: a}]}
"#;
    let mut answers = answers(text);
    assert_eq!(answers.len(), 3);
    let namespace = answers.remove(0);
    assert_eq!(
        namespace,
        json!({"file": "f", "kind": "Namespace", "name": "team", "reviewed": false})
    );
    assert_eq!(answers[0]["object"]["spec"]["runtimeClassName"], "nvidia");
    assert_eq!(
        answers[0]["object"]["metadata"]["annotations"]["runai/shared-gpu-configmap"],
        "half-xxxxxxx-shared-gpu"
    );
    assert_eq!(
        answers[1]["message"],
        "gpu-fraction annotation value must be a positive number smaller than 1.0"
    );
    assert_eq!(answers[1]["allowed"], false);
}

#[test]
fn an_admission_request_brings_its_settings_and_surroundings() {
    let question = json!({
        "settings": {"hamiCoreEnabled": true, "gpuSharingEnabled": true},
        "request": {"operation": "CREATE", "kind": {"kind": "Pod"}, "object": {
            "metadata": {"name": "p", "namespace": "n", "annotations": {"gpu-memory": "100"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
        }},
    });
    let answers = answers(&question.to_string());
    let env = answers[0]["object"]["spec"]["containers"][0]["env"]
        .as_array()
        .expect("variables");
    let last = &env.last().expect("a variable")["valueFrom"]["configMapKeyRef"];
    assert_eq!(
        *last,
        json!({"name": "p-xxxxxxx-shared-gpu-0", "key": "CUDA_DEVICE_MEMORY_LIMIT", "optional": true})
    );
}

#[test]
fn objects_without_a_webhook_and_invalid_yaml_are_reported() {
    let other = json!({"request": {"operation": "CREATE", "kind": {"kind": "Node"}, "object": {}}});
    let error = case::read(&other.to_string(), true).err().expect("an error");
    assert_eq!(error.to_string(), "no webhook reviews \"Node\"");
    assert!(case::read("{{", true).is_err());
}

#[test]
fn unreviewed_kinds_are_reported_and_invalid_requests_are_errors() {
    let text = "{kind: Deployment, apiVersion: apps/v1, metadata: {name: web, namespace: n}}\n---\n{kind: Queue, metadata: {name: q}, spec: {resources: {}}}";
    let cases = case::read(text, true).expect("a readable file");
    let told: Vec<_> = cases
        .iter()
        .map(|case| (case.kind, case.request.name.as_str()))
        .collect();
    assert_eq!(told, [(Kind::Other, "web"), (Kind::Queue, "q")]);
    let says = text_of(&cases[0]);
    assert_eq!(
        says,
        "Deployment web: not reviewed: no webhook reviews it; its pods are reviewed when they are created\n"
    );
    assert_eq!(
        line("f", &cases[0], &review(&cases[0])),
        json!({"file": "f", "kind": "Deployment", "name": "web", "reviewed": false})
    );
    let foreign = "{kind: Pod, metadata: {name: p}, spec: {schedulerName: other, containers: []}}";
    let foreign = case::read(foreign, true).expect("a readable file");
    assert_eq!(
        text_of(&foreign[0]),
        "Pod p: not reviewed: its schedulerName is not kai-scheduler\n"
    );
    for (nonsense, says) in [
        ("", "there is no object in it"),
        ("---\n---\n", "there is no object in it"),
        ("hello", "not an object of Kubernetes: it has no kind"),
        ("{metadata: {name: a}}", "not an object of Kubernetes: it has no kind"),
        ("[1, 2]", "not an object of Kubernetes: it has no kind"),
    ] {
        assert_eq!(
            case::read(nonsense, true).err().expect("an error").to_string(),
            says,
            "{nonsense}"
        );
    }
}

/// The queue `top`, and below it `team`.
fn queues() -> [String; 2] {
    let queue = "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: NAME}, spec: {PARENT resources: {cpu: ALL, gpu: ALL, memory: ALL}}}";
    let queue = queue.replace("ALL", "{quota: -1, limit: -1}");
    [
        queue.replace("NAME", "top").replace("PARENT", ""),
        queue.replace("NAME", "team").replace("PARENT", "parentQueue: top,"),
    ]
}

/// A pod with these labels.
fn pod(labels: &str) -> String {
    format!(
        "{{kind: Pod, metadata: {{name: p, namespace: n, labels: {{{labels}}}}}, spec: {{schedulerName: kai-scheduler, containers: []}}}}"
    )
}

fn pod_in(queue: &str) -> String {
    pod(&format!("kai.scheduler/queue: {queue}"))
}

fn read(documents: &[String]) -> Vec<Case> {
    case::read(&documents.join("\n---\n"), true).expect("a readable file")
}

fn warnings(cases: &[Case]) -> Vec<String> {
    cases.iter().flat_map(|case| review(case).verdict.warnings).collect()
}

const ADVICE: &str = "Set the label kai.scheduler/queue to team, or create the queue";

#[test]
fn a_pod_whose_queue_is_not_in_the_manifests_gets_a_warning() {
    let pods = read(&[pod_in("team"), pod(""), pod_in("tame"), pod_in("top")]);
    assert!(warnings(&pods).is_empty(), "no queues are known");
    let mut files = [pods, read(&queues())];
    case::share(files.iter_mut());
    let told = [
        format!("queue \"tame\" does not exist. {ADVICE}"),
        format!("queue \"top\" is the parent of other queues; workloads run in queues without children. {ADVICE}"),
    ];
    assert_eq!(warnings(&files[0]), told);
}

#[test]
fn namespaces_and_priority_classes_of_other_files_count() {
    let namespace = "{kind: Namespace, metadata: {name: n, labels: {kai.scheduler/queue: gone}}}".to_owned();
    let class = "{kind: PriorityClass, metadata: {name: night}, value: 10}".to_owned();
    let [top, team] = queues();
    let told = [format!(
        "queue \"gone\", which the pod's workload, project or namespace names, does not exist. {ADVICE}"
    )];
    let together = read(&[top.clone(), team.clone(), namespace.clone(), pod("")]);
    assert_eq!(warnings(&together), told);

    let pods = read(&[pod("priorityClassName: night")]);
    let unknown = warnings(&pods);
    assert!(
        matches!(&unknown[..], [warning] if warning.contains("night")),
        "{unknown:?}"
    );
    let mut files = [read(&[top, team]), read(&[namespace, class]), pods];
    case::share(files.iter_mut());
    assert_eq!(warnings(&files[2]), told);
}

#[test]
fn kinds_of_other_projects_are_not_reviewed() {
    let [top, team] = queues();
    let volcano =
        "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: research}, spec: {weight: 1}}";
    let cases = read(&[top, team, volcano.to_owned(), pod_in("research")]);
    assert_eq!(
        text_of(&cases[2]),
        "Queue research: not reviewed: no webhook reviews it\n"
    );
    assert_eq!(
        warnings(&cases),
        [format!("queue \"research\" does not exist. {ADVICE}")]
    );
    let group = json!({"group": "scheduling.volcano.sh", "version": "v1beta1", "kind": "PodGroup"});
    let question = json!({"request": {"operation": "CREATE", "kind": group, "object": {}}});
    let error = case::read(&question.to_string(), true).err().expect("an error");
    assert_eq!(error.to_string(), "no webhook reviews \"PodGroup\"");
}

#[test]
fn texts_of_manifests_neither_control_the_terminal_nor_look_like_other_rows() {
    const NAME: &str = "\u{1b}]0;x\u{7}\nPod forged: allowed";
    let escaped = r"\u{1b}]0;x\u{7}\nPod forged: allowed";
    let spec = json!({"schedulerName": "kai-scheduler", "containers": []});
    let pod = |annotations: Value| json!({"kind": "Pod", "metadata": {"name": NAME, "annotations": annotations}, "spec": spec});
    let documents = [
        json!({"kind": "Service", "metadata": {"name": NAME}}),
        pod(json!({})),
        pod(json!({"gpu-fraction": NAME})),
    ];
    let cases = read(&documents.each_ref().map(Value::to_string));
    for (case, says) in cases.iter().zip(["not reviewed: ", "allowed\n", "denied: "]) {
        let text = text_of(case);
        let row = format!("{} {escaped}: {says}", case.kind.name().replace("object", "Service"));
        assert!(text.starts_with(&row), "{row:?} is not the begin of {text:?}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.contains("\nPod"), "{text}");
    }
}
