//! `unikai check` against the embedded cluster with everything of `manifests/` in it.

use std::process::Command;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use unikai::devcluster::apiserver::Identity;
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, eventually};

/// Whether the check ends well, and the lines that are not in order.
async fn check(lab: &Lab) -> (bool, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, lab.server.kubeconfig(&Identity::admin())).expect("a kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_unikai"));
    command.args(["check", "-o", "json", "--kubeconfig"]).arg(&kubeconfig);
    let run = tokio::task::spawn_blocking(move || command.output().expect("it runs"));
    let output = run.await.expect("it runs");
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(answer["ok"], output.status.success());
    let sections = answer["sections"].as_array().expect("sections");
    assert_eq!(sections.len(), 10);
    let lines = sections
        .iter()
        .flat_map(|section| section["findings"].as_array().expect("findings"));
    let wrong = lines.filter(|line| line["mark"] != "ok");
    let told = wrong.map(|line| format!("{}: {}", line["mark"].as_str().unwrap(), line["says"].as_str().unwrap()));
    (output.status.success(), told.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn check_finds_nothing_in_a_correct_installation_and_each_fault_in_a_broken_one() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8), NodeSpec::cpu("cpu-1")]).await;
    for (name, yaml) in unikai::cli::manifests::files("unikai:test") {
        if name.contains("operator.yaml") {
            lab.apply(&yaml).await;
        }
    }
    let _operator = lab.replica("one").await;
    eventually("the cluster is sound", async || {
        let (well, wrong) = check(&lab).await;
        (well && wrong.is_empty())
            .then_some(())
            .ok_or_else(|| format!("{wrong:#?}"))
    })
    .await;

    let services = Api::<Service>::namespaced(lab.client.clone(), "kai-scheduler");
    services
        .delete("unikai", &DeleteParams::default())
        .await
        .expect("deleted");
    Api::<ValidatingAdmissionPolicyBinding>::all(lab.client.clone())
        .delete("unikai-pods", &DeleteParams::default())
        .await
        .expect("deleted");
    let orphan = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "orphan"},
        "spec": {"parentQueue": "gone", "resources": {"gpu": {"quota": 1}}}});
    lab.create(orphan).await.expect("a queue");
    let memory = json!({"metadata": {"labels": {"nvidia.com/gpu.memory": null}}});
    lab.patch_node("gpu-1", memory).await;
    let (well, wrong) = check(&lab).await;
    assert!(!well);
    for says in [
        "failed: there is no Service unikai",
        "failed: admission policy unikai-pods has no binding that denies requests",
        "failed: queue orphan: its parent queue gone does not exist",
        "warning: queue orphan: spec.resources.cpu.limit, spec.resources.gpu.limit, spec.resources.memory.limit are not set",
        "warning: nodes with GPUs lack the label nvidia.com/gpu.memory",
    ] {
        assert!(wrong.iter().any(|line| line.starts_with(says)), "{says}: {wrong:#?}");
    }
    assert_eq!(wrong.len(), 5, "{wrong:#?}");
}
