//! Segments: equal parts of a workload, each with a topology constraint.

use super::{RuleError, wrong};
use crate::api::names::annotation;
use crate::api::pod_group::TopologyConstraint;

/// The segment size of an annotation.
pub fn size(stated: Option<&str>, least: i32) -> Result<Option<i32>, RuleError> {
    let Some(text) = stated.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match text.parse::<i32>() {
        Ok(size) if size >= least => Ok(Some(size)),
        Ok(_) | Err(_) => wrong(format!(
            "invalid segment size: {text:?} is not a whole number from {least}"
        )),
    }
}

/// The topology constraint of each segment: a topology and the levels for segments. `None` without both.
pub fn nearness<'a>(
    topology: Option<&'a str>,
    stated_by: impl Fn(&'static str) -> Option<&'a str>,
) -> Option<TopologyConstraint> {
    let stated = |key| stated_by(key).filter(|value| !value.is_empty()).map(ToOwned::to_owned);
    let constraint = TopologyConstraint {
        topology: Some(topology.filter(|name| !name.is_empty())?.to_owned()),
        required_topology_level: stated(annotation::SEGMENT_TOPOLOGY_REQUIRED),
        preferred_topology_level: stated(annotation::SEGMENT_TOPOLOGY_PREFERRED),
    };
    let useful = constraint.required_topology_level.is_some() || constraint.preferred_topology_level.is_some();
    useful.then_some(constraint)
}

/// Refuses too many segments.
pub fn check_number(number: i32) -> Result<(), RuleError> {
    if usize::try_from(number).unwrap_or_default() > super::tree::MAX {
        return wrong(format!(
            "number of subgroups created for the segmentation {number} is greater than max allowed segmentation {}",
            super::tree::MAX
        ));
    }
    Ok(())
}
