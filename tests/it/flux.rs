//! A route's answer in the form of flux-operator's `ExternalService`, read by a client that does what Flux documents: it refuses what is not
//! a 2xx, a body over 900 KiB, no `inputs`, an `id` that is missing, not a text or there twice, and drops all inputs over its limit.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    Reply, TOKEN, TestApp,
    contract::{self, Listener},
    upstream::{Step, Upstream, json_response, response},
    wire,
};

const ROUTES: &str = r#"
  - name: previews
    backend: { fixed: { parameters: [ { number: 7, tag: "a" }, { number: 12, tag: "b" } ] } }
    guard: { identity: [number] }
  - name: branches
    input: [ { name: team, required: true }, { name: env, default: dev } ]
    backend: { fixed: { parameters: [ { branch: feature/login } ] } }
    output: { branch: "{{ branch }}", team: "{{ params.team }}", env: "{{ params.env }}" }
    guard: { identity: [branch] }
  - name: own
    backend: { fixed: { parameters: [ { id: x }, { id: y } ] } }
  - name: nameless
    backend: { fixed: { parameters: [ { name: x } ] } }
  - name: empty
    backend: { fixed: { parameters: [] } }
"#;

async fn get(app: &TestApp, path: &str) -> Reply {
    get_as(app, path, TOKEN).await
}

async fn get_as(app: &TestApp, path: &str, token: &str) -> Reply {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: gateway\r\nAccept: application/json\r\nUser-Agent: flux-operator/v0.9.0\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    // Argo CD would read it as no answer at all, so it is not judged as Argo CD's calls are.
    let reply = wire::exchange_admin(app.address, request.as_bytes()).await;
    contract::conforms(Listener::Main, request.as_bytes(), &reply);
    reply
}

/// The inputs that Flux makes of `reply` with `limit`, or its error.
fn flux(reply: &Reply, limit: usize) -> Result<Vec<Value>, String> {
    if !(200..300).contains(&reply.status) {
        return Err(format!("returned HTTP {}", reply.status));
    }
    if reply.body.len() > 900 * 1024 {
        return Err("response body exceeds the maximum allowed size".to_owned());
    }
    let body: Value = serde_json::from_slice(&reply.body).map_err(|error| error.to_string())?;
    let inputs = body["inputs"].as_array().ok_or("response does not contain an 'inputs' field")?;
    let mut seen = BTreeSet::new();
    for input in inputs {
        let id = input["id"].as_str().ok_or("missing or non-string id")?;
        if !seen.insert(id) {
            return Err(format!("duplicate id {id}"));
        }
    }
    Ok(inputs.iter().take(limit).cloned().collect())
}

#[tokio::test]
async fn an_answer_is_served_in_the_form_of_flux() {
    let app = TestApp::with_routes(ROUTES).await;
    let reply = get(&app, "/flux/previews").await;
    let expected = [json!({"id": "7", "number": "7", "tag": "a"}), json!({"id": "12", "number": "12", "tag": "b"})];
    assert_eq!(flux(&reply, 100).unwrap(), expected);
    assert_eq!(reply.header("cache-status"), Some("appset-gateway; fwd=miss; stored"));
    // It is the answer that Argo CD gets too.
    assert!(app.ask("previews", json!({})).await.header("cache-status").is_some());
    let hit = get(&app, "/flux/previews").await;
    assert!(hit.header("cache-status").unwrap().starts_with("appset-gateway; hit"), "{:?}", hit.header("cache-status"));
    assert_eq!(hit.body, reply.body);
    assert_eq!(flux(&get(&app, "/flux/own").await, 100).unwrap(), [json!({"id": "x"}), json!({"id": "y"})]);
    assert_eq!(get(&app, "/flux/empty").await.text(), r#"{"inputs":[]}"#);
}

#[tokio::test]
async fn the_query_has_the_input_parameters() {
    let app = TestApp::with_routes(ROUTES).await;
    let inputs = flux(&get(&app, "/flux/branches?team=a%20b&env=prod&flux.limit=5").await, 5).unwrap();
    // A limit of any length is a number.
    let long = get(&app, "/flux/branches?team=a%20b&env=prod&flux.limit=94355448657015209984").await;
    assert_eq!(flux(&long, 100).unwrap(), inputs);
    assert_eq!(inputs[0]["team"], "a b");
    assert_eq!(inputs[0]["env"], "prod");
    assert!(inputs[0]["id"].as_str().unwrap().starts_with("feature-login-"), "{inputs:?}");
    for (path, status, says) in [
        ("/flux/branches", 422, "team"),
        ("/flux/branches?team=a&team=b", 400, "the parameter `team` twice"),
        ("/flux/branches?team=a&flux.limit=all", 400, "`flux.limit=all` is not a number of 1 or more"),
        ("/flux/branches?team=a&flux.limit=0", 400, "`flux.limit=0` is not a number of 1 or more"),
        ("/flux/branches?team=a&flux.limit=-1", 400, "`flux.limit=-1` is not a number of 1 or more"),
        ("/flux/branchs", 404, "there is no route `branchs`"),
    ] {
        let reply = get(&app, path).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        assert!(reply.message().contains(says), "{path}: {}", reply.text());
    }
}

/// Flux drops what is over its limit, and makes everything anew if ids change: both would delete what runs.
#[tokio::test]
async fn what_flux_would_delete_by_is_an_error() {
    let app = TestApp::with_routes(ROUTES).await;
    for (path, says) in [
        ("/flux/previews?flux.limit=1", "the answer has 2 inputs, and Flux drops all after the first 1"),
        ("/flux/nameless", "Flux needs an `id` for each input"),
    ] {
        let reply = get(&app, path).await;
        assert_eq!((reply.status, reply.code().as_str()), (502, "backend_output_invalid"), "{path}: {}", reply.text());
        assert!(reply.message().contains(says), "{path}: {}", reply.text());
        assert!(flux(&reply, 100).is_err());
    }
}

#[tokio::test]
async fn a_caller_is_checked_and_a_failure_is_an_error() {
    let failing = Upstream::always(response(500, "", "no")).await;
    let empty = Upstream::start(|_| vec![Step::Send(json_response("[]"))]).await;
    let route = |name: &str, upstream: &Upstream| {
        format!("  - {{ name: {name}, backend: {{ http: {{ url: \"http://{}\" }} }} }}\n", upstream.address)
    };
    let routes = format!("{ROUTES}{}{}", route("failing", &failing), route("gone", &empty));
    let app = TestApp::with_routes(&routes).await;
    assert_eq!(get_as(&app, "/flux/previews", "wrong").await.status, 403);
    assert_eq!(get(&app, "/flux/failing").await.status, 502);
    assert_eq!(flux(&get(&app, "/flux/gone").await, 100), Ok(Vec::new()));
    let post = format!(
        "POST /flux/previews HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    let reply = app.send(post.as_bytes()).await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
    // The wrong method has no effect on the log's and the metrics' label.
    assert!(app.metric("appset_gateway_requests_total{route=\"previews\",outcome=\"ok\"}").await == 0);
}

/// The manifests of the page are for a route of an example, and both have the same limit.
#[test]
fn the_example_asks_a_route_that_exists() {
    let manifests = include_str!("../../deploy/flux/previews.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
    let provider = documents.iter().find(|document| document["kind"] == "ResourceSetInputProvider").unwrap();
    let url = provider["spec"]["url"].as_str().unwrap();
    let limit = provider["spec"]["filter"]["limit"].as_u64().unwrap();
    assert!(url.ends_with(&format!("/flux/previews?flux.limit={limit}")), "{url}");
    let config = include_str!("../../config/examples/previews-github.yaml");
    let config: Value = serde_saphyr::from_str(config).unwrap();
    let route = config["routes"].as_array().unwrap().iter().find(|route| route["name"] == "previews").unwrap();
    let identity = route["guard"]["identity"].as_array().unwrap();
    assert!(!identity.is_empty(), "Flux needs an id");
    // Each input that the templates use is a key of `output`, or the id.
    let resources = documents.iter().find(|document| document["kind"] == "ResourceSet").unwrap().to_string();
    let used =
        resources.split("inputs.").skip(1).map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap());
    let used: BTreeSet<&str> = used.filter(|name| !["provider"].contains(name)).collect();
    let output = route["output"].as_object().unwrap();
    assert!(!used.is_empty() && used.iter().all(|name| *name == "id" || output.contains_key(*name)), "{used:?}");
}
