//! Workloads of every family on the embedded cluster: from the owner object and its pods to a running gang. Their own controllers
//! do not run; the tests create the pods as they would.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use unikai::api::PodGroup;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::bench::{self, Bench, pod};

/// An object in the namespace of the tests, in queue `test`.
fn owner(api_version: &str, kind: &str, name: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": {"kai.scheduler/queue": "test"}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key.as_str()] = value.clone();
    }
    object
}

/// A JobSet with so many replicas of one Job, each of so many pods.
fn job_set(name: &str, replicas: u32, parallelism: u32) -> Value {
    let template = json!({"spec": {"parallelism": parallelism}});
    let spec = json!({"spec": {"replicatedJobs": [{"name": "node", "replicas": replicas, "template": template}]}});
    owner("jobset.x-k8s.io/v1alpha2", "JobSet", name, &spec)
}

/// A Job as the controller of JobSets makes it.
fn child_job(name: &str, parallelism: u32) -> Value {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"spec": {"parallelism": parallelism, "template": pod}});
    owner("batch/v1", "Job", name, &spec)
}

/// The labels that distinguish the pods of replicas.
fn child_labels(index: &str) -> [(&'static str, &str); 2] {
    [
        ("jobset.sigs.k8s.io/replicatedjob-name", "node"),
        ("jobset.sigs.k8s.io/job-index", index),
    ]
}

/// The same below another object.
fn below(parent: &OwnerReference, mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([parent]);
    object
}

/// A pod that needs a whole node.
fn member(name: &str, owner: &OwnerReference, labels: &[(&str, &str)]) -> Pod {
    let mut member = pod(name, json!({"nvidia.com/gpu": "8"}));
    member.metadata.owner_references = Some(vec![owner.clone()]);
    let own = member.metadata.labels.get_or_insert_default();
    own.extend(
        labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    member
}

impl Bench {
    /// Makes the pods with one node too few for them: none runs. Then with all nodes: all run, in that group and these parts.
    async fn runs_as_gang(&self, group: &str, pods: &[(Pod, Option<&str>)]) -> PodGroup {
        let names: Vec<String> = pods.iter().filter_map(|(pod, _)| pod.metadata.name.clone()).collect();
        for (pod, _) in pods {
            self.create(pod).await;
        }
        for index in 1..pods.len() {
            self.world
                .add_node(NodeSpec::gpu(format!("{group}-{index}"), 8))
                .await
                .unwrap();
        }
        let waits = |found: &PodGroup| {
            found
                .status
                .as_ref()
                .is_some_and(|status| !status.scheduling_conditions.is_empty())
        };
        self.until("the group waits", "default", group, waits).await;
        for name in &names {
            assert_eq!(
                bench::phase(&self.get::<Pod>("default", name).await),
                "Pending",
                "{name} of {group}"
            );
        }
        self.world
            .add_node(NodeSpec::gpu(format!("{group}-0"), 8))
            .await
            .unwrap();
        for (name, (_, part)) in names.iter().zip(pods) {
            let placed = |pod: &Pod| {
                let labels = pod.metadata.labels.clone().unwrap_or_default();
                let named = labels.get("kai.scheduler/subgroup-name").map(String::as_str);
                bench::phase(pod) == "Running" && named == *part
            };
            // A binding carries no labels: the part is written once the pod is bound.
            let pod: Pod = self.until("it runs and names its part", "default", name, placed).await;
            assert_eq!(pod.metadata.annotations.unwrap()["pod-group-name"], group);
        }
        let found: PodGroup = self.get("default", group).await;
        assert_eq!(found.spec.queue.as_deref(), Some("test"), "{group}");
        found
    }
}

/// The sub-groups of a group, with their minima.
fn parts(group: &PodGroup) -> BTreeMap<&str, (Option<i32>, Option<i32>)> {
    let parts = group.spec.sub_groups.iter();
    parts
        .map(|part| (&*part.name, (part.min_member, part.min_sub_group)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeflow_jobs_start_whole() {
    let bench = Bench::start(Vec::new()).await;
    for kind in ["PyTorchJob", "TFJob", "MPIJob"] {
        bench
            .serve("kubeflow.org", if kind == "MPIJob" { "v2beta1" } else { "v1" }, kind)
            .await;
    }
    let replicas = json!({"Master": {"replicas": 1}, "Worker": {"replicas": 2}});
    let spec = json!({"spec": {"pytorchReplicaSpecs": replicas}});
    let job = bench
        .create_owner(owner("kubeflow.org/v1", "PyTorchJob", "pt", &spec))
        .await;
    let kind = "training.kubeflow.org/replica-type";
    let pods = [
        (member("pt-master-0", &job, &[(kind, "master")]), Some("master")),
        (member("pt-worker-0", &job, &[(kind, "worker")]), Some("worker")),
        (member("pt-worker-1", &job, &[(kind, "worker")]), Some("worker")),
    ];
    let group = bench.runs_as_gang(&format!("pg-pt-{}", job.uid), &pods).await;
    assert_eq!(
        parts(&group),
        [("master", (Some(1), None)), ("worker", (Some(2), None))].into()
    );

    let spec = json!({"spec": {"tfReplicaSpecs": {"PS": {"replicas": 1}, "Worker": {"replicas": 1}}}});
    let job = bench.create_owner(owner("kubeflow.org/v1", "TFJob", "tf", &spec)).await;
    let pods = [
        (member("tf-ps-0", &job, &[]), None),
        (member("tf-worker-0", &job, &[]), None),
    ];
    let group = bench.runs_as_gang(&format!("pg-tf-{}", job.uid), &pods).await;
    assert_eq!(group.spec.min_member, Some(2));

    let spec = json!({"spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 1}}}});
    let job = bench
        .create_owner(owner("kubeflow.org/v2beta1", "MPIJob", "mpi", &spec))
        .await;
    let launcher = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let launcher = below(&job, owner("batch/v1", "Job", "mpi-launcher", &launcher));
    let launcher = bench.create_owner(launcher).await;
    let pods = [
        (member("mpi-launcher-x", &launcher, &[]), None),
        (member("mpi-worker-0", &job, &[]), None),
    ];
    bench.runs_as_gang(&format!("pg-mpi-{}", job.uid), &pods).await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_kinds_of_kubeflow_start_with_all_their_pods() {
    let bench = Bench::start(Vec::new()).await;
    let two = |key: &str| json!({"spec": {key: {"Worker": {"replicas": 2}}}});
    let with_master = json!({"spec": {"xgbReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}}});
    // Of higher priority than the others, so it comes first.
    let kinds = [
        ("kubeflow.org", "v1beta1", "Notebook", json!({}), 1),
        ("kubeflow.org", "v1", "XGBoostJob", with_master, 2),
        ("kubeflow.org", "v1", "JAXJob", two("jaxReplicaSpecs"), 2),
        ("kubeflow.org", "v1alpha1", "ScheduledWorkflow", json!({}), 1),
    ];
    for (group, version, kind, spec, count) in kinds {
        bench.serve(group, version, kind).await;
        let name = kind.to_lowercase();
        let job = bench
            .create_owner(owner(&format!("{group}/{version}"), kind, &name, &spec))
            .await;
        let pods: Vec<_> = (0..count)
            .map(|number| (member(&format!("{name}-{number}"), &job, &[]), None))
            .collect();
        let group = bench.runs_as_gang(&format!("pg-{name}-{}", job.uid), &pods).await;
        assert_eq!(group.spec.min_member, Some(count), "{kind}");
    }
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_train_job_starts_as_the_job_set_below_it() {
    let bench = Bench::start(Vec::new()).await;
    bench.serve("trainer.kubeflow.org", "v1alpha1", "TrainJob").await;
    bench.serve("jobset.x-k8s.io", "v1alpha2", "JobSet").await;
    let train = bench
        .create_owner(owner("trainer.kubeflow.org/v1alpha1", "TrainJob", "train", &json!({})))
        .await;
    let set = bench.create_owner(below(&train, job_set("train", 1, 2))).await;
    let job = bench.create_owner(below(&set, child_job("train-node-0", 2))).await;
    let labels = child_labels("0");
    let pods = ["train-node-0-0", "train-node-0-1"].map(|name| (member(name, &job, &labels), Some("node-replica-0")));
    bench.runs_as_gang(&format!("pg-train-{}", set.uid), &pods).await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ray_clusters_start_alone_and_below_a_service() {
    let bench = Bench::start(Vec::new()).await;
    bench.serve("ray.io", "v1", "RayCluster").await;
    bench.serve("ray.io", "v1", "RayService").await;
    let spec = json!({"spec": {"workerGroupSpecs": [{"groupName": "gpu", "replicas": 1}]}});
    let group = "ray.io/group";
    let pods = |name: &str, cluster: &OwnerReference| {
        [("headgroup", "head"), ("gpu", "worker")].map(|(part, role)| {
            let pod = member(&format!("{name}-{role}"), cluster, &[(group, part)]);
            (pod, Some(part))
        })
    };

    let cluster = bench
        .create_owner(owner("ray.io/v1", "RayCluster", "alone", &spec))
        .await;
    bench
        .runs_as_gang(&format!("pg-alone-{}", cluster.uid), &pods("alone", &cluster))
        .await;

    let status = json!({"status": {"pendingServiceStatus": {"rayClusterName": "serving"}}});
    let service = bench
        .create_owner(owner("ray.io/v1", "RayService", "llm", &status))
        .await;
    let cluster = bench
        .create_owner(below(&service, owner("ray.io/v1", "RayCluster", "serving", &spec)))
        .await;
    bench
        .runs_as_gang(&format!("pg-llm-{}", service.uid), &pods("serving", &cluster))
        .await;
    bench.stop().await;
}

/// The cluster is read before it is scaled up, and nothing about the pod changes afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ray_worker_that_is_seen_before_its_cluster_has_a_place_for_it_gets_that() {
    let bench = Bench::start(Vec::new()).await;
    bench.serve("ray.io", "v1", "RayCluster").await;
    let workers = |replicas: u32| json!({"spec": {"workerGroupSpecs": [{"groupName": "gpu", "replicas": replicas}]}});
    let cluster = owner("ray.io/v1", "RayCluster", "grows", &workers(0));
    let cluster = bench.create_owner(cluster).await;
    bench
        .create(&member("early", &cluster, &[("ray.io/group", "gpu")]))
        .await;
    let group_of = |pod: &Pod| pod.metadata.annotations.as_ref()?.get("pod-group-name").cloned();
    let alone = |pod: &Pod| group_of(pod).is_some_and(|group| group.starts_with("pg-early-"));
    bench
        .until::<Pod>("it is grouped alone", "default", "early", alone)
        .await;
    bench.change("ray.io/v1", "RayCluster", "grows", workers(1)).await;
    let named = format!("pg-grows-{}", cluster.uid);
    let in_cluster = |pod: &Pod| group_of(pod).as_ref() == Some(&named);
    bench
        .until::<Pod>("it is in the cluster's group", "default", "early", in_cluster)
        .await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ray_job_starts_once_its_cluster_is_known() {
    let bench = Bench::start(Vec::new()).await;
    bench.serve("ray.io", "v1", "RayCluster").await;
    bench.serve("ray.io", "v1", "RayJob").await;
    let job = json!({"status": {"rayClusterName": "ray-1"}});
    let job = bench.create_owner(owner("ray.io/v1", "RayJob", "ray", &job)).await;
    let spec = json!({"spec": {"workerGroupSpecs": [{"groupName": "GPU.large", "replicas": 4, "minReplicas": 2}]}});
    let cluster = below(&job, owner("ray.io/v1", "RayCluster", "ray-1", &spec));
    let cluster = bench.create_owner(cluster).await;
    let group = "ray.io/group";
    let pods = [
        (member("ray-head", &cluster, &[(group, "headgroup")]), Some("headgroup")),
        (
            member("ray-worker-0", &cluster, &[(group, "GPU.large")]),
            Some("gpu-large"),
        ),
        (
            member("ray-worker-1", &cluster, &[(group, "GPU.large")]),
            Some("gpu-large"),
        ),
    ];
    let group = bench.runs_as_gang(&format!("pg-ray-{}", job.uid), &pods).await;
    assert_eq!(
        parts(&group),
        [("headgroup", (Some(1), None)), ("gpu-large", (Some(2), None))].into()
    );
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_set_under_a_workflow_starts_whole() {
    let bench = Bench::start(Vec::new()).await;
    bench.serve("argoproj.io", "v1alpha1", "Workflow").await;
    bench.serve("jobset.x-k8s.io", "v1alpha2", "JobSet").await;
    let flow = bench
        .create_owner(owner("argoproj.io/v1alpha1", "Workflow", "flow", &json!({})))
        .await;
    let mut set = below(&flow, job_set("js", 2, 1));
    set["metadata"]["labels"] = json!({});
    let set = bench.create_owner(set).await;
    let mut pods = Vec::new();
    for index in ["0", "1"] {
        let job = below(&set, child_job(&format!("js-node-{index}"), 1));
        let job = bench.create_owner(job).await;
        let labels = child_labels(index);
        let part = if index == "0" {
            "node-replica-0"
        } else {
            "node-replica-1"
        };
        pods.push((member(&format!("js-node-{index}-0"), &job, &labels), Some(part)));
    }
    // The workflow names the queue, and the pods do not.
    for (pod, _) in &mut pods {
        pod.metadata
            .labels
            .get_or_insert_default()
            .remove("kai.scheduler/queue");
    }
    let group = bench.runs_as_gang(&format!("pg-js-{}", set.uid), &pods).await;
    assert_eq!(group.spec.min_sub_group, Some(1));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_and_its_workers_start_together() {
    let bench = Bench::start(Vec::new()).await;
    bench.serve("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet").await;
    let spec = json!({"spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": {}}}});
    let set = bench
        .create_owner(owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", &spec))
        .await;
    let labels = |index| {
        [
            ("leaderworkerset.sigs.k8s.io/group-index", "0"),
            ("leaderworkerset.sigs.k8s.io/worker-index", index),
        ]
    };
    let pods = [
        (member("lws-0", &set, &labels("0")), Some("leader")),
        (member("lws-0-1", &set, &labels("1")), Some("workers")),
    ];
    bench.runs_as_gang(&format!("pg-lws-{}-group-0", set.uid), &pods).await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_knative_revision_starts_with_its_minimum() {
    let bench = Bench::start(Vec::new()).await;
    bench.serve("serving.knative.dev", "v1", "Service").await;
    bench.serve("serving.knative.dev", "v1", "Revision").await;
    let service = bench
        .create_owner(owner("serving.knative.dev/v1", "Service", "llm", &json!({})))
        .await;
    let mut revision = below(
        &service,
        owner("serving.knative.dev/v1", "Revision", "llm-1", &json!({})),
    );
    revision["metadata"]["annotations"] = json!({"autoscaling.knative.dev/min-scale": "2"});
    let revision = bench.create_owner(revision).await;
    let labels = [("serving.knative.dev/revision", "llm-1")];
    let pods = [
        (member("llm-1-a", &revision, &labels), None),
        (member("llm-1-b", &revision, &labels), None),
    ];
    let group = bench.runs_as_gang(&format!("pg-llm-1-{}", revision.uid), &pods).await;
    assert_eq!(group.spec.priority_class_name.as_deref(), Some("inference"));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_group_write_with_a_conflict_is_retried_without_an_event() {
    let bench = Bench::start(vec![NodeSpec::gpu("n1", 8)]).await;
    for verb in ["create", "patch"] {
        let refused = Effect::Refuse {
            code: 409,
            retry_after: None,
        };
        bench
            .server
            .faults()
            .add(Match::verb_on(verb, "podgroups"), refused, Times::Next(2));
    }
    let job = bench
        .create_job("twice", json!({"kai.scheduler/batch-min-member": "1"}))
        .await;
    bench.create(&member("twice-0", &job, &[])).await;
    let name = format!("pg-twice-{}", job.uid);
    bench
        .until("it is written", "default", &name, |group: &PodGroup| {
            group.spec.min_member == Some(1)
        })
        .await;
    let refusals = bench.writes().into_iter().filter(|write| write.code == 409);
    assert_eq!(refusals.filter(|write| write.verb == "create").count(), 2);
    bench
        .until_list(
            "its pod is bound, and nobody was warned",
            "default",
            |events: &[Event]| {
                let reason = |event: &Event, reason: &str| event.reason.as_deref() == Some(reason);
                assert!(!events.iter().any(|event| reason(event, "PodGrouperWarning")));
                events.iter().any(|event| reason(event, "Scheduled"))
            },
        )
        .await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_workloads_get_the_reason_and_affect_no_others() {
    let bench = Bench::start(vec![NodeSpec::gpu("n1", 8)]).await;
    bench.serve("kubeflow.org", "v1", "PyTorchJob").await;
    bench.serve("example.com", "v1", "Vault").await;
    bench.serve("example.com", "v1", "Ring").await;
    let worker = |size: &str| {
        json!({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 20_000, "template": {"metadata": {
            "annotations": {"kai.scheduler/segment-size": size}}}}}}})
    };
    let many = bench
        .create_owner(owner("kubeflow.org/v1", "PyTorchJob", "many", &worker("1")))
        .await;
    let text = bench
        .create_owner(owner("kubeflow.org/v1", "PyTorchJob", "text", &worker("two")))
        .await;
    let empty = bench
        .create_owner(owner("kubeflow.org/v1", "PyTorchJob", "empty", &json!({"spec": "?"})))
        .await;
    let ring = bench
        .create_owner(owner("example.com/v1", "Ring", "a", &json!({})))
        .await;
    let mut circle = ring.clone();
    let other = bench
        .create_owner(below(&ring, owner("example.com/v1", "Ring", "b", &json!({}))))
        .await;
    (circle.uid, circle.name) = (other.uid.clone(), other.name.clone());
    bench.own("example.com/v1", "Ring", "a", &other).await;
    let gone = OwnerReference {
        uid: "nobody".to_owned(),
        name: "gone".to_owned(),
        ..many.clone()
    };
    let labels = [
        ("training.kubeflow.org/replica-type", "worker"),
        ("training.kubeflow.org/replica-index", "0"),
    ];
    let wrong = [
        ("many", &many, "greater than max allowed segmentation 4096"),
        ("text", &text, "invalid segment size"),
        ("empty", &empty, "is not an object"),
        ("ring", &circle, "form a loop"),
        ("gone", &gone, "failed to find PyTorchJob"),
    ];
    for (name, owner, _) in &wrong {
        bench.create(&member(name, owner, &labels)).await;
    }
    let vault = bench
        .create_owner(owner("example.com/v1", "Vault", "s", &json!({})))
        .await;
    let refused = Effect::Refuse {
        code: 403,
        retry_after: None,
    };
    bench
        .server
        .faults()
        .add(Match::verb_on("get", "vaults"), refused, Times::Always);
    bench.create(&member("alone", &vault, &[])).await;
    let alone: Pod = bench
        .until(
            "a pod under an unreadable owner runs",
            "default",
            "alone",
            |pod: &Pod| bench::phase(pod) == "Running",
        )
        .await;
    let named = alone.metadata.annotations.unwrap()["pod-group-name"].clone();
    assert_eq!(named, format!("pg-alone-{}", alone.metadata.uid.unwrap()));
    bench
        .until_list("each of the others is told why", "default", |events: &[Event]| {
            wrong.iter().all(|(name, _, says)| {
                events.iter().any(|event| {
                    event.involved_object.name.as_deref() == Some(*name)
                        && event.reason.as_deref() == Some("PodGrouperWarning")
                        && event.message.as_ref().is_some_and(|message| message.contains(says))
                })
            })
        })
        .await;
    bench.stop().await;
}
