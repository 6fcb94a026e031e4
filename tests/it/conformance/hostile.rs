//! Plugins that flood, change, break off, echo secrets, or never end.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{broken, conformance, folder, port, result};
use crate::support::{
    TOKEN,
    binary::command,
    upstream::{Step, Upstream, json_response, response},
};

fn answer(sets: &Value) -> Vec<Step> {
    vec![Step::Send(json_response(json!({"output": {"parameters": sets}}).to_string()))]
}

fn url(plugin: &Upstream) -> String {
    format!("http://{}", plugin.address)
}

/// Counts from 0.
fn counter() -> impl Fn() -> usize + Send + Sync {
    let count = AtomicUsize::new(0);
    move || count.fetch_add(1, Ordering::SeqCst)
}

/// A flood of sets takes little memory: of the address space, 2 GiB suffice.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_sets_is_not_judged() {
    let folder = folder(&json!([{"name": "q"}]));
    for bytes in [30_000_000, 1_500_000] {
        let sets = vec![r#"{"a":"b"}"#; bytes / 10].join(",");
        let whole = json_response(format!(r#"{{"output":{{"parameters":[{sets}]}}}}"#));
        let flooding = Upstream::always(whole).await;
        let script = "ulimit -v 2097152; exec \"$0\" conformance --url \"$1\" --token-file token cases.yaml -o json";
        let mut limited = Command::new("sh");
        limited.args(["-c", script, env!("CARGO_BIN_EXE_appset-gateway"), &url(&flooding)]).current_dir(folder.path());
        let output = tokio::task::spawn_blocking(move || limited.output().unwrap()).await.unwrap();
        let report = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(result(&report, "answers"), "unknown", "{report}");
        assert_eq!(report.matches("q: the answer has more than 4 MiB or 100000 values").count(), 1, "{report}");
        assert_eq!(result(&report, "wrong-token"), "fail", "a flood is no refusal");
    }
}

/// Two answers that differ are found, however many sets are equal.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_differ_are_found() {
    let folder = folder(&json!([{"name": "q"}]));
    let next = counter();
    let last_differs = move || {
        let names = (0..1500).map(|number| json!({"name": number.to_string()}));
        names.chain([json!({"name": format!("random-{}", next())})]).collect::<Value>()
    };
    let next = counter();
    let [a, b] = ["a", "b"].map(|name| json!({ "name": name }));
    let times_differ = move || if next().is_multiple_of(2) { json!([a, a, b]) } else { json!([a, b, b]) };
    for sets in [Box::new(last_differs) as Box<dyn Fn() -> Value + Send + Sync>, Box::new(times_differ)] {
        let changing = Upstream::start(move |_| answer(&sets())).await;
        let (conforms, report) = conformance(folder.path(), &url(&changing), &["-o", "json"]).await;
        for rule in ["equal-answers", "concurrent"] {
            assert_eq!(result(&report, rule), "fail", "{report}");
        }
        assert!(!conforms && report.contains("q: the next time there is another set {"), "{report}");
    }
    let shuffled = Upstream::start(|_| answer(&json!([{"a": {"b": "1", "c": "2"}}, {}]))).await;
    let (_, report) = conformance(folder.path(), &url(&shuffled), &["-o", "json"]).await;
    assert_eq!(result(&report, "equal-answers"), "pass", "{report}");
}

/// Argo CD reads the first JSON value and stops, so it does not notice that the reply breaks off.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_breaks_off_after_its_value_is_a_hazard() {
    let folder = folder(&json!([{"name": "q"}]));
    let part = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{body}").into_bytes();
    let bytes = part(r#"{"output":{}}"#);
    let ends = [(vec![Step::Send(bytes.clone())], "pass"), (vec![Step::Send(bytes), Step::Hang], "fail")];
    for (steps, in_time) in ends {
        let plugin = Upstream::start(move |_| steps.clone()).await;
        let (conforms, report) = conformance(folder.path(), &url(&plugin), &["-o", "json", "--timeout", "2"]).await;
        assert!(
            !conforms
                && report.contains("q: status 200, `output` is null or without `parameters`; Argo CD deletes all")
        );
        assert_eq!((&*result(&report, "explicit-list"), &*result(&report, "in-time")), ("fail", in_time), "{report}");
    }
    let plugin = Upstream::always(part(r#"{"output":{"parameters":[{"a":"b"}]}}"#)).await;
    let (_, report) = conformance(folder.path(), &url(&plugin), &["-o", "json"]).await;
    assert_eq!((&*result(&report, "answers"), &*result(&report, "content-length")), ("pass", "fail"), "{report}");
    let plugin = Upstream::always(part(r#"{"output":{"parameters":[{"a":"#)).await;
    let (_, report) = conformance(folder.path(), &url(&plugin), &["-o", "json"]).await;
    assert_eq!((&*result(&report, "answers"), &*result(&report, "explicit-list")), ("fail", "pass"), "{report}");
}

/// Asks the source at `port` by a chunked request, and returns the whole reply.
pub(super) fn ask_source(port: u16) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let head = "POST /items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}5\r\nwhich\r\n7;x=y\r\n items?\r\n0\r\n\r\n").as_bytes()).unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    reply
}

/// The proxy passes chunks on and cuts bodies, not heads. A reply that breaks off during a fault is judged as Argo CD reads it.
#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_speaks_chunks_and_cuts_bodies() {
    let source = Upstream::always(response(200, "X-Long: a head that is much longer than its body", "true")).await;
    let (folder, port) = (folder(&json!([{"name": "q"}])), port());
    let replies: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&replies);
    let plugin = Upstream::start(move |_| {
        let reply = String::from_utf8(tokio::task::block_in_place(|| ask_source(port))).unwrap();
        seen.lock().push(reply.clone());
        if reply.ends_with("\r\n\r\ntrue") {
            return answer(&json!([{"a": "b"}]));
        }
        vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"output\":{}}".to_vec())]
    })
    .await;
    let (port, source_url) = (port.to_string(), url(&source));
    let options = ["--break-upstream", &port, "--source", &source_url, "-o", "json"];
    let (_, report) = conformance(folder.path(), &url(&plugin), &options).await;
    assert_eq!(result(&report, "answers"), "pass", "{report}");
    assert_eq!(source.requests()[0].body, b"which items?");
    let cut = replies.lock().iter().find(|reply| reply.ends_with("\r\n\r\ntr")).cloned();
    assert!(cut.is_some_and(|cut| cut.contains("Content-Length: 4\r\n")), "{:#?}", replies.lock());
    let faults = broken(&report).into_iter().find(|(name, _)| name == "broken-source").unwrap().1;
    assert_eq!(faults.len(), 16, "{faults:#?}");
}

/// A plugin that echoes its token, moves the cursor, and writes pages.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_shows_no_token_and_no_control_characters() {
    let folder = folder(&json!([{"name": "good", "sets": 9}, {"name": "other", "applicationSet": "other"}]));
    let next = counter();
    let echoing = Upstream::start(move |request| {
        let filling = "x".repeat(244);
        let evil = format!("\u{1b}[2J<img src=x>[a](b)\u{202e}{TOKEN} {}", next());
        match request.header("authorization") {
            Some(seen) if String::from_utf8_lossy(&request.body).contains("other") => {
                // The token stands where a long text is cut.
                vec![Step::Send(response(502, "", format!("{filling}{seen}")))]
            }
            Some(_) => answer(&json!([{"a": evil, "b": {evil.clone(): 1}}, {evil: null}])),
            None => vec![Step::Send(response(200, "", TOKEN))],
        }
    })
    .await;
    for format in ["text", "markdown", "junit", "json"] {
        let (conforms, report) = conformance(folder.path(), &url(&echoing), &["-o", format]).await;
        assert!(
            !conforms && (report.contains("[redacted]") || report.contains("&#91;redacted]")),
            "{format}: {report}"
        );
        assert!(!report.contains(&TOKEN[..8.min(TOKEN.len())]), "{format}: {report}");
        assert!(!report.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{format}: {report:?}");
        assert!(format != "markdown" || !report.contains("<img") && !report.contains("[a]"), "{report}");
    }
}

/// A run has an end. What was not asked by then is not passed.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_an_end() {
    let folder = folder(&json!([{"name": "good"}, {"name": "slow", "applicationSet": "slow"}]));
    let slow = Upstream::start(|request| {
        let is_slow = String::from_utf8_lossy(&request.body).contains("slow");
        if is_slow { vec![Step::Hang] } else { answer(&json!([{"a": "b"}])) }
    })
    .await;
    for (format, shows) in [
        ("text", "not known: 0 MUST, 0 SHOULD and 0 HAZARD broken\nnot everything was sent within 2 s"),
        ("junit", "name=\"finished\"><failure message=\"not everything was sent within 2 s\">"),
        ("markdown", "Result: not known\n\nnot everything was sent within 2 s"),
        ("json", "\"conclusion\": \"not known\""),
    ] {
        let (conforms, report) = conformance(folder.path(), &url(&slow), &["--max-time", "2", "-o", format]).await;
        assert!(!conforms && report.contains(shows), "{format}: {report}");
        if format == "json" {
            assert_eq!(
                (&*result(&report, "answers"), &*result(&report, "no-token")),
                ("unknown", "skipped"),
                "{report}"
            );
        }
    }
}

/// A terminal shows what is asked. Nothing else does.
#[tokio::test(flavor = "multi_thread")]
async fn progress_is_for_terminals() {
    let folder = folder(&json!([{"name": "my question"}]));
    let plugin = Upstream::start(|_| answer(&json!([]))).await;
    let arguments = ["conformance", "--url", &url(&plugin), "cases.yaml", "-o", "json"];
    let mut plain = command();
    plain.current_dir(folder.path()).args(arguments);
    let line = format!("{} {}", env!("CARGO_BIN_EXE_appset-gateway"), arguments.join(" "));
    let mut terminal = Command::new("script");
    terminal.current_dir(folder.path()).args(["-qec", &line, "/dev/null"]);
    let outputs =
        tokio::task::spawn_blocking(move || [plain.output().unwrap(), terminal.output().unwrap()]).await.unwrap();
    assert!(outputs[0].stderr.is_empty(), "{:?}", outputs[0]);
    let shown = String::from_utf8_lossy(&outputs[1].stdout);
    assert!(shown.contains("\r\u{1b}[Kmy question") && shown.contains("\r\u{1b}[Kten questions at once"), "{shown:?}");
}
