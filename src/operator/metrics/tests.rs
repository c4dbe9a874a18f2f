use std::collections::{BTreeMap, BTreeSet};

use crate::components::figures::families::{OF_OBJECTS, QUEUE_INFO};

use super::*;

/// KAI's metric names, kinds and labels.
const KAI_S: &[(&str, &str, &[&str])] = &[
    ("e2e_scheduling_latency_milliseconds", "gauge", &[]),
    ("open_session_latency_milliseconds", "gauge", &[]),
    ("close_session_latency_milliseconds", "gauge", &[]),
    (
        "plugin_scheduling_latency_milliseconds",
        "gauge",
        &["plugin", "OnSession"],
    ),
    ("action_scheduling_latency_milliseconds", "gauge", &["action"]),
    ("task_scheduling_latency_milliseconds", "histogram", &[]),
    ("task_bind_latency_milliseconds", "histogram", &[]),
    ("podgroups_scheduled_by_action", "counter", &["action"]),
    ("podgroups_acted_on_by_action", "counter", &["action"]),
    ("scenarios_simulation_by_action", "counter", &["action"]),
    ("scenarios_filtered_by_action", "counter", &["action"]),
    ("total_preemption_attempts", "counter", &[]),
    ("queue_fair_share_cpu_cores", "gauge", QUEUE_LABELS),
    ("queue_fair_share_memory_gb", "gauge", QUEUE_LABELS),
    ("queue_fair_share_gpu", "gauge", QUEUE_LABELS),
    ("queue_cpu_usage", "gauge", QUEUE_LABELS),
    ("queue_memory_usage", "gauge", QUEUE_LABELS),
    ("queue_gpu_usage", "gauge", QUEUE_LABELS),
    ("usage_query_latency_milliseconds", "histogram", &[]),
    (
        "pod_group_evicted_pods_total",
        "counter",
        &["podgroup", "namespace", "uid", "nodepool", "action"],
    ),
    (
        "scenario_search_jobs_total",
        "counter",
        &["action", "result", "reduced_budget"],
    ),
    (
        "scenario_search_duration_seconds",
        "histogram",
        &["action", "generator", "result"],
    ),
    (
        "scenario_search_scenarios_total",
        "counter",
        &["action", "generator", "state"],
    ),
    ("scenario_search_action_budget_configured_seconds", "gauge", &["action"]),
    ("scenario_search_job_budget_configured_seconds", "gauge", &[]),
    (
        "scenario_search_generator_budget_configured_seconds",
        "gauge",
        &["generator"],
    ),
    ("scenario_search_action_budget_exhausted_total", "counter", &["action"]),
    ("queue_info", "gauge", QUEUE_LABELS),
    ("queue_deserved_gpus", "gauge", QUEUE_LABELS),
    ("queue_quota_cpu_cores", "gauge", QUEUE_LABELS),
    ("queue_quota_memory_bytes", "gauge", QUEUE_LABELS),
    ("queue_allocated_gpus", "gauge", QUEUE_LABELS),
    ("queue_allocated_cpu_cores", "gauge", QUEUE_LABELS),
    ("queue_allocated_memory_bytes", "gauge", QUEUE_LABELS),
];
const QUEUE_LABELS: &[&str] = &["queue_name", "queue_metadata_name", "queue_display_name"];

#[test]
fn every_metric_of_kai_is_there_with_its_kind_and_labels() {
    let ours: BTreeMap<_, _> = OF_THE_PROCESS
        .iter()
        .chain(OF_OBJECTS)
        .map(|family| (family.name, family))
        .collect();
    for (name, kind, labels) in KAI_S {
        let family = ours
            .get(&*format!("kai_{name}"))
            .unwrap_or_else(|| panic!("{name} is missing"));
        let own: Vec<_> = family.labels.iter().map(|(label, _)| *label).collect();
        assert_eq!((family.kind.as_str(), &*own), (*kind, *labels), "{name}");
    }
    let promised = ours.keys().filter(|name| name.starts_with("kai_")).count();
    assert_eq!(promised, KAI_S.len(), "nothing else takes KAI's prefix");
}

#[test]
fn the_page_has_every_family_with_its_help_before_anything_has_happened() {
    let figures = Figures::default();
    figures.set(&QUEUE_INFO, "a", &[("queue_name", "a")], 1.0);
    let page = Page::new(figures, watch::channel(KAI.to_owned()).1).render();
    let typed: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    for family in OF_THE_PROCESS.iter().chain(OF_OBJECTS) {
        let open = family.labels.iter().any(|(_, values)| values.is_empty());
        let of_object = OF_OBJECTS.iter().any(|of| of.name == family.name);
        assert!(
            typed.contains(family.name) || (open && !of_object),
            "{} is missing",
            family.name
        );
    }
    assert!(
        page.contains("kai_scenario_search_jobs_total{action=\"reclaim\",result=\"solved\",reduced_budget=\"false\"}")
    );
}

#[test]
fn the_prefix_of_kai_can_be_another() {
    let figures = Figures::default();
    figures.set(&QUEUE_INFO, "a", &[("queue_name", "kai_a")], 1.0);
    let page = Page::new(figures, watch::channel("acme".to_owned()).1).render();
    assert!(page.contains("# TYPE acme_queue_info gauge\nacme_queue_info{queue_name=\"kai_a\"} 1\n"));
    assert!(!page.lines().any(|line| line.starts_with("kai_")));
    assert!(page.contains("\nunikai_cycles_total "));
}

#[test]
fn clients_that_do_not_read_their_pages_take_limited_memory() {
    let (_namespace, followed) = watch::channel(KAI.to_owned());
    let page = Page::new(Figures::default(), followed);
    let mut unread: Vec<_> = std::iter::from_fn(|| page.text()).take(1_000).collect();
    assert_eq!(unread.len(), UNREAD);
    assert!(page.text().is_none());
    unread.pop();
    assert!(page.text().is_some(), "one has been read");
}
