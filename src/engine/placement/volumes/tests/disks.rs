//! Disks that pods name themselves, and volumes that stay attached when their pods are gone.

use super::{Case, NOW, check, engine};
use crate::engine::input::{AttachmentInput, Disk, Event};
use crate::engine::policy::Policy;

/// A disk that the pod names itself: `disk NAME [shared]`.
pub fn disk(text: &str) -> Disk {
    let words: Vec<&str> = text.split_whitespace().collect();
    Disk {
        name: words[1].into(),
        shared: words.contains(&"shared"),
    }
}

/// A volume attached to a node, for any pod: `NODE HANDLE`.
pub fn attachment(text: &str) -> Event {
    let (node, handle) = text.split_once(' ').expect("two words");
    Event::Attachment(Box::new(AttachmentInput {
        key: text.into(),
        node: node.into(),
        volume: ("csi".into(), handle.into()),
    }))
}

#[test]
fn disks_that_pods_name_themselves() {
    const CASES: &[Case] = &[
        ("nobody uses it", &[], &[], "disk a", "...."),
        ("somebody uses it", &[], &[("n1", "disk a")], "disk a", ".D.."),
        ("another disk", &[], &[("n1", "disk b")], "disk a", "...."),
        ("one of two", &[], &[("n1", "disk b")], "disk a; disk b", ".D.."),
        (
            "both only read",
            &[],
            &[("n1", "disk a shared")],
            "disk a shared",
            "....",
        ),
        (
            "it is read, and would be written",
            &[],
            &[("n1", "disk a shared")],
            "disk a",
            ".D..",
        ),
        (
            "it is written, and would be read",
            &[],
            &[("n1", "disk a")],
            "disk a shared",
            ".D..",
        ),
        (
            "read by many",
            &[],
            &[("n1", "disk a shared"), ("n1", "disk a shared")],
            "disk a shared",
            "....",
        ),
        (
            "read here, written there",
            &[],
            &[("n1", "disk a shared"), ("n2", "disk a")],
            "disk a shared",
            "..D.",
        ),
        ("who uses it leaves", &[], &[("n1!", "disk a")], "disk a", ".,.."),
        (
            "one of those who read it leaves",
            &[],
            &[("n1!", "disk a shared"), ("n1", "disk a shared")],
            "disk a",
            ".D..",
        ),
        (
            "who writes leaves, who reads stays",
            &[],
            &[("n1!", "disk a"), ("n1", "disk a shared")],
            "disk a shared",
            ".,..",
        ),
        (
            "a claim beside",
            &[],
            &[("n1", "disk a")],
            "disk a; c bound on zone=a",
            ".DAA",
        ),
    ];
    check(CASES, false);
}

#[test]
fn volumes_that_stay_attached() {
    const CASES: &[Case] = &[
        ("one stays", &["attached n0 a"], &[], "c bound id=c", "...."),
        (
            "as many as the node takes",
            &["attached n0 a", "attached n0 b"],
            &[],
            "c bound id=c",
            "M...",
        ),
        (
            "that very one",
            &["attached n0 a", "attached n0 b"],
            &[],
            "c bound id=a",
            "....",
        ),
        (
            "elsewhere",
            &["attached n1 a", "attached n1 b"],
            &[],
            "c bound id=c",
            "....",
        ),
        (
            "those of pods that are there count once",
            &["attached n0 a"],
            &[("n0", "a bound id=a")],
            "c bound id=c",
            "....",
        ),
        (
            "one of a pod that is there, one of nobody",
            &["attached n0 a", "attached n0 b"],
            &[("n0", "a bound id=a")],
            "c bound id=c",
            "M...",
        ),
        (
            "one of a pod that leaves goes with it",
            &["attached n0 a", "attached n0 b"],
            &[("n0", "a bound id=a"), ("n0!", "b bound id=b")],
            "c bound id=c",
            ",...",
        ),
        (
            "of a node that is not there",
            &["attached n9 a"],
            &[],
            "c bound id=c",
            "....",
        ),
    ];
    check(CASES, false);
}

#[test]
fn a_volume_that_is_detached_makes_room() {
    let mut engine = engine(&["attached n0 a", "attached n0 b"], &[], Policy::default());
    let mut pod = super::claiming(9, "c bound id=c on kubernetes.io/hostname=n0");
    let own = super::group("g9", "q", 9);
    pod.group = Some(own.key.clone());
    engine.apply(Event::Group(Box::new(own)), NOW);
    engine.apply(Event::Pod(Box::new(pod)), NOW);
    assert!(engine.cycle(NOW).bind.is_empty());
    engine.apply(Event::AttachmentGone("n0 b".into()), NOW);
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    assert!(engine.model().broken_rules().is_empty());
}
