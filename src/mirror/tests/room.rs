//! Limits of a namespace: on the relations between its pods, and on its disruption budgets.

use std::collections::BTreeSet;

use super::*;
use crate::api::limits;

/// A pod that waits, or in another phase.
fn asking(namespace: &str, number: usize, phase: &str, spec: &str) -> PackedObject {
    PackedObject::from(Object::Pod(read(&format!(
        "{{metadata: {{name: p{number:04}, namespace: {namespace}, uid: {namespace}-{number}, labels: {{app: a}}}},
          spec: {{schedulerName: kai-scheduler, containers: [], {spec}}}, status: {{phase: {phase}}}}}"
    ))))
}

/// Preferred anti-affinity to the pods of everyone that have not a label: so many terms, with labels that other numbers do not have.
fn to_everyone(number: usize, terms: usize) -> String {
    let term = |at: usize| {
        format!(
            "{{weight: 1, podAffinityTerm: {{topologyKey: zone, namespaceSelector: {{}},
               labelSelector: {{matchExpressions: [{{key: x-{number}-{at}, operator: DoesNotExist}}]}}}}}}"
        )
    };
    let terms: Vec<String> = (0..terms).map(term).collect();
    format!(
        "affinity: {{podAntiAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: [{}]}}}}",
        terms.join(", ")
    )
}

/// Anti-affinity to the pods of the own namespace with this label.
fn to_its_like(app: usize) -> String {
    format!(
        "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [
           {{topologyKey: zone, labelSelector: {{matchLabels: {{app: a{app}}}}}}}]}}}}"
    )
}

/// Spread constraints over so many labels, on nodes that only these pods select.
fn spread(number: usize, labels: usize) -> String {
    let one = |at: usize| {
        format!(
            "{{maxSkew: 1, topologyKey: l{at}, whenUnsatisfiable: DoNotSchedule, labelSelector: {{matchLabels: {{app: a}}}}}}"
        )
    };
    let all: Vec<String> = (0..labels).map(one).collect();
    format!(
        "nodeSelector: {{own: v{number}}}, topologySpreadConstraints: [{}]",
        all.join(", ")
    )
}

/// The pods of an output by uid, and whether they have relations.
fn told(out: &Output) -> Vec<(String, bool)> {
    let pods = out.events.iter().filter_map(|event| match event {
        Event::Pod(pod) => Some((pod.pod.uid.to_string(), pod.relations.is_some())),
        _ => None,
    });
    pods.collect()
}

fn has_room(world: &mut World, pod: PackedObject) -> bool {
    let out = world.0.apply(&PackedChange::Applied(pod));
    let [Event::Pod(pod)] = &*out.events else {
        panic!("{out:?}")
    };
    let has_room = pod.relations.is_some();
    let why = out.rejections.first().map(|rejection| rejection.problem.to_string());
    assert_eq!((why.is_none(), pod.blocked.as_deref()), (has_room, why.as_deref()));
    has_room
}

const TERMS: usize = limits::AFFINITY_TERMS_PER_POD;
/// So many pods with as many terms to everyone fit.
const FIT: usize = limits::WIDE_RELATION_ENTRIES_PER_NAMESPACE / (2 * TERMS);

/// A world with as many pods with terms to everyone as fit into the namespace `evil`.
fn full() -> World {
    let mut world = World::default();
    for number in 0..FIT {
        assert!(has_room(
            &mut world,
            asking("evil", number, "Pending", &to_everyone(number, TERMS))
        ));
    }
    world
}

#[test]
fn a_namespace_has_a_limited_number_of_relations_to_the_pods_of_everyone() {
    let mut world = full();
    let one_more = || asking("evil", FIT, "Pending", &to_everyone(FIT, TERMS));
    let out = world.0.apply(&PackedChange::Applied(one_more()));
    assert_eq!(told(&out), [(format!("evil-{FIT}"), false)]);
    let said = out.rejections[0].to_string();
    assert!(
        said.starts_with(&format!("Pod evil/p{FIT:04}: there are more than 2048 "))
            && said.ends_with("by no value of a label: set aside until that changes"),
        "{said}"
    );
    assert_eq!(world.0.aside.news().and_then(|counts| counts.get("Pod")), Some(&1));

    // Equal terms count once, those within the namespace are not affected, nor are other namespaces.
    let mut next = |namespace: &str, number: usize, spec: &str| {
        let pod = asking(namespace, number, "Pending", spec);
        assert!(has_room(&mut world, pod), "{namespace} {number}");
    };
    next("evil", 100, &to_everyone(0, TERMS));
    next("evil", 101, &to_its_like(0));
    next("calm", 0, &to_everyone(FIT, TERMS));
}

#[test]
fn pods_beyond_the_limit_have_their_turn_when_others_are_gone_or_have_ended() {
    let mut world = full();
    for number in FIT..FIT + 2 {
        assert!(!has_room(
            &mut world,
            asking("evil", number, "Pending", &to_everyone(number, TERMS))
        ));
    }
    let first = asking("evil", 0, "Pending", &to_everyone(0, TERMS));
    let out = world.0.apply(&PackedChange::Deleted(first));
    assert_eq!(told(&out), [(format!("evil-{FIT}"), true)]);
    assert_eq!(out.released, [("Pod", format!("evil/p{FIT:04}").into())]);

    let ended = asking("evil", 1, "Succeeded", &to_everyone(1, TERMS));
    let out = world.0.apply(&PackedChange::Applied(ended));
    let admitted = told(&out)
        .into_iter()
        .find(|(uid, _)| *uid == format!("evil-{}", FIT + 1));
    assert_eq!(admitted.map(|(_, has_room)| has_room), Some(true));

    for number in 2..FIT + 2 {
        world.delete(asking("evil", number, "Pending", ""));
    }
    for number in 0..FIT {
        let again = asking("evil", number, "Pending", &to_everyone(number + 500, TERMS));
        assert!(has_room(&mut world, again), "all the room is given back");
    }
}

#[test]
fn a_pod_that_drops_its_relations_is_not_set_aside_any_more() {
    let mut world = full();
    let number = FIT;
    assert!(!has_room(
        &mut world,
        asking("evil", number, "Pending", &to_everyone(number, TERMS))
    ));
    let out = world
        .0
        .apply(&PackedChange::Applied(asking("evil", number, "Pending", "")));
    let [Event::Pod(pod)] = &*out.events else {
        panic!("{out:?}")
    };
    assert_eq!(pod.blocked, None);
    assert_eq!(out.released.len(), 1);
}

#[test]
fn thousands_of_workloads_keep_away_from_their_like() {
    let mut world = World::default();
    for app in 0..5_000 {
        let pod = asking("large", app, "Pending", &to_its_like(app));
        assert!(has_room(&mut world, pod), "{app}");
    }
}

#[test]
fn a_namespace_has_a_limited_number_of_relations_within_it() {
    let mut world = World::default();
    let fit = limits::RELATION_ENTRIES_PER_NAMESPACE / 2;
    for app in 0..fit {
        let pod = asking("large", app, "Pending", &to_its_like(app));
        assert!(has_room(&mut world, pod), "{app}");
    }
    assert!(!has_room(
        &mut world,
        asking("large", fit, "Pending", &to_its_like(fit))
    ));
}

#[test]
fn a_namespace_has_a_limited_number_of_choices_of_nodes_to_spread_over() {
    let mut world = World::default();
    let labels = limits::SPREAD_CONSTRAINTS_PER_POD;
    let fit = limits::SPREAD_NODE_ENTRIES_PER_NAMESPACE / (labels + 2);
    for number in 0..fit {
        let pod = asking("evil", number, "Pending", &spread(number, labels));
        assert!(has_room(&mut world, pod), "{number}");
    }
    let one_more = asking("evil", fit, "Pending", &spread(fit, labels));
    let out = world.0.apply(&PackedChange::Applied(one_more));
    let said = out.rejections[0].to_string();
    assert!(
        said.contains("more than 8192") && said.contains("choices of nodes"),
        "{said}"
    );
    let same = asking("evil", fit + 1, "Pending", &spread(0, labels));
    assert!(has_room(&mut world, same), "equal choices count once");
}

/// A budget with so many labels.
fn budget(number: usize, labels: usize) -> PackedObject {
    let labels: Vec<String> = (0..labels).map(|at| format!("l{at}: v{number}")).collect();
    PackedObject::PodDisruptionBudget(read(&format!(
        "{{metadata: {{name: b{number:04}, namespace: ns}}, spec: {{selector: {{matchLabels: {{{}}}}}}}}}",
        labels.join(", ")
    )))
}

/// Applies events about budgets to those that the engine knows.
fn follow(known: &mut BTreeSet<String>, events: Vec<Event>) {
    for event in events {
        match event {
            Event::Budget(budget) => drop(known.insert(budget.name.to_string())),
            Event::BudgetGone { name, .. } => drop(known.remove(&*name)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_budgets_that_count_do_not_depend_on_the_order_in_which_they_come() {
    let labels = 15;
    let fit = limits::BUDGET_ENTRIES_PER_NAMESPACE / (1 + labels);
    let all = fit + 100;
    let expected: BTreeSet<String> = (0..fit).map(|number| format!("b{number:04}")).collect();
    let orders: [Vec<usize>; 3] = [
        (0..all).collect(),
        (0..all).rev().collect(),
        // 7 and their number have no common divisor.
        (0..all).map(|at| at * 7 % all).collect(),
    ];
    for order in orders {
        let (mut world, mut known) = (World::default(), BTreeSet::new());
        for number in order {
            follow(&mut known, world.apply(budget(number, labels)));
        }
        assert_eq!(known, expected);
        let aside = world.0.aside.all().filter(|(kind, ..)| *kind == "PodDisruptionBudget");
        assert_eq!(aside.count(), 100);
    }
}

#[test]
fn budgets_count_again_when_others_are_gone() {
    let labels = 15;
    let fit = limits::BUDGET_ENTRIES_PER_NAMESPACE / (1 + labels);
    let (mut world, mut known) = (World::default(), BTreeSet::new());
    for number in 0..=fit {
        follow(&mut known, world.apply(budget(number, labels)));
    }
    let last = format!("b{fit:04}");
    assert!(!known.contains(&last));
    let out = world.0.apply(&PackedChange::Deleted(budget(0, labels)));
    follow(&mut known, out.events.into_vec());
    assert!(known.contains(&last));
    let key: aside::ObjectKey = ("PodDisruptionBudget", format!("ns/{last}").into());
    assert_eq!(out.released, [key]);
}

#[test]
fn a_thousand_budgets_with_few_labels_count() {
    let (mut world, mut known) = (World::default(), BTreeSet::new());
    for number in 0..1_000 {
        follow(&mut known, world.apply(budget(number, 3)));
    }
    assert_eq!(known.len(), 1_000);
}
