use serde_json::{Value, json};

use super::*;

/// Sub-groups as words: `b→a·1` is sub-group b below a with minMember 1, `a:2` has minSubGroup 2.
fn spec(group: &str, sub_groups: &str) -> Value {
    let minimum = |text: &str, into: &mut Value| -> String {
        let (rest, members) = text.split_once('·').unwrap_or((text, ""));
        let (rest, sub_groups) = rest.split_once(':').unwrap_or((rest, ""));
        for (key, value) in [("minMember", members), ("minSubGroup", sub_groups)] {
            if let Ok(number) = value.parse::<i32>() {
                into[key] = json!(number);
            }
        }
        rest.to_owned()
    };
    let mut spec = json!({"queue": "test"});
    minimum(group, &mut spec);
    let parse = |word: &str| {
        let mut sub_group = json!({});
        let rest = minimum(word, &mut sub_group);
        let (name, parent) = rest.split_once('→').unwrap_or((&rest, ""));
        sub_group["name"] = json!(name);
        if !parent.is_empty() {
            sub_group["parent"] = json!(parent);
        }
        sub_group
    };
    spec["subGroups"] = sub_groups.split_whitespace().map(parse).collect();
    spec
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "team"}, "spec": spec})
}

fn outcome(request: Value) -> String {
    let verdict = validate(&serde_json::from_value(request).unwrap());
    let denial = verdict.denial.map(|denial| denial.message);
    let warnings = verdict
        .warnings
        .into_iter()
        .map(|warning| format!("warning: {warning}"));
    denial.into_iter().chain(warnings).collect::<Vec<_>>().join("\n")
}

fn on_create(spec: &Value) -> String {
    outcome(json!({"uid": "u", "operation": "CREATE", "object": object(spec)}))
}

/// An update of a sound group.
fn on_update(spec: &Value) -> String {
    outcome(
        json!({"uid": "u", "operation": "UPDATE", "object": object(spec), "oldObject": object(&json!({"minMember": 1}))}),
    )
}

#[test]
fn valid_pod_groups_are_admitted() {
    for (group, sub_groups) in [
        ("·0", ""),
        ("·5", "a·2 b·2"),
        ("", "a b→a·1 c→a·1 d·2"),
        (":1", "a:1 b→a·1 c→a·1"),
        ("", "a b→a c→b·1"),
    ] {
        let spec = spec(group, sub_groups);
        assert_eq!(
            (on_create(&spec), on_update(&spec)),
            (String::new(), String::new()),
            "{group} {sub_groups}"
        );
    }
}

#[test]
fn an_invalid_sub_group_tree_is_denied_for_its_first_error() {
    for (group, sub_groups, expected) in [
        ("", "b→x·1", "parent x of b was not found"),
        ("", "a·1 a·1", "duplicate subgroup name a"),
        ("", "a→a", "cycle detected in subgroups"),
        ("", "a→c b→a c→b", "cycle detected in subgroups"),
        ("", "a→b a→a b", "duplicate subgroup name a"),
        (
            "",
            "a:1·1 b→a·1",
            "subgroup \"a\": minMember and minSubGroup are mutually exclusive",
        ),
    ] {
        let spec = spec(group, sub_groups);
        assert_eq!(
            (on_create(&spec).as_str(), on_update(&spec).as_str()),
            (expected, expected),
            "{group} {sub_groups}"
        );
    }
    let both = json!({"minMember": 2, "minSubGroup": 1});
    assert_eq!(
        on_create(&both),
        "minMember and minSubGroup are mutually exclusive: set minMember (2) to schedule a fixed number of pods, or set minSubGroup to require a minimum number of child SubGroups, but not both"
    );
}

#[test]
fn minimums_are_allowed_only_where_they_have_an_effect() {
    let inner = "subgroup \"a\": minMember cannot be set on a mid-level SubGroup (has child SubGroups); use minSubGroup instead";
    let member_inside = spec("", "a·1 b→a·1");
    assert_eq!(on_create(&member_inside), inner);
    assert_eq!(on_update(&member_inside), format!("warning: {inner}"));

    let too_many = spec("", "a:3 b→a·1");
    let warning = "warning: subgroup \"a\": minSubGroup (3) exceeds the number of direct child SubGroups (1)";
    assert_eq!(
        (on_create(&too_many).as_str(), on_update(&too_many).as_str()),
        (warning, warning)
    );
    assert_eq!(
        on_create(&spec(":5", "a·1 b·1")),
        "warning: minSubGroup (5) exceeds the number of direct child SubGroups (2)"
    );

    assert_eq!(on_create(&spec("", "a")), "subgroup a: minMember is required");
    assert_eq!(
        on_create(&spec("", "a:1")),
        "subgroup \"a\": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)\nsubgroup a: minMember is required"
    );
}

#[test]
fn a_pod_group_older_than_a_rule_can_still_be_updated() {
    let old = object(&spec("", "a"));
    let mut new = old.clone();
    new["metadata"]["annotations"] = json!({"kai.scheduler/last-start-timestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(
        outcome(json!({"uid": "u", "operation": "UPDATE", "object": new, "oldObject": old})),
        ""
    );
    new["spec"] = spec("", "a b");
    assert_eq!(
        outcome(json!({"uid": "u", "operation": "UPDATE", "object": new, "oldObject": old})),
        "subgroup b: minMember is required"
    );
}

#[test]
fn groups_beyond_the_limits() {
    let chain = |length: usize| {
        let sub = |at: usize| match at {
            0 => "s0".to_owned(),
            _ if at + 1 == length => format!("s{at}→s{}·1", at - 1),
            _ => format!("s{at}→s{}", at - 1),
        };
        spec("", &(0..length).map(sub).collect::<Vec<_>>().join(" "))
    };
    let flat = |length: usize| spec("", &(0..length).map(|at| format!("s{at}·1 ")).collect::<String>());
    assert_eq!(on_create(&chain(16)), "");
    for deep in [17, 2_000, 4_096] {
        assert_eq!(on_create(&chain(deep)), "there are more than 16 levels of sub-groups");
    }
    assert_eq!(on_create(&flat(4_096)), "");
    for many in [4_097, 5_000, 20_000] {
        assert_eq!(on_create(&flat(many)), "there are more than 4096 sub-groups");
    }
    let mut circle = chain(3_000);
    circle["subGroups"][0]["parent"] = json!("s2999");
    assert_eq!(on_update(&circle), "cycle detected in subgroups");
    let unchanged =
        json!({"uid": "u", "operation": "UPDATE", "object": object(&flat(5_000)), "oldObject": object(&flat(5_000))});
    assert_eq!(outcome(unchanged), "", "what is there already stays changeable");
}
