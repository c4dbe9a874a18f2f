//! Kinds with a Karta: see [`crate::components::grouping::karta`].

use tracing::warn;

use super::base::of_owner;
use super::tree::{as_name, leaf, near};
use super::{Grouped, Input, KindName, RuleError, wrong};
use crate::api::names::priority_class;
use crate::api::pod_group::TopologyConstraint;
use crate::components::grouping::karta::{Failed, Gang, Group, Karta, Member, Subject};
use crate::components::grouping::workload::Workload;

/// Groups by the definition for the kind, if there is one.
pub fn by_definition(input: &Input, top: &Workload) -> Result<Option<Grouped>, RuleError> {
    if !input.settings.kartas {
        return Ok(None);
    }
    let kind = KindName {
        group: top.group.clone(),
        version: top.version.clone(),
        kind: top.kind.clone(),
    };
    let kartas = input.cluster.kartas(&kind)?;
    let karta = match kartas.as_slice() {
        [] => return Ok(None),
        [one] => one,
        several => {
            let names: Vec<&str> = several.iter().map(|karta| &*karta.name).collect();
            warn!(?kind, ?names, "several Kartas describe the same kind; all are ignored");
            return Ok(None);
        }
    };
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    grouped.rule = format!("Karta {} ({})", karta.name, top.kind);
    let pod = serde_json::to_value(input.pod).unwrap_or_default();
    let apply = Apply {
        input,
        top,
        karta,
        owner: Subject::new(top.body.clone()),
        pod: Subject::new(pod),
    };
    match &karta.gang {
        Gang::Group(group) => apply.group(group, &mut grouped)?,
        Gang::Members(members) => apply.members(members, &mut grouped)?,
    }
    Ok(Some(grouped))
}

struct Apply<'a> {
    input: &'a Input<'a>,
    top: &'a Workload,
    karta: &'a Karta,
    owner: Subject,
    pod: Subject,
}

impl Apply<'_> {
    /// One group with a leaf per listed component.
    fn group(&self, group: &Group, grouped: &mut Grouped) -> Result<(), RuleError> {
        grouped.group.metadata.name = Some(format!("pg-{}-{}", self.top.uid, group.name));
        let spec = &mut grouped.group.spec;
        if let Some(topology) = checked(group.topology.as_ref())? {
            spec.topology_constraint = Some(topology);
        }
        for (name, topology) in &group.sub_groups {
            let Some(component) = self.karta.component(name) else {
                return wrong(format!("component {name:?} of Karta {} not found", self.karta.name));
            };
            let scale = said(self.karta.scale(component, &self.owner))?;
            if scale == 0 && self.input.settings.exactly_as_kai {
                return wrong(format!("component {name} must expose a replica scale definition"));
            }
            let part = as_name(name);
            let leaf = leaf(part.clone(), size(scale));
            spec.sub_groups.push(near(checked(topology.as_ref())?, leaf));
            if grouped.sub_group.is_none() && said(self.karta.holds(component, &self.pod))? {
                grouped.sub_group = Some(part);
            }
        }
        if group.sub_groups.is_empty() {
            spec.min_member = Some(size(said(self.karta.scale(0, &self.owner))?));
        } else {
            spec.min_member = None;
            spec.min_sub_group = Some(super::tree::count(group.sub_groups.len()));
        }
        Ok(())
    }

    /// The older form: the member nearest to the pod's component whose filters match.
    fn members(&self, members: &[Member], grouped: &mut Grouped) -> Result<(), RuleError> {
        let component = self.component()?;
        let (namespace, pod) = (self.input.namespace(), self.input.pod_name());
        let nearest = self.karta.upwards(component);
        let candidates = nearest.flat_map(|at| members.iter().filter(move |member| member.component == at));
        let mut chosen = None;
        for member in candidates {
            if self.admits(member)? {
                chosen = Some(member);
                break;
            }
        }
        let Some(member) = chosen else {
            return wrong(format!(
                "pod {namespace}/{pod} does not match any Karta pod group member definition"
            ));
        };
        // A member on a component above is about all of its instances, and the pod need not name one.
        let instance = if member.component == component {
            self.instance(component)?
        } else {
            None
        };
        let scale = match instance {
            Some(instance) => self.karta.scale_of_instance(component, &self.owner, instance),
            None => self.karta.scale(member.component, &self.owner),
        };
        let keys = member.keys.iter().map(|key| said(key.text(&self.pod)));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let name = std::iter::once(format!("pg-{}", self.top.uid)).chain(keys.iter().cloned());
        let name = name.collect::<Vec<_>>().join("-");
        if !keys.is_empty() && !is_object_name(&name) {
            return wrong(format!(
                "Karta grouping keys {keys:?} produce invalid Kubernetes PodGroup name {name:?}"
            ));
        }
        grouped.group.metadata.name = Some(name);
        grouped.group.spec.min_member = Some(size(said(scale)?));
        Ok(())
    }

    /// The pod's component.
    fn component(&self) -> Result<usize, RuleError> {
        let components = self.karta.components.iter().enumerate();
        let with_pods: Vec<usize> = components
            .filter_map(|(index, component)| component.has_pods.then_some(index))
            .collect();
        if let [only] = with_pods.as_slice() {
            return Ok(*only);
        }
        for index in with_pods {
            if said(self.karta.selects(index, &self.pod))? {
                return Ok(index);
            }
        }
        wrong(format!("no component found for pod {}", self.input.pod_name()))
    }

    fn admits(&self, member: &Member) -> Result<bool, RuleError> {
        for filter in &member.filters {
            if said(filter.text(&self.pod))? != "true" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The pod's instance of the component, if that has instances.
    fn instance(&self, component: usize) -> Result<Option<usize>, RuleError> {
        let Some(definition) = self.karta.components.get(component) else {
            return Ok(None);
        };
        let (Some(instances), Some(own)) = (&definition.instances, &definition.instance) else {
            return Ok(None);
        };
        let (instances, own) = (said(instances.texts(&self.owner))?, said(own.text(&self.pod))?);
        match instances.iter().position(|instance| *instance == own) {
            Some(index) => Ok(Some(index)),
            None => wrong(format!(
                "instance {own:?} of component {} is not in {instances:?}",
                definition.name
            )),
        }
    }
}

fn said<T>(answer: Result<T, Failed>) -> Result<T, RuleError> {
    answer.map_err(RuleError::Workload)
}

fn size(scale: i64) -> i32 {
    i32::try_from(scale).unwrap_or(i32::MAX)
}

fn checked(topology: Option<&TopologyConstraint>) -> Result<Option<TopologyConstraint>, RuleError> {
    let Some(topology) = topology else { return Ok(None) };
    if topology.topology.is_none() {
        return wrong("topology constraint must include topology name");
    }
    if topology.required_topology_level.is_none() && topology.preferred_topology_level.is_none() {
        return wrong("topology constraint must include preferred or required topology level");
    }
    Ok(Some(topology.clone()))
}

/// Whether it is a valid object name.
fn is_object_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(super::tree::is_name)
}
