//! Where a request may go: hosts with a value in them, and redirects.

use super::*;
use crate::support::upstream::Request;

/// A gateway whose parameter `h` is the host. `allowed` lists the permitted hosts.
async fn start(upstream: &Upstream, allowed: &[&str]) -> TestApp {
    let http = json!({
        "url": format!("http://{{{{ params.h }}}}:{}/list?h={{{{ params.h }}}}", upstream.address.port()),
        "allowedHosts": allowed, "timeout": "2s",
    });
    let routes = json!([{"name": "h", "backend": {"http": http}, "cache": {"ttl": "0s"}}]);
    TestApp::start(&format!("{}routes: {routes}\n", TestApp::auth())).await
}

#[tokio::test]
async fn a_host_parameter_leads_to_allowed_hosts_only() {
    let upstream = Upstream::always(json_response(SETS)).await;
    let port = upstream.address.port();
    let app = start(&upstream, &[&format!("127.0.0.1:{port}"), &format!("*.example.com:{port}")]).await;
    assert_eq!(app.ask_afresh("h", json!({"h": "127.0.0.1"})).await.sets(), SETS);
    for host in [
        "localhost",
        "127.0.0.2",
        "[::1]",
        "169.254.169.254",
        "evil.example",
        "127.0.0.1:1@evil.example",
        "x@127.0.0.1",
        "127.0.0.1/../x",
        "127.0.0.1\r\nHost: evil.example",
        "a.example.com/",
        "%31%32%37.0.0.2",
        "",
    ] {
        let reply = app.ask_afresh("h", json!({"h": host})).await;
        let message = refused(&reply, 422, "invalid_input", "url: ");
        assert!(!message.contains('\r') && !message.contains('\n'), "{message:?}");
    }
    assert_eq!(upstream.requests().len(), 1);
    // An unknown name below an allowed zone is looked up, and does not resolve.
    refused(
        &app.ask_afresh("h", json!({"h": "nowhere.invalid.example.com"})).await,
        502,
        "backend_failed",
        "cannot connect",
    );
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_if_configured() {
    let other = Upstream::always(json_response(SETS)).await;
    let elsewhere = format!("http://{}/list", other.address);
    let source = |location: String| async move {
        Upstream::start(move |request: &Request| match &*request.target {
            "/list" => status(302, &format!("Location: {location}"), "[]"),
            "/a" => status(307, "Location: b?x=1", ""),
            "/b?x=1" => {
                assert_eq!(request.header("x-token"), Some("hunter2"));
                json(SETS)
            }
            "/round" => status(301, "Location: /round", ""),
            target => panic!("{target}"),
        })
        .await
    };
    let more = |redirects: &str| json!({"redirects": redirects, "headers": {"X-Token": "hunter2"}});
    let ask = async |location: &str, redirects: &str| {
        let upstream = source(location.to_owned()).await;
        serve(&upstream, "/list", more(redirects)).await.ask_afresh("h", json!({})).await
    };
    assert_eq!(ask("/a", "sameOrigin").await.sets(), SETS);
    for (location, redirects, says) in [
        ("/a?token=hunter2", "refuse", "it redirects to `/a`: write the URL that answers, or `redirects: sameOrigin`"),
        (&*elsewhere, "sameOrigin", "it redirects elsewhere (http://127.0.0.1:"),
        ("https://127.0.0.1/list", "sameOrigin", "it redirects elsewhere (https://127.0.0.1)"),
        ("//evil.example/list", "sameOrigin", "it redirects elsewhere (http://evil.example)"),
        ("/round", "sameOrigin", "it redirects more than 5 times"),
        ("http://[", "sameOrigin", "without a `Location` that can be read"),
    ] {
        let message = refused(&ask(location, redirects).await, 502, "backend_output_invalid", says);
        assert!(!message.contains("hunter2"), "{message}");
    }
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_page_may_redirect_on_the_same_host() {
    let upstream = Upstream::start(|request: &Request| match &*request.target {
        "/list" => status(302, "Location: /v2/list", ""),
        "/v2/list" => send(response(200, "Content-Type: application/json\r\nLink: <list?page=2>; rel=\"next\"", SETS)),
        "/v2/list?page=2" => status(302, "Location: /v3/list?page=2", ""),
        "/v3/list?page=2" => json(r#"[{"a":"2"}]"#),
        target => panic!("{target}"),
    })
    .await;
    let app = serve(&upstream, "/list", json!({"redirects": "sameOrigin", "paging": {"link": true}})).await;
    assert_eq!(app.ask_afresh("h", json!({})).await.sets(), r#"[{"a":"1"},{"a":"2"}]"#);
}
