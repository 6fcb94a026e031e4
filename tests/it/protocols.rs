//! What a script may answer: its exit codes. Real programs, and Argo CD's judgement of each reply.

use serde_json::{Value, json};

use crate::support::{TestApp, upstream::refused};

/// A gateway whose route `s` has the `script` given, and answers that are not remembered.
async fn serve(script: Value) -> TestApp {
    let route = json!({"name": "s", "backend": {"script": script}, "cache": {"ttl": "0s"}});
    TestApp::with_routes(&format!("  {}", json!([route]))).await
}

async fn shell(line: &str) -> TestApp {
    serve(json!({"command": ["sh", "-c", line]})).await
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
