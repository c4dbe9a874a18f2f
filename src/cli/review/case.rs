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
use crate::components::grouping::workload::split_api_version;

/// One request.
pub struct Case {
    /// The reviewed kind.
    pub kind: Kind,
    /// The request.
    pub request: Request,
    /// The settings of the rules.
    pub settings: Settings,
    /// Existing objects.
    pub existing: Arc<Existing>,
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

/// The objects that requests refer to.
#[derive(Default)]
pub struct Existing {
    /// Queues.
    pub queues: Queues,
    /// The queues that namespaces name for their pods, by namespace. Only for manifests.
    pub namespace_queues: BTreeMap<String, String>,
    /// PriorityClasses: those of the manifests, and those of unikai's manifests.
    pub priority_classes: Vec<String>,
}

impl Existing {
    fn add(&mut self, other: &Self) {
        let queues = other.queues.iter();
        self.queues
            .extend(queues.map(|(name, queue)| (name.clone(), Arc::clone(queue))));
        self.namespace_queues.extend(other.namespace_queues.clone());
        for class in &other.priority_classes {
            if !self.priority_classes.contains(class) {
                self.priority_classes.push(class.clone());
            }
        }
    }
}

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

    fn group(self) -> &'static str {
        match self {
            Self::Pod | Self::Other => "",
            Self::Queue | Self::PodGroup => names::group::SCHEDULING,
            Self::Topology => names::group::KAI,
        }
    }

    /// The kind of this name, if it is of this API group: other projects have kinds of the same names. Without a group, only the name counts.
    fn of(group: Option<&str>, name: &Value) -> Option<Self> {
        let kind = Self::ALL.into_iter().find(|kind| name == kind.name())?;
        group.is_none_or(|group| group == kind.group()).then_some(kind)
    }

    fn of_object(object: &Value) -> Option<Self> {
        let group = object["apiVersion"]
            .as_str()
            .map(|version| split_api_version(version).0);
        Self::of(group, &object["kind"])
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
    let existing = Arc::new(Existing {
        queues: queues(&objects)?,
        namespace_queues: namespace_queues(&objects),
        priority_classes: priority_classes(&objects),
    });
    let cases = objects.into_iter().map(|object| {
        Ok(Case {
            kind: Kind::of_object(&object).unwrap_or(Kind::Other),
            request: creation(object)?,
            settings: Settings {
                gpu_resources: names::resource::WHOLE_GPUS.map(ToOwned::to_owned).into(),
                ..settings(&json!({"gpuSharingEnabled": gpu_sharing}))
            },
            existing: Arc::clone(&existing),
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
    let Some(kind) = Kind::of(request["kind"]["group"].as_str(), &request["kind"]["kind"]) else {
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
        existing: Arc::new(Existing {
            queues: queues(&objects)?,
            namespace_queues: BTreeMap::new(),
            priority_classes: priority_classes(&objects),
        }),
        as_kai: given.is_some(),
        settings: settings(&given.unwrap_or_else(|| json!({"gpuSharingEnabled": gpu_sharing}))),
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

/// The manifests of all files exist for those of each.
pub fn share<'a>(files: impl Iterator<Item = &'a mut Vec<Case>>) {
    let of_manifests = |cases: &&mut Vec<Case>| cases.iter().all(|case| case.is_manifest);
    let files: Vec<&mut Vec<Case>> = files.filter(of_manifests).collect();
    let mut all = Existing::default();
    // The same objects exist for all manifests of a file.
    for case in files.iter().filter_map(|cases| cases.first()) {
        all.add(&case.existing);
    }
    let all = Arc::new(all);
    for case in files.into_iter().flatten() {
        case.existing = Arc::clone(&all);
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
        .filter(|object| Kind::of_object(object) == Some(Kind::Queue));
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
