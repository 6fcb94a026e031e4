//! Writes a log line as one JSON object. The line of an answered request has a shorter way, see [`super::answered`].

use std::{
    fmt::{self, Write},
    sync::Arc,
};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::{
    sink::Sink,
    trace::{self, SpanContext},
};
use domain::visible::{is_hidden, json_code, may_begin_hidden};

/// `{"timestamp":…,"level":…,<the event's fields>,"target":…}` and a newline. Within a trace also `trace_id` and `span_id`.
#[derive(Debug)]
pub(super) struct JsonLine {
    answers: Option<Arc<Sink>>,
}

impl JsonLine {
    /// `answers` is where the lines of answered requests may be written directly, if such lines are logged at all.
    pub(super) const fn new(answers: Option<Arc<Sink>>) -> Self {
        Self { answers }
    }

    /// Where the lines of answered requests may be written directly.
    pub(super) fn answers(&self) -> Option<&Sink> {
        self.answers.as_deref()
    }
}

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        line.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut line)?;
        line.write_str("\",\"level\":\"")?;
        line.write_str(event.metadata().level().as_str())?;
        line.write_char('"')?;
        let mut fields = Fields { line: &mut line, result: Ok(()) };
        event.record(&mut fields);
        fields.result?;
        if let Some(place) = trace::current() {
            write_place(&mut line, &place)?;
        }
        line.write_str(",\"target\":\"")?;
        Escaped(&mut line).write_str(event.metadata().target())?;
        line.write_str("\"}\n")
    }
}

/// The ids of the trace and the span. The span is named only if it is collected.
pub(super) fn write_place(line: &mut impl Write, place: &SpanContext) -> fmt::Result {
    let context = place.context();
    write!(line, ",\"trace_id\":\"{:032x}\"", u128::from_be_bytes(context.trace()))?;
    if place.is_recorded() {
        write!(line, ",\"span_id\":\"{:016x}\"", u64::from_be_bytes(context.span()))?;
    }
    Ok(())
}

/// Writes each field that it is shown.
struct Fields<'a, 'w> {
    line: &'a mut Writer<'w>,
    result: fmt::Result,
}

impl<'w> Fields<'_, 'w> {
    fn field(&mut self, field: &Field, value: impl FnOnce(&mut Writer<'w>) -> fmt::Result) {
        let write = || {
            self.line.write_str(",\"")?;
            // A field's name is a Rust identifier, with nothing to escape.
            self.line.write_str(field.name())?;
            self.line.write_str("\":")?;
            value(self.line)
        };
        self.result = self.result.and_then(|()| write());
    }

    fn text(&mut self, field: &Field, write: impl FnOnce(&mut Escaped<'_, Writer<'w>>) -> fmt::Result) {
        self.field(field, |line| {
            line.write_char('"')?;
            write(&mut Escaped(line))?;
            line.write_char('"')
        });
    }
}

impl Visit for Fields<'_, '_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, |line| line.write_str(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, |line| write!(line, "{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, |line| write!(line, "{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity.
        self.field(field, |line| if value.is_finite() { write!(line, "{value}") } else { line.write_str("null") });
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, |line| write!(line, "{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, |line| write!(line, "{value:?}"));
    }
}

/// Escapes text inside a JSON string, also characters that a terminal would obey or that deceive a reader.
pub(super) struct Escaped<'a, W>(pub(super) &'a mut W);

/// Whether `byte` begins a character that may have to be escaped.
pub(super) const fn may_be_special(byte: u8) -> bool {
    may_begin_hidden(byte) || matches!(byte, b'"' | b'\\')
}

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(position) = rest.bytes().position(may_be_special) {
            let (plain, tail) = rest.split_at(position);
            self.0.write_str(plain)?;
            let mut tail = tail.chars();
            match tail.next() {
                Some('"') => self.0.write_str("\\\"")?,
                Some('\\') => self.0.write_str("\\\\")?,
                Some(c) if is_hidden(c) => self.0.write_str(&json_code(c))?,
                Some(c) => self.0.write_char(c)?,
                None => {}
            }
            rest = tail.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::{Value, json};
    use tracing_subscriber::{fmt, layer::SubscriberExt};

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_object_whatever_stands_in_it() {
        let memory = Memory::default();
        let writer = memory.clone();
        let layer = fmt::layer().event_format(JsonLine::new(None)).with_writer(move || writer.clone());
        let nasty = "\"quoted\"\\ \n\r\t\u{1} \u{7f}\u{80}\u{9b}31m\u{a0}¿\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{200b}\u{feff}\u{e0041} 日本 🚀";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let (option, none): (_, Option<&str>) = (Some(nasty), None);
            tracing::info!(text = nasty, shown = %nasty, debug = ?option, none, yes = true, n = 7_u64, i = -7, f = 0.5, nan = f64::NAN, "{nasty}");
        });
        let written = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written.matches(is_hidden).collect::<Vec<_>>(), ["\n"], "{written}");
        let mut line: Value = serde_json::from_str(&written).unwrap();
        let timestamp = line["timestamp"].take();
        assert!(humantime::parse_rfc3339(timestamp.as_str().unwrap()).is_ok(), "{timestamp}");
        let expected = json!({
            "timestamp": null, "level": "INFO", "message": nasty, "text": nasty, "shown": nasty,
            "debug": format!("{:?}", Some(nasty)), "yes": true, "n": 7, "i": -7, "f": 0.5, "nan": null, "target": module_path!(),
        });
        assert_eq!(line, expected);
    }
}
