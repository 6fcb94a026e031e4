//! Log lines, as JSON or text, on one stream.

use std::{sync::Arc, thread};

use schemars::JsonSchema;
use serde::Deserialize;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

pub use super::sink::LogStream;
use super::{
    crash,
    json::JsonLine,
    sink::{Lines, Sink},
    text::TextFields,
};

/// The log's settings.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogConfig {
    /// The form of a line.
    pub format: Format,
    /// The lowest severity to log. `info` logs one line per request.
    pub level: LogLevel,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One JSON object.
    #[default]
    Json,
    /// Text for people.
    Text,
}

/// The severity of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Normal events.
    #[default]
    Info,
    /// Events that an operator should look into.
    Warn,
    /// Failures.
    Error,
}

impl From<LogLevel> for LevelFilter {
    fn from(severity: LogLevel) -> Self {
        match severity {
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Info => Self::INFO,
            LogLevel::Warn => Self::WARN,
            LogLevel::Error => Self::ERROR,
        }
    }
}

/// Writes the buffered lines when it is dropped.
#[derive(Debug)]
#[must_use = "log lines are lost when this is dropped early"]
pub struct Flush(Arc<Sink>);

impl Drop for Flush {
    fn drop(&mut self) {
        self.0.write_out();
    }
}

/// Starts logging for the whole process. Panics are logged like errors.
pub fn init(config: LogConfig, stream: LogStream) -> Flush {
    let sink = Arc::new(Sink::new(stream));
    // A second call, as in tests, leaves the first log in place.
    let _ = subscriber(config, &sink).try_init();
    crash::tell_in_log();
    let gatherer = Arc::clone(&sink);
    let _ = thread::Builder::new().name("log".into()).spawn(move || gatherer.gather());
    Flush(sink)
}

/// Writes lines into `sink`.
pub(super) fn subscriber(config: LogConfig, sink: &Arc<Sink>) -> impl Subscriber + Send + Sync + 'static {
    let writer = Lines::new(sink);
    let level = LevelFilter::from(config.level);
    let layer = match config.format {
        Format::Json => {
            let answers = if level >= LevelFilter::INFO { Some(Arc::clone(sink)) } else { None };
            fmt::layer().event_format(JsonLine::new(answers)).with_writer(writer).boxed()
        }
        Format::Text => fmt::layer().with_ansi(false).fmt_fields(TextFields).with_writer(writer.visible()).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(only_ours(level)))
}

/// Where the gateway's own lines come from: its crates, and two kinds of lines.
pub const OWN_TARGETS: [&str; 27] = [
    "argocd",
    "auth",
    "backend",
    "chunks",
    "clouds",
    "cmp",
    "conformance",
    "demo",
    "domain",
    "engine",
    "flight",
    "hooks",
    "lang",
    "launcher",
    "oci",
    "outbound",
    "push",
    "signature",
    "simulate",
    "source",
    "sql",
    "store",
    "telemetry",
    "tls",
    "appset_gateway",
    "request",
    "panic",
];

/// The gateway's own lines at `level`. Of libraries only warnings and errors: they may print secrets.
fn only_ours(level: LevelFilter) -> tracing_subscriber::filter::Targets {
    tracing_subscriber::filter::Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_targets(OWN_TARGETS.map(|target| (target, level)))
}
