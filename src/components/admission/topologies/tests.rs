use serde_json::json;

use super::*;

fn check(levels: &[(&str, &str)]) -> Option<String> {
    let levels: Vec<_> = levels
        .iter()
        .map(|(label, alias)| json!({"nodeLabel": label, "alias": alias}))
        .collect();
    let object = json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": levels}});
    let request = serde_json::from_value(json!({"uid": "u", "operation": "CREATE", "object": object})).unwrap();
    validate(&request).denial.map(|denial| denial.message)
}

#[test]
fn aliases_of_a_topology_are_unique() {
    assert_eq!(check(&[("zone", "z"), ("rack", "r"), ("host", "")]), None);
    assert_eq!(
        check(&[("zone", "b"), ("rack", "b"), ("row", "a"), ("host", "a")]).as_deref(),
        Some("invalid topology aliases: aliases must be unique within the topology; duplicated: [a b]")
    );
    assert_eq!(
        check(&[("zone", "rack"), ("rack", "r")]).as_deref(),
        Some("invalid topology aliases: an alias must not equal a nodeLabel; conflicting: [rack]")
    );
    assert_eq!(
        check(&[("zone", "rack"), ("rack", "rack")]).as_deref(),
        Some(
            "invalid topology aliases: aliases must be unique within the topology; duplicated: [rack]; an alias must not equal a nodeLabel; conflicting: [rack]"
        )
    );
}
