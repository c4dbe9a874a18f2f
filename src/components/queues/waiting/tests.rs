use proptest::prelude::*;

use super::*;

fn waits(cause: Cause, since: i64) -> Option<Waits> {
    Some(Waits { cause, since })
}

fn group(name: &str) -> GroupKey {
    GroupKey::new("ns", name)
}

fn names(queues: &BTreeSet<String>) -> Vec<&str> {
    queues.iter().map(String::as_str).collect()
}

fn shown(line: &Line) -> (Vec<(&'static str, usize)>, Option<i64>) {
    (
        line.causes().map(|(cause, groups)| (cause.as_str(), groups)).collect(),
        line.since(),
    )
}

#[test]
fn pod_groups_are_counted_by_queue_and_cause_with_the_oldest() {
    let mut waiting = Waiting::default();
    waiting.exists("team");
    assert_eq!(
        names(&waiting.count(&group("a"), Some("team"), waits(Cause::Unknown, 20))),
        ["team"]
    );
    assert_eq!(
        names(&waiting.count(&group("a"), Some("team"), waits(Cause::Taints, 20))),
        ["team"]
    );
    waiting.count(&group("b"), Some("team"), waits(Cause::Taints, 10));
    waiting.count(&group("c"), Some("team"), waits(Cause::QueueLimit, 30));
    assert!(
        waiting
            .count(&group("b"), Some("team"), waits(Cause::Taints, 10))
            .is_empty()
    );
    let line = shown(waiting.line("team"));
    assert_eq!(line, (vec![("queue_limit", 1), ("taints", 2)], Some(10)));
    assert_eq!(names(&waiting.count(&group("b"), Some("team"), None)), ["team"]);
    assert_eq!(shown(waiting.line("team")).1, Some(20));
    waiting.count(&group("a"), None, None);
    waiting.count(&group("c"), Some("team"), None);
    assert_eq!(shown(waiting.line("team")), (Vec::new(), None));
    assert!(waiting.groups.is_empty() && waiting.lines.is_empty(), "nothing is kept");
}

#[test]
fn queues_that_do_not_exist_are_one_line() {
    let mut waiting = Waiting::default();
    for (name, queue) in [("a", "x"), ("b", "y"), ("c", "team")] {
        waiting.count(&group(name), Some(queue), waits(Cause::QueueMissing, 10));
    }
    assert_eq!(shown(waiting.nowhere()), (vec![("queue_missing", 3)], Some(10)));
    waiting.exists("team");
    assert_eq!(shown(waiting.nowhere()).0, [("queue_missing", 2)]);
    waiting.gone("team");
    assert_eq!(shown(waiting.nowhere()).0, [("queue_missing", 3)]);
    for name in ["a", "b", "c"] {
        waiting.count(&group(name), None, None);
    }
    assert_eq!(waiting.nowhere(), &Line::default());
}

proptest! {
    /// What is kept by difference is what is counted anew, whatever comes in which order.
    #[test]
    fn lines_are_the_sums_of_what_waits(changes in prop::collection::vec((0_usize..4, 0_usize..5, 0_usize..3, 0_usize..4), 0..60)) {
        let queues = ["x", "y", "z"];
        let mut waiting = Waiting::default();
        let mut plain: BTreeMap<usize, (usize, Waits)> = BTreeMap::new();
        let mut known = BTreeSet::new();
        for (what, of_group, queue, how) in changes {
            match what {
                0 => {
                    waiting.exists(queues[queue]);
                    known.insert(queue);
                }
                1 => {
                    waiting.gone(queues[queue]);
                    known.remove(&queue);
                }
                _ => {
                    let now = (how > 0).then(|| Waits { cause: Cause::ALL[how], since: how as i64 });
                    waiting.count(&group(&of_group.to_string()), Some(queues[queue]), now);
                    plain.remove(&of_group);
                    plain.extend(now.map(|waits| (of_group, (queue, waits))));
                }
            }
        }
        let mut nowhere = Line::default();
        for (at, name) in queues.iter().enumerate() {
            let mut line = Line::default();
            plain.values().filter(|(queue, _)| *queue == at).for_each(|(_, waits)| line.put(*waits));
            prop_assert_eq!(&line, waiting.line(name));
            if !known.contains(&at) {
                nowhere.join(&line);
            }
        }
        prop_assert_eq!(&nowhere, waiting.nowhere());
    }
}
