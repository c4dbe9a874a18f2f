//! The pods that each kind of workload makes.

use std::collections::BTreeSet;

use super::{made, refused};
use crate::api::names::{annotation, label};
use crate::workloads::files::Files;
use crate::workloads::read;

const CONTAINERS: &str = "template: {spec: {containers: [{name: main, image: i}]}}";

/// The names of the pods and the minimums of their groups.
fn made_by(api_version: &str, kind: &str, spec: &str) -> (Vec<String>, Vec<Option<i32>>) {
    let text = format!("{{apiVersion: {api_version}, kind: {kind}, metadata: {{name: w}}, spec: {spec}}}");
    let made = made(&text, "team").expect(kind);
    let names = made.pods.iter().filter_map(|pod| pod.metadata.name.clone());
    let minimums = made.groups.iter().map(|group| group.spec.min_member);
    (names.collect(), minimums.collect())
}

#[test]
fn a_job_makes_no_more_pods_than_completions() {
    let job = |numbers: &str| made_by("batch/v1", "Job", &format!("{{{numbers}, {CONTAINERS}}}")).0;
    assert_eq!(job("parallelism: 4, completions: 2"), ["w-0", "w-1"]);
    assert_eq!(job("parallelism: 2, completions: 4"), ["w-0", "w-1"]);
    assert_eq!(job("completions: 3"), ["w-0"]);
    let jobs =
        format!("[{{name: a, replicas: 2, template: {{spec: {{parallelism: 3, completions: 1, {CONTAINERS}}}}}}}]");
    let (pods, _) = made_by(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        &format!("{{replicatedJobs: {jobs}}}"),
    );
    assert_eq!(pods, ["w-a-0-0", "w-a-1-0"]);
}

#[test]
fn a_cron_job_makes_the_pods_of_a_run() {
    let run = format!(
        "{{metadata: {{annotations: {{kai.scheduler/batch-min-member: '2'}}}}, spec: {{parallelism: 3, {CONTAINERS}}}}}"
    );
    let (pods, minimums) = made_by("batch/v1", "CronJob", &format!("{{jobTemplate: {run}}}"));
    assert_eq!(pods, ["w-0-0", "w-0-1", "w-0-2"]);
    assert_eq!(minimums, [Some(2)]);
}

#[test]
fn every_replica_of_a_leader_worker_set_has_a_leader_and_workers() {
    let template = format!(
        "leaderWorkerTemplate: {{size: 2, {}}}",
        CONTAINERS.replace("template", "workerTemplate")
    );
    let (pods, minimums) = made_by(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        &format!("{{replicas: 2, {template}}}"),
    );
    assert_eq!(pods, ["w-0-0", "w-0-1", "w-1-0", "w-1-1"]);
    assert_eq!(minimums, [Some(2), Some(2)]);
}

#[test]
fn groups_of_ray_workers_have_several_hosts_and_no_fewer_replicas_than_their_minimum() {
    let groups = format!(
        "[{{groupName: a, replicas: 1, minReplicas: 2, numOfHosts: 2, {CONTAINERS}}}, {{groupName: b, replicas: 5, suspend: true, {CONTAINERS}}}, \
         {{groupName: c, {CONTAINERS}}}]"
    );
    let spec = format!("{{headGroupSpec: {{{CONTAINERS}}}, workerGroupSpecs: {groups}}}");
    let (pods, minimums) = made_by("ray.io/v1", "RayCluster", &spec);
    assert_eq!(pods, ["w-headgroup", "w-a-0", "w-a-1", "w-a-2", "w-a-3"]);
    assert_eq!(minimums, [Some(5)]);
}

#[test]
fn pods_have_the_index_that_their_controller_gives_them() {
    let segments = |api_version: &str, kind: &str, spec: &str| {
        let annotated = format!(
            "metadata: {{name: w, annotations: {{{}: '2'}}}}",
            annotation::SEGMENT_SIZE
        );
        let text = format!("{{apiVersion: {api_version}, kind: {kind}, {annotated}, spec: {{{spec}, {CONTAINERS}}}}}");
        let made = made(&text, "team").expect(kind);
        let of =
            |pod: &k8s_openapi::api::core::v1::Pod| pod.metadata.labels.as_ref()?.get(label::SUBGROUP_NAME).cloned();
        made.pods.iter().filter_map(|pod| of(pod)).collect::<Vec<_>>()
    };
    let set = segments("apps/v1", "StatefulSet", "replicas: 3, podManagementPolicy: Parallel");
    assert_eq!(set, ["segment-0", "segment-0", "segment-1"]);
    let job = segments(
        "batch/v1",
        "Job",
        "parallelism: 3, completions: 3, completionMode: Indexed",
    );
    assert_eq!(job, ["segment-0", "segment-0", "segment-1"]);
    let started_at = format!("{{replicas: 2, ordinals: {{start: 5}}, {CONTAINERS}}}");
    assert_eq!(made_by("apps/v1", "StatefulSet", &started_at).0, ["w-5", "w-6"]);
}

#[test]
fn workloads_whose_pods_are_not_known_are_refused_with_the_reason() {
    let said = |kind: &str, spec: &str| {
        let (api_version, kind) = kind.rsplit_once('/').expect("a version");
        let text = format!("{{apiVersion: {api_version}, kind: {kind}, metadata: {{name: w}}, spec: {spec}}}");
        let said = refused(&text);
        let why = said.strip_prefix(&format!("{kind} w: its pods cannot be derived from it, as "));
        why.map_or(said.clone(), ToOwned::to_owned)
    };
    for (kind, spec) in [
        ("argoproj.io/v1alpha1/Workflow", "{templates: []}"),
        ("kubevirt.io/v1/VirtualMachineInstance", "{domain: {}}"),
        ("machinelearning.seldon.io/v1/SeldonDeployment", "{predictors: []}"),
        ("tekton.dev/v1/PipelineRun", "{pipelineSpec: {tasks: []}}"),
        (
            "workspace.devfile.io/v1alpha2/DevWorkspace",
            "{template: {components: []}}",
        ),
    ] {
        assert_eq!(said(kind, spec), "it has no template of them", "{kind}");
    }
    let containers = format!("{{{CONTAINERS}}}");
    for (kind, spec, first) in [
        (
            "grove.io/v1alpha1/PodCliqueSet",
            "{template: {cliques: []}}",
            "a PodGang",
        ),
        (
            "nvidia.com/v1alpha1/DynamoGraphDeployment",
            "{services: {}}",
            "a PodCliqueSet",
        ),
        ("ray.io/v1/RayJob", "{rayClusterSpec: {}}", "a RayCluster"),
        (
            "run.ai/v2alpha1/TrainingWorkload",
            "{image: {value: i}}",
            "another workload",
        ),
        ("serving.knative.dev/v1/Service", &*containers, "a Revision"),
        (
            "trainer.kubeflow.org/v1alpha1/TrainJob",
            "{runtimeRef: {name: torch}}",
            "a JobSet",
        ),
    ] {
        let why = format!("they depend on {first} that its controller creates");
        assert_eq!(said(kind, spec), why, "{kind}");
    }
}

/// For display, one such workload does not keep the others from being grouped.
#[test]
fn a_workload_whose_pods_are_not_known_is_named_beside_the_groups_of_others() {
    let text = format!(
        "{{apiVersion: ray.io/v1, kind: RayJob, metadata: {{name: ray}}, spec: {{}}}}\n---\n\
         {{apiVersion: batch/v1, kind: CronJob, metadata: {{name: nightly}}, spec: {{jobTemplate: {{spec: {{{CONTAINERS}}}}}}}}}"
    );
    let mut files = Files::new(read::read(&text, false).expect("manifests"));
    files.group_all();
    let why = "its pods cannot be derived from it, as they depend on a RayCluster that its controller creates";
    assert_eq!(files.refused, [("RayJob default/ray".to_owned(), why.to_owned())]);
    assert!(files.errors.is_empty(), "{:?}", files.errors);
    let groups: BTreeSet<&str> = files.groups.keys().map(|(_, name)| name.as_str()).collect();
    assert_eq!(groups, BTreeSet::from(["pg-nightly-0-uid-of-job-nightly-0"]));
}
