//! Responses, and the verdict on each.

use super::{CUT, Verdict, evaluate, evaluate_part, evaluate_raw};
use serde_json::{Value, json};

/// The expected verdict: sets as JSON, a word of the accident, the status and the whole condition (`Shows`), or a word of the
/// condition (`Fails`, where the text is not Argo CD's own).
enum Expect {
    Sets(&'static str),
    Explicit,
    Accident(&'static str),
    Shows(u16, &'static str),
    Fails(Option<u16>, &'static str),
}
use Expect::{Accident, Explicit, Fails, Sets, Shows};

/// A response with some headers, or with none and a body that lasts until the connection is closed.
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
fn evaluates_as_argo_cd_does() {
    for (name, raw, expect) in CASES {
        let verdict = evaluate_raw(raw);
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
fn evaluates_a_body_as_a_response_with_it() {
    let json = [("content-type".to_owned(), "application/json".to_owned())];
    let list = r#"{"output":{"parameters":[]}}"#;
    for (status, body) in [(200, list), (200, "{}"), (204, list), (302, ""), (503, r#"{"message":"held"}"#)] {
        let raw = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n\r\n{body}");
        assert_eq!(evaluate(status, &json, body.as_bytes()), evaluate_raw(raw.as_bytes()), "{raw}");
    }
}

#[test]
fn evaluates_a_part_as_a_response_that_breaks_off() {
    for body in [
        "",
        "{}",
        "null",
        r#"{"output":{"parameters":["#,
        r#"{"output":{"parameters":[]}}"#,
        r#"{"output":{"parameters":[{}]}}"#,
    ] {
        for status in [200, 204, 500] {
            let raw = format!("HTTP/1.1 {status} X\r\nContent-Length: 500\r\n\r\n{body}");
            assert_eq!(evaluate_part(status, &[], body.as_bytes(), Some(CUT)), evaluate_raw(raw.as_bytes()), "{raw}");
        }
    }
}
