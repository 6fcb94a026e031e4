//! What a script is given and what it may answer: its environment, its exit codes. Real programs, and Argo CD's judgement of each reply.

use std::{path::Path, sync::Arc};

use appset_gateway::clock::SystemClock;
use serde_json::{Value, json};

use crate::support::{TestApp, app::build, upstream::refused};

/// A gateway whose route `s` has the `script` given, and answers that are not remembered.
async fn serve(script: Value) -> TestApp {
    let route = json!({"name": "s", "backend": {"script": script}, "cache": {"ttl": "0s"}});
    TestApp::with_routes(&format!("  {}", json!([route]))).await
}

async fn shell(line: &str) -> TestApp {
    serve(json!({"command": ["sh", "-c", line]})).await
}

/// What the program wrote to `seen`, by NUL.
fn seen(folder: &Path) -> Vec<String> {
    let seen = std::fs::read_to_string(folder.join("seen")).unwrap();
    let mut lines: Vec<String> = seen.split_terminator('\0').map(str::to_owned).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn a_script_needs_no_json() {
    let line = r#"printf '[{"branch":"%s","first":"%s","tag":"%s","region":"%s"}]\n' \
        "$PARAM_BRANCH" "$PARAM_FILES_0" "$PARAM_IMAGES_FRONT" "$ARGOCD_ENV_REGION""#;
    let script = json!({"command": ["sh", "-c", line], "env": {"REGION": "eu"}});
    let parameters = json!({"branch": "main", "files": ["a", "b"], "images": {"front": "v1"}});
    let sets = r#"[{"branch":"main","first":"a","tag":"v1","region":"eu"}]"#;
    assert_eq!(serve(script).await.ask_afresh("s", parameters).await.sets(), sets);

    let line = "cat /proc/$$/environ > seen; cat > input; echo '[]'";
    let script = json!({"command": ["sh", "-c", line], "env": {"REGION": "eu"}, "inheritEnv": ["PATH"]});
    let app = serve(script).await;
    let large = "x".repeat(200_000);
    let parameters = json!({"PATH": "/evil", "LD_PRELOAD": "/evil.so", "n": 7, "none": null, "large": large});
    assert_eq!(app.ask_afresh("s", parameters).await.sets(), "[]");
    let lines = seen(app.folder.path());
    assert_eq!(lines[..2], ["ARGOCD_ENV_REGION=eu", "PARAM_LD_PRELOAD=/evil.so"]);
    assert_eq!(lines[2..4], ["PARAM_N=7", "PARAM_PATH=/evil"]);
    assert_eq!(lines[4], format!("PATH={}", std::env::var("PATH").unwrap()));
    assert_eq!(lines[5..], ["REGION=eu"]);
    let input = std::fs::read_to_string(app.folder.path().join("input")).unwrap();
    assert!(input.contains(&large));
    assert_eq!(app.ask_afresh("s", json!({"a": ["x"], "b": 1})).await.sets(), "[]");
    let all = r#"ARGOCD_APP_PARAMETERS=[{"name":"a","array":["x"]},{"name":"b","string":"1"}]"#;
    assert_eq!(seen(app.folder.path())[0], all);
}

#[tokio::test]
async fn any_request_fits_into_the_environment() {
    let app = shell("echo '[]'").await;
    for parameters in [
        json!({"many": vec![""; 250_000]}),
        json!({"large": "x".repeat(1_000_000)}),
        Value::Object((0..60_000).map(|n| (format!("p{n}"), json!("x"))).collect()),
        Value::Object((0..9).map(|n| (format!("p{n}"), json!("x".repeat(102_000)))).collect()),
        json!({"x".repeat(900_000): "x"}),
        json!({}),
    ] {
        let reply = app.ask_afresh("s", parameters).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[tokio::test]
async fn what_cannot_stand_in_the_environment_is_refused() {
    let app = serve(json!({"command": ["sh", "-c", "touch ran; echo '[]'"], "env": {"PARAM_SET": "x"}})).await;
    for (parameters, says) in [
        (json!({"a-b": "x", "a.b": "y"}), "the parameters `a-b` and `a.b` would both be the variable PARAM_A_B"),
        (json!({"set": "x"}), "the parameter `set` would be the variable PARAM_SET, which the configuration sets"),
        (json!({"a": "x\u{0}"}), "the parameter `a` holds a NUL character"),
    ] {
        refused(&app.ask_afresh("s", parameters).await, 422, "invalid_input", says);
    }
    assert!(!app.folder.path().join("ran").exists());
}

#[tokio::test]
async fn exit_codes_have_meanings() {
    for (line, status, code, says) in [
        (
            "echo '[{}]'; echo 'a note' >&2; echo 'no such cluster' >&2; echo >&2; exit 65",
            422,
            "invalid_input",
            "route s (script): sh: no such cluster",
        ),
        ("echo 'usage: x' >&2; exit 64", 422, "invalid_input", "sh: usage: x"),
        ("exit 64", 422, "invalid_input", "it refuses its input (exit status: 64)"),
        (
            "echo '[]'; echo 'API down' >&2; exit 75",
            502,
            "backend_failed",
            "asks to serve the last good answer (exit status: 75); stderr: API down",
        ),
        ("echo '[]'; exit 66", 502, "backend_failed", "exit status: 66"),
        ("echo '[]'; exit 1", 502, "backend_failed", "exit status: 1"),
        ("exit 0", 502, "backend_output_invalid", "blank"),
    ] {
        refused(&shell(line).await.ask_afresh("s", json!({})).await, status, code, says);
    }
    let script = json!({"command": ["sh", "-c", "echo \"denied: $TOKEN\" >&2; exit 65"],
        "env": {"TOKEN": {"env": "CARGO_PKG_NAME"}}});
    refused(&serve(script).await.ask_afresh("s", json!({})).await, 422, "invalid_input", "sh: denied: [redacted]");
}

#[tokio::test]
async fn a_script_may_ask_for_its_last_good_answer() {
    let app = shell("cat answer 2>/dev/null && exit; echo later >&2; exit 75").await;
    let answer = app.folder.path().join("answer");
    std::fs::write(&answer, r#"[{"a":"1"}]"#).unwrap();
    assert_eq!(app.ask("s", json!({})).await.sets(), r#"[{"a":"1"}]"#);
    std::fs::remove_file(answer).unwrap();
    let reply = app.ask("s", json!({})).await;
    assert_eq!(reply.sets(), r#"[{"a":"1"}]"#);
    assert!(reply.header("cache-status").unwrap().contains("detail=backend_failed"));
}

#[tokio::test]
async fn a_configuration_that_collides_with_itself_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for (script, input, says) in [
        (json!({"env": {"A": "x", "ARGOCD_ENV_A": "y"}}), json!([]), "env.A: `A` is passed on as ARGOCD_ENV_A too"),
        (json!({"env": {"A": "x"}, "inheritEnv": ["ARGOCD_ENV_A"]}), json!([]), "env.A: `A` is passed on"),
        (json!({"env": {"ARGOCD_APP_PARAMETERS": "x"}}), json!([]), "this variable holds the call's parameters"),
        (json!({"inheritEnv": ["ARGOCD_APP_PARAMETERS"]}), json!([]), "inheritEnv[0]: this variable"),
        (
            json!({}),
            json!([{"name": "a-b"}, {"name": "a_b"}]),
            "input[1].name: the parameters `a-b` and `a_b` would both be the variable PARAM_A_B",
        ),
        (
            json!({"env": {"PARAM_A": "x"}}),
            json!([{"name": "a"}]),
            "input[0].name: the parameter `a` would be the variable PARAM_A",
        ),
    ] {
        let mut script = script;
        script["command"] = json!(["cat"]);
        let route = json!({"name": "s", "input": input, "backend": {"script": script}});
        let config = format!("{}routes: {}\n", TestApp::auth(), json!([route]));
        let report = build(folder.path(), &config, Arc::new(SystemClock)).err().expect("a report");
        let lines = report.lines();
        assert!(lines.iter().any(|line| line.contains(says)), "{says}: {lines:?}");
    }
}
