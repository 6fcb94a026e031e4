//! The log line of an answered request. Each request has one, so that it is written straight into the buffer: by way of
//! `tracing` it would be a large part of the cost of a cache hit. Both ways write the same bytes.

use std::{
    fmt::{self, Write as _},
    time::SystemTime,
};

use tracing::dispatcher;

use super::{
    json::{Escaped, JsonLine, may_be_special, write_place},
    stamp::{Stamp, stamp},
    trace::{self, SpanContext},
};

/// Room for a usual line, in bytes.
const USUAL: usize = 512;

/// The fields of the line, in its order.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// The request's id.
    pub request_id: &'a str,
    /// The client's address.
    pub peer: Option<&'a str>,
    /// The method, if the request is not a generator's call.
    pub method: Option<&'a str>,
    /// The path, if the request is not a generator's call.
    pub path: Option<&'a str>,
    /// The route's name.
    pub route: Option<&'a str>,
    /// The ApplicationSet's name.
    pub application_set: Option<&'a str>,
    /// The ApplicationSet's namespace.
    pub namespace: Option<&'a str>,
    /// The caller's name.
    pub caller: Option<&'a str>,
    /// The text of the cache key.
    pub key: Option<&'a str>,
    /// Where the answer came from.
    pub cache: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The time since the request began, in microseconds.
    pub duration_us: u64,
    /// The number of parameter sets.
    pub sets: Option<u64>,
    /// How many elements are in which state, if the answer is made of elements.
    pub elements: Option<&'a str>,
}

impl Answered<'_> {
    /// Writes the line into the log, if the log takes it.
    pub fn log(&self) {
        if !self.log_directly(SystemTime::now()) {
            self.log_by_event();
        }
    }

    /// Writes the line into the buffer of the present log. False if that log writes no JSON, if it leaves out such lines, or
    /// if it is not ours. False too if the time has no usual date.
    fn log_directly(&self, now: SystemTime) -> bool {
        dispatcher::get_default(|log| {
            let Some(sink) = log.downcast_ref().and_then(JsonLine::answers) else { return false };
            let Some(stamp) = stamp(now) else { return false };
            let place = trace::current();
            sink.add(false, |lines| self.write(&stamp, place.as_ref(), lines));
            true
        })
    }

    fn log_by_event(&self) {
        let Self { request_id, peer, method, path, route, application_set, namespace, caller, key, .. } = *self;
        let Self { cache, status, duration_us, sets, elements, .. } = *self;
        // The text of a key stands without quotes in lines for people.
        let key = key.map(tracing::field::display);
        tracing::info!(
            target: "request", request_id, peer, method, path, route, application_set, namespace, caller, key, cache, status, duration_us, sets,
            elements, "answered"
        );
    }

    /// Appends the event as [`JsonLine`] writes it.
    fn write(&self, stamp: &Stamp, place: Option<&SpanContext>, line: &mut Vec<u8>) {
        line.reserve(USUAL);
        line.extend_from_slice(b"{\"timestamp\":\"");
        line.extend_from_slice(stamp);
        line.extend_from_slice(b"\",\"level\":\"INFO\",\"message\":\"answered\"");
        text(line, b",\"request_id\":\"", Some(self.request_id));
        text(line, b",\"peer\":\"", self.peer);
        text(line, b",\"method\":\"", self.method);
        text(line, b",\"path\":\"", self.path);
        text(line, b",\"route\":\"", self.route);
        text(line, b",\"application_set\":\"", self.application_set);
        text(line, b",\"namespace\":\"", self.namespace);
        text(line, b",\"caller\":\"", self.caller);
        text(line, b",\"key\":\"", self.key);
        text(line, b",\"cache\":\"", Some(self.cache));
        number(line, b",\"status\":", u64::from(self.status));
        number(line, b",\"duration_us\":", self.duration_us);
        if let Some(sets) = self.sets {
            number(line, b",\"sets\":", sets);
        }
        text(line, b",\"elements\":\"", self.elements);
        if let Some(place) = place {
            // Nothing fails that only fills memory.
            let _ = write_place(&mut Text(line), place);
        }
        line.extend_from_slice(b",\"target\":\"request\"}\n");
    }
}

/// Appends a field of text, if it is there. `head` is all that stands before the text.
fn text(line: &mut Vec<u8>, head: &[u8], text: Option<&str>) {
    let Some(text) = text else { return };
    line.extend_from_slice(head);
    // Looking at all bytes, without an end at the first special one, can be done for many at once.
    if text.bytes().fold(false, |is_special, byte| is_special | may_be_special(byte)) {
        let _ = Escaped(&mut Text(line)).write_str(text);
    } else {
        line.extend_from_slice(text.as_bytes());
    }
    line.push(b'"');
}

fn number(line: &mut Vec<u8>, head: &[u8], number: u64) {
    line.extend_from_slice(head);
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Bytes that text is written to.
struct Text<'a>(&'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
