//! Replays the audit log of a soak's API server: the rules are checked after each write, in the order in which the writes were stored, not only every two
//! seconds.
//!
//! The order is that of resource versions, which etcd counts over all kinds. Responses to bindings, evictions and some deletions have none: a binding is
//! taken as late as its response allows and a deletion as early as its request does, so that what the operator has seen before it acts comes before. Rules
//! are not checked between a write of which the effect is not known (a server was killed, or timed out) and the next list of its kind, which corrects the
//! state; a soak lists all kinds every half a minute.

mod proof;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;
use unikai::devcluster::apiserver::Identity;

use crate::invariants::{self, History};
use crate::state::{Kind, State};

pub use proof::logs_are_judged;

/// What the API server logs: writes, and whole lists by the administrator.
pub fn policy() -> String {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in Kind::ALL {
        let resource = ApiResource::from_gvk(&kind.of_api());
        let all = groups.entry(resource.group).or_default();
        all.extend([resource.plural.clone(), format!("{}/*", resource.plural)]);
    }
    let resources: Vec<_> = groups
        .into_iter()
        .map(|(group, resources)| serde_json::json!({"group": group, "resources": resources}))
        .collect();
    serde_json::json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitManagedFields": true,
        "rules": [
            {"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete", "deletecollection"], "resources": resources},
            {"level": "RequestResponse", "verbs": ["list"], "users": ["admin"], "resources": resources},
            {"level": "None"},
        ],
    })
    .to_string()
}

/// Lists all objects, which corrects the state of a replay.
pub async fn list_all(admin: &Client) {
    for kind in Kind::ALL {
        let api: Api<DynamicObject> = Api::all_with(admin.clone(), &ApiResource::from_gvk(&kind.of_api()));
        // Else the next time.
        let _ = api.list(&ListParams::default()).await;
    }
}

/// A line of the log, with `O` of its objects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<O> {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: User,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
    #[serde(default)]
    object_ref: Reference,
    response_status: Option<Status>,
    /// May be a list of changes.
    request_object: Option<Value>,
    response_object: Option<O>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    api_group: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

/// The fields of objects that tell the order and the effect of a write.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Brief {
    kind: String,
    metadata: Meta,
    spec: Spec,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    uid: String,
}

impl Brief {
    fn version(&self) -> Option<u64> {
        self.metadata.resource_version.parse().ok()
    }

    /// The uid of the object, or of the one that is gone.
    fn uid(&self) -> &str {
        match &*self.kind {
            "Status" => &self.details.uid,
            _ => &self.metadata.uid,
        }
    }
}

impl<O> Line<O> {
    fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }

    /// Whether the request cannot have changed what the rules are about. A webhook that does not answer refuses it with 500.
    fn is_without_effect(&self) -> bool {
        let refused = matches!(self.code(), 400..500)
            || self
                .response_status
                .as_ref()
                .is_some_and(|status| status.message.contains("failed calling webhook"));
        let other_lease = self.object_ref.resource == "leases" && self.object_ref.namespace != "kai-scheduler";
        refused || self.uri.contains("dryRun=") || (other_lease && self.verb != "list")
    }

    /// All objects of the kind are listed, not a page or a selection.
    fn is_whole_list(&self) -> bool {
        let partial = ["limit=", "continue=", "labelSelector=", "fieldSelector=", "watch="];
        self.object_ref.namespace.is_empty() && !partial.iter().any(|part| self.uri.contains(part))
    }
}

impl Line<Brief> {
    /// The effect of a request that was answered; `None` if it has none on what the rules are about.
    fn effect(&self) -> Option<Effect> {
        let answered = self
            .response_object
            .as_ref()
            .filter(|_| matches!(self.code(), 200..300));
        let Some(response) = answered.filter(|response| !response.kind.starts_with("PartialObjectMetadata")) else {
            return (self.verb != "list").then_some(Effect::Unknown);
        };
        let (meta, is_status) = (&response.metadata, response.kind == "Status");
        match (&*self.verb, &*self.object_ref.subresource) {
            ("list", "") => self.is_whole_list().then_some(Effect::List),
            ("list", _) => None,
            ("create", "binding") => Some(Effect::Bind),
            ("create", "eviction") => Some(Effect::Evict),
            ("deletecollection", "") => Some(Effect::RemoveAll),
            ("delete", "") if is_status => Some(Effect::Remove),
            ("delete", "") => {
                let at_once = self
                    .request_object
                    .as_ref()
                    .is_some_and(|options| options["gracePeriodSeconds"] == 0);
                let waits = !meta.finalizers.is_empty() || (meta.has_grace() && !at_once);
                Some(if waits { Effect::Put } else { Effect::Remove })
            }
            _ if is_status => None,
            _ => {
                let gone = meta.deletion_timestamp.is_some() && meta.finalizers.is_empty() && !meta.has_grace();
                Some(if gone { Effect::Remove } else { Effect::Put })
            }
        }
    }
}

impl Meta {
    fn has_grace(&self) -> bool {
        self.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Put,
    Remove,
    RemoveAll,
    Bind,
    Evict,
    List,
    /// It may have taken effect or not.
    Unknown,
}

/// A line that matters: where it is in the log, and its place in the order.
struct Entry {
    order: (u64, u8),
    kind: Kind,
    effect: Effect,
    offset: u64,
    length: usize,
}

/// A line of which the place in the order is not known yet.
struct Unordered {
    kind: Kind,
    effect: Effect,
    offset: u64,
    length: usize,
    received: MicroTime,
    ended: MicroTime,
    version: Option<u64>,
    uid: String,
    /// Namespace and name.
    pod: (String, String),
    on_node: bool,
}

/// The highest resource version up to each time.
struct Versions(Vec<(MicroTime, u64)>);

impl Versions {
    fn new(mut all: Vec<(MicroTime, u64)>) -> Self {
        all.sort();
        let mut highest = 0;
        for (_, version) in &mut all {
            highest = highest.max(*version);
            *version = highest;
        }
        Self(all)
    }

    fn until(&self, time: &MicroTime) -> u64 {
        let count = self.0.partition_point(|(known, _)| known <= time);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

/// Reads which lines matter, in the order of their effects.
fn index(log: &mut BufReader<File>) -> anyhow::Result<Vec<Entry>> {
    let kinds: HashMap<_, _> = Kind::ALL
        .iter()
        .map(|kind| {
            let resource = ApiResource::from_gvk(&kind.of_api());
            ((resource.group, resource.plural), *kind)
        })
        .collect();
    let mut all: Vec<Unordered> = Vec::new();
    // Requests without a response, by their id.
    let mut open: HashMap<String, Unordered> = HashMap::new();
    let (mut offset, mut text) = (0, Vec::new());
    loop {
        text.clear();
        let length = log.read_until(b'\n', &mut text)?;
        if length == 0 {
            break;
        }
        let start = offset;
        offset += length as u64;
        let line = match serde_json::from_slice::<Line<Brief>>(&text) {
            Ok(line) => line,
            Err(error) if error.is_data() => anyhow::bail!("line at byte {start}: {error}"),
            // The last line before the server was killed may be incomplete.
            Err(_) => continue,
        };
        let reference = &line.object_ref;
        let Some(kind) = kinds.get(&(reference.api_group.clone(), reference.resource.clone())) else {
            continue;
        };
        let response = line.response_object.as_ref();
        let mut entry = Unordered {
            kind: *kind,
            effect: Effect::Unknown,
            offset: start,
            length,
            received: line.request_received_timestamp.clone(),
            ended: line.stage_timestamp.clone(),
            version: response.and_then(Brief::version),
            uid: response.map(|object| object.uid().to_owned()).unwrap_or_default(),
            pod: (reference.namespace.clone(), reference.name.clone()),
            on_node: response.is_some_and(|object| !object.spec.node_name.is_empty()),
        };
        if line.stage == "RequestReceived" {
            if line.verb != "list" && !line.is_without_effect() {
                open.insert(line.id, entry);
            }
        } else if line.stage == "ResponseComplete" || line.stage == "Panic" {
            open.remove(&line.id);
            let effect = line.effect().filter(|_| !line.is_without_effect());
            if let Some(effect) = effect {
                entry.effect = effect;
                all.push(entry);
            }
        }
    }
    all.extend(open.into_values());
    Ok(ordered(all))
}

fn ordered(all: Vec<Unordered>) -> Vec<Entry> {
    let known = |with: fn(&Effect) -> bool| {
        all.iter()
            .filter(move |entry| with(&entry.effect))
            .filter_map(|entry| Some((entry, entry.version?)))
    };
    let stored = || known(|effect| matches!(effect, Effect::Put | Effect::Remove));
    // A list has the version of the last write of any kind.
    let seen = || known(|effect| matches!(effect, Effect::Put | Effect::Remove | Effect::List));
    let begun = Versions::new(
        seen()
            .map(|(entry, version)| (entry.received.clone(), version))
            .collect(),
    );
    let ended = Versions::new(seen().map(|(entry, version)| (entry.ended.clone(), version)).collect());
    let mut last: HashMap<&str, u64> = HashMap::new();
    // Since when each pod is known to be on a node.
    let mut on_node: HashMap<(&(String, String), &str), u64> = HashMap::new();
    for (entry, version) in stored().filter(|(entry, _)| !entry.uid.is_empty()) {
        let known = last.entry(&entry.uid).or_default();
        *known = version.max(*known);
        if entry.kind == Kind::Pod && entry.on_node {
            let known = on_node.entry((&entry.pod, &entry.uid)).or_insert(version);
            *known = version.min(*known);
        }
    }
    let mut bound: HashMap<&(String, String), Vec<u64>> = HashMap::new();
    for ((pod, _), since) in &on_node {
        bound.entry(pod).or_default().push(*since);
    }
    let order = |entry: &Unordered| match (entry.effect, entry.version) {
        (Effect::Put, Some(version)) => (version, 0),
        // It has all up to its version.
        (Effect::List, Some(version)) => (version, 1),
        (Effect::Bind, _) => {
            let latest = begun.until(&entry.ended);
            // A later pod of the same name is bound later.
            let first = ended.until(&entry.received);
            let seen = bound.get(&entry.pod).into_iter().flatten();
            let seen = seen.filter(|since| **since > first).min();
            (seen.map_or(latest, |since| latest.min(since - 1)), 3)
        }
        _ => {
            let before = ended.until(&entry.received);
            let version = before.max(last.get(&*entry.uid).copied().unwrap_or(0));
            (version, if entry.version == Some(version) { 0 } else { 2 })
        }
    };
    let mut entries: Vec<Entry> = all
        .iter()
        .map(|entry| Entry {
            order: order(entry),
            kind: entry.kind,
            effect: entry.effect,
            offset: entry.offset,
            length: entry.length,
        })
        .collect();
    entries.sort_by_key(|entry| (entry.order, entry.offset));
    entries
}

/// What a replay has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Writes whose effect is known.
    pub writes: usize,
    /// After how many of them the rules were checked.
    pub checked: usize,
    /// Writes whose effect is not known.
    pub unknown: usize,
    /// The kinds of which it is not known at the end.
    pub uncertain: usize,
}

/// Replays a log. At its end all workloads must be gone, if all effects are known.
///
/// # Errors
/// If a rule is broken: with its name, and the id of the request.
pub fn replay(path: &Path) -> anyhow::Result<Shown> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut log = BufReader::with_capacity(1 << 20, file);
    let entries = index(&mut log)?;
    let mut replay = Replay::default();
    let mut text = Vec::new();
    let mut began = None;
    for entry in &entries {
        text.resize(entry.length, 0);
        log.seek(SeekFrom::Start(entry.offset))?;
        log.read_exact(&mut text)?;
        let line: Line<Value> = serde_json::from_slice(&text)?;
        let time = line.stage_timestamp.0;
        let began = *began.get_or_insert(time);
        let at = u64::try_from(time.duration_since(began).as_millis()).unwrap_or(0);
        replay.state.at = replay.state.at.max(at);
        replay
            .apply(entry, &line)
            .with_context(|| format!("request {}", line.id))?;
    }
    if replay.uncertain.is_empty() {
        replay.holds(invariants::EMPTY).context("at the end of the log")?;
        let left = replay.state.pods.values().find(|pod| pod.ours);
        anyhow::ensure!(left.is_none(), "at the end of the log {left:?} is left");
    }
    replay.shown.uncertain = replay.uncertain.len();
    Ok(replay.shown)
}

#[derive(Default)]
struct Replay {
    state: State,
    history: History,
    /// The pods as they are stored, which bindings change.
    pods: HashMap<(String, String), Value>,
    /// The uids of pods that were evicted: responses do not show it, as they are about the eviction.
    evicted: HashSet<String>,
    /// Kinds with a write whose effect is not known, and when that ended.
    uncertain: HashMap<Kind, MicroTime>,
    shown: Shown,
}

impl Replay {
    fn apply(&mut self, entry: &Entry, line: &Line<Value>) -> anyhow::Result<()> {
        let kind = entry.kind;
        let named = (line.object_ref.namespace.clone(), line.object_ref.name.clone());
        let response = line.response_object.as_ref().unwrap_or(&Value::Null);
        match entry.effect {
            Effect::Unknown => {
                let ended = line.stage_timestamp.clone();
                let last = self.uncertain.entry(kind).or_insert_with(|| ended.clone());
                *last = ended.max(last.clone());
                self.shown.unknown += 1;
                return Ok(());
            }
            Effect::Put => {
                if line.verb == "delete" {
                    self.is_no_eviction_of_protected(line, &named)?;
                }
                self.put(kind, response);
            }
            Effect::Remove => {
                self.is_no_eviction_of_protected(line, &named)?;
                self.remove(kind, response, &named);
            }
            Effect::RemoveAll => {
                for object in items(response) {
                    self.remove(kind, object, &named);
                }
            }
            Effect::Evict => {
                self.is_no_eviction_of_protected(line, &named)?;
                self.evict(&named);
            }
            Effect::Bind => self.bind(&named, line.request_object.as_ref().unwrap_or(&Value::Null)),
            Effect::List => {
                self.state.clear(kind);
                if kind == Kind::Pod {
                    self.pods.clear();
                }
                for object in items(response) {
                    self.put(kind, object);
                }
                let began = &line.request_received_timestamp;
                self.uncertain.retain(|known, ended| *known != kind || *ended >= *began);
            }
        }
        self.history.take(&self.state);
        self.shown.writes += 1;
        if self.uncertain.is_empty() {
            self.shown.checked += 1;
            self.holds(invariants::ALWAYS)?;
        }
        Ok(())
    }

    fn holds(&self, rules: &[invariants::Rule]) -> anyhow::Result<()> {
        match invariants::broken(rules, &self.state, &self.history).first() {
            None => Ok(()),
            Some((rule, what)) => anyhow::bail!("broken: {}: {what}", invariants::named(rule.id)),
        }
    }

    fn put(&mut self, kind: Kind, object: &Value) {
        if kind != Kind::Pod {
            self.state.put(kind, object);
            return;
        }
        let mut pod = object.clone();
        let meta = &mut pod["metadata"];
        let evicted = meta["uid"].as_str().is_some_and(|uid| self.evicted.contains(uid));
        if evicted && meta["deletionTimestamp"].is_null() {
            meta["deletionTimestamp"] = "evicted".into();
        }
        self.state.put(kind, &pod);
        self.pods.insert(name(&pod), pod);
    }

    /// A pod that does not run is gone at once; another one terminates.
    fn evict(&mut self, named: &(String, String)) {
        let Some(pod) = self.pods.get(named).cloned() else {
            return;
        };
        let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if finished || pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
            self.remove(Kind::Pod, &pod, named);
            return;
        }
        self.evicted.extend(pod["metadata"]["uid"].as_str().map(str::to_owned));
        self.put(Kind::Pod, &pod);
    }

    /// Removes the object with the uid and name of the one in the response; a status has only the uid.
    fn remove(&mut self, kind: Kind, response: &Value, named: &(String, String)) {
        let mut object = response.clone();
        if response["kind"] == "Status" {
            let (namespace, name) = named;
            object = serde_json::json!({"metadata": {"namespace": namespace, "name": name, "uid": response["details"]["uid"]}});
        }
        if kind == Kind::Pod {
            let key = name(&object);
            if self
                .pods
                .get(&key)
                .is_some_and(|pod| pod["metadata"]["uid"] == object["metadata"]["uid"])
            {
                self.pods.remove(&key);
            }
        }
        self.state.remove(kind, &object);
    }

    fn bind(&mut self, named: &(String, String), binding: &Value) {
        let Some(mut pod) = self.pods.get(named).cloned() else {
            return;
        };
        pod["spec"]["nodeName"] = binding["target"]["name"].clone();
        for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
            pod["metadata"]["annotations"][key] = value.clone();
        }
        self.put(Kind::Pod, &pod);
    }

    /// The rule that pods of whole, non-preemptible pod groups are not evicted.
    fn is_no_eviction_of_protected(
        &self,
        line: &Line<Value>,
        (namespace, name): &(String, String),
    ) -> anyhow::Result<()> {
        let ours = line.object_ref.resource == "pods" && line.user.username == Identity::operator().user;
        anyhow::ensure!(
            !ours || !self.uncertain.is_empty() || !self.state.is_protected(namespace, name),
            "broken: {}: {namespace}/{name}",
            invariants::named("V-1")
        );
        Ok(())
    }
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn name(object: &Value) -> (String, String) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}
