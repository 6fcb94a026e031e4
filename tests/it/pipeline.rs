//! Pipelines of real programs and upstreams. Each step gets the items of the step before. An error names its step. All steps
//! share one deadline.

use std::{sync::Arc, time::Duration};

use domain::clock::SystemClock;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    TestApp,
    app::build,
    upstream::{Upstream, json_response, refused, response},
};

/// An uncached route `p` with `steps`.
fn route(steps: &Value) -> Value {
    json!({"name": "p", "backend": {"pipeline": steps}, "cache": {"ttl": "0s"}})
}

async fn serve(steps: Value) -> TestApp {
    TestApp::with_routes(&format!("  {}", json!([route(&steps)]))).await
}

/// A shell step.
fn sh(line: &str) -> Value {
    json!({"script": {"command": ["sh", "-c", line], "allow": {"write": ["."]}}})
}

/// A program that adds the length of each item's name, and the caller.
const MEASURE: &str = "\
import json, sys
asked = json.load(sys.stdin)
env = asked['input']['parameters']['env']
print(json.dumps([dict(i, size=len(i['name']), env=env) for i in asked['items']]))
";

#[tokio::test]
async fn each_step_gets_the_items_of_the_step_before() {
    let upstream = Upstream::always(json_response(r#"{"rows":[{"id":"aa"},{"id":"b"},{"id":"ccc"}]}"#)).await;
    let app = serve(json!([
        {"http": {"url": format!("http://{}/rows", upstream.address), "parameters": "body.rows.map(r, {'name': r.id})"}},
        {"name": "sizes", "script": {"command": ["python3", "-c", MEASURE]}},
        {"select": "items.filter(i, i.size >= int(params.least)).map(i, {'name': i.name, 'size': i.size, 'env': i.env})"},
    ]))
    .await;
    let reply = app.ask("p", json!({"env": "eu", "least": "2"})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let expected = r#"[{"env":"eu","name":"aa","size":"2"},{"env":"eu","name":"ccc","size":"3"}]"#;
    assert_eq!(reply.sets(), expected);
    let reply = app.ask("p", json!({"env": "eu", "least": "9"})).await;
    assert_eq!((reply.status, &*reply.sets()), (200, "[]"));
}

#[tokio::test]
async fn an_http_step_sends_requests_about_the_items() {
    let upstream = Upstream::start(|request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        request.answer(200, "Content-Type: application/json", format!("{{\"sent\":{body}}}"))
    })
    .await;
    let app = serve(json!([
        {"fixed": {"parameters": [{"name": "a/b", "n": 1.5, "deep": {"list": [null, true]}}, {"name": "c"}]}},
        {"http": {
            "method": "POST",
            "url": format!("http://{}/{{{{ items | length }}}}?names={{{{ items | map(attribute='name') | join(',') }}}}",
                upstream.address),
            "body": {"all": "{{ items }}", "first": "{{ items[0].name }}"},
            "parameters": "body.sent.all.map(i, {'name': i.name, 'of': size(items), 'first': body.sent.first})",
        }},
    ]))
    .await;
    let reply = app.ask("p", json!({})).await;
    assert_eq!(reply.sets(), r#"[{"first":"a/b","name":"a/b","of":"2"},{"first":"a/b","name":"c","of":"2"}]"#);
    let [request] = &upstream.requests()[..] else { panic!() };
    assert_eq!(request.target, "/2?names=a%2Fb%2Cc");
    let sent: Value = serde_json::from_slice(&request.body).unwrap();
    let items = json!([{"name": "a/b", "n": 1.5, "deep": {"list": [null, true]}}, {"name": "c"}]);
    assert_eq!(sent, json!({"all": items, "first": "a/b"}));
}

#[tokio::test]
async fn an_error_names_its_step_and_is_never_an_empty_list() {
    let down = Upstream::always(response(403, "", "")).await;
    let (one, all) = (sh("echo '[{\"a\":\"1\"}]'"), json!({"select": "items"}));
    for (steps, status, code, says) in [
        (
            json!([{"http": {"url": format!("http://{}/", down.address)}}, all]),
            502,
            "backend_failed",
            "step 1 (http): ",
        ),
        (json!([sh("exit 3"), one]), 502, "backend_failed", "step 1 (script): sh: exit status: 3"),
        (
            json!([one, sh("echo why >&2; exit 3"), all]),
            502,
            "backend_failed",
            "step 2 (script): sh: exit status: 3; stderr: why",
        ),
        (json!([one, sh(":"), all]), 502, "backend_output_invalid", "step 2 (script): sh: its output: "),
        (
            json!([one, {"name": "owners", "script": {"command": ["false"]}}]),
            502,
            "backend_failed",
            "step owners (script): false: ",
        ),
        (
            json!([one, {"select": "items.map(i, {'b': i.b})"}]),
            502,
            "backend_output_invalid",
            "step 2 (select): `items.map",
        ),
        (
            json!([one, {"select": "items[0]"}]),
            502,
            "backend_output_invalid",
            "step 2 (select): expected a list of objects, found an object",
        ),
        (
            json!([one, {"select": "items.map(i, i.a)"}, all]),
            502,
            "backend_output_invalid",
            "step 2 (select): item 0 is a string",
        ),
        (
            json!([one, {"http": {"url": "http://127.0.0.1:9/{{ items[0].b }}"}}]),
            422,
            "invalid_input",
            "step 2 (http): url: ",
        ),
        (
            json!([one, {"pipeline": [all, sh("exit 4")]}]),
            502,
            "backend_failed",
            "step 2 (pipeline): step 2 (script): sh: exit status: 4",
        ),
    ] {
        let app = serve(steps.clone()).await;
        refused(&app.ask("p", json!({})).await, status, code, says);
    }
}

#[tokio::test]
async fn an_explicit_empty_list_continues_and_gives_evidence() {
    let app = serve(json!([
        {"name": "teams", "script": {"command": ["sh", "-c", "echo '[]'"]}},
        sh("cat > given; echo '[]'"),
        {"select": "items"},
    ]))
    .await;
    assert_eq!(app.ask("p", json!({})).await.sets(), "[]");
    let given: Value = serde_json::from_slice(&std::fs::read(app.folder.path().join("given")).unwrap()).unwrap();
    assert_eq!(given["items"], json!([]));
    let listed = app.operate("/admin/answers", None).await.json()["answers"][0].clone();
    let reported: Vec<_> =
        listed["evidence"].as_array().unwrap().iter().map(|each| (&each["item"], &each["verdict"])).collect();
    let absent = json!("absent");
    let items = ["step teams (script)", "step 2 (script)", "step 3 (select)"].map(Value::from);
    assert_eq!(reported, items.iter().map(|item| (item, &absent)).collect::<Vec<_>>());
    // A later step may still find items.
    let app = serve(json!([sh("echo '[]'"), sh("echo '[{\"a\":\"1\"}]'")])).await;
    assert_eq!(app.ask("p", json!({})).await.sets(), r#"[{"a":"1"}]"#);
}

/// The evidence of an empty step holds no secret of the step before.
#[tokio::test]
async fn evidence_holds_no_secret_of_another_step() {
    let upstream = Upstream::always(json_response("[]")).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "hunter2").unwrap();
    let finding = json!({"script": {"command": ["sh", "-c", "echo '[{\"a\":\"'$SECRET'\"}]'"],
        "env": {"SECRET": {"file": "secret"}}}});
    let asking = json!({"http": {"url": format!("http://{}/{{{{ items[0].a }}}}", upstream.address)}});
    let routes = json!([route(&json!([finding, asking]))]);
    let app = TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await;
    assert_eq!(app.ask("p", json!({})).await.sets(), "[]");
    assert_eq!(upstream.requests()[0].target, "/hunter2");
    let reported = app.operate("/admin/answers", None).await.text();
    assert!(reported.contains("/[redacted]") && !reported.contains("hunter2"), "{reported}");
}

#[tokio::test]
async fn all_steps_share_one_deadline() {
    let sleeping = |first: &str, second: &str| {
        let slow = |time: &str| json!({"script": {"command": ["sh", "-c", format!("sleep {time}; echo '[]'")], "timeout": "20s"}});
        let mut route = route(&json!([slow(first), slow(second), {"select": "items"}]));
        route["deadline"] = json!("4s");
        async move { TestApp::with_routes(&format!("  {}", json!([route]))).await }
    };
    let ends = async |first: &str, second: &str, says: &str| {
        let app = sleeping(first, second).await;
        let started = Instant::now();
        let message = refused(&app.ask("p", json!({})).await, 504, "backend_timeout", says);
        assert!(message.contains(", stopped by the deadline of the whole call"), "{message}");
        // With a deadline for each step, the second call would take six seconds or more.
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    };
    let second = ends("2", "60", "step 2 (script): sh: not done in time");
    futures_util::future::join(ends("60", "0", "step 1 (script): sh: not done in time"), second).await;
    assert_eq!(sleeping("0.1", "0.1").await.ask("p", json!({})).await.status, 200);
}

#[tokio::test]
async fn the_shortest_lifetime_of_a_step_is_that_of_the_answer() {
    let lasting = |ttl: &str| sh(&format!(r#"echo '{{"output":{{"parameters":[{{}}]}},"cache":{{"ttl":"{ttl}"}}}}'"#));
    for (steps, longest) in [
        (json!([lasting("20s"), lasting("40s"), {"select": "items"}]), 20),
        (json!([lasting("40s"), lasting("20s")]), 20),
        // A step without a lifetime lasts for the route's ttl.
        (json!([sh("echo '[]'"), lasting("2h")]), 66),
        (json!([lasting("2h"), {"select": "items"}]), 7200),
    ] {
        let mut route = route(&steps);
        route["cache"] = json!({"ttl": "60s"});
        let app = TestApp::with_routes(&format!("  {}", json!([route]))).await;
        assert_eq!(app.ask("p", json!({})).await.status, 200);
        let left = app.operate("/admin/answers", None).await.json()["answers"][0]["freshForSeconds"].as_u64().unwrap();
        assert!((longest * 8 / 10..=longest).contains(&left), "{steps}: {left}");
    }
}

#[test]
fn pipeline_mistakes_are_reported_with_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let source = "\
routes:
  - name: p
    backend:
      pipeline:
        - select: items
        - fixd: {}
        - script: { command: [no-such-program] }
        - select: 'items.filter('
        - {}
        - { select: items, http: { url: 'http://h/' } }
        - { name: a, select: items }
        - { name: a, select: items, more: 1 }
        - http: { url: 'http://h/{{ item.name }}' }
        - fixed: { parameters: [] }
        - merge: { mergeKeys: [a], backends: [ { fixed: { parameters: [] } }, { select: items } ] }
  - name: empty
    backend: { pipeline: [] }
  - name: first
    backend: { pipeline: [ { http: { url: 'http://h/{{ items }}' } } ] }
";
    let config = format!("{}{source}", TestApp::auth());
    let report = build(folder.path(), &config, Arc::new(SystemClock)).err().expect("a report");
    let expected = [
        "6:11: routes[0].backend.pipeline[0].select: there is nothing to select from",
        "7:11: routes[0].backend.pipeline[1].fixd: unknown key `fixd` (did you mean `fixed`?)",
        "8:21: routes[0].backend.pipeline[2].script.command: there is no program `no-such-program` in PATH",
        "9:33: routes[0].backend.pipeline[3].select: column 14: ",
        "10:11: routes[0].backend.pipeline[4]: it names no backend",
        "11:11: routes[0].backend.pipeline[5]: it names several backends",
        "13:13: routes[0].backend.pipeline[7].name: another step is called `a`",
        "13:37: routes[0].backend.pipeline[7].more: unknown key `more`",
        "14:19: routes[0].backend.pipeline[8].http.url: unknown name `item`; did you mean `items`?",
        "15:11: routes[0].backend.pipeline[9].fixed: `fixed` does not look at the items of the step before it",
        "16:81: routes[0].backend.pipeline[10].merge.backends[1].select: `select` is a step of a pipeline",
        "18:16: routes[1].backend.pipeline: there are no steps",
        "20:38: routes[2].backend.pipeline[0].http.url: unknown name `items`; known here: applicationSet, now, params",
    ];
    let lines = report.lines();
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(&format!("test.yaml:{expected}")), "{line}\n{expected}");
    }
}

#[tokio::test]
async fn a_slow_expression_delays_no_other_caller() {
    let items: Vec<Value> = (0..700).map(|n| json!({"n": n.to_string()})).collect();
    let script = |more: Value| {
        let mut script = json!({"command": ["cat", "items.json"]});
        script.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        script
    };
    let slow = "items.filter(i, items.exists_one(j, j.n == i.n))";
    let routes = json!([
        {"name": "mapped", "backend": {"script": script(json!({"parameters": slow}))}},
        {"name": "selected", "backend": {"pipeline": [{"script": script(json!({}))}, {"select": slow}]}},
        {"name": "next", "backend": {"fixed": {"parameters": []}}},
    ]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("items.json"), json!(items).to_string()).unwrap();
    let app = std::sync::Arc::new(TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await);
    for route in ["mapped", "selected"] {
        let asked = std::sync::Arc::clone(&app);
        let slow = tokio::spawn(async move { asked.ask(route, json!({})).await });
        // This test has one thread, so a step that blocks it blocks every caller.
        let mut others = 0;
        while !slow.is_finished() {
            assert_eq!(app.ask_afresh("next", json!({})).await.sets(), "[]");
            others += 1;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let reply = slow.await.unwrap();
        assert_eq!(reply.json()["output"]["parameters"].as_array().unwrap().len(), 700, "{}", reply.text());
        assert!(others > 5, "{route}: {others}");
    }
}
