//! A set of an issuer's keys.

use jsonwebtoken::Algorithm;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{
    compact::Compact,
    key::{KeyError, VerificationKey},
};
use domain::{
    document::{DocumentError, excerpt, parse},
    secret::Secret,
};

/// The most keys of a set. A token that names no key is tried with each.
const MAX_KEYS: usize = 256;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeySetError {
    /// The set is not JSON.
    #[error("it is not one JSON document: {0}")]
    NotJson(#[source] DocumentError),
    /// The set has another form.
    #[error("it is not a set of keys: it has no list `keys`")]
    NoList,
    /// The set has this many keys.
    #[error("it has {0} keys, and at most {MAX_KEYS} are allowed")]
    TooMany(usize),
    /// The set has no keys, or only unusable ones; the text has the reasons.
    #[error("it has no usable key: {0}")]
    NoneUsable(String),
    /// The only key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A set of an issuer's keys.
pub(super) struct KeySet {
    keys: Vec<VerificationKey>,
    /// The hash of the bytes of the set, for noticing changes.
    digest: [u8; 32],
    /// The keys that cannot be used, and why.
    pub unusable: Vec<String>,
}

/// The result of verifying a token's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureCheck {
    /// A key of the set signed it.
    Genuine,
    /// The set has the key that the token names, and that key did not sign it.
    Forged,
    /// No key of the set signed it. A newer set may have the key.
    UnknownKey,
}

impl KeySet {
    /// Parses a published set (RFC 7517, section 5) for the `pinned` algorithms. It may have unusable keys besides usable ones.
    ///
    /// # Errors
    /// When it is not a set, or has no usable key.
    pub(crate) fn of_jwks(body: &[u8], pinned: &[Algorithm]) -> Result<Self, KeySetError> {
        let document = parse(body).map_err(KeySetError::NotJson)?;
        let listed = document.get("keys").and_then(Value::as_array);
        let listed = listed.ok_or(KeySetError::NoList)?;
        if listed.len() > MAX_KEYS {
            return Err(KeySetError::TooMany(listed.len()));
        }
        let (mut keys, mut unusable) = (Vec::new(), Vec::new());
        for (index, jwk) in listed.iter().enumerate() {
            let name = jwk.get("kid").and_then(Value::as_str);
            let shown = name.map_or_else(|| index.to_string(), |name| format!("`{}`", excerpt(name.as_bytes(), 80)));
            match VerificationKey::of_jwk(jwk, pinned) {
                Ok(key) => keys.push(key),
                Err(why) => unusable.push(format!("key {shown}: {why}")),
            }
        }
        if keys.is_empty() {
            let why = if unusable.is_empty() { "it is empty".to_owned() } else { unusable.join("; ") };
            return Err(KeySetError::NoneUsable(excerpt(why.as_bytes(), 500)));
        }
        Ok(Self { keys, digest: Sha256::digest(body).into(), unusable })
    }

    /// The one public key in `pem`.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(super) fn of_pem(pem: &str, pinned: &[Algorithm]) -> Result<Self, KeySetError> {
        Ok(Self::of_one(VerificationKey::of_pem(pem, pinned)?, pem.as_bytes()))
    }

    /// The shared secret.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn of_secret(secret: &Secret, pinned: &[Algorithm]) -> Result<Self, KeySetError> {
        Ok(Self::of_one(VerificationKey::of_secret(secret, pinned)?, secret.expose().as_bytes()))
    }

    fn of_one(key: VerificationKey, source: &[u8]) -> Self {
        Self { keys: vec![key], digest: Sha256::digest(source).into(), unusable: Vec::new() }
    }

    /// Verifies that a key of the set signed `token` by `algorithm`. A key without an id is tried with every token, and a token without a key id
    /// with every key.
    pub(super) fn verify(&self, token: &Compact<'_>, algorithm: Algorithm) -> SignatureCheck {
        let named = token.key_id();
        let may_have_signed =
            |key: &&VerificationKey| named.is_none() || key.id.is_none() || key.id.as_deref() == named;
        if self.keys.iter().filter(may_have_signed).any(|key| key.verifies(token, algorithm)) {
            return SignatureCheck::Genuine;
        }
        let is_known = named.is_some() && self.keys.iter().any(|key| key.id.as_deref() == named);
        if is_known { SignatureCheck::Forged } else { SignatureCheck::UnknownKey }
    }

    /// Whether `other` was read from the same bytes.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// How many keys can be used.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}
