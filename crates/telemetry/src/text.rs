//! The fields of a log line in text: `name=value`. A text is in quotation marks, and so is any value with spaces or quotation marks, so that
//! a program sees where it ends. Each line is one line.

use std::fmt::{self, Debug, Write as _};

use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, format::Writer},
};

use domain::visible::{is_hidden, visible};

/// Writes fields as text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextFields;

impl<'w> FormatFields<'w> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut writing = Writing { writer, is_first: true, result: Ok(()) };
        fields.record(&mut writing);
        writing.result
    }
}

struct Writing<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl Writing<'_> {
    fn write(&mut self, name: &str, value: &Value<'_>) {
        let gap = if std::mem::take(&mut self.is_first) { "" } else { " " };
        let written = if name == "message" {
            write!(self.writer, "{gap}{}", visible(value.text))
        } else {
            write!(self.writer, "{gap}{}={value}", name.trim_start_matches("r#"))
        };
        self.result = self.result.and(written);
    }
}

impl Visit for Writing<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.write(field.name(), &Value { text: value, is_text: true });
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.write(field.name(), &Value { text: &format!("{value:?}"), is_text: false });
    }
}

/// A value, in quotation marks if it is a text, or not one plain word.
struct Value<'a> {
    text: &'a str,
    is_text: bool,
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| !c.is_whitespace() && !is_hidden(c) && !matches!(c, '"' | '=' | '\\');
        if !self.is_text && !self.text.is_empty() && self.text.chars().all(is_plain) {
            return f.write_str(self.text);
        }
        f.write_char('"')?;
        for c in self.text.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if is_hidden(c) => write!(f, "{}", c.escape_default())?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_value_ends_where_a_program_expects_it() {
        for (value, expected) in [
            ("apps", "apps"),
            ("127.0.0.1:4355", "127.0.0.1:4355"),
            ("", r#""""#),
            ("no answer: it said \"no\"", r#""no answer: it said \"no\"""#),
            ("a=b", r#""a=b""#),
            ("two\nlines\u{202e}", r#""two\nlines\u{202e}""#),
            ("C:\\x", r#""C:\\x""#),
        ] {
            assert_eq!(Value { text: value, is_text: false }.to_string(), expected);
        }
    }

    /// The lines of the log, as a program splits them.
    #[test]
    fn an_error_is_one_value() {
        static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

        struct Buffer;

        impl std::io::Write for Buffer {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                LINES.lock().write(bytes)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        let log = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false).fmt_fields(TextFields);
        tracing::subscriber::with_default(log.with_writer(|| Buffer).finish(), || {
            let error = std::io::Error::other("it said \"no\"\nand left");
            tracing::error!(%error, route = "apps", name = "two words", n = 7, why = ?Some(1), "no answer:\nnone");
        });
        let written = String::from_utf8(std::mem::take(&mut *LINES.lock())).unwrap();
        assert_eq!(
            written,
            "ERROR no answer:\\nnone error=\"it said \\\"no\\\"\\nand left\" route=\"apps\" name=\"two words\" n=7 why=Some(1)\n"
        );
    }
}
