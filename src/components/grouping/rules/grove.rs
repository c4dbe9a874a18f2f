//! Grove: PodGangs define nested gangs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::base::{self, of_owner};
use super::inherit::Base;
use super::inherit::{self, is_preemptibility};
use super::tree::{children, inner, leaf, near};
use super::{Grouped, Input, Reference, RuleError, wrong};
use crate::api::names::{annotation, label, priority_class, third_party};
use crate::api::pod_group::{PodGroupSpec, SubGroup, TopologyConstraint};
use crate::components::grouping::fields;
use crate::components::grouping::workload::Workload;

/// The group of the pod's PodGang, with settings of the PodCliqueSet above.
///
/// ```yaml
/// # podgroups pg1 (minReplicas 2) and pg2 (3), both in group config g1   →   minMember 5: g1 {2}, pg1 2, pg2 3
/// ```
pub fn pod_clique_set(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let gang = gang_of(input)?;
    let mut grouped = of_owner(input, &gang, priority_class::TRAIN)?;
    let topology = Topology::named(&gang);
    if let Some(constraint) = topology.constraint(&gang.body, &["spec"])? {
        grouped.group.spec.topology_constraint = Some(constraint);
    }
    if let Some(class) = fields::text(&gang.body, &["spec", "priorityClassName"])? {
        let usable = input.settings.exactly_as_kai || !class.is_empty();
        let class = Some(class.to_owned()).filter(|_| usable);
        grouped.class_of_pods &= class.is_none();
        grouped.group.spec.priority_class_name = class.or(grouped.group.spec.priority_class_name);
    }
    add_set(input, &gang, top, &mut grouped)?;
    let tree = Tree::read(input, &gang, &topology)?;
    let spec = &mut grouped.group.spec;
    spec.min_member = Some(tree.size);
    spec.sub_groups = tree.groups;
    grouped.sub_group = tree.own;
    Ok(grouped)
}

fn gang_of(input: &Input) -> Result<std::sync::Arc<Workload>, RuleError> {
    let Some(name) = input.label(third_party::GROVE_POD_GANG) else {
        let (namespace, pod, key) = (input.namespace(), input.pod_name(), third_party::GROVE_POD_GANG);
        return wrong(format!(
            "label for podgang name (key: {key}) not found in pod {namespace}/{pod}"
        ));
    };
    input.cluster.object(&Reference {
        api_version: "scheduler.grove.io/v1alpha1".to_owned(),
        kind: "PodGang".to_owned(),
        namespace: input.namespace().to_owned(),
        name: name.to_owned(),
    })
}

/// Labels and annotations of the set, where the gang has none.
fn add_set(input: &Input, gang: &Workload, set: &Workload, grouped: &mut Grouped) -> Result<(), RuleError> {
    // The gang lists all of its pods, and each of them comes here.
    let mut both = gang.without_body();
    both.inherit(set);
    let spec = &mut grouped.group.spec;
    if let Some(class) = both.labels.get(label::PRIORITY_CLASS_NAME) {
        spec.priority_class_name = Some(class.clone());
        grouped.class_of_pods = false;
    }
    if let Some(stated) = both.labels.get(label::PREEMPTIBILITY) {
        if !stated.is_empty() && !is_preemptibility(stated) {
            return wrong(format!(
                "invalid preemptibility {stated:?} of {} {}",
                set.kind, set.name
            ));
        }
        spec.preemptibility = Some(stated.clone()).filter(|stated| !stated.is_empty());
        grouped.preemptibility_of_pods = false;
    }
    let base = Base {
        top: &both,
        owners: &[&both],
        fallback_class: priority_class::TRAIN,
    };
    spec.queue = Some(inherit::queue(input, &both));
    spec.preemption_delay = inherit::preemption_delay(input, &base);
    spec.staleness_grace_period = inherit::staleness_grace_period(input, &base);
    fill_topology(spec, &both);
    let merged = of_owner(input, &both, priority_class::TRAIN)?.group.metadata;
    let own = grouped.group.metadata.annotations.take().unwrap_or_default();
    let mut annotations = merged.annotations.unwrap_or_default();
    annotations.extend(own);
    grouped.group.metadata.annotations = Some(annotations);
    grouped.group.metadata.labels = merged.labels;
    Ok(())
}

/// Topology constraints of the set, where neither the gang's spec nor its annotations have any.
fn fill_topology(spec: &mut PodGroupSpec, both: &Workload) {
    let Some(stated) = base::topology(|key| both.annotation(key)) else {
        return;
    };
    let own = spec.topology_constraint.get_or_insert_default();
    own.topology = own.topology.take().or(stated.topology);
    own.required_topology_level = own.required_topology_level.take().or(stated.required_topology_level);
    own.preferred_topology_level = own.preferred_topology_level.take().or(stated.preferred_topology_level);
}

/// The Topology that the gang's pack constraints are about.
struct Topology<'a>(&'a str);

impl<'a> Topology<'a> {
    fn named(gang: &'a Workload) -> Self {
        let grove = gang.annotation(third_party::GROVE_TOPOLOGY);
        Self(
            grove
                .or_else(|| gang.annotation(annotation::TOPOLOGY))
                .unwrap_or_default(),
        )
    }

    /// The pack constraint below the path, if there is one.
    fn constraint(&self, object: &Value, path: &[&str]) -> Result<Option<TopologyConstraint>, RuleError> {
        let level = |key| {
            let path = [path, &["topologyConstraint", "packConstraint", key]].concat();
            fields::text(object, &path)
        };
        let (preferred, required) = (level("preferred")?, level("required")?);
        if preferred.is_none() && required.is_none() {
            return Ok(None);
        }
        if self.0.is_empty() {
            return wrong("topology name cannot be empty when topology constraints are defined");
        }
        let stated = |level: Option<&str>| level.filter(|level| !level.is_empty()).map(ToOwned::to_owned);
        Ok(Some(TopologyConstraint {
            topology: Some(self.0.to_owned()),
            required_topology_level: stated(required),
            preferred_topology_level: stated(preferred),
        }))
    }
}

/// The sub-groups of the gang.
struct Tree {
    groups: Vec<SubGroup>,
    size: i32,
    own: Option<String>,
}

impl Tree {
    fn read(input: &Input, gang: &Workload, topology: &Topology) -> Result<Self, RuleError> {
        let mut parents = BTreeMap::new();
        let mut groups = Vec::new();
        let configs = fields::list(&gang.body, &["spec", "topologyConstraintGroupConfigs"])?;
        for config in configs.into_iter().flatten() {
            let name = required(config, "name")?;
            let members = fields::list(config, &["podGroupNames"])?;
            let members = members.into_iter().flatten().map(|member| match member.as_str() {
                Some(member) => Ok(member),
                None => wrong(format!("podGroupNames of {name} are not all text")),
            });
            let members = members.collect::<Result<Vec<_>, _>>()?;
            if members.is_empty() {
                continue;
            }
            parents.extend(members.into_iter().map(|member| (member.to_owned(), name.to_owned())));
            groups.push(near(topology.constraint(config, &[])?, inner(name, 0)));
        }
        let mut tree = Self {
            groups,
            size: 0,
            own: None,
        };
        let listed = fields::list(&gang.body, &["spec", "podgroups"])?;
        for group in listed.into_iter().flatten() {
            tree.add(input, group, &parents, topology)?;
        }
        tree.settle();
        Ok(tree)
    }

    fn add(
        &mut self,
        input: &Input,
        group: &Value,
        parents: &BTreeMap<String, String>,
        topology: &Topology,
    ) -> Result<(), RuleError> {
        let name = required(group, "name")?;
        let min = match fields::integer(group, &["minReplicas"])? {
            Some(min) if min > 0 => min,
            Some(_) | None => return wrong(format!("minReplicas of podgroup {name} must be more than 0")),
        };
        let Some(references) = fields::list(group, &["podReferences"])? else {
            return wrong(format!("podgroup {name} has no podReferences"));
        };
        for reference in references {
            let (namespace, pod) = (required(reference, "namespace")?, required(reference, "name")?);
            if namespace != input.namespace() {
                return wrong(format!("cross-namespace pod reference not allowed: {namespace}/{pod}"));
            }
            if pod == input.pod_name() && self.own.is_none() {
                self.own = Some(name.to_owned());
            }
        }
        self.size = self.size.saturating_add(min);
        let mut leaf = near(topology.constraint(group, &[])?, leaf(name, min));
        leaf.parent = parents.get(name).cloned();
        self.groups.push(leaf);
        Ok(())
    }

    /// Sets the minimum of parents to their number of children, and drops parents without.
    fn settle(&mut self) {
        let counts: BTreeMap<String, i32> = children(&self.groups)
            .into_iter()
            .map(|(parent, number)| (parent.to_owned(), number))
            .collect();
        self.groups
            .retain_mut(|group| match (&mut group.min_sub_group, counts.get(&group.name)) {
                (Some(min), Some(number)) => {
                    *min = *number;
                    true
                }
                (Some(_), None) => false,
                (None, _) => true,
            });
    }
}

fn required<'a>(object: &'a Value, key: &str) -> Result<&'a str, RuleError> {
    match fields::text(object, &[key])? {
        Some(text) => Ok(text),
        None => wrong(format!("an entry of the PodGang has no {key}")),
    }
}
