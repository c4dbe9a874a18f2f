//! A cluster that consists of files: grouping reads its objects from memory instead of the API server. A real cluster may be around them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::read::{KindPattern, Scenario};
use super::text_at;
use crate::api::PodGroup;
use crate::api::names::{annotation, label, priority_class};
use crate::components::grouper::merge::merge;
use crate::components::grouping::defaults::Defaults;
use crate::components::grouping::karta::Karta;
use crate::components::grouping::owners::{Chain, Walk};
use crate::components::grouping::rules::{self, Cluster, Grouped, Input, KindName, Reference, RuleError};
use crate::components::grouping::stated::{self, Stated};
use crate::components::grouping::workload::{Workload, split_api_version};
use crate::components::grouping::{self, Failed};
use crate::components::watches::Stores;

/// Fields written on a pod.
#[derive(Debug, Default)]
pub struct Written {
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// The files of one scenario, and the results of grouping.
pub struct Files {
    scenario: Scenario,
    around: Option<Around>,
    owners: HashMap<(String, String, String, String), Arc<Workload>>,
    kartas: Vec<Value>,
    pods: Vec<Arc<Pod>>,
    /// What the pods of each group state.
    stated: HashMap<(String, String), BTreeSet<Stated>>,
    /// All pod groups, by namespace and name.
    pub groups: BTreeMap<(String, String), Arc<PodGroup>>,
    /// The rule that created each.
    pub rules: BTreeMap<(String, String), String>,
    /// Fields written on pods, by `namespace/name`.
    pub written: BTreeMap<String, Written>,
    /// Pods that could not be grouped, and why.
    pub errors: Vec<(String, String)>,
    /// Workloads whose pods cannot be derived from them, with their kind, and why.
    pub refused: Vec<(String, String)>,
}

/// The cluster that the objects of the files would be in.
struct Around {
    stores: Arc<Stores>,
    defaults: Arc<Defaults>,
}

impl Files {
    /// The cluster that the scenario describes.
    pub fn new(mut scenario: Scenario) -> Self {
        let mut files = Self {
            around: None,
            owners: HashMap::new(),
            kartas: Vec::new(),
            pods: Vec::new(),
            stated: HashMap::new(),
            groups: BTreeMap::new(),
            rules: BTreeMap::new(),
            written: BTreeMap::new(),
            errors: Vec::new(),
            refused: std::mem::take(&mut scenario.refused),
            scenario,
        };
        let pods = std::mem::take(&mut files.scenario.pods);
        for pod in pods {
            files.learn_owner(&pod);
            let name = format!(
                "{}/{}",
                text_at(&pod, "/metadata/namespace"),
                text_at(&pod, "/metadata/name")
            );
            match serde_json::from_value(pod) {
                Ok(pod) => files.pods.push(Arc::new(pod)),
                Err(error) => files.errors.push((name, error.to_string())),
            }
        }
        for object in std::mem::take(&mut files.scenario.objects) {
            match &*text_at(&object, "/kind") {
                "Karta" => files.kartas.push(object),
                "PodGroup" => {
                    let key = (
                        text_at(&object, "/metadata/namespace"),
                        text_at(&object, "/metadata/name"),
                    );
                    match serde_json::from_value(object) {
                        Ok(group) => drop(files.groups.insert(key, Arc::new(group))),
                        Err(error) => files.errors.push((key.1, error.to_string())),
                    }
                }
                _ => files.learn_owner(&object),
            }
        }
        files
    }

    /// The same in a cluster, whose namespaces, priority classes and defaults per kind count, too.
    #[must_use]
    pub fn within(mut self, stores: Arc<Stores>, defaults: Arc<Defaults>) -> Self {
        self.scenario.assume_classes = false;
        self.around = Some(Around { stores, defaults });
        self
    }

    fn learn_owner(&mut self, object: &Value) {
        let Ok(parsed) = serde_json::from_value(object.clone()) else {
            return;
        };
        let (api_version, kind) = (text_at(object, "/apiVersion"), text_at(object, "/kind"));
        let workload = Workload::of_object(&api_version, &kind, parsed);
        let place = (
            text_at(object, "/metadata/namespace"),
            text_at(object, "/metadata/name"),
        );
        self.owners
            .insert((api_version, kind, place.0, place.1), Arc::new(workload));
    }

    /// The pods with the fields written on them.
    pub fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    /// Groups every pod once, in order.
    pub fn group_all(&mut self) {
        for index in 0..self.pods.len() {
            let pod = Arc::clone(&self.pods[index]);
            let name = format!(
                "{}/{}",
                pod.metadata.namespace.as_deref().unwrap_or_default(),
                pod.metadata.name.as_deref().unwrap_or_default()
            );
            self.written.entry(name.clone()).or_default();
            match self.group(&pod) {
                Ok(Some(grouped)) => self.keep(index, &name, grouped),
                Ok(None) => {}
                Err(error) => self.errors.push((name, error.to_string())),
            }
        }
    }

    /// Whether the settings include the pod, by its labels and those of its namespace.
    pub fn includes(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let labels = self.namespace_labels(namespace);
        grouping::is_addressed(pod, labels.as_ref(), &self.scenario.settings)
    }

    fn group(&self, pod: &Pod) -> Result<Option<Grouped>, Failed> {
        let settings = &self.scenario.settings;
        if !self.includes(pod) || grouping::skips_grouping(pod) {
            return Ok(None);
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let annotations = pod.metadata.annotations.as_ref();
        let is_named = annotations.is_some_and(|annotations| annotations.contains_key(annotation::POD_GROUP_NAME));
        let mut walk = Walk::from(pod);
        if walk.next()?.is_none() && is_named && settings.exactly_as_kai {
            return Ok(None);
        }
        while let Some(owner) = walk.next()? {
            match self.look_up(&owner.api_version, &owner.kind, namespace, &owner.name) {
                Answer::Forbidden => break,
                Answer::Missing(cause) => return Err(walk.not_found(owner, cause).into()),
                Answer::Found(found) if found.uid == owner.uid => walk.take(found)?,
                Answer::Found(_) => {
                    let cause = format!("Owner resource with uid {} not found", owner.uid);
                    return Err(walk.not_found(owner, cause).into());
                }
            }
        }
        let Chain::Owned(chain) = walk.end() else {
            return Ok(None);
        };
        if grouping::names_foreign_group(pod) && !settings.exactly_as_kai {
            return Ok(None);
        }
        let input = Input {
            pod,
            chain: &chain,
            settings,
            cluster: self,
        };
        Ok(Some(rules::group(&input)?))
    }

    /// Applies the grouping of a pod, as the operator would write it.
    fn keep(&mut self, index: usize, name: &str, mut grouped: Grouped) {
        let meta = &grouped.group.metadata;
        let key = (
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        let own = Stated::of(&self.pods[index]);
        self.stated.entry(key.clone()).or_default().insert(own);
        self.combine(&key, &mut grouped);
        let existing = self.groups.get(&key).map(AsRef::as_ref);
        let merged = merge(existing, &grouped.group, &self.scenario.settings);
        self.groups.insert(key.clone(), Arc::new(merged));
        self.rules.insert(key.clone(), grouped.rule);
        let pod = Arc::make_mut(&mut self.pods[index]);
        let written = self.written.entry(name.to_owned()).or_default();
        let write = |into: &mut Option<BTreeMap<String, String>>,
                     written: &mut BTreeMap<String, String>,
                     key: &str,
                     value: String| {
            let values = into.get_or_insert_default();
            if values.get(key) != Some(&value) {
                written.insert(key.to_owned(), value.clone());
                values.insert(key.to_owned(), value);
            }
        };
        write(
            &mut pod.metadata.annotations,
            &mut written.annotations,
            annotation::POD_GROUP_NAME,
            key.1,
        );
        if let Some(sub_group) = grouped.sub_group {
            write(
                &mut pod.metadata.labels,
                &mut written.labels,
                label::SUBGROUP_NAME,
                sub_group,
            );
        }
        let pod = serde_json::to_value(&*pod).unwrap_or_default();
        self.learn_owner(&with_kind(pod));
    }

    /// Sets the class and the preemptibility of a group where its owners leave them to its pods.
    fn combine(&self, key: &(String, String), grouped: &mut Grouped) {
        let all = || self.stated.get(key).into_iter().flatten();
        let ranked = |own: &Stated| own.ranked(|class| self.value(class));
        // A class that is only assumed to exist has no value to compare.
        let has_no_value = |own: &Stated| own.class.is_some() && ranked(own).is_none();
        let is_unclear = self.scenario.assume_classes && all().any(has_no_value);
        stated::combine(
            grouped,
            || all().filter_map(ranked).filter(|_| !is_unclear).max(),
            || all().filter_map(|own| own.non_preemptible).max(),
        );
    }

    /// The value of a priority class, as far as it is known.
    fn value(&self, class: &str) -> Option<i32> {
        if let Some(found) = self.find("scheduling.k8s.io/v1", "PriorityClass", "", class) {
            let value = found.body.get("value").and_then(Value::as_i64);
            return value.and_then(|value| i32::try_from(value).ok());
        }
        if let Some(around) = &self.around {
            return Some(around.stores.priority_classes.get("", class)?.value);
        }
        let mut installed = priority_class::INSTALLED
            .into_iter()
            .filter(|_| self.scenario.assume_classes);
        installed.find(|(name, _)| *name == class).map(|(_, value)| value)
    }

    fn namespace_labels(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        if let Some(found) = self.find("v1", "Namespace", "", namespace) {
            return Some(found.labels.clone());
        }
        let stores = &self.around.as_ref()?.stores;
        stores.namespaces.get("", namespace)?.metadata.labels.clone()
    }

    fn find(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Arc<Workload>> {
        let at = |namespace: &str| {
            let key = (
                api_version.to_owned(),
                kind.to_owned(),
                namespace.to_owned(),
                name.to_owned(),
            );
            self.owners.get(&key).cloned()
        };
        at(namespace).or_else(|| at(""))
    }

    fn look_up(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Answer {
        let (group, version) = split_api_version(api_version);
        let listed = |kinds: &[KindPattern]| kinds.iter().any(|listed| listed.fits(group, version, kind));
        if listed(&self.scenario.unknown) {
            return Answer::Missing(format!("no matches for kind {kind:?} in version {api_version:?}"));
        }
        if listed(&self.scenario.forbidden) {
            return Answer::Forbidden;
        }
        match self.find(api_version, kind, namespace, name) {
            Some(found) => Answer::Found(found),
            None => Answer::Missing(format!("{kind} {name:?} not found")),
        }
    }
}

enum Answer {
    Found(Arc<Workload>),
    Forbidden,
    Missing(String),
}

/// A pod as an object with `apiVersion` and `kind`, which its type lacks.
fn with_kind(mut pod: Value) -> Value {
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod
}

impl Cluster for Files {
    fn has_priority_class(&self, name: &str) -> bool {
        let is_around = |around: &Around| around.stores.priority_classes.contains("", name);
        self.scenario.assume_classes
            || self.find("scheduling.k8s.io/v1", "PriorityClass", "", name).is_some()
            || self.around.as_ref().is_some_and(is_around)
    }

    fn pod_group(&self, namespace: &str, name: &str) -> Option<Arc<PodGroup>> {
        self.groups.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    fn namespace_queue(&self, namespace: &str) -> Option<String> {
        let mut labels = self.namespace_labels(namespace)?;
        let queue = labels.remove(&self.scenario.settings.queue_label_key);
        queue.filter(|queue| !queue.is_empty())
    }

    fn pods(&self, namespace: &str, labels: &[(&str, &str)]) -> Vec<Arc<Pod>> {
        let fits = |pod: &&Arc<Pod>| {
            let is_there = pod.metadata.namespace.as_deref() == Some(namespace);
            is_there && self.includes(pod) && grouping::carries(pod, labels)
        };
        self.pods.iter().filter(fits).cloned().collect()
    }

    fn object(&self, wanted: &Reference) -> Result<Arc<Workload>, RuleError> {
        let Reference {
            api_version,
            kind,
            namespace,
            name,
        } = wanted;
        let said = |cause: String| RuleError::Workload(format!("failed to get {kind} {namespace}/{name}: {cause}"));
        match self.look_up(api_version, kind, namespace, name) {
            Answer::Found(found) => Ok(found),
            Answer::Forbidden => Err(said("forbidden".to_owned())),
            Answer::Missing(cause) => Err(said(cause)),
        }
    }

    fn kartas(&self, kind: &KindName) -> Result<Arc<Vec<Karta>>, RuleError> {
        let stamped = |karta: &&Value| {
            let labels = karta.pointer("/metadata/labels").cloned().unwrap_or_default();
            let stamp = |key: &str| labels.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
            use crate::api::names::third_party::{KARTA_GROUP, KARTA_KIND, KARTA_VERSION};
            stamp(KARTA_GROUP).as_ref() == Some(&kind.group)
                && stamp(KARTA_VERSION).as_ref() == Some(&kind.version)
                && stamp(KARTA_KIND).as_ref() == Some(&kind.kind)
        };
        let stamped = self.kartas.iter().filter(stamped).cloned();
        Ok(Arc::new(grouping::valid_kartas(stamped, kind)))
    }

    fn defaults(&self) -> Result<Arc<Defaults>, RuleError> {
        if let Some(around) = &self.around {
            return Ok(Arc::clone(&around.defaults));
        }
        let map = self.scenario.settings.default_priorities.as_ref();
        let map = map.and_then(|(namespace, name)| self.find("v1", "ConfigMap", namespace, name));
        Ok(Arc::new(map.map(|map| Defaults::of(&map)).unwrap_or_default()))
    }
}
