//! The metrics page: metrics of the process and series of objects, in the text format of Prometheus.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::Label;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::components::figures::Figures;
use crate::components::figures::families::{Family, Kind, OF_THE_PROCESS};

/// The text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The prefix of the metrics that KAI has, too.
pub const KAI: &str = "kai";
/// Limit on pages that their clients have not read yet.
const UNREAD: usize = 64;
/// Interval of the recorder's upkeep of histograms.
const UPKEEP: Duration = Duration::from_secs(30);

/// The page of one operator.
#[derive(Clone, Debug)]
pub struct Page {
    recorded: PrometheusHandle,
    figures: Figures,
    namespace: watch::Receiver<String>,
    unread: Arc<Semaphore>,
}

impl Page {
    /// The page of these figures; `namespace` replaces the prefix [`KAI`]. Installs the recorder of the process, so that every later
    /// count is on the page.
    #[must_use]
    pub fn new(figures: Figures, namespace: watch::Receiver<String>) -> Self {
        Self {
            recorded: recorder(),
            figures,
            namespace,
            unread: Arc::new(Semaphore::new(UNREAD)),
        }
    }

    /// The page's text, and its place until it is read. `None`: too many clients have not read theirs, which takes memory for as long.
    #[must_use]
    pub fn text(&self) -> Option<(String, OwnedSemaphorePermit)> {
        let place = Arc::clone(&self.unread).try_acquire_owned().ok()?;
        Some((self.render(), place))
    }

    fn render(&self) -> String {
        let page = self.recorded.render() + &self.figures.render();
        let namespace = self.namespace.borrow().clone();
        if namespace == KAI {
            return page;
        }
        page.lines().map(|line| renamed(line, &namespace) + "\n").collect()
    }

    /// Runs the recorder's upkeep, so that histograms do not grow without scrapes.
    pub async fn keep_up(&self) {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.recorded.run_upkeep();
        }
    }
}

/// A line of the page, with [`KAI`] replaced by `namespace`.
fn renamed(line: &str, namespace: &str) -> String {
    for start in ["# HELP ", "# TYPE ", ""] {
        let name = line.strip_prefix(start).and_then(|rest| rest.strip_prefix("kai_"));
        if let Some(name) = name {
            return format!("{start}{namespace}_{name}");
        }
    }
    line.to_owned()
}

/// The one recorder of the process. Several operators in one process, as in tests, share it.
fn recorder() -> PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(install).clone()
}

/// KAI's buckets for its latencies in milliseconds; finer ones for seconds.
fn install() -> PrometheusHandle {
    let milliseconds: Vec<f64> = (0..10).map(|k| 5.0 * f64::from(1 << k)).collect();
    let seconds: Vec<f64> = (0..16).map(|k| 0.001 * f64::from(1 << k)).collect();
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_milliseconds".to_owned()), &milliseconds)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &seconds))
        .expect("the buckets are not empty");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    // An embedding program may have installed another recorder; then its page shows the metrics, and ours is empty.
    let _ = metrics::set_global_recorder(recorder);
    for family in OF_THE_PROCESS {
        describe(family);
        begin(family);
    }
    metrics::gauge!("unikai_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    handle
}

fn describe(family: &Family) {
    match family.kind {
        Kind::Counter => metrics::describe_counter!(family.name, family.help),
        Kind::Gauge => metrics::describe_gauge!(family.name, family.help),
        Kind::Histogram => metrics::describe_histogram!(family.name, family.help),
    }
}

/// Registers every series with known labels at zero, so that none is missing before its first event.
fn begin(family: &Family) {
    for labels in family.combinations() {
        let labels: Vec<Label> = labels
            .into_iter()
            .map(|(name, value)| Label::from_static_parts(name, value))
            .collect();
        match family.kind {
            Kind::Counter => metrics::counter!(family.name, labels).increment(0),
            Kind::Gauge => metrics::gauge!(family.name, labels).set(0.0),
            Kind::Histogram => drop(metrics::histogram!(family.name, labels)),
        }
    }
}

#[cfg(test)]
mod tests;
