//! Tables of scenarios: one per action, and those that show more than one.

use super::scenario::check;

#[test]
fn allocate() {
    check(include_str!("tables/allocate.yaml"));
}

#[test]
fn consolidation() {
    check(include_str!("tables/consolidation.yaml"));
}

#[test]
fn reclaim() {
    check(include_str!("tables/reclaim.yaml"));
}

#[test]
fn preempt() {
    check(include_str!("tables/preempt.yaml"));
}

#[test]
fn stale_pod_groups() {
    check(include_str!("tables/stale.yaml"));
}

#[test]
fn topology() {
    check(include_str!("tables/topology.yaml"));
}

#[test]
fn relations_between_pods() {
    check(include_str!("tables/relations.yaml"));
}

#[test]
fn order_of_queues() {
    check(include_str!("tables/order.yaml"));
}

#[test]
fn shares() {
    check(include_str!("tables/shares.yaml"));
}

#[test]
fn donors() {
    check(include_str!("tables/donors.yaml"));
}

#[test]
fn time() {
    check(include_str!("tables/time.yaml"));
}

#[test]
fn disruption_budgets() {
    check(include_str!("tables/budgets.yaml"));
}

#[test]
fn several_cycles() {
    check(include_str!("tables/cycles.yaml"));
}

#[test]
fn incidents_elsewhere() {
    check(include_str!("tables/incidents.yaml"));
}
