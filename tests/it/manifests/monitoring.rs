//! Alerts and dashboard: what they ask for exists, each alert has its section in the runbook, and the rules do what they are meant to do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use unikai::components::figures::families::{Family, Kind, OF_OBJECTS, OF_THE_PROCESS};

use super::{monitoring, printed, texts_under};

fn dashboard() -> Value {
    let dashboard = monitoring("dashboard");
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    serde_json::from_str(dashboard["data"]["unikai.json"].as_str().unwrap()).unwrap()
}

/// All queries of alerts and dashboard.
fn queries() -> Vec<String> {
    let (dashboard, alerts) = (dashboard(), monitoring("alerts"));
    let mut asked = Vec::new();
    texts_under(&dashboard, "expr", &mut asked);
    let panels = asked.len();
    texts_under(&alerts, "expr", &mut asked);
    assert!(panels > 30 && asked.len() >= panels + 15);
    asked.into_iter().map(str::to_owned).collect()
}

fn families() -> BTreeMap<&'static str, &'static Family> {
    let all = OF_THE_PROCESS.iter().chain(OF_OBJECTS);
    all.map(|family| (family.name, family)).collect()
}

/// The selectors of a query: a metric, and what stands in the braces behind it.
fn selectors(query: &str) -> Vec<(&str, &str)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for start in ["kai_", "unikai_"] {
        for (at, _) in query.match_indices(start) {
            if at > 0 && query[..at].ends_with(is_word) {
                continue;
            }
            let rest = &query[at..];
            let (name, behind) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            let inside = behind.strip_prefix('{').and_then(|inside| inside.split_once('}'));
            found.push((name, inside.map_or("", |(inside, _)| inside)));
        }
    }
    found
}

#[test]
fn dashboard_and_alerts_query_existing_metrics_and_labels() {
    let families = families();
    for query in queries() {
        let selectors = selectors(&query);
        assert!(!selectors.is_empty(), "{query}");
        for (name, labels) in selectors {
            let bucket = name.strip_suffix("_bucket");
            let family = families.get(bucket.unwrap_or(name));
            let family = family.unwrap_or_else(|| panic!("there is no {name}: {query}"));
            assert_eq!(bucket.is_some(), family.kind == Kind::Histogram, "{query}");
            for matcher in labels.split(',').filter(|matcher| !matcher.is_empty()) {
                let (label, value) = matcher.split_at(matcher.find(['=', '!']).unwrap());
                let known = family.labels.iter().find(|(own, _)| *own == label);
                let (_, values) = known.unwrap_or_else(|| panic!("{name} has no label {label}: {query}"));
                // Patterns are left out.
                let plain = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || "_ ".contains(c));
                let value = value.trim_start_matches(['=', '!', '~']).trim_matches('"');
                for word in value.split('|').filter(plain).filter(|_| !values.is_empty()) {
                    assert!(values.contains(&word), "{label} of {name} is never {word}: {query}");
                }
            }
        }
    }
}

#[test]
fn every_alert_has_its_section_in_the_runbook_and_every_section_its_alert() {
    let rules = monitoring("alerts");
    let rules = rules["spec"]["groups"][0]["rules"].as_array().unwrap();
    let runbook = include_str!("../../../docs/runbook.md");
    let sections: BTreeMap<_, _> = runbook
        .split("\n## ")
        .skip(1)
        .map(|section| section.split_once('\n').expect("a text below the heading"))
        .collect();
    let mut alerts = BTreeSet::new();
    for rule in rules {
        let (alert, annotations) = (rule["alert"].as_str().unwrap(), &rule["annotations"]);
        alerts.insert(alert);
        let link = format!("docs/runbook.md#{}", alert.to_lowercase());
        assert_eq!(annotations["runbook"], link.as_str(), "{alert}");
        for said in ["summary", "description"] {
            assert!(
                annotations[said].as_str().is_some_and(|text| text.ends_with('.')),
                "{alert}"
            );
        }
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{alert}");
        let section = sections
            .get(alert)
            .unwrap_or_else(|| panic!("{alert} is not in docs/runbook.md"));
        assert!(
            section.contains("\n- Look: ") && section.contains("\n- Do: "),
            "{alert}"
        );
    }
    assert_eq!(alerts, sections.keys().copied().collect());
}

#[test]
fn panels_do_not_overlap_and_have_unique_ids() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut cells = BTreeMap::new();
    let mut numbers = BTreeSet::new();
    for panel in panels {
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                let before = cells.insert((x, y), &panel["title"]);
                assert!(x < 24 && before.is_none(), "{} is on {before:?}", panel["title"]);
            }
        }
    }
}

/// With Prometheus's own tool, where it is installed: Debian has it in the package prometheus.
#[test]
fn the_alert_rules_fire_on_their_test_series() {
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("no promtool: not tried");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = serde_yaml_ng::to_string(&monitoring("alerts")["spec"]).unwrap();
    std::fs::write(folder.path().join("rules.yaml"), rules).unwrap();
    std::fs::write(folder.path().join("tests.yaml"), include_str!("alerts.yaml")).unwrap();
    let path = |name: &str| Path::join(folder.path(), name).to_str().unwrap().to_owned();
    printed("promtool", &["check", "rules", &path("rules.yaml")]);
    printed("promtool", &["test", "rules", &path("tests.yaml")]);
}
