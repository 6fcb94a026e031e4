//! `forEach`: one request per item of a list. The answer has all of them, or is unknown.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::support::upstream::Request;

const CLUSTERS: &str = "params.clusters";

/// A backend with one request per cluster.
fn each(expression: &str) -> Value {
    json!({"forEach": expression, "parameters": "body.map(t, {'name': t.name, 'cluster': each})"})
}

/// An upstream with a tenant in each cluster except `empty`. It fails for clusters with the name of a fault.
async fn clusters() -> Upstream {
    Upstream::start(|request: &Request| match request.target.strip_prefix("/clusters/").unwrap() {
        "empty" => json("[]"),
        "missing" => status(404, "", "no such cluster"),
        "half" => json(r#"[{"name":"x"}"#),
        "down" => status(500, "", "down"),
        cluster => json(&format!(r#"[{{"name":"tenant of {cluster}"}}]"#)),
    })
    .await
}

#[tokio::test]
async fn for_each_joins_all_answers_in_order() {
    let upstream = clusters().await;
    let app = serve(&upstream, "/clusters/{{ each }}", each(CLUSTERS)).await;
    let ask = async |clusters: Value| app.ask_afresh("h", json!({"clusters": clusters})).await;
    assert_eq!(
        ask(json!(["b", "empty", "a"])).await.sets(),
        r#"[{"cluster":"b","name":"tenant of b"},{"cluster":"a","name":"tenant of a"}]"#
    );
    assert_eq!(ask(json!(["empty", "empty"])).await.sets(), "[]");
    assert_eq!(ask(json!(["x/y"])).await.status, 200, "it stays one segment");
    assert_eq!(upstream.requests().last().unwrap().target, "/clusters/x%2Fy");
    // As `''.split(',')` gives it. The URL would be that of all clusters.
    refused(&ask(json!(["a", ""])).await, 422, "invalid_input", "forEach[1]: url: a value left a path segment empty");
    refused(
        &ask(json!(["a", "../x"])).await,
        422,
        "invalid_input",
        "forEach[1]: url: a value made the path segment `..%2Fx`",
    );
    for (trouble, code, says) in [
        ("missing", "backend_output_invalid", "404 Not Found: no such cluster; check the URL"),
        ("half", "backend_output_invalid", "not one JSON document"),
        ("down", "backend_failed", "500"),
    ] {
        let message = refused(&ask(json!(["a", trouble, "b"])).await, 502, code, says);
        assert!(message.contains("forEach[1]: GET http://"), "{message}");
    }
}

#[tokio::test]
async fn for_each_builds_its_list_from_the_parameters_argo_cd_can_send() {
    let upstream = clusters().await;
    let app = serve(&upstream, "/clusters/{{ each }}", each("params.clusters.split(',').filter(c, c != '')")).await;
    let ask = async |clusters: &str| app.ask_afresh("h", json!({"clusters": clusters})).await;
    assert_eq!(ask("a,b").await.json()["output"]["parameters"].as_array().unwrap().len(), 2);
    assert_eq!(ask("").await.sets(), "[]");
    assert_eq!(upstream.requests().len(), 2, "nothing was asked for an empty list");

    let more = json!({"forEach": "params.of", "parameters": "body.map(t, {'name': t.name, 'zone': each.zone})"});
    let app = serve(&upstream, "/clusters/{{ each.name }}", more).await;
    let reply = app.ask_afresh("h", json!({"of": [{"name": "a", "zone": "z1"}]})).await;
    assert_eq!(reply.sets(), r#"[{"name":"tenant of a","zone":"z1"}]"#);
}

#[tokio::test]
async fn an_invalid_for_each_list_is_a_caller_error() {
    let upstream = clusters().await;
    let app = serve(&upstream, "/clusters/{{ each }}", each(CLUSTERS)).await;
    for (parameters, says) in [
        (json!({}), "forEach: `params.clusters`"),
        (json!({"clusters": "a"}), "forEach: it gives a string, not a list"),
        (json!({"clusters": {"a": 1}}), "forEach: it gives an object with `a`, not a list"),
        (json!({"clusters": vec!["a"; 1001]}), "forEach: it gives 1001 items, more than 1000"),
        (json!({"clusters": [["a"]]}), "url: "),
    ] {
        refused(&app.ask_afresh("h", parameters).await, 422, "invalid_input", says);
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn for_each_limits_concurrent_requests() {
    let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let largest = Arc::clone(&peak);
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (now, peak) = (Arc::clone(&now), Arc::clone(&largest));
            tokio::spawn(async move {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                _ = stream.read(&mut [0; 1024]).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                _ = stream.write_all(&json_response(SETS)).await;
            });
        }
    });
    let http =
        json!({"url": format!("http://{address}/{{{{ each }}}}"), "forEach": CLUSTERS, "parameters": "[{'n': each}]"});
    let routes = json!([{"name": "h", "backend": {"http": http}, "cache": {"ttl": "0s"}}]);
    let app = TestApp::start(&format!("{}routes: {routes}\n", TestApp::auth())).await;
    // 100 callers with own keys, and one caller with many requests.
    let many: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    let callers = join_all((0..100).map(|n| app.ask("h", json!({"clusters": [n.to_string()]}))));
    let (replies, long) = tokio::join!(callers, app.ask("h", json!({"clusters": many})));
    assert!(
        replies.iter().all(|reply| reply.status == 200),
        "{:?}",
        replies.iter().find(|reply| reply.status != 200).map(crate::support::Reply::json)
    );
    assert_eq!(long.status, 200, "{}", long.json());
    assert_eq!(long.json()["output"]["parameters"].as_array().unwrap().len(), 60);
    let peak = peak.load(Ordering::SeqCst);
    assert!((2..=8).contains(&peak), "{peak}");
}

#[test]
fn the_variable_each_needs_for_each() {
    let folder = tempfile::tempdir().unwrap();
    let routes = json!([{"name": "h", "backend": {"http": {"url": "https://h.example/{{ each }}"}}}]);
    let config = format!("{}routes: {routes}\n", TestApp::auth());
    let Err(report) = crate::support::app::build(folder.path(), &config, crate::support::TestClock::standing()) else {
        panic!("it is taken");
    };
    assert!(report.lines().join("\n").contains("unknown name `each`"));
}
