//! An issuer of tokens for tests.

use std::{
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, crypto, jwk::Jwk};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};

use super::upstream::{Step, Upstream, json_response};

/// The seconds since 1970, as the claims of a token have them.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A key that signs tokens.
pub(crate) struct SigningKey {
    name: String,
    algorithm: Algorithm,
    key: EncodingKey,
    jwk: Value,
    /// The public half.
    pub public_pem: String,
}

impl SigningKey {
    /// A new key called `name`, which signs by `algorithm`.
    pub(crate) fn new(name: &str, algorithm: Algorithm) -> Self {
        let kind = match algorithm {
            Algorithm::ES256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            Algorithm::ES384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            Algorithm::EdDSA => &rcgen::PKCS_ED25519,
            _ => &rcgen::PKCS_RSA_SHA256,
        };
        let pair = KeyPair::generate_for(kind).unwrap();
        let pem = pair.serialize_pem();
        let key = match algorithm {
            Algorithm::ES256 | Algorithm::ES384 => EncodingKey::from_ec_pem(pem.as_bytes()),
            Algorithm::EdDSA => EncodingKey::from_ed_pem(pem.as_bytes()),
            _ => EncodingKey::from_rsa_pem(pem.as_bytes()),
        };
        let key = key.unwrap();
        let mut jwk = match algorithm {
            Algorithm::EdDSA => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(pair.der_bytes())})
            }
            _ => serde_json::to_value(Jwk::from_encoding_key(&key, algorithm).unwrap()).unwrap(),
        };
        jwk["kid"] = name.into();
        jwk["use"] = "sig".into();
        Self { name: name.to_owned(), algorithm, key, jwk, public_pem: pair.public_key_pem() }
    }

    /// A key that both sides share.
    pub(crate) fn shared(secret: &str) -> Self {
        let key = EncodingKey::from_secret(secret.as_bytes());
        let (name, algorithm) = ("shared".to_owned(), Algorithm::HS256);
        Self { name, algorithm, key, jwk: Value::Null, public_pem: String::new() }
    }

    /// The public half, as an entry of a key set.
    pub(crate) fn jwk(&self) -> Value {
        self.jwk.clone()
    }

    /// A token with these `claims`.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({"typ": "JWT", "alg": format!("{:?}", self.algorithm), "kid": self.name}), claims)
    }

    /// A token with any header.
    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let text = unsigned(header, claims);
        let signature = crypto::sign(text.as_bytes(), &self.key, self.algorithm).unwrap();
        format!("{text}.{signature}")
    }
}

/// The signed part of a token.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// A key set, as an issuer serves it.
pub(crate) fn set_of(keys: &[&SigningKey]) -> Vec<u8> {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    json_response(json!({"keys": keys}).to_string())
}

/// A server that publishes keys. All paths have the same answer, except its discovery document.
pub(crate) struct Issuer {
    /// The server.
    pub upstream: Upstream,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Issuer {
    /// An issuer whose answer for keys is `answer`, a whole response.
    pub(crate) async fn start(answer: Vec<u8>) -> Self {
        let answer = Arc::new(Mutex::new(answer));
        let current_answer = Arc::clone(&answer);
        let upstream = Upstream::start_apart(move |request| {
            let own = format!("http://{}", request.header("host").unwrap());
            let bytes = match &*request.target {
                "/.well-known/openid-configuration" => {
                    json_response(json!({"issuer": own, "jwks_uri": format!("{own}/keys")}).to_string())
                }
                _ => current_answer.lock().unwrap().clone(),
            };
            vec![Step::Send(bytes)]
        })
        .await;
        Self { upstream, answer }
    }

    /// Changes the answer.
    pub(crate) fn publish(&self, answer: Vec<u8>) {
        *self.answer.lock().unwrap() = answer;
    }

    /// The issuer's name, which is its URL.
    pub(crate) fn name(&self) -> String {
        format!("http://{}", self.upstream.address)
    }

    /// How often its keys were requested.
    pub(crate) fn asked(&self) -> usize {
        self.upstream.requests().iter().filter(|request| request.target == "/keys").count()
    }
}
