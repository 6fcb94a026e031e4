//! Log lines, as JSON or text, on one stream. Lines are buffered and written together at least every 100 ms, so that a request
//! does not pay for a system call. Warnings and errors are written at once.

use std::{
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use schemars::JsonSchema;
use serde::Deserialize;
use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_subscriber::{Layer, fmt, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

use super::{crash, json::JsonLine};

/// How long a line may stay in the buffer.
const GATHER: Duration = Duration::from_millis(100);
/// The size at which the buffer is written at once, in bytes.
const FULL: usize = 64 * 1024;

/// The log's settings.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogConfig {
    /// The form of a line.
    pub(crate) format: Format,
    /// The lowest severity to log. `info` logs one line per request.
    pub(crate) level: LogLevel,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// One JSON object.
    #[default]
    Json,
    /// Text for people.
    Text,
}

/// The severity of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Everything.
    Debug,
    /// What happened.
    #[default]
    Info,
    /// What an operator should look into.
    Warn,
    /// What failed.
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

/// Where log lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output, for a server.
    Stdout,
    /// Standard error, for a command whose output is something else.
    Stderr,
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
    let sink = Arc::new(Sink { stream, lines: Mutex::default(), some: Condvar::new(), out: Mutex::default() });
    let writer = Lines(Arc::clone(&sink));
    let layer = match config.format {
        Format::Json => fmt::layer().event_format(JsonLine).with_writer(writer).boxed(),
        Format::Text => fmt::layer().with_ansi(false).with_writer(writer).boxed(),
    };
    // A second call, as in tests, leaves the first log in place.
    let _ = tracing_subscriber::registry().with(layer.with_filter(only_ours(config.level))).try_init();
    crash::tell_in_log();
    let gatherer = Arc::clone(&sink);
    let _ = thread::Builder::new().name("log".into()).spawn(move || gatherer.gather());
    Flush(sink)
}

/// The gateway's own lines at `level`. Of libraries only warnings and errors: they may print secrets.
fn only_ours(level: LogLevel) -> tracing_subscriber::filter::Targets {
    let level = LevelFilter::from(level);
    tracing_subscriber::filter::Targets::new().with_default(level.min(LevelFilter::WARN)).with_targets([
        ("appset_gateway", level),
        ("request", level),
        ("panic", level),
    ])
}

#[derive(Debug)]
struct Sink {
    stream: LogStream,
    lines: Mutex<Vec<u8>>,
    some: Condvar,
    /// Locked while writing, so that lines stay in order. Holds the written lines, and is empty otherwise.
    out: Mutex<Vec<u8>>,
}

impl Sink {
    fn gather(&self) -> ! {
        loop {
            let lines = lock(&self.lines);
            drop(self.some.wait_while(lines, |lines| lines.is_empty()).unwrap_or_else(PoisonError::into_inner));
            thread::sleep(GATHER);
            self.write_out();
        }
    }

    fn write_out(&self) {
        let mut out = lock(&self.out);
        // The two buffers swap, so that neither has to grow again.
        std::mem::swap(&mut *out, &mut *lock(&self.lines));
        if out.is_empty() {
            return;
        }
        // A log that cannot be written cannot report that.
        let _ = match self.stream {
            LogStream::Stdout => io::stdout().lock().write_all(&out).and_then(|()| io::stdout().flush()),
            LogStream::Stderr => io::stderr().lock().write_all(&out),
        };
        out.clear();
    }
}

#[derive(Debug)]
struct Lines(Arc<Sink>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { sink: &self.0, is_urgent: false }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        Line { sink: &self.0, is_urgent: *meta.level() <= Level::WARN }
    }
}

#[derive(Debug)]
struct Line<'a> {
    sink: &'a Sink,
    is_urgent: bool,
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut lines = lock(&self.sink.lines);
        let was_empty = lines.is_empty();
        lines.extend_from_slice(text);
        let is_full = lines.len() >= FULL;
        drop(lines);
        if is_full || self.is_urgent {
            self.sink.write_out();
        } else if was_empty {
            self.sink.some.notify_one();
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
