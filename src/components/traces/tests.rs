use std::sync::Mutex;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};

use super::*;
use crate::components::bus::PodRef;

/// Keeps the spans that ended.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

fn pod(name: &str) -> PodRef {
    PodRef::new("team", name, name)
}

fn gang() -> GroupKey {
    GroupKey::new("team", "gang")
}

fn seen(name: &str, second: u64) -> TraceEvent {
    TraceEvent::Pod {
        pod: pod(name),
        group: Some(gang()),
        at: at(second),
    }
}

fn bound(name: &str, began: u64, ended: u64) -> TraceEvent {
    TraceEvent::Bound(Box::new(BindSeen {
        pod: pod(name),
        group: gang(),
        node: "node".into(),
        began: at(began),
        ended: at(ended),
        steps: Vec::new(),
        failed: None,
    }))
}

/// The spans of what is seen: name, begin and end in seconds, in the order in which they ended.
fn spans(trace_events: impl IntoIterator<Item = TraceEvent>) -> Vec<(String, u64, u64)> {
    spans_and_recorder(trace_events).0
}

fn spans_and_recorder(trace_events: impl IntoIterator<Item = TraceEvent>) -> (Vec<(String, u64, u64)>, Recorder) {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let mut recorder = Recorder::new(provider.tracer("test"));
    trace_events.into_iter().for_each(|event| recorder.take(event));
    let second = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let ended = kept.0.lock().unwrap();
    let spans = ended
        .iter()
        .map(|span| (span.name.to_string(), second(span.start_time), second(span.end_time)))
        .collect();
    (spans, recorder)
}

#[test]
fn the_trace_of_a_workload_ends_with_its_last_bind_in_any_order_of_events() {
    for ends in [[5, 6], [6, 5]] {
        let spans = spans([
            seen("a", 1),
            seen("b", 2),
            bound("a", 3, ends[0]),
            bound("b", 3, ends[1]),
        ]);
        let of = |name: &str| {
            let of = spans.iter().filter(|(other, ..)| other == name);
            of.map(|&(_, began, ended)| (began, ended)).collect::<Vec<_>>()
        };
        assert_eq!(of("bind"), [(3, ends[0]), (3, ends[1])]);
        assert_eq!((of("workload"), of("queue")), (vec![(1, 6)], vec![(1, 6)]));
    }
}

/// The event about their deletion was dropped, as the inbox was full.
#[test]
fn workloads_that_are_gone_do_not_take_the_place_of_others_for_ever() {
    let hour = 60 * 60;
    let of_another = |number: usize| TraceEvent::Pod {
        pod: pod(&format!("pod-{number}")),
        group: Some(GroupKey::new("team", &format!("gone-{number}"))),
        at: at(1),
    };
    let begun = [
        seen("too-early", hour),
        seen("a", hour + 700),
        bound("a", hour + 701, hour + 702),
    ];
    let all = (0..WORKLOADS_MAX).map(of_another).chain(begun);
    let (spans, recorder) = spans_and_recorder(all);
    let ends = |began: u64, ended: u64| {
        let workloads = spans.iter().filter(|(name, ..)| name == "workload");
        workloads.filter(|span| (span.1, span.2) == (began, ended)).count()
    };
    assert_eq!(ends(1, 1), WORKLOADS_MAX, "they end when they were last seen");
    assert_eq!(ends(hour + 700, hour + 702), 1);
    assert!(recorder.workloads.is_empty() && recorder.waiting.is_empty());
}

#[test]
fn a_workload_that_waits_for_long_keeps_its_trace_while_there_are_attempts() {
    let hour = 60 * 60;
    let of_another = |number: usize| TraceEvent::Pod {
        pod: pod(&format!("pod-{number}")),
        group: Some(GroupKey::new("team", &format!("gone-{number}"))),
        at: at(1),
    };
    let attempt = TraceEvent::Cycle(Box::new(CycleSeen {
        began: at(hour),
        took: Duration::from_secs(1),
        steps: Vec::new(),
        searches: Vec::new(),
        attempts: vec![(gang(), GroupOutcome::Unschedulable("no GPUs".to_owned()))],
        evicted: 0,
    }));
    let later = TraceEvent::Pod {
        pod: pod("other"),
        group: None,
        at: at(hour + 700),
    };
    let events = [seen("a", 1)].into_iter().chain((1..WORKLOADS_MAX).map(of_another));
    let spans = spans(events.chain([attempt, later, bound("a", hour + 701, hour + 702)]));
    let mut workloads = spans.iter().filter(|(name, ..)| name == "workload");
    assert!(workloads.any(|span| (span.1, span.2) == (1, hour + 702)));
}

#[test]
fn pods_that_were_bound_long_ago_and_pods_that_were_never_grouped_are_forgotten() {
    let ungrouped = |number: usize| TraceEvent::Pod {
        pod: pod(&format!("pod-{number}")),
        group: None,
        at: at(1),
    };
    let begun = [seen("a", 1), bound("a", 2, 3), seen("b", 2 * 60 * 60)];
    let (_, recorder) = spans_and_recorder(begun);
    assert!(recorder.settled.is_empty());
    let (_, recorder) = spans_and_recorder((0..PODS_MANY).map(ungrouped).chain([seen("b", 2 * 60 * 60)]));
    assert!(recorder.ungrouped.is_empty());
}
