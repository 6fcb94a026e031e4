//! The headers of each response of the page.

use std::io::Read as _;

use serde_json::json;

use super::{ADMIN_TOKEN, Person, gateway, hold};
use crate::support::{Reply, wire::exchange_admin};

const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

#[track_caller]
fn is_safe(reply: &Reply, cache: &str) {
    let expected = [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", cache),
    ];
    for (name, value) in expected {
        assert_eq!(reply.header(name), Some(value), "{name}: {:?}", String::from_utf8_lossy(&reply.raw));
    }
}

#[tokio::test]
async fn every_response_of_the_page_is_safe_to_show() {
    let app = gateway().await;
    let id = hold(&app, json!({})).await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let token = person.field("/", "formToken").await;
    let fields = [("formToken", &*token)];
    let replies = [
        (200, person.get("/").await),
        (200, person.get("/held").await),
        (200, person.get(&format!("/held/{id}")).await),
        (404, person.get("/held/x").await),
        (404, person.get("/page/x.css").await),
        (405, person.get("/logout").await),
        (405, person.post("/held", &[]).await),
        (400, person.post(&format!("/held/{id}/release"), &fields).await),
        (403, person.post(&format!("/held/{id}/release"), &[]).await),
        (200, Person::at(&app).get("/login").await),
        (303, Person::at(&app).get("/held").await),
        (403, Person::at(&app).sign_in("wrong").await),
        (303, person.post("/logout", &fields).await),
    ];
    for (status, reply) in replies {
        assert_eq!(reply.status, status, "{}", reply.text());
        is_safe(&reply, "no-store");
        let html = reply.text();
        for inline in [" style=", "<style", " onclick", "javascript:", "<script>"] {
            assert!(!html.contains(inline), "{inline}: {html}");
        }
        assert!(!html.contains("://") || html.contains("kubectl"), "nothing of elsewhere: {html}");
    }
    // The paths for programs and the main listener stay as they were.
    for reply in [app.admin("/readyz").await, app.operate("/admin/held", None).await, app.ask("s", json!({})).await] {
        assert_eq!(reply.header("content-security-policy"), None);
    }
}

#[tokio::test]
async fn files_are_kept_by_browsers_and_compressed() {
    let app = gateway().await;
    let html = Person::at(&app).get("/login").await.text();
    for (ending, kind) in
        [("css", "text/css; charset=utf-8"), ("js", "text/javascript; charset=utf-8"), ("svg", "image/svg+xml")]
    {
        let path = html.split('"').find(|part| part.starts_with("/page/") && part.ends_with(ending)).unwrap();
        let plain = Person::at(&app).get(path).await;
        assert_eq!((plain.status, plain.header("content-type")), (200, Some(kind)));
        is_safe(&plain, "public, max-age=31536000, immutable");
        if ending == "svg" {
            continue;
        }
        let url = format!("http://{}{path}", app.admin);
        let reply = reqwest::Client::new().get(url).header("accept-encoding", "gzip").send().await.unwrap();
        assert_eq!(reply.headers()["content-encoding"], "gzip");
        let packed = reply.bytes().await.unwrap();
        let mut unpacked = Vec::new();
        let mut gzip = std::process::Command::new("gzip")
            .arg("-dc")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut gzip.stdin.take().unwrap(), &packed).unwrap();
        gzip.stdout.take().unwrap().read_to_end(&mut unpacked).unwrap();
        gzip.wait().unwrap();
        assert!(unpacked == plain.body && packed.len() < plain.body.len(), "{ending}");
    }
    // What a view says is never compressed: its length would tell an attacker of the token in it.
    let request = "GET /login HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n";
    assert_eq!(exchange_admin(app.admin, request.as_bytes()).await.header("content-encoding"), None);
}
