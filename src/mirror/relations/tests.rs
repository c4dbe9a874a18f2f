use super::*;

fn pod(spec: &str) -> Pod {
    serde_yaml_ng::from_str(&format!(
        "{{metadata: {{name: p, namespace: ns, uid: u, labels: {{app: a, hash: h1}}}}, spec: {spec}}}"
    ))
    .expect("a pod")
}

fn relations(spec: &str, namespaces: &Namespaces) -> Relations {
    let pod = pod(spec);
    read(&pod, namespaces).unwrap_or_default()
}

fn known(all: &[(&str, &str)]) -> Namespaces {
    let mut namespaces = Namespaces::default();
    for (name, labels) in all {
        let text = format!("{{metadata: {{name: {name}, labels: {{{labels}}}}}}}");
        namespaces.put(&serde_yaml_ng::from_str(&text).expect("a namespace"));
    }
    namespaces
}

fn names(term: &PodTerm) -> Option<Vec<&str>> {
    let namespaces = term.pods.namespaces.as_ref()?;
    Some(namespaces.iter().map(|name| &**name).collect())
}

#[test]
fn a_term_applies_to_the_pods_namespace_unless_it_names_others() {
    let namespaces = known(&[
        ("ns", ""),
        ("other", "team: blue"),
        ("third", "team: blue, x: y"),
        ("red", "team: red"),
    ]);
    let term = |extra: &str| {
        let spec = format!(
            "{{affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: zone, labelSelector: {{}}{extra}}}]}}}}}}"
        );
        relations(&spec, &namespaces).apart.remove(0)
    };
    assert_eq!(names(&term("")), Some(vec!["ns"]));
    assert_eq!(names(&term(", namespaces: [x, other]")), Some(vec!["other", "x"]));
    assert_eq!(names(&term(", namespaceSelector: {}")), None);
    assert_eq!(
        names(&term(", namespaceSelector: {matchLabels: {team: blue}}")),
        Some(vec!["other", "third"])
    );
    assert_eq!(
        names(&term(
            ", namespaces: [red], namespaceSelector: {matchExpressions: [{key: x, operator: Exists}]}"
        )),
        Some(vec!["red", "third"])
    );
    assert_eq!(
        names(&term(
            ", namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [blue]}]}"
        )),
        Some(vec!["ns", "red"])
    );
    assert_eq!(
        names(&term(
            ", namespaceSelector: {matchExpressions: [{key: x, operator: Like}]}"
        )),
        Some(vec![])
    );
}

#[test]
fn what_a_term_selects_follows_the_namespaces() {
    let mut namespaces = known(&[("ns", ""), ("one", "team: blue")]);
    let spec = "{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
        {topologyKey: zone, labelSelector: {}, namespaces: [listed], namespaceSelector: {matchLabels: {team: blue}}},
        {topologyKey: zone, labelSelector: {}, namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}]}}}";
    let selected = |namespaces: &Namespaces| {
        let terms = relations(spec, namespaces).apart;
        let names = terms.iter().map(|term| names(term).unwrap_or_default().join(" "));
        names.collect::<Vec<_>>()
    };
    let namespace = |text: &str| serde_yaml_ng::from_str(&format!("{{metadata: {{{text}}}}}")).expect("a namespace");
    assert_eq!(selected(&namespaces), ["listed one", "ns"]);
    for (text, there, after) in [
        ("name: two, labels: {team: blue}", true, ["listed one two", "ns"]),
        ("name: one, labels: {team: red}", true, ["listed two", "ns"]),
        ("name: one", true, ["listed two", "ns one"]),
        ("name: listed, labels: {team: red}", true, ["listed two", "ns one"]),
        ("name: listed", false, ["listed two", "ns one"]),
        ("name: two", false, ["listed", "ns one"]),
    ] {
        if there {
            namespaces.put(&namespace(text));
        } else {
            namespaces.remove(&namespace(text));
        }
        assert_eq!(selected(&namespaces), after, "{text}");
    }
}

#[test]
fn required_and_preferred_terms_with_their_weights() {
    let all = relations(
        "{affinity: {
           podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {matchLabels: {app: b}}}],
             preferredDuringSchedulingIgnoredDuringExecution: [{weight: 7, podAffinityTerm: {topologyKey: zone}}]},
           podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 9, podAffinityTerm: {topologyKey: zone, labelSelector: {matchExpressions: [{key: k, operator: Bad}]}}}]}}}",
        &Namespaces::default(),
    );
    assert_eq!(&*all.near[0].key, "rack");
    assert_eq!(all.near[0].pods.labels, Some(vec![listed("app", "b")]));
    let weights: Vec<_> = all
        .preferred
        .iter()
        .map(|(weight, term)| (*weight, term.pods.labels.is_some()))
        .collect();
    assert_eq!(weights, [(7, false), (-9, false)]);
}

#[test]
fn spread_constraints_that_bind() {
    let all = relations(
        "{topologySpreadConstraints: [
           {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 3, nodeTaintsPolicy: Honor, labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [hash, absent]},
           {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}},
           {maxSkew: 1, topologyKey: host, whenUnsatisfiable: DoNotSchedule, nodeAffinityPolicy: Ignore}]}",
        &Namespaces::default(),
    );
    let [first, second] = &*all.spread else {
        panic!("{all:?}")
    };
    assert_eq!(first.pods.labels, Some(vec![listed("app", "a"), listed("hash", "h1")]));
    assert_eq!(
        (
            first.max_skew,
            first.min_domains,
            first.honor_affinity,
            first.honor_taints
        ),
        (2, 3, true, true)
    );
    assert_eq!(
        (second.pods.labels.is_none(), second.min_domains, second.honor_affinity),
        (true, 1, false)
    );
}

#[test]
fn a_pod_without_relations_has_none() {
    let pod = pod("{affinity: {nodeAffinity: {}}}");
    assert_eq!(read(&pod, &Namespaces::default()), None);
    assert!(!selects_namespaces(pod.spec().unwrap()));
}
