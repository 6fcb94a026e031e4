//! The findings of `appset-gateway check`.

use serde_json::{Value, json};

use super::{TestApp, binary::command};

/// The findings for a route's `digests`: severity, path below the backend, message.
pub(crate) fn findings(digests: &Value, more: &str) -> Vec<(String, String, String)> {
    of_route(&json!({"name": "l", "backend": {"digests": digests}}), more)
}

/// The findings for a whole route, with paths below its `digests` where that applies.
pub(crate) fn of_route(route: &Value, more: &str) -> Vec<(String, String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let memory = if more.contains("cache:") { "" } else { "cache: { path: ./answers.redb }\n" };
    std::fs::write(&file, format!("{}{memory}{more}routes: {}\n", TestApp::auth(), json!([route]))).unwrap();
    let output = command().args(["check", "-o", "json", "-c"]).arg(&file).output().unwrap();
    let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let has_errors = found.iter().any(|finding| finding["severity"] == "error");
    assert_eq!(output.status.code(), Some(if has_errors { 78 } else { 0 }));
    let rows = found.iter().map(|finding| {
        assert!(finding["line"].is_u64(), "{finding}");
        let text = |name: &str| finding[name].as_str().unwrap().to_owned();
        let path = text("path").replace("routes[0].backend.digests", "");
        (text("severity"), path.trim_start_matches('.').to_owned(), text("message"))
    });
    rows.collect()
}

/// The errors among the findings, each with its path.
pub(crate) fn errors(digests: &Value) -> Vec<(String, String)> {
    let errors = findings(digests, "").into_iter().filter(|(severity, ..)| severity == "error");
    errors.map(|(_, path, message)| (path, message)).collect()
}
