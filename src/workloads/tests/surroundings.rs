//! Workloads are grouped as the operator of the cluster would group them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use crate::api::pod_group::PodGroupSpec;
use crate::components::Settings;
use crate::components::grouping::defaults::Defaults;
use crate::components::grouping::workload::Workload;
use crate::components::watches::Stores;
use crate::workloads::files::Files;
use crate::workloads::{Surroundings, made_in, read};

/// A cluster with the namespace `team` in the queue `lab`, and with two priority classes. Jobs that name none have the class `urgent`.
fn surroundings(settings: Settings) -> Surroundings {
    let stores = Stores::default();
    let namespace = json!({"metadata": {"name": "team", "labels": {"example.com/queue": "lab"}}});
    stores.namespaces.insert(serde_json::from_value(namespace).unwrap());
    for (name, value) in [("urgent", 90), ("idle", 10)] {
        let class = json!({"metadata": {"name": name}, "value": value});
        stores.priority_classes.insert(serde_json::from_value(class).unwrap());
    }
    let map = Workload {
        body: json!({"data": {"types": r#"[{"typeName": "Job", "priorityName": "urgent"}]"#}}),
        ..Workload::default()
    };
    Surroundings {
        settings,
        stores: Arc::new(stores),
        defaults: Arc::new(Defaults::of(&map)),
    }
}

fn settings() -> Settings {
    Settings {
        scheduler_name: "ours".to_owned(),
        queue_label_key: "example.com/queue".to_owned(),
        default_queue: "rest".to_owned(),
        ..Settings::default()
    }
}

fn job(class: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, \
         spec: {{template: {{spec: {{priorityClassName: {class}, containers: []}}}}}}}}"
    )
}

/// A PyTorchJob whose master and worker state these labels and these classes.
fn torch(master: (&str, &str), worker: (&str, &str)) -> String {
    let template = |(preemptibility, class): (&str, &str)| {
        let labels = format!("{{kai.scheduler/preemptibility: {preemptibility}}}");
        format!(
            "{{replicas: 1, template: {{metadata: {{labels: {labels}}}, spec: {{priorityClassName: {class}, containers: []}}}}}}"
        )
    };
    let specs = format!("{{Master: {}, Worker: {}}}", template(master), template(worker));
    format!(
        "{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{name: t}}, spec: {{pytorchReplicaSpecs: {specs}}}}}"
    )
}

fn group(settings: Settings, text: &str, namespace: &str) -> PodGroupSpec {
    let made = made_in(surroundings(settings), text, namespace).unwrap();
    made.groups[0].spec.clone()
}

#[test]
fn the_queue_is_that_of_the_namespace_else_the_configured_one() {
    let queue = |settings: Settings, namespace: &str| group(settings, &job("urgent"), namespace).queue;
    assert_eq!(queue(settings(), "team").as_deref(), Some("lab"));
    assert_eq!(queue(settings(), "other").as_deref(), Some("rest"));
    let as_kai = Settings {
        exactly_as_kai: true,
        ..settings()
    };
    assert_eq!(queue(as_kai, "team").as_deref(), Some("rest"));
    let made = made_in(surroundings(settings()), &job("urgent"), "team").unwrap();
    let spec = made.pods[0].spec.as_ref().unwrap();
    assert_eq!(spec.scheduler_name.as_deref(), Some("ours"));
}

#[test]
fn a_class_that_the_cluster_lacks_gives_way_to_the_default_of_the_kind() {
    let class = |named: &str| group(settings(), &job(named), "team").priority_class_name;
    assert_eq!(class("idle").as_deref(), Some("idle"));
    assert_eq!(class("lacking").as_deref(), Some("urgent"));
    assert_eq!(class("''").as_deref(), Some("urgent"));
}

#[test]
fn a_group_has_the_highest_class_and_the_strictest_preemptibility_of_its_pods() {
    let stated = |spec: PodGroupSpec| {
        let [class, preemptibility] = [spec.priority_class_name, spec.preemptibility].map(Option::unwrap_or_default);
        format!("{class} {preemptibility}")
    };
    let (high, low) = (("non-preemptible", "urgent"), ("preemptible", "idle"));
    for text in [torch(high, low), torch(low, high)] {
        assert_eq!(stated(group(settings(), &text, "team")), "urgent non-preemptible");
    }
}

/// The class of the group of a PyTorchJob whose master and worker name these.
fn class_without_cluster(master: &str, worker: &str) -> String {
    let text = torch(("preemptible", master), ("preemptible", worker));
    let mut files = Files::new(read::read(&text, false).unwrap());
    files.group_all();
    let (_, group) = files.groups.pop_first().unwrap();
    group.spec.priority_class_name.clone().unwrap()
}

#[test]
fn without_a_cluster_the_classes_of_the_manifests_are_compared() {
    for (high, low) in [
        ("build", "train"),
        ("build-preemptible", "train"),
        ("build", "build-preemptible"),
    ] {
        assert_eq!(class_without_cluster(high, low), high);
        assert_eq!(class_without_cluster(low, high), high);
    }
}

/// Which one is higher is not known.
#[test]
fn without_a_cluster_a_class_of_the_manifests_does_not_outrank_another_one() {
    let both = BTreeSet::from([
        class_without_cluster("urgent", "train"),
        class_without_cluster("train", "urgent"),
    ]);
    assert_eq!(both, BTreeSet::from(["train".to_owned(), "urgent".to_owned()]));
}

#[test]
fn pods_that_the_configuration_excludes_are_refused() {
    let excludes = Settings {
        namespace_labels: BTreeMap::from([("team".to_owned(), "yes".to_owned())]),
        ..settings()
    };
    let said = made_in(surroundings(excludes), &job("urgent"), "team").err().unwrap();
    assert_eq!(
        said.to_string(),
        "j-0: the operator's configuration excludes it, by its labels or those of its namespace"
    );
}
