use super::*;
use crate::engine::decision::Verdict;

/// The reason for the pods of a pod group that waits for this cause, and how many conditions the pod group gets.
fn said(cause: Cause) -> (&'static str, usize) {
    let group: PodGroup = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "pg"}, "spec": {"schedulingBackoff": 1},
    }))
    .unwrap();
    let report = GroupReport {
        group: GroupKey::new("ns", "pg"),
        not_ready: false,
        partly_runs: false,
        reasons: Vec::new(),
        verdict: Verdict::new(cause, "no"),
        message: "no".to_owned(),
        pods: Vec::new(),
    };
    let (stores, settings) = (Stores::default(), Settings::default());
    let status = target(&group, &Sums::default(), Finding::Waits(&report), &stores, &settings);
    (reason_of(&report), status.scheduling_conditions.len())
}

/// How many conditions a pod group keeps of which so many pods have no node.
fn kept(backoff: i32, waiting: usize, finding: Finding) -> usize {
    let group: PodGroup = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "pg"}, "spec": {"schedulingBackoff": backoff},
        "status": {"schedulingConditions": [{"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True"}]},
    }))
    .unwrap();
    let sums = Sums {
        pods: 2,
        waiting,
        ..Sums::default()
    };
    let (stores, settings) = (Stores::default(), Settings::default());
    let status = target(&group, &sums, finding, &stores, &settings);
    status.scheduling_conditions.len()
}

#[test]
fn the_condition_stays_until_all_pods_have_nodes() {
    assert_eq!(kept(-1, 2, Finding::Cleared), 1, "its pods are pipelined");
    assert_eq!(kept(-1, 0, Finding::Cleared), 0);
    assert_eq!(kept(-1, 1, Finding::Unknown), 1);
    assert_eq!(kept(-1, 0, Finding::Unknown), 0);
    assert_eq!(kept(1, 2, Finding::Cleared), 0, "it would not be tried again");
}

#[test]
fn only_a_pod_group_that_no_node_takes_gets_a_condition_and_backs_off() {
    assert_eq!(said(Cause::Resources), ("Unschedulable", 1));
    assert_eq!(said(Cause::QueueMissing), ("Unschedulable", 1));
    assert_eq!(said(Cause::BindRetry), ("BindingError", 0));
    assert_eq!(said(Cause::Held), ("Held", 0));
}
