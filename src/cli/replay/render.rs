//! Decisions as one line of JSON, or as text for people.

use serde_json::{Value, json};

use super::{Replayed, explain};
use crate::api::names::received_resource_type;
use crate::cli::show::add_line;
use crate::engine::decision::Decisions;
use crate::engine::input::{GpuKind, Name};
use crate::mirror::numa::zones;

/// The answer for one file as one line of JSON.
pub fn json(file: &str, replayed: &anyhow::Result<Replayed>) -> Value {
    match replayed {
        Ok(Replayed {
            decisions,
            given,
            standings,
            cycle_ms,
            build_ms,
            notes,
        }) => json!({
            "file": file,
            "ms": cycle_ms,
            "buildMs": build_ms,
            "bind": decisions.bind.iter().zip(given).map(|(bind, given)| {
                let mut value = json!({
                    "pod": bind.pod.to_string(),
                    "node": *bind.node,
                    "gpuGroups": names(&bind.gpu_groups),
                    "resourceType": resource_type(bind.received),
                    "numaZones": plain(&zones(&bind.zones)),
                });
                if !given.named.is_empty() {
                    value["resourceClaimAllocations"] = plain(&given.named);
                }
                if given.extended.is_some() {
                    value["extendedResourceClaimAllocation"] = plain(&given.extended);
                }
                value
            }).collect::<Vec<_>>(),
            "evict": decisions.evict.iter().map(|evict| json!({
                "pod": evict.pod.to_string(),
                "action": evict.action.as_str(),
                "for": evict.for_group.as_ref().map(ToString::to_string),
            })).collect::<Vec<_>>(),
            "pipeline": decisions.pipeline.iter().map(|pipeline| json!({
                "pod": pipeline.pod.to_string(),
                "node": *pipeline.node,
                "gpuGroups": names(&pipeline.gpu_groups),
            })).collect::<Vec<_>>(),
            "unschedulable": decisions.unschedulable.iter().enumerate().filter(|(_, report)| !report.not_ready).map(|(at, report)| {
                let mut value = json!({
                    "podGroup": report.group.to_string(),
                    "reasons": report.reasons.iter().map(|reason| reason.code.as_str()).collect::<Vec<_>>(),
                    "message": report.message,
                });
                if let Some(queues) = standings.get(at) {
                    value["levels"] = explain::levels(report, queues);
                }
                value
            }).collect::<Vec<_>>(),
            "notes": notes,
        }),
        Err(error) => json!({"file": file, "error": format!("{error:#}")}),
    }
}

fn plain(data: &impl serde::Serialize) -> Value {
    serde_json::to_value(data).expect("allocations are plain data")
}

/// The answer for one file for people.
pub fn table(file: &str, replayed: &anyhow::Result<Replayed>) -> String {
    let mut text = String::new();
    match replayed {
        Ok(replayed) => {
            let Decisions {
                bind,
                evict,
                pipeline,
                unschedulable,
                ..
            } = &replayed.decisions;
            let not_ready = unschedulable.iter().filter(|report| report.not_ready).count();
            let mut counts = format!(
                "{} to bind, {} to evict, {} waiting for room, {} unschedulable",
                bind.len(),
                evict.len(),
                pipeline.len(),
                unschedulable.len() - not_ready
            );
            if not_ready > 0 {
                counts += &format!(", {not_ready} not ready");
            }
            add_line(&mut text, &format!("{file}: {counts}"));
            sections(&mut text, &replayed.decisions);
            for (report, queues) in replayed.decisions.unschedulable.iter().zip(&replayed.standings) {
                add_line(&mut text, &format!("  why   {}", report.group));
                for level in explain::lines(report, queues) {
                    add_line(&mut text, &format!("        {level}"));
                }
            }
            for note in &replayed.notes {
                add_line(&mut text, &format!("  note  {note}"));
            }
            let (model, decisions) = (replayed.build_ms, replayed.cycle_ms);
            add_line(
                &mut text,
                &format!("  model in {model:.2} ms, decisions in {decisions:.2} ms"),
            );
        }
        Err(error) => add_line(&mut text, &format!("{file}: error: {error:#}")),
    }
    text
}

fn sections(text: &mut String, decisions: &Decisions) {
    let on = |groups: &[Name]| {
        if groups.is_empty() {
            String::new()
        } else {
            format!(" on GPU {}", names(groups).join(", "))
        }
    };
    for bind in &decisions.bind {
        add_line(
            text,
            &format!("  bind  {} to {}{}", bind.pod, bind.node, on(&bind.gpu_groups)),
        );
    }
    for evict in &decisions.evict {
        let why = evict
            .for_group
            .as_ref()
            .map(|group| format!(" for {group}"))
            .unwrap_or_default();
        add_line(text, &format!("  evict {} ({}{why})", evict.pod, evict.action.as_str()));
    }
    for pipeline in &decisions.pipeline {
        add_line(
            text,
            &format!(
                "  wait  {} for {}{}",
                pipeline.pod,
                pipeline.node,
                on(&pipeline.gpu_groups)
            ),
        );
    }
    for report in &decisions.unschedulable {
        let mut message = report.message.trim_end().lines();
        let first = message.next().unwrap_or_default();
        add_line(text, &format!("  none  {}: {first}", report.group));
        for more in message {
            add_line(text, &format!("        {more}"));
        }
    }
}

fn names(names: &[Name]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

fn resource_type(kind: GpuKind) -> &'static str {
    match kind {
        GpuKind::Regular => received_resource_type::REGULAR,
        GpuKind::Fraction | GpuKind::Memory => received_resource_type::FRACTION,
        GpuKind::Mig => received_resource_type::MIG_INSTANCE,
    }
}
