mod terminating;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::engine::Engine;
use crate::engine::input::{
    Event, Name, NodeRequirement, PodInput, PodRef, PodSelector, PodStatus, PodTerm, Relations, SelectorOp, Spread,
    Time,
};
use crate::engine::policy::Policy;
use crate::engine::tests::scenario::{NOW, group, node, placed, pod};

/// `app=a`, `app!=a`, `app in a|b`, `app notin a|b`, `app`, `!app`; several with commas; empty: all pods; `-`: none. `in NAMESPACE,…` or `anywhere` before a colon.
fn selector(text: &str) -> PodSelector {
    let (place, text) = text.split_once(": ").unwrap_or(("in ns", text));
    let namespaces = place
        .strip_prefix("in ")
        .map(|names| names.split(',').map(Name::from).collect());
    let requirement = |text: &str| {
        let values = |text: &str| text.split('|').map(Name::from).collect();
        let (key, op, values) = if let Some((key, list)) = text.split_once(" notin ") {
            (key, SelectorOp::NotIn, values(list))
        } else if let Some((key, list)) = text.split_once(" in ") {
            (key, SelectorOp::In, values(list))
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, SelectorOp::NotIn, values(value))
        } else if let Some((key, value)) = text.split_once('=') {
            (key, SelectorOp::In, values(value))
        } else if let Some(key) = text.strip_prefix('!') {
            (key, SelectorOp::DoesNotExist, Vec::new())
        } else {
            (text, SelectorOp::Exists, Vec::new())
        };
        NodeRequirement {
            key: key.into(),
            op,
            values,
        }
    };
    let labels = (text != "-").then(|| {
        text.split(',')
            .filter(|part| !part.is_empty())
            .map(requirement)
            .collect()
    });
    PodSelector { labels, namespaces }
}

/// `near app=a by zone`, `apart …`, `likes 5 …`, `spread 1 app=a by zone [min 3] [any nodes] [tolerated]`, joined by `;`.
fn relations(text: &str) -> Relations {
    let mut all = Relations::default();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (verb, rest) = part.split_once(' ').unwrap();
        let (number, rest) = match rest.split_once(' ').map(|(word, rest)| (word.parse::<i32>(), rest)) {
            Some((Ok(number), rest)) => (number, rest),
            _ => (1, rest),
        };
        let (pods, key) = rest.split_once("by ").unwrap();
        let mut words = key.split_whitespace();
        let term = PodTerm {
            pods: selector(pods.trim()),
            key: words.next().unwrap().into(),
        };
        let options: Vec<_> = words.collect();
        let min = options
            .iter()
            .position(|word| *word == "min")
            .map_or("1", |at| options[at + 1]);
        match verb {
            "near" => all.near.push(term),
            "apart" => all.apart.push(term),
            "likes" => all.preferred.push((number, term)),
            "spread" => all.spread.push(Spread {
                pods: term.pods,
                key: term.key,
                max_skew: i64::from(number),
                min_domains: min.parse().unwrap(),
                honor_affinity: !options.contains(&"any"),
                honor_taints: options.contains(&"tolerated"),
            }),
            _ => panic!("{verb}"),
        }
    }
    all
}

/// A pod with `labels` (`a=1 b=2`, in another namespace with `other/` before) and relations.
pub fn made(number: usize, labels: &str, text: &str) -> PodInput {
    let (namespace, labels) = labels.split_once('/').unwrap_or(("ns", labels));
    let mut made = pod(&group("g", "q", number), number, "0");
    made.pod = PodRef::new(namespace, &made.pod.name, &made.pod.uid);
    let pairs = labels.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    made.labels = pairs.into_iter().collect();
    let all = relations(text);
    made.relations = (all != Relations::default()).then(|| Arc::new(all));
    made
}

/// A model of nodes, pods that run (`n0`), leave (`n0!`) or are stuck in termination (`n0!!`), and pods that wait.
pub fn model_of(nodes: &[(&str, &str)], running: &[(&str, &str, &str)], waiting: Vec<PodInput>) -> Model {
    let mut engine = Engine::new(Policy {
        actions: Vec::new(),
        ..Policy::default()
    });
    for (name, labels) in nodes {
        engine.apply(Event::Node(Box::new(node(name, &format!("1 {labels}")))), NOW);
    }
    for (number, (on, labels, text)) in running.iter().enumerate() {
        let mut pod = placed(made(number, labels, text), on);
        pod.releasing_since = on.ends_with("!!").then_some(Time(0));
        engine.apply(Event::Pod(Box::new(pod)), NOW);
    }
    for pod in waiting {
        engine.apply(Event::Pod(Box::new(pod)), NOW);
    }
    engine.cycle(NOW);
    let model = engine.model;
    assert!(model.broken_rules().is_empty(), "{:?}", model.broken_rules());
    model
}

/// The same with one that waits.
fn cluster(nodes: &[(&str, &str)], running: &[(&str, &str, &str)], waiting: PodInput) -> (Model, PodId) {
    let uid = waiting.pod.uid.clone();
    let model = model_of(nodes, running, vec![waiting]);
    let pod = model.pods().iter().find(|(_, pod)| pod.input.pod.uid == uid).unwrap().0;
    (model, pod)
}

const NODES: [(&str, &str); 4] = [
    ("n0", "zone=a rack=1"),
    ("n1", "zone=a rack=2"),
    ("n2", "zone=b rack=1"),
    ("n3", ""),
];

/// A letter per node: free, near, apart, shunned, label missing, too many.
fn verdicts(nodes: &[(&str, &str)], running: &[(&str, &str, &str)], labels: &str, text: &str) -> String {
    let (model, pod) = cluster(nodes, running, made(99, labels, text));
    let spreading = Spreading::of(&model, pod);
    let letter = |id: NodeId| match clash(&model, pod, id) {
        Some(AffinityConflict::Affinity) => 'N',
        Some(AffinityConflict::AntiAffinity) => 'A',
        Some(AffinityConflict::ExistingAntiAffinity) => 'S',
        None => match spreading.as_ref().and_then(|spreading| spreading.clash(&model, id)) {
            Some(SpreadConflict::MissingLabel) => 'L',
            Some(SpreadConflict::Skew) => 'x',
            None => '.',
        },
    };
    model.by_name().iter().map(|id| letter(*id)).collect()
}

const fn a(on: &str) -> (&str, &str, &str) {
    (on, "app=a", "")
}

/// What it shows; pods that run (node, labels, relations); the waiting pod's labels and relations; verdicts.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str, &'static str)],
    &'static str,
    &'static str,
    &'static str,
);

#[test]
fn affinity_and_anti_affinity() {
    const CASES: &[Case] = &[
        ("no relations", &[a("n0")], "app=a", "", "...."),
        (
            "near a pod in its zone",
            &[a("n0")],
            "app=b",
            "near app=a by zone",
            "..NN",
        ),
        (
            "near a pod in its rack",
            &[a("n0")],
            "app=b",
            "near app=a by rack",
            ".N.N",
        ),
        (
            "near a pod on a node without the label",
            &[a("n3")],
            "app=b",
            "near app=a by zone",
            "NNNN",
        ),
        ("near nobody", &[], "app=b", "near app=a by zone", "NNNN"),
        ("the first of its kind", &[], "app=a", "near app=a by zone", "...N"),
        (
            "not the first of its kind",
            &[a("n2")],
            "app=a",
            "near app=a by zone",
            "NN.N",
        ),
        (
            "its kind where no label is",
            &[a("n3")],
            "app=a",
            "near app=a by zone",
            "...N",
        ),
        (
            "the first by two labels",
            &[],
            "app=a",
            "near app=a by zone; near app=a by rack",
            "...N",
        ),
        (
            "near by two labels",
            &[a("n0")],
            "app=a",
            "near app=a by zone; near app=a by rack",
            ".NNN",
        ),
        (
            "both terms must select the same pod",
            &[("n0", "app=a", ""), ("n0", "tier=x", "")],
            "app=b",
            "near app=a by zone; near tier=x by zone",
            "NNNN",
        ),
        (
            "one pod that both terms select",
            &[("n0", "app=a tier=x", "")],
            "app=b",
            "near app=a by zone; near tier=x by zone",
            "..NN",
        ),
        ("not near", &[a("n0")], "app=b", "apart app=a by zone", "AA.."),
        (
            "not near by host",
            &[a("n0")],
            "app=b",
            "apart app=a by kubernetes.io/hostname",
            "A...",
        ),
        ("not near nobody", &[], "app=a", "apart app=a by zone", "...."),
        (
            "not near, either term",
            &[a("n0"), ("n2", "app=c", "")],
            "app=b",
            "apart app=a by rack; apart app=c by zone",
            "A.A.",
        ),
        (
            "shunned by a pod",
            &[("n0", "app=a", "apart app=b by zone")],
            "app=b",
            "",
            "SS..",
        ),
        (
            "shunned, but it is another pod that is meant",
            &[("n0", "app=a", "apart app=b by zone")],
            "app=c",
            "",
            "....",
        ),
        (
            "shunned by host",
            &[("n3", "", "apart app by kubernetes.io/hostname")],
            "app=b",
            "",
            "...S",
        ),
        (
            "apart from its like",
            &[("n0", "app=a", "apart app=a by zone")],
            "app=a",
            "apart app=a by zone",
            "AA..",
        ),
        (
            "a pod that leaves still counts",
            &[("n0!", "app=a", "")],
            "app=b",
            "apart app=a by zone",
            "AA..",
        ),
        (
            "another namespace does not count",
            &[("n0", "other/app=a", "")],
            "app=b",
            "apart app=a by zone",
            "....",
        ),
        (
            "a named namespace counts",
            &[("n0", "other/app=a", "")],
            "app=b",
            "apart in other,x: app=a by zone",
            "AA..",
        ),
        (
            "any namespace counts",
            &[("n0", "other/app=a", "")],
            "app=b",
            "near anywhere: app=a by zone",
            "..NN",
        ),
        (
            "shunned across namespaces",
            &[("n0", "other/", "apart in ns: app=b by zone")],
            "app=b",
            "",
            "SS..",
        ),
        ("all pods", &[("n0", "", "")], "", "apart by zone", "AA.."),
        ("no pods", &[a("n0")], "", "apart - by zone", "...."),
        ("in a list", &[a("n0")], "", "apart app in b|a by rack", "A.A."),
        (
            "not in a list",
            &[a("n0"), ("n1", "app=c", "")],
            "",
            "apart app notin b|a by rack",
            ".A..",
        ),
        (
            "not equal, which pods without the label are",
            &[("n1", "", "")],
            "",
            "apart app!=a by rack",
            ".A..",
        ),
        ("with a label", &[a("n0")], "", "apart app by rack", "A.A."),
        (
            "without a label",
            &[a("n0"), ("n1", "x=y", "")],
            "",
            "apart !app by rack",
            ".A..",
        ),
        (
            "affinity goes before anti-affinity",
            &[a("n0")],
            "",
            "near app=a by zone; apart app=a by rack",
            "A.NN",
        ),
    ];
    for (what, running, labels, text, wanted) in CASES {
        assert_eq!(verdicts(&NODES, running, labels, text), *wanted, "{what}");
    }
}

#[test]
fn spreading() {
    const CASES: &[Case] = &[
        ("the first pod", &[], "app=a", "spread 1 app=a by zone", "...L"),
        (
            "the second goes to the other zone",
            &[a("n0")],
            "app=a",
            "spread 1 app=a by zone",
            "xx.L",
        ),
        (
            "the third goes anywhere",
            &[a("n0"), a("n2")],
            "app=a",
            "spread 1 app=a by zone",
            "...L",
        ),
        ("a skew of two", &[a("n0")], "app=a", "spread 2 app=a by zone", "...L"),
        (
            "beyond a skew of two",
            &[a("n0"), a("n1")],
            "app=a",
            "spread 2 app=a by zone",
            "xx.L",
        ),
        (
            "a pod that does not select itself",
            &[a("n0")],
            "app=b",
            "spread 1 app=a by zone",
            "...L",
        ),
        (
            "a pod that does not select itself, one more",
            &[a("n0"), a("n0")],
            "app=b",
            "spread 1 app=a by zone",
            "xx.L",
        ),
        (
            "other pods do not count",
            &[("n0", "app=b", "")],
            "app=a",
            "spread 1 app=a by zone",
            "...L",
        ),
        (
            "other namespaces do not count",
            &[("n0", "other/app=a", "")],
            "app=a",
            "spread 1 app=a by zone",
            "...L",
        ),
        (
            "pods that leave do not count",
            &[("n0!", "app=a", "")],
            "app=a",
            "spread 1 app=a by zone",
            "...L",
        ),
        (
            "pods on nodes without the label do not count",
            &[a("n3")],
            "app=a",
            "spread 1 app=a by zone",
            "...L",
        ),
        (
            "by host",
            &[a("n0")],
            "app=a",
            "spread 1 app=a by kubernetes.io/hostname",
            "x...",
        ),
        (
            "by host, all but one",
            &[a("n0"), a("n1"), a("n2")],
            "app=a",
            "spread 1 app=a by kubernetes.io/hostname",
            "xxx.",
        ),
        ("by rack", &[a("n0")], "app=a", "spread 1 app=a by rack", "x.xL"),
        (
            "two constraints",
            &[a("n0")],
            "app=a",
            "spread 1 app=a by zone; spread 1 app=a by rack",
            "xxxL",
        ),
        (
            "two constraints: nodes that lack one label count for neither",
            &[a("n0"), a("n3")],
            "app=a",
            "spread 2 app=a by zone; spread 1 app=a by kubernetes.io/hostname",
            "x..L",
        ),
        (
            "too few zones",
            &[a("n0"), a("n2")],
            "app=a",
            "spread 1 app=a by zone min 3",
            "xxxL",
        ),
        (
            "enough zones",
            &[a("n0"), a("n2")],
            "app=a",
            "spread 1 app=a by zone min 2",
            "...L",
        ),
        (
            "too few zones, but none taken",
            &[],
            "app=a",
            "spread 1 app=a by zone min 3",
            "...L",
        ),
        (
            "all pods of the namespace",
            &[("n0", "x=y", "")],
            "app=a",
            "spread 1 by zone",
            "xx.L",
        ),
        (
            "a selector that selects nothing",
            &[a("n0"), a("n0")],
            "app=a",
            "spread 1 - by zone",
            "...L",
        ),
        (
            "a label that no node has",
            &[],
            "app=a",
            "spread 1 app=a by row",
            "LLLL",
        ),
    ];
    for (what, running, labels, text, wanted) in CASES {
        assert_eq!(verdicts(&NODES, running, labels, text), *wanted, "{what}");
    }
}

#[test]
fn nodes_that_the_pod_may_not_use_do_not_count_unless_it_says_so() {
    let selected = |text: &str| {
        let mut waiting = made(99, "app=a", text);
        waiting.needs_mut().node_selector = vec![("rack".into(), "1".into())];
        let running = [("n1", "app=a", ""), ("n1", "app=a", "")];
        let (model, pod) = cluster(&NODES, &running, waiting);
        let spreading = Spreading::of(&model, pod).unwrap();
        let free = |id: &&NodeId| spreading.clash(&model, **id).is_none();
        model.by_name().iter().filter(free).count()
    };
    assert_eq!(selected("spread 1 app=a by zone"), 3);
    assert_eq!(selected("spread 1 app=a by zone any nodes"), 1);
}

#[test]
fn preferences_add_up_over_both_sides() {
    let scores = |running: &[(&str, &str, &str)], labels: &str, text: &str| -> Vec<i64> {
        let (model, pod) = cluster(&NODES, running, made(99, labels, text));
        let ids = model.by_name().iter();
        let scores: Vec<i64> = ids.map(|id| preference(&model, pod, *id)).collect();
        assert!(has_preferences(&model, pod) || scores.iter().all(|score| *score == 0));
        scores
    };
    let a = ("n0", "app=a", "");
    assert_eq!(scores(&[a], "app=b", "likes 10 app=a by zone"), [10, 10, 0, 0]);
    assert_eq!(scores(&[a, a], "app=b", "likes 10 app=a by zone"), [20, 20, 0, 0]);
    assert_eq!(scores(&[a], "app=b", "likes -10 app=a by rack"), [-10, 0, -10, 0]);
    assert_eq!(
        scores(&[("n0", "app=a", "likes 5 app=b by zone")], "app=b", ""),
        [5, 5, 0, 0]
    );
    assert_eq!(
        scores(
            &[("n0", "app=a", "likes 10 app=a by zone")],
            "app=a",
            "likes 10 app=a by zone"
        ),
        [20, 20, 0, 0]
    );
    assert_eq!(
        scores(
            &[("n0", "app=a", "likes -7 app=b by rack")],
            "app=b",
            "likes 2 app=a by zone"
        ),
        [-5, 2, -7, 0]
    );
    assert_eq!(
        scores(&[("n0", "app=a", "near app=b by zone")], "app=b", ""),
        [0, 0, 0, 0]
    );
}

fn selects(selector: &PodSelector, pod: &PodInput) -> bool {
    let meets = |one: &NodeRequirement| {
        let value = pod.labels.get(&one.key).map(Name::from);
        let value = value.as_ref();
        match one.op {
            SelectorOp::In => value.is_some_and(|value| one.values.contains(value)),
            SelectorOp::NotIn => value.is_none_or(|value| !one.values.contains(value)),
            SelectorOp::Exists => value.is_some(),
            SelectorOp::DoesNotExist => value.is_none(),
            SelectorOp::Gt | SelectorOp::Lt => unreachable!(),
        }
    };
    selector
        .namespaces
        .as_ref()
        .is_none_or(|all| all.contains(&pod.pod.namespace))
        && selector.labels.as_ref().is_some_and(|all| all.iter().all(meets))
}

/// kube-scheduler's affinity rules, by a scan of all pods.
fn reference(model: &Model, pod: PodId, node: NodeId) -> Option<AffinityConflict> {
    let label = |id: NodeId, key: &Name| model.nodes()[id].label(key);
    let together = |other: NodeId, key: &Name| label(node, key).is_some() && label(node, key) == label(other, key);
    let placed: Vec<(NodeId, &PodInput)> = model
        .pods()
        .iter()
        .filter(|(id, _)| *id != pod)
        .filter_map(|(_, other)| Some((other.state.hold.as_ref()?.node, &*other.input)))
        .collect();
    let pod = &model.pods()[pod].input;
    let none = Relations::default();
    let own = pod.relations.as_deref().unwrap_or(&none);
    let matching: Vec<_> = placed
        .iter()
        .filter(|(_, other)| own.near.iter().all(|term| selects(&term.pods, other)))
        .collect();
    let found = own
        .near
        .iter()
        .all(|term| matching.iter().any(|(at, _)| together(*at, &term.key)));
    let labelled = own.near.iter().all(|term| label(node, &term.key).is_some());
    let nobody = own
        .near
        .iter()
        .all(|term| !matching.iter().any(|(at, _)| label(*at, &term.key).is_some()));
    let first = nobody && own.near.iter().all(|term| selects(&term.pods, pod));
    if !(own.near.is_empty() || labelled && (found || first)) {
        return Some(AffinityConflict::Affinity);
    }
    let hit = |term: &PodTerm| {
        placed
            .iter()
            .any(|(at, other)| selects(&term.pods, other) && together(*at, &term.key))
    };
    if own.apart.iter().any(hit) {
        return Some(AffinityConflict::AntiAffinity);
    }
    let shuns = |(at, other): &(NodeId, &PodInput)| {
        let apart = other.relations.as_ref().map(|all| &all.apart);
        let mut apart = apart.into_iter().flatten();
        apart.any(|term| selects(&term.pods, pod) && together(*at, &term.key))
    };
    placed
        .iter()
        .any(shuns)
        .then_some(AffinityConflict::ExistingAntiAffinity)
}

/// kube-scheduler's spread rules, by a scan of all nodes and pods.
fn reference_spread(model: &Model, asking: PodId, node: NodeId) -> Option<SpreadConflict> {
    let waiting = &model.pods()[asking];
    let constraints = &model.classes()[waiting.class].constraints;
    let own = waiting.input.relations.as_deref()?;
    let label = |id: NodeId, key: &Name| model.nodes()[id].label(key).cloned();
    for one in &own.spread {
        let counts = |id: &&NodeId| {
            own.spread.iter().all(|other| label(**id, &other.key).is_some())
                && (!one.honor_affinity || constraints.selects(&model.nodes()[**id]))
                && (!one.honor_taints || constraints.tolerates(&model.nodes()[**id]))
        };
        let mut at_value = BTreeMap::new();
        for id in model.by_name().iter().filter(counts) {
            let there = model.pods().iter().filter(|(other, pod)| {
                let here = pod.state.hold.as_ref().is_some_and(|place| place.node == *id);
                // However long it terminates.
                let stays = pod.input.status != PodStatus::Releasing;
                *other != asking && here && stays && selects(&one.pods, &pod.input)
            });
            *at_value.entry(label(*id, &one.key)).or_insert(0) += there.count() as i64;
        }
        let fewest = if (at_value.len() as i64) < one.min_domains {
            0
        } else {
            at_value.values().copied().min().unwrap_or(0)
        };
        let Some(value) = label(node, &one.key) else {
            return Some(SpreadConflict::MissingLabel);
        };
        let there = at_value.get(&Some(value)).copied().unwrap_or(0);
        if there + i64::from(selects(&one.pods, &waiting.input)) - fewest > one.max_skew {
            return Some(SpreadConflict::Skew);
        }
    }
    None
}

pub fn random_pod() -> impl Strategy<Value = (usize, &'static str, String)> {
    let labels = prop::sample::select(vec!["", "app=a", "app=b", "app=a tier=x", "other/app=a", "tier=x"]);
    let selector = prop::sample::select(vec![
        "app=a",
        "app=b",
        "tier=x",
        "app",
        "!app",
        "app!=a",
        "",
        "-",
        "anywhere: app=a",
        "in other: app=a",
    ]);
    let verb = prop::sample::select(vec!["near", "apart", "likes 3", "likes -2", "spread 1", "spread 2"]);
    let more = prop::sample::select(vec!["", " min 3", " any nodes", " tolerated"]);
    let key = prop::sample::select(vec!["zone", "rack", "kubernetes.io/hostname"]);
    let relation = (verb, selector, key, more).prop_map(|(verb, selector, key, more)| {
        let more = if verb.starts_with("spread") { more } else { "" };
        format!("{verb} {selector} by {key}{more}")
    });
    (0..5_usize, labels, prop::collection::vec(relation, 0..3))
        .prop_map(|(on, labels, all)| (on, labels, all.join(";")))
}

#[test]
fn a_repeated_anti_affinity_term_does_not_exclude_the_pod_itself() {
    let running = [("n0", "app=a", "apart app by zone;apart app by zone")];
    let (model, _) = cluster(&[("n0", "zone=a")], &running, made(99, "", ""));
    let mine = model
        .pods()
        .iter()
        .find(|(_, other)| other.state.hold.is_some())
        .unwrap()
        .0;
    assert_eq!(clash(&model, mine, model.by_name()[0]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The counters give the same result as a scan of all pods.
    #[test]
    fn counters_equal_a_scan_of_all_pods(
        pods in prop::collection::vec((random_pod(), prop::sample::select(vec!["", "", "!", "!!"])), 1..12),
        waiting in random_pod(),
    ) {
        let nodes = [("n0", "zone=a rack=1"), ("n1", "zone=a rack=2"), ("n2", "zone=b rack=1"), ("n3", "rack=2"), ("n4", "zone=b")];
        let places: Vec<String> = pods.iter().map(|((on, ..), leaves)| format!("n{on}{leaves}")).collect();
        let running = pods.iter().zip(&places);
        let running: Vec<(&str, &str, &str)> =
            running.map(|(((_, labels, text), _), on)| (on.as_str(), *labels, text.as_str())).collect();
        let (model, pod) = cluster(&nodes, &running, made(99, waiting.1, &waiting.2));
        for pod in model.pods().ids().collect::<Vec<_>>() {
            let spreading = Spreading::of(&model, pod);
            for &id in model.by_name() {
                let found = spreading.as_ref().and_then(|spreading| spreading.clash(&model, id));
                prop_assert_eq!(found, reference_spread(&model, pod, id), "spread: {}", model.nodes()[id].name);
                prop_assert_eq!(preferences(&model, pod)[id.at()], preference(&model, pod, id));
            }
        }
        for &id in model.by_name() {
            prop_assert_eq!(clash(&model, pod, id), reference(&model, pod, id), "{}", model.nodes()[id].name);
        }
        // A running pod is not counted for its own node.
        let mine = model.pods().iter().find(|(_, other)| other.state.hold.is_some()).unwrap().0;
        for &id in model.by_name() {
            prop_assert_eq!(clash(&model, mine, id), reference(&model, mine, id), "itself on {}", model.nodes()[id].name);
        }
    }

    /// The counters stay equal to a recount while pods with other relations come and go, labels of pods and nodes change, and some of it happens between
    /// two cycles.
    #[test]
    fn counters_follow_what_changes(steps in prop::collection::vec(random_step(), 1..40)) {
        let mut engine = Engine::new(Policy { actions: Vec::new(), ..Policy::default() });
        for at in 0..5 {
            engine.apply(Event::Node(Box::new(node(&format!("n{at}"), "9 zone=a rack=1"))), NOW);
        }
        let placed = |number: usize, (on, labels, text): &(usize, &'static str, String)| {
            Event::Pod(Box::new(placed(made(number, labels, text), &format!("n{on}"))))
        };
        for step in &steps {
            match step {
                Step::Comes(number, pod) => engine.apply(placed(*number, pod), NOW),
                Step::Goes(number) => engine.apply(Event::PodGone(made(*number, "", "").pod.uid.clone()), NOW),
                Step::Relabels(at, labels) => {
                    engine.apply(Event::Node(Box::new(node(&format!("n{at}"), &format!("9 {labels}")))), NOW);
                }
                Step::Cycle => {
                    engine.cycle(NOW);
                }
            }
            prop_assert_eq!(engine.model.broken_rules(), BTreeMap::new());
        }
        engine.cycle(NOW);
        prop_assert_eq!(engine.model.broken_rules(), BTreeMap::new());
        let model = &engine.model;
        for (pod, _) in model.pods().iter() {
            for &id in model.by_name() {
                prop_assert_eq!(clash(model, pod, id), reference(model, pod, id));
            }
        }
    }
}

/// A change of a cluster.
#[derive(Clone, Debug)]
enum Step {
    /// A pod of this number is created, or changes.
    Comes(usize, (usize, &'static str, String)),
    Goes(usize),
    Relabels(usize, &'static str),
    Cycle,
}

fn random_step() -> impl Strategy<Value = Step> {
    let labels = prop::sample::select(vec!["", "zone=a", "zone=b rack=1", "rack=2", "zone=c rack=2"]);
    prop_oneof![
        4 => (0..8_usize, random_pod()).prop_map(|(number, pod)| Step::Comes(number, pod)),
        2 => (0..8_usize).prop_map(Step::Goes),
        1 => (0..5_usize, labels).prop_map(|(at, labels)| Step::Relabels(at, labels)),
        3 => Just(Step::Cycle),
    ]
}
