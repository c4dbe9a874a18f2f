use serde_json::{Value, json};

use super::*;
use crate::components::bus::{GroupKey, GroupReport};
use crate::engine::decision::{Cause, Verdict};

fn group(spec: Value) -> PodGroup {
    serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": "pg"}, "spec": spec})).unwrap()
}

/// Of so many pods, so many with a node, the rest of the unfinished ones without.
fn sums(pods: usize, running: usize, waiting: usize) -> Sums {
    Sums {
        pods,
        running,
        waiting,
        ..Sums::default()
    }
}

fn report() -> GroupReport {
    GroupReport {
        group: GroupKey::new("ns", "pg"),
        not_ready: false,
        partly_runs: false,
        reasons: Vec::new(),
        verdict: Verdict::new(Cause::QueueLimit, "no"),
        message: "no".to_owned(),
        pods: Vec::new(),
    }
}

/// RUNNING, STATE and REASON of a group.
fn line(group: &PodGroup, sums: &Sums, finding: &Finding) -> String {
    let summary = summary(group, sums, finding).unwrap();
    let reason = summary.reason.unwrap_or_else(|| "-".to_owned());
    format!("{} {} {reason}", summary.running.unwrap(), summary.state.unwrap())
}

#[test]
fn states_follow_the_pods() {
    let gang = group(json!({"minMember": 3}));
    let line = |sums| line(&gang, &sums, &Finding::Unknown);
    assert_eq!(line(sums(1, 0, 1)), "0/3 Pending -");
    assert_eq!(line(sums(4, 0, 4)), "0/4 Pending -");
    assert_eq!(line(sums(3, 1, 2)), "1/3 Partial -");
    assert_eq!(line(sums(4, 3, 1)), "3/4 Running -");
    assert_eq!(line(sums(5, 3, 0)), "3/3 Running -");
    assert_eq!(line(sums(3, 0, 0)), "0/3 Finished -");
    let mut gang = gang.clone();
    gang.status = Some(serde_json::from_value(json!({"summary": {"state": "Running"}})).unwrap());
    assert_eq!(self::line(&gang, &sums(0, 0, 0), &Finding::Cleared), "0/3 Empty -");
}

#[test]
fn the_summary_of_a_held_pod_group_shows_the_hold_and_the_state() {
    let mut gang = group(json!({"minMember": 2}));
    gang.metadata.annotations = Some([("unikai.dev/hold".to_owned(), "for the data".to_owned())].into());
    assert_eq!(line(&gang, &sums(2, 0, 2), &Finding::Unknown), "0/2 Held -");
    assert_eq!(line(&gang, &sums(2, 1, 1), &Finding::Unknown), "1/2 Partial,Held -");
    assert_eq!(line(&gang, &sums(2, 2, 0), &Finding::Cleared), "2/2 Running,Held -");
    assert_eq!(line(&gang, &sums(2, 0, 0), &Finding::Cleared), "0/2 Finished -");
    gang.metadata.annotations = None;
    let mut held = report();
    held.verdict = Verdict::new(Cause::Held, "no");
    assert_eq!(line(&gang, &sums(2, 0, 2), &Finding::Waits(&held)), "0/2 Held held");
    assert_eq!(
        line(&gang, &sums(2, 0, 2), &Finding::Waits(&report())),
        "0/2 Pending queue_limit"
    );
}

#[test]
fn the_reason_is_that_of_the_report_until_nothing_waits() {
    let mut one = group(json!({}));
    assert_eq!(
        line(&one, &sums(1, 0, 1), &Finding::Waits(&report())),
        "0/1 Pending queue_limit"
    );
    assert_eq!(
        line(&one, &sums(0, 0, 0), &Finding::Waits(&report())),
        "0/1 Pending queue_limit"
    );
    let told = json!({"summary": {"running": "0/1", "state": "Pending", "reason": "queue_limit"}});
    one.status = Some(serde_json::from_value(told).unwrap());
    // A new leader has not looked at it yet.
    assert_eq!(line(&one, &sums(1, 0, 1), &Finding::Unknown), "0/1 Pending queue_limit");
    assert_eq!(line(&one, &sums(1, 1, 0), &Finding::Unknown), "1/1 Running -");
    assert_eq!(line(&one, &sums(1, 0, 1), &Finding::Cleared), "0/1 Pending -");
    assert_eq!(line(&one, &sums(1, 0, 0), &Finding::Waits(&report())), "0/1 Finished -");
}

#[test]
fn a_group_without_pods_is_not_written_for_a_summary() {
    assert_eq!(summary(&group(json!({})), &sums(0, 0, 0), &Finding::Unknown), None);
}

#[test]
fn the_minimum_of_sub_groups_is_that_of_their_leaves() {
    let part = |name: &str, parent: &str, min: i32| json!({"name": name, "parent": parent, "minMember": min});
    let leaves = json!([
        {"name": "all"},
        part("a", "all", 2),
        part("b", "all", 1),
        {"name": "c"},
        part("d", "all", -7),
    ]);
    assert_eq!(minimum(&group(json!({"minMember": 9, "subGroups": leaves})).spec), 3);
    assert_eq!(minimum(&group(json!({"minSubGroup": 1, "subGroups": leaves})).spec), 1);
    assert_eq!(minimum(&group(json!({"minMember": -1})).spec), 0);
}
