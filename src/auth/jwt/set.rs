//! The keys of an issuer at one time.

use jsonwebtoken::Algorithm;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{compact::Compact, key::Key};
use crate::domain::{
    document::{excerpt, parse},
    secret::Secret,
};

/// The most keys that a set may have: a token that names none is tried with each.
const MAX_KEYS: usize = 256;

/// The keys of an issuer at one time.
pub(crate) struct KeySet {
    keys: Vec<Key>,
    /// The hash of what they were read from, to see what is new.
    digest: [u8; 32],
    /// What could not be used, and why.
    pub(crate) unusable: Vec<String>,
}

/// What a set makes of a token's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// One of its keys signed it.
    Genuine,
    /// None did, and a newer set would not hold another of that name.
    Forged,
    /// None did that is known here.
    UnknownKey,
}

impl KeySet {
    /// A set as its issuer publishes it (RFC 7517, section 5), for the `pinned` algorithms. Keys that cannot be used stand beside
    /// those that can.
    ///
    /// # Errors
    /// When it is none, or holds no key that can be used.
    pub(crate) fn of_jwks(body: &[u8], pinned: &[Algorithm]) -> Result<Self, String> {
        let document = parse(body).map_err(|why| format!("it is not one JSON document: {why}"))?;
        let listed = document.get("keys").and_then(Value::as_array);
        let listed = listed.ok_or("it is no set of keys: it has no list `keys`")?;
        if listed.len() > MAX_KEYS {
            return Err(format!("it has {} keys, and more than {MAX_KEYS} are not looked at", listed.len()));
        }
        let (mut keys, mut unusable) = (Vec::new(), Vec::new());
        for (index, jwk) in listed.iter().enumerate() {
            let name = jwk.get("kid").and_then(Value::as_str);
            let shown = name.map_or_else(|| index.to_string(), |name| format!("`{}`", excerpt(name.as_bytes(), 80)));
            match Key::of_jwk(jwk, pinned) {
                Ok(key) => keys.push(key),
                Err(why) => unusable.push(format!("key {shown}: {why}")),
            }
        }
        if keys.is_empty() {
            let why = if unusable.is_empty() { "it is empty".to_owned() } else { unusable.join("; ") };
            return Err(format!("it holds no key that can be used: {}", excerpt(why.as_bytes(), 500)));
        }
        Ok(Self { keys, digest: Sha256::digest(body).into(), unusable })
    }

    /// The one public key in `pem`.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn of_pem(pem: &str, pinned: &[Algorithm]) -> Result<Self, String> {
        Ok(Self::of_one(Key::of_pem(pem, pinned)?, pem.as_bytes()))
    }

    /// What both sides know.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn of_secret(secret: &Secret, pinned: &[Algorithm]) -> Result<Self, String> {
        Ok(Self::of_one(Key::of_secret(secret, pinned)?, secret.expose().as_bytes()))
    }

    fn of_one(key: Key, source: &[u8]) -> Self {
        Self { keys: vec![key], digest: Sha256::digest(source).into(), unusable: Vec::new() }
    }

    /// Whether one of these keys signed `token` by `algorithm`. A key without a name is tried with every token, and a token that names
    /// no key with every one.
    pub(crate) fn verify(&self, token: &Compact<'_>, algorithm: Algorithm) -> Verdict {
        let named = token.key_id();
        let is_meant = |key: &&Key| named.is_none() || key.id.is_none() || key.id.as_deref() == named;
        if self.keys.iter().filter(is_meant).any(|key| key.verifies(token, algorithm)) {
            return Verdict::Genuine;
        }
        let is_known = named.is_some() && self.keys.iter().any(|key| key.id.as_deref() == named);
        if is_known { Verdict::Forged } else { Verdict::UnknownKey }
    }

    /// Whether `other` was read from the same bytes.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// How many keys can be used.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}
