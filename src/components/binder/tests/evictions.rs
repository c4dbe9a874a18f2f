//! What is counted of evictions, and binds that wait for them.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use super::*;
use crate::components::Context;
use crate::components::binder::after_evictions::{AfterEvictions, Released};
use crate::components::binder::evictions::Evictions;
use crate::components::tests::idle_context;
use crate::components::watches::Stores;

/// Evictions, and what was counted of them.
struct Case {
    context: Context,
    stores: Stores,
    evictions: Evictions,
    recorder: PrometheusRecorder,
}

fn pod(name: &str) -> Pod {
    let metadata = json!({"namespace": "team", "name": name, "uid": format!("uid-{name}")});
    read(json!({"metadata": metadata, "spec": {"containers": []}}))
}

fn done() -> Report {
    Report::new(Ending::Done)
}

fn refused(cause: &'static str) -> Report {
    Report {
        cause,
        ..Report::new(Ending::Failed("refused".to_owned()))
    }
}

impl Case {
    fn new() -> Self {
        Self {
            context: idle_context(),
            stores: Stores::default(),
            evictions: Evictions::default(),
            recorder: PrometheusBuilder::new().build_recorder(),
        }
    }

    /// The eviction of a pod, whose pod group has its name, has ended.
    fn ended(&mut self, pod_name: &str, report: &Report) {
        self.ended_as(&evict(&pod(pod_name)), report);
    }

    fn ended_as(&mut self, evict: &Evict, report: &Report) {
        metrics::with_local_recorder(&self.recorder, || {
            self.evictions.note(&self.context, evict, report, &self.stores);
        });
    }

    /// The metrics of the process.
    fn counts(&self) -> Vec<String> {
        let page = self.recorder.handle().render();
        let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The series of pod groups.
    fn series(&self) -> Vec<String> {
        let page = self.context.figures.render();
        let lines = page
            .lines()
            .filter_map(|line| line.strip_prefix("kai_pod_group_evicted_pods_total"));
        lines.map(str::to_owned).collect()
    }

    /// Whether a pod group has a series.
    fn has(&self, group: &str) -> bool {
        let label = format!("podgroup=\"{group}\",");
        self.series().iter().any(|line| line.contains(&label))
    }
}

#[tokio::test]
async fn evictions_are_counted_by_action_and_refusals_by_cause() {
    let mut case = Case::new();
    case.ended("a", &done());
    case.ended("b", &refused("budget"));
    let preempted = Evict {
        action: ActionKind::Preempt,
        ..evict(&pod("c"))
    };
    case.ended_as(&preempted, &done());
    case.ended("d", &Report::new(Ending::Overtaken));
    case.ended("e", &Report::not_tried("not the leader any more"));
    assert_eq!(
        case.counts(),
        [
            "unikai_evicted_pods_total{action=\"preempt\"} 1",
            "unikai_evicted_pods_total{action=\"reclaim\"} 1",
            "unikai_evictions_attempted_total{action=\"preempt\"} 1",
            "unikai_evictions_attempted_total{action=\"reclaim\"} 3",
            "unikai_evictions_refused_total{action=\"reclaim\",cause=\"budget\"} 1",
        ]
    );
    assert!(case.has("a") && case.has("c"));
    assert_eq!(case.series().len(), 2, "only evicted pods count");
}

#[tokio::test]
async fn evicted_pods_are_counted_for_their_pod_group() {
    let mut case = Case::new();
    case.stores.pod_groups.insert(read(
        json!({"metadata": {"namespace": "team", "name": "a", "uid": "uid-g"}, "spec": {}}),
    ));
    case.ended("a", &done());
    let of_pool = Evict {
        pool: "blue".into(),
        ..evict(&pod("b"))
    };
    case.ended_as(&of_pool, &done());
    case.ended("a", &done());
    assert_eq!(
        case.series(),
        [
            "{podgroup=\"a\",namespace=\"team\",uid=\"uid-g\",nodepool=\"default\",action=\"reclaim\"} 2",
            "{podgroup=\"b\",namespace=\"team\",uid=\"\",nodepool=\"blue\",action=\"reclaim\"} 1",
        ]
    );
}

#[tokio::test]
async fn only_the_pod_groups_with_the_most_recent_evictions_have_series() {
    let mut case = Case::new();
    for group in 0..1_000 {
        case.ended(&format!("g{group}"), &done());
    }
    case.ended("g0", &done());
    assert_eq!(case.series().len(), 1_000);
    case.ended("more", &done());
    assert_eq!(case.series().len(), 1_000);
    assert!(case.has("g0") && case.has("more"), "evicted a moment ago");
    assert!(!case.has("g1"), "the longest ago");
}

/// Binds of the pods `a` and `b`, which are in one pod group.
fn gang() -> [OrderedBind; 2] {
    ["a", "b"].map(|name| {
        let mut bind = bind(&pod(name), "n1");
        bind.placement.group = evict(&pod("gang")).group;
        bind
    })
}

#[test]
fn binds_without_evictions_do_not_wait() {
    let mut after = AfterEvictions::default();
    let [a, _] = gang();
    after.eviction(&evict(&pod("other")).group);
    assert_eq!(after.hold(a.clone(), 1), Some(a));
}

#[test]
fn binds_wait_for_all_evictions_for_their_pod_group() {
    let mut after = AfterEvictions::default();
    let [a, b] = gang();
    let group = &a.placement.group;
    after.eviction(group);
    after.eviction(group);
    assert_eq!(after.hold(a.clone(), 1), None);
    assert_eq!(after.ended(group, false), Released::default(), "one is open");
    assert_eq!(after.hold(b.clone(), 2), None);
    let start = vec![(a.clone(), 1), (b.clone(), 2)];
    let released = Released {
        start,
        ..Released::default()
    };
    assert_eq!(after.ended(group, false), released);
    assert_eq!(after.hold(b.clone(), 3), Some(b), "none is open any more");
    assert_eq!(after.ended(group, true), Released::default());
}

#[test]
fn binds_fail_when_one_of_the_evictions_was_refused() {
    for refusals in [[true, false], [false, true], [true, true]] {
        let mut after = AfterEvictions::default();
        let [a, b] = gang();
        let group = &a.placement.group;
        after.eviction(group);
        after.eviction(group);
        assert_eq!((after.hold(a.clone(), 1), after.hold(b.clone(), 1)), (None, None));
        assert_eq!(after.ended(group, refusals[0]), Released::default());
        let released = Released {
            fail: vec![a.clone(), b.clone()],
            ..Released::default()
        };
        assert_eq!(after.ended(group, refusals[1]), released, "{refusals:?}");
        assert_eq!(after.hold(b.clone(), 2), Some(b), "the next decision does not wait");
    }
}
