//! `appset-gateway conformance` finds what is wrong with other plugins, and nothing that is wrong with this gateway.

mod hostile;
mod incidents;
mod refusals;

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    TOKEN, TestApp,
    binary::{Gateway, command},
    upstream::{Step, Upstream, json_response, response},
};

/// A plugin in Python. It prints its port.
struct Plugin {
    child: Child,
    url: String,
}

impl Plugin {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(program);
        let mut child = Command::new("python3")
            .arg(program)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, url: format!("http://127.0.0.1:{}", line.trim()) }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with the token, and `cases`.
fn folder(cases: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), TOKEN).unwrap();
    std::fs::write(folder.path().join("cases.yaml"), json!({"cases": cases}).to_string()).unwrap();
    folder
}

/// A free port.
fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs the suite with these options. Returns whether the plugin conforms, and the report.
async fn conformance(folder: &Path, url: &str, options: &[&str]) -> (bool, String) {
    let mut command = command();
    command
        .current_dir(folder)
        .args(["conformance", "--url", url, "--token-file", "token", "cases.yaml"])
        .args(options);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(!stdout.is_empty(), "{stderr}");
    (output.status.success(), stdout)
}

/// The rules that are broken, in the JSON report, by name and failures.
fn broken(report: &str) -> Vec<(String, Vec<String>)> {
    let report: Value = serde_json::from_str(report).unwrap();
    let rules = report["rules"].as_array().unwrap().iter().filter(|rule| rule["result"] == "fail");
    let failures = |rule: &Value| serde_json::from_value(rule["failures"].clone()).unwrap();
    rules.map(|rule| (rule["id"].as_str().unwrap().to_owned(), failures(rule))).collect()
}

/// What became of a rule, in the JSON report.
fn result(report: &str, rule: &str) -> String {
    let report: Value = serde_json::from_str(report).unwrap();
    let found = report["rules"].as_array().unwrap().iter().find(|judged| judged["id"] == rule).unwrap();
    found["result"].as_str().unwrap().to_owned()
}

async fn source() -> Upstream {
    Upstream::start(|_| vec![Step::Send(json_response(r#"{"items": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]}"#))])
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn this_gateway_conforms() {
    let (source, port) = (source().await, port());
    let folder = folder(&json!([
        {"name": "all", "applicationSet": "fleet", "parameters": {"team": "x"}, "expect": [{"name": "a"}, {"name": "b"}]},
        {"name": "a number for a team", "parameters": {"team": 7}, "error": true},
        {"name": "an unknown parameter", "parameters": {"team": "x", "taem": "x"}, "error": true},
    ]));
    let url = format!("http://127.0.0.1:{port}/tenants?team={{{{ params.team }}}}");
    let http = json!({"url": url, "parameters": "body.items.map(i, {'name': i.name})", "timeout": "1s"});
    let route = json!({"name": "tenants", "input": [{"name": "team", "required": true}], "backend": {"http": http}, "cache": {"ttl": "0s"}});
    let config = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n{}routes: {}\n",
        TestApp::auth(),
        json!([route])
    );
    let file: PathBuf = folder.path().join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    let gateway = Gateway::serve(&file);
    let url = format!("http://{}/tenants", gateway.address);
    let (port, source) = (port.to_string(), format!("http://{}", source.address));
    let options = ["--break-upstream", &port, "--source", &source, "--timeout", "10"];
    let (conforms, report) = conformance(folder.path(), &url, &options).await;
    assert!(conforms && report.contains("conforms: 0 MUST, 0 SHOULD and 0 HAZARD broken"), "{report}");
    assert!(!report.contains("skipped"), "{report}");
}

/// The plugin of Argo CD's documentation accepts any input, and tells operators nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_documentations_plugin_is_found_wanting() {
    let folder = folder(&json!([
        {"name": "good", "parameters": {"a": "1"}, "sets": 2},
        {"name": "unknown parameter", "parameters": {"no-such-parameter": "1"}, "error": true},
    ]));
    let plugin = Plugin::start("http/hello.py", &[TOKEN, "goes on"]);
    let (conforms, report) = conformance(folder.path(), &plugin.url, &["-o", "json"]).await;
    assert!(!conforms);
    let broken = broken(&report);
    let names: Vec<&str> = broken.iter().map(|(name, _)| name.as_str()).collect();
    let expected = ["refuses-input", "refuses-half", "client-error", "error-message", "content-length"];
    assert_eq!(names, expected, "{report}");
    let (_, refuses) = &broken[0];
    assert_eq!(*refuses, ["unknown parameter: status 200, which Argo CD takes for a success"]);
    // Copies of it, each with a fault.
    for (fault, rule) in [
        ("empty", "explicit-list"),
        ("braces", "explicit-list"),
        ("null", "explicit-list"),
        ("top", "explicit-list"),
        ("204", "explicit-list"),
        ("302", "no-redirect"),
        ("half", "answers"),
        ("nothing", "expected-sets"),
    ] {
        let plugin = Plugin::start("http/hello.py", &[TOKEN, fault]);
        let (conforms, report) = conformance(folder.path(), &plugin.url, &["-o", "json"]).await;
        let names: Vec<String> = self::broken(&report).into_iter().map(|(name, _)| name).collect();
        assert!(!conforms && names.contains(&rule.to_owned()), "{fault}: {names:?}");
    }
}

/// A careless plugin: each failure of its source deletes all Applications.
#[tokio::test(flavor = "multi_thread")]
async fn a_careless_plugin_is_found_dangerous() {
    let (source, port) = (source().await, port());
    let folder = folder(&json!([{"name": "all", "sets": 2}]));
    let plugin = Plugin::start("conformance/careless.py", &[&format!("http://127.0.0.1:{port}/items")]);
    let (port, source) = (port.to_string(), format!("http://{}", source.address));
    let options = ["--break-upstream", &port, "--source", &source, "-o", "json"];
    let (conforms, report) = conformance(folder.path(), &plugin.url, &options).await;
    assert!(!conforms);
    let broken = broken(&report);
    let failures = |rule: &str| {
        let found = broken.iter().find(|(name, _)| name == rule);
        found.map(|(_, failures)| failures.clone()).unwrap_or_default()
    };
    for rule in ["no-token", "wrong-token", "refuses-half", "numbers-as-text"] {
        assert!(!failures(rule).is_empty(), "{rule} is not broken: {report}");
    }
    // It never gives an error, and no case asks a bad question.
    for rule in ["refuses-input", "error-message"] {
        assert_eq!(result(&report, rule), "skipped", "{report}");
    }
    let faults = failures("broken-source");
    assert_eq!(faults.len(), 16, "each fault deletes both Applications: {faults:#?}");
    let first = "the source answers 500: all has 0 sets instead of 2, with status 200; Argo CD deletes 2";
    assert_eq!(faults[0], first);
    for (format, shows) in [
        ("markdown", "| `broken-source` | HAZARD | fail | the source answers 500: all has 0 sets"),
        ("junit", "<testcase classname=\"HAZARD\" name=\"broken-source\"><failure message="),
        ("text", "fail    HAZARD broken-source"),
    ] {
        let options = ["--break-upstream", &port, "--source", &source, "-o", format];
        let (conforms, report) = conformance(folder.path(), &plugin.url, &options).await;
        assert!(!conforms && report.contains(shows), "{format}: {report}");
    }
}

/// A plugin that hangs, floods, or answers differently each time: bounded, and reported as such.
#[tokio::test(flavor = "multi_thread")]
async fn a_mad_plugin_is_bounded() {
    let folder = folder(&json!([{"name": "q"}]));
    let hanging = Upstream::start(|_| vec![Step::Hang]).await;
    let url = format!("http://{}", hanging.address);
    let (_, report) = conformance(folder.path(), &url, &["--timeout", "1", "-o", "json"]).await;
    assert_eq!(broken(&report)[0].0, "answers");
    let in_time = broken(&report).into_iter().find(|(name, _)| name == "in-time").unwrap();
    assert_eq!(in_time.1[0], "q: no whole answer within 1s");

    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(65536)).into_bytes();
    let flooding = Upstream::start(move |_| vec![Step::Send(head.to_vec()), Step::Flood(chunk.clone())]).await;
    let (_, report) = conformance(folder.path(), &format!("http://{}", flooding.address), &["-o", "json"]).await;
    assert_eq!(result(&report, "answers"), "unknown");
    assert!(report.contains("q: the answer has more than 4 MiB"), "{report}");

    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let changing = Upstream::start(move |_| {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let sets: Vec<Value> = (0..=n % 3).map(|set| json!({"name": set.to_string()})).collect();
        vec![Step::Send(json_response(json!({"output": {"parameters": sets}}).to_string()))]
    })
    .await;
    let (conforms, report) = conformance(folder.path(), &format!("http://{}", changing.address), &["-o", "json"]).await;
    let names: Vec<String> = broken(&report).into_iter().map(|(name, _)| name).collect();
    assert!(
        !conforms && names.contains(&"equal-answers".to_owned()) && names.contains(&"concurrent".to_owned()),
        "{report}"
    );
}

/// What is wrong with the arguments is said before anything is asked.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_are_explained() {
    let asked = Upstream::start(|_| vec![Step::Send(response(200, "", "{}"))]).await;
    let url = format!("http://{}", asked.address);
    let folder = folder(&json!([]));
    std::fs::write(folder.path().join("errors.yaml"), "cases: [{ name: a, error: true }]").unwrap();
    std::fs::write(folder.path().join("typo.yaml"), "cases: [{ name: a, parmeters: {} }]").unwrap();
    for (arguments, says) in [
        (vec!["no-such-file.yaml"], "cannot read no-such-file.yaml"),
        (vec!["cases.yaml"], "has no case without `error: true`"),
        (vec!["errors.yaml"], "has no case without `error: true`"),
        (vec!["typo.yaml"], "unknown field `parmeters`"),
        (vec!["--token-file", "no-such-token"], "no-such-token"),
        (vec!["--break-upstream", "1"], "--source"),
    ] {
        let mut command = command();
        command.current_dir(folder.path()).args(["conformance", "--url", &url]).args(&arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(says), "{arguments:?}: {said}");
    }
    assert!(asked.requests().is_empty());
}
