//! What users read about pods that wait: situations as YAML, created over HTTP on one embedded cluster, and what the first sentence of the pod's
//! condition must name. No kubelet runs: pods that hold something are created on their nodes.
//!
//! Each situation has a namespace, and if it has nodes, a node pool with a shard, so that none sees another. The shorthand for pods, queues and nodes
//! stands for what `kubectl apply` would send; everything else is written out under `objects`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde::Deserialize;
use serde_json::{Value, json};
use unikai::api::PodGroup;
use unikai::components::admission::QueueLabels;
use unikai::engine::policy::DisruptionBudgets;
use unikai::operator::settings::Settings;

use crate::support::{self, Cluster, open_queue};
use crate::views::people::Person;

const POOL: &str = "kai.scheduler/node-pool";
/// The queue of pods that name none, in the default node pool.
const QUEUE: &str = "test";

const FILES: &[(&str, &str)] = &[
    ("queues", include_str!("verdicts/queues.yaml")),
    ("nodes", include_str!("verdicts/nodes.yaml")),
    ("gangs", include_str!("verdicts/gangs.yaml")),
    ("victims", include_str!("verdicts/victims.yaml")),
    ("sharing", include_str!("verdicts/sharing.yaml")),
    ("claims", include_str!("verdicts/claims.yaml")),
    ("silent", include_str!("verdicts/silent.yaml")),
    ("more", include_str!("verdicts/more.yaml")),
];

/// A situation in which a pod waits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    name: String,
    /// Its nodes; without any, those of the default node pool: two with 8 GPUs.
    #[serde(default)]
    nodes: BTreeMap<String, NodeShape>,
    /// Further fields of the shard of its node pool.
    #[serde(default)]
    shard: Value,
    /// Its queues; pods that name none are in one without limits.
    #[serde(default)]
    queues: BTreeMap<String, Value>,
    /// Labels of its namespace.
    #[serde(default)]
    namespace: Value,
    /// Whatever else there is, in full.
    #[serde(default)]
    objects: Vec<Value>,
    /// Pods on their nodes.
    #[serde(default)]
    runs: BTreeMap<String, PodShape>,
    /// Pods that wait.
    #[serde(default)]
    waits: BTreeMap<String, PodShape>,
    /// The pod that is looked at, if there are several.
    pod: Option<String>,
    /// Texts that the first sentence must contain; of several between bars, one.
    #[serde(default)]
    says: Vec<String>,
    /// Texts that it must not contain.
    #[serde(default)]
    not: Vec<String>,
    /// The word of the condition.
    reason: Option<String>,
    /// There is no condition of ours; an event with this reason says it.
    event: Option<String>,
    /// The pods are created before the operator runs, which would not admit them.
    #[serde(default)]
    early: bool,
}

/// A node: 64 cores, 512 GiB and room for 110 pods, if nothing else is said.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeShape {
    #[serde(default)]
    gpus: u32,
    #[serde(default)]
    labels: BTreeMap<String, Value>,
    #[serde(default)]
    taints: Vec<Value>,
    #[serde(default)]
    allocatable: BTreeMap<String, Value>,
    #[serde(default)]
    cordoned: bool,
    #[serde(default)]
    not_ready: bool,
}

/// A pod: 100 millicores and 64 MiB, if nothing else is said.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PodShape {
    queue: Option<String>,
    node: Option<String>,
    gpus: Option<u32>,
    #[serde(default)]
    requests: BTreeMap<String, Value>,
    /// The pod group that it names.
    group: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, Value>,
    #[serde(default)]
    annotations: BTreeMap<String, Value>,
    #[serde(default)]
    owners: Vec<Value>,
    /// Further fields of `spec`.
    #[serde(default)]
    spec: BTreeMap<String, Value>,
}

impl Situation {
    /// Its namespace, node pool and queue.
    fn slug(&self) -> String {
        let slug: String = self
            .name
            .chars()
            .map(|letter| {
                if letter.is_ascii_alphanumeric() {
                    letter.to_ascii_lowercase()
                } else {
                    '-'
                }
            })
            .take(60)
            .collect();
        slug.trim_matches('-').to_owned()
    }

    fn pool(&self) -> Option<String> {
        (!self.nodes.is_empty()).then(|| self.slug())
    }

    fn queue(&self) -> String {
        self.pool().unwrap_or_else(|| QUEUE.to_owned())
    }

    fn node(&self, name: &str) -> String {
        if self.nodes.contains_key(name) {
            format!("{}-{name}", self.slug())
        } else {
            name.to_owned()
        }
    }

    fn watched(&self) -> &str {
        let only = || self.waits.keys().next().expect("a pod that waits");
        self.pod.as_ref().unwrap_or_else(only)
    }

    fn node_object(&self, name: &str, shape: &NodeShape) -> Value {
        let mut allocatable = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "500Gi"});
        let mut labels = json!({"kubernetes.io/hostname": self.node(name), "kubernetes.io/os": "linux"});
        if shape.gpus > 0 {
            allocatable["nvidia.com/gpu"] = json!(shape.gpus.to_string());
            labels["nvidia.com/gpu.count"] = json!(shape.gpus.to_string());
            labels["nvidia.com/gpu.memory"] = json!("81920");
            labels["nvidia.com/gpu.product"] = json!("NVIDIA-H100-80GB-HBM3");
        }
        labels[POOL] = json!(self.pool());
        merge(&mut labels, &shape.labels);
        merge(&mut allocatable, &shape.allocatable);
        let ready = if shape.not_ready { "False" } else { "True" };
        let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-31T12:00:00Z"}]);
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node(name), "labels": labels},
            "spec": {"taints": shape.taints, "unschedulable": shape.cordoned},
            "status": {"capacity": allocatable, "allocatable": allocatable, "conditions": conditions},
        })
    }

    fn queue_object(&self, name: &str, spec: &Value) -> Value {
        let mut queue =
            json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec});
        let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let resources = &mut queue["spec"]["resources"];
        for resource in ["cpu", "memory", "gpu"] {
            if resources[resource].is_null() {
                resources[resource] = open.clone();
            }
        }
        queue["metadata"]["labels"] = self.pool().map_or(json!({}), |pool| json!({POOL: pool}));
        if let Some(labels) = queue["spec"].as_object_mut().and_then(|spec| spec.remove("labels")) {
            queue["metadata"]["labels"] = labels;
        }
        queue
    }

    fn pod_object(&self, name: &str, shape: &PodShape) -> Value {
        let queue = shape.queue.clone().unwrap_or_else(|| self.queue());
        let mut labels = json!({"kai.scheduler/queue": queue});
        if let Some(pool) = self.pool() {
            labels[POOL] = json!(pool);
        }
        merge(&mut labels, &shape.labels);
        let mut annotations = json!({});
        if let Some(group) = &shape.group {
            annotations["pod-group-name"] = json!(group);
        }
        merge(&mut annotations, &shape.annotations);
        let mut requests = json!({"cpu": "100m", "memory": "64Mi"});
        merge(&mut requests, &shape.requests);
        let mut limits = json!({});
        if let Some(gpus) = shape.gpus {
            limits["nvidia.com/gpu"] = json!(gpus.to_string());
        }
        for (resource, amount) in requests.as_object().expect("requests") {
            if resource.contains('/') {
                limits[resource] = amount.clone();
            }
        }
        let mut spec = json!({
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "image": "ubuntu", "resources": {"requests": requests, "limits": limits}}],
        });
        if let Some(node) = &shape.node {
            spec["nodeName"] = json!(self.node(node));
        }
        merge(&mut spec, &shape.spec);
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.slug(), "labels": labels, "annotations": annotations, "ownerReferences": shape.owners},
            "spec": spec,
        })
    }

    /// An object of the table, in the situation's namespace and node pool.
    fn other_object(&self, object: &Value) -> Value {
        let now = jiff::Timestamp::now().to_string();
        let text = object.to_string().replace("{now}", &now);
        let mut object: Value = serde_json::from_str(&text).expect("JSON");
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        if ![
            "PersistentVolume",
            "StorageClass",
            "Topology",
            "DeviceClass",
            "ResourceSlice",
            "PriorityClass",
            "CSIDriver",
            "Queue",
        ]
        .contains(&kind.as_str())
            && object["metadata"]["namespace"].is_null()
        {
            object["metadata"]["namespace"] = json!(self.slug());
        }
        if kind == "PodGroup" {
            if let Some(pool) = self.pool().filter(|_| object["metadata"]["labels"].is_null()) {
                object["metadata"]["labels"] = json!({POOL: pool});
            }
            if object["spec"]["queue"].is_null() {
                object["spec"]["queue"] = json!(self.queue());
            }
        }
        if let Some(node) = object["spec"]["nodeName"].as_str().map(|node| self.node(node)) {
            object["spec"]["nodeName"] = json!(node);
        }
        object
    }
}

fn merge(into: &mut Value, from: &BTreeMap<String, Value>) {
    for (key, value) in from {
        if value.is_null() {
            into.as_object_mut().expect("an object").remove(key);
        } else {
            into[key.as_str()] = value.clone();
        }
    }
}

async fn create(cluster: &Cluster, object: Value, of: &str) {
    if let Err(error) = support::create(&cluster.admin, object.clone()).await {
        panic!("{of}: {error}\n{object:#}");
    }
}

/// All that there is before the operator begins.
async fn prepare(cluster: &Cluster, situation: &Situation) {
    let (slug, of) = (situation.slug(), situation.name.as_str());
    cluster.namespace(&slug, situation.namespace.clone()).await;
    if let Some(pool) = situation.pool() {
        let mut shard = json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": pool},
            "spec": {"partitionLabelValue": pool}});
        if let Value::Object(fields) = &situation.shard {
            merge(&mut shard["spec"], &fields.clone().into_iter().collect());
        }
        create(cluster, shard, of).await;
        let top = format!("{pool}-top");
        create(cluster, situation.queue_object(&top, &json!({})), of).await;
        create(cluster, situation.queue_object(&pool, &json!({"parentQueue": top})), of).await;
    }
    for (name, spec) in &situation.queues {
        create(cluster, situation.queue_object(name, spec), of).await;
    }
    for (name, shape) in &situation.nodes {
        node(cluster, situation.node_object(name, shape)).await;
    }
    for object in &situation.objects {
        create(cluster, situation.other_object(object), of).await;
    }
    for (name, shape) in &situation.runs {
        create(cluster, situation.pod_object(name, shape), of).await;
        let pods = cluster.pods(&slug);
        let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
        pods.patch_status(name, &PatchParams::default(), &running)
            .await
            .expect("the pod runs");
    }
    if situation.early {
        submit(cluster, situation).await.expect("nothing refuses it");
    }
}

/// The API server taints a new node until someone finds it ready.
async fn node(cluster: &Cluster, object: Value) {
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    create(cluster, object.clone(), &name).await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.admin.clone());
    let taints = Patch::Merge(json!({"spec": {"taints": object["spec"]["taints"]}}));
    nodes
        .patch(&name, &PatchParams::default(), &taints)
        .await
        .expect("a node");
    let status = Patch::Merge(json!({"status": object["status"]}));
    nodes
        .patch_status(&name, &PatchParams::default(), &status)
        .await
        .expect("a node");
}

/// Creates the pods that are to wait; why they could not be, if so.
async fn submit(cluster: &Cluster, situation: &Situation) -> Result<(), String> {
    for (name, shape) in &situation.waits {
        let mut pod = situation.pod_object(name, shape);
        for owner in pod["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            if owner["uid"].is_null() {
                let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), &situation.slug());
                let job = jobs
                    .get(owner["name"].as_str().expect("a name"))
                    .await
                    .expect("the owner");
                owner["uid"] = json!(job.metadata.uid);
            }
        }
        let created = support::create(&cluster.admin, pod).await;
        created.map_err(|error| format!("not created: {error}"))?;
    }
    Ok(())
}

/// Up to the first full stop before a blank, or the line's end.
fn first_sentence(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.split_once(". ").map_or(line, |(sentence, _)| sentence)
}

/// What is wrong with a sentence.
fn faults(situation: &Situation, message: &str) -> Vec<String> {
    let (slug, sentence) = (situation.slug(), first_sentence(message));
    let expand = |words: &String| {
        let words = words.replace("{ns}", &slug);
        situation.nodes.keys().fold(words, |words, node| {
            words.replace(&format!("{{{node}}}"), &situation.node(node))
        })
    };
    let has = |words: &str| {
        words
            .split('|')
            .any(|word| sentence.to_lowercase().contains(&word.to_lowercase()))
    };
    let mut faults = Vec::new();
    for words in situation.says.iter().map(expand).filter(|words| !has(words)) {
        faults.push(format!("lacks {words:?}"));
    }
    for words in situation.not.iter().map(expand).filter(|words| has(words)) {
        faults.push(format!("has {words:?}"));
    }
    if message.contains("..") {
        faults.push("ends twice".to_owned());
    }
    faults
}

/// The sentence about the situation's pod, if it is as it should be.
async fn verdict(cluster: &Cluster, situation: &Situation) -> Result<String, String> {
    let (slug, name) = (situation.slug(), situation.watched());
    let pod: Pod = cluster.pods(&slug).get(name).await.map_err(|error| error.to_string())?;
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = conditions.find(|condition| condition.type_ == "PodScheduled");
    if let Some(reason) = &situation.event {
        if let Some(condition) = condition {
            return Err(format!("there is a condition: {condition:?}"));
        }
        let events: Api<Event> = Api::namespaced(cluster.admin.clone(), &slug);
        let all = events
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let found = all
            .items
            .into_iter()
            .find(|event| event.involved_object.name.as_deref() == Some(name) && event.reason.as_ref() == Some(reason));
        let message = found.and_then(|event| event.message).ok_or("no event")?;
        let faults = faults(situation, &message);
        return if faults.is_empty() {
            Ok(message)
        } else {
            Err(format!("{faults:?}: {message}"))
        };
    }
    let Some(condition) = condition else {
        return Err("nothing is said".to_owned());
    };
    let message = condition.message.clone().unwrap_or_default();
    if condition.status != "False" {
        return Err(format!(
            "it is scheduled: {:?}",
            pod.spec.and_then(|spec| spec.node_name)
        ));
    }
    let mut faults = faults(situation, &message);
    if let Some(reason) = situation
        .reason
        .as_ref()
        .filter(|reason| condition.reason.as_ref() != Some(reason))
    {
        faults.push(format!("the reason is {:?}, not {reason}", condition.reason));
    }
    if faults.is_empty() {
        Ok(message)
    } else {
        Err(format!("{faults:?}: {message}"))
    }
}

/// Whether events on the pod, and where there is one the condition of its group, say what its condition says.
async fn said_elsewhere(cluster: &Cluster, situation: &Situation, message: &str) -> Result<(), String> {
    let (slug, name) = (situation.slug(), situation.watched());
    let sentence = first_sentence(message);
    let events: Api<Event> = Api::namespaced(cluster.admin.clone(), &slug);
    let events = events
        .list(&ListParams::default())
        .await
        .map_err(|error| error.to_string())?;
    let about = events
        .items
        .iter()
        .filter(|event| event.involved_object.name.as_deref() == Some(name));
    let told: Vec<_> = about
        .map(|event| event.message.as_deref().unwrap_or_default())
        .collect();
    if !told.iter().any(|told| first_sentence(told) == sentence) {
        return Err(format!("no event says {sentence:?}, only {told:?}"));
    }
    let group = pod_group(cluster, &slug, name).await?;
    let groups: Api<PodGroup> = Api::namespaced(cluster.admin.clone(), &slug);
    if let Some(group) = group
        && let Ok(Some(group)) = groups.get_opt(&group).await
        && let Some(condition) = group
            .status
            .and_then(|status| status.scheduling_conditions.last().cloned())
        && condition.message.as_deref().is_none_or(str::is_empty)
    {
        return Err("the condition of the group says nothing".to_owned());
    }
    Ok(())
}

/// The pod group that a pod's annotation names.
async fn pod_group(cluster: &Cluster, namespace: &str, pod: &str) -> Result<Option<String>, String> {
    let pod = cluster.pods(namespace).get(pod).await;
    let annotations = pod.map_err(|error| error.to_string())?.metadata.annotations;
    Ok(annotations.and_then(|annotations| annotations.get("pod-group-name").cloned()))
}

/// Whether the API says the same: `unikai explain` shows its answer about the pod, and the page the list of workloads.
async fn said_by_the_api(
    cluster: &Cluster,
    viewer: &Person,
    situation: &Situation,
    message: &str,
) -> Result<(), String> {
    let (slug, name) = (situation.slug(), situation.watched());
    let sentence = first_sentence(message);
    let (_, explained) = viewer.ask(&format!("/api/v1/explain/pods/{slug}/{name}")).await;
    let said = explained["verdict"]["sentence"].as_str().unwrap_or_default();
    if first_sentence(said) != sentence {
        return Err(format!("the pod's condition says {sentence:?}, but the API {said:?}"));
    }
    let Some(group) = pod_group(cluster, &slug, name).await? else {
        return Ok(());
    };
    let (_, listed) = viewer.ask(&format!("/api/v1/workloads?namespace={slug}")).await;
    let mut workloads = listed["workloads"].as_array().into_iter().flatten();
    let own = workloads.find(|workload| workload["name"] == *group);
    let said = own.and_then(|workload| workload["verdict"]["sentence"].as_str());
    match said {
        Some(said) if first_sentence(said) != sentence => {
            Err(format!("the pod's condition says {sentence:?}, but the list {said:?}"))
        }
        _ => Ok(()),
    }
}

fn situations() -> Vec<Situation> {
    let mut all = Vec::new();
    for (file, text) in FILES {
        let situations: Vec<Situation> =
            serde_yaml_ng::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        all.extend(situations);
    }
    if let Ok(wanted) = std::env::var("UNIKAI_SITUATION") {
        all.retain(|situation| situation.name.contains(&wanted));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_sentence_about_a_pod_that_waits_names_the_cause() {
    let situations = situations();
    let names: BTreeSet<_> = situations.iter().map(Situation::slug).collect();
    assert_eq!(names.len(), situations.len(), "each situation has a name of its own");
    let cluster = Cluster::start().await;
    cluster.namespace("kai-resource-reservation", json!({})).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "kai-resource-reservation", "namespace": "kai-resource-reservation"}});
    create(&cluster, account, "the service account of reservation pods").await;
    open_queue(&cluster.admin, "default-top", None).await;
    open_queue(&cluster.admin, QUEUE, Some("default-top")).await;
    let shard = json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "default"}, "spec": {}});
    create(&cluster, shard, "the default shard").await;
    for name in ["default-1", "default-2"] {
        cluster.node(name).await;
    }
    for situation in &situations {
        prepare(&cluster, situation).await;
    }
    let mut settings = Settings::embedded();
    settings.common.admission.queue_labels = QueueLabels::Off;
    settings.common.admission.gpu_sharing = true;
    settings.common.components.config_maps = true;
    settings.common.components.disruption_budgets = DisruptionBudgets::Respect;
    let operator = cluster.ready_operator(settings).await;
    let viewer = Person::who_sees_all(&cluster, &operator).await;
    let mut refused: BTreeMap<&str, String> = BTreeMap::new();
    for situation in situations.iter().filter(|situation| !situation.early) {
        if let Err(why) = submit(&cluster, situation).await {
            refused.insert(&situation.name, why);
        }
    }
    let mut wrong: BTreeMap<&str, String> = BTreeMap::new();
    // Waits until all are right, or until the timeout; then reports all that are still wrong.
    let max_wait = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        wrong.clone_from(&refused);
        for situation in situations
            .iter()
            .filter(|situation| !refused.contains_key(&*situation.name))
        {
            let verdict = match verdict(&cluster, situation).await {
                // The API server itself says that pods are gated, and no event does.
                Ok(message) if situation.event.is_none() && situation.reason.as_deref() != Some("SchedulingGated") => {
                    match said_elsewhere(&cluster, situation, &message).await {
                        Ok(()) => said_by_the_api(&cluster, &viewer, situation, &message).await,
                        said => said,
                    }
                }
                other => other.map(drop),
            };
            if let Err(why) = verdict {
                wrong.insert(&situation.name, why);
            }
        }
        if wrong.is_empty() || tokio::time::Instant::now() > max_wait {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // For readers: `--nocapture` shows them.
    for situation in &situations {
        if let Ok(message) = verdict(&cluster, situation).await {
            println!("{}: {message}", situation.name);
        }
    }
    let listed: Vec<_> = wrong
        .iter()
        .map(|(name, why)| format!("- {name}\n    {}", why.replace('\n', "\n    ")))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} situations:\n{}",
        wrong.len(),
        situations.len(),
        listed.join("\n")
    );
    drop(operator);
}
