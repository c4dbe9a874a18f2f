//! Oversized objects: they are set aside, their resources count, and little of them is kept.

use super::*;
use crate::api::limits;
use crate::api::names::label;

fn labels(count: usize, prefix: &str) -> String {
    let all: Vec<String> = (0..count).map(|at| format!("{prefix}{at}: g{at}")).collect();
    format!("{{{}}}", all.join(", "))
}

/// A pod with so many affinity terms, in that version.
fn choosy(terms: usize, version: usize) -> PackedObject {
    let term = |at: usize| format!("{{topologyKey: zone, labelSelector: {{matchLabels: {{app: a{at}}}}}}}");
    let all: Vec<String> = (0..terms).map(term).collect();
    let affinity = format!(
        "{{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{}]}}}}",
        all.join(", ")
    );
    PackedObject::from(Object::Pod(read(&format!(
        "{{metadata: {{name: p, namespace: ns, uid: u, resourceVersion: '{version}'}},
          spec: {{schedulerName: kai-scheduler, containers: [], affinity: {affinity}}}, status: {{phase: Pending}}}}"
    ))))
}

fn aside(world: &mut World) -> Vec<(&'static str, usize)> {
    let counts = world.0.aside.news().cloned().unwrap_or_default();
    counts.into_iter().collect()
}

fn only_pod(events: &[Event]) -> &PodInput {
    let [Event::Pod(pod)] = events else {
        panic!("{events:?}")
    };
    pod
}

#[test]
fn a_pod_with_too_many_affinity_terms_is_set_aside_until_it_changes() {
    let mut world = World::default();
    let out = world.0.apply(&PackedChange::Applied(choosy(2_000, 1)));
    let said: Vec<String> = out.rejections.iter().map(ToString::to_string).collect();
    let why = "there are more than 64 affinity terms to other pods: set aside until that changes";
    assert_eq!(said, [format!("Pod ns/p: {why}")]);
    let pod = only_pod(&out.events);
    assert_eq!(pod.blocked.as_deref(), Some(why));
    assert_eq!(pod.relations, None, "none of them is weighed");
    assert_eq!(aside(&mut world), [("Pod", 1)]);
    assert_eq!(aside(&mut world), [], "that is no news any more");

    assert_eq!(out.released, []);
    let out = world
        .0
        .apply(&PackedChange::Applied(choosy(limits::AFFINITY_TERMS_PER_POD, 2)));
    assert_eq!(out.released, [("Pod", "ns/p".into())]);
    let pod = only_pod(&out.events);
    assert_eq!((pod.blocked.as_deref(), pod.relations.is_some()), (None, true));
    assert_eq!(aside(&mut world), [("Pod", 0)]);

    world.apply(choosy(2_000, 3));
    assert_eq!(aside(&mut world), [("Pod", 1)]);
    world.delete(choosy(2_000, 3));
    assert_eq!(aside(&mut world), [("Pod", 0)]);
}

#[test]
fn a_bound_pod_counts_on_its_node_even_if_it_exceeds_limits() {
    let mut world = World::default();
    let others: Vec<String> = (0..20_000).map(|at| format!("a.com/r{at}: 1")).collect();
    let requests = format!("{{cpu: 2, nvidia.com/gpu: 4, {}}}", others.join(", "));
    let labels = labels(25_000, label::GPU_GROUP_PREFIX);
    let odd = PackedObject::from(Object::Pod(read(&format!(
        "{{metadata: {{name: p, namespace: ns, uid: u, labels: {labels}}},
          spec: {{schedulerName: kai-scheduler, nodeName: n, containers: [{{name: c, resources: {{requests: {requests}}}}}]}},
          status: {{phase: Running}}}}"
    ))));
    let events = world.apply(odd);
    let pod = only_pod(&events);
    assert!(pod.blocked.is_some());
    assert_eq!((pod.node.as_deref(), pod.status), (Some("n"), PodStatus::Running));
    assert_eq!((pod.needs.request.cpu, pod.needs.gpu.count), (2_000, 4));
    assert_eq!(pod.gpu_groups.len(), limits::GPU_GROUPS_PER_POD + 1);
    assert!(pod.needs.request.other.len() <= limits::RESOURCE_NAMES_PER_POD);
    assert!(pod.labels.iter().count() <= limits::GPU_GROUPS_PER_POD + 1);
    assert_eq!(aside(&mut world), [("Pod", 1)]);
}

#[test]
fn a_pod_group_with_too_many_sub_groups_is_set_aside() {
    let mut world = World::default();
    let nested: Vec<String> = (0..2_000)
        .map(|at| match at {
            0 => "{name: s0}".to_owned(),
            _ => format!("{{name: s{at}, parent: s{}}}", at - 1),
        })
        .collect();
    let deep = || group("uid: u", &format!("queue: q, subGroups: [{}]", nested.join(", ")));
    let out = world.0.apply(&PackedChange::Applied(deep()));
    let said: Vec<String> = out.rejections.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        ["PodGroup ns/g: there are more than 16 levels of sub-groups: set aside until that changes"]
    );
    assert_eq!(aside(&mut world), [("PodGroup", 1)]);
    let flat: Vec<String> = (0..10_000).map(|at| format!("{{name: s{at}, minMember: 1}}")).collect();
    let events = world.apply(group("uid: u", &format!("queue: q, subGroups: [{}]", flat.join(", "))));
    let [Event::Group(many)] = &*events else {
        panic!("{events:?}")
    };
    assert_eq!(many.sub_groups.len(), limits::SUB_GROUPS_PER_POD_GROUP + 1);
    assert_eq!(aside(&mut world), [], "it still is");
    world.delete(deep());
    assert_eq!(aside(&mut world), [("PodGroup", 0)]);
}

#[test]
fn a_budget_beyond_the_limits_is_ignored() {
    let mut world = World::default();
    let budget = |labels: &str| {
        PackedObject::PodDisruptionBudget(read(&format!(
            "{{metadata: {{name: b, namespace: ns}}, spec: {{selector: {{matchLabels: {labels}}}}}}}"
        )))
    };
    assert!(matches!(&*world.apply(budget("{a: b}")), [Event::Budget(_)]));
    let out = world.0.apply(&PackedChange::Applied(budget(&labels(100, "l"))));
    assert!(matches!(&*out.events, [Event::BudgetGone { .. }]));
    assert_eq!(out.rejections.len(), 1);
    assert_eq!(aside(&mut world), [("PodDisruptionBudget", 1)]);
}

#[test]
fn an_object_that_is_set_aside_is_ignored_until_it_changes() {
    let mut world = World::default();
    let version = |number: usize| choosy(number, number);
    for number in 1..=2 {
        assert_eq!(world.apply(version(number)).len(), 1, "{number}");
        world
            .0
            .aside
            .set_object_aside(&aside::Identity::of(&PackedChange::Applied(version(number))));
        assert!(world.apply(version(number)).is_empty(), "{number}: it is as it was");
        assert_eq!(aside(&mut world), [("Pod", 1)]);
    }
    assert_eq!(world.apply(version(3)).len(), 1);
    world
        .0
        .aside
        .set_object_aside(&aside::Identity::of(&PackedChange::Applied(version(3))));
    assert!(world.apply(version(4)).is_empty(), "three times are enough");
    let mut next = World::default();
    next.0.aside.follow(&world.0.aside);
    assert!(
        next.apply(version(4)).is_empty(),
        "nor does the mirror that follows try"
    );
    assert_eq!(aside(&mut next), [("Pod", 1)]);
    next.delete(version(4));
    assert_eq!(aside(&mut next), [("Pod", 0)]);
}
