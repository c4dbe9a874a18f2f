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
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let mut recorder = Recorder::new(provider.tracer("test"));
    trace_events.into_iter().for_each(|event| recorder.take(event));
    let second = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let ended = kept.0.lock().unwrap();
    ended
        .iter()
        .map(|span| (span.name.to_string(), second(span.start_time), second(span.end_time)))
        .collect()
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
