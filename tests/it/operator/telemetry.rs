//! The operator's metrics page, and its traces as a collector receives them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::routing::post;
use kube::api::DeleteParams;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;
use unikai::components::figures::families::{OF_OBJECTS, OF_THE_PROCESS};
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, Replica, eventually, gang, pod, queue};
use super::page::Page;

pub async fn scrape(replica: &Replica) -> Page {
    let answer = replica.get("/metrics").await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    Page::read(body)
}

const QUEUE: &[&str] = &["queue_name", "queue_metadata_name", "queue_display_name"];

/// KAI's metrics without their prefix, with their labels: dashboards use them.
#[rustfmt::skip]
const OF_KAI: [(&str, &str, &[&str]); 34] = [
    ("gauge", "e2e_scheduling_latency_milliseconds", &[]),
    ("gauge", "open_session_latency_milliseconds", &[]),
    ("gauge", "close_session_latency_milliseconds", &[]),
    ("gauge", "plugin_scheduling_latency_milliseconds", &["plugin", "OnSession"]),
    ("gauge", "action_scheduling_latency_milliseconds", &["action"]),
    ("histogram", "task_scheduling_latency_milliseconds", &[]),
    ("histogram", "task_bind_latency_milliseconds", &[]),
    ("counter", "podgroups_scheduled_by_action", &["action"]),
    ("counter", "podgroups_acted_on_by_action", &["action"]),
    ("counter", "scenarios_simulation_by_action", &["action"]),
    ("counter", "scenarios_filtered_by_action", &["action"]),
    ("counter", "total_preemption_attempts", &[]),
    ("gauge", "queue_fair_share_cpu_cores", QUEUE),
    ("gauge", "queue_fair_share_memory_gb", QUEUE),
    ("gauge", "queue_fair_share_gpu", QUEUE),
    ("gauge", "queue_cpu_usage", QUEUE),
    ("gauge", "queue_memory_usage", QUEUE),
    ("gauge", "queue_gpu_usage", QUEUE),
    ("histogram", "usage_query_latency_milliseconds", &[]),
    ("counter", "pod_group_evicted_pods_total", &["podgroup", "namespace", "uid", "nodepool", "action"]),
    ("counter", "scenario_search_jobs_total", &["action", "result", "reduced_budget"]),
    ("histogram", "scenario_search_duration_seconds", &["action", "generator", "result"]),
    ("counter", "scenario_search_scenarios_total", &["action", "generator", "state"]),
    ("gauge", "scenario_search_action_budget_configured_seconds", &["action"]),
    ("gauge", "scenario_search_job_budget_configured_seconds", &[]),
    ("gauge", "scenario_search_generator_budget_configured_seconds", &["generator"]),
    ("counter", "scenario_search_action_budget_exhausted_total", &["action"]),
    ("gauge", "queue_info", QUEUE),
    ("gauge", "queue_deserved_gpus", QUEUE),
    ("gauge", "queue_quota_cpu_cores", QUEUE),
    ("gauge", "queue_quota_memory_bytes", QUEUE),
    ("gauge", "queue_allocated_gpus", QUEUE),
    ("gauge", "queue_allocated_cpu_cores", QUEUE),
    ("gauge", "queue_allocated_memory_bytes", QUEUE),
];

#[test]
fn all_metrics_of_kai_exist_with_their_names_and_labels() {
    let all: BTreeMap<_, _> = OF_THE_PROCESS
        .iter()
        .chain(OF_OBJECTS)
        .map(|family| (family.name, family))
        .collect();
    for (kind, name, labels) in OF_KAI {
        let family = all
            .get(&*format!("kai_{name}"))
            .unwrap_or_else(|| panic!("{name} is missing"));
        let own: Vec<_> = family.labels.iter().map(|(label, _)| *label).collect();
        assert_eq!((family.kind.as_str(), &*own), (kind, labels), "{name}");
    }
    let ours = all.keys().filter(|name| name.starts_with("kai_")).count();
    assert_eq!(ours, OF_KAI.len(), "nothing of ours goes under KAI's prefix");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_of_a_busy_operator_holds_every_metric_with_its_labels() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    for (name, pool) in [("default", ""), ("blue", "blue")] {
        let spec = json!({"partitionLabelValue": pool});
        lab.create(json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": name}, "spec": spec}))
            .await
            .unwrap();
    }
    let flags = [
        "--queue-label-to-metric-label",
        "team=owner",
        "--queue-label-to-default-metric-value",
        "team=nobody",
        "--self-check-interval",
        "1",
    ];
    let operator = lab.replica_with("one", &flags).await;
    operator.leads().await;
    lab.apply(&queue("passing", Some("default"))).await;
    let mut low = pod("low", 8);
    low["spec"]["priorityClassName"] = json!("train");
    lab.create(low).await.unwrap();
    lab.runs("low").await;
    let mut high = pod("high", 8);
    high["spec"]["priorityClassName"] = json!("build");
    lab.create(high).await.unwrap();
    lab.runs("high").await;
    lab.create(pod("waits", 8)).await.unwrap();
    lab.unschedulable("waits").await;

    let test = [("queue_metadata_name", "test")];
    let page = eventually("the queue's figures are those of the pod that runs", async || {
        let page = scrape(&operator).await;
        let figures = ["kai_queue_allocated_gpus", "kai_queue_fair_share_gpu"].map(|name| page.values(name, &test));
        let right =
            figures == [[8.0], [8.0]] && !page.values("kai_queue_info", &[("queue_name", "passing")]).is_empty();
        let right = right && page.values("unikai_queue_pending_pod_groups", &test) == [1.0];
        let right = right && page.values("unikai_pool_leader", &[("node_pool", "blue")]) == [1.0];
        let right = right && page.samples.contains_key("unikai_self_checks_total");
        if right { Ok(page) } else { Err(format!("{figures:?}")) }
    })
    .await;

    for family in OF_THE_PROCESS.iter().chain(OF_OBJECTS) {
        let own: BTreeSet<_> = family.labels.iter().map(|(label, _)| *label).collect();
        let (name, extra) = match family.kind.as_str() {
            "histogram" => (format!("{}_bucket", family.name), "le"),
            _ => (family.name.to_owned(), "owner"),
        };
        let samples = page.samples.get(&name);
        // There were no faults, so families that count faults by kind have no series.
        let kind = ("kind", &[] as &[&str]);
        let mishaps = family.labels == [kind] || family.labels == [("shard", &[] as &[&str]), kind];
        assert!(samples.is_some() || mishaps, "{name} is missing");
        for (labels, _) in samples.into_iter().flatten() {
            let labels: BTreeSet<_> = labels
                .keys()
                .map(String::as_str)
                .filter(|label| *label != extra)
                .collect();
            assert_eq!(labels, own, "{name}");
        }
    }
    let evicted = [("namespace", "team"), ("nodepool", "default"), ("action", "preempt")];
    assert_eq!(page.values("kai_pod_group_evicted_pods_total", &evicted), [1.0]);
    assert_eq!(
        page.values("kai_podgroups_scheduled_by_action", &[("action", "preempt")]),
        [1.0]
    );
    assert_eq!(page.values("kai_total_preemption_attempts", &[]), [1.0]);
    assert_eq!(
        page.values("kai_queue_info", &[("queue_name", "test"), ("owner", "nobody")]),
        [1.0]
    );
    assert_eq!(page.values("kai_queue_deserved_gpus", &test), [-1.0]);
    assert!(page.values("kai_task_scheduling_latency_milliseconds_count", &[])[0] >= 2.0);
    assert!(page.values("kai_task_bind_latency_milliseconds_count", &[])[0] >= 2.0);
    let jobs = [("action", "preempt"), ("result", "solved")];
    assert!(page.values("kai_scenario_search_jobs_total", &jobs)[0] >= 1.0);
    assert!(
        page.values(
            "unikai_api_writes_total",
            &[("resource", "pods/binding"), ("code", "201")]
        )[0] >= 2.0
    );

    lab.queues()
        .delete("passing", &DeleteParams::default())
        .await
        .expect("deleted");
    eventually("the series of a queue go with it", async || {
        let page = scrape(&operator).await;
        let left: Vec<_> = OF_OBJECTS
            .iter()
            .filter(|family| {
                !page
                    .values(family.name, &[("queue_metadata_name", "passing")])
                    .is_empty()
            })
            .map(|family| family.name)
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    operator.assert_no_errors();
}

/// A collector that keeps what it is sent.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    async fn start() -> Self {
        let spans = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&spans);
        let take = move |body: Bytes| async move {
            let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
            let scopes = request.resource_spans.into_iter().flat_map(|of| of.scope_spans);
            kept.lock().unwrap().extend(scopes.flat_map(|of| of.spans));
        };
        let router = axum::Router::new().route("/v1/traces", post(take));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, spans }
    }

    fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Attribute::StringValue(text)) => text,
        Some(Attribute::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn below<'a>(spans: &'a [Span], parent: &Span, name: &str) -> Vec<&'a Span> {
    let fits = |span: &&Span| span.parent_span_id == parent.span_id && span.name == name;
    let mut found: Vec<_> = spans.iter().filter(fits).collect();
    found.sort_by_key(|span| span.start_time_unix_nano);
    for span in &found {
        assert_eq!(span.trace_id, parent.trace_id, "{name}");
        let inside = parent.start_time_unix_nano <= span.start_time_unix_nano
            && span.start_time_unix_nano <= span.end_time_unix_nano
            && span.end_time_unix_nano <= parent.end_time_unix_nano;
        assert!(inside, "{name} is not within {}", parent.name);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_workload_shows_its_stages_from_first_seen_to_bound() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8), NodeSpec::gpu("gpu-2", 8)]).await;
    let collector = Collector::start().await;
    let mut operator = lab.replica_with("one", &["--otlp-endpoint", &collector.url]).await;
    operator.leads().await;
    lab.create(pod("blocker", 1)).await.unwrap();
    lab.runs("blocker").await;
    lab.create(gang("train", 2, 8)).await.unwrap();
    let members = eventually("both pods exist", async || {
        let pods = lab.all_pods().await;
        let names: Vec<_> = pods.into_iter().filter_map(|pod| pod.metadata.name).collect();
        let names: Vec<_> = names.into_iter().filter(|name| name.starts_with("train-")).collect();
        if names.len() == 2 {
            Ok(names)
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
    lab.unschedulable(&members[0]).await;
    // A bind that is open at shutdown is finished, and its spans are exported.
    let faults = lab.server.faults();
    let late = faults.add(
        Match::bindings(),
        Effect::Delay(Duration::from_millis(500)),
        Times::Always,
    );
    lab.delete_pod("blocker").await;
    eventually("both are being bound", async || {
        let bindings = faults.struck(late);
        (bindings == 2).then_some(()).ok_or_else(|| format!("{bindings} are"))
    })
    .await;
    operator.signal("TERM");
    operator.ends_well().await;
    lab.running(2).await;

    let spans = collector.spans();
    let roots = spans.iter().filter(|span| span.parent_span_id.is_empty());
    let (cycles, workloads): (Vec<_>, Vec<_>) = roots.partition(|span| span.name == "cycle");
    let named: BTreeMap<_, _> = workloads
        .iter()
        .map(|span| (attribute(span, "unikai.pod_group"), *span))
        .collect();
    assert_eq!(named.len(), workloads.len(), "one trace for each workload");
    let (_, train) = named
        .iter()
        .find(|(name, _)| name.starts_with("pg-train-"))
        .unwrap_or_else(|| {
            panic!(
                "the gang's trace is not among {:?}, of {} spans",
                named.keys(),
                spans.len()
            )
        });
    assert_eq!(
        (train.name.as_str(), &*attribute(train, "unikai.queue")),
        ("workload", "test")
    );

    let [group] = below(&spans, train, "group")[..] else {
        panic!("one grouping")
    };
    let [queue] = below(&spans, train, "queue")[..] else {
        panic!("one wait")
    };
    assert!(group.start_time_unix_nano == train.start_time_unix_nano);
    assert!(group.end_time_unix_nano <= queue.start_time_unix_nano);
    let attempts = below(&spans, queue, "attempt");
    let outcomes: Vec<_> = attempts.iter().map(|span| attribute(span, "unikai.outcome")).collect();
    assert!(outcomes.len() >= 2 && outcomes[0] == "unschedulable", "{outcomes:?}");
    assert_eq!(outcomes.last().map(String::as_str), Some("bound"));
    assert!(
        attempts
            .iter()
            .any(|span| attribute(span, "unikai.reason").contains("GPU"))
    );
    for attempt in &attempts {
        let [link] = &attempt.links[..] else {
            panic!("a link to the cycle")
        };
        assert!(
            cycles.iter().any(|cycle| cycle.span_id == link.span_id),
            "the cycle is told of"
        );
    }
    let binds = below(&spans, train, "bind");
    let bound: BTreeSet<_> = binds.iter().map(|span| attribute(span, "k8s.pod.name")).collect();
    assert_eq!(bound, members.iter().cloned().collect());
    for bind in binds {
        assert_eq!(below(&spans, bind, "post binding").len(), 1);
    }

    let placing = attempts
        .last()
        .and_then(|attempt| attempt.links.first())
        .expect("the cycle that placed it");
    let cycle = cycles
        .iter()
        .find(|cycle| cycle.span_id == placing.span_id)
        .expect("its span");
    for step in ["prepare", "divide", "allocate", "finish"] {
        assert_eq!(below(&spans, cycle, step).len(), 1, "{step}");
    }
    operator.assert_no_errors();
}
