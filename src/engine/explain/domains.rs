//! Why no domain of a topology takes the pods of a pod group's member, as KAI reports it.

use crate::engine::decision::{Detail, DomainFigures, ReasonCode, Shortage};
use crate::engine::fairshare::quotas::readable;
use crate::engine::model::Model;
use crate::engine::model::ids::PodGroupId;
use crate::engine::model::pod_group::{Kind, Member, PodGroup};
use crate::engine::model::resources::{CPU, GPUS, MEMORY};
use crate::engine::placement::domains::{DomainShortage, Refused};

use super::report::Findings;

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
            Refused::Each(domains) => {
                for lack in domains {
                    let figures = Box::new(figures(model, lack, wanted));
                    self.add(
                        ReasonCode::NotEnoughResources,
                        lacking(model, lack, wanted),
                        Detail::Domain(figures),
                    );
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
    let domain = &lack.domain;
    if let Some(slots) = lack.slots {
        return format!("node-group {domain} can allocate only {slots} of {wanted} required pods");
    }
    let each = lack.short.iter().map(|&(position, asked, free)| {
        let item = match position {
            CPU => "CPU cores",
            MEMORY => "memory",
            GPUS => "GPUs",
            _ => &**model.resources().name(position),
        };
        let show = |amount: i64| {
            if position <= GPUS {
                readable(amount, position)
            } else {
                amount.to_string()
            }
        };
        let (asked, free) = (show(asked), show(free));
        format!("{domain} didn't have enough resources: {item}, requested: {asked}, available: {free}")
    });
    each.collect::<Vec<_>>().join(", ")
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
