//! The Helm chart: the objects of the plain manifests, as a whole and in two parts.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use unikai::api::names::object;
use unikai::cli::manifests;

use super::{folder, printed, read, sorted, tree};

#[test]
fn the_chart_makes_the_same_objects() {
    let chart = folder().join("chart");
    let chart = chart.to_str().unwrap();
    let template = [
        "template",
        "unikai",
        chart,
        "-n",
        object::NAMESPACE,
        "--include-crds",
        "--kube-version",
        "1.34.0",
    ];
    let Some(objects) = printed("helm", &template) else {
        return;
    };
    let plain = |mut object: Value| {
        // The chart says what is usual, too.
        if object["kind"] == "Deployment" {
            let env = &mut object["spec"]["template"]["spec"]["containers"][0]["env"];
            let needed = ["UNIKAI_NAMESPACE", "UNIKAI_RESERVATION_IMAGE"];
            let kept = env
                .as_array()
                .unwrap()
                .iter()
                .filter(|one| needed.iter().any(|name| one["name"] == *name));
            *env = kept.cloned().collect();
        }
        // Only Helm would delete them.
        if object["kind"] == "PriorityClass" {
            let metadata = object["metadata"].as_object_mut().unwrap();
            assert_eq!(
                metadata.remove("annotations"),
                Some(json!({"helm.sh/resource-policy": "keep"}))
            );
        }
        object
    };
    // Helm makes the namespace.
    let without_namespace = |text: &str| read(text).into_iter().filter(|object| object["kind"] != "Namespace");
    let usual = manifests::files(manifests::DEFAULT_IMAGE);
    let usual: Vec<Value> = usual.iter().flat_map(|(_, text)| without_namespace(text)).collect();
    let made = read(&objects);
    let (shards, made): (Vec<_>, Vec<_>) = made.into_iter().partition(|object| object["kind"] == "SchedulingShard");
    // The operator would make it otherwise, and the release could not take it over later.
    assert_eq!(shards.len(), 1);
    assert_eq!(shards[0]["spec"], json!({}));
    let kept = json!({"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false"});
    assert_eq!(shards[0]["metadata"]["annotations"], kept);
    assert_eq!(sorted(made.into_iter().map(plain).collect()), sorted(usual.clone()));

    // A part for cluster administrators, and one for users with write access to the namespace only.
    let part = |set: &str| read(&printed("helm", &[&template[..], &["--set", set]].concat()).unwrap());
    let administrators = part("operator.enabled=false,global.gpuSharing=true,kaiServices.enabled=true");
    let kinds = |objects: &[Value]| -> BTreeSet<String> {
        objects
            .iter()
            .map(|object| object["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(!kinds(&administrators).contains("Deployment"));
    for namespace in administrators.iter().filter(|object| object["kind"] == "Namespace") {
        assert_eq!(namespace["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
    let both = ["--skip-crds", "--set"];
    let without_crds: Vec<&str> = template
        .iter()
        .copied()
        .filter(|word| *word != "--include-crds")
        .collect();
    let set = "clusterObjects.enabled=false,operator.replicaCount=2,global.gpuSharing=true,kaiServices.enabled=true,monitoring.enabled=true";
    let others = read(&printed("helm", &[&without_crds[..], &both, &[set]].concat()).unwrap());
    let namespaced = [
        "ConfigMap",
        "Deployment",
        "PodDisruptionBudget",
        "PrometheusRule",
        "Service",
        "ServiceMonitor",
    ];
    assert_eq!(kinds(&others), namespaced.map(str::to_owned).into());
    assert!(
        others
            .iter()
            .all(|object| object["metadata"]["namespace"] == object::NAMESPACE)
    );

    let everything = [
        &template[..],
        &["--set", "global.gpuSharing=true,configMaps.enabled=true,monitoring.enabled=true,kaiServices.enabled=true,numaPlacementExporter.rights=true,operator.replicaCount=2,scheduler.placementStrategy=spread"],
    ]
    .concat();
    let all = read(&printed("helm", &everything).unwrap());
    let count = |kind: &str| all.iter().filter(|object| object["kind"] == kind).count();
    assert_eq!(
        [
            "Namespace",
            "PodDisruptionBudget",
            "ServiceMonitor",
            "SchedulingShard",
            "Service"
        ]
        .map(count),
        [3, 1, 1, 1, 6]
    );
}

#[test]
fn the_chart_can_be_installed_in_another_namespace_with_another_scheduler_name() {
    for (path, text) in tree(&folder().join("chart/templates")) {
        let names = text.matches(object::NAMESPACE).count();
        // KAI's name of the service of its scheduler.
        let of_kai = text.matches("kai-scheduler-default").count();
        assert_eq!(names, of_kai, "{}", path.display());
    }
}

#[test]
fn helm_keeps_objects_that_workloads_depend_on() {
    // Without Helm, which is not installed everywhere.
    let files = tree(&folder().join("chart"));
    for (name, kind) in [
        ("20-priority-classes.yaml", "PriorityClass"),
        ("45-gpu-sharing.yaml", "Namespace"),
        ("50-shard.yaml", "SchedulingShard"),
    ] {
        let text = &files[&Path::new("templates").join(name)];
        let documents = text
            .split("---\n")
            .filter(|text| text.contains(&format!("kind: {kind}\n")));
        let kept: Vec<_> = documents
            .map(|text| text.contains("helm.sh/resource-policy: keep\n"))
            .collect();
        assert!(!kept.is_empty() && !kept.contains(&false), "{name}: {kept:?}");
    }
    let shard = &files[Path::new("templates/50-shard.yaml")];
    assert!(
        shard.contains("argocd.argoproj.io/sync-options: Prune=false\n"),
        "{shard}"
    );
}

#[test]
fn pull_secrets_reach_the_pods_that_the_operator_makes() {
    let chart = folder().join("chart");
    let secrets = "global.imagePullSecrets[0].name=a,global.imagePullSecrets[1].name=b";
    let chart = chart.to_str().unwrap();
    let template = [
        "template",
        "unikai",
        chart,
        "--kube-version",
        "1.34.0",
        "--set",
        secrets,
    ];
    let Some(objects) = printed("helm", &template) else {
        return;
    };
    let objects = read(&objects);
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "a"}, {"name": "b"}]));
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let variable = json!({"name": "UNIKAI_IMAGE_PULL_SECRETS", "value": "a,b"});
    assert!(env.contains(&variable), "{env:?}");
}

#[test]
fn variables_that_the_chart_sets_are_those_of_flags() {
    let help = printed(env!("CARGO_BIN_EXE_unikai"), &["run", "--help"]).unwrap();
    let helpers = &tree(&folder().join("chart"))[Path::new("templates/_helpers.tpl")];
    let variables: Vec<_> = helpers
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("UNIKAI_"))
        .collect();
    assert!(variables.len() > 10);
    for variable in variables {
        assert!(help.contains(&format!("[env: {variable}=")), "{variable}");
    }
}
