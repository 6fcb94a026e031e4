//! Who calls, by an `Authorization` header.

use std::sync::{Arc, LazyLock};

use appset_gateway::{
    auth::{Auth, AuthConfig, Refused, hash_token},
    base_dir::BaseDir,
    clock::SystemClock,
    problem::{Path, Problems},
};
use http::HeaderValue;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Value, json};

/// The token that opens.
const TOKEN: &str = "strong-password";
/// What it says, and until 2100, signed with [`TOKEN`] by HS256.
const SIGNED: &str = include_str!("../../../fuzz/corpus/jwt/signed");
/// A key whose other half is lost, so that nobody can sign with it.
const PUBLIC_KEY: &[u8] = include_bytes!("public-key.pem");

/// Only the token itself, behind `Bearer` in any case and white space, gets in.
pub fn authorization(data: &[u8]) {
    static AUTH: LazyLock<Auth> = LazyLock::new(|| {
        let config = json!({"tokens": [{"name": "argocd", "sha256": hash_token(TOKEN)}]});
        let config: AuthConfig = serde_json::from_value(config).unwrap();
        let mut problems = Problems::default();
        Auth::build(&config, &BaseDir::default(), Arc::new(SystemClock), &Path::root(), &mut problems)
    });
    let Ok(header) = HeaderValue::from_bytes(data) else { return };
    let text = String::from_utf8_lossy(data);
    let is_right = text.split_once(' ').is_some_and(|(scheme, token)| {
        scheme.eq_ignore_ascii_case("bearer") && token.trim_matches([' ', '\t']) == TOKEN
    });
    match AUTH.authenticate(Some(&header)) {
        Ok(caller) => assert!(is_right && caller.name == "argocd", "{text:?} gets in"),
        Err(refused) => assert!(!is_right && refused == Refused::Wrong, "{text:?} is refused: {refused:?}"),
    }
}

/// No token is taken that was not signed, whatever its header says of keys and algorithms: with a shared secret only the one that
/// was, with a public key none.
pub fn jwt(data: &[u8]) {
    let pinned = |algorithm, key: &DecodingKey| {
        let mut validation = Validation::new(algorithm);
        validation.set_audience(&["appset-gateway"]);
        validation.set_required_spec_claims(&["exp", "aud"]);
        decode::<Value>(data, key, &validation)
    };
    let _ = decode_header(data);
    if pinned(Algorithm::HS256, &DecodingKey::from_secret(TOKEN.as_bytes())).is_ok() {
        assert_eq!(data, SIGNED.as_bytes(), "a token that nobody signed is taken");
    }
    let key = DecodingKey::from_rsa_pem(PUBLIC_KEY).unwrap();
    assert!(pinned(Algorithm::RS256, &key).is_err(), "a token is taken whose key is lost");
}
