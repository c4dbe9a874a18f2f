use super::*;
use crate::engine::decision::EvictionCause;
use crate::engine::input::{PodRef, Time};
use crate::engine::policy::ActionKind::{Consolidation, Preempt, Reclaim, StaleGangEviction};
use crate::engine::policy::Policy;
use crate::mirror::{GroupDraft, PackedChange, PackedObject};
use crate::scheduler_core::SchedulerCore;

/// The eviction of a pod: its pod group, the action, and the pod group that gets the place.
type Evicted = (&'static str, ActionKind, Option<&'static str>);

/// The numbers of evicted pods in the events about these evictions of one cycle.
fn numbers(evicted: &[Evicted]) -> Vec<String> {
    let eviction = |(number, (group, action, for_group)): (usize, &Evicted)| {
        let name = format!("{group}-{number}");
        Eviction {
            pod: PodRef::new("ns", &name, &name),
            group: GroupKey::new("ns", group),
            action: *action,
            for_group: for_group.map(|name| GroupKey::new("ns", name)),
            why: EvictionCause::Preempted,
            exceeds: Vec::new(),
        }
    };
    let mut decisions = Decisions {
        evict: evicted.iter().enumerate().map(eviction).collect(),
        ..Decisions::default()
    };
    let mirror = Mirror::new(crate::mirror::Settings::default());
    let order = order(&mut decisions, &mirror, &Shard::default(), 1, Wording::Kai);
    let details = order.evictions.into_iter().map(|evict| evict.details);
    details
        .map(|details| details[annotation::NUM_EVICTED_PODS].clone())
        .collect()
}

#[test]
fn the_event_of_an_eviction_has_the_number_of_pods_of_the_same_decision() {
    let of_three = ["a", "b", "c"].map(|victim| (victim, Reclaim, Some("large")));
    assert_eq!(numbers(&of_three), ["3", "3", "3"]);
    let for_two = ["first", "second"].map(|preemptor| ("a", Preempt, Some(preemptor)));
    assert_eq!(numbers(&for_two), ["1", "1"], "each takes a surplus pod");
    let by_two = [Consolidation, Reclaim].map(|action| ("a", action, Some("large")));
    assert_eq!(numbers(&by_two), ["1", "1"]);
    let stale: [Evicted; 3] = ["a", "b", "a"].map(|gang| (gang, StaleGangEviction, None));
    assert_eq!(numbers(&stale), ["2", "1", "2"]);
}

/// The labels that a pod with these gets before its Binding, after the grouper has put it into `worker` of a group.
fn labels_before_binding(labels: &str) -> BTreeMap<String, String> {
    let pod = format!(
        "{{metadata: {{namespace: ns, name: p, uid: u, labels: {{{labels}}}}},
          spec: {{schedulerName: kai-scheduler, containers: []}}, status: {{phase: Pending}}}}"
    );
    let pod: packed::Pod = serde_yaml_ng::from_str(&pod).unwrap();
    let mut mirror = Mirror::new(crate::mirror::Settings::default());
    mirror.apply(&PackedChange::Applied(PackedObject::Pod(Arc::new(pod))));
    let group = "{metadata: {namespace: ns, name: g}, spec: {}}";
    mirror.apply(&PackedChange::Grouped(GroupDraft {
        namespace: "ns".to_owned(),
        pod: "p".to_owned(),
        uid: "u".to_owned(),
        group: Arc::new(serde_yaml_ng::from_str(group).unwrap()),
        sub_group: Some("worker".to_owned()),
    }));
    let bind = Bind {
        pod: PodRef::new("ns", "p", "u"),
        group: GroupKey::new("ns", "g"),
        node: "n".into(),
        received: GpuKind::Regular,
        gpu_count: 0,
        gpu_portion: 0,
        gpu_groups: Vec::new(),
        zones: Vec::new(),
        volumes: Vec::new(),
        claims: Vec::new(),
        after_evictions: None,
    };
    let mut decisions = Decisions {
        bind: vec![bind],
        ..Decisions::default()
    };
    let mut order = order(&mut decisions, &mirror, &Shard::default(), 1, Wording::Kai);
    order.binds.remove(0).labels
}

#[test]
fn the_label_of_another_sub_group_is_replaced_before_the_binding() {
    let replaced = BTreeMap::from([(label::SUBGROUP_NAME.to_owned(), "worker".to_owned())]);
    assert_eq!(labels_before_binding("kai.scheduler/subgroup-name: master"), replaced);
    assert_eq!(
        labels_before_binding("kai.scheduler/subgroup-name: worker"),
        BTreeMap::new()
    );
    assert_eq!(
        labels_before_binding(""),
        BTreeMap::new(),
        "it is added after the binding"
    );
}

/// The event of a pod group of two pods, without a running one, in which these sub-groups are.
fn stale_event(sub_groups: &str) -> String {
    let group = format!("{{metadata: {{namespace: ns, name: g}}, spec: {{minMember: 2, subGroups: {sub_groups}}}}}");
    let group = PackedObject::PodGroup(Arc::new(serde_yaml_ng::from_str(&group).unwrap()));
    let mut core = SchedulerCore::new(crate::mirror::Settings::default(), Policy::default());
    core.apply(&PackedChange::Applied(group), Time(0));
    let (key, settings) = (GroupKey::new("ns", "g"), Settings::default());
    let mut notes = stale(std::slice::from_ref(&key), core.engine.model(), &settings);
    notes.next().expect("an event").message
}

#[test]
fn the_event_of_a_stale_pod_group_names_its_sub_groups_except_the_implicit_one() {
    let of_all = "Job is stale. 0 pods are active, minMember is 2";
    assert_eq!(stale_event("[]"), of_all);
    assert_eq!(
        stale_event("[{name: workers, minMember: 2}]"),
        format!("{of_all}, subGroup workers minMember is 2 and 0 pods are active")
    );
}
