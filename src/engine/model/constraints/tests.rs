use super::*;
use crate::engine::input::{NodeRequirement, SelectorOp, Taint, TaintEffect};
use crate::engine::tests::scenario::{group, node, pod};

fn labelled(labels: &str) -> Node {
    let mut known = Node::unknown("n0".into());
    known.input = Some(Box::new(node("n0", &format!("1 {labels}"))));
    known
}

fn constraints(change: impl FnOnce(&mut PodInput)) -> Constraints {
    let mut changed = pod(&group("g", "q", 0), 0, "0");
    change(&mut changed);
    Constraints::of(&changed)
}

/// `zone in a|b`, `zone notin a|b`, `zone`, `!zone`, `size > 3`, `size < 3`.
fn requirement(text: &str) -> NodeRequirement {
    let values = |text: &str| {
        text.split('|')
            .filter(|value| !value.is_empty())
            .map(Name::from)
            .collect()
    };
    let words: Vec<_> = text.split_whitespace().collect();
    let (key, op, values) = match *words {
        [key, "in", list] => (key, SelectorOp::In, values(list)),
        [key, "notin", list] => (key, SelectorOp::NotIn, values(list)),
        [key, ">", number] => (key, SelectorOp::Gt, values(number)),
        [key, "<", number] => (key, SelectorOp::Lt, values(number)),
        [key] if key.starts_with('!') => (&key[1..], SelectorOp::DoesNotExist, Vec::new()),
        [key] => (key, SelectorOp::Exists, Vec::new()),
        _ => panic!("{text}"),
    };
    NodeRequirement {
        key: key.into(),
        op,
        values,
    }
}

/// Terms by `or`, requirements by `and`; those on `@name` are on fields.
fn terms(text: &str) -> Vec<NodeTerm> {
    let term = |text: &str| {
        let parts = text.split(" and ").map(str::trim).filter(|part| !part.is_empty());
        let (fields, labels): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.starts_with('@'));
        NodeTerm {
            labels: labels.into_iter().map(requirement).collect(),
            fields: fields.into_iter().map(|part| requirement(&part[1..])).collect(),
        }
    };
    text.split(" or ").map(term).collect()
}

#[test]
fn node_affinity() {
    for (labels, text, wanted) in [
        ("zone=a", "zone in a", true),
        ("zone=a", "zone in b|a", true),
        ("zone=a", "zone in b", false),
        ("", "zone in a", false),
        ("zone=a", "zone notin b", true),
        ("zone=a", "zone notin a|b", false),
        ("", "zone notin a", true),
        ("zone=", "zone", true),
        ("", "zone", false),
        ("zone=a", "!zone", false),
        ("", "!zone", true),
        ("size=4", "size > 3", true),
        ("size=3", "size > 3", false),
        ("size=-4", "size < 3", true),
        ("size=3", "size < 3", false),
        ("size=big", "size > 3", false),
        ("", "size < 3", false),
        ("zone=a size=4", "zone in a and size > 3", true),
        ("zone=a size=2", "zone in a and size > 3", false),
        ("zone=b size=2", "zone in a or size < 3", true),
        ("zone=b size=4", "zone in a or size < 3", false),
        ("zone=a", "@metadata.name in n0", true),
        ("zone=a", "@metadata.name in n1", false),
        ("zone=a", "@metadata.name notin n0", false),
        ("zone=a", "zone in a and @metadata.name in n1", false),
        ("zone=a", "", false),
        ("zone=a", " or zone in a", true),
    ] {
        let constraints = constraints(|pod| pod.needs_mut().affinity_required = Some(terms(text)));
        assert_eq!(constraints.selects(&labelled(labels)), wanted, "{text} on {labels}");
    }
}

#[test]
fn node_selector_and_affinity_must_both_hold() {
    let both = |selector: &str, required: Option<&str>| {
        let constraints = constraints(|pod| {
            pod.needs_mut().node_selector = vec![("zone".into(), selector.into())];
            pod.needs_mut().affinity_required = required.map(terms);
        });
        constraints.selects(&labelled("zone=a size=4"))
    };
    assert!(both("a", None));
    assert!(!both("b", None));
    assert!(both("a", Some("size > 3")));
    assert!(!both("a", Some("size > 4")));
    assert!(!both("b", Some("size > 3")));
    let nothing = constraints(|pod| pod.needs_mut().affinity_required = Some(Vec::new()));
    assert!(!nothing.selects(&labelled("")));
    assert!(!constraints(|_| {}).selects(&Node::unknown("n0".into())));
}

#[test]
fn taints_and_tolerations() {
    use TaintEffect::{NoExecute, NoSchedule, PreferNoSchedule};
    let taint = |text: &str, effect| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        Taint {
            key: key.into(),
            value: value.into(),
            effect,
        }
    };
    // `key=value`, `key` (exists), `*` (every key), with an effect behind a colon.
    let toleration = |text: &str| {
        let (what, effect) = text
            .split_once(':')
            .map_or((text, None), |(what, effect)| (what, Some(effect)));
        let effect = effect.map(|effect| match effect {
            "NoSchedule" => NoSchedule,
            "NoExecute" => NoExecute,
            _ => PreferNoSchedule,
        });
        let (key, value) = what
            .split_once('=')
            .map_or((what, None), |(key, value)| (key, Some(value)));
        Toleration {
            key: (key != "*").then(|| key.into()),
            exists: value.is_none(),
            value: value.unwrap_or_default().into(),
            effect,
        }
    };
    let a = || taint("a=1", NoSchedule);
    for (taints, tolerations, wanted) in [
        (vec![], &[][..], true),
        (vec![a()], &[], false),
        (vec![a()], &["a=1"], true),
        (vec![a()], &["a=2"], false),
        (vec![a()], &["a"], true),
        (vec![a()], &["b"], false),
        (vec![a()], &["*"], true),
        (vec![a()], &["a=1:NoSchedule"], true),
        (vec![a()], &["a=1:NoExecute"], false),
        (vec![a()], &["a:NoSchedule"], true),
        (vec![a()], &["*:NoExecute"], false),
        (vec![a()], &["*:NoSchedule"], true),
        (vec![a()], &["a="], false),
        (vec![taint("a", NoSchedule)], &["a="], true),
        (vec![taint("a=1", PreferNoSchedule)], &[], true),
        (vec![taint("a=1", NoExecute)], &[], false),
        (vec![taint("a=1", NoExecute)], &["a=1"], true),
        (vec![taint("a=1", NoExecute)], &["a=1:NoSchedule"], false),
        (vec![a(), taint("b=1", NoExecute)], &["a"], false),
        (vec![a(), taint("b=1", NoExecute)], &["a", "b"], true),
        (vec![a(), taint("b=1", NoExecute)], &["*"], true),
        (vec![a(), taint("a=1", NoExecute)], &["a=1:NoSchedule"], false),
        (vec![a(), taint("a=2", NoSchedule)], &["a=1"], false),
        (vec![a(), taint("b", PreferNoSchedule)], &["a=1"], true),
    ] {
        let mut tainted = labelled("");
        let text = format!("{taints:?} by {tolerations:?}");
        tainted.input.as_mut().unwrap().taints = taints;
        let constraints =
            constraints(|pod| pod.needs_mut().tolerations = tolerations.iter().map(|text| toleration(text)).collect());
        assert_eq!(constraints.tolerates(&tainted), wanted, "{text}");
    }
}
