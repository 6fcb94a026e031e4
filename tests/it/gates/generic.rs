//! The generic gate, and gates together.

use std::sync::Arc;

use backend::digests::gate::{CiState, Gate, GateConfig};
use serde_json::{Value, json};

use super::{GateContext, HEAD, ask, ask_with, is, unknown};
use crate::support::upstream::{Upstream, response};

/// An upstream that always answers `status` and `body`, and a gate with `verdict` that asks it.
async fn gate_of(status: u16, body: &str, verdict: &str) -> (Upstream, Arc<dyn Gate>) {
    let upstream = Upstream::always(response(status, "Content-Type: application/json\r\nX-Stage: done", body)).await;
    let gate = GateContext::new().gate(json!({"http": {"url": url(&upstream), "verdict": verdict}}));
    (upstream, gate)
}

fn url(upstream: &Upstream) -> String {
    format!("http://{}/jobs/{{{{ params.head_sha }}}}", upstream.address)
}

#[tokio::test]
async fn the_verdict_expression_decides_about_an_answer() {
    let by_result = "body.result == 'SUCCESS' ? 'passed' : body.building ? 'pending' : 'failed'";
    for (status, body, verdict, expected) in [
        (200, r#"{"result": "SUCCESS"}"#, by_result, CiState::Passed),
        (200, r#"{"result": null, "building": true}"#, by_result, CiState::Pending),
        (200, r#"{"result": "UNSTABLE", "building": false}"#, by_result, CiState::Failed),
        (404, "<html>", "status == 404 && body == null ? 'pending' : 'failed'", CiState::Pending),
        (201, r#"{"result": "SUCCESS"}"#, by_result, CiState::Passed),
        (422, r#"{"error": "no such commit"}"#, "status == 422 ? 'pending' : 'failed'", CiState::Pending),
        (200, "{}", "headers['x-stage'] == 'done' ? 'passed' : 'pending'", CiState::Passed),
        (
            200,
            r#"{"sha": "d6fde92930d4715a2b49857d24b940956b26d2d3"}"#,
            "body.sha == params.head_sha ? 'passed' : 'pending'",
            CiState::Passed,
        ),
    ] {
        let (upstream, gate) = gate_of(status, body, verdict).await;
        let found = is(ask(&gate).await, expected);
        assert_eq!((found.commit, found.is_earlier, found.evidence.len()), (None, false, 1), "{verdict}");
        let requests = upstream.requests();
        assert_eq!((requests.len(), &*requests[0].target), (1, &*format!("/jobs/{HEAD}")));
    }
    let large = json!({"result": "SUCCESS", "log": "x".repeat(100_000)}).to_string();
    is(ask(&gate_of(200, &large, by_result).await.1).await, CiState::Passed);
}

#[tokio::test]
async fn an_answer_that_is_not_about_the_commit_is_never_evaluated() {
    for (status, kind) in [
        (302, "invalid_output"),
        (401, "denied"),
        (403, "denied"),
        (407, "denied"),
        (408, "unavailable"),
        (429, "throttled"),
        (500, "unavailable"),
        (599, "unavailable"),
    ] {
        unknown(ask(&gate_of(status, "{}", "'failed'").await.1).await, kind, &status.to_string());
    }
    // A partial, unfinished or empty response is no complete answer, whatever the verdict reads.
    for status in [202, 203, 204, 206, 207, 226] {
        for verdict in ["'passed'", "status > 0 ? 'passed' : 'failed'"] {
            unknown(ask(&gate_of(status, "{}", verdict).await.1).await, "invalid_output", &status.to_string());
        }
    }
    // Proxies send these statuses, too.
    for status in [400, 404, 410, 422] {
        unknown(ask(&gate_of(status, "{}", "'pending'").await.1).await, "invalid_output", "look at `status`");
    }
    for headers in ["Content-Range: items 0-0/5", "Content-Encoding: gzip"] {
        let upstream = Upstream::always(response(200, headers, "{}")).await;
        let gate = GateContext::new().gate(json!({"http": {"url": url(&upstream), "verdict": "'passed'"}}));
        unknown(ask(&gate).await, "invalid_output", "");
    }
    for (body, verdict, says) in [
        ("{}", "body.result == 'SUCCESS' ? 'passed' : 'failed'", "result"),
        ("{}", "'ok'", "it gives `\"ok\"`"),
        ("{}", "true", "it gives `true`"),
        ("{}", "'Passed'", "not `passed`"),
        ("half", "body.result", "not one JSON document"),
        ("{\"n\":18446744073709551616}", "body == null ? 'passed' : 'failed'", "too long"),
        ("{\"error\":\"down\"}", "'pending'", "the answer holds `error` (\"down\")"),
        ("{\"runs\":[],\"errors\":[\"down\"]}", "'passed'", "set `allowErrors: true`"),
    ] {
        let failure = unknown(ask(&gate_of(200, body, verdict).await.1).await, "invalid_output", says);
        assert!(failure.message.contains(&format!("/jobs/{HEAD}: verdict: ")), "{}", failure.message);
    }
    let mut upstream = Upstream::start_apart(|_| Vec::new()).await;
    let gate = GateContext::new().gate(json!({"http": {"url": url(&upstream), "verdict": "'passed'"}}));
    upstream.refuse().await;
    unknown(ask(&gate).await, "unavailable", "cannot connect");
}

#[tokio::test]
async fn allow_errors_permits_an_errors_field() {
    let upstream = Upstream::start(|request| request.answer(200, "", r#"{"errors": 3}"#)).await;
    let verdict = "body.errors > 0 ? 'failed' : 'passed'";
    let http = json!({"url": url(&upstream), "verdict": verdict, "allowErrors": true});
    is(ask(&GateContext::new().gate(json!({"http": http}))).await, CiState::Failed);
}

#[tokio::test]
async fn the_verdict_names_the_commit_and_no_message_shows_a_secret() {
    let (context, upstream) = (
        GateContext::new(),
        Upstream::start(|request| {
            request.answer(200, "", json!({"echo": request.header("authorization")}).to_string())
        })
        .await,
    );
    context.write("token", "Basic c2VjcmV0OnNlY3JldA==");
    let headers = json!({"Authorization": {"file": "token"}, "X-Branch": "{{ params.branch }}"});
    let http = json!({"url": url(&upstream), "method": "POST", "headers": headers, "body": {"sha": "{{ params.head_sha }}"},
        "sha": "{{ params.head_sha }}", "verdict": "params.branch == 'main' ? 'passed' : body.echo"});
    let gate = context.gate(json!({"http": http}));
    let verdict = is(ask_with(&gate, json!({"head_sha": HEAD, "branch": "main"}), false).await, CiState::Passed);
    assert_eq!(verdict.commit.unwrap().as_str(), HEAD);
    let request = &upstream.requests()[0];
    assert_eq!((&*request.method, request.header("x-branch")), ("POST", Some("main")));
    assert_eq!(request.body, json!({"sha": HEAD}).to_string().as_bytes());
    let failure = ask_with(&gate, json!({"head_sha": HEAD, "branch": "x"}), false).await;
    let failure = unknown(failure, "invalid_output", "[redacted]");
    assert!(!failure.message.contains("c2Vj"), "{}", failure.message);
    unknown(ask_with(&gate, json!({"head_sha": "abc", "branch": "x"}), false).await, "invalid_input", "sha: ");
    unknown(ask_with(&gate, json!({"head_sha": HEAD}), false).await, "invalid_input", "params.branch");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn verdicts_are_cached_by_question() {
    // A parameter that neither the request nor the verdict uses is no part of the key.
    for (verdict, numbers) in [("'passed'", [1, 1, 1, 1, 1]), ("has(params.a) ? 'passed' : 'passed'", [1, 1, 2, 3, 3])]
    {
        let (upstream, gate) = gate_of(200, "{}", verdict).await;
        for (parameters, asked) in [
            json!({"head_sha": HEAD, "a": 1}),
            json!({"a": 1, "head_sha": HEAD}),
            json!({"a": "1", "head_sha": HEAD}),
            json!({"head_sha": HEAD}),
            json!({"head_sha": HEAD, "a": 1}),
        ]
        .into_iter()
        .zip(numbers)
        {
            is(ask_with(&gate, parameters, true).await, CiState::Passed);
            assert_eq!(upstream.requests().len(), asked, "{verdict}");
        }
        let asked = upstream.requests().len();
        is(ask_with(&gate, json!({"head_sha": "a".repeat(40)}), true).await, CiState::Passed);
        gate.forget();
        is(ask_with(&gate, json!({"head_sha": HEAD}), true).await, CiState::Passed);
        assert_eq!(upstream.requests().len(), asked + 2);
    }
}

#[tokio::test]
async fn the_key_of_a_verdict_is_the_whole_request() {
    let upstream = Upstream::start(|request| request.answer(200, "", "{}")).await;
    let http = json!({"url": format!("http://{}/", upstream.address), "method": "POST", "verdict": "'passed'",
        "headers": {"X-Branch": "{{ params.branch }}"}, "body": {"job": "{{ params.job }}"}});
    let gate = GateContext::new().gate(json!({"http": http}));
    for (branch, job, asked) in [("a", "1", 1), ("b", "1", 2), ("a", "2", 3), ("a", "1", 3), ("b", "1", 3)] {
        is(ask_with(&gate, json!({"branch": branch, "job": job, "other": asked}), true).await, CiState::Passed);
        assert_eq!(upstream.requests().len(), asked);
    }
}

#[tokio::test]
async fn nested_gates_are_combined_by_their_operators() {
    let upstream = Upstream::start(|request| match request.target.trim_start_matches('/') {
        "lost" => request.answer(500, "", ""),
        word => request.answer(200, "", json!(word).to_string()),
    })
    .await;
    let one = |word: &str| json!({"http": {"url": format!("http://{}/{word}", upstream.address), "verdict": "body"}});
    let context = GateContext::new();
    let said = async |config: Value| ask(&context.gate(config)).await;
    let (passed, pending, failed, lost) = (one("passed"), one("pending"), one("failed"), one("lost"));
    is(said(json!({"all": [passed, pending]})).await, CiState::Pending);
    is(said(json!({"any": [failed, passed, lost]})).await, CiState::Passed);
    let verdict =
        is(said(json!({"all": [passed, {"any": [failed, pending]}, {"all": [passed]}]})).await, CiState::Pending);
    assert_eq!(verdict.evidence.len(), 4);
    is(said(json!({"all": [lost, {"any": [failed, failed]}]})).await, CiState::Failed);
    let failure = unknown(said(json!({"all": [passed, {"any": [failed, lost]}]})).await, "unavailable", "500");
    assert!(failure.message.starts_with("gate 2 of 2: gate 2 of 2: "), "{}", failure.message);
    assert_eq!(failure.evidence.len(), 3);
}

#[test]
fn the_problems_of_a_configuration_are_reported() {
    let problems = |config: Value| GateContext::new().problems(config);
    let good = json!({"http": {"url": "https://ci.example.com/{{ params.a }}", "verdict": "'passed'"}});
    assert_eq!(problems(json!({"all": [good, {"any": [good]}]})), Vec::<String>::new());
    for (config, path, says) in [
        (json!({"all": []}), "gate.all:", "no gates"),
        (json!({"any": [good, {"all": []}]}), "gate.any[1].all:", "no gates"),
        (
            json!({"http": {"url": "https://{{ params.h }}/", "verdict": "'passed'"}}),
            "gate.http.url:",
            "no `allowedHosts`",
        ),
        (json!({"http": {"url": "https://h/", "verdict": "'passed"}}), "gate.http.verdict:", "column"),
        (json!({"http": {"url": "https://h/", "verdict": "'x'", "sha": "{{ x }}"}}), "gate.http.sha:", "unknown name"),
        (
            json!({"http": {"url": "https://h/", "verdict": "'x'", "timeout": "0s"}}),
            "gate.http.timeout:",
            "a time of 0",
        ),
        (json!({"http": {"url": "https://h/", "verdict": "'x'", "body": {}}}), "gate.http.body:", "GET has no body"),
        (
            json!({"http": {"url": "https://h/", "verdict": "'x'", "headers": {"Host": "x"}}}),
            "gate.http.headers.Host:",
            "transport",
        ),
    ] {
        let found = problems(config);
        assert!(found.len() == 1 && found[0].starts_with(path) && found[0].contains(says), "{says}: {found:?}");
    }
    let config = serde_json::from_value::<GateConfig>(json!({"http": {"url": "x", "verdict": "x", "sah": "x"}}));
    assert!(config.unwrap_err().to_string().contains("unknown field `sah`"));
}

#[test]
fn the_documented_forms_of_gates_are_accepted() {
    let context = GateContext::new();
    context.write("github", "ghp_x");
    context.write("ci", "Bearer x");
    let written = "
all:
  - github:
      repository: org/{{ params.repo }}
      sha: '{{ params.head_sha }}'
      workflows: [build.yml, '/^deploy-/']
      checks: ['build (linux)']
      statuses: [ci/build]
      events: [push]
      accept: [skipped, neutral]
      token: { file: github }
      walkBack: 10
  - any:
      - http:
          url: https://ci.example.com/job/{{ params.repo }}/{{ params.head_sha }}/api/json
          headers: { Authorization: { file: ci } }
          sha: '{{ params.head_sha }}'
          verdict: \"status == 404 ? 'pending' : body.building ? 'pending' : body.result == 'SUCCESS' ? 'passed' : 'failed'\"
          timeout: 5s
";
    let config: GateConfig = serde_saphyr::from_str(written).unwrap();
    let GateConfig::All(members) = &config else { panic!("{config:?}") };
    assert_eq!(members.iter().map(GateConfig::kind).collect::<Vec<_>>(), ["github", "any"]);
    let as_json: Value = serde_saphyr::from_str(written).unwrap();
    assert_eq!(context.problems(as_json.clone()), Vec::<String>::new());
    let schema = serde_json::to_value(schemars::schema_for!(GateConfig)).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&as_json));
}
