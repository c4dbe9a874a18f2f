//! How the usage of queues is computed, and from which source: `usageDBConfig` of a SchedulingShard.

use std::time::Duration;

use jiff::SignedDuration;

use super::window::{Cron, Window};
use crate::api::duration;
use crate::api::shard::{UsageDbConfig, UsageParams};
use crate::engine::input::{Millis, Time};

const MINUTE: Duration = Duration::from_secs(60);
/// The shortest interval of updates to the scheduler.
const SHORTEST: Duration = Duration::from_millis(100);
const WEEK: Millis = 7 * 24 * 3_600_000;

/// How usage is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The source of the figures.
    pub source: Source,
    /// The part of the past that counts.
    pub window: Window,
    /// Usage this long ago counts half; `None`: the whole window counts equally.
    pub half_life: Option<Millis>,
    /// How often the engine gets it.
    pub interval: Duration,
    /// Older figures are stale. Stale ones are still used for the same time again, and then dropped.
    pub staleness: Duration,
    /// How long scheduling waits for the first figures at the beginning of a term.
    pub wait: Duration,
}

impl Default for Settings {
    /// A sliding window of a week, from the built-in source.
    fn default() -> Self {
        Self {
            source: Source::BuiltIn,
            window: Window::Sliding(WEEK),
            half_life: None,
            interval: MINUTE,
            staleness: 5 * MINUTE,
            wait: MINUTE,
        }
    }
}

/// The source of usage.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The operator sums up what queues hold.
    BuiltIn,
    /// A Prometheus server has the figures.
    Prometheus(Prometheus),
}

/// A Prometheus server.
#[derive(Clone, Debug, PartialEq)]
pub struct Prometheus {
    /// Its URL.
    pub url: String,
    /// Timeout for all queries of one update together.
    pub timeout: Duration,
    /// Interval of the samples.
    pub resolution: Duration,
    /// What queues hold.
    pub allocated: Metrics,
    /// Capacity of the cluster.
    pub capacity: Metrics,
}

/// PromQL expressions, one per resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Cpu.
    pub cpu: String,
    /// Memory.
    pub memory: String,
    /// GPUs.
    pub gpu: String,
}

impl Prometheus {
    /// A server with KAI's metrics.
    fn at(url: String) -> Self {
        let capacity = |resource: &str| format!("sum(kube_node_status_capacity{{resource=\"{resource}\"}})");
        Self {
            url,
            timeout: Duration::from_secs(10),
            resolution: MINUTE,
            allocated: Metrics {
                cpu: "kai_queue_allocated_cpu_cores".to_owned(),
                memory: "kai_queue_allocated_memory_bytes".to_owned(),
                gpu: "kai_queue_allocated_gpus".to_owned(),
            },
            capacity: Metrics {
                cpu: capacity("cpu"),
                memory: capacity("memory"),
                gpu: capacity("nvidia_com_gpu"),
            },
        }
    }
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its path below `usageDBConfig`.
    pub path: String,
    /// A sentence without its subject.
    pub says: String,
}

impl Settings {
    /// Reads a shard's `usageDBConfig`, and returns with it the values that are ignored, as in KAI: defaults apply instead. `prometheus` is the
    /// server of those that name none, `variable` looks up an environment variable.
    ///
    /// # Errors
    /// All errors in it.
    pub fn read(
        config: &UsageDbConfig,
        prometheus: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        let mut problems = Problems::default();
        let params = config.usage_params.clone().unwrap_or_default();
        let usual = Self::default();
        let interval = problems
            .span("usageParams.fetchInterval", params.fetch_interval.as_deref())
            .unwrap_or(usual.interval)
            .max(SHORTEST);
        let staleness = problems
            .any_span("usageParams.stalenessPeriod", params.staleness_period.as_deref())
            .unwrap_or(usual.staleness);
        let wait = problems
            .any_span("usageParams.waitTimeout", params.wait_timeout.as_deref())
            .unwrap_or(usual.wait);
        let half_life = params.half_life_period.as_deref().filter(|text| !text.is_empty());
        let half_life = problems.read("usageParams.halfLifePeriod", half_life, duration::parse_extended);
        let settings = Self {
            source: problems.source(config, prometheus, variable),
            window: problems.window(&params),
            half_life: half_life.map(millis).filter(|half_life| *half_life > 0),
            interval,
            staleness: staleness.max(interval),
            wait,
        };
        if problems.wrong.is_empty() {
            Ok((settings, problems.ignored))
        } else {
            Err(problems.wrong)
        }
    }
}

fn millis(duration: SignedDuration) -> Millis {
    i64::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

#[derive(Default)]
struct Problems {
    wrong: Vec<Problem>,
    ignored: Vec<Problem>,
}

impl Problems {
    fn add(&mut self, path: &str, says: impl Into<String>) {
        self.wrong.push(Problem {
            path: path.to_owned(),
            says: says.into(),
        });
    }

    fn ignore(&mut self, path: &str, says: impl Into<String>) {
        self.ignored.push(Problem {
            path: path.to_owned(),
            says: says.into(),
        });
    }

    fn read<T, E: ToString>(
        &mut self,
        path: &str,
        text: Option<&str>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        match read(text?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(path, error.to_string());
                None
            }
        }
    }

    /// A length of time above 0.
    fn span(&mut self, path: &str, text: Option<&str>) -> Option<Duration> {
        let span = self.any_span(path, text)?;
        if span.is_zero() {
            self.add(path, "must be longer than 0");
        }
        Some(span)
    }

    /// A length of time. A negative one counts as 0, as in KAI.
    fn any_span(&mut self, path: &str, text: Option<&str>) -> Option<Duration> {
        let span = self.read(path, text.filter(|text| !text.is_empty()), duration::parse_extended)?;
        Some(Duration::try_from(span).unwrap_or_default())
    }

    /// A duration in Prometheus' form, or in Go's, which older versions stored.
    fn size(&mut self, path: &str, text: Option<&str>) -> Millis {
        let text = text.filter(|text| !text.is_empty());
        let read = |text: &str| duration::parse_prometheus(text).or_else(|_| duration::parse_extended(text));
        match self.read(path, text, read).map(millis) {
            Some(0) => {
                self.ignore(path, "is not longer than 0: the window is a week");
                WEEK
            }
            Some(size) if size > 0 => size,
            Some(_) => {
                self.add(path, "must be longer than 0");
                WEEK
            }
            None => WEEK,
        }
    }

    fn window(&mut self, params: &UsageParams) -> Window {
        let size = self.size("usageParams.windowSize", params.window_size.as_deref());
        match params.window_type.as_deref().unwrap_or_default() {
            "" | "sliding" => {}
            "tumbling" => {
                let path = "usageParams.tumblingWindowStartTime";
                match &params.tumbling_window_start_time {
                    Some(start) => {
                        let start = Time(start.0.as_millisecond());
                        return Window::Tumbling { size, start };
                    }
                    None => self.add(path, "is needed for tumbling windows"),
                }
            }
            "cron" => {
                let path = "usageParams.cronString";
                let cron = self.read(
                    path,
                    Some(params.cron_string.as_deref().unwrap_or_default()),
                    Cron::parse,
                );
                if let Some(cron) = cron {
                    return Window::Cron(cron);
                }
            }
            other => self.ignore(
                "usageParams.windowType",
                format!("{other:?} is not sliding, tumbling or cron: the window is sliding"),
            ),
        }
        Window::Sliding(size)
    }

    fn source(
        &mut self,
        config: &UsageDbConfig,
        prometheus: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Source {
        match &*config.client_type {
            "" | "builtin" => return Source::BuiltIn,
            "prometheus" => {}
            other => {
                self.add("clientType", format!("{other:?} is not builtin or prometheus"));
                return Source::BuiltIn;
            }
        }
        let named = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let url = match (
            named(&config.connection_string),
            named(&config.connection_string_env_var),
        ) {
            (Some(_), Some(_)) => {
                self.add(
                    "connectionString",
                    "stands beside connectionStringEnvVar; only one can hold",
                );
                None
            }
            (None, Some(name)) => {
                let url = variable(&name);
                if url.is_none() {
                    self.add("connectionStringEnvVar", format!("{name:?} is not set in the operator"));
                }
                url
            }
            (Some(url), None) => Some(url),
            (None, None) => {
                if prometheus.is_none() {
                    self.add("connectionString", "is needed: no Prometheus is configured");
                }
                prometheus.map(ToOwned::to_owned)
            }
        };
        let url = url.unwrap_or_default();
        let url = match url.contains("://") || url.is_empty() {
            true => url,
            false => format!("http://{url}"),
        };
        let right = url.parse::<http::Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
        });
        if !right && !url.is_empty() {
            // Which may hold a password.
            self.add(
                "connectionString",
                "is not a URL, such as http://prometheus.monitoring:9090",
            );
        }
        let mut server = Prometheus::at(url);
        let within = config.usage_params.as_ref().map(|params| &params.extra_params);
        let beside = config.extra_params.iter();
        let beside = beside.filter(|(name, _)| within.is_none_or(|within| !within.contains_key(*name)));
        let within = within
            .into_iter()
            .flatten()
            .map(|extra| ("usageParams.extraParams", extra));
        for (field, (name, text)) in within.chain(beside.map(|extra| ("extraParams", extra))) {
            let path = format!("{field}.{name}");
            let set = |metric: &mut String| metric.clone_from(text);
            match &**name {
                "usageQueryTimeout" => self.query_time(&path, text, &mut server.timeout),
                "queryResolution" => self.query_time(&path, text, &mut server.resolution),
                "gpuAllocationMetric" => set(&mut server.allocated.gpu),
                "cpuAllocationMetric" => set(&mut server.allocated.cpu),
                "memoryAllocationMetric" => set(&mut server.allocated.memory),
                "gpuCapacityMetric" => set(&mut server.capacity.gpu),
                "cpuCapacityMetric" => set(&mut server.capacity.cpu),
                "memoryCapacityMetric" => set(&mut server.capacity.memory),
                _ => self.ignore(&path, "is not known"),
            }
        }
        Source::Prometheus(server)
    }

    /// A length of time above 0; another text is ignored.
    fn query_time(&mut self, path: &str, text: &str, setting: &mut Duration) {
        let span = duration::parse_extended(text).ok();
        let span = span.and_then(|span| Duration::try_from(span).ok());
        match span.filter(|span| !span.is_zero()) {
            Some(span) => *setting = span,
            None => self.ignore(path, format!("{text:?} is not a duration above 0, such as 10s")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(problems: Vec<Problem>) -> Vec<String> {
        let problems = problems.into_iter();
        problems
            .map(|problem| format!("{}: {}", problem.path, problem.says))
            .collect()
    }

    fn read_all(yaml: &str) -> Result<(Settings, Vec<String>), Vec<String>> {
        let config: UsageDbConfig = serde_yaml_ng::from_str(yaml).expect("a usageDBConfig");
        let read = Settings::read(&config, Some("http://usage-prometheus:9090"), &|_| None);
        read.map(|(settings, ignored)| (settings, lines(ignored)))
            .map_err(lines)
    }

    fn read(yaml: &str) -> Result<Settings, Vec<String>> {
        let (settings, ignored) = read_all(yaml)?;
        assert_eq!(ignored, <[&str; 0]>::default());
        Ok(settings)
    }

    #[test]
    fn absent_parameters_have_kais_defaults() {
        assert_eq!(read("clientType: builtin"), Ok(Settings::default()));
        let source = Source::Prometheus(Prometheus::at("http://usage-prometheus:9090".to_owned()));
        let usual = Settings::default();
        assert_eq!(read("clientType: prometheus"), Ok(Settings { source, ..usual }));
    }

    #[test]
    fn every_parameter_is_read() {
        let settings = read(
            "{clientType: prometheus, connectionString: 'http://p', usageParams: {windowSize: 1d12h, halfLifePeriod: 30m, fetchInterval: 10m, stalenessPeriod: 2m, waitTimeout: 30s,
              extraParams: {usageQueryTimeout: 3s, queryResolution: 2m, gpuAllocationMetric: g, cpuCapacityMetric: c}}}",
        )
        .expect("good");
        let mut server = Prometheus::at("http://p".to_owned());
        (server.timeout, server.resolution) = (Duration::from_secs(3), Duration::from_secs(120));
        (server.allocated.gpu, server.capacity.cpu) = ("g".to_owned(), "c".to_owned());
        let wanted = Settings {
            source: Source::Prometheus(server),
            window: Window::Sliding(36 * 3_600_000),
            half_life: Some(1_800_000),
            interval: Duration::from_secs(600),
            // Never shorter than the interval.
            staleness: Duration::from_secs(600),
            wait: Duration::from_secs(30),
        };
        assert_eq!(settings, wanted);
        let cron = read("{clientType: builtin, usageParams: {windowType: cron, cronString: '0 0 * * 1'}}");
        assert_eq!(
            cron.map(|settings| settings.window),
            Ok(Window::Cron(Cron::parse("0 0 * * 1").expect("an expression")))
        );
        let tumbling = read(
            "{clientType: builtin, usageParams: {windowType: tumbling, windowSize: 168h, tumblingWindowStartTime: '1970-01-01T00:00:01Z'}}",
        );
        let (size, start) = (WEEK, Time(1_000));
        assert_eq!(
            tumbling.map(|settings| settings.window),
            Ok(Window::Tumbling { size, start })
        );
    }

    #[test]
    fn staleness_is_at_least_the_interval_and_there_may_be_no_wait() {
        let of = |span: &str| {
            let params = format!("{{fetchInterval: 10m, stalenessPeriod: {span}, waitTimeout: {span}}}");
            let read = read(&format!("{{clientType: builtin, usageParams: {params}}}"));
            read.map(|settings| (settings.staleness.as_secs(), settings.wait.as_secs()))
        };
        for none in ["0s", "-5m"] {
            assert_eq!(of(none), Ok((600, 0)), "{none}");
        }
        assert_eq!(of("20m"), Ok((1_200, 1_200)));
        assert!(of("soon").is_err(), "KAI cannot read such a shard");
    }

    #[test]
    fn all_invalid_parameters_are_reported_at_once() {
        let wrong =
            read("{clientType: influx, usageParams: {windowSize: -1h, halfLifePeriod: soon, fetchInterval: -1s}}");
        assert_eq!(
            wrong.unwrap_err(),
            [
                "usageParams.fetchInterval: must be longer than 0",
                "usageParams.halfLifePeriod: \"soon\" is not a duration: write a number and a unit, such as 90s, 10m or 1h30m",
                "clientType: \"influx\" is not builtin or prometheus",
                "usageParams.windowSize: must be longer than 0",
            ]
        );
        let both = "{clientType: prometheus, connectionString: a, connectionStringEnvVar: b, usageParams: {windowType: tumbling}}";
        assert_eq!(
            read(both).unwrap_err(),
            [
                "connectionString: stands beside connectionStringEnvVar; only one can hold",
                "usageParams.tumblingWindowStartTime: is needed for tumbling windows",
            ]
        );
    }

    #[test]
    fn values_for_which_kai_uses_its_defaults_are_ignored() {
        let (settings, ignored) = read_all(
            "{clientType: prometheus, extraParams: {queryResolution: 2m, usageQueryTimeout: 3s}, usageParams: {windowType: hopping, windowSize: '0',
              extraParams: {usageQueryTimeout: soon, gpuCapacityMetrics: g}}}",
        )
        .expect("valid");
        let mut server = Prometheus::at("http://usage-prometheus:9090".to_owned());
        server.resolution = Duration::from_secs(120);
        let usual = Settings {
            source: Source::Prometheus(server),
            ..Settings::default()
        };
        assert_eq!(settings, usual);
        assert_eq!(
            ignored,
            [
                "usageParams.extraParams.gpuCapacityMetrics: is not known",
                "usageParams.extraParams.usageQueryTimeout: \"soon\" is not a duration above 0, such as 10s",
                "usageParams.windowSize: is not longer than 0: the window is a week",
                "usageParams.windowType: \"hopping\" is not sliding, tumbling or cron: the window is sliding",
            ]
        );
        assert_eq!(
            read("{clientType: builtin, usageParams: {windowSize: ''}}"),
            Ok(Settings::default())
        );
    }
}
