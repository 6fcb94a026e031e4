//! Proofs that a delivery comes from a sender who knows the hook's secret: a signature of the body, or a token. Everything is compared in
//! constant time.

use aws_lc_rs::hmac;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, header};
use subtle::ConstantTimeEq as _;

use crate::{
    domain::{
        clock::Timestamp,
        glob::NameGlob,
        secret::{Secret, SecretRef},
    },
    file::base_dir::BaseDir,
};

/// How far the time of a signed delivery may be from the gateway's, in milliseconds.
const WINDOW_MS: u64 = 5 * 60 * 1000;

/// The form of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    /// HMAC-SHA256 in hexadecimal, perhaps after `sha256=`, in one of these headers.
    Sha256(&'static [&'static str]),
    /// HMAC-SHA1 in hexadecimal, in this header. Sonatype Nexus knows no other.
    Sha1(&'static str),
    /// Standard Webhooks (<https://www.standardwebhooks.com>): HMAC-SHA256 in base64 over id, time and body.
    Standard,
}

/// How a hook is proven.
#[derive(Debug)]
pub(super) enum Proof {
    /// By a secret that sender and gateway share.
    Secret(SharedSecret),
    /// By an authenticated caller whose name this glob matches.
    Caller(NameGlob),
}

/// A secret that sender and gateway share; two of them during a rotation.
#[derive(Debug)]
pub(super) struct SharedSecret {
    secrets: Vec<SecretRef>,
    base: BaseDir,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Signed(Signature, Option<HeaderName>),
    Token(HeaderName),
    Path,
}

/// Why a delivery is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unproven {
    /// Nothing proves it, or the proof is wrong.
    Wrong(String),
    /// The secret cannot be read now.
    NoSecret(String),
}

impl Proof {
    pub(super) const fn signed(
        secrets: Vec<SecretRef>,
        base: BaseDir,
        signature: Signature,
        header: Option<HeaderName>,
    ) -> Self {
        Self::Secret(SharedSecret { secrets, base, form: Form::Signed(signature, header) })
    }

    pub(super) const fn token(secrets: Vec<SecretRef>, base: BaseDir, header: HeaderName) -> Self {
        Self::Secret(SharedSecret { secrets, base, form: Form::Token(header) })
    }

    pub(super) const fn path(secrets: Vec<SecretRef>, base: BaseDir) -> Self {
        Self::Secret(SharedSecret { secrets, base, form: Form::Path })
    }

    pub(super) const fn needs_body(&self) -> bool {
        matches!(self, Self::Secret(SharedSecret { form: Form::Signed(..), .. }))
    }
}

impl SharedSecret {
    pub(super) fn verify(
        &self,
        headers: &HeaderMap,
        path_token: Option<&str>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), Unproven> {
        if path_token.is_some() != matches!(self.form, Form::Path) {
            let where_to =
                if path_token.is_some() { "no token in its path" } else { "its token at the end of the path" };
            return Err(Unproven::Wrong(format!("this hook has {where_to}")));
        }
        let mut unread = None;
        for secret in &self.secrets {
            match secret.read(&self.base) {
                Ok(secret) if self.is_proven(&secret, headers, path_token, body, now)? => return Ok(()),
                Ok(_) => {}
                Err(why) => unread = Some(why),
            }
        }
        Err(unread.map_or_else(
            || Unproven::Wrong("it is wrong; compare the secrets of sender and gateway".to_owned()),
            Unproven::NoSecret,
        ))
    }

    fn is_proven(
        &self,
        secret: &Secret,
        headers: &HeaderMap,
        path_token: Option<&str>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<bool, Unproven> {
        match &self.form {
            Form::Path => Ok(is_same(path_token.unwrap_or_default(), secret.expose())),
            Form::Token(name) => {
                let given = only(headers, name.as_str())?;
                let bare = given.strip_prefix("Bearer ").filter(|_| *name == header::AUTHORIZATION).unwrap_or(given);
                Ok(is_same(given, secret.expose()) | is_same(bare, secret.expose()))
            }
            Form::Signed(Signature::Standard, None) => is_standard(secret, headers, body, now),
            Form::Signed(form, name) => {
                let (algorithm, names) = match form {
                    Signature::Sha1(name) => (hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, std::slice::from_ref(name)),
                    Signature::Sha256(names) => (hmac::HMAC_SHA256, *names),
                    Signature::Standard => (hmac::HMAC_SHA256, &[][..]),
                };
                let own = name.as_ref().map(HeaderName::as_str);
                let name = own.or_else(|| names.iter().copied().find(|name| headers.contains_key(*name)));
                let given = only(headers, name.or(names.first().copied()).unwrap_or_default())?;
                let given = given.strip_prefix("sha256=").unwrap_or(given);
                let Ok(given) = base16ct::mixed::decode_vec(given) else { return Ok(false) };
                Ok(hmac::verify(&hmac::Key::new(algorithm, secret.expose().as_bytes()), body, &given).is_ok())
            }
        }
    }
}

impl SharedSecret {
    /// The headers of a delivery of `body` at `now`, and the token for its path, as a sender with the first secret would send them.
    ///
    /// # Errors
    /// When the secret cannot be read.
    pub(super) fn sign(&self, body: &[u8], now: Timestamp) -> Result<SentProof, String> {
        let secret = self.secrets.first().ok_or("it has no secret")?.read(&self.base)?;
        let (secret, hex) = (secret.expose(), base16ct::lower::encode_string);
        let mac = |algorithm, key: &[u8], body: &[u8]| hmac::sign(&hmac::Key::new(algorithm, key), body);
        let header =
            |name: &str, value: String| SentProof { headers: vec![(name.to_owned(), value)], path_token: None };
        Ok(match &self.form {
            Form::Path => SentProof { headers: Vec::new(), path_token: Some(secret.to_owned()) },
            Form::Token(name) if *name == header::AUTHORIZATION => header("authorization", format!("Bearer {secret}")),
            Form::Token(name) => header(name.as_str(), secret.to_owned()),
            Form::Signed(Signature::Standard, None) => {
                let (id, time) = (format!("msg_{:x}", now.0), (now.0 / 1000).to_string());
                let signed = [id.as_bytes(), b".", time.as_bytes(), b".", body].concat();
                let signature = BASE64_STANDARD.encode(mac(hmac::HMAC_SHA256, &standard_key(secret), &signed));
                let headers =
                    [("webhook-id", id), ("webhook-timestamp", time), ("webhook-signature", format!("v1,{signature}"))];
                let headers = headers.map(|(name, value)| (name.to_owned(), value)).into();
                SentProof { headers, path_token: None }
            }
            Form::Signed(Signature::Sha1(name), own) => {
                let value = hex(mac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes(), body).as_ref());
                header(own.as_ref().map_or(*name, HeaderName::as_str), value)
            }
            Form::Signed(form, own) => {
                let names = if let Signature::Sha256(names) = form { *names } else { &[] };
                let name = own.as_ref().map(HeaderName::as_str).or(names.first().copied()).unwrap_or_default();
                let value = hex(mac(hmac::HMAC_SHA256, secret.as_bytes(), body).as_ref());
                let is_github = name.to_ascii_lowercase().starts_with("x-hub-signature");
                header(name, if is_github { format!("sha256={value}") } else { value })
            }
        })
    }
}

/// What proves a delivery, on its sender's side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentProof {
    /// Headers, by name.
    pub(crate) headers: Vec<(String, String)>,
    /// The last part of the path.
    pub(crate) path_token: Option<String>,
}

/// The key of Standard Webhooks: base64 after `whsec_`.
fn standard_key(secret: &str) -> Vec<u8> {
    let decoded = secret.strip_prefix("whsec_").and_then(|key| BASE64_STANDARD.decode(key).ok());
    decoded.unwrap_or_else(|| secret.as_bytes().to_vec())
}

/// A signature of Standard Webhooks: `v1,<base64>`, several of them during a rotation at the sender's.
fn is_standard(secret: &Secret, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<bool, Unproven> {
    let (id, time) = (only(headers, "webhook-id")?, only(headers, "webhook-timestamp")?);
    let signatures = only(headers, "webhook-signature")?;
    let seconds: u64 =
        time.parse().map_err(|_| Unproven::Wrong("its `webhook-timestamp` is not a number".to_owned()))?;
    if now.0.abs_diff(seconds.saturating_mul(1000)) > WINDOW_MS {
        return Err(Unproven::Wrong("its `webhook-timestamp` is more than 5 minutes from now".to_owned()));
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, &standard_key(secret.expose()));
    let signed = [id.as_bytes(), b".", time.as_bytes(), b".", body].concat();
    let mut ours = signatures.split(' ').filter_map(|each| BASE64_STANDARD.decode(each.strip_prefix("v1,")?).ok());
    Ok(ours.any(|given| hmac::verify(&key, &signed, &given).is_ok()))
}

/// The only header with this name.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h str, Unproven> {
    let mut all = headers.get_all(name).iter();
    match (all.next().map(|value| value.to_str()), all.next()) {
        (Some(Ok(value)), None) => Ok(value),
        (None, _) => Err(Unproven::Wrong(format!("it has no header `{name}`"))),
        _ => Err(Unproven::Wrong(format!("it has more than one header `{name}`, or one that is not text"))),
    }
}

fn is_same(given: &str, secret: &str) -> bool {
    given.as_bytes().ct_eq(secret.as_bytes()).into()
}
