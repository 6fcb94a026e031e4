//! One key, and its algorithms: those of the configuration that fit its kind. A public key is therefore never used as a shared secret, whatever
//! a token's header is.

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, crypto,
    jwk::{Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use serde_json::Value;

use super::compact::Compact;
use domain::secret::Secret;

/// The shortest RSA modulus, in bytes (RFC 7518, section 3.3).
const MIN_RSA_BYTES: usize = 2048 / 8;
/// The length of an uncompressed point on P-256, in bytes.
const P256: usize = 65;
/// The length of an uncompressed point on P-384, in bytes.
const P384: usize = 97;
/// The length of an Ed25519 key, in bytes.
const ED25519: usize = 32;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// It is not a key of a known kind.
    #[error("it is malformed, or of an unknown kind")]
    Form(#[source] serde_json::Error),
    /// It is for something else.
    #[error("it is not for signatures (`use`)")]
    Use,
    /// It may not be used to verify.
    #[error("it is not for verifying (`key_ops`)")]
    Operations,
    /// Its numbers cannot be read.
    #[error("it is malformed")]
    Material(#[source] jsonwebtoken::errors::Error),
    /// The file has another content. A certificate or a private key would be read as a key that verifies nothing.
    #[error("it holds no public key in PEM form, with `-----BEGIN PUBLIC KEY-----`")]
    NotPem,
    /// No reader of public keys accepts it. Without a cause, as each reader has its own.
    #[error("it holds no RSA, EC or Ed25519 key that can be read")]
    Unreadable,
    /// It is a shared secret of this many bytes, where more are needed.
    #[error("it has {length} bytes, and its `algorithms` need at least {least}")]
    ShortSecret {
        /// Its length, in bytes.
        length: usize,
        /// The least length, in bytes.
        least: usize,
    },
    /// It cannot be used with any algorithm of the configuration.
    #[error("it fits none of the `algorithms`")]
    NoAlgorithm,
    /// Its RSA modulus is too short.
    #[error("it is an RSA key of less than 2048 bits")]
    ShortRsa,
    /// Its curve is not supported.
    #[error("its curve is not P-256, P-384 or Ed25519")]
    Curve,
    /// It is not public.
    #[error("it is a shared secret, which does not belong into a set of public keys")]
    Shared,
}

/// A key that verifies tokens.
#[derive(Debug)]
pub(super) struct VerificationKey {
    /// Its id, if it has one.
    pub id: Option<String>,
    algorithms: Vec<Algorithm>,
    material: DecodingKey,
}

impl VerificationKey {
    /// The key of a set, for those of the `pinned` algorithms that fit.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) fn of_jwk(jwk: &Value, pinned: &[Algorithm]) -> Result<Self, KeyError> {
        let jwk: Jwk = serde_json::from_value(jwk.clone()).map_err(KeyError::Form)?;
        let common = &jwk.common;
        if common.public_key_use.as_ref().is_some_and(|is_for| *is_for != PublicKeyUse::Signature) {
            return Err(KeyError::Use);
        }
        if common.key_operations.as_ref().is_some_and(|may| !may.contains(&KeyOperations::Verify)) {
            return Err(KeyError::Operations);
        }
        let key = DecodingKey::from_jwk(&jwk).map_err(KeyError::Material)?;
        let is_meant =
            |algorithm: &Algorithm| common.key_algorithm.is_none_or(|own| own == KeyAlgorithm::from(*algorithm));
        let algorithms = fitting(&key)?.iter().copied().filter(is_meant);
        Self::new(common.key_id.clone(), algorithms, key, pinned)
    }

    /// The public key in `pem`.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn of_pem(pem: &str, pinned: &[Algorithm]) -> Result<Self, KeyError> {
        if !["-----BEGIN PUBLIC KEY-----", "-----BEGIN RSA PUBLIC KEY-----"].iter().any(|begin| pem.contains(begin)) {
            return Err(KeyError::NotPem);
        }
        let pem = pem.as_bytes();
        let key = DecodingKey::from_rsa_pem(pem)
            .or_else(|_| DecodingKey::from_ec_pem(pem))
            .or_else(|_| DecodingKey::from_ed_pem(pem))
            .map_err(|_| KeyError::Unreadable)?;
        Self::new(None, fitting(&key)?.iter().copied(), key, pinned)
    }

    /// The shared secret.
    ///
    /// # Errors
    /// When it is shorter than the longest hash of its algorithms.
    pub(crate) fn of_secret(secret: &Secret, pinned: &[Algorithm]) -> Result<Self, KeyError> {
        let secret = secret.expose().as_bytes();
        let least = |algorithm: &Algorithm| match algorithm {
            Algorithm::HS512 => 64,
            Algorithm::HS384 => 48,
            _ => 32,
        };
        let least = pinned.iter().map(least).max().unwrap_or_default();
        if secret.len() < least {
            return Err(KeyError::ShortSecret { length: secret.len(), least });
        }
        let fitting = AlgorithmFamily::Hmac.algorithms();
        Self::new(None, fitting.iter().copied(), DecodingKey::from_secret(secret), pinned)
    }

    fn new(
        id: Option<String>,
        fitting: impl Iterator<Item = Algorithm>,
        material: DecodingKey,
        pinned: &[Algorithm],
    ) -> Result<Self, KeyError> {
        let algorithms: Vec<_> = fitting.filter(|algorithm| pinned.contains(algorithm)).collect();
        if algorithms.is_empty() {
            return Err(KeyError::NoAlgorithm);
        }
        Ok(Self { id, algorithms, material })
    }

    /// Whether it signed `token` by `algorithm`.
    pub(crate) fn verifies(&self, token: &Compact<'_>, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
            && crypto::verify(token.signature, token.signed.as_bytes(), &self.material, algorithm).unwrap_or(false)
    }
}

/// The algorithms that a public key of this kind can be used with.
fn fitting(key: &DecodingKey) -> Result<&'static [Algorithm], KeyError> {
    let length = match key.kind() {
        DecodingKeyKind::SecretOrDer(bytes) => bytes.len(),
        DecodingKeyKind::RsaModulusExponent { n, .. } => n.len(),
    };
    match (key.family(), length) {
        (AlgorithmFamily::Rsa, MIN_RSA_BYTES..) => Ok(AlgorithmFamily::Rsa.algorithms()),
        (AlgorithmFamily::Rsa, _) => Err(KeyError::ShortRsa),
        (AlgorithmFamily::Ec, P256) => Ok(&[Algorithm::ES256]),
        (AlgorithmFamily::Ec, P384) => Ok(&[Algorithm::ES384]),
        (AlgorithmFamily::Ed, ED25519) => Ok(&[Algorithm::EdDSA]),
        (AlgorithmFamily::Ec | AlgorithmFamily::Ed, _) => Err(KeyError::Curve),
        (AlgorithmFamily::Hmac, _) => Err(KeyError::Shared),
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
    use serde_json::json;

    use super::*;

    const ALL: [Algorithm; 7] = [
        Algorithm::RS256,
        Algorithm::PS256,
        Algorithm::ES256,
        Algorithm::ES384,
        Algorithm::EdDSA,
        Algorithm::HS256,
        Algorithm::HS512,
    ];

    fn signed(pair: &KeyPair, algorithm: &str) -> String {
        let encode = |part: String| URL_SAFE_NO_PAD.encode(part);
        let text = format!("{}.{}", encode(json!({"alg": algorithm}).to_string()), encode("{}".to_owned()));
        let signature = pair.sign(text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    #[test]
    fn a_pem_key_verifies_what_its_pair_signed() {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let key = VerificationKey::of_pem(&pair.public_key_pem(), &ALL).unwrap();
        let token = signed(&pair, "EdDSA");
        let compact = Compact::parse(token.as_bytes()).unwrap();
        assert!(key.verifies(&compact, Algorithm::EdDSA));
        // Only for algorithms that fit, whatever the token's header says.
        assert!(!key.verifies(&compact, Algorithm::HS256) && !key.verifies(&compact, Algorithm::RS256));
        let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let forged = signed(&other, "EdDSA");
        assert!(!key.verifies(&Compact::parse(forged.as_bytes()).unwrap(), Algorithm::EdDSA));
        let unsigned = token.rsplit_once('.').unwrap().0.to_owned() + ".";
        assert!(!key.verifies(&Compact::parse(unsigned.as_bytes()).unwrap(), Algorithm::EdDSA));
    }

    #[test]
    fn a_file_without_a_public_key_is_refused() {
        let pair = KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&pair).unwrap().pem();
        let garbage = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n".to_owned();
        for (pem, says) in [
            (String::new(), "holds no public key"),
            (certificate, "holds no public key"),
            (pair.serialize_pem(), "holds no public key"),
            (garbage, "that can be read"),
        ] {
            let why = VerificationKey::of_pem(&pem, &ALL).unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
        }
        let why = VerificationKey::of_pem(&pair.public_key_pem(), &[Algorithm::RS256]).unwrap_err();
        assert_eq!(why.to_string(), "it fits none of the `algorithms`");
    }

    #[test]
    fn a_key_of_a_set_is_used_as_it_declares() {
        let pair = KeyPair::generate().unwrap();
        let point = pair.der_bytes();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        let of = |more: Value| {
            let mut jwk = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y});
            jwk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            VerificationKey::of_jwk(&jwk, &ALL).map(|key| key.algorithms).map_err(|error| error.to_string())
        };
        for good in [json!({}), json!({"use": "sig", "alg": "ES256", "kid": "k"}), json!({"key_ops": ["verify"]})] {
            assert_eq!(of(good), Ok(vec![Algorithm::ES256]));
        }
        for (bad, says) in [
            (json!({"use": "enc"}), "`use`"),
            (json!({"key_ops": ["sign"]}), "`key_ops`"),
            (json!({"alg": "ES384"}), "it fits none of"),
            (json!({"alg": "HS256"}), "it fits none of"),
            (json!({"alg": "ES256K"}), "it fits none of"),
            (json!({"crv": "secp256k1"}), "malformed"),
            (json!({"x": "!"}), "malformed"),
            (json!({"x": "AAAA"}), "its curve is not"),
            (json!({"kty": "oct", "k": "c2VjcmV0"}), "a shared secret"),
            (json!({"kty": "RSA", "n": "AAAA", "e": "AQAB"}), "less than 2048 bits"),
            (json!({"kty": "new"}), ""),
        ] {
            let why = of(bad.clone()).unwrap_err();
            assert!(why.contains(says), "{bad}: {why}");
        }
        assert!(VerificationKey::of_jwk(&json!("key"), &ALL).is_err());
    }

    #[test]
    fn a_secret_is_at_least_as_long_as_the_hash() {
        let of = |length: usize, algorithm| {
            let key = VerificationKey::of_secret(&Secret::from("x".repeat(length)), &[algorithm]);
            key.err().map(|error| error.to_string())
        };
        for (algorithm, least) in [(Algorithm::HS256, 32), (Algorithm::HS384, 48), (Algorithm::HS512, 64)] {
            assert_eq!(of(least, algorithm), None);
            let why = of(least - 1, algorithm).unwrap();
            assert!(why.contains(&format!("need at least {least}")), "{why}");
        }
    }
}
