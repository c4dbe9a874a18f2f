//! The engine's input depends on the existing objects, not on their history: after any history of changes the sum of the
//! events equals that of a fresh mirror given the surviving objects in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{bind_request, class, group, node, pod};
use crate::engine::input::Event;
use crate::mirror::{Mirror, PackedChange, PackedObject, Settings};

/// The engine's view: the last event of each object.
#[derive(Default, Debug, PartialEq)]
struct View(BTreeMap<String, String>);

impl View {
    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            let said = format!("{event:?}");
            match event {
                Event::Node(node) => self.0.insert(format!("node {}", node.name), said),
                Event::Group(group) => self.0.insert(format!("group {}", group.key.name()), said),
                Event::Pod(pod) => self.0.insert(format!("pod {}", pod.pod.uid), said),
                Event::NodeGone(name) => self.0.remove(&format!("node {name}")),
                Event::GroupGone(key) => self.0.remove(&format!("group {}", key.name())),
                Event::PodGone(uid) => self.0.remove(&format!("pod {uid}")),
                other => panic!("nothing here leads to {other:?}"),
            };
        }
    }
}

/// One of a few objects in one of a few states, with the slot that it lives in.
fn object() -> impl Strategy<Value = (&'static str, PackedObject)> {
    let node_state = prop::sample::select(vec![
        "",
        ", labels: {a: b}",
        ", labels: {kai.scheduler/node-pool: other}",
    ]);
    let pod_state = prop::sample::select(vec![
        "",
        "annotations: {pod-group-name: g}",
        "deletionTimestamp: '2026-01-01T00:00:00Z'",
    ]);
    let group_state = prop::sample::select(vec![
        "",
        "labels: {kai.scheduler/node-pool: other}",
        "annotations: {note: hello}",
    ]);
    prop_oneof![
        node_state.clone().prop_map(|state| ("node n", node("n", state))),
        node_state.prop_map(|state| ("node m", node("m", state))),
        (prop::sample::select(vec!["u1", "u2"]), pod_state).prop_map(|(uid, state)| ("pod", pod(uid, state))),
        group_state.prop_map(|state| ("group", group(state, "queue: q, priorityClassName: train"))),
        (60..62).prop_map(|value| ("class", class(value))),
        (
            prop::sample::select(vec!["u1", "u2", ""]),
            prop::sample::select(vec!["n", "m"])
        )
            .prop_map(|(owner, node)| ("request", bind_request(owner, node))),
    ]
}

proptest! {
    #[test]
    fn only_objects_that_exist_have_an_effect(history in prop::collection::vec((object(), prop::bool::weighted(0.3)), 0..30), backwards: bool) {
        let mut mirror = Mirror::new(Settings::default());
        let (mut told, mut present) = (View::default(), BTreeMap::new());
        for ((slot, object), deleted) in history {
            let change = if deleted {
                // What is deleted is what was there.
                let Some(last) = present.remove(slot) else { continue };
                PackedChange::Deleted(last)
            } else {
                present.insert(slot, object.clone());
                PackedChange::Applied(object)
            };
            told.take(mirror.apply(&change).events.into_vec());
        }
        let mut fresh = Mirror::new(Settings::default());
        let mut survivors: Vec<_> = present.into_values().collect();
        if backwards {
            survivors.reverse();
        }
        let mut expected = View::default();
        for object in survivors {
            expected.take(fresh.apply(&PackedChange::Applied(object)).events.into_vec());
        }
        prop_assert_eq!(told, expected);
    }
}
