//! Proofs that a delivery comes from a sender who has the hook's secret: a signature of the body, or a token. Everything is compared in
//! constant time.

use aws_lc_rs::hmac;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, header};
use subtle::ConstantTimeEq as _;

use crate::error::SigningError;
use domain::{
    clock::Timestamp,
    file::base_dir::BaseDir,
    glob::NameGlob,
    secret::{Secret, SecretRef},
};

/// How far the time of a signed delivery may be from the gateway's, in milliseconds.
const WINDOW_MS: u64 = 5 * 60 * 1000;
/// The length of a signature with SHA-1, in bytes.
const SHA1_BYTES: usize = 20;
/// The length of a signature with SHA-256, in bytes.
const SHA256_BYTES: usize = 32;

/// The form of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    /// HMAC-SHA256 in hexadecimal, perhaps after `sha256=`, in one of these headers.
    Sha256(&'static [&'static str]),
    /// HMAC-SHA1 in hexadecimal, in this header. Sonatype Nexus supports no other.
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
pub enum Unproven {
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
    /// Checks that a delivery comes with a signature, which may be right.
    pub(super) fn verify_head(
        &self,
        hook: &str,
        headers: &HeaderMap,
        path_token: Option<&str>,
        now: Timestamp,
    ) -> Result<(), Unproven> {
        self.check_path(path_token)?;
        let is_possible = match &self.form {
            Form::Signed(Signature::Standard, None) => {
                let (.., signatures) = standard_headers(headers, now)?;
                standard_signatures(signatures).any(|presented| presented.len() == SHA256_BYTES)
            }
            Form::Signed(form, own) => {
                let length = if let Signature::Sha1(_) = form { SHA1_BYTES } else { SHA256_BYTES };
                hex_signature(headers, *form, own.as_ref())?.is_some_and(|presented| presented.len() == length)
            }
            Form::Token(_) | Form::Path => true,
        };
        if is_possible { Ok(()) } else { Err(Unproven::Wrong(self.differs(hook, headers))) }
    }

    fn check_path(&self, path_token: Option<&str>) -> Result<(), Unproven> {
        if path_token.is_some() == matches!(self.form, Form::Path) {
            return Ok(());
        }
        let where_to = if path_token.is_some() { "no token in its path" } else { "its token at the end of the path" };
        Err(Unproven::Wrong(format!("this hook has {where_to}")))
    }

    /// `hook` is the hook's name, for messages.
    pub(super) fn verify(
        &self,
        hook: &str,
        headers: &HeaderMap,
        path_token: Option<&str>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), Unproven> {
        self.check_path(path_token)?;
        let mut unread = None;
        for secret in &self.secrets {
            match secret.read(&self.base) {
                Ok(secret) if self.is_proven(&secret, headers, path_token, body, now)? => return Ok(()),
                Ok(_) => {}
                Err(why) => unread = Some(why.to_string()),
            }
        }
        Err(unread.map_or_else(|| Unproven::Wrong(self.differs(hook, headers)), Unproven::NoSecret))
    }

    /// Which proof of a delivery differs from which secret of `hook`.
    fn differs(&self, hook: &str, headers: &HeaderMap) -> String {
        match &self.form {
            Form::Path => format!("the token at the end of the path differs from `hooks[{hook}].pathToken`"),
            Form::Token(name) => {
                format!("the token in `{}` differs from `hooks[{hook}].token`", as_written(name.as_str()))
            }
            Form::Signed(form, name) => {
                let names = match form {
                    Signature::Sha1(name) => std::slice::from_ref(name),
                    Signature::Sha256(names) => *names,
                    Signature::Standard => &["webhook-signature"],
                };
                let own = name.as_ref().map(HeaderName::as_str);
                let own = own.or_else(|| names.iter().copied().find(|name| headers.contains_key(*name)));
                let name = as_written(own.or(names.first().copied()).unwrap_or_default());
                format!("the signature in `{name}` was not made with `hooks[{hook}].secret`, or not of this body")
            }
        }
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
                let presented = only(headers, name.as_str())?;
                let bare =
                    presented.strip_prefix("Bearer ").filter(|_| *name == header::AUTHORIZATION).unwrap_or(presented);
                Ok(is_same(presented, secret.expose()) | is_same(bare, secret.expose()))
            }
            Form::Signed(Signature::Standard, None) => is_standard(secret, headers, body, now),
            Form::Signed(form, name) => {
                let algorithm = match form {
                    Signature::Sha1(_) => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
                    Signature::Sha256(_) | Signature::Standard => hmac::HMAC_SHA256,
                };
                let Some(presented) = hex_signature(headers, *form, name.as_ref())? else { return Ok(false) };
                Ok(hmac::verify(&hmac::Key::new(algorithm, secret.expose().as_bytes()), body, &presented).is_ok())
            }
        }
    }
}

impl SharedSecret {
    /// The headers of a delivery of `body` at `now`, and the token for its path, as a sender with the first secret would send them.
    ///
    /// # Errors
    /// When the secret cannot be read.
    pub(super) fn sign(&self, body: &[u8], now: Timestamp) -> Result<SentProof, SigningError> {
        let secret = self.secrets.first().ok_or(SigningError::NoSecret)?.read(&self.base)?;
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

/// The proof of a delivery, as its sender writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentProof {
    /// Headers, by name.
    pub headers: Vec<(String, String)>,
    /// The last part of the path.
    pub path_token: Option<String>,
}

/// The name of a header as documentation writes it: `X-Hub-Signature-256`.
fn as_written(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    });
    words.collect::<Vec<_>>().join("-")
}

/// The key of Standard Webhooks: base64 after `whsec_`.
fn standard_key(secret: &str) -> Vec<u8> {
    let decoded = secret.strip_prefix("whsec_").and_then(|key| BASE64_STANDARD.decode(key).ok());
    decoded.unwrap_or_else(|| secret.as_bytes().to_vec())
}

/// The signature in the header `own`, or in one of those of `form`. `None` if it is not hexadecimal.
fn hex_signature(headers: &HeaderMap, form: Signature, own: Option<&HeaderName>) -> Result<Option<Vec<u8>>, Unproven> {
    let names = match &form {
        Signature::Sha1(name) => std::slice::from_ref(name),
        Signature::Sha256(names) => names,
        Signature::Standard => &[],
    };
    let own = own.map(HeaderName::as_str);
    let name = own.or_else(|| names.iter().copied().find(|name| headers.contains_key(*name)));
    let presented = only(headers, name.or(names.first().copied()).unwrap_or_default())?;
    Ok(base16ct::mixed::decode_vec(presented.strip_prefix("sha256=").unwrap_or(presented)).ok())
}

/// The id, the time and the signatures of a delivery of Standard Webhooks.
fn standard_headers(headers: &HeaderMap, now: Timestamp) -> Result<(&str, &str, &str), Unproven> {
    let (id, time) = (only(headers, "webhook-id")?, only(headers, "webhook-timestamp")?);
    let signatures = only(headers, "webhook-signature")?;
    let seconds: u64 =
        time.parse().map_err(|_| Unproven::Wrong("its `webhook-timestamp` is not a number".to_owned()))?;
    if now.0.abs_diff(seconds.saturating_mul(1000)) > WINDOW_MS {
        return Err(Unproven::Wrong("its `webhook-timestamp` is more than 5 minutes from now".to_owned()));
    }
    Ok((id, time, signatures))
}

/// The signatures of the only known version: `v1,<base64>`, several of them during a rotation at the sender's.
fn standard_signatures(signatures: &str) -> impl Iterator<Item = Vec<u8>> {
    signatures.split(' ').filter_map(|each| BASE64_STANDARD.decode(each.strip_prefix("v1,")?).ok())
}

/// Whether a signature of Standard Webhooks is right.
fn is_standard(secret: &Secret, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<bool, Unproven> {
    let (id, time, signatures) = standard_headers(headers, now)?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &standard_key(secret.expose()));
    let signed = [id.as_bytes(), b".", time.as_bytes(), b".", body].concat();
    Ok(standard_signatures(signatures).any(|presented| hmac::verify(&key, &signed, &presented).is_ok()))
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

fn is_same(presented: &str, secret: &str) -> bool {
    presented.as_bytes().ct_eq(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_wrong_proof_says_what_differs_from_which_secret() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "right").unwrap();
        let (secrets, base) = (vec![SecretRef::File("secret".into())], BaseDir::new(folder.path()));
        let of_github = Signature::Sha256(&["x-hub-signature-256"]);
        for (proof, header, token, expected) in [
            (
                Proof::token(secrets.clone(), base.clone(), header::AUTHORIZATION),
                ("authorization", "Bearer wrong"),
                None,
                "the token in `Authorization` differs from `hooks[registry].token`",
            ),
            (
                Proof::signed(secrets.clone(), base.clone(), of_github, None),
                ("x-hub-signature-256", "sha256=00"),
                None,
                "the signature in `X-Hub-Signature-256` was not made with `hooks[registry].secret`, or not of this body",
            ),
            (
                Proof::path(secrets, base),
                ("x-other", "x"),
                Some("wrong"),
                "the token at the end of the path differs from `hooks[registry].pathToken`",
            ),
        ] {
            let Proof::Secret(secret) = proof else { panic!("it has a secret") };
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static(header.0), HeaderValue::from_static(header.1))]);
            let wrong = secret.verify("registry", &headers, token, b"{}", Timestamp(0));
            assert_eq!(wrong, Err(Unproven::Wrong(expected.to_owned())));
        }
    }
}
