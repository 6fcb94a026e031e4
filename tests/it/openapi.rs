//! `openapi.yaml` against the gateway, in both directions: each documented answer occurs, and each answer is documented.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use appset_gateway::http::server::{self, error::Code};
use domain::lifecycle::Phase;
use regex::Regex;
use serde_json::{Value, json};

use crate::support::{
    Reply, TOKEN, TestApp,
    contract::{self, DOCUMENT, Listener, resolve, validator},
    upstream::{Upstream, response},
    wire,
};

const GETPARAMS: &str = "/api/v1/getparams.execute";
const EXPLAIN: &str = "/admin/explain";
const OF_ROUTE: &str = "/{route}/api/v1/getparams.execute";
const FLUX: &str = "/flux/{route}";

/// Whether the operation at `template` can end with `code`. Unknown paths are tested separately.
fn can_end_with(code: Code, template: &str) -> bool {
    if is_page(template) {
        return false;
    }
    let is_operators = template.starts_with("/admin/");
    if template.starts_with("/hooks/") {
        return matches!(
            code,
            Code::InvalidRequest
                | Code::Forbidden
                | Code::NotFound
                | Code::MethodNotAllowed
                | Code::PayloadTooLarge
                | Code::UnsupportedMediaType
                | Code::Throttled
                | Code::Overloaded
                | Code::Unavailable
        );
    }
    match code {
        Code::NotFound => template.contains("{id}") || template.contains("{name}"),
        Code::Conflict => template.contains("{id}"),
        Code::UnknownRoute if matches!(template, "/admin/answers/invalidate" | EXPLAIN) => true,
        // The parameters of a question must fit its route, which may have to ask which these are.
        Code::InvalidInput | Code::BackendFailed | Code::BackendOutputInvalid | Code::BackendTimeout
            if template == EXPLAIN =>
        {
            true
        }
        Code::MethodNotAllowed => true,
        // The gateway sends this code without a whole request.
        Code::HeadTooLarge | Code::UnsupportedMediaType => false,
        Code::Internal => matches!(template, GETPARAMS | OF_ROUTE | FLUX | "/metrics") || is_operators,
        Code::InvalidRequest
        | Code::Forbidden
        | Code::PayloadTooLarge
        | Code::Overloaded
        | Code::Unavailable
        | Code::Throttled
            if is_operators =>
        {
            true
        }
        Code::PayloadTooLarge => matches!(template, GETPARAMS | OF_ROUTE),
        _ => matches!(template, GETPARAMS | OF_ROUTE | FLUX),
    }
}

/// Whether people are answered at `template`, in HTML without a code.
fn is_page(template: &str) -> bool {
    operations().any(|(path, operation)| path == template && operation["tags"] == json!(["page"]))
}

/// The codes that the schema of a documented response allows. Empty unless the response is an error.
fn codes(response: &'static Value) -> BTreeSet<&'static str> {
    let schema = &resolve(response)["content"]["application/json"]["schema"];
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let codes = parts.filter_map(|part| part["properties"]["code"]["enum"].as_array()).flatten();
    codes.map(|code| code.as_str().unwrap()).collect()
}

fn operations() -> impl Iterator<Item = (&'static str, &'static Value)> {
    DOCUMENT["paths"].as_object().unwrap().iter().flat_map(|(template, item)| {
        let operations = item.as_object().unwrap().values().filter(|operation| operation.get("responses").is_some());
        operations.map(|operation| (template.as_str(), operation))
    })
}

#[test]
fn all_error_codes_are_documented() {
    let schema = &DOCUMENT["components"]["schemas"]["Code"];
    let ours: Vec<&str> = Code::ALL.into_iter().map(Code::as_str).collect();
    assert_eq!(schema["enum"], json!(ours));
    let rows: Vec<(&str, &str)> = Regex::new(r"(?m)^\| `(\w+)` \| (\d+) \| [^|]{10,} \| [^|]{10,} \|$")
        .unwrap()
        .captures_iter(schema["description"].as_str().unwrap())
        .map(|row| row.extract::<2>().1.into())
        .collect();
    let expected: Vec<(&str, String)> =
        Code::ALL.into_iter().map(|code| (code.as_str(), code.status().as_u16().to_string())).collect();
    assert_eq!(rows, expected.iter().map(|(code, status)| (*code, status.as_str())).collect::<Vec<_>>());
}

#[test]
fn each_operation_documents_exactly_the_statuses_of_its_codes() {
    for (template, operation) in operations() {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let expected = Code::ALL
                .into_iter()
                .filter(|code| code.status().as_str() == status && can_end_with(*code, template))
                .map(Code::as_str)
                .collect();
            assert_eq!(codes(response), expected, "{template}: {status}");
        }
        for code in Code::ALL.into_iter().filter(|code| can_end_with(*code, template)) {
            let is_there = operation["responses"].get(code.status().as_str()).is_some();
            assert!(is_there, "{template} can end with {code:?}");
        }
    }
    let not_found = &DOCUMENT["components"]["responses"]["NotFound"];
    assert_eq!(codes(not_found), BTreeSet::from([Code::NotFound.as_str()]));
}

#[test]
fn every_example_fits_its_schema() {
    let media = |holder: &'static Value| holder["content"].as_object().into_iter().flatten();
    let components = &DOCUMENT["components"];
    let holders = ["requestBodies", "responses"].map(|kind| components[kind].as_object().unwrap().values());
    let mut seen = 0;
    for content in holders.into_iter().flatten().flat_map(media).map(|(_, content)| content) {
        let validator = content.get("schema").map(validator);
        for (name, example) in content["examples"].as_object().into_iter().flatten() {
            let fits = validator.as_ref().unwrap().validate(&example["value"]);
            assert!(fits.is_ok(), "{name}: {}", fits.unwrap_err());
            seen += 1;
        }
    }
    for (name, header) in components["headers"].as_object().unwrap() {
        assert!(validator(&header["schema"]).is_valid(&header["example"]), "{name}");
    }
    assert!(seen > 15, "{seen}");
}

#[tokio::test]
async fn the_examples_match_the_answers_of_the_shipped_configuration() {
    let root = env!("CARGO_MANIFEST_DIR");
    let config = include_str!("../../config/gateway.yaml").replace("demo/", &format!("{root}/config/demo/"));
    let app = TestApp::start(&config).await;
    let examples = |holder: &'static Value| &holder["content"]["application/json"]["examples"];
    let requests = examples(&DOCUMENT["components"]["requestBodies"]["GetParams"]);
    let responses = examples(&DOCUMENT["components"]["responses"]["GetParams"]);
    for (name, request) in requests.as_object().unwrap() {
        let reply = app.call(GETPARAMS, &request["value"]).await;
        assert_eq!(reply.json(), responses[name]["value"], "{name}");
    }
    assert_eq!(requests.as_object().unwrap().len(), responses.as_object().unwrap().len());
}

#[tokio::test]
async fn the_document_is_served_unchanged() {
    let app = TestApp::with_routes(ROUTES).await;
    let reply = asked(&app, Listener::Main, b"GET /openapi.yaml HTTP/1.1\r\nHost: gateway\r\n\r\n").await;
    assert_eq!(reply.text(), include_str!("../../openapi.yaml"));
    assert_eq!(DOCUMENT["info"]["version"], env!("CARGO_PKG_VERSION"));
}

/// The paths of a router, which only its debug output shows.
fn routed(listener: Listener, router: &axum::Router) -> Vec<(Listener, String)> {
    let text = format!("{router:?}");
    let own = text.split("fallback_router").next().unwrap();
    let paths = Regex::new(r#"RouteId\(\d+\): "([^"]+)""#).unwrap();
    paths.captures_iter(own).map(|found| (listener, found[1].to_owned())).collect()
}

#[tokio::test]
async fn all_paths_are_documented() {
    let app = TestApp::with_routes(ROUTES).await;
    let mut ours = routed(Listener::Main, &server::router(Arc::clone(&app.app)));
    ours.extend(routed(Listener::Hooks, &server::hooks::router(Arc::clone(&app.app))));
    ours.extend(routed(Listener::Admin, &server::admin::router(Arc::clone(&app.app))));
    let mut documented: Vec<_> = contract::paths().map(|(listener, path)| (listener, path.to_owned())).collect();
    for list in [&mut ours, &mut documented] {
        list.sort_by_key(|(listener, path)| (*listener as u8, path.clone()));
    }
    assert_eq!(ours, documented);
    // tests/it/hooks.rs has a listener for hooks.
    let page = asked(&app, Listener::Admin, b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n").await.text();
    let file = Regex::new(r#"/page/([^"]+)"#).unwrap().captures(&page).unwrap()[1].to_owned();
    for (listener, template) in contract::paths().filter(|(listener, _)| *listener != Listener::Hooks) {
        let path = template.replace("{route}", "fixed").replace("{file}", &file);
        for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND"] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: gateway\r\nContent-Length: 0\r\n\r\n");
            let reply = asked(&app, listener, request.as_bytes()).await;
            assert_ne!(reply.status, 404, "{method} {path}");
        }
        let other = if listener == Listener::Main { Listener::Admin } else { Listener::Main };
        let request = format!("GET {path} HTTP/1.1\r\nHost: gateway\r\n\r\n");
        assert_eq!(asked(&app, other, request.as_bytes()).await.code(), "not_found", "{path}");
    }
}

const ROUTES: &str = r#"
  - { name: fixed, match: { applicationSet: fixed }, backend: { fixed: { parameters: [ { a: x, n: 1, o: { l: [true] } } ] } } }
  - { name: empty, backend: { fixed: { parameters: [] } } }
  - { name: raw, stringify: false, backend: { fixed: { parameters: [ { n: 1 } ] } } }
  - { name: typed, input: [ { name: n, type: number, required: true } ], backend: { fixed: { parameters: [] } } }
  - { name: gated, backend: { script: { command: [sh, -c, "until test -e open; do sleep 0.02; done; echo []"], allow: { read: [.], write: [.] } } } }
  - { name: failing, backend: { script: { command: ["false"] } } }
  - { name: few, guard: { minItems: 1 }, backend: { fixed: { parameters: [] } } }
  - { name: blank, backend: { script: { command: ["true"] } } }
  - { name: slow, backend: { script: { command: [sleep, "60"], timeout: 100ms } } }
"#;

/// Sends a raw request and checks the reply against the contract.
async fn asked(app: &TestApp, listener: Listener, request: &[u8]) -> Reply {
    let address = if listener == Listener::Main { app.address } else { app.admin };
    let reply = wire::exchange(address, request).await;
    contract::conforms(listener, request, &reply);
    reply
}

/// Calls a route and checks the reply against the contract.
async fn ask(app: &TestApp, route: &str) -> Reply {
    let body = br#"{"applicationSetName":"x","input":{"parameters":{}}}"#;
    asked(app, Listener::Main, &wire::argo_request(&format!("/{route}{GETPARAMS}"), TOKEN, body)).await
}

/// Waits until `count` requests run.
async fn under_way(app: &TestApp, count: usize) {
    while app.app.in_flight.now() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn every_refusal_conforms() {
    let upstream = Upstream::always(response(429, "Retry-After: 7", "")).await;
    let hash = auth::hash_token("narrow");
    let routes =
        format!("{ROUTES}  - {{ name: throttled, backend: {{ http: {{ url: \"http://{}\" }} }} }}\n", upstream.address);
    let jwt =
        "jwt: [ { issuer: nobody, audience: a, algorithms: [ES256], jwks: { url: \"http://127.0.0.1:1/keys\" } } ]";
    let auth = TestApp::auth()
        .replace(" ] }", &format!(", {{ name: narrow, sha256: \"{hash}\", routes: [typed] }} ], {jwt} }}"));
    // {"alg":"ES256"}.{"iss":"nobody"}
    let of_nobody = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJub2JvZHkifQ.x";
    let app = TestApp::start(&format!("server: {{ maxInFlight: 1 }}\n{auth}routes:{routes}")).await;
    let call = |path: &str, token: &str, body: &str| wire::argo_request(path, token, body.as_bytes());
    let fixed = r#"{"applicationSetName":"fixed"}"#;
    let head = format!("POST {GETPARAMS} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {TOKEN}\r\n");
    let too_large = 1024 * 1024 + 1;

    let requests = [
        ("invalid_request", call(GETPARAMS, TOKEN, "")),
        ("invalid_request", call(GETPARAMS, TOKEN, "applicationSetName=x")),
        ("invalid_request", call(GETPARAMS, TOKEN, r#"{"input":[]}"#)),
        ("invalid_request", call(GETPARAMS, TOKEN, r#"{"input":{},"input":{}}"#)),
        ("forbidden", call(GETPARAMS, "wrong", fixed)),
        ("forbidden", format!("POST {GETPARAMS} HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2\r\n\r\n{{}}").into()),
        ("forbidden", call(GETPARAMS, "narrow", fixed)),
        ("forbidden", call(&format!("/fixed{GETPARAMS}"), "narrow", "{}")),
        ("not_found", call("/", TOKEN, "{}")),
        ("not_found", call(&format!("{GETPARAMS}/"), TOKEN, "{}")),
        ("not_found", call(&format!("/a/b{GETPARAMS}"), TOKEN, "{}")),
        ("unknown_route", call(GETPARAMS, TOKEN, "{}")),
        ("unknown_route", call(&format!("/fixd{GETPARAMS}"), TOKEN, "{}")),
        ("unknown_route", call(&format!("/%ff{GETPARAMS}"), TOKEN, "{}")),
        ("forbidden", call(&format!("/%ff{GETPARAMS}"), "wrong", "{}")),
        ("method_not_allowed", format!("GET {GETPARAMS} HTTP/1.1\r\nHost: gateway\r\n\r\n").into()),
        ("payload_too_large", format!("{head}Content-Length: {too_large}\r\n\r\n").into()),
        (
            "payload_too_large",
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{too_large:x}\r\n{}", " ".repeat(too_large)).into(),
        ),
        ("invalid_input", call(&format!("/typed{GETPARAMS}"), TOKEN, "{}")),
        ("invalid_input", call(&format!("/typed{GETPARAMS}"), "narrow", r#"{"input":{"parameters":{"n":"x"}}}"#)),
        ("throttled", call(&format!("/throttled{GETPARAMS}"), TOKEN, "{}")),
        ("backend_failed", call(&format!("/failing{GETPARAMS}"), TOKEN, "{}")),
        ("backend_output_invalid", call(&format!("/blank{GETPARAMS}"), TOKEN, "{}")),
        ("unavailable", call(GETPARAMS, of_nobody, "{}")),
        ("held", call(&format!("/few{GETPARAMS}"), TOKEN, "{}")),
        ("backend_timeout", call(&format!("/slow{GETPARAMS}"), TOKEN, "{}")),
    ];
    // A head that is too large belongs to no operation, a conflict to operators, and an unsupported body to hooks.
    let others = ["internal", "overloaded", "head_too_large", "conflict", "unsupported_media_type"];
    let mut seen = BTreeSet::from(others.map(str::to_owned));
    for (code, request) in &requests {
        let reply = asked(&app, Listener::Main, request).await;
        assert_eq!(reply.code(), *code, "{:?}", String::from_utf8_lossy(&request[..request.len().min(200)]));
        seen.insert(reply.code());
        if *code == "throttled" {
            assert_eq!(reply.header("retry-after"), Some("7"));
        }
    }
    // The remaining codes need more than one request.
    tokio::join!(async { assert_eq!(ask(&app, "gated").await.sets(), "[]") }, async {
        under_way(&app, 1).await;
        assert_eq!(ask(&app, "fixed").await.code(), "overloaded");
        std::fs::write(app.folder.path().join("open"), "").unwrap();
    });
    assert_eq!(seen, Code::ALL.into_iter().map(|code| code.as_str().to_owned()).collect());
}

#[tokio::test]
async fn every_kind_of_success_conforms() {
    let app = TestApp::with_routes(ROUTES).await;
    let cache_status = |reply: &Reply| reply.header("cache-status").unwrap().to_owned();
    assert_eq!(cache_status(&ask(&app, "fixed").await), "appset-gateway; fwd=miss; stored");
    app.clock.advance(Duration::from_secs(20));
    let hit = ask(&app, "fixed").await;
    assert!(cache_status(&hit).starts_with("appset-gateway; hit; ttl="), "{}", cache_status(&hit));
    assert_eq!(hit.header("age"), Some("20"));
    app.clock.advance(Duration::from_secs(100));
    assert!(cache_status(&ask(&app, "fixed").await).starts_with("appset-gateway; hit; ttl=-"));
    assert_eq!(ask(&app, "empty").await.text(), r#"{"output":{"parameters":[]}}"#);
    assert_eq!(ask(&app, "raw").await.text(), r#"{"output":{"parameters":[{"n":1}]}}"#);

    let (first, second, ()) = tokio::join!(ask(&app, "gated"), ask(&app, "gated"), async {
        under_way(&app, 2).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::write(app.folder.path().join("open"), "").unwrap();
    });
    let states = BTreeSet::from([first, second].map(|reply| cache_status(&reply)));
    let expected = ["collapsed", "stored"].map(|last| format!("appset-gateway; fwd=miss; {last}"));
    assert_eq!(states, BTreeSet::from(expected));

    for kind in ["application/x-www-form-urlencoded", "text/plain", "nonsense"] {
        let request =
            String::from_utf8(wire::argo_request(GETPARAMS, TOKEN, br#"{"applicationSetName":"fixed"}"#)).unwrap();
        let request =
            request.replace("Content-Type: application/json", &format!("Content-Type: {kind}\r\nX-Request-Id: a.1"));
        let reply = asked(&app, Listener::Main, request.as_bytes()).await;
        assert_eq!((reply.status, reply.header("x-request-id")), (200, Some("a.1")), "{kind}");
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: gateway\r\n\r\n");
        assert_eq!(asked(&app, Listener::Admin, request.as_bytes()).await.status, 200, "{path}");
    }
    app.app.lifecycle.enter(Phase::Draining);
    let draining = asked(&app, Listener::Admin, b"GET /readyz HTTP/1.1\r\nHost: gateway\r\n\r\n").await;
    assert_eq!((draining.status, draining.text().as_str()), (503, "draining\n"));
}

#[tokio::test]
async fn the_contract_check_reports_each_difference() {
    let app = TestApp::with_routes(ROUTES).await;
    let (good, bad) = (ask(&app, "fixed").await, ask(&app, "failing").await);
    let altered = |of: &Reply, alter: fn(&mut Reply)| {
        let mut reply = of.clone();
        alter(&mut reply);
        contract::check("POST", OF_ROUTE, &reply).unwrap_err()
    };
    let header = |name: &'static str, value: &'static str| {
        let mut reply = good.clone();
        reply.headers.retain(|(other, _)| other != name);
        reply.headers.push((name.to_owned(), value.to_owned()));
        contract::check("POST", OF_ROUTE, &reply).unwrap_err()
    };
    let missing = |reply: &mut Reply| reply.headers.retain(|(name, _)| name != "cache-status");
    let cases = [
        (altered(&good, |reply| reply.status = 201), "201 is not documented"),
        (altered(&good, |reply| reply.status = 405), "405 is not documented for POST"),
        (altered(&good, missing), "cache-status is missing"),
        (header("cache-status", "appset-gateway; hit"), "the header cache-status"),
        (header("age", "-1"), "the header age"),
        (header("server-timing", "total"), "the header server-timing"),
        (header("x-secret", "1"), "x-secret is not documented"),
        (header("content-type", "text/html"), "text/html is not documented"),
        (altered(&good, |reply| reply.body = b"{}".into()), "required"),
        (altered(&good, |reply| reply.body = br#"{"output":{"parameters":[{"a":{"b":null}}]}}"#.into()), "/a"),
        (altered(&good, |reply| reply.body = br#"{"output":{"parameters":[{"values":"x"}]}}"#.into()), "values"),
        (altered(&bad, |reply| reply.status = 504), "backend_timeout"),
        (
            altered(&bad, |reply| reply.body = reply.text().replace("\"requestId\":\"", "\"requestId\":\"0").into()),
            "not that of the header",
        ),
    ];
    for (why, says) in cases {
        assert!(why.contains(says), "{why} (expected: {says})");
    }
    assert!(contract::check("PUT", OF_ROUTE, &good).unwrap_err().contains("200 is not documented for PUT"));
    assert!(contract::check("POST", "/nothing", &good).is_err());
}
