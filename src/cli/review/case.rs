//! The requests in a file: an admission request with its context, or the objects of manifests.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::api::Queue;
use crate::api::names;
use crate::components::admission::queues::Rules;
use crate::components::admission::review::Request;
use crate::components::admission::{FailurePolicy, QueueLabels, Scope, Settings};

/// One request.
pub struct Case {
    /// The reviewed kind.
    pub kind: Kind,
    /// The request.
    pub request: Request,
    /// The settings of the rules.
    pub settings: Settings,
    /// Existing queues.
    pub queues: Arc<Queues>,
    /// For a pod of a manifest: the queue that its namespace names, if the namespace is a manifest, too.
    pub namespace_queue: Option<String>,
    /// Existing PriorityClasses: those of the manifests, and those of unikai's manifests.
    pub priority_classes: Vec<String>,
    /// The expected answer is KAI's, which gives no hints.
    as_kai: bool,
    /// From a manifest: the other manifests exist as well.
    pub is_manifest: bool,
}

impl Case {
    /// Hints about probable mistakes, if they are wanted.
    pub fn hints(&self, hints: impl FnOnce() -> Vec<String>) -> Vec<String> {
        if self.as_kai { Vec::new() } else { hints() }
    }
}

/// Queues by name.
pub type Queues = BTreeMap<String, Arc<Queue>>;

/// The kinds that webhooks review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Pod,
    Queue,
    PodGroup,
    Topology,
    /// No webhook reviews it.
    Other,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Pod, Self::Queue, Self::PodGroup, Self::Topology];

    /// As the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Queue => "Queue",
            Self::PodGroup => "PodGroup",
            Self::Topology => "Topology",
            Self::Other => "object",
        }
    }

    fn of(name: &Value) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| name == kind.name())
    }
}

/// Reads the requests: a JSON object with a `request` (and optionally `settings` and `objects`), or else YAML manifests.
pub fn read(text: &str, gpu_sharing: bool) -> anyhow::Result<Vec<Case>> {
    if let Ok(question @ Value::Object(_)) = serde_json::from_str::<Value>(text)
        && question.get("request").is_some()
    {
        return Ok(vec![one(question, gpu_sharing)?]);
    }
    let mut objects = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let object = Value::deserialize(document).context("neither YAML nor JSON")?;
        match object["items"].as_array() {
            Some(items) => objects.extend(items.iter().cloned()),
            None if object.is_null() => {}
            None => objects.push(object),
        }
    }
    ensure!(!objects.is_empty(), "there is no object in it");
    let is_object = |object: &Value| object["kind"].as_str().is_some_and(|kind| !kind.is_empty());
    ensure!(
        objects.iter().all(is_object),
        "not an object of Kubernetes: it has no kind"
    );
    let queues = Arc::new(queues(&objects)?);
    let classes = priority_classes(&objects);
    let namespaces = namespace_queues(&objects);
    let cases = objects.into_iter().map(|object| {
        let kind = Kind::of(&object["kind"]).unwrap_or(Kind::Other);
        let request = creation(object)?;
        Ok(Case {
            kind,
            namespace_queue: namespaces.get(&request.namespace).cloned(),
            request,
            settings: Settings {
                gpu_resources: names::resource::WHOLE_GPUS.map(ToOwned::to_owned).into(),
                ..settings(&json!({"gpuSharingEnabled": gpu_sharing}))
            },
            queues: Arc::clone(&queues),
            priority_classes: classes.clone(),
            as_kai: false,
            is_manifest: true,
        })
    });
    cases.collect()
}

fn one(mut question: Value, gpu_sharing: bool) -> anyhow::Result<Case> {
    let given = question.get("settings").cloned();
    let objects = question["objects"].as_array().cloned().unwrap_or_default();
    let mut request = question["request"].take();
    let Some(kind) = Kind::of(&request["kind"]["kind"]) else {
        bail!("no webhook reviews {}", request["kind"]["kind"]);
    };
    if request.get("uid").is_none() {
        request["uid"] = json!("");
    }
    let about = if request["object"].is_null() {
        "oldObject"
    } else {
        "object"
    };
    for field in ["name", "namespace"] {
        if request.get(field).is_none_or(Value::is_null) {
            request[field] = json!(request[about]["metadata"][field].as_str().unwrap_or_default());
        }
    }
    Ok(Case {
        kind,
        request: Request::deserialize(request).context("request")?,
        priority_classes: priority_classes(&objects),
        as_kai: given.is_some(),
        settings: settings(&given.unwrap_or_else(|| json!({"gpuSharingEnabled": gpu_sharing}))),
        queues: Arc::new(queues(&objects)?),
        namespace_queue: None,
        is_manifest: false,
    })
}

fn creation(object: Value) -> anyhow::Result<Request> {
    let name = object["metadata"]["name"]
        .as_str()
        .or(object["metadata"]["generateName"].as_str());
    let namespace = object["metadata"]["namespace"].as_str();
    let request = json!({
        "uid": "", "operation": "CREATE",
        "name": name.unwrap_or_default(), "namespace": namespace.unwrap_or_default(),
        "object": object,
    });
    Request::deserialize(request).context("an object")
}

/// Adds the queues of all manifests to the context of each.
pub fn share_queues<'a>(cases: impl Iterator<Item = &'a mut Case>) {
    let mut cases: Vec<_> = cases.filter(|case| case.is_manifest).collect();
    let all: Queues = cases
        .iter()
        .flat_map(|case| case.queues.iter())
        .map(|(name, queue)| (name.clone(), Arc::clone(queue)))
        .collect();
    let all = Arc::new(all);
    for case in &mut cases {
        case.queues = Arc::clone(&all);
    }
}

/// The queues that namespaces name for their pods.
fn namespace_queues(objects: &[Value]) -> BTreeMap<String, String> {
    let namespaces = objects.iter().filter(|object| object["kind"] == "Namespace");
    let queue = |namespace: &Value| {
        let (name, labels) = (&namespace["metadata"]["name"], &namespace["metadata"]["labels"]);
        let queue = labels[names::label::QUEUE].as_str().filter(|queue| !queue.is_empty())?;
        Some((name.as_str()?.to_owned(), queue.to_owned()))
    };
    namespaces.filter_map(queue).collect()
}

fn priority_classes(objects: &[Value]) -> Vec<String> {
    let brought = crate::cli::manifests::priority_classes();
    let classes = objects.iter().filter(|object| object["kind"] == "PriorityClass");
    let named = classes.filter_map(|class| class["metadata"]["name"].as_str().map(ToOwned::to_owned));
    brought.into_iter().chain(named).collect()
}

fn queues(objects: &[Value]) -> anyhow::Result<Queues> {
    let queues = objects
        .iter()
        .filter(|object| Kind::of(&object["kind"]) == Some(Kind::Queue));
    let named = queues.map(|object| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let queue = Queue::deserialize(object).with_context(|| format!("Queue {name}"))?;
        Ok((name, Arc::new(queue)))
    });
    named.collect()
}

/// The settings of the webhooks, under the names of KAI's flags; absent ones are off, as in KAI, whose webhook supports NVIDIA GPUs only. Hints about
/// a pod's queue need known queues, as a live cluster may have more of them.
fn settings(given: &Value) -> Settings {
    let on = |name: &str| given[name].as_bool().unwrap_or(false);
    let text = |name: &str, default: &str| given[name].as_str().unwrap_or(default).to_owned();
    Settings {
        namespace: names::object::NAMESPACE.to_owned(),
        scope: Scope::default(),
        scheduler_name: text("schedulerName", names::object::SCHEDULER_NAME),
        queue_label_key: names::label::QUEUE.to_owned(),
        queue_labels: QueueLabels::Warn,
        gpu_sharing: on("gpuSharingEnabled"),
        gpu_resources: vec![names::resource::NVIDIA_GPU.to_owned()],
        gpu_fraction_runtime_class: text("gpuFractionRuntimeClassName", "nvidia"),
        block_nvidia_visible_devices: on("blockNvidiaVisibleDevices"),
        hami_core: on("hamiCoreEnabled"),
        queue_rules: Rules {
            quotas: on("enableQuotaValidation"),
            protect: false,
        },
        failure_policy: FailurePolicy::Fail,
        client_authorities: None,
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        target: None,
    }
}
