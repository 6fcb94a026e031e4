//! Signatures with the certificate of an authority such as Fulcio, verified by the crate `sigstore-verify` against a trusted root from a
//! file. Nothing is fetched.

mod root;

use std::fmt;

use sigstore_verify::{
    CertificateError, Error, TimestampError, TransparencyLogError, VerificationPolicy,
    crypto::{CertificateInfo, parse_certificate_info},
    types::{DerCertificate, Sha256Hash, bundle::Bundle as Parsed},
};

pub(super) use self::root::{Root, RootError};
use super::{
    bundle::{Bundle, Content, Material},
    claims::Claims,
    document_verdict::{DocumentVerdict, SIGNS_BYTES, Signed},
    statement::Statement,
};

/// The reason for a bundle whose log has only promised to have it.
const ONLY_PROMISED: &str = "an entry of it has only the promise of the transparency log, not the proof that it is in there, which \
                             is not supported; sign again, such as with cosign 3";

/// How the issuer and the identity of a certificate fit a signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// They are the signer's.
    Signer,
    /// They differ from the signer's in case, or in a slash at the end of the issuer. Nothing is accepted for that, but nothing
    /// is taken for missing either: the configuration may be misspelt.
    Misspelt,
    /// They are another signer's.
    Other,
}

/// Checks `bundle`, which was read from `bytes`. `fit`: whether a certificate's issuer and identity are those of the signer;
/// `needs_log`, whether the signature and the certificate must be in transparency logs.
pub(super) fn check(
    (bundle, bytes): (&Bundle, &[u8]),
    root: Result<&Root, &dyn fmt::Display>,
    fit: impl Fn(&str, &str) -> Fit,
    needs_log: bool,
    digests: &[String],
) -> DocumentVerdict {
    let Material::Certificate(leaf) = &bundle.material else {
        return DocumentVerdict::Foreign("it was signed with a key, not with a certificate".to_owned());
    };
    // These claims are not verified yet. They only name the intended signer.
    let meant = match parse_certificate_info(&DerCertificate::new(leaf.clone())) {
        Ok(info) => claims(&info),
        Err(error) => return DocumentVerdict::Foreign(format!("its certificate cannot be read: {error}")),
    };
    match fit(&meant.issuer, &meant.identity) {
        Fit::Signer => {}
        Fit::Other => return DocumentVerdict::Foreign(format!("it claims to be by {}", by(&meant))),
        Fit::Misspelt => {
            let why = "the configured signer differs from that in case or in a slash only; write it as the certificate has it";
            return DocumentVerdict::Unknown(format!("it claims to be by {}, and {why}", by(&meant)));
        }
    }
    let envelope = match &bundle.content {
        Ok(Content::Envelope(envelope)) => envelope,
        Ok(Content::Bytes) => return DocumentVerdict::Unknown(SIGNS_BYTES.to_owned()),
        Err(error) => return DocumentVerdict::Bad(error.to_string()),
    };
    let root = match root {
        Ok(root) => root,
        Err(why) => return DocumentVerdict::Unknown(why.to_string()),
    };
    let Statement { digest, says } = match envelope.statement(digests) {
        Ok(statement) => statement,
        Err(error) => return DocumentVerdict::Bad(error.to_string()),
    };
    match verify(bytes, root, needs_log, &digest) {
        // The crate's result counts, not the claims that were read before.
        Ok(proven) if fit(&proven.issuer, &proven.identity) == Fit::Signer => {
            let by = format!("{} {}", proven.issuer, proven.identity);
            DocumentVerdict::Signed(Box::new(Signed { says, claims: Some(proven), by }))
        }
        Ok(other) => DocumentVerdict::Bad(format!("it is by {}", by(&other))),
        Err(error) => refusal(&error, root, leaf, bytes),
    }
}

/// Verifies everything but the identity.
fn verify(bytes: &[u8], root: &Root, needs_log: bool, digest: &str) -> Result<Claims, Error> {
    let text = str::from_utf8(bytes).map_err(|_| Error::InvalidBundle("it is not UTF-8".to_owned()))?;
    let (parsed, digest) = (Parsed::from_json(text)?, Sha256Hash::from_hex(digest)?);
    let mut policy = VerificationPolicy::any_identity();
    if !needs_log {
        policy = policy.skip_tlog_unsafe().skip_sct();
    }
    let proven = root.verifier.verify(digest, &parsed, &policy)?;
    // The specification lets a bundle v0.1 do with the log's promise. But nobody signs the version of a bundle.
    let entries = &parsed.verification_material.tlog_entries;
    if needs_log && entries.iter().any(|entry| entry.inclusion_proof.is_none()) {
        return Err(Error::UnsupportedBundle(ONLY_PROMISED.to_owned()));
    }
    let is_whole = proven.certificate_verified() && (!needs_log || (proven.sct_verified() && proven.tlog_verified()));
    match proven.certificate() {
        Some(info) if is_whole => Ok(claims(info)),
        _ => Err(Error::InvalidBundle("it was not verified as a whole".to_owned())),
    }
}

/// Whether a failure shows a wrong signature, or a root that may be outdated. An authority, a log or a time stamp's signer that
/// the root does not have may be a forger's, or one that came into use after the root was written.
fn refusal(error: &Error, root: &Root, leaf: &[u8], bytes: &[u8]) -> DocumentVerdict {
    let outdated = match error {
        Error::Certificate(CertificateError::NoValidAuthority { .. }) => Some("has no authority that was valid then"),
        Error::Certificate(CertificateError::ChainInvalid(_)) if !root.has_authority(leaf, bytes) => {
            Some("does not have the authority that issued the certificate")
        }
        Error::Certificate(CertificateError::Sct(_)) if root.lacks_certificate_log(leaf) => {
            Some("does not have the log that the certificate names")
        }
        Error::Timestamp(TimestampError::Invalid(_)) if root.lacks_time_authority(bytes) => {
            Some("does not have the authority that signed the time stamp")
        }
        Error::Timestamp(TimestampError::OutsideAuthorityValidity { .. }) => {
            Some("has no authority for time stamps that was valid then")
        }
        Error::TransparencyLog(_) if root.lacks_log(bytes) => Some("does not have the transparency log that it names"),
        Error::TransparencyLog(TransparencyLogError::IntegratedTime(_)) if root::is_ahead(bytes) => {
            return DocumentVerdict::Unknown(format!(
                "it was signed in the future, by the clock of this machine: {error}"
            ));
        }
        Error::TransparencyLog(_) | Error::Timestamp(TimestampError::Invalid(_)) if root.begins_later(bytes) => {
            return DocumentVerdict::Unknown(format!(
                "a log or authority that it names begins to be valid in the future, by the clock of this machine: {error}"
            ));
        }
        Error::UnsupportedBundle(why) => return DocumentVerdict::Unknown(why.clone()),
        _ => None,
    };
    match outdated {
        Some(why) => DocumentVerdict::Unknown(format!("the trusted root {why}; renew the file: {error}")),
        None => DocumentVerdict::Bad(error.to_string()),
    }
}

fn claims(info: &CertificateInfo) -> Claims {
    let ci = info.ci_claims.clone();
    Claims {
        identity: info.identity.as_ref().map(|identity| identity.as_str().to_owned()).unwrap_or_default(),
        issuer: info.issuer.clone().unwrap_or_default(),
        builder: ci.build_signer_uri,
        repository: ci.source_repository_uri,
        commit: ci.source_repository_digest,
        git_ref: ci.source_repository_ref,
        workflow: ci.build_config_uri,
        event: ci.build_trigger,
    }
}

/// Issuer and identity, for messages.
fn by(claims: &Claims) -> String {
    let shown = |text: &str| domain::document::excerpt(text.as_bytes(), 200);
    format!("`{}` of `{}`", shown(&claims.identity), shown(&claims.issuer))
}
