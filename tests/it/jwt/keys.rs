//! An issuer's keys: renewed, missing, invalid, and with their source down.

use std::{sync::Arc, time::Duration};

use appset_gateway::config::Loaded;
use domain::file::base_dir::BaseDir;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{AUDIENCE, ask, assert_unauthenticated, claims, config, gateway, published};
use crate::support::{
    TestApp,
    issuer::{Issuer, SigningKey, set_of},
    upstream::{json_response, response},
};

/// Waits until `token` gets `status`.
async fn until_status(app: &TestApp, token: &str, status: u16) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let reply = ask(app, "r", token).await;
        if reply.status == status {
            return;
        }
        assert!(Instant::now() < end, "it stays at {}", reply.text());
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_unknown_key_ids_cause_one_request() {
    let (app, issuer, key) = gateway(&json!({})).await;
    let app = Arc::new(app);
    assert_eq!(ask(&app, "r", &key.sign(&claims(&issuer.name()))).await.status, 200);
    assert_eq!(issuer.asked(), 1);
    let stranger = SigningKey::new("x", Algorithm::ES256);
    let calls: Vec<_> = (0..300)
        .map(|number| {
            let header = json!({"alg": "ES256", "kid": format!("unknown-{number}")});
            let token = stranger.sign_as(&header, &claims(&issuer.name()));
            let app = Arc::clone(&app);
            // The rate limit of the address may answer 429.
            tokio::spawn(async move { assert!([403, 429].contains(&ask(&app, "r", &token).await.status)) })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(issuer.asked(), 2);
    let refused = async |token: String| assert!([403, 429].contains(&ask(&app, "r", &token).await.status));
    app.clock.advance(Duration::from_secs(29));
    refused(stranger.sign(&claims(&issuer.name()))).await;
    assert_eq!(issuer.asked(), 2);
    app.clock.advance(Duration::from_secs(1));
    refused(stranger.sign(&claims(&issuer.name()))).await;
    assert_eq!(issuer.asked(), 3);
    // A forged signature with a known key causes no request.
    app.clock.advance(Duration::from_mins(1));
    let forged = stranger.sign_as(&json!({"alg": "ES256", "kid": "one"}), &claims(&issuer.name()));
    refused(forged).await;
    assert_eq!(issuer.asked(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_works_at_once_and_a_removed_key_stops_working() {
    let (old, new) = (SigningKey::new("old", Algorithm::ES256), SigningKey::new("new", Algorithm::ES256));
    let issuer = Issuer::start(set_of(&[&old])).await;
    let url = format!("{}/keys", issuer.name());
    let entry = published(&issuer, &json!({"jwks": {"url": url, "refresh": "1s"}}));
    let app = TestApp::start(&config(&json!([entry]))).await;
    let (by_old, by_new) = (old.sign(&claims(&issuer.name())), new.sign(&claims(&issuer.name())));
    assert_eq!(ask(&app, "r", &by_old).await.status, 200);
    assert_unauthenticated(&ask(&app, "r", &by_new).await);
    app.clock.advance(Duration::from_secs(30));
    issuer.publish(set_of(&[&old, &new]));
    assert_eq!(ask(&app, "r", &by_new).await.status, 200, "nobody waits for the next renewal");
    assert_eq!(ask(&app, "r", &by_old).await.status, 200);
    let renewing = Arc::clone(&app.app);
    let renewing = tokio::spawn(async move { renewing.renew().await });
    issuer.publish(set_of(&[&new]));
    until_status(&app, &by_old, 403).await;
    assert_eq!(ask(&app, "r", &by_new).await.status, 200);
    renewing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn known_keys_stay_valid_while_their_source_is_down() {
    let (old, new) = (SigningKey::new("old", Algorithm::ES256), SigningKey::new("new", Algorithm::ES256));
    let mut issuer = Issuer::start(set_of(&[&old])).await;
    let url = format!("{}/keys", issuer.name());
    let entry = published(&issuer, &json!({"jwks": {"url": url, "refresh": "1s"}}));
    let app = TestApp::start(&config(&json!([entry]))).await;
    let renewing = Arc::clone(&app.app);
    let renewing = tokio::spawn(async move { renewing.renew().await });
    let (by_old, by_new) = (old.sign(&claims(&issuer.name())), new.sign(&claims(&issuer.name())));
    assert_eq!(ask(&app, "r", &by_old).await.status, 200);
    issuer.upstream.refuse().await;
    let name = issuer.name();
    let failed = format!("appset_gateway_issuer_key_reads_total{{issuer=\"{name}\",outcome=\"failed\"}}");
    let end = Instant::now() + Duration::from_secs(30);
    while app.metric(&failed).await < 2 {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(50)).await;
    }
    // Also with a token that was not seen before.
    assert_eq!(ask(&app, "r", &old.sign(&super::claims_with(&name, &json!({"jti": 2})))).await.status, 200);
    assert_unauthenticated(&ask(&app, "r", &by_new).await);
    issuer.publish(set_of(&[&new]));
    issuer.upstream.listen().await;
    app.clock.advance(Duration::from_mins(10));
    until_status(&app, &by_old, 403).await;
    assert_eq!(ask(&app, "r", &by_new).await.status, 200);
    renewing.abort();
}

#[tokio::test]
async fn without_any_keys_callers_get_a_temporary_error() {
    let key = SigningKey::new("one", Algorithm::ES256);
    let mut issuer = Issuer::start(set_of(&[&key])).await;
    issuer.upstream.refuse().await;
    let app = TestApp::start(&config(&json!([published(&issuer, &json!({}))]))).await;
    assert_eq!(app.admin("/readyz").await.status, 200);
    let token = key.sign(&claims(&issuer.name()));
    for _ in 0..2 {
        let reply = ask(&app, "r", &token).await;
        assert_eq!((reply.status, &*reply.code()), (503, "unavailable"), "{}", reply.text());
        assert_eq!(reply.header("retry-after"), Some("5"));
        assert!(!reply.message().contains("127."), "a stranger is not told who is asked: {}", reply.message());
    }
    assert_eq!(ask(&app, "r", crate::support::TOKEN).await.status, 200, "others are not concerned");
    issuer.upstream.listen().await;
    assert_eq!(ask(&app, "r", &token).await.status, 503, "it rests");
    app.clock.advance(Duration::from_secs(5));
    assert_eq!(ask(&app, "r", &token).await.status, 200);
}

/// Invalid key sets, each in place of a good set and as the first set.
#[tokio::test]
async fn an_invalid_key_set_changes_nothing() {
    let (key, other) = (SigningKey::new("one", Algorithm::ES256), SigningKey::new("two", Algorithm::ES256));
    let good = set_of(&[&other]);
    let redirect = response(302, "Location: /elsewhere\r\nContent-Type: application/json", "{}");
    let html = response(200, "Content-Type: text/html", "<html>Sign in</html>");
    let untyped = response(200, "", &good[good.len() - 40..]);
    let set = |keys: &Value| json_response(json!({"keys": keys}).to_string());
    let too_large = json_response(format!("{{\"keys\":[],\"filler\":\"{}\"}}", "x".repeat(1024 * 1024)));
    let endless =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n{\"keys\":[".to_vec();
    let oct = json!({"kty": "oct", "k": "AAAA", "kid": "one"});
    for (what, bad) in [
        ("HTML", html),
        ("HTML that says JSON", json_response("<html>")),
        ("no content type", untyped),
        ("a redirect", redirect),
        ("an error", response(500, "Content-Type: application/json", "{}")),
        ("nobody may", response(403, "Content-Type: application/json", "{}")),
        ("nothing", json_response("")),
        ("null", json_response("null")),
        ("a list", json_response("[]")),
        ("no keys", set(&json!([]))),
        ("keys of no use", set(&json!([oct, {"kty": "EC"}, 5]))),
        ("keys twice", json_response("{\"keys\":[],\"keys\":[]}")),
        ("too many", set(&Value::Array(vec![other.jwk(); 300]))),
        ("too large", too_large),
        ("cut off", endless),
    ] {
        let issuer = Issuer::start(set_of(&[&key])).await;
        let app = TestApp::start(&config(&json!([published(&issuer, &json!({}))]))).await;
        let (by_key, by_other) = (key.sign(&claims(&issuer.name())), other.sign(&claims(&issuer.name())));
        assert_eq!(ask(&app, "r", &by_key).await.status, 200);
        issuer.publish(bad.clone());
        assert_unauthenticated(&ask(&app, "r", &by_other).await);
        assert!(issuer.asked() >= 2, "{what}");
        assert_eq!(
            ask(&app, "r", &key.sign(&super::claims_with(&issuer.name(), &json!({"jti": 1})))).await.status,
            200,
            "{what}"
        );
        assert!(issuer.upstream.requests().iter().all(|request| request.target == "/keys"), "{what}");

        let app = TestApp::start(&config(&json!([published(&issuer, &json!({}))]))).await;
        assert_eq!(ask(&app, "r", &by_key).await.status, 503, "{what}");
        issuer.publish(good.clone());
        app.clock.advance(Duration::from_mins(2));
        assert_eq!(ask(&app, "r", &by_other).await.status, 200, "{what}");
    }
}

#[tokio::test]
async fn valid_keys_are_used_beside_invalid_ones() {
    let (key, twin) = (SigningKey::new("one", Algorithm::ES256), SigningKey::new("one", Algorithm::ES256));
    let mut nameless = SigningKey::new("none", Algorithm::ES256).jwk();
    nameless.as_object_mut().unwrap().shift_remove("kid");
    let keys = json!([
        {"kty": "EC", "crv": "P-256", "kid": "one", "x": "!", "y": 5},
        {"kty": "post-quantum", "kid": "pq"},
        null,
        nameless,
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "short"},
        key.jwk(),
        twin.jwk(),
    ]);
    let issuer = Issuer::start(json_response(json!({"keys": keys, "more": 1}).to_string())).await;
    let app = TestApp::start(&config(&json!([published(&issuer, &json!({}))]))).await;
    for signer in [&key, &twin] {
        assert_eq!(ask(&app, "r", &signer.sign(&claims(&issuer.name()))).await.status, 200);
    }
    let nameless = key.sign_as(&json!({"alg": "ES256"}), &claims(&issuer.name()));
    assert_eq!(ask(&app, "r", &nameless).await.status, 200, "a token that names no key is tried with each");
    assert_eq!(app.metric(&format!("appset_gateway_issuer_keys{{issuer=\"{}\"}}", issuer.name())).await, 3);
}

#[tokio::test]
async fn discovery_and_request_credentials_are_supported() {
    let key = SigningKey::new("one", Algorithm::ES256);
    let issuer = Issuer::start(set_of(&[&key])).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "own-token\n").unwrap();
    let entry = published(&issuer, &json!({"jwks": {"discovery": true, "token": {"file": "token"}}}));
    let app = TestApp::start_in(folder, &config(&json!([entry]))).await;
    assert_eq!(ask(&app, "r", &key.sign(&claims(&issuer.name()))).await.status, 200);
    let requests = issuer.upstream.requests();
    let targets: Vec<&str> = requests.iter().map(|request| &*request.target).collect();
    assert_eq!(targets, ["/.well-known/openid-configuration", "/keys"]);
    assert!(requests.iter().all(|request| request.header("authorization") == Some("Bearer own-token")));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_files_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (SigningKey::new("old", Algorithm::ES256), SigningKey::new("new", Algorithm::ES256));
    let (set, pem) = (folder.path().join("keys.json"), folder.path().join("key.pem"));
    let write = |key: &SigningKey| {
        std::fs::write(&set, json!({"keys": [key.jwk()]}).to_string()).unwrap();
        std::fs::write(&pem, &key.public_pem).unwrap();
    };
    write(&old);
    let jwt = json!([
        {"issuer": "set", "audience": AUDIENCE, "algorithms": ["ES256"], "jwks": {"file": "keys.json"}},
        {"issuer": "pem", "audience": AUDIENCE, "algorithms": ["ES256"], "publicKey": "key.pem"},
    ]);
    let app = TestApp::start_in(folder, &config(&jwt)).await;
    let renewing = Arc::clone(&app.app);
    let renewing = tokio::spawn(async move { renewing.renew().await });
    for name in ["set", "pem"] {
        assert_eq!(ask(&app, "r", &old.sign(&claims(name))).await.status, 200);
        assert_unauthenticated(&ask(&app, "r", &new.sign(&claims(name))).await);
    }
    // The time at which the watch of the folder begins is unknown.
    let end = Instant::now() + Duration::from_secs(40);
    for name in ["set", "pem"] {
        while ask(&app, "r", &new.sign(&claims(name))).await.status != 200 {
            assert!(Instant::now() < end, "the new key is not taken");
            write(&new);
            sleep(Duration::from_millis(200)).await;
        }
        assert_unauthenticated(&ask(&app, "r", &old.sign(&claims(name))).await);
    }
    std::fs::write(app.folder.path().join("keys.json"), "{}").unwrap();
    std::fs::write(app.folder.path().join("key.pem"), "").unwrap();
    app.app.setup().auth.refresh();
    for name in ["set", "pem"] {
        assert_eq!(ask(&app, "r", &new.sign(&claims(name))).await.status, 200, "what cannot be used changes nothing");
    }
    renewing.abort();
}

/// A new configuration with the same issuer reuses its keys and does not wait.
#[tokio::test]
async fn keys_survive_a_reload() {
    let (app, mut issuer, key) = gateway(&json!({})).await;
    let token = key.sign(&claims(&issuer.name()));
    assert_eq!((ask(&app, "r", &token).await.status, ask(&app, "other", &token).await.status), (200, 200));
    issuer.upstream.refuse().await;
    let changed = config(&json!([published(&issuer, &json!({"routes": ["r"]}))]));
    app.app.reload(Loaded::parse("new.yaml", changed, BaseDir::new(app.folder.path()))).unwrap();
    assert_eq!(ask(&app, "r", &token).await.status, 200);
    assert_eq!(ask(&app, "other", &token).await.status, 403);
}
