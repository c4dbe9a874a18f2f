//! What is logged and counted on the thread of a test.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// What a subscriber that writes here has logged.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The warnings of this thread from now on.
pub struct Warnings {
    log: Log,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Warnings {
    pub fn from_now_on() -> Self {
        let log = Log::default();
        let written = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || written.clone())
            .finish();
        Self {
            log,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// How many there were of these words.
    pub fn of(&self, words: &str) -> usize {
        self.log.text().matches(words).count()
    }
}

/// The metrics of this thread from now on.
pub struct Metrics {
    page: PrometheusHandle,
    _local: metrics::LocalRecorderGuard<'static>,
}

impl Metrics {
    pub fn from_now_on() -> Self {
        let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self {
            page: recorder.handle(),
            _local: metrics::set_default_local_recorder(recorder),
        }
    }

    /// The value of a series.
    pub fn of(&self, series: &str) -> Option<f64> {
        let page = self.page.render();
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }
}
