//! Annotations that define gangs for any owner, on the owner or in
//! its pod template.
//!
//! ```yaml
//! kai.scheduler/min-member: "4"                    # four pods start together, or none
//! kai.scheduler/subgroups: "leader=1,worker=3"     # sub-groups with minimums …
//! kai.scheduler/subgroup-label: role               # … and the pod label whose value names the pod's sub-group
//! kai.scheduler/segment-size: "2"                  # segments of two pods, by pod index
//! ```

use super::base::default_rule;
use super::tree::{count, leaf, near, total};
use super::{Grouped, Input, RuleError, segments, wrong};
use crate::api::names::{annotation, third_party};
use crate::api::pod_group::SubGroup;
use crate::components::grouping::fields;
use crate::components::grouping::workload::Workload;

/// One group per owner, with the sub-groups of its annotations.
pub fn base(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = default_rule(input, top)?;
    shape(input, top, None, &mut grouped)?;
    Ok(grouped)
}

/// Applies the annotations to the group; false if there are none. `minimum` is that of another annotation, and counts for segments.
pub fn shape(input: &Input, top: &Workload, minimum: Option<i32>, grouped: &mut Grouped) -> Result<bool, RuleError> {
    if input.settings.exactly_as_kai {
        return Ok(false);
    }
    let stated = Stated { input, top };
    let size = match stated.annotation(annotation::MIN_MEMBER) {
        Some(text) => Some(number(annotation::MIN_MEMBER, text, 0)?),
        None => None,
    };
    let parts = stated.parts()?;
    let segment_size = segments::size(stated.annotation(annotation::SEGMENT_SIZE), 1)?;
    let spec = &mut grouped.group.spec;
    match (parts, segment_size) {
        (Some(parts), _) => {
            spec.min_member = Some(total(&parts));
            grouped.sub_group = stated.own_part(&parts)?;
            spec.sub_groups = parts;
        }
        (None, Some(segment_size)) => {
            let (segments, own) = stated.segments(segment_size, size.or(minimum))?;
            spec.min_member = Some(total(&segments));
            (spec.sub_groups, grouped.sub_group) = (segments, own);
        }
        (None, None) => {
            let Some(size) = size else { return Ok(false) };
            spec.min_member = Some(size);
        }
    }
    // With ordered pod management only one pod is pending at a time.
    let in_order = top.kind == "StatefulSet"
        && fields::text(&top.body, &["spec", "podManagementPolicy"])?.is_none_or(|policy| policy != "Parallel");
    if in_order && !top.body.is_null() && spec.min_member > Some(1) {
        return wrong(format!(
            "StatefulSet {} asks for {} pods at once, but makes one after another: set podManagementPolicy: Parallel",
            top.name,
            spec.min_member.unwrap_or_default()
        ));
    }
    grouped.rule = "as annotated".to_owned();
    Ok(true)
}

struct Stated<'a> {
    input: &'a Input<'a>,
    top: &'a Workload,
}

impl<'a> Stated<'a> {
    /// The owner's annotation, else the pod's, which comes from the pod template.
    fn annotation(&self, key: &str) -> Option<&'a str> {
        self.top.annotation(key).or_else(|| self.input.annotation(key))
    }

    fn parts(&self) -> Result<Option<Vec<SubGroup>>, RuleError> {
        let Some(text) = self.annotation(annotation::SUBGROUPS) else {
            return Ok(None);
        };
        let part = |part: &str| match part.split_once('=') {
            Some((name, min)) => Ok(leaf(name.trim(), number(annotation::SUBGROUPS, min.trim(), 0)?)),
            None => wrong(format!(
                "{}: {part:?} is not of the form name=minimum",
                annotation::SUBGROUPS
            )),
        };
        let parts = text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(part);
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        Ok(Some(parts).filter(|parts| !parts.is_empty()))
    }

    fn own_part(&self, parts: &[SubGroup]) -> Result<Option<String>, RuleError> {
        let Some(key) = self.annotation(annotation::SUBGROUP_LABEL) else {
            return wrong(format!(
                "{} needs {}",
                annotation::SUBGROUPS,
                annotation::SUBGROUP_LABEL
            ));
        };
        let own = self.input.label(key).unwrap_or_default();
        if parts.iter().any(|part| part.name == own) {
            return Ok(Some(own.to_owned()));
        }
        wrong(format!(
            "label {key}={own:?} of pod {} names none of the parts in {}",
            self.input.pod_name(),
            annotation::SUBGROUPS
        ))
    }

    /// Segments of equal size over all pods. Those beyond the minimum are optional.
    fn segments(&self, size: i32, minimum: Option<i32>) -> Result<(Vec<SubGroup>, Option<String>), RuleError> {
        let pods = |field| fields::integer(&self.top.body, &["spec", field]);
        let at_once = pods("parallelism")?;
        let total = match (pods("replicas")?, pods("completions")?.or(at_once)) {
            (Some(total), _) | (None, Some(total)) => total,
            (None, None) => minimum.unwrap_or(1),
        };
        // A Job has no more pods at a time.
        let minimum = minimum.or(at_once).unwrap_or(total).min(total);
        let whole = |pods: i32| pods / size + i32::from(pods % size > 0);
        let number = whole(total);
        segments::check_number(number)?;
        let nearness = segments::nearness(self.annotation(annotation::TOPOLOGY), |key| self.annotation(key));
        // Where later indices follow earlier ones, a segment whose pods have ended never has its minimum again, and the others would wait for it.
        let passes = at_once.is_some_and(|at_once| at_once < total);
        let min = |index: i32| match index {
            index if passes || index >= whole(minimum) => 0,
            last if last == number - 1 => total - last * size,
            _ => size,
        };
        let segments = (0..number).map(|index| near(nearness.clone(), leaf(format!("segment-{index}"), min(index))));
        let segments: Vec<SubGroup> = segments.collect();
        let own = self.index()? / size;
        let own = own.min(count(segments.len()) - 1);
        Ok((segments, (own >= 0).then(|| format!("segment-{own}"))))
    }

    /// The pod's index among the workload's pods.
    fn index(&self) -> Result<i32, RuleError> {
        let stated = self.annotation(annotation::POD_INDEX_LABEL);
        let keys = [
            stated.unwrap_or(third_party::COMPLETION_INDEX),
            stated.unwrap_or(third_party::POD_INDEX),
        ];
        let Some((key, text)) = keys.iter().find_map(|key| Some((*key, self.input.label(key)?))) else {
            return wrong(format!(
                "pod {} has no index label: name it in {}",
                self.input.pod_name(),
                annotation::POD_INDEX_LABEL
            ));
        };
        number(key, text, 0)
    }
}

fn number(key: &str, text: &str, least: i32) -> Result<i32, RuleError> {
    match text.parse::<i32>() {
        Ok(number) if number >= least => Ok(number),
        Ok(_) | Err(_) => wrong(format!("{key}: {text:?} is not a whole number from {least}")),
    }
}
