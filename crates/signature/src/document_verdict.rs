//! The verdict on one document, for one signer.

use super::{
    bundle::{Bundle, Content, Material},
    claims::Claims,
    key::{PublicKey, is_hint},
    statement::{Says, Statement},
};

/// The verdict on one document, for one signer.
#[derive(Debug)]
pub(super) enum DocumentVerdict {
    /// The signer signed it, and it is about an expected digest.
    Signed(Box<Signed>),
    /// It is unknown.
    Unknown(String),
    /// It claims to be by the signer, and is not, or is about something else.
    Bad(String),
    /// It does not claim to be by the signer.
    Foreign(String),
}

/// A document that a signer signed.
#[derive(Debug)]
pub(super) struct Signed {
    /// The type of its statement.
    pub(super) says: Says,
    /// The authority's claims about the signer; `None` for a key.
    pub(super) claims: Option<Claims>,
    /// The exact signer: the name of the key as in bundles, or issuer and identity.
    pub(super) by: String,
}

impl DocumentVerdict {
    /// A document that `key` signed.
    pub(super) fn signed(says: Says, key: &PublicKey) -> Self {
        Self::Signed(Box::new(Signed { says, claims: None, by: key.hint().to_owned() }))
    }

    /// Checks `bundle` with `key`. The name of the key in the bundle only names the intended reader; it proves nothing.
    pub(super) fn by_key(bundle: &Bundle, key: &PublicKey, digests: &[String]) -> Self {
        let Material::Key(hint) = &bundle.material else {
            return Self::Foreign("it was signed with a certificate, not with a key".to_owned());
        };
        let is_meant = hint == key.hint();
        if !is_meant && is_hint(hint) {
            return Self::Foreign("it names another key".to_owned());
        }
        let refuse = |why: String| if is_meant { Self::Bad(why) } else { Self::Foreign(why) };
        let envelope = match &bundle.content {
            Ok(Content::Envelope(envelope)) => envelope,
            Ok(Content::Bytes) if is_meant => return Self::Unknown(SIGNS_BYTES.to_owned()),
            Ok(Content::Bytes) => return Self::Foreign(SIGNS_BYTES.to_owned()),
            Err(error) => return refuse(error.to_string()),
        };
        if let Err(why) = key.verify(&envelope.signed_bytes(), &envelope.signature) {
            return refuse(why.to_owned());
        }
        match envelope.statement(digests) {
            Ok(Statement { says, .. }) => Self::signed(says, key),
            Err(error) => Self::Bad(error.to_string()),
        }
    }
}

/// The reason for a bundle without a statement. To verify one takes the bytes of the manifest.
pub(super) const SIGNS_BYTES: &str =
    "it signs bytes, not a statement, which is not supported; sign with `cosign sign`, not with `cosign sign-blob`";
