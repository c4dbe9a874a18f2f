//! Amounts, times, names and lists for messages.

use crate::api::names::resource;
use crate::engine::fairshare::quotas::thousandths;
use crate::engine::input::{GPU, GroupKey, NodeRequirement, SelectorOp, Time};
use crate::engine::model::Model;
use crate::engine::model::resources::{CPU, GPUS, MEMORY, PODS, mig_slices};

const KI: i64 = 1 << 10;
const DAY: i64 = 24 * 60 * 60 * 1000;

/// `1 pod`, `3 pods`.
#[must_use]
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The names, and the number of those not listed.
#[must_use]
pub fn list(names: &[String], all: usize) -> String {
    let more = all.saturating_sub(names.len());
    match (names, more) {
        ([], more) => format!("{more} more"),
        (_, 1..) => format!("{} and {more} more", names.join(", ")),
        ([only], 0) => only.clone(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
    }
}

/// An instant of UTC, with the date if it is not today's.
#[must_use]
pub fn instant(at: Time, now: Time) -> String {
    let stamp = jiff::Timestamp::from_millisecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let date = if at.0.div_euclid(DAY) == now.0.div_euclid(DAY) {
        ""
    } else {
        "%Y-%m-%d "
    };
    let seconds = if at.0.div_euclid(1000) % 60 == 0 { "" } else { ":%S" };
    stamp.strftime(&format!("{date}%H:%M{seconds} UTC")).to_string()
}

/// A message of another part as one sentence without its full stop.
#[must_use]
pub fn one_sentence(text: &str) -> String {
    let lines: Vec<&str> = text.split_whitespace().collect();
    lines.join(" ").trim_end_matches(['.', ':']).replace(". ", "; ")
}

/// The workload of a pod group, for readers in that namespace: KAI's names of pod groups contain it between a prefix and a uid.
#[must_use]
pub fn workload(key: &GroupKey, seen_from: &str) -> String {
    let name = key.name();
    let inner = name.strip_prefix("pg-").and_then(|rest| {
        let uid = rest.len().checked_sub(36)?;
        let (owner, uid) = (rest.get(..uid)?, rest.get(uid..)?);
        let is_uid = uid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
        owner.strip_suffix('-').filter(|owner| is_uid && !owner.is_empty())
    });
    let name = inner.unwrap_or(name);
    if key.namespace() == seen_from {
        name.to_owned()
    } else {
        format!("{}/{name}", key.namespace())
    }
}

/// An amount with its unit: `32 CPU`, `64Gi of memory`, `1 GPU`, `2 rdma/hca`.
#[must_use]
pub fn quantity(model: &Model, position: usize, amount: i64) -> String {
    let number = number(model, position, amount);
    match unit(model, position, amount) {
        "" => number,
        unit => format!("{number} {unit}"),
    }
}

fn unit(model: &Model, position: usize, amount: i64) -> &str {
    match position {
        CPU => "CPU",
        MEMORY => "of memory",
        GPUS if amount == GPU => "GPU",
        GPUS => "GPUs",
        PODS => "pod slots",
        _ => match &**model.resources().name(position) {
            resource::EPHEMERAL_STORAGE => "of ephemeral storage",
            name => name,
        },
    }
}

/// The name of a resource without an amount before it.
#[must_use]
pub fn resource_name(model: &Model, position: usize) -> String {
    match position {
        CPU => "CPU".to_owned(),
        MEMORY => "memory".to_owned(),
        GPUS => "GPUs".to_owned(),
        PODS => "pod slots".to_owned(),
        _ => model.resources().name(position).to_string(),
    }
}

/// An amount without its unit.
#[must_use]
pub fn number(model: &Model, position: usize, amount: i64) -> String {
    match position {
        CPU => thousandths(amount),
        MEMORY => bytes(amount),
        GPUS => gpus(amount),
        PODS => amount.to_string(),
        _ => {
            let name = &**model.resources().name(position);
            match name {
                resource::EPHEMERAL_STORAGE | "storage" => bytes(amount),
                _ if mig_slices(name) > 0 => amount.to_string(),
                _ if name.starts_with("hugepages-") => bytes(amount),
                _ => thousandths(amount),
            }
        }
    }
}

/// GPUs. What is less than a thousandth of one is still some of it.
#[must_use]
pub fn gpus(amount: i64) -> String {
    let amount = amount / (GPU / 1000);
    thousandths(amount)
}

/// An amount of one of the three shared resources, as a queue counts it.
#[must_use]
pub fn shared(resource: usize, amount: i64) -> String {
    match resource {
        CPU => format!("{} CPU", thousandths(amount)),
        MEMORY => format!("{} of memory", bytes(amount)),
        _ => format!("{} {}", gpus(amount), if amount == GPU { "GPU" } else { "GPUs" }),
    }
}

/// The same without the unit.
#[must_use]
pub fn shared_number(resource: usize, amount: i64) -> String {
    match resource {
        CPU => thousandths(amount),
        MEMORY => bytes(amount),
        _ => gpus(amount),
    }
}

/// Bytes in the largest unit that gives them exactly, else with one decimal.
#[must_use]
pub fn bytes(amount: i64) -> String {
    let units = [
        (KI * KI * KI * KI, "Ti"),
        (KI * KI * KI, "Gi"),
        (1_000_000_000, "G"),
        (KI * KI, "Mi"),
        (1_000_000, "M"),
        (KI, "Ki"),
    ];
    let exact = units.iter().find(|(size, _)| amount != 0 && amount % size == 0);
    if let Some((size, unit)) = exact {
        return format!("{}{unit}", amount / size);
    }
    let rough = units.iter().find(|(size, unit)| unit.ends_with('i') && amount >= *size);
    match rough {
        Some((size, unit)) => {
            let tenths = i128::from(amount) * 10 / i128::from(*size);
            let (whole, part) = (tenths / 10, tenths % 10);
            if part == 0 {
                format!("{whole}{unit}")
            } else {
                format!("{whole}.{part}{unit}")
            }
        }
        None => amount.to_string(),
    }
}

/// A requirement on labels.
#[must_use]
pub fn requirement(requirement: &NodeRequirement) -> String {
    let NodeRequirement { key, op, values } = requirement;
    let values: Vec<&str> = values.iter().take(3).map(|value| &**value).collect();
    let (values, several) = (values.join(", "), requirement.values.len() != 1);
    match op {
        SelectorOp::In if !several => format!("{key}={values}"),
        SelectorOp::In => format!("{key} in ({values})"),
        SelectorOp::NotIn => format!("{key} not in ({values})"),
        SelectorOp::Exists => key.to_string(),
        SelectorOp::DoesNotExist => format!("no {key}"),
        SelectorOp::Gt => format!("{key} > {values}"),
        SelectorOp::Lt => format!("{key} < {values}"),
    }
}

/// Requirements on the labels of pods.
#[must_use]
pub fn requirements(requirements: Option<&[NodeRequirement]>) -> String {
    match requirements {
        None | Some([]) => "any".to_owned(),
        Some(all) => {
            let all: Vec<String> = all.iter().take(3).map(requirement).collect();
            all.join(",")
        }
    }
}

#[cfg(test)]
mod tests;
