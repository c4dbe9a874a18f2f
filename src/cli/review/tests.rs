use super::*;

fn answers(text: &str) -> Vec<Value> {
    let cases = case::read(text, true).expect("a readable file");
    cases.iter().map(|case| line("f", &review(case))).collect()
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
    let answers = answers(text);
    assert_eq!(answers.len(), 2);
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
fn what_no_webhook_looks_at_and_what_is_no_yaml_is_said() {
    let other = json!({"request": {"operation": "CREATE", "kind": {"kind": "Node"}, "object": {}}});
    let error = case::read(&other.to_string(), true).err().expect("an error");
    assert_eq!(error.to_string(), "no webhook looks at \"Node\"");
    assert!(case::read("{{", true).is_err());
}
