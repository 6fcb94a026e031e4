//! Backends that run at the same time and are joined. The tests cover the joined items. One unknown backend, or items without a
//! unique key, makes the whole unknown.

use std::{sync::Arc, time::Duration};

use domain::clock::SystemClock;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    TestApp,
    app::build,
    upstream::{Upstream, json_response, refused, response},
};

/// A route `m` that merges `backends` by the key `cluster`.
async fn serve(join: &str, backends: Value) -> TestApp {
    let merge = json!({"mergeKeys": ["cluster"], "join": join, "backends": backends});
    let route = json!({"name": "m", "backend": {"merge": merge}, "cache": {"ttl": "0s"}});
    TestApp::with_routes(&format!("  {}", json!([route]))).await
}

fn sh(line: &str) -> Value {
    json!({"script": {"command": ["sh", "-c", line]}})
}

fn print(list: &Value) -> Value {
    sh(&format!("echo '{list}'"))
}

#[tokio::test]
async fn an_api_and_a_program_are_joined() {
    let upstream = Upstream::always(json_response(
        r#"[{"cluster":"eu","values_":{"tier":"gold","size":3}},{"cluster":"us","values_":{"size":1}},{"cluster":7}]"#,
    ))
    .await;
    let http = json!({"name": "inventory", "http": {"url": format!("http://{}/", upstream.address)}});
    let script = print(&json!([
        {"cluster": "us", "owner": "b", "values_": {"tier": "silver"}}, {"cluster": "ap", "owner": "c"},
        {"cluster": "7", "owner": "d"},
    ]));
    let us = r#"{"cluster":"us","owner":"b","values_":{"size":"1","tier":"silver"}}"#;
    let eu = r#"{"cluster":"eu","values_":{"size":"3","tier":"gold"}}"#;
    let (seven, ap) = (r#"{"cluster":"7","owner":"d"}"#, r#"{"cluster":"ap","owner":"c"}"#);
    for (join, expected) in [
        ("left", format!("[{eu},{us},{seven}]")),
        ("inner", format!("[{us},{seven}]")),
        ("outer", format!("[{eu},{us},{seven},{ap}]")),
    ] {
        let app = serve(join, json!([http, script])).await;
        let reply = app.ask("m", json!({})).await;
        assert_eq!(reply.status, 200, "{join}: {}", reply.text());
        let (sets, expected): (Value, Value) = (reply.sets().parse().unwrap(), expected.parse().unwrap());
        assert_eq!(sets, expected, "{join}");
    }
}

#[tokio::test]
async fn all_backends_run_at_the_same_time() {
    let slow = sh("sleep 2; echo '[{\"cluster\":\"a\"}]'");
    let app = serve("left", json!([slow, slow, slow])).await;
    let started = Instant::now();
    assert_eq!(app.ask("m", json!({})).await.sets(), r#"[{"cluster":"a"}]"#);
    assert!(started.elapsed() < Duration::from_millis(5500), "{:?}", started.elapsed());
}

#[tokio::test]
async fn one_unknown_backend_makes_the_merge_unknown() {
    let down = Upstream::always(response(403, "", "")).await;
    let down = json!({"name": "inventory", "http": {"url": format!("http://{}/", down.address)}});
    let good = print(&json!([{"cluster": "a"}]));
    for (backends, code, says) in [
        (json!([good, down]), "backend_failed", "backend inventory (http): "),
        (json!([down, good]), "backend_failed", "backend inventory (http): "),
        (
            json!([good, sh("exit 3"), sh("echo")]),
            "backend_failed",
            "backend 2 (script): sh: exit status: 3; backend 3 (script): sh: ",
        ),
        (
            json!([good, print(&json!([{"name": "a"}]))]),
            "backend_output_invalid",
            "backend 2 (script): item 0: the key `cluster` is missing",
        ),
        (
            json!([print(&json!([{"cluster": "a"}, {"cluster": "b"}, {"cluster": "a"}])), good]),
            "backend_output_invalid",
            "backend 1 (script): items 0 and 2 have the same key, cluster: a",
        ),
        (json!([good, print(&json!([{"cluster": null}]))]), "backend_output_invalid", "the key `cluster` is null"),
        (
            json!([good, {"pipeline": [good, {"select": "items.map(i, {'x': i.x})"}]}]),
            "backend_output_invalid",
            "backend 2 (pipeline): step 2 (select): ",
        ),
    ] {
        let app = serve("outer", backends).await;
        refused(&app.ask("m", json!({})).await, 502, code, says);
    }
}

#[tokio::test]
async fn the_evidence_names_each_empty_backend() {
    let (some, none) = (print(&json!([{"cluster": "a"}])), print(&json!([])));
    for (join, backends, sets, absent) in [
        ("left", json!([some, none]), 1, vec!["backend 2 (script)"]),
        ("left", json!([none, some]), 0, vec!["backend 1 (script)", "the left join of 0 and 1 items by cluster"]),
        (
            "inner",
            json!([some, print(&json!([{"cluster": "b"}]))]),
            0,
            vec!["the inner join of 1 and 1 items by cluster"],
        ),
        ("outer", json!([none, some]), 1, vec!["backend 1 (script)"]),
    ] {
        let app = serve(join, backends).await;
        assert_eq!(app.ask("m", json!({})).await.status, 200);
        let listed = app.operate("/admin/answers", None).await.json()["answers"][0].clone();
        assert_eq!(listed["parameterSets"], sets, "{listed}");
        let evidence = listed["evidence"].as_array().unwrap();
        let reported: Vec<&str> =
            evidence.iter().map(|each| each["item"].as_str().or(each["query"].as_str()).unwrap()).collect();
        assert_eq!(reported, absent, "{join}");
    }
}

#[test]
fn merge_mistakes_are_reported_with_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let source = "\
routes:
  - name: a
    backend: { merge: { mergeKeys: [], backends: [ { fixed: { parameters: [] } } ] } }
  - name: b
    backend:
      merge:
        mergeKeys: [a, a, b., c.d]
        join: right
        backends:
          - select: items
          - { name: '', script: { command: [] } }
          - pipeline: [ { fixed: { parameters: 1 } } ]
        extra: 1
cache: { path: answers.redb }
";
    let config = format!("{}{source}", TestApp::auth());
    let report = build(folder.path(), &config, Arc::new(SystemClock)).err().expect("a report");
    let expected = [
        "4:25: routes[0].backend.merge.mergeKeys: there are no keys",
        "4:40: routes[0].backend.merge.backends: there is nothing to merge",
        "8:24: routes[1].backend.merge.mergeKeys[1]: `a` stands here twice",
        "8:27: routes[1].backend.merge.mergeKeys[2]: a key is a name",
        "9:9: routes[1].backend.merge.join: unknown value `right`",
        "11:13: routes[1].backend.merge.backends[0].select: `select` is a step of a pipeline",
        "12:15: routes[1].backend.merge.backends[1].name: a name is one line of text",
        "12:35: routes[1].backend.merge.backends[1].script.command: the command is empty",
        "13:36: routes[1].backend.merge.backends[2].pipeline[0].fixed.parameters: wrong type",
        "14:9: routes[1].backend.merge.extra: unknown key `extra`",
    ];
    let lines = report.lines();
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(&format!("test.yaml:{expected}")), "{line}\n{expected}");
    }
}
