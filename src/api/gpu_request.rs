//! A pod's GPU sharing request in its annotations: one parser for all components, so that what admission accepts is what the scheduler counts, the binder
//! allocates and statuses show. An invalid request is refused at admission, and held back if no webhook was called.
//!
//! ```text
//! gpu-fraction: "0.5"                                  half of a GPU
//! gpu-fraction: "0.5", gpu-fraction-num-devices: "2"   half of each of two
//! gpu-memory: "8192"                                   8 GiB of one, of any size
//! nvidia.com/mig-1g.5gb: "2"                           two MIG instances (old style; containers name them among their resources now)
//! ```

use std::collections::BTreeMap;

use super::limits::{GPU_DEVICES_COUNTED, GPU_MEMORY_COUNTED};
use super::names::{annotation, label};
use super::quantity::Amount;

/// Billionths in a whole device.
pub const WHOLE: i64 = 1_000_000_000;

/// The request of annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// No GPU.
    Nothing,
    /// Portions of shared GPUs.
    Share(GpuShare),
    /// MIG instances, by the profile's resource name; at least one of each.
    Mig(Vec<(&'a str, i64)>),
}

/// Whether a label names a GPU group.
#[must_use]
pub fn is_group_label(key: &str) -> bool {
    key == label::GPU_GROUP || key.starts_with(label::GPU_GROUP_PREFIX)
}

/// GPU resources that containers request, even with amount 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Whole GPUs.
    pub whole: bool,
    /// MIG instances.
    pub mig: bool,
}

/// A portion of each of some devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuShare {
    /// The portion of each device.
    pub part: Part,
    /// Number of devices; at least one.
    pub devices: i64,
}

/// A portion of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Billionths of it: from 1 to [`WHOLE`], which only fractions closer to 1 than a billionth come to. Finer ones are rounded up.
    Fraction(i64),
    /// MiB of its memory, at least one.
    Memory(i64),
}

/// Why a request is invalid, as a message. Most are KAI's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// A fraction beside whole GPUs.
    #[error("cannot have both GPU fraction request and whole GPU resource request/limit")]
    FractionAndWhole,
    /// Memory beside a fraction or whole GPUs.
    #[error("cannot request both GPU and GPU memory")]
    MemoryAndOther,
    /// A part of a GPU beside MIG instances.
    #[error("cannot have both a request for a part of a GPU (gpu-fraction, gpu-memory) and MIG instances")]
    ShareAndMig,
    /// Whole GPUs beside MIG instances.
    #[error("cannot have both a whole GPU resource request/limit and MIG instances in annotations (nvidia.com/mig-…)")]
    WholeAndMig,
    /// A number of devices without a portion.
    #[error("cannot request multiple fractional devices without specifying fraction portion or gpu-memory")]
    DevicesAlone,
    /// Invalid memory.
    #[error("annotation gpu-memory: {} is not a whole number of MiB above 0{}", shown(.0), mib_of(.0))]
    Memory(String),
    /// Invalid fraction.
    #[error("annotation gpu-fraction: {} is not a decimal number above 0 and below 1, such as 0.5", shown(.0))]
    Fraction(String),
    /// Invalid number of devices.
    #[error("annotation gpu-fraction-num-devices: {} is not a whole number above 0", shown(.0))]
    Devices(String),
}

impl InvalidRequest {
    /// The message of KAI's admission, which clients may compare: it does not show the annotation's value.
    #[must_use]
    pub fn in_kais_words(&self) -> String {
        match self {
            Self::Memory(_) => "gpu-memory annotation value must be a positive integer greater than 0".to_owned(),
            Self::Fraction(text) if is_no_decimal(text) => format!(
                "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation .given value: {text}"
            ),
            Self::Fraction(_) => "gpu-fraction annotation value must be a positive number smaller than 1.0".to_owned(),
            Self::Devices(_) => "fraction count annotation value must be a positive integer greater than 0".to_owned(),
            Self::FractionAndWhole
            | Self::MemoryAndOther
            | Self::ShareAndMig
            | Self::WholeAndMig
            | Self::DevicesAlone => self.to_string(),
        }
    }

    /// Whether the error is an invalid value of one annotation.
    #[must_use]
    pub fn is_about_a_value(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Fraction(_) | Self::Devices(_))
    }
}

/// Whether Go's parser accepts the text as a number although it is not decimal.
fn is_no_decimal(text: &str) -> bool {
    let lower = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    lower == "nan" || (lower.starts_with("0x") && lower.contains('p') && !text.starts_with('-'))
}

/// Characters of a value that a message shows.
const SHOWN: usize = 40;

/// A value as a message shows it: its beginning, quoted.
#[must_use]
pub fn shown(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("\"{}{more}\"", shown.escape_debug())
}

fn mib_of(text: &str) -> String {
    in_mib(text).map_or_else(String::new, |mib| format!("; in MiB: \"{mib}\""))
}

/// MiB, rounded up, of an amount of memory with a unit as people write it: 3Gi, 3GiB, 3GB. `None` for one without a unit, or below a MiB.
#[must_use]
fn in_mib(text: &str) -> Option<i64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: Amount = text.trim_end_matches(['b', 'B']).parse().ok()?;
    let bytes = amount.units();
    (bytes >= 1 << 20).then(|| bytes / (1 << 20) + i64::from(bytes % (1 << 20) > 0))
}

/// Parses a pod's annotations.
///
/// # Errors
/// The first problem.
pub fn read<'a>(
    annotations: impl Iterator<Item = (&'a str, &'a str)>,
    named: Named,
) -> Result<Asked<'a>, InvalidRequest> {
    let (mut fraction, mut memory, mut devices, mut mig) = (None, None, None, Vec::new());
    for (key, value) in annotations {
        match key {
            annotation::GPU_FRACTION => fraction = Some(value),
            annotation::GPU_MEMORY => memory = Some(value),
            annotation::GPU_FRACTION_NUM_DEVICES => devices = Some(value),
            _ if key.starts_with(annotation::MIG_PREFIX) => {
                mig.extend(count(value, GPU_DEVICES_COUNTED).map(|count| (key, count)));
            }
            _ => {}
        }
    }
    if fraction.is_some() && named.whole {
        return Err(InvalidRequest::FractionAndWhole);
    }
    if memory.is_some() && (fraction.is_some() || named.whole) {
        return Err(InvalidRequest::MemoryAndOther);
    }
    let part = match (fraction, memory) {
        (None, None) if devices.is_some() => return Err(InvalidRequest::DevicesAlone),
        (None, None) if mig.is_empty() => return Ok(Asked::Nothing),
        (None, None) if named.whole => return Err(InvalidRequest::WholeAndMig),
        (None, None) => return Ok(Asked::Mig(mig)),
        (Some(text), _) => Part::Fraction(read_fraction(text)?),
        (None, Some(text)) => {
            Part::Memory(count(text, GPU_MEMORY_COUNTED).ok_or_else(|| InvalidRequest::Memory(text.to_owned()))?)
        }
    };
    let counted = |text| count(text, GPU_DEVICES_COUNTED).ok_or_else(|| InvalidRequest::Devices(text.to_owned()));
    let devices = devices.map_or(Ok(1), counted)?;
    if named.mig || !mig.is_empty() {
        return Err(InvalidRequest::ShareAndMig);
    }
    Ok(Asked::Share(GpuShare { part, devices }))
}

/// The portion that these annotations request, on a pod whose containers request no GPUs. `None` if there is none or they are invalid.
#[must_use]
pub fn share(annotations: Option<&BTreeMap<String, String>>) -> Option<GpuShare> {
    let annotations = annotations?.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    match read(annotations, Named::default()).ok()? {
        Asked::Share(share) => Some(share),
        Asked::Nothing | Asked::Mig(_) => None,
    }
}

/// Whether an annotation is part of a GPU sharing request.
#[must_use]
pub fn is_part(key: &str) -> bool {
    let share = matches!(
        key,
        annotation::GPU_FRACTION | annotation::GPU_MEMORY | annotation::GPU_FRACTION_NUM_DEVICES
    );
    share || key.starts_with(annotation::MIG_PREFIX)
}

/// Parses billionths. The number is validated as a float, as in KAI's admission, and converted exactly.
fn read_fraction(text: &str) -> Result<i64, InvalidRequest> {
    let no_fraction = || InvalidRequest::Fraction(text.to_owned());
    if is_no_decimal(text) {
        return Err(no_fraction());
    }
    let number: f64 = text.parse().map_err(|_| no_fraction())?;
    if !(number > 0.0 && number < 1.0) {
        return Err(no_fraction());
    }
    let amount: Amount = text.parse().map_err(|_| no_fraction())?;
    let billionths = i64::try_from(amount.nanos()).unwrap_or(WHOLE);
    Ok(billionths.clamp(1, WHOLE))
}

/// A whole number above 0, capped at `most`.
fn count(text: &str, most: i64) -> Option<i64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = text.parse().ok().filter(|number| *number > 0)?;
    Some(i64::try_from(number).unwrap_or(most).min(most))
}

#[cfg(test)]
mod tests;
