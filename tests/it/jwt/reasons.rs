//! Reports about tokens: configuration problems, and a log with the reason but never with the token.

use std::time::Duration;

use jsonwebtoken::Algorithm;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{AUDIENCE, claims, claims_with, config, now};
use crate::support::{
    app::build,
    binary::Gateway,
    issuer::{Issuer, SigningKey, set_of, unsigned},
    wire::{argo_request, exchange},
};

/// All problems of an entry of `auth.jwt`.
fn problems(entry: &Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("short"), "0123456789").unwrap();
    std::fs::write(folder.path().join("key.pem"), SigningKey::new("k", Algorithm::ES256).public_pem).unwrap();
    let clock = crate::support::TestClock::standing();
    let built = build(folder.path(), &config(&json!([entry])), clock);
    built.err().map(|report| report.lines().join("\n")).unwrap_or_default()
}

#[test]
fn issuer_mistakes_are_reported_all_at_once() {
    let good = json!({"issuer": "i", "audience": AUDIENCE, "algorithms": ["ES256"], "publicKey": "key.pem"});
    assert_eq!(problems(&good), "");
    for (key, value, says) in [
        ("issuer", json!(""), "auth.jwt[0].issuer: "),
        ("audience", json!([]), "auth.jwt[0].audience: without an audience"),
        ("audience", json!(5), "auth.jwt[0].audience: "),
        ("algorithms", json!([]), "auth.jwt[0].algorithms: without algorithms"),
        ("algorithms", json!(["none"]), "`none`"),
        ("algorithms", json!(["ES512"]), "`ES512`"),
        ("algorithms", json!(["ES256", "HS256"]), "auth.jwt[0].algorithms[1]: `HS256` needs a `secret`"),
        ("algorithms", json!(["RS256"]), "it fits none of the `algorithms`"),
        ("publicKey", json!("nowhere.pem"), "auth.jwt[0].publicKey: cannot read"),
        ("publicKey", Value::Null, "exactly one of `jwks`, `publicKey` and `secret`"),
        ("secret", json!({"file": "short"}), "exactly one of `jwks`, `publicKey` and `secret`"),
        ("jwks", json!({"url": "https://i.example"}), "exactly one of `jwks`, `publicKey` and `secret`"),
        ("name", json!("claims."), "auth.jwt[0].name: "),
        ("leeway", json!("1h"), "unknown key"),
    ] {
        let mut entry = good.clone();
        entry[key] = value.clone();
        let reported = problems(&entry);
        assert!(reported.contains(says), "{key}: {value}: {reported}");
    }
    let by_secret = |algorithms: Value| json!({"issuer": "i", "audience": AUDIENCE, "algorithms": algorithms, "secret": {"file": "short"}});
    assert!(problems(&by_secret(json!(["HS256"]))).contains("it has 10 bytes, and its `algorithms` need at least 32"));
    assert!(!problems(&by_secret(json!(["HS256"]))).contains("0123456789"));
    assert!(
        problems(&by_secret(json!(["HS256", "RS256"])))
            .contains("algorithms[1]: `RS256` needs `jwks` or a `publicKey`")
    );
    for (jwks, says) in [
        (json!({}), "exactly one of `url`, `file` and `discovery: true`"),
        (json!({"url": "https://i.example", "discovery": true}), "exactly one of"),
        (json!({"discovery": true}), "jwks.discovery: the issuer is not a URL that can be fetched"),
        (json!({"url": "http://i.example/keys"}), "jwks.url: it is not https"),
        (json!({"url": "https://i.example", "refresh": "500ms"}), "jwks.refresh: "),
        (json!({"url": "https://i.example", "ca": "nowhere"}), "jwks.ca: "),
        (json!({"url": "https://i.example", "token": {"file": "nowhere"}}), "jwks.token: "),
        (json!({"file": "key.pem"}), "jwks.file: "),
        (json!({"file": "key.pem", "ca": "key.pem"}), "jwks.ca: it has no effect for a file"),
    ] {
        let reported = problems(&json!({"issuer": "i", "audience": AUDIENCE, "algorithms": ["ES256"], "jwks": jwks}));
        assert!(reported.contains(says), "{jwks}: {reported}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_gives_the_reason_and_never_the_token() {
    let (key, forger) = (SigningKey::new("one", Algorithm::ES256), SigningKey::new("one", Algorithm::ES256));
    let issuer = Issuer::start(set_of(&[&key])).await;
    let (name, folder) = (issuer.name(), tempfile::tempdir().unwrap());
    let secret = "c4n4ry".repeat(8);
    std::fs::write(folder.path().join("secret"), &secret).unwrap();
    let jwt = json!([
        super::published(&issuer, &json!({})),
        {"issuer": "shared", "audience": AUDIENCE, "algorithms": ["HS256"], "secret": {"file": "secret"}},
    ]);
    let mut configured: Value = serde_json::from_str(&config(&jwt)).unwrap();
    configured["server"] = json!({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "drain": "0s"});
    configured["log"] = json!({"level": "debug"});
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, configured.to_string()).unwrap();
    let mut gateway = Gateway::serve(&file);
    let good = claims(&name);
    let tokens = [
        (key.sign(&good), ""),
        (SigningKey::shared(&secret).sign(&claims("shared")), ""),
        (forger.sign(&good), "its signature is not by the key that it names"),
        (forger.sign_as(&json!({"alg": "ES256", "kid": "x"}), &good), "none of the issuer's keys signed it"),
        (unsigned(&json!({"alg": "none"}), &good) + ".", "its `alg` is `none`"),
        (key.sign(&claims("https://elsewhere.example")), "no entry of `auth.jwt` has its issuer"),
        (key.sign(&claims_with(&name, &json!({"exp": now() - 90}))), "the token has expired"),
        (key.sign(&claims_with(&name, &json!({"sub": 5}))), "`name` gives a number"),
        ("not-a-jwt-c4n4ry".to_owned(), "it is none of `auth.tokens`, and it is not a JWT"),
        ("x".repeat(9000), "more than 8192 bytes"),
    ];
    let mut seen = String::new();
    for (token, reason) in &tokens {
        let reply = exchange(gateway.address, &argo_request("/r/api/v1/getparams.execute", token, b"{}")).await;
        assert_eq!(reply.status == 200, reason.is_empty(), "{reason}: {}", reply.text());
        seen += &String::from_utf8_lossy(&reply.raw);
    }
    seen += &exchange(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n").await.text();
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.wait(Duration::from_secs(10));
    for (token, reason) in &tokens {
        assert!(log.contains(reason), "{reason}: {log}");
        // Neither the whole token nor its signature, which is the secret part.
        let signature = token.rsplit('.').next().unwrap();
        let is_told = |text: &str| text.contains(token.as_str()) || (signature.len() > 8 && text.contains(signature));
        assert!(!is_told(&log) && !is_told(&seen), "{reason}");
    }
    assert!(!log.contains("c4n4ry") && !seen.contains("c4n4ry"));
}
