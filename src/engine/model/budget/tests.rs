use super::*;
use crate::engine::input::Event;
use crate::engine::tests::scenario::{budget, group, placed, pod};

/// A budget that allows so many evictions.
fn told(allowed: i64) -> BudgetInput {
    let Event::Budget(input) = budget(&format!("* {allowed}")) else {
        panic!("a budget")
    };
    BudgetInput {
        name: "pods".into(),
        ..*input
    }
}

fn pods() -> Vec<PodInput> {
    let group = group("a", "q", 0);
    (0..3).map(|number| placed(pod(&group, number, "1"), "n0")).collect()
}

fn may_go(budgets: &Budgets, pods: &[PodInput]) -> usize {
    (0..=pods.len())
        .rev()
        .find(|count| budgets.allow(pods[..*count].iter()))
        .unwrap_or_default()
}

#[test]
fn failed_evictions_are_returned_to_the_budget() {
    let (mut budgets, pods) = (Budgets::default(), pods());
    budgets.put(told(2));
    budgets.spend(&pods[0]);
    assert_eq!(may_go(&budgets, &pods[1..]), 1);
    budgets.refund(&pods[0].pod.uid);
    assert_eq!(may_go(&budgets, &pods), 2);
    budgets.refund(&pods[0].pod.uid);
    assert_eq!(may_go(&budgets, &pods), 2, "it is given back once");
}

#[test]
fn a_pod_that_is_evicted_twice_counts_once() {
    let (mut budgets, pods) = (Budgets::default(), pods());
    budgets.put(told(2));
    budgets.spend(&pods[0]);
    budgets.spend(&pods[0]);
    assert_eq!(may_go(&budgets, &pods[1..]), 1);
}

#[test]
fn nothing_is_returned_to_a_budget_that_was_updated_since() {
    let (mut budgets, pods) = (Budgets::default(), pods());
    budgets.put(told(1));
    budgets.spend(&pods[0]);
    assert!(budgets.put(told(1)), "the same words say more than was known");
    assert!(!budgets.put(told(1)));
    budgets.refund(&pods[0].pod.uid);
    assert_eq!(may_go(&budgets, &pods), 1);
}

#[test]
fn a_recreated_budget_starts_without_deductions() {
    let (mut budgets, pods) = (Budgets::default(), pods());
    budgets.put(told(1));
    budgets.spend(&pods[0]);
    assert!(budgets.remove(&"ns".into(), &"pods".into()));
    assert!(budgets.is_empty());
    budgets.put(told(0));
    budgets.refund(&pods[0].pod.uid);
    assert_eq!(may_go(&budgets, &pods), 0);
}
