use super::*;

fn allowed(yaml: &str) -> i64 {
    let budget = format!("{{metadata: {{name: b, namespace: ns, generation: 2}}, spec: {{selector: {{}}}}{yaml}}}");
    read(&serde_yaml_ng::from_str(&budget).expect("a budget")).allowed
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
