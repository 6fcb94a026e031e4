//! Hostile names through every backend. A branch name arrives byte for byte as data, or is refused with a clear 4xx. No name
//! runs as code, leaves a path, or splits a header or a log line. The other files test holes that comparable gateways had.

mod digests;
mod gateways;
mod hosts_and_commands;
mod log;
mod urls;
mod values;

use serde_json::{Value, json};

use self::values::{NUL, each, parameters};
use crate::support::{
    TestApp,
    upstream::{Upstream, json_response, refused},
};

/// A route `r` with this backend and `more` keys.
async fn serve(backend: Value, more: Value) -> TestApp {
    let mut route = json!({"name": "r", "backend": backend});
    route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    TestApp::with_routes(&format!("  {}", json!([route]))).await
}

/// The answer's only parameter set when all values and `more` are sent.
async fn returned_set(app: &TestApp) -> Value {
    let reply = app.ask("r", parameters().into()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"]["parameters"][0].take()
}

/// Fails for each entry of `found` that differs from the value that was sent.
#[track_caller]
fn assert_unchanged(found: &Value) {
    for (name, value) in parameters() {
        let (found, value) =
            (found[&name].as_str().unwrap_or_else(|| panic!("{name} is missing")), value.as_str().unwrap());
        assert!(found == value, "{name}: {value:.80} came as {found:.80}");
    }
    assert_eq!(found.as_object().unwrap().len(), parameters().len());
}

#[tokio::test]
async fn templates_and_expressions_keep_hostile_values_unchanged() {
    let one = json!({"fixed": {"parameters": [{"a": "b"}]}});
    let output = each(|name| format!("{{{{ params.{name} }}}}"));
    assert_unchanged(&returned_set(&serve(one.clone(), json!({"output": output})).await).await);
    let names: Vec<String> = parameters().keys().cloned().collect();
    let mut echoed = returned_set(&serve(one.clone(), json!({"echo": names})).await).await;
    echoed.as_object_mut().unwrap().remove("a");
    assert_unchanged(&echoed);
    assert_unchanged(&returned_set(&serve(json!({"pipeline": [one, {"select": "[params]"}]}), json!({})).await).await);
}

#[tokio::test]
async fn scripts_receive_hostile_values_unchanged() {
    let jq = |program: &str| json!(["jq", "-c", program]);
    // Quoted, since PyYAML leaves `1e9` bare. The gateway refuses a bare `1e9`, which other YAML readers take for a number.
    let yaml = |found: &str| {
        let print = format!("print(yaml.safe_dump({found}, default_style='\"'))");
        json!(["python3", "-c", format!("import json, sys, yaml; given = json.load(sys.stdin); {print}")])
    };
    let resources = "{'apiVersion': given['apiVersion'], 'kind': given['kind'], 'items': [given['functionConfig']]}";
    // As one shell word each, quoted as a shell requires.
    let words = r#"for name in $(env | sed -n 's/^PARAM_\(V[0-9]*\)=.*/\1/p'); do
        eval "value=\$PARAM_$name"; jq -n --arg name "$name" --arg value "$value" '{($name | ascii_downcase): $value}'
    done | jq -sc '[add]'"#;
    for script in [
        json!({"command": jq("[.input.parameters]")}),
        json!({"command": jq("[.input.parameters | with_entries(.value = env[\"PARAM_\" + (.key | ascii_upcase)])]")}),
        json!({"command": ["sh", "-c", words], "timeout": "60s"}),
        json!({"command": jq(".input.parameters"), "protocol": "jsonLines"}),
        json!({"command": yaml("[given['input']['parameters']]"), "protocol": "yaml"}),
        json!({"command": yaml(resources), "protocol": "krm", "parameters": "items.map(i, i.data)"}),
    ] {
        let app = serve(json!({"script": script}), json!({"deadline": "60s"})).await;
        assert_unchanged(&returned_set(&app).await);
        refused(&app.ask("r", json!({"v": NUL})).await, 422, "invalid_input", "NUL");
    }
    let worker = ["jq", "-c", "--unbuffered", "{id, output: [.request.input.parameters]}"];
    let app = serve(json!({"script": {"command": worker, "mode": "worker"}}), json!({})).await;
    assert_unchanged(&returned_set(&app).await);
    let reply = app.ask("r", json!({"v": NUL})).await;
    assert_eq!(reply.json()["output"]["parameters"], json!([{"v": NUL}]));
}

#[tokio::test]
async fn request_bodies_keep_hostile_values_unchanged() {
    let upstream = Upstream::always(json_response(r#"{"output": {"parameters": [{"a": "b"}]}}"#)).await;
    let url = format!("http://{}/", upstream.address);
    let body = each(|name| format!("{{{{ params.{name} }}}}"));
    let http = json!({"url": url, "method": "POST", "body": body, "parameters": "body.output.parameters"});
    returned_set(&serve(json!({"http": http}), json!({})).await).await;
    returned_set(&serve(json!({"http": {"plugin": {"baseUrl": url}}}), json!({})).await).await;
    let sent: Vec<Value> =
        upstream.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
    assert_unchanged(&sent[0]);
    assert_unchanged(&sent[1]["input"]["parameters"]);
}

/// Each value is the key of an item on both sides, and must match its own item only.
#[tokio::test]
async fn merge_joins_items_by_hostile_keys() {
    let side = |name: &str| {
        let items = format!("[.input.parameters | to_entries[] | {{key: .value, {name}: .key}}]");
        json!({"script": {"command": ["jq", "-c", items]}})
    };
    let merge = json!({"merge": {"mergeKeys": ["key"], "join": "inner", "backends": [side("left"), side("right")]}});
    let reply = serve(merge, json!({})).await.ask("r", parameters().into()).await;
    let items = reply.json()["output"]["parameters"].take();
    let expected = parameters().into_iter().map(|(name, value)| json!({"key": value, "left": name, "right": name}));
    assert_eq!(items, Value::Array(expected.collect()), "{}", reply.text());
}
