//! Pod groups that differ only in their volumes: that one failed says nothing about the next one.

use std::sync::Arc;

use super::super::kinds;
use super::claim;
use super::disks::attachment;
use crate::engine::Engine;
use crate::engine::input::{Event, PodVolumes};
use crate::engine::model::Model;
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::stage::SearchEnd;
use crate::engine::tests::scenario::{NOW, group, node, open_queue, placed, pod, search_ends};

/// The node can attach one volume, and a pod that stays uses it; another one, `h9`, is still attached. Of two pods that wait for a GPU the first one has a
/// third volume; returns how the searches for both end, if the second one has this volume, and which pods are planned.
fn searches(second: &str) -> (Vec<SearchEnd>, Vec<String>) {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Preempt],
        ..Policy::default()
    });
    let mut host = node("n0", "2");
    host.attach_limits = vec![("csi".into(), 1)];
    engine.apply(Event::Node(Box::new(host)), NOW);
    engine.apply(open_queue("q"), NOW);
    engine.apply(attachment("n0 h9"), NOW);
    let pods = [
        ("stays", 100, Some("m bound id=h2 rwx"), true),
        ("victim", 50, None, true),
        ("other", 75, Some("k bound id=h1 rwx"), false),
        ("second", 75, Some(second), false),
    ];
    for (age, (name, priority, text, runs)) in pods.into_iter().enumerate() {
        let mut pod_group = group(name, "q", age);
        (pod_group.priority, pod_group.preemptible) = (priority, priority < 100);
        let mut added = pod(&pod_group, 0, "1");
        added.volumes = text.map(|text| {
            Arc::new(PodVolumes {
                missing: None,
                claims: vec![claim(text)],
                disks: Vec::new(),
            })
        });
        if runs {
            added = placed(added, "n0");
        }
        engine.apply(Event::Group(Box::new(pod_group)), NOW);
        engine.apply(Event::Pod(Box::new(added)), NOW);
    }
    let (ends, decisions) = search_ends(&mut engine);
    let planned = decisions.pipeline.iter().map(|plan| plan.pod.uid.to_string());
    (ends, planned.collect())
}

#[test]
fn a_pod_that_needs_no_further_attachment_is_searched_for_after_one_that_does_failed() {
    for second in ["m bound id=h2 rwx", "n bound rwx", "o bound id=h9 rwx"] {
        let (ends, planned) = searches(second);
        assert_eq!(ends, [SearchEnd::Exhausted, SearchEnd::Solved], "{second}");
        assert_eq!(planned, ["second-000"], "{second}");
    }
}

#[test]
fn a_pod_with_another_volume_of_the_same_driver_is_not_searched_for_after_one_failed() {
    let (ends, planned) = searches("l bound id=h3 rwx");
    assert_eq!(ends, [SearchEnd::Exhausted, SearchEnd::Skipped]);
    assert_eq!(planned, Vec::<String>::new());
}

/// How the searches for two gangs of two pods end. The pods request a GPU each, have these claims, and find victims on nodes with so many GPUs, each of which
/// can attach one volume.
fn searches_for_gangs(nodes: &[&str], gangs: [[&str; 2]; 2]) -> Vec<SearchEnd> {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Preempt],
        ..Policy::default()
    });
    engine.apply(open_queue("q"), NOW);
    for (number, gpus) in nodes.iter().enumerate() {
        let name = format!("n{number}");
        let mut host = node(&name, gpus);
        host.attach_limits = vec![("csi".into(), 1)];
        engine.apply(Event::Node(Box::new(host)), NOW);
        let mut victim = group(&format!("victim-{number}"), "q", number);
        victim.priority = 50;
        engine.apply(Event::Group(Box::new(victim.clone())), NOW);
        engine.apply(Event::Pod(Box::new(placed(pod(&victim, 0, gpus), &name))), NOW);
    }
    for (number, claims) in gangs.into_iter().enumerate() {
        let mut gang = group(&format!("gang-{number}"), "q", 10 + number);
        (gang.priority, gang.min_member) = (75, Some(2));
        engine.apply(Event::Group(Box::new(gang.clone())), NOW);
        for (number, text) in claims.into_iter().enumerate() {
            let mut added = pod(&gang, number, "1");
            added.volumes = Some(Arc::new(PodVolumes {
                missing: None,
                claims: vec![claim(text)],
                disks: Vec::new(),
            }));
            engine.apply(Event::Pod(Box::new(added)), NOW);
        }
    }
    search_ends(&mut engine).0
}

#[test]
fn pods_with_a_volume_each_are_searched_for_after_pods_that_share_one_failed() {
    let shared = ["c wait rwx made"; 2];
    let own = ["d wait rwx made", "e wait rwx made"];
    let ends = searches_for_gangs(&["1", "1"], [shared, own]);
    assert_eq!(ends, [SearchEnd::Exhausted, SearchEnd::Solved]);
}

#[test]
fn pods_that_share_a_volume_are_searched_for_after_pods_with_one_each_failed() {
    let own = ["d bound id=h1 rwx", "e bound id=h2 rwx"];
    let shared = ["c bound id=h3 rwx"; 2];
    let ends = searches_for_gangs(&["2"], [own, shared]);
    assert_eq!(ends, [SearchEnd::Exhausted, SearchEnd::Solved]);
}

#[test]
fn pods_with_a_volume_that_any_number_of_pods_may_use_are_compared() {
    let mut model = Model::new(0);
    model.apply(Event::Node(Box::new(node("n0", "2"))), NOW);
    let pod_group = group("g", "q", 0);
    for number in 0..2 {
        let mut added = pod(&pod_group, number, "1");
        added.volumes = Some(Arc::new(PodVolumes {
            missing: None,
            claims: vec![claim("data bound id=h1 rwx")],
            disks: Vec::new(),
        }));
        if number == 0 {
            added = placed(added, "n0");
        }
        model.apply(Event::Pod(Box::new(added)), NOW);
    }
    for id in model.pods().ids() {
        assert_eq!(kinds(&model, id), Some(Vec::new()), "no driver has a limit");
    }
}
