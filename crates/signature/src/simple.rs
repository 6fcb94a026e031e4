//! "Simple signing", the signatures of cosign before version 3
//! (<https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

use super::{document_verdict::DocumentVerdict, key::PublicKey, statement::Says};
use domain::document::{self, Document, DocumentError, excerpt};

/// The type that a payload must have.
const KIND: &str = "cosign container image signature";

/// Why a payload does not sign an image.
#[derive(Debug, thiserror::Error)]
enum PayloadError {
    /// It is not JSON.
    #[error("its payload is not one JSON document: {0}")]
    NotJson(#[source] DocumentError),
    /// Its main part is missing.
    #[error("its payload has no `critical`")]
    NoCritical,
    /// It is of another type.
    #[error("its payload does not say that it is a signature of an image")]
    OtherType,
    /// It is about no image.
    #[error("its payload names no digest")]
    NoDigest,
    /// It is about another image.
    #[error("it signs another digest, {0}")]
    OtherDigest(String),
}

/// A layer of a tag `sha256-<hex>.sig`.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimpleSigning<'a> {
    /// The signed bytes.
    pub(super) payload: &'a [u8],
    /// Their digest in the manifest.
    pub(super) layer_digest: &'a str,
    /// The signature in base64.
    pub(super) signature: Option<&'a str>,
}

impl SimpleSigning<'_> {
    /// Checks it with `key`. It does not name its key, so a signature that the key does not verify is by another signer.
    pub(super) fn check(self, key: &PublicKey, digests: &[String]) -> DocumentVerdict {
        let hash = base16ct::lower::encode_string(&Sha256::digest(self.payload));
        if self.layer_digest != format!("sha256:{hash}") {
            return DocumentVerdict::Unknown("its bytes are not those that its manifest names".to_owned());
        }
        let Some(signature) = self.signature else {
            return DocumentVerdict::Foreign("it has no annotation with a signature".to_owned());
        };
        let Ok(signature) = STANDARD.decode(signature) else {
            return DocumentVerdict::Foreign("its signature is not in base64".to_owned());
        };
        if let Err(why) = key.verify(self.payload, &signature) {
            return DocumentVerdict::Foreign(why.to_owned());
        }
        match names(self.payload, digests) {
            Ok(()) => DocumentVerdict::signed(Says::Signed, key),
            Err(error) => DocumentVerdict::Bad(error.to_string()),
        }
    }
}

/// Checks that `payload` names one of `digests`.
fn names(payload: &[u8], digests: &[String]) -> Result<(), PayloadError> {
    let document = document::read(payload).map_err(PayloadError::NotJson)?;
    let critical = document.get("critical").ok_or(PayloadError::NoCritical)?;
    if critical.get("type").and_then(Document::as_text) != Some(KIND) {
        return Err(PayloadError::OtherType);
    }
    let image = critical.get("image").and_then(|image| image.get("docker-manifest-digest")).and_then(Document::as_text);
    let image = image.ok_or(PayloadError::NoDigest)?;
    if digests.iter().any(|digest| image.strip_prefix("sha256:") == Some(digest)) {
        Ok(())
    } else {
        Err(PayloadError::OtherDigest(excerpt(image.as_bytes(), 71)))
    }
}
