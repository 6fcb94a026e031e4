//! Hosts that do not exist, and repositories that do not.

use super::*;
use crate::support::binary;

/// A name that no resolver knows (RFC 6761, `.invalid`) is an error that names it, and never an empty list.
#[tokio::test]
async fn an_unknown_host_is_an_error_that_names_it() {
    let image = |host: &str| json!({"digests": {"images": {"app": {"image": format!("{host}/org/app:1")}}}});
    let list = json!({"digests": {"list": {"repositories": ["registry.invalid/org/app"]}}});
    let gated = json!({"digests": {
        "images": {"app": {"image": "registry.invalid/org/app:{{ params.sha }}"}},
        "gate": {"http": {"url": "http://ci.invalid/{{ params.sha }}", "sha": "{{ params.sha }}", "verdict": "'passed'"}},
    }});
    let backends = [
        (image("registry.invalid"), vec!["registry.invalid"]),
        (list, vec!["registry.invalid"]),
        (gated, vec!["ci.invalid"]),
        (json!({"http": {"url": "http://x.invalid/"}}), vec!["x.invalid"]),
        (
            json!({"digests": {"images": {"app": {"image": "registry.invalid/a:1"}, "back": {"image": "other.invalid/b:1"}}}}),
            vec!["registry.invalid", "other.invalid"],
        ),
    ];
    for (backend, hosts) in backends {
        let route = json!({"name": "d", "backend": backend, "deadline": "20s"});
        let app = TestApp::start(&format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await;
        let reply = app.ask("d", json!({"sha": "a".repeat(40)})).await;
        for host in hosts {
            refused(&reply, 502, "backend_failed", host);
        }
    }
}

/// The repository counts as missing, since the first build may create it. A warning helps if the name is misspelt.
#[tokio::test]
async fn a_missing_repository_is_absent_with_a_warning() {
    let body = r#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}"#;
    let registry = Upstream::start(move |request| request.answer(404, JSON, body)).await;
    let host = registry.address.to_string();
    let images = json!({"app": {"image": format!("{host}/org/frnot:1")}});
    let (hosts, says) = ([(&*host, plain())], "404, the registry has no such repository; is its name right?");
    let strict = TestApp::start(&config(&hosts, &images, json!({"onMissing": "error"}))).await;
    let message = refused(&strict.ask("d", json!({})).await, 422, "invalid_input", says);
    assert!(message.contains("org/frnot"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.yaml"), config(&hosts, &images, json!({}))).unwrap();
    let mut command = tokio::process::Command::from(binary::command());
    let output = command.args(["call", "-c", "gateway.yaml", "d"]).current_dir(folder.path()).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(says), "{stderr}");
    let warning = stderr.lines().find(|line| line.contains("WARN")).expect("a warning");
    assert!(warning.contains("the registry has no such repository") && warning.contains("org/frnot"), "{stderr}");
}
