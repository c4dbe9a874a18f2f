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

#[test]
fn a_pod_whose_queue_is_not_in_the_manifests_gets_a_warning() {
    let queue = "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: NAME}, spec: {PARENT resources: {cpu: ALL, gpu: ALL, memory: ALL}}}";
    let queue = queue.replace("ALL", "{quota: -1, limit: -1}");
    let queues = [
        queue.replace("NAME", "top").replace("PARENT", ""),
        queue.replace("NAME", "team").replace("PARENT", "parentQueue: top,"),
    ];
    let pod = |queue: &str| {
        let labels = if queue.is_empty() {
            String::new()
        } else {
            format!(", labels: {{kai.scheduler/queue: {queue}}}")
        };
        format!(
            "{{kind: Pod, metadata: {{name: p, namespace: n{labels}}}, spec: {{schedulerName: kai-scheduler, containers: []}}}}"
        )
    };
    let read = |documents: &[String]| case::read(&documents.join("\n---\n"), true).expect("a readable file");
    let warnings = |cases: &[Case]| {
        cases
            .iter()
            .flat_map(|case| review(case).verdict.warnings)
            .collect::<Vec<_>>()
    };

    let advice = "Set the label kai.scheduler/queue to team, or create the queue";
    let mut cases = read(&[pod("team"), pod(""), pod("tame"), pod("top")]);
    assert!(warnings(&cases).is_empty(), "no queues are known");
    let mut others = read(&queues);
    case::share_queues(cases.iter_mut().chain(&mut others));
    let told = [
        format!("queue \"tame\" does not exist. {advice}"),
        format!("queue \"top\" is the parent of other queues; workloads run in queues without children. {advice}"),
    ];
    assert_eq!(warnings(&cases), told);

    let namespace = "{kind: Namespace, metadata: {name: n, labels: {kai.scheduler/queue: gone}}}".to_owned();
    let [top, team] = queues;
    let named = read(&[top, team, namespace, pod("")]);
    assert_eq!(
        warnings(&named),
        [format!(
            "queue \"gone\", which the pod's workload, project or namespace names, does not exist. {advice}"
        )]
    );
}
