//! Workers as real processes. Whatever a worker does, only its own request gets no answer.

mod trouble;

use std::{collections::HashSet, path::Path, time::Duration};

use domain::clock::SystemClock;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::{
    Reply, TestApp,
    app::build,
    binary::Gateway,
    processes::{PATIENCE, all_gone, marker, processes},
    upstream::refused,
};

/// A gateway whose route `w` runs `workers/worker.py`, and a text in its workers' command lines.
async fn serve(more: Value) -> (TestApp, String) {
    let marker = marker();
    let folder = tempfile::tempdir().unwrap();
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/workers/worker.py");
    std::fs::copy(worker, folder.path().join("worker.py")).unwrap();
    std::fs::write(folder.path().join("token"), "hunter2").unwrap();
    let mut script = json!({
        "mode": "worker",
        "command": ["python3", "worker.py", marker],
        "env": {"TOKEN": {"file": "token"}},
        "allow": {"read": ["."], "write": ["."]},
        "concurrency": 2,
    });
    script.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let routes = json!([{"name": "w", "backend": {"script": script}, "cache": {"ttl": "0s"}}]);
    let app = TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await;
    (app, marker)
}

async fn ask(app: &TestApp, parameters: Value) -> Reply {
    app.ask_afresh("w", parameters).await
}

/// The field `name` of an answer's only parameter set.
fn returned_field(reply: &Reply, name: &str) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"]["parameters"][0][name].as_str().unwrap().to_owned()
}

async fn pid(app: &TestApp) -> String {
    returned_field(&ask(app, json!({})).await, "pid")
}

/// Waits until there are `count` processes.
async fn wait_for_processes(marker: &str, count: usize) {
    let until = Instant::now() + PATIENCE;
    while processes(marker).len() != count {
        assert!(Instant::now() < until, "{:?}", processes(marker));
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn workers_answer() {
    let (app, _) = serve(json!({})).await;
    for (more, sets) in [
        (json!({"output": [{"a": "1"}, {}]}), r#"[{"a":"1"},{}]"#),
        (json!({"output": []}), "[]"),
        (json!({"output": {"parameters": [{"a": 1}]}, "error": null}), r#"[{"a":"1"}]"#),
        (json!({"output": {"output": {"parameters": []}}}), "[]"),
    ] {
        assert_eq!(ask(&app, json!({"do": "say", "more": more})).await.sets(), sets);
    }
    for (more, status, code, says) in [
        (json!({"error": "the list\nis down"}), 502, "backend_failed", "the list is down"),
        (json!({"error": "no hunter2"}), 502, "backend_failed", "no [redacted]"),
        (json!({"error": "no such branch", "code": "invalid_input"}), 422, "invalid_input", "no such branch"),
        (json!({"error": "soon", "code": "later"}), 502, "backend_failed", "last good answer: soon"),
        (json!({"output": [{"a": 1}], "error": "partial"}), 502, "backend_failed", "partial"),
        (json!({}), 502, "backend_output_invalid", "neither `output` nor `error`"),
        (json!({"output": "none"}), 502, "backend_output_invalid", "found a string"),
    ] {
        refused(&ask(&app, json!({"do": "say", "more": more})).await, status, code, says);
    }
    // One worker answered all of them, and stayed in step.
    assert_eq!(returned_field(&ask(&app, json!({})).await, "n"), "12");
}

#[tokio::test]
async fn the_request_arrives_as_it_was_sent() {
    let (app, _) = serve(json!({})).await;
    let body = json!({
        "applicationSetName": "it's",
        "input": {"parameters": {"do": "request", "a": [1, null, {"x": "ä\r\n🚀\u{0}"}], "big": "x".repeat(300_000)}},
    });
    let reply = app.call("/w/api/v1/getparams.execute", &body).await;
    assert_eq!(returned_field(&reply, "request").parse::<Value>().unwrap(), body);
}

#[tokio::test]
async fn a_workers_answer_is_mapped_and_has_a_lifetime() {
    let (app, _) = serve(json!({"parameters": "items.filter(i, i.a != params.not).map(i, {'b': i.a})"})).await;
    let more = json!({"output": [{"a": "x"}, {"a": "y"}], "cache": {"ttl": "1m"}});
    let question = json!({"do": "say", "more": more, "not": "x"});
    for _ in 0..2 {
        assert_eq!(app.ask("w", question.clone()).await.sets(), r#"[{"b":"y"}]"#);
    }
    let asked_again = ask(&app, json!({"do": "say", "more": {"output": []}, "not": "n"})).await;
    assert_eq!(asked_again.sets(), "[]");
    let more = json!({"output": [{"n": "1"}]});
    refused(&ask(&app, json!({"do": "say", "more": more})).await, 502, "backend_output_invalid", "parameters");
}

#[tokio::test]
async fn one_worker_answers_hundreds_of_requests() {
    let (app, marker) = serve(json!({})).await;
    let first = pid(&app).await;
    for n in 2..=200 {
        let reply = ask(&app, json!({})).await;
        assert_eq!((returned_field(&reply, "pid"), returned_field(&reply, "n")), (first.clone(), n.to_string()));
    }
    assert_eq!(processes(&marker).len(), 1, "{:?}", processes(&marker));
}

#[tokio::test]
async fn workers_are_replaced_after_their_maximum_of_requests() {
    let (app, marker) = serve(json!({"worker": {"recycleAfter": 3}})).await;
    let mut numbers = Vec::new();
    let mut pids = HashSet::new();
    for _ in 0..9 {
        let reply = ask(&app, json!({})).await;
        numbers.push(returned_field(&reply, "n"));
        pids.insert(returned_field(&reply, "pid"));
    }
    assert_eq!(numbers.concat(), "123123123");
    assert_eq!(pids.len(), 3);
    wait_for_processes(&marker, 1).await;
    assert_eq!(app.metric("appset_gateway_workers_ended_total{reason=\"recycled\"}").await, 3);
}

#[tokio::test]
async fn workers_with_too_much_memory_are_replaced_after_their_answer() {
    let (app, marker) = serve(json!({"worker": {"maxMemory": "100MiB"}})).await;
    let mut numbers = Vec::new();
    for _ in 0..9 {
        numbers.push(returned_field(&ask(&app, json!({"do": "keep"})).await, "n"));
    }
    assert_eq!(numbers.concat(), "123123123");
    wait_for_processes(&marker, 1).await;
    assert_eq!(app.metric("appset_gateway_workers_ended_total{reason=\"memory\"}").await, 3);
    let until = Instant::now() + Duration::from_secs(10);
    while app.metric("appset_gateway_programs").await != 1 {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn concurrent_requests_have_a_worker_each_up_to_the_limit() {
    let (app, marker) = serve(json!({"concurrency": 3})).await;
    let asked = (0..6).map(|n| app.ask("w", json!({"do": "sleep", "n": n})));
    let replies = futures_util::future::join_all(asked).await;
    let pids: HashSet<_> = replies.iter().map(|reply| returned_field(reply, "pid")).collect();
    assert_eq!(pids.len(), 3);
    assert_eq!(processes(&marker).len(), 3);
}

#[tokio::test]
async fn workers_start_ahead_of_requests() {
    let (app, marker) = serve(json!({"worker": {"ahead": 2}})).await;
    sleep(Duration::from_millis(200)).await;
    assert_eq!(processes(&marker), [""; 0], "the building starts nothing");
    app.app.start_workers();
    wait_for_processes(&marker, 2).await;
    pid(&app).await;
    assert_eq!(processes(&marker).len(), 2);
}

#[tokio::test]
async fn workers_end_with_the_gateway() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let (marker, folder) = (marker(), tempfile::tempdir().unwrap());
        let script =
            json!({"mode": "worker", "command": ["sh", "-c", "trap '' TERM; sleep $1; sleep 9", "sh", marker]});
        let routes = json!([{"name": "w", "backend": {"script": script}}]);
        let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
        let file = folder.path().join("gateway.yaml");
        std::fs::write(&file, format!("{server}{}routes: {routes}\n", TestApp::auth())).unwrap();
        let gateway = Gateway::serve(&file);
        wait_for_processes(&marker, 2).await;
        gateway.signal(signal);
        all_gone(&marker, signal.as_str()).await;
    }
}

#[tokio::test]
async fn outdated_workers_are_replaced() {
    let (app, marker) = serve(json!({})).await;
    let first = pid(&app).await;
    assert_eq!(returned_field(&ask(&app, json!({})).await, "token"), "7");
    std::fs::write(app.folder.path().join("token"), "longer than before").unwrap();
    let reply = ask(&app, json!({})).await;
    assert_eq!((returned_field(&reply, "token"), returned_field(&reply, "n")), ("18".to_owned(), "1".to_owned()));
    assert_ne!(returned_field(&reply, "pid"), first);
    // A changed program, detected by its file.
    let file = app.folder.path().join("worker.py");
    let text = std::fs::read_to_string(&file).unwrap().replace("\"n\": str(count)", "\"n\": \"new\"");
    std::fs::write(&file, text).unwrap();
    assert_eq!(returned_field(&ask(&app, json!({})).await, "n"), "new");
    assert_eq!(app.metric("appset_gateway_workers_ended_total{reason=\"outdated\"}").await, 2);
    std::fs::remove_file(app.folder.path().join("token")).unwrap();
    refused(&ask(&app, json!({})).await, 502, "backend_failed", "cannot read the secret file");
    assert!(processes(&marker).len() <= 1);
}

#[test]
fn worker_mistakes_are_reported_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    for (script, says) in [
        (json!({"mode": "worker", "protocol": "yaml"}), "script.protocol: workers only speak lines of JSON"),
        (json!({"worker": {"ahead": 1}}), "script.worker: this script has no workers"),
        (json!({"mode": "worker", "worker": {"recycleAfter": 0}}), "worker.recycleAfter: with 0"),
        (json!({"mode": "worker", "worker": {"maxMemory": "0B"}}), "worker.maxMemory: with 0"),
        (json!({"mode": "worker", "worker": {"ahead": 9}}), "worker.ahead: there are 8 workers at most"),
    ] {
        let mut script = script;
        script["command"] = json!(["cat"]);
        let routes = json!([{"name": "s", "backend": {"script": script}}]);
        let config = format!("{}routes: {routes}\n", TestApp::auth());
        let report = build(folder.path(), &config, std::sync::Arc::new(SystemClock)).err().expect("a report");
        let lines = report.lines();
        assert!(lines.iter().any(|line| line.contains(says)), "{says}: {lines:?}");
    }
}

#[test]
fn call_reports_resource_use() {
    let folder = tempfile::tempdir().unwrap();
    let line = "import sys, json\nx = bytearray(50000000)\nsum(range(1000000))\n\
                print(json.dumps({'id': json.loads(sys.stdin.readline()).get('id'), 'output': {'parameters': []}}), flush=True)\n\
                sys.stdin.read()";
    for mode in ["once", "worker"] {
        let script = json!({"command": ["python3", "-c", line], "mode": mode});
        let routes = json!([{"name": "s", "backend": {"script": script}}]);
        std::fs::write(folder.path().join("c.yaml"), format!("{}routes: {routes}\n", TestApp::auth())).unwrap();
        let mut call = crate::support::binary::command();
        let output =
            call.args(["call", "s", "-c", "c.yaml", "-o", "json"]).current_dir(folder.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        let number = |key: &str| report["steps"][0][key].as_f64().unwrap_or_else(|| panic!("{mode}, {key}: {report}"));
        assert!(number("peakMemoryBytes") > 5e7 && number("cpuMilliseconds") > 1.0, "{mode}: {report}");
        assert!(number("milliseconds") > 1.0, "{mode}: {report}");
    }
}

/// Each example of `config/examples/workers.yaml` whose language is installed.
#[tokio::test]
async fn the_examples_work() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples");
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("workers")).unwrap();
    for entry in std::fs::read_dir(examples.join("workers")).unwrap() {
        let file = entry.unwrap();
        let lines = std::fs::read_to_string(file.path()).unwrap().lines().count();
        assert!(lines < 30, "{:?} has {lines} lines", file.path());
        std::fs::copy(file.path(), folder.path().join("workers").join(file.file_name())).unwrap();
    }
    let config: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(examples.join("workers.yaml")).unwrap()).unwrap();
    let config = format!("{}routes: {}\n", TestApp::auth(), config["routes"]);
    let app = TestApp::start_in(folder, &config).await;
    let has_node = std::process::Command::new("node").arg("--version").output().is_ok();
    for name in ["python", "shell", "node"] {
        if name == "node" && !has_node {
            continue;
        }
        for region in ["eu", "a\"b: 'c'\\n"] {
            let reply = app.ask(name, json!({"regions": [region, "us"]})).await;
            let sets = json!([{"region": region, "zone": "a"}, {"region": "us", "zone": "a"}]);
            assert_eq!(reply.status, 200, "{name}: {}", reply.text());
            assert_eq!(reply.json()["output"]["parameters"], sets, "{name}");
        }
        refused(&app.ask(name, json!({"regions": 3})).await, 422, "invalid_input", "regions");
        assert_eq!(app.ask(name, json!({"regions": []})).await.sets(), "[]", "{name}");
    }
}
