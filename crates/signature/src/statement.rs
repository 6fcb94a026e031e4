//! The signed content of a bundle: a DSSE envelope around an in-toto statement (<https://github.com/secure-systems-lab/dsse>,
//! <https://in-toto.io/Statement/v1>).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use domain::document::{self, Document, DocumentError, excerpt};

/// The media type of an in-toto statement.
const IN_TOTO: &str = "application/vnd.in-toto+json";
/// The versions of in-toto statements, which have the same fields. cosign writes the earlier one for attestations.
const STATEMENTS: [&str; 2] = ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];
/// The predicate of a signature by cosign 3.
const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
/// The predicate of SLSA provenance.
const PROVENANCE: &str = "https://slsa.dev/provenance/v1";

/// Why an envelope cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvelopeError {
    #[error("its envelope has no `payloadType`")]
    NoPayloadType,
    #[error("the payload type of its envelope is `{0}`, not `{IN_TOTO}`")]
    PayloadType(String),
    #[error("its envelope has no `payload`")]
    NoPayload,
    #[error("the payload of its envelope is not in base64")]
    Payload(#[source] base64::DecodeError),
    #[error("its envelope has {0} signatures, not exactly one")]
    Signatures(usize),
    #[error("its signature has no `sig`")]
    NoSignature,
    #[error("its signature is not in base64")]
    Signature(#[source] base64::DecodeError),
}

/// Why a payload is not a statement about an expected digest.
#[derive(Debug, thiserror::Error)]
pub(super) enum StatementError {
    #[error("its statement is not one JSON document: {0}")]
    NotJson(#[source] DocumentError),
    #[error("its payload is not a statement: it has no `_type`")]
    NoType,
    #[error("its payload is not a statement, but `{0}`")]
    OtherType(String),
    #[error("its statement names no SHA-256 digest")]
    NoDigest,
    #[error("its statement is about another digest, sha256:{0}")]
    OtherDigest(String),
    #[error("its statement has no `predicateType`")]
    NoPredicateType,
}

/// A DSSE envelope with one signature.
#[derive(Debug)]
pub(super) struct Envelope {
    payload: Vec<u8>,
    /// The signature.
    pub(super) signature: Vec<u8>,
}

/// An in-toto statement about one of the expected digests.
#[derive(Debug)]
pub(super) struct Statement {
    /// The digest.
    #[cfg_attr(not(feature = "keyless"), allow(dead_code, reason = "no certificate is verified"))]
    pub(super) digest: String,
    /// The type of the statement.
    pub(super) says: Says,
}

/// The type of a statement.
#[derive(Debug)]
pub(super) enum Says {
    /// That it is a signature of the image.
    Signed,
    /// How the image was built: the predicate of SLSA provenance.
    Built(Value),
    /// Anything else, such as a list of its packages; the type of its predicate.
    Other(String),
}

impl Envelope {
    /// Reads an envelope.
    ///
    /// # Errors
    /// When it does not have exactly one signature and a statement as its payload.
    pub(super) fn read(envelope: &Document<'_>) -> Result<Self, EnvelopeError> {
        let text = |key: &str| envelope.get(key).and_then(Document::as_text);
        let payload_type = text("payloadType").ok_or(EnvelopeError::NoPayloadType)?;
        if payload_type != IN_TOTO {
            return Err(EnvelopeError::PayloadType(excerpt(payload_type.as_bytes(), 80)));
        }
        let payload = text("payload").ok_or(EnvelopeError::NoPayload)?;
        let payload = STANDARD.decode(payload).map_err(EnvelopeError::Payload)?;
        let signatures = envelope.get("signatures").and_then(Document::as_list).unwrap_or_default();
        let [signature] = signatures else {
            return Err(EnvelopeError::Signatures(signatures.len()));
        };
        let signature = signature.get("sig").and_then(Document::as_text).ok_or(EnvelopeError::NoSignature)?;
        let signature = STANDARD.decode(signature).map_err(EnvelopeError::Signature)?;
        Ok(Self { payload, signature })
    }

    /// The bytes that are signed: the "Pre-Authentication Encoding" of DSSE.
    pub(super) fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("DSSEv1 {} {IN_TOTO} {} ", IN_TOTO.len(), self.payload.len()).into_bytes();
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// The statement, about one of `digests`.
    ///
    /// # Errors
    /// When it is not a statement, or about something else.
    pub(super) fn statement(&self, digests: &[String]) -> Result<Statement, StatementError> {
        let document = document::read(&self.payload).map_err(StatementError::NotJson)?;
        let text = |key: &str| document.get(key).and_then(Document::as_text);
        let version = text("_type").ok_or(StatementError::NoType)?;
        if !STATEMENTS.contains(&version) {
            return Err(StatementError::OtherType(excerpt(version.as_bytes(), 80)));
        }
        let subjects = document.get("subject").and_then(Document::as_list).unwrap_or_default();
        let named = subjects.iter().filter_map(|subject| subject.get("digest")?.get("sha256")?.as_text());
        let named: Vec<&str> = named.collect();
        let Some(digest) = digests.iter().find(|digest| named.contains(&digest.as_str())) else {
            let other = named.first().ok_or(StatementError::NoDigest)?;
            return Err(StatementError::OtherDigest(excerpt(other.as_bytes(), 64)));
        };
        let says = match text("predicateType") {
            None => return Err(StatementError::NoPredicateType),
            Some(SIGN) => Says::Signed,
            Some(PROVENANCE) => {
                Says::Built(document.get("predicate").map_or(Value::Null, |predicate| predicate.clone().into()))
            }
            Some(other) => Says::Other(excerpt(other.as_bytes(), 120)),
        };
        Ok(Statement { digest: digest.clone(), says })
    }
}
