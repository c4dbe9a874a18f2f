//! Leader-worker sets: one group per leader with its workers, perhaps in segments.

use serde_json::Value;

use super::base::of_owner;
use super::tree::{below, inner, leaf, near};
use super::{Grouped, Input, RuleError, segments, wrong};
use crate::api::names::{annotation, priority_class, third_party};
use crate::api::pod_group::{SubGroup, TopologyConstraint};
use crate::components::grouping::fields;
use crate::components::grouping::workload::Workload;
use crate::components::pods;
use crate::mirror::identity::default_group_name;

/// One group per replica of the set: `leader` and `workers`, or segments.
///
/// ```yaml
/// # size 3                     →  leader 1, workers 2
/// # size 5, segments of 2      →  segment-0 {leader 1, workers 2}, segment-1 2
/// ```
pub fn group(input: &Input, top: &Workload) -> Result<Grouped, RuleError> {
    let mut grouped = of_owner(input, top, priority_class::TRAIN)?;
    let mut set = Set::read(input, top)?;
    let mut name = default_group_name(&top.name, &top.uid);
    match input.label(third_party::LWS_GROUP_INDEX).map(str::parse::<i64>) {
        Some(Ok(index)) => name += &format!("-group-{index}"),
        // Without the index all leaders would share one group.
        Some(Err(_)) | None => {
            let (pod, key) = (input.pod_name(), third_party::LWS_GROUP_INDEX);
            return wrong(format!("pod {pod} has no valid label {key}"));
        }
    }
    // Workers come once the leader is ready, which is later than it is bound. The first of them makes the group whole.
    let existing = || input.cluster.pod_group(input.namespace(), &name);
    if set.leader_first && !set.exactly_as_kai && existing().is_some_and(|group| group.spec.min_member == Some(1)) {
        set.alone = true;
    }
    let (groups, own) = match set.segment_size(input, top)? {
        // A leader alone has no workers to divide.
        Some(size) if set.size > 1 => set.segmented(input, top, size)?,
        Some(_) | None => set.plain(),
    };
    grouped.group.metadata.name = Some(name);
    grouped.group.spec.min_member = Some(if set.alone { 1 } else { set.size });
    grouped.group.spec.sub_groups = groups;
    grouped.sub_group = Some(own);
    Ok(grouped)
}

type Groups = (Vec<SubGroup>, String);

struct Set {
    /// Leader and workers.
    size: i32,
    /// It is the leader, and workers are created once it is ready.
    leader_first: bool,
    /// Only the leader is needed so far.
    alone: bool,
    is_leader: bool,
    /// The pod's index; the leader has 0.
    index: Option<i32>,
    template: Value,
    exactly_as_kai: bool,
}

impl Set {
    fn read(input: &Input, top: &Workload) -> Result<Self, RuleError> {
        let path = ["spec", "leaderWorkerTemplate", "size"];
        let size = match fields::integer(&top.body, &path)? {
            Some(size) if size > 0 => size,
            Some(_) | None => return wrong(format!("{} of {} must be more than 0", path.join("."), top.name)),
        };
        let ready = match fields::text(&top.body, &["spec", "startupPolicy"])? {
            None | Some("LeaderCreated") => false,
            Some("LeaderReady") => true,
            Some(other) => return wrong(format!("unknown startupPolicy: {other}")),
        };
        let label = input.label(third_party::LWS_WORKER_INDEX);
        let is_leader = label == Some("0");
        let index = match label.map(|text| (text, text.parse::<i32>())) {
            None => None,
            Some((_, Ok(index))) if index >= 0 => Some(index),
            Some((text, Ok(_))) => return wrong(format!("workerIndex {text} is not valid. It must not be negative")),
            Some((_, Err(_))) => {
                return wrong(format!("failed to get worker index from pod {}", input.pod_name()));
            }
        };
        // Pods of another revision of the set may have another group size.
        let exactly_as_kai = input.settings.exactly_as_kai;
        let of_pod = input
            .annotation(third_party::LWS_SIZE)
            .and_then(|text| text.parse::<i32>().ok());
        let size = of_pod
            .filter(|size| *size > 0 && (ready || !exactly_as_kai))
            .unwrap_or(size);
        let leader_first = ready && is_leader;
        let template = top.body.pointer("/spec/leaderWorkerTemplate").cloned();
        Ok(Self {
            size,
            leader_first,
            alone: leader_first && !pods::is_bound(input.pod),
            is_leader,
            index,
            template: template.unwrap_or_default(),
            exactly_as_kai,
        })
    }

    fn plain(&self) -> Groups {
        let mut groups = vec![leaf("leader", 1)];
        if self.alone && !self.exactly_as_kai && self.size > 1 {
            groups.push(leaf("workers", 0));
        } else if !self.alone && self.size > 1 {
            groups.push(leaf("workers", self.size - 1));
        }
        let own = if self.is_leader { "leader" } else { "workers" };
        (groups, own.to_owned())
    }

    fn worker_annotation(&self, key: &str) -> Option<&str> {
        let path = ["workerTemplate", "metadata", "annotations", key];
        fields::text(&self.template, &path)
            .ok()
            .flatten()
            .filter(|text| !text.is_empty())
    }

    fn segment_size(&self, input: &Input, top: &Workload) -> Result<Option<i32>, RuleError> {
        let size = match fields::integer(&self.template, &["subGroupPolicy", "subGroupSize"])? {
            // LeaderWorkerSet allows 1.
            Some(1) if !self.exactly_as_kai => Some(1),
            Some(size) if size > 1 => Some(size),
            Some(size) => return wrong(format!("segment size {size} must be more than 1")),
            None => {
                let stated = top.annotation(annotation::SEGMENT_SIZE);
                segments::size(stated.or_else(|| self.worker_annotation(annotation::SEGMENT_SIZE)), 2)?
            }
        };
        match size.filter(|size| *size > self.size) {
            Some(size) => wrong(format!(
                "segmentSize {size} is greater than replicasSize {} of pod {}",
                self.size,
                input.pod_name()
            )),
            None => Ok(size),
        }
    }

    /// The topology constraint of segments: from the workers' template, else from the pod, since the leader's template may differ.
    fn nearness(&self, input: &Input, top: &Workload) -> Option<TopologyConstraint> {
        self.template
            .get("workerTemplate")
            .filter(|template| template.is_object())?;
        let worker = |key: &'static str| {
            self.worker_annotation(key)
                .or_else(|| input.annotation(key).filter(|text| !text.is_empty()))
        };
        let topology = worker(annotation::TOPOLOGY).or_else(|| top.annotation(annotation::TOPOLOGY));
        segments::nearness(topology, worker)
    }

    fn segmented(&self, input: &Input, top: &Workload, size: i32) -> Result<Groups, RuleError> {
        let Some(index) = self.index else {
            return wrong(format!("failed to get worker index from pod {}", input.pod_name()));
        };
        let workers = self.size - 1;
        let leader_apart = workers % size == 0;
        let segment = |index: i32| match index {
            0 => 0,
            index if leader_apart => (index - 1) / size,
            index => index / size,
        };
        let number = segment(workers) + 1;
        segments::check_number(number)?;
        if index >= self.size {
            return wrong(format!("worker index {index} is beyond the group's size {}", self.size));
        }
        let policy = fields::text(&self.template, &["subGroupPolicy", "subGroupPolicyType"])?;
        let nearness = self.nearness(input, top);
        // Pods per segment; with the leader apart the first holds one more.
        let pods = |of: i32| match of {
            0 if leader_apart => size + 1,
            last if last == number - 1 && !leader_apart => self.size - last * size,
            _ => size,
        };
        let needed = |pods: i32| if self.alone { 0 } else { pods };
        let plain = |of: i32, pods: i32| near(nearness.clone(), leaf(format!("segment-{of}"), needed(pods)));
        let own_segment = format!("segment-{}", segment(index));
        match policy {
            None | Some("LeaderWorker") => {
                let mut groups = vec![near(nearness.clone(), inner("segment-0", 2))];
                groups.extend((1..number).map(|of| plain(of, pods(of))));
                groups.push(below("segment-0", leaf("leader", 1)));
                groups.push(below("segment-0", leaf("workers", needed(pods(0) - 1))));
                let own = match segment(index) {
                    _ if self.is_leader => "leader".to_owned(),
                    0 => "workers".to_owned(),
                    _ => own_segment,
                };
                Ok((groups, own))
            }
            Some("LeaderExcluded") if leader_apart => {
                let mut groups = vec![leaf("leader", 1)];
                groups.extend((0..number).map(|of| plain(of, size)));
                let own = if self.is_leader {
                    "leader".to_owned()
                } else {
                    own_segment
                };
                Ok((groups, own))
            }
            Some("LeaderExcluded") => wrong(format!(
                "replicasSize {} is not divisible by segmentSize {size}. LeaderExcluded policy is only supported when the \
                 workers fill whole segments",
                self.size
            )),
            Some(_) => {
                let first = if leader_apart && number > 1 { size } else { pods(0) };
                let sizes = std::iter::once(first).chain((1..number).map(pods));
                let groups = (0..number).zip(sizes).map(|(of, pods)| plain(of, pods));
                Ok((groups.collect(), own_segment))
            }
        }
    }
}
