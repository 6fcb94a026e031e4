//! The example configurations that request an API, against recorded answers as the API's documentation shows them
//! (`recorded/`).

use std::path::Path;

use super::*;
use crate::{
    http::plugin::{Running, TOKEN},
    support::{authority::Ca, nginx::Nginx},
};

/// The recorded answers of an API, in the order of its pages.
fn recorded(name: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/http/recorded/{name}.json"));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// An upstream that answers with `exchanges`, in which it is `origin`, and 404 to everything else.
async fn play(exchanges: Vec<Value>, origin: &'static str) -> Upstream {
    Upstream::start(move |request| {
        let Some(found) = exchanges.iter().find(|exchange| exchange["target"] == request.target) else {
            return status(404, "Content-Type: application/json", r#"{"message":"Not Found"}"#);
        };
        let here = format!("http://{}", request.header("host").unwrap());
        let text = |value: &Value| value.as_str().unwrap().replace(origin, &here);
        let headers = found["headers"].as_object().unwrap().iter();
        let headers: Vec<String> = headers.map(|(name, value)| format!("{name}: {}", text(value))).collect();
        send(response(200, &headers.join("\r\n"), found["body"].to_string()))
    })
    .await
}

/// A gateway with the example `name`. Each `from` is replaced by its `to`, and placeholders by files.
async fn example(name: &str, changes: &[(&str, &str)], files: &[(&str, &str)]) -> TestApp {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples");
    let mut config = std::fs::read_to_string(examples.join(name).with_extension("yaml")).unwrap();
    let token = format!("sha256: {}", auth::hash_token(crate::support::TOKEN));
    for (from, to) in changes.iter().copied().chain([("env: APPSET_GATEWAY_TOKEN", &*token)]) {
        assert!(config.contains(from), "{name} has no `{from}`");
        config = config.replace(from, to);
    }
    let folder = tempfile::tempdir().unwrap();
    for (file, content) in files {
        let file = folder.path().join("secrets").join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
    TestApp::start_in(folder, &config).await
}

/// Calls the route as the ApplicationSet `application_set`.
async fn ask_as(app: &TestApp, application_set: &str, parameters: Value) -> Reply {
    app.clock.advance(Duration::from_hours(48));
    let body = json!({"applicationSetName": application_set, "input": {"parameters": parameters}});
    app.call("/api/v1/getparams.execute", &body).await
}

/// The targets and `Authorization` headers that `upstream` got.
fn asked(upstream: &Upstream) -> Vec<(String, String)> {
    let who =
        |request: &crate::support::upstream::Request| request.header("authorization").unwrap_or_default().to_owned();
    upstream.requests().iter().map(|request| (request.target.clone(), who(request))).collect()
}

fn targets(exchanges: &[Value], authorization: &str) -> Vec<(String, String)> {
    let target = |exchange: &Value| exchange["target"].as_str().unwrap().to_owned();
    exchanges.iter().map(|exchange| (target(exchange), authorization.to_owned())).collect()
}

#[tokio::test]
async fn tenants_of_a_rest_api() {
    let exchanges = recorded("tenants");
    let ask = async |exchanges: &[Value]| {
        let upstream = play(exchanges.to_vec(), "https://inventory.example.com").await;
        let here = format!("http://{}", upstream.address);
        let changes = [("https://inventory.example.com", &*here), ("https://login.example.com", &here)];
        let app = example("tenants", &changes, &[("oauth2-client-secret", "hunter2")]).await;
        (ask_as(&app, "tenants", json!({"env": "prod"})).await, upstream)
    };
    let (reply, upstream) = ask(&exchanges).await;
    assert_eq!(
        reply.json(),
        json!({"output": {"parameters": [
            {"name": "team-a", "server": "https://eu-1.example.com", "plan": "gold"},
            {"name": "team-b", "server": "https://us-1.example.com", "plan": "basic"},
        ]}})
    );
    let requests = asked(&upstream);
    assert_eq!(requests[0], ("/oauth2/token".to_owned(), "Basic YXBwc2V0LWdhdGV3YXk6aHVudGVyMg==".to_owned()));
    assert_eq!(requests[1..], targets(&exchanges[1..], "Bearer 2YotnFZFEjr1zCsicMWpAA"));
    refused(&ask(&exchanges[..3]).await.0, 502, "backend_output_invalid", "page 3: ");
}

#[tokio::test]
async fn releases_of_a_repository_on_github() {
    let exchanges = recorded("github-releases");
    let start = async |exchanges: &[Value]| {
        let upstream = play(exchanges.to_vec(), "https://api.github.com").await;
        let here = format!("http://{}", upstream.address);
        let changes = [("https://api.github.com", &*here)];
        (example("github-releases", &changes, &[("github-token", "hunter2")]).await, upstream)
    };
    let (app, upstream) = start(&exchanges).await;
    let page = "https://github.com/org/repo/releases/tag";
    for _ in 0..2 {
        assert_eq!(
            ask_as(&app, "github-releases", json!({})).await.json(),
            json!({"output": {"parameters": [
                {"name": "v2-0-0", "tag": "v2.0.0", "page": format!("{page}/v2.0.0")},
                {"name": "v1-10-0", "tag": "V1.10.0", "page": format!("{page}/V1.10.0")},
                {"name": "v1-0-0", "tag": "v1.0.0", "page": format!("{page}/v1.0.0")},
            ]}})
        );
    }
    let once = targets(&exchanges[..3], "Bearer hunter2");
    assert_eq!(asked(&upstream), [once.clone(), once].concat());
    let conditions = upstream.requests().iter().filter(|request| request.header("if-none-match").is_some()).count();
    assert_eq!(conditions, 3);
    assert_eq!(
        ask_as(&app, "newest-release", json!({})).await.json(),
        json!({"output": {"parameters": [{"tag": "v2.0.0", "page": format!("{page}/v2.0.0")}]}})
    );
    // Half of the list is no answer. A repository without a release has no latest release.
    let (app, _upstream) = start(&exchanges[..2]).await;
    let invalid = "backend_output_invalid";
    refused(&ask_as(&app, "github-releases", json!({})).await, 502, invalid, "page 3: ");
    refused(&ask_as(&app, "newest-release", json!({})).await, 502, invalid, "404 Not Found");
}

/// Behind a real TLS server with a private CA, as an API server has.
#[tokio::test]
async fn namespaces_of_a_cluster() {
    let exchanges = recorded("namespaces");
    let ours = Ca::new("kubernetes");
    let ask = async |exchanges: &[Value]| {
        let upstream = play(exchanges.to_vec(), "https://kubernetes.default.svc").await;
        let pass = format!("location / {{ proxy_pass http://{}; }}", upstream.address);
        let nginx = Nginx::start_tls(tempfile::tempdir().unwrap(), &ours, &pass).await;
        let token = "token: { file: secrets/serviceaccount/token }";
        let here = format!("api: https://{}\n        {token}", nginx.address);
        let files = [("serviceaccount/ca.crt", &*ours.pem), ("serviceaccount/token", "hunter2\n")];
        let app = example("namespaces", &[(token, &*here)], &files).await;
        (ask_as(&app, "namespaces", json!({})).await, upstream)
    };
    let (reply, upstream) = ask(&exchanges).await;
    assert_eq!(
        reply.json(),
        json!({"output": {"parameters": [
            {"name": "blog", "owner": "blog"}, {"name": "shop", "owner": "shop"}, {"name": "wiki", "owner": "wiki"},
        ]}})
    );
    assert_eq!(asked(&upstream), targets(&exchanges, "Bearer hunter2"));
    refused(&ask(&exchanges[..3]).await.0, 502, "backend_output_invalid", "404");
}

#[tokio::test]
async fn a_plugin_that_exists() {
    let hello = Running::hello("none");
    let here = format!("http://127.0.0.1:{}", hello.port);
    let changes = [("http://hello-plugin.argocd.svc", &*here)];
    let app = example("existing-plugin", &changes, &[("hello-plugin-token", TOKEN)]).await;
    let seen = r#"{"applicationSetName": "test", "input": {"parameters": {"branch": "main"}}}"#;
    assert_eq!(
        app.ask("hello", json!({"branch": "main"})).await.json(),
        json!({"output": {"parameters": [
            {"key1": "val1", "seen": seen, "type": "application/json"}, {"key1": "val2"},
        ]}})
    );
}
