use super::*;

/// A budget of generation 2.
fn with(yaml: &str) -> BudgetInput {
    let budget = format!("{{metadata: {{name: b, namespace: ns, generation: 2}}, spec: {{selector: {{}}}}{yaml}}}");
    read(&serde_yaml_ng::from_str(&budget).expect("a budget"))
}

fn allowed(yaml: &str) -> i64 {
    with(yaml).allowed
}

fn status(generation: i64, allowed: i32) -> String {
    format!(
        ", status: {{observedGeneration: {generation}, disruptionsAllowed: {allowed}, currentHealthy: 3, desiredHealthy: 2, expectedPods: 3}}"
    )
}

#[test]
fn the_status_of_a_budget_counts_once_it_is_of_the_current_generation() {
    assert_eq!(allowed(&status(2, 1)), 1);
    assert_eq!(allowed(&status(1, 1)), 0);
    assert_eq!(allowed(""), 0);
}

#[test]
fn the_pods_that_a_status_lists_as_disrupted_are_read() {
    let listed = "disruptedPods: {p: '2026-01-01T00:00:00Z', q: '2026-01-01T00:00:00Z'}, disruptionsAllowed:";
    for generation in [1, 2] {
        let status = status(generation, 1).replace("disruptionsAllowed:", listed);
        assert_eq!(with(&status).disrupted, ["p".into(), "q".into()].into());
    }
    assert!(with(&status(2, 1)).disrupted.is_empty());
}

#[test]
fn an_empty_selector_selects_all_pods_of_the_namespace_and_none_selects_no_pod() {
    let pods = |spec: &str| {
        let budget = format!("{{metadata: {{name: b, namespace: ns}}, spec: {spec}}}");
        read(&serde_yaml_ng::from_str(&budget).expect("a budget")).pods
    };
    assert_eq!(pods("{selector: {}}").labels, Some(Vec::new()));
    assert_eq!(pods("{}").labels, None);
    assert_eq!(pods("{}").namespaces, Some(["ns".into()].into()));
    assert_eq!(
        pods("{selector: {matchLabels: {app: a}}}")
            .labels
            .map(|labels| labels.len()),
        Some(1)
    );
}
