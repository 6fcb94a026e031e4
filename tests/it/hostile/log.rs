//! Log injection: each log line is one JSON object without control characters for a terminal, whatever a caller sends.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::values::{NUL, values};
use crate::support::{
    TOKEN, TestApp,
    binary::Gateway,
    wire::{argo_request, exchange},
};

#[tokio::test]
async fn hostile_values_never_split_a_log_line() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.yaml");
    let says = ["jq", "-r", ".input.parameters.v | halt_error(1)"];
    let routes = json!([
        {"name": "typed", "match": {}, "input": [{"name": "v", "pattern": "nothing"}], "backend": {"fixed": {"parameters": []}}},
        {"name": "script", "backend": {"script": {"command": says}}},
    ]);
    let listen = "server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0 }";
    std::fs::write(&config, format!("{listen}\n{}routes: {routes}\n", TestApp::auth())).unwrap();
    let mut gateway = Gateway::serve(&config);
    let values: Vec<String> = values().into_iter().chain([NUL.to_owned()]).collect();
    for value in &values {
        // Through the caller's name, a refused parameter, a program's output, and an unknown route.
        let body = json!({"applicationSetName": value, "input": {"parameters": {"v": value}}}).to_string();
        let unknown = json!({"applicationSetName": value, "input": {"parameters": {value: value}}}).to_string();
        for (path, body) in [("", &body), ("/script", &body), ("/nowhere", &body), ("", &unknown)] {
            let path = format!("{path}/api/v1/getparams.execute");
            let reply = exchange(gateway.address, &argo_request(&path, TOKEN, body.as_bytes())).await;
            assert!(matches!(reply.status, 404 | 422 | 502), "{value:?}: {}", reply.text());
            // The message that Argo CD shows an operator.
            assert!(!reply.message().contains(char::is_control), "{:?}", reply.message());
        }
    }
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.wait(Duration::from_secs(20));
    assert!(!log.replace('\n', "").contains(char::is_control));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests: Vec<&Value> = lines.iter().filter(|line| line["target"] == "request").collect();
    assert_eq!(requests.len(), 4 * values.len());
    for (value, lines) in values.iter().zip(requests.chunks(4)) {
        for line in lines {
            assert_eq!(line["application_set"], **value);
            assert!(line.get("x").is_none(), "{line}");
        }
    }
}
