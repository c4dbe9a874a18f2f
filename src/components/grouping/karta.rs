//! Kartas: definitions of workload kinds by administrators. Queries locate replicas in an object and determine to
//! which component a pod belongs; instructions define gangs. Parsed once per definition; `rules/karta` applies them.
//!
//! Absent: the parts of a Karta about status, suspension and anything but gangs.

mod jq;
mod scale;

use std::collections::BTreeSet;

use serde_json::Value;

pub use jq::{Failed, Query, Subject};

use super::wanted::KindName;
use crate::api::pod_group::TopologyConstraint;

/// A valid definition.
#[derive(Debug)]
pub struct Karta {
    /// Its name.
    pub name: String,
    /// The components of a workload; the first is the workload itself.
    pub components: Vec<Component>,
    /// Its gangs.
    pub gang: Gang,
}

/// A component of a workload.
#[derive(Debug)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Its parent component.
    pub parent: Option<usize>,
    /// Whether it has pods of its own.
    pub has_pods: bool,
    /// Whether it defines its scale.
    pub is_scaled: bool,
    /// Query for its replicas, on the owner.
    pub replicas: Option<Query>,
    /// Query for its minimum replicas, on the owner.
    pub min_replicas: Option<Query>,
    /// Query for its instances, on the owner.
    pub instances: Option<Query>,
    /// Query whether a pod belongs to it, on the pod.
    pub selector: Option<Selector>,
    /// Query for the instance of a pod, on the pod.
    pub instance: Option<Query>,
}

/// How pods of a component are recognised.
#[derive(Debug)]
pub enum Selector {
    /// The query has a result.
    Any(Query),
    /// The query is true.
    True(Query),
}

/// Its gangs.
#[derive(Debug)]
pub enum Gang {
    /// One group with a sub-group per listed component.
    Group(Group),
    /// The older form: the first member that matches the pod determines the group.
    Members(Vec<Member>),
}

/// One group per workload.
#[derive(Debug)]
pub struct Group {
    /// The suffix of its name.
    pub name: String,
    /// The topology constraint of all its pods.
    pub topology: Option<TopologyConstraint>,
    /// Components by name, with the topology constraints of their pods.
    pub sub_groups: Vec<(String, Option<TopologyConstraint>)>,
}

/// A member of a group in the older form.
#[derive(Debug)]
pub struct Member {
    /// Its component.
    pub component: usize,
    /// Queries whose results distinguish groups, on the pod.
    pub keys: Vec<Query>,
    /// Filters that must be true, on the pod.
    pub filters: Vec<Query>,
}

impl Karta {
    /// Reads a definition of the kind; `None` if it is for another one, is being deleted, or has no instructions for gangs.
    ///
    /// # Errors
    /// If the definition is invalid.
    pub fn read(object: &Value, kind: &KindName) -> Result<Option<Self>, String> {
        let name = text(object, "/metadata/name").to_owned();
        let root = object.pointer("/spec/structureDefinition/rootComponent");
        let root = root.cloned().unwrap_or_default();
        let described = KindName {
            group: text(&root, "/kind/group").to_owned(),
            version: text(&root, "/kind/version").to_owned(),
            kind: text(&root, "/kind/kind").to_owned(),
        };
        let dying = object
            .pointer("/metadata/deletionTimestamp")
            .is_some_and(|time| !time.is_null());
        if dying || described != *kind {
            return Ok(None);
        }
        let children = list(object, "/spec/structureDefinition/childComponents");
        if children.is_empty() && text(&root, "/name").is_empty() {
            return Ok(None);
        }
        let gang = object.pointer("/spec/optimizationInstructions/gangScheduling");
        let gang = gang.cloned().unwrap_or_default();
        let is_given = |key: &str| gang.get(key).is_some_and(|given| !given.is_null());
        if !is_given("podGroup") && list(&gang, "/podGroups").is_empty() {
            return Ok(None);
        }
        if described.group.is_empty() && described.kind != "Pod" {
            return Err("the kind of the root component has no group".to_owned());
        }
        let components = components(&root, children)?;
        let index = |name: &str| components.iter().position(|component| component.name == name);
        let mut members = Vec::new();
        for group in list(&gang, "/podGroups") {
            for member in list(group, "/members") {
                let named = text(member, "/componentName");
                members.push(Member {
                    component: index(named).ok_or_else(|| format!("member {named} is no component"))?,
                    keys: queries(list(member, "/groupByKeyPaths"))?,
                    filters: queries(list(member, "/filters"))?,
                });
            }
        }
        let gang = match gang.get("podGroup").filter(|given| !given.is_null()) {
            Some(group) => Gang::Group(read_group(group)),
            None => Gang::Members(members),
        };
        Ok(Some(Self { name, components, gang }))
    }

    /// The component of that name.
    #[must_use]
    pub fn component(&self, name: &str) -> Option<usize> {
        self.components.iter().position(|component| component.name == name)
    }

    /// The component and its ancestors up to the root.
    pub fn upwards(&self, component: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(component), |index| self.components.get(*index)?.parent)
    }

    /// The children of a component.
    pub fn children(&self, of: usize) -> impl Iterator<Item = usize> {
        let components = self.components.iter().enumerate();
        components.filter_map(move |(index, component)| (component.parent == Some(of)).then_some(index))
    }

    /// Whether the pod belongs to the component or to one below it.
    ///
    /// # Errors
    /// If a query fails.
    pub fn holds(&self, component: usize, pod: &Subject) -> Result<bool, Failed> {
        if self.selects(component, pod)? {
            return Ok(true);
        }
        for child in self.children(component) {
            if self.holds(child, pod)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the component's own selector matches the pod.
    ///
    /// # Errors
    /// If the query fails.
    pub fn selects(&self, component: usize, pod: &Subject) -> Result<bool, Failed> {
        match self.components.get(component).and_then(|known| known.selector.as_ref()) {
            None => Ok(false),
            Some(Selector::Any(query)) => Ok(query.run(pod)?.iter().any(|found| !found.is_null())),
            Some(Selector::True(query)) => Ok(query.run(pod)?.contains(&Value::Bool(true))),
        }
    }
}

fn components(root: &Value, children: &[Value]) -> Result<Vec<Component>, String> {
    if !text(root, "/ownerRef").is_empty() {
        return Err("the root component has an owner".to_owned());
    }
    if !root.get("statusDefinition").is_some_and(Value::is_object) {
        return Err("the root component has no statusDefinition".to_owned());
    }
    let mut components = vec![read_component(root)?];
    for child in children {
        components.push(read_component(child)?);
    }
    let mut names = BTreeSet::new();
    for component in &components {
        if component.name.is_empty() || !names.insert(component.name.clone()) {
            return Err(format!(
                "component names must be unique and not empty: {:?}",
                component.name
            ));
        }
    }
    for (index, child) in (1..).zip(children) {
        let owner = text(child, "/ownerRef");
        let parent = components.iter().position(|component| component.name == owner);
        let parent = parent.ok_or_else(|| format!("ownerRef {owner:?} names no component"))?;
        if let Some(component) = components.get_mut(index) {
            component.parent = Some(parent);
        }
    }
    for (start, component) in components.iter().enumerate() {
        let above = std::iter::successors(Some(start), |index| components.get(*index)?.parent);
        if above.take(components.len() + 1).count() > components.len() {
            return Err(format!("component {} is a part of itself", component.name));
        }
    }
    Ok(components)
}

fn read_component(spec: &Value) -> Result<Component, String> {
    let name = text(spec, "/name").to_owned();
    let query = |pointer: &str| match text(spec, pointer) {
        "" => Ok(None),
        code => Query::new(code).map(Some),
    };
    let pods = ["podTemplateSpecPath", "podSpecPath", "fragmentedPodSpecDefinition"];
    let given = |key: &&&str| {
        spec.pointer(&format!("/specDefinition/{key}"))
            .is_some_and(|given| !given.is_null())
    };
    if pods.iter().filter(given).count() > 1 {
        return Err(format!("component {name} states its pods more than once"));
    }
    for path in ["podTemplateSpecPath", "podSpecPath", "metadataPath"] {
        query(&format!("/specDefinition/{path}"))?;
    }
    query("/scaleDefinition/maxReplicasPath")?;
    let (instances, instance) = (
        query("/instanceIdPath")?,
        query("/podSelector/componentInstanceSelector/idPath")?,
    );
    if instances.is_some() != instance.is_some() {
        return Err(format!(
            "component {name} names its instances but not its pods' instances, or the other way round"
        ));
    }
    let selector = spec
        .pointer("/podSelector/componentTypeSelector")
        .filter(|given| !given.is_null());
    let selector = selector.map(|selector| {
        let path = text(selector, "/keyPath");
        match selector.get("value").and_then(Value::as_str) {
            Some(value) => Query::new(&format!("{path} == \"{value}\"")).map(Selector::True),
            None => Query::new(path).map(Selector::Any),
        }
    });
    Ok(Component {
        parent: None,
        has_pods: spec.get("specDefinition").is_some_and(Value::is_object),
        is_scaled: spec.get("scaleDefinition").is_some_and(Value::is_object),
        replicas: query("/scaleDefinition/replicasPath")?,
        min_replicas: query("/scaleDefinition/minReplicasPath")?,
        instances,
        selector: selector.transpose()?,
        instance,
        name,
    })
}

fn read_group(group: &Value) -> Group {
    let sub_groups = list(group, "/subGroups").iter();
    Group {
        name: text(group, "/name").to_owned(),
        topology: read_topology(group),
        sub_groups: sub_groups
            .map(|listed| (text(listed, "/componentName").to_owned(), read_topology(listed)))
            .collect(),
    }
}

fn read_topology(of: &Value) -> Option<TopologyConstraint> {
    let topology = of.get("topology").filter(|given| !given.is_null())?;
    let stated = |pointer| Some(text(topology, pointer).to_owned()).filter(|text| !text.is_empty());
    Some(TopologyConstraint {
        topology: stated("/topologyName"),
        required_topology_level: stated("/requiredTopologyLevel"),
        preferred_topology_level: stated("/preferredTopologyLevel"),
    })
}

fn queries(codes: &[Value]) -> Result<Vec<Query>, String> {
    codes
        .iter()
        .map(|code| Query::new(code.as_str().unwrap_or_default()))
        .collect()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
