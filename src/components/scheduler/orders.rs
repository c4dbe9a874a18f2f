//! Decisions of the engine as orders and notes on the bus. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::api::names::{annotation, reason, received_resource_type};
use crate::components::Settings;
use crate::components::bus::{
    Bind, BindOrder, Evict, GroupKey, Note, Obstacle, ObstacleKind, OrderedBind, Severity, Step, Subject, Times,
};
use crate::components::fractions::users::Share;
use crate::engine::decision::{Decisions, Eviction, Pipeline, Wording};
use crate::engine::input::GpuKind;
use crate::engine::model::Model;
use crate::engine::model::pod_group::PodGroup;
use crate::mirror::{Mirror, Shard, numa, packed};

/// The order to the binder, for that node pool and that term of leadership, with messages in that wording. Takes the binds and evictions out of the decisions.
pub fn order(decisions: &mut Decisions, mirror: &Mirror, shard: &Shard, term: u64, words: Wording) -> BindOrder {
    let pool: Arc<str> = shard.value.as_str().into();
    let binds = std::mem::take(&mut decisions.bind);
    let evictions = std::mem::take(&mut decisions.evict);
    let mut sizes: HashMap<GroupKey, usize> = HashMap::new();
    for eviction in &evictions {
        *sizes.entry(eviction.group.clone()).or_default() += 1;
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
    if !placement.zones.is_empty()
        && let Ok(zones) = serde_json::to_string(&numa::zones(&placement.zones))
    {
        annotations.insert(annotation::NUMA_PLACEMENT_PREDICTED.to_owned(), zones);
    }
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
    let labels = pod.filter(lacks).map(|_| (shard.key.clone(), shard.value.clone()));
    let named = pod.and_then(|pod| pod.group.clone());
    let pod = pod.filter(|_| shares);
    OrderedBind {
        named,
        pool: Arc::clone(pool),
        labels: labels.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
        given: mirror.given(&placement),
        regrouped: mirror
            .grouped_in(&placement.pod)
            .is_some_and(|group| *group != placement.group),
        share: pod.map(|pod| Share::of(pod.annotations.iter())).unwrap_or_default(),
        placement,
        annotations,
        steps,
    }
}

fn evict(eviction: Eviction, sizes: &HashMap<GroupKey, usize>, pool: &Arc<str>, words: Wording) -> Evict {
    let evicted = sizes.get(&eviction.group).copied().unwrap_or(1);
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
pub fn stale<'a>(times: &'a [Times], model: &'a Model, settings: &'a Settings) -> impl Iterator<Item = Note> + 'a {
    let stale = times.iter().filter(|times| times.stale_since.is_some());
    stale.filter_map(|times| {
        let groups = model.pod_groups();
        let pod_group = groups.id(&times.group).map(|id| &groups[id])?;
        Some(Note {
            subject: Subject::PodGroup(times.group.clone()),
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
    let single = pod_group.pod_sets().count() == 1;
    for (member, pods) in pod_group.pod_sets() {
        let (runs, min) = (pods.active_used(), pods.min);
        active += runs;
        needed += min;
        if runs < min && !single {
            let name = pod_group.tree.get(member as usize).map_or("", |node| &node.name);
            lacking += &format!(", subGroup {name} minMember is {min} and {runs} pods are active");
        }
    }
    format!("Job is stale. {active} pods are active, minMember is {needed}{lacking}")
}
