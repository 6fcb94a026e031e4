//! Sessions: how one begins, what ends it, and who needs none.

use std::time::Duration;

use auth::hash_token;
use jsonwebtoken::Algorithm;
use serde_json::json;

use super::{ADMIN_TOKEN, Person, TOKEN, VIEWER_TOKEN, auth, gateway, routes, start};
use crate::support::{
    TestApp,
    authority::Ca,
    issuer::{Issuer, SigningKey, set_of, unix_now},
    visitor::Visitor,
};

#[tokio::test]
async fn an_operator_signs_in_and_comes_back() {
    let app = gateway().await;
    let mut person = Person::at(&app);
    for (path, to) in [("/", "/login"), ("/held?page=2", "/login?to=%2Fheld%3Fpage%3D2")] {
        let reply = person.get(path).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some(to)));
    }
    let form = person.get("/login?to=%2Fheld%3Fpage%3D2").await;
    assert_eq!(form.status, 200);
    assert_eq!(super::field(&form.text(), "to").as_deref(), Some("/held?page=2"));
    let reply = person.sign_in(ADMIN_TOKEN).await;
    assert_eq!((reply.status, reply.header("location")), (303, Some("/held")));
    let cookie = reply.header("set-cookie").unwrap();
    let (id, rest) = cookie.strip_prefix("appset-gateway=").unwrap().split_once("; ").unwrap();
    assert_eq!((id.len(), rest), (43, "Path=/; Max-Age=28800; HttpOnly; SameSite=Strict"));
    let page = person.get("/").await;
    assert!(page.status == 200 && page.text().contains("<bdi>operator</bdi>"), "{}", page.text());
    assert!(!page.text().contains(id), "no view shows the id");
    // Whoever has signed in needs no form.
    assert_eq!(person.get("/login?to=/held").await.header("location"), Some("/held"));
    assert_eq!(person.get("/login?to=//evil.example/").await.header("location"), Some("/"));
    // A session opens no interface for programs.
    assert_eq!(person.get("/admin/held").await.status, 403);
}

#[tokio::test]
async fn only_tokens_that_may_look_open_a_session() {
    let app = gateway().await;
    let mut person = Person::at(&app);
    for (token, says) in [
        ("wrong", "this is not a token with the role </bdi><code><bdi>admin</bdi></code>"),
        ("", "this is not a token with the role"),
        ("a\r\nb", "this is not a token with the role"),
        (TOKEN, "</bdi></code><bdi> opens no session: it has neither </bdi><code>"),
    ] {
        let reply = person.sign_in(token).await;
        assert!(reply.status == 403 && reply.text().contains(says), "{token}: {}", reply.text());
        assert_eq!((reply.header("set-cookie"), person.get("/").await.status), (None, 303));
    }
    assert_eq!(person.sign_in(&format!(" {VIEWER_TOKEN}\n")).await.status, 303, "as it was copied");
    // Guessing is counted for the address, as at the other doors.
    let mut free = 0;
    let late = loop {
        let reply = person.sign_in("guess").await;
        if reply.status == 429 {
            break reply;
        }
        assert_eq!(reply.status, 403);
        free += 1;
        assert!(free < 10_000, "guessing is free");
    };
    assert!(free >= 90 && late.text().contains("too many calls from this address"), "{free}: {}", late.text());
    assert_eq!(person.sign_in(ADMIN_TOKEN).await.status, 303, "a good token is still accepted");
}

#[tokio::test]
async fn a_session_in_cleartext_stays_on_this_machine() {
    let app = gateway().await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    for host in ["gateway.example:4356", "evil.example", "10.0.0.1:4356", "localhost.evil.example"] {
        let mut other = Person { host, ..person.sending("") };
        assert_eq!(other.get("/").await.status, 303, "{host}: the cookie does not count");
        let form = other.get("/login").await.text();
        assert!(form.contains("this connection is not encrypted") && !form.contains("<form"), "{form}");
        let refused = other.sign_in(ADMIN_TOKEN).await;
        assert!(refused.status == 403 && refused.text().contains("because it is not encrypted"), "{}", refused.text());
    }
    for host in ["127.0.0.1:4356", "[::1]:4356", "LOCALHOST"] {
        assert_eq!(Person { host, ..person.sending("") }.get("/").await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn over_tls_the_cookie_is_bound_to_its_host() {
    let (ca, folder) = (Ca::new("ca"), tempfile::tempdir().unwrap());
    let (certificate, key) = ca.certificate(&["localhost"]);
    std::fs::write(folder.path().join("tls.crt"), certificate).unwrap();
    std::fs::write(folder.path().join("tls.key"), key).unwrap();
    let server = "server: { adminTls: { cert: tls.crt, key: tls.key } }\n";
    let app = TestApp::start_in(folder, &format!("{server}{}{}", auth(), routes())).await;
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(ca.pem.as_bytes()).unwrap()])
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    assert!(Visitor::new(&ca.pem, None, &["h2"]).connect(app.admin).await.is_ok());
    let url = format!("https://localhost:{}", app.admin.port());
    let form = format!("token={ADMIN_TOKEN}&to=/held");
    let post = client.post(format!("{url}/login")).body(form);
    let reply = post.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
    assert_eq!(reply.status(), 303);
    let cookie = reply.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.starts_with("__Host-appset-gateway="), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Max-Age=28800; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    let value = cookie.split(';').next().unwrap();
    let status = async |cookie: &str| {
        client.get(format!("{url}/held")).header("cookie", cookie).send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(value).await, 200);
    assert_eq!(status(value.trim_start_matches("__Host-")).await, 303, "another name could be set by a neighbour");
}

#[tokio::test]
async fn a_session_ends() {
    let app = gateway().await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    app.clock.advance(Duration::from_secs(8 * 3600 - 1));
    assert_eq!(person.get("/").await.status, 200);
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(person.get("/").await.status, 303, "after 8 hours");

    let person = Person::with(&app, ADMIN_TOKEN).await;
    let other = Person::with(&app, ADMIN_TOKEN).await;
    let token = person.field("/", "formToken").await;
    let left = person.post("/logout", &[("formToken", &token)]).await;
    assert_eq!((left.status, left.header("location")), (303, Some("/login")));
    let cookie = left.header("set-cookie").unwrap();
    assert_eq!(cookie, "appset-gateway=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
    assert_eq!((person.get("/").await.status, other.get("/").await.status), (303, 200), "one of two has left");

    // Signing in again ends the session before.
    let mut again = other.sending("");
    assert_eq!(again.sign_in(VIEWER_TOKEN).await.status, 303);
    assert_eq!((other.get("/").await.status, again.get("/").await.status), (303, 200));
}

#[tokio::test]
async fn a_session_ends_with_its_token() {
    let reload = |app: &TestApp, auth: &str| {
        let config = format!("{auth}{}", routes());
        let base = domain::file::base_dir::BaseDir::new(app.folder.path());
        app.app.reload(appset_gateway::config::Loaded::parse("t.yaml", config, base)).unwrap();
    };
    let app = gateway().await;
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let viewer = Person::with(&app, VIEWER_TOKEN).await;
    reload(&app, &auth());
    assert_eq!((person.get("/").await.status, viewer.get("/").await.status), (200, 200), "nothing has changed");
    reload(&app, &auth().replace("role: admin", "role: viewer"));
    assert_eq!((person.get("/").await.status, viewer.get("/").await.status), (303, 200), "another role");
    reload(&app, &auth().replace(&hash_token(VIEWER_TOKEN), &hash_token("other")));
    assert_eq!(viewer.get("/").await.status, 303, "another token");
    reload(&app, &auth());
    assert_eq!((person.get("/").await.status, viewer.get("/").await.status), (303, 303), "it does not come back");

    // A token of a file is renewed without a reload.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "one").unwrap();
    let of_file = auth().replace(&format!("sha256: \"{}\"", hash_token(VIEWER_TOKEN)), "file: token");
    let app = TestApp::start_in(folder, &format!("{of_file}{}", routes())).await;
    let person = Person::with(&app, "one").await;
    std::fs::write(app.folder.path().join("token"), "two").unwrap();
    assert_eq!(person.get("/").await.status, 200);
    app.app.setup().auth.refresh();
    assert_eq!(person.get("/").await.status, 303);
}

#[tokio::test]
async fn sessions_are_bounded() {
    let app = gateway().await;
    let viewer = Person::with(&app, VIEWER_TOKEN).await;
    let mut people = Vec::new();
    for _ in 0..65 {
        people.push(Person::with(&app, ADMIN_TOKEN).await);
        app.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(people[0].get("/").await.status, 303, "the oldest one of this caller is ended");
    assert_eq!((people[1].get("/").await.status, people[64].get("/").await.status), (200, 200));
    assert_eq!(viewer.get("/").await.status, 200, "another caller's stays");
}

#[tokio::test]
async fn a_proxy_names_people_by_a_token_and_by_nothing_else() {
    let app = gateway().await;
    let stranger = Person::at(&app);
    let headers = "X-Forwarded-User: operator\r\nX-Auth-Request-User: operator\r\nX-Remote-User: operator\r\n";
    assert_eq!(stranger.sending(headers).get("/").await.status, 303);
    let bearer = format!("Authorization: Bearer {ADMIN_TOKEN}\r\n");
    // The proxy has the encrypted connection, and its own name.
    let by_proxy = Person { host: "gateway.example", ..stranger.sending(&bearer) };
    let page = by_proxy.get("/").await;
    assert!(page.status == 200 && page.text().contains("<bdi>operator</bdi>") && !page.text().contains("Sign out"));
    let person = Person::with(&app, ADMIN_TOKEN).await;
    let wrong = person.sending("Authorization: Bearer wrong\r\n").get("/").await;
    assert_eq!(wrong.status, 403, "a cookie does not make up for a wrong token");
    assert!(wrong.text().contains("<code><bdi>role: viewer</bdi></code>"), "{}", wrong.text());
    let caller = stranger.sending(&format!("Authorization: Bearer {TOKEN}\r\n")).get("/").await;
    assert_eq!(caller.status, 403);
    let twice = stranger.sending(&format!("{bearer}{bearer}")).get("/").await;
    assert_eq!(twice.status, 403);
}

#[tokio::test]
async fn an_id_token_opens_the_page_until_it_expires() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let issuer = Issuer::start(set_of(&[&key])).await;
    let jwt = json!([{"issuer": issuer.name(), "audience": "page", "algorithms": ["ES256"], "role": "viewer",
        "jwks": {"url": format!("{}/keys", issuer.name())}}]);
    let app = start(&auth().replace(" ] }", &format!(" ], jwt: {jwt} }}"))).await;
    let now = unix_now();
    let claims = json!({"iss": issuer.name(), "aud": "page", "sub": "eve@example.com", "iat": now, "exp": now + 3600});
    let token = key.sign(&claims);
    let by_proxy = Person::at(&app).sending(&format!("Authorization: Bearer {token}\r\n"));
    assert!(by_proxy.get("/").await.text().contains("<bdi>eve@example.com</bdi>"));
    let person = Person::with(&app, &token).await;
    assert_eq!(person.get("/held").await.status, 200);
    app.clock.advance(Duration::from_hours(2));
    assert_eq!((person.get("/").await.status, by_proxy.get("/").await.status), (303, 403));
}
