use super::*;
use crate::engine::input::{Event, NodeRequirement, SelectorOp};
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
    budgets.put(told(2), |_| None);
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
    budgets.put(told(2), |_| None);
    budgets.spend(&pods[0]);
    budgets.spend(&pods[0]);
    assert_eq!(may_go(&budgets, &pods[1..]), 1);
}

#[test]
fn a_deduction_ends_once_the_budget_includes_the_eviction() {
    let (mut budgets, pods) = (Budgets::default(), pods());
    let runs = |uid: &Name| pods.iter().find(|pod| pod.pod.uid == *uid);
    budgets.put(told(2), runs);
    budgets.spend(&pods[0]);
    budgets.spend(&pods[1]);
    assert_eq!(may_go(&budgets, &pods[2..]), 0);
    // The API server has admitted the first eviction only.
    let mut next = told(1);
    next.disrupted = [pods[0].pod.name.clone()].into();
    assert!(budgets.put(next.clone(), runs));
    assert!(!budgets.put(next, runs), "it says nothing new");
    assert_eq!(may_go(&budgets, &pods[2..]), 0, "the second is under way");
    // It is never shown as disrupted, but terminates.
    assert!(budgets.put(told(1), |uid| runs(uid).filter(|pod| pod.pod.uid != pods[1].pod.uid)));
    assert_eq!(may_go(&budgets, &pods[2..]), 1);
    budgets.refund(&pods[0].pod.uid);
    budgets.refund(&pods[1].pod.uid);
    assert_eq!(
        may_go(&budgets, &pods),
        1,
        "nothing is given back that is not deducted any more"
    );
}

#[test]
fn a_recreated_budget_starts_without_deductions() {
    let (mut budgets, pods) = (Budgets::default(), pods());
    budgets.put(told(1), |_| None);
    budgets.spend(&pods[0]);
    assert!(budgets.remove(&"ns".into(), &"pods".into()));
    assert!(budgets.is_empty());
    budgets.put(told(0), |_| None);
    budgets.refund(&pods[0].pod.uid);
    assert_eq!(may_go(&budgets, &pods), 0);
}

#[test]
fn one_of_many_budgets_is_found_by_the_labels_of_the_pod() {
    let (mut budgets, mut pods) = (Budgets::default(), pods());
    for number in 0..50 {
        let mut other = told(0);
        other.name = format!("b{number}").into();
        other.pods.labels = Some(vec![NodeRequirement {
            key: "app".into(),
            op: SelectorOp::In,
            values: vec![format!("v{number}").into()],
        }]);
        budgets.put(other, |_| None);
    }
    assert_eq!(may_go(&budgets, &pods), 3, "none selects them");
    let labels = BTreeMap::from([("zone", "z"), ("app", "v7"), ("a", "b")]);
    pods[1].labels = labels.iter().collect();
    let against = budgets.against(pods.iter());
    assert_eq!(against.map(|(_, name)| &**name), Some("b7"));
}
