mod fuzz;
mod kinds;
mod surroundings;

use super::*;

/// In a cluster with the usual configuration and nothing else.
fn made(text: &str, namespace: &str) -> anyhow::Result<Made> {
    let surroundings = Surroundings {
        settings: Settings::default(),
        stores: Arc::default(),
        defaults: Arc::default(),
    };
    made_in(surroundings, text, namespace)
}

fn refused(text: &str) -> String {
    match made(text, "team") {
        Ok(made) => panic!("{} pods", made.pods.len()),
        Err(error) => format!("{error:#}"),
    }
}

fn job(name: &str, parallelism: u64, image: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec: {{parallelism: {parallelism}, completions: {parallelism}, \
         template: {{spec: {{schedulerName: kai-scheduler, containers: [{{name: main, image: {image}}}]}}}}}}\n---\n"
    )
}

#[test]
fn a_job_makes_its_pods_and_they_are_grouped() {
    let made = made(&job("train", 3, "i"), "team").unwrap();
    assert_eq!((made.pods.len(), made.groups.len()), (3, 1));
    let names = made
        .pods
        .iter()
        .map(|pod| pod.metadata.annotations.as_ref().unwrap()["pod-group-name"].clone());
    let group = made.groups[0].metadata.name.clone().unwrap();
    assert!(names.into_iter().all(|name| name == group));
    assert_eq!(made.groups[0].metadata.namespace.as_deref(), Some("team"));
}

#[test]
fn the_namespaces_of_workloads_are_known_without_a_cluster() {
    let elsewhere = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: lab}\nspec: {containers: []}\n---\n";
    let group = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g, namespace: other}\n";
    let all = namespaces(&format!("{}{elsewhere}{group}", job("train", 3, "i")), "team").unwrap();
    assert_eq!(all, HashSet::from(["team", "lab", "other"].map(str::to_owned)));
}

#[test]
fn workloads_with_too_many_pods_are_refused_before_expansion() {
    assert_eq!(refused(&job("train", 1 << 30, "i")), "makes more than 4096 pods");
    let many: String = (0..5_000)
        .map(|number| job(&format!("j{number}"), 4_000, "i"))
        .collect();
    assert_eq!(refused(&many), "makes more than 4096 pods");
    let template = "{spec: {parallelism: 1000000000, template: {spec: {containers: []}}}}";
    let jobs = format!("{{name: a, replicas: 1000000000, template: {template}}},").repeat(1_000);
    let set = format!(
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {{name: s}}\nspec: {{replicatedJobs: [{jobs}]}}"
    );
    assert_eq!(refused(&set), "makes pods of more than 16 MiB in all");
}

#[test]
fn workloads_with_too_large_pods_are_refused() {
    let long = job("train", 4_000, &"i".repeat(100_000));
    assert_eq!(refused(&long), "makes pods of more than 16 MiB in all");
}

#[test]
fn texts_that_are_no_manifests_are_refused_with_the_reason() {
    for (text, why) in [
        ("", "holds no pods, and no workload of a kind that makes some"),
        (
            "just words",
            "not a manifest: an object lacks apiVersion, kind or metadata.name",
        ),
        ("a: b: c", "not YAML"),
        (
            "kind: Pod\napiVersion: v1\nmetadata: {name: p}",
            "not a manifest: a pod lacks spec",
        ),
        (
            "kind: Pod\napiVersion: v1\nmetadata: []",
            "not a manifest: an object lacks apiVersion, kind or metadata.name",
        ),
        (
            "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: 5",
            "not a manifest: a pod lacks spec",
        ),
    ] {
        let said = refused(text);
        assert!(said.starts_with(why), "{text}: {said}");
    }
}
