//! Decisions of the engine as orders and notes on the bus. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::api::names::{annotation, label, reason, received_resource_type};
use crate::components::Settings;
use crate::components::bus::{
    Bind, BindOrder, Evict, GroupKey, Note, Obstacle, ObstacleKind, OrderedBind, Severity, Step, Subject,
};
use crate::components::fractions::users::Share;
use crate::engine::decision::{Decisions, Eviction, Pipeline, Wording};
use crate::engine::input::GpuKind;
use crate::engine::model::Model;
use crate::engine::model::pod_group::PodGroup;
use crate::engine::policy::ActionKind;
use crate::mirror::{Mirror, Shard, numa, packed};

/// The order to the binder, for that node pool and that term of leadership, with messages in that wording. Takes the binds and evictions out of the decisions.
pub fn order(decisions: &mut Decisions, mirror: &Mirror, shard: &Shard, term: u64, words: Wording) -> BindOrder {
    let pool: Arc<str> = shard.value.as_str().into();
    let binds = std::mem::take(&mut decisions.bind);
    let evictions = std::mem::take(&mut decisions.evict);
    let mut sizes: HashMap<DecisionKey, usize> = HashMap::new();
    for eviction in &evictions {
        *sizes.entry(decision_of(eviction)).or_default() += 1;
    }
    BindOrder {
        binds: binds
            .into_iter()
            .map(|placement| bind(placement, mirror, shard, &pool))
            .collect(),
        evictions: evictions
            .into_iter()
            .map(|eviction| evict(eviction, &sizes, &pool, words))
            .collect(),
        term,
    }
}

/// A decision to evict pods: the action, and the pod group that gets places or, if it is stale, loses its pods. A cycle has at most one for each.
type DecisionKey = (ActionKind, GroupKey);

fn decision_of(eviction: &Eviction) -> DecisionKey {
    let group = eviction.for_group.as_ref().unwrap_or(&eviction.group);
    (eviction.action, group.clone())
}

fn bind(placement: Bind, mirror: &Mirror, shard: &Shard, pool: &Arc<str>) -> OrderedBind {
    let received = match placement.received {
        GpuKind::Regular => received_resource_type::REGULAR,
        GpuKind::Fraction | GpuKind::Memory => received_resource_type::FRACTION,
        GpuKind::Mig => received_resource_type::MIG_INSTANCE,
    };
    let mut annotations = BTreeMap::from([
        (annotation::RECEIVED_RESOURCE_TYPE.to_owned(), received.to_owned()),
        (
            annotation::POD_GROUP_NAME.to_owned(),
            placement.group.name().to_string(),
        ),
    ]);
    numa::annotate(&mut annotations, &numa::zones(&placement.zones));
    let mut steps = Vec::new();
    if !placement.volumes.is_empty() {
        steps.push(Step::Volumes);
    }
    if matches!(placement.received, GpuKind::Fraction | GpuKind::Memory) {
        steps.insert(0, Step::GpuShare);
    }
    if !placement.claims.is_empty() {
        steps.push(Step::Claims);
    }
    let shares = steps.contains(&Step::GpuShare);
    let pod = mirror.pod(&placement.pod);
    let lacks = |pod: &&packed::Pod| !shard.takes(&pod.labels);
    let pool_label = pod.filter(lacks).map(|_| (shard.key.clone(), shard.value.clone()));
    let mut labels: BTreeMap<_, _> = pool_label.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let membership = mirror.membership(&placement.pod);
    let regrouped = membership.is_some_and(|membership| membership.group != placement.group);
    // What the label says when the pod is bound is what the pod stays charged to. A missing one is added later.
    let own = pod.and_then(|pod| pod.labels.get(label::SUBGROUP_NAME));
    let found = membership.filter(|_| !regrouped);
    let found = found.and_then(|membership| membership.sub_group.as_deref());
    if let (Some(own), Some(found)) = (own, found)
        && own != found
    {
        labels.insert(label::SUBGROUP_NAME.to_owned(), found.to_owned());
    }
    let named = pod.and_then(|pod| pod.group.clone());
    let pod = pod.filter(|_| shares);
    OrderedBind {
        named,
        pool: Arc::clone(pool),
        labels,
        given: mirror.given(&placement),
        regrouped,
        share: pod.map(|pod| Share::of(pod.annotations.iter())).unwrap_or_default(),
        placement,
        annotations,
        steps,
    }
}

fn evict(eviction: Eviction, sizes: &HashMap<DecisionKey, usize>, pool: &Arc<str>, words: Wording) -> Evict {
    let evicted = sizes.get(&decision_of(&eviction)).copied().unwrap_or(1);
    let mut details = BTreeMap::from([
        (annotation::NUM_EVICTED_PODS.to_owned(), evicted.to_string()),
        (
            annotation::EVICTOR_ACTION.to_owned(),
            eviction.action.as_str().to_owned(),
        ),
    ]);
    if let Some(evictor) = &eviction.for_group {
        details.insert(annotation::EVICTOR_NAME.to_owned(), evictor.name().to_string());
        details.insert(
            annotation::EVICTOR_NAMESPACE.to_owned(),
            evictor.namespace().to_string(),
        );
    }
    Evict {
        pool: Arc::clone(pool),
        message: eviction.text(words),
        action: eviction.action,
        for_group: eviction.for_group,
        overrules_budgets: !eviction.exceeds.is_empty(),
        pod: eviction.pod,
        group: eviction.group,
        details,
    }
}

/// Events for pipelined pods.
pub fn pipelined<'a>(pipeline: &'a [Pipeline], settings: &'a Settings) -> impl Iterator<Item = Note> + 'a {
    pipeline.iter().map(|pipeline| Note {
        subject: Subject::Pod(pipeline.pod.clone()),
        severity: Severity::Normal,
        reason: reason::PIPELINED,
        message: format!(
            "Pod {}/{} was pipelined to node {}",
            pipeline.pod.namespace, pipeline.pod.name, pipeline.node
        ),
        source: settings.scheduler_name.clone(),
        annotations: BTreeMap::new(),
    })
}

/// What keeps pods from a node beside what reports say: their sub-group does not exist, or other pods must terminate first.
pub fn obstacles(decisions: &mut Decisions) -> Vec<Obstacle> {
    let unknown_sub_groups = std::mem::take(&mut decisions.unknown_sub_groups)
        .into_iter()
        .map(|pod| Obstacle {
            pod: pod.pod,
            kind: ObstacleKind::SubGroup,
            reason: reason::UNSCHEDULABLE,
            message: pod.message,
        });
    let places = decisions.pipeline.iter().map(|pipeline| Obstacle {
        pod: pipeline.pod.clone(),
        kind: ObstacleKind::Place,
        reason: reason::PIPELINED,
        message: Some(format!(
            "Waits for its place on node {}, which pods that are being evicted have not left yet",
            pipeline.node
        )),
    });
    unknown_sub_groups.chain(places).collect()
}

/// Events for pod groups of which fewer pods run than they need.
pub fn stale<'a>(stale: &'a [GroupKey], model: &'a Model, settings: &'a Settings) -> impl Iterator<Item = Note> + 'a {
    stale.iter().filter_map(|group| {
        let groups = model.pod_groups();
        let pod_group = groups.id(group).map(|id| &groups[id])?;
        Some(Note {
            subject: Subject::PodGroup(group.clone()),
            severity: Severity::Normal,
            reason: reason::STALE_JOB,
            message: stale_message(pod_group),
            source: settings.scheduler_name.clone(),
            annotations: BTreeMap::new(),
        })
    })
}

/// KAI's sentence: sums over the pod group, then each sub-group that lacks pods.
fn stale_message(pod_group: &PodGroup) -> String {
    let (mut active, mut needed, mut lacking) = (0, 0, String::new());
    for (member, pods) in pod_group.pod_sets() {
        let (runs, min) = (pods.active_used(), pods.min);
        active += runs;
        needed += min;
        if runs < min && !pod_group.is_implicit(member) {
            let name = pod_group.tree.get(member as usize).map_or("", |node| &node.name);
            lacking += &format!(", subGroup {name} minMember is {min} and {runs} pods are active");
        }
    }
    format!("Job is stale. {active} pods are active, minMember is {needed}{lacking}")
}

#[cfg(test)]
mod tests;
