//! A rule passes only if the plugin was asked, and every reply kept it.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{broken, conformance, folder, port, result};
use crate::support::{
    TOKEN,
    upstream::{Request, Step, Upstream, json_response, response},
};

/// A plugin that does all right.
fn good(request: &Request) -> Vec<Step> {
    let refusal = |status| vec![Step::Send(response(status, "Content-Type: application/json", r#"{"message":"no"}"#))];
    if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return refusal(403);
    }
    match serde_json::from_slice::<Value>(&request.body) {
        Ok(asked) if asked["input"] == json!({}) => {
            vec![Step::Send(json_response(r#"{"output":{"parameters":[{"a":"b"}]}}"#))]
        }
        _ => refusal(400),
    }
}

/// The names of the broken rules.
fn names(report: &str) -> Vec<String> {
    broken(report).into_iter().map(|(name, _)| name).collect()
}

/// Runs the suite against a plugin, with a question that is good and one that is bad.
async fn run(play: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> String {
    let folder = folder(&json!([{"name": "q"}, {"name": "bad", "parameters": {"x": "y"}, "error": true}]));
    let plugin = Upstream::start(play).await;
    conformance(folder.path(), &format!("http://{}", plugin.address), &["-o", "json", "--timeout", "3"]).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_passes_at_a_closed_port() {
    let folder = folder(&json!([{"name": "q"}, {"name": "bad", "error": true}]));
    let (conforms, report) = conformance(folder.path(), &format!("http://127.0.0.1:{}", port()), &["-o", "json"]).await;
    assert!(!conforms && !report.contains("\"result\": \"pass\""), "{report}");
    for rule in ["answers", "no-token", "wrong-token", "refuses-input", "refuses-half"] {
        assert_eq!(result(&report, rule), "fail", "{report}");
    }
    for rule in ["equal-answers", "concurrent", "explicit-list", "in-time", "no-redirect"] {
        assert_eq!(result(&report, rule), "skipped", "{report}");
    }
}

/// Only a status is a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn silence_is_no_refusal() {
    assert_eq!(names(&run(good).await), [""; 0]);
    let is_wrong = |request: &Request| request.header("authorization").is_some_and(|seen| !seen.ends_with(TOKEN));
    let is_bad = |request: &Request| !String::from_utf8_lossy(&request.body).contains("\"input\":{}");
    let report = run(move |request| if is_wrong(request) { vec![Step::Hang] } else { good(request) }).await;
    assert_eq!(names(&report), ["in-time", "wrong-token", "client-error"], "{report}");
    let report = run(move |request| if is_bad(request) { vec![Step::Reset] } else { good(request) }).await;
    assert_eq!(names(&report), ["refuses-input", "refuses-half", "client-error"], "{report}");
    let page = vec![Step::Send(response(200, "Content-Type: text/html", "<html>Log in</html>"))];
    let report = run(move |request| if is_wrong(request) { page.clone() } else { good(request) }).await;
    assert_eq!(names(&report), ["wrong-token"], "{report}");
}

/// One bad reply of thirteen is found, whichever it is.
#[tokio::test(flavor = "multi_thread")]
async fn every_reply_is_checked() {
    let redirect = vec![Step::Send(response(302, "Location: /login", ""))];
    let empty = vec![Step::Send(response(200, "", ""))];
    for (number, steps, rule) in [
        (1, vec![Step::Hang], "in-time"),
        (7, vec![Step::Hang], "in-time"),
        (2, redirect.clone(), "no-redirect"),
        (12, redirect, "no-redirect"),
        (9, empty, "explicit-list"),
    ] {
        let count = AtomicUsize::new(0);
        let report = run(move |request| {
            let is_meant = count.fetch_add(1, Ordering::SeqCst) == number;
            if is_meant { steps.clone() } else { good(request) }
        })
        .await;
        assert_eq!(result(&report, rule), "fail", "reply {number}: {report}");
    }
}

/// Without a bad question, nothing is known of how the plugin refuses one.
#[tokio::test(flavor = "multi_thread")]
async fn rules_without_a_request_are_skipped() {
    let folder = folder(&json!([{"name": "q"}]));
    let plugin = Upstream::start(good).await;
    let (conforms, report) = conformance(folder.path(), &format!("http://{}", plugin.address), &["-o", "json"]).await;
    assert!(conforms, "{report}");
    for (rule, expected) in [("refuses-input", "skipped"), ("refuses-half", "pass"), ("broken-source", "skipped")] {
        assert_eq!(result(&report, rule), expected, "{report}");
    }
}

/// Keys that Argo CD overwrites, and values that it prints as `<nil>`.
#[tokio::test(flavor = "multi_thread")]
async fn keys_and_values_are_checked() {
    for (sets, rule, says) in [
        (json!([{}, {"values": "x"}]), "no-reserved-keys", "q: `values`"),
        (json!([{"generator": "x"}]), "no-reserved-keys", "q: `generator`"),
        (json!([{"a": "x"}, {"b": {"c": ["x", null]}}]), "no-null", "q: null is at parameters[1].b.c[1]"),
        (json!([{"a": {"b": 1}}]), "numbers-as-text", "q: a number is at parameters[0].a.b"),
    ] {
        let answer = json_response(json!({"output": {"parameters": sets}}).to_string());
        let report = run(move |request| {
            let reply = good(request);
            let is_answer = matches!(&reply[0], Step::Send(bytes) if bytes.starts_with(b"HTTP/1.1 200"));
            if is_answer { vec![Step::Send(answer.clone())] } else { reply }
        })
        .await;
        assert_eq!(broken(&report), [(rule.to_owned(), vec![says.to_owned()])], "{report}");
    }
}
