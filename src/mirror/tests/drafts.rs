//! Existing pod groups that the grouper has computed anew: their minimums and sub-groups count until they are written.

use super::*;

/// The spec of a leader with so many workers.
fn workers(number: u8) -> String {
    let subs = format!("[{{name: leader, minMember: 1}}, {{name: workers, minMember: {number}}}]");
    format!("queue: q, minMember: {}, subGroups: {subs}", number + 1)
}

/// The grouper has put the pod among the workers of such a group.
fn grouped(number: u8) -> PackedChange {
    let PackedChange::Grouped(grouping) = grouping("u", "g", Some("workers")) else {
        panic!("a grouping")
    };
    let group = read(&format!(
        "{{metadata: {{name: g, namespace: ns}}, spec: {{{}}}}}",
        workers(number)
    ));
    PackedChange::Grouped(GroupDraft { group, ..grouping })
}

/// Minimum of the group, and of its workers, in each event about it.
fn minimums(events: &[Event]) -> Vec<(Option<i64>, Option<i64>)> {
    let groups = events.iter().filter_map(|event| match event {
        Event::Group(group) => Some(group),
        _ => None,
    });
    let both = groups.map(|group| {
        let workers = group.sub_groups.iter().find(|sub| *sub.name == *"workers");
        (group.min_member, workers.and_then(|sub| sub.min_member))
    });
    both.collect()
}

/// A leader whose workers have just come, in a group that does not count them yet.
fn grown() -> World {
    let mut world = World::default();
    world.apply(group("", &workers(0)));
    world.apply(pod("u", ""));
    assert_eq!(minimums(&world.0.apply(&grouped(7)).events), [(Some(8), Some(7))]);
    world
}

/// Whether another group counts than the API server shows.
fn has_draft(world: &World) -> bool {
    let key = GroupKey::new("ns", "g");
    let (counts, stored) = (world.0.group(&key), world.0.groups.get(&key));
    !Arc::ptr_eq(counts.expect("a group"), stored.expect("a stored group"))
}

#[test]
fn a_gang_that_grows_has_its_new_minimums_before_they_are_written() {
    let mut world = grown();
    let started = "annotations: {kai.scheduler/last-start-timestamp: '2026-01-01T00:00:00Z'}";
    assert_eq!(
        minimums(&world.apply(group(started, &workers(0)))),
        [(Some(8), Some(7))],
        "others write the group, too"
    );
    assert_eq!(minimums(&world.0.apply(&grouped(8)).events), [(Some(9), Some(8))]);
    assert_eq!(
        minimums(&world.apply(group(started, &workers(7)))),
        [],
        "what was computed first is written first"
    );
    assert_eq!(minimums(&world.apply(group(started, &workers(8)))), []);
    assert!(!has_draft(&world));
    assert_eq!(
        minimums(&world.apply(group(started, &workers(2)))),
        [(Some(3), Some(2))],
        "what a user writes later counts"
    );
}

#[test]
fn everything_but_minimums_and_sub_groups_is_as_the_api_server_shows_it() {
    let mut world = grown();
    let other = workers(0).replace("queue: q", "queue: other, priorityClassName: train");
    check(&world.apply(class(70)), &[]);
    check(&world.apply(group("", &other)), &["group g in other at 70"]);
    check(&world.delete(class(70)), &["group g in other at 50"]);
    check(&world.delete(group("", &other)), &["group g gone"]);
}

#[test]
fn minimums_that_the_api_server_does_not_take_end_when_the_grouper_says_so() {
    let mut world = grown();
    assert_eq!(minimums(&world.0.apply(&grouped(0)).events), [(Some(1), Some(0))]);
    assert!(!has_draft(&world));
}

#[test]
fn minimums_that_are_not_written_end_with_the_last_pod_that_was_grouped() {
    let mut world = grown();
    assert_eq!(minimums(&world.delete(pod("u", ""))), [(Some(1), Some(0))]);
    assert!(world.0.drafts.iter().next().is_none());
}

#[test]
fn a_mirror_that_is_built_anew_has_the_minimums_that_are_not_written() {
    let groupings = || grown().0.groupings();
    let shown = |number: u8| {
        let mut anew = World::default();
        anew.apply(pod("u", ""));
        anew.apply(group("", &workers(number)));
        anew
    };
    let mut anew = shown(0);
    assert_eq!(minimums(&anew.0.adopt(groupings()).events), [(Some(8), Some(7))]);
    assert_eq!(minimums(&anew.apply(group("", &workers(7)))), []);
    assert!(!has_draft(&anew));

    let mut written = shown(7);
    assert_eq!(minimums(&written.0.adopt(groupings()).events), []);
    assert!(!has_draft(&written));
}
