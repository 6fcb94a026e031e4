//! Argo CD's reading of a response.
//!
//! The `ApplicationSet` controller accepts every 2xx that decodes, and deletes each Application that is missing from it. So
//! this module reads an answer as that client does, not as it was meant. Its rules come from three places: HTTP/1.1 framing from
//! Go's `net/http`, the status check and the error text from Argo CD's `applicationset/services/internal/http` client, and the
//! decoding into `struct{Output struct{Parameters []map[string]any}}` from Go's `encoding/json`.

mod http;
mod json;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub(crate) use self::http::CUT;
use self::{
    http::{Body, bodiless, receive, values},
    json::{BLANK, first_value, float64, folds, members},
};

/// The `ApplicationSet` controller's reading of one response.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Success with a list that is not empty: Applications are created and updated.
    ///
    /// Numbers are what a float64 keeps. Whole numbers up to 2^53 compare as integers: `3` and `3.0` are both `json!(3)`, and
    /// 2^53+1 is 2^53.
    Parameters(Vec<Map<String, Value>>),
    /// Success with an explicit `output.parameters: []`, which was written on purpose.
    ExplicitlyEmpty,
    /// Success with an empty list by accident: Argo CD deletes everything. `why` names the accident. Also used where this module
    /// cannot rule this out: a redirect, a compressed body, JSON that it cannot read.
    AccidentallyEmpty {
        /// The accident.
        why: String,
    },
    /// An error: Argo CD changes nothing. `condition` is the text that the operator sees on the `ApplicationSet`, without the
    /// controller's prefix. It is exact for other statuses, and contains at least the body of a 2xx. Without a response there
    /// is no `status`.
    Error {
        /// The status, if there was a response.
        status: Option<u16>,
        /// The text for the operator.
        condition: String,
    },
}

/// Evaluates a response as it came over the socket, after which the connection was closed.
#[must_use]
pub fn evaluate_raw(response: &[u8]) -> Verdict {
    match receive(response) {
        Ok((status, headers, body)) => decide(status, &headers, &body),
        Err(condition) => Verdict::Error { status: None, condition },
    }
}

/// Evaluates a response whose body was read to its end.
#[must_use]
pub fn evaluate(status: u16, headers: &[(String, String)], body: &[u8]) -> Verdict {
    evaluate_part(status, headers, body, None)
}

/// Evaluates a response whose body was read as far as it came. `broken` is the error that ended it early: Argo CD reads the first JSON
/// value, and does not look behind it.
pub(crate) fn evaluate_part(
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
    broken: Option<&'static str>,
) -> Verdict {
    let body = if bodiless(status) { Body(Vec::new(), None) } else { Body(body.to_vec(), broken) };
    decide(status, headers, &body)
}

/// Why `serde_json` refuses JSON that Go reads or skips: more than 128 levels, a number beyond float64, half a surrogate pair.
const BEYOND: [&str; 3] = ["recursion limit", "out of range", "hex escape"];

/// Go follows these five redirects. Of all other statuses, Argo CD takes any 2xx for a success.
fn decide(status: u16, headers: &[(String, String)], body: &Body) -> Verdict {
    let first = |name| values(headers, name).next().unwrap_or_default();
    if matches!(status, 301 | 302 | 303 | 307 | 308) && !first("location").is_empty() {
        return accident("redirect");
    }
    let fine = (200..=299).contains(&status);
    // Go asks for gzip by itself and unpacks it. An empty body is not an error.
    let gzip = first("content-encoding").eq_ignore_ascii_case("gzip");
    let (bytes, broken) = match &body.0[..] {
        [0x1f, 0x8b, 8, ..] if gzip && fine => return accident("compressed"),
        [_, ..] if gzip => (&[][..], Some("gzip: invalid header")),
        bytes => (bytes, body.1),
    };
    let condition = if fine {
        match success(bytes, broken) {
            Ok(verdict) => return verdict,
            Err(reason) => format!("{reason}: {}", String::from_utf8_lossy(bytes)),
        }
    } else {
        let shown = broken.map_or_else(|| shown(bytes), str::to_owned);
        format!("API error with status code {status}: {shown}")
    };
    Verdict::Error { status: Some(status), condition }
}

/// The body of a 2xx. Only the first JSON value is read, and a missing value is not an error. The decoder reads the bytes before
/// it checks how the reading ended. So a body that breaks off *after* its first value is a success.
fn success(bytes: &[u8], broken: Option<&str>) -> Result<Verdict, String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches(BLANK);
    if text.is_empty() {
        return broken.map_or(Ok(accident("no body")), |reason| Err(reason.to_owned()));
    }
    // Go's older decoder wants a byte or a proper end after the word. The newer decoder does not.
    if text.starts_with("null") {
        return Ok(accident("the answer is null"));
    }
    let read = first_value(text);
    if let Some(reason) = read.as_ref().err().filter(|reason| BEYOND.iter().any(|limit| reason.contains(limit))) {
        return Ok(accident(&format!("JSON for Go, but not for this suite: {reason}")));
    }
    let (document, rest) = read?;
    let mut answer = Answer::default();
    answer.decode(&document, text)?;
    answer.kept.truncate(answer.len);
    Ok(match answer {
        Answer { len: 1.., kept, .. } => Verdict::Parameters(kept),
        Answer { why: Some(why), .. } => accident(why),
        _ if !rest.trim_start_matches(BLANK).is_empty() => accident("empty before ignored bytes"),
        _ if broken.is_some() => accident("empty before the message broke off"),
        _ => Verdict::ExplicitlyEmpty,
    })
}

/// The message that Argo CD shows of an error body: the string `message`, else the string `error`, by exact name and only at the top level.
/// The whole body if it is not a JSON object.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match serde_json::from_str(&text) {
        Ok(Value::Null) => String::new(),
        Ok(Value::Object(members)) => {
            let text = |key| members.get(key).and_then(Value::as_str);
            text("message").or_else(|| text("error")).unwrap_or_default().to_owned()
        }
        _ => text.into_owned(),
    }
}

fn accident(why: &str) -> Verdict {
    Verdict::AccidentallyEmpty { why: why.to_owned() }
}

/// The struct that is decoded into, and why it is empty by accident.
#[derive(Default)]
struct Answer {
    /// The list's memory, of which the first `len` items are the list.
    kept: Vec<Map<String, Value>>,
    len: usize,
    lists: usize,
    why: Option<&'static str>,
}

impl Answer {
    /// Keys match without case. A repeated `output` decodes into the same struct. `null` and missing fields change nothing
    /// there; only another `parameters` does.
    fn decode(&mut self, document: &Value, text: &str) -> Result<(), String> {
        let document = document.as_object().ok_or("json: not an object")?;
        let bare = document.keys().any(|key| folds(key, "parameters"));
        self.why = Some(if bare { "`parameters` outside of `output`" } else { "no `output`" });
        for (output, text) in members(text, "output") {
            let lists = match output {
                Value::Null => Vec::new(),
                Value::Object(_) => members(text, "parameters"),
                _ => return Err("json: `output` is not an object".to_owned()),
            };
            if self.lists == 0 {
                self.why = Some("`output` is null or without `parameters`");
            }
            for (list, _) in lists {
                self.parameters(list)?;
            }
        }
        Ok(())
    }

    /// An item is an object, or `null` for an empty one. A repeated list reuses the memory of the list before, so its items are
    /// merged into the old ones.
    fn parameters(&mut self, list: Value) -> Result<(), String> {
        self.lists += 1;
        self.why = match (&list, self.lists) {
            (Value::Null, _) => Some("`parameters` is null"),
            (_, 1) => None,
            _ => Some("a repeated key whose last list is empty"),
        };
        let items = match list {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            _ => return Err("json: `parameters` is not a list".to_owned()),
        };
        self.len = items.len();
        let memory = if items.is_empty() { 0 } else { self.kept.len() };
        self.kept.resize(memory.max(self.len), Map::new());
        for (set, item) in self.kept.iter_mut().zip(items) {
            match float64(item) {
                Value::Object(members) => set.extend(members),
                Value::Null => set.clear(),
                _ => return Err("json: an item of `parameters` is not an object".to_owned()),
            }
        }
        Ok(())
    }
}
