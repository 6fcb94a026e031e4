//! Callers, by an `Authorization` header.

use std::{
    net::{IpAddr, Ipv4Addr},
    pin::pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, Waker},
};

use auth::{Auth, AuthConfig, AuthContext, Caller, Refused, hash_token};
use domain::{
    clock::{Clock, SystemClock},
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};
use http::{HeaderMap, HeaderValue, header};
use outbound::Outbound;
use serde_json::{Value, json};
use telemetry::metrics::Metrics;

/// The valid token.
const TOKEN: &str = "strong-password";
/// The secret of an issuer.
const SECRET: &str = "strong-password-of-32-bytes-or-more";
/// A JWT that the issuer signed with it by HS256, for `argocd` and until 2100.
const SIGNED: &str = include_str!("../../../fuzz/corpus/jwt/signed");
/// A public key whose private half is lost, so that nobody can sign with it.
const PUBLIC_KEY: &[u8] = include_bytes!("public-key.pem");

fn build(config: Value) -> Auth {
    let config: AuthConfig = serde_json::from_value(config).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let outbound = Outbound::new(Arc::clone(&clock));
    let base = BaseDir::default();
    let means = AuthContext { base: &base, clock: &clock, outbound: &outbound, metrics: &Metrics::new().unwrap() };
    let mut problems = Problems::default();
    let auth = Auth::build(&config, means, &Path::root(), &mut problems);
    assert_eq!(problems.into_vec(), vec![]);
    auth
}

/// The caller, if no request to another service is needed.
fn authenticate(auth: &Auth, header: &HeaderValue) -> Result<Arc<Caller>, Refused> {
    let peer = IpAddr::from(Ipv4Addr::LOCALHOST);
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, header.clone())]);
    match pin!(auth.authenticate(&headers, peer)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("somebody is asked"),
    }
}

/// Only the token itself gets in, after `Bearer` in any case and white space.
pub(super) fn authorization(data: &[u8]) {
    static AUTH: LazyLock<Auth> =
        LazyLock::new(|| build(json!({"tokens": [{"name": "argocd", "sha256": hash_token(TOKEN)}]})));
    let Ok(header) = HeaderValue::from_bytes(data) else { return };
    let text = String::from_utf8_lossy(data);
    let is_right = text.split_once(' ').is_some_and(|(scheme, token)| {
        scheme.eq_ignore_ascii_case("bearer") && token.trim_matches([' ', '\t']) == TOKEN
    });
    match authenticate(&AUTH, &header) {
        Ok(caller) => assert!(is_right && caller.name == "argocd", "{text:?} gets in"),
        Err(refused) => assert!(!is_right && matches!(refused, Refused::Wrong(_)), "{text:?} is refused: {refused:?}"),
    }
}

/// No unsigned token is accepted, whatever its header says of keys and algorithms: with a shared secret only the signed token,
/// with a public key none.
pub(super) fn jwt(data: &[u8]) {
    static AUTH: LazyLock<Auth> = LazyLock::new(|| {
        let folder = std::env::temp_dir().join(format!("appset-gateway-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, content: &[u8]| {
            std::fs::write(folder.join(name), content).unwrap();
            folder.join(name)
        };
        let (secret, key) = (put("secret", SECRET.as_bytes()), put("key.pem", PUBLIC_KEY));
        let auth = build(json!({"jwt": [
            {"issuer": "https://issuer.example.com", "audience": "appset-gateway", "algorithms": ["HS256"], "secret": {"file": secret}},
            {"issuer": "https://other.example.com", "audience": "appset-gateway", "algorithms": ["RS256"], "publicKey": key},
        ]}));
        std::fs::remove_dir_all(folder).unwrap();
        auth
    });
    let Ok(header) = HeaderValue::from_bytes(&[b"Bearer ", data].concat()) else { return };
    let is_signed = data.trim_ascii() == SIGNED.as_bytes();
    match authenticate(&AUTH, &header) {
        Ok(caller) => assert!(is_signed && caller.name == "argocd", "a token that nobody signed is taken"),
        Err(refused) => assert!(!is_signed, "{refused:?}"),
    }
}
