//! The judge: what Argo CD makes of a response.
//!
//! The `ApplicationSet` controller believes every 2xx that decodes and deletes each Application missing from it, so
//! an answer is judged by what that client reads, not by what was meant. Its rules come from three places: HTTP/1.1
//! framing from Go's `net/http`, the status check and the error text from Argo CD's
//! `applicationset/services/internal/http` client, and the decoding into `struct{Output struct{Parameters
//! []map[string]any}}` from Go's `encoding/json`.

use serde_json::{Map, Value};

/// What the `ApplicationSet` controller makes of one response.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Success with a list that is not empty: Applications are created and updated.
    ///
    /// Numbers are what a float64 keeps. Whole ones up to 2^53 compare as integers: `3` and `3.0` are both
    /// `json!(3)`, and 2^53+1 is 2^53.
    Parameters(Vec<Map<String, Value>>),
    /// Success with an explicit `output.parameters: []`, written by someone who meant it.
    ExplicitlyEmpty,
    /// Success with nothing, by accident: Argo CD deletes everything. `why` names the accident. Also what may be no
    /// better: a redirect, a compressed body, JSON the judge cannot read.
    AccidentallyEmpty { why: String },
    /// An error: nothing is touched. `condition` is the text the operator sees on the `ApplicationSet` less the
    /// controller's prefix: word for word of other statuses, and the body at least of a 2xx. No response, no `status`.
    Error { status: Option<u16>, condition: String },
}

/// Judges a response as it came over the socket, after which the connection was closed.
pub fn judge_raw(response: &[u8]) -> Verdict {
    match receive(response) {
        Ok((status, headers, body)) => decide(status, &headers, &body),
        Err(condition) => Verdict::Error { status: None, condition },
    }
}

/// Judges a response whose body was read to its proper end.
pub fn judge(status: u16, headers: &[(String, String)], body: &[u8]) -> Verdict {
    let read = if bodiless(status) { &[] } else { body };
    decide(status, headers, &Body(read.to_vec(), None))
}

type Headers = Vec<(String, String)>;

/// What arrived of a body, and what ended the reading if that was not the end.
struct Body(Vec<u8>, Option<&'static str>);

const CUT: &str = "unexpected EOF";
const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];

/// Why `serde_json` refuses JSON that Go reads, or at least skips: 128 levels of nesting, a number above float64, half
/// a surrogate pair.
const BEYOND: [&str; 3] = ["recursion limit", "out of range", "hex escape"];

/// Go follows these five redirects. Of the rest, Argo CD takes any 2xx for a success.
fn decide(status: u16, headers: &[(String, String)], body: &Body) -> Verdict {
    let first = |name| values(headers, name).next().unwrap_or_default();
    if matches!(status, 301 | 302 | 303 | 307 | 308) && !first("location").is_empty() {
        return accident("redirect");
    }
    let fine = (200..=299).contains(&status);
    // Go asks for gzip unbidden and unpacks it; to unpack nothing is no error.
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

/// The body of a 2xx. Only the first JSON value is read, and no value at all is no error. The decoder looks at what
/// has arrived before it looks at how the reading ended: a body that breaks off *after* its first value is a success
/// all the same.
fn success(bytes: &[u8], broken: Option<&str>) -> Result<Verdict, String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches(BLANK);
    if text.is_empty() {
        return broken.map_or(Ok(accident("no body")), |reason| Err(reason.to_owned()));
    }
    // Go's older decoder wants a byte or a proper end after the word, the newer one does not.
    if text.starts_with("null") {
        return Ok(accident("the answer is null"));
    }
    let read = first_value(text);
    if let Some(reason) = read.as_ref().err().filter(|reason| BEYOND.iter().any(|limit| reason.contains(limit))) {
        return Ok(accident(&format!("JSON for Go, but not for the judge: {reason}")));
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

/// What Argo CD shows of an error body: the string `message`, else the string `error`, by exact name and at the top
/// level only; the whole body when it is no JSON object.
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

/// The struct that is decoded into, and why it is empty unless somebody meant it to be.
#[derive(Default)]
struct Answer {
    /// The list's memory, of which the first `len` items are the list.
    kept: Vec<Map<String, Value>>,
    len: usize,
    lists: usize,
    why: Option<&'static str>,
}

impl Answer {
    /// Keys match without case. A repeated `output` decodes into the same struct, in which `null` and missing fields
    /// change nothing: only another `parameters` does.
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

    /// An item is an object or `null`, which is an empty one. A repeated list reuses the memory of the one before, so
    /// that its items are merged into the old ones.
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

/// The first JSON value of a text that does not start with a blank, and what follows it.
fn first_value(text: &str) -> Result<(Value, &str), String> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter();
    let value = stream.next().ok_or(CUT)?.map_err(|error| error.to_string())?;
    Ok((value, &text[stream.byte_offset()..]))
}

/// Each member of that name in the JSON object a text starts with, and the text from there on. (A `Value` keeps only
/// the last of repeated members.)
fn members<'a>(mut text: &'a str, name: &str) -> Vec<(Value, &'a str)> {
    let skip = |text: &'a str, mark: [char; 2]| text.trim_start_matches(BLANK).trim_start_matches(mark).trim_start();
    let mut found = Vec::new();
    while let Ok((Value::String(key), after)) = first_value(skip(text, ['{', ','])) {
        let start = skip(after, [':', ':']);
        let Ok((value, after)) = first_value(start) else { break };
        if folds(&key, name) {
            found.push((value, start));
        }
        text = after;
    }
    found
}

/// Go folds case as Unicode does, to which the long s of old print is an `s`.
fn folds(key: &str, name: &str) -> bool {
    key.replace('ſ', "s").eq_ignore_ascii_case(name)
}

/// What Go decodes into an `any`: every number a float64.
fn float64(value: Value) -> Value {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            let exact = float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0;
            let whole = format!("{float}").parse::<i64>().ok().filter(|_| exact);
            whole.map_or(float.into(), Value::from)
        }
        Value::Array(items) => items.into_iter().map(float64).collect(),
        Value::Object(members) => members.into_iter().map(|(key, value)| (key, float64(value))).collect(),
        other => other,
    }
}

/// `http.ReadResponse`: interim answers are skipped, `chunked` outranks `Content-Length`, and without either the body
/// lasts until the connection is closed.
fn receive(mut rest: &[u8]) -> Result<(u16, Headers, Body), String> {
    loop {
        let head = line(&mut rest).ok_or(CUT)?;
        let malformed = || format!("malformed HTTP response {head:?}");
        let versioned = |(version, _): &(&str, &str)| matches!(version.as_bytes(), [b'0'..=b'9', b'.', b'0'..=b'9']);
        let line = head.strip_prefix("HTTP/").and_then(|line| line.split_once(' '));
        let (version, status) = line.filter(versioned).ok_or_else(malformed)?;
        let code = status.trim_start_matches(' ').split(' ').next().filter(|code| code.len() == 3);
        let status: u16 = code.and_then(|code| code.parse().ok()).ok_or_else(malformed)?;
        let headers = read_headers(&mut rest)?;
        let codings: Vec<_> = values(&headers, "transfer-encoding").collect();
        let chunked = match &codings[..] {
            [] => false,
            _ if version < "1.1" => false,
            [one] if one.eq_ignore_ascii_case("chunked") => true,
            _ => return Err(format!("unsupported transfer encoding {codings:?}")),
        };
        let lengths: Vec<_> = values(&headers, "content-length").collect();
        let length = match &lengths[..] {
            [first, rest @ ..] if rest.iter().all(|other| other == first) => digits(first, 10),
            _ => None,
        };
        if length.is_none() && !lengths.is_empty() {
            return Err(format!("bad Content-Length {lengths:?}"));
        }
        let body = match length {
            _ if bodiless(status) => Body(Vec::new(), None),
            _ if chunked => read_chunks(rest),
            Some(length) if length > rest.len() => Body(rest.to_vec(), Some(CUT)),
            length => Body(rest[..length.unwrap_or(rest.len())].to_vec(), None),
        };
        if status == 101 || !(100..=199).contains(&status) {
            return Ok((status, headers, body));
        }
    }
}

fn bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// Header lines up to a blank one. A line that starts with a space continues the one before.
fn read_headers(rest: &mut &[u8]) -> Result<Headers, String> {
    let mut headers = Headers::new();
    loop {
        let line = line(rest).ok_or(CUT)?;
        if line.is_empty() {
            return Ok(headers);
        }
        let last = headers.last_mut().filter(|_| line.starts_with([' ', '\t']));
        if let Some((_, value)) = last {
            *value = format!("{value} {}", line.trim_matches([' ', '\t']));
            continue;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        let token = |c: char| c.is_ascii_alphanumeric() || " !#$%&'*+-.^_`|~".contains(c);
        let named = !name.is_empty() && !name.starts_with(' ') && name.chars().all(token);
        if !named || value.contains(|c: char| c.is_ascii_control() && c != '\t') {
            return Err(format!("malformed MIME header line: {line:?}"));
        }
        headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
}

/// Takes a line off, without its `\n` or `\r\n`.
fn line(rest: &mut &[u8]) -> Option<String> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    *rest = &rest[end + 1..];
    Some(String::from_utf8_lossy(line).into_owned())
}

/// A number without a sign.
fn digits(text: &str, radix: u32) -> Option<usize> {
    usize::from_str_radix(text, radix).ok().filter(|_| !text.starts_with('+'))
}

/// All values of a header, whose name is matched without case.
fn values<'a>(headers: &'a [(String, String)], name: &str) -> impl Iterator<Item = &'a str> {
    let same = move |(key, _): &&(String, String)| key.eq_ignore_ascii_case(name);
    headers.iter().filter(same).map(|(_, value)| value.as_str())
}

/// What came of a chunked body before its end or its first fault, which is read all the same.
fn read_chunks(mut rest: &[u8]) -> Body {
    let mut bytes = Vec::new();
    let broken = loop {
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
            break Some(CUT);
        };
        let size = str::from_utf8(&rest[..end]).ok().and_then(|line| line.split(';').next());
        let Some(size) = size.and_then(|size| digits(size.trim_end_matches([' ', '\t']), 16)) else {
            break Some("invalid byte in chunk length");
        };
        rest = &rest[end + 2..];
        if size == 0 {
            // Trailers, if any, and the last line end are part of the body.
            break read_headers(&mut rest).err().map(|_| "http: unexpected EOF reading trailer");
        }
        let (chunk, after) = rest.split_at(size.min(rest.len()));
        bytes.extend_from_slice(chunk);
        match after {
            [b'\r', b'\n', after @ ..] => rest = after,
            [] | [_] => break Some(CUT),
            _ => break Some("malformed chunked encoding"),
        }
    };
    Body(bytes, broken)
}

mod tests {
    use super::{Verdict, judge, judge_raw};
    use serde_json::{Value, json};

    /// What a case is expected to come to: sets as JSON, a word of the accident, the status and all of the condition
    /// (`Shows`) or a word of it (`Fails`, where it is not Argo CD's own text).
    enum Expect {
        Sets(&'static str),
        Explicit,
        Accident(&'static str),
        Shows(u16, &'static str),
        Fails(Option<u16>, &'static str),
    }
    use Expect::{Accident, Explicit, Fails, Sets, Shows};

    /// A response with a header or two, or with none and a body that lasts until the connection is closed.
    macro_rules! http {
        ($status:literal, $body:literal) => {
            http!($status, "Server: x", $body)
        };
        ($status:literal, $headers:literal, $body:literal) => {
            concat!("HTTP/1.1 ", $status, " X\r\n", $headers, "\r\n\r\n", $body).as_bytes()
        };
    }

    #[rustfmt::skip] // One case, one line.
    const CASES: &[(&str, &[u8], Expect)] = &[
        // Parameters.
        ("one set", http!(200, r#"{"output":{"parameters":[{"a":"x"}]}}"#), Sets(r#"[{"a":"x"}]"#)),
        ("nested values are kept", http!(200, r#"{"output":{"parameters":[{"a":{"b":[null,true]}}]}}"#), Sets(r#"[{"a":{"b":[null,true]}}]"#)),
        ("null item", http!(200, r#"{"output":{"parameters":[null]}}"#), Sets("[{}]")),
        ("other keys are ignored", http!(200, r#"{"x":[1],"output":{"y":0,"parameters":[{}],"z":{}}}"#), Sets("[{}]")),
        ("keys in capitals", http!(200, r#"{"OUTPUT":{"Parameters":[{"A":"x"}]}}"#), Sets(r#"[{"A":"x"}]"#)),
        ("key with a long s", http!(200, r#"{"output":{"parameterſ":[{}]}}"#), Sets("[{}]")),
        ("trailing garbage", http!(200, r#"{"output":{"parameters":[{}]}}<html>"#), Sets("[{}]")),
        ("status 299", http!(299, r#"{"output":{"parameters":[{}]}}"#), Sets("[{}]")),
        ("numbers are float64", http!(200, r#"{"output":{"parameters":[{"a":9007199254740993,"b":2.0,"c":1e3,"d":0.5}]}}"#), Sets(r#"[{"a":9007199254740992,"b":2,"c":1000,"d":0.5}]"#)),
        ("repeated output, null last", http!(200, r#"{"output":{"parameters":[{"a":1}]},"output":null}"#), Sets(r#"[{"a":1}]"#)),
        ("repeated output, {} last", http!(200, r#"{"output":{"parameters":[{"a":1}]},"output":{}}"#), Sets(r#"[{"a":1}]"#)),
        ("repeated lists merge items", http!(200, r#"{"output":{"parameters":[{"a":1},{"b":1}],"PARAMETERS":[{"c":1}],"parameters":[{},{}]}}"#), Sets(r#"[{"a":1,"c":1},{"b":1}]"#)),
        ("whole Content-Length", http!(200, "content-LENGTH: 30", r#"{"output":{"parameters":[{}]}}HTTP/1.1 500"#), Sets("[{}]")),
        ("whole chunks", http!(200, "Transfer-Encoding: Chunked", "A;x=y\r\n{\"output\":\r\n14\r\n{\"parameters\":[{}]}}\r\n0\r\n\r\n"), Sets("[{}]")),
        ("cut after the value", http!(200, "Content-Length: 99", r#"{"output":{"parameters":[{}]}}"#), Sets("[{}]")),
        ("chunks cut after the value", http!(200, "Transfer-Encoding: chunked", "1e\r\n{\"output\":{\"parameters\":[{}]}}\r\n"), Sets("[{}]")),
        ("interim answer first", b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{\"output\":{\"parameters\":[{}]}}", Sets("[{}]")),
        // Meant to be empty.
        ("explicit []", http!(200, r#"{"output":{"parameters":[]}}"#), Explicit),
        ("explicit [] with blanks", http!(200, " { \"output\" : { \"parameters\" : [ ] } } \r\n"), Explicit),
        // Empty by accident.
        ("empty", http!(200, ""), Accident("no body")),
        ("blank", http!(200, " \r\n\t"), Accident("no body")),
        ("202 empty", http!(202, "Content-Length: 0", ""), Accident("no body")),
        ("202 blank", http!(202, "Content-Length: 1", "\n"), Accident("no body")),
        ("204", http!(204, ""), Accident("no body")),
        ("204 with a body", http!(204, "Content-Length: 30", r#"{"output":{"parameters":[{}]}}"#), Accident("no body")),
        ("null", http!(200, "null"), Accident("answer is null")),
        ("null and more", http!(200, r#"null{"output":{"parameters":[{}]}}"#), Accident("answer is null")),
        ("null before the message broke off", http!(200, "Content-Length: 30", "null"), Accident("answer is null")),
        ("{}", http!(200, "{}"), Accident("no `output`")),
        ("output missing", http!(200, r#"{"result":{"parameters":[{}]}}"#), Accident("no `output`")),
        ("output misspelt", http!(200, r#"{"outputs":{"parameters":[{}]}}"#), Accident("no `output`")),
        ("output null", http!(200, r#"{"output":null}"#), Accident("`output` is null")),
        ("output empty", http!(200, r#"{"output":{}}"#), Accident("without `parameters`")),
        ("parameters null", http!(200, r#"{"output":{"parameters":null}}"#), Accident("`parameters` is null")),
        ("top-level parameters", http!(200, r#"{"parameters":[{}]}"#), Accident("outside of `output`")),
        ("repeated output, [] last", http!(200, r#"{"output":{"parameters":[{}]},"output":{"parameters":[]}}"#), Accident("repeated key")),
        ("repeated parameters, [] last", http!(200, r#"{"output":{"parameters":[{}],"Parameters":[]}}"#), Accident("repeated key")),
        ("{} before the real answer", http!(200, r#"{} {"output":{"parameters":[{}]}}"#), Accident("no `output`")),
        ("[] before the real answer", http!(200, r#"{"output":{"parameters":[]}}{"output":{"parameters":[{}]}}"#), Accident("ignored bytes")),
        ("[] cut after the value", http!(200, "Content-Length: 99", r#"{"output":{"parameters":[]}}"#), Accident("broke off")),
        ("{} cut after the value", http!(200, "Content-Length: 99", "{}"), Accident("no `output`")),
        ("died before the body", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", Accident("no body")),
        ("empty chunked body", http!(200, "Transfer-Encoding: chunked", "0\r\n\r\n"), Accident("no body")),
        ("gzip header, empty chunked body", http!(200, "Content-Encoding: GZIP\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), Accident("no body")),
        ("gzip of {}", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\xae\x05\x00\x43\xbf\xa6\xa3\x02\x00\x00\x00", Accident("compressed")),
        ("302", http!(302, "Location: /elsewhere\r\nContent-Length: 0", ""), Accident("redirect")),
        ("a skipped number too large", http!(200, r#"{"x":1e999}"#), Accident("out of range")),
        // Errors in a 2xx.
        ("top-level []", http!(200, "[]"), Fails(Some(200), "not an object: []")),
        ("output a list", http!(200, r#"{"output":[{}]}"#), Fails(Some(200), "`output`")),
        ("parameters an object", http!(200, r#"{"output":{"parameters":{}}}"#), Fails(Some(200), "not a list")),
        ("an item is text", http!(200, r#"{"output":{"parameters":[{},"x"]}}"#), Fails(Some(200), "an item")),
        ("HTML under 200", http!(200, "<html>no</html>"), Fails(Some(200), ": <html>no</html>")),
        ("byte order mark", http!(200, "\u{feff}{}"), Fails(Some(200), "expected value")),
        ("truncated JSON", http!(200, r#"{"output":{"parameters":[{}]}"#), Fails(Some(200), "EOF")),
        ("Content-Length not reached", http!(200, "Content-Length: 30", r#"{"output":{"parameters":"#), Fails(Some(200), "EOF")),
        ("Content-Length and no body", http!(200, "Content-Length: 30", ""), Fails(Some(200), "EOF")),
        ("chunks cut", http!(200, "Transfer-Encoding: chunked", "a\r\n{\"output\":\r\n"), Fails(Some(200), "EOF")),
        ("chunks without the last line end", http!(200, "Transfer-Encoding: chunked", "0\r\n"), Fails(Some(200), "reading trailer")),
        ("gzip header, plain body", http!(200, "Content-Encoding: gzip", r#"{"output":{"parameters":[{}]}}"#), Fails(Some(200), "gzip")),
        // No response.
        ("no HTTP", b"{\"output\":{\"parameters\":[{}]}}\n\n", Fails(None, "malformed")),
        ("two Content-Lengths", http!(200, "Content-Length: 2\r\nContent-Length: 3", "{} "), Fails(None, "Content-Length")),
        ("unknown coding", http!(200, "Transfer-Encoding: gzip, chunked", "0\r\n\r\n"), Fails(None, "transfer encoding")),
        // Other statuses.
        ("message", http!(502, r#"{"message":"no digest","code":"x","error":"y"}"#), Shows(502, "no digest")),
        ("error", http!(500, r#"{"error":"no digest"}"#), Shows(500, "no digest")),
        ("empty message wins", http!(500, r#"{"message":"","error":"x"}"#), Shows(500, "")),
        ("Message in capitals", http!(403, r#"{"Message":"no"}"#), Shows(403, "")),
        ("nested error", http!(503, r#"{"error":{"message":"no"}}"#), Shows(503, "")),
        ("problem+json", http!(503, "Content-Type: application/problem+json", r#"{"title":"no","detail":"x"}"#), Shows(503, "")),
        ("an answer under 500", http!(500, r#"{"output":{"parameters":[{}]}}"#), Shows(500, "")),
        ("HTML", http!(502, "<html>Bad Gateway</html>"), Shows(502, "<html>Bad Gateway</html>")),
        ("raw text", http!(404, "not found\n"), Shows(404, "not found\n")),
        ("error cut", http!(500, "Content-Length: 99", r#"{"message":"x"}"#), Shows(500, "unexpected EOF")),
        ("error without a body", http!(503, ""), Shows(503, "")),
        ("302 to nowhere", http!(302, "gone"), Shows(302, "gone")),
    ];

    #[test]
    fn judges_as_argo_cd_does() {
        for (name, raw, expect) in CASES {
            let verdict = judge_raw(raw);
            let right = match (expect, &verdict) {
                (Sets(sets), Verdict::Parameters(read)) => json!(read) == sets.parse::<Value>().expect(name),
                (Explicit, verdict) => *verdict == Verdict::ExplicitlyEmpty,
                (Accident(word), Verdict::AccidentallyEmpty { why }) => why.contains(word),
                (Shows(code, text), Verdict::Error { status, condition }) => {
                    let expected = format!("API error with status code {code}: {text}");
                    (*status, condition) == (Some(*code), &expected)
                }
                (Fails(code, word), Verdict::Error { status, condition }) => status == code && condition.contains(word),
                _ => false,
            };
            assert!(right, "{name}: {verdict:?}");
        }
    }

    #[test]
    fn judges_a_body_as_a_response_with_it() {
        let json = [("content-type".to_owned(), "application/json".to_owned())];
        let list = r#"{"output":{"parameters":[]}}"#;
        for (status, body) in [(200, list), (200, "{}"), (204, list), (302, ""), (503, r#"{"message":"held"}"#)] {
            let raw = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n\r\n{body}");
            assert_eq!(judge(status, &json, body.as_bytes()), judge_raw(raw.as_bytes()), "{raw}");
        }
    }
}
