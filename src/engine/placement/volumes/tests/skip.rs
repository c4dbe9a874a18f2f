//! Pod groups that differ only in their volumes: that one failed says nothing about the next one.

use std::sync::Arc;

use super::claim;
use crate::engine::Engine;
use crate::engine::input::{Event, PodVolumes};
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::stage::{SearchEnd, Stage};
use crate::engine::tests::scenario::{NOW, group, node, open_queue, placed, pod};

/// The node can attach one volume, and a pod that stays uses it. Of two pods that wait for a GPU the first one has another volume, the second one the same.
#[test]
fn a_pod_whose_volume_is_attached_is_searched_for_after_one_with_another_volume_failed() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Preempt],
        ..Policy::default()
    });
    let mut host = node("n0", "2");
    host.attach_limits = vec![("csi".into(), 1)];
    engine.apply(Event::Node(Box::new(host)), NOW);
    engine.apply(open_queue("q"), NOW);
    let pods = [
        ("stays", 100, Some("m bound id=h2 rwx"), true),
        ("victim", 50, None, true),
        ("other", 75, Some("k bound id=h1 rwx"), false),
        ("same", 75, Some("m bound id=h2 rwx"), false),
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
    let mut ends = Vec::new();
    let decisions = engine.cycle_seen_by(NOW, &mut |stage| {
        if let Stage::TakenUp { end, .. } = stage {
            ends.push(end);
        }
    });
    assert_eq!(ends, [SearchEnd::Exhausted, SearchEnd::Solved]);
    let planned: Vec<&str> = decisions.pipeline.iter().map(|plan| &*plan.pod.uid).collect();
    assert_eq!(planned, ["same-000"]);
}
