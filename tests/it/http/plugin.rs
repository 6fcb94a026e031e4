//! Plugins with Argo CD's own protocol behind the gateway: the documentation's example as a real program, and faulty copies of
//! it.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    Reply, TestApp,
    app::build,
    upstream::{Upstream, json_response, refused},
};

pub(super) const TOKEN: &str = "strong-password";

/// A plugin as a separate process.
pub(super) struct Running {
    child: Child,
    pub(super) port: u16,
}

impl Running {
    /// Starts a program that prints its port first.
    pub(super) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }

    /// The documentation's plugin, with a `fault`.
    pub(super) fn hello(fault: &str) -> Self {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/http/hello.py");
        Self::start(Command::new("python3").args([program, TOKEN, fault]))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway with the route `behind`, whose plugin is at `base_url`.
async fn serve(base_url: &str, token: &str) -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plugin-token"), token).unwrap();
    let http = json!({"plugin": {"baseUrl": base_url, "token": {"file": "plugin-token"}}, "timeout": "2s"});
    let route = json!({"name": "behind", "backend": {"http": http}, "cache": {"ttl": "0s"}});
    TestApp::start_in(folder, &format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await
}

async fn ask(fault: &str, token: &str) -> Reply {
    let hello = Running::hello(fault);
    serve(&format!("http://127.0.0.1:{}", hello.port), token).await.ask_afresh("behind", json!({"a": 1})).await
}

#[tokio::test]
async fn argo_cds_example_plugin_runs_unchanged_behind_the_gateway() {
    let hello = Running::hello("none");
    let app = serve(&format!("http://127.0.0.1:{}/", hello.port), TOKEN).await;
    let parameters = json!({"list": [1, null, {"x": "ä\r\n"}], "big": "x".repeat(100_000)});
    let reply = app.ask_afresh("behind", parameters.clone()).await;
    let sets: Value = reply.json()["output"]["parameters"].clone();
    assert_eq!((&sets[0]["key1"], &sets[1]), (&json!("val1"), &json!({"key1": "val2"})), "{}", reply.text());
    let seen: Value = serde_json::from_str(sets[0]["seen"].as_str().unwrap()).unwrap();
    assert_eq!(seen, json!({"applicationSetName": "test", "input": {"parameters": parameters}}));
    assert_eq!(sets[0]["type"], "application/json");
    // Without parameters, as Argo CD sends the request.
    let reply = app.ask_afresh("behind", json!({})).await;
    let seen = reply.json()["output"]["parameters"][0]["seen"].as_str().unwrap().to_owned();
    assert_eq!(seen, r#"{"applicationSetName": "test", "input": {}}"#);
    assert_eq!(ask("nothing", TOKEN).await.sets(), "[]");
}

#[tokio::test]
async fn answers_that_argo_cd_would_read_as_empty_are_unknown() {
    for (fault, says) in [
        ("empty", "the body is blank: Argo CD would take that for an empty list"),
        ("braces", "it has no `output`: Argo CD would"),
        ("null", "found null: Argo CD would"),
        ("top", "`parameters` stands at the top, and belongs under `output`: Argo CD would"),
        ("204", "204 No Content is not a whole answer"),
        ("302", "write the address that answers as `baseUrl`"),
        ("half", "not one JSON document"),
    ] {
        let reply = ask(fault, TOKEN).await;
        let message = refused(&reply, 502, "backend_output_invalid", says);
        assert!(
            message.contains("POST http://127.0.0.1:") && message.contains("/api/v1/getparams.execute"),
            "{message}"
        );
    }
    // A wrong token. And a plugin that sends its answer after the 403, as the documentation's plugin does.
    for fault in ["none", "goes on"] {
        let message =
            refused(&ask(fault, "hunter2-hunter2").await, 502, "backend_failed", "access denied (403 Forbidden)");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[tokio::test]
async fn a_rotated_token_is_read_again() {
    let upstream = Upstream::always(json_response(r#"{"output":{"parameters":[{"a":"1"}]}}"#)).await;
    let app = serve(&format!("http://{}/team/a", upstream.address), "first-token").await;
    for token in ["first-token", "second-token"] {
        std::fs::write(app.folder.path().join("plugin-token"), format!("{token}\n")).unwrap();
        assert_eq!(app.ask_afresh("behind", json!({})).await.sets(), r#"[{"a":"1"}]"#);
        let request = upstream.requests().pop().unwrap();
        assert_eq!((&*request.method, &*request.target), ("POST", "/team/a/api/v1/getparams.execute"));
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {token}")));
    }
}

/// Two ApplicationSets may get different answers.
#[tokio::test]
async fn the_plugin_receives_the_application_set_name() {
    let hello = Running::hello("none");
    let app = serve(&format!("http://127.0.0.1:{}", hello.port), TOKEN).await;
    for name in ["one", "other"] {
        let reply =
            app.call("/behind/api/v1/getparams.execute", &json!({"applicationSetName": name, "input": {}})).await;
        assert!(reply.text().contains(&format!(r#"\"applicationSetName\": \"{name}\""#)), "{}", reply.text());
    }
}

#[test]
fn plugin_mistakes_are_reported_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    for (http, says) in [
        (json!({}), "backend.http: the key `url` is missing (write `url` for a JSON API, or `plugin:"),
        (json!({"url": "http://h/", "plugin": {"baseUrl": "http://h"}}), "`url` and `plugin` do not go together"),
        (
            json!({"plugin": {"baseUrl": "http://h"}, "parameters": "body"}),
            "http.parameters: it does not go with `plugin`",
        ),
        (json!({"plugin": {"baseUrl": "h"}}), "plugin.baseUrl: `h` is not a URL"),
        (json!({"plugin": {"baseUrl": "http://h", "token": {"file": "none"}}}), "plugin.token: "),
        (json!({"plugin": {"baseUrl": "https://h"}, "ca": "none.crt"}), "http.ca: "),
    ] {
        let routes = json!([{"name": "s", "backend": {"http": http}}]);
        let config = format!("{}routes: {routes}\n", TestApp::auth());
        let report = build(folder.path(), &config, std::sync::Arc::new(domain::clock::SystemClock));
        let lines = report.err().expect("a report").lines();
        assert!(lines.iter().any(|line| line.contains(says)), "{says}: {lines:?}");
    }
}
