//! Tables of scenarios, one per action.

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
fn stale_gangs() {
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
