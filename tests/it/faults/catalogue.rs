//! The faults.

use std::time::Duration;

use super::{
    absent::absent,
    foreign::foreign,
    kind::{Kind, NO_TAGS, PASSED},
    registries::registries,
    rendition::{
        Ailment, FAILED, Fault, HTML, INVALID, JSON, MANIFEST, OCI, THROTTLED, TIMEOUT, UNKNOWN, digest, encoded, gzip,
        plays, prints, runs, says, send,
    },
};
use crate::support::upstream::Step;

/// All faults.
pub(super) fn all() -> Vec<Fault> {
    [
        connection(),
        messages(),
        statuses(),
        registries(),
        documents(),
        answers(),
        absent(),
        foreign(),
        programs(),
        gateway(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const PAUSE: Duration = Duration::from_millis(100);
const SIGN_IN: &str = "<html><head><title>Sign in</title></head><body>[]</body></html>";

/// Failures before a response, and truncated responses.
fn connection() -> Vec<Fault> {
    vec![
        Fault::refused("refused"),
        Fault::on_the_wire("blackholed", TIMEOUT, runs(TIMEOUT, "sleep 30"), |_| vec![Step::Hang]),
        Fault::on_the_wire("reset", FAILED, runs(FAILED, "echo 'recv: connection reset by peer' >&2; exit 56"), |_| {
            vec![Step::Reset]
        }),
        Fault::on_the_wire("closed before the head", FAILED, runs(FAILED, "exit 52"), |_| Vec::new()),
        Fault::on_the_wire("closed at byte 1", FAILED, runs(FAILED, "printf '['; exit 52"), |_| send("H")),
        Fault::on_the_wire("closed within the head", FAILED, runs(FAILED, "printf '[{'; exit 18"), |whole| {
            send(&whole.head()[..40])
        }),
        Fault::in_the_body("header then death", FAILED, runs(FAILED, "exit 18"), |whole| send(whole.head())),
        Fault::in_the_body("closed within the body", FAILED, runs(FAILED, "printf '[{\"name\":'; exit 18"), |whole| {
            send(whole.cut(whole.body.len() / 2))
        }),
        Fault::in_the_body("closed a byte before the end", FAILED, prints(r#"[{"name":"a"}"#), |whole| {
            send(whole.cut(1))
        }),
        Fault::in_the_body("closed between two chunks", FAILED, runs(FAILED, "echo '['; kill -PIPE $$"), |whole| {
            send(whole.chunks(&[&whole.body[..1], &whole.body[1..]]))
        }),
        Fault::in_the_body("reset within the body", FAILED, runs(FAILED, "echo '['; exit 56"), |whole| {
            vec![Step::Send(whole.cut(1)), Step::Reset]
        }),
        Fault::on_the_wire("slow drip", TIMEOUT, runs(TIMEOUT, "while :; do printf ' '; sleep 0.2; done"), |whole| {
            vec![Step::Drip(whole.bytes(), PAUSE)]
        }),
        Fault::in_the_body("header then silence", TIMEOUT, runs(TIMEOUT, "printf '['; sleep 30"), |whole| {
            vec![Step::Send(whole.head()), Step::Hang]
        }),
        Fault::in_the_body("output then hang", TIMEOUT, runs(TIMEOUT, "echo '[]'; sleep 30"), |whole| {
            vec![Step::Send(whole.claiming(whole.body.len() + 1)), Step::Hang]
        }),
        Fault::in_the_body(
            "output without an end",
            TIMEOUT,
            runs(TIMEOUT, "exec 2>&-; echo '[]'; sleep 30"),
            |whole| vec![Step::Send(whole.with("X: y", whole.body)), Step::Hang],
        ),
        Fault::on_the_wire(
            "soon, soon",
            TIMEOUT,
            runs(TIMEOUT, "while :; do echo 'soon' >&2; sleep 0.2; done"),
            |_| vec![Step::Send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".to_vec()), Step::Hang],
        ),
        Fault::on_the_wire("TLS on a plain port", FAILED, prints(&b"\x15\x03\x01\x00\x02\x02\x46"[..]), |_| {
            send(&b"\x15\x03\x01\x00\x02\x02\x46"[..])
        }),
        // Without our own certificate, the fault is simulated by the alert `certificate_expired`.
        Fault::on_the_wire(
            "TLS expired",
            FAILED,
            runs(FAILED, "echo 'SSL certificate problem: certificate has expired' >&2; exit 60"),
            |_| send(&b"\x15\x03\x03\x00\x02\x02\x2d"[..]),
        ),
        // As a proxy reports it.
        Fault::new(
            "DNS flap",
            runs(FAILED, "echo 'Temporary failure in name resolution' >&2; exit 6"),
            says(FAILED, 503, "Content-Type: text/plain", "DNS resolution failure"),
            says(FAILED, 503, "Content-Type: text/plain", "DNS resolution failure"),
        ),
    ]
}

/// Responses with wrong framing, and responses that are too large.
fn messages() -> Vec<Fault> {
    let [bomb, bomb_of_tags] = ["[]", NO_TAGS].map(|end| gzip((" ".repeat(20_000_000) + end).as_bytes()));
    vec![
        Fault::on_the_wire("no HTTP", FAILED, prints("SSH-2.0-OpenSSH_9.2"), |_| send("SSH-2.0-OpenSSH_9.2\r\n")),
        Fault::on_the_wire("no head", FAILED, prints("HTTP/1.1 200 OK\n\n[]"), |whole| send(whole.body)),
        Fault::in_the_body("too long a length", FAILED, prints("[[]"), |whole| {
            send(whole.claiming(whole.body.len() + 1))
        }),
        Fault::in_the_body("too short a length", INVALID, prints("["), |whole| {
            send(whole.claiming(whole.body.len() - 1))
        }),
        Fault::on_the_wire("two lengths", FAILED, prints("[]]"), |whole| {
            send(whole.with("Content-Length: 2\r\nContent-Length: 3", whole.body))
        }),
        Fault::on_the_wire("a length that is none", FAILED, prints("[],"), |whole| {
            send(whole.with("Content-Length: x", whole.body))
        }),
        Fault::in_the_body("a chunk that is none", FAILED, prints("2\n[]\n0\n"), |whole| {
            send(whole.with("Transfer-Encoding: chunked", whole.body))
        }),
        Fault::on_the_wire(
            "a head without end",
            FAILED,
            runs(FAILED, "head -c 3000000 /dev/zero >&2; echo '[]'; exit 1"),
            |_| vec![Step::Send(b"HTTP/1.1 200 OK\r\nX: ".to_vec()), Step::Flood(vec![b'x'; 65_536])],
        ),
        Fault::in_the_body("a body without end", INVALID, runs(INVALID, "yes '[]'"), |whole| {
            vec![
                Step::Send(whole.with("Transfer-Encoding: chunked", "")),
                Step::Flood(format!("8000\r\n{:32768}\r\n", "").into_bytes()),
            ]
        }),
        Fault::in_the_body(
            "100 MiB body",
            INVALID,
            runs(INVALID, "head -c 104857600 /dev/zero | tr '\\0' ' '; echo '[]'"),
            |whole| vec![Step::Send(whole.with("Content-Length: 104857600", "")), Step::Flood(vec![b' '; 65_536])],
        ),
        encoded("gzip unasked", gzip(b"[]"), gzip(UNKNOWN.as_bytes()), gzip(NO_TAGS.as_bytes())),
        encoded("gzip bomb", bomb.clone(), bomb, bomb_of_tags),
    ]
}

/// Responses that are no answer, by their status.
fn statuses() -> Vec<Fault> {
    let curl = |messages: &str| runs(FAILED, &format!("echo '[]'; echo 'the server returned {messages}' >&2; exit 22"));
    vec![
        Fault::status("202", INVALID, prints(r#"{"status":"pending"}"#), 202, ""),
        Fault::status("203", INVALID, prints(r#"{"from":"a proxy"}"#), 203, ""),
        Fault::status("204", INVALID, prints(""), 204, ""),
        Fault::status("206, a part", INVALID, prints(r#"{"items":[]}"#), 206, "Content-Range: items 0-0/5"),
        Fault::status("207", INVALID, prints(r#"{"responses":[]}"#), 207, ""),
        Fault::status("302", INVALID, prints("302 Found"), 302, "Location: /elsewhere"),
        Fault::status("304", INVALID, prints(r#"{"modified":false}"#), 304, ""),
        Fault::status("403", FAILED, prints(r#"{"message":"Forbidden"}"#), 403, ""),
        Fault::new(
            "404 from a mirror",
            prints("404 page not found"),
            says(INVALID, 404, HTML, "<html><body>nginx</body></html>"),
            says(INVALID, 404, HTML, "<html><body>nginx</body></html>"),
        ),
        Fault::new(
            "404 without a word",
            prints("\n"),
            says(INVALID, 404, JSON, ""),
            says(INVALID, 404, "Docker-Distribution-Api-Version: registry/2.0", ""),
        ),
        Fault::new(
            "404 without a right",
            prints(r#"{"errors":[{"code":"DENIED"}],"output":{"parameters":[]}}"#),
            says(INVALID, 404, JSON, r#"{"errors":[{"code":"DENIED"}]}"#),
            says(INVALID, 404, JSON, r#"{"errors":[{"code":"MANIFEST_UNKNOWN"},{"code":"DENIED"}]}"#),
        ),
        Fault::status("407", FAILED, curl("407"), 407, ""),
        Fault::status("408", FAILED, curl("408"), 408, ""),
        Fault::status("410", INVALID, curl("410"), 410, ""),
        Fault::status("429", THROTTLED, curl("429"), 429, ""),
        Fault::status("429 with Retry-After", THROTTLED, runs(FAILED, "echo '[]'; exit 75"), 429, "Retry-After: 120"),
        Fault::status("429 for ever", THROTTLED, curl("429"), 429, "Retry-After: 18446744073709551615"),
        Fault::status("500", FAILED, curl("500"), 500, ""),
        Fault::new("502, a proxy's page", curl("502"), says(FAILED, 502, HTML, SIGN_IN), says(FAILED, 502, HTML, "")),
        Fault::status("503 with Retry-After", FAILED, curl("503"), 503, "Retry-After: 1"),
        Fault::status("599", FAILED, curl("599"), 599, ""),
    ]
}

/// A complete 200, or a registry's 404, whose body is not the expected document.
fn documents() -> Vec<Fault> {
    let nested = |open: &str| open.repeat(100_000).into_bytes();
    let deep_errors = [br#"{"errors":"#, &nested("[")[..]].concat();
    let deep_tags = [br#"{"tags":"#, &nested("[")[..]].concat();
    let bad_text = b"{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\xff\"}]}";
    vec![
        Fault::content("empty 200", "", (200, OCI, b""), ""),
        Fault::content("blank 200", " \r\n\t\n", (200, OCI, b" \r\n"), " \r\n"),
        Fault::new("HTML 200", prints(SIGN_IN), says(INVALID, 200, HTML, SIGN_IN), says(INVALID, 200, HTML, SIGN_IN)),
        Fault::content("HTML as JSON", SIGN_IN, (200, OCI, SIGN_IN.as_bytes()), SIGN_IN),
        Fault::new(
            "wrong content type",
            prints("INFO asking\n[]"),
            says(INVALID, 200, "Content-Type: text/plain", "[]"),
            says(INVALID, 200, "Content-Type: text/plain", MANIFEST),
        )
        .listed(says(INVALID, 200, "Content-Type: text/plain", format!("INFO asking\n{NO_TAGS}"))),
        Fault::content(
            "truncated JSON",
            r#"[{"name":"a"},"#,
            (200, OCI, &MANIFEST.as_bytes()[..20]),
            r#"{"name":"org/app","tags":["a","#,
        )
        .gated(&PASSED[..18]),
        Fault::content("NaN", "[NaN]", (200, OCI, br#"{"schemaVersion":NaN}"#), r#"{"tags":[NaN]}"#),
        Fault::content(
            "a number out of range",
            r#"[{"name":1e999}]"#,
            (200, OCI, br#"{"schemaVersion":18446744073709551616}"#),
            r#"{"tags":[1e999]}"#,
        ),
        Fault::content(
            "duplicate keys",
            r#"{"output":{"parameters":[{}]},"output":{"parameters":[]}}"#,
            (404, JSON, br#"{"errors":[{"code":"DENIED"}],"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#),
            r#"{"tags":["a"],"tags":[]}"#,
        )
        .gated(r#"{"result":"failed","result":"passed"}"#),
        Fault::content(
            "two documents",
            "[] []",
            (404, JSON, format!("{UNKNOWN} {UNKNOWN}").as_bytes()),
            format!("{NO_TAGS} {NO_TAGS}"),
        )
        .gated(format!("{PASSED} {PASSED}")),
        Fault::content(
            "a byte order mark",
            "\u{feff}[]",
            (404, JSON, format!("\u{feff}{UNKNOWN}").as_bytes()),
            format!("\u{feff}{NO_TAGS}"),
        ),
        Fault::content(
            "no UTF-8",
            &b"[{\"name\":\"\xff\"}]"[..],
            (404, JSON, bad_text),
            &b"{\"name\":\"\xff\",\"tags\":[]}"[..],
        ),
        Fault::content("nested without end", nested("["), (404, JSON, &deep_errors), deep_tags),
    ]
}

/// A complete document that is not the answer.
fn answers() -> Vec<Fault> {
    let other = digest("other");
    let contradicted = plays(INVALID, move |request| {
        let header = format!("{OCI}\r\nDocker-Content-Digest: {other}");
        let headers = if request.method == "HEAD" { OCI } else { &*header };
        request.answer(200, headers, MANIFEST)
    });
    let twins = r#"[{"name":"a"},{"name":"b"},{"name":"a"}]"#;
    // The list differs from the registry's contents.
    let (of_other, well) = (format!("{OCI}\r\nDocker-Content-Digest: {}", digest("another")), Kind::List);
    let denied = plays(INVALID, move |request| match &*request.method {
        "HEAD" => request.answer(200, &of_other, ""),
        _ => well.well(request),
    });
    let page = |link: &str| format!("{JSON}\r\nLink: <{link}>; rel=\"next\"");
    let tags = r#"{"name":"app","tags":[]}"#;
    let first = page("?last=a");
    let half = plays(FAILED, move |request| {
        let is_second = request.target.contains("last=");
        request.answer(if is_second { 500 } else { 200 }, &first, NO_TAGS)
    });
    vec![
        Fault::content("null", "null", (404, JSON, b"null"), "null"),
        Fault::content("{}", "{}", (200, OCI, b"{}"), "{}"),
        Fault::content("[null]", "[null]", (404, JSON, br#"{"errors":[null]}"#), "[null]"),
        Fault::content(
            "a string for a list",
            "\"[]\"",
            (404, JSON, br#"{"errors":"MANIFEST_UNKNOWN"}"#),
            r#"{"tags":"[]"}"#,
        ),
        Fault::content("a list of strings", r#"["a"]"#, (404, JSON, br#"["MANIFEST_UNKNOWN"]"#), r#"["a"]"#),
        Fault::content(
            "a list for an object",
            r#"[["a"],[]]"#,
            (404, JSON, br#"[[{"code":"MANIFEST_UNKNOWN"}]]"#),
            "[[]]",
        ),
        Fault::content(
            "a list for an object within",
            r#"[[["name","a"]]]"#,
            (404, JSON, br#"{"errors":[["MANIFEST_UNKNOWN"]]}"#),
            r#"{"tags":[["a"]]}"#,
        ),
        Fault::content(
            "an error in a 200",
            r#"{"error":"down","output":{"parameters":[]}}"#,
            (200, JSON, UNKNOWN.as_bytes()),
            r#"{"errors":[{"code":"UNAVAILABLE"}],"tags":[]}"#,
        ),
        Fault::content(
            "another service's answer",
            r#"{"status":"ok"}"#,
            (200, JSON, br#"{"status":"ok"}"#),
            r#"{"status":"ok"}"#,
        ),
        Fault::content("another version", r#"{"v2":[]}"#, (200, OCI, br#"{"schemaVersion":1}"#), r#"{"v2":[]}"#),
        Fault::content("no errors to name", r#"{"errors":[]}"#, (404, JSON, br#"{"errors":[]}"#), r#"{"errors":[]}"#),
        Fault::content(
            "a value that is none",
            r#"[{"name":null}]"#,
            (200, &format!("{OCI}\r\nDocker-Content-Digest:"), b""),
            r#"{"tags":["a",null]}"#,
        ),
        Fault::content(
            "a digest that is none",
            r#"[{"values":"sha256:abc"}]"#,
            (200, &format!("{OCI}\r\nDocker-Content-Digest: sha256:abc"), MANIFEST.as_bytes()),
            r#"{"tags":["sha256:abc"]}"#,
        ),
        Fault::new("an answer against itself", prints(twins), says(INVALID, 200, JSON, twins), contradicted)
            .listed(denied),
        Fault::new(
            "the first of several pages",
            prints(r#"{"items":[],"next":2}"#),
            says(INVALID, 200, &page("/?page=2"), "[]"),
            says(INVALID, 200, &page("/v2/app/tags/list?last=a"), tags),
        )
        .listed(says(INVALID, 200, &page("/v2/org/other/tags/list?last=a"), NO_TAGS)),
        Fault::new(
            "pages that loop",
            runs(INVALID, "while :; do echo '[{\"name\":\"a\"}]'; done"),
            says(INVALID, 200, &page("/"), r#"[{"name":"a"}]"#),
            says(INVALID, 200, &page("/v2/app/tags/list"), tags),
        )
        .listed(says(INVALID, 200, &page("/v2/org/app/tags/list?n=250"), NO_TAGS)),
        Fault::new(
            "a page that fails",
            runs(FAILED, "echo '[{\"name\":\"a\"}]'; echo 'page 2: 500' >&2; exit 22"),
            says(INVALID, 200, &page("/?page=2"), r#"[{"name":"a"}]"#),
            says(FAILED, 500, &page("/v2/app/tags/list?last=a"), tags),
        )
        .listed(half),
    ]
}

/// Faults of a program; on the wire, the nearest equivalent.
fn programs() -> Vec<Fault> {
    let bomb = "i=0; while [ $i -lt 20 ]; do sleep 30 & i=$((i+1)); done; echo '[]'; exit 1";
    vec![
        Fault::status("exit 1 with good output", FAILED, runs(FAILED, "echo '[]'; exit 1"), 500, "X-Exit: 1"),
        Fault::status("exit 0 with blank output", INVALID, runs(INVALID, "exit 0"), 205, ""),
        Fault::in_the_body("killed by a signal", FAILED, runs(FAILED, "echo '[]'; kill -9 $$"), |whole| {
            vec![Step::Send(whole.chunks(&[whole.body])), Step::Reset]
        }),
        Fault::in_the_body("a crash", FAILED, runs(FAILED, "echo '[]'; kill -SEGV $$"), |whole| {
            send(whole.chunks(&[whole.body]))
        }),
        Fault::in_the_body("a fork bomb within limits", FAILED, runs(FAILED, bomb), |whole| {
            let blanks = vec![" "; 5000];
            send(whole.chunks(&[&blanks[..], &[whole.body]].concat()))
        }),
        Fault::status("disk full", FAILED, runs(FAILED, "echo '[]' > /dev/full || exit 28"), 507, ""),
        Fault::status("a program that is not there", FAILED, runs(FAILED, "exec no-such-program-at-all"), 501, ""),
        Fault::on_the_wire(
            "a program that ignores its end",
            TIMEOUT,
            runs(TIMEOUT, "trap '' TERM; printf '['; sleep 30; echo ']'"),
            |whole| vec![Step::Send(whole.head()[..30].to_vec()), Step::Hang],
        ),
    ]
}

/// Faults of the gateway itself, while the source refuses.
fn gateway() -> Vec<Fault> {
    vec![
        Fault::ailing("the clock is put back", Ailment::ClockBack),
        Fault::ailing("the clock begins anew in 1970", Ailment::ClockReset),
        Fault::ailing("the clock jumps ahead", Ailment::ClockAhead),
        Fault::ailing("the clock jumps a century ahead", Ailment::ClockFarAhead),
        Fault::ailing("store locked", Ailment::StoreLocked),
        Fault::ailing("store corrupted while it runs", Ailment::StoreOverwritten),
        Fault::ailing("store corrupted over a restart", Ailment::StoreLost),
        Fault::ailing("a restart", Ailment::Restart),
    ]
}
