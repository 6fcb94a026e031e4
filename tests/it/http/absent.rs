//! `absent`: a reply that proves that there is nothing.

use serde_json::json;

use super::{ask, json as list, serve, status};
use crate::support::upstream::{Upstream, refused};

const JSON: &str = "Content-Type: application/json";
const HTML: &str = "Content-Type: text/html";
/// The reply of Vault for a path that is not there.
const VAULT: &str = r#"{"errors":[]}"#;
const PROOF: &str = "status == 404 && has(body.errors) && size(body.errors) == 0";

#[tokio::test]
async fn a_reply_proves_that_there_is_nothing() {
    for (reply, absent) in [
        (status(404, JSON, VAULT), PROOF),
        (status(410, JSON, "null"), "status in [404, 410] && body == null"),
        (status(404, JSON, "half {"), "status == 404 && body == null"),
        (status(404, &format!("{JSON}\r\nX-Kind: none"), ""), "status == 404 && headers['x-kind'] == 'none'"),
        (status(404, JSON, r#"{"env":"eu"}"#), "status == 404 && body.env == params.env"),
        (status(200, JSON, r#"{"code":"not_found"}"#), "type(body) == map && body.code == 'not_found'"),
    ] {
        let upstream = Upstream::start(move |_| reply.clone()).await;
        let more = json!({"absent": absent, "parameters": "body.items"});
        let reply = serve(&upstream, "/list", more).await.ask_afresh("h", json!({"env": "eu"})).await;
        assert_eq!(reply.sets(), "[]", "{absent}");
    }
}

#[tokio::test]
async fn any_other_reply_is_as_it_was() {
    let more = |absent: &str| json!({"absent": absent});
    assert_eq!(ask(list(r#"[{"a":"1"}]"#), more(PROOF)).await.sets(), r#"[{"a":"1"}]"#);
    assert_eq!(ask(list("[]"), more(PROOF)).await.sets(), "[]");
    let page = "<html>404</html>";
    for (reply, absent, says) in [
        (status(404, HTML, page), "status == 404 || body == 1", "not the proof that `absent` describes"),
        (status(404, "", VAULT), PROOF, "not the proof that `absent` describes"),
        (status(404, JSON, r#"{"errors":["no handler"]}"#), PROOF, "not the proof that `absent` describes"),
        (status(404, JSON, VAULT), "body == {'errors': []}", "unexpected status 404"),
        (status(404, JSON, "[]"), "status == 404 && body.code == 'x'", "absent: `status == 404"),
        (status(404, JSON, VAULT), "status == 404 ? body : body", "absent: it gives an object, neither"),
        (status(200, JSON, r#"{"error":"gone"}"#), "body.error == 'gone'", "it holds `error`"),
        (status(204, JSON, ""), "status != 200 || body == 1", "204"),
        (status(206, JSON, VAULT), "status != 200 || body == 1", "206"),
        (status(302, &format!("{JSON}\r\nLocation: /x"), VAULT), "status != 200 || body == 1", "it redirects"),
    ] {
        refused(&ask(reply, more(absent)).await, 502, "backend_output_invalid", says);
    }
    for (of, code) in [
        (401, "backend_failed"),
        (403, "backend_failed"),
        (407, "backend_failed"),
        (408, "backend_failed"),
        (429, "throttled"),
        (500, "backend_failed"),
        (503, "backend_failed"),
    ] {
        let reply = ask(status(of, JSON, VAULT), more("status >= 400 || body == 1")).await;
        assert_eq!(reply.code(), code, "{of}: {}", reply.text());
    }
}

/// An item that is absent has no sets; the others have theirs.
#[tokio::test]
async fn an_item_of_a_list_may_be_absent() {
    let upstream = Upstream::start(|request| match &*request.target {
        "/b" => status(404, JSON, VAULT),
        path => list(&format!(r#"[{{"path":"{path}"}}]"#)),
    })
    .await;
    let more = json!({"forEach": "['a', 'b', 'c']", "absent": PROOF});
    let app = serve(&upstream, "/{{ each }}", more).await;
    assert_eq!(app.ask_afresh("h", json!({})).await.sets(), r#"[{"path":"/a"},{"path":"/c"}]"#);
}

/// The first page may be the proof. A later page that is gone is an error: the list has changed.
#[tokio::test]
async fn a_later_page_is_no_proof() {
    let upstream = Upstream::start(|request| match &*request.target {
        "/list" => status(200, &format!("{JSON}\r\nLink: </2>; rel=\"next\""), r#"[{"a":"1"}]"#),
        _ => status(404, JSON, VAULT),
    })
    .await;
    let more = json!({"paging": {"link": true}, "absent": PROOF});
    let reply = serve(&upstream, "/list", more).await.ask_afresh("h", json!({})).await;
    refused(&reply, 502, "backend_output_invalid", "page 2");
}
