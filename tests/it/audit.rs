//! The log as an audit trail: caller, question, address and outcome of each call, also of refused calls.

use std::time::Duration;

use auth::hash_token;
use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    ADMIN_TOKEN, TOKEN,
    binary::Gateway,
    issuer::SigningKey,
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

/// The secret with which the issuer signs.
const SECRET: &str = "strong-password-of-32-bytes-or-more";

fn config() -> Value {
    let token = |name: &str, more: Value| {
        let mut token = json!({"name": name, "sha256": hash_token(name)});
        token.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        token
    };
    let fixed = json!({"fixed": {"parameters": [{"a": "b"}]}});
    json!({
        "server": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "drain": "0s", "deadline": "2s"},
        "auth": {"tokens": [
            {"name": "all", "sha256": hash_token(TOKEN)},
            {"name": "ops", "sha256": hash_token(ADMIN_TOKEN), "role": "admin"},
            token("some", json!({"routes": ["other"], "applicationSets": ["fb-*"]})),
            token("hasty", json!({"rate": 1})),
            token("old", json!({"notAfter": "2020-01-01T00:00:00Z"})),
        ], "jwt": [{"issuer": "i", "audience": "g", "algorithms": ["HS256"], "secret": {"file": "secret"}, "name": "'jwt:' + claims.sub"}]},
        "routes": [
            {"name": "r", "match": {"applicationSet": "fb-1"}, "backend": fixed},
            {"name": "other", "input": [{"name": "branch"}], "backend": fixed},
        ],
    })
}

/// A gateway whose log is read after the calls.
struct Audit {
    gateway: Gateway,
    count: usize,
}

impl Audit {
    fn start(folder: &std::path::Path) -> Self {
        let file = folder.join("gateway.yaml");
        std::fs::write(&file, config().to_string()).unwrap();
        std::fs::write(folder.join("secret"), SECRET).unwrap();
        Self { gateway: Gateway::serve(&file), count: 0 }
    }

    /// Makes a call, expects `status`, and returns the request id.
    async fn call(&mut self, path: &str, token: &str, body: &Value, status: u16) -> String {
        self.count += 1;
        let id = format!("audit-{}", self.count);
        let request = argo_request(path, token, body.to_string().as_bytes());
        let request = String::from_utf8(request).unwrap().replacen("\r\n", &format!("\r\nX-Request-Id: {id}\r\n"), 1);
        let reply = exchange(self.gateway.address, request.as_bytes()).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        id
    }

    async fn operate(&mut self, method: &str, path: &str, body: &str, status: u16) -> String {
        let reply = exchange_admin(self.gateway.admin, operator_request(method, path, body).as_bytes()).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        reply.header("x-request-id").unwrap().to_owned()
    }

    /// Ends the gateway and returns all log lines.
    fn end(mut self) -> Vec<Value> {
        self.gateway.signal(Signal::SIGTERM);
        let (_, log) = self.gateway.wait(Duration::from_secs(20));
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn asks(name: &str) -> Value {
    json!({"applicationSetName": name, "input": {"parameters": {"branch": "main"}}})
}

/// The log line of the request `id`.
fn line_of<'a>(lines: &'a [Value], id: &str) -> &'a Value {
    lines
        .iter()
        .find(|line| line["target"] == "request" && line["request_id"] == id)
        .expect("each request has its line")
}

const BY_NAME: &str = "/r/api/v1/getparams.execute";
const BY_MATCH: &str = "/api/v1/getparams.execute";
const OTHER: &str = "/other/api/v1/getparams.execute";

#[tokio::test]
async fn each_decision_is_logged_with_caller_question_and_address() {
    let folder = tempfile::tempdir().unwrap();
    let mut audit = Audit::start(folder.path());
    let answered = audit.call(BY_NAME, TOKEN, &asks("fb-1"), 200).await;
    let by_name = audit.call(BY_NAME, "some", &asks("fb-1"), 403).await;
    let by_match = audit.call(BY_MATCH, "some", &asks("fb-1"), 403).await;
    let by_set = audit.call(OTHER, "some", &asks("team-1"), 403).await;
    let nameless = audit.call(OTHER, "some", &json!({}), 403).await;
    audit.call(BY_NAME, "hasty", &asks("fb-1"), 200).await;
    // More concurrent calls than the rate limit lets through within the deadline.
    let request = argo_request(BY_NAME, "hasty", asks("fb-1").to_string().as_bytes());
    let replies = join_all((0..8).map(|_| exchange(audit.gateway.address, &request))).await;
    let refused = replies.iter().find(|reply| reply.status == 429).unwrap();
    let by_rate = refused.header("x-request-id").unwrap().to_owned();
    let expired = audit.call(BY_NAME, "old", &asks("fb-1"), 403).await;
    let claims = json!({"iss": "i", "aud": "g", "sub": "late", "exp": 1_600_000_000});
    let late = audit.call(BY_NAME, &SigningKey::shared(SECRET).sign(&claims), &asks("fb-1"), 403).await;
    let stranger = audit.call(BY_NAME, "guess", &asks("fb-1"), 403).await;
    let no_input = json!({"applicationSetName": "fb-1", "input": {"parameters": {"unknown": "x"}}});
    let no_input = audit.call(OTHER, "some", &no_input, 422).await;
    let no_route = audit.call("/nothing/api/v1/getparams.execute", TOKEN, &asks("fb-1"), 404).await;
    let lines = audit.end();

    let key = &line_of(&lines, &answered)["key"];
    assert!(key.is_string());
    for (id, caller, route, application_set) in [
        (&answered, "all", "r", "fb-1"),
        (&by_name, "some", "r", "fb-1"),
        (&by_match, "some", "r", "fb-1"),
        (&by_rate, "hasty", "r", "fb-1"),
        (&by_set, "some", "other", "team-1"),
        (&no_input, "some", "other", "fb-1"),
    ] {
        let line = line_of(&lines, id);
        let logged = [&line["caller"], &line["route"], &line["application_set"], &line["peer"]];
        assert_eq!(logged, [caller, route, application_set, "127.0.0.1"], "{line}");
        assert!(line["key"].is_string(), "{line}");
        assert!(route != "r" || line["key"] == *key, "{line}");
    }
    // Less is known about the other requests.
    for (id, caller, route) in [
        (&expired, json!("old"), "r"),
        (&late, json!("jwt:late"), "r"),
        (&stranger, Value::Null, "r"),
        (&no_route, json!("all"), "nothing"),
        (&nameless, json!("some"), "other"),
    ] {
        let line = line_of(&lines, id);
        let logged = [&line["caller"], &line["route"], &line["peer"]];
        assert_eq!(logged, [&caller, &json!(route), &json!("127.0.0.1")], "{line}");
    }
    let error = line_of(&lines, &nameless)["error"].as_str().unwrap();
    assert!(error.starts_with("the call names no ApplicationSet (`applicationSetName`)"), "{error}");
}

#[tokio::test]
async fn operator_actions_are_logged_with_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let mut audit = Audit::start(folder.path());
    audit.call(BY_NAME, TOKEN, &asks("fb-1"), 200).await;
    let seen = audit.operate("GET", "/admin/answers?limit=1", "", 200).await;
    let invalidated = audit.operate("POST", "/admin/answers/invalidate", r#"{"route":"r"}"#, 200).await;
    let released = audit.operate("POST", "/admin/held/0a0b0c/release", "", 404).await;
    let lines = audit.end();
    for (id, method, path) in [
        (&seen, "GET", "/admin/answers"),
        (&invalidated, "POST", "/admin/answers/invalidate"),
        (&released, "POST", "/admin/held/0a0b0c/release"),
    ] {
        let line = line_of(&lines, id);
        let logged = [&line["caller"], &line["method"], &line["path"], &line["peer"]];
        assert_eq!(logged, ["ops", method, path, "127.0.0.1"], "{line}");
    }
    let entry = lines.iter().find(|line| line["message"] == "invalidated").unwrap();
    assert_eq!([&entry["caller"], &entry["request_id"], &entry["route"]], ["ops", &*invalidated, "r"], "{entry}");
}
