//! What each role may do on the admin listener, and which requests of browsers are refused.

use auth::hash_token;
use serde_json::{Value, json};

use super::{gateway, held, print, routes};
use crate::support::{
    ADMIN_TOKEN, Reply, TOKEN, TestApp,
    contract::{self, Listener},
    wire::{exchange_admin, operator_request},
};

const VIEWER: &str = "viewers-password";

async fn with_viewer() -> TestApp {
    let viewer = format!(", {{ name: eve, role: viewer, sha256: \"{}\" }} ] }}", hash_token(VIEWER));
    let app = TestApp::start(&format!("{}{}", TestApp::auth().replace(" ] }", &viewer), routes())).await;
    print(app.folder.path(), &["a", "b"]);
    app
}

async fn send(app: &TestApp, request: &str) -> Reply {
    let reply = exchange_admin(app.admin, request.as_bytes()).await;
    contract::conforms(Listener::Admin, request.as_bytes(), &reply);
    reply
}

#[tokio::test]
async fn a_viewer_reads_everything_and_changes_nothing() {
    let app = with_viewer().await;
    let as_viewer = |method: &str, path: &str| operator_request(method, path, "{}").replace(ADMIN_TOKEN, VIEWER);
    for path in ["answers", "config", "held", "questions", "shadow"] {
        let path = format!("/admin/{path}");
        assert_eq!(send(&app, &as_viewer("GET", &path)).await.status, 200, "{path}");
        let stranger = send(&app, &as_viewer("GET", &path).replace(VIEWER, TOKEN)).await;
        assert!(stranger.message().contains("`role: admin` or `role: viewer`"), "{}", stranger.message());
    }
    for path in ["explain", "hooks/x/concerns"] {
        let path = format!("/admin/{path}");
        assert_ne!(send(&app, &as_viewer("POST", &path)).await.status, 403, "it changes nothing: {path}");
    }
    for path in ["answers/invalidate", "held/x/release", "held/x/reject"] {
        let path = format!("/admin/{path}");
        let refused = send(&app, &as_viewer("POST", &path)).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{path}");
        let says =
            "the caller `eve` has the role `viewer`, which changes nothing; this needs a token with `role: admin`";
        assert!(refused.message().starts_with(says), "{}", refused.message());
    }
    let refused = app.send(&crate::support::wire::argo_request("/s/api/v1/getparams.execute", VIEWER, b"{}")).await;
    assert!(refused.message().contains("has the role `viewer` and may not call routes"), "{}", refused.message());
}

/// A proxy may add a token to everything that a browser sends.
#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let app = gateway().await;
    for (headers, status) in [
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Origin: https://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Origin: http://gateway\r\n", 200),
        ("Sec-Fetch-Site: same-origin\r\n", 200),
        ("", 200),
    ] {
        let request = operator_request("POST", "/admin/answers/invalidate", r#"{"all": true}"#);
        let reply = send(&app, &request.replace("Host: gateway\r\n", &format!("Host: gateway\r\n{headers}"))).await;
        assert_eq!(reply.status, status, "{headers}");
        let request = operator_request("GET", "/admin/held", "");
        let reply = send(&app, &request.replace("Host: gateway\r\n", &format!("Host: gateway\r\n{headers}"))).await;
        assert_eq!(reply.status, 200, "looking changes nothing: {headers}");
    }
}

#[tokio::test]
async fn a_decision_has_a_reason_of_some_length() {
    let app = gateway().await;
    app.ask("s", json!({})).await;
    print(app.folder.path(), &["a"]);
    app.ask_afresh("s", json!({})).await;
    let first = held(&app).await.remove(0);
    let path = format!("/admin/held/{}/reject", first["id"].as_str().unwrap());
    let reject = async |body: Value| app.operate(&path, Some(body)).await;
    for (body, says) in [
        (json!({"reason": "x".repeat(501)}), "more than 500 characters"),
        (json!({"reason": 1}), "invalid type"),
        (json!({"because": "x"}), "unknown field `because`"),
        (json!([]), "expected an object"),
    ] {
        let refused = reject(body).await;
        assert_eq!(refused.code(), "invalid_request");
        assert!(refused.message().contains(says), "{}", refused.message());
    }
    assert_eq!(held(&app).await[0].get("decision"), None);
    for body in [json!({}), json!({"reason": " "}), json!({"reason": "ä".repeat(500)})] {
        assert_eq!(reject(body).await.status, 200);
    }
    assert_eq!(first["evidence"], json!([]));
}
