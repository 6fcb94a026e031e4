//! Where log lines are gathered. Lines are buffered and written together at least every 100 ms, so that a request does not pay
//! for a system call. Warnings and errors are written at once.

use std::{
    borrow::Cow,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use domain::visible::{is_hidden, visible};

/// How long a line may stay in the buffer.
const GATHER: Duration = Duration::from_millis(100);
/// The size at which the buffer is written at once, in bytes.
const FULL: usize = 64 * 1024;

/// Where log lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output, for a server.
    Stdout,
    /// Standard error, for a command whose output is something else.
    Stderr,
}

/// The buffer of log lines, and the stream that they are written to.
#[derive(Debug)]
pub(super) struct Sink {
    stream: LogStream,
    lines: Mutex<Vec<u8>>,
    some: Condvar,
    /// Locked while writing, so that lines stay in order. Holds the written lines, and is empty otherwise.
    out: Mutex<Vec<u8>>,
}

impl Sink {
    /// An empty buffer. Nothing writes it out by itself before [`Sink::gather`].
    pub(super) fn new(stream: LogStream) -> Self {
        Self { stream, lines: Mutex::default(), some: Condvar::new(), out: Mutex::default() }
    }

    /// Adds the line that `write` appends to the buffer.
    pub(super) fn add(&self, is_urgent: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let mut lines = lock(&self.lines);
        let was_empty = lines.is_empty();
        write(&mut lines);
        let is_full = lines.len() >= FULL;
        drop(lines);
        if is_full || is_urgent {
            self.write_out();
        } else if was_empty {
            self.some.notify_one();
        }
    }

    /// Writes the lines out, again and again.
    pub(super) fn gather(&self) -> ! {
        loop {
            let lines = lock(&self.lines);
            drop(self.some.wait_while(lines, |lines| lines.is_empty()).unwrap_or_else(PoisonError::into_inner));
            thread::sleep(GATHER);
            self.write_out();
        }
    }

    /// Writes the lines out now.
    pub(super) fn write_out(&self) {
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

/// Adds the lines of `tracing_subscriber`.
#[derive(Debug)]
pub(super) struct Lines {
    sink: Arc<Sink>,
    /// Whether hidden characters are shown by their code.
    is_visible: bool,
}

impl Lines {
    /// Adds lines as they are.
    pub(super) fn new(sink: &Arc<Sink>) -> Self {
        Self { sink: Arc::clone(sink), is_visible: false }
    }

    /// Adds lines with the code of each hidden character in its place: one that steers a terminal, or deceives an eye.
    pub(super) fn visible(self) -> Self {
        Self { is_visible: true, ..self }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { lines: self, is_urgent: false }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        Line { lines: self, is_urgent: *meta.level() <= Level::WARN }
    }
}

#[derive(Debug)]
pub(super) struct Line<'a> {
    lines: &'a Lines,
    is_urgent: bool,
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let shown = if self.lines.is_visible { visible_line(text) } else { Cow::Borrowed(text) };
        self.lines.sink.add(self.is_urgent, |lines| lines.extend_from_slice(&shown));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line, which ends with a line break, with the code of each hidden character in its place.
fn visible_line(line: &[u8]) -> Cow<'_, [u8]> {
    let text = String::from_utf8_lossy(line);
    let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
    if text.contains(is_hidden) { format!("{}{end}", visible(text)).into_bytes().into() } else { Cow::Borrowed(line) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Sink {
    /// Takes the lines out of the buffer.
    pub(super) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut lock(&self.lines))).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_people_shows_hidden_characters() {
        let hostile = "caller=a\u{202e}gnp\u{2028}b\u{1b}[31m\u{9b}c\u{200b}\u{2066}\u{feff}\rend \u{1f680} ü\n";
        let sink = Arc::new(Sink::new(LogStream::Stdout));
        Lines::new(&sink).visible().make_writer().write_all(hostile.as_bytes()).unwrap();
        let shown = sink.take();
        assert_eq!(
            shown,
            "caller=a\\u{202e}gnp\\u{2028}b\\u{1b}[31m\\u{9b}c\\u{200b}\\u{2066}\\u{feff}\\rend \u{1f680} ü\n"
        );
        Lines::new(&sink).make_writer().write_all(b"as it is\t\n").unwrap();
        assert_eq!(sink.take(), "as it is\t\n");
    }
}
