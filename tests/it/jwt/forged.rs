//! Forged tokens, and genuine tokens that do not fit.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::{AUDIENCE, ask, assert_unauthenticated, claims, claims_with, config, gateway, now, published};
use crate::support::{
    TestApp,
    issuer::{Issuer, SigningKey, set_of, unsigned},
};

#[tokio::test]
async fn a_token_without_a_signature_is_refused() {
    let (app, issuer, key) = gateway(&json!({})).await;
    let claims = claims(&issuer.name());
    let signed = key.sign(&claims);
    let signature = signed.rsplit_once('.').unwrap().1;
    for algorithm in ["none", "None", "NONE", "nOnE", ""] {
        let unsigned_token = unsigned(&json!({"alg": algorithm, "kid": "one"}), &claims);
        for forged in [
            format!("{unsigned_token}."),
            unsigned_token.clone(),
            format!("{unsigned_token}.{signature}"),
            format!("{unsigned_token}.AA"),
        ] {
            assert_unauthenticated(&ask(&app, "r", &forged).await);
        }
    }
    let unsigned_token = signed.rsplit_once('.').unwrap().0;
    for signature in ["", "AA", &"A".repeat(86), "!", "a.b"] {
        assert_unauthenticated(&ask(&app, "r", &format!("{unsigned_token}.{signature}")).await);
    }
    assert_eq!(ask(&app, "r", &signed).await.status, 200);
}

#[tokio::test]
async fn a_changed_token_is_refused() {
    let (app, issuer, key) = gateway(&json!({})).await;
    let token = key.sign(&claims(&issuer.name()));
    let parts: Vec<&str> = token.split('.').collect();
    let other = URL_SAFE_NO_PAD.encode(claims_with(&issuer.name(), &json!({"sub": "root"})).to_string());
    assert_unauthenticated(&ask(&app, "r", &format!("{}.{other}.{}", parts[0], parts[2])).await);
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "ES256", "kid": "one", "x": 1}).to_string());
    assert_unauthenticated(&ask(&app, "r", &format!("{header}.{}.{}", parts[1], parts[2])).await);
}

/// An attacker who knows the public key uses it as a shared HMAC secret.
#[tokio::test]
async fn a_public_key_is_never_used_as_a_shared_secret() {
    let rsa = SigningKey::new("one", Algorithm::RS256);
    let issuer = Issuer::start(set_of(&[&rsa])).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key.pem"), &rsa.public_pem).unwrap();
    let jwt = json!([
        published(&issuer, &json!({"algorithms": ["RS256"]})),
        {"issuer": "file", "audience": AUDIENCE, "algorithms": ["RS256"], "publicKey": "key.pem"},
    ]);
    let app = TestApp::start_in(folder, &config(&jwt)).await;
    let jwk = rsa.jwk();
    for name in [issuer.name(), "file".to_owned()] {
        let claims = claims(&name);
        assert_eq!(ask(&app, "r", &rsa.sign(&claims)).await.status, 200);
        for secret in [rsa.public_pem.as_str(), rsa.public_pem.trim(), jwk["n"].as_str().unwrap(), ""] {
            let forged = SigningKey::shared(secret).sign_as(&json!({"alg": "HS256", "kid": "one"}), &claims);
            assert_unauthenticated(&ask(&app, "r", &forged).await);
        }
        // An algorithm of the same family that is not configured.
        let other = rsa.sign_as(&json!({"alg": "RS512", "kid": "one"}), &claims);
        assert_unauthenticated(&ask(&app, "r", &other).await);
    }
}

#[tokio::test]
async fn a_genuine_token_is_refused_with_the_reason() {
    let (app, issuer, key) = gateway(&json!({})).await;
    let forger = SigningKey::new("one", Algorithm::ES256);
    for (more, says) in [
        (json!({"aud": "other"}), "for another audience (`other`); it must be for `appset-gateway`"),
        (json!({"aud": null}), "names no audience"),
        (json!({"exp": now() - 31}), "has expired at"),
        (json!({"exp": (now() + 60).to_string()}), "`exp` is a string, not a number"),
        (json!({"exp": null}), "never expires"),
        (json!({"nbf": now() + 60}), "is valid from"),
        (json!({"sub": null}), "claims do not fit what `auth.jwt[0]` makes of them"),
    ] {
        let claims = claims_with(&issuer.name(), &more);
        let reply = ask(&app, "r", &key.sign(&claims)).await;
        assert_eq!((reply.status, &*reply.code()), (403, "forbidden"), "{more}");
        assert!(reply.message().contains(says), "{more}: {}", reply.message());
        // A forged token is refused without a reason.
        assert_unauthenticated(&ask(&app, "r", &forger.sign(&claims)).await);
    }
    assert_eq!(ask(&app, "r", &key.sign(&claims_with(&issuer.name(), &json!({"exp": now() - 20})))).await.status, 200);
    assert_eq!(ask(&app, "r", &key.sign(&claims_with(&issuer.name(), &json!({"nbf": now() + 20})))).await.status, 200);
}

#[tokio::test]
async fn an_issuers_key_verifies_only_its_own_tokens() {
    let (one, two) = (SigningKey::new("k", Algorithm::ES256), SigningKey::new("k", Algorithm::ES256));
    let (first, second) = (Issuer::start(set_of(&[&one])).await, Issuer::start(set_of(&[&two])).await);
    let jwt = json!([published(&first, &json!({"routes": ["r"]})), published(&second, &json!({"routes": ["other"]}))]);
    let app = TestApp::start(&config(&jwt)).await;
    assert_eq!(ask(&app, "r", &one.sign(&claims(&first.name()))).await.status, 200);
    assert_eq!(ask(&app, "other", &two.sign(&claims(&second.name()))).await.status, 200);
    assert_unauthenticated(&ask(&app, "r", &two.sign(&claims(&first.name()))).await);
    assert_unauthenticated(&ask(&app, "other", &one.sign(&claims(&second.name()))).await);
    for issuer in ["https://elsewhere.example", "", &format!("{}/", first.name())] {
        assert_unauthenticated(&ask(&app, "r", &one.sign(&claims(issuer))).await);
    }
    assert_unauthenticated(&ask(&app, "r", &one.sign(&claims_with("", &json!({"iss": null})))).await);
    assert_unauthenticated(&ask(&app, "r", &one.sign(&claims_with("", &json!({"iss": [first.name()]})))).await);
}

/// A key, or a URL of a key, in the token's own header is ignored.
#[tokio::test]
async fn keys_in_a_token_header_are_ignored() {
    let (app, issuer, key) = gateway(&json!({})).await;
    let attacker = SigningKey::new("one", Algorithm::ES256);
    let attackers_issuer = Issuer::start(set_of(&[&attacker])).await;
    let url = format!("{}/keys", attackers_issuer.name());
    let claims = claims(&issuer.name());
    for more in [
        json!({"jku": url}),
        json!({"x5u": url}),
        json!({"jwk": attacker.jwk()}),
        json!({"jku": url, "kid": url}),
        json!({"x5c": ["AAAA"], "kid": null}),
        json!({"kid": "../../../dev/null"}),
        json!({"kid": "one' or '1'='1"}),
    ] {
        let mut header = json!({"typ": "JWT", "alg": "ES256", "kid": "one"});
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_unauthenticated(&ask(&app, "r", &attacker.sign_as(&header, &claims)).await);
        let own = ask(&app, "r", &key.sign_as(&header, &claims)).await;
        let is_known = header["kid"] == "one" || header["kid"].is_null();
        assert_eq!(own.status == 200, is_known, "{header}: what is not understood is ignored");
    }
    assert_eq!(attackers_issuer.upstream.requests().len(), 0, "nobody asks where a token leads");
    let critical = json!({"alg": "ES256", "kid": "one", "crit": ["b64"], "b64": false});
    assert_unauthenticated(&ask(&app, "r", &key.sign_as(&critical, &claims)).await);
}

#[tokio::test]
async fn a_huge_token_is_refused_unread() {
    let (app, issuer, key) = gateway(&json!({})).await;
    let of_length = |length: usize| key.sign(&claims_with(&issuer.name(), &json!({"filler": "x".repeat(length)})));
    assert_eq!(ask(&app, "r", &of_length(5000)).await.status, 200);
    let huge = of_length(6200);
    assert!(huge.len() > 8 * 1024 && huge.len() < 9 * 1024);
    assert_unauthenticated(&ask(&app, "r", &huge).await);
    // A huge token causes no request for keys.
    assert_eq!(issuer.asked(), 1);
    let deep = (0..1000).fold(json!(1), |inner, _| json!([inner]));
    let deep: Value = json!({"deep": deep});
    assert_unauthenticated(&ask(&app, "r", &key.sign(&claims_with(&issuer.name(), &deep))).await);
}
