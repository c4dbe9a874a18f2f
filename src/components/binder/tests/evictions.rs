//! What is counted of evictions, and binds that wait for them.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use super::*;
use crate::components::Context;
use crate::components::binder::after_evictions::{AfterEvictions, Released};
use crate::components::binder::evictions::Evictions;
use crate::components::tests::idle_context;
use crate::components::watches::Stores;
use crate::engine::input::Name;

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

/// Binds of the pods `a` and `b`, which wait for the evictions of `x` and `y`.
fn waiting() -> [OrderedBind; 2] {
    let evictions: Arc<[Name]> = ["uid-x".into(), "uid-y".into()].into();
    ["a", "b"].map(|name| {
        let mut bind = bind(&pod(name), "n1");
        bind.placement.after_evictions = Some(Arc::clone(&evictions));
        bind
    })
}

fn started(binds: &[OrderedBind]) -> Released {
    Released {
        start: binds.iter().map(|bind| (bind.clone(), 1)).collect(),
        ..Released::default()
    }
}

fn failed(binds: &[OrderedBind]) -> Released {
    Released {
        fail: binds.to_vec(),
        ..Released::default()
    }
}

/// Where these pods are to be evicted.
fn evicting(pods: &[&str]) -> AfterEvictions {
    let mut after = AfterEvictions::default();
    pods.iter().for_each(|pod| after.eviction(&Name::from(*pod)));
    after
}

#[test]
fn binds_that_need_no_evictions_do_not_wait() {
    let mut after = evicting(&["uid-x"]);
    let free = [bind(&pod("a"), "n1")];
    assert_eq!(after.binds(free.to_vec(), 1), started(&free));
}

#[test]
fn binds_wait_for_all_their_evictions() {
    let mut after = evicting(&["uid-x", "uid-y", "uid-z"]);
    let (x, y) = (Name::from("uid-x"), Name::from("uid-y"));
    let binds = waiting();
    assert_eq!(after.binds(binds.to_vec(), 1), Released::default());
    assert_eq!(after.ended(&x, false), Released::default(), "one is open");
    let more = waiting();
    assert_eq!(after.binds(more.to_vec(), 1), Released::default());
    let all = [binds.clone(), more].concat();
    assert_eq!(after.ended(&y, false), started(&all));
    assert_eq!(after.binds(binds.to_vec(), 1), started(&binds), "none is open any more");
    assert_eq!(after.ended(&y, true), Released::default());
}

#[test]
fn binds_fail_when_one_of_the_evictions_was_refused() {
    let (x, y) = (Name::from("uid-x"), Name::from("uid-y"));
    for refusals in [[true, false], [false, true], [true, true]] {
        let mut after = evicting(&["uid-x", "uid-y"]);
        let binds = waiting();
        assert_eq!(after.binds(binds.to_vec(), 1), Released::default());
        assert_eq!(after.ended(&x, refusals[0]), Released::default());
        assert_eq!(after.ended(&y, refusals[1]), failed(&binds), "{refusals:?}");
        assert_eq!(
            after.binds(binds.to_vec(), 1),
            failed(&binds),
            "decided before the scheduler knew"
        );
        after.eviction(&x);
        after.eviction(&y);
        assert_eq!(
            after.binds(binds.to_vec(), 1),
            Released::default(),
            "they are tried again"
        );
        assert_eq!(after.ended(&x, false), Released::default());
        assert_eq!(after.ended(&y, false), started(&binds));
    }
}

#[test]
fn evictions_of_pods_that_are_gone_are_forgotten() {
    let mut after = evicting(&["uid-x", "uid-y"]);
    let binds = waiting();
    let (x, y) = (Name::from("uid-x"), Name::from("uid-y"));
    after.forget(&x);
    assert_eq!(
        after.binds(binds.to_vec(), 1),
        Released::default(),
        "open until it has ended"
    );
    after.ended(&y, true);
    after.forget(&y);
    assert_eq!(after.ended(&x, false), failed(&binds));
    assert_eq!(after.binds(binds.to_vec(), 1), started(&binds));
}
