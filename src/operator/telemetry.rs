//! Logs on standard error, as text or JSON lines, and traces to an OpenTelemetry collector where one is named: OTLP over HTTP with
//! protobuf, which needs the fewest libraries, to a collector nearby (no TLS). Components create the spans. OpenTelemetry's standard variables
//! configure sampling and batches (`OTEL_TRACES_SAMPLER`, `OTEL_BSP_…`), and attributes and requests
//! (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`).

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context, ensure};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::runtime::Tokio;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing_subscriber::filter::DynFilterFn;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// Flags of logging and tracing, the same for every subcommand.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Logging")]
#[group(skip)]
pub struct Args {
    /// Log level: error, warn, info, debug, trace, or per module, such as `info,unikai::engine=debug`
    /// [default: info for `run`, warn for the others]
    #[arg(long, env = "UNIKAI_LOG", value_name = "FILTER", global = true)]
    log_level: Option<String>,

    /// Format of log lines, which are written to standard error
    #[arg(
        long,
        env = "UNIKAI_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        global = true
    )]
    log_format: Format,

    /// URL of the OpenTelemetry collector for traces, such as `http://collector:4318` (OTLP over HTTP, no TLS) [default: no traces]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL", global = true)]
    otlp_endpoint: Option<String>,

    /// The full URL of the collector's endpoint for traces, such as `http://collector:4318/v1/traces`
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", value_name = "URL", global = true)]
    otlp_traces_endpoint: Option<String>,

    /// Protocol for traces
    #[arg(long, env = "OTEL_EXPORTER_OTLP_PROTOCOL", value_name = "PROTOCOL", default_value = PROTOCOL, value_parser = [PROTOCOL], global = true, hide = true)]
    otlp_protocol: String,
}

/// The only supported protocol.
const PROTOCOL: &str = "http/protobuf";

impl Args {
    /// The collector's URL, if traces are exported.
    fn traces_url(&self) -> Option<String> {
        let given = |url: &Option<String>| url.clone().filter(|url| !url.is_empty());
        let of_base = |url: String| format!("{}/v1/traces", url.trim_end_matches('/'));
        given(&self.otlp_traces_endpoint).or_else(|| given(&self.otlp_endpoint).map(of_base))
    }
}

/// Log formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One line of plain text per event.
    Text,
    /// One JSON object per event and line, for log collectors.
    Json,
}

static TRACER: OnceLock<SdkTracer> = OnceLock::new();
/// The format of log lines.
static FORMAT: OnceLock<ActiveFormat> = OnceLock::new();
static LEVEL: OnceLock<Level> = OnceLock::new();

/// Handle on the log filter.
#[derive(Debug)]
struct Level {
    filter: reload::Handle<EnvFilter, Registry>,
    text: Mutex<String>,
}

impl Level {
    fn change(&self, text: &str) -> anyhow::Result<()> {
        let mut now = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        self.filter.reload(filter(text)?)?;
        text.clone_into(&mut now);
        Ok(())
    }

    fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The current log filter, in the form of `--log-level`; `None` if logging was not started by [`start`].
#[must_use]
pub fn log_level() -> Option<String> {
    LEVEL.get().map(Level::text)
}

/// Sets the log filter until the process ends.
///
/// # Errors
/// If the filter does not parse, or logging was not started by [`start`].
pub fn set_log_level(text: &str) -> anyhow::Result<()> {
    LEVEL.get().context("logging is not this process's own")?.change(text)
}

/// The format of log lines, now and by the flag.
#[derive(Debug)]
struct ActiveFormat {
    json: Arc<AtomicBool>,
    by_flag: bool,
}

/// Writes log lines as JSON from now on, or as text; `None`: by the flag. Without effect if logging was not started by [`start`].
pub fn set_json(json: Option<bool>) {
    if let Some(format) = FORMAT.get() {
        format.json.store(json.unwrap_or(format.by_flag), Ordering::Relaxed);
    }
}

/// Parses a filter. A single word must be a level: the library would read any other word as a module, and log nothing but that module.
fn filter(text: &str) -> anyhow::Result<EnvFilter> {
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let module = word.contains(['=', ':', '[']);
        ensure!(
            module || word.parse::<LevelFilter>().is_ok(),
            "{word} is no level. Levels are error, warn, info, debug, trace and off; one for a module is written as in unikai::engine=debug"
        );
    }
    let filter = EnvFilter::try_new(text)?
        // The sender of a request logs its failure; the client would log each as an error, also a conflict, and the
        // watcher would warn at each of a thousand attempts.
        .add_directive("kube_client::client::builder=off".parse()?)
        .add_directive("kube_runtime::watcher=error".parse()?);
    Ok(filter)
}

/// The tracer, if traces are exported.
#[must_use]
pub fn tracer() -> Option<SdkTracer> {
    TRACER.get().cloned()
}

/// Keeps the export of spans alive; sends what is left when dropped.
#[must_use]
#[derive(Debug)]
pub struct Guard {
    spans: Option<SdkTracerProvider>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = self.spans.take()
            && let Err(error) = provider.shutdown()
        {
            eprintln!("warning: the last spans were not sent: {error}");
        }
    }
}

/// Starts logging for the whole process; call once, inside a tokio runtime. `level` applies if no flag sets another.
///
/// # Errors
/// When the filter does not parse, the exporter cannot be built, or logging has been started before.
pub fn start(args: &Args, level: &str) -> anyhow::Result<Guard> {
    let text = args.log_level.as_deref().unwrap_or(level);
    let filter = filter(text).with_context(|| format!("--log-level {text}"))?;
    let (filter, handle) = reload::Layer::new(filter);
    let spans = args.traces_url().as_deref().map(span_exporter).transpose()?;
    if let Some(provider) = &spans {
        // A second start is refused below.
        let _ = TRACER.set(provider.tracer("unikai"));
    }
    let by_flag = args.log_format == Format::Json;
    let json = Arc::new(AtomicBool::new(by_flag));
    tracing_subscriber::registry()
        .with(filter)
        .with(lines(Format::Text, &json, std::io::stderr))
        .with(lines(Format::Json, &json, std::io::stderr))
        .try_init()?;
    let _ = FORMAT.set(ActiveFormat { json, by_flag });
    // A second start was refused above.
    let _ = LEVEL.set(Level {
        filter: handle,
        text: Mutex::new(text.to_owned()),
    });
    Ok(Guard { spans })
}

/// The layer that writes lines in one format, as long as `json` selects that format. Spans are recorded by both layers at all times, so that a span that
/// began under the other format is written, too.
fn lines<S, W>(format: Format, json: &Arc<AtomicBool>, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let (json, wanted) = (Arc::clone(json), format == Format::Json);
    let chosen = DynFilterFn::new(move |what, _| what.is_span() || json.load(Ordering::Relaxed) == wanted);
    match format {
        Format::Text => layer
            .with_ansi(std::io::stderr().is_terminal())
            .with_filter(chosen)
            .boxed(),
        Format::Json => layer.json().flatten_event(true).with_filter(chosen).boxed(),
    }
}

fn span_exporter(url: &str) -> anyhow::Result<SdkTracerProvider> {
    ensure!(
        url.starts_with("http://"),
        "--otlp-endpoint {url}: not of the form http://HOST:PORT"
    );
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(url)
        .build()
        .with_context(|| format!("--otlp-endpoint {url}"))?;
    let mut resource = Resource::builder();
    if std::env::var("OTEL_SERVICE_NAME").unwrap_or_default().is_empty() {
        resource = resource.with_service_name("unikai");
    }
    Ok(SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter, Tokio).build())
        .with_resource(resource.build())
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::tests::recorded::Log;

    #[test]
    fn an_invalid_log_level_is_refused() {
        for right in [
            "info",
            "INFO",
            "off",
            "warn,unikai::engine=debug",
            "unikai::engine",
            "info,kube=off",
        ] {
            assert!(filter(right).is_ok(), "{right}");
        }
        let says = filter("inof").unwrap_err().to_string();
        assert!(says.starts_with("inof is no level. Levels are error, warn, "), "{says}");
        for wrong in ["warn,debgu", "unikai=inof"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_log_level_changes_while_the_process_runs() {
        let lines = Log::default();
        let (layer, handle) = reload::Layer::new(filter("info").expect("a filter"));
        let level = Level {
            filter: handle,
            text: Mutex::new("info".to_owned()),
        };
        let writer = lines.clone();
        let printed = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer).with(printed);
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("first");
            level.change("warn,unikai=debug").expect("a filter");
            tracing::debug!("second");
            assert!(level.change("unikai=loud").is_err());
            tracing::debug!("third");
        });
        assert_eq!(level.text(), "warn,unikai=debug");
        let text = lines.text();
        assert!(
            !text.contains("first") && text.contains("second") && text.contains("third"),
            "{text}"
        );
    }

    #[test]
    fn the_format_of_lines_changes_while_spans_are_open() {
        let written = Log::default();
        let json = Arc::new(AtomicBool::new(false));
        let writer = |written: &Log| {
            let written = written.clone();
            move || written.clone()
        };
        let subscriber = tracing_subscriber::registry()
            .with(lines(Format::Text, &json, writer(&written)))
            .with(lines(Format::Json, &json, writer(&written)));
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("bind", node = "n1").entered();
            for is_json in [false, true, false] {
                json.store(is_json, Ordering::Relaxed);
                tracing::info!(is_json, "said");
            }
        });
        let text = written.text();
        let all: Vec<&str> = text.lines().collect();
        assert_eq!(all.len(), 3, "{text}");
        assert_eq!(
            all.iter().map(|line| line.starts_with('{')).collect::<Vec<_>>(),
            [false, true, false]
        );
        assert!(
            all.iter().all(|line| line.contains("bind") && line.contains("n1")),
            "{text}"
        );
    }
}
