//! Sigstore bundles (<https://docs.sigstore.dev/about/bundle/>), as far as it takes to find the claimed signer and content. Nothing here
//! verifies anything.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::statement::{Envelope, EnvelopeError};
use domain::document::{self, Document, excerpt};

/// The media types of the versions 0.1 to 0.3.
const VERSIONS: [&str; 4] = [
    "application/vnd.dev.sigstore.bundle.v0.3+json",
    "application/vnd.dev.sigstore.bundle+json;version=0.3",
    "application/vnd.dev.sigstore.bundle+json;version=0.2",
    "application/vnd.dev.sigstore.bundle+json;version=0.1",
];
/// How the media types of all versions begin.
const ANY_VERSION: &str = "application/vnd.dev.sigstore.bundle";

/// A bundle.
#[derive(Debug)]
pub(super) struct Bundle {
    /// The claimed signer.
    pub(super) material: Material,
    /// The signed content.
    ///
    /// # Errors
    /// When it has not exactly one envelope with one signature and a statement.
    pub(super) content: Result<Content, ContentError>,
}

/// How a signature is to be verified, by the bundle.
#[derive(Debug)]
pub(super) enum Material {
    /// By a key that the reader must have; its name, if the bundle has one.
    Key(String),
    /// By a certificate in DER.
    #[cfg_attr(not(feature = "keyless"), allow(dead_code, reason = "no certificate is verified"))]
    Certificate(Vec<u8>),
}

/// The signed content.
#[derive(Debug)]
pub(super) enum Content {
    /// A statement in an envelope.
    Envelope(Envelope),
    /// Bytes that are not in the bundle.
    Bytes,
}

/// Why a bundle has no signed content that can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentError {
    #[error("it has not exactly one of `dsseEnvelope` and `messageSignature`")]
    Forms,
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
}

/// Why a bundle names no signer.
#[derive(Debug, thiserror::Error)]
enum MaterialError {
    #[error("it has no `verificationMaterial`")]
    Missing,
    #[error("its `hint` is not a text")]
    Hint,
    #[error("it has not exactly one of `publicKey`, `certificate` and `x509CertificateChain`")]
    Forms,
    #[error("its certificate has no `rawBytes`")]
    NoCertificate,
    #[error("its certificate is not in base64")]
    Certificate(#[source] base64::DecodeError),
}

/// Why a document cannot be checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is not a bundle.
    Junk(String),
    /// It is a bundle of an unknown version.
    Unsupported(String),
}

impl Bundle {
    /// Reads a bundle.
    ///
    /// # Errors
    /// When it is not a bundle, or does not name its signer.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Unread> {
        let document =
            document::read(bytes).map_err(|why| Unread::Junk(format!("it is not one JSON document: {why}")))?;
        let version = document.get("mediaType").and_then(Document::as_text);
        match version {
            Some(version) if VERSIONS.contains(&version) => {}
            Some(version) if version.starts_with(ANY_VERSION) => {
                let shown = excerpt(version.as_bytes(), 80);
                return Err(Unread::Unsupported(format!("it is a bundle of an unknown version, `{shown}`")));
            }
            _ => return Err(Unread::Junk("it is not a bundle: its `mediaType` is not that of one".to_owned())),
        }
        let material = Material::read(&document).map_err(|error| Unread::Junk(error.to_string()))?;
        Ok(Self { material, content: Content::read(&document) })
    }

    /// Whether it is to be verified by a key.
    pub(super) const fn is_by_key(&self) -> bool {
        matches!(self.material, Material::Key(_))
    }
}

impl Material {
    fn read(document: &Document<'_>) -> Result<Self, MaterialError> {
        let material = document.get("verificationMaterial").ok_or(MaterialError::Missing)?;
        let (key, leaf) = (material.get("publicKey"), material.get("certificate"));
        let chain = material.get("x509CertificateChain");
        let certificate = match (key, leaf, chain) {
            (Some(key), None, None) => {
                let hint = match key.get("hint") {
                    None => "",
                    Some(hint) => hint.as_text().ok_or(MaterialError::Hint)?,
                };
                return Ok(Self::Key(hint.to_owned()));
            }
            (None, Some(certificate), None) => Some(certificate),
            (None, None, Some(chain)) => chain.get("certificates").and_then(Document::as_list).and_then(<[_]>::first),
            _ => return Err(MaterialError::Forms),
        };
        let encoded = certificate.and_then(|certificate| certificate.get("rawBytes")).and_then(Document::as_text);
        let encoded = encoded.ok_or(MaterialError::NoCertificate)?;
        STANDARD.decode(encoded).map(Self::Certificate).map_err(MaterialError::Certificate)
    }
}

impl Content {
    fn read(document: &Document<'_>) -> Result<Self, ContentError> {
        match (document.get("dsseEnvelope"), document.get("messageSignature")) {
            (Some(envelope), None) => Ok(Self::Envelope(Envelope::read(envelope)?)),
            (None, Some(_)) => Ok(Self::Bytes),
            _ => Err(ContentError::Forms),
        }
    }
}
