use serde_json::{Value, json};

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

#[test]
fn an_update_is_not_refused_for_aliases_that_it_does_not_change() {
    let topology = |alias: &str| {
        let levels = json!([{"nodeLabel": "zone", "alias": "z"}, {"nodeLabel": "rack", "alias": alias}]);
        json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": levels}})
    };
    let is_allowed = |object: &Value, old: &Value| {
        let request = json!({"uid": "u", "operation": "UPDATE", "object": object, "oldObject": old});
        validate(&serde_json::from_value(request).unwrap()).is_allowed()
    };
    let (right, mut wrong) = (topology("r"), topology("z"));
    assert!(!is_allowed(&wrong, &right));
    assert!(is_allowed(&wrong, &wrong), "it was so before");
    wrong["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
    assert!(is_allowed(&wrong, &right), "it is being deleted");
}
