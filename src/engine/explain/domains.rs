//! Why no domain of a topology takes the pods of a pod group's member, as KAI reports it.

use crate::api::names::resource;
use crate::engine::decision::{Detail, DomainFigures, ReasonCode, Shortage};
use crate::engine::model::Model;
use crate::engine::model::ids::PodGroupId;
use crate::engine::model::pod_group::{Kind, Member, PodGroup};
use crate::engine::model::resources::{CPU, GPUS, MEMORY};
use crate::engine::placement::domains::{DomainShortage, Refused};

use super::report::{BETWEEN, Findings};

impl Findings {
    /// Adds why no domain takes the `wanted` pods of a member.
    pub fn domains_refused(
        &mut self,
        model: &Model,
        pod_group: PodGroupId,
        member: Member,
        wanted: usize,
        refused: &Refused,
    ) {
        self.note_domains(member, wanted, refused);
        let pod_group = &model.pod_groups()[pod_group];
        let Some(constraint) = &pod_group.tree[member as usize].topology else {
            return;
        };
        let topology = &constraint.topology;
        let failed = format!(
            "topology {topology}, requirement {} couldn't be satisfied for {}",
            constraint.required.as_deref().unwrap_or_default(),
            pod_group_or_member(pod_group, member)
        );
        let message = match refused {
            Refused::NoTopology => format!("Requested topology {topology} does not exist"),
            Refused::NoLevel { required, level } => format!(
                "topology constraint error: {} specified '{level}' as the {} topology constraint level, but the topology tree '{topology}' does not contain a level with this name",
                subject(pod_group, member),
                if *required { "required" } else { "preferred" }
            ),
            Refused::Everything(domain) => {
                let place = domain.as_deref().unwrap_or("the cluster");
                format!("{failed}: not enough resources in {place} to allocate the job")
            }
            Refused::Each { listed, more } => {
                for lack in listed {
                    let figures = Box::new(figures(model, lack, wanted));
                    self.add(
                        ReasonCode::NotEnoughResources,
                        lacking(model, lack, wanted),
                        Detail::Domain(figures),
                    );
                }
                if *more > 0 {
                    let rest = format!("node-group(s) without enough room that are not listed: {more}");
                    self.add(ReasonCode::NotEnoughResources, rest, Detail::Text);
                }
                failed
            }
        };
        self.add(ReasonCode::PodSchedulingErrors, message, Detail::Text);
    }
}

fn figures(model: &Model, lack: &DomainShortage, wanted: usize) -> DomainFigures {
    let short = lack.short.iter().map(|&(position, asked, free)| Shortage {
        resource: model.resources().name(position).clone(),
        asked,
        free,
    });
    DomainFigures {
        domain: lack.domain.clone(),
        required: wanted,
        slots: lack.slots,
        short: short.collect(),
    }
}

fn lacking(model: &Model, lack: &DomainShortage, wanted: usize) -> String {
    if let Some(slots) = lack.slots {
        let domain = &lack.domain;
        return format!("node-group {domain} can allocate only {slots} of {wanted} required pods");
    }
    let each = lack.short.iter().map(|&(position, ..)| {
        let name = &**model.resources().name(position);
        let item = match position {
            CPU => "CPU cores",
            MEMORY => "memory",
            GPUS => "GPUs",
            _ if name.starts_with(resource::NVIDIA_MIG_PREFIX) => {
                return format!("node-group(s) didn't have enough of mig profile: {name}");
            }
            _ => name,
        };
        format!("node-group(s) didn't have enough resources: {item}")
    });
    each.collect::<Vec<_>>().join(BETWEEN)
}

fn pod_group_or_member(pod_group: &PodGroup, member: Member) -> String {
    let name = &pod_group.tree[member as usize].name;
    let sub = if name.is_empty() || name == "default" {
        String::new()
    } else {
        format!(", subgroup {name}")
    };
    format!("job <{}>{sub}", pod_group.key)
}

fn subject(pod_group: &PodGroup, member: Member) -> String {
    let node = &pod_group.tree[member as usize];
    if node.parent.is_none() || (matches!(node.kind, Kind::Pods(_)) && &*node.name == "default") {
        "workload".to_owned()
    } else {
        format!("sub-group {}", node.name)
    }
}
